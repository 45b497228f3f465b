"""Frame an append: what is asked for, the lines it becomes, and where the log ends after them.

Above: `writer`.  Below: `append_request`, `format`, `reader`, `segment`.
"""

import errno
from copy import copy
from typing import Any, NamedTuple

from hansard.errors import DiskFailed
from hansard.log import disk, format
from hansard.log.append_request import AppendRequest, AppendResult
from hansard.log.format import Mark
from hansard.log.reader import PIECE, Tail
from hansard.log.segment import Segment


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


class Touched(NamedTuple):
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

    def __init__(self, start: Mark, ctl: int, *, fresh: bool = False) -> None:
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

    def note(self, word: str, data: dict[str, Any]) -> None:
        """Frame a note."""
        line, self.crc = format.note(word, self.seq, format.now(), data, self.crc, ctl=self.ctl)
        self.offset += len(line)
        self.lines.append(line)
        self.time = ""

    def end_torn_tail(self, segment: Segment, tail: Tail) -> None:
        """End what a crash left unfinished, so that nothing is glued to it (F-29)."""
        data = b""
        while self.offset < tail.size:
            data = segment.read(self.offset, min(PIECE, tail.size - self.offset))
            self.skip(data)
        if not data.endswith(b"\n"):
            self.lines.append(format.TORN)
            self.skip(format.TORN)
        length = self.offset - tail.mark.offset
        facts: dict[str, Any] = {"offset": tail.mark.offset, "bytes": length}
        if tail.shut:
            facts["shut"] = list(tail.shut)
        self.note("recovered", facts)

    def skip(self, data: bytes) -> None:
        """Take bytes that stand in the segment already into offset and checksum."""
        self.crc = format.crc32(data, self.crc)
        self.offset += len(data)

    def tail(self) -> Tail:
        """Return the end of the log as it is once the lines are written."""
        return Tail(
            Mark(self.offset, self.seq, self.crc), self.ctl, self.shut, self.offset, self.time
        )
