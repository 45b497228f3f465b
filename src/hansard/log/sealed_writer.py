"""Write a compressed segment: the inverse of `sealed_segment`.

Records are framed so that their checksums run from the first to the last. The result is a complete, synced
file with a temporary name, which the caller renames. Nothing here takes a lock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from hansard.log import disk, format
from hansard.log.format import Line, Position
from hansard.log.sealed_segment import (
    FRAME,
    INDEX_END,
    INDEX_MAGIC,
    KEY,
    LAST_FRAME,
    OURS,
    PAGE,
    SKIPPABLE,
    VERSION,
    Frame,
    SegmentIndex,
    hash_of,
    seek_table,
)
from hansard.log.segment_reader import SegmentRange

#: A large file is synced in steps of this many bytes: on some file systems, a small append would otherwise
#: wait until all unwritten data are on the disk.
_STEP: Final = 2 * 1024 * 1024


@dataclass
class SealedWriter:
    """Writes one sealed segment.

    Attributes:
        descriptor: the new file.
        header: the header line.
        position: where the lines end that were added; at first, after the header.
        begins: the log begins here.
        fingerprint: a digest of what was taken out.
        ctl: the offset of the latest control record; the caller of `copy` sets it.
    """

    descriptor: int
    header: bytes
    position: Position
    session_id: str
    created: str
    compress: Callable[[bytes], bytes]
    begins: bool = True
    fingerprint: str = ""

    def __post_init__(self) -> None:
        self.ctl = 0
        self._start = self.position
        self._time = ""
        self._keys: list[tuple[int, int]] = []
        self._unsynced = 0
        self._frames: list[Frame] = []
        #: The lines of the next frame, where each of them ends, their size, and where the frame begins.
        self._lines = [self.header]
        self._ends = [self._start]
        self._size = len(self.header)
        self._frame_start = Position(0, self._start.seq, 0)

    def add(self, line: Line, data: bytes, *, unknown: bytes = b"") -> None:
        """Add an event: its record as it was, with this data."""
        end = self.position
        assert line.seq == end.seq + 1, "seqs follow one another"
        raw, crc = format.copy_record(line, end.crc, ctl=self.ctl, data=data, unknown=unknown)
        if line.control:
            self.ctl = end.offset
        self._count(line)
        self._put(raw, line.seq, crc)

    def _count(self, line: Line) -> None:
        self._time = line.time
        if line.key is not None:
            self._keys.append((hash_of(line.key), line.seq))

    def copy(self, piece: SegmentRange) -> None:
        """Add a range of another segment unchanged.

        What was added so far must be that segment, from its header on: then all checksums stay valid. This
        costs a fraction of framing each line, mostly without the interpreter lock. The range must not
        contain a discarded fragment: a frame must not begin inside one.
        """
        assert self.position == piece.start, "a range follows the one before it"
        for line in piece.lines(format.decode_lines):
            self._count(line)
        if len(piece.data) <= FRAME:
            self._take(piece.data, piece.end)
            return
        # With lines longer than a piece, a range has any size; a frame may begin at any of its lines.
        lines = format.decode_lines(piece.data)
        for line, raw in zip(lines, piece.data.split(b"\n"), strict=False):
            self._put(raw + b"\n", line.seq, format.crc_after(raw + b"\n", self.position.crc))

    def _put(self, raw: bytes, seq: int, crc: int) -> None:
        self._take(raw, Position(self.position.offset + len(raw), seq, crc))

    def _take(self, lines: bytes, end: Position) -> None:
        """Add complete lines to the frame, or to the next one if it is full."""
        if self._size + len(lines) > FRAME:
            self._end_frame(len(self._lines))
        self._lines.append(lines)
        self._ends.append(end)
        self._size += len(lines)
        self.position = end

    def _end_frame(self, count: int) -> None:
        """Write a frame with the first lines; the rest begins the next one."""
        lines = b"".join(self._lines[:count])
        if not lines:
            return
        data = self.compress(lines)
        disk.write_all(self.descriptor, data)
        self._unsynced += len(data)
        if self._unsynced >= _STEP:
            disk.sync(self.descriptor)
            self._unsynced = 0
        start = self._frame_start
        self._frames.append(Frame(len(data), start.offset, start.seq, start.crc))
        self._frame_start = self._ends[count - 1]
        del self._lines[:count], self._ends[:count]
        self._size -= len(lines)

    def _end_frames(self) -> None:
        """Write the rest: the last lines of a large segment in a separate frame."""
        if self._size > 2 * LAST_FRAME:
            size = 0
            count = len(self._lines)
            while count > 1 and size + len(self._lines[count - 1]) <= LAST_FRAME:
                count -= 1
                size += len(self._lines[count])
            # Lines that are longer, or were copied together, stay together.
            self._end_frame(count if size else count - 1)
        self._end_frame(len(self._lines))

    def finish(self) -> None:
        """Write the index and the seek table, and sync."""
        self._end_frames()
        disk.write_all(self.descriptor, self._tail())
        disk.sync(self.descriptor)

    def _tail(self) -> bytes:
        """Return the index and the seek table, which follow the frames."""
        keys = b"".join(KEY.pack(*key) for key in sorted(self._keys))
        size = PAGE * KEY.size
        pages = [
            (KEY.unpack_from(keys, at)[0], format.crc32(keys[at : at + size]))
            for at in range(0, len(keys), size)
        ]
        index = SegmentIndex(
            version=VERSION,
            session=self.session_id,
            created=self.created,
            before=self._start.seq,
            last=self.position.seq,
            size=self.position.offset,
            crc=self.position.crc,
            time=self._time,
            ctl=self.ctl,
            header=self._start.offset,
            header_crc=self._start.crc,
            frames=self._frames,
            keys=len(self._keys),
            pages=pages,
            begins=self.begins,
            fingerprint=self.fingerprint,
        )
        text = msgspec.json.encode(index)
        body = keys + text + INDEX_END.pack(len(text), format.crc32(text), OURS)
        return SKIPPABLE.pack(INDEX_MAGIC, len(body)) + body + seek_table(index.sizes())
