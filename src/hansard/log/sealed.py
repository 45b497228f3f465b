"""Read a sealed segment: the lines of a segment in zstd, in frames that can be read one by one.

Above: `chain`, `backend.local`.  Below: `format`, `disk`, zstandard.  Its inverse is `sealing`.
To whoever reads lines it looks like any other segment: it has the same offsets, marks and checksums as the
lines had before they were compressed, and `reader` works on it unchanged. Behind the frames stand an index,
which zstd's own tools pass over, and the seek table of the zstd seekable format, which they know.
"""

import struct
import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hansard.errors import Damaged, UnknownFormat
from hansard.log import dictionary, disk, format
from hansard.log.format import Line, Mark
from hansard.log.reader import Tail
from hansard.log.segment import Segment

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

#: What a frame holds before it is compressed; one with a longer line holds that line alone.
FRAME: Final = 1 << 20

#: No frame of ours holds more, so none may claim to (N-74).
LARGEST_FRAME: Final = FRAME + format.MAX_LINE
#: Nor is an index longer: 100 million keys.
_LARGEST_INDEX: Final = 2 << 30

#: The end of most files, with table, index and control records.
_END: Final = 64 * 1024


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A frame: its bytes in the file, and the mark at which its lines begin."""

    length: int
    offset: int
    seq: int
    crc: int


class Index(msgspec.Struct, frozen=True):
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
        controls: bytes of the control records, compressed.
        sections: CRC-32 of keys and control records, as they stand before the index's JSON.
        dictionary: the name of the dictionary that is needed; empty if none is.
        blank: the seqs of events whose data were taken out.
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
    controls: int = 0
    sections: int = 0
    dictionary: str = ""
    blank: list[int] = []
    parts: list[str] = []


#: Finds a dictionary by its name.
Dictionaries = Callable[[str], bytes]

decode_index = msgspec.json.Decoder(Index).decode


class Sealed(Segment):
    """An open sealed segment. Reads like any other.

    Attributes:
        index: what is known of it without reading a frame.
        end: the mark behind the last line.
    """

    __slots__ = (
        "_cache",
        "_decompressor",
        "_dictionaries",
        "_frames_at",
        "_index_at",
        "_mutex",
        "end",
        "index",
    )

    def __init__(
        self, descriptor: int, path: str, session_id: str | None, dictionaries: Dictionaries
    ) -> None:
        # From here on it owns the descriptor, also if the index is refused. There is no header to read.
        disk.Open.__init__(self, descriptor)
        self.path = path
        self._dictionaries = dictionaries
        self._mutex = threading.Lock()
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
        self.start = Mark(self.index.header, self.index.before, self.index.header_crc)
        self.end = Mark(self.index.size, self.index.last, self.index.crc)
        self.time = self.index.created

    @property
    def session_id(self) -> str:
        """The id that the index names."""
        return self.index.session

    def size(self) -> int:
        """Return the bytes of all lines."""
        return self.index.size

    def tail(self) -> Tail:
        """Return what the last line says: nothing can be appended here."""
        return Tail(self.end, self.index.ctl, ("sealed",), self.index.size, self.index.time)

    def marks(self) -> list[Mark]:
        """Return the places at which frames begin."""
        return [self.start, *(Mark(f.offset, f.seq, f.crc) for f in self.index.frames[1:])]

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

    def controls(self) -> list[Line]:
        """Return the control records, in order, without reading the frames they lie in."""
        length = self.index.controls
        if not length:
            return []
        at = self._index_at + SKIPPABLE.size + KEY.size * self.index.keys
        lines = self._decompress(self.file_bytes(at, length), at, _LARGEST_INDEX)
        try:
            return format.decode_lines(lines)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self.damaged(at, f"the control records in the index: {error}") from error

    def check(self) -> None:
        """Check what reading does not: the seek table, and the index against the lines."""
        begin = self._index_at + SKIPPABLE.size
        length = KEY.size * self.index.keys + self.index.controls
        if format.crc32(self.file_bytes(begin, length)) != self.index.sections:
            raise self.damaged(begin, "checksum mismatch in keys or control records of the index")
        frames = self.index.frames
        ends = [*(frame.offset for frame in frames[1:]), self.index.size]
        table = [
            (frame.length, end - frame.offset) for frame, end in zip(frames, ends, strict=True)
        ]
        size = ENTRY.size * len(table)
        at = disk.size(self.descriptor) - TABLE_END.size - size
        if list(ENTRY.iter_unpack(self.file_bytes(at, size))) != table:
            raise self.damaged(at, "the seek table does not fit the frames")
        header = self.read(0, self.start.offset)
        if format.checked_crc(header, 0) != self.start.crc:
            raise self.damaged(0, "checksum mismatch in the header")

    def find_key(self, wanted: int) -> list[int]:
        """Return the first seqs of the appends whose keys have this hash."""
        base = self._index_at + SKIPPABLE.size
        low, high = 0, self.index.keys
        while high - low > _NEAR_KEYS:
            middle = (low + high) // 2
            found, _ = KEY.unpack(self.file_bytes(base + middle * KEY.size, KEY.size))
            # Equal ones may lie on both sides: the window at the end takes them all in.
            low, high = (middle, high) if found < wanted else (low, middle + 1)
            if found == wanted:
                low, high = max(low, middle - _NEAR_KEYS // 2), middle + _NEAR_KEYS // 2
                break
        high = min(high, self.index.keys)
        keys = KEY.iter_unpack(self.file_bytes(base + low * KEY.size, (high - low) * KEY.size))
        return [seq for found, seq in keys if found == wanted]

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

        if most > LARGEST_FRAME and most != _LARGEST_INDEX:
            raise self.damaged(at, f"a frame that claims to hold {most:,} bytes is none of ours")
        try:
            # What the frame itself claims must not be more than the index does: no room for a bomb.
            if not 0 <= zstandard.frame_content_size(data) <= most:
                raise self.damaged(at, "a frame claims to hold more than it should")
            with self._mutex:
                if self._decompressor is None:
                    self._decompressor = self._make_decompressor(zstandard)
                found: bytes = self._decompressor.decompress(data, max_output_size=most)
        except zstandard.ZstdError as error:
            raise self.damaged(at, f"not a frame of zstd: {error}") from error
        return found

    def _make_decompressor(self, zstandard: Any) -> Any:
        name = self.index.dictionary
        if not name:
            return zstandard.ZstdDecompressor()
        try:
            return zstandard.ZstdDecompressor(
                dict_data=dictionary.prepared(name, self._dictionaries)
            )
        except Damaged as error:
            reason = f"{error.reason}; session {self.index.session!r} was compressed with it"
            raise Damaged(error.path, error.offset, reason, error.hint) from error

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


#: Keys that are looked at in one read: two pages.
_NEAR_KEYS: Final = 256


def _read_index(sealed: Sealed) -> tuple[Index, int]:
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
    tail = sealed.file_bytes(behind - INDEX_END.size, INDEX_END.size)
    length, crc, ours = INDEX_END.unpack(tail)
    if ours != OURS:
        raise sealed.damaged(behind - len(OURS), "no index of hansard's")
    json_at = behind - INDEX_END.size - length
    if json_at < SKIPPABLE.size:
        raise sealed.damaged(behind, "the index does not fit into the file")
    text = sealed.file_bytes(json_at, length)
    if format.crc32(text) != crc:
        raise sealed.damaged(json_at, "checksum mismatch in the index")
    try:
        index = decode_index(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise sealed.damaged(json_at, f"not an index: {error}") from error
    if index.version != VERSION:
        raise UnknownFormat(
            f"{sealed.path}: sealed segment version {index.version}, and this hansard knows {VERSION}; "
            "use a newer hansard: the file was left as it is"
        )
    return index, json_at - index.controls - KEY.size * index.keys - SKIPPABLE.size
