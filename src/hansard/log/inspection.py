"""Walk a segment line by line: find the damaged byte, or the records that a crash left unfinished.

Above: `reader`, `upkeep.verify`.  Below: `segment`, `format`.
The slow way, in Python, taken only when the one CRC over many lines does not match or when a
segment holds notes. It knows the whole grammar: docs/format.md, F-27 to F-34.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from hansard.errors import Damaged
from hansard.log import disk, format
from hansard.log.format import Line, Mark
from hansard.log.segment import Segment

#: How much of a segment is read at once when all of its damage is looked for.
_PIECE: Final = 1 << 20

#: How many values are tried behind damaged lines that follow one another.
_MOST_KNOWN: Final = 8


_NO_OBJECT: Final = "not a record: its data are no JSON object"


#: How the note begins that names a discarded fragment (F-29).
_RECOVERED: Final = b'{"log":"recovered",'


class Finding(NamedTuple):
    """Damage: where it is, how many bytes it takes, and what is wrong with them."""

    offset: int
    length: int
    reason: str


class Seen(NamedTuple):
    """One whole line, as the walk saw it."""

    place: int
    offset: int
    length: int
    raw: bytes
    #: None for an abandoned line, and for a damaged one.
    line: Line | None
    finding: Finding | None


def decode(segment: Segment, offset: int, raw: bytes) -> Line:
    """Decode one line, or raise `Damaged` for it."""
    try:
        line = format.decode_line(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise segment.damaged(offset, f"not a record: {error}") from error
    if not format.has_object(line):
        raise segment.damaged(offset, _NO_OBJECT)
    return line


def _split(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each whole line of some bytes, and its length."""
    begin = 0
    while end := data.find(b"\n", begin) + 1:
        yield data[begin:end], end - begin
        begin = end


def stream(segment: Segment) -> Iterator[tuple[bytes, int]]:
    """Yield each whole line of a segment, and its length, with no more than one in memory.

    Of a line that is longer than a line can be, only the end is kept: there its checksum would stand.
    """
    offset = segment.start.offset
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
            # A hole is zeros, in which no line ends: a sparse file of a tebibyte is read in no time.
            if hole := disk.next_data(segment.descriptor, offset) - offset:
                offset, dropped, rest = offset + hole, dropped + hole, bytearray(len(rest))
    if dropped:
        yield bytes(rest), dropped + len(rest)


def _walk(start: Mark, lines: Iterable[tuple[bytes, int]]) -> Iterator[Seen]:
    """Yield each whole line behind a mark, with what is wrong with it.

    One damaged line spoils no other (F-21): the line behind it is checked from every value that may be
    right there, be the damage in a line's body, in its checksum, or a line that does not belong here.
    """
    known: tuple[int, ...] = (start.crc,)
    # False behind a line that says no checksum: it may have taken the only right value with it.
    sure = True
    offset = start.offset
    for place, (raw, length) in enumerate(lines):
        line: Line | None = None
        reason = ""
        stored = format.stored_crc(raw)
        cut = length > len(raw)
        if stored is None and raw.endswith(format.TORN) and not cut:
            # Abandoned: whether it may be here, only the `recovered` note behind it can say.
            known = tuple(format.crc32(raw, crc) for crc in known)
        else:
            right = any(format.checked_crc(raw, crc) is not None for crc in known)
            if cut:
                reason = "longer than a record can be"
            elif stored is None:
                reason = "no checksum"
            elif sure and not right:
                reason = "checksum mismatch"
            else:
                try:
                    line = format.decode_line(raw)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    reason = f"not a record: {error}"
                else:
                    if not format.has_object(line):
                        line, reason = None, _NO_OBJECT
            known, sure = after(raw, stored, known if reason else ()), stored is not None
        finding = Finding(offset, length, reason) if reason else None
        yield Seen(place, offset, length, raw, line, finding)
        offset += length


def after(raw: bytes, stored: int | None, known: tuple[int, ...]) -> tuple[int, ...]:
    """Return the running checksums that may be right behind a line; `known` if it is damaged."""
    said = () if stored is None else (stored,)
    # The damage may be in the checksum alone, or the whole line may be too much.
    meant = tuple(format.crc_after(raw, crc) for crc in known)
    return (*said, *meant, *known)[:_MOST_KNOWN]


def findings(start: Mark, data: bytes, *, final: bool = True) -> Iterator[Finding]:
    """Yield all damage in the lines behind a mark.

    With `final`, what is left open at the end (an unfinished batch, an abandoned line) is a torn tail and no
    damage (F-28); otherwise the bytes are known to end between two appends, and it is.
    """
    for item in _settled(start, _split(data), final=final):
        if isinstance(item, Finding):
            yield item


def all_findings(segment: Segment) -> Iterator[Finding]:
    """Yield all damage of a segment, reading it in pieces."""
    for item in _settled(segment.start, stream(segment), final=True):
        if isinstance(item, Finding):
            yield item


def walk(segment: Segment) -> Iterator[Seen]:
    """Yield each whole line behind the header of a segment, with what is wrong with the line itself."""
    return _walk(segment.start, stream(segment))


def salvage(segment: Segment) -> Iterator[Line | Finding]:
    """Yield the whole records of a segment, and its damage, in order, reading it in pieces."""
    held: list[Line | Finding] = []
    for item in _settled(segment.start, stream(segment), final=True):
        if isinstance(item, Finding):
            held.append(item)
            continue
        line = item.line
        assert line is not None  # only whole records are yielded
        # In front of damage may stand records of an append that a crash left unfinished, with only the note
        # that said so damaged: then their seqs were given out again (F-30).
        held = [old for old in held if isinstance(old, Finding) or old.seq < line.seq]
        held.append(line)
        if line.more == 0:
            yield from held
            held = []
    yield from held


def committed(segment: Segment, start: Mark, data: bytes, end: Mark) -> list[tuple[int, bytes]]:
    """Return place and bytes of each line that is a record of a finished append; raise on damage."""
    kept = []
    for item in _settled(start, _split(data), final=False, end=end):
        if isinstance(item, Finding):
            raise segment.damaged(item.offset, item.reason)
        kept.append((item.place, item.raw))
    return kept


def discarded(data: bytes) -> Iterator[Finding]:
    """Yield the fragments that were discarded, by the notes in lines that have been checked (F-29)."""
    begin = data.find(_RECOVERED)
    while begin >= 0:
        end = data.find(b"\n", begin) + 1
        raw = data[begin:end]
        # Not inside another line; and not a note that a crash left unfinished.
        if data[max(0, begin - 1) : begin] in {b"", b"\n"} and format.stored_crc(raw) is not None:
            note = format.decode_recovered(format.decode_line(raw).data)
            yield Finding(note.offset, note.bytes, "a discarded fragment of an unfinished append")
        begin = data.find(_RECOVERED, end)


def first_damage(segment: Segment, start: Mark, data: bytes) -> Damaged:
    """Return the error for lines whose checksum is known not to match."""
    for finding in findings(start, data, final=False):
        return segment.damaged(finding.offset, finding.reason)
    # Each line is right by itself, so what lies behind them, and was right before, is not.
    return segment.damaged(start.offset, "checksum mismatch")


def raise_if_damaged(segment: Segment, start: Mark, data: bytes) -> None:
    """Raise for damage in what should be a torn tail; its unfinished last line is no damage."""
    if b"\n" not in data:
        return
    for finding in findings(start, data):
        raise segment.damaged(finding.offset, finding.reason)


def _settled(  # noqa: C901 - the rules of F-27 to F-34, in one place
    start: Mark, lines: Iterable[tuple[bytes, int]], *, final: bool, end: Mark | None = None
) -> Iterator[Seen | Finding]:
    """Yield the records of finished appends, and findings, in the order of their lines."""
    seq = start.seq
    edge = start.offset
    pending: list[Seen] = []
    abandoned: Seen | None = None
    unsure = False
    for seen in _walk(start, lines):
        line = seen.line
        if seen.finding is not None:
            # Of a batch that is damaged, what is whole; whoever wants whole batches stops at the finding.
            yield from pending
            yield seen.finding
            # What stood there is unknown: neither the next seq nor the batch can be checked.
            pending, abandoned, unsure = [], None, True
            continue
        if line is None:
            abandoned = abandoned or seen
            continue
        if line.log is not None:
            reason = "" if unsure else _misplaced(line, seq, seen.offset, edge, pending, abandoned)
            if reason:
                yield Finding(seen.offset, seen.length, reason)
            pending, abandoned, seq, unsure = [], None, line.seq, False
            edge = seen.offset + seen.length
            continue
        if abandoned is not None:
            yield Finding(abandoned.offset, abandoned.length, "an unfinished line inside the log")
            pending, abandoned = [], None
        wrong = _out_of_turn(line, seq, pending)
        if wrong and not unsure:
            yield Finding(seen.offset, seen.length, wrong)
            pending = []
        pending.append(seen)
        if line.more == 0:
            yield from pending
            pending, seq, unsure = [], line.seq, False
            edge = seen.offset + seen.length
    if pending and end is not None and _seq(pending[-1]) == end.seq:
        # The lines were cut inside a batch that is known to have been finished behind the cut.
        yield from pending
    elif not final and (pending or abandoned):
        last = pending[0] if pending else abandoned
        assert last is not None  # one of the two is there
        yield Finding(last.offset, last.length, "an append that was never finished")


def _seq(seen: Seen) -> int:
    return -1 if seen.line is None else seen.line.seq


def _misplaced(
    line: Line, seq: int, offset: int, edge: int, pending: list[Seen], abandoned: Seen | None
) -> str:
    """Say what is wrong with a note at this place, if anything."""
    if line.seq != seq:
        return f"the note says seq {line.seq}, but {seq} stands before it"
    if line.log == "recovered":
        try:
            data = format.decode_recovered(line.data)
        except msgspec.MsgspecError as error:
            return f"not a note: {error}"
        if (data.offset, data.bytes) != (edge, offset - edge):
            return f"it names {data.bytes} unfinished bytes at {data.offset}, which is not so"
    elif pending or abandoned is not None:
        return "an unfinished append before a note"
    return ""


def _out_of_turn(line: Line, seq: int, pending: list[Seen]) -> str:
    """Say what is wrong with a record at this place, if anything."""
    expected = seq + len(pending) + 1
    if line.seq != expected:
        return f"seq {line.seq} where {expected} should be"
    if pending:
        before = pending[-1].line
        if before is not None and line.more != before.more - 1:
            return "an append that was never finished stands before it"
    return ""
