"""The tables in which an index of a store's sessions is kept, and a connection to ask them.

Above: `backend`, `index.server`.  Below: `connections`, `faults`, `schema`.
They hold nothing that does not stand in the logs, and may be emptied at any time. What is asked of them
comes as SQL from `index`, which alone knows what they mean; here is only how it gets to the server. One who
changes them holds an advisory lock until the commit: of all processes, one at a time.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg

from hansard.backend.contract import Tables
from hansard.backend.postgres import errors
from hansard.backend.postgres.connection import Connection, Connections, lock_number
from hansard.backend.postgres.errors import ConnectionLost
from hansard.errors import BackendUnavailable

Answer = TypeVar("Answer")

#: How long to wait for another process that is bringing the index up to date: a first time may take long.
_PATIENCE: Final = "60s"


class PostgresTables(Tables):
    """A connection to the tables of the index. For one thread at a time: who uses it sees to that."""

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
        with self._guarded():
            cursor = self._own().execute(self._query(text), values)
            # Whoever wants no rows does not wait: between `change` and its end statements go out together.
            return cursor.fetchall() if rows else []

    def run_all(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._guarded():
            query = self._query(text)
            for values in rows:
                self._own().execute(query, values)

    @contextmanager
    def change(self) -> Iterator[None]:
        with self._guarded():
            connection = self._own()
            with connection.transaction(), self._in_transaction():
                number = lock_number("index", self._schema)
                connection.execute(
                    "SELECT set_config('lock_timeout', %s, true), "
                    "set_config('statement_timeout', '0', true), "
                    # What is derived can be derived again: nobody waits for the disk.
                    "set_config('synchronous_commit', 'off', true)",
                    (_PATIENCE,),
                )
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
                with connection.pipeline():
                    yield

    @contextmanager
    def look(self) -> Iterator[None]:
        with self._guarded():
            connection = self._own()
            with connection.transaction(), self._in_transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield

    @contextmanager
    def _in_transaction(self) -> Iterator[None]:
        self._within = True
        try:
            yield
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
                    connection.execute(self._query(f"VACUUM FULL {{schema}}.{name}"), prepare=False)
            finally:
                connection.remove_notice_handler(refused.append)
            return not refused
        return False

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            connection.close()

    def _own(self) -> Connection:
        """Return the connection: its own, since the pool may have no second one while sessions are read."""
        if self._pid != os.getpid():
            # That of the process from which this one was forked: not to be closed here.
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

    def _query(self, text: str) -> bytes:
        return text.replace("{schema}", self._schema).encode()


#: Connections of a parent process. Kept, so that nothing of them is finalised in this one.
_inherited: list[object] = []
