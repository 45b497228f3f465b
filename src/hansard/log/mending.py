"""Find every record of a damaged segment that is whole, and put them in order again.

Above: `backend.repair`.  Below: `inspection`, `segment`, `format`.
`inspection` says where a log is damaged, and stops trusting early. This asks the opposite: what of it can be
trusted after all? A line proves itself by its checksum, which runs on from another line's, and that line need
not stand in front of it any more. What is wanted is each seq once; where nothing is left of one, the caller
puts something in its place. Nothing here writes. docs/format.md, F-110 to F-118.
"""

import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from hansard.log import format, inspection
from hansard.log.format import Line
from hansard.log.inspection import Finding
from hansard.log.segment import Segment

#: A line that was moved is looked for this many lines away.
_NEAR: Final = 32

#: No record is shorter: what is damaged cannot have held more of them than this allows.
_SHORTEST: Final = 64

#: Lines that are simply gone leave no bytes. So many are believed to be, on the word of a line alone.
_GONE: Final = 1000

_SEQ: Final = re.compile(rb'"seq":([0-9]{1,18}),"time"')
_HEADER_SEQ: Final = re.compile(rb'^\{"log":"header","seq":([0-9]{1,18}),')
_TIME: Final = re.compile(rb'"time":"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{6}Z)"')
_CREATED: Final = re.compile(rb'"created":"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{6}Z)"')


class Header(NamedTuple):
    """What is left of a segment's header."""

    #: The line, if it is whole.
    line: bytes
    #: The seq before the first event, and when the session began: None where nothing says it.
    before: int | None
    created: str | None


class _Suspect(NamedTuple):
    """A line that is whole to look at, and does not follow from those before it."""

    offset: int
    raw: bytes
    line: Line
    #: What runs on behind it if only its own checksum is wrong.
    meant: tuple[int, ...]


class Survey:
    """What can still be read of a segment.

    Attributes:
        header: its header, as far as it can be read.
        findings: the lines that cannot be read, and those that had to be moved.
        unchecked: seqs of records that are whole to look at, but whose checksum cannot be checked, since it
            runs on from a line that is lost.
        shut: what the last note says (F-34).
        lost_upto: the last seq that damaged lines at the end are likely to have had.
        controls: how many lost lines are known to have been control records.
        unknown: members that this version does not know, by seq, of the records that `records` has yielded.
    """

    def __init__(
        self,
        segment: Segment,
        known_at: Mapping[int, int] | None = None,
        *,
        proven_only: bool = False,
    ) -> None:
        """`known_at`: checksums that are known at offsets; `proven_only`: what has no proof is damaged."""
        self._segment = segment
        self._proven_only = proven_only
        self._known_at = known_at or {}
        self.header = Header(b"", None, None)
        self.findings: list[Finding] = []
        self.unchecked: set[int] = set()
        self.shut: tuple[str, ...] = ()
        self.lost_upto = 0
        self.controls = 0
        self.unknown: dict[int, bytes] = {}
        #: The records, as they stand in the file. A length of 0: it was given up.
        self._seqs = array("q")
        self._offsets = array("q")
        self._lengths = array("q")
        #: Places of the records of an append that is not finished yet.
        self._open: list[int] = []
        self._open_line: Line | None = None
        #: Damaged lines behind the last whole record.
        self._behind: list[tuple[bytes, int]] = []
        #: Damaged bytes since the last whole record that was checked.
        self._spoilt = 0
        self._last = 0
        self._chain: set[int] = set()
        self._look()

    # -- looking --------------------------------------------------------------------------------

    def _look(self) -> None:
        stored = array("q")
        for raw, _ in inspection.stream(self._segment):
            crc = format.stored_crc(raw)
            stored.append(-1 if crc is None else crc)
        known: tuple[int, ...] = (0,)
        offset = 0
        suspect: _Suspect | None = None
        for place, (raw, length) in enumerate(inspection.stream(self._segment)):
            known = (*self._known(offset), *known)
            line, reason, direct = self._judge(place, raw, length, known, stored)
            if suspect is not None:
                self._settle(suspect, raw, line if direct else None)
                suspect = None
            unproven = line is not None and reason != ""
            if line is not None and unproven and (place == 0 or stored[place - 1] != -1):
                meant = tuple(format.crc_after(raw, crc) for crc in known)
                suspect = _Suspect(offset, raw, line, meant)
            elif line is not None:
                self._take(offset, raw, line, direct=direct, checked=not unproven)
            elif reason:
                self._give_up(offset, raw, length, reason)
            known = _next(raw, length, known, trusted=line is not None and not unproven)
            offset += length
        if suspect is not None:
            self._settle(suspect, b"", None)
        self._end()

    def _known(self, offset: int) -> tuple[int, ...]:
        crc = self._known_at.get(offset)
        return () if crc is None else (crc,)

    def _judge(
        self, place: int, raw: bytes, length: int, known: tuple[int, ...], stored: "array[int]"
    ) -> tuple[Line | None, str, bool]:
        """Return what a line says, what is wrong with it, and whether it stands behind the right one.

        A line and a reason: it is whole to look at, and nothing proves it.
        """
        if length > len(raw):
            return None, "longer than a record can be", False
        if stored[place] == -1:
            return None, "" if raw.endswith(format.TORN) else "no checksum", False
        try:
            line = format.decode_line(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return None, f"not a record: {error}", False
        if any(format.checked_crc(raw, crc) is not None for crc in known):
            return line, "", True
        for near in range(max(0, place - _NEAR), min(len(stored), place + _NEAR)):
            if stored[near] != -1 and format.checked_crc(raw, stored[near]) is not None:
                return line, "", False
        return line, "checksum mismatch", False

    def _settle(self, suspect: "_Suspect", behind: bytes, line: Line | None) -> None:
        """Decide on a line whose checksum does not follow from those before, by the line behind it."""
        offset, raw, found, meant = suspect
        follows = line is not None and line.seq == found.seq + (1 if line.log is None else 0)
        gap = found.seq - self._last - 1
        if follows and any(format.checked_crc(behind, crc) is not None for crc in meant):
            # What is damaged is the checksum alone: the next one, which runs over this line, is right.
            self.findings.append(Finding(offset, len(raw), "only its checksum is damaged"))
            body = raw[: -format.TRAILER]
            if offset == 0:
                raw = body + b',"crc":"%08x"}\n' % format.crc32(body)
            self._take(offset, raw, found, direct=True, checked=True)
        elif follows and found.log is None and (0 if offset == 0 else 1) <= gap <= _GONE:
            # The line behind follows from it, in checksum and seq: what is missing is the one before.
            self._take(offset, raw, found, direct=False, checked=False)
        else:
            self._give_up(offset, raw, len(raw), "checksum mismatch")

    def _give_up(self, offset: int, raw: bytes, length: int, reason: str) -> None:
        self.findings.append(Finding(offset, length, reason))
        self._spoilt += length
        if offset == 0 and not raw.startswith(b'{"seq":'):
            self.header = _left_of(raw)
        else:
            self._behind.append((raw, length))

    def _take(self, offset: int, raw: bytes, line: Line, *, direct: bool, checked: bool) -> None:
        if line.log is not None:
            if offset == 0 and line.log == "header" and checked:
                self._take_header(raw, line)
            elif checked:
                self._take_note(offset, line, direct=direct)
            return
        if not checked:
            near = 0 < line.seq - self._last <= 1 + _GONE + self._spoilt // _SHORTEST
            if self._proven_only or not (near and _as_written(raw, line)):
                self._give_up(offset, raw, len(raw), "it cannot be checked, and does not fit here")
                return
            self.unchecked.add(line.seq)
            if not self.findings or self.findings[-1].offset != offset:
                reason = "its checksum cannot be checked: the line before it is lost"
                self.findings.append(Finding(offset, len(raw), reason))
        elif not direct:
            self.findings.append(Finding(offset, len(raw), "it stood elsewhere"))
        if line.ctl:
            self._chain.add(line.ctl)
        self._batch(line, direct=direct)
        self._seqs.append(line.seq)
        self._offsets.append(offset)
        self._lengths.append(len(raw))
        self._last = max(self._last, line.seq)
        self._behind, self._spoilt, self.shut = [], 0, ()

    def _take_header(self, raw: bytes, line: Line) -> None:
        try:
            header = format.decode_header(line.data)
        except msgspec.MsgspecError as error:
            self._give_up(0, raw, len(raw), f"not a header: {error}")
            return
        self.header = Header(raw, line.seq, header.created or line.time)
        self._last = max(self._last, line.seq)

    def _take_note(self, offset: int, line: Line, *, direct: bool) -> None:
        try:
            self.shut = format.decode_shut(line.data).shut
            recovered = format.decode_recovered(line.data)
        except msgspec.MsgspecError:
            return  # another program's, or a later version's
        if line.log == "recovered" and direct:
            # What a crash left unfinished, directly before this (F-30).
            begin = offset - recovered.bytes
            for place in reversed(range(len(self._offsets))):
                if self._offsets[place] < begin:
                    break
                self._lengths[place] = 0
        self._open, self._open_line = [], None
        self._behind = []

    def _batch(self, line: Line, *, direct: bool) -> None:
        """Follow the appends: of one that was never finished, the seqs were given out again (F-30)."""
        before = self._open_line
        if before is not None and not (line.seq == before.seq + 1 and line.more == before.more - 1):
            if direct and line.seq <= self._seqs[self._open[0]]:
                for place in self._open:
                    self._lengths[place] = 0
            self._open = []
        self._open_line = line if line.more else None
        self._open = [*self._open, len(self._seqs)] if line.more else []

    def _end(self) -> None:
        if self._open and not self._behind:
            # A torn tail: nobody was told of it (F-28).
            for place in self._open:
                self._lengths[place] = 0
        last = max((seq for _, seq in self._places()), default=self.header.before or 0)
        self.lost_upto = last
        for raw, length in self._behind:
            if raw.startswith(b'{"log":'):
                continue
            most = self.lost_upto + 1 + length // _SHORTEST
            said = [int(seq) for seq in _SEQ.findall(raw)]
            likely = [seq for seq in said if seq <= most] or ([] if said else [self.lost_upto + 1])
            self.lost_upto = max([self.lost_upto, *likely])
        for offset in self._chain:
            self.controls += any(
                finding.offset <= offset < finding.offset + finding.length
                for finding in self.findings
            )

    # -- what was found -------------------------------------------------------------------------

    def _places(self) -> list[tuple[int, int]]:
        """Return place and seq of the records that count."""
        return [
            (place, seq)
            for place, (seq, length) in enumerate(zip(self._seqs, self._lengths, strict=True))
            if length
        ]

    def first(self) -> Line | None:
        """Return the record with the lowest seq."""
        return next(self.records(0, None), None)

    def records(self, after: int, upto: int | None) -> Iterator[Line]:
        """Yield the records with after < seq <= upto, each seq once, in order."""
        found = self._places()
        # Of two with one seq the later one: the earlier was given up by its writer, or is the same.
        found.sort(key=lambda item: (item[1], -item[0]))
        last = after
        for place, seq in found:
            if seq <= last:
                continue
            if upto is not None and seq > upto:
                return
            last = seq
            raw = self._segment.read(self._offsets[place], self._lengths[place])
            unknown = format.unknown_members(raw)
            if unknown:
                self.unknown[seq] = unknown
            yield inspection.decode(self._segment, self._offsets[place], raw)


def _as_written(raw: bytes, line: Line) -> bool:
    """Say whether a line is, but for its checksum, what a writer makes of what it says."""
    try:
        # Raw data are passed on as they are: whether they are JSON, nobody has looked yet.
        msgspec.json.decode(line.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    if not _TIME.fullmatch(b'"time":"%b"' % line.time.encode()):
        return False
    again, _ = format.record(
        line.seq,
        line.time.encode(),
        line.kind.encode(),
        bytes(line.data),
        0,
        key=line.key,
        more=line.more,
        control=line.control,
        ctl=line.ctl,
        unknown=format.unknown_members(raw),
    )
    return again[: -format.TRAILER] == raw[: -format.TRAILER]


def _next(raw: bytes, length: int, known: tuple[int, ...], *, trusted: bool) -> tuple[int, ...]:
    """Return the running checksums that may be right behind a line."""
    if length > len(raw):
        return ()
    stored = format.stored_crc(raw)
    if stored is None and raw.endswith(format.TORN):
        return tuple(format.crc32(raw, crc) for crc in known)
    return inspection.after(raw, stored, () if trusted else known)


def _left_of(raw: bytes) -> Header:
    """Return what a damaged header still says; it may be wrong."""
    seq = _HEADER_SEQ.search(raw)
    time = _CREATED.search(raw) or (None if b'"previous"' in raw else _TIME.search(raw))
    return Header(b"", int(seq[1]) if seq else None, time[1].decode() if time else None)


def filled(
    records: Iterator[Line], after: int, upto: int, lost: Line, spare: Mapping[int, Line]
) -> Iterator[Line]:
    """Yield a record for each seq with after < seq <= upto: `lost` under its seq where there is none.

    `spare`: records that are kept a second time elsewhere. Appends are whole again afterwards: one of
    which members are lost has these in their places, and one that was cut off ends where it ends (F-27).
    """
    group: list[Line] = []
    for line in _without_gaps(records, after, upto, lost, spare):
        expected = group[-1].more - 1 if group else None
        if expected is not None and line.kind == lost.kind and line.more == 0:
            line.more = expected
        if expected is not None and line.more != expected:
            yield from _closed(group)
            group = []
        group.append(line)
        if line.more == 0:
            yield from group
            group = []
    yield from _closed(group)


def _closed(group: list[Line]) -> list[Line]:
    """Let an append end with the last of its records that is there."""
    for place, line in enumerate(group):
        line.more = len(group) - 1 - place
    return group


def _without_gaps(
    records: Iterator[Line], after: int, upto: int, lost: Line, spare: Mapping[int, Line]
) -> Iterator[Line]:
    seq, time = after, lost.time
    for line in records:
        yield from _between(seq, line.seq, time or line.time, lost, spare)
        yield line
        seq, time = line.seq, line.time
    yield from _between(seq, upto + 1, time, lost, spare)


def _between(
    seq: int, end: int, time: str, lost: Line, spare: Mapping[int, Line]
) -> Iterator[Line]:
    for missing in range(seq + 1, end):
        known = spare.get(missing)
        if known is None:
            yield msgspec.structs.replace(lost, seq=missing, time=time, more=0)
        else:
            yield msgspec.structs.replace(known)
