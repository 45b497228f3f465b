"""Append to a session with one statement.

The first part of the statement advances the session's row by the number of events, or creates it. The row
stays locked until the commit, so commits come in the order of seqs, and a reader of `seq > n` misses no
event. The second part inserts the events at the seqs that the first part returned. If a condition does not
hold, the first part returns nothing, and nothing is inserted.

Threads that append to one session at the same time share a statement (`log.group_commit`): the first one
leads, and those that come while it waits for the server go together in the next statement. Appends with an
`expected_seq`, or for a new session, go alone.

Every append has an id that is unique in its session: derived from the caller's key, or generated. So an
append whose connection was lost can be sent again: if the first try was committed, the unique index
refuses the second, and the events of the first are returned.
"""

import os
import time
from functools import lru_cache
from itertools import count
from typing import Any, Final, NamedTuple

import psycopg

from hansard.backend.contract import INTERNAL, AppendRequest
from hansard.backend.postgres.connection import Connections, PreparedQuery, Value, prepared_query
from hansard.backend.postgres.errors import ConnectionLost
from hansard.backend.postgres.notify import Notifier
from hansard.backend.postgres.read import RowReader
from hansard.backend.postgres.schema import hash_number, session_number
from hansard.errors import BackendUnavailable, SessionDeleted
from hansard.event.event import Event
from hansard.log import disk, format
from hansard.log.group_commit import GroupCommit

#: Maximum events and bytes that share one statement.
_MAX_EVENTS: Final = 1000
_MAX_BYTES: Final = 4 * 1024 * 1024

#: The options of most appends: no expected seq, not only new, nothing before, no key, no time.
_DEFAULTS: Final = (None, False, 0, None, None)

#: Maximum tries while other writers change the session in between.
_TRIES: Final = 20


#: The time as `log.format` writes it, taken while the row is locked: times ascend with seqs.
_CLOCK: Final = """to_char({clock} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')::varchar"""
_NOW: Final = _CLOCK.format(clock="now()")
LATER: Final = _CLOCK.format(clock="clock_timestamp()")

_CREATE: Final = """
INSERT INTO {schema}.sessions AS s (session, internal, id, before, last_seq, bytes, created, updated)
VALUES (%(session)s::uuid, {internal}, %(id)b, {before}, {before} + {count}, %(bytes)s::bigint,
        {first}, {last})
ON CONFLICT (session)"""

_ADVANCE: Final = """
SET last_seq = s.last_seq + {count}, bytes = s.bytes + %(bytes)s::bigint, marked = true,
    updated = {later}
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
SELECT %(session)s::uuid, s.last_seq, %(append_id)s::uuid, 1, {control}, s.updated, %(kind)b::varchar,
       {key}, %(data)b::text
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


class _Shape(NamedTuple):
    """The form of an append's statement: what an append does not need is neither sent nor checked.

    Attributes:
        one, control: one event; it is a control event.
        timed: the events have their own times.
        exists, new: the session is known to exist; it must not exist.
        expected: the session must be at a seq.
        placed: a new session starts after a seq.
        keyed: some appends have keys of callers.
        internal: it is an internal log.
        light: the append need not be durable when it returns.
    """

    one: bool = False
    control: bool = False
    timed: bool = False
    exists: bool = False
    expected: bool = False
    new: bool = False
    placed: bool = False
    keyed: bool = False
    internal: bool = False
    light: bool = False


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
    events = _ONE if shape.one else _MANY
    light = _LIGHT if shape.light else ""
    text = (
        f"WITH s AS ({session}\nRETURNING s.last_seq, s.updated),\ne AS ({events})\n"
        f"SELECT last_seq, updated{light} FROM s"
    )
    parts = {
        "count": "1" if shape.one else "%(count)s::bigint",
        "before": "%(before)s::bigint" if shape.placed else "0",
        "first": "%(first)b::varchar" if shape.timed else _NOW,
        "last": "%(last)b::varchar" if shape.timed else _NOW,
        "later": "%(last)b::varchar" if shape.timed else LATER,
        "internal": "true" if shape.internal else "false",
        "control": "true" if shape.control else "false",
        "key": "%(key)b::varchar" if shape.keyed else "NULL",
    }
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


class _AppendIds:
    """Generates ids of appends without a key: the time, and a 64-bit counter that starts at random.

    They ascend, so that they are neighbors in the index. Not `names.new_id`, which takes ten times as long:
    these are unique in a session, and not secret.
    """

    def __init__(self) -> None:
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Start at another number: a forked child must not use the numbers of its parent."""
        self._counter = count(int.from_bytes(os.urandom(8)))

    def next(self) -> str:
        return f"{time.time_ns():016x}{next(self._counter) & _64_BITS:016x}"


_64_BITS: Final = (1 << 64) - 1
_append_ids = _AppendIds()


class PendingInsert:
    """An append in progress; the thread that does it sets `events` or `error`."""

    __slots__ = ("error", "events", "id", "request", "size")

    def __init__(self, request: AppendRequest) -> None:
        self.request = request
        new = request.events
        self.size = len(new[0].data) if len(new) == 1 else sum(len(one.data) for one in new)
        key = request.key
        self.id = _append_ids.next() if key is None else hash_number(b"key\0" + key.encode())
        #: The stored events; an append of no events is done already.
        self.events: list[Event] | None = None if new else []
        self.error: Exception | None = None

    @property
    def alone(self) -> bool:
        """Whether it needs a statement to itself."""
        request = self.request
        return request.expected_seq is not None or request.new_only or request.before != 0

    def outcome(self) -> list[Event]:
        """Return its events, or raise."""
        if self.error is not None:
            raise self.error
        if self.events is None:
            raise BackendUnavailable(
                "the thread that appended for several was interrupted; nothing was appended. Retry"
            )
        return self.events


class Writer:
    """Appends to one session, for all threads of this process."""

    def __init__(
        self,
        connections: Connections,
        rows: RowReader,
        notifier: Notifier,
        session_id: str,
        *,
        light: bool,
    ) -> None:
        """`light`: appends need not be durable."""
        self.session_id = session_id
        self.internal = session_id.startswith(INTERNAL)
        #: The same, without a NUL, which no text can hold there.
        self.shown_id = session_id.removeprefix(INTERNAL)
        self.session = session_number(session_id)
        self._number = self.session.encode()
        #: The statement for one event with default options.
        self._plain: PreparedQuery | None = None
        self._connections = connections
        self._rows = rows
        self._light = light
        #: The session existed at the last append. If it was purged since, the next append finds nothing.
        self._exists = False
        self._notifier = notifier
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Start again in a forked child: it must not wait for the threads of its parent."""
        self._turns: GroupCommit[list[PendingInsert]] = GroupCommit(
            self._lead, where=f"{self._connections.url.where}: session {self.session_id!r}"
        )

    def append(self, appends: list[PendingInsert]) -> None:
        """Do appends, in order, and set the outcome of each."""
        turns = self._turns
        if not turns.try_lead():
            turns.submit(appends)
            return
        # No other thread appends: without the queue it takes half as long as `submit`.
        try:
            self._lead([appends])
            turns.release()
        except BaseException:
            turns.release()
            raise

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
        # No reader waits for an internal log.
        if not self.internal and any(append.events for append in waiting):
            self._notifier.tell(self.session)

    def _commit(self, group: list[PendingInsert]) -> None:
        """Append a group, with as many tries as it takes."""
        deadline = time.monotonic() + self._connections.url.patience
        pause = 0.01
        uncertain = False
        for _ in range(_TRIES):
            stamps = _stamps(group)
            while True:
                try:
                    position = self._attempt(group, stamps, deadline)
                except psycopg.errors.UniqueViolation:
                    position = None
                except ConnectionLost as lost:
                    uncertain = uncertain or not lost.certain
                    pause = self._connections.pause(lost, deadline, pause)
                    continue
                break
            if position is not None:
                self._exists = True
                _set_events(group, stamps, *position)
                return
            group = self._resolve(group, uncertain=uncertain)
            if not group:
                return
        raise BackendUnavailable(
            f"{self._connections.url.where}: session {self.session_id!r} changed during each of "
            f"{_TRIES} tries; nothing was appended. Retry"
        )

    def _attempt(
        self, group: list[PendingInsert], stamps: list[str | None], deadline: float
    ) -> tuple[int, str] | None:
        """Try once; return the last seq and its time, or None if a condition did not hold."""
        if len(stamps) == 1:
            prepared, values = self._one(group[0], stamps[0])
            result = self._connections.attempt_prepared(prepared, values, deadline)
            if not result.ntuples:
                return None
            seq, updated = result.get_value(0, 0), result.get_value(0, 1)
            assert seq is not None and updated is not None  # noqa: PT018 - the columns are NOT NULL
            return int(seq), updated.decode()
        text, params = self._several(group, stamps)
        rows = self._connections.attempt(text, params, deadline=deadline)
        return (rows[0][0], rows[0][1]) if rows else None

    def _shape(self, group: list[PendingInsert], *, timed: bool, one: bool = False) -> _Shape:
        """Return the form of the statement that a group needs."""
        alone = group[0].request
        new = alone.new_only or alone.expected_seq == 0
        expected = bool(alone.expected_seq)
        return _Shape(
            one=one,
            control=one and group[0].request.events[0].control,
            timed=timed,
            exists=expected or (self._exists and not new),
            expected=expected,
            new=new,
            placed=alone.before > 0,
            keyed=any(append.request.key is not None for append in group),
            internal=self.internal,
            light=self._light or not any(append.request.durable for append in group),
        )

    def _one(self, append: PendingInsert, stamp: str | None) -> tuple[PreparedQuery, list[Value]]:
        """Return the statement for one event, and its values."""
        request = append.request
        new = request.events[0]
        given = (request.expected_seq, request.new_only, request.before, request.key, stamp)
        values: dict[str, Value] = {
            "session": self._number,
            "bytes": b"%d" % append.size,
            "append_id": append.id.encode(),
            "kind": new.kind.encode(),
            "data": new.data,
        }
        # Nearly every append.
        plain = self._exists and given == _DEFAULTS and request.durable and not new.control
        query = self._plain if plain else None
        if query is None:
            values["id"] = self.shown_id.encode()
            values["before"] = b"%d" % request.before
            values["expected"] = b"%d" % (request.expected_seq or 0)
            values["key"] = None if request.key is None else request.key.encode()
            values["first"] = values["last"] = None if stamp is None else stamp.encode()
            shape = self._shape([append], timed=stamp is not None, one=True)
            query = prepared_query(self._connections.query(_statement(shape)))
            if plain:
                self._plain = query
        return query, [values[name] for name in query.names]

    def _several(
        self, group: list[PendingInsert], stamps: list[str | None]
    ) -> tuple[str, dict[str, Any]]:
        """Return the statement for several events, and its parameters."""
        alone = group[0].request
        new = [one for append in group for one in append.request.events]
        # Numbers as texts: psycopg sends small and large ones as different types, and would prepare a
        # statement for each. What a statement does not name is not sent.
        params: dict[str, Any] = {
            "session": self.session,
            "id": self.shown_id,
            "before": str(alone.before),
            "expected": str(alone.expected_seq),
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
        return _statement(self._shape(group, timed=stamps[0] is not None)), params

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
                append.events = [event for event in events if event.seq < first + count]
            elif in_trash:
                append.error = deleted(self.session_id)
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
    joins = False
    for append in appends:
        more = len(append.request.events)
        joins = (
            joins
            and not append.alone
            and append.id not in ids
            and events + more <= _MAX_EVENTS
            and size + append.size <= _MAX_BYTES
        )
        if joins:
            groups[-1].append(append)
        else:
            groups.append([append])
            ids, events, size = set(), 0, 0
            joins = not append.alone
        ids.add(append.id)
        events += more
        size += append.size
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


def deleted(session_id: str) -> SessionDeleted:
    """Return the error for a session in the trash."""
    return SessionDeleted(
        f"session {session_id!r} was deleted and is in the trash; `store.restore(id)` brings it back"
    )
