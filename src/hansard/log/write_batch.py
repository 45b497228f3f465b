"""Frame an append: what is asked for, the lines it becomes, and where the log ends after them.

Above: `writer`.  Below: `format`, `reader`, `segment`.
"""

import errno
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple, Protocol

import msgspec

from hansard.errors import DiskFailed
from hansard.log import disk, format
from hansard.log.format import Mark
from hansard.log.reader import PIECE, Tail
from hansard.log.segment import Segment


class Entry(Protocol):
    """What is to become one record. `data` is a JSON object, as bytes."""

    @property
    def kind(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def control(self) -> bool: ...
    @property
    def time(self) -> str | None: ...


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """Where an append went. `duplicate`: its key was known, and these are the earlier events."""

    first: int
    length: int
    time: str
    duplicate: bool = False


class Order:
    """One append, as its caller ordered it; the leader sets `result` or `error`."""

    __slots__ = (
        "before",
        "durable",
        "entries",
        "error",
        "expected_seq",
        "key",
        "new_only",
        "result",
    )

    def __init__(
        self,
        entries: Sequence[Entry],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
        new_only: bool = False,
        before: int = 0,
        durable: bool = True,
    ) -> None:
        self.entries = entries
        self.key = key
        self.expected_seq = expected_seq
        self.new_only = new_only
        #: The seq before the first event, if this append begins the log.
        self.before = before
        #: Whether a sync must come before the answer.
        self.durable = durable
        self.result: AppendResult | None = None
        self.error: BaseException | None = None

    def refuse(self, error: BaseException, path: str) -> None:
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
            self.error = interrupted(path)


class Touched(NamedTuple):
    """What a sync must cover: the segment, and its directory while its entry is not durable."""

    segment: Segment | None
    directory: disk.Open | None
    #: The directory that the entry of that one is in.
    parent: int | None = None
    #: Where the segment ended when the lock was held; 0 if nobody has looked.
    end: int = 0
    #: The segment itself has been synced: it was made with all that is in it.
    made: bool = False


def interrupted(path: str) -> DiskFailed:
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

    def add(self, order: Order, now: bytes) -> None:
        """Frame the records of one append (F-27)."""
        more = len(order.entries)
        key = order.key
        for entry in order.entries:
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
