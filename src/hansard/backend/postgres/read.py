"""Read rows of sessions and events, in pieces of bounded size.

Each piece is one statement: no reader holds a connection, a transaction or a lock while its caller works.
A session's `life` changes when it is purged and created again: a reader never continues in another session
of the same id.

`Prefetch` reads many sessions in few round trips.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg.types.numeric import Int8

from hansard.backend.contract import Chunk, Head, StreamPart, streamed
from hansard.backend.postgres.connection import Connections
from hansard.backend.postgres.schema import session_number
from hansard.errors import Damaged, SessionNotFound
from hansard.event.event import Event
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART

#: Maximum rows and bytes of a piece, unless one event is larger.
_MAX_ROWS: Final = 2000
_MAX_BYTES: Final = 2 * 1024 * 1024

#: The same for the first piece from the end, which grows from piece to piece: most callers want few events.
_LAST_ROWS: Final = 100
_LAST_BYTES: Final = 128 * 1024
_GROWTH: Final = 4

#: Sessions that `Prefetch` reads at a time, and the events and bytes of one and of all.
_SESSIONS: Final = 200
_SESSION_EVENTS: Final = 1000
_SESSION_BYTES: Final = 512 * 1024
_ALL_EVENTS: Final = 4000
_ALL_BYTES: Final = 4 * 1024 * 1024

#: The columns of an event's row. The first five are the fields of `Event`.
COLUMNS: Final = "seq, stamp, kind, data, key, append_count"

#: A session's row with its first event, whose data are needed only if the session is a fork.
_SESSION_COLUMNS: Final = """
       s.id, s.last_seq, s.created, s.updated, s.bytes, s.deleted_at IS NOT NULL, s.before, s.life,
       e.seq, e.stamp, e.kind, CASE e.kind WHEN 'session.forked' THEN e.data ELSE '{}' END, e.key
FROM {schema}.sessions AS s
LEFT JOIN {schema}.events AS e ON e.session = s.session AND e.seq = s.before + 1"""

_SESSION: Final = f"SELECT true, {_SESSION_COLUMNS} WHERE s.session = %(session)s::uuid"

_SESSIONS_AHEAD: Final = f"""
SELECT s.session::varchar, EXISTS (SELECT FROM {{schema}}.checkpoints AS c WHERE c.session = s.session),
       {_SESSION_COLUMNS} WHERE s.session = ANY(%(sessions)b::varchar[]::uuid[])"""  # noqa: S608 - no input

_EVENTS_AHEAD: Final = f"""
SELECT w.place, e.control, {COLUMNS}
FROM unnest(%(sessions)b::varchar[]::uuid[], %(seqs)b::bigint[]) WITH ORDINALITY AS w (number, upto, place)
JOIN {{schema}}.events AS e ON e.session = w.number AND e.seq <= w.upto
ORDER BY w.place, e.seq"""  # noqa: S608 - no input

_RANGE: Final = """
SELECT {columns}
FROM (SELECT *, sum(octet_length(data)) OVER (ORDER BY seq {order} ROWS UNBOUNDED PRECEDING)
                - octet_length(data) AS bytes_before
      FROM (SELECT * FROM {schema}.events
            WHERE session = %(session)s::uuid AND seq > %(after)s AND seq <= %(upto)s
              AND (SELECT life FROM {schema}.sessions WHERE session = %(session)s::uuid) = %(life)s
            ORDER BY seq {order} LIMIT %(rows)s) AS e) AS e
WHERE bytes_before < %(bytes)s
ORDER BY seq {order}""".replace("{columns}", COLUMNS)
_FORWARD: Final = _RANGE.replace("{order}", "ASC")
_BACKWARD: Final = _RANGE.replace("{order}", "DESC")

_CONTROLS: Final = f"""
SELECT {COLUMNS}
FROM {{schema}}.sessions AS s
LEFT JOIN {{schema}}.events AS e
    ON e.session = s.session AND e.control AND e.seq > %(after)s AND e.seq <= %(upto)s
WHERE s.session = %(session)s::uuid AND s.life = %(life)s
ORDER BY e.seq"""  # noqa: S608 - no input

_EVENTS: Final = f"""
SELECT {COLUMNS} FROM {{schema}}.events
WHERE session = %(session)s::uuid AND seq > %(after)s ORDER BY seq LIMIT %(rows)s"""  # noqa: S608 - no input


#: A plain tuple: naming the fields takes a tenth of the time of reading.
_Row = tuple[Any, ...]


class SessionRow(NamedTuple):
    """A session's row.

    Attributes:
        session, id: its key in the tables, and its name.
        head, deleted: its end; whether it is in the trash.
        before: the seq before its first event.
        life: changes when the session is purged and created again.
        size: the bytes of its events.
        checkpointed: whether it may have a saved state.
        first: the first event, with its data if the session is a fork; None if its row is missing.
    """

    session: str
    id: str
    head: Head
    size: int
    deleted: bool
    before: int
    life: UUID
    checkpointed: bool
    first: Event | None


def _session_row(session: str, row: Sequence[Any]) -> SessionRow:
    saved, session_id, seq, created, updated, size, deleted, before, life, *first = row
    head = Head(seq, created, updated)
    event = None if first[0] is None else Event(*first)
    return SessionRow(session, session_id, head, size, deleted, before, life, saved, event)


class PostgresChunk(Chunk):
    """Consecutive rows."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[_Row]) -> None:
        self._rows = rows

    def events(self) -> list[Event]:
        return [Event(*row[:5]) for row in self._rows]

    def added(self) -> list[tuple[int, bytes]]:
        return [(row[0], row[3]) for row in self._rows if row[2] == MESSAGE_ADDED]

    def span(self) -> tuple[int, int]:
        return self._rows[0][0] - 1, self._rows[-1][0]

    def keyed(self) -> dict[int, int]:
        # The count is None except on the first event of an append.
        return {row[0]: row[5] for row in self._rows if row[4] is not None and (row[5] or 0) > 1}

    def streamed(self) -> list[StreamPart]:
        # Most chunks have none.
        rows = [
            row
            for row in self._rows
            if row[2] == MESSAGE_PART or (row[2] == MESSAGE_ADDED and b'"stream":' in row[3])
        ]
        return [part for part in map(streamed, PostgresChunk(rows).events()) if part is not None]


class RowReader:
    """Reads rows of a store."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def session(self, session: str) -> SessionRow | None:
        """Return a session's row, also from the trash; None if there is none."""
        rows = self._connections.run(_SESSION, {"session": session}, binary=True)
        return _session_row(session, rows[0]) if rows else None

    def controls(self, row: SessionRow, after: int, upto: int) -> list[Event]:
        """Return the control events with after < seq <= upto."""
        limits = {"after": Int8(after), "upto": Int8(upto)}
        params = {"session": row.session, "life": row.life, **limits}
        rows = self._connections.run(_CONTROLS, params, binary=True)
        if not rows:
            raise _purged(row)
        return [Event(*found[:5]) for found in rows if found[0] is not None]

    def events(self, session: str, after: int, count: int) -> list[Event]:
        """Return the next events after a seq, even if some between them are missing."""
        params = {"session": session, "after": Int8(after), "rows": Int8(count)}
        rows = self._connections.run(_EVENTS, params, binary=True)
        return [Event(*row[:5]) for row in rows]

    def chunks(
        self, row: SessionRow, after: int, upto: int, *, back: bool
    ) -> Iterator[PostgresChunk]:
        """Yield the events with after < seq <= upto, from the first chunk or (`back`) from the last."""
        most, size = (_LAST_ROWS, _LAST_BYTES) if back else (_MAX_ROWS, _MAX_BYTES)
        while after < upto:
            params = {
                "session": row.session,
                "life": row.life,
                "after": Int8(after),
                "upto": Int8(upto),
                "rows": Int8(most),
                "bytes": Int8(size),
            }
            rows = self._connections.run(_BACKWARD if back else _FORWARD, params, binary=True)
            if back:
                rows.reverse()
            first, last = (upto - len(rows) + 1, upto) if back else (after + 1, after + len(rows))
            if not rows or (rows[0][0], rows[-1][0]) != (first, last):
                raise self._missing(row, upto if back else after + 1)
            yield PostgresChunk(rows)
            if back:
                upto = first - 1
                most, size = min(most * _GROWTH, _MAX_ROWS), min(size * _GROWTH, _MAX_BYTES)
            else:
                after = last

    def _missing(self, row: SessionRow, seq: int) -> Exception:
        """Return why events are missing."""
        now = self.session(row.session)
        if now is None or now.life != row.life:
            return _purged(row)
        return self.damaged(row, f"event {seq} or one near it is missing")

    def damaged(self, row: SessionRow, reason: str) -> Damaged:
        """Return the error for rows that are missing."""
        return Damaged(
            f"{self._connections.url.where} (session {row.id!r})",
            0,
            reason,
            "another program deleted rows: restore them from a backup of the database",
        )


def _purged(row: SessionRow) -> SessionNotFound:
    return SessionNotFound(f"session {row.id!r} was purged while it was read")


class _Fetched:
    """A session that was read ahead: its row and all of its events."""

    def __init__(self, row: SessionRow) -> None:
        self.row = row
        self.rows: list[_Row] = []
        self.controls: list[Event] = []

    def is_complete(self) -> bool:
        first, last = self.row.before + 1, self.row.head.seq
        rows = self.rows
        return len(rows) == last - first + 1 > 0 and (rows[0][0], rows[-1][0]) == (first, last)


class Prefetch(RowReader):
    """Reads the sessions of a list ahead, for a caller that is going to read all of them in order.

    To read a session takes several round trips, each longer than the work. Here, the first request for a
    session of the list reads it and those after it, up to a limit. One statement reads their rows, another
    all their events. Later requests are answered from memory. Large sessions are read as usual.

    An answer may be older than the request, but not older than the list. It is for a caller, such as the
    index, that learns later what has changed.
    """

    def __init__(self, connections: Connections, ids: Iterable[str]) -> None:
        super().__init__(connections)
        self._order = [session_number(session_id) for session_id in ids]
        #: Indexes of the sessions that were not requested yet.
        self._places = {session: place for place, session in enumerate(self._order)}
        self._fetched: dict[str, _Fetched] = {}

    def session(self, session: str) -> SessionRow | None:
        found = self._find(session)
        return super().session(session) if found is None else found.row

    def controls(self, row: SessionRow, after: int, upto: int) -> list[Event]:
        found = self._find(row.session)
        if found is None:
            return super().controls(row, after, upto)
        return [event for event in found.controls if after < event.seq <= upto]

    def chunks(
        self, row: SessionRow, after: int, upto: int, *, back: bool
    ) -> Iterator[PostgresChunk]:
        found = self._find(row.session)
        if found is None:
            yield from super().chunks(row, after, upto, back=back)
        elif after < upto:
            before = found.row.before
            yield PostgresChunk(found.rows[after - before : upto - before])

    def _find(self, session: str) -> _Fetched | None:
        """Return a session that was read ahead, or is now; None if it is not in the list or too large."""
        place = self._places.get(session)
        if place is not None:
            self._fetch(place)
        return self._fetched.get(session)

    def _fetch(self, place: int) -> None:
        """Replace what was fetched by the session at an index of the list and those after it."""
        self._fetched = {}
        wanted = self._order[place : place + _SESSIONS]
        answer = self._connections.run(_SESSIONS_AHEAD, {"sessions": wanted}, binary=True)
        rows = {number.replace("-", ""): row for number, *row in answer}
        found: dict[str, _Fetched] = {}
        events = size = 0
        for session in wanted:
            if session in rows:
                row = _session_row(session, rows[session])
                count = row.head.seq - row.before
                if count <= _SESSION_EVENTS and row.size <= _SESSION_BYTES:
                    events += count
                    size += row.size
                    if events > _ALL_EVENTS or size > _ALL_BYTES:
                        break
                    found[session] = _Fetched(row)
            # Try each once, even if it is missing, too large or changes. Another order may have tried it.
            self._places.pop(session, None)
        if found:
            self._fetch_events(found)

    def _fetch_events(self, found: dict[str, _Fetched]) -> None:
        sessions = list(found.values())
        params = {
            "sessions": list(found),
            "seqs": [Int8(session.row.head.seq) for session in sessions],
        }
        for place, control, *row in self._connections.run(_EVENTS_AHEAD, params, binary=True):
            session = sessions[place - 1]
            session.rows.append(tuple(row))
            if control:
                session.controls.append(Event(*row[:5]))
        self._fetched = {name: one for name, one in found.items() if one.is_complete()}
