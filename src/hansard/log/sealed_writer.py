"""Write a compressed segment: the inverse of `sealed_segment`.

Records come in, and are framed so that their checksums run from the first to the last. The result is one
complete, synced file with a temporary name, which the caller renames. Nothing here takes a lock.
"""

from collections.abc import Callable
from typing import Any, Final

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
    Page,
    SegmentIndex,
    hash_of,
    seek_table,
)
from hansard.log.segment_reader import SegmentRange

#: A large file is synced in steps of so many bytes: a file system may let whoever syncs a small append wait
#: for all that others have left to be written.
_STEP: Final = 2 * 1024 * 1024


class SealedWriter:
    """A sealed segment in the making.

    Attributes:
        mark: where the lines that were added so far end.
    """

    __slots__ = (
        "_begins",
        "_compress",
        "_created",
        "_ctl",
        "_descriptor",
        "_fingerprint",
        "_frame",
        "_frame_ends",
        "_frame_size",
        "_frame_start",
        "_frames",
        "_keys",
        "_parts",
        "_session_id",
        "_sizes",
        "_start",
        "_time",
        "_unsynced",
        "mark",
    )

    def __init__(
        self,
        descriptor: int,
        header: bytes,
        start: Position,
        *,
        session_id: str,
        created: str,
        compress: Callable[[bytes], bytes],
        begins: bool = True,
        fingerprint: str = "",
    ) -> None:
        """`begins`: the log begins here. `fingerprint`: of what was taken out."""
        self._descriptor = descriptor
        self._session_id = session_id
        self._created = created
        self._compress = compress
        self._begins = begins
        self._fingerprint = fingerprint
        self._start = start
        self.mark = start
        self._unsynced = 0
        self._frames: list[Frame] = []
        self._sizes: list[int] = []
        self._frame = [header]
        self._frame_ends = [start]
        self._frame_size = len(header)
        self._frame_start = Position(0, start.seq, 0)
        self._keys: list[tuple[int, int]] = []
        self._parts: list[str] = []
        self._ctl = 0
        self._time = ""

    def add(self, line: Line, data: bytes, *, unknown: bytes = b"") -> None:
        """Add an event: its record as it was, with these data."""
        seq = self.mark.seq + 1
        assert line.seq == seq, "seqs follow one another"
        raw, crc = format.record(
            seq,
            line.time.encode(),
            line.kind.encode(),
            data,
            self.mark.crc,
            key=line.key,
            more=line.more,
            control=line.control,
            ctl=self._ctl,
            unknown=unknown,
        )
        if line.control:
            self._ctl = self.mark.offset
        if line.key is not None:
            self._keys.append((hash_of(line.key), seq))
        self._time = line.time
        self._put(raw, seq, crc)

    def copy(self, piece: SegmentRange) -> None:
        """Add a piece of another segment as it is.

        What was added so far must be that segment, from its header on: then all checksums stay true. It costs
        a fraction of framing every line anew, and most of it without holding up other threads. The piece must
        hold no discarded fragment: a frame must not begin inside one.
        """
        assert self.mark == piece.start, "a piece follows the one before it"
        for line in piece.lines(format.decode_lines):
            self._time = line.time
            if line.key is not None:
                self._keys.append((hash_of(line.key), line.seq))
        if len(piece.data) <= FRAME:
            self._take(piece.data, piece.end)
            return
        # A batch is one piece, whatever its size; a frame may begin at any of its lines.
        lines = format.decode_lines(piece.data)
        for line, raw in zip(lines, piece.data.split(b"\n"), strict=False):
            self._put(raw + b"\n", line.seq, format.crc_after(raw + b"\n", self.mark.crc))

    def chain_ends_at(self, ctl: int) -> None:
        """Note where the latest control record lies in what was copied."""
        self._ctl = ctl

    def note(self, word: str, time: bytes, data: dict[str, Any]) -> None:
        """Add a note."""
        raw, crc = format.note(word, self.mark.seq, time, data, self.mark.crc, ctl=self._ctl)
        self._put(raw, self.mark.seq, crc)

    def keep_parts(self, streams: list[str]) -> None:
        """Note the streams whose parts were kept, since their end is not known."""
        self._parts = streams

    def _put(self, raw: bytes, seq: int, crc: int) -> None:
        self._take(raw, Position(self.mark.offset + len(raw), seq, crc))

    def _take(self, lines: bytes, end: Position) -> None:
        """Take whole lines into the frame, or into the next one if this is full."""
        if self._frame_size + len(lines) > FRAME:
            self._end_frame(len(self._frame))
        self._frame.append(lines)
        self._frame_ends.append(end)
        self._frame_size += len(lines)
        self.mark = end

    def _end_frame(self, count: int) -> None:
        """Write a frame with the first of what was taken; the rest begins the next one."""
        lines = b"".join(self._frame[:count])
        if not lines:
            return
        data = self._compress(lines)
        disk.write_all(self._descriptor, data)
        self._unsynced += len(data)
        if self._unsynced >= _STEP:
            disk.sync(self._descriptor)
            self._unsynced = 0
        start = self._frame_start
        self._frames.append(Frame(len(data), start.offset, start.seq, start.crc))
        self._sizes.append(len(lines))
        self._frame_start = self._frame_ends[count - 1]
        del self._frame[:count], self._frame_ends[:count]
        self._frame_size -= len(lines)

    def _end_frames(self) -> None:
        """Write what is left: the last lines of a large segment in a frame of their own."""
        if self._frame_size > 2 * LAST_FRAME:
            size = 0
            count = len(self._frame)
            while count > 1 and size + len(self._frame[count - 1]) <= LAST_FRAME:
                count -= 1
                size += len(self._frame[count])
            # Lines that are longer, or were copied together, stay together.
            self._end_frame(count if size else count - 1)
        self._end_frame(len(self._frame))

    def finish(self) -> SegmentIndex:
        """Write the index and the seek table, and sync."""
        self._end_frames()
        self._keys.sort()
        keys = b"".join(KEY.pack(*key) for key in self._keys)
        size = PAGE * KEY.size
        pages = [
            Page(KEY.unpack_from(keys, at)[0], format.crc32(keys[at : at + size]))
            for at in range(0, len(keys), size)
        ]
        index = SegmentIndex(
            version=VERSION,
            session=self._session_id,
            created=self._created,
            before=self._start.seq,
            last=self.mark.seq,
            size=self.mark.offset,
            crc=self.mark.crc,
            time=self._time,
            ctl=self._ctl,
            header=self._start.offset,
            header_crc=self._start.crc,
            frames=self._frames,
            keys=len(self._keys),
            pages=pages,
            begins=self._begins,
            fingerprint=self._fingerprint,
            parts=self._parts,
        )
        text = msgspec.json.encode(index)
        body = keys + text + INDEX_END.pack(len(text), format.crc32(text), OURS)
        lengths = [frame.length for frame in self._frames]
        table = seek_table(list(zip(lengths, self._sizes, strict=True)))
        disk.write_all(self._descriptor, SKIPPABLE.pack(INDEX_MAGIC, len(body)) + body + table)
        disk.sync(self._descriptor)
        return index
