"""Build a session in a temporary table.

A temporary table belongs to its connection, and the server drops it with the connection: a process that
dies leaves nothing. COPY fills the table; `publish` moves the events into the store in one transaction,
together with the session's row.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from psycopg.types.numeric import Int8

from hansard.backend.contract import AppendRequest, Stage, key_used, nothing_staged
from hansard.backend.postgres.append import PendingInsert, deleted
from hansard.backend.postgres.connection import Connection, DedicatedConnection
from hansard.backend.postgres.schema import session_number
from hansard.backend.postgres.server_errors import ConnectionLost
from hansard.errors import BackendUnavailable
from hansard.event.event import NewEvent
from hansard.log import format
from hansard.log.write_batch import session_exists

if TYPE_CHECKING:
    from hansard.backend.postgres.backend import PostgresBackend

#: Maximum events and bytes that are collected before they are sent.
_MAX_EVENTS: Final = 2000
_MAX_BYTES: Final = 4 * 1024 * 1024

_CREATE: Final = """
CREATE TEMPORARY TABLE hansard_staged (LIKE {schema}.events)"""

_COPY: Final = b"""
COPY hansard_staged
    (session, seq, append_id, append_count, control, stamp, kind, key, data) FROM STDIN"""

_PUBLISH_SESSION: Final = """
INSERT INTO {schema}.sessions (session, id, life, before, last_seq, bytes, created, updated)
VALUES (%(session)s::uuid, %(id)s, %(life)s, %(before)s, %(last)s, %(bytes)s, %(created)s, %(updated)s)
ON CONFLICT (session) DO NOTHING RETURNING life"""

_PUBLISH_EVENTS: Final = "INSERT INTO {schema}.events SELECT * FROM hansard_staged"


class PostgresStage(Stage):
    """A session that other connections cannot see."""

    def __init__(self, backend: "PostgresBackend", session_id: str, before: int) -> None:
        self.session_id = session_id
        self._backend = backend
        self._session = session_number(session_id)
        self._before = before
        self._clear()

    def _clear(self) -> None:
        self._connection = DedicatedConnection(self._backend.connections)
        self._seq = self._before
        self._bytes = 0
        #: Bytes of the rows that were not sent yet.
        self._unsent = 0
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
            ids = (append.id, len(events)) if first else (None, None)
            event = (new.control, self._updated, new.kind, key if first else None)
            self._rows.append((self._session, self._seq, *ids, *event, new.data.decode()))
        self._bytes += append.size
        self._unsent += append.size
        if len(self._rows) >= _MAX_EVENTS or self._unsent >= _MAX_BYTES:
            self._send()

    def publish(self) -> None:
        self._backend.check_open()
        if self._seq == self._before:
            raise nothing_staged(self.session_id)
        self._send()
        life = uuid4()
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
        query = self._backend.connections.query
        try:
            with self._using() as connection, connection.transaction():
                connection.execute("SELECT set_config('statement_timeout', '0', true)")
                if connection.execute(query(_PUBLISH_SESSION), params).fetchone() is None:
                    raise self._refused()
                connection.execute(query(_PUBLISH_EVENTS))
        except ConnectionLost as lost:
            # The commit may have succeeded: then the session exists, with this life.
            row = self._backend.rows.session(self._session)
            if lost.certain or row is None or row.life != life:
                raise self._lost(lost) from None
        self.discard()
        self._backend.notifier.tell(self._session)

    def _refused(self) -> Exception:
        row = self._backend.rows.session(self._session)
        if row is not None and row.deleted:
            return deleted(self.session_id)
        return session_exists(self.session_id, 0 if row is None else row.head.seq)

    def _send(self) -> None:
        """Copy the rows that were collected into the temporary table."""
        rows, self._rows, self._unsent = self._rows, [], 0
        if not rows:
            return
        try:
            with self._using() as connection, connection.cursor().copy(_COPY) as copy:
                for row in rows:
                    copy.write_row(row)
        except ConnectionLost as lost:
            raise self._lost(lost) from None

    @contextmanager
    def _using(self) -> Iterator[Connection]:
        """Return the connection, with the temporary table."""
        opened = self._connection.opened
        with self._connection.using() as connection:
            if opened == 0:
                connection.execute(self._backend.connections.query(_CREATE))
            elif opened != self._connection.opened:
                # After a loss, or in a forked child: the table with the earlier events is missing.
                raise self._lost()
            yield connection

    def _lost(self, lost: ConnectionLost | None = None) -> BackendUnavailable:
        return BackendUnavailable(
            f"{self._backend.where if lost is None else lost.error}; what was staged of session "
            f"{self.session_id!r} is lost with its connection. Start again"
        )

    def discard(self) -> None:
        self._connection.close()
        self._clear()
