"""What a store logs and counts: what operators need, and no content."""

import fcntl
import logging
import threading
from pathlib import Path

import pytest

import hansard
from hansard.log import disk
from tests.crashlab import faults
from tests.programs import python
from tests.unit.disk_probe import flip, index_of, log_of

PRIVATE = "correct horse battery"


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    """Collect the records of all levels."""
    caplog.set_level(logging.DEBUG, "hansard")


def told(caplog: pytest.LogCaptureFixture, name: str) -> list[tuple[str, str]]:
    """Return level and text of log records."""
    return [(one.levelname, one.getMessage()) for one in caplog.records if one.name == name]


def begin(path: Path, *, lock_timeout: float = 10.0) -> hansard.Session:
    """Return a session with one message."""
    store = hansard.open(path, durability="os", auto_compact=False, lock_timeout=lock_timeout)
    session = store.session("a")
    session.add_message({"role": "user", "content": PRIVATE})
    return session


def test_a_recovered_tail_is_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The append that closes an incomplete end logs its length."""
    session = begin(tmp_path / "s")
    with open(log_of(tmp_path / "s", "a"), "ab") as file:
        file.write(b'{"seq":2,"ti')
    session.add_message({"n": 2})
    text = "session 'a': closed an unfinished append, as a crash leaves it; bytes: 12"
    assert told(caplog, "hansard.append") == [("INFO", text)]


def test_a_failed_sync_is_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An error, in the fast path and in the general one; later appends count as errors, too."""
    with hansard.open(tmp_path / "s") as store:
        for name, count in (("fast", 1), ("batch", 2)):
            session = store.session(name)
            session.add_message({"content": PRIVATE})
            with faults.fail_sync(lost=None), pytest.raises(hansard.SyncFailed):
                session.add_messages([{"content": PRIVATE}] * count)
            with pytest.raises(hansard.SyncFailed):
                session.add_message({"content": PRIVATE})
        metrics = store.metrics()
    found = told(caplog, "hansard.append")
    assert [level for level, _ in found] == ["ERROR", "ERROR"]
    assert found[0][1].startswith("session 'fast': a sync failed: ")
    assert (metrics.failed_syncs, metrics.errors) == (2, 4)


def test_a_long_wait_for_a_lock_is_logged_while_it_lasts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once per wait, with the holder; a wait that ends in a timeout is counted as one."""
    monkeypatch.setattr(disk, "_LONG", 0.0)
    session = begin(tmp_path / "s", lock_timeout=0.05)
    with open(tmp_path / "s" / "sessions" / "a" / "lock", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(hansard.LockTimeout):
            session.add_message({"n": 2})
    ((level, text),) = told(caplog, "hansard.lock")
    assert level == "WARNING"
    assert text.startswith(f"waiting for {tmp_path}/s/sessions/a/lock for more than 0 s: held by ")


def test_lock_waits_are_counted(tmp_path: Path) -> None:
    """A timeout is a wait, with its seconds, and an error of its append."""
    with hansard.open(tmp_path / "s", lock_timeout=0.05) as store:
        store.session("a").add_message({"n": 1})
        with open(tmp_path / "s" / "sessions" / "a" / "lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(hansard.LockTimeout):
                store.session("a").add_message({"n": 2})
        store.session("a").add_message({"n": 2})
        metrics = store.metrics()
    assert (metrics.lock_waits, metrics.lock_timeouts, metrics.errors) == (1, 1, 1)
    assert metrics.lock_wait_seconds >= 0.05
    assert (metrics.appends, metrics.events) == (2, 2)


def test_maintenance_is_logged_without_content(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Compactions, redactions, index builds and purges; no text, title, metadata, key or reason."""
    with hansard.open(tmp_path / "s", auto_compact=False) as store:
        session = store.create("a", metadata={"title": PRIVATE})
        session.add_message({"role": "user", "content": PRIVATE}, key=PRIVATE)
        session.add_messages([{"role": "user", "content": PRIVATE}] * 3)
        session.redact(2, reason=PRIVATE)
        session.scrub("horse", reason=PRIVATE)
        session.drop_history(4, reason=PRIVATE)
        session.compact()
        store.sessions()
        store.search(PRIVATE)
        store.delete("a")
        store.purge("a")
        metrics = store.metrics()
    levels = {
        name: [level for level, _ in told(caplog, f"hansard.{name}")]
        for name in ("append", "compact", "redact", "index", "trash")
    }
    assert levels == {
        "append": ["DEBUG"],
        "compact": ["INFO"],
        "redact": ["INFO"] * 3,
        "index": ["INFO"],
        "trash": ["INFO"],
    }
    assert told(caplog, "hansard.trash") == [("INFO", "purged session 'a'")]
    assert not any(word in caplog.text for word in PRIVATE.split())
    assert (metrics.compactions, metrics.sealed) == (1, 1)


def test_a_damaged_index_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its removal is a warning, and what replaces it is built again."""
    begin(tmp_path / "s")
    with hansard.open(tmp_path / "s") as store:
        store.sessions()
    index_of(tmp_path / "s").write_bytes(b"x" * 8192)
    with hansard.open(tmp_path / "s") as store:
        store.sessions()
    assert [level for level, _ in told(caplog, "hansard.index")] == ["INFO", "WARNING", "INFO"]


def test_damage_is_counted(tmp_path: Path) -> None:
    """Each read that meets it counts."""
    begin(tmp_path / "s")
    flip(log_of(tmp_path / "s", "a"))
    with hansard.open(tmp_path / "s") as store:
        for _ in range(2):
            with pytest.raises(hansard.Damaged):
                store.session("a").messages()
        assert (store.metrics().damaged, store.metrics().reads) == (2, 2)


def test_a_handler_may_append_to_the_session(tmp_path: Path) -> None:
    """Records are logged when no lock is held; an exception of a handler is not one of the append."""
    session = begin(tmp_path / "s")

    class Appends(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            session.append("x.log", {"text": record.getMessage()})
            raise RuntimeError("a bad handler")

    handler = Appends()
    logging.getLogger("hansard").addHandler(handler)
    try:
        with open(log_of(tmp_path / "s", "a"), "ab") as file:
            file.write(b"torn")
        assert session.add_message({"n": 2}).seq == 2
    finally:
        logging.getLogger("hansard").removeHandler(handler)
    assert [event.kind for event in session.events()] == ["message.added"] * 2 + ["x.log"]


def test_threads_lose_no_count(tmp_path: Path) -> None:
    """Appends of eight threads, each to its own session, are all counted."""
    with hansard.open(tmp_path / "s", durability="os") as store:

        def work(name: str) -> None:
            for number in range(500):
                store.session(name).add_message({"n": number})

        threads = [threading.Thread(target=work, args=(f"{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.metrics().appends == 4000


def test_concurrent_appends_share_syncs(tmp_path: Path) -> None:
    """Syncs are counted as they are done, and a store that does not sync has none."""
    for durability, syncs in (("sync", 3), ("os", 0)):
        with hansard.open(tmp_path / durability, durability=durability) as store:  # type: ignore[arg-type]
            for number in range(4):
                store.session("a").add_message({"n": number})
            # The first append syncs a new segment before it has its name.
            assert store.metrics().syncs == syncs


def test_a_scoped_store_has_no_metrics(tmp_path: Path) -> None:
    """They count sessions that it cannot see."""
    with hansard.open(tmp_path / "s") as store, pytest.raises(ValueError, match="not scoped"):
        store.scoped("a/").metrics()


def test_logging_is_imported_for_warnings_only(tmp_path: Path) -> None:
    """A program that has not imported `logging` pays for it only if there is something to print."""
    code = """
import sys, hansard
store = hansard.open("s", auto_compact=False)
session = store.session("a")
session.add_messages([{"n": 1}, {"n": 2}])
session.redact(1)
assert store.metrics().events == 3
assert "logging" not in sys.modules
"""
    done = python("-I", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
