"""Read a compressed segment: the lines of a segment in zstd, in frames that can be read separately.

It has the offsets, positions and checksums that the lines had before, so `segment_reader` reads it like any
other. After the frames come an index, which zstd's own tools ignore, and the seek table of the zstd seekable
format. `compare` checks the index against the lines; `unpack` recovers what is left of a damaged file.
"""

import contextlib
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, count, pairwise
from typing import Final, NamedTuple

import msgspec

from hansard.errors import Damaged, UnknownFormat
from hansard.log import disk, format, segment_scan
from hansard.log.format import DECODE_ERRORS, LogEnd, Position
from hansard.log.segment_reader import Segment, SegmentRange, SegmentReader
from hansard.log.segment_scan import ScanFinding

VERSION: Final = 1

#: Skippable frames: ours, and that of the seek table.
INDEX_MAGIC: Final = 0x184D2A5D
TABLE_MAGIC: Final = 0x184D2A5E
#: The last four bytes of a seekable file.
SEEKABLE_MAGIC: Final = 0x8F92EAB1

#: Magic, and length of what follows.
SKIPPABLE: Final = struct.Struct("<II")
#: An entry of the seek table: length of a frame, compressed and not.
ENTRY: Final = struct.Struct("<II")
#: Number of frames, descriptor, magic.
TABLE_END: Final = struct.Struct("<IBI")
#: The index's last bytes: length and CRC-32 of its JSON, and `OURS`.
INDEX_END: Final = struct.Struct("<II8s")
OURS: Final = b"hansard1"

#: A key's hash, and the seq of the first event of its append.
KEY: Final = struct.Struct(">QQ")

#: Maximum bytes in a frame before compression, except for a longer line. Frames of 1 MiB take 6 % more space.
FRAME: Final = 4 << 20
#: Bytes at the end of a large segment that get a separate frame: most readers want the last messages, and
#: look for them in windows of 16, 64 and 256 KiB.
LAST_FRAME: Final = 352 << 10

#: Keys that are read, and checked, together: 4 KiB.
PAGE: Final = 256

#: Maximum bytes that a frame may claim to hold (N-74).
LARGEST_FRAME: Final = (1 << 20) + format.MAX_LINE
#: Maximum length of the index's JSON.
_LARGEST_INDEX: Final = 256 << 20

#: Bytes at the end of a file that are read first: most tables and indexes fit.
_END: Final = 4096


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A frame: its bytes in the file, and the position at which its lines begin."""

    length: int
    offset: int
    seq: int
    crc: int

    @property
    def start(self) -> Position:
        """Where its lines begin."""
        return Position(self.offset, self.seq, self.crc)


class SegmentIndex(msgspec.Struct, frozen=True, omit_defaults=True):
    """The index of a sealed segment. docs/format.md, section 16, has the meaning of each member."""

    version: int
    session: str
    created: str
    before: int
    last: int
    size: int
    crc: int
    time: str
    ctl: int
    header: int
    header_crc: int
    frames: list[Frame]
    keys: int = 0
    #: Of each page of keys: its first hash, and the CRC-32 of its bytes.
    pages: list[tuple[int, int]] = []
    begins: bool = True
    fingerprint: str = ""

    def sizes(self) -> list[tuple[int, int]]:
        """Return the length of each frame, compressed and not."""
        bounds = pairwise([*(frame.offset for frame in self.frames), self.size])
        both = zip(self.frames, bounds, strict=True)
        return [(frame.length, end - begin) for frame, (begin, end) in both]

    def is_possible(self) -> bool:
        """Return whether its numbers can be true: a forger can write a valid checksum.

        They decide what is read, and into how much memory (N-74).
        """
        sizes = self.sizes()
        return (
            all(packed > 0 and length > 0 for packed, length in sizes)
            and 0 < self.header <= (sizes[0][1] if sizes else 0)
            and 0 <= self.before <= self.last < format.MAX_SEQ
            and 0 <= self.ctl < self.size
        )


_decode_index = msgspec.json.Decoder(SegmentIndex).decode


class SealedSegment(Segment):
    """An open sealed segment. Reads like any other.

    Attributes:
        index: what is known of it without reading a frame.
        end: the position after the last line.
        sizes: the length of each frame, compressed and not.
    """

    def __init__(self, descriptor: int, path: str, session_id: str | None) -> None:
        # There is no header to read.
        self.descriptor = descriptor
        self.path = path
        #: The two frames that were read last, with their numbers.
        self._cache: tuple[tuple[int, bytes], ...] = ()
        index, self._index_at = _read_index(self)
        if session_id is not None and index.session != session_id:
            raise self.damaged(0, f"this is the log of session {index.session!r}")
        #: Where each frame begins in the file.
        self._frames_at = [*accumulate((frame.length for frame in index.frames), initial=0)]
        if self._frames_at[-1] != self._index_at or not index.frames or index.frames[0].offset != 0:
            raise self.damaged(self._index_at, "the index does not fit the frames before it")
        self.index = index
        self.sizes = index.sizes()
        self.start = Position(index.header, index.before, index.header_crc)
        self.end = Position(index.size, index.last, index.crc)
        self.time = index.created
        self.session_id = index.session
        self.begins = index.begins
        self.previous = None
        self.first_record = b""

    def size(self) -> int:
        """Return the bytes of all lines."""
        return self.index.size

    def known_end(self) -> LogEnd:
        """Return the end of the lines."""
        return LogEnd(self.end, self.index.ctl, ("sealed",), self.index.size, self.index.time)

    def positions(self) -> list[Position]:
        """Return the positions at which frames begin."""
        return [self.start, *(frame.start for frame in self.index.frames[1:])]

    def ranges(self) -> Iterator[SegmentRange]:
        """Yield all lines, each frame from the position in the index: a reader may begin at any of them."""
        reader = SegmentReader(self)
        for start, end in pairwise([*self.positions(), self.end]):
            yield from reader.forwards(start, end)

    def read_some(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes of the lines, fewer only at their end."""
        frames = self.index.frames
        end = min(offset + length, self.index.size)
        pieces = []
        place = bisect_right(frames, offset, key=lambda frame: frame.offset) - 1
        while offset < end:
            data = self._frame(place)
            begin = offset - frames[place].offset
            if begin or len(data) > end - offset:
                data = data[begin : begin + end - offset]
            pieces.append(data)
            offset += len(data)
            place += 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def check(self) -> None:
        """Check what reading does not: keys, frame sizes, seek table and header."""
        for place in range(len(self.index.pages)):
            self.page(place)
        if max(map(max, self.sizes)) > LARGEST_FRAME:
            raise self.damaged(self._index_at, "a frame is larger than the format allows")
        table = seek_table(self.sizes)
        at = super().size() - len(table)
        if self.file_bytes(at, len(table)) != table:
            raise self.damaged(at, "the seek table does not fit the frames")
        frame = SKIPPABLE.pack(INDEX_MAGIC, at - self._index_at - SKIPPABLE.size)
        if self.file_bytes(self._index_at, len(frame)) != frame:
            raise self.damaged(self._index_at, "the index is not in a separate frame")
        header = self.read(0, self.start.offset)
        if format.checked_crc(header, 0) != self.start.crc:
            raise self.damaged(0, "checksum mismatch in the header")

    def find_key(self, wanted: int) -> list[int]:
        """Return the first seqs of the appends whose keys have this hash."""
        pages = self.index.pages
        # The first that may hold it: equal hashes may begin at the end of the page before.
        place = max(0, bisect_left(pages, (wanted, 0)) - 1)
        found: list[int] = []
        while place < len(pages) and pages[place][0] <= wanted:
            found += [seq for key, seq in self.page(place) if key == wanted]
            place += 1
        return found

    def page(self, place: int) -> Iterator[tuple[int, int]]:
        """Return the keys of a page: their hashes and seqs."""
        count = min(PAGE, self.index.keys - place * PAGE)
        at = self._index_at + SKIPPABLE.size + place * PAGE * KEY.size
        data = self.file_bytes(at, max(0, count) * KEY.size)
        # Always checked: an append whose key is overlooked is made twice.
        if format.crc32(data) != self.index.pages[place][1]:
            raise self.damaged(at, "checksum mismatch in the keys of the index")
        return KEY.iter_unpack(data)

    def _frame(self, place: int) -> bytes:
        """Return the lines of a frame."""
        for known, data in self._cache:
            if known == place:
                return data
        import zstandard

        at, (length, size) = self._frames_at[place], self.sizes[place]
        data = self.file_bytes(at, length)
        try:
            # Refused before memory is allocated: both the index and the frame may be forged.
            if size > LARGEST_FRAME or not 0 <= zstandard.frame_content_size(data) <= size:
                raise self.damaged(at, "a frame is larger than the format allows")
            # A new one each time, which costs little: threads and signal handlers cannot share one.
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
        except zstandard.ZstdError as error:
            raise self.damaged(at, f"not a frame of zstd: {error}") from error
        if len(data) != size:
            raise self.damaged(at, "a frame is shorter than the index says")
        self._cache = ((place, data), *self._cache[:1])
        return data

    def file_bytes(self, offset: int, length: int) -> bytes:
        """Return bytes of the file."""
        data = super().read_some(offset, length)
        if len(data) < length:
            raise self.damaged(offset + len(data), "the file ends here: it has been cut")
        return data


def seek_table(frames: list[tuple[int, int]]) -> bytes:
    """Return the seek table for frames of these lengths, compressed and not."""
    table = b"".join(ENTRY.pack(*frame) for frame in frames)
    table += TABLE_END.pack(len(frames), 0, SEEKABLE_MAGIC)
    return SKIPPABLE.pack(TABLE_MAGIC, len(table)) + table


def _read_index(sealed: SealedSegment) -> tuple[SegmentIndex, int]:
    """Find the index at the end of a sealed segment; return it and where its frame begins."""
    size = Segment.size(sealed)
    begin = max(0, size - _END)
    end = sealed.file_bytes(begin, size - begin)
    if len(end) < TABLE_END.size:
        raise sealed.damaged(0, "not a sealed segment")
    count, _, magic = TABLE_END.unpack(end[-TABLE_END.size :])
    if magic != SEEKABLE_MAGIC:
        raise sealed.damaged(size - 4, "not the end of a sealed segment")
    table_at = size - (SKIPPABLE.size + ENTRY.size * count + TABLE_END.size)
    if table_at < INDEX_END.size:
        raise sealed.damaged(size - TABLE_END.size, "the seek table does not fit into the file")

    def piece(at: int, length: int) -> bytes:
        return end[at - begin :][:length] if at >= begin else sealed.file_bytes(at, length)

    length, crc, ours = INDEX_END.unpack(piece(table_at - INDEX_END.size, INDEX_END.size))
    if ours != OURS:
        raise sealed.damaged(table_at - len(OURS), "no index of hansard")
    json_at = table_at - INDEX_END.size - length
    if json_at < SKIPPABLE.size or length > _LARGEST_INDEX:
        raise sealed.damaged(table_at, "the index does not fit into the file")
    index = _checked_index(sealed, json_at, piece(json_at, length), crc)
    return index, json_at - KEY.size * index.keys - SKIPPABLE.size


def _checked_index(sealed: SealedSegment, json_at: int, text: bytes, crc: int) -> SegmentIndex:
    """Decode an index; raise unless it is intact, of a known version, and possible."""
    if format.crc32(text) != crc:
        raise sealed.damaged(json_at, "checksum mismatch in the index")
    try:
        index = _decode_index(text)
    except DECODE_ERRORS as error:
        raise sealed.damaged(json_at, f"not an index: {error}") from error
    if index.version != VERSION:
        raise UnknownFormat(
            f"{sealed.path}: unsupported version {index.version} of a sealed segment (supported: {VERSION}); "
            "the file was not changed. Upgrade hansard"
        )
    if index.keys < 0 or len(index.pages) != -(-index.keys // PAGE):
        raise sealed.damaged(json_at, "the index does not fit its keys")
    if not index.is_possible():
        raise sealed.damaged(json_at, "segment index values out of range")
    return index


def hash_of(key: str) -> int:
    """Return the hash of a key, as the index has it: 64 bits."""
    # Imported here: only sessions with keys need it, and the import takes milliseconds.
    import hashlib

    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")


def compare(sealed: SealedSegment) -> None:
    """Check every line of a sealed segment, and every member of its index; raise if one is wrong."""
    sealed.check()
    index = sealed.index
    line = format.decode_line(sealed.read(0, index.header))
    header = format.decode_header(line.data)
    keys: list[tuple[int, int]] = []
    ctl, last, time = 0, index.before, ""
    for piece in sealed.ranges():
        for seen, record in segment_scan.committed(sealed, piece.start, piece.data, piece.end):
            if record.key is not None:
                keys.append((hash_of(record.key), record.seq))
            if record.control:
                ctl = seen.offset
            last, time = record.seq, record.time
    keys.sort()
    pages = range(len(index.pages))
    for member, said, found in (
        ("header", "header", line.log),
        ("before", index.before, line.seq),
        ("session", index.session, header.session),
        ("created", index.created, header.created or line.time),
        ("begins", index.begins, index.begins and header.previous is None),
        ("frames", index.frames[0].start, Position(0, index.before, 0)),
        ("last", index.last, last),
        ("time", index.time, time),
        ("ctl", index.ctl, ctl),
        ("keys", [key for place in pages for key in sealed.page(place)], keys),
        ("pages", [first for first, _ in index.pages], [key for key, _ in keys[::PAGE]]),
    ):
        if said != found:
            raise sealed.damaged(0, f"the index is wrong: `{member}` differs from the lines")


#: Replaces a frame that cannot be decompressed: a line that proves nothing.
_LOST_FRAME: Final = b"\0\n"

#: What follows the last frame: the index, or nothing.
_ENDS: Final = (SKIPPABLE.pack(INDEX_MAGIC, 0)[:4], b"")

#: Bytes given to zstd at once, of a frame whose end is not known.
_STEP: Final = 1024


class Unpacked(NamedTuple):
    """What could be decompressed of a damaged segment."""

    #: The last seq, if the index is intact.
    last: int | None
    findings: list[ScanFinding]
    #: Running checksums that are known at offsets of what was decompressed.
    known_at: dict[int, int]


def unpack(descriptor: int, path: str, target: int) -> Unpacked:
    """Write the lines of a sealed segment to a file, as far as they can be decompressed.

    The index tells where each frame begins. Without it, the first damaged frame is the last.
    """
    known_at: dict[int, int] = {}
    findings: list[ScanFinding] = []
    sealed: SealedSegment | None = None
    try:
        sealed = SealedSegment(descriptor, path, None)
    except Damaged as error:
        findings.append(ScanFinding(error.offset, 0, error.reason))
    at = size = 0
    lines = b""
    for place in count():
        done = place == len(sealed.sizes) if sealed else disk.read_at(descriptor, 4, at) in _ENDS
        if done:
            break
        lines, length = _next_frame(descriptor, at)
        expected = length or disk.size(descriptor) - at, len(lines)
        if sealed is not None:
            known_at[size] = sealed.index.frames[place].crc
            expected = sealed.sizes[place]
        if (length, len(lines)) != expected:
            findings.append(ScanFinding(at, expected[0], "not the frame of zstd that was written"))
            lines = lines or _LOST_FRAME
        disk.write_all(target, lines)
        size += len(lines)
        at += expected[0]
    if lines and not lines.endswith(b"\n"):
        disk.write_all(target, b"\n")
    return Unpacked(sealed.index.last if sealed else None, findings, known_at)


def _next_frame(descriptor: int, at: int) -> tuple[bytes, int]:
    """Return the lines of the frame at an offset, and its length: 0 if there is none."""
    import zstandard

    lines = bytearray()
    with contextlib.suppress(zstandard.ZstdError):
        claimed = zstandard.frame_content_size(disk.read_at(descriptor, 18, at))
        if not 0 <= claimed <= LARGEST_FRAME:
            return b"", 0
        frame = zstandard.ZstdDecompressor().decompressobj()
        end = at
        # zstd checks only at the end whether a frame holds what it claims, and four bytes can become 128 KiB.
        # So it gets little at a time, and nothing more once the claim is exceeded (N-74).
        while len(lines) <= claimed and (data := disk.read_at(descriptor, _STEP, end)):
            lines += frame.decompress(data)
            end += len(data)
            if frame.eof:
                return bytes(lines), end - len(frame.unused_data) - at
    return b"", 0
