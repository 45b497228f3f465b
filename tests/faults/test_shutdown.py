"""Claims about a store that is closed under its users, and a signal in a call. `test_aio` ends processes."""

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import hansard
from hansard.errors import Closed, Reentered
from hansard.log import disk, group_commit, session_files, writer
from tests.faults.test_group_commit import Appending, Stay, queued
from tests.faults.workers import PATIENCE, until


def test_a_late_call_never_uses_a_descriptor_of_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-5, N-11: a call that is under way when the store is closed works in the store's own directories."""
    other = tmp_path / "other"
    other.mkdir()
    store = hansard.open(tmp_path / "store", durability="os")
    make = Stay(disk.make_directory)
    monkeypatch.setattr(disk, "make_directory", make)
    thread = Appending(store.session("s"), "late")
    make.wait()
    store.close()
    # The numbers that were closed are given out again.
    taken = [os.open(other, os.O_RDONLY) for _ in range(20)]
    make.go()
    thread.end()
    for number in taken:
        os.close(number)
    assert list(other.iterdir()) == []
    assert thread.seq == 1 or isinstance(thread.error, Closed)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_calls_during_close_get_an_answer_or_closed(tmp_path: Path, durability: str) -> None:
    """N-29: threads that append, read, list or delete during `close` get their answer or `Closed`."""
    acknowledged: list[str] = []
    wrong: list[BaseException] = []
    for turn in range(15):
        store = hansard.open(tmp_path / "store", durability=durability)  # type: ignore[arg-type]
        begun = threading.Barrier(5)

        def use(by: int, store: hansard.Store = store, turn: int = turn) -> None:
            begun.wait(PATIENCE)  # noqa: B023 - of this turn
            try:
                for number in itertools.count():
                    session = store.session(f"s{turn}-{number % 7}")
                    session.add_message({"n": f"{turn}/{by}/{number}"})
                    acknowledged.append(f"{turn}/{by}/{number}")
                    session.messages(last=2)
                    store.sessions(limit=3)
                    doomed = store.create(f"doomed {turn}/{by}/{number}")
                    store.delete(doomed.id)
            except Closed:
                return
            except BaseException as error:  # noqa: BLE001 - kept, and looked at below
                wrong.append(error)

        threads = [threading.Thread(target=use, args=(by,), daemon=True) for by in range(4)]
        for thread in threads:
            thread.start()
        begun.wait(PATIENCE)
        before = len(acknowledged)
        until(lambda before=before: wrong or len(acknowledged) > before + 5)  # type: ignore[misc]
        store.close()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a thread hangs"
        assert wrong == []
    with hansard.open(tmp_path / "store", read_only=True) as store:
        assert store.verify().ok
        seen = [
            message["n"]
            for info in store.sessions(prefix="s").items
            for message in store.session(info.id).messages()
        ]
    assert len(seen) == len(set(seen))
    assert set(acknowledged) <= set(seen)


@contextmanager
def on_signal(do: "list[object]", session: hansard.Session) -> Iterator[None]:
    """Let a signal handler append to a session, and read it; keep what came of it."""

    def handler(_: int, __: FrameType | None) -> None:
        session.messages(last=1)
        try:
            do.append(session.add_message({"by": "handler"}).seq)
        except Reentered as error:
            do.append(error)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


class Points:
    """Raises the signal at the nth place of our code where the interpreter looks for signals."""

    FILES = (group_commit.__file__, writer.__file__, session_files.__file__)

    def __init__(self, point: int) -> None:
        self._left = point
        self.fired = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Count a place: where a function begins, and where a call of C returns."""
        if event in {"call", "c_return"} and frame.f_code.co_filename in self.FILES:
            self._left -= 1
            if self._left == 0:
                self.fired = True
                signal.raise_signal(signal.SIGUSR1)


CALLS = {
    "append": lambda session: session.add_message({"by": "program"}),
    "append with a key": lambda session: session.add_message({"by": "program"}, key="k"),
    "append to a new session": lambda session: session.add_message({"by": "program"}),
    "read": lambda session: session.messages(),
}


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("what", CALLS)
def test_a_signal_handler_that_appends_never_waits_for_its_own_thread(
    what: str, durability: str, tmp_path: Path
) -> None:
    """N-23, N-26: at every point of a call a handler appends, or gets `Reentered`, and nothing hangs."""
    reentered = 0
    for point in itertools.count(1):
        path = tmp_path / f"store{point}"
        store = hansard.open(path, durability=durability)  # type: ignore[arg-type]
        session = store.session("s")
        expected = []
        if what != "append to a new session":
            session.add_message({"by": "begin"})
            expected.append("begin")
        did: list[object] = []
        points = Points(point)
        with on_signal(did, session):
            sys.setprofile(points)
            try:
                CALLS[what](session)
            finally:
                sys.setprofile(None)
        if what != "read":
            expected.append("program")
        reentered += sum(isinstance(outcome, Reentered) for outcome in did)
        expected += ["handler"] * sum(isinstance(outcome, int) for outcome in did)
        assert session.verify().ok
        assert sorted(message["by"] for message in session.messages()) == sorted(expected)
        assert session.add_message({"by": "end"}).seq == len(expected) + 1
        store.close()
        if not points.fired:
            break
        assert len(did) == 1
    assert point > 7
    assert (reentered > 0) == (what != "read")


def _signal_until(thread: int, did: list[object]) -> None:
    """Send a signal to a thread, again every few seconds until its handler has run.

    CPython does not notice one that comes right before the thread waits for a lock; the next one wakes it.
    """
    sent = float("-inf")

    def has_run() -> object:
        nonlocal sent
        if not did and time.monotonic() > sent + 5.0:
            sent = time.monotonic()
            signal.pthread_kill(thread, signal.SIGUSR1)
        return did

    until(has_run)


def test_a_signal_handler_of_a_thread_that_queues_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-23: a handler in a thread that waits for its turn gets `Reentered`, and the turn comes."""
    with hansard.open(tmp_path / "store") as store:
        session = store.session("s")
        session.add_message({"by": "begin"})
        sync = Stay(disk.sync)
        monkeypatch.setattr(disk, "sync", sync)
        leader = Appending(session, "leader")
        sync.wait()
        did: list[object] = []
        main = threading.main_thread().ident
        assert main is not None

        def disturb() -> None:
            until(lambda: queued(session) == 1)
            _signal_until(main, did)
            sync.go()

        disturber = threading.Thread(target=disturb)
        disturber.start()
        with on_signal(did, session):
            assert session.add_message({"by": "program"}).seq == 3
        leader.end()
        disturber.join(PATIENCE)
        assert [type(outcome) for outcome in did] == [Reentered]
        assert "Set a flag" in str(did[0])
        assert "log.jsonl" in str(did[0])
        assert [message["by"] for message in session.messages()] == ["begin", "leader", "program"]
