"""No answer depends on an index that is damaged, missing, replaced or on a full disk.

`test_listing_at_once` has the tests with several processes.
"""

import contextlib
import errno
import gc
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hansard
from hansard import SessionInfo
from hansard.index import sqlite_storage, text_index
from tests.crashlab import faults
from tests.unit.disk_probe import flip, index_of
from tests.unit.index import reference_listing
from tests.unit.index.random_store import RandomStore

MESSAGE = {"role": "user", "content": "hello"}


@pytest.fixture
def root(tmp_path: Path, rng: random.Random) -> Path:
    """Return a store after random calls, whose index lacks the last ones."""
    path = tmp_path / "store"
    with hansard.open(path, durability="os") as store:
        busy = RandomStore(store, rng, [tmp_path])
        busy.do(80)
        store.session("steady").add_message(MESSAGE)
        store.sessions()
        store.stats()
        busy.do(3)
    return path


def truth(root: Path) -> list[SessionInfo]:
    """Return the sessions as read from the logs."""
    with hansard.open(root, read_only=True) as store:
        return reference_listing.everything(store)


def check(root: Path) -> None:
    """Check that a listing agrees with the logs, also after a change."""
    expected = truth(root)
    with hansard.open(root, durability="os") as store:
        assert store.sessions().items == expected
        assert store.sessions(order="-updated").items == reference_listing.listing(
            expected, order="-updated"
        )
        assert store.count() == store.stats().sessions == len(expected)
        store.session("new").add_message(MESSAGE)
        assert "new" in [info.id for info in store.sessions().items]
        latest = store.latest()
        assert latest is not None
        assert latest.id == "new"
        store.delete("new")
        store.purge("new")


def test_an_altered_state_in_the_index_is_not_used(tmp_path: Path) -> None:
    """N-35, N-86: a stored state is used only with a valid checksum; otherwise the log is folded again."""
    root = tmp_path / "altered"
    with hansard.open(root, durability="os") as store:
        for number in range(5):
            store.session("s").add_message({"n": number})
        assert store.sessions().items[0].message_count == 5
    with sqlite3.connect(index_of(root)) as connection:
        ((state,),) = connection.execute("SELECT state FROM index_session").fetchall()
        altered = state.replace(b'"message.added":5', b'"message.added":0')
        assert altered != state
        connection.execute("UPDATE index_session SET state = ?", (altered,))
    connection.close()
    with hansard.open(root, durability="os") as store:
        store.session("s").add_message({"n": 5})
        assert store.sessions().items[0].message_count == 6


def test_a_row_that_cannot_be_removed_does_not_cause_an_endless_loop(tmp_path: Path) -> None:
    """N-38, N-53: one byte of the unread list is altered: SQLite finds the row, and cannot remove it."""
    root = tmp_path / "s"
    names = ["m1", "m2", "m3", "m4", "m5"]
    with hansard.open(root, durability="os") as store:
        for name in names:
            store.session(name).add_message({"role": "user", "content": f"words of {name}"})
        assert [info.id for info in store.sessions().items] == names
    with contextlib.closing(sqlite3.connect(index_of(root))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'index_unread'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = index_of(root).read_bytes()
    begin = (page - 1) * size
    at = data.index(b"m3", begin, begin + size)
    index_of(root).write_bytes(data[:at] + b"!" + data[at + 1 :])
    with hansard.open(root, durability="os") as store:
        assert sorted(hit.session for hit in store.search("words")) == names


def test_a_step_without_progress_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-38, N-53: a step that changes nothing is the last one, and the search raises."""
    monkeypatch.setattr(text_index.TextIndexer, "run", lambda _: None)
    with hansard.open(tmp_path / "s", durability="os") as store:
        store.session("s").add_message({"role": "user", "content": "words"})
        with pytest.raises(hansard.HansardError, match="makes no progress"):
            store.search("words")


def test_a_cycle_of_forks_in_the_index_does_not_cause_an_endless_loop(tmp_path: Path) -> None:
    """N-38, N-53: an index in which a session was forked from its own fork changes no answer."""
    root = tmp_path / "s"
    with hansard.open(root, durability="os") as store:
        store.session("a").add_messages([{"role": "user", "content": "words"}] * 3)
        store.session("a").fork("b").add_message({"role": "user", "content": "more words"})
        found = store.search("words")
        assert {hit.session for hit in found} == {"a", "b"}
    execute(index_of(root), "UPDATE index_log SET parent = iif(id = 'a', 'b', 'a')")
    with hansard.open(root, durability="os") as store:
        assert store.search("words") == found
        assert {hit.session for hit in store.search("words", session="a")} == {"a"}


@pytest.mark.slow
def test_flipped_bytes_in_the_index_lose_no_session(root: Path, rng: random.Random) -> None:
    """N-35, N-86: wherever the index is damaged, nothing raises, and every session is listed correctly."""
    execute(index_of(root), "PRAGMA wal_checkpoint(TRUNCATE)")
    data = index_of(root).read_bytes()
    expected = truth(root)
    for place in [*range(0, 100, 9), *(rng.randrange(len(data)) for _ in range(60))]:
        damaged = bytearray(data)
        for near in range(place, min(place + rng.choice([1, 1, 8, 4096]), len(data))):
            damaged[near] ^= rng.randrange(1, 256)
        for path in root.glob("index-*.db-*"):
            path.unlink()
        index_of(root).write_bytes(damaged)
        with hansard.open(root, durability="os") as store:
            for order in ("id", "-updated"):
                found = store.sessions(order=order, limit=1000).items
                assert sorted(found, key=lambda info: info.id) == expected
            assert store.session("steady").children() == []
            store.latest(skip_damaged=True)
            assert store.stats().sessions == len(expected)


def execute(path: Path, *statements: str) -> None:
    """Run statements of SQL in a database."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def another_database(path: Path) -> None:
    """Replace it by another program's database, with a table of the same name."""
    path.unlink()
    made_up = "INSERT INTO index_session VALUES ('made up')"
    execute(path, "CREATE TABLE index_session (id TEXT)", made_up)


def a_directory(path: Path) -> None:
    """Replace it by a directory that is not empty."""
    path.unlink()
    path.mkdir()
    (path / "file").write_text("kept")


def a_link(path: Path) -> None:
    """Replace it by a symbolic link to a database outside of the store."""
    target = path.parent.parent / "other.db"
    shutil.copyfile(path, target)
    path.unlink()
    path.symlink_to(target)


def an_invalid_wal(path: Path) -> None:
    """Replace SQLite's files next to it, as after a crash."""
    path.with_name(f"{path.name}-wal").write_bytes(b"\xff" * 5000)
    path.with_name(f"{path.name}-shm").write_bytes(b"\0" * 32768)


NEWER = sqlite_storage.VERSION + 1
SPOILED: dict[str, Callable[[Path], object]] = {
    "cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: path.write_bytes(b""),
    "one page": lambda path: os.truncate(path, 4096),
    "a text": lambda path: path.write_text("SQLite format 3? No, this is a text.\n" * 500),
    "another database": another_database,
    "a table lost": lambda path: execute(path, "DROP TABLE index_session"),
    "an older version": lambda path: execute(path, "PRAGMA user_version = 0"),
    "a newer version": lambda path: execute(path, f"PRAGMA user_version = {NEWER}"),
    "a directory": a_directory,
    "a link": a_link,
    "an invalid WAL": an_invalid_wal,
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_anything_in_place_of_the_index_loses_no_session(root: Path, spoiled: str) -> None:
    """N-35, N-86: an index that is damaged, foreign, of another version or not a file changes no answer."""
    index = index_of(root)
    target = root.parent / "other.db"
    SPOILED[spoiled](index)
    before = (target.read_bytes(), target.stat().st_mtime_ns) if spoiled == "a link" else None
    check(root)
    if spoiled in {"a directory", "a link", "a newer version"}:
        # They are not replaced, and sessions are listed without them. No link is followed.
        assert (index / "file").read_text() == "kept" if index.is_dir() else index.exists()
        assert index.is_symlink() == (spoiled == "a link")
        assert before is None or (target.read_bytes(), target.stat().st_mtime_ns) == before
        assert spoiled != "a newer version" or version_of(index) == NEWER
    else:
        assert version_of(index_of(root)) == sqlite_storage.VERSION
        check(root)


def version_of(index: Path) -> int:
    """Return the version of an index."""
    with contextlib.closing(sqlite3.connect(index)) as connection:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_index_without_permission_is_not_needed(root: Path) -> None:
    """N-35: without permission to read or write the index, every session is listed."""
    for mode in (0o000, 0o400):
        index_of(root).chmod(mode)
        check(root)


def test_an_index_damaged_under_an_open_store_is_rebuilt(
    root: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-35, N-86: an open store can list after every damage of its index file."""
    # SQLite may take a file that was replaced while in use for locked.
    monkeypatch.setattr(sqlite_storage, "_PATIENCE", 0.5)
    with hansard.open(root, durability="os") as store:
        for spoiled in ("a text", "cut off", "a table lost", "another database", "empty"):
            store.sessions()
            # The files next to it may belong to its predecessor.
            with contextlib.suppress(sqlite3.DatabaseError):
                SPOILED[spoiled](index_of(root))
            store.session("steady").add_message(MESSAGE)
            assert store.sessions().items == reference_listing.everything(store)
            assert store.stats().sessions == store.count()
            RandomStore(store, rng, [root]).do(5)
            assert store.sessions().items == reference_listing.everything(store)


def small_databases(pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit index files to a number of pages: the same error as on a full disk."""
    real = sqlite_storage.connect

    def connect(path: str) -> sqlite_storage.IndexConnection:
        connection = real(path)
        if path not in {"", ":memory:"}:
            connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(sqlite_storage, "connect", connect)


@pytest.mark.parametrize("pages", [1, 20, 40])
def test_a_full_disk_does_not_prevent_a_listing(
    root: Path, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-35: without space for an index, sessions are listed without it."""
    for path in root.glob("index*"):
        path.unlink()
    with monkeypatch.context() as context:
        small_databases(pages, context)
        check(root)
    check(root)


@pytest.mark.parametrize("only", [("create_file", "remove"), ("write_at", "write"), ("status",)])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO, errno.EROFS])
def test_disk_errors_while_an_index_is_created_fail_no_listing(
    root: Path, only: tuple[str, ...], number: int
) -> None:
    """N-35: errors of the system for index and change markers change no answer."""
    for path in root.glob("index*"):
        path.unlink()
    expected = [info.id for info in truth(root)]
    for at in range(1, 200):
        with (
            hansard.open(root, durability="os") as store,
            faults.fail(number, at=at, only=only) as fault,
        ):
            found = [info.id for info in store.sessions().items]
            assert found == expected
        if not fault.fired:
            return
        for path in root.glob("index*"):
            path.unlink()
    raise AssertionError


def test_a_session_that_cannot_be_opened_is_read_again_by_the_next_listing(tmp_path: Path) -> None:
    """N-35: a session that the system refuses to read is flagged, and read again by the next listing."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        for name in "ab":
            store.session(name).add_message(MESSAGE)
    with hansard.open(root, durability="os") as store:
        with faults.fail(errno.EIO, at=1, only=("read_at",), lasting=True):
            flagged = [bool(info.damaged) for info in store.sessions().items]
        assert flagged == [True, True]
        assert store.sessions().items == reference_listing.everything(store)
        assert store.count(damaged=False) == 2


@pytest.fixture(autouse=True)
def _no_database_stays_open() -> Iterator[None]:
    """Check that no test leaves databases open."""
    before = open_databases()
    yield
    gc.collect()
    assert open_databases() <= before


def open_databases() -> int:
    """Return the number of this process's descriptors of databases."""
    found = 0
    for path in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            found += "/index-" in os.readlink(path)
    return found


@pytest.mark.parametrize("compacted", [False, True])
def test_damage_that_a_reader_found_is_flagged_in_the_next_listing(
    tmp_path: Path, rng: random.Random, *, compacted: bool
) -> None:
    """N-35: altered bytes under an unchanged time are flagged once a reader has found them."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        # Enough that new events can be read without the damaged part.
        for _ in range(300):
            store.session("s").add_messages([{"pad": rng.randbytes(500).hex()} for _ in range(10)])
        if compacted:
            store.session("s").compact()
        store.session("s").add_message(MESSAGE)
        store.session("t").add_message(MESSAGE)
        store.sessions()
        [log] = [path for path in (root / "sessions/s").iterdir() if path.stat().st_size > 100_000]
        status = log.stat()
        flip(log)
        os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(hansard.Damaged):
            store.session("s").messages()
        assert [info.id for info in store.sessions(damaged=True).items] == ["s"]
