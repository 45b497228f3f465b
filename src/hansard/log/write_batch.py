"""Frame the lines of a plain segment: appends to the active one, and new segments.

`WriteBatch` and `sealed_writer` are the only writers of segments.
"""

import errno
from copy import copy
from typing import Any, Final, NamedTuple

from hansard.errors import DiskFailed
from hansard.log import disk, format
from hansard.log.append_request import AppendRequest, AppendResult
from hansard.log.format import Line, Position
from hansard.log.segment import Segment
from hansard.log.segment_reader import PIECE, LogEnd

#: Bytes of lines that a `SegmentWriter` collects before it writes them.
_PENDING: Final = 1 << 20


class PendingAppend:
    """An append on its way; the leader sets `result` or `error`."""

    __slots__ = ("_path", "error", "request", "result")

    def __init__(self, request: AppendRequest, path: str) -> None:
        self.request = request
        self.result: AppendResult | None = None
        self.error: Exception | None = None
        self._path = path

    def refuse(self, error: BaseException) -> None:
        """Say that the append was not acknowledged, and why, unless there is an answer already.

        With a copy: an exception raised in two threads mixes up their tracebacks. And an interrupt is for
        the thread that got it; the others learn that their append was not acknowledged.
        """
        if self.error is not None:
            return
        self.result = None
        if isinstance(error, Exception):
            self.error = copy(error)
            self.error.__cause__ = error.__cause__
        else:
            self.error = _interrupted(self._path)

    def outcome(self) -> AppendResult:
        """Return where the append went, or raise why it was not done."""
        if self.error is not None:
            raise self.error
        if self.result is None:
            # Neither: the thread that was to write it was interrupted before it began.
            raise _interrupted(self._path)
        return self.result


class SyncTarget(NamedTuple):
    """What a sync must cover: the segment, and its directory while its entry is not durable."""

    segment: Segment | None
    directory: disk.OwnedFd | None
    #: The directory that the entry of that one is in.
    parent: int | None = None
    #: Where the segment ended when the lock was held; 0 if nobody has looked.
    end: int = 0
    #: The segment itself has been synced: it was made with all that is in it.
    made: bool = False


def _interrupted(path: str) -> DiskFailed:
    """Return the error for an append whose writing thread was interrupted."""
    cause = InterruptedError(errno.EINTR, "the writing thread was interrupted")
    return DiskFailed("append", path, cause, "this append was not acknowledged")


class WriteBatch:
    """Lines framed to be written in one go, and the end of the log as it will be after them."""

    __slots__ = ("crc", "ctl", "fresh", "lines", "offset", "seq", "shut", "time")

    def __init__(self, start: Position, ctl: int, *, fresh: bool = False) -> None:
        self.offset = start.offset
        self.seq = start.seq
        self.crc = start.crc
        self.ctl = ctl
        self.fresh = fresh
        self.shut: tuple[str, ...] = ()
        self.time = ""
        self.lines: list[bytes] = []

    def add(self, request: AppendRequest, now: bytes) -> None:
        """Frame the records of one append (F-27)."""
        more = len(request.events)
        key = request.key
        for entry in request.events:
            more -= 1
            self.seq += 1
            line, self.crc = format.record(
                self.seq,
                entry.time.encode() if entry.time else now,
                entry.kind.encode(),
                entry.data,
                self.crc,
                key=key,
                more=more,
                control=entry.control,
                ctl=self.ctl,
            )
            key = None
            if entry.control:
                self.ctl = self.offset
            self.offset += len(line)
            self.lines.append(line)
            self.time = entry.time or now.decode()
        self.fresh = False

    def copy(self, line: Line, unknown: bytes = b"") -> None:
        """Frame a record of another segment: as it was, except for what depends on its place.

        `unknown`: members that this version does not know, from `format.unknown_members`.
        """
        assert line.seq == self.seq + 1, "seqs follow one another"
        self.seq = line.seq
        raw, self.crc = format.record(
            line.seq,
            line.time.encode(),
            line.kind.encode(),
            bytes(line.data),
            self.crc,
            key=line.key,
            more=line.more,
            control=line.control,
            ctl=self.ctl,
            unknown=unknown,
        )
        if line.control:
            self.ctl = self.offset
        self.offset += len(raw)
        self.lines.append(raw)
        self.time = line.time

    def note(self, word: str, data: dict[str, Any]) -> None:
        """Frame a note."""
        line, self.crc = format.note(word, self.seq, format.now(), data, self.crc, ctl=self.ctl)
        self.offset += len(line)
        self.lines.append(line)
        self.time = ""

    def end_torn_tail(self, segment: Segment, tail: LogEnd) -> None:
        """End what a crash left unfinished, so that nothing is glued to it (F-29)."""
        data = b""
        while self.offset < tail.size:
            data = segment.read(self.offset, min(PIECE, tail.size - self.offset))
            self.skip(data)
        if not data.endswith(b"\n"):
            self.lines.append(format.TORN)
            self.skip(format.TORN)
        length = self.offset - tail.position.offset
        facts: dict[str, Any] = {"offset": tail.position.offset, "bytes": length}
        if tail.shut:
            facts["shut"] = list(tail.shut)
        self.note("recovered", facts)

    def skip(self, data: bytes) -> None:
        """Take bytes that stand in the segment already into offset and checksum."""
        self.crc = format.crc32(data, self.crc)
        self.offset += len(data)

    def log_end(self) -> LogEnd:
        """Return the end of the log as it is once the lines are written."""
        return LogEnd(
            Position(self.offset, self.seq, self.crc), self.ctl, self.shut, self.offset, self.time
        )


class SegmentWriter:
    """Writes a new plain segment to a file that has a temporary name.

    Attributes:
        batch: where the segment ends, with what was added so far.
    """

    __slots__ = ("_descriptor", "_written", "batch")

    def __init__(self, descriptor: int, header: bytes, start: Position) -> None:
        """`start`: the mark after the header."""
        self._descriptor = descriptor
        self._written = 0
        self.batch = WriteBatch(start, 0, fresh=True)
        self.batch.lines.append(header)

    def add(self, request: AppendRequest, now: bytes) -> None:
        """Add the records of an append."""
        self.batch.add(request, now)
        self._flush(_PENDING)

    def copy(self, line: Line, unknown: bytes = b"") -> None:
        """Add a record of another segment."""
        self.batch.copy(line, unknown)
        self._flush(_PENDING)

    def finish(self) -> None:
        """Write the rest, and sync."""
        self._flush(0)
        disk.sync(self._descriptor)

    def _flush(self, more_than: int) -> None:
        batch = self.batch
        if batch.offset - self._written > more_than:
            lines, batch.lines, self._written = batch.lines, [], batch.offset
            disk.write_all(self._descriptor, b"".join(lines))
