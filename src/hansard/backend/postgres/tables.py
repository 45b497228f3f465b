"""Run the statements of the index on a PostgreSQL server.

The tables hold nothing that the logs do not, and may be emptied at any time. The statements come from
`index`, which alone knows what they mean, without the name of a schema: each transaction sets its own
`search_path`. A process that changes the tables holds an advisory lock until its commit.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg

from hansard.backend.contract import IndexTables
from hansard.backend.postgres import errors
from hansard.backend.postgres.connection import Connection, Connections, lock_number
from hansard.backend.postgres.errors import ConnectionLost
from hansard.errors import BackendUnavailable

Answer = TypeVar("Answer")

#: How long to wait for another process that refreshes the index: the first time may take long.
_PATIENCE: Final = "60s"

_SNAPSHOT: Final = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresTables(IndexTables):
    """A connection to the tables of the index. For one thread at a time: the caller ensures that."""

    __slots__ = ("_connection", "_connections", "_pid", "_schema", "_within", "read_only")

    def __init__(self, connections: Connections, schema: str) -> None:
        self.read_only = connections.read_only
        self._connections = connections
        self._schema = schema
        self._connection: Connection | None = None
        self._pid = os.getpid()
        self._within = False

    def trying(self, do: Callable[[], Answer]) -> Answer:
        try:
            return self._connections.retry(do)
        except ConnectionLost as found:
            raise found.error from None

    def run(self, text: str, values: Sequence[Any] = (), *, rows: bool = True) -> list[Any]:
        with self._guarded(), self._in_transaction() as connection:
            cursor = connection.execute(text.encode(), values)
            # Without rows there is nothing to wait for: inside `change`, statements are sent together.
            return cursor.fetchall() if rows else []

    def run_all(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._guarded(), self._in_transaction() as connection:
            query = text.encode()
            for values in rows:
                connection.execute(query, values)

    @contextmanager
    def change(self) -> Iterator[None]:
        with self._guarded(), self._in_transaction() as connection:
            connection.execute(
                "SELECT set_config('lock_timeout', %s, true), "
                "set_config('statement_timeout', '0', true), "
                # What is derived can be derived again, so it need not wait for the disk.
                "set_config('synchronous_commit', 'off', true)",
                (_PATIENCE,),
            )
            number = lock_number("index", self._schema)
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
            with connection.pipeline():
                yield

    @contextmanager
    def look(self) -> Iterator[None]:
        with self._guarded(), self._in_transaction(_SNAPSHOT):
            yield

    @contextmanager
    def _in_transaction(self, mode: bytes | None = None) -> Iterator[Connection]:
        """Yield the connection inside a transaction, which is the current one if there is one."""
        connection = self._own()
        if self._within:
            yield connection
            return
        with connection.transaction():
            self._within = True
            try:
                if mode is not None:
                    connection.execute(mode)
                # Not an option of the session: a pooler may give the connection to another client. Last, so
                # that a temporary table does not take the place of one of ours.
                path = f"SET LOCAL search_path = {self._schema}, pg_temp"
                connection.execute(path.encode())
                yield connection
            finally:
                self._within = False

    def changing(self) -> bool:
        return self._within

    def rewrite(self, *names: str) -> bool:
        refused: list[object] = []
        with suppress(BackendUnavailable, ConnectionLost), self._guarded():
            connection = self._own()
            connection.add_notice_handler(refused.append)
            try:
                for name in names:
                    # FULL: a plain one frees rows and leaves their bytes, and never removes a word from a
                    # GIN index.
                    connection.execute(f"VACUUM FULL {self._schema}.{name}".encode(), prepare=False)
            finally:
                connection.remove_notice_handler(refused.append)
            return not refused
        return False

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            connection.close()

    def _own(self) -> Connection:
        """Return the connection: not from the pool, which may have no second one while sessions are read."""
        if self._pid != os.getpid():
            # It belongs to the parent process: not to be closed here.
            _inherited.append(self._connection)
            self._connection = None
            self._pid = os.getpid()
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connections.check_open()
            self._connection = self._connections.open()
        return self._connection

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Say errors of the server's in hansard's words, or as `ConnectionLost`."""
        try:
            yield
        except psycopg.Error as error:
            assert self._connection is not None  # it raised the error
            raise errors.to_error(self._connections.url, error, self._connection) from None


#: Connections of a parent process, kept so that they are not finalized in this one.
_inherited: list[object] = []
