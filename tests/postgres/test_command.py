"""Commands on a store in PostgreSQL behave as on files; `doctor` reports unsafe settings."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from hansard.backend.postgres.schema import VERSION
from hansard.cli.app import COMMANDS
from tests.cli import calls
from tests.cli.batch import batch
from tests.cli.running import Done
from tests.postgres.helpers import message
from tests.postgres.server import Server, sql
from tests.viewer.test_guard import TOKEN, Running

SECRET = "hush-hush-42"  # noqa: S105 - not a real one


def with_password(url: str) -> str:
    """Return a URL with a password, which this server does not check."""
    return url.replace("hansard@", f"hansard:{SECRET}@")


@pytest.mark.slow
def test_every_command_works_and_shows_no_password(url: str, tmp_path: Path) -> None:
    """N-65: each command ends on a copy in PostgreSQL as on files, and shows no password."""
    here = calls.each(tmp_path, "demo")
    names = [name for name, _ in here]
    wanted = []
    with hansard.open(tmp_path / "first" / "store", read_only=True) as local:
        for name in names:
            # A command that writes has its own store.
            own = name if calls.EXAMPLES[name].writes else "shared"
            place = f"{with_password(url)}?schema={own}"
            with hansard.open(place) as store:
                if local.copy_to(store).events:
                    store.session("deleted").add_message(message("bye"))
                    store.delete("deleted")
            words = calls.words(name, tmp_path / "first")
            old = str(tmp_path / "first" / "store")
            other = {old: place, str(tmp_path / "first" / "target"): f"{place}-target"}
            wanted.append({"words": [other.get(word, word) for word in words]})
    on_files = dict(zip(names, batch([calls.call(*found) for found in here]), strict=True))
    by_name = dict(zip(names, batch(wanted), strict=True))
    # `serve` does not end.
    assert names == [name for name in COMMANDS if name not in {"demo", "serve"}]
    for name, found in by_name.items():
        # The server of the tests does not sync, which `doctor` reports.
        code = 1 if name == "doctor" else on_files[name].code
        assert found.code == code, (name, found)
        assert SECRET not in found.out + found.err, name
    for name in ("ls", "search", "replay", "tail", "tree", "diff"):
        assert _plain(by_name[name]) == _plain(on_files[name]), name


def test_the_page_shows_no_password(url: str) -> None:
    """N-65: neither the first lines of `hansard serve` nor any page shows user or password."""
    place = f"{with_password(url)}?schema=served"
    with hansard.open(place) as store:
        store.session("a").add_message(message("hello"))
    served = Running(place, f"--token={TOKEN}").login()
    for path in (
        "/",
        "/?title=none",
        "/session?id=a",
        "/stats",
        "/health?verify=1",
        "/session?id=b",
    ):
        text = served.get(path).text
        assert SECRET not in text, path
        assert "schema=served" in text, path
    served.stop()
    command = [sys.executable, "-m", "hansard", "-s", place, "serve", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
    assert SECRET not in line
    assert "schema=served, read-only" in line


def _plain(done: Done) -> list[str]:
    """Return the output without sizes, which differ between stores."""
    return [" ".join(line.split()[:3]) for line in done.out.splitlines()]


def _remarks(url: str) -> dict[str, str]:
    with hansard.open(url, read_only=True) as store:
        found = store.diagnose()
        assert found.server is not None
        assert found.server.tables == VERSION
        return {diagnostic.code: diagnostic.severity for diagnostic in found.diagnostics}


@pytest.fixture(scope="module")
def careful() -> Iterator[Server]:
    """Return a server that syncs, and whose settings tests change."""
    with Server(16, settings={"fsync": "on"}) as found:
        yield found


@pytest.mark.slow
def test_the_doctor_names_settings_that_lose_data(careful: Server) -> None:
    """Settings with which a server loses acknowledged data are problems, each by its name."""
    url = careful.database()
    hansard.open(url).close()
    assert _remarks(url) == {"no-synchronous-standby": "note"}
    careful.set(synchronous_commit="off", full_page_writes="off")
    assert _remarks(url) == {
        "full-page-writes-off": "problem",
        "synchronous-commit-off": "note",
        "no-synchronous-standby": "note",
    }
    careful.set(
        synchronous_commit="local", full_page_writes="on", synchronous_standby_names="other"
    )
    assert _remarks(url) == {"standby-not-waited-for": "problem"}
    careful.set(synchronous_standby_names="", synchronous_commit="on")


@pytest.mark.usefixtures("store")
def test_the_doctor_reports_a_server_without_fsync(url: str) -> None:
    """A server with fsync = off is a problem."""
    problems = [code for code, severity in _remarks(url).items() if severity == "problem"]
    assert problems == ["fsync-off"]


def test_compact_rewrites_the_tables(url: str) -> None:
    """`compact --all --vacuum` reports that the tables were rewritten."""
    hansard.open(url).close()
    words = ["-s", url, "compact", "--all", "--vacuum"]
    (done,) = batch([{"words": words}])
    assert done.code == 0
    assert "tables rewritten" in done.out


def test_a_store_of_another_version_is_refused(url: str, store: hansard.Store) -> None:
    """N-44, N-84: tables of another version are refused, by `doctor --migrate` too; it changes no others."""
    store.session("s").add_message(message("x"))
    words = ["-s", with_password(url), "doctor", "--migrate"]
    (done,) = batch([{"words": words}])
    assert "version" in done.out
    assert hansard.migrate(url) == []
    sql(url, "INSERT INTO hansard.migrations (version) VALUES (%s)", VERSION + 1)
    (refused,) = batch([{"words": words}])
    assert SECRET not in done.out + done.err + refused.err
    assert "unsupported store version" in refused.err
    for call in (hansard.open, hansard.migrate):
        with pytest.raises(hansard.UnknownFormat, match="unsupported store version"):
            call(url)


def test_migrating_a_missing_store_creates_nothing(url: str, tmp_path: Path) -> None:
    """A missing store is an error, and a directory needs no migration."""
    with pytest.raises(hansard.StoreNotFound):
        hansard.migrate(url)
    with pytest.raises(hansard.StoreNotFound):
        hansard.migrate(str(tmp_path / "none"))
    hansard.open(tmp_path / "files").close()
    assert hansard.migrate(str(tmp_path / "files")) == []
    with pytest.raises(ValueError, match="schema is only for"):
        hansard.migrate(str(tmp_path / "files"), schema="s")
