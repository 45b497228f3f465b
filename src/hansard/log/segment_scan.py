"""Scan a segment line by line: where it is damaged, and which of its records can be trusted.

`segment_reader` checks many lines with one CRC and stops at damage. This module checks each line separately.
It knows the complete grammar (docs/format.md, F-27 to F-34) and which records of a damaged segment are
still valid (F-111). `verify`, `dump`, salvage and `repair` use it. Nothing here writes.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from hansard.errors import Damaged
from hansard.log import disk, format
from hansard.log.format import DECODE_ERRORS, Line, Position

if TYPE_CHECKING:
    from hansard.log.segment_reader import Raw, Segment

#: Bytes of a segment that are read at once.
_PIECE: Final = 1 << 20

#: Maximum running checksums that are tried after damaged lines.
_MOST_KNOWN: Final = 8

#: Maximum distance, in lines, of a moved line from the line that it follows.
_NEAR: Final = 32

#: Minimum length of a record: limits how many events damaged bytes can have held.
_SHORTEST: Final = 64

#: Maximum number of missing lines that is believed: lines that were cut out leave no bytes.
_MISSING: Final = 1000

_MISMATCH: Final = "checksum mismatch"
_MOVED: Final = "it is out of place"
_NO_PREDECESSOR: Final = "its checksum cannot be checked: the line before it is lost"
_DOES_NOT_FIT: Final = "it cannot be checked, and does not fit here"
_CHECKSUM_ALONE: Final = "only its checksum is damaged"

#: How the note begins that names a discarded fragment (F-29).
_RECOVERED: Final = b'{"log":"recovered",'

_STAMP: Final = rb'"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{6}Z)"'
# Compiled by their first use, on damaged bytes only.
_SEQ: Final = rb'"seq":([0-9]{1,18}),"time"'
_HEADER_SEQ: Final = rb'^\{"log":"header","seq":([0-9]{1,18}),'
_TIME: Final = rb'"time":' + _STAMP
_CREATED: Final = rb'"created":' + _STAMP


class ScanFinding(NamedTuple):
    """Damage: its offset, its length in bytes, and what is wrong."""

    offset: int
    length: int
    reason: str


class ScannedLine(NamedTuple):
    """One complete line.

    With a line and a reason, the line is damaged or out of place, but its content can be trusted.
    """

    offset: int
    length: int
    raw: bytes
    #: None for a discarded fragment, for a line that cannot be trusted, and for the result of `wrong`.
    line: Line | None
    #: What is wrong with it; empty if nothing is.
    reason: str = ""
    #: False if its checksum depends on a line that is lost.
    checked: bool = True

    @property
    def finding(self) -> ScanFinding:
        """What is wrong with the line, and where."""
        return ScanFinding(self.offset, self.length, self.reason)

    def wrong(self, reason: str) -> "ScannedLine":
        """Return what is wrong with the place of a line, which is valid."""
        return self._replace(raw=b"", line=None, reason=reason)

    @property
    def record(self) -> Line | None:
        """The line, if it is a record and not a note."""
        return None if self.line is None or self.line.log is not None else self.line

    @property
    def is_note(self) -> bool:
        """True if a lost line was a note, by how it begins."""
        return self.raw.startswith(b'{"log":')

    @property
    def seqs(self) -> list[int]:
        """The seqs that a lost line still names."""
        return [int(seq) for seq in re.findall(_SEQ, self.raw)]


def decode(segment: "Segment", offset: int, raw: bytes) -> Line:
    """Decode one line, or raise `Damaged` for it."""
    line, reason = _parse(raw)
    if line is None:
        raise segment.damaged(offset, reason)
    return line


def _parse(raw: bytes) -> tuple[Line | None, str]:
    """Return the parsed line, or None and why it is not one."""
    try:
        line = format.decode_line(raw)
    except DECODE_ERRORS as error:
        return None, f"not a record: {error}"
    return (line, "") if format.has_object(line) else (None, "not a record: data is not an object")


# -- lines --------------------------------------------------------------------------------------


def _split(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each complete line of some bytes, and its length."""
    begin = 0
    while end := data.find(b"\n", begin) + 1:
        yield data[begin:end], end - begin
        begin = end


def _stream(segment: "Segment", offset: int) -> Iterator[tuple[bytes, int]]:
    """Yield each complete line of a segment from an offset on, and its length, one in memory at a time.

    Of a line that exceeds the limit, only the end is kept, where its checksum would be.
    """
    rest = bytearray()
    dropped = 0
    while data := segment.read_some(offset, _PIECE):
        offset += len(data)
        *lines, last = data.split(b"\n")
        for line in lines:
            rest += line + b"\n"
            yield bytes(rest), dropped + len(rest)
            rest, dropped = bytearray(), 0
        rest += last
        if dropped or len(rest) > format.MAX_LINE:
            dropped += max(0, len(rest) - format.TRAILER)
            del rest[: -format.TRAILER]
            # Skip holes, which are zeros without a newline: a sparse file can be a tebibyte long.
            if hole := disk.next_data(segment.descriptor, offset) - offset:
                offset, dropped, rest = offset + hole, dropped + hole, bytearray(len(rest))
    if dropped:
        yield bytes(rest), dropped + len(rest)


class _Walk:
    """Judges the lines after a position, each by its own bytes and its neighbors'.

    A damaged line does not invalidate others (F-20): the line after it is checked from every running
    checksum that may be right there, whether a body is damaged, a checksum, or a line was inserted.
    """

    def __init__(
        self,
        start: Position,
        known_at: Mapping[int, int] | None = None,
        stored: "array[int] | None" = None,
        *,
        proven_only: bool = False,
    ) -> None:
        """`known_at`, `proven_only`: see `Remains`.

        `stored`: the running checksum after each line, from its trailer, -1 for none; if it is known.
        """
        self._offset = start.offset
        #: The running checksums that may be right before the next line, and those that are if only the
        #: checksum of the last line is damaged.
        self._known: tuple[int, ...] = (start.crc,)
        self._meant: tuple[int, ...] = ()
        self._known_at = known_at or {}
        self._stored = stored or array("q")
        self._proven_only = proven_only
        #: False after a line without a checksum: the right value may be lost with it.
        self._sure = True
        self._fragment = False
        #: The last seq, and the damaged bytes since.
        self._last = start.seq
        self._spoilt = 0

    def lines(self, lines: Iterable[tuple[bytes, int]]) -> Iterator[ScannedLine]:
        """Yield the lines, each with what is wrong with it."""
        followed = pairwise(chain(lines, [(b"", 0)]))
        for place, ((raw, length), (following, _)) in enumerate(followed):
            found = self._judge(place, raw, length)
            if found.line is not None and found.reason == _MISMATCH:
                found = self._decide(found, found.line, following)
            yield self._count(found)

    def _judge(self, place: int, raw: bytes, length: int) -> ScannedLine:
        offset = self._offset
        self._offset += length
        if offset in self._known_at:
            self._known, self._sure = (self._known_at[offset], *self._known), True
        stored = format.stored_crc(raw)
        cut = length > len(raw)
        if stored is None and raw.endswith(format.TORN) and not cut:
            # A discarded fragment: the `recovered` note after it decides whether it may be here.
            self._known = tuple(format.crc32(raw, crc) for crc in self._known)
            self._fragment = True
            return ScannedLine(offset, length, raw, None)
        line, reason, checked = None, "longer than a record can be", True
        if not cut:
            line, reason = (None, "no checksum") if stored is None else _parse(raw)
        if not (right := _follows(raw, self._known)) and stored is not None and not cut:
            reason, checked = self._doubt(place, raw, line, reason)
        self._fragment = False
        self._sure = stored is not None
        if right and not reason and stored is not None:
            self._known = (stored,)
        else:
            # The damage may be in the checksum alone, or the line may have been inserted.
            self._meant = tuple(format.crc_after(raw, crc) for crc in self._known)
            said = () if stored is None else (stored,)
            self._known = (*said, *self._meant, *self._known)[:_MOST_KNOWN]
        return ScannedLine(offset, length, raw, line, reason, checked)

    def _doubt(self, place: int, raw: bytes, line: Line | None, reason: str) -> tuple[str, bool]:
        """Return what is wrong with a line that does not follow, and whether it could be checked."""
        near = self._stored[max(0, place - _NEAR) : place + _NEAR]
        if line is None:
            return _MISMATCH if self._sure else reason, True
        if _follows(raw, (crc for crc in near if crc != -1)):
            return _MOVED, True
        if self._fragment:
            # The note that belongs to the fragment is missing.
            return _NO_PREDECESSOR, False
        return (_MISMATCH, True) if self._sure else ("", False)

    def _decide(self, suspect: ScannedLine, line: Line, following: bytes) -> ScannedLine:
        """Decide, by the line after it, on a line whose checksum does not follow from those before."""
        after, _ = _parse(following)
        if after is not None and after.seq == line.seq + (after.log is None):
            if _follows(following, self._meant):
                # The next checksum, which covers this line, is right.
                return suspect._replace(reason=_CHECKSUM_ALONE)
            gap = line.seq - self._last - 1
            believed = line.log is None and (suspect.offset > 0) <= gap <= _MISSING
            if believed and _follows(following, self._known):
                # The line after it follows from it, in checksum and seq: the line before it is missing.
                return suspect._replace(reason=_NO_PREDECESSOR, checked=False)
        return suspect._replace(line=None)

    def _count(self, found: ScannedLine) -> ScannedLine:
        """Accept or reject a line that could not be checked, and count seqs."""
        line = found.line
        if line is not None and not found.checked:
            near = 0 < line.seq - self._last <= 1 + _MISSING + self._spoilt // _SHORTEST
            fits = line.log is not None or (near and _as_written(found.raw, line))
            if self._proven_only or not fits:
                found = found._replace(line=None, reason=found.reason or _DOES_NOT_FIT)
        line = found.line
        if line is not None and line.log in {None, "header"}:
            self._last, self._spoilt = max(self._last, line.seq), 0
        elif line is None and found.reason:
            self._spoilt += found.length
        return found


def _follows(raw: bytes, before: Iterable[int]) -> bool:
    """Return whether a line has the checksum that follows from one of these."""
    return any(format.checked_crc(raw, crc) is not None for crc in before)


def _as_written(raw: bytes, line: Line) -> bool:
    """Return whether a line is, except for its checksum, what a writer makes of its content."""
    try:
        # Raw data is not parsed yet.
        msgspec.json.decode(line.data)
    except DECODE_ERRORS:
        return False
    if not re.fullmatch(_TIME, b'"time":"%b"' % line.time.encode()):
        return False
    again, _ = format.copy_record(line, 0, ctl=line.ctl, unknown=format.unknown_members(raw))
    return again[: -format.TRAILER] == raw[: -format.TRAILER]


def scan(segment: "Segment", start: Position) -> Iterator[ScannedLine]:
    """Yield each complete line of a segment from a position on, with what is wrong with it."""
    return _Walk(start).lines(_stream(segment, start.offset))


# -- appends ------------------------------------------------------------------------------------


def _settled(  # noqa: C901 - the rules of F-27 to F-34, in one place
    start: Position,
    lines: Iterable[ScannedLine],
    *,
    final: bool = True,
    end: Position | None = None,
) -> Iterator[ScannedLine]:
    """Yield notes, records of finished appends, and damage, in the order of their lines.

    With `final`, an unfinished append at the end is a torn tail and not damage (F-28).
    """
    seq = start.seq
    edge = start.offset
    pending: list[ScannedLine] = []
    fragment: ScannedLine | None = None
    unsure = False
    for seen in lines:
        line = seen.line
        if seen.reason:
            # Of a damaged batch, what is valid; unless a note says that it was never finished.
            yield from pending if line is None or line.log is None else _upto(pending, line.seq)
            yield seen
            # What was there is unknown: neither the next seq nor the batch can be checked.
            pending, fragment, unsure = [], None, True
        elif line is None:
            fragment = fragment or seen
        elif line.log is not None:
            reason = "" if unsure else _misplaced(line, seq, seen.offset, edge, pending, fragment)
            if reason:
                yield seen.wrong(reason)
            # In a valid log there are none: a note has the seq of the last event.
            yield from _upto(pending, line.seq)
            yield seen
            pending, fragment, seq, unsure = [], None, line.seq, False
            edge = seen.offset + seen.length
        else:
            if fragment is not None:
                yield fragment.wrong("an unfinished line inside the log")
                yield from _upto(pending, line.seq - 1)
                pending, fragment = [], None
            wrong = "" if unsure else _out_of_turn(line, seq, pending)
            if wrong:
                yield seen.wrong(wrong)
                yield from _upto(pending, line.seq - 1)
                pending = []
            pending.append(seen)
            if line.more == 0:
                yield from pending
                pending, seq, unsure = [], line.seq, False
                edge = seen.offset + seen.length
    if pending and end is not None and _seq(pending[-1]) == end.seq:
        # The lines were cut inside a batch that is known to be finished after the cut.
        yield from pending
    elif not final and (last := pending[0] if pending else fragment) is not None:
        yield last.wrong("an append that was never finished")


def _upto(pending: list[ScannedLine], seq: int) -> list[ScannedLine]:
    """Return those records up to a seq: they were acknowledged, and the rest of their append is lost."""
    return [seen for seen in pending if _seq(seen) <= seq]


def _seq(seen: ScannedLine) -> int:
    return -1 if seen.line is None else seen.line.seq


def _misplaced(
    line: Line,
    seq: int,
    offset: int,
    edge: int,
    pending: list[ScannedLine],
    fragment: ScannedLine | None,
) -> str:
    """Return what is wrong with a note at this place, if anything."""
    if line.seq != seq:
        return f"the note says seq {line.seq}, but the seq before it is {seq}"
    if line.log == "recovered":
        try:
            data = format.decode_recovered(line.data)
        except msgspec.MsgspecError as error:
            return f"not a note: {error}"
        if (data.offset, data.bytes) != (edge, offset - edge):
            return f"it names {data.bytes} unfinished bytes at {data.offset}, which is wrong"
    elif pending or fragment is not None:
        return "an unfinished append before a note"
    return ""


def _out_of_turn(line: Line, seq: int, pending: list[ScannedLine]) -> str:
    """Return what is wrong with a record at this place, if anything."""
    expected = seq + len(pending) + 1
    if line.seq != expected:
        return f"seq {line.seq} where {expected} should be"
    before = pending[-1].line if pending else None
    if before is not None and line.more != before.more - 1:
        return "the append before it was never finished"
    return ""


# -- damage -------------------------------------------------------------------------------------


def findings(start: Position, data: bytes, *, final: bool = True) -> Iterator[ScanFinding]:
    """Yield all damage in the lines after a position.

    Without `final`, the bytes are known to end between two appends, and an unfinished append is damage.
    """
    items = _settled(start, _Walk(start).lines(_split(data)), final=final)
    return (item.finding for item in items if item.reason)


def committed(
    segment: "Segment", start: Position, data: bytes, end: Position
) -> list[tuple[ScannedLine, Line]]:
    """Return each line that is a record of a finished append, and the record; raise on damage."""
    kept = []
    for item in _settled(start, _Walk(start).lines(_split(data)), final=False, end=end):
        if item.reason:
            raise segment.damaged(item.offset, item.reason)
        if item.record is not None:
            kept.append((item, item.record))
    return kept


def first_damage(segment: "Segment", start: Position, data: bytes) -> Damaged:
    """Return the error for lines whose checksum is known not to match."""
    for finding in findings(start, data, final=False):
        return segment.damaged(finding.offset, finding.reason)
    # Each line is right, so what follows them, and was right before, is not.
    return segment.damaged(start.offset, _MISMATCH)


def raise_if_damaged(segment: "Segment", start: Position, data: bytes) -> None:
    """Raise for damage in what should be a torn tail; its unfinished last line is not damage."""
    if b"\n" not in data:
        return
    for finding in findings(start, data):
        raise segment.damaged(finding.offset, finding.reason)


def discarded(data: bytes) -> Iterator[ScanFinding]:
    """Yield the discarded fragments, by the notes in lines that have been checked (F-29)."""
    begin = data.find(_RECOVERED)
    while begin >= 0:
        end = data.find(b"\n", begin) + 1
        raw = data[begin:end]
        # Not inside another line; and not a note that a crash left unfinished.
        if data[max(0, begin - 1) : begin] in {b"", b"\n"} and format.stored_crc(raw) is not None:
            note = format.decode_recovered(format.decode_line(raw).data)
            yield ScanFinding(
                note.offset, note.bytes, "a discarded fragment of an unfinished append"
            )
        begin = data.find(_RECOVERED, end)


# -- what is left -------------------------------------------------------------------------------


def salvage(segment: "Segment") -> Iterator[Line | ScanFinding]:
    """Yield the valid records of a segment, and its damage, in the order of the file."""
    for item in _salvaged(_settled(segment.start, scan(segment, segment.start))):
        if item.reason:
            yield item.finding
        if item.record is not None:
            yield item.record


def _salvaged(items: Iterable[ScannedLine]) -> Iterator[ScannedLine]:
    """Yield the same without records whose seqs were assigned again.

    Before damage may be records of an unfinished append, of which only the note is damaged: then their seqs
    were assigned again (F-30).
    """
    held: list[ScannedLine] = []
    highest = -1  # their highest seq
    for item in items:
        line = item.record
        if line is not None and line.seq <= highest:
            held = [
                old
                for old in held
                if old.record is None or old.reason == _MOVED or old.record.seq < line.seq
            ]
        held.append(item)
        highest = highest if line is None else max(highest, line.seq)
        if line is not None and line.more == 0:
            yield from held
            held, highest = [], -1
    yield from held


class LeftHeader(NamedTuple):
    """What is left of a segment's header; None where it is unknown."""

    #: The seq before the first event.
    before: int | None = None
    created: str = ""
    #: The rest is known only if nothing but the header's checksum is damaged.
    session: str | None = None
    previous: format.Previous | None = None
    first: bytes = b""


class Remains:
    """What is left of a segment, for a repair.

    Attributes:
        header: the header, as far as it can be read.
        findings: the damage.
        unchecked: seqs of records that look valid, but whose checksum depends on a lost line.
        upto: the last seq that the segment is likely to have held.
        sealed_at: the last seq that it certainly held, if its `sealed` note is valid.
        controls: the number of lost lines that are known to have been control records.
    """

    def __init__(
        self,
        segment: "Raw",
        before: int = 0,
        *,
        known_at: Mapping[int, int] | None = None,
        proven_only: bool = False,
    ) -> None:
        """`before`: the seq before the first event, as far as it is known.

        `known_at`: running checksums that are known at offsets. `proven_only`: a record that cannot be
        checked is lost.
        """
        self._segment = segment
        self.header = LeftHeader()
        self.findings: list[ScanFinding] = []
        self.unchecked: set[int] = set()
        self.upto = before
        self.sealed_at: int | None = None
        #: Offset and length of each record. Of two with one seq those of the later one: the writer gave up
        #: the earlier one, or both are equal.
        self._records: dict[int, tuple[int, int]] = {}
        #: Lost lines, and the number of those before the last valid line.
        self._lost: list[ScannedLine] = []
        self._inside = 0
        controls: set[int] = set()
        start = Position(0, before, 0)
        crcs = (format.stored_crc(raw) for raw, _ in _stream(segment, 0))
        stored = array("q", (-1 if crc is None else crc for crc in crcs))
        walk = _Walk(start, known_at, stored, proven_only=proven_only)
        for item in _salvaged(_settled(start, walk.lines(_stream(segment, 0)))):
            self._take(item)
            if item.record is not None and item.record.ctl:
                controls.add(item.record.ctl)
        self._estimate_end()
        self.controls = sum(
            any(lost.offset <= offset < lost.offset + lost.length for lost in self._lost)
            for offset in controls
        )

    def _take(self, item: ScannedLine) -> None:
        if item.reason:
            self.findings.append(item.finding)
        line = item.line
        if line is None:
            if item.offset == 0 and not item.raw.startswith(b'{"seq":'):
                self.header = _left_of(item.raw)
            elif item.raw:
                self._lost.append(item)
        elif line.log is None:
            if not item.checked:
                self.unchecked.add(line.seq)
            self._records[line.seq] = (item.offset, item.length)
            self.upto = max(self.upto, line.seq)
            self._inside = len(self._lost)
        elif item.offset == 0 and line.log == "header":
            self._take_header(item, line)
        elif item.checked and not item.reason:
            self.upto = max(self.upto, line.seq)
            self._inside = len(self._lost)
            if line.log == "sealed":
                self.sealed_at = line.seq

    def _take_header(self, item: ScannedLine, line: Line) -> None:
        try:
            header = format.decode_header(line.data)
        except msgspec.MsgspecError as error:
            self.findings.append(ScanFinding(0, item.length, f"not a header: {error}"))
            return
        created = header.created or line.time
        self.header = LeftHeader(
            line.seq, created, header.session, header.previous, bytes(header.first)
        )
        self.upto = max(self.upto, line.seq)

    def _estimate_end(self) -> None:
        """Add the seqs that the damaged lines at the end are likely to have had."""
        before = self.header.before or 0
        if not self._records:
            self.upto = max(self.upto, before)
        elif self.header.before is None:
            before = min(self._records) - 1
        records = [lost for lost in self._lost[: self._inside] if not lost.is_note]
        # With more damaged lines than missing seqs, one of them may have been moved here from the end.
        spare = len(records) - (self.upto - before - len(self._records))
        said = [seq for lost in records for seq in lost.seqs if seq <= self.upto + spare]
        self.upto = max([self.upto, *said])
        for lost in self._lost[self._inside :]:
            if not lost.is_note:
                most = self.upto + 1 + lost.length // _SHORTEST
                likely = [seq for seq in lost.seqs if seq <= most]
                self.upto = max([self.upto, *likely] if lost.seqs else [self.upto + 1])

    @property
    def first_seq(self) -> int | None:
        """The lowest seq of which a record is left; None if there is none."""
        return min(self._records, default=None)

    def has_any(self, first: int, last: int) -> bool:
        """Return whether a record of these seqs is left."""
        return any(first <= seq <= last for seq in self._records)

    def records(self, after: int) -> Iterator[tuple[Line, bytes]]:
        """Yield the records after a seq, in order, with the members that are unknown here."""
        for seq in sorted(self._records):
            if seq > after:
                offset, length = self._records[seq]
                raw = self._segment.read(offset, length)
                yield decode(self._segment, offset, raw), format.unknown_members(raw)


def _left_of(raw: bytes) -> LeftHeader:
    """Return what a damaged header still says; it may be wrong."""
    seq = re.search(_HEADER_SEQ, raw)
    time = re.search(_CREATED, raw) or (None if b'"previous"' in raw else re.search(_TIME, raw))
    return LeftHeader(int(seq[1]) if seq else None, time[1].decode() if time else "")
