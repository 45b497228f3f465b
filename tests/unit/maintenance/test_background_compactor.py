"""Background compaction: it delays no append and raises no error."""

import errno
import fcntl
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

import hansard
from hansard.backend.contract import Backend
from hansard.backend.local import log as local_log
from hansard.log import segment_reader
from hansard.log.disk import Lock
from hansard.maintenance import compact as compaction
from hansard.maintenance.compact import BackgroundCompactor, CompactReport
from tests.crashlab import faults

NAME = "hansard-compaction"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let sessions be sealed at 20 kB, and check that no thread is left."""
    monkeypatch.setattr(local_log, "SEAL", 20_000)
    yield
    gc.collect()
    settle()
    assert not any(thread.name == NAME for thread in threading.enumerate())


def sealed(root: Path, session_id: str = "a") -> list[str]:
    """Return the names of the compressed segments of a session."""
    return sorted(file.name for file in (root / "sessions" / session_id).glob("*.zst"))


def fill(session: hansard.Session) -> None:
    """Append enough, one by one, to seal the session twice."""
    for number in range(100):
        session.add_message({"content": "x" * 500, "n": number})


def settle() -> None:
    """Wait until nothing is left to compact."""
    for thread in threading.enumerate():
        if thread.name == NAME:
            thread.join(60)


def test_a_session_that_has_grown_is_compacted(tmp_path: Path) -> None:
    """Appends cause sealed segments, and the messages do not change."""
    said = [{"content": "x" * 500, "n": number} for number in range(100)]
    with hansard.open(tmp_path / "s", durability="os") as store:
        session = store.session("a")
        fill(session)
        settle()
        assert len(sealed(tmp_path / "s")) >= 1
        assert session.messages() == said
        assert session.verify().ok
    with hansard.open(tmp_path / "s", read_only=True) as store:
        assert store.session("a").messages() == said


def test_an_append_succeeds_if_the_compactor_cannot_be_imported(tmp_path: Path) -> None:
    """N-24: with too many open files, an append succeeds; a later one starts the compaction."""
    with hansard.open(tmp_path / "s", durability="os") as store:
        session = store.session("a")
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "hansard.maintenance.compact", None)
            for number in range(3):
                session.add_message({"role": "user", "content": "x" * 20_000, "n": number})
            assert not sealed(tmp_path / "s")
        session.add_message({"role": "user", "content": "more"})
        settle()
        assert sealed(tmp_path / "s")
        assert len(session.messages()) == 4


def test_it_pauses_between_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads get the interpreter after each small piece; a requested compaction reads large ones."""
    pauses: list[str] = []
    monkeypatch.setattr(
        segment_reader, "sleep", lambda _: pauses.append(threading.current_thread().name)
    )
    with hansard.open(tmp_path / "s", durability="os") as store:
        store.session("a").add_messages({"n": n, "x": "y" * 1_000} for n in range(400))
        settle()
        assert set(pauses) == {NAME}
        assert len(pauses) >= 400_000 // segment_reader.SMALL_PIECE
        pauses.clear()
        assert store.session("a").verify().ok
        store.compact()
        assert pauses == []


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    """With `auto_compact=False` no session is compacted and no thread starts."""
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        fill(store.session("a"))
        assert not any(thread.name == NAME for thread in threading.enumerate())
    assert sealed(tmp_path / "s") == []


def test_closing_ends_it(tmp_path: Path) -> None:
    """`close` returns after the thread has ended, and leaves a valid store."""
    for turn in range(10):
        with hansard.open(tmp_path / "s", durability="os") as store:
            store.session("a").add_messages(
                {"turn": turn, "n": n, "x": "y" * 400} for n in range(80)
            )
        assert not any(thread.name == NAME for thread in threading.enumerate())
    with hansard.open(tmp_path / "s", read_only=True) as store:
        assert len(store.session("a").messages()) == 800
        assert store.verify().ok
    assert not list((tmp_path / "s" / "sessions" / "a").glob(".tmp*"))


def test_a_store_without_references_is_collected(tmp_path: Path) -> None:
    """The thread does not keep a store alive that was dropped without `close`."""
    store = hansard.open(tmp_path / "s", durability="os")
    session = store.session("a")
    fill(session)
    settle()
    backend = weakref.ref(store._backend)
    del store, session
    gc.collect()
    assert backend() is None


def test_a_compaction_that_fails_fails_no_append(tmp_path: Path) -> None:
    """N-29: a compaction that the disk refuses does not fail an append, and succeeds later."""
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        session = store.session("a")
        fill(session)
        compactor = BackgroundCompactor(store._backend)
        with faults.fail(errno.ENOSPC, only={"create_file"}, lasting=True):
            compactor.compact("a")
        assert sealed(tmp_path / "s") == []
        assert len(session.messages()) == 100
        compactor.compact("a")
        assert len(sealed(tmp_path / "s")) == 1
        assert len(session.messages()) == 100


FORKING = """
import os, sys, hansard
from hansard.backend.local import log as local_log
local_log.SEAL = 20_000
store = hansard.open(sys.argv[1], durability="os")
session = store.session("a")
def say(count):
    for n in range(count):
        session.add_message({"content": "x" * 500, "n": n})
say(100)
child = os.fork()
say(100)
store.close()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_has_its_own(tmp_path: Path) -> None:
    """N-23: after a fork both processes append and compact, and nothing is lost or repeated."""
    subprocess.run(
        [sys.executable, "-c", FORKING, str(tmp_path / "s")], check=True, timeout=60, env=os.environ
    )
    with hansard.open(tmp_path / "s", read_only=True) as store:
        assert store.session("a").seq == 300
        assert store.verify().ok


def test_compact_waits_for_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-24: `compact()` waits for a background compaction of the session."""
    begun, wanted = threading.Event(), threading.Event()
    real = Lock._wait
    check = BackgroundCompactor._check

    def hold(compactor: BackgroundCompactor, done: int, total: int) -> None:
        begun.set()
        wanted.wait(60)
        check(compactor, done, total)

    def waiting(lock: Lock, *more: Any) -> None:
        if lock.path.endswith("compaction"):
            wanted.set()
        real(lock, *more)

    monkeypatch.setattr(BackgroundCompactor, "_check", hold)
    monkeypatch.setattr(Lock, "_wait", waiting)
    with hansard.open(tmp_path / "s", durability="os", lock_timeout=60) as store:
        session = store.session("a")
        session.add_messages({"n": n, "x": "y" * 400} for n in range(80))
        assert begun.wait(60)
        event = session.add_message({"content": "secret"})
        session.redact(event.seq)
        assert session.compact().blanked == 1
        assert wanted.is_set()
        assert len(session.messages()) == 80
        assert session.verify().ok


def test_the_background_does_not_wait_for_another_compactor(tmp_path: Path) -> None:
    """N-24: the thread does not wait for another compactor of a session, so `close` does not either."""
    with hansard.open(tmp_path / "s", durability="os", lock_timeout=600) as store:
        session = store.session("a")
        session.add_message({"n": 0})
        session.compact()
        descriptor = os.open(tmp_path / "s/sessions/a/compaction", os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            session.add_messages({"n": n, "x": "y" * 400} for n in range(80))
            settle()
        finally:
            os.close(descriptor)
        assert len(session.messages()) == 81


def test_a_failure_in_one_session_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """N-35: a failure in one session is logged once, and the thread continues with the others."""
    real = compaction.compact_session

    def compact(backend: Backend, session_id: str, **options: Any) -> CompactReport:
        if session_id == "bad":
            raise zstandard.ZstdError("not enough memory")
        return real(backend, session_id, **options)

    monkeypatch.setattr(compaction, "compact_session", compact)
    with hansard.open(tmp_path / "s", durability="os") as store:
        for name in ("bad", "bad", "good"):
            store.session(name).add_messages({"n": n, "x": "y" * 400} for n in range(80))
            settle()
        assert sealed(tmp_path / "s", "good")
        assert len(store.session("bad").messages()) == 160
    assert [record.getMessage() for record in caplog.records] == [
        "background compaction of session 'bad' failed: ZstdError: not enough memory"
    ]
