"""Append records to a session's active segment.

A record is durable when `sync` has returned, and not before: docs/format.md, F-31.

Threads that append at the same time share one write and one sync (`group_commit`): the leader writes
the records of all who wait under the lock, frees the lock, syncs, and leaves the outcome with each.
Processes overlap their syncs, because the lock is never held during one (F-38).
"""

import contextlib
import errno
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from hansard.errors import (
    Damaged,
    DiskFailed,
    HansardError,
    SessionExists,
    SessionNotFound,
    SyncFailed,
    UnknownFormat,
)
from hansard.log import disk, format, names
from hansard.log.append_request import AppendRequest, AppendResult, seq_conflict
from hansard.log.disk import Lock
from hansard.log.format import Position
from hansard.log.group_commit import GroupCommit
from hansard.log.keys import KeyIndex
from hansard.log.segment import Segment, create_segment, header, next_header, replace_segment
from hansard.log.segment_reader import LogEnd, SegmentReader
from hansard.log.session_files import DELETED, FAILED, SEALED, SessionFiles
from hansard.log.store_directory import deleted, sweep
from hansard.log.write_batch import PendingAppend, SyncTarget, WriteBatch

Durability = Literal["sync", "os"]

#: How often to start again when a lock file or a whole session is taken away under our hands.
_TRIES: Final = 5

_NOT_WRITTEN: Final = "this append was not acknowledged; it works again once the cause is gone"


class LogWriter:
    """Appends to one session, for all threads of this process."""

    __slots__ = (
        "_failing",
        "_files",
        "_group",
        "_keys",
        "_syncs",
        "_wait",
    )

    def __init__(self, files: SessionFiles, *, durability: Durability, lock_timeout: float) -> None:
        self._files = files
        self._syncs = durability == "sync"
        self._wait = lock_timeout
        self._reset()
        files.on_reset = self._reset

    def _reset(self) -> None:
        #: Whoever leads is the only one of this process who takes the OS lock.
        self._group: GroupCommit[list[PendingAppend]] = GroupCommit(
            self._work, where=self._files.path, held=self._files.is_held
        )
        self._keys = KeyIndex()
        #: A sync has failed, and its note is being written.
        self._failing = False

    def append(self, requests: Sequence[AppendRequest]) -> list[PendingAppend]:
        """Do several appends together, each for itself: all of its events, or none.

        Returns when they are as durable as the store promises; the `outcome` of each tells how it went.
        """
        self._files.check_process()
        path = self._files.path
        appends = [PendingAppend(request, path) for request in requests]
        self._group.submit(appends)
        return appends

    def append_one(
        self, kind: bytes, data: bytes, *, durable: bool = True
    ) -> tuple[int, str] | None:
        """Append one event, if this is all that this process has to append to the session: the fast path.

        Most appends are one message, without conditions, by the only thread there is at the moment. For
        them this does what `append` does, without the queue and the batch, in two thirds of the
        time. Returns its seq and time. None: something is unusual, and nothing was done; take the ordinary
        way.
        """
        if self._files.generation != disk.generation or not self._group.try_lead():
            return None
        done = None
        try:
            lock = self._files.lock
            if lock is not None:
                try:
                    lock.acquire(self._wait)
                    with self._files.mutex:
                        done = self._write_one(lock, kind, data)
                        touched = self._touched() if durable and self._syncs else None
                finally:
                    lock.release()
                if done is not None and touched is not None:
                    self._sync(touched)
            self._group.release()
        except BaseException:
            # Once more, in case that it was `free` that was interrupted.
            self._group.release()
            raise
        return done

    def _write_one(self, lock: Lock, kind: bytes, data: bytes) -> tuple[int, str] | None:
        """Write one record, if all is as it was left; return its seq and time. Under lock and mutex."""
        files = self._files
        tail = files.end
        reader = files.reader
        if tail is None or reader is None or tail.shut or files.root.failed:
            return None
        directory = files.directory
        # A handle that has let go has another lock.
        if files.lock is not lock or directory is None:
            return None
        try:
            # A lock on a deleted file excludes no process, and what is appended to one is lost (F-39).
            changed = disk.status_of(directory.descriptor).st_ctime_ns
            if changed != files.settled and not self._in_place(lock, changed):
                return None
            descriptor = reader.segment.descriptor
            if disk.size(descriptor) != tail.position.offset:
                # Appended to by others, which costs a look at what is new; or torn, or shut by them.
                tail = files.end = reader.log_end(tail)
                if tail.shut or tail.size != tail.position.offset:
                    return None
            mark = tail.position
            now = format.now()
            seq = mark.seq + 1
            if tail.ctl:
                line, crc = format.record(seq, now, kind, data, mark.crc, ctl=tail.ctl)
            else:
                line, crc = format.plain_record(seq, now, kind, data, mark.crc)
            if files.marked != files.numbers[0]:
                files.mark()
            files.end = None
            if disk.write(descriptor, line) != len(line):
                # A short write is a torn tail, which the ordinary way ends.
                return None
        except OSError as error:
            raise disk.explain(error, "write", files.path, _NOT_WRITTEN) from error
        time = now.decode()
        offset = mark.offset + len(line)
        end = Position(offset, seq, crc)
        files.end = LogEnd(end, tail.ctl, (), offset, time)
        self._keys.advance(mark, end)
        return seq, time

    def release_files(self, *, wait: bool = True) -> None:
        """Close the files, unless a thread is writing, or reading if this does not `wait`."""
        self._files.check_process()
        if not self._group.try_lead():
            return
        try:
            files = self._files
            # A thread that has the mutex already is in the middle of opening these files.
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

    # -- the leader's work ----------------------------------------------------------------------

    def _work(self, asked: list[list[PendingAppend]]) -> None:
        """Commit all appends; on an error leave it with each of them."""
        appends = [append for together in asked for append in together]
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
                self._learn_keys()
            if self._syncs:
                self._files.root.sync_names()
            touched = self._locked(lambda again: self._write(appends, again=again), create=True)
        except BaseException:
            self._keys.forget()
            raise
        if not self._syncs:
            if touched.segment is not None:
                self._name(touched)
        elif any(append.request.durable for append in appends):
            self._sync(touched)

    def _learn_keys(self) -> None:
        """Read the keys of a log before the lock is taken: the first time, it is the whole log."""
        found = self._files.refresh(to_append=True)
        if found is not None:
            reader, tail = found
            self._keys.learn(reader, tail.position)

    def _locked(
        self,
        action: Callable[[bool], SyncTarget | None],
        *,
        create: bool,
        timeout: float | None = None,
    ) -> SyncTarget:
        """Run an action with the session's lock held. The caller leads.

        An action that returns None has found that these files are no longer the session's; it is
        run once more, with fresh ones and `again` true.
        """
        files = self._files
        for attempt in range(_TRIES):
            lock = files.open_to_append(create=create)
            if lock is None:
                break
            try:
                lock.acquire(self._wait if timeout is None else timeout)
                with files.mutex:
                    # Not so if the lock file was deleted, or if a reader has met the end of a deleted
                    # session meanwhile, and let go of its files.
                    outcome = None
                    if files.lock is lock and self._settle(lock):
                        if files.marked != files.numbers[0]:
                            files.mark()
                        outcome = action(attempt > 0)
                    if outcome is not None:
                        return outcome
                    files.release_files()
                self._keys.forget()
            finally:
                lock.release()
        raise SessionNotFound(f"no session {files.session_id!r} in this store")

    def _settle(self, lock: Lock) -> bool:
        """Return whether the lock is the session's; continue in the file that has the log's name (F-39)."""
        files = self._files
        changed = files.changed()
        if changed == files.settled or self._in_place(lock, changed):
            return True
        if not lock.exists():
            return False
        if files.reader is not None and not files.in_place():
            tail = files.end = files.reader.log_end(files.end)
            # Sealed, or deleted: then what has happened to the file is known, and the caller deals with it.
            if SEALED not in tail.shut and DELETED not in tail.shut:
                self._continue(files.reader, tail)
        return True

    def _in_place(self, lock: Lock, changed: int) -> bool:
        """Return whether lock and log have their names, in a directory that has changed. Under the lock."""
        files = self._files
        if not lock.exists() or not files.in_place():
            return False
        files.settle(changed)
        return True

    def _continue(self, old: SegmentReader, tail: LogEnd) -> None:
        """Take over the file that has the log's name now, if it begins with all of the one that had it."""
        files = self._files
        self._keys.forget()
        reader = files.reader if files.adopt() and files.in_place() else None
        if reader is not None and reader.starts_with(old, tail.position):
            return
        files.renew()
        why = (
            "removed" if reader is None else "replaced by one that does not hold all of its records"
        )
        raise self._stale(f"the log was {why} while it was open; nothing was appended")

    def _stale(self, hint: str) -> DiskFailed:
        cause = OSError(errno.ESTALE, "no longer the log")
        hint += ". The next call uses the file that has its name by then"
        return DiskFailed("append", self._files.path, cause, hint)

    def _write(self, appends: list[PendingAppend], *, again: bool) -> SyncTarget | None:
        """Frame and write the records of all appends."""
        files = self._files
        if files.reader is None and not files.adopt():
            return self._begin(appends)
        tail = self._look(again=again)
        if tail is not None and SEALED in tail.shut:
            # Whoever was at work there may have deleted the session since, and been killed halfway.
            tail = self._unless_deleted(self._go_on(tail), again=again)
        if tail is None:
            return None
        if tail.shut or files.session_id in files.root.failed:
            raise self._shut(tail.shut)
        batch = WriteBatch(tail.position, tail.ctl)
        if tail.size > tail.position.offset:
            assert files.reader is not None  # the tail is its
            batch.end_torn_tail(files.reader.segment, tail)
        if any(append.request.key is not None for append in appends):
            assert files.reader is not None
            self._keys.learn(files.reader, tail.position)
        recovered = len(batch.lines)
        now = format.now()
        for append in appends:
            self._frame(append, batch, now)
        if len(batch.lines) > recovered:
            self._put(batch)
        # A duplicate is acknowledged too, and its first append may be another process's, not synced yet.
        return self._touched()

    def _begin(self, appends: list[PendingAppend]) -> SyncTarget:
        """Begin the session: the first append makes the segment."""
        files = self._files
        assert files.directory is not None  # kept open until the first sync
        directory = files.directory.descriptor
        if files.root.in_trash(files.name):
            # Deleted since this directory was made, or looked for: the name is taken (F-36).
            raise deleted(files.session_id)
        now = format.now()
        head, start, batch = b"", Position(0, 0, 0), WriteBatch(Position(0, 0, 0), 0)
        for append in appends:
            if not batch.lines:
                # The first one that is not refused says where the log begins, and when.
                request = append.request
                time = request.events[0].time
                head, start = header(
                    files.session_id, before=request.before, time=time.encode() if time else now
                )
                batch = WriteBatch(start, 0, fresh=True)
                self._keys.begin(start)
            self._frame(append, batch, now)
        if not batch.lines:
            # The header was not written, and another's will not be the same.
            self._keys.forget()
            return SyncTarget(None, None)
        self._check_first(directory)
        # Housekeeping: no append fails for old rubbish.
        with contextlib.suppress(OSError):
            sweep(directory)
        content = head + b"".join(batch.lines)
        files.end = None
        files.reader = SegmentReader(
            create_segment(directory, files.path, files.session_id, content)
        )
        files.end = batch.log_end()
        self._keys.advance(start, files.end.position)
        return self._touched(made=True)

    def _check_first(self, directory: int) -> None:
        """Raise if sealed segments are there: then this log is not new, but its last segment is missing."""
        path = self._files.path
        try:
            sealed = [name for name in disk.names(directory) if names.sealed_first_seq(name)]
        except OSError as error:
            raise disk.explain(error, "list", path, "nothing was appended") from error
        if sealed:
            self._keys.forget()
            reason = f"the file is missing, but the segment before it, {max(sealed)}, is there"
            raise Damaged(path, 0, reason, "nothing was appended: restore the file")

    def begin_with(self, staged: str) -> None:
        """Let the session, which must not exist, begin with a log that was staged and synced (F-136)."""
        self._files.check_process()
        with self._group.exclusive():
            self._files.root.sync_names()
            self._sync(self._locked(lambda again: self._take(staged, again=again), create=True))

    def _take(self, staged: str, *, again: bool) -> SyncTarget | None:
        """Give a staged log its name."""
        files = self._files
        if files.reader is not None or files.adopt():
            tail = self._look(again=again)
            if tail is None:
                return None
            raise SessionExists(
                f"session {files.session_id!r} exists already, at seq {tail.position.seq}"
            )
        if files.root.in_trash(files.name):
            raise deleted(files.session_id)
        files.open_directory()
        assert files.directory is not None  # whoever holds the lock has made it
        try:
            # Not linked, as `create_segment` does, for it comes from another directory; but there is none
            # that it could replace: only who holds the lock makes one.
            files.root.move_staged(staged, files.directory.descriptor)
        except OSError as error:
            hint = "nothing was added to the store"
            raise disk.explain(error, "rename", files.path, hint) from error
        self._keys.forget()
        files.adopt()
        return self._touched()

    def replace(self, staged: str, expected_seq: int) -> None:
        """Put a staged log that continues at a seq in the place of this one, which must be there (F-163)."""
        self._files.check_process()
        with self._group.exclusive():
            self._files.root.sync_names()
            take = self._locked(lambda _: self._take_over(staged, expected_seq), create=False)
            self._sync(take)

    def _take_over(self, staged: str, expected_seq: int) -> SyncTarget:
        files = self._files
        if files.reader is None and not files.adopt():
            raise SessionNotFound(f"no log {files.session_id!r} in this store")
        assert files.reader is not None  # `adopt` has set it
        tail = files.end = files.reader.log_end(files.end)
        if tail.position.seq != expected_seq:
            raise seq_conflict(files.session_id, expected_seq, tail.position.seq)
        files.open_directory()
        assert files.directory is not None  # whoever holds the lock has opened it
        try:
            files.root.move_staged(staged, files.directory.descriptor)
        except OSError as error:
            raise disk.explain(error, "rename", files.path, "nothing was moved") from error
        # The new file is durable, whatever became of the old one.
        files.root.failed.discard(files.session_id)
        files.renewed += 1
        self._keys.forget()
        files.adopt()
        return self._touched(made=True)

    def _touched(self, *, made: bool = False) -> SyncTarget:
        """Return the files to sync: the handle may let go of them as soon as the lock is free."""
        files = self._files
        segment = None if files.reader is None else files.reader.segment
        end = 0 if files.end is None else files.end.position.offset
        directory = None if files.parent is None else files.directory
        return SyncTarget(segment, directory, files.parent, end, made)

    def _frame(self, append: PendingAppend, batch: WriteBatch, now: bytes) -> None:
        """Check a request's conditions and frame its records behind what is framed already."""
        request = append.request
        seq = batch.seq
        if request.key is not None:
            known = self._keys.find(request.key) or self._key_before(request.key)
            # Before the expected seq: a retry after a lost answer must not look like a conflict.
            if known is not None:
                append.result = AppendResult(*known, time="", duplicate=True)
                return
        # What does not exist yet is at 0 for its callers, wherever it is going to begin.
        exists = not batch.fresh
        append.error = request.refusal(self._files.session_id, seq if exists else 0, exists=exists)
        if append.error is not None:
            return
        batch.add(request, now)
        count = len(request.events)
        if request.key is not None:
            self._keys.add(request.key, seq + 1, count)
        append.result = AppendResult(seq + 1, count, now.decode())

    def _key_before(self, key: str) -> tuple[int, int] | None:
        """Look for a key in the sealed segments: a few small reads for each of them."""
        reader = self._files.reader
        chain = None if reader is None else self._files.chain(reader)
        return None if chain is None else chain.find_key(key)

    def _put(self, batch: WriteBatch) -> None:
        """Write what was framed, and take over the new end of the log."""
        files = self._files
        assert files.reader is not None
        assert files.end is not None
        before = files.end.position
        # Until the write has returned, the end is unknown: after an error it is looked for anew (F-40).
        files.end = None
        lines = batch.lines
        try:
            disk.write_all(
                files.reader.segment.descriptor, lines[0] if len(lines) == 1 else b"".join(lines)
            )
        except OSError as error:
            raise disk.explain(error, "write", files.path, _NOT_WRITTEN) from error
        files.end = batch.log_end()
        self._keys.advance(before, files.end.position)

    def _look(self, *, again: bool) -> LogEnd | None:
        """Look at the end of the log, the lock held; None if the session was deleted meanwhile."""
        files = self._files
        assert files.reader is not None  # callers have opened it
        tail = files.end = files.reader.log_end(files.end)
        return self._unless_deleted(tail, again=again)

    def _unless_deleted(self, tail: LogEnd, *, again: bool) -> LogEnd | None:
        """Return the end of a log; None if it says that it was deleted: once more, and it is an error."""
        if DELETED not in tail.shut:
            return tail
        if again:
            raise deleted(self._files.session_id)
        return None

    # -- sealing --------------------------------------------------------------------------------

    def seal(self) -> bool:
        """Seal the active segment, and begin the next; False if there is no event in it (F-86)."""
        self._files.check_process()
        with self._group.exclusive():
            self._files.root.sync_names()
            # Most of it now, while others go on: what is left to sync under the lock is little.
            self._sync(self._locked(lambda _: self._found(), create=False))
            sealed: list[bool] = []
            self._sync(self._locked(lambda _: self._seal(sealed), create=False))
            return sealed == [True]

    def _seal(self, sealed: list[bool]) -> SyncTarget:
        files = self._files
        if files.reader is None and not files.adopt():
            raise SessionNotFound(f"no session {files.session_id!r} in this store")
        assert files.reader is not None  # `adopt` has set it
        tail = self._look(again=True)
        assert tail is not None  # or it has raised
        if SEALED not in tail.shut:
            if tail.shut:
                raise self._shut(tail.shut)
            if tail.position.seq == files.reader.segment.start.seq:
                return self._touched()
            batch = WriteBatch(tail.position, tail.ctl)
            if tail.size > tail.position.offset:
                batch.end_torn_tail(files.reader.segment, tail)
            batch.note("sealed", {"shut": [SEALED]})
            batch.shut = (SEALED,)
            time = tail.time
            self._put(batch)
            assert files.end is not None  # `_put` has set it
            tail = msgspec.structs.replace(files.end, time=time)
        self._go_on(tail)
        sealed.append(True)
        return self._touched()

    def _go_on(self, tail: LogEnd) -> LogEnd:
        """Go on behind a sealed segment: in the next one, which is made if nobody has. Under the lock."""
        files = self._files
        files.open_directory()
        before = files.reader
        assert before is not None
        self._keys.forget()
        if not files.adopt():
            raise SessionNotFound(f"no session {files.session_id!r} in this store")
        assert files.reader is not None  # `adopt` has set it
        found = files.end = files.reader.log_end(files.end)
        if SEALED in found.shut:
            found = self._begin_next(found, tail.time)
        return found

    def _begin_next(self, tail: LogEnd, time: str) -> LogEnd:
        """Make the segment that follows a sealed one."""
        files = self._files
        reader = files.reader
        assert reader is not None
        assert files.directory is not None
        segment = reader.segment
        try:
            # Before anything refers to its end: a crash may have come before its own sync.
            disk.sync(segment.descriptor)
        except OSError as error:
            raise self._fail(error) from error
        previous = format.Previous(
            tail.position.seq, tail.position.crc, time or last_time(reader, tail.position)
        )
        first = segment.first_record
        if segment.previous is None:
            line = reader.first(tail.position)
            # Without its data: what is to be forgotten some day must not live on in headers.
            first = msgspec.json.encode({"seq": line.seq, "time": line.time, "kind": line.kind})
        content = next_header(segment, previous, first)
        name = names.unpacked(segment.start.seq + 1)
        made = replace_segment(files.directory.descriptor, segment, name, content)
        # Unknown first: who is interrupted in between must not take the old end for that of the new file.
        files.end = None
        files.reader = SegmentReader(made)
        files.end = LogEnd(made.start, 0, (), made.start.offset, previous.time)
        self._keys.begin(made.start)
        return files.end

    # -- sync -----------------------------------------------------------------------------------

    def _sync(self, touched: SyncTarget) -> None:
        """Make all that was written durable. The lock is not held (F-38)."""
        segment, directory, parent, end, made = touched
        if segment is None:
            return
        try:
            if not made:
                disk.sync(segment.descriptor)
            if directory is not None and parent is not None:
                # Once per opening: a record is only as durable as the names that lead to it (F-31).
                disk.sync_directory(directory.descriptor)
                disk.sync_directory(parent)
        except OSError as error:
            raise self._fail(error) from error
        self._check_kept(segment)
        self._name(touched)
        segment.durable = end

    def _check_kept(self, segment: Segment) -> None:
        """Raise if what was synced has been removed since it was written: no reader would find it."""
        files = self._files
        with files.mutex:
            try:
                if files.changed() == files.settled or disk.links(segment.descriptor):
                    return
            except OSError as error:
                raise disk.explain(error, "sync", files.path, _NOT_WRITTEN) from error
            shut = SegmentReader(segment).log_end().shut
            # Sealed and compacted, or deleted and purged, after it was written: then it was kept.
            if SEALED in shut or DELETED in shut:
                return
            files.renew()
        self._keys.forget()
        raise self._stale("the log was removed before this append was durable; it may be lost")

    def _name(self, touched: SyncTarget) -> None:
        """Note that the session's directory need not be synced again, or not at all."""
        files = self._files
        if touched.directory is not None:
            with files.mutex:
                if files.directory is touched.directory:
                    files.parent = None

    def _fail(self, error: OSError) -> SyncFailed:
        """Shut the session for every process: no later sync can be believed (F-35)."""
        files = self._files
        files.root.failed.add(files.session_id)
        with files.mutex:
            # What was written may be gone, even from the cache: the note must follow what is there.
            files.end = None
        # Behind a sealed segment the note needs a new one, and that a sync: if it fails too, it has no note.
        if not self._failing:
            self._failing = True
            try:
                # If the disk takes nothing at all, this process remembers, and others meet the same disk.
                with contextlib.suppress(HansardError, OSError):
                    self._add_note("failed", adds=FAILED)
                    # From here on the log says it, and will say when it is over, whoever verifies it.
                    files.root.failed.discard(files.session_id)
            finally:
                self._failing = False
        return SyncFailed(
            "sync",
            files.path,
            error,
            "the last appends may be lost, so nobody can append to this session until "
            "`session.verify()` has found it whole",
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

    def sync(self) -> None:
        """Make everything durable that is in the log now, whoever wrote it."""
        self._files.check_process()
        with self._group.exclusive():
            self._files.root.sync_names()
            self._sync(self._locked(lambda _: self._unsynced(), create=False))

    def _unsynced(self) -> SyncTarget:
        """Return what there is to sync: nothing, if the log still ends where our last sync began.

        So a fork of a session that this process writes does not sync its parent once more.
        """
        found = self._found()
        segment = found.segment
        if segment and found.directory is None and segment.durable == segment.size():
            return SyncTarget(None, None)
        return found

    def _found(self) -> SyncTarget:
        files = self._files
        if files.reader is None and not files.adopt():
            raise SessionNotFound(f"no session {files.session_id!r} in this store")
        return self._touched()

    def note(
        self,
        word: str,
        *,
        adds: str = "",
        removes: str = "",
        expected_seq: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Append a note that shuts the log for a reason, or opens it again (F-34); sync it."""
        self._files.check_process()
        with self._group.exclusive():
            self._files.root.sync_names()
            touched = self._add_note(
                word, adds=adds, removes=removes, expected_seq=expected_seq, timeout=timeout
            )
            self._sync(touched)

    def while_shut(self, reason: str, do: Callable[[], object]) -> None:
        """Do something with the lock held, if the log is still shut for a reason."""
        self._files.check_process()
        with self._group.exclusive():
            self._locked(lambda _: self._do_if_shut(reason, do), create=False)

    def _do_if_shut(self, reason: str, do: Callable[[], object]) -> SyncTarget:
        files = self._files
        if files.reader is not None or files.adopt():
            assert files.reader is not None  # `adopt` has set it
            files.end = files.reader.log_end(files.end)
            if SEALED in files.end.shut:
                files.end = self._go_on(files.end)
            if reason in files.end.shut:
                do()
        return self._touched()

    def _add_note(
        self,
        word: str,
        *,
        adds: str = "",
        removes: str = "",
        expected_seq: int | None = None,
        timeout: float | None = None,
    ) -> SyncTarget:
        return self._locked(
            lambda _: self._write_note(word, adds, removes, expected_seq),
            create=False,
            timeout=timeout,
        )

    def _write_note(
        self, word: str, adds: str, removes: str, expected_seq: int | None
    ) -> SyncTarget:
        files = self._files
        if files.reader is None and not files.adopt():
            raise SessionNotFound(f"no session {files.session_id!r} in this store")
        assert files.reader is not None  # `adopt` has set it
        if removes and not files.in_place():
            # Deleted through files that this handle still has open, and perhaps purged.
            if files.root.in_trash(files.name):
                raise deleted(files.session_id)
            raise SessionNotFound(f"no session {files.session_id!r} in this store")
        tail = files.end = files.reader.log_end(files.end)
        if SEALED in tail.shut:
            tail = self._go_on(tail)
        if expected_seq is not None and expected_seq != tail.position.seq:
            raise seq_conflict(files.session_id, expected_seq, tail.position.seq)
        if (adds and adds in tail.shut) or (removes and removes not in tail.shut):
            return self._touched()
        batch = WriteBatch(tail.position, tail.ctl)
        if tail.size > tail.position.offset:
            assert files.reader is not None  # the tail is its
            batch.end_torn_tail(files.reader.segment, tail)
        shut = [reason for reason in tail.shut if reason != removes] + ([adds] if adds else [])
        batch.note(word, {"shut": shut})
        batch.shut = tuple(shut)
        self._put(batch)
        return self._touched()


def last_time(reader: SegmentReader, end: Position) -> str:
    """Return the time of the last event of a segment that ends in a note."""
    for piece in reader.backwards(end):
        lines = piece.lines(format.decode_lines)
        if lines:
            return lines[-1].time
    previous = reader.segment.previous
    return reader.segment.time if previous is None else previous.time
