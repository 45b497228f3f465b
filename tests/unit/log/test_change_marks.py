"""Change marks: which changes are recorded, and what an index refresh gets."""

import contextlib
import errno
import gc
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.backend.contract import AppendRequest, Changed, RepairHints
from hansard.backend.local import changes
from hansard.backend.local.backend import LocalBackend
from hansard.event.event import NewEvent
from hansard.log import change_marks, disk
from hansard.maintenance.compact import compaction_filter
from tests.crashlab import faults

NOTE = AppendRequest([NewEvent("app.note", b"{}", control=False)])
KEYED = msgspec.structs.replace(NOTE, key="k")


class Consumer:
    """Stores the stamp of each reported session, as an index does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backend = LocalBackend(str(path), durability="os")
        #: Another handle, which writes.
        self.writer = LocalBackend(str(path), durability="os")
        self.since = ""
        self.stamps: dict[str, str] = {}
        #: Faults in `changed`, and in nothing else.
        self.fault: contextlib.AbstractContextManager[object] = contextlib.nullcontext()

    def look(self) -> Changed:
        """Refresh without a commit."""
        with self.fault:
            changed = self.backend.changed(self.since)
        if changed.every:
            self.stamps = self.backend.stamps()
            return changed
        asked = set(changed.ids)
        if changed.present is not None:
            asked |= changed.present ^ set(self.stamps)
        found = self.backend.stamps(asked)
        for session_id in asked:
            self.stamps.pop(session_id, None)
        self.stamps.update(found)
        return changed

    def refresh(self) -> Changed:
        """Refresh and commit."""
        changed = self.look()
        self.since = changed.since
        changed.done()
        return changed

    def is_right(self) -> bool:
        """Return whether it has every session as it is."""
        return self.stamps == self.backend.stamps()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the store."""
    return tmp_path / "store"


@pytest.fixture
def consumer(path: Path) -> Iterator[Consumer]:
    """Return a consumer that knows everything of a store with three sessions."""
    consumer = Consumer(path)
    for name in "abc":
        consumer.writer.log(name).append(NOTE)
    consumer.refresh()
    assert not consumer.refresh().ids
    yield consumer
    consumer.backend.close()
    consumer.writer.close()


def epoch_of(path: Path) -> int:
    """Return the current epoch."""
    return int.from_bytes((path / "marks/epoch").read_bytes(), sys.byteorder)


def current(path: Path) -> Path:
    """Return the file of the current epoch."""
    return path / "marks" / str(epoch_of(path))


def files(path: Path) -> set[str]:
    """Return the names of the files of epochs."""
    return set(os.listdir(path / "marks")) - {"epoch"}


def reported(changed: Changed) -> tuple[set[str], bool]:
    """Return the changed sessions, and whether all have to be compared."""
    return set(changed.ids), changed.every


def test_nothing_is_recorded_without_a_consumer(path: Path) -> None:
    """F-128, F-130: a store without an index has one file, of 8 bytes."""
    writer = LocalBackend(str(path), durability="os")
    for _ in range(3):
        writer.log("a").append(NOTE)
    assert os.listdir(path / "marks") == ["epoch"]
    assert (path / "marks/epoch").read_bytes() == bytes(8)
    consumer = Consumer(path)
    assert consumer.refresh().every
    assert consumer.is_right()


def test_a_lone_append_by_the_fast_path_leaves_a_mark(consumer: Consumer) -> None:
    """F-130: the fast path adds the name once in each epoch."""
    log = consumer.writer.log("a")
    log.append(NOTE)
    consumer.refresh()
    for _ in range(3):
        with faults.record() as seen:
            log.append(NOTE)
            log.append(NOTE)
        # The session's record, twice, and one name.
        assert [call.operation for call in seen.calls].count("write") == 3
        assert consumer.refresh().ids == {"a"}
        assert consumer.is_right()
    assert not consumer.refresh().ids


def test_a_session_is_recorded_once_in_an_epoch(consumer: Consumer) -> None:
    """F-130, F-131: also if its files are closed in between; one empty file is left after a refresh."""
    for _ in range(3):
        consumer.writer.log("a").append(NOTE)
        consumer.writer.log("b").append(KEYED)
        consumer.writer.log("a").release_files()
    assert current(consumer.path).read_text().split() == ["a", "b"]
    assert consumer.refresh().ids == {"a", "b"}
    assert files(consumer.path) == {current(consumer.path).name}
    assert current(consumer.path).read_bytes() == b""
    assert consumer.is_right()


def test_a_refresh_without_changes_begins_no_epoch(consumer: Consumer) -> None:
    """F-131: finding out that nothing changed changes nothing."""
    os.utime(consumer.path / "sessions", ns=(10**18, 10**18))
    consumer.refresh()
    before = epoch_of(consumer.path)
    for _ in range(3):
        assert consumer.backend.version() == consumer.since
        assert not consumer.refresh().ids
    assert epoch_of(consumer.path) == before
    consumer.backend.log("a").append(NOTE)
    assert not consumer.backend.version()


def corrupt(path: Path, session_id: str) -> None:
    """Change a byte in the first record of a log, but neither its size nor its times."""
    log = path / "sessions" / session_id / "log.jsonl"
    status = log.stat()
    data = bytearray(log.read_bytes())
    data[data.index(b"app.note")] ^= 1
    with log.open("r+b") as file:
        file.write(data)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


def repair(backend: LocalBackend, path: Path) -> None:
    """Damage a session, and repair it."""
    corrupt(path, "a")
    assert backend.log("a").repair(RepairHints(), missing=False).findings


def read_damage(backend: LocalBackend, path: Path) -> None:
    """Read a session that was damaged without a change of its times."""
    backend.log("a").append(NOTE)
    corrupt(path, "a")
    with pytest.raises(hansard.Damaged):
        [chunk.events() for chunk in LocalBackend(str(path)).log("a").reader().read()]


def restore(backend: LocalBackend, path: Path) -> None:
    """Delete a session, and restore it."""
    del path
    backend.delete("a")
    backend.restore("a")


def purge(backend: LocalBackend, path: Path) -> None:
    """Delete a session permanently."""
    del path
    backend.delete("a")
    backend.purge("a")


CHANGES: dict[str, Callable[[LocalBackend, Path], Any]] = {
    "append": lambda backend, _: backend.log("a").append(NOTE),
    "append under a condition": lambda backend, _: backend.log("a").append(
        msgspec.structs.replace(NOTE, expected_seq=1)
    ),
    "sync": lambda backend, _: backend.log("a").sync(),
    "delete": lambda backend, _: backend.delete("a"),
    "restore": restore,
    "purge": purge,
    "repair": repair,
    "compact": lambda backend, _: backend.log("a").compact(compaction_filter([]), level=1),
    "reading damage": read_damage,
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_recorded(change: str, consumer: Consumer) -> None:
    """F-130: appends, notes, moves, repairs and damage that is found are reported by the next refresh."""
    CHANGES[change](consumer.writer, consumer.path)
    assert consumer.refresh().ids == {"a"}
    assert consumer.is_right()
    assert not consumer.refresh().ids


def test_a_hashed_name_that_is_missing_makes_names_be_compared(consumer: Consumer) -> None:
    """F-11, F-133: a purged session whose id cannot be derived is found missing."""
    long = "Z" * 300
    consumer.writer.log(long).append(NOTE)
    assert long in consumer.refresh().ids
    consumer.writer.delete(long)
    consumer.writer.purge(long)
    assert consumer.refresh().present == frozenset({"a", "b", "c"})
    assert consumer.is_right()


# -- the order of steps -------------------------------------------------------------------------


def in_another_thread(do: Callable[[], object]) -> threading.Thread:
    """Start a thread that ends with the test."""
    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    return thread


def test_a_refresh_waits_for_a_writer_that_saw_the_old_epoch(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-131: an append recorded in the old epoch is written before the refresh reads."""
    consumer.writer.log("a").append(NOTE)
    numbers = change_marks.MarkFiles(disk.open_root(str(consumer.path))).numbers
    threads: list[threading.Thread] = []
    real = disk.write

    def write(descriptor: int, data: bytes) -> int:
        if not threads and b"app.note" in data:
            # It has read the epoch, and has not written. Now a refresh begins …
            epoch = numbers[0]
            threads.append(in_another_thread(consumer.refresh))
            while numbers[0] == epoch:
                os.sched_yield()
            # … and would end here if it did not wait.
            threads[0].join(0.3)
        return real(descriptor, data)

    monkeypatch.setattr(disk, "write", write)
    consumer.writer.log("a").append(NOTE)
    threads[0].join(60)
    consumer.refresh()
    assert consumer.is_right()


@pytest.mark.parametrize("refused", [False, True], ids=["added", "refused"])
def test_a_name_that_is_too_late_for_a_refresh_is_added_again(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    """F-130: a writer reads the epoch again after it added a name, or removed the file of a past epoch."""
    consumer.writer.log("b").append(NOTE)
    refreshes: list[Changed] = []
    real = disk.write

    def write(descriptor: int, data: bytes) -> int:
        if not refreshes and data == b"\na\n":
            # The file is open, and is read and removed before the name is in it.
            in_another_thread(lambda: refreshes.append(consumer.refresh())).join(60)
            if refused:
                raise OSError(errno.ENOSPC, "full")
        return real(descriptor, data)

    monkeypatch.setattr(disk, "write", write)
    consumer.writer.log("a").append(NOTE)
    assert refreshes[0].ids == {"b"}
    assert reported(consumer.refresh()) == ({"a"}, False)
    assert consumer.is_right()


def test_the_file_of_an_epoch_exists_before_the_epoch(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-131: a writer that sees a new epoch finds its file: nothing counts as lost."""
    consumer.writer.log("a").append(NOTE)
    real = disk.write_at
    seen: list[bool] = []

    def write_at(descriptor: int, data: bytes, offset: int) -> None:
        real(descriptor, data, offset)
        seen.append(current(consumer.path).exists())
        in_another_thread(lambda: consumer.writer.log("b").append(NOTE)).join(60)

    monkeypatch.setattr(disk, "write_at", write_at)
    assert not consumer.refresh().every
    assert (seen[0], reported(consumer.refresh())) == (True, ({"b"}, False))


def use(backend: LocalBackend) -> None:
    """Change sessions in all ways that write."""
    backend.log("a").append(NOTE)
    backend.log("new").append(NOTE)
    backend.log("b").append(KEYED)
    backend.delete("c")
    backend.restore("c")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_that_dies_at_any_call_leaves_no_unrecorded_change(
    when: faults.When, consumer: Consumer
) -> None:
    """F-130: the name is added before the change."""
    for at in range(1, 100):
        writer = LocalBackend(str(consumer.path), durability="os")
        fault = faults.kill(at=at, when=when)
        with contextlib.suppress(faults.Killed), fault:
            use(writer)
        del writer
        consumer.refresh()
        assert consumer.is_right(), at
        if not fault.fired:
            return
        with contextlib.suppress(hansard.SessionNotFound):
            consumer.backend.restore("c")
        consumer.refresh()
    pytest.fail("it makes more calls than were tried")


@pytest.mark.parametrize("only", [faults.MUTATING, faults.READING], ids=["writing", "looking"])
def test_a_consumer_with_any_failing_call_misses_nothing(
    only: tuple[str, ...], consumer: Consumer
) -> None:
    """F-133: an error makes a refresh compare everything."""
    for at in range(1, 100):
        consumer.writer.log("a").append(NOTE)
        consumer.writer.log("b").append(NOTE)
        consumer.fault = fault = faults.fail(errno.EIO, at=at, only=only)
        assert consumer.refresh().every == fault.fired
        assert consumer.is_right(), at
        consumer.fault = contextlib.nullcontext()
        consumer.writer.log("b").append(NOTE)
        consumer.refresh()
        assert consumer.is_right(), at
        if not fault.fired:
            return
    pytest.fail("it makes more calls than were tried")


# -- lost names ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EACCES, errno.EMFILE])
def test_a_writer_that_cannot_add_a_name_removes_the_file(
    cause: int, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-132: the append succeeds, and the next refresh compares everything, once."""
    real = disk.open_file

    def open_file(directory: int, name: str, **options: bool) -> int:
        if name.isdecimal():
            raise OSError(cause, os.strerror(cause))
        return real(directory, name, **options)

    monkeypatch.setattr(disk, "open_file", open_file)
    consumer.writer.log("a").append(NOTE)
    consumer.writer.log("b").append(NOTE)
    monkeypatch.undo()
    assert files(consumer.path) == set()
    # A writer never creates the file again: that would hide the loss.
    consumer.writer.log("c").append(NOTE)
    assert files(consumer.path) == set()
    assert consumer.refresh().every
    assert consumer.is_right()
    assert not consumer.refresh().every


def test_a_writer_that_can_neither_add_nor_remove_tries_again(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-130, F-132: a name that a full disk cut off hides no other, and is added at the next change."""
    real = disk.write

    def write(descriptor: int, data: bytes) -> int:
        return real(descriptor, data[:3] if data == b"\nlong\n" else data)

    def remove(directory: int, name: str) -> None:
        raise OSError(errno.EROFS, "refused")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", write)
        patch.setattr(disk, "remove", remove)
        consumer.writer.log("long").append(NOTE)
    consumer.writer.log("b").append(NOTE)
    assert consumer.refresh().ids >= {"b"}
    consumer.writer.log("long").append(NOTE)
    assert reported(consumer.refresh()) == ({"long"}, False)
    assert consumer.is_right()


def remove_a_past_file(consumer: Consumer, _: pytest.MonkeyPatch) -> None:
    """Remove the file of an epoch between the stored one and the current one."""
    past = current(consumer.path)
    consumer.look()
    past.unlink()


def remove_the_directory(consumer: Consumer, _: pytest.MonkeyPatch) -> None:
    """Remove `marks`; writers find the new directory."""
    shutil.rmtree(consumer.path / "marks")
    consumer.writer.log("b").append(NOTE)
    consumer.writer.log("b").release_files()


def outgrow_the_file(consumer: Consumer, patch: pytest.MonkeyPatch) -> None:
    """Add more names than a file may hold: it is removed."""
    patch.setattr(change_marks, "MAX_BYTES", 100)
    for n in range(20):
        consumer.writer.log(f"session-{n:03}").append(NOTE)
    assert files(consumer.path) == set()


def lose_names_at_a_reboot(consumer: Consumer, patch: pytest.MonkeyPatch) -> None:
    """Lose names that were never synced."""
    current(consumer.path).write_bytes(b"")
    patch.setattr(changes, "boot_id", lambda: "another")


def refresh_another_consumer(consumer: Consumer, _: pytest.MonkeyPatch) -> None:
    """Let another consumer read the names, and remove their file."""
    assert Consumer(consumer.path).refresh().every


def forget(since: str, consumer: Consumer, _: pytest.MonkeyPatch) -> None:
    """Let the index have stored another text."""
    consumer.since = since


LOSSES: dict[str, Callable[[Consumer, pytest.MonkeyPatch], None]] = {
    "a past file": remove_a_past_file,
    "the directory": remove_the_directory,
    "too many names": outgrow_the_file,
    "a reboot": lose_names_at_a_reboot,
    "another consumer": refresh_another_consumer,
    **{
        f"stored {text!a}": partial(forget, text)
        for text in ("", "x", "[]", "[1]", '["",[],0,"x"]', "\ud800")
    },
}


@pytest.mark.parametrize("loss", LOSSES)
def test_after_a_loss_everything_is_compared_once(
    loss: str, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-128, F-132, F-133: names may be missing, so the next refresh compares everything, once."""
    consumer.writer.log("a").append(NOTE)
    LOSSES[loss](consumer, monkeypatch)
    consumer.writer.log("b").append(NOTE)
    assert consumer.refresh().every
    assert consumer.is_right()
    consumer.writer.log("b").append(NOTE)
    assert reported(consumer.refresh()) == ({"b"}, False)
    assert consumer.is_right()


def test_everything_is_compared_where_the_boot_is_not_known(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-133: a power cut may have lost names that were never synced, so no refresh trusts them."""
    monkeypatch.setattr(changes, "boot_id", str)
    for _ in range(2):
        assert consumer.refresh().every


# -- external changes ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["file", "link"])
def test_a_store_without_marks_works(shape: str, path: Path) -> None:
    """F-4, F-132: where there can be no marks, appends succeed, and every refresh compares everything."""
    backend = LocalBackend(str(path), durability="os")
    if shape == "file":
        (path / "marks").write_text("mine")
    else:
        (path / "marks").symlink_to(path / "trash", target_is_directory=True)
    consumer = Consumer(path)
    for _ in range(3):
        backend.log("a").append(NOTE)
        backend.log("b").append(KEYED)
        assert consumer.refresh().every
        assert consumer.is_right()
    assert os.listdir(path / "trash") == []


def test_a_read_only_store_creates_no_marks(consumer: Consumer, path: Path) -> None:
    """F-128: it begins no epoch, and compares everything each time."""
    consumer.writer.close()
    shutil.rmtree(path / "marks")
    reader = LocalBackend(str(path), read_only=True)
    assert reader.changed("") == Changed(every=True)
    assert not reader.version()
    with pytest.raises(hansard.ReadOnly):
        reader.restore("a")
    assert not (path / "marks").exists()


def test_a_copied_store_is_compared_completely(consumer: Consumer, tmp_path: Path) -> None:
    """F-133: the copy of `marks` is of another moment than the copies of the logs."""
    consumer.writer.log("a").append(NOTE)
    shutil.copytree(consumer.path, tmp_path / "copy")
    copy = Consumer(tmp_path / "copy")
    copy.since = consumer.since
    assert copy.refresh().every
    assert not copy.refresh().every


@pytest.mark.parametrize("left", [0, 5])
def test_a_truncated_epoch_is_extended_in_place(left: int, path: Path) -> None:
    """F-128: a file that is too short is filled with zeros, never replaced, and never mapped too short."""
    LocalBackend(str(path), durability="os").log("a").append(NOTE)
    gc.collect()
    os.truncate(path / "marks/epoch", left)
    inode = (path / "marks/epoch").stat().st_ino
    consumer = Consumer(path)
    for _ in range(2):
        consumer.writer.log("a").append(NOTE)
        consumer.refresh()
        assert consumer.is_right()
    assert ((path / "marks/epoch").stat().st_size, (path / "marks/epoch").stat().st_ino) == (
        8,
        inode,
    )


def test_sessions_that_other_programs_add_or_remove_are_reported(consumer: Consumer) -> None:
    """F-133: names are compared, although no writer recorded them; not if the directory is unchanged."""
    shutil.copytree(consumer.path / "sessions/a", consumer.path / "sessions/d")
    shutil.rmtree(consumer.path / "sessions/b")
    assert consumer.refresh().present == frozenset({"a", "c", "d"})
    assert set(consumer.stamps) == {"a", "c", "d"}
    os.utime(consumer.path / "sessions", ns=(10**18, 10**18))
    assert consumer.refresh().present is not None
    changed = consumer.refresh()
    assert (reported(changed), changed.present) == ((set(), False), None)


def test_a_session_that_stays_locked_is_reported_again(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-131: a writer that holds its lock for long does not block a refresh."""
    monkeypatch.setattr(changes, "PATIENCE", 0.01)
    log = consumer.writer.log("a")
    log.append(NOTE)
    lock = log.files.lock
    assert lock is not None
    lock.acquire(0.0)
    assert consumer.refresh().ids == {"a"}
    assert consumer.refresh().ids == {"a"}
    lock.release()
    assert consumer.refresh().ids == {"a"}
    assert consumer.refresh().ids == set()
