"""Unpack what is left of a damaged sealed segment, so that its lines can be looked at like any others.

Above: `backend.repair`.  Below: `sealed` (the shape), `mending`, `disk`, zstandard.
With its index, a sealed segment tells where each frame is and where its lines begin; without, frames are
looked for by the four bytes that each begins with. A frame that does not unpack becomes one damaged line. The
index holds the control records a second time, and what it holds is handed out if its checksum is right.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from hansard.errors import Damaged
from hansard.log import disk
from hansard.log.format import Line
from hansard.log.inspection import Finding
from hansard.log.sealed import LARGEST_FRAME, Index, Sealed

_MAGIC: Final = b"\x28\xb5\x2f\xfd"

#: So much is given to zstd at once, of a frame of which nobody knows where it ends.
_STEP: Final = 1024

#: What stands for a frame that cannot be unpacked: a line that proves nothing.
_LOST: Final = b"\0\n"


class Thawed(NamedTuple):
    """What could be unpacked."""

    #: None if it is damaged.
    inventory: Index | None
    findings: list[Finding]
    #: Control records, by seq, from the index.
    controls: dict[int, Line]
    #: Running checksums that are known at offsets of what was unpacked.
    known_at: dict[int, int]


def thaw(descriptor: int, path: str, target: int) -> Thawed:
    """Write the lines of a sealed segment to a file, as far as they can be unpacked.

    `descriptor` is the caller's, and stays open.
    """
    try:
        sealed = Sealed(disk.duplicate(descriptor), path, None)
    except Damaged as error:
        findings = [Finding(error.offset, 0, error.reason)]
        spool = _Spool(target)
        for offset, found in _frames(descriptor):
            if isinstance(found, int):
                findings.append(Finding(offset, found, "not a frame of zstd"))
                spool.add(_LOST)
            else:
                spool.add(found)
        spool.end()
        return Thawed(None, findings, {}, {})
    return _by_index(sealed, target)


def _by_index(sealed: Sealed, target: int) -> Thawed:
    index = sealed.index
    findings: list[Finding] = []
    known_at: dict[int, int] = {}
    spool = _Spool(target)
    at = 0
    ends = [*(frame.offset for frame in index.frames[1:]), index.size]
    for place, (frame, end) in enumerate(zip(index.frames, ends, strict=True)):
        known_at[spool.offset] = frame.crc
        try:
            spool.add(sealed.read(frame.offset, end - frame.offset))
        except Damaged as error:
            findings.append(Finding(at, frame.length, error.reason))
            try:
                # It may be the index that is wrong.
                spool.add(sealed.whole_frame(place))
            except Damaged:
                spool.add(_LOST)
        at += frame.length
    spool.end()
    controls: dict[int, Line] = {}
    try:
        controls = {line.seq: line for line in sealed.controls()}
        sealed.check()
    except Damaged as error:
        if not any(f.offset <= error.offset < f.offset + f.length for f in findings):
            findings.append(Finding(error.offset, 0, error.reason))
    return Thawed(index, findings, controls, known_at)


class _Spool:
    """Writes lines to a file, and knows where it is."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._begun = False
        self.offset = 0

    def add(self, lines: bytes) -> None:
        disk.write_all(self._target, lines)
        self.offset += len(lines)
        self._begun = not lines.endswith(b"\n")

    def end(self) -> None:
        if self._begun:
            self.add(b"\n")


def _frames(descriptor: int) -> Iterator[tuple[int, bytes | int]]:
    """Yield the frames of a file without an index, unpacked; of what is none, how many bytes it takes."""
    import zstandard

    # Up to the first hole: segments have none, and a sparse file can claim any size.
    data = disk.read_at(descriptor, disk.first_hole(descriptor), 0)
    at = 0
    while at < len(data):
        found = _unpacked(zstandard, data, at)
        if found is not None:
            lines, length = found
            yield at, lines
            at += length
            continue
        behind = data.find(_MAGIC, at + 1)
        end = len(data) if behind < 0 else behind
        if data[at : at + 4] == _MAGIC or behind >= 0:
            yield at, end - at
        at = end


def _unpacked(zstandard: Any, data: bytes, at: int) -> tuple[bytes, int] | None:
    """Return the lines of the frame at an offset, and its length; None if there is none."""
    try:
        claimed = zstandard.frame_content_size(data[at : at + 18])
        if not 0 <= claimed <= LARGEST_FRAME:
            return None
        frame = zstandard.ZstdDecompressor().decompressobj()
        pieces: list[bytes] = []
        size = 0
        # Whether it holds what it claims to, zstd sees at its end. Four bytes can unpack to 128 KiB: so it is
        # given little at a time, and nothing more once it has said more than it should (N-74).
        for begin in range(at, len(data), _STEP):
            pieces.append(frame.decompress(data[begin : begin + _STEP]))
            size += len(pieces[-1])
            if size > claimed:
                return None
            if frame.eof:
                end = min(begin + _STEP, len(data)) - len(frame.unused_data)
                return b"".join(pieces), end - at
    except zstandard.ZstdError:
        return None
    return None
