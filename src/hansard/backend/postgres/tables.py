"""Run the statements of the index on a PostgreSQL server.

The tables hold nothing that the logs do not, and may be emptied at any time. The statements come from
`index`, which alone knows what they mean, without the name of a schema: each transaction sets its own
`search_path`. A process that changes the tables holds an advisory lock until its commit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg.types.numeric import Int8

from hansard.backend.contract import IndexTables
from hansard.backend.postgres.connection import (
    Connection,
    Connections,
    DedicatedConnection,
    lock_number,
)
from hansard.backend.postgres.errors import ConnectionLost, to_error
from hansard.errors import BackendUnavailable

Answer = TypeVar("Answer")

#: How long to wait for another process that refreshes the index: the first time may take long.
_PATIENCE: Final = "60s"

_SEARCH_PATH: Final = "SET LOCAL search_path = {schema}, pg_temp"
_SNAPSHOT: Final = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresTables(IndexTables):
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
        try:
            return self._connections.retry(do)
        except ConnectionLost as found:
            raise found.error from None

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
            number = Int8(lock_number("index", self._connections.url.schema))
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
                # Not an option of the session: a pooler may give the connection to another client. Last, so
                # that a temporary table does not take the place of one of ours.
                connection.execute(self._connections.query(_SEARCH_PATH))
                yield connection
            finally:
                self._current = None

    def changing(self) -> bool:
        return self._current is not None

    def rewrite(self, *names: str) -> bool:
        refused: list[object] = []
        with (
            suppress(BackendUnavailable, ConnectionLost),
            self._connection.using() as connection,
        ):
            connection.add_notice_handler(refused.append)
            try:
                for name in names:
                    # FULL: a plain one frees rows and leaves their bytes, and never removes a word from a
                    # GIN index.
                    query = self._connections.query(f"VACUUM FULL {{schema}}.{name}")
                    connection.execute(query, prepare=False)
            finally:
                connection.remove_notice_handler(refused.append)
            return not refused
        return False

    def close(self) -> None:
        self._connection.close()
