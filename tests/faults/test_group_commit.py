"""Claims about threads that append at the same time: they share a sync, and no error or interrupt is lost."""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import hansard
from hansard.backend.local.log import LocalLog
from hansard.errors import DiskFailed, SyncFailed
from hansard.log import disk
from hansard.log.group_commit import GroupCommit
from tests.faults.workers import PATIENCE, open_store, until


class Appending(threading.Thread):
    """A thread that appends one message and keeps what became of it."""

    def __init__(self, session: hansard.Session, by: str) -> None:
        super().__init__(name=by, daemon=True)
        self._session = session
        self.seq = 0
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Append."""
        try:
            self.seq = self._session.add_message({"by": self.name}).seq
        except BaseException as error:  # noqa: BLE001 - kept, and looked at by the test
            self.error = error

    def end(self) -> None:
        """Wait for the thread, which must end."""
        self.join(PATIENCE)
        assert not self.is_alive(), f"{self.name} hangs"


class Stay:
    """Blocks the thread that makes a call until it is released. Counts the calls."""

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call
        self._inside = threading.Event()
        self._go = threading.Event()
        self.count = 0

    def __call__(self, *arguments: object) -> object:
        """Make the call; the first stays before it."""
        self.count += 1
        if self.count == 1:
            self._inside.set()
            assert self._go.wait(PATIENCE)
        return self._call(*arguments)

    def wait(self) -> None:
        """Return when a thread is inside."""
        assert self._inside.wait(PATIENCE)

    def go(self) -> None:
        """Let it out."""
        self._go.set()


def turns_of(session: hansard.Session) -> "GroupCommit[object]":
    """Return where the threads that append to a session queue."""
    log = session._log
    assert isinstance(log, LocalLog)
    return log._writer._group  # type: ignore[return-value]


def queued(session: hansard.Session) -> int:
    """Return how many threads wait for the one that leads."""
    return len(turns_of(session)._queue)


@contextmanager
def fifteen_behind_one(
    store: hansard.Store, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Stay, list[Appending]]]:
    """Keep one thread in its sync until 15 others queue; let it continue at the end."""
    session = store.session("s")
    session.add_message({"by": "the first"})
    sync = Stay(disk.sync)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", sync)
        threads = [Appending(session, "the leader")]
        sync.wait()
        for number in range(15):
            threads.append(Appending(session, f"thread {number}"))
            until(lambda number=number: queued(session) == number + 1)  # type: ignore[misc]
        yield sync, threads
        sync.go()
        for thread in threads:
            thread.end()


def said(store: hansard.Store) -> list[str]:
    """Check all messages, and return their writers in order."""
    session = store.session("s")
    assert session.verify().ok
    return [message["by"] for message in session.messages()]


def test_threads_that_queue_during_a_sync_share_one_write_and_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-31: 15 appends that come while one is being synced cost one write and one sync more, not 15."""
    with open_store(str(tmp_path / "store"), "sync") as store:
        writes = Stay(disk.write)
        writes.go()
        with fifteen_behind_one(store, monkeypatch) as (sync, threads):
            monkeypatch.setattr(disk, "write", writes)
        assert (writes.count, sync.count) == (1, 2)
        assert [thread.seq for thread in threads] == list(range(2, 18))
        assert said(store) == ["the first", *(thread.name for thread in threads)]


def test_an_order_of_a_group_that_cannot_be_met_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-16, N-22: in a group, a wrong expected seq is refused, a known key adds nothing, the rest goes in."""
    with open_store(str(tmp_path / "store"), "sync") as store:
        session = store.session("s")
        session.add_message({"by": "keyed"}, key="k")
        outcomes: dict[str, object] = {}

        def append(name: str, **options: int | str) -> None:
            try:
                outcomes[name] = session.add_message({"by": name}, **options).seq  # type: ignore[arg-type]
            except hansard.SeqConflict as error:
                outcomes[name] = (error.expected, error.actual)

        more = [
            threading.Thread(target=append, args=("too early",), kwargs={"expected_seq": 3}),
            threading.Thread(target=append, args=("in time",), kwargs={"expected_seq": 18}),
            threading.Thread(target=append, args=("known",), kwargs={"key": "k"}),
            threading.Thread(target=append, args=("twice",), kwargs={"key": "l"}),
            threading.Thread(target=append, args=("twice",), kwargs={"key": "l"}),
        ]
        with fifteen_behind_one(store, monkeypatch) as (sync, threads):
            for number, thread in enumerate(more):
                thread.start()
                until(lambda number=number: queued(session) == 16 + number)  # type: ignore[misc]
        for thread in more:
            thread.join(PATIENCE)
        assert sync.count == 2
        assert outcomes == {"too early": (3, 18), "in time": 19, "known": 1, "twice": 20}
        assert all(thread.error is None for thread in threads)
        assert said(store)[-2:] == ["in time", "twice"]
        assert session.seq == 20


def fail_once(call: Callable[..., object], error: BaseException) -> Callable[..., object]:
    """Return a call that fails the first time and then works."""
    failed: list[bool] = []

    def fail_or_call(*arguments: object) -> object:
        if failed:
            return call(*arguments)
        failed.append(True)
        raise error

    return fail_or_call


@pytest.mark.parametrize(
    ("call", "error", "expected"),
    [
        ("write", OSError(errno.ENOSPC, "full"), DiskFailed),
        ("write", MemoryError("none left"), MemoryError),
        ("sync", OSError(errno.EIO, "gone"), SyncFailed),
    ],
)
def test_a_failure_of_a_group_is_each_ones_own_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    error: Exception,
    expected: type[Exception],
) -> None:
    """N-29, F-35: each thread gets a separate error object and none hangs; a failed sync stays failed."""
    with open_store(str(tmp_path / "store"), "sync") as store:
        session = store.session("s")
        with fifteen_behind_one(store, monkeypatch) as (sync, threads):
            real = sync if call == "sync" else disk.write
            monkeypatch.setattr(disk, call, fail_once(real, error))
        assert threads[0].error is None
        errors = [thread.error for thread in threads[1:]]
        assert [type(each) for each in errors] == [expected] * 15
        assert len({id(each) for each in errors}) == 15
        if call == "sync":
            with pytest.raises(SyncFailed):
                session.add_message({"by": "after"})
            assert session.verify().ok
        session.add_message({"by": "after"})
        group = [thread.name for thread in threads[1:]] if call == "sync" else []
        assert said(store) == ["the first", "the leader", *group, "after"]


@pytest.mark.parametrize("call", ["write", "sync"])
def test_an_interrupted_leader_leaves_no_thread_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """N-23: the thread that was interrupted gets the interrupt; the others of its group learn of it."""
    with open_store(str(tmp_path / "store"), "sync") as store:
        with fifteen_behind_one(store, monkeypatch) as (sync, threads):
            real = sync if call == "sync" else disk.write
            monkeypatch.setattr(disk, call, fail_once(real, KeyboardInterrupt()))
        kinds = [type(thread.error) for thread in threads]
        assert kinds == [type(None), KeyboardInterrupt, *[DiskFailed] * 14]
        store.session("s").add_message({"by": "after"})
        found = said(store)
        # Not acknowledged: all there, if the interrupt came after the write, or not at all.
        group = [] if call == "write" else [thread.name for thread in threads[1:]]
        assert found == ["the first", "the leader", *group, "after"]
