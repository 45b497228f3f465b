"""One session in files: appends, and reads that decode records as far as a caller needs.

A piece of a log is decoded into events, into messages, or into the bytes of the messages. Each way has a
struct with just the members that it needs; the decoder skips the rest.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, TypeVar
from weakref import ref

import msgspec

from hansard.backend.contract import (
    INTERNAL,
    AppendRequest,
    Chunk,
    CompactionFilter,
    CompactionResult,
    Finding,
    Head,
    InternalLog,
    LogReader,
    Progress,
    Record,
    RepairHints,
    RepairReport,
    SavedState,
    StreamPart,
    attempt,
    between,
)
from hansard.clock import Backoff
from hansard.errors import Damaged, SessionDeleted, SessionNotFound
from hansard.event.event import Event, NewEvent, repeated
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART, SESSION_FORKED
from hansard.log import disk, format, names, segment_scan
from hansard.log.format import Line, LogEnd, Position
from hansard.log.sealed_chain import SealedChain
from hansard.log.segment_reader import SegmentRange, SegmentReader
from hansard.log.session_files import DELETED, FAILED, SessionFiles
from hansard.log.store_directory import StoreDirectory, not_found
from hansard.log.write_batch import PendingAppend
from hansard.log.writer import LogWriter

if TYPE_CHECKING:
    from hansard.backend.local.backend import LocalBackend

Answer = TypeVar("Answer")

#: Size in bytes above which the background compactor seals and compresses an active segment.
SEAL: Final = 8 * 1024 * 1024


def event_of(line: Line) -> Event:
    """Return the event that a record holds."""
    return Event(line.seq, line.time, line.kind, bytes(line.data), line.key)


def records_of(reader: SegmentReader, end: Position) -> Iterator[tuple[Line, bytes]]:
    """Yield the records of a segment, each with the members that this version does not know."""
    segment = reader.segment
    for piece in reader.forwards(segment.start, end):
        for seen, line in segment_scan.committed(segment, piece.start, piece.data, piece.end):
            yield line, format.unknown_members(seen.raw)


# -- decoding -----------------------------------------------------------------------------------


class _MessageData(msgspec.Struct, gc=False):
    message: Any = None
    stream: Any = None


class _RawMessageData(msgspec.Struct, gc=False):
    message: msgspec.Raw = msgspec.Raw(b"null")
    stream: Any = None


_Data = TypeVar("_Data", _MessageData, _RawMessageData)


class _MessageLine(msgspec.Struct, Generic[_Data], gc=False):
    seq: int
    data: _Data
    kind: str = ""
    more: int = 0
    log: str | None = None


class _PlainMessageData(msgspec.Struct, gc=False):
    message: msgspec.Raw
    stream: None = None


class _PlainMessageLine(msgspec.Struct, gc=False):
    """A record that adds a message, and nothing else; the decoder refuses all others."""

    seq: int
    kind: Literal["message.added"]
    data: _PlainMessageData
    log: None = None


_messages = msgspec.json.Decoder(_MessageLine[_MessageData]).decode_lines
_raw_messages = msgspec.json.Decoder(_MessageLine[_RawMessageData]).decode_lines
_plain_messages = msgspec.json.Decoder(_PlainMessageLine).decode_lines

#: Returns the first byte of a buffer, in a fifth of the time that a slice of a view takes.
_first_byte = Struct("c").unpack_from
_OBJECT: Final = {(b"{",)}


class LocalChunk(Chunk):
    """The records of a piece between two seqs."""

    __slots__ = ("_after", "_piece", "_streams", "_upto")

    def __init__(self, piece: SegmentRange, after: int, upto: int) -> None:
        self._piece = piece
        self._after = after
        self._upto = upto
        #: Whether there are parts of streamed messages; None until it is known.
        self._streams: bool | None = None

    def events(self) -> list[Event]:
        return [
            event_of(line)
            for line in self._piece.lines(format.decode_lines)
            if self._after < line.seq <= self._upto and (format.has_object(line) or self._refuse())
        ]

    def _refuse(self) -> NoReturn:
        # A matching checksum does not make it a record: its data would not be what a reader expects.
        segment, start, end, data = self._piece
        segment_scan.committed(segment, start, data, end)
        raise segment.damaged(start.offset, "the data of a record are not a JSON object")

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        return [(line.seq, line.data.message) for line in self._added(self._piece.lines(_messages))]

    def messages_json(self) -> list[tuple[int, bytes]]:
        lines = self._added(self._piece.lines(_raw_messages))
        return [(line.seq, bytes(line.data.message)) for line in lines]

    def messages_joined(self) -> bytes | None:
        """Join the messages without a Python object for each: two thirds of the time and memory."""
        _, start, end, data = self._piece
        if self._after > start.seq or self._upto < end.seq:
            return None
        try:
            lines = _plain_messages(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None  # there are other records, or damage: `messages_json` tells
        first = start.seq + 1
        if not lines or [line.seq for line in lines] != list(range(first, first + len(lines))):
            return None
        messages = [line.data.message for line in lines]
        return b",".join(messages) if set(map(_first_byte, messages)) == _OBJECT else None

    def span(self) -> tuple[int, int]:
        return max(self._after, self._piece.start.seq), min(self._upto, self._piece.end.seq)

    def streamed(self) -> list[StreamPart]:
        return [] if self._streams is False else super().streamed()

    def keyed(self) -> dict[int, int]:
        return {
            line.seq: line.more + 1
            for line in self._piece.lines(format.decode_lines)
            if line.more and line.key is not None and self._after < line.seq <= self._upto
        }

    def _added(self, lines: list[_MessageLine[_Data]]) -> list[_MessageLine[_Data]]:
        """Return the records that add a message."""
        after, upto = self._after, self._upto
        streams = False
        found = []
        for line in lines:
            if line.kind == MESSAGE_ADDED:
                if after < line.seq <= upto:
                    found.append(line)
                    if line.data.stream is not None:
                        streams = True
            elif line.kind == MESSAGE_PART:
                streams = True
        self._streams = streams
        return found


# -- reading ------------------------------------------------------------------------------------


class KnownRecords:
    """What was read of a session, as long as its active segment stays open.

    All readers of a session share it. Fields are replaced, never changed: a stale one costs a second read.
    """

    __slots__ = ("controls", "first", "reader")

    def __init__(self, reader: SegmentReader) -> None:
        #: Not kept open: a fork of ten thousand forks has as many readers.
        self.reader = ref(reader)
        #: The control events up to an offset of the segment; None before they are needed.
        self.controls: tuple[int, list[Event]] | None = None
        #: The first event.
        self.first: Event | None = None


#: A log as it was at one moment: its active segment, the end of that, and what was read of it.
Look = tuple[SegmentReader, LogEnd, KnownRecords]


class LocalReader(LogReader):
    """A session's files as they were when the end of the log was read.

    It keeps no file open. If the files were closed or replaced, it looks up again where an event is stored.
    It reads nothing after that end.
    """

    __slots__ = ("_end", "_known", "_log", "_tail", "_time", "session_id")

    def __init__(self, log: "LocalLog") -> None:
        self.session_id = log.session_id
        self._log = log
        found = log.look()
        #: The end of the log at that moment; None if there was no session.
        self._end = None if found is None else found[1]
        #: When the log began: identifies it, as a later one may have its name.
        self._time = "" if found is None else found[0].segment.time
        if found is not None:
            _, self._tail, self._known = found

    def head(self) -> Head | None:
        end = self._end
        if end is None:
            return None
        failed = FAILED in end.shut or self.session_id in self._log.files.root.failed
        return Head(end.position.seq, self._time, end.time or self._updated(end), failed)

    def _updated(self, end: LogEnd) -> str:
        """Return the time of the last event, if the log ends in a note."""
        reader = self._known.reader()
        if reader is not None and self._tail is end:
            return reader.last_time(end.position)
        # The last chunk may hold notes only.
        for chunk in self.read(back=True):
            if events := chunk.events():
                return events[-1].stamp
        return self._time

    def first(self) -> Event | None:
        return None if self._end is None else self._asking(self._first)

    def _first(self) -> Event | None:
        reader, tail, chain = self._open()
        if chain is None and tail.position.seq == reader.segment.start.seq:
            return None  # all that was ever appended has been cut off
        if self._known.first is None:
            self._known.first = self._find_first(reader, tail, chain)
        return self._known.first

    def _find_first(self, reader: SegmentReader, tail: LogEnd, chain: SealedChain | None) -> Event:
        repeated = reader.segment.first_record
        if repeated:
            line = format.decode_first(repeated)
        else:
            line = reader.first(tail.position) if chain is None else chain.first()
        if line.kind != SESSION_FORKED:
            return Event(line.seq, line.time, line.kind, b"{}")
        # Headers repeat it without data. Those of a fork are needed, and it is a control event.
        # No closure: CPython loses the arguments of a function if it has no memory for a cell.
        for event in self._controls() if repeated else ():
            if event.seq == line.seq:
                return event
        return event_of(line)

    def checkpoint(self) -> SavedState | None:
        return None if self._end is None else self._asking(self._checkpoint)

    def _checkpoint(self) -> SavedState | None:
        reader, _, chain = self._open()
        files = self._log.files
        known = None if chain is None else files.checkpoint(reader)
        where = files.root.path_of(files.name, names.CHECKPOINT)
        return SavedState(known.seq, known.state, where) if known and known.state else None

    def size(self, *, unpacked: bool = False) -> int:
        return 0 if self._end is None else self._asking(partial(self._size, unpacked))

    def _size(self, unpacked: bool) -> int:  # noqa: FBT001 - called by `size` only
        _, tail, chain = self._open()
        if chain is None:
            return tail.size
        # Another process may have compacted it since this chain was listed.
        chain = chain.again()
        # The offsets in a sealed segment are those of its lines without compression.
        return tail.size + (
            sum(part.end.offset for part, _ in chain.parts()) if unpacked else chain.size()
        )

    def controls(self, upto: int | None = None, *, after: int = 0) -> list[Event]:
        if self._end is None:
            return []
        events = self._asking(self._controls)
        # Most calls ask for what is new, and nothing is.
        if not events or events[-1].seq <= after:
            return []
        return between(events, after, self._last(upto))

    def _controls(self) -> list[Event]:
        reader, tail, chain = self._open()
        known = self._known
        offset, events = known.controls or (0, self._sealed_controls(reader, chain))
        if tail.ctl > offset:
            new = reader.controls(tail.ctl, offset)
            offset, events = tail.ctl, events + [event_of(line) for line in new]
        known.controls = offset, events
        return events

    def _sealed_controls(self, reader: SegmentReader, chain: SealedChain | None) -> list[Event]:
        """Return the control events of the sealed segments, which never change."""
        if chain is None:
            return []
        saved = self._log.files.checkpoint(reader)
        lines = [] if saved is None else format.decode_lines(saved.controls)
        lines += chain.controls(0 if saved is None else saved.seq)
        return [event_of(line) for line in lines]

    def read(
        self, after: int = 0, upto: int | None = None, *, back: bool = False
    ) -> Iterator[Chunk]:
        last = self._last(upto)
        # If the files are replaced, it continues in the new ones.
        while after < last:
            try:
                for chunk in (self._backwards if back else self._forwards)(after, last):
                    yield chunk
                    if back:
                        # A chunk that holds nothing may lie after it.
                        last = min(last, chunk.span()[0])
                    else:
                        after = chunk.span()[1]
            except Damaged as error:
                self._renew(error)
            else:
                return

    def _forwards(self, after: int, upto: int) -> Iterator[LocalChunk]:
        reader, tail, chain = self._open()
        begin = reader.segment.start.seq
        if chain is not None and after < begin:
            for piece, before in chain.forwards(after, upto):
                # Not further: what was sealed after that moment may have been joined to it.
                yield LocalChunk(piece, before, min(upto, begin))
        if upto <= begin:
            return
        start = reader.locate(after, tail.position) if after > begin else reader.segment.start
        for piece in reader.forwards(start, tail.position):
            if piece.end.seq > after:
                yield LocalChunk(piece, after, upto)
            if piece.end.seq >= upto:
                return

    def _backwards(self, after: int, upto: int) -> Iterator[LocalChunk]:
        reader, tail, chain = self._open()
        begin, end = reader.segment.start.seq, tail.position
        if upto > begin:
            if upto < end.seq:
                end = reader.position_after(upto, end)
            for piece in reader.backwards(end):
                yield LocalChunk(piece, after, upto)
                if piece.start.seq <= after:
                    return
        if chain is not None:
            for piece, last in chain.backwards(min(upto, begin), after):
                yield LocalChunk(piece, after, last)

    def _last(self, upto: int | None) -> int:
        """Return the last seq of a read: at most the last one that was found."""
        seq = 0 if self._end is None else self._end.position.seq
        return seq if upto is None else min(upto, seq)

    def _open(self) -> tuple[SegmentReader, LogEnd, SealedChain | None]:
        """Return the open segment, its end, and the sealed segments before it."""
        reader = self._known.reader()
        if reader is None:
            found = self._log.look()
            if found is None or found[0].segment.time != self._time:
                raise SessionNotFound(
                    f"session {self.session_id!r} was deleted while it was read; read it again"
                )
            reader, self._tail, self._known = found
        return reader, self._tail, self._log.files.chain(reader)

    def _asking(self, ask: Callable[[], Answer]) -> Answer:
        """Read from these files, or from those that have replaced them."""
        while True:
            try:
                return ask()
            except Damaged as error:
                self._renew(error)

    def _renew(self, error: Damaged) -> None:
        """Read from the file that has the log's name now; raise the error if it is the one that is open."""
        found = self._log.look()
        if found is None or found[0].segment.time != self._time or found[2] is self._known:
            self._log.report(error)
            raise error
        _, self._tail, self._known = found


# -- the log ------------------------------------------------------------------------------------


class LocalLog(InternalLog):
    """One session's files, shared by all handles on the session in this process."""

    descriptors = disk.SESSION_FILES

    def __init__(
        self,
        backend: "LocalBackend",
        root: StoreDirectory,
        session_id: str,
        name: str,
        *,
        from_trash: bool = False,
    ) -> None:
        self.session_id = session_id
        self.files = SessionFiles(root, session_id, name, from_trash=from_trash)
        self._backend = backend
        self._counters = backend.counters
        self._writer = LogWriter(
            self.files, durability=backend.durability, lock_timeout=backend.lock_timeout
        )
        self._known: KnownRecords | None = None

    def append(self, request: AppendRequest) -> list[Event]:
        if self._backend.latest is not self:
            self._backend.used(self)
        events = request.events
        if (
            len(events) == 1
            and request.key is None
            and request.expected_seq is None
            and not request.new_only
            and request.check is None
        ):
            new = events[0]
            if not new.control and new.time is None:
                try:
                    one = self._writer.append_one(
                        new.kind.encode(), new.data, durable=request.durable
                    )
                except Exception:
                    self._counters.errors += 1
                    raise
                if one is not None:
                    self._counters.appends += 1
                    self._schedule_compaction()
                    seq, stamp = one
                    return [Event(seq, stamp, new.kind, new.data)]
        (append,) = self._writer.append((request,))
        return self._events_of(append)

    def append_many(self, requests: Sequence[AppendRequest]) -> list[list[Event] | Exception]:
        self._backend.used(self)
        return [attempt(self._events_of, append) for append in self._writer.append(requests)]

    def _schedule_compaction(self) -> None:
        """Schedule compaction if the active segment exceeds SEAL bytes."""
        end = self.files.end
        if (
            end is not None
            and end.position.offset > SEAL
            and not self.session_id.startswith(INTERNAL)
        ):
            self._backend.schedule_compaction(self.session_id)

    def _events_of(self, append: PendingAppend) -> list[Event]:
        """Return the events of an append that was done; raise why it was not."""
        try:
            done = append.outcome()
            first = done.first
            if done.duplicate:
                chunks = self.reader().read(first - 1, first - 1 + done.length)
                stored = [event for chunk in chunks for event in chunk.events()]
                request = append.request
                return repeated(self.session_id, request.key, request.events, stored)
        except Exception:
            self._counters.errors += 1
            raise
        self._schedule_compaction()
        self._counters.appends += 1
        self._counters.more_events += done.length - 1
        return [
            Event(
                seq,
                new.time or done.time,
                new.kind,
                new.data,
                append.request.key if seq == first else None,
            )
            for seq, new in enumerate(append.request.events, first)
        ]

    def begin_with(self, staged: str) -> None:
        """Make a staged log the log of the session, which must not exist."""
        self._backend.used(self)
        self._writer.take(staged)
        self._schedule_compaction()

    def replace(self, events: Sequence[NewEvent], *, expected_seq: int) -> None:
        self._backend.used(self)
        stage = self._backend.stage_in(self.files.root, self.session_id, expected_seq)
        try:
            stage.append(events)
            self._writer.take(stage.finish(), expected_seq=expected_seq)
        except BaseException:
            stage.discard()
            raise

    def holding(self) -> AbstractContextManager[bool]:
        """Hold the session's lock, so that no process deletes or purges it; False if there is none."""
        self._backend.used(self)
        return self._writer.holding()

    def drop(self) -> bool:
        self._backend.used(self)
        root, name = self.files.root, self.files.name
        root.check_writable()
        there = root.holds_log(name)
        dropped = root.purge(name)
        root.failed.discard(self.session_id)
        self.release_files()
        return there and dropped

    def sync(self) -> None:
        self._backend.used(self)
        self._writer.sync()

    def reader(self) -> LocalReader:
        self._counters.reads += 1
        return LocalReader(self)

    def look(self) -> Look | None:
        """Read the end of the log; None if the session does not exist."""
        if self._backend.latest is not self:
            self._backend.used(self)
        try:
            found = self.files.refresh()
        except Damaged as error:
            self.report(error)
            raise
        if found is None:
            return None
        known = self._known
        if known is None or known.reader() is not found[0]:
            known = self._known = KnownRecords(found[0])
        return *found, known

    def existing(self) -> Look:
        """Read the end of the log; raise if the session does not exist."""
        found = self.look()
        if found is None:
            raise not_found(self.session_id)
        return found

    def report(self, error: Damaged) -> None:
        """Record for the index that the session is damaged."""
        self._counters.damaged += 1
        root = self.files.root
        if not root.read_only:
            root.marks.report(root.descriptor, self.files.name, error.offset)

    def wait(self, after: int, timeout: float) -> bool:
        backoff = Backoff(timeout)
        while True:
            found = self.look()
            if found is not None and found[1].position.seq > after:
                return True
            if not backoff.sleep():
                return False

    def compact(
        self,
        filter: CompactionFilter,
        *,
        level: int,
        progress: Progress | None = None,
        state: Callable[[int], bytes] | None = None,
        wait: bool = True,
        always: bool = True,
    ) -> CompactionResult:
        self._backend.used(self)
        from hansard.backend.local import compact

        before = compact.files_size(self)
        if always or compact.is_worthwhile(*self.existing()[:2], filter):
            self._writer.seal()
        timeout = self._backend.lock_timeout if wait else 0.0
        with self.marked():
            try:
                return compact.compact(self, filter, level, progress, state, timeout, before)
            finally:
                # What it read for the checkpoint must not stay in memory.
                self.files.forget_chain()

    def salvage(self) -> Iterator[Event | Finding]:
        try:
            if self.look() is None:
                return
        except Damaged:
            pass  # the reason for this call
        files, reader = self.files, self.files.reader
        chain = None if reader is None else files.chain(reader)
        seq = 0
        while chain is not None and seq < chain.upto:
            try:
                for piece, before in chain.forwards(seq, chain.upto):
                    for line in piece.lines(format.decode_lines):
                        if before < line.seq <= chain.upto:
                            yield event_of(line)
                    seq = piece.end.seq
            except Damaged as error:
                yield Finding("damage", error.path, error.offset, 0, error.reason)
                seq = chain.next_begin(seq)
        for item in files.salvage(reader):
            if isinstance(item, segment_scan.ScanFinding):
                yield Finding("damage", files.path, *item)
            else:
                yield event_of(item)

    def records(self) -> Iterator[Record]:
        from hansard.backend.local import verify

        files = self.files
        directory = files.root.open_session(self.session_id, files.name)
        if directory is not None:
            yield from verify.records(directory, files.root.path_of(files.name))

    def verify(self) -> list[Finding]:
        from hansard.backend.local import verify

        findings, end = verify.verify(self)
        root = self.files.root
        # Without an end, there is damage. Otherwise, after a failed sync, appends are allowed again.
        if (
            end is not None
            and not root.read_only
            and (FAILED in end.shut or self.session_id in root.failed)
        ):
            self._writer.reopen("verified", FAILED)
            root.failed.discard(self.session_id)
        return findings

    def repair(self, known: RepairHints, *, missing: bool) -> RepairReport:
        self._backend.used(self)
        from hansard.backend.local.repair import repair

        files = self.files
        if known.wrong_checkpoint:
            files.drop_checkpoint()
        try:
            done = repair(files, known, missing=missing, timeout=self._backend.lock_timeout)
        finally:
            # Also after an error: the files may have been replaced.
            self.release_files()
        if done.findings:
            # Everything was written again, and synced.
            files.root.failed.discard(self.session_id)
        return done

    @contextmanager
    def marked(self) -> Iterator[None]:
        """Mark the session before and after a change that is made without its lock."""
        self.files.root.check_writable()
        self.files.check_process()
        self.files.mark()
        try:
            yield
        finally:
            # Again: the marks may have been read before the change.
            self.files.mark()

    def release_files(self, *, wait: bool = True) -> None:
        """Close the files unless they are in use; the next call opens them again."""
        self._writer.release_files(wait=wait)
        self._known = None
        self._backend.unused(self)

    def delete(
        self, expected_seq: int | None, timeout: float | None, check: Callable[[], object]
    ) -> None:
        """Move the session to the trash (F-36)."""
        try:
            self._writer.delete(expected_seq=expected_seq, timeout=timeout, check=check)
        finally:
            # Also after an error: the directory may have been moved with these files open.
            self.release_files()

    def restore(self) -> None:
        """Move the directory back, then open the log with a note."""
        root, name = self.files.root, self.files.name
        if root.in_trash(name):
            with self.marked():
                found = root.move_from_trash(name)
            root.sync_move(name)
        else:
            found = self._is_deleted()
        if not found:
            raise not_found(self.session_id, "the trash")
        self._writer.reopen("restored", DELETED)

    def finish_delete(self) -> bool:
        """Move the directory of a deleted session that is not in the trash yet; False if there is none."""
        if not self._is_deleted():
            return False
        try:
            return self._writer.delete(noted=True)
        except SessionDeleted:
            return True  # another process was faster
        finally:
            self.release_files()

    def _is_deleted(self) -> bool:
        """Return whether the log is that of a deleted session that is not in the trash (F-36)."""
        try:
            self.look()
        except SessionDeleted:
            return True
        return False
