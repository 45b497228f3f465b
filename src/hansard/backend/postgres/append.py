"""Append to a session with one statement.

The first part of the statement advances the session's row by the number of events, or creates it. The row
stays locked until the commit, so commits come in the order of seqs, and a reader of `seq > n` misses no
event. The second part inserts the events at the seqs that the first part returned. If a condition does not
hold, the first part returns nothing, and nothing is inserted.

Threads that append to one session at the same time share a statement (`log.group_commit`). The first one
leads; those that come while it waits for the server share the next statement. Appends with a check or an
`expected_seq`, or for a new session, have a separate statement.

Every append has an id that is unique in its session: derived from the caller's key, or generated. So an
append whose connection was lost can be sent again. If the first try was committed, the unique index
refuses the second, and the events of the first are returned.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg

from hansard.backend.contract import INTERNAL, AppendRequest
from hansard.backend.postgres.connection import (
    Connection,
    Connections,
    PreparedQuery,
    Value,
    prepared_query,
)
from hansard.backend.postgres.schema import hash_number, session_number
from hansard.errors import BackendUnavailable, InvalidEvent
from hansard.event.event import Event, repeated
from hansard.log import disk, format
from hansard.log.group_commit import GroupCommit
from hansard.log.store_directory import deleted, not_found

if TYPE_CHECKING:
    from hansard.backend.postgres.backend import PostgresBackend

#: Maximum events and bytes that share one statement.
_MAX_EVENTS: Final = 1000
_MAX_BYTES: Final = 4 * 1024 * 1024

#: The options of most appends: no key, no expected seq, not only new, no time, durable.
_DEFAULTS: Final = (None, None, False, None, True)

#: Maximum tries while other writers change the session in between.
_TRIES: Final = 20

#: The time as `log.format` writes it, taken while the row is locked: times ascend with seqs.
_CLOCK: Final = """to_char({clock} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')::varchar"""
_NOW: Final = _CLOCK.format(clock="now()")
LATER: Final = _CLOCK.format(clock="clock_timestamp()")

#: `count` is the number of events, also below.
_CREATE: Final = f"""
INSERT INTO {{schema}}.sessions AS s (session, internal, id, before, last_seq, bytes, created, updated)
VALUES (%(session)s::uuid, %(internal)s::boolean, %(id)b, 0, {{count}}, %(bytes)s::bigint,
        coalesce(%(first)b::varchar, {_NOW}), coalesce(%(last)b::varchar, {_NOW}))
ON CONFLICT (session)"""  # noqa: S608 - no input

_ADVANCE: Final = f"""
SET last_seq = s.last_seq + {{count}}, bytes = s.bytes + %(bytes)s::bigint, marked = true,
    updated = coalesce(%(last)b::varchar, {LATER})
WHERE s.deleted_at IS NULL"""

_UPDATE: Final = f"""
UPDATE {{schema}}.sessions AS s{_ADVANCE} AND s.session = %(session)s::uuid"""

_EXPECTED: Final = " AND s.last_seq = %(expected)s::bigint"

#: For keys of callers, which may have been used before.
_UNKNOWN: Final = """
AND NOT EXISTS (SELECT FROM {schema}.events AS k
                WHERE k.session = %(session)s::uuid AND k.append_id = ANY(%(keys)b::varchar[]::uuid[]))"""

_UNKNOWN_ONE: Final = _UNKNOWN.replace("ANY(%(keys)b::varchar[]::uuid[])", "%(append_id)s::uuid")

#: Executed without a cursor: values are bytes, and those marked `b` are sent in binary.
_ONE: Final = """
INSERT INTO {schema}.events
    (session, seq, append_id, append_count, control, stamp, kind, key, data)
SELECT %(session)s::uuid, s.last_seq, %(append_id)s::uuid, 1, %(control)s::boolean, s.updated,
       %(kind)b::varchar, %(key)b::varchar, %(data)b::text
FROM s"""

_MANY: Final = """
INSERT INTO {schema}.events
    (session, seq, append_id, append_count, control, stamp, kind, key, data)
SELECT %(session)s::uuid, s.last_seq - {count} + e.place, e.append_id::uuid, e.append_count, e.control,
       coalesce(e.stamp, s.updated), e.kind, e.key, e.data
FROM s, unnest(%(append_ids)b::varchar[], %(append_counts)b::integer[], %(controls)b::boolean[],
               %(stamps)b::varchar[], %(kinds)b::varchar[], %(keys_given)b::varchar[], %(datas)b::text[])
     WITH ORDINALITY AS e (append_id, append_count, control, stamp, kind, key, data, place)"""

#: For this statement only, which is its own transaction.
_LIGHT: Final = ", set_config('synchronous_commit', 'off', true)"

_KNOWN: Final = """
SELECT replace(append_id::varchar, '-', ''), seq, append_count FROM {schema}.events
WHERE session = %(session)s::uuid AND append_id = ANY(%(keys)b::varchar[]::uuid[])"""


_LOCK: Final = """
SELECT life FROM {schema}.sessions
WHERE session = %(session)s::uuid AND deleted_at IS NULL FOR UPDATE"""


@contextmanager
def locking(
    connections: Connections, session: str, timeout: float | None = None
) -> Iterator[Connection | None]:
    """Return a connection in a transaction that has locked a session; None if it does not exist.

    Nothing is appended to the session before the transaction ends.
    """
    with connections.own_transaction() as connection:
        if timeout is not None:
            wait = f"{max(1, round(timeout * 1000))}ms"
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (wait,))
        found = connection.execute(connections.query(_LOCK), {"session": session}).fetchone()
        yield connection if found else None


class _Shape(NamedTuple):
    """The form of an append's statement: what an append does not need is not checked.

    Attributes:
        one: there is one event.
        exists, new: the session is known to exist; it must not exist.
        expected: the session must be at a seq.
        keyed, timed: some appends have keys of callers; the events have their own times.
        light: the append need not be durable when it returns.
    """

    one: bool
    exists: bool
    new: bool
    expected: bool
    keyed: bool
    timed: bool
    light: bool


@lru_cache
def _statement(shape: _Shape) -> str:
    """Return the statement of an append."""
    unknown = _UNKNOWN_ONE if shape.one else _UNKNOWN
    conditions = (_EXPECTED if shape.expected else "") + (unknown if shape.keyed else "")
    if shape.exists:
        session = _UPDATE + conditions
    elif shape.new:
        session = f"{_CREATE} DO NOTHING"
    else:
        session = f"{_CREATE} DO UPDATE{_ADVANCE}{conditions}"
    text = (
        f"WITH s AS ({session}\nRETURNING s.last_seq, s.updated),\n"
        f"e AS ({_ONE if shape.one else _MANY})\n"
        f"SELECT last_seq, updated{_LIGHT if shape.light else ''} FROM s"
    )
    text = text.replace("{count}", "1" if shape.one else "%(count)s::bigint")
    for name, given in (("key", shape.keyed), ("first", shape.timed), ("last", shape.timed)):
        text = text if given else text.replace(f"%({name})b::varchar", "NULL")
    return text


class PendingInsert:
    """An append in progress; the thread that does it sets `events` or `error`."""

    __slots__ = ("error", "events", "id", "request", "size")

    def __init__(self, request: AppendRequest) -> None:
        self.request = request
        self.size = sum(len(one.data) for one in request.events)
        if request.key is None:
            # Unique in its session, and ascending, so that ids are neighbors in the index.
            self.id = f"{time.time_ns():016x}{os.urandom(8).hex()}"
        else:
            self.id = hash_number(b"key\0" + request.key.encode())
        #: The stored events; an append of no events is done already.
        self.events: list[Event] | None = None if request.events else []
        self.error: Exception | None = None

    def outcome(self) -> list[Event]:
        """Return its events, or raise."""
        if self.error is not None:
            raise self.error
        if self.events is None:
            raise BackendUnavailable(
                "the thread that appended for several was interrupted; this append was not acknowledged, "
                "and may be stored. Retry with its key, or read the session first"
            )
        return self.events


class Writer:
    """Appends to one session, for all threads of this process."""

    def __init__(self, backend: "PostgresBackend", session_id: str) -> None:
        self.session_id = session_id
        self.session = session_number(session_id)
        self._number = self.session.encode()
        self._internal = session_id.startswith(INTERNAL)
        self._light = backend.durability == "os"
        self._connections = backend.connections
        self._counters = backend.counters
        self._rows = backend.rows
        self._notifier = backend.notifier
        #: The session existed at the last append. If it was purged since, the next append finds nothing.
        self._exists = False
        #: The statement for one event with default options.
        self._plain: PreparedQuery | None = None
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Start again in a forked child: it must not wait for the threads of its parent."""
        self._turns: GroupCommit[list[PendingInsert]] = GroupCommit(
            self._lead, where=f"{self._connections.url.where}: session {self.session_id!r}"
        )

    def append(self, appends: list[PendingInsert]) -> None:
        """Do appends, in order, and set the outcome of each."""
        self._turns.submit(appends)

    def _count(self, group: list[PendingInsert], events: int) -> None:
        counters, appends, size = self._counters, len(group), sum(one.size for one in group)
        # No call between reading and writing a counter: other sessions' threads add to it, too.
        counters.appends += appends
        counters.more_events += events - appends
        counters.bytes += size

    def _lead(self, requests: list[list[PendingInsert]]) -> None:
        """Do the appends of this thread and of those that wait, in the order in which they came."""
        waiting = [append for appends in requests for append in appends]
        for group in _grouped(waiting) if len(waiting) > 1 else (waiting,):
            try:
                self._commit(group)
            except Exception as error:  # noqa: BLE001 - each caller gets it
                for append in group:
                    if append.events is None and append.error is None:
                        append.error = error

    def _commit(self, group: list[PendingInsert]) -> None:
        """Append a group, with as many tries as it takes."""
        deadline = time.monotonic() + self._connections.url.patience
        uncertain = False
        for _ in range(_TRIES):
            stamps = _stamps(group)
            position, doubtful = self._connections.retry_noting(
                lambda: self._attempt(group, stamps, deadline),  # noqa: B023 - called at once
                deadline,
            )
            if position is not None:
                self._exists = True
                _set_events(group, stamps, *position)
                self._count(group, len(stamps))
                group = []
            else:
                uncertain = uncertain or doubtful
                group = self._resolve(group, uncertain=uncertain)
            if not group:
                # No reader waits for an internal log.
                if not self._internal:
                    self._notifier.tell(self.session)
                return
        raise BackendUnavailable(
            f"{self._connections.url.where}: session {self.session_id!r} changed during each of "
            f"{_TRIES} tries; nothing was appended. Retry"
        )

    def _attempt(
        self, group: list[PendingInsert], stamps: list[str | None], deadline: float
    ) -> tuple[int, str] | None:
        """Try once; return the last seq and its time, or None if a condition did not hold."""
        check = group[0].request.check
        try:
            if check is None:
                return self._connections.call(partial(self._execute, group, stamps), deadline)
            with locking(self._connections, self.session) as connection:
                if connection is None:
                    return None
                check()
                return self._execute(group, stamps, connection)
        except psycopg.errors.UniqueViolation:
            return None

    def _execute(
        self, group: list[PendingInsert], stamps: list[str | None], connection: Connection
    ) -> tuple[int, str] | None:
        """Execute the statement of a group; a unique violation means that it was done before."""
        if len(stamps) > 1:
            rows = connection.fetch(*self._several(group, stamps))
            return (rows[0][0], rows[0][1]) if rows else None
        result = connection.execute_prepared(*self._one(group[0], stamps[0]))
        if not result.ntuples:
            return None
        seq, updated = result.get_value(0, 0), result.get_value(0, 1)
        assert seq is not None and updated is not None  # noqa: PT018 - NOT NULL
        return int(seq), updated.decode()

    def _one(self, append: PendingInsert, stamp: str | None) -> tuple[PreparedQuery, list[Value]]:
        """Return the statement for one event, and its values."""
        request = append.request
        new = request.events[0]
        values: dict[str, Value] = {
            "session": self._number,
            "bytes": b"%d" % append.size,
            "append_id": append.id.encode(),
            "control": b"t" if new.control else b"f",
            "kind": new.kind.encode(),
            "data": new.data,
        }
        given = (request.key, request.expected_seq, request.new_only, stamp, request.durable)
        # Nearly every append.
        plain = self._exists and given == _DEFAULTS
        query = self._plain if plain else None
        if query is None:
            texts = {**self._params(request), "key": request.key, "first": stamp, "last": stamp}
            values |= {name: text.encode() for name, text in texts.items() if text is not None}
            query = prepared_query(self._statement([append], [stamp]))
            if plain:
                self._plain = query
        return query, list(map(values.get, query.names))

    def _several(
        self, group: list[PendingInsert], stamps: list[str | None]
    ) -> tuple[bytes, dict[str, Any]]:
        """Return the statement for several events, and its parameters."""
        new = [one for append in group for one in append.request.events]
        params: dict[str, Any] = {
            **self._params(group[0].request),
            "session": self.session,
            "first": stamps[0],
            "last": stamps[-1],
            "bytes": str(sum(append.size for append in group)),
            "count": str(len(new)),
            "keys": [append.id for append in group if append.request.key is not None],
            "append_ids": [],
            "append_counts": [],
            "keys_given": [],
            "controls": [one.control for one in new],
            "stamps": stamps,
            "kinds": [one.kind for one in new],
            "datas": [one.data.decode() for one in new],
        }
        for append in group:
            rest = [None] * (len(append.request.events) - 1)
            params["append_ids"] += [append.id, *rest]
            params["append_counts"] += [len(rest) + 1, *rest]
            params["keys_given"] += [append.request.key, *rest]
        return self._statement(group, stamps), params

    def _params(self, alone: AppendRequest) -> dict[str, str | None]:
        """Return the parameters of the session's row. What a statement does not name is not sent."""
        # Numbers as texts: psycopg sends small and large ones as different types, and would prepare a
        # statement for each. No text can hold the NUL of an internal log.
        return {
            "id": self.session_id.removeprefix(INTERNAL),
            "internal": str(self._internal),
            "expected": str(alone.expected_seq),
        }

    def _statement(self, group: list[PendingInsert], stamps: list[str | None]) -> bytes:
        """Return the statement that a group needs."""
        alone = group[0].request
        new = alone.new_only or alone.expected_seq == 0
        expected = bool(alone.expected_seq)
        shape = _Shape(
            one=len(stamps) == 1,
            exists=expected or (self._exists and not new),
            new=new,
            expected=expected,
            keyed=any(append.request.key is not None for append in group),
            timed=stamps[0] is not None,
            light=self._light or not any(append.request.durable for append in group),
        )
        return self._connections.query(_statement(shape))

    def _resolve(self, group: list[PendingInsert], *, uncertain: bool) -> list[PendingInsert]:
        """Find out why nothing was appended, set that outcome, and return the appends to try again."""
        row = self._rows.session(self.session)
        self._exists = row is not None
        in_trash = row is not None and row.deleted
        seq = 0 if row is None else row.head.seq
        params = {"session": self.session, "keys": [append.id for append in group]}
        # By id: the first seq and the number of events of appends that are stored.
        known = {found: place for found, *place in self._connections.run(_KNOWN, params)}
        left = []
        for append in group:
            if append.id in known and (not in_trash or uncertain):
                first, count = known[append.id]
                events = self._rows.events(self.session, first - 1, count)
                events = [event for event in events if event.seq < first + count]
                new, key = append.request.events, append.request.key
                try:
                    again = repeated(self.session_id, key, new, events)
                    # After a lost answer it may be this append itself.
                    append.events = events if uncertain else again
                except InvalidEvent as error:
                    append.error = error
            elif in_trash:
                append.error = deleted(self.session_id)
            elif row is None and append.request.check is not None:
                append.error = not_found(self.session_id)
            else:
                append.error = append.request.refusal(self.session_id, seq, exists=seq > 0)
                if append.error is None:
                    left.append(append)
        return left


def _grouped(appends: list[PendingInsert]) -> list[list[PendingInsert]]:
    """Divide appends, in order, into groups that share a statement."""
    groups: list[list[PendingInsert]] = []
    ids: set[str] = set()
    events = size = 0
    closed = True
    for append in appends:
        request = append.request
        alone = request.expected_seq is not None or request.new_only or request.check is not None
        events += len(request.events)
        size += append.size
        full = events > _MAX_EVENTS or size > _MAX_BYTES
        if closed or alone or full or append.id in ids:
            groups.append([])
            ids, events, size = set(), len(request.events), append.size
        groups[-1].append(append)
        ids.add(append.id)
        closed = alone
    return groups


def _stamps(group: list[PendingInsert]) -> list[str | None]:
    """Return the times of events: all None for the server's, or this machine's where one is missing."""
    stamps = [one.time for append in group for one in append.request.events]
    if any(stamps) and not all(stamps):
        now = format.now().decode()
        return [stamp or now for stamp in stamps]
    return stamps


def _set_events(
    group: list[PendingInsert], stamps: list[str | None], last: int, updated: str
) -> None:
    """Give each append its stored events."""
    seq = last - len(stamps)
    place = 0
    for append in group:
        events: list[Event] = []
        for new in append.request.events:
            key = append.request.key if not events else None
            stamp = stamps[place] or updated
            place += 1
            events.append(Event(seq + place, stamp, new.kind, new.data, key))
        append.events = events
