"""Take events and messages out of the records of a log.

A piece of a log is decoded as far as a caller asks: into events, into messages, or into the messages'
own bytes. Each way has a struct that names just the members it needs; the decoder passes over the rest.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeVar
from weakref import ref

import msgspec

from hansard.backend.contract import Chunk, Head, LogReader, SavedState, StreamPart, between
from hansard.errors import Damaged, SessionNotFound
from hansard.event import kinds
from hansard.event.event import Event
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART, SESSION_FORKED
from hansard.log import disk, format, names, segment_scan
from hansard.log.format import Line, LogEnd
from hansard.log.sealed_chain import SealedChain
from hansard.log.segment_reader import SegmentRange, SegmentReader
from hansard.log.session_files import FAILED, SessionFiles

Answer = TypeVar("Answer")


def event_of(line: Line) -> Event:
    """Return the event that a record holds."""
    return Event(line.seq, line.time, line.kind, bytes(line.data), line.key)


def stream_of(line: Line) -> str | None:
    """Return the stream of which a record holds some text; None if it holds none."""
    part = kinds.read(MESSAGE_PART, bytes(line.data)) if line.kind == MESSAGE_PART else None
    return part.stream if part is not None and part.text else None


class _MessageData(msgspec.Struct, gc=False):
    message: Any = None
    stream: Any = None


class _MessageLine(msgspec.Struct, gc=False):
    """As much of a line as reading messages needs; all else is passed over by the decoder."""

    seq: int
    data: _MessageData
    kind: str = ""
    more: int = 0
    log: str | None = None


class _RawMessageData(msgspec.Struct, gc=False):
    message: msgspec.Raw = msgspec.Raw(b"null")
    stream: Any = None


class _RawMessageLine(msgspec.Struct, gc=False):
    seq: int
    data: _RawMessageData
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


class _KeyLine(msgspec.Struct, gc=False):
    """As much of a line as it takes to see how many events have its key."""

    seq: int
    key: str | None = None
    more: int = 0
    log: str | None = None


_Line = TypeVar("_Line", _MessageLine, _RawMessageLine)

_messages = msgspec.json.Decoder(_MessageLine).decode_lines
_raw_messages = msgspec.json.Decoder(_RawMessageLine).decode_lines
_plain_messages = msgspec.json.Decoder(_PlainMessageLine).decode_lines
_keys = msgspec.json.Decoder(_KeyLine).decode_lines

#: Takes the first byte of anything that has bytes, for a fifth of what a slice of a view costs.
_first_byte = Struct("c").unpack_from
_OBJECT: Final = {(b"{",)}


class LocalChunk(Chunk):
    """The records of a piece that lie between two seqs."""

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
        # A checksum that fits does not make a record of it: its data would not be what a reader expects.
        segment, start, end, data = self._piece
        segment_scan.committed(segment, start, data, end)
        raise segment.damaged(start.offset, "a record whose data are no JSON object")

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        return [(line.seq, line.data.message) for line in self._added(self._piece.lines(_messages))]

    def messages_json(self) -> list[tuple[int, bytes]]:
        return [
            (line.seq, bytes(line.data.message))
            for line in self._added(self._piece.lines(_raw_messages))
        ]

    def messages_joined(self) -> bytes | None:
        """Join the messages where they stand: the fast path of loading a session as JSON.

        No bytes object, pair, or question in Python for each message: 100,000 of them take two thirds of the
        time, and of the memory.
        """
        _, start, end, data = self._piece
        if self._after > start.seq or self._upto < end.seq:
            return None
        try:
            lines = _plain_messages(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None  # among them are others, or it is damaged: the ordinary way will tell
        first = start.seq + 1
        if not lines or [line.seq for line in lines] != list(range(first, first + len(lines))):
            return None
        messages = [line.data.message for line in lines]
        return b",".join(messages) if set(map(_first_byte, messages)) == _OBJECT else None

    def span(self) -> tuple[int, int]:
        return max(self._after, self._piece.start.seq), min(self._upto, self._piece.end.seq)

    def streamed(self) -> list[StreamPart]:
        # Most chunks have none, which whoever took the messages out has seen in passing.
        return [] if self._streams is False else super().streamed()

    def keyed(self) -> dict[int, int]:
        return {
            line.seq: line.more + 1
            for line in self._piece.lines(_keys)
            if line.more and line.key is not None and self._after < line.seq <= self._upto
        }

    def _added(self, lines: list[_Line]) -> list[_Line]:
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


class KnownRecords:
    """What was read of a session's files, and stays true for as long as they are its files.

    All readers of a session share it. Each field is replaced whole: one that is stale costs a second read.
    """

    __slots__ = ("controls", "first", "sealed")

    def __init__(self) -> None:
        #: The control events up to an offset of a segment, that offset, and the segment.
        self.controls: tuple[ref[SegmentReader] | None, int, list[Event]] = (None, 0, [])
        #: The control events of the sealed segments, of which log, up to which seq.
        self.sealed: tuple[tuple[str, int], list[Event]] = (("", 0), [])
        #: The first event, and of which log.
        self.first: tuple[str | None, Event | None] = (None, None)


class Look(NamedTuple):
    """What one look at a log has found: its open segment, what that said at its end, and what was read."""

    reader: SegmentReader
    end: LogEnd
    known: KnownRecords


class LocalReader(LogReader):
    """A session's files as they were at one look at the end of the log.

    It keeps no file open: a fork of ten thousand forks has as many readers. Where an event is stored is
    looked up again if the files were closed, or others have taken their place. No event is read that follows
    the last one of the first look.
    """

    __slots__ = (
        "_end",
        "_file",
        "_files",
        "_known",
        "_look",
        "_reader",
        "_report",
        "_tail",
        "_time",
        "session_id",
    )

    def __init__(
        self,
        files: SessionFiles,
        look: Callable[[], Look | None],
        report: Callable[[Damaged], None],
    ) -> None:
        self.session_id = files.session_id
        self._files = files
        self._look = look
        self._report = report
        found = look()
        #: The end of the log at this look; None if there was no session.
        self._end = None if found is None else found.end
        #: When the log began: what tells it from a later one of its name.
        self._time = "" if found is None else found.reader.segment.time
        #: The file that was last read from.
        self._file: tuple[int, int] | None = None
        if found is not None:
            self._use(found)

    def _use(self, found: Look) -> None:
        self._reader = ref(found.reader)
        self._tail = found.end
        self._known = found.known

    def head(self) -> Head | None:
        end = self._end
        if end is None:
            return None
        failed = FAILED in end.shut or self.session_id in self._files.root.failed
        return Head(end.position.seq, self._time, end.time or self._updated(end), failed)

    def _updated(self, end: LogEnd) -> str:
        """Return the time of the last event, if the log ends in a note."""
        reader = self._reader()
        if reader is not None and self._tail is end:
            return reader.last_time(end.position)
        for chunk in self.read_back():
            return chunk.events()[-1].stamp
        return self._time

    def first(self) -> Event | None:
        return None if self._end is None else self._asking(self._first)

    def _first(self) -> Event | None:
        reader, tail, chain = self._open()
        if chain is None and tail.position.seq == reader.segment.start.seq:
            return None  # all that was ever appended has been cut off
        # The same log may have been opened again, to write, or have continued in another segment.
        known, event = self._known.first
        if known != self._time:
            event = self._find_first(reader, tail, chain)
            self._known.first = (self._time, event)
        return event

    def _find_first(self, reader: SegmentReader, tail: LogEnd, chain: SealedChain | None) -> Event:
        if chain is None:
            return event_of(reader.first(tail.position))
        if not reader.segment.first_record:
            return event_of(chain.first())
        first = event_of(format.decode_first(reader.segment.first_record))
        # Of a fork the data are needed, and it is a control event; those of others are not.
        if first.kind == SESSION_FORKED:
            # No closure: CPython loses the arguments of a function if it has no memory for a cell.
            for event in self._sealed_controls(reader, chain):
                if event.seq == first.seq:
                    return event
        return first

    def checkpoint(self) -> SavedState | None:
        return None if self._end is None else self._asking(self._checkpoint)

    def _checkpoint(self) -> SavedState | None:
        reader, _, chain = self._open()
        known = None if chain is None else self._files.checkpoint(reader)
        where = self._files.root.path_of(self._files.name, names.CHECKPOINT)
        return SavedState(known.seq, known.state, where) if known and known.state else None

    def size(self, *, unpacked: bool = False) -> int:
        if self._end is None:
            return 0
        return self._asking(self._unpacked_size if unpacked else self._size)

    def _size(self) -> int:
        _, tail, chain = self._open()
        # Others may have compacted it since this chain was listed.
        return tail.size if chain is None else tail.size + chain.again().size()

    def _unpacked_size(self) -> int:
        _, tail, chain = self._open()
        # A sealed segment ends where its lines would, if they were not compressed.
        parts = () if chain is None else chain.again().parts()
        return tail.size + sum(part.end.offset for part, _ in parts)

    def controls(self, upto: int | None = None, *, after: int = 0) -> list[Event]:
        if self._end is None:
            return []
        return between(self._asking(self._controls), after, self._last(upto))

    def _controls(self) -> list[Event]:
        reader, tail, chain = self._open()
        known, offset, events = self._known.controls
        if known is None or known() is not reader:
            offset, events = 0, self._sealed_controls(reader, chain)
            self._known.controls = (ref(reader), offset, events)
        if tail.ctl > offset:
            new = reader.controls(tail.ctl, offset)
            events = events + [event_of(line) for line in new]
            self._known.controls = (ref(reader), tail.ctl, events)
        return events

    def _sealed_controls(self, reader: SegmentReader, chain: SealedChain | None) -> list[Event]:
        """Return the control events of the sealed segments, which never change."""
        if chain is None:
            return []
        upto, events = self._known.sealed
        if upto != (self._time, chain.upto):
            known = self._files.checkpoint(reader)
            lines, after = [], 0
            if known is not None:
                lines, after = format.decode_lines(known.controls), known.seq
            lines += chain.controls(after)
            events = [event_of(line) for line in lines]
            self._known.sealed = ((self._time, chain.upto), events)
        return events

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        last = self._last(upto)
        while after < last:
            try:
                for chunk in self._forwards(after, last):
                    yield chunk
                    after = chunk.span()[1]
            except Damaged as error:
                self._renew(error)
            else:
                return

    def _forwards(self, after: int, upto: int) -> Iterator[LocalChunk]:
        reader, tail, chain = self._open()
        begin = reader.segment.start.seq
        if chain is not None and after < begin:
            for piece, behind in chain.forwards(after, upto):
                # Not beyond: what was sealed after this look may have been joined to it.
                yield LocalChunk(piece, behind, min(upto, begin))
        if upto <= begin:
            return
        start = reader.locate(after, tail.position) if after > begin else reader.segment.start
        for piece in reader.forwards(start, tail.position):
            if piece.end.seq > after:
                yield LocalChunk(piece, after, upto)
            if piece.end.seq >= upto:
                return

    def read_back(self, upto: int | None = None, after: int = 0) -> Iterator[Chunk]:
        last = self._last(upto)
        while after < last:
            try:
                for chunk in self._backwards(last, after):
                    yield chunk
                    last = chunk.span()[0]
            except Damaged as error:
                self._renew(error)
            else:
                return

    def _backwards(self, upto: int, after: int) -> Iterator[LocalChunk]:
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
        """Return the last seq of a reading: where the session ended, at most."""
        seq = 0 if self._end is None else self._end.position.seq
        return seq if upto is None else min(upto, seq)

    def _open(self) -> tuple[SegmentReader, LogEnd, SealedChain | None]:
        """Return the open segment, its end, and the sealed segments before it."""
        reader = self._reader()
        if reader is None:
            found = self._look()
            if found is None or found.reader.segment.time != self._time:
                raise SessionNotFound(
                    f"session {self.session_id!r} was deleted while it was read; read it again"
                )
            self._use(found)
            reader = found.reader
        self._file = _file_of(reader)
        return reader, self._tail, self._files.chain(reader)

    def _asking(self, ask: Callable[[], Answer]) -> Answer:
        """Ask these files, or those that have taken their place."""
        while True:
            try:
                return ask()
            except Damaged as error:
                self._renew(error)

    def _renew(self, error: Damaged) -> None:
        """Read from the file that has the log's name by now; raise the error if it is the same."""
        found = self._look()
        if (
            found is None
            or found.reader.segment.time != self._time
            or _file_of(found.reader) == self._file
        ):
            self._report(error)
            raise error
        self._use(found)


def _file_of(reader: SegmentReader) -> tuple[int, int]:
    try:
        return disk.identity(reader.segment.descriptor)[:2]
    except OSError as error:
        raise disk.explain(error, "open", reader.segment.path) from error
