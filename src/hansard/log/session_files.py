"""Hold a session's open files, and the end of its log as far as it is known.

All threads of a process share one `SessionFiles`. It opens what is needed when it is needed: a reader opens
one file and creates none; a writer adds the lock file. It can release its files at any time (after a fork,
when many sessions are open, when the session was deleted) and open them again.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from hansard.errors import SessionNotFound
from hansard.log import checkpoint, disk, names, segment_scan
from hansard.log.change_marks import NOWHERE, UNMARKED
from hansard.log.checkpoint import Checkpoint
from hansard.log.disk import Lock
from hansard.log.format import Line, LogEnd
from hansard.log.sealed_chain import SealedChain
from hansard.log.segment import check_begun
from hansard.log.segment_reader import Raw, Segment, SegmentReader, open_segment
from hansard.log.segment_scan import ScanFinding
from hansard.log.store_directory import StoreDirectory, deleted, sweep

FAILED: Final = "failed"
DELETED: Final = "deleted"
SEALED: Final = "sealed"

_NOTHING: Final = "nothing was appended"


class SessionFiles:
    """A session's files. `mutex` guards all fields.

    No thread sleeps or syncs an append while it holds it; it is held for the syncs of a new segment.

    Attributes:
        session_id: the session.
        name: the name of its directory.
        path: the path of its active segment, for messages.
        reader: the open segment; None while the session is not open, or does not exist.
        end: the end of the segment, if it is known.
        lock: the open lock file; None until something is appended.
        directory: the session's directory; -1 until something is appended.
        parent: the directory of sessions, open until the entries of `directory` are durable: a sync must
            not fail because no descriptor is free. None: they are durable.
        settled: the directory's change time when lock and log were last seen in it; 0 if unknown.
        mutex: guards the fields above.
        numbers, marked: the mapped epoch of the change marks, and the epoch in which the session is marked.
            A mark counts whichever process left it: a forked child keeps both.
        generation: the process that opened the files: see `disk.generation`.
        on_reset: called in a forked child, where none of the above is known.
    """

    def __init__(
        self, root: StoreDirectory, session_id: str, name: str, *, from_trash: bool = False
    ) -> None:
        """`from_trash`: only to read, and also a session in the trash: others may be forked from it."""
        self.root = root
        self._from_trash = from_trash
        self.session_id = session_id
        self.name = name
        self.path = root.path_of(self.name, names.LOG)
        self.on_reset: Callable[[], None] = lambda: None
        self._reset()

    def _reset(self) -> None:
        # Re-entrant, for a signal handler that reads while its own thread is here: it changes only what is
        # known of the end, which stays true.
        self.mutex = threading.RLock()
        self.release_files()
        self.on_reset()
        # Last: a thread that finds it current must find the rest so.
        self.generation = disk.generation

    def check_process(self) -> None:
        """After a fork, open the files again: locks and descriptors belong to the parent."""
        if self.generation == disk.generation:
            return
        with disk.fork_guard:
            if self.generation != disk.generation:
                # The child's copies of the descriptors are closed, never unlocked: an unlock through one
                # would release the parent's lock.
                self._reset()

    def is_held(self) -> bool:
        """Return whether this thread holds the mutex: only possible in a signal handler."""
        return self.mutex._is_owned()  # type: ignore[attr-defined,no-any-return] # noqa: SLF001

    def release_files(self) -> None:
        """Forget the open files. Each is closed when its last reader is done."""
        self.reader: SegmentReader | None = None
        self.end: LogEnd | None = None
        self.lock: Lock | None = None
        self.directory = -1
        self.parent: int | None = None
        self.settled = 0
        self._chain: SealedChain | None = None
        # The marks may have been removed and created again: the next writer opens them.
        self.numbers = NOWHERE
        self.marked = UNMARKED

    def refresh(self, *, to_append: bool = False) -> tuple[SegmentReader, LogEnd] | None:
        """Read the end of the log; None if there is no such session (yet).

        With `to_append`, None also if the open files were replaced: the holder of the lock decides then.
        """
        self.check_process()
        with self.mutex:
            if self.reader is not None and not self.reader.segment.is_linked():
                if to_append:
                    return None
                # A repair has replaced it; or another session has its name by now.
                self.release_files()
            if self.reader is None and not self._open():
                return None
            reader, end = self._read_end()
            if SEALED in end.shut or self._is_deleted(end):
                # Another segment has taken its place, or will: then this one still is the end. Or the session
                # was deleted through these files, and perhaps purged and created again since.
                self.release_files()
                if not self._open():
                    return None
                reader, end = self._read_end()
                if self._is_deleted(end):
                    self.release_files()
                    raise deleted(self.session_id)
            return reader, end

    def _is_deleted(self, end: LogEnd) -> bool:
        return DELETED in end.shut and not self._from_trash

    def _read_end(self) -> tuple[SegmentReader, LogEnd]:
        reader = self.reader
        assert reader is not None  # callers have opened it
        end = self.end = reader.log_end(self.end)
        # This reader, and not the field: a signal handler may have closed the store.
        return reader, end

    def read_end_again(self, reader: SegmentReader) -> LogEnd:
        """Read the end of the log as if nothing were known of it."""
        with self.mutex:
            end = reader.log_end()
            if self.reader is reader:
                self.end = end
            return end

    def _open(self) -> bool:
        """Open the segment to read; False if there is none."""
        segment = self._segment_in(self._open_session())
        if segment is None and self.root.in_trash(self.name):
            # In its place, a writer was about to begin when the session was deleted.
            if not self._from_trash:
                raise deleted(self.session_id)
            segment = self._segment_in(self.root.open_in(self.root.trash, self.name))
        if segment is None:
            return False
        # In this order: with an old end, a new file would look as if it had been cut.
        self.end = None
        self.reader = SegmentReader(segment)
        return True

    def _open_session(self) -> disk.OwnedFd | None:
        return self.root.open_session(self.session_id, self.name, from_trash=self._from_trash)

    def _segment_in(self, directory: disk.OwnedFd | None) -> Segment | None:
        """Open the segment in a directory, to read; None if there is none."""
        if directory is None:
            return None
        # If there is a lock, a writer will use the segment as it is opened here.
        writable = self.lock is not None
        segment = open_segment(directory, self.path, self.session_id, writable=writable)
        # A purge renames the directory before it removes the log, and the sealed segments after it.
        if segment is None and self._is_named(directory):
            check_begun(directory, self.path)
        return segment

    def _is_named(self, directory: int) -> bool:
        """Return whether an open directory is that of the session, in the trash or not."""
        with disk.reporting("open", self.path):
            named = [
                self.root.open_in(part, self.name) for part in (self.root.home, self.root.trash)
            ]
            same = disk.identity(directory)
            return any(one is not None and disk.identity(one) == same for one in named)

    def salvage(self, reader: SegmentReader | None) -> Iterator[Line | ScanFinding]:
        """Return the valid records of the active segment, and its damage; None: it could not be opened."""
        if reader is not None:
            return segment_scan.salvage(reader.segment)
        directory = self._open_session()
        if directory is None:
            return iter(())
        try:
            # Even without a valid header, the lines after it may be valid.
            return segment_scan.salvage(Raw(disk.open_file(directory, names.LOG), self.path))
        except FileNotFoundError:
            return iter(())
        except OSError as error:
            raise disk.explain(error, "read", self.path) from error

    def in_place(self) -> bool:
        """Return whether the open segment has the name of the session's log. The caller holds the mutex.

        While the lock is held, hansard moves no directory; an editor or `mv` may.
        """
        if self.reader is None:
            return False
        name = f"{self.name}/{names.LOG}"
        with disk.reporting("open", self.path):
            return disk.is_named(self.root.sessions, name, self.reader.segment.descriptor)

    def chain(self, reader: SegmentReader) -> SealedChain | None:
        """Return the sealed segments before the active one; None if there are none."""
        previous = reader.segment.previous
        if previous is None:
            return None
        with self.mutex:
            chain = self._chain
            if chain is None or chain.upto != previous.seq:
                open_directory = partial(self._open_directory, *_log_identity(reader.segment))
                chain = self._chain = SealedChain(
                    self.session_id, self.path, previous.seq, open_directory
                )
            return chain

    def forget_chain(self) -> None:
        """Close the sealed segments, and drop their frames from memory."""
        with self.mutex:
            self._chain = None

    def _open_directory(self, created: str, inode: int) -> disk.OwnedFd:
        """Open the directory of the log that began at a time and has an inode; raise if it was deleted.

        Another session may have its name by now. Its files must not be taken for this one's, nor for damage.
        """
        directory = self._open_session()
        if directory is not None:
            with disk.reporting("open", self.path):
                # No other file has this inode while the log is open.
                if disk.inode(directory, names.LOG) == inode:
                    return directory
                # Sealed since, or another log: its header says when it began.
                found = open_segment(directory, self.path, self.session_id, writable=False)
                if found is not None and found.time == created:
                    return directory
        raise SessionNotFound(
            f"session {self.session_id!r} was deleted while it was read; read it again"
        )

    def checkpoint(self, reader: SegmentReader) -> Checkpoint | None:
        """Return the checkpoint of the sealed segments, if it can be used."""
        found = self.look_at_checkpoint(reader)
        return found if isinstance(found, Checkpoint) else None

    def look_at_checkpoint(self, reader: SegmentReader) -> Checkpoint | str:
        """Return the same, or why it cannot be used; an empty string if there is none."""
        directory = self._open_directory(*_log_identity(reader.segment))
        found = checkpoint.look(directory, self.session_id, reader.segment.time)
        if isinstance(found, Checkpoint) and not self._precedes_a_segment(found, reader):
            return "is not of this log: no segment begins where it ends"
        return found

    def _precedes_a_segment(self, found: Checkpoint, reader: SegmentReader) -> bool:
        """Return whether the segment after a checkpoint's seq continues the segments of the checkpoint."""
        segment = reader.segment
        chain = self.chain(reader)
        if chain is not None and found.seq < chain.upto:
            # Sealed since, and not compressed yet: a compaction of it would have removed the checkpoint.
            segment = chain.part_with(found.seq + 1).reader.segment
        previous = segment.previous
        return previous is not None and (previous.seq, previous.crc) == (found.seq, found.previous)

    def drop_checkpoint(self) -> None:
        """Remove the checkpoint."""
        self.root.check_writable()
        directory = self._open_session()
        if directory is None:
            return
        with (
            disk.reporting("remove", self.root.path_of(self.name, names.CHECKPOINT)),
            suppress(FileNotFoundError),
        ):
            disk.remove(directory, names.CHECKPOINT)

    def mark(self) -> None:
        """Record that the session is about to change. The caller holds the lock, or marks again later."""
        with self.mutex:
            self.numbers, self.marked = self.root.marks.leave(self.root.descriptor, self.name)

    def open_to_append(self, *, create: bool) -> Lock | None:
        """Open lock and segment to write; create directory and lock file if `create`.

        Returns the lock; None if there is no such directory. With a lock and no segment, a session begins:
        the caller, holding the lock, creates the segment.
        """
        self.check_process()
        with self.mutex:
            if self.lock is not None:
                return self.lock
            self.root.check_writable()
            path = self.root.path_of(self.name, names.LOCK)
            while True:
                directory = self.root.open_session(self.session_id, self.name, create=create)
                if directory is None:
                    return None
                counters = self.root.counters
                lock = disk.open_lock(directory, names.LOCK, path, counters, hint=_NOTHING)
                if lock is not None:
                    break
                # A restore or a purge has removed the directory since it was opened.
            self.directory = directory
            if self.adopt():
                # Left by a kill when the session was begun: nothing else creates temporary files.
                sweep(directory)
            self.open_parent()
            self.lock = lock
            return lock

    def open_parent(self) -> None:
        """Open what must be synced after a name in the directory, or of it, has changed."""
        with disk.reporting("open", self.root.path, _NOTHING):
            self.parent = self.root.sessions

    def adopt(self) -> SegmentReader | None:
        """Open the segment to append, if there is one by now. The caller holds lock and mutex."""
        segment = open_segment(self.directory, self.path, self.session_id, writable=True)
        reader = self.reader
        if segment and reader and reader.segment.identity() == segment.identity():
            # The same file, opened again to write: what is known of it stays true.
            reader.segment = segment
            return reader
        self.end = None
        self.reader = None if segment is None else SegmentReader(segment)
        return self.reader


def _log_identity(segment: Segment) -> tuple[str, int]:
    """Return when the log of an open segment began, and the segment's inode."""
    return segment.time, segment.identity()[1]
