"""Build a session in a temporary table.

A temporary table belongs to its connection, and the server drops it with the connection: a process that
dies leaves nothing. COPY fills the table; `publish` moves the events into the store in one transaction,
together with the session's row. A session of few events, such as a fork, needs no table.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from psycopg.types.numeric import Int8

from hansard.backend.contract import (
    AppendRequest,
    Head,
    Stage,
    check_parent,
    key_used,
    nothing_staged,
)
from hansard.backend.postgres.append import PendingInsert
from hansard.backend.postgres.connection import Connection, DedicatedConnection
from hansard.backend.postgres.schema import session_number
from hansard.backend.postgres.server_errors import ConnectionLost
from hansard.errors import BackendUnavailable
from hansard.event.event import NewEvent
from hansard.event.kinds import SessionForked
from hansard.log import format
from hansard.log.store_directory import deleted
from hansard.log.write_batch import session_exists

if TYPE_CHECKING:
    from hansard.backend.postgres.backend import PostgresBackend
    from hansard.backend.postgres.read import SessionRow

#: Maximum events and bytes that are collected before they are sent.
_MAX_EVENTS: Final = 2000
_MAX_BYTES: Final = 4 * 1024 * 1024

_CREATE: Final = """
CREATE TEMPORARY TABLE hansard_staged (LIKE {schema}.events)"""

_COPY: Final = """
COPY {table} (session, seq, append_id, append_count, control, stamp, kind, key, data) FROM STDIN"""
_STAGE: Final = _COPY.replace("{table}", "hansard_staged")
_STORE: Final = _COPY.replace("{table}", "{schema}.events")

#: Neither deleted nor purged before the transaction ends.
_HOLD_PARENT: Final = """
SELECT last_seq, created, updated FROM {schema}.sessions
WHERE session = %(parent)s::uuid AND NOT internal FOR SHARE"""

_PUBLISH_SESSION: Final = """
INSERT INTO {schema}.sessions (session, id, life, before, last_seq, bytes, created, updated)
VALUES (%(session)s::uuid, %(id)s, %(life)s, %(before)s, %(last)s, %(bytes)s, %(created)s, %(updated)s)
ON CONFLICT (session) DO NOTHING RETURNING life"""

_PUBLISH_EVENTS: Final = "INSERT INTO {schema}.events SELECT * FROM hansard_staged"


@dataclass(eq=False)
class PostgresStage(Stage):
    """A session that other connections cannot see."""

    _backend: "PostgresBackend"
    session_id: str
    _before: int
    _forked: SessionForked | None

    def __post_init__(self) -> None:
        self._session = session_number(self.session_id)
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
            try:
                with self._using() as connection:
                    self._send(connection, _STAGE)
            except ConnectionLost as lost:
                raise self._lost(lost) from None
            self._rows, self._unsent = [], 0

    def publish(self) -> None:
        self._backend.check_open()
        if self._seq == self._before:
            raise nothing_staged(self.session_id)
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
        connections = self._backend.connections
        lost: ConnectionLost | None = None
        done = False
        try:
            if self._connection.opened:
                with self._using() as connection:
                    done = self._publish(connection, params)
            else:
                done = connections.retry(
                    lambda: connections.call(partial(self._publish, params=params))
                )
        except ConnectionLost as error:
            lost = error
        if not done:
            # A commit whose answer was lost may have succeeded: then the session exists, with this life.
            row = self._backend.rows.session(self._session)
            if row is None or row.life != life:
                raise self._refused(row) if lost is None else self._lost(lost)
        self.discard()
        self._backend.notifier.tell(self._session)

    def _publish(self, connection: Connection, params: Mapping[str, object]) -> bool:
        """Store all in one transaction; False if there is a session of that id."""
        query, forked = self._backend.connections.query, self._forked
        with connection.transaction():
            connection.execute("SELECT set_config('statement_timeout', '0', true)")
            if forked is not None:
                parent = {"parent": session_number(forked.parent)}
                row = connection.execute(query(_HOLD_PARENT), parent).fetchone()
                head = None if row is None else Head(*row)
                check_parent(self.session_id, forked, head, self._backend.where)
            if connection.execute(query(_PUBLISH_SESSION), params).fetchone() is None:
                return False
            if self._connection.opened:
                connection.execute(query(_PUBLISH_EVENTS))
            self._send(connection, _STORE)
        return True

    def _refused(self, row: "SessionRow | None") -> Exception:
        if row is not None and row.deleted:
            return deleted(self.session_id)
        return session_exists(self.session_id, 0 if row is None else row.head.seq)

    def _send(self, connection: Connection, statement: str) -> None:
        """Copy the rows that were collected into a table."""
        with connection.cursor().copy(self._backend.connections.query(statement)) as copy:
            for row in self._rows:
                copy.write_row(row)

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
