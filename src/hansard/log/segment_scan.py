"""Scan a segment line by line: where it is damaged, and which of its records can be trusted.

`segment_reader` checks many lines with one CRC and stops at damage. This module checks each line separately.
It knows the complete grammar (docs/format.md, F-27 to F-34) and which records of a damaged segment are
still valid (F-111). `verify`, `dump`, salvage and `repair` use it. Nothing here writes.
"""

import re
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

#: Maximum running checksums from which a line may follow.
_MOST_KNOWN: Final = 8

#: Minimum length of a record: limits how many events damaged bytes can have held.
_SHORTEST: Final = 64

#: Maximum number of missing events that is believed: lines that were cut out leave no bytes.
_MISSING: Final = 1000

_MISMATCH: Final = "checksum mismatch"
_MOVED: Final = "it is out of place"
_NO_PREDECESSOR: Final = "its checksum cannot be checked: the line before it is lost"
_CHECKSUM_ALONE: Final = "only its checksum is damaged"

#: How the note begins that names a discarded fragment (F-29).
_RECOVERED: Final = b'{"log":"recovered",'

# Compiled by their first use, on damaged bytes only.
_SEQ: Final = rb'"seq":([0-9]{1,18}),"time"'
_HEADER_SEQ: Final = rb'\{"log":"header","seq":([0-9]{1,18}),'
_TIME: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{6}Z"


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
        raw.decode()  # data are decoded later
    except DECODE_ERRORS as error:
        return None, f"not a record: {error}"
    return (line, "") if format.has_object(line) else (None, "not a record: data is not an object")


# -- lines --------------------------------------------------------------------------------------


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
    checksum that may be right there. A body or a checksum may be damaged, or a line inserted.
    """

    def __init__(self, start: Position, known_at: Mapping[int, int] | None = None) -> None:
        """`known_at`: see `Remains`."""
        self._offset = start.offset
        #: Running checksums after the lines before, the latest first. One of the first `fresh` is right
        #: before the next line; a line that follows from another one was moved.
        self._known = [start.crc]
        self._fresh = 1
        self._known_at = known_at
        #: False after a line without a checksum: the right value may be lost with it.
        self._sure = True
        self._fragment = False
        self._last = start.seq

    def lines(self, lines: Iterable[tuple[bytes, int]]) -> Iterator[ScannedLine]:
        """Yield the lines, each with what is wrong with it."""
        for (raw, length), (following, _) in pairwise(chain(lines, [(b"", 0)])):
            if self._known_at and self._offset in self._known_at:
                self._known.insert(0, self._known_at[self._offset])
                self._fresh, self._sure = self._fresh + 1, True
            found = self._judge(raw, length, following)
            self._offset += length
            if found.line is not None and found.line.log in {None, "header"}:
                self._last = max(self._last, found.line.seq)
            yield found

    def _judge(self, raw: bytes, length: int, following: bytes) -> ScannedLine:
        stored = format.stored_crc(raw)
        cut = length > len(raw)
        if stored is None and raw.endswith(format.TORN) and not cut:
            # A discarded fragment: the `recovered` note after it decides whether it may be here.
            # Or it was moved here: the values before it stay.
            new = [format.crc32(raw, crc) for crc in self._known[: self._fresh]]
            self._known = [*new, *self._known][:_MOST_KNOWN]
            self._sure, self._fragment = False, True
            return ScannedLine(self._offset, length, raw, None)
        line, reason, place = None, "longer than a record can be" if cut else "no checksum", -1
        if stored is not None and not cut:
            line, reason = _parse(raw)
            known = enumerate(self._known)
            place = next((at for at, crc in known if format.checked_crc(raw, crc) is not None), -1)
            if place >= self._fresh and line is not None:
                reason = _MOVED
        new = [] if stored is None else [stored]
        fresh, checked = 1, True
        if place < 0 or reason:
            # The damage may be in the checksum alone, or the line may have been inserted.
            meant = [format.crc_after(raw, crc) for crc in self._known[: self._fresh]]
            if place < 0 and stored is not None and not cut:
                reason = "" if line is None else self._trust(raw, line, meant, following)
                line, reason = (line, reason) if reason else (None, _MISMATCH)
                checked = reason != _NO_PREDECESSOR
                if not checked and not self._sure and not self._fragment:
                    reason = ""  # the line before it is the finding
            new += meant
            fresh = self._fresh + len(new)
        self._known = [*new, *self._known][:_MOST_KNOWN]
        self._fresh = min(fresh, _MOST_KNOWN)
        self._sure, self._fragment = stored is not None, False
        return ScannedLine(self._offset, length, raw, line, reason, checked)

    def _trust(self, raw: bytes, line: Line, meant: list[int], following: bytes) -> str:
        """Return why a line is valid whose checksum does not follow from those before; "" if it is not."""
        stored, next_stored = format.stored_crc(raw), format.stored_crc(following)
        if next_stored is not None and _follows(raw, [next_stored]):
            return _MOVED
        after, _ = _parse(following)
        followed = after is not None and after.seq == line.seq + (after.log is None)
        if followed and _follows(following, meant):
            # The next checksum, which covers this line, is right.
            return _CHECKSUM_ALONE
        gap = line.seq - self._last - 1
        if self._sure:
            # The line after it must follow from it, and an event must be missing before it.
            followed = followed and stored is not None and _follows(following, [stored])
            if not followed or line.log is not None or gap < (self._offset > 0):
                return ""
        if self._known_at is not None:
            return ""
        fits = line.log is not None or (0 <= gap <= _MISSING and _as_written(raw, line))
        return _NO_PREDECESSOR if fits else ""


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
    if not re.fullmatch(_TIME, line.time):
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

    With `final`, an unfinished append at the end is a torn tail and not damage (F-28). Of a damaged append,
    the valid records are kept, unless their seqs were assigned again (F-30).
    """
    seq, edge = start.seq, start.offset
    #: Records and damage since the last finished append, and the highest seq of these records.
    held: list[ScannedLine] = []
    highest = -1
    fragment: ScannedLine | None = None
    #: After damage, neither the next seq nor the append can be checked.
    unsure = False
    for seen in lines:
        line, wrong = seen.line, None
        if line is None and not seen.reason:
            fragment = fragment or seen
            continue
        if line is not None and not unsure and not seen.reason:
            wrong = _misplaced(seen, line, seq, edge, held, fragment)
            held += [wrong] if wrong else []
        fragment, unsure = None, unsure or bool(seen.reason or wrong)
        if line is None:
            held.append(seen)
            continue
        proven = seen.checked and not seen.reason
        again = line.seq + (line.log is not None)
        if highest >= again and proven:
            # These seqs are assigned again.
            held = [
                old
                for old in held
                if old.record is None or old.reason == _MOVED or old.record.seq < again
            ]
            highest = again - 1
        held.append(seen)
        if line.log is None:
            highest = max(highest, line.seq)
        if line.more or (line.log is not None and not proven):
            continue
        yield from held
        held, highest, unsure = [], -1, bool(seen.reason)
        seq, edge = line.seq, seen.offset + seen.length
    last = held[-1].line if held else None
    if end is not None and last is not None and last.seq == end.seq:
        # The lines were cut inside a batch that is known to be finished after the cut.
        yield from held
        return
    while held and not held[-1].reason:
        fragment = held.pop()
    yield from held
    if fragment is not None and not final:
        yield fragment.wrong("an append that was never finished")


def _misplaced(  # noqa: PLR0911 - each reason is a sentence
    seen: ScannedLine,
    line: Line,
    seq: int,
    edge: int,
    pending: list[ScannedLine],
    fragment: ScannedLine | None,
) -> ScannedLine | None:
    """Return what is wrong with the place of a line after undamaged ones, if anything."""
    if line.log is None:
        if fragment is not None:
            return fragment.wrong("an unfinished line inside the log")
        expected = seq + len(pending) + 1
        if line.seq != expected:
            return seen.wrong(f"seq {line.seq} where {expected} should be")
        before = pending[-1].line if pending else None
        if before is not None and line.more != before.more - 1:
            return seen.wrong("the append before it was never finished")
    elif line.seq != seq:
        return seen.wrong(f"the note says seq {line.seq}, but the seq before it is {seq}")
    elif line.log == "recovered":
        try:
            data = format.decode_recovered(line.data)
        except DECODE_ERRORS as error:
            return seen.wrong(f"not a note: {error}")
        if (data.offset, data.bytes) != (edge, seen.offset - edge):
            return seen.wrong(
                f"it names {data.bytes} unfinished bytes at {data.offset}, which is wrong"
            )
    elif pending or fragment is not None:
        return seen.wrong("an unfinished append before a note")
    return None


# -- damage -------------------------------------------------------------------------------------


def _settled_bytes(
    start: Position, data: bytes, *, final: bool, end: Position | None = None
) -> Iterator[ScannedLine]:
    """Yield what `_settled` says of the complete lines after a position."""
    lines = ((line + b"\n", len(line) + 1) for line in data.split(b"\n")[:-1])
    return _settled(start, _Walk(start).lines(lines), final=final, end=end)


def findings(start: Position, data: bytes, *, final: bool = True) -> Iterator[ScanFinding]:
    """Yield all damage in the lines after a position.

    Without `final`, the bytes are known to end between two appends, and an unfinished append is damage.
    """
    return (item.finding for item in _settled_bytes(start, data, final=final) if item.reason)


def committed(
    segment: "Segment", start: Position, data: bytes, end: Position
) -> list[tuple[ScannedLine, Line]]:
    """Return each line that is a record of a finished append, and the record; raise on damage."""
    kept = []
    for item in _settled_bytes(start, data, final=False, end=end):
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
    for finding in findings(start, data):
        raise segment.damaged(finding.offset, finding.reason)


def discarded(data: bytes) -> Iterator[ScanFinding]:
    """Yield the discarded fragments, by the notes in lines that have been checked (F-29)."""
    for raw in data.split(b"\n")[:-1] if _RECOVERED in data else ():
        # Not a note that a crash left unfinished.
        if raw.startswith(_RECOVERED) and format.stored_crc(raw + b"\n") is not None:
            note = format.decode_recovered(format.decode_line(raw).data)
            yield ScanFinding(
                note.offset, note.bytes, "a discarded fragment of an unfinished append"
            )


def salvage(segment: "Segment") -> Iterator[Line | ScanFinding]:
    """Yield the valid records of a segment, and its damage, in the order of the file."""
    for item in _settled(segment.start, scan(segment, segment.start)):
        if item.reason:
            yield item.finding
        if item.record is not None:
            yield item.record


# -- what is left -------------------------------------------------------------------------------


class Remains:
    """What is left of a segment, for a repair.

    Attributes:
        header: the header, unless more than its checksum is damaged; `created` is always set.
        before: the seq in the header, which may be wrong if that is damaged; None if it cannot be read.
        findings: the damage.
        unchecked: seqs of records that look valid, but whose checksum depends on a lost line.
        upto: the last seq that the segment is likely to have held.
        sealed_at: the last seq that it certainly held, if its `sealed` note is valid.
        controls: the number of lost lines that are known to have been control records.
    """

    def __init__(
        self, segment: "Raw", before: int = 0, known_at: Mapping[int, int] | None = None
    ) -> None:
        """`before`: the seq before the first event, as far as it is known.

        `known_at`: running checksums that are known at offsets; then a record that cannot be checked is lost.
        """
        self._segment = segment
        self.header: format.Header | None = None
        self.before: int | None = None
        self.findings: list[ScanFinding] = []
        self.unchecked: set[int] = set()
        self.upto = before
        self.sealed_at: int | None = None
        #: Offset and length of each record. Of two with one seq those of the later one: the writer gave up
        #: the earlier one, or both are equal.
        self._records: dict[int, tuple[int, int]] = {}
        #: Offset, length and seqs of each lost record, and the end of the last valid line.
        self._lost: list[tuple[int, int, list[int]]] = []
        self._valid_end = 0
        controls: set[int] = set()
        start = Position(0, before, 0)
        for item in _settled(start, _Walk(start, known_at).lines(_stream(segment, 0))):
            self._take(item)
            if item.record is not None and item.record.ctl:
                controls.add(item.record.ctl)
        self._estimate_end()
        self.controls = sum(
            any(offset <= ctl < offset + length for offset, length, _ in self._lost)
            for ctl in controls
        )

    def _take(self, item: ScannedLine) -> None:
        line = item.line
        if item.reason:
            self.findings.append(item.finding)
        if line is None:
            if item.offset == 0 and not item.raw.startswith(b'{"seq":'):
                said = re.match(_HEADER_SEQ, item.raw)
                self.before = int(said[1]) if said else None
            elif item.raw and not item.raw.startswith(b'{"log":'):
                seqs = [int(seq) for seq in re.findall(_SEQ, item.raw)]
                self._lost.append((item.offset, item.length, seqs))
            return
        if item.offset == 0 and line.log == "header":
            self._take_header(item, line)
        if line.log is not None and (item.reason or not item.checked):
            return
        self.upto = max(self.upto, line.seq)
        self._valid_end = item.offset + item.length
        if line.log is None:
            self._records[line.seq] = (item.offset, item.length)
            if not item.checked:
                self.unchecked.add(line.seq)
        elif line.log == "sealed":
            self.sealed_at = line.seq

    def _take_header(self, item: ScannedLine, line: Line) -> None:
        try:
            header = format.decode_header(line.data)
        except DECODE_ERRORS as error:
            self.findings.append(ScanFinding(0, item.length, f"not a header: {error}"))
            return
        header.created = header.created or line.time
        self.before, self.header = line.seq, header

    def _estimate_end(self) -> None:
        """Add the seqs that the damaged lines at the end are likely to have had."""
        before = self.before
        if before is None:
            before = min(self._records, default=1) - 1
        if not self._records:
            self.upto = max(self.upto, before)
        # With more damaged lines than missing seqs, one of them may have been moved here from the end.
        inside = sum(offset < self._valid_end for offset, _, _ in self._lost)
        spare = inside - (self.upto - before - len(self._records))
        tail = self._segment.size() - self._valid_end
        most = self.upto + max(spare, 0) - (-tail // _SHORTEST)
        for offset, _, seqs in self._lost:
            likely = [seq for seq in seqs if seq <= most and seq not in self._records]
            if not likely and offset >= self._valid_end:
                likely = [self.upto + 1]
            self.upto = max([self.upto, *likely])

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
