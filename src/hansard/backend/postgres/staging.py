"""Put a session together in a table that nobody else sees.

Above: `backend`.  Below: `connections`, `contract`.
A temporary table belongs to its connection, and is gone when that is: whoever dies leaves nothing behind.
Events go there by COPY, and from there into the store in one transaction, together with the session's row.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import psycopg
from psycopg.types.numeric import Int8

from hansard.backend.contract import AppendRequest, Stage, key_used, nothing_staged
from hansard.backend.postgres import faults, statements
from hansard.backend.postgres.append import PendingInsert, deleted, session_number
from hansard.backend.postgres.faults import Lost
from hansard.backend.postgres.pooled import Connection
from hansard.errors import BackendUnavailable, SessionExists
from hansard.event.envelope import NewEvent
from hansard.log import format

if TYPE_CHECKING:
    from hansard.backend.postgres.backend import PostgresBackend

#: Events are handed over when there are so many, or so many bytes of them.
_MOST_EVENTS: Final = 2000
_MOST_BYTES: Final = 4 * 1024 * 1024

_MAKE: Final = """
CREATE TEMPORARY TABLE hansard_staged (LIKE {schema}.events)"""

_COPY: Final = b"""
COPY hansard_staged
    (session, seq, append_id, append_count, control, stamp, kind, key, data) FROM STDIN"""

_BEGIN: Final = """
INSERT INTO {schema}.sessions (session, id, life, before, last_seq, bytes, created, updated)
VALUES (%(session)s::uuid, %(id)s, %(life)s, %(before)s, %(last)s, %(bytes)s, %(created)s, %(updated)s)
ON CONFLICT (session) DO NOTHING RETURNING life"""

_EVENTS: Final = "INSERT INTO {schema}.events SELECT * FROM hansard_staged"


class PostgresStage(Stage):
    """A session whose rows nobody else sees."""

    __slots__ = (
        "__weakref__",
        "_backend",
        "_before",
        "_bytes",
        "_connection",
        "_created",
        "_keys",
        "_rows",
        "_seq",
        "_session",
        "_updated",
        "_waiting",
        "session_id",
    )

    def __init__(self, backend: "PostgresBackend", session_id: str, before: int) -> None:
        self.session_id = session_id
        self._backend = backend
        self._session = session_number(session_id)
        self._connection: Connection | None = None
        self._before = before
        self._clear()

    def _clear(self) -> None:
        self._seq = self._before
        self._bytes = 0
        self._waiting = 0
        self._created = ""
        self._updated = ""
        self._keys: set[str] = set()
        self._rows: list[tuple[object, ...]] = []

    def append(self, events: Sequence[NewEvent], *, key: str | None = None) -> None:
        self._backend.check_open()
        if key is not None:
            if key in self._keys:
                raise key_used(self.session_id, key)
            self._keys.add(key)
        append = PendingInsert(AppendRequest(events, key))
        for place, new in enumerate(events):
            self._seq += 1
            first = place == 0
            self._updated = new.time or format.now().decode()
            self._created = self._created or self._updated
            self._rows.append(
                (
                    self._session,
                    self._seq,
                    append.id if first else None,
                    len(events) if first else None,
                    new.control,
                    self._updated,
                    new.kind,
                    key if first else None,
                    new.data.decode(),
                )
            )
        self._bytes += append.size
        self._waiting += append.size
        if len(self._rows) >= _MOST_EVENTS or self._waiting >= _MOST_BYTES:
            self._hand_over()

    def publish(self) -> None:
        self._backend.check_open()
        if self._seq == self._before:
            raise nothing_staged(self.session_id)
        self._hand_over()
        life = uuid4()
        try:
            self._publish(life)
        except Lost as found:
            # The commit may have counted: then the session is there, and it is this one.
            standing = self._backend.reads.standing(self._session)
            if found.certain or standing is None or standing.life != life:
                raise BackendUnavailable(
                    f"{found.error}; what was staged of session {self.session_id!r} is gone with "
                    "the connection: begin again"
                ) from None
        self.discard()
        self._backend.news.tell(self._session)

    def _publish(self, life: object) -> None:
        connection = self._own()
        schema = self._backend.schema
        params = {
            "session": self._session,
            "id": self.session_id,
            "life": life,
            "before": Int8(self._before),
            "last": Int8(self._seq),
            "bytes": Int8(self._bytes),
            "created": self._created,
            "updated": self._updated,
        }
        try:
            with connection.transaction():
                connection.execute("SELECT set_config('statement_timeout', '0', true)")
                begin = statements.statement(schema, _BEGIN)
                if connection.execute(begin, params).fetchone() is None:
                    raise self._refused()
                connection.execute(statements.statement(schema, _EVENTS))
        except psycopg.Error as error:
            raise self._fault(error) from None

    def _refused(self) -> Exception:
        standing = self._backend.reads.standing(self._session)
        if standing is not None and standing.deleted:
            return deleted(self.session_id)
        at = "" if standing is None else f", at seq {standing.head.seq}"
        return SessionExists(f"session {self.session_id!r} exists already{at}")

    def _hand_over(self) -> None:
        """Send what has gathered."""
        rows, self._rows, self._waiting = self._rows, [], 0
        if not rows:
            return
        try:
            with self._own().cursor() as cursor, cursor.copy(_COPY) as copy:
                for row in rows:
                    copy.write_row(row)
        except psycopg.Error as error:
            raise self._gone(self._fault(error)) from None

    def _execute(self, query: bytes, params: dict[str, object]) -> None:
        try:
            self._own().execute(query, params)
        except psycopg.Error as error:
            raise self._gone(self._fault(error)) from None

    def _own(self) -> Connection:
        """Return the connection, which is this stage's alone."""
        if self._connection is None:
            try:
                self._connection = self._backend.connections.own()
            except Lost as found:
                raise found.error from None
            make = statements.statement(self._backend.schema, _MAKE)
            try:
                self._connection.execute(make)
            except psycopg.Error as error:
                raise self._gone(self._fault(error)) from None
        return self._connection

    def _fault(self, error: psycopg.Error) -> Exception:
        connection = self._connection
        broken = connection is None or connection.broken or connection.closed
        address = self._backend.connections.address
        if faults.is_lost(error, broken=broken):
            return faults.lost(address, error, certain=faults.is_deadlock(error))
        return faults.translate(address, error)

    @staticmethod
    def _gone(error: Exception) -> Exception:
        return error.error if isinstance(error, Lost) else error

    def discard(self) -> None:
        self._clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
