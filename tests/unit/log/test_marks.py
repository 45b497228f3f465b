"""Marks: who leaves one, who need not, and what a pass over them tells."""

import contextlib
import errno
import gc
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.backend.contract import AppendRequest, Changed, Watch
from hansard.backend.local import changes as watch
from hansard.backend.local.backend import LocalBackend
from hansard.event.event import NewEvent
from hansard.log import disk, marks
from tests.crashlab import faults

NOTE = AppendRequest([NewEvent("app.note", b"{}", control=False)])
KEYED = msgspec.structs.replace(NOTE, key="k")


class Consumer:
    """Keeps of each session the stamp that it had when it was last looked at, as an index does."""

    def __init__(self, path: Path) -> None:
        self.backend = LocalBackend(str(path), durability="os")
        self.watch: Watch = self.backend.watch()
        self.known = ""
        self.stamps: dict[str, str] = {}
        #: Strikes the marks, and nothing else.
        self.fault: contextlib.AbstractContextManager[object] = contextlib.nullcontext()

    def look(self) -> Changed:
        """Go over the sessions once, without keeping that it was done."""
        with self.fault:
            changed = self.watch.begin(self.known)
        if changed.every:
            self.stamps = self.backend.stamps()
            return changed
        asked = set(changed.ids)
        if changed.names:
            asked |= set(self.watch.ids()) ^ set(self.stamps)
        found = self.backend.stamps(asked)
        for session_id in asked:
            self.stamps.pop(session_id, None)
        self.stamps.update(found)
        return changed

    def keep(self) -> None:
        """Keep what was seen, as a commit does."""
        self.known = self.watch.done()
        self.watch.consumed()

    def go_over(self) -> Changed:
        """Go over the sessions once."""
        changed = self.look()
        self.keep()
        return changed

    def is_right(self) -> bool:
        """Say whether it knows of all that there is."""
        return self.stamps == self.backend.stamps()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store is."""
    return tmp_path / "store"


@pytest.fixture
def backend(path: Path) -> Iterator[LocalBackend]:
    """Open a store with three sessions."""
    backend = LocalBackend(str(path), durability="os")
    for name in "abc":
        backend.log(name).append(NOTE)
    yield backend
    backend.close()


@pytest.fixture
def consumer(backend: LocalBackend, path: Path) -> Iterator[Consumer]:
    """Return one who has gone over the store once, and again, and found nothing new."""
    del backend
    consumer = Consumer(path)
    consumer.go_over()
    assert not consumer.go_over().ids
    yield consumer
    consumer.backend.close()


def mark_files(path: Path) -> list[str]:
    """Return the files of marks that there are."""
    return sorted(name for name in os.listdir(path / "marks") if name != "epoch")


def test_nothing_is_marked_before_somebody_has_asked(backend: LocalBackend, path: Path) -> None:
    """F-130: a store of which nobody keeps an index has one file of marks, of 24 bytes, for ever."""
    for _ in range(3):
        backend.log("a").append(NOTE)
    assert os.listdir(path / "marks") == ["epoch"]
    assert (path / "marks/epoch").read_bytes() == bytes(24)


def test_a_lone_append_by_the_fast_path_leaves_a_mark(
    backend: LocalBackend, consumer: Consumer
) -> None:
    """F-130: an open log that nobody else has touched marks its session once in each epoch, as all do."""
    log = backend.log("a")
    log.append(NOTE)
    consumer.go_over()
    for _ in range(3):
        with faults.record() as seen:
            log.append(NOTE)
            log.append(NOTE)
        # The session's record, twice, and one mark.
        assert [call.operation for call in seen.calls].count("write") == 3
        assert consumer.go_over().ids == {"a"}
        assert consumer.is_right()
    assert not consumer.go_over().ids


def test_the_first_pass_looks_at_everything(backend: LocalBackend, path: Path) -> None:
    """F-133: who has never gone over the sessions is told to look at all of them."""
    backend.log("a").append(NOTE)
    consumer = Consumer(path)
    assert consumer.go_over().every
    assert consumer.is_right()


def test_a_session_is_marked_once_in_an_epoch(
    backend: LocalBackend, consumer: Consumer, path: Path
) -> None:
    """F-130: the first append after a pass leaves a mark; those after it leave none."""
    for _ in range(5):
        backend.log("a").append(NOTE)
        backend.log("b").append(KEYED)
    (only,) = mark_files(path)
    assert (path / "marks" / only).read_text().split() == ["a", "b"]
    assert consumer.go_over().ids == {"a", "b"}
    assert mark_files(path) == []
    assert consumer.is_right()


def test_a_session_that_lets_go_of_its_files_is_not_marked_twice(
    backend: LocalBackend, consumer: Consumer, path: Path
) -> None:
    """F-130: many sessions in turn, each opened anew, leave no more than one mark each."""
    for _ in range(3):
        backend.log("a").append(NOTE)
        backend.log("a").release_files()  # type: ignore[attr-defined]
    assert (path / "marks" / mark_files(path)[0]).read_text().split() == ["a"]
    assert consumer.go_over().ids == {"a"}


def test_a_quiet_pass_begins_no_epoch(consumer: Consumer, path: Path) -> None:
    """F-131: to find out that nothing has changed changes nothing."""
    before = (path / "marks/epoch").read_bytes()
    for _ in range(3):
        assert not consumer.go_over().ids
    assert (path / "marks/epoch").read_bytes() == before


def test_what_was_not_kept_is_told_again(backend: LocalBackend, consumer: Consumer) -> None:
    """F-131: marks are removed when what they led to is kept, and not before."""
    backend.log("a").append(NOTE)
    consumer.look()
    backend.log("b").append(NOTE)
    consumer.look()
    assert consumer.look().ids == {"a", "b"}
    assert not consumer.look().every
    consumer.keep()
    assert not consumer.go_over().ids
    assert consumer.is_right()


def corrupt(path: Path, session_id: str) -> None:
    """Change a byte in the first record of a log, and leave its times and its size as they were."""
    log = path / "sessions" / session_id / "log.jsonl"
    status = log.stat()
    data = bytearray(log.read_bytes())
    data[data.index(b"app.note")] ^= 1
    with log.open("r+b") as file:
        file.write(data)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


def repair(backend: LocalBackend, path: Path) -> None:
    """Damage a session, and mend it."""
    corrupt(path, "a")
    assert backend.log("a").repair().findings


def read_damage(backend: LocalBackend, path: Path) -> None:
    """Read a session that was damaged without a trace in its times."""
    backend.log("a").append(NOTE)
    corrupt(path, "a")
    with pytest.raises(hansard.Damaged):
        [chunk.events() for chunk in LocalBackend(str(path)).log("a").reader().read()]


def restore(backend: LocalBackend, path: Path) -> None:
    """Delete a session, and bring it back."""
    del path
    backend.delete("a")
    backend.restore("a")


CHANGES: dict[str, Callable[[LocalBackend, Path], Any]] = {
    "append": lambda backend, _: backend.log("a").append(NOTE),
    "append under a condition": lambda backend, _: backend.log("a").append(
        msgspec.structs.replace(NOTE, expected_seq=1)
    ),
    "append many": lambda backend, _: backend.log("a").append_many([]) or backend.log("a").sync(),
    "delete": lambda backend, _: backend.delete("a"),
    "restore": restore,
    "repair": repair,
    "reading damage": read_damage,
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_a_session_marks_it(
    change: str, backend: LocalBackend, consumer: Consumer, path: Path
) -> None:
    """F-130: appends, notes, moves, repairs and damage that is met are told by the next pass."""
    CHANGES[change](backend, path)
    assert consumer.go_over().ids == {"a"}
    assert consumer.is_right()
    assert not consumer.go_over().ids


def test_a_new_session_is_marked(backend: LocalBackend, consumer: Consumer) -> None:
    """F-130: the append that makes a session marks it before there is anything to read."""
    backend.log("new").append(NOTE)
    assert consumer.go_over().ids == {"new"}
    assert consumer.is_right()


def test_restoring_and_purging_mark(backend: LocalBackend, consumer: Consumer) -> None:
    """F-130: what is done to a session without its lock is marked before and after."""
    backend.delete("a")
    consumer.go_over()
    backend.restore("a")
    assert "a" in consumer.go_over().ids
    backend.delete("a")
    consumer.go_over()
    backend.purge("a")
    assert "a" in consumer.go_over().ids
    assert consumer.is_right()


def test_compacting_marks(path: Path) -> None:
    """F-130: a compaction changes what a session takes on disk, and is told."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        session = store.session("a")
        session.add_messages([{"role": "user", "content": f"text {n}"} for n in range(100)])
        consumer = Consumer(path)
        consumer.go_over()
        session.compact()
        assert consumer.go_over().ids == {"a"}
        assert consumer.is_right()
        consumer.backend.close()


def test_a_hashed_name_that_is_gone_makes_names_be_compared(
    backend: LocalBackend, consumer: Consumer
) -> None:
    """F-11, F-133: whose id nobody can tell any more is found missing by its name."""
    long = "Z" * 300
    backend.log(long).append(NOTE)
    assert long in consumer.go_over().ids
    backend.delete(long)
    backend.purge(long)
    assert consumer.go_over().names
    assert consumer.is_right()


# ------------------------------------------------------------------ the order of things


def in_another_thread(do: Callable[[], object]) -> threading.Thread:
    """Start a thread that ends with the test."""
    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    return thread


def test_a_pass_waits_for_a_writer_that_saw_the_old_epoch(
    backend: LocalBackend, consumer: Consumer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-131: an append that bears a mark of the old epoch is written before the pass reads."""
    backend.log("a").append(NOTE)
    numbers = marks.Table(disk.open_root(str(path))).numbers
    threads: list[threading.Thread] = []
    real = disk.write

    def write(descriptor: int, data: bytes) -> int:
        if not threads and b"app.note" in data:
            # It has looked at the epoch, and has not written: now a pass begins …
            epoch = numbers[0]
            threads.append(in_another_thread(consumer.go_over))
            while numbers[0] == epoch:
                os.sched_yield()
            # … and would be over long before this, if it waited for nobody.
            threads[0].join(0.3)
        return real(descriptor, data)

    monkeypatch.setattr(disk, "write", write)
    backend.log("a").append(NOTE)
    threads[0].join(60)
    consumer.go_over()
    assert consumer.is_right()


def test_a_mark_that_comes_too_late_for_a_pass_is_left_again(
    backend: LocalBackend, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-130: who finds the epoch changed after marking marks in the new one: the old file may be gone."""
    backend.log("b").append(NOTE)
    passes: list[Changed] = []
    real = disk.write

    def write(descriptor: int, data: bytes) -> int:
        if not passes and data == b"\na\n":
            # The file is open, and is read and removed before the mark stands in it.
            thread = in_another_thread(lambda: passes.append(consumer.go_over()))
            thread.join(60)
        return real(descriptor, data)

    monkeypatch.setattr(disk, "write", write)
    backend.log("a").append(NOTE)
    assert passes[0].ids == {"b"}
    assert consumer.go_over().ids == {"a"}
    assert consumer.is_right()


def use(backend: LocalBackend) -> None:
    """Change sessions in all ways that write."""
    backend.log("a").append(NOTE)
    backend.log("new").append(NOTE)
    backend.log("b").append(KEYED)
    backend.delete("c")
    backend.restore("c")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_that_dies_at_any_call_leaves_nothing_unmarked(
    when: faults.When, consumer: Consumer, path: Path
) -> None:
    """F-130: the mark comes first: there is no moment at which there is a change without one."""
    for at in range(1, 100):
        writer = LocalBackend(str(path), durability="os")
        fault = faults.kill(at=at, when=when)
        with contextlib.suppress(faults.Killed), fault:
            use(writer)
        del writer
        consumer.go_over()
        assert consumer.is_right(), at
        if not fault.fired:
            return
        with contextlib.suppress(hansard.SessionNotFound):
            consumer.backend.restore("c")
        consumer.go_over()
    pytest.fail("it makes more calls than were tried")


@pytest.mark.parametrize("only", [faults.MUTATING, faults.READING], ids=["writing", "looking"])
def test_a_consumer_that_is_refused_any_call_is_right_all_the_same(
    only: tuple[str, ...], backend: LocalBackend, consumer: Consumer
) -> None:
    """F-133: what goes wrong with the marks makes a pass look at everything, never miss something."""
    for at in range(1, 100):
        backend.log("a").append(NOTE)
        backend.log("b").append(NOTE)
        consumer.fault = fault = faults.fail(errno.EIO, at=at, only=only)
        assert consumer.go_over().every == fault.fired
        assert consumer.is_right(), at
        consumer.fault = contextlib.nullcontext()
        backend.log("b").append(NOTE)
        consumer.go_over()
        assert consumer.is_right(), at
        if not fault.fired:
            return
    pytest.fail("it makes more calls than were tried")


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EACCES, errno.EMFILE])
def test_no_append_fails_for_want_of_a_mark(
    cause: int, backend: LocalBackend, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-132: who cannot leave a mark says that one is missing, writes, and the next pass is right."""
    real = disk.open_file

    def open_file(directory: int, name: str, **options: bool) -> int:
        if name.isdecimal():
            raise OSError(cause, os.strerror(cause))
        return real(directory, name, **options)

    monkeypatch.setattr(disk, "open_file", open_file)
    backend.log("a").append(NOTE)
    backend.log("b").append(NOTE)
    monkeypatch.undo()
    assert consumer.go_over().every
    assert consumer.is_right()
    assert not consumer.go_over().every


def test_half_a_mark_hides_no_other(
    backend: LocalBackend, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-130, F-132: a mark that a full disk cut off is as good as none, and the next one stands alone."""
    real = disk.write

    def write(descriptor: int, data: bytes) -> int:
        return real(descriptor, data[:2] if data == b"\na\n" else data)

    monkeypatch.setattr(disk, "write", write)
    backend.log("a").append(NOTE)
    backend.log("b").append(NOTE)
    changed = consumer.go_over()
    assert changed.every
    assert "b" in changed.ids
    assert consumer.is_right()


def test_marks_that_nobody_reads_do_not_grow_for_ever(
    backend: LocalBackend, consumer: Consumer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-132: beyond a size a file of marks is not added to; the next pass looks at everything."""
    monkeypatch.setattr(marks, "MOST", 100)
    for n in range(200):
        backend.log(f"session-{n:03}").append(NOTE)
    assert sum((path / "marks" / name).stat().st_size for name in mark_files(path)) < 200
    assert consumer.go_over().every
    assert consumer.is_right()


# ------------------------------------------------------------------ other hands


def test_marks_can_be_removed_at_any_time(
    backend: LocalBackend, consumer: Consumer, path: Path
) -> None:
    """F-128, F-132: the directory is derived; the next pass looks at everything, and writers find it."""
    backend.log("a").append(NOTE)
    shutil.rmtree(path / "marks")
    backend.log("b").append(NOTE)
    assert consumer.go_over().every
    assert consumer.is_right()
    backend.log("b").release_files()  # type: ignore[attr-defined]
    backend.log("b").append(NOTE)
    assert consumer.go_over().ids == {"b"}
    assert consumer.is_right()


@pytest.mark.parametrize("shape", ["file", "link"])
def test_a_store_without_marks_works(shape: str, path: Path) -> None:
    """F-4, F-132: where marks cannot be made, appends go on, and every pass looks at everything."""
    backend = LocalBackend(str(path), durability="os")
    if shape == "file":
        (path / "marks").write_text("mine")
    else:
        (path / "marks").symlink_to(path / "trash", target_is_directory=True)
    consumer = Consumer(path)
    for _ in range(3):
        backend.log("a").append(NOTE)
        backend.log("b").append(KEYED)
        assert consumer.go_over().every
        assert consumer.is_right()
    assert os.listdir(path / "trash") == []


def test_a_read_only_store_makes_no_marks(backend: LocalBackend, path: Path) -> None:
    """F-128: who may not write begins no epoch, and looks at everything each time."""
    backend.close()
    shutil.rmtree(path / "marks")
    reader = LocalBackend(str(path), read_only=True)
    watch = reader.watch()
    for _ in range(2):
        assert watch.begin("") == Changed(every=True)
        assert sorted(watch.ids()) == ["a", "b", "c"]
        assert watch.done() == ""
        watch.consumed()
    with pytest.raises(hansard.ReadOnly):
        reader.restore("a")
    assert not (path / "marks").exists()


def test_a_copied_store_is_looked_at_whole(
    backend: LocalBackend, consumer: Consumer, path: Path, tmp_path: Path
) -> None:
    """F-133: a copy has the marks of the moment at which they were copied, which says nothing of it."""
    backend.log("a").append(NOTE)
    shutil.copytree(path, tmp_path / "copy")
    copy = Consumer(tmp_path / "copy")
    copy.known = consumer.known
    assert copy.go_over().every
    assert not copy.go_over().every


def test_marks_that_another_has_read_are_missed(
    backend: LocalBackend, consumer: Consumer, path: Path
) -> None:
    """F-133: of two who read the marks, each looks at everything where the other was before."""
    other = Consumer(path)
    for one in (other, consumer, other, consumer):
        backend.log("a").append(NOTE)
        assert one.go_over().every
        assert one.is_right()


def test_another_run_of_the_machine_is_looked_at_whole(
    backend: LocalBackend, consumer: Consumer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-133: a power cut may have taken marks that were never synced; where nobody can tell, too."""
    backend.log("a").append(NOTE)
    shutil.copytree(path / "marks", path.parent / "aside")
    for boot in ("another", "", ""):
        monkeypatch.setattr(disk, "boot", lambda boot=boot: boot)
        for name in mark_files(path):
            (path / "marks" / name).unlink()
        consumer.watch = consumer.backend.watch()
        assert consumer.go_over().every
        assert consumer.is_right()
        backend.log("a").append(NOTE)


@pytest.mark.parametrize("left", [0, 5])
def test_numbers_that_a_power_cut_has_taken_are_made_again(
    left: int, backend: LocalBackend, path: Path
) -> None:
    """F-129: a file that is too short is filled with zeros, in its place, and never mapped too short."""
    backend.close()
    os.truncate(path / "marks/epoch", left)
    writer = LocalBackend(str(path), durability="os")
    consumer = Consumer(path)
    for _ in range(2):
        writer.log("a").append(NOTE)
        consumer.go_over()
        assert consumer.is_right()
    assert (path / "marks/epoch").stat().st_size == 24


def test_sessions_that_other_hands_add_or_take_are_told(
    backend: LocalBackend, consumer: Consumer, path: Path
) -> None:
    """F-133: names that appear or vanish are to be compared, though nobody has marked them."""
    del backend
    shutil.copytree(path / "sessions/a", path / "sessions/d")
    shutil.rmtree(path / "sessions/b")
    assert consumer.go_over().names
    assert set(consumer.stamps) == {"a", "c", "d"}


def test_names_are_not_compared_when_nothing_was_added(consumer: Consumer, path: Path) -> None:
    """F-133: a directory that has not been changed for a while is believed."""
    os.utime(path / "sessions", ns=(10**18, 10**18))
    assert consumer.go_over().names
    assert consumer.go_over() == Changed()


@pytest.mark.parametrize("known", ["", "x", "[]", "[1]", '["",[],0,0,"x"]', "\ud800"])
def test_a_text_that_is_not_ours_means_that_nothing_is_known(
    known: str, consumer: Consumer
) -> None:
    """F-133: whatever the consumer brings, it is at worst told to look at everything."""
    consumer.known = known
    assert consumer.go_over().every
    assert consumer.is_right()


def test_a_session_whose_lock_cannot_be_had_is_told_again(
    backend: LocalBackend, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-131: a writer that holds its lock for long holds up nobody, and is looked at until it is free."""
    monkeypatch.setattr(watch, "PATIENCE", 0.01)
    log = backend.log("a")
    log.append(NOTE)
    lock = log._files.lock  # type: ignore[attr-defined]
    lock.acquire(0.0)
    assert consumer.go_over().ids == {"a"}
    assert consumer.go_over().ids == {"a"}
    lock.release()
    assert consumer.go_over().ids == {"a"}
    assert consumer.go_over().ids == set()


def test_what_is_closed_is_unmapped(path: Path) -> None:
    """F-129: nothing of the marks stays open when nobody uses the store any more."""
    store = hansard.open(path, durability="os")
    session = store.session("a")
    session.add_message({"role": "user", "content": "hello"})
    assert str(path / "marks") in mapped_and_open()
    store.close()
    del session
    gc.collect()
    assert str(path / "marks") not in mapped_and_open()


def mapped_and_open() -> str:
    """Return the paths of all files that this process has mapped or open."""
    paths = [Path("/proc/self/maps").read_text()]
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            paths.append(os.readlink(f"/proc/self/fd/{name}"))
    return "\n".join(paths)


def test_a_forked_child_goes_on_with_what_is_marked(
    backend: LocalBackend, consumer: Consumer, path: Path
) -> None:
    """F-130: what a parent has marked is marked; what a child changes in a new epoch it marks itself."""
    backend.log("a").append(NOTE)

    def in_child(*session_ids: str) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                for session_id in session_ids:
                    backend.log(session_id).append(NOTE)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)

    in_child("a")
    assert (path / "marks" / mark_files(path)[0]).read_text().split() == ["a"]
    assert consumer.go_over().ids == {"a"}
    assert consumer.is_right()
    in_child("a", "b")
    assert consumer.go_over().ids == {"a", "b"}
    backend.log("a").append(NOTE)
    assert consumer.go_over().ids == {"a"}
    assert consumer.is_right()
