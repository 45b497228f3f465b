"""Run statements on the tables of the index.

The tables hold nothing that the logs do not, and may be emptied at any time. The statements come from
`index`, which alone knows what they mean, without the name of a schema: each transaction sets its own
`search_path`. A process that changes the tables holds an advisory lock until its commit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg

from hansard.backend.postgres.connection import (
    Connection,
    Connections,
    DedicatedConnection,
    lock_number,
)
from hansard.backend.postgres.schema import SEARCH_PATH
from hansard.backend.postgres.server_errors import ConnectionLost, to_error
from hansard.errors import HansardError

Answer = TypeVar("Answer")

#: Removes the rows of a session that is purged, and records that the tables must be rewritten (`residue`).
PURGE: Final = """
WITH purged AS (SELECT id FROM sessions WHERE session = %(session)s::uuid),
l AS (DELETE FROM index_log WHERE id IN (SELECT id FROM purged) RETURNING log),
t AS (DELETE FROM index_text WHERE log IN (SELECT log FROM l) RETURNING text),
w AS (DELETE FROM index_words WHERE text IN (SELECT text FROM t)),
s AS (DELETE FROM index_session WHERE id IN (SELECT id FROM purged) RETURNING n),
b AS (DELETE FROM index_label WHERE n IN (SELECT n FROM s)),
c AS (DELETE FROM index_tally WHERE n IN (SELECT n FROM s)),
e AS (DELETE FROM index_entry WHERE id IN (SELECT id FROM purged)),
u AS (DELETE FROM index_unread WHERE id IN (SELECT id FROM purged)),
p AS (INSERT INTO index_purged (id) SELECT id FROM purged)
INSERT INTO index_meta (key, value) SELECT 'residue', '1' WHERE EXISTS (SELECT FROM index_meta)
ON CONFLICT (key) DO UPDATE SET value = excluded.value"""

#: How long to wait for another process that refreshes the index: the first time may take long.
_PATIENCE: Final = "60s"

_SNAPSHOT: Final = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresTables:
    """A connection to the tables of the index. For one thread at a time: the caller ensures that."""

    __slots__ = ("_connection", "_connections", "_current", "read_only")

    def __init__(self, connections: Connections) -> None:
        self.read_only = connections.read_only
        self._connections = connections
        # Not from the pool, which may have no second connection while sessions are read.
        self._connection = DedicatedConnection(connections)
        #: The connection of the transaction that is open.
        self._current: Connection | None = None

    def trying(self, do: Callable[[], Answer]) -> Answer:
        return self._connections.retry(do)

    def run(self, text: str, values: Sequence[Any] = (), *, rows: bool = True) -> list[Any]:
        with self._in_transaction() as connection:
            cursor = connection.execute(text.encode(), values)
            # Without rows there is nothing to wait for: inside `change`, statements are sent together.
            return cursor.fetchall() if rows else []

    def run_all(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._in_transaction() as connection:
            query = text.encode()
            for values in rows:
                connection.execute(query, values)

    @contextmanager
    def change(self) -> Iterator[None]:
        with self._in_transaction() as connection:
            connection.execute(
                "SELECT set_config('lock_timeout', %s, true), "
                "set_config('statement_timeout', '0', true), "
                # What is derived can be derived again, so it need not wait for the disk.
                "set_config('synchronous_commit', 'off', true)",
                (_PATIENCE,),
            )
            number = lock_number("index", self._connections.url.schema)
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
            with connection.pipeline():
                yield

    @contextmanager
    def look(self) -> Iterator[None]:
        with self._in_transaction(_SNAPSHOT):
            yield

    @contextmanager
    def _in_transaction(self, mode: bytes | None = None) -> Iterator[Connection]:
        """Yield the connection inside a transaction, which is the current one if there is one."""
        if self._current is not None:
            try:
                yield self._current
            except psycopg.Error as error:
                raise to_error(self._connections.url, error, self._current) from None
            return
        with self._connection.using() as connection, connection.transaction():
            self._current = connection
            try:
                if mode is not None:
                    connection.execute(mode)
                # Not an option of the session: a pooler may give the connection to another client.
                connection.execute(self._connections.query(SEARCH_PATH))
                yield connection
            finally:
                self._current = None

    def rewrite(self, *names: str) -> bool:
        query = self._connections.query
        with (
            suppress(HansardError, ConnectionLost),
            self._connection.using() as connection,
        ):
            return not any(connection.rewrite(query(f"{{schema}}.{name}")) for name in names)
        return False

    def close(self) -> None:
        self._connection.close()
