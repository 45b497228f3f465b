"""Read many sessions in few round trips, for one who is going to look at all of them, in order.

Above: `backend`.  Below: `reads`, `statements`, `connections`.
To describe a session takes its row, its first event, its control events and its other events: five or more
round trips, each of them longer than the work. Here, the first question about a session of the list brings
it and those behind it, as many as fit: their rows in one statement, all their events in a second. What is
asked then is answered from memory. A session that is too large for that is read as always.

What is answered was read after the list was handed in, and may be older than the question: it is for those
who are told later what has changed meanwhile, as an index is.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from psycopg.types.numeric import Int8

from hansard.backend.postgres import statements
from hansard.backend.postgres.append import session_number
from hansard.backend.postgres.connection import Connections
from hansard.backend.postgres.reads import (
    PostgresChunk,
    Reads,
    Row,
    Standing,
    Stored,
    event_of,
    standing_of,
)
from hansard.event.envelope import Event

#: So many rows of sessions are asked for at a time.
_SESSIONS: Final = 200
#: A session with more events, or more bytes, is not read ahead; nor are more of either at a time.
_EVENTS: Final = 1000
_BYTES: Final = 512 * 1024
_ALL_EVENTS: Final = 4000
_ALL_BYTES: Final = 4 * 1024 * 1024

_ROWS: Final = """
SELECT s.session::varchar, EXISTS (SELECT FROM {schema}.checkpoints AS c WHERE c.session = s.session),
       {standing} WHERE s.session = ANY(%(sessions)b::varchar[]::uuid[])""".replace(
    "{standing}", statements.STANDING
)

_EVENTS_OF: Final = """
SELECT w.place, e.control, e.seq, e.stamp, e.kind, e.key, e.append_count, e.data
FROM unnest(%(sessions)b::varchar[]::uuid[], %(seqs)b::bigint[]) WITH ORDINALITY AS w (session, seq, place)
JOIN {schema}.events AS e ON e.session = w.session AND e.seq <= w.seq
ORDER BY w.place, e.seq"""


class _Session:
    """A session that was read ahead: its row, and all of its events."""

    __slots__ = ("checkpointed", "controls", "rows", "standing")

    def __init__(self, standing: Standing, *, checkpointed: bool) -> None:
        self.standing = standing
        self.checkpointed = checkpointed
        self.rows: list[Stored] = []
        #: The places of control events among the rows.
        self.controls: list[int] = []

    def is_whole(self) -> bool:
        first, last = self.standing.before + 1, self.standing.head.seq
        rows = self.rows
        return len(rows) == last - first + 1 > 0 and (rows[0][0], rows[-1][0]) == (first, last)


class Ahead(Reads):
    """Reads the sessions of a list in large pieces; all others, and what is too large, as `Reads` does."""

    __slots__ = ("_held", "_order", "_places")

    def __init__(self, connections: Connections, schema: str, ids: Iterable[str]) -> None:
        super().__init__(connections, schema)
        self._order = [session_number(session_id) for session_id in ids]
        self._places = {session: place for place, session in enumerate(self._order)}
        self._held: dict[str, _Session] = {}

    def standing(self, session: str) -> Standing | None:
        found = self._of(session)
        return super().standing(session) if found is None else found.standing

    def controls(self, session: str, life: UUID, after: int, upto: int) -> list[Event]:
        found = self._of(session)
        if found is None:
            return super().controls(session, life, after, upto)
        rows = [found.rows[place] for place in found.controls]
        return [self._event(row) for row in rows if after < row[0] <= upto]

    def may_have_checkpoint(self, session: str) -> bool:
        found = self._of(session)
        return found is None or found.checkpointed

    def forwards(self, session: str, life: UUID, after: int, upto: int) -> Iterator[PostgresChunk]:
        found = self._of(session)
        if found is None:
            yield from super().forwards(session, life, after, upto)
        elif after < upto:
            yield self._chunk(found, after, upto)

    def backwards(self, session: str, life: UUID, after: int, upto: int) -> Iterator[PostgresChunk]:
        found = self._of(session)
        if found is None:
            yield from super().backwards(session, life, after, upto)
        elif after < upto:
            yield self._chunk(found, after, upto)

    def _chunk(self, found: _Session, after: int, upto: int) -> PostgresChunk:
        before = found.standing.before
        return PostgresChunk(found.rows[after - before : upto - before])

    def _event(self, row: Stored) -> Event:
        return event_of(Row._make(row))

    def _of(self, session: str) -> _Session | None:
        """Return a session that was read ahead, or is now; None if it cannot be."""
        place = self._places.get(session)
        if place is not None:
            self._read(place)
        return self._held.get(session)

    def _read(self, place: int) -> None:
        """Read the session at a place of the list, and those behind it, in place of those held so far."""
        self._held = {}
        query = statements.statement(self._schema, _ROWS)
        wanted = self._order[place : place + _SESSIONS]
        rows = {
            row[0].replace("-", ""): row
            for row in self._connections.run(query, {"sessions": wanted}, binary=True)
        }
        found: dict[str, _Session] = {}
        events = size = 0
        for session in wanted:
            row = rows.get(session)
            if row is not None:
                standing = standing_of(row[2:])
                count = standing.head.seq - standing.before
                if count <= _EVENTS and standing.size <= _BYTES:
                    events += count
                    size += standing.size
                    if events > _ALL_EVENTS or size > _ALL_BYTES:
                        break
                    found[session] = _Session(standing, checkpointed=row[1])
            # Each is looked for once: if it is not there, or too large, or has changed, that is that. It
            # may have been, by one who asks out of order.
            self._places.pop(session, None)
        if found:
            self._fill(found)

    def _fill(self, found: dict[str, _Session]) -> None:
        params = {
            "sessions": list(found),
            "seqs": [Int8(session.standing.head.seq) for session in found.values()],
        }
        sessions = list(found.values())
        query = statements.statement(self._schema, _EVENTS_OF)
        for place, control, *row in self._connections.run(query, params, binary=True):
            session = sessions[place - 1]
            if control:
                session.controls.append(len(session.rows))
            session.rows.append(tuple(row))
        self._held = {name: session for name, session in found.items() if session.is_whole()}
