"""Read a compressed segment: the lines of a segment in zstd, in frames that can be read one by one.

It has the offsets, marks and checksums that the lines had before they were compressed, so `reader` works on
it unchanged. After the frames come an index, which zstd's own tools ignore, and the seek table of the zstd
seekable format, which they know. `compare` checks the index against the lines; `unpack` recovers what is left
of a damaged file.
"""

import struct
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import msgspec

from hansard.errors import Damaged, UnknownFormat
from hansard.log import disk, format, segment_scan
from hansard.log.format import Line, Position
from hansard.log.segment import Segment
from hansard.log.segment_reader import LogEnd, SegmentRange, SegmentReader
from hansard.log.segment_scan import Finding

VERSION: Final = 1

#: Skippable frames: ours, and that of the seek table.
INDEX_MAGIC: Final = 0x184D2A5D
TABLE_MAGIC: Final = 0x184D2A5E
#: The last four bytes of a seekable file.
SEEKABLE_MAGIC: Final = 0x8F92EAB1

#: magic, length of what follows
SKIPPABLE: Final = struct.Struct("<II")
#: compressed, raw
ENTRY: Final = struct.Struct("<II")
#: number of frames, descriptor, magic
TABLE_END: Final = struct.Struct("<IBI")
#: the index's last bytes: length of its JSON, CRC-32 of all before, and what says that it is ours
INDEX_END: Final = struct.Struct("<II8s")
OURS: Final = b"hansard1"

#: A key's hash, and the seq of the first event of its append.
KEY: Final = struct.Struct(">QQ")

#: What a frame holds before it is compressed; one with a longer line holds that line alone. Frames of 1 MiB
#: take 6 % more on disk.
FRAME: Final = 4 << 20
#: So much at the end of a large segment has a frame of its own: most readers want the last messages, and
#: look for them in windows of 16, 64 and 256 KiB.
LAST_FRAME: Final = 352 << 10

#: Keys that are read, and checked, together: 4 KiB.
PAGE: Final = 256

#: No frame of ours holds more, so none may claim to (N-74).
LARGEST_FRAME: Final = (1 << 20) + format.MAX_LINE
#: Nor is the index's JSON longer.
_LARGEST_INDEX: Final = 256 << 20

#: The end of most files, with table and index: read for each segment whenever a session is opened.
_END: Final = 4096


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A frame: its bytes in the file, and the mark at which its lines begin."""

    length: int
    offset: int
    seq: int
    crc: int


class Page(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A page of keys: the hash that it begins with, and the CRC-32 of its bytes."""

    first: int
    crc: int


class SegmentIndex(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the index says of a sealed segment.

    Attributes:
        version: of the index.
        session: the session's id.
        created: when the session began.
        before: the seq before the first event.
        last: the last event's seq.
        size: bytes of all lines.
        crc: the running checksum behind the last line.
        time: when the last event was written.
        ctl: the offset of the latest control record; 0 if there is none.
        header, header_crc: length of the header, and the running checksum behind it.
        frames: the frames, in order.
        keys: how many keys there are.
        pages: the keys by 256: the first hash of each page, and the CRC-32 of its bytes.
        begins: the log begins here. If not, there is a segment before this one, or it was lost.
        fingerprint: a digest of what was taken out (`CompactionFilter`); empty for nothing.
        parts: streams of which parts are kept because their end is not known here.
    """

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
    pages: list[Page] = []
    begins: bool = True
    fingerprint: str = ""
    parts: list[str] = []


decode_index = msgspec.json.Decoder(SegmentIndex).decode


class SealedSegment(Segment):
    """An open sealed segment. Reads like any other.

    Attributes:
        index: what is known of it without reading a frame.
        end: the mark behind the last line.
    """

    __slots__ = (
        "_cache",
        "_decompressor",
        "_frames_at",
        "_index_at",
        "_mutex",
        "end",
        "index",
    )

    def __init__(self, descriptor: int, path: str, session_id: str | None) -> None:
        # From here on it owns the descriptor, also if the index is refused. There is no header to read.
        disk.OwnedFd.__init__(self, descriptor)
        self.path = path
        # Re-entrant: a signal handler may read while its own thread is reading.
        self._mutex = threading.RLock()
        self._decompressor: Any = None
        #: The frames last read, by their place: readers go from one to the next, and look back.
        self._cache: tuple[tuple[int, bytes], ...] = ()
        self.index, self._index_at = _read_index(self)
        if session_id is not None and self.index.session != session_id:
            raise self.damaged(0, f"this is the log of session {self.index.session!r}")
        frames = self.index.frames
        self._frames_at = [0]
        for frame in frames:
            self._frames_at.append(self._frames_at[-1] + frame.length)
        if self._frames_at[-1] != self._index_at or not frames or frames[0].offset != 0:
            raise self.damaged(self._index_at, "the index does not fit the frames before it")
        self.start = Position(self.index.header, self.index.before, self.index.header_crc)
        self.end = Position(self.index.size, self.index.last, self.index.crc)
        self.time = self.index.created

    @property
    def session_id(self) -> str:
        """The id that the index names."""
        return self.index.session

    def size(self) -> int:
        """Return the bytes of all lines."""
        return self.index.size

    def log_end(self) -> LogEnd:
        """Return what the last line says: nothing can be appended here."""
        return LogEnd(self.end, self.index.ctl, ("sealed",), self.index.size, self.index.time)

    def position_before(self, offset: int) -> Position:
        """Return the last place before an offset at which a frame begins."""
        place = bisect_left(self.index.frames, offset, key=lambda frame: frame.offset) - 1
        if place <= 0:
            return self.start
        frame = self.index.frames[place]
        return Position(frame.offset, frame.seq, frame.crc)

    def marks(self) -> list[Position]:
        """Return the places at which frames begin."""
        return [self.start, *(Position(f.offset, f.seq, f.crc) for f in self.index.frames[1:])]

    def read_some(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes of the lines, fewer only at their end."""
        frames = self.index.frames
        end = min(offset + length, self.index.size)
        pieces = []
        place = bisect_right(frames, offset, key=lambda frame: frame.offset) - 1
        while offset < end:
            data = self._frame(place)
            begin = offset - frames[place].offset
            piece = (
                data
                if begin == 0 and len(data) <= end - offset
                else data[begin : begin + end - offset]
            )
            if not piece:
                raise self.damaged(self._frames_at[place], "a frame is shorter than the index says")
            pieces.append(piece)
            offset += len(piece)
            place += 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def check(self) -> None:
        """Check what reading does not: the seek table, and the index against the lines."""
        for place in range(len(self.index.pages)):
            self.page(place)
        frames = self.index.frames
        ends = [*(frame.offset for frame in frames[1:]), self.index.size]
        sizes = [
            (frame.length, end - frame.offset) for frame, end in zip(frames, ends, strict=True)
        ]
        if max(map(max, sizes)) > LARGEST_FRAME:
            raise self.damaged(self._index_at, "a frame claims to hold more than it should")
        table = seek_table(sizes)
        at = disk.size(self.descriptor) - len(table)
        if self.file_bytes(at, len(table)) != table:
            raise self.damaged(at, "the seek table does not fit the frames")
        frame = SKIPPABLE.pack(INDEX_MAGIC, at - self._index_at - SKIPPABLE.size)
        if self.file_bytes(self._index_at, len(frame)) != frame:
            raise self.damaged(self._index_at, "the index has no frame of its own")
        header = self.read(0, self.start.offset)
        if format.checked_crc(header, 0) != self.start.crc:
            raise self.damaged(0, "checksum mismatch in the header")

    def find_key(self, wanted: int) -> list[int]:
        """Return the first seqs of the appends whose keys have this hash."""
        pages = self.index.pages
        # The first that may hold it: equal ones may begin at the end of the page before.
        place = max(0, bisect_left(pages, wanted, key=lambda page: page.first) - 1)
        found: list[int] = []
        while place < len(pages) and pages[place].first <= wanted:
            found += [seq for key, seq in self.page(place) if key == wanted]
            place += 1
        return found

    def page(self, place: int) -> Iterator[tuple[int, int]]:
        """Return the keys of a page: their hashes and seqs."""
        count = min(PAGE, self.index.keys - place * PAGE)
        at = self._index_at + SKIPPABLE.size + place * PAGE * KEY.size
        data = self.file_bytes(at, max(0, count) * KEY.size)
        # A key that is overlooked is an append that is made twice: nothing is taken on trust here.
        if format.crc32(data) != self.index.pages[place].crc:
            raise self.damaged(at, "checksum mismatch in the keys of the index")
        return KEY.iter_unpack(data)

    def whole_frame(self, place: int) -> bytes:
        """Return what a frame holds, whatever the index says of it."""
        at = self._frames_at[place]
        data = self.file_bytes(at, self.index.frames[place].length)
        return self._decompress(data, at, LARGEST_FRAME)

    def _frame(self, place: int) -> bytes:
        """Return the lines of a frame."""
        for known, data in self._cache:
            if known == place:
                return data
        frames = self.index.frames
        frame = frames[place]
        end = frames[place + 1].offset if place + 1 < len(frames) else self.index.size
        at = self._frames_at[place]
        data = self._decompress(self.file_bytes(at, frame.length), at, end - frame.offset)
        if len(data) != end - frame.offset:
            raise self.damaged(at, "a frame is shorter than the index says")
        self._cache = ((place, data), *self._cache[:1])
        return data

    def _decompress(self, data: bytes, at: int, most: int) -> bytes:
        import zstandard

        if most > LARGEST_FRAME:
            raise self.damaged(at, f"a frame that claims to hold {most:,} bytes is none of ours")
        try:
            # What the frame itself claims must not be more than the index does: no room for a bomb.
            if not 0 <= zstandard.frame_content_size(data) <= most:
                raise self.damaged(at, "a frame claims to hold more than it should")
            with self._mutex:
                if self._decompressor is None:
                    self._decompressor = zstandard.ZstdDecompressor()
                found: bytes = self._decompressor.decompress(data, max_output_size=most)
        except zstandard.ZstdError as error:
            raise self.damaged(at, f"not a frame of zstd: {error}") from error
        return found

    def file_bytes(self, offset: int, length: int) -> bytes:
        """Return bytes of the file."""
        try:
            data = disk.read_at(self.descriptor, length, offset)
            while len(data) < length:
                more = disk.read_at(self.descriptor, length - len(data), offset + len(data))
                if not more:
                    raise self.damaged(offset + len(data), "the file ends here: it has been cut")
                data += more
        except OSError as error:
            raise disk.explain(error, "read", self.path) from error
        return data


def seek_table(frames: list[tuple[int, int]]) -> bytes:
    """Return the seek table for frames of these lengths, compressed and not."""
    table = b"".join(ENTRY.pack(*frame) for frame in frames)
    table += TABLE_END.pack(len(frames), 0, SEEKABLE_MAGIC)
    return SKIPPABLE.pack(TABLE_MAGIC, len(table)) + table


def _read_index(sealed: SealedSegment) -> tuple[SegmentIndex, int]:
    """Find the index at the end of a sealed segment; return it and where its frame begins."""
    try:
        size = disk.size(sealed.descriptor)
    except OSError as error:
        raise disk.explain(error, "seek", sealed.path) from error
    begin = max(0, size - _END)
    end = sealed.file_bytes(begin, size - begin)
    if len(end) < TABLE_END.size:
        raise sealed.damaged(0, "not a sealed segment")
    count, _, magic = TABLE_END.unpack(end[-TABLE_END.size :])
    if magic != SEEKABLE_MAGIC:
        raise sealed.damaged(size - 4, "not the end of a sealed segment")
    table = SKIPPABLE.size + ENTRY.size * count + TABLE_END.size
    behind = size - table
    if behind < INDEX_END.size:
        raise sealed.damaged(size - TABLE_END.size, "the seek table does not fit into the file")

    def piece(at: int, length: int) -> bytes:
        return end[at - begin :][:length] if at >= begin else sealed.file_bytes(at, length)

    tail = piece(behind - INDEX_END.size, INDEX_END.size)
    length, crc, ours = INDEX_END.unpack(tail)
    if ours != OURS:
        raise sealed.damaged(behind - len(OURS), "no index of hansard's")
    json_at = behind - INDEX_END.size - length
    if json_at < SKIPPABLE.size or length > _LARGEST_INDEX:
        raise sealed.damaged(behind, "the index does not fit into the file")
    index = _decode(sealed, json_at, piece(json_at, length), crc)
    return index, json_at - KEY.size * index.keys - SKIPPABLE.size


def _decode(sealed: SealedSegment, json_at: int, text: bytes, crc: int) -> SegmentIndex:
    """Ours, a version we know, intact: what the index says."""
    if format.crc32(text) != crc:
        raise sealed.damaged(json_at, "checksum mismatch in the index")
    try:
        index = decode_index(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise sealed.damaged(json_at, f"not an index: {error}") from error
    if index.version != VERSION:
        raise UnknownFormat(
            f"{sealed.path}: sealed segment version {index.version}, and this hansard knows {VERSION}; "
            "use a newer hansard: the file was left as it is"
        )
    if index.keys < 0 or len(index.pages) != -(-index.keys // PAGE):
        raise sealed.damaged(json_at, "the index does not fit its keys")
    if not _is_possible(index):
        raise sealed.damaged(json_at, "segment index values out of range")
    return index


def _is_possible(index: SegmentIndex) -> bool:
    """Say whether numbers of an index can be true: its checksum tells nothing of who made it.

    What is read, and how much memory that takes, is decided by them (N-74). A frame that is too large is
    refused when it is read.
    """
    offsets = [*(frame.offset for frame in index.frames), index.size]
    lengths = [end - begin for begin, end in pairwise(offsets)]
    return (
        all(length > 0 for length in lengths)
        and all(frame.length > 0 for frame in index.frames)
        and 0 < index.header <= (lengths or [0])[0]
        and 0 <= index.before <= index.last < format.MAX_SEQ
        and 0 <= index.ctl < index.size
    )


def hash_of(key: str) -> int:
    """Return what a key is looked for by: 64 bits, spread evenly."""
    # Here, because only sessions with keys need it and the import costs milliseconds.
    import hashlib

    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")


# -- the index compared with the lines -----------------------------------------------------------

#: Returns the stream of which a record holds something that was streamed; None for most.
StreamOf = Callable[[Line], str | None]


class _Sum(NamedTuple):
    """What the lines add up to."""

    keys: list[tuple[int, int]]
    streams: set[str]
    last: Line | None
    ctl: int


def compare(sealed: SealedSegment, stream_of: StreamOf) -> None:
    """Check every line of a sealed segment, and that the index says the same; raise if it does not."""
    sealed.check()
    _compare_header(sealed)
    found = _add_up(sealed, stream_of)
    index = sealed.index
    last = found.last
    _same(sealed, "last", index.last, index.before if last is None else last.seq)
    _same(sealed, "time", index.time, "" if last is None else last.time)
    _same(sealed, "ctl", index.ctl, found.ctl)
    found.keys.sort()
    _same(
        sealed, "keys", [key for n in range(len(index.pages)) for key in sealed.page(n)], found.keys
    )
    _same(sealed, "pages", [page.first for page in index.pages], [k for k, _ in found.keys[::PAGE]])
    _same(sealed, "parts", sorted(found.streams - set(index.parts)), [])


def _same(sealed: SealedSegment, member: str, said: object, found: object) -> None:
    if said != found:
        raise sealed.damaged(0, f"the index is wrong: `{member}` is not what the lines say")


def _compare_header(sealed: SealedSegment) -> None:
    index = sealed.index
    line = format.decode_line(sealed.read(0, index.header))
    header = format.decode_header(line.data)
    _same(sealed, "header", line.log, "header")
    _same(sealed, "before", index.before, line.seq)
    _same(sealed, "session", index.session, header.session)
    _same(sealed, "created", index.created, header.created or line.time)
    if header.previous is not None and index.begins:
        raise sealed.damaged(0, "the index is wrong: the header says that the log begins before")


def _add_up(sealed: SealedSegment, stream_of: StreamOf) -> _Sum:
    keys: list[tuple[int, int]] = []
    streams: set[str] = set()
    last: Line | None = None
    ctl = 0
    frames = [
        Position(frame.offset, frame.seq, frame.crc) for frame in reversed(sealed.index.frames)
    ]
    first = frames.pop()
    _same(sealed, "frames", (first.offset, first.seq, first.crc), (0, sealed.index.before, 0))
    for piece in SegmentReader(sealed).forwards(sealed.start, sealed.end):
        lengths = (len(raw) + 1 for raw in piece.data.split(b"\n"))
        offsets = [*accumulate(lengths, initial=piece.start.offset)]
        for place, raw in segment_scan.committed(sealed, piece.start, piece.data, piece.end):
            line = format.decode_line(raw)
            offset = offsets[place]
            while frames and frames[-1].offset <= offset:
                _compare_frame(sealed, frames.pop(), piece, last)
            if line.key is not None:
                keys.append((hash_of(line.key), line.seq))
            if line.control:
                ctl = offset
            stream = stream_of(line)
            if stream is not None:
                streams.add(stream)
            last = line
        # Those that begin with notes, behind the last record.
        while frames and frames[-1].offset < piece.end.offset:
            _compare_frame(sealed, frames.pop(), piece, last)
    _same(sealed, "frames", frames, [])
    return _Sum(keys, streams, last, ctl)


def _compare_frame(
    sealed: SealedSegment, frame: Position, piece: SegmentRange, last: Line | None
) -> None:
    """Compare where a frame begins with the piece in which it does. `last`: the record before it."""
    before = piece.data[: frame.offset - piece.start.offset]
    crc = format.checked_crc(before, piece.start.crc) if before else piece.start.crc
    seq = sealed.index.before if last is None else last.seq
    _same(sealed, "frames", (frame.seq, frame.crc), (seq, crc))


# -- frame recovery ------------------------------------------------------------------------------

#: Stands for a frame that cannot be decompressed: a line that proves nothing.
_LOST_FRAME: Final = b"\0\n"

#: Bytes given to zstd at once, of a frame whose end is not known.
_STEP: Final = 1024


class Unpacked(NamedTuple):
    """What could be decompressed of a damaged segment."""

    #: None if it is damaged.
    inventory: SegmentIndex | None
    findings: list[Finding]
    #: Running checksums that are known at offsets of what was decompressed.
    known_at: dict[int, int]


def unpack(descriptor: int, path: str, target: int) -> Unpacked:
    """Write the lines of a sealed segment to a file, as far as they can be decompressed.

    `descriptor` is the caller's, and stays open. With its index, a segment tells where each frame is.
    Without, frames are decompressed in order, up to the first that is damaged.
    """
    spool = _Spool(target)
    try:
        sealed = SealedSegment(disk.duplicate(descriptor), path, None)
    except Damaged as error:
        findings = [Finding(error.offset, 0, error.reason)]
        for offset, found in _frames_in_order(descriptor):
            if isinstance(found, int):
                findings.append(Finding(offset, found, "not a frame of zstd"))
                spool.add(_LOST_FRAME)
            else:
                spool.add(found)
        spool.end()
        return Unpacked(None, findings, {})
    return _unpack_by_index(sealed, spool)


def _unpack_by_index(sealed: SealedSegment, spool: "_Spool") -> Unpacked:
    index = sealed.index
    findings: list[Finding] = []
    known_at: dict[int, int] = {}
    at = 0
    ends = [*(frame.offset for frame in index.frames[1:]), index.size]
    for place, (frame, end) in enumerate(zip(index.frames, ends, strict=True)):
        known_at[spool.offset] = frame.crc
        try:
            spool.add(sealed.read(frame.offset, end - frame.offset))
        except Damaged as error:
            findings.append(Finding(at, frame.length, error.reason))
            try:
                # The index may be wrong.
                spool.add(sealed.whole_frame(place))
            except Damaged:
                spool.add(_LOST_FRAME)
        at += frame.length
    spool.end()
    try:
        sealed.check()
    except Damaged as error:
        if not any(f.offset <= error.offset < f.offset + f.length for f in findings):
            findings.append(Finding(error.offset, 0, error.reason))
    return Unpacked(index, findings, known_at)


class _Spool:
    """Writes lines to a file, and counts its bytes."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._in_line = False
        self.offset = 0

    def add(self, lines: bytes) -> None:
        disk.write_all(self._target, lines)
        self.offset += len(lines)
        self._in_line = not lines.endswith(b"\n")

    def end(self) -> None:
        if self._in_line:
            self.add(b"\n")


def _frames_in_order(descriptor: int) -> Iterator[tuple[int, bytes | int]]:
    """Yield the frames of a file without an index, decompressed; then the length of what cannot be."""
    import zstandard

    # Up to the first hole: segments have none, and a sparse file can claim any size.
    data = disk.read_at(descriptor, disk.first_hole(descriptor), 0)
    at = 0
    while at < len(data) and data[at : at + 4] != SKIPPABLE.pack(INDEX_MAGIC, 0)[:4]:
        found = _next_frame(zstandard, data, at)
        if found is None:
            yield at, len(data) - at
            return
        lines, length = found
        yield at, lines
        at += length


def _next_frame(zstandard: Any, data: bytes, at: int) -> tuple[bytes, int] | None:
    """Return the lines of the frame at an offset, and its length; None if there is none."""
    try:
        claimed = zstandard.frame_content_size(data[at : at + 18])
        if not 0 <= claimed <= LARGEST_FRAME:
            return None
        frame = zstandard.ZstdDecompressor().decompressobj()
        pieces: list[bytes] = []
        size = 0
        # zstd checks at the end whether a frame holds what it claims. Four bytes can become 128 KiB: so it
        # is given little at a time, and nothing more once it has exceeded the claim (N-74).
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
