"""Read events of a session, in pieces of bounded size."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from psycopg.types.numeric import Int8

from hansard.backend.contract import Chunk, Head, StreamPart
from hansard.backend.postgres import statements
from hansard.backend.postgres.connection import Connections
from hansard.errors import Damaged
from hansard.event.envelope import Event
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART

#: A piece has no more rows and, but for one event that is larger, no more bytes.
ROWS: Final = 2000
BYTES: Final = 2 * 1024 * 1024

#: Read from the end, a session gives a small piece first: most who do that want the last few.
_LAST_ROWS: Final = 100
_LAST_BYTES: Final = 128 * 1024
_GROWTH: Final = 4


class Row(NamedTuple):
    """An event as it is stored."""

    seq: int
    stamp: str
    kind: str
    key: str | None
    #: Of the first event of an append: how many events that has.
    length: int | None
    data: bytes


#: The same without names, in this order.
Stored = tuple[Any, ...]


class Standing(NamedTuple):
    """A session's row."""

    head: Head
    deleted: bool
    #: The seq before its first event.
    before: int
    #: Another one after a purge, also if the id is the same.
    life: UUID
    rewritten: int
    #: The bytes of its events.
    size: int
    #: The first event, with its data if that made the session a fork; None if its row is missing.
    first: Event | None


def standing_of(row: Sequence[Any]) -> Standing:
    """Return a session's row, as `statements.STANDING` selects it."""
    seq, created, updated, size, deleted, before, life, rewritten, *first = row
    head = Head(seq, created, updated)
    event = None if first[0] is None else Event(*first)
    return Standing(head, deleted, before, life, rewritten, size, event)


class _Added(msgspec.Struct, gc=False):
    message: Any = None


class _RawAdded(msgspec.Struct, gc=False):
    message: msgspec.Raw = msgspec.Raw(b"null")


_added = msgspec.json.Decoder(_Added).decode
_raw_added = msgspec.json.Decoder(_RawAdded).decode


def event_of(row: Row) -> Event:
    """Return the event that a row holds."""
    return Event(row.seq, row.stamp, row.kind, row.data, row.key)


class PostgresChunk(Chunk):
    """Rows that follow one another."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[Stored]) -> None:
        self._rows = rows

    def events(self) -> list[Event]:
        return [Event(row[0], row[1], row[2], row[5], row[3]) for row in self._rows]

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        return [(row[0], _added(row[5]).message) for row in self._rows if row[2] == MESSAGE_ADDED]

    def messages_json(self) -> list[tuple[int, bytes]]:
        return [
            (row[0], bytes(_raw_added(row[5]).message))
            for row in self._rows
            if row[2] == MESSAGE_ADDED
        ]

    def span(self) -> tuple[int, int]:
        return self._rows[0][0] - 1, self._rows[-1][0]

    def keyed(self) -> dict[int, int]:
        return {
            row[0]: row[4]
            for row in self._rows
            if row[3] is not None and row[4] is not None and row[4] > 1
        }

    def streamed(self) -> list[StreamPart]:
        # Most chunks have none.
        told = [
            row
            for row in self._rows
            if row[2] == MESSAGE_PART or (row[2] == MESSAGE_ADDED and b'"stream":' in row[5])
        ]
        if len(told) == len(self._rows):
            return super().streamed()
        return PostgresChunk(told).streamed() if told else []


class Reads:
    """What is read of the sessions of a store."""

    __slots__ = ("_connections", "_schema", "_where")

    def __init__(self, connections: Connections, schema: str) -> None:
        self._connections = connections
        self._schema = schema
        self._where = connections.url.where

    def standing(self, session: str) -> Standing | None:
        """Return a session's row, also from the trash; None if there is none."""
        query = statements.statement(self._schema, statements.HEAD)
        rows = self._connections.run(query, {"session": session}, binary=True)
        return standing_of(rows[0]) if rows else None

    def may_have_checkpoint(self, session: str) -> bool:
        """Say whether it is worth asking for the state that a compaction saved."""
        del session
        return True

    def controls(self, session: str, life: UUID, after: int, upto: int) -> list[Event]:
        """Return the control events with after < seq <= upto of a session that is still there."""
        query = statements.statement(self._schema, statements.CONTROLS)
        params = {"session": session, "life": life, "after": Int8(after), "upto": Int8(upto)}
        rows = self._connections.run(query, params, binary=True)
        if not rows:
            raise Purged
        return [event_of(Row(*row)) for row in rows if row[0] is not None]

    def events(self, session: str, first: int, count: int) -> list[Event]:
        """Return so many events from a seq on."""
        query = statements.statement(self._schema, statements.EVENTS)
        params = {"session": session, "first": Int8(first), "count": Int8(count)}
        rows = self._connections.run(query, params, binary=True)
        return [event_of(Row(*row)) for row in rows]

    def survivors(self, session: str, after: int) -> list[Event]:
        """Return the next events that are there, whatever is missing before them."""
        query = statements.statement(self._schema, statements.SURVIVORS)
        params = {"session": session, "after": Int8(after)}
        rows = self._connections.run(query, params, binary=True)
        return [event_of(Row(*row)) for row in rows]

    def forwards(self, session: str, life: UUID, after: int, upto: int) -> Iterator[PostgresChunk]:
        """Yield the events with after < seq <= upto of a session that has all of them."""
        while after < upto:
            rows = self._piece(statements.FORWARDS, session, life, after, upto, ROWS, BYTES)
            if not rows or rows[0][0] != after + 1 or rows[-1][0] != after + len(rows):
                raise self._gone(session, life, after + 1)
            yield PostgresChunk(rows)
            after = rows[-1][0]

    def backwards(self, session: str, life: UUID, after: int, upto: int) -> Iterator[PostgresChunk]:
        """Yield the same from the last chunk to the first."""
        most, size = _LAST_ROWS, _LAST_BYTES
        while after < upto:
            rows = self._piece(statements.BACKWARDS, session, life, after, upto, most, size)
            rows.reverse()
            if not rows or rows[-1][0] != upto or rows[0][0] != upto - len(rows) + 1:
                raise self._gone(session, life, upto)
            yield PostgresChunk(rows)
            upto = rows[0][0] - 1
            most, size = min(most * _GROWTH, ROWS), min(size * _GROWTH, BYTES)

    def _piece(
        self,
        text: str,
        session: str,
        life: UUID,
        after: int,
        upto: int,
        rows: int,
        size: int,
    ) -> list[Stored]:
        query = statements.statement(self._schema, text)
        params = {
            "session": session,
            "life": life,
            "after": Int8(after),
            "upto": Int8(upto),
            "rows": Int8(rows),
            "most": Int8(size),
        }
        # Plain tuples: to give each one's fields names takes a tenth of the time of reading them.
        return self._connections.run(query, params, binary=True)

    def _gone(self, session: str, life: UUID, seq: int) -> Exception:
        """Return why events that should be there are not."""
        standing = self.standing(session)
        if standing is None or standing.life != life:
            return Purged()
        return self.damaged(session, f"event {seq} or one near it is missing")

    def damaged(self, session: str, reason: str) -> Damaged:
        """Return the error for rows that are missing."""
        return Damaged(
            f"{self._where} (session {session})",
            0,
            reason,
            "rows were deleted by other hands: restore them from a backup of the database",
        )


class Purged(Exception):
    """The session that was being read was purged meanwhile."""
