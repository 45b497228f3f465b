"""Claims about importing that hold for every kind; shown with workspace session files, the simplest."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import hansard
from hansard import importers
from hansard.importers import source
from tests.crashlab import faults
from tests.importers.sources import (
    KEY,
    chat,
    outcomes,
    problems,
    session_file,
    texts,
    write,
)
from tests.unit.disk_probe import tree

FIRST = "0a1b2c3d_20260102_030405"
SECOND = "0a1b2c3d_20260203_040506"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a source with two sessions."""
    session_file(tmp_path / "source", FIRST, "one", "two", title="First", cwd="/home/me/a")
    session_file(tmp_path / "source", SECOND, "three")
    return tmp_path / "source"


def imported(store: hansard.Store, root: Path, kind: str = "workspace") -> importers.Report:
    """Import a source."""
    return importers.import_sessions(store, kind, root)


def test_an_import_stores_everything_once(store: hansard.Store, root: Path, tmp_path: Path) -> None:
    """N-84, N-88: a source becomes sessions with their times; a second run changes neither side."""
    before = tree(root)
    told: list[tuple[int, int]] = []
    report = importers.import_sessions(
        store, "workspace", root, progress=lambda done, of: told.append((done, of))
    )
    assert outcomes(report) == {FIRST: ("imported", 2), SECOND: ("imported", 1)}
    assert report.skipped == []
    assert told == [(1, 2), (2, 2)]
    first = store.session(FIRST)
    assert first.messages() == chat("one", "two")
    assert (first.title, first.metadata["workspace"]) == ("First", "/home/me/a")
    assert first.state().created_stamp == "2026-01-02T03:04:05.000000Z"
    stored = tree(tmp_path / "store")
    assert outcomes(imported(store, root)) == {FIRST: ("present", 0), SECOND: ("present", 0)}
    assert tree(tmp_path / "store") == stored
    assert tree(root) == before
    assert store.verify().ok


def test_a_title_that_a_person_set_stays(store: hansard.Store, root: Path) -> None:
    """N-84: an import of a source that grew, twice, does not replace a title that was set here."""
    imported(store, root)
    store.session(FIRST).set_title("Mine")
    for said in (["one", "two", "three"], ["one", "two", "three", "four"]):
        session_file(root, FIRST, *said, title="Theirs")
        assert outcomes(imported(store, root)) == {FIRST: ("continued", 1), SECOND: ("present", 0)}
        assert texts(store, FIRST) == said
        assert store.session(FIRST).title == "Mine"


def test_a_session_continued_on_both_sides_is_reported(store: hansard.Store, root: Path) -> None:
    """N-88: a session that was continued here is present; if its source grows too, nothing is mixed."""
    imported(store, root)
    store.session(FIRST).add_message({"role": "user", "content": "said here"})
    assert not imported(store, root).skipped
    session_file(root, FIRST, "one", "two", "said there")
    report = imported(store, root)
    assert problems(report) == [f"{FIRST}.json"]
    assert "both here and in its source" in report.skipped[0].what
    assert texts(store, FIRST) == ["one", "two", "said here"]


@pytest.mark.parametrize("changed", [("one",), ("one", "2"), ("1", "two", "three")])
def test_a_source_that_changed_is_reported(
    store: hansard.Store, root: Path, changed: tuple[str, ...]
) -> None:
    """N-88: if a source no longer begins with what was imported, its session stays unchanged."""
    imported(store, root)
    session_file(root, FIRST, *changed)
    assert "has changed since" in imported(store, root).skipped[0].what
    assert texts(store, FIRST) == ["one", "two"]
    importers.import_sessions(store, "workspace", root, prefix="new/")
    assert texts(store, f"new/{FIRST}") == list(changed)


def test_an_existing_session_is_never_overwritten(store: hansard.Store, root: Path) -> None:
    """N-88: sessions of this store, of another kind of source, or in the trash stay unchanged."""
    write(root.parent / "other" / "x.json", {"session_id": SECOND, "messages": chat("1")})
    imported(store, root.parent / "other", "praisonai")
    store.session(FIRST).add_message({"role": "user", "content": "mine"})
    report = imported(store, root)
    assert report.sessions == []
    assert all("not from this source" in problem.what for problem in report.skipped)
    assert (texts(store, FIRST), texts(store, SECOND)) == (["mine"], ["1"])
    store.delete(FIRST)
    assert FIRST in imported(store, root).skipped[0].what
    assert store.trash() == [FIRST]
    assert not store.exists(FIRST)


def test_a_redacted_and_compacted_session_is_recognized(store: hansard.Store, root: Path) -> None:
    """N-84: the record of an import identifies its session, even after its bytes have changed."""
    imported(store, root)
    session = store.session(FIRST)
    session.redact(2)
    session.compact()
    assert outcomes(imported(store, root))[FIRST] == ("present", 0)
    session_file(root, FIRST, "one", "two", "three")
    assert outcomes(imported(store, root))[FIRST] == ("continued", 1)
    assert texts(store, FIRST) == ["two", "three"]


def test_what_cannot_be_read_is_reported_and_stops_nothing(
    store: hansard.Store, root: Path
) -> None:
    """N-81: invalid files and messages are reported with their place; the rest is imported."""
    (root / "0a1b2c3d_20260303_040506.json").write_bytes(b'{"messages": [')
    write(root / "0a1b2c3d_20260404_040506.json", {"messages": [*chat("good"), None, 7, {}]})
    (root / "0a1b2c3d_20260505_040506.json").write_bytes(b"[" * 100_000)
    (root / "0a1b2c3d_20260606_040506.json").write_bytes(b'[{"role": "user", "content": NaN}]')
    report = imported(store, root)
    assert len(report.imported) == 3
    months = [int(problem.where.split("_")[1][4:6]) for problem in report.skipped]
    assert months == [3, 4, 4, 4, 5, 6]
    assert texts(store, "0a1b2c3d_20260404_040506") == ["good"]


def test_a_root_that_is_a_link_is_refused_and_a_pipe_is_skipped(
    store: hansard.Store, root: Path, tmp_path: Path
) -> None:
    """N-14: an import neither follows a link that it is given, nor waits for a pipe."""
    os.mkfifo(root / "0a1b2c3d_20260808_040506.json")
    assert len(imported(store, root).imported) == 2
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(importers.NothingToImport, match="symbolic link"):
        imported(store, tmp_path / "link")


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-74, N-88: a file above the limit is reported and not read."""
    session_file(tmp_path, "inside", "fine")
    files = source.Files(tmp_path)
    assert files.read(tmp_path / "inside.json")
    monkeypatch.setattr(source, "LARGEST", 10)
    assert files.read(tmp_path / "inside.json") is None
    assert "larger than 10 bytes" in files.problems[-1].what


def test_credentials_in_settings_are_removed(store: hansard.Store, tmp_path: Path) -> None:
    """N-65: a credential in a source's settings is not stored; messages are stored verbatim."""
    root = tmp_path / "source"
    said = chat(f"my key is {KEY[::-1]}")
    write(root / f"{FIRST}.json", {"messages": said, "config": {"api_key": KEY, "name": "x"}})
    imported(store, root)
    assert store.session(FIRST).messages() == said
    assert "redacted" in store.session(FIRST).metadata["workspace_file"]["config"]["api_key"]
    store.close()
    assert KEY.encode() not in b"".join(one[-1] for one in tree(tmp_path / "store").values())


def test_what_cannot_be_stored_is_replaced(store: hansard.Store, tmp_path: Path) -> None:
    """N-81: lone surrogates, and items that no record can hold, are replaced and reported."""
    root = tmp_path / "source"
    root.mkdir()
    deep = "[" * 200 + "]" * 200
    (root / f"{FIRST}.json").write_text(
        f'[{{"role": "user", "content": "cut \\ud83d"}}, {{"role": "user", "content": {deep}}}, '
        '{"role": "user", "content": "fine"}]'
    )
    report = imported(store, root)
    assert [problem.what.split(":")[1] for problem in report.skipped] == [" item 1", " item 2"]
    assert texts(store, FIRST) == ["cut \ufffd", "fine"]
    assert [event.kind for event in store.session(FIRST).events()][2] == "x.import.lost"


def test_invalid_and_duplicate_ids_are_reported(store: hansard.Store, tmp_path: Path) -> None:
    """N-1, N-7, N-88: ids that look like paths stay ids; invalid and duplicate ids are reported."""
    root = tmp_path / "source"
    for name, session_id in {"a": "../../x", "b": "x" * 5_000, "c": "same", "d": "same"}.items():
        write(root / f"{name}.json", {"session_id": session_id, "messages": chat(name)})
    report = imported(store, root, "praisonai")
    assert sorted(outcomes(report)) == ["../../x", "same"]
    assert problems(report) == ["b.json", "d.json"]
    assert texts(store, "same") == ["c"]


def fork_of(root: Path, name: str, parent: str | None, *said: str) -> None:
    """Write a session of PraisonAI's that was forked from another."""
    messages = [
        {**one, "timestamp": 1_700_000_000 + n, "metadata": {}} for n, one in enumerate(chat(*said))
    ]
    write(root / f"{name}.json", {"session_id": name, "messages": messages, "parent_id": parent})


def import_into(path: Path, root: Path) -> importers.Report:
    """Import with a new store object, as a process does."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        return imported(store, root, "praisonai")


def stored_in(path: Path) -> dict[str, list[str]]:
    """Return the texts of each session of a store."""
    with hansard.open(path, durability="os", read_only=True) as store:
        return {one: texts(store, one) for one in ("parent", "child") if store.exists(one)}


def write_family(root: Path, *, grown: bool) -> None:
    """Write a session and its fork, before or after both have grown."""
    fork_of(root, "parent", None, "1", "2", *(["3"] if grown else []))
    fork_of(root, "child", "parent", "1", "x", *(["y"] if grown else []))


@pytest.mark.slow
def test_a_kill_at_each_disk_call_leaves_complete_sessions(tmp_path: Path) -> None:
    """N-84, N-88, N-89: killed at any call that changes the disk, an import leaves complete sessions or none.

    The next run stores what one run would have stored, also where a source has grown.
    """
    root = tmp_path / "source"
    complete: list[dict[str, list[str]]] = []
    for grown in (False, True):
        write_family(root, grown=grown)
        import_into(tmp_path / "model", root)
        complete.append(stored_in(tmp_path / "model"))
    at = 0
    fired = True
    while fired:
        at += 1
        path = tmp_path / f"store-{at}"
        hansard.open(path).close()
        fired = False
        for grown in (False, True):
            write_family(root, grown=grown)
            with faults.kill(at=at) as fault, suppress(faults.Killed):
                import_into(path, root)
            fired = fired or fault.fired
            earlier = complete[0] if grown else {}
            for session_id, said in stored_in(path).items():
                assert said in (complete[grown][session_id], earlier.get(session_id))
            assert import_into(path, root).skipped == []
            assert stored_in(path) == complete[grown]
    assert at > 10


@pytest.mark.slow
def test_two_concurrent_imports_store_everything_once(tmp_path: Path) -> None:
    """N-88: two processes that import one source concurrently import each session once."""
    root = tmp_path / "source"
    names = [f"0a1b2c3d_{1_700_000_000 + number}" for number in range(40)]
    for name in names[::2]:
        session_file(root, name, "one", "two")
    with hansard.open(tmp_path / "store", durability="os") as store:
        imported(store, root)
    for name in names:
        session_file(root, name, "one", "two", "three")
    arguments = ["-s", str(tmp_path / "store"), "import", "workspace", str(root), "--json"]
    command = [sys.executable, "-m", "hansard", *arguments]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, stdout=pipe, stderr=pipe) for _ in range(2)]
    try:
        outs = [one.communicate(timeout=60) for one in both]
    finally:
        for one in both:
            one.kill()
    assert [one.returncode for one in both] == [0, 0], outs
    found = [one["outcome"] for out, _ in outs for one in json.loads(out)["sessions"]]
    assert sorted(found) == ["continued"] * 20 + ["imported"] * 20 + ["present"] * 40
    with hansard.open(tmp_path / "store") as store:
        assert [texts(store, name) for name in names] == [["one", "two", "three"]] * 40
