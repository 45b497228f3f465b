"""Hold a session's open files, and what is known of the end of its log.

One handle serves all threads of a process. It opens what is needed when it is needed: a reader
opens one file and creates none; a writer adds the lock file. It can let go of its files at any
time (after a fork, when many sessions are open, when the session was deleted) and find them again.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from hansard.errors import LockTimeout, SessionNotFound
from hansard.log import checkpoint, disk, names
from hansard.log.change_marks import NOWHERE, UNMARKED
from hansard.log.checkpoint import Checkpoint
from hansard.log.disk import Lock
from hansard.log.sealed_chain import SealedChain
from hansard.log.sealed_segment import SealedSegment
from hansard.log.segment import Raw, Segment, open_raw, open_segment
from hansard.log.segment_reader import LogEnd, SegmentReader
from hansard.log.store_directory import StoreDirectory, deleted, is_past, sweep

FAILED: Final = "failed"
DELETED: Final = "deleted"
SEALED: Final = "sealed"


class SessionFiles:
    """A session's files. `mutex` guards all fields; nobody sleeps or syncs while holding it.

    Attributes:
        session_id: the session.
        name: the name of its directory.
        path: the path of its active segment, for people.
        reader: the open segment; None while the session is not open, or does not exist.
        end: what is known of the segment's end.
        lock: the open lock file; None until something is appended.
        directory: the session's directory; None until something is appended.
        parent: the directory of sessions, open until the entries of `directory` are durable: a sync must
            not fail for want of a descriptor. None: they are.
        settled: when it had last changed when lock and log were seen in it; 0 if unknown.
        mutex: guards the fields above.
        numbers, marked: those of the marks, and the epoch in which the session bears one that this
            handle knows of. What is marked is marked, whoever did it: a forked child goes on with both.
        generation: of which process these files are: see `disk.generation`.
        on_reset: called in a forked child, when none of the above is known.
        renewed: how often the files were found to have been replaced, and what was known of them void.
    """

    __slots__ = (
        "_buried",
        "_chain",
        "directory",
        "end",
        "generation",
        "lock",
        "marked",
        "mutex",
        "name",
        "numbers",
        "on_reset",
        "parent",
        "path",
        "reader",
        "renewed",
        "root",
        "session_id",
        "settled",
    )

    def __init__(
        self, root: StoreDirectory, session_id: str, name: str, *, buried: bool = False
    ) -> None:
        """`buried`: only to read, and also what is in the trash: others may have been forked from it."""
        self.root = root
        self._buried = buried
        self.renewed = 0
        self.numbers = NOWHERE
        self.marked = UNMARKED
        self.session_id = session_id
        self.name = name
        self.path = root.path_of(self.name, names.LOG)
        self.on_reset: Callable[[], None] = _nothing
        self._reset()

    def _reset(self) -> None:
        # An RLock, for a signal handler that reads while its own thread is here: what it changes is only what
        # is known of the end, and that stays true.
        self.mutex = threading.RLock()
        self.reader: SegmentReader | None = None
        self.end: LogEnd | None = None
        self.lock: Lock | None = None
        self.directory: disk.OwnedFd | None = None
        self.parent: int | None = None
        self.settled = 0
        self._chain: SealedChain | None = None
        self.on_reset()
        # Last: a thread that finds it current must find the rest so.
        self.generation = disk.generation

    def check_process(self) -> None:
        """After a fork, open the files again: locks and descriptors belong to the parent."""
        if self.generation == disk.generation:
            return
        with disk.fork_guard:
            if self.generation != disk.generation:
                # The child's copies of the descriptors are closed, never unlocked: an unlock
                # through one would free the parent's lock, closing one does not.
                self.release_files()
                self._reset()

    def is_held(self) -> bool:
        """Say whether this very thread holds the mutex: only so in a signal handler."""
        return self.mutex._is_owned()  # type: ignore[attr-defined,no-any-return] # noqa: SLF001

    def release_files(self) -> None:
        """Forget the open files. They close when the last one who reads from them is done."""
        self.reader = None
        self.end = None
        self.lock = None
        self.directory = None
        self.parent = None
        self.settled = 0
        self._chain = None
        # The marks may have been removed, and made anew: the next one to write looks for them.
        self.numbers = NOWHERE
        self.marked = UNMARKED

    def renew(self) -> None:
        """Forget the open files because others have their names, and what was known of them is void."""
        self.release_files()
        self.renewed += 1

    # -- reading --------------------------------------------------------------------------------

    def refresh(self, *, to_append: bool = False) -> tuple[SegmentReader, LogEnd] | None:
        """Look at the end of the log; None if there is no such session (yet).

        With `to_append`, None also if the open files were replaced: the holder of the lock decides then.
        """
        self.check_process()
        with self.mutex:
            if self.reader is not None and _purged(self.reader):
                if to_append:
                    return None
                # A repair has put another file in its place; or another session has its name by now.
                self.renew()
            if self.reader is None and not self._open():
                return None
            reader, tail = self._look()
            if SEALED in tail.shut:
                # Another segment has taken its place, or will: then this one still is the end.
                self.reader = None
                try:
                    if not self._open():
                        return None
                finally:
                    if self.reader is None:
                        # Deleted meanwhile: the lock is one of files that are the session's no more.
                        self.release_files()
                reader, tail = self._look()
            if DELETED in tail.shut and not self._buried:
                # Deleted through these very files. Perhaps purged and made anew since: look again.
                self.release_files()
                if not self._open():
                    return None
                reader, tail = self._look()
                if DELETED in tail.shut:
                    self.release_files()
                    raise deleted(self.session_id)
            return reader, tail

    def chain(self, reader: SegmentReader) -> SealedChain | None:
        """Return the sealed segments before the active one; None if there are none."""
        previous = reader.segment.previous
        if previous is None:
            return None
        with self.mutex:
            chain = self._chain
            if chain is None or chain.upto != previous.seq:
                chain = self._chain = SealedChain(
                    self.session_id,
                    self.path,
                    previous.seq,
                    partial(self._open_directory, *_of_log(reader.segment)),
                )
            return chain

    def forget_chain(self) -> None:
        """Close the sealed segments, with the frames of them that are in memory."""
        with self.mutex:
            self._chain = None

    def checkpoint(self, reader: SegmentReader) -> Checkpoint | None:
        """Return what is known of the sealed segments without opening them."""
        found = self.look_at_checkpoint(reader)
        return found if isinstance(found, Checkpoint) else None

    def look_at_checkpoint(self, reader: SegmentReader) -> Checkpoint | str:
        """Return the same, or why it cannot be used; an empty string if there is none."""
        directory = self._open_directory(*_of_log(reader.segment))
        try:
            found = checkpoint.look(directory, self.session_id, reader.segment.time)
        finally:
            disk.close(directory)
        if isinstance(found, Checkpoint) and not self._precedes_a_segment(found, reader):
            return "is not of this log: no segment begins where it ends"
        return found

    def _precedes_a_segment(self, found: Checkpoint, reader: SegmentReader) -> bool:
        """Return whether the segment after a checkpoint's seq continues what the checkpoint was made of."""
        segment = reader.segment
        chain = self.chain(reader)
        if chain is not None and found.seq < chain.upto:
            # Sealed since, and not compressed yet: a compaction of it would have removed the checkpoint.
            segment = chain.part_with(found.seq + 1).reader.segment
        previous = None if isinstance(segment, SealedSegment) else segment.previous
        return previous is not None and (previous.seq, previous.crc) == (found.seq, found.previous)

    def drop_checkpoint(self) -> None:
        """Remove it."""
        self.root.check_writable()
        directory = self.root.open_session(self.session_id, self.name, buried=self._buried)
        if directory is None:
            return
        try:
            disk.remove(directory, names.CHECKPOINT)
        except FileNotFoundError:
            pass
        except OSError as error:
            path = self.root.path_of(self.name, names.CHECKPOINT)
            raise disk.explain(error, "remove", path) from error
        finally:
            disk.close(directory)

    def _open_directory(self, created: str, inode: int) -> int:
        """Open the directory of the log that began at a time, and had an inode; raise if that was deleted.

        Another session may have its name by now. Its files must not be taken for this one's, nor for damage.
        """
        directory = self.root.open_session(self.session_id, self.name, buried=self._buried)
        if directory is not None:
            try:
                # No other file has this inode while the log is open.
                if disk.inode(directory, names.LOG) == inode:
                    return directory
                # Sealed since, or another log: its header says when it began.
                found = open_segment(directory, self.path, self.session_id, writable=False)
                if found is not None and found.time == created:
                    return directory
            except BaseException:
                disk.close(directory)
                raise
            disk.close(directory)
        raise SessionNotFound(
            f"session {self.session_id!r} was deleted while it was read; read it again"
        )

    def look_anew(self, reader: SegmentReader) -> LogEnd:
        """Look at the end of the log as if nothing were known of it."""
        with self.mutex:
            tail = reader.log_end()
            if self.reader is reader:
                self.end = tail
            return tail

    def _look(self) -> tuple[SegmentReader, LogEnd]:
        reader = self.reader
        assert reader is not None  # callers have opened it
        tail = self.end = reader.log_end(self.end)
        # This reader, and not the field: a signal handler may have closed the store meanwhile.
        return reader, tail

    def raw(self) -> Raw | None:
        """Open a log that cannot be opened as one, to look for damage; None if it is gone."""
        directory = self.root.open_session(self.session_id, self.name, buried=self._buried)
        if directory is None:
            return None
        try:
            return open_raw(directory, self.path)
        finally:
            disk.close(directory)

    def is_locked(self) -> bool:
        """Say whether somebody holds the session's lock right now; takes it for a moment if not."""
        directory = self.root.open_session(self.session_id, self.name, buried=self._buried)
        if directory is None:
            return False
        path = self.root.path_of(self.name, names.LOCK)
        try:
            file = disk.open_file(directory, names.LOCK)
        except FileNotFoundError:
            return False  # nobody has written here since it was lost
        except OSError as error:
            raise disk.explain(error, "open", path) from error
        finally:
            disk.close(directory)
        # A lock of its own: one that this process holds through another descriptor is held, too.
        lock = Lock(file, path)
        try:
            with lock.for_a_moment(0.0):
                return False
        except LockTimeout:
            return True

    def _open(self) -> bool:
        """Open the segment to read; False if there is none."""
        segment = self._segment_in(
            self.root.open_session(self.session_id, self.name, buried=self._buried)
        )
        if segment is None and self.root.in_trash(self.name):
            # What stands in its place is only where a writer was about to begin when it was deleted.
            if not self._buried:
                raise deleted(self.session_id)
            segment = self._segment_in(self.root.open_trashed(self.name))
        if segment is None:
            return False
        # In this order: an old end behind a new file would be taken for one that was cut.
        self.end = None
        self.reader = SegmentReader(segment)
        return True

    def in_place(self) -> bool:
        """Return whether the open segment has the name of the session's log. The caller holds the mutex.

        With the lock held, no hansard moves a directory out of its place; an editor or `mv` may.
        """
        if self.reader is None:
            return False
        name = f"{self.name}/{names.LOG}"
        try:
            return disk.is_named(self.root.sessions, name, self.reader.segment.descriptor)
        except OSError as error:
            raise disk.explain(error, "open", self.path) from error

    def _segment_in(self, directory: int | None) -> Segment | None:
        """Open the segment in a directory, which is closed, to read; None if there is none."""
        if directory is None:
            return None
        try:
            # Once there is a lock, whoever appends takes the segment as it finds it here.
            return open_segment(
                directory, self.path, self.session_id, writable=self.lock is not None
            )
        finally:
            disk.close(directory)

    # -- writing --------------------------------------------------------------------------------

    def mark(self) -> None:
        """Leave a mark: the session is about to change. The caller holds the lock, or marks again after."""
        with self.mutex:
            self.numbers, self.marked = self.root.marks.leave(self.root.descriptor, self.name)

    def open_to_append(self, *, create: bool) -> Lock | None:
        """Open lock and segment to write; make directory and lock file if `create`.

        Return the lock; None if there is no such directory. That there is a lock and no segment is
        the beginning of a session: the caller, holding the lock, creates the segment.
        """
        self.check_process()
        with self.mutex:
            if self.lock is not None:
                return self.lock
            self.root.check_writable()
            descriptor = self.root.open_session(self.session_id, self.name, create=create)
            if descriptor is None:
                return None
            directory = disk.OwnedFd(descriptor)
            path = self.root.path_of(self.name, names.LOCK)
            try:
                file = disk.open_file(descriptor, names.LOCK, writable=True, create=True)
            except OSError as error:
                raise disk.explain(error, "open", path, "nothing was appended") from error
            lock = Lock(file, path)
            if self._adopt(descriptor):
                # What a kill left over when the session was begun: nothing else makes temporaries.
                sweep(descriptor)
            self.directory = directory
            self.parent = self._open_parent()
            self.lock = lock
            return lock

    def open_directory(self) -> None:
        """Open the directory for a change that must be synced. The caller holds lock and mutex."""
        self.parent = self._open_parent()
        if self.directory is None:
            found = self.root.open_session(self.session_id, self.name)
            self.directory = None if found is None else disk.OwnedFd(found)

    def _open_parent(self) -> int:
        try:
            return self.root.sessions
        except OSError as error:
            raise disk.explain(error, "open", self.root.path, "nothing was appended") from error

    def changed(self) -> int:
        """Return when a name in the directory last changed, in nanoseconds; -1 if it is not open."""
        if self.directory is None:
            return -1
        try:
            return disk.status_of(self.directory.descriptor).st_ctime_ns
        except OSError as error:
            raise disk.explain(error, "open", self.root.path_of(self.name)) from error

    def settle(self, changed: int) -> None:
        """Note that lock and log were in their places after the directory had changed, if it can be told."""
        if is_past(changed):
            self.settled = changed

    def adopt(self) -> bool:
        """Open the segment to append, if it is there by now. The caller holds lock and mutex."""
        return self.directory is not None and self._adopt(self.directory.descriptor)

    def _adopt(self, directory: int) -> bool:
        segment = open_segment(directory, self.path, self.session_id, writable=True)
        if segment is None:
            self.reader = None
            self.end = None
            return False
        # What is known of the end stays true if the file is the same, opened once more.
        if self.reader is None or not _same(self.reader, segment.descriptor):
            self.end = None
        self.reader = SegmentReader(segment)
        return True


def _nothing() -> None:
    pass


def _purged(reader: SegmentReader) -> bool:
    try:
        return disk.identity(reader.segment.descriptor)[2] == 0
    except OSError as error:
        raise disk.explain(error, "open", reader.segment.path) from error


def _same(reader: SegmentReader, descriptor: int) -> bool:
    try:
        return disk.identity(reader.segment.descriptor)[:2] == disk.identity(descriptor)[:2]
    except OSError as error:
        raise disk.explain(error, "open", reader.segment.path) from error


def _of_log(segment: Segment) -> tuple[str, int]:
    """Return when the log of an open segment began, and the segment's inode."""
    return segment.time, disk.identity(segment.descriptor)[1]
