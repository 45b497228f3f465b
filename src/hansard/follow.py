"""Deliver the events of a store's sessions to a consumer, and keep the consumer's position.

A `Follower` polls: one poll lists the stamp of each session, and a changed session is read from the
consumer's position. Pauses grow while nothing is appended, and with the duration of a poll.

A `Cursor` is an internal log (F-159 to F-164): `cursor.opened` names the consumer that holds it,
`cursor.moved` the positions that changed. Each is appended at the seq that the holder expects, so a consumer
that lost the cursor to another cannot move it. Events are delivered at least once: a move follows the work.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Annotated, Any, Final, NamedTuple, Self

import msgspec

from hansard.backend.contract import CURSOR, AppendRequest, Backend, Hold
from hansard.clock import Backoff
from hansard.errors import (
    UNREADABLE,
    BackendUnavailable,
    Closed,
    Damaged,
    DiskFailed,
    HansardError,
    LockTimeout,
    ReadOnly,
    SeqConflict,
    SessionDeleted,
    SessionNotFound,
    SyncFailed,
)
from hansard.event.event import Event, NewEvent
from hansard.log import names
from hansard.state import lineage

OPENED: Final = "cursor.opened"
MOVED: Final = "cursor.moved"

#: A log may be twice as long as one that holds only its positions, and this many bytes longer (F-163).
SLACK: Final = 64 * 1024

#: Approximate bytes of a record without its data.
_FRAME: Final = 100

#: Maximum positions in one event.
_IN_AN_EVENT: Final = 1_000

#: Maximum attempts to find the end of a log that other consumers move.
_TRIES: Final = 20

#: A pause lasts this many times as long as the poll before it took.
_SHARE: Final = 20


# -- the cursor ---------------------------------------------------------------------------------


class _Opened(msgspec.Struct):
    holder: str


class _CursorMoved(msgspec.Struct):
    #: A seq, or None for a session that is forgotten.
    positions: dict[str, Annotated[int, msgspec.Meta(ge=0)] | None]


_decode: Final[dict[str, Callable[[bytes], Any]]] = {
    OPENED: msgspec.json.Decoder(_Opened).decode,
    MOVED: msgspec.json.Decoder(_CursorMoved).decode,
}


class _State(NamedTuple):
    """What a cursor's log adds up to."""

    seq: int
    holder: str
    positions: dict[str, int]
    size: int


class Cursor:
    """A consumer's position in each session, kept under a name. For one thread at a time.

    A position is the seq of the last event that the consumer has processed; without one it is 0. A cursor of
    a read-only store has the current positions, and cannot be moved.
    """

    def __init__(self, backend: Backend, name: str) -> None:
        """Open a cursor. `LockTimeout` if another consumer has it open."""
        log_name = _log_name(backend, name)
        self.name = name
        self._where = f"{backend.where}: cursor {name!r}"
        self._log = backend.internal(log_name)
        self._holder = os.urandom(16).hex()
        #: The size of a log that holds only the positions.
        self._fresh = 0
        #: False after an error: the end of the log is not known to be durable, so the log is replaced.
        self._intact = True
        #: None if the outcome of the last write is unknown.
        self._state: _State | None = None
        self._hold: Hold | None = None
        self._read_only = backend.read_only
        if backend.read_only:
            self._state = self._read()
            return
        try:
            self._hold = backend.exclusive(log_name)
        except LockTimeout as error:
            raise LockTimeout(
                f"{self._where} has another consumer: {error}", holder=error.holder
            ) from None
        try:
            self._open()
        except BaseException:
            # Now, and not when the error is forgotten: its handler may want to drop the cursor.
            self.close()
            raise

    def _open(self) -> None:
        """Append `cursor.opened`, after which no earlier holder can move the cursor (F-160)."""
        for _ in range(_TRIES):
            state = self._state = self._read()
            self._fresh = _size(self._snapshot(state.positions))
            try:
                return self._write(self._snapshot({}), {})
            except SeqConflict:
                continue  # a move of an earlier holder arrived
            except SyncFailed as error:
                # An earlier sync failed, and its consumer got the error: the positions go to a new log.
                if not self._intact or error.operation == "sync":
                    raise _hinted(error, "the cursor was not opened; open it again") from error
                self._intact = False
            except DiskFailed as error:
                if error.errno != errno.ESTALE:
                    raise
                # Another process has just dropped the log, which this one had open.
        raise self._taken()

    @property
    def positions(self) -> dict[str, int]:
        """Session id to seq; a copy."""
        return {} if self._state is None else dict(self._state.positions)

    def move(self, positions: Mapping[str, int | None]) -> None:
        """Move to these positions, and forget the sessions that have None: all, or none.

        When it returns, the move is as durable as the store's appends. After an error it may be stored.
        `LockTimeout` if another consumer has opened the cursor, or dropped it.
        """
        if self._hold is None:
            if self._read_only:
                raise ReadOnly(f"{self._where}: store is read-only; reopen without read_only=True")
            raise Closed(f"{self._where} was closed; open it again")
        self._hold.check()
        for _ in range(_TRIES):
            known = (self._state or self._resume()).positions
            changes = {found: seq for found, seq in positions.items() if known.get(found) != seq}
            if not changes and self._intact:
                return None
            try:
                return self._write(_moves(changes), changes)
            except SeqConflict:
                continue  # an own move arrived late, or another holder's: the log tells
            except HansardError as error:
                raise self._explain(error) from error
        raise self._taken()

    def close(self) -> None:
        """Let others open the cursor. It cannot be moved any more."""
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.close()

    def _write(self, events: list[NewEvent], changes: Mapping[str, int | None]) -> None:
        """Append events that make these changes, or replace the log by a small one with the same result."""
        state, self._state = self._state, None
        assert state is not None  # callers have read it
        size = state.size + _size(events)
        _apply(state.positions, changes)
        if self._intact and size <= 2 * self._fresh + SLACK:
            request = AppendRequest(events, expected_seq=state.seq)
            seq = self._log.append(request)[-1].seq
        else:
            events = self._snapshot(state.positions)
            self._log.replace(events, expected_seq=state.seq)
            seq = state.seq + len(events)
            size = self._fresh = _size(events)
            self._intact = True
        self._state = _State(seq, self._holder, state.positions, size)

    def _resume(self) -> _State:
        """Read the log after an error; raise if it is another consumer's, or was dropped (F-161)."""
        state = self._read()
        # Also without a log: a consumer does not recreate a cursor that was dropped.
        if state.holder != self._holder:
            raise self._taken()
        self._state = state
        self._intact = False
        return state

    def _explain(self, error: HansardError) -> HansardError:
        """Return what to raise for an error: the log may be another consumer's by now."""
        if isinstance(error, BackendUnavailable | Closed):
            return error
        try:
            self._resume()
        except LockTimeout as taken:
            return taken
        except HansardError:
            return error  # the first error has the cause
        if isinstance(error, SyncFailed):
            hint = "this move may be lost, and its events may come again; move again"
            return _hinted(error, hint)
        return error

    def _read(self) -> _State:
        for _ in range(_TRIES):
            try:
                return self._fold()
            except SessionNotFound:
                continue  # replaced, or dropped, while it was read
            except Damaged as error:
                hint = f"no position was read: restore it from a backup, or drop the cursor {self.name!r}"
                raise Damaged(error.path, error.offset, error.reason, hint) from error
        raise self._taken()

    def _fold(self) -> _State:
        seq = size = 0
        holder = ""
        positions: dict[str, int] = {}
        for chunk in self._log.reader().read():
            for event in chunk.events():
                seq = event.seq
                size += len(event.raw) + _FRAME
                try:
                    read = _decode[event.kind](event.raw) if event.kind in _decode else None
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    reason = f"event {seq} is not an event of a cursor"
                    raise Damaged(self._where, 0, reason, "") from None
                if isinstance(read, _Opened):
                    holder = read.holder
                elif isinstance(read, _CursorMoved):
                    _apply(positions, read.positions)
        return _State(seq, holder, positions, size)

    def _snapshot(self, positions: Mapping[str, int | None]) -> list[NewEvent]:
        """Return the events of a log that holds these positions, and nothing else."""
        opened = msgspec.json.encode({"holder": self._holder})
        return [NewEvent(OPENED, opened, control=False), *_moves(positions)]

    def _taken(self) -> LockTimeout:
        return LockTimeout(
            f"{self._where} was opened by another consumer, or dropped; nothing was moved: open it "
            "again, and continue from its positions"
        )


def cursors(backend: Backend) -> list[str]:
    """Return the names of the cursors, readable or not, sorted."""
    prefix = CURSOR + backend.prefix
    return [name.removeprefix(prefix) for name in backend.internals() if name.startswith(prefix)]


def drop_cursor(backend: Backend, name: str) -> bool:
    """Drop a cursor, readable or not; return whether it existed. `LockTimeout` if it is open."""
    log_name = _log_name(backend, name)
    if backend.read_only:
        raise ReadOnly(f"{backend.where}: store is read-only; reopen without read_only=True")
    if log_name not in backend.internals():
        return False
    with closing(backend.exclusive(log_name)):
        return backend.internal(log_name).drop()


def _log_name(backend: Backend, name: str) -> str:
    # First without the prefix of a scoped store, which would make an empty name a valid one.
    names.check_cursor(name)
    names.check_cursor(backend.prefix + name)
    return f"{CURSOR}{backend.prefix}{name}"


def _moves(changes: Mapping[str, int | None]) -> list[NewEvent]:
    """Return the events that make these changes."""
    items = list(changes.items())
    parts = (dict(items[at : at + _IN_AN_EVENT]) for at in range(0, len(items), _IN_AN_EVENT))
    encoded = (msgspec.json.encode({"positions": part}) for part in parts)
    return [NewEvent(MOVED, raw, control=False) for raw in encoded]


def _apply(positions: dict[str, int], changes: Mapping[str, int | None]) -> None:
    for session_id, seq in changes.items():
        if seq is None:
            positions.pop(session_id, None)
        else:
            positions[session_id] = seq


def _hinted(error: SyncFailed, hint: str) -> SyncFailed:
    return SyncFailed(error.operation, error.path, OSError(error.errno, error.strerror), hint)


def _size(events: list[NewEvent]) -> int:
    return sum(len(event.data) + _FRAME for event in events)


# -- the follower -------------------------------------------------------------------------------


class FollowedEvent(NamedTuple):
    """An event and its session."""

    #: The id of the session.
    session: str
    #: The event.
    event: Event


class Follower:
    """Yields the events of many sessions as they are appended. For one thread at a time; see `store.follow`.

    The events of a session come in order. A fork's events are its own: the inherited ones come with the
    parent. An event counts as processed when the next one is requested, and at the end of a `with` block
    that no error ends.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        wanted: Callable[[str], bool],
        cursor: Cursor | None = None,
        commit_every: int = 1,
        from_now: bool = False,
        on_damage: Callable[[str, HansardError], None] | None = None,
    ) -> None:
        self._backend = backend
        self._cursor = cursor
        self._commit_every = commit_every
        self._wanted = wanted
        self._on_damage = on_damage
        #: The stamp of each session before it was last read to its end.
        self._stamps: dict[str, str] = {}
        self._positions: dict[str, int] = {} if cursor is None else cursor.positions
        self._news: Iterator[FollowedEvent] = iter(())
        #: The event that was returned last, and the positions that are not in the cursor yet.
        self._last: FollowedEvent | None = None
        self._done: dict[str, int] = {}
        self._unsaved = 0
        if from_now:
            self._skip_stored()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FollowedEvent:
        while (found := self.take(60.0)) is None:
            pass
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()
        self.close()

    def take(self, timeout: float) -> FollowedEvent | None:
        """Return the next event; None if none came within this many seconds."""
        self._count()
        backoff = Backoff(timeout, share=_SHARE)
        self._last = next(self._news, None)
        while self._last is None:
            # No event is waiting: save the positions, then look for more.
            self._save()
            backoff.begin()
            self._news = self._poll()
            self._last = next(self._news, None)
            if self._last is None and not backoff.sleep():
                return None
        return self._last

    def commit(self) -> None:
        """Mark all returned events as processed, and save the positions."""
        self._count()
        self._save()

    def close(self) -> None:
        """Stop, and save the positions. The last event comes again, unless it was committed."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            try:
                if self._done:
                    cursor.move(self._done)
            finally:
                # Even after an error: others must be able to open the cursor.
                cursor.close()

    def _count(self) -> None:
        if self._last is not None:
            self._done[self._last.session] = self._last.event.seq
            self._last = None
            self._unsaved += 1
            if self._unsaved >= self._commit_every:
                self._save()

    def _save(self) -> None:
        if self._done and self._cursor is not None:
            self._cursor.move(self._done)
        self._done = {}
        self._unsaved = 0

    def _skip_stored(self) -> None:
        for session_id in self._backend.stamps():
            if self._wanted(session_id) and session_id not in self._positions:
                try:
                    head = self._backend.log(session_id).reader().head()
                except (SessionDeleted, *UNREADABLE):
                    continue  # reported when it is read
                if head is not None:
                    self._positions[session_id] = self._done[session_id] = head.seq
        self._save()

    def _poll(self) -> Iterator[FollowedEvent]:
        """Yield the new events of the sessions that have changed since the last poll."""
        for session_id, stamp in self._backend.stamps().items():
            if self._stamps.get(session_id) != stamp and self._wanted(session_id):
                try:
                    for found in self._read(session_id):
                        self._positions[session_id] = found.event.seq
                        yield found
                except SessionDeleted:
                    continue  # it may have been restored since, with the same stamp
                # Not before the end: after an error, the next poll reads the rest. The stamp is older than
                # the read, so the next poll finds a concurrent append, too.
                self._stamps[session_id] = stamp

    def _read(self, session_id: str) -> Iterator[FollowedEvent]:
        try:
            log = self._backend.log(session_id).reader()
            head = log.head()
            if head is None:
                return
            after = self._positions.get(session_id, 0)
            if after > head.seq:
                # Purged, and created again under the same id.
                after = self._positions[session_id] = 0
                if self._cursor is not None:
                    self._cursor.move({session_id: None})
            redactions = lineage.redactions_of(lineage.with_ancestors(self._backend, log))
            for chunk in log.read(after=after):
                for event in chunk.events():
                    yield FollowedEvent(session_id, redactions.mask(event))
        except UNREADABLE as error:
            if self._on_damage is None:
                raise
            self._on_damage(session_id, error)
