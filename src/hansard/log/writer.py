"""Append records to a session's active segment.

A record is durable when `sync` has returned, and not before (docs/format.md, F-31). Threads that append
concurrently share one write and one sync (`group_commit`). The leader writes the records of all under the
lock, releases it, syncs, and sets each outcome. The lock is never held during that sync (F-38), so that
processes can sync at the same time.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Literal

import msgspec

from hansard.errors import (
    DiskFailed,
    HansardError,
    SessionDeleted,
    SyncFailed,
    UnknownFormat,
)
from hansard.log import disk, format, names
from hansard.log.disk import Lock
from hansard.log.format import LogEnd, Position
from hansard.log.group_commit import GroupCommit
from hansard.log.segment import check_begun, create_segment, header, next_header
from hansard.log.segment_reader import Segment, SegmentReader
from hansard.log.session_files import DELETED, FAILED, SEALED, SessionFiles
from hansard.log.store_directory import deleted, is_past, not_found, sweep
from hansard.log.write_batch import (
    AppendRequest,
    AppendResult,
    KeyIndex,
    PendingAppend,
    SyncTarget,
    WriteBatch,
    seq_conflict,
    session_exists,
)
from hansard.observe import DEBUG, ERROR, INFO, report

Durability = Literal["sync", "os"]

#: Maximum attempts, when a lock file or a session is removed concurrently.
_TRIES: Final = 5

#: What is done with the lock held. It returns what to sync; None if it changed nothing.
_Action = Callable[[], SyncTarget | None]

_NOT_WRITTEN: Final = "this append was not acknowledged; retry when the cause is removed"


class LogWriter:
    """Appends to one session, for all threads of this process."""

    __slots__ = (
        "_counters",
        "_failing",
        "_files",
        "_group",
        "_keys",
        "_syncs",
        "_unreported",
        "_wait",
    )

    def __init__(self, files: SessionFiles, *, durability: Durability, lock_timeout: float) -> None:
        self._files = files
        self._counters = files.root.counters
        self._syncs = durability == "sync"
        self._wait = lock_timeout
        self._reset()
        files.on_reset = self._reset

    def _reset(self) -> None:
        #: In this process, only the leader takes the OS lock.
        self._group: GroupCommit[list[PendingAppend]] = GroupCommit(
            self._work, where=self._files.path, held=self._files.is_held
        )
        self._keys = KeyIndex()
        #: A sync has failed, and its note is being written.
        self._failing = False
        #: What to log once no lock is held: a handler may take long, or append here.
        self._unreported: list[tuple[int, str, tuple[object, ...]]] = []

    def _note(self, level: int, text: str, *values: object) -> None:
        self._unreported.append((level, "session %r: " + text, (self._files.session_id, *values)))

    def _report(self) -> None:
        """Log what was noted."""
        while self._unreported:
            with contextlib.suppress(IndexError):  # another thread has taken the last one
                level, text, values = self._unreported.pop(0)
                report("append", level, text, *values)

    def append(self, requests: Sequence[AppendRequest]) -> list[PendingAppend]:
        """Commit several appends together; each is all or none of its events.

        Returns when they are as durable as the store promises; `outcome` of each returns or raises.
        """
        self._files.check_process()
        path = self._files.path
        appends = [PendingAppend(request, path) for request in requests]
        try:
            self._group.submit(appends)
        finally:
            if self._unreported:
                self._report()
        return appends

    # -- the fast path --------------------------------------------------------------------------

    def append_one(
        self, kind: bytes, data: bytes, *, durable: bool = True
    ) -> tuple[int, str] | None:
        """Append one event, if no other thread appends and nothing is unusual; return its seq and time.

        Most appends are one message without conditions. This takes two thirds of the time of `append`:
        it needs no queue and no batch. None: nothing was done; call `append`.
        """
        if self._files.generation != disk.generation or not self._group.try_lead():
            return None
        done = target = None
        try:
            lock = self._files.lock
            if lock is not None:
                try:
                    lock.acquire(self._wait)
                    with self._files.mutex:
                        # Files that were released and opened again have another lock.
                        if self._files.lock is lock:
                            done = self._write_one(lock, kind, data)
                        if done is not None and durable and self._syncs:
                            target = self._target()
                finally:
                    lock.release()
                if target is not None:
                    self._sync(target)
            self._group.release()
        except BaseException:
            # Again, in case that `release` was interrupted.
            self._group.release()
            self._report()
            raise
        return done

    def _write_one(self, lock: Lock, kind: bytes, data: bytes) -> tuple[int, str] | None:
        """Write one record, if nothing has changed; return its seq and time. Under lock and mutex."""
        files = self._files
        end = files.end
        reader = files.reader
        if end is None or reader is None or end.shut or files.root.failed:
            return None
        try:
            # A lock on a deleted file excludes no process, and what is appended to one is lost (F-165).
            changed = disk.status_of(files.directory).st_ctime_ns
            if changed != files.settled and not self._in_place(lock, changed):
                return None
            descriptor = reader.segment.descriptor
            size = disk.size(descriptor)
            if size != end.position.offset:
                # Another process has appended, torn the end, or shut the log.
                end = files.end = reader.end_after(end, size) or reader.log_end(end)
                if end.shut or end.size != end.position.offset:
                    return None
            line, after = format.next_record(end, kind, data)
            if files.marked != files.numbers[0]:
                files.mark()
            files.end = None
            if disk.write(descriptor, line) != len(line):
                # A short write is a torn tail, which `append` closes.
                return None
        except OSError as error:
            raise disk.explain(error, "write", files.path, _NOT_WRITTEN) from error
        files.end = after
        self._counters.bytes += len(line)
        if self._keys.upto is end.position:
            self._keys.upto = after.position
        return after.position.seq, after.time

    # -- the leader's work ----------------------------------------------------------------------

    def _work(self, submitted: list[list[PendingAppend]]) -> None:
        """Commit all appends; set an error on each of them."""
        appends = [append for together in submitted for append in together]
        try:
            self._commit(appends)
        except BaseException as error:
            for append in appends:
                append.refuse(error)
            if not isinstance(error, Exception):
                raise

    def _commit(self, appends: list[PendingAppend]) -> None:
        try:
            if any(append.request.key is not None for append in appends):
                # Before the lock is taken: the first time, this reads all of the segment.
                found = self._files.refresh(to_append=True)
                if found is not None:
                    self._keys.update(found[0], found[1].position)
            if self._syncs and not self._files.root.named:
                self._files.root.sync_names()
            target = self._locked(lambda: self._write(appends), create=True)
        except BaseException:
            self._keys.forget()
            raise
        # In an "os" store, `sync` makes the names durable, too, when it is called.
        if self._syncs and any(append.request.durable for append in appends):
            self._sync(target)

    def _locked(
        self, action: _Action, *, create: bool = False, timeout: float | None = None
    ) -> SyncTarget | None:
        """Run an action with the session's lock held. The caller leads.

        If these files are no longer the session's, it is run again, with fresh ones.
        """
        files = self._files
        for attempt in range(_TRIES):
            lock = files.open_to_append(create=create)
            if lock is None:
                break
            try:
                lock.acquire(self._wait if timeout is None else timeout)
                with files.mutex:
                    # Otherwise the lock file was deleted, or a reader has found the session deleted and
                    # released its files.
                    if files.lock is lock and self._settle(lock):
                        if files.marked != files.numbers[0]:
                            files.mark()
                        try:
                            return action()
                        except SessionDeleted:
                            # Perhaps purged and created again since.
                            if attempt:
                                raise
                        except DiskFailed as error:
                            # A restore has removed this directory, in which nothing was created yet.
                            if error.errno != errno.ENOENT or lock.exists():
                                raise
                    files.release_files()
                self._keys.forget()
            finally:
                lock.release()
        raise not_found(self._files.session_id)

    def _exclusive(
        self, action: _Action, *, create: bool = False, timeout: float | None = None
    ) -> bool:
        """Lead, run an action with the session's lock held, and sync what it changed, if anything."""
        self._files.check_process()
        try:
            with self._group.exclusive():
                self._files.root.sync_names()
                target = self._locked(action, create=create, timeout=timeout)
                self._sync(target)
        finally:
            self._report()
        return target is not None

    def _settle(self, lock: Lock) -> bool:
        """Return whether the lock is the session's; raise if the log was removed or replaced (F-165)."""
        files = self._files
        with disk.reporting("open", files.path):
            changed = disk.status_of(files.directory).st_ctime_ns
        if changed == files.settled or self._in_place(lock, changed):
            return True
        if not lock.exists():
            return False
        if files.reader is not None and not files.in_place():
            end = files.end = files.reader.log_end(files.end)
            # The callers handle a sealed or deleted log.
            if SEALED not in end.shut and DELETED not in end.shut:
                raise self._stale(
                    "the log was removed or replaced while it was open; nothing was appended"
                )
        return True

    def _in_place(self, lock: Lock, changed: int) -> bool:
        """Return whether lock and log have their names, in a directory that has changed. Under the lock."""
        files = self._files
        # Before the names are compared: otherwise a change after that might have the same time.
        past = is_past(changed)
        if not lock.exists() or not files.in_place():
            return False
        if past:
            files.settled = changed
        return True

    def _stale(self, what: str) -> DiskFailed:
        """Release files that are no longer the session's, and return the error. Under the mutex."""
        self._files.release_files()
        self._keys.forget()
        cause = OSError(errno.ESTALE, "no longer the log")
        hint = f"{what}. The next call uses the file that has its name by then"
        return DiskFailed("append", self._files.path, cause, hint)

    def _reader(self) -> SegmentReader:
        """Return the open segment; open it if necessary. Under the lock, as all that follows."""
        files = self._files
        reader = files.reader or files.adopt()
        if reader is None:
            raise not_found(files.session_id)
        return reader

    def _read_end(self) -> LogEnd:
        """Return the end of the log; continue after a sealed segment.

        The process that continued the log may have deleted the session since, and been killed.
        """
        files = self._files
        end = files.end = self._reader().log_end(files.end)
        return self._go_on(end) if SEALED in end.shut else end

    def _write(self, appends: list[PendingAppend]) -> SyncTarget | None:
        """Frame and write the records of all appends."""
        files = self._files
        if files.reader is None and not files.adopt():
            return self._begin(appends)
        tail = self._unless_deleted(self._read_end())
        if tail.shut or files.session_id in files.root.failed:
            raise self._shut(tail.shut)
        batch = self._batch_after(tail)
        if any(append.request.key is not None for append in appends):
            self._keys.update(self._reader(), tail.position)
        recovered = len(batch.lines)
        now = format.now()
        for append in appends:
            if append.request.check is not None and len(batch.lines) > recovered:
                # It reads the log, and must find the appends before this one.
                self._put(batch)
                assert files.end is not None  # `_put` has set it
                batch, recovered = self._batch_after(files.end), 0
            self._frame(append, batch, now)
        if len(batch.lines) > recovered:
            self._put(batch)
        # A duplicate is acknowledged too: another process may have appended it, and not synced it yet.
        return self._target()

    def _unless_deleted(self, end: LogEnd) -> LogEnd:
        """Set and return the end of the log; raise if the session was deleted."""
        self._files.end = end
        if DELETED not in end.shut:
            return end
        raise deleted(self._files.session_id)

    def _batch_after(self, end: LogEnd) -> WriteBatch:
        """Return a batch that continues the log, after its torn tail if there is one."""
        batch = WriteBatch(end.position, end.ctl)
        if end.size > end.position.offset:
            batch.end_torn_tail(self._reader().segment, end)
        return batch

    def _begin(self, appends: list[PendingAppend]) -> SyncTarget | None:
        """Create the segment with the first append."""
        files = self._files
        if files.root.in_trash(files.name):
            # Deleted since this directory was created, or opened: the name is taken (F-36).
            raise deleted(files.session_id)
        check_begun(files.directory, files.path)
        now = format.now()
        head, start, batch = b"", Position(0, 0, 0), WriteBatch(Position(0, 0, 0), 0)
        for append in appends:
            if not batch.lines:
                # The first append that is not refused decides where the log begins, and when.
                request = append.request
                time = request.events[0].time
                head, start = header(
                    files.session_id, before=0, time=time.encode() if time else now
                )
                batch = WriteBatch(start, 0, fresh=True)
                self._keys.forget()
            self._frame(append, batch, now)
        if not batch.lines:
            # The header was not written, and the next one will differ.
            self._keys.forget()
            return None
        sweep(files.directory)
        content = head + b"".join(batch.lines)
        files.end = None
        files.reader = SegmentReader(
            create_segment(files.directory, files.path, files.session_id, content)
        )
        files.end = batch.log_end()
        self._counters.bytes += len(content)
        self._keys.belong_to(files.reader, files.end.position)
        return self._target()

    def _frame(self, append: PendingAppend, batch: WriteBatch, now: bytes) -> None:
        """Check a request's conditions, and add its records to the batch."""
        request = append.request
        seq = batch.seq
        if request.key is not None:
            known = self._keys.find(request.key)
            reader = self._files.reader
            chain = None if known or reader is None else self._files.chain(reader)
            if chain is not None:
                # A few small reads for each sealed segment.
                known = chain.find_key(request.key)
            # Before the expected seq: a retry after a lost answer must not look like a conflict.
            if known is not None:
                append.result = AppendResult(*known, time="", duplicate=True)
                return
        # For callers, a session that does not exist is at 0, wherever it will begin.
        exists = not batch.fresh
        append.error = request.refusal(self._files.session_id, seq if exists else 0, exists=exists)
        if append.error is None and request.check is not None:
            try:
                request.check()
            except HansardError as error:
                append.error = error
        if append.error is not None:
            return
        batch.add(request, now)
        count = len(request.events)
        if request.key is not None:
            self._keys.add(request.key, seq + 1, count)
        append.result = AppendResult(seq + 1, count, now.decode())

    def _put(self, batch: WriteBatch) -> None:
        """Write a batch, and set the new end of the log."""
        files = self._files
        assert files.end is not None
        before = files.end.position
        # Until the write has returned, the end is unknown: after an error it is read again (F-40).
        files.end = None
        lines = batch.lines
        content = lines[0] if len(lines) == 1 else b"".join(lines)
        try:
            disk.write_all(self._reader().segment.descriptor, content)
        except OSError as error:
            raise disk.explain(error, "write", files.path, _NOT_WRITTEN) from error
        files.end = batch.log_end()
        self._counters.bytes += len(content)
        if batch.recovered:
            self._counters.recovered += 1
            text = "closed an unfinished append, as a crash leaves it; bytes: %d"
            self._note(INFO, text, batch.recovered)
        if self._keys.upto is before:
            self._keys.upto = files.end.position

    # -- staged logs ----------------------------------------------------------------------------

    def take(self, staged: str, *, expected_seq: int | None = None) -> None:
        """Make a log that was staged and synced the log of the session, which must not exist (F-136).

        `expected_seq`: replace the log, which must exist and be at this seq (F-163).
        """
        self._exclusive(lambda: self._take(staged, expected_seq), create=expected_seq is None)

    def _take(self, staged: str, expected_seq: int | None) -> SyncTarget:
        files = self._files
        if expected_seq is not None or files.reader is not None or files.adopt():
            seq = self._unless_deleted(self._reader().log_end(files.end)).position.seq
            if expected_seq is None:
                raise session_exists(files.session_id, seq)
            if seq != expected_seq:
                raise seq_conflict(files.session_id, expected_seq, seq)
        elif files.root.in_trash(files.name):
            raise deleted(files.session_id)
        else:
            check_begun(files.directory, files.path)
        files.open_parent()
        with disk.reporting("rename", files.path, "nothing was added to the store"):
            # Only the holder of the lock creates a log: there is no other that this could replace.
            disk.move(files.root.descriptor, staged, files.directory, names.LOG)
        self._keys.forget()
        files.adopt()
        # The new file is durable, even if the old one was not.
        files.root.failed.discard(files.session_id)
        segment = self._reader().segment
        segment.durable = segment.size()
        return self._target()

    @contextlib.contextmanager
    def holding(self) -> Iterator[bool]:
        """Hold the session's lock, so that no process deletes or purges it; False if there is none."""
        self._files.check_process()
        with (
            self._group.exclusive(),
            self._files.root.holding(self._files.name, self._wait) as there,
        ):
            yield there

    # -- sealing --------------------------------------------------------------------------------

    def seal(self) -> bool:
        """Seal the active segment, and begin the next; False if it holds no event (F-86)."""
        # Sync most of it before the lock is taken.
        self.sync()
        return self._exclusive(self._seal)

    def _seal(self) -> SyncTarget | None:
        files = self._files
        end = self._unless_deleted(self._read_end())
        if end.shut:
            raise self._shut(end.shut)
        if end.position.seq == self._reader().segment.start.seq:
            return None
        self._put_note(end, "sealed", (SEALED,))
        assert files.end is not None  # `_put_note` has set it
        self._go_on(msgspec.structs.replace(files.end, time=end.time))
        return self._target()

    def _go_on(self, end: LogEnd) -> LogEnd:
        """Continue after a sealed segment: in the next one, which is created if necessary."""
        files = self._files
        files.open_parent()
        self._keys.forget()
        files.adopt()
        found = files.end = self._reader().log_end(files.end)
        return self._begin_next(found, end.time) if SEALED in found.shut else found

    def _begin_next(self, end: LogEnd, time: str) -> LogEnd:
        """Create the segment that follows a sealed one."""
        files = self._files
        reader = self._reader()
        segment = reader.segment
        try:
            # Before another file refers to its end: a crash may have come before its own sync.
            disk.sync(segment.descriptor)
        except OSError as error:
            raise self._fail(error) from error
        previous = format.Previous(
            end.position.seq, end.position.crc, time or reader.last_time(end.position)
        )
        content = next_header(reader, end.position, previous)
        made = create_segment(files.directory, files.path, files.session_id, content, after=segment)
        # First unknown: an interrupted thread must not take the old end for that of the new file.
        files.end = None
        files.reader = SegmentReader(made)
        files.end = LogEnd(made.start, 0, (), made.start.offset, previous.time)
        self._keys.forget()
        self._keys.belong_to(files.reader, made.start)
        self._counters.sealed += 1
        self._note(DEBUG, "sealed the segment that ends at seq %d", previous.seq)
        return files.end

    # -- sync -----------------------------------------------------------------------------------

    def sync(self) -> None:
        """Make everything durable that is in the log now, including appends of other processes."""
        self._exclusive(self._target)

    def _target(self) -> SyncTarget:
        """Return what to sync: `files` may be released as soon as the lock is free."""
        files = self._files
        segment = self._reader().segment
        try:
            end = disk.size(segment.descriptor)
        except OSError as error:
            raise disk.explain(error, "sync", files.path, _NOT_WRITTEN) from error
        return SyncTarget(segment, end, files.directory, files.parent)

    def _sync(self, target: SyncTarget | None) -> None:
        """Make all that was written durable. The lock is not held (F-38)."""
        if target is None:
            return
        files = self._files
        segment, end, directory, parent = target
        try:
            # Not if it still ends where a sync of this process began, as in a fork's parent.
            if segment.durable != end:
                disk.sync(segment.descriptor)
                segment.durable = end
                self._counters.syncs += 1
            if parent is not None:
                # Once per opening: a record is only as durable as the names that lead to it (F-31).
                disk.sync_directory(directory)
                disk.sync_directory(parent)
        except OSError as error:
            raise self._fail(error) from error
        self._check_kept(segment)
        if parent is not None:
            with files.mutex:
                # The names need not be synced again.
                if files.directory is directory:
                    files.parent = None

    def _check_kept(self, segment: Segment) -> None:
        """Raise if the file that was synced has no name any more: no reader would find it (F-165)."""
        with disk.reporting("sync", segment.path, _NOT_WRITTEN):
            if disk.links(segment.descriptor):
                return
        shut = SegmentReader(segment).log_end().shut
        # Sealed and compacted, or deleted and purged, after it was written: then it was kept.
        if SEALED not in shut and DELETED not in shut:
            with self._files.mutex:
                raise self._stale(
                    "the log was removed before this append was durable; it may be lost"
                )

    def _fail(self, error: OSError) -> SyncFailed:
        """Shut the session for every process: no later sync can be trusted (F-35)."""
        files = self._files
        files.root.failed.add(files.session_id)
        self._counters.failed_syncs += 1
        text = "a sync failed: %s; no process can append until `session.verify()` passes"
        self._note(ERROR, text, error)
        with files.mutex:
            # Written bytes may be lost, even from the cache: the note must follow what is there.
            files.end = None
        # After a sealed segment, the note needs a new segment, and that a sync, which may fail too.
        if not self._failing:
            self._failing = True
            try:
                # If the disk accepts nothing, this process remembers it, and others meet the same disk.
                with contextlib.suppress(HansardError, OSError):
                    self._locked(self._write_failed)
                    # From now on the log is marked as failed, until a process has verified it.
                    files.root.failed.discard(files.session_id)
            finally:
                self._failing = False
        return SyncFailed(
            "sync",
            files.path,
            error,
            "the last appends may be lost, so no process can append to this session until "
            "`session.verify()` passes",
        )

    def _shut(self, reasons: tuple[str, ...]) -> HansardError:
        unknown = ", ".join(reason for reason in reasons if reason != FAILED)
        if unknown:
            return UnknownFormat(
                f"{self._files.path}: appends blocked for unknown reason {unknown}; nothing was appended. "
                "Upgrade hansard"
            )
        cause = OSError(errno.EIO, "an earlier sync failed")
        return SyncFailed(
            "append",
            self._files.path,
            cause,
            "an earlier sync failed, so the session is shut until `session.verify()` passes; "
            "nothing was appended",
        )

    # -- notes ----------------------------------------------------------------------------------

    def _write_failed(self) -> None:
        end = self._read_end()
        if FAILED not in end.shut:
            self._put_note(end, "failed", (*end.shut, FAILED))

    def reopen(self, word: str, reason: str) -> None:
        """Append a note that the log is no longer shut for a reason (F-34); sync it."""
        self._exclusive(lambda: self._reopen(word, reason))

    def _reopen(self, word: str, reason: str) -> SyncTarget:
        end = self._end_in_place()
        if reason in end.shut:
            self._put_note(end, word, tuple(other for other in end.shut if other != reason))
        return self._target()

    def delete(
        self,
        *,
        expected_seq: int | None = None,
        timeout: float | None = None,
        noted: bool = False,
        check: Callable[[], object] = bool,
    ) -> bool:
        """Shut the log with a note, and move its directory to the trash (F-36).

        `noted`: only move it, if the note is there; False if it is not, because the session was restored.
        `check`: called with the lock held; if it raises, nothing is done.
        """
        delete = partial(self._delete, expected_seq, noted=noted, check=check)
        moved = self._exclusive(delete, timeout=timeout)
        self._files.root.sync_move(self._files.name)
        return moved

    def _delete(
        self, expected_seq: int | None, *, noted: bool, check: Callable[[], object]
    ) -> SyncTarget | None:
        files = self._files
        end = self._end_in_place()
        if expected_seq is not None and expected_seq != end.position.seq:
            raise seq_conflict(files.session_id, expected_seq, end.position.seq)
        if DELETED not in end.shut:
            if noted:
                return None
            if files.root.in_trash(files.name):
                # As after a restore from a backup. Found after the note, it would leave the session shut.
                hint = (
                    "another session of this name is in the trash; nothing was changed. Move one of the two "
                    "directories out of the store"
                )
                raise DiskFailed("move", files.path, OSError(errno.EEXIST, ""), hint)
            check()
            # First: handles that others have open learn of it by the note alone.
            self._put_note(end, "deleted", (*end.shut, DELETED))
        files.root.move_to_trash(files.name)
        return self._target()

    def _end_in_place(self) -> LogEnd:
        """Return the end of the log; raise if the session was deleted, and perhaps purged, by another."""
        files = self._files
        # First: one that was only sealed by another is not in place either.
        end = self._read_end()
        if not files.in_place():
            raise deleted(files.session_id)
        return end

    def _put_note(self, end: LogEnd, word: str, shut: tuple[str, ...]) -> None:
        batch = self._batch_after(end)
        batch.note(word, {"shut": list(shut)})
        batch.shut = shut
        self._put(batch)

    def release_files(self, *, wait: bool = True) -> None:
        """Close the files, unless a thread is writing, or reading if this does not `wait`."""
        self._files.check_process()
        if not self._group.try_lead():
            return
        try:
            files = self._files
            # A thread that has the mutex already is opening these files.
            if (wait or not files.is_held()) and files.mutex.acquire(blocking=wait):
                try:
                    files.release_files()
                finally:
                    files.mutex.release()
                self._keys.forget()
            self._group.release()
        except BaseException:
            self._group.release()
            raise
