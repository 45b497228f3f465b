"""Requests to append, and the lines that they become in a plain segment.

`WriteBatch` and `sealed_writer` are the only writers of segments.
"""

import errno
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final, NamedTuple
from weakref import ref

import msgspec

from hansard.errors import DiskFailed, SeqConflict, SessionExists
from hansard.log import disk, format
from hansard.log.format import Line, LogEnd, Position
from hansard.log.segment_reader import PIECE, Segment, SegmentReader

#: Bytes of lines that a `SegmentWriter` collects before it writes them.
_PENDING: Final = 1 << 20


class AppendRequest(msgspec.Struct, frozen=True, gc=False):
    """Events to append to a session, all or none, and the conditions.

    A struct, because it costs 30 ns, and a named tuple 400.
    """

    #: `event.event.NewEvent`s: only their fields are known here.
    events: Sequence[Any]
    #: The idempotency key: if an earlier append has it, its events are returned instead.
    key: str | None = None
    #: The session's last seq, 0 if it does not exist; otherwise `SeqConflict`.
    expected_seq: int | None = None
    #: The session must not exist; otherwise `SessionExists`.
    new_only: bool = False
    #: False: return without a sync; a later append or `sync` makes the events durable.
    durable: bool = True
    #: Called when nothing else can be appended before these events; if it raises, nothing is appended.
    check: Callable[[], object] | None = None

    def refusal(
        self, session_id: str, seq: int, *, exists: bool
    ) -> SessionExists | SeqConflict | None:
        """Return why a session at this seq does not meet the conditions; None if it does."""
        if self.new_only and exists:
            return session_exists(session_id, seq)
        if self.expected_seq is not None and self.expected_seq != seq:
            return seq_conflict(session_id, self.expected_seq, seq)
        return None


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """Where an append is stored. `duplicate`: its key was known, and these are the earlier events."""

    first: int
    length: int
    time: str
    duplicate: bool = False


def session_exists(session_id: str, seq: int) -> SessionExists:
    """Return the error for a session that must be new."""
    return SessionExists(
        f"session {session_id!r} exists already, at seq {seq}; nothing was written. Use another id"
    )


def seq_conflict(session_id: str, expected: int, actual: int) -> SeqConflict:
    """Return the error for a session that is at another seq."""
    return SeqConflict(
        f"session {session_id!r} is at seq {actual}, not at the expected {expected}; "
        "nothing was appended: read what is new and decide again",
        expected=expected,
        actual=actual,
    )


class PendingAppend:
    """An append that waits for the leader, which sets `result` or `error`."""

    __slots__ = ("_path", "error", "request", "result")

    def __init__(self, request: AppendRequest, path: str) -> None:
        self.request = request
        self.result: AppendResult | None = None
        self.error: Exception | None = None
        self._path = path

    def refuse(self, error: BaseException) -> None:
        """Set the error, unless there is one already."""
        if self.error is not None:
            return
        self.result = None
        if isinstance(error, Exception):
            # A copy: an exception that two threads raise mixes up their tracebacks.
            self.error = copy(error)
            self.error.__cause__ = error.__cause__
        else:
            # An interrupt is for the thread that received it.
            self.error = self._interrupted()

    def outcome(self) -> AppendResult:
        """Return where the append is stored, or raise its error."""
        if self.error is not None:
            raise self.error
        if self.result is None:
            raise self._interrupted()
        return self.result

    def _interrupted(self) -> DiskFailed:
        cause = InterruptedError(errno.EINTR, "the writing thread was interrupted")
        return DiskFailed("append", self._path, cause, "this append was not acknowledged")


class SyncTarget(NamedTuple):
    """What a sync must cover: the segment up to its end while the lock was held, and its directory."""

    segment: Segment
    end: int
    directory: int
    #: The directory that has the entry of that directory; None if both are durable.
    parent: int | None


class KeyIndex:
    """The idempotency keys of the active segment, with first seq and number of events of each append (F-18).

    Read from the log when a key is needed first, and then only from what is new. For the leader.

    Attributes:
        upto: the position up to which the keys are known.
    """

    __slots__ = ("_known", "_reader", "upto")

    def __init__(self) -> None:
        #: The reader of the segment that has these keys. A header does not tell it from all others: a repair
        #: may write the same one again. Not kept open.
        self._reader: ref[SegmentReader] | None = None
        self._known: dict[str, tuple[int, int]] = {}
        self.upto: Position | None = None

    def belong_to(self, reader: SegmentReader, upto: Position) -> None:
        """Record that these are all keys of a segment up to a position."""
        self._reader = ref(reader)
        self.upto = upto

    def forget(self) -> None:
        """Drop all keys: the log was replaced, or an append failed."""
        self._known = {}
        self.upto = None

    def update(self, reader: SegmentReader, end: Position) -> None:
        """Read the keys of what was appended since the last time."""
        if self._reader is None or self._reader() is not reader:
            # The log continues in another segment, which a reader may notice before a writer does.
            self.forget()
        start = self.upto or reader.segment.start
        if start is end:
            return
        for piece in reader.forwards(start, end):
            for line in piece.lines(format.decode_lines):
                if line.key is not None:
                    self.add(line.key, line.seq, line.more + 1)
        self.belong_to(reader, end)

    def add(self, key: str, first: int, count: int) -> None:
        """Record the key of an append."""
        self._known[key] = (first, count)

    def find(self, key: str) -> tuple[int, int] | None:
        """Return first seq and number of events of the append that has this key."""
        return self._known.get(key)


class WriteBatch:
    """Lines to be written with one call, and the end of the log as it will be after them."""

    __slots__ = ("crc", "ctl", "fresh", "lines", "offset", "recovered", "seq", "shut", "time")

    def __init__(self, start: Position, ctl: int, *, fresh: bool = False) -> None:
        """`fresh`: the session does not exist yet."""
        self.offset = start.offset
        self.seq = start.seq
        self.crc = start.crc
        self.ctl = ctl
        self.fresh = fresh
        #: Bytes of the torn tail that it closes.
        self.recovered = 0
        self.shut: tuple[str, ...] = ()
        self.time = ""
        self.lines: list[bytes] = []

    def add(self, request: AppendRequest, now: bytes) -> None:
        """Frame the records of one append (F-27)."""
        more = len(request.events)
        key = request.key
        for entry in request.events:
            more -= 1
            time = entry.time.encode() if entry.time else now
            raw, crc = format.record(
                self.seq + 1,
                time,
                entry.kind.encode(),
                entry.data,
                self.crc,
                key=key,
                more=more,
                control=entry.control,
                ctl=self.ctl,
            )
            self._put(raw, crc, control=entry.control)
            key = None
        self.time = request.events[-1].time or now.decode()
        self.fresh = False

    def copy(self, line: Line, unknown: bytes = b"") -> None:
        """Frame a record of another segment: only its checksum and `ctl` are new.

        `unknown`: members that this version does not know, from `format.unknown_members`.
        """
        assert line.seq == self.seq + 1, "seqs follow one another"
        raw, crc = format.copy_record(line, self.crc, ctl=self.ctl, unknown=unknown)
        self._put(raw, crc, control=line.control)
        self.time = line.time

    def _put(self, raw: bytes, crc: int, *, control: bool) -> None:
        self.seq += 1
        self.crc = crc
        if control:
            self.ctl = self.offset
        self.offset += len(raw)
        self.lines.append(raw)

    def note(self, word: str, data: dict[str, Any]) -> None:
        """Frame a note."""
        line, self.crc = format.note(word, self.seq, format.now(), data, self.crc, ctl=self.ctl)
        self.offset += len(line)
        self.lines.append(line)
        self.time = ""

    def end_torn_tail(self, segment: Segment, end: LogEnd) -> None:
        """Close a torn tail, so that the next line does not continue it (F-29)."""
        data = b""
        while self.offset < end.size:
            data = segment.read(self.offset, min(PIECE, end.size - self.offset))
            self._skip(data)
        if not data.endswith(b"\n"):
            self.lines.append(format.TORN)
            self._skip(format.TORN)
        begin = end.position.offset
        self.recovered = end.size - begin
        facts: dict[str, Any] = {"offset": begin, "bytes": self.offset - begin}
        if end.shut:
            facts["shut"] = list(end.shut)
        self.note("recovered", facts)

    def _skip(self, data: bytes) -> None:
        """Count bytes that are not a line of this batch."""
        self.crc = format.crc32(data, self.crc)
        self.offset += len(data)

    def log_end(self) -> LogEnd:
        """Return the end of the log as it is once the lines are written."""
        position = Position(self.offset, self.seq, self.crc)
        return LogEnd(position, self.ctl, self.shut, self.offset, self.time)


class SegmentWriter:
    """Writes a new plain segment to a file with a temporary name.

    Attributes:
        batch: where the segment ends, with all that was added.
    """

    __slots__ = ("_descriptor", "_written", "batch")

    def __init__(self, descriptor: int, header: bytes, start: Position) -> None:
        """`start`: the position after the header."""
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
