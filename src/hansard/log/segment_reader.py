"""Read a segment: its end, a range forwards, the last records backwards, a seq, its control records.

Opening one checks, in this order: is it a log of a known version, is its header intact, and is it this
session's? Reading takes no lock and writes nothing. Everything starts and ends at a `Position`, a place
between two appends. What lies between two positions is checked with one CRC before a line of it is decoded
(F-41). `segment_scan` checks line by line, and finds the damaged byte.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from time import sleep
from typing import Final, NamedTuple, TypeVar

import msgspec

from hansard.errors import Damaged, UnknownFormat
from hansard.log import disk, format, names, segment_scan
from hansard.log.format import DECODE_ERRORS, Line, LogEnd, Position

#: Bytes read at once: forwards, and at first backwards. A piece that stays in the processor's cache while it
#: is read, checked and decoded takes 15 % less time than a mebibyte; the smaller window holds the last fifty
#: messages of most sessions.
PIECE: Final = 1 << 17
#: The same, in the thread of a background compaction, which takes the interpreter for 0.1 ms with each of
#: these. The pause, in seconds, lets fewer than one in a hundred concurrent appends meet such a piece; a
#: compaction takes five times as long, 0.1 to 0.2 s for each MB.
SMALL_PIECE: Final = 1 << 15
_PAUSE: Final = 0.001
WINDOW: Final = 1 << 16

#: Bytes that a writer reads of what others have appended: most records are shorter.
_TAIL: Final = 1 << 12

#: Positions closer than this are not bisected any further: one read covers the distance.
_NEAR: Final = 2 * WINDOW

#: Maximum ends that are remembered.
_ENDS: Final = 8

#: Longer than any header: an id of 1,024 characters takes at most 6 bytes for each as JSON.
_HEADER_LIMIT: Final = 16 * 1024

_TOO_LONG: Final = "longer than a record can be"

L = TypeVar("L")


class Segment:
    """An open segment.

    Attributes:
        descriptor: the open file.
        durable: where it ended when the last sync of this process began; 0 if there was none.
        path: its path, for messages.
        start: the position after the header, where the first record begins.
        time: when the session began.
        session_id: the id that the header names.
        begins: the log begins here.
        previous: where the segment before this one ended; None if this is the first, or a compressed one.
        first_record: the session's first record, without data, if this is not the first segment.
    """

    def __init__(self, descriptor: int, path: str, session_id: str | None) -> None:
        self.descriptor = descriptor
        self.path = path
        self.durable = 0
        line, header, self.start = _read_header(self)
        self.session_id = header.session
        self.previous = header.previous
        self.begins = header.previous is None
        self.first_record = bytes(header.first)
        self.time = header.created or line.time
        if session_id is not None and self.session_id != session_id:
            raise self.damaged(0, f"this is the log of session {self.session_id!r}")

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly these bytes; a file that has become shorter is damaged."""
        data = self.read_some(offset, length)
        if len(data) != length:
            raise self.damaged(
                offset + len(data), "the file ends here, but it was longer: it has been cut"
            )
        return data

    def read_some(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes, fewer only at the end of the file."""
        try:
            data = disk.read_at(self.descriptor, length, offset)
            while data and len(data) < length:
                # A read may be short before the end: because of a signal, or after 2 GiB.
                more = disk.read_at(self.descriptor, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise disk.explain(error, "read", self.path) from error
        return data

    def size(self) -> int:
        """Return the size of the file."""
        return self._ask(disk.size)

    def identity(self) -> tuple[int, int]:
        """Return the device and the inode of the file."""
        return self._ask(disk.identity)

    def is_linked(self) -> bool:
        """Return whether the file has a name."""
        return self._ask(disk.links) > 0

    def _ask(self, question: Callable[[int], L]) -> L:
        try:
            return question(self.descriptor)
        except OSError as error:
            raise disk.explain(error, "open", self.path) from error

    def positions(self) -> list[Position]:
        """Return the positions that are known, in order, beginning with the start."""
        return [self.start]

    def known_end(self) -> LogEnd | None:
        """Return the end of a segment that nothing can be appended to, if it is known."""
        return None

    def damaged(self, offset: int, reason: str) -> Damaged:
        """Return the error for bytes that are not as they were written."""
        return Damaged(
            self.path,
            offset,
            reason,
            "nothing was skipped or changed; `verify` lists all damage of the session",
        )


class Raw(Segment):
    """A file that should be a segment, with any header or none."""

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path
        self.start = Position(0, 0, 0)


def _read_header(segment: Segment) -> tuple[format.Line, format.Header, Position]:
    """Return a segment's first line, its data, and the position after it; raise if it is not a header."""
    data = segment.read_some(0, _HEADER_LIMIT)
    raw = data[: data.find(b"\n") + 1]
    if not raw:
        raise segment.damaged(0, "empty file" if not data else "no complete header")
    try:
        line = format.decode_line(raw)
        header = format.decode_header(line.data)
    except DECODE_ERRORS:
        line = None
    if line is None or line.log != "header":
        raise segment.damaged(0, "not a header of a hansard log")
    if header.version != format.VERSION:
        raise UnknownFormat(
            f"{segment.path}: unsupported log version {header.version} (supported: {format.VERSION}); "
            "the file was not changed. Upgrade hansard"
        )
    crc = format.checked_crc(raw, 0)
    if crc is None:
        raise segment.damaged(0, "checksum mismatch in the header")
    try:
        if header.first:
            format.decode_first(header.first)
    except DECODE_ERRORS:
        raise segment.damaged(0, "the header names an invalid first record") from None
    return line, header, Position(len(raw), line.seq, crc)


def open_segment(
    directory: int, path: str, session_id: str | None, *, writable: bool
) -> Segment | None:
    """Open the active segment of a session directory; None if there is none yet."""
    try:
        descriptor = disk.open_file(directory, names.LOG, writable=writable)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk.explain(error, "open", path) from error
    return Segment(descriptor, path, session_id)


class SegmentRange(NamedTuple):
    """Complete, checked lines between two positions."""

    segment: Segment
    start: Position
    end: Position
    data: bytes

    def lines(self, decode_lines: Callable[[bytes], list[L]]) -> list[L]:
        """Decode the records, without notes and unfinished appends; check that seqs follow (F-15, F-30).

        The decoder returns objects with `seq`, `more` and `log`.
        """
        first = self.start.seq + 1
        try:
            lines = decode_lines(self.data)
            # The common case, without a loop in Python: nothing but records, none missing.
            seqs = [line.seq for line in lines]  # type: ignore[attr-defined]
            if seqs == list(range(first, first + len(lines))):
                return lines
            # Or with a note after them, as at the end of a sealed segment.
            *records, note = lines
            ended = note.log not in {None, "recovered"} and not (records and records[-1].more)  # type: ignore[attr-defined]
            if ended and seqs == [*range(first, first + len(records)), first + len(records) - 1]:
                return records
        except DECODE_ERRORS:
            pass  # discarded fragments, or damage
        kept = segment_scan.committed(self.segment, self.start, self.data, self.end)
        try:
            return decode_lines(b"".join(seen.raw for seen, _ in kept))
        except DECODE_ERRORS as error:
            raise self.segment.damaged(self.start.offset, f"not a record: {error}") from error


class _Background(threading.local):
    """Whether this thread is that of a background compaction, which lets others work."""

    active = False


background = _Background()


class SegmentReader:
    """Reads one open segment. Remembers positions, so that a second search starts nearer."""

    __slots__ = ("__weakref__", "_ends", "_positions", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        #: Some positions, in order, no two closer than a window.
        self._positions = segment.positions()
        #: The latest ends of the log, the last one first: a reader that follows it continues at one of them.
        self._ends: tuple[Position, ...] = ()

    # -- the end --------------------------------------------------------------------------------

    def log_end(self, known: LogEnd | None = None) -> LogEnd:
        """Return the end of the segment, reading only what is new since `known`."""
        size = self.segment.size()
        known = known or self.segment.known_end()
        if known is not None and size == known.size:
            return known
        end = self._find_end(known, size)
        self._ends = (end.position, *self._ends[: _ENDS - 1])
        return end

    def end_after(self, known: LogEnd, size: int) -> LogEnd | None:
        """Return the end of a segment that has grown to `size`, from its last record (F-39).

        For a writer that is not alone: to read and check all that others wrote takes longer than its append.
        None if the last line does not end an append that continues this log; then `log_end` decides.
        """
        start = known.position
        if size <= start.offset:
            return None
        read = self.segment.read_some
        begin = max(start.offset, size - _TAIL)
        data = read(begin, size - begin)
        last = data.rfind(b"\n", 0, -1) + 1
        line = _try_decode(data[last:])
        if line is None or line.log is not None or line.more:
            return None
        if begin == start.offset:
            crc = format.checked_crc(data, start.crc)
            follows = line.seq == start.seq + data.count(b"\n")
        else:
            before = format.stored_crc(data[:last])
            crc = None if before is None else format.checked_crc(data[last:], before)
            # What was known must still be there: a file that was cut may have grown again.
            there = format.stored_crc(read(start.offset - format.TRAILER, format.TRAILER))
            follows = there == start.crc and line.seq > start.seq
        if crc is None or not follows:
            return None
        ctl = begin + last if line.control else line.ctl
        return LogEnd(Position(size, line.seq, crc), ctl, (), size, line.time)

    def _find_end(self, known: LogEnd | None, size: int) -> LogEnd:
        segment = self.segment
        if known is not None:
            offset = known.position.offset
            if 0 <= size - offset <= WINDOW:
                return self._last(known.position, segment.read_some(offset, size - offset), known)
            if size < offset:
                raise segment.damaged(
                    size, f"the file was {known.size} bytes long and is shorter: it has been cut"
                )
        window = WINDOW
        while True:
            begin = max(segment.start.offset, size - window)
            data = segment.read_some(begin, size - begin)
            self._check_length(begin, data)
            if begin == segment.start.offset:
                return self._last(segment.start, data, None)
            found = first_position(data, begin)
            # A position at the very end tells where the last line ends, but not what it says.
            if found is not None and found.offset < begin + data.rfind(b"\n") + 1:
                end = self._last(found, data[found.offset - begin :], None)
                if end.position is not found:
                    return end
            # Once just past the longest line, so that a line without an end is found early.
            longest = format.MAX_LINE + 1
            window = longest if window < longest < 4 * window else 4 * window

    def _check_length(self, begin: int, data: bytes) -> None:
        """Raise if a window at the end contains a line that exceeds the limit (F-13)."""
        longest = format.MAX_LINE
        last = len(data) - data.rfind(b"\n") - 1
        if len(data) <= longest or (last <= longest and data.find(b"\n", 0, longest) >= 0):
            return
        # The scan finds its first byte, and skips holes: a sparse file of a tebibyte can be one such line.
        items = segment_scan.salvage(self.segment)
        damage = (item for item in items if isinstance(item, segment_scan.ScanFinding))
        found = next(damage, segment_scan.ScanFinding(begin, last, _TOO_LONG))
        raise self.segment.damaged(found.offset, found.reason)

    def _last(self, start: Position, data: bytes, known: LogEnd | None) -> LogEnd:
        """Check the lines after a position, and return what the last of them says."""
        segment = self.segment
        cut, line = last_line(data)
        size = start.offset + len(data)
        if line is None:
            segment_scan.raise_if_damaged(segment, start, data)
            if known is not None:
                return msgspec.structs.replace(known, size=size)
            return LogEnd(start, 0, (), size, "")
        complete = data[:cut]
        crc = format.checked_crc(complete, start.crc)
        if crc is None:
            raise segment_scan.first_damage(segment, start, complete)
        position = Position(start.offset + cut, line.seq, crc)
        if line.seq != start.seq + complete.count(b"\n"):
            # Notes, or an unfinished append; or seqs that do not follow (F-32).
            segment_scan.committed(segment, start, complete, position)
        # Complete lines after the last complete append belong to an unfinished one, or are damage.
        segment_scan.raise_if_damaged(segment, position, data[cut:])
        begin = start.offset + data.rfind(b"\n", 0, cut - 1) + 1
        if line.log is None:
            return LogEnd(position, begin if line.control else line.ctl, (), size, line.time)
        try:
            shut = format.decode_shut(line.data).shut
        except DECODE_ERRORS as error:
            raise segment.damaged(begin, f"not a note: {error}") from error
        return LogEnd(position, line.ctl, shut, size, "")

    def last_time(self, end: Position) -> str:
        """Return the time of the last event of a segment that ends in a note."""
        for piece in self.backwards(end):
            if lines := piece.lines(format.decode_lines):
                return lines[-1].time
        previous = self.segment.previous
        return self.segment.time if previous is None else previous.time

    # -- ranges ---------------------------------------------------------------------------------

    def forwards(self, start: Position, end: Position) -> Iterator[SegmentRange]:
        """Yield the lines from one position to another, in order."""
        if not background.active:
            yield from self._forwards(start, end, PIECE)
            return
        for piece in self._forwards(start, end, SMALL_PIECE):
            yield piece
            # Without a pause, a thread that waits for the interpreter gets it after 5 ms.
            sleep(_PAUSE)

    def _forwards(self, start: Position, end: Position, size: int) -> Iterator[SegmentRange]:
        segment = self.segment
        length = size
        finished = 0  # the last seq of a batch that is known to be finished
        while start.offset < end.offset:
            limit = min(start.offset + length, end.offset)
            positions = self._positions
            place = bisect_right(positions, limit, key=lambda known: known.offset)
            known = end if limit == end.offset else positions[place - 1]
            if known.offset > start.offset:
                data = segment.read(start.offset, known.offset - start.offset)
                yield self._checked(start, known, data)
                start, length = known, size
                continue
            data = segment.read(start.offset, length)
            cut = data.rfind(b"\n") + 1
            line = _line_before(data, cut)[1]
            if line is not None and line.more and line.seq + line.more != finished:
                # Not beyond a known position: where a frame begins, that would decompress one more.
                stop = min([*positions[place : place + 1], end], key=lambda known: known.offset)
                if self._was_finished(line, start.offset + cut, stop):
                    finished = line.seq + line.more
                else:
                    line = None
            if line is None:
                if length > format.MAX_LINE and not cut:
                    raise segment.damaged(start.offset, _TOO_LONG)
                # Nearly always an append that one checksum proves valid.
                if format.checked_crc(data[:cut], start.crc) is None:
                    segment_scan.raise_if_damaged(segment, start, data)
                length *= 2
                continue
            data = data[:cut]
            crc = format.checked_crc(data, start.crc)
            if crc is None:
                raise segment_scan.first_damage(segment, start, data)
            position = Position(start.offset + cut, line.seq, crc)
            yield SegmentRange(segment, start, position, data)
            self._remember(position)
            start, length = position, size

    def _was_finished(self, line: Line, end: int, stop: Position) -> bool:
        """Return whether the batch of a line, which ends at `end`, was finished; read at most up to `stop`.

        It was if a line has its last seq, and as many lines as seqs lie between (F-30). A long batch is read
        twice: to keep it in memory takes longer. And `find` takes half the time of `count`.
        """
        last = line.seq + line.more
        seq, upto = line.seq, min(last, stop.seq)
        begin = cut = offset = end
        step = WINDOW
        while seq < upto and offset < stop.offset:
            data = self.segment.read(offset, min(step, stop.offset - offset))
            found = 0
            while seq < upto and (found := data.find(b"\n", found) + 1):
                begin, cut, seq = cut, offset + found, seq + 1
            offset += len(data)
            step = min(2 * step, PIECE)
        there = _try_decode(self.segment.read(begin, cut - begin))
        if there is None or there.log is not None or (there.seq, there.more) != (upto, last - upto):
            return False
        # Before its last line, it is only known to be finished at a position.
        return there.more == 0 or cut == stop.offset

    def backwards(self, end: Position) -> Iterator[SegmentRange]:
        """Yield the lines before a position, the last range first; in a range, lines are in order."""
        segment = self.segment
        length = WINDOW // 4
        while end.offset > segment.start.offset:
            # Not beyond a known position: where a frame begins, that would decompress one more.
            place = bisect_left(self._positions, end.offset, key=lambda known: known.offset)
            first = self._positions[place - 1]
            begin = max(first.offset, end.offset - length)
            data = segment.read(begin, end.offset - begin)
            start = (
                first
                if begin == first.offset
                else first_position(data, begin, ends_at_position=True)
            )
            if start is None or start.offset >= end.offset:
                if length > format.MAX_LINE and b"\n" not in data[:-1]:
                    raise segment.damaged(begin, _TOO_LONG)
                length *= 4
                continue
            yield self._checked(start, end, data[start.offset - begin :])
            end = start
            length = min(length * 4, PIECE)

    def _checked(self, start: Position, end: Position, data: bytes) -> SegmentRange:
        """Return the lines between two positions; raise if the checksum at the second does not match."""
        crc = format.checked_crc(data, start.crc)
        if crc is None or crc != end.crc:
            raise segment_scan.first_damage(self.segment, start, data)
        return SegmentRange(self.segment, start, end, data)

    # -- positions ------------------------------------------------------------------------------

    def locate(self, seq: int, end: Position) -> Position:
        """Return a position at or shortly before the one after `seq` (F-12)."""
        if seq >= end.seq:
            return end
        for position in self._ends:
            if position.seq == seq:
                return position
        positions = self._positions
        place = bisect_right(positions, seq, key=lambda known: known.seq)
        low = positions[place - 1] if place else self.segment.start
        high = positions[place].offset if place < len(positions) else end.offset
        while high - low.offset > _NEAR:
            middle = (low.offset + high) // 2
            found = self._first_position(middle, high)
            if found is None or found.seq > seq:
                high = middle
            else:
                low = found
        self._remember(low)
        return low

    def position_after(self, seq: int, end: Position) -> Position:
        """Return the first position at or after an event that reading forwards finds."""
        for piece in self.forwards(self.locate(seq, end), end):
            if piece.end.seq >= seq:
                return piece.end
        return end

    def _first_position(self, offset: int, limit: int) -> Position | None:
        """Return the first position that can be found between two offsets."""
        length = WINDOW
        while True:
            length = min(length, limit - offset)
            found = first_position(self.segment.read(offset, length), offset)
            if found is not None or offset + length >= limit:
                return found
            length *= 4

    def _remember(self, position: Position) -> None:
        """Keep a position for later searches; at most one for each 64 KiB."""
        known = self._positions
        place = bisect_right(known, position.offset, key=lambda other: other.offset)
        if position.offset - known[place - 1].offset < WINDOW:
            return
        if place < len(known) and known[place].offset - position.offset < WINDOW:
            return
        # A new list, not an insertion: other threads may be searching the old one.
        self._positions = [*known[:place], position, *known[place:]]

    # -- single records -------------------------------------------------------------------------

    def controls(self, offset: int, stop: int = 0) -> list[Line]:
        """Return the control records from `offset` back to, not including, the one at `stop`.

        In order, oldest first. Each costs one small read (F-19).
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
        """Return the first record before a position: a segment begins with one (F-25)."""
        start = self.segment.start
        try:
            line = self._line_at(start.offset)
        except Damaged:
            line = None
        # Always, unless the file was cut inside its first append.
        if line is not None and line.log is None and line.seq + line.more <= end.seq:
            return line
        for piece in self.forwards(start, end):
            for found in piece.lines(format.decode_lines):
                return found
        raise self.segment.damaged(start.offset, "no complete record")

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
                raise self.segment.damaged(offset, "no complete record")
            length *= 4
        crc = format.stored_crc(data[: format.TRAILER])
        raw = data[format.TRAILER : end]
        if crc is None or format.checked_crc(raw, crc) is None:
            raise self.segment.damaged(offset, "checksum mismatch")
        return segment_scan.decode(self.segment, offset, raw)


# -- where appends begin and end, in bytes cut out of a segment ----------------------------------

# A batch may be much longer than what is read at once, and one that a crash left unfinished looks like any
# other until its end is seen. These functions decode few lines.


def last_line(data: bytes) -> tuple[int, Line | None]:
    """Return the end of the last complete append, and its last line; None if the lines have no such end."""
    cut = data.rfind(b"\n") + 1
    while cut:
        begin, line = _line_before(data, cut)
        if line is not None and line.more == 0:
            return cut, line
        cut = begin
    return 0, None


def _line_before(data: bytes, cut: int) -> tuple[int, Line | None]:
    """Return where the line begins that ends at `cut`, and the line; None if it is a fragment or missing."""
    begin = data.rfind(b"\n", 0, max(cut - 1, 0)) + 1
    raw = data[begin:cut]
    line = _try_decode(raw)
    if line is None and raw and not raw.endswith(format.TORN):
        # Not a line of a log, as the checksum up to here will prove.
        line = Line(seq=0, time="", data=msgspec.Raw(b"{}"), crc="")
    return begin, line


def first_position(data: bytes, offset: int, *, ends_at_position: bool = False) -> Position | None:
    """Return the first position inside a window that begins anywhere, at `offset` of the segment.

    A place inside a batch is valid if the batch was finished: as the window shows, or because the window ends
    at a position.
    """
    begin = data.find(b"\n") + 1
    searched = False
    while begin and (end := data.find(b"\n", begin) + 1):
        raw = data[begin:end]
        line, crc = _try_decode(raw), format.stored_crc(raw)
        if line is not None and crc is not None:
            # Once: it counts the lines of all of the window.
            if line.more == 0 or (
                not searched and _is_finished(line, data, end, ends_at_position=ends_at_position)
            ):
                return Position(offset + end, line.seq, crc)
            searched = True
        begin = end
    return None


def _is_finished(line: Line, data: bytes, end: int, *, ends_at_position: bool) -> bool:
    """Return whether a record, whose end is given, and all lines after it are of finished appends.

    They are if the last line ends an append and its seq is higher by the number of lines. Unfinished records
    and the note after them count no seq (F-15, F-30). This decodes two lines; the last fifty messages of a
    batch would take 170.
    """
    cut = data.rfind(b"\n") + 1
    last = _try_decode(data[data.rfind(b"\n", 0, cut - 1) + 1 : cut])
    return (
        last is not None
        and last.log is None
        and (ends_at_position or last.more == 0)
        and last.seq - line.seq == data.count(b"\n", end) > 0
    )


def _try_decode(raw: bytes) -> Line | None:
    try:
        return format.decode_line(raw)
    except DECODE_ERRORS:
        return None
