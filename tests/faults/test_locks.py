"""Claims about the lock: N-23 to N-25, F-38, and what happens when files move under a writer's hands."""

import signal
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

import hansard
from hansard.errors import LockTimeout, SessionDeleted
from hansard.log import disk, names
from hansard.log.disk import Lock
from tests.faults.test_group_commit import Appending, turns_of
from tests.faults.test_shutdown import on_signal
from tests.faults.workers import (
    PATIENCE,
    Crew,
    Wire,
    append_one,
    open_store,
    replaced,
    run_threads,
    said,
    stay_in_mid_append,
    stay_in_mid_sync,
    until,
)


def lock_of(path: Path, session: str = "s") -> Path:
    """Return a session's lock file."""
    return path / names.SESSIONS / names.encode(session) / names.LOCK


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a store is with two sessions of one event each."""
    path = tmp_path / "above" / "store"
    with open_store(str(path), "os") as store:
        for session in ("s", "t"):
            store.session(session).append("x.begun", {})
    return path


def test_the_lock_of_a_killed_holder_is_free_at_once(path: Path) -> None:
    """N-23: after kill -9 of a writer in mid-append, the next append succeeds; its lock file is harmless."""
    with Crew() as crew, open_store(str(path), "os", lock_timeout=1) as store:
        for _ in range(3):
            holder = crew.start(stay_in_mid_append, str(path), "s")
            holder.hear()
            holder.kill()
            assert lock_of(path).stat().st_size == 0
            store.session("s").add_message({"by": "the next"})
    assert said(path) == ["the next"] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows which process holds a lock")
def test_a_stopped_holder_is_named_and_nothing_is_lost_when_it_goes_on(path: Path) -> None:
    """N-24: waiting for a stopped writer ends with an error that names it; readers do not wait at all."""
    with Crew() as crew, open_store(str(path), "os", lock_timeout=0.05) as store:
        holder = crew.start(stay_in_mid_append, str(path), "s")
        holder.hear()
        holder.signal(signal.SIGSTOP)
        for _ in range(2):
            with pytest.raises(LockTimeout, match=f"held by process {holder.pid} ") as caught:
                store.session("s").add_message({"by": "the waiting"})
            assert caught.value.holder == holder.pid
        with pytest.raises(LockTimeout):
            store.delete("s")
        assert store.session("s").seq == 1
        assert store.session("s").messages() == []
        assert store.session("s").verify().ok
        assert [item.id for item in store.sessions().items] == ["s", "t"]
        holder.signal(signal.SIGCONT)
        holder.go()
        assert holder.result() == 2
        assert store.session("s").add_message({"by": "the waiting"}).seq == 3
    assert said(path) == ["the holder", "the waiting"]


def test_a_warm_writer_waits_for_the_lock_as_well(path: Path) -> None:
    """N-24: one that has the log open, and takes the short way, waits while another holds the lock."""
    with Crew() as crew, open_store(str(path), "os", lock_timeout=0.05) as store:
        session = store.session("s")
        for _ in range(2):
            session.add_message({"by": "the warm one"})
        holder = crew.start(stay_in_mid_append, str(path), "s")
        holder.hear()
        with pytest.raises(LockTimeout):
            session.add_message({"by": "the warm one"})
        holder.go()
        assert holder.result() == 4
        assert session.add_message({"by": "the warm one"}).seq == 5
    assert said(path) == ["the warm one"] * 2 + ["the holder", "the warm one"]


def test_threads_of_one_process_give_up_too_when_another_process_holds_the_lock(path: Path) -> None:
    """N-24: threads that queue while one waits for the lock each get the error, and none hangs."""
    with Crew() as crew, open_store(str(path), "os", lock_timeout=0.05) as store:
        holder = crew.start(stay_in_mid_append, str(path), "s")
        holder.hear()
        threads = [Appending(store.session("s"), "a thread") for _ in range(8)]
        for thread in threads:
            thread.end()
        assert [type(thread.error) for thread in threads] == [LockTimeout] * 8
        assert len({id(thread.error) for thread in threads}) == 8
        holder.go()
        assert holder.result() == 2
    assert said(path) == ["the holder"]


@pytest.mark.parametrize("warm", [False, True], ids=["first append", "fast path"])
def test_the_lock_is_not_held_during_a_sync(path: Path, *, warm: bool) -> None:
    """N-24, F-38: while one process syncs, others append to the same session, durably too."""
    with Crew() as crew:
        slow = crew.start(stay_in_mid_sync, str(path), "s", warm=warm)
        slow.hear()
        # Written, not synced: all processes see it, and it is not acknowledged.
        with open_store(str(path), "os", lock_timeout=1) as store:
            assert store.session("s").add_message({"by": "another"}).seq == 3 + warm
        assert crew.start(append_one, str(path), "s", "sync").result() == 4 + warm
        slow.go()
        assert slow.result() == 2 + warm
    assert said(path) == ["the slow one"] * (1 + warm) + ["another", "another process"]


def test_a_writer_of_one_session_does_not_delay_another_session(path: Path) -> None:
    """N-25: while a session's lock is held, and a thread here waits for it, other sessions continue."""
    with Crew() as crew, open_store(str(path), "os") as store:
        holder = crew.start(stay_in_mid_append, str(path), "s")
        holder.hear()
        waiting = Appending(store.session("s"), "us")
        for _ in range(10):
            store.session("t").add_message({"by": "us"})
        store.session("c").add_message({"by": "us"})
        assert waiting.is_alive()
        assert store.session("s").seq == 1
        holder.go()
        assert holder.result() == 2
        waiting.end()
    assert said(path, "s") == ["the holder", "us"]
    assert said(path, "t") == ["us"] * 10


def test_two_stores_of_one_process_on_one_directory_keep_each_other_out(tmp_path: Path) -> None:
    """N-16, N-18: handles of two stores on the same directory, used by threads, lose and double nothing."""
    path = tmp_path / "store"

    def append(store: hansard.Store, writer: int) -> None:
        for number in range(100):
            store.session("s").add_message({"by": f"{writer} {number}"})

    with open_store(str(path), "os") as one, open_store(str(path), "sync") as two:
        run_threads(
            partial(append, store, writer) for writer, store in enumerate([one, two, one, two])
        )
        assert one.session("s").seq == two.session("s").seq == 400
    found = said(path)
    for writer in range(4):
        own = [by for by in found if by.startswith(f"{writer} ")]
        assert own == [f"{writer} {number}" for number in range(100)]


def append_and_count(wire: Wire, path: str, writer: int) -> int:
    """Append until a stop signal; return the number of acknowledged events."""
    number = 0
    with open_store(path, "os") as store:
        while not wire.told_to_go():
            store.session("s").add_message({"by": f"{writer} {number}"})
            number += 1
            if number == 1:
                wire.tell("begun")
    return number


class Appended:
    """Counts how many appends of each writer are there, and reads none of them twice."""

    def __init__(self, store: hansard.Store, writers: int) -> None:
        self._session = store.session("s")
        self._seq = 0
        self._counts = [0] * writers

    def now(self) -> list[int]:
        """Return how many there are by now."""
        for event in self._session.events(after=self._seq):
            self._seq = event.seq
            if event.message and "by" in event.message:
                self._counts[int(event.message["by"].split()[0])] += 1
        return list(self._counts)


@pytest.mark.slow
def test_deleting_the_lock_file_under_writers_loses_and_doubles_nothing(path: Path) -> None:
    """N-23, F-38: three writers whose lock file is deleted, 20 times, all go over to the new one."""
    with Crew() as crew, hansard.open(path, read_only=True) as store:
        workers = [crew.start(append_and_count, str(path), writer) for writer in range(3)]
        for worker in workers:
            worker.hear()
        appended = Appended(store, 3)
        for _ in range(20):
            lock_of(path).unlink()
            begun = appended.now()
            # One append of each may have been in progress; the next one began after the lock was removed.
            until(
                lambda begun=begun: all(  # type: ignore[misc]
                    now >= then + 2 for now, then in zip(appended.now(), begun, strict=True)
                )
            )
        for worker in workers:
            worker.go()
        counts = [worker.result() for worker in workers]
    found = said(path)
    assert len(found) == sum(counts)
    for writer, count in enumerate(counts):
        own = [by for by in found if by.startswith(f"{writer} ")]
        assert own == [f"{writer} {number}" for number in range(count)]


def test_a_warm_writer_notices_a_deleted_lock_file_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-23, F-38: a writer that holds a deleted lock file waits for one that holds the new one."""
    path = tmp_path / "store"
    open_file = disk.open_file
    opened = threading.Event()

    def open_and_say(directory: int, name: str, **options: bool) -> int:
        descriptor = open_file(directory, name, **options)
        if name == names.LOCK:
            opened.set()
        return descriptor

    monkeypatch.setattr(disk, "open_file", open_and_say)
    with Crew() as crew, open_store(str(path), "os") as store:
        for number in range(2):
            # Warm: its lock file is open, and it knows where the log ends.
            store.session("s").add_message({"by": "the warm one"})
            lock_of(path).unlink()
            holder = crew.start(stay_in_mid_append, str(path), "s")
            holder.hear()
            opened.clear()
            waiting = Appending(store.session("s"), "the warm one")
            # One that does not notice is done immediately, and the holder then continues from an old end.
            until(lambda waiting=waiting: opened.is_set() or not waiting.is_alive())  # type: ignore[misc]
            holder.go()
            assert holder.result() == 3 * number + 2
            waiting.end()
    assert said(path) == ["the warm one", "the holder", "the warm one"] * 2


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_the_store_may_be_renamed_while_it_is_open(
    tmp_path: Path, path: Path, durability: str
) -> None:
    """F-4, F-31: appends to all sessions continue under the store's new path, and nothing is lost."""
    with Crew() as crew, open_store(str(path), durability) as store:
        worker = crew.start(append_and_count, str(path), 0)
        worker.hear()
        # The store itself, and the directory above it.
        path.rename(path.with_name("moved"))
        (tmp_path / "above").rename(tmp_path / "elsewhere")
        store.session("s").add_message({"by": "us"})
        store.session("new").add_message({"by": "us"})
        worker.go()
        count = worker.result()
        assert not (tmp_path / "above").exists()
    moved = tmp_path / "elsewhere" / "moved"
    found = said(moved)
    assert [by for by in found if by != "us"] == [f"0 {number}" for number in range(count)]
    assert found.count("us") == 1
    assert said(moved, "new") == ["us"]


def delete_and_stay(wire: Wire, path: str) -> None:
    """Delete a session, but pause after its note, with the lock held, until released."""
    write = disk.write

    def write_then_stay(descriptor: int, data: bytes) -> int:
        written = write(descriptor, data)
        if b'"log":"deleted"' in data:  # and not the record that comes before it
            wire.tell("it says that it is deleted")
            wire.wait()
        return written

    with open_store(path, "os") as store, replaced("write", write_then_stay):
        store.delete("s")


@pytest.mark.parametrize("count", [1, 2])
def test_a_writer_that_waits_while_its_session_is_deleted_is_told_so(
    path: Path, count: int
) -> None:
    """N-28: a reader of the same handle that meets the end first takes no file from a waiting writer."""
    errors: list[BaseException] = []

    def append(session: hansard.Session) -> None:
        try:
            session.add_messages([{"by": "the waiting"}] * count)
        except Exception as error:  # noqa: BLE001 - which one it is, is the question
            errors.append(error)

    with Crew() as crew, open_store(str(path), "os") as store:
        session = store.session("s")
        session.add_message({"by": "us"})
        deleter = crew.start(delete_and_stay, str(path))
        deleter.hear()
        waiting = threading.Thread(target=append, args=(session,))
        waiting.start()
        until(lambda: turns_of(session)._leader)
        with pytest.raises(SessionDeleted):
            session.messages()
        deleter.go()
        deleter.result()
        waiting.join(PATIENCE)
        assert [type(error) for error in errors] == [SessionDeleted]
        store.restore("s")
        assert session.add_message({"by": "us"}).seq == 3
    assert said(path) == ["us", "us"]


def test_a_signal_handler_appends_while_its_thread_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-16: a listing has the lock of each session that has changed for a moment, and gives it up."""
    with hansard.open(tmp_path / "store", durability="os", lock_timeout=0.5) as store:
        session = store.session("s")
        session.add_message({"by": "parent"})
        assert store.count() == 1
        session.add_message({"by": "parent"})
        exists = Lock.exists
        told: list[object] = []

        def interrupted(lock: Lock) -> bool:
            monkeypatch.setattr(Lock, "exists", exists)
            signal.raise_signal(signal.SIGUSR1)
            return exists(lock)

        monkeypatch.setattr(Lock, "exists", interrupted)
        with on_signal(told, session):
            assert store.count() == 1
        assert told == [3]
        files = session._log.files  # type: ignore[attr-defined]
        files.root.pass_lock(files.name, 0.0)  # raises if the lock is held


def test_a_second_compactor_is_refused_and_breaks_nothing(tmp_path: Path) -> None:
    """N-24, N-25: a second compaction names the holder of the lock; appends and reads do not wait."""
    path = tmp_path / "store"
    with hansard.open(path) as store, hansard.open(path, lock_timeout=0.01) as other:
        session = store.session("s")
        # Three segments, so that there is progress to report.
        for _ in range(2):
            session.add_message({"by": "here"})
            session.compact()
        session.add_message({"by": "here"})
        heard: list[str] = []

        def progress(done: int, total: int) -> None:
            assert 0 < done <= total
            with pytest.raises(hansard.LockTimeout) as caught:
                other.session("s").compact()
            heard.append(str(caught.value))
            assert "s" in other.compact().failed
            other.session("s").add_message({"by": "there"})
            assert len(other.session("s").messages()) == 3 + len(heard)

        session.compact(progress=progress)
        assert heard
        assert all("compaction" in said for said in heard)
        assert session.verify().ok
        assert len(session.messages()) == 3 + len(heard)
