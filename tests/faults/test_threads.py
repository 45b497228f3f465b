"""Claims about threads that share a store: group commit, errors and interrupts in it, readers beside writers."""

import errno
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import hansard
from hansard.backend.local import MAX_OPEN, LocalLog
from hansard.errors import DiskFailed, SyncFailed
from hansard.log import disk
from hansard.log.turns import Turns
from tests.faults.workers import PATIENCE, Crew, Wire, open_store, until


class Appending(threading.Thread):
    """A thread that appends one message and keeps what became of it."""

    def __init__(self, session: hansard.Session, by: str) -> None:
        super().__init__(name=by, daemon=True)
        self._session = session
        self.seq = 0
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.seq = self._session.add_message({"by": self.name}).seq
        except BaseException as error:  # noqa: BLE001 - kept, and looked at by the test
            self.error = error

    def end(self) -> None:
        """Wait for the thread, which must end."""
        self.join(PATIENCE)
        assert not self.is_alive(), f"{self.name} hangs"


class Stay:
    """Keeps the thread that makes a call in it, until it is told to go on. Counts the calls."""

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call
        self._inside = threading.Event()
        self._go = threading.Event()
        self.count = 0

    def __call__(self, *arguments: object) -> object:
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


def turns_of(session: hansard.Session) -> "Turns[object]":
    """Return where the threads that append to a session queue."""
    log = session._log
    assert isinstance(log, LocalLog)
    return log._writer._turns  # type: ignore[return-value]


def queued(session: hansard.Session) -> int:
    """Return how many threads wait for the one that leads."""
    return len(turns_of(session)._queue)


@contextmanager
def fifteen_behind_one(
    store: hansard.Store, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Stay, list[Appending]]]:
    """Let one thread stay in its sync until 15 others queue behind it; let it go on at the end."""
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
    """Return who said something, in order, having checked all of it."""
    session = store.session("s")
    assert session.verify().ok
    return [message["by"] for message in session.messages()]


# ------------------------------------------------------------------ group commit


def test_threads_that_queue_behind_a_sync_share_one_write_and_one_sync(
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


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_sixteen_threads_append_fifty_times_and_every_event_is_there_once(
    tmp_path: Path, durability: str
) -> None:
    """N-16, N-26: 800 appends of 16 threads through one handle are there once each, in each one's order."""
    with open_store(str(tmp_path / "store"), durability) as store:
        session = store.session("s")
        given: list[list[int]] = [[] for _ in range(16)]

        def append(writer: int) -> None:
            for number in range(50):
                given[writer].append(session.add_message({"by": f"{writer} {number}"}).seq)

        threads = [threading.Thread(target=append, args=(writer,)) for writer in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        found = said(store)
        assert session.seq == len(found) == 800
        for writer, seqs in enumerate(given):
            assert [found[seq - 1] for seq in seqs] == [f"{writer} {n}" for n in range(50)]
            assert seqs == sorted(set(seqs))


def test_an_order_of_a_group_that_cannot_be_met_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-22, N-16: in one group, a wrong expected seq is refused and a known key adds nothing; others go in."""
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


# ------------------------------------------------------------------ errors and interrupts in a group


def fail_once(call: Callable[..., object], error: BaseException) -> Callable[..., object]:
    """Return a call that fails the first time and then works."""
    failed: list[bool] = []

    def fail_or_call(*arguments: object) -> object:
        if failed:
            return call(*arguments)
        failed.append(True)
        raise error

    return fail_or_call


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), MemoryError("none left")])
def test_a_failed_write_of_a_group_is_each_ones_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """N-29: when the write of a group fails, each thread gets an error object of its own, and none hangs."""
    with open_store(str(tmp_path / "store"), "sync") as store:
        with fifteen_behind_one(store, monkeypatch) as (_, threads):
            monkeypatch.setattr(disk, "write", fail_once(disk.write, error))
        assert threads[0].error is None
        errors = [thread.error for thread in threads[1:]]
        expected = DiskFailed if isinstance(error, OSError) else MemoryError
        assert [type(each) for each in errors] == [expected] * 15
        assert len({id(each) for each in errors}) == 15
        store.session("s").add_message({"by": "after"})
        assert said(store) == ["the first", "the leader", "after"]


def test_a_failed_sync_of_a_group_is_each_ones_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-29, F-35: when the sync of a group fails, each thread is told so, and so is whoever comes next."""
    with open_store(str(tmp_path / "store"), "sync") as store:
        with fifteen_behind_one(store, monkeypatch) as (sync, threads):
            failing = fail_once(sync, OSError(errno.EIO, "gone"))
            monkeypatch.setattr(disk, "sync", failing)
        errors = [thread.error for thread in threads[1:]]
        assert threads[0].error is None
        assert [type(each) for each in errors] == [SyncFailed] * 15
        assert len({id(each) for each in errors}) == 15
        with pytest.raises(SyncFailed):
            store.session("s").add_message({"by": "after"})
        assert store.session("s").verify().ok
        store.session("s").add_message({"by": "after"})
        assert said(store)[-1] == "after"


@pytest.mark.parametrize("call", ["write", "sync"])
def test_an_interrupted_leader_leaves_nobody_waiting(
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


def test_an_interrupted_lone_append_leaves_the_session_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-23: an interrupt in the write or in the sync of a single append frees the lock for all others."""
    with open_store(str(tmp_path / "store"), "sync", lock_timeout=1) as store:
        session = store.session("s")
        session.add_message({"by": "the first"})
        for call in ("write", "sync"):
            with monkeypatch.context() as patch:
                patch.setattr(disk, call, fail_once(getattr(disk, call), KeyboardInterrupt()))
                with pytest.raises(KeyboardInterrupt):
                    session.add_message({"by": f"interrupted in {call}"})
            session.add_message({"by": "the same handle"})
            with open_store(str(tmp_path / "store"), "sync", lock_timeout=1) as other:
                other.session("s").add_message({"by": "another"})
        assert said(store) == [
            "the first",
            "the same handle",
            "another",
            "interrupted in sync",
            "the same handle",
            "another",
        ]


def be_interrupted(wire: Wire, path: str, place: int, *, taken: bool) -> list[str]:
    """Interrupt a thread that waits behind a leader; return what was said in the end.

    Five threads wait, the interrupted one at a given place. `taken`: its order has been taken by
    the next leader, who is in the middle of its sync; otherwise it still stands in the queue.
    """
    # Only a program's main thread gets the interrupt of the keyboard, so it is the one that waits.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open_store(path, "sync") as store:
        session = store.session("s")
        session.add_message({"by": "the first"})
        first, second = Stay(disk.sync), Stay(disk.sync)
        disk.sync = first  # type: ignore[assignment]
        threads = [Appending(session, "the leader")]
        first.wait()
        for number in range(place):
            threads.append(Appending(session, f"thread {number}"))
            until(lambda number=number: queued(session) == number + 1)  # type: ignore[misc]

        def complete_and_interrupt() -> None:
            until(lambda: queued(session) == place + 1)
            for number in range(place, 4):
                threads.append(Appending(session, f"thread {number}"))
                until(lambda number=number: queued(session) == number + 2)  # type: ignore[misc]
            if taken:
                disk.sync = second  # type: ignore[assignment]
                first.go()
                second.wait()
            os.kill(os.getpid(), signal.SIGINT)

        interrupter = threading.Thread(target=complete_and_interrupt, daemon=True)
        interrupter.start()
        try:
            session.add_message({"by": "the interrupted"})
        except KeyboardInterrupt:
            threads[0].name += " (and an interrupt)"
        first.go()
        second.go()
        interrupter.join(PATIENCE)
        for thread in threads:
            thread.end()
            assert thread.error is None, thread.error
        session.add_message({"by": "after"})
        assert "interrupt" in threads[0].name
        return said(store)


# The first of the queue is never taken by another: it leads, and is interrupted as a leader.
@pytest.mark.parametrize(
    ("place", "taken"), [(0, False), (2, False), (4, False), (1, True), (2, True), (4, True)]
)
def test_an_interrupted_follower_leaves_nobody_waiting(
    tmp_path: Path, place: int, taken: bool
) -> None:
    """N-23: an interrupt in a thread that waits keeps no other from being appended and acknowledged."""
    with Crew() as crew:
        path = str(tmp_path / "store")
        found = crew.start(be_interrupted, path, place, taken=taken).result()
    others = ["the first", "the leader", *(f"thread {n}" for n in range(4)), "after"]
    assert [by for by in found if by != "the interrupted"] == others
    # Not acknowledged: there if it had been taken by then, and only once.
    assert found.count("the interrupted") == (1 if taken else 0)


# ------------------------------------------------------------------ readers beside writers


def append_messages(wire: Wire, path: str, count: int) -> None:
    """Append messages until there are enough."""
    with open_store(path, "os") as store:
        for _ in range(count):
            store.session("s").add_messages([{"by": "another process"}] * 2)


class Reading(threading.Thread):
    """A thread that makes every read call over and over, and never wants to see less than before."""

    def __init__(self, store: hansard.Store) -> None:
        super().__init__(daemon=True)
        self._store = store
        self._session = store.session("s")
        self._done = threading.Event()
        #: The most that was seen so far, of seqs, messages and changes of metadata.
        self._seen = {"seq": 0, "messages": 0, "changes": 0}
        self.rounds = 0
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self._done.is_set():
                for call, facts in self._look():
                    for fact, found in facts.items():
                        seen = self._seen[fact]
                        assert found >= seen, f"{call}: {fact} {found}, and {seen} before"
                        self._seen[fact] = found
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - kept, and looked at by the test
            self.error = error

    def _look(self) -> Iterator[tuple[str, dict[str, int]]]:
        session = self._session
        yield "seq", {"seq": session.seq}
        yield "messages", {"messages": len(session.messages())}
        yield "events", {"seq": list(session.events())[-1].seq}
        yield "metadata", {"changes": session.metadata["changes"]}
        yield "messages_json", {"messages": session.messages_json().count(b'{"by"')}
        state = session.state()
        yield "state", {"seq": state.seq, "messages": state.message_count}
        yield "state", {"changes": state.metadata["changes"]}
        after = self._seen["seq"] - 1
        yield "events(after)", {"seq": list(session.events(after=after))[-1].seq}
        yield "messages(last)", {"messages": len(session.messages(last=10_000))}
        item = self._store.sessions().items[0]
        yield "sessions", {"seq": item.seq, "changes": item.metadata["changes"]}
        fresh = self._store.session("s")
        yield "messages(at)", {"messages": len(fresh.messages(at=fresh.seq))}
        yield "verify", {"seq": self._store.verify().sessions[0].seq}

    def end(self) -> None:
        """Stop reading; raise what went wrong."""
        self._done.set()
        self.join(PATIENCE)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


@pytest.mark.slow
def test_a_reader_never_sees_less_than_it_saw_before(tmp_path: Path) -> None:
    """N-20: whichever read call comes next, it shows at least what all those before it showed."""
    path = str(tmp_path / "store")
    with (
        open_store(path, "os") as store,
        hansard.open(path, read_only=True) as apart,
        Crew() as crew,
    ):
        session = store.session("s")
        session.set_metadata(changes=0)
        session.add_message({"by": "this process"})
        readers = [Reading(store), Reading(store), Reading(apart)]
        other = crew.start(append_messages, path, 100)
        for number in range(1, 101):
            session.add_message({"by": "this process"})
            session.set_metadata(changes=number)
        other.result()
        until(lambda: all(reader.rounds or reader.error for reader in readers))
        for reader in readers:
            reader.end()
        assert session.seq == 402


def test_threads_that_list_at_the_same_time_all_see_every_session(tmp_path: Path) -> None:
    """N-3, N-20: a listing does not lose sessions to another that reads the same directory."""
    ids = [f"session-{number}" for number in range(40)]
    with open_store(str(tmp_path / "store"), "os") as store:
        for id in ids:
            store.session(id).append("x.begun", {})
        wanted = sorted(ids)
        found: list[list[str]] = []
        barrier = threading.Barrier(4)

        def list_often() -> None:
            barrier.wait(PATIENCE)
            for _ in range(10):
                found.append([item.id for item in store.sessions().items])

        threads = [threading.Thread(target=list_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        # And one listing in the middle of another.
        outer = store._backend.ids()
        begun = next(outer)
        assert sorted(store._backend.ids()) == wanted
        assert sorted([begun, *outer]) == wanted
        for thread in threads:
            thread.join(PATIENCE)
        assert found == [wanted] * 40


# ------------------------------------------------------------------ more sessions than files


def descriptors() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/dev/fd"))


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["os", "sync"])
def test_more_sessions_than_may_be_open_share_a_bounded_number_of_files(
    tmp_path: Path, durability: str
) -> None:
    """N-79: sessions used in turn, half as many again as stay open, work, and no more files are open."""
    count = MAX_OPEN + MAX_OPEN // 2
    gc.collect()
    before = descriptors()
    store = open_store(str(tmp_path / "store"), durability)
    base = descriptors()
    sessions = [store.session(f"session-{number}") for number in range(count)]
    for turn in range(2):
        for number, session in enumerate(sessions):
            assert session.add_message({"turn": turn}).seq == turn + 1
            if number % 64 == 0:
                assert descriptors() <= base + 2 * MAX_OPEN + 1
    for session in sessions:
        assert [message["turn"] for message in session.messages()] == [0, 1]
    assert descriptors() <= base + 2 * MAX_OPEN + 1
    # Handles stay good when their files were taken from them, in threads as well.
    threads = [Appending(session, "a thread") for session in sessions[:32]]
    for thread in threads:
        thread.end()
        assert thread.seq == 3, thread.error
    store.close()
    assert descriptors() <= before
