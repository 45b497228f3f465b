"""Read a segment: its end, a range forwards, the last records backwards, a seq, its control records.

Takes no lock and writes nothing (F-41). Everything starts and ends at a *mark*, a place between two
appends, and what lies between two marks is checked with one CRC before a line of it is
decoded (F-41). The slow, line-by-line walk that finds the damaged byte is in `segment_scan`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from hansard.errors import Damaged
from hansard.log import disk, format, segment_scan
from hansard.log.borders import first_position, last_line
from hansard.log.format import Line, Position
from hansard.log.segment import Segment

#: How much is read at once: forwards, and at first backwards. Pieces of a mebibyte keep memory near
#: that of the result; the smaller window holds the last fifty messages of most sessions.
PIECE: Final = 1 << 20
WINDOW: Final = 1 << 16

#: Two marks closer than this are not bisected any further: one read covers the distance.
_NEAR: Final = 2 * WINDOW


#: How many ends are remembered.
_ENDS: Final = 8


class LogEnd(msgspec.Struct, frozen=True, gc=False):
    """What the end of a segment says (F-41): all that a writer needs to go on."""

    position: Position
    #: Offset of the latest control record, 0 if there is none.
    ctl: int
    #: Why no event may be appended (F-34); empty if it may.
    shut: tuple[str, ...]
    #: Size of the file when it was looked at; beyond the mark's offset is the torn tail.
    size: int
    #: Time of the last event; empty if the last line is a note, which does not know it.
    time: str


class Settled(Protocol):
    """What every decoded line has, whatever else its decoder took from it."""

    @property
    def seq(self) -> int: ...
    @property
    def more(self) -> int: ...
    @property
    def log(self) -> str | None: ...


L = TypeVar("L", bound=Settled)


class SegmentRange(NamedTuple):
    """Whole, checked lines between two marks."""

    segment: Segment
    start: Position
    end: Position
    data: bytes

    def lines(self, decode_lines: Callable[[bytes], list[L]]) -> list[L]:
        """Decode the records; notes and what a crash left unfinished are not among them."""
        return _settle(self, decode_lines)


class SegmentReader:
    """Reads one open segment. Remembers marks, so that a second search starts nearer."""

    __slots__ = ("__weakref__", "_ends", "_marks", "segment")

    def __init__(self, segment: Segment, marks: list[Position] | None = None) -> None:
        """`marks`: places that are known, in order, the first of them the segment's start."""
        self.segment = segment
        #: Some marks, in order, none closer than a window to the next.
        self._marks = marks or [segment.start]
        #: Where the log ended when it was looked at, the latest first: what a reader that follows
        #: it asks for next begins at one of them.
        self._ends: tuple[Position, ...] = ()

    # -- the end ------------------------------------------------------------------------------

    def log_end(self, known: LogEnd | None = None) -> LogEnd:
        """Return what the end of the segment says now, reading only what is new since `known`."""
        size = self.segment.size()
        if known is not None and size == known.size:
            return known
        tail = self._tail(known, size)
        self._ends = (tail.position, *self._ends[: _ENDS - 1])
        return tail

    def _tail(self, known: LogEnd | None, size: int) -> LogEnd:
        if known is not None:
            if 0 <= size - known.position.offset <= WINDOW:
                data = self.segment.read_some(known.position.offset, size - known.position.offset)
                return self._last(known.position, data, known)
            if size < known.position.offset:
                raise self.segment.damaged(
                    size, f"the file was {known.size} bytes long and is shorter: it has been cut"
                )
        window = WINDOW
        while True:
            begin = max(self.segment.start.offset, size - window)
            data = self.segment.read_some(begin, size - begin)
            self._check_length(begin, data)
            if begin == self.segment.start.offset:
                return self._last(self.segment.start, data, None)
            found = first_position(data, begin)
            # A mark at the very end says where the last line ends, but not what it says.
            if found is not None and found.offset < begin + data.rfind(b"\n") + 1:
                tail = self._last(found, data[found.offset - begin :], None)
                if tail.position is not found:
                    return tail
            # Once past the longest line, so that one that has no end is found out at once.
            longest = format.MAX_LINE + 1
            window = longest if window < longest < 4 * window else 4 * window

    def _check_length(self, begin: int, data: bytes) -> None:
        """Raise if a window at the end shows a line that is longer than a line can be (F-13)."""
        longest = format.MAX_LINE
        if len(data) <= longest:
            return
        if data.find(b"\n", 0, longest) < 0:
            # It began before: look for its first byte, so that the error names it. A hole is zeros, in
            # which no line ends: a sparse file of a tebibyte is one such line, and costs nothing to make.
            step = PIECE
            while begin > self.segment.start.offset:
                step = min(step, begin - self.segment.start.offset)
                if disk.next_data(self.segment.descriptor, begin - step) >= begin:
                    begin, step = begin - step, 2 * step
                    continue
                step = min(step, PIECE)
                found = self.segment.read(begin - step, step).rfind(b"\n") + 1
                begin += found - step
                if found:
                    break
        elif len(data) - data.rfind(b"\n") - 1 > longest:
            begin += data.rfind(b"\n") + 1
        else:
            return
        raise self.segment.damaged(begin, "longer than a record can be")

    def _last(self, start: Position, data: bytes, known: LogEnd | None) -> LogEnd:
        """Check the lines behind a mark and return what the last of them says."""
        segment = self.segment
        cut, line = last_line(data)
        size = start.offset + len(data)
        if line is None:
            segment_scan.raise_if_damaged(segment, start, data)
            if known is not None:
                return msgspec.structs.replace(known, size=size)
            return LogEnd(start, 0, (), size, "")
        whole = data[:cut]
        crc = format.checked_crc(whole, start.crc)
        if crc is None:
            raise segment_scan.first_damage(segment, start, whole)
        mark = Position(start.offset + cut, line.seq, crc)
        if line.seq != start.seq + whole.count(b"\n"):
            # Notes, or an append that a crash left unfinished; or seqs that do not follow (F-32).
            segment_scan.committed(segment, start, whole, mark)
        # Whole lines behind the last complete append are of an unfinished one, or damage.
        segment_scan.raise_if_damaged(segment, mark, data[cut:])
        begin = start.offset + data.rfind(b"\n", 0, cut - 1) + 1
        time = line.time
        shut: tuple[str, ...] = ()
        if line.log is not None:
            time = ""
            try:
                shut = format.decode_shut(line.data).shut
            except msgspec.MsgspecError as error:
                raise segment.damaged(begin, f"not a note: {error}") from error
        return LogEnd(mark, begin if line.control else line.ctl, shut, size, time)

    def starts_with(self, other: "SegmentReader", end: Position) -> bool:
        """Return whether this segment begins with all bytes of another up to a mark."""
        offset = 0
        while offset < end.offset:
            length = min(PIECE, end.offset - offset)
            data = self.segment.read_some(offset, length)
            if not data or data != other.segment.read_some(offset, length):
                return False
            offset += len(data)
        return True

    # -- ranges -------------------------------------------------------------------------------

    def forwards(self, start: Position, end: Position) -> Iterator[SegmentRange]:
        """Yield the pieces from one mark to another, in order."""
        segment = self.segment
        while start.offset < end.offset:
            length = PIECE
            while True:
                length = min(length, end.offset - start.offset)
                data = segment.read(start.offset, length)
                if start.offset + length == end.offset:
                    crc = format.checked_crc(data, start.crc)
                    if crc is None or crc != end.crc:
                        raise segment_scan.first_damage(segment, start, data)
                    yield SegmentRange(segment, start, end, data)
                    return
                cut, line = last_line(data)
                if line is not None:
                    break
                if length > format.MAX_LINE and b"\n" not in data:
                    raise segment.damaged(start.offset, "longer than a record can be")
                # Nearly always a long batch, and one checksum says that nothing is wrong with it.
                if format.checked_crc(data[: data.rfind(b"\n") + 1], start.crc) is None:
                    segment_scan.raise_if_damaged(segment, start, data)
                length *= 2
            data = data[:cut]
            crc = format.checked_crc(data, start.crc)
            if crc is None:
                raise segment_scan.first_damage(segment, start, data)
            mark = Position(start.offset + cut, line.seq, crc)
            yield SegmentRange(segment, start, mark, data)
            self._remember(mark)
            start = mark

    def backwards(self, end: Position) -> Iterator[SegmentRange]:
        """Yield the pieces before a mark, the last one first; inside a piece lines stand in order."""
        length = WINDOW // 4
        while end.offset > self.segment.start.offset:
            # No further than a place that is known, and that it would cost more to look behind.
            first = self.segment.position_before(end.offset)
            begin = max(first.offset, end.offset - length)
            data = self.segment.read(begin, end.offset - begin)
            start = (
                first
                if begin == first.offset
                else first_position(data, begin, ends_at_position=True)
            )
            if start is None or start.offset >= end.offset:
                if length > format.MAX_LINE and b"\n" not in data[:-1]:
                    raise self.segment.damaged(begin, "longer than a record can be")
                length *= 4
                continue
            data = data[start.offset - begin :]
            crc = format.checked_crc(data, start.crc)
            if crc is None or crc != end.crc:
                raise segment_scan.first_damage(self.segment, start, data)
            yield SegmentRange(self.segment, start, end, data)
            end = start
            length = min(length * 4, PIECE)

    # -- places -------------------------------------------------------------------------------

    def locate(self, seq: int, end: Position) -> Position:
        """Return a mark at or before the place behind `seq`, near enough to read on from (F-12)."""
        if seq >= end.seq:
            return end
        for mark in self._ends:
            if mark.seq == seq:
                return mark
        marks = self._marks
        place = bisect_right(marks, seq, key=lambda mark: mark.seq)
        low = marks[place - 1] if place else self.segment.start
        high = marks[place].offset if place < len(marks) else end.offset
        while high - low.offset > _NEAR:
            middle = (low.offset + high) // 2
            found = self._position_after(middle, high)
            if found is None or found.seq > seq:
                high = middle
            else:
                low = found
        self._remember(low)
        return low

    def position_after(self, seq: int, end: Position) -> Position:
        """Return the first mark that a forward reading finds at or behind an event."""
        for piece in self.forwards(self.locate(seq, end), end):
            if piece.end.seq >= seq:
                return piece.end
        return end

    def _position_after(self, offset: int, limit: int) -> Position | None:
        """Return the first mark that can be found from an offset on, before a limit."""
        length = WINDOW
        while True:
            length = min(length, limit - offset)
            found = first_position(self.segment.read(offset, length), offset)
            if found is not None or offset + length >= limit:
                return found
            length *= 4

    def _remember(self, mark: Position) -> None:
        """Keep a mark for later searches; one for each 64 KiB at the most."""
        marks = self._marks
        place = bisect_right(marks, mark.offset, key=lambda known: known.offset)
        if mark.offset - marks[place - 1].offset < WINDOW:
            return
        if place < len(marks) and marks[place].offset - mark.offset < WINDOW:
            return
        # A new list, not an insertion: other threads may be searching the old one.
        self._marks = [*marks[:place], mark, *marks[place:]]

    # -- control records ----------------------------------------------------------------------

    def controls(self, offset: int, stop: int = 0) -> list[Line]:
        """Return the control records from `offset` back to, not including, the one at `stop`.

        In order, oldest first. Costs one small read for each (F-19).
        """
        found = []
        while offset > stop:
            line = self._line_at(offset)
            found.append(line)
            if not line.control or line.ctl >= offset:
                raise self.segment.damaged(offset, "invalid control-event offset")
            offset = line.ctl
        found.reverse()
        return found

    def first(self, end: Position) -> Line:
        """Return the first record before a mark: a segment has one from when it has its name (F-25)."""
        start = self.segment.start
        try:
            line = self._line_at(start.offset)
        except Damaged:
            line = None
        # Always, unless the file was cut inside its first append, which was whole when it got its name.
        if line is not None and line.log is None and line.seq + line.more <= end.seq:
            return line
        for piece in self.forwards(start, end):
            for found in piece.lines(format.decode_lines):
                return found
        raise self.segment.damaged(start.offset, "no whole record")

    def _line_at(self, offset: int) -> Line:
        """Return the record at an offset, checked from the trailer of the line before it."""
        before = offset - format.TRAILER
        length = 4096
        while True:
            data = self.segment.read_some(before, length)
            end = data.find(b"\n", format.TRAILER) + 1
            if end:
                break
            if len(data) < length or length > format.MAX_LINE:
                raise self.segment.damaged(offset, "no whole record")
            length *= 4
        crc = format.stored_crc(data[: format.TRAILER])
        raw = data[format.TRAILER : end]
        if crc is None or format.checked_crc(raw, crc) is None:
            raise self.segment.damaged(offset, "checksum mismatch")
        return segment_scan.decode(self.segment, offset, raw)


def _settle(piece: SegmentRange, decode_lines: Callable[[bytes], list[Any]]) -> list[Any]:
    """Decode a piece, drop notes and unfinished appends, and check that seqs follow (F-15, F-30)."""
    first = piece.start.seq + 1
    try:
        lines = decode_lines(piece.data)
        # The common case, checked without a loop in Python: nothing but records, none missing.
        if [line.seq for line in lines] == list(range(first, first + len(lines))):
            return lines
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        lines = None
    kept = segment_scan.committed(piece.segment, piece.start, piece.data, piece.end)
    if lines is not None and len(lines) == piece.data.count(b"\n"):
        return [lines[index] for index, _ in kept]
    wanted = b"".join(raw for _, raw in kept)
    try:
        return decode_lines(wanted)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise piece.segment.damaged(piece.start.offset, f"not a record: {error}") from error
