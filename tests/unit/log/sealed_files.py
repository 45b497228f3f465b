"""Create sealed segments by hand, for tests of their readers."""

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import zstandard

from hansard.log import disk, format
from hansard.log.format import Line, Position
from hansard.log.sealed_segment import (
    INDEX_END,
    INDEX_MAGIC,
    KEY,
    OURS,
    SKIPPABLE,
    SealedSegment,
    seek_table,
)
from hansard.log.sealed_writer import SealedWriter
from hansard.log.segment_reader import SegmentReader

TIME = "2026-01-01T12:00:00.000000Z"


class Record(NamedTuple):
    """The content of an event."""

    data: bytes
    key: str | None = None
    more: int = 0
    control: bool = False


def header(before: int, session_id: str = "s", **facts: Any) -> tuple[bytes, Position]:
    """Return the header of a segment that begins after a seq."""
    data = {"version": 1, "session": session_id, "created": TIME, **facts}
    line, crc = format.note("header", before, TIME.encode(), data, 0)
    return line, Position(len(line), before, crc)


def line_of(seq: int, record: Record) -> Line:
    """Return a record as a reader decodes it."""
    return Line(
        seq,
        TIME,
        msgspec.Raw(record.data),
        "",
        kind="message.added",
        key=record.key,
        more=record.more,
        control=record.control,
    )


def seal(
    path: Path,
    records: list[Record],
    *,
    before: int = 0,
    session_id: str = "s",
    compress: Callable[[bytes], bytes] | None = None,
    **options: Any,
) -> Path:
    """Write a sealed segment."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    descriptor = disk.create_file(directory, path.name)
    os.close(directory)
    head, start = header(before, session_id)
    sealer = SealedWriter(
        descriptor,
        head,
        start,
        session_id=session_id,
        created=TIME,
        compress=compress or zstandard.ZstdCompressor(level=1).compress,
        **options,
    )
    for seq, record in enumerate(records, before + 1):
        sealer.add(line_of(seq, record), record.data)
    sealer.finish()
    return path


def opened(path: Path, session_id: str | None = "s") -> SealedSegment:
    """Open a sealed segment."""
    return SealedSegment(os.open(path, os.O_RDONLY), str(path), session_id)


def plain(records: list[Record], *, before: int = 0, **facts: Any) -> bytes:
    """Return the lines that a sealed segment must hold."""
    head, mark = header(before, **facts)
    lines = [head]
    crc, ctl, offset = mark.crc, 0, len(head)
    for seq, record in enumerate(records, before + 1):
        line, crc = format.copy_record(line_of(seq, record), crc, ctl=ctl)
        if record.control:
            ctl = offset
        offset += len(line)
        lines.append(line)
    return b"".join(lines)


def read(sealed: SealedSegment) -> list[Line]:
    """Return all records."""
    pieces = SegmentReader(sealed).forwards(sealed.start, sealed.end)
    return [line for piece in pieces for line in piece.lines(format.decode_lines)]


class Parts:
    """A sealed segment in pieces, to be put together again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        sealed = SealedSegment(os.open(path, os.O_RDONLY), str(path), None)
        data = path.read_bytes()
        self.frames = data[: sealed._index_at]
        at = sealed._index_at + SKIPPABLE.size
        self.keys = list(KEY.iter_unpack(data[at : at + KEY.size * sealed.index.keys]))
        end = len(data) - len(seek_table([(0, 0)] * len(sealed.index.frames)))
        length, _, _ = INDEX_END.unpack(data[end - INDEX_END.size : end])
        end -= INDEX_END.size
        self.index: dict[str, Any] = json.loads(data[end - length : end])
        self.table: Callable[[list[tuple[int, int]]], bytes] = seek_table

    def put(self, change: Callable[["Parts"], object]) -> None:
        """Write it with something changed, and everything else as it must be then."""
        frames = self.index["frames"]
        ends = [*(frame[1] for frame in frames[1:]), self.index["size"]]
        sizes = [(f[0], end - f[1]) for f, end in zip(frames, ends, strict=True)]
        change(self)
        keys = b"".join(KEY.pack(*key) for key in self.keys)
        if "keys" in change.__name__:
            self._count(keys)
        text = json.dumps(self.index, separators=(",", ":")).encode()
        body = keys + text + INDEX_END.pack(len(text), zlib.crc32(text), OURS)
        head = SKIPPABLE.pack(INDEX_MAGIC, len(body))
        self.path.write_bytes(self.frames + head + body + self.table(sizes))

    def _count(self, keys: bytes) -> None:
        self.index["keys"] = len(self.keys)
        self.index["pages"] = [
            [KEY.unpack_from(keys, at)[0], zlib.crc32(keys[at : at + 256 * KEY.size])]
            for at in range(0, len(keys), 256 * KEY.size)
        ]


def reindexed(path: Path, **members: Any) -> Path:
    """Change members of the index of a sealed segment, whose checksum fits."""
    Parts(path).put(lambda parts: parts.index.update(members))
    return path
