"""Open connections to the server, lend them to threads, and retry when the server was unreachable.

Most statements run on a pooled connection, in autocommit: one statement is one transaction and one round
trip. A caller that needs the state of a connection (LISTEN, a temporary table, an advisory lock) has a
`DedicatedConnection`.

A statement whose connection is lost is retried until the store's `patience` is over. So every statement
may run twice: reads are harmless, and writes carry a key or check whether they were done.

After `os.fork` the child opens its own connections. It drops those of its parent without closing them, which
would end the parent's session on the server. psycopg finalizes a connection only in the process that opened
it.
"""

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar
from weakref import finalize

import psycopg
from psycopg import generators
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import TupleRow
from psycopg.types.numeric import Int8
from psycopg.types.string import ByteaBinaryLoader

from hansard.backend.contract import Hold
from hansard.backend.postgres import server_errors
from hansard.backend.postgres.server_errors import ConnectionLost
from hansard.backend.postgres.url import StoreUrl
from hansard.clock import Backoff
from hansard.errors import BackendUnavailable, Closed
from hansard.log import disk

Params = Mapping[str, Any]
Value = bytes | None
Answer = TypeVar("Answer")

#: Seconds after which a pooled connection is replaced.
_LIFETIME: Final = 3600.0
#: Seconds between two tries of a statement: the first pause, which doubles each time, and the longest.
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.25
#: Seconds between two tries to take an advisory lock.
_LOCK_PAUSE: Final = 0.02
#: Seconds after which the server cancels a statement, except in `transaction`.
_STATEMENT_TIMEOUT: Final = 60.0

#: libpq's parameters, unless the URL sets them: notice within a minute that the server is unreachable.
_DEFAULTS: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "45000",
}

_NUMBER: Final = re.compile(r"\d+")
_PARAMETER: Final = re.compile(rb"%\((\w+)\)([sb])")


class PreparedQuery(NamedTuple):
    """A query with numbered parameters, as libpq takes it."""

    #: Derived from the text: it identifies the query on every connection.
    name: bytes
    text: bytes
    #: The names of the parameters, and whether each is sent in binary (1) or as text (0).
    names: tuple[str, ...]
    formats: tuple[int, ...]


@lru_cache
def prepared_query(query: bytes) -> PreparedQuery:
    """Convert a query with named parameters: `%(name)b` is sent in binary, `%(name)s` as text."""
    formats: dict[str, int] = {}

    def numbered(found: "re.Match[bytes]") -> bytes:
        name = found[1].decode()
        formats.setdefault(name, int(found[2] == b"b"))
        return b"$%d" % (list(formats).index(name) + 1)

    text = _PARAMETER.sub(numbered, query)
    name = b"hansard_" + hashlib.sha256(text).hexdigest()[:16].encode()
    return PreparedQuery(name, text, tuple(formats), tuple(formats.values()))


class Connection(psycopg.Connection[TupleRow]):
    """A connection, and what it keeps between statements."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Of the process that opened it: with another one, it belongs to the parent.
        self.generation = disk.generation
        self.expires = time.monotonic() + _LIFETIME
        self._cursor: psycopg.Cursor[TupleRow] | None = None
        self._prepared_names: set[bytes] = set()

    def __del__(self, *_: object) -> None:
        """Do not warn, unlike psycopg: a store need not be closed."""

    def fetch(
        self, query: bytes, params: Params | None = None, *, binary: bool = False
    ) -> list[TupleRow]:
        """Execute a query and return its rows."""
        # Creating a cursor takes a quarter of the client's time for a short query, so one is kept. A result
        # in binary may be large: its cursor is dropped, and the result with it.
        cursor = self.cursor() if binary or self._cursor is None else self._cursor
        if not binary:
            self._cursor = cursor
        cursor.execute(query, params, prepare=True, binary=binary)
        # Not `description`, which builds an object for each column.
        result = cursor.pgresult
        return cursor.fetchall() if result is not None and result.nfields else []

    def execute_prepared(self, query: PreparedQuery, values: Sequence[Value]) -> PGresult:
        """Execute a query through libpq, without a cursor.

        A cursor adapts each value and each column; an append has bytes, and gets a number and a text. This
        saves a tenth of a durable append and a fifth of others (docs/decisions/0018-postgres.md).
        """
        while True:
            fresh = query.name not in self._prepared_names
            if fresh:
                self.pgconn.send_prepare(query.name, query.text)
                with suppress(psycopg.errors.DuplicatePreparedStatement):
                    self._result()
                self._prepared_names.add(query.name)
            self.pgconn.send_query_prepared(query.name, values, query.formats)
            try:
                return self._result()
            except psycopg.errors.InvalidSqlStatementName:
                # Nothing ran. psycopg deallocates all statements of a connection after a rollback.
                self._prepared_names.clear()
                if fresh:
                    raise

    def rewrite(self, table: bytes) -> str:
        """Rewrite a table and its indexes without old rows; return why that failed, "" if it did not.

        A role that is not the owner gets a warning. Rows that an older transaction can see stay.
        """
        texts: list[str] = []
        left: list[int] = []

        def read(notice: psycopg.errors.Diagnostic) -> None:
            texts.append(notice.message_primary or "")
            # In any language, the details begin with the number of old rows that stay.
            left.extend(int(found[0]) for found in _NUMBER.finditer(notice.message_detail or ""))

        self.add_notice_handler(read)
        try:
            # FULL: otherwise the bytes of old rows stay in their pages, and words in a GIN index.
            self.execute(b"VACUUM (FULL, VERBOSE) " + table, prepare=False)
        finally:
            self.remove_notice_handler(read)
        if not left:
            return "; ".join(texts) or "not rewritten"
        return f"an older transaction can still read {left[0]} old rows" if left[0] else ""

    def _result(self) -> PGresult:
        # `wait` cancels the statement on the server if Ctrl-C interrupts it.
        result: PGresult = self.wait(generators.execute(self.pgconn))[-1]
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        return result


class Connections:
    """The connections of one store in this process: a pool of at most `url.connections`."""

    def __init__(self, url: StoreUrl, *, read_only: bool, lock_timeout: float) -> None:
        self.url = url
        #: Quoted; `url` accepts no name with a quote.
        self.schema = f'"{url.schema}"'
        self.read_only = read_only
        #: Seconds to wait for a lock of another writer.
        self.lock_timeout = lock_timeout
        self._queries: dict[str, bytes] = {}
        self._closed = False
        self._connected = False
        self._parameters = self._libpq_parameters()
        self._settings = self._session_settings()
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Start with an empty pool, also in a forked child."""
        #: Unused connections; the last was used last.
        self._idle: list[Connection] = []
        #: How many more may be lent.
        self._free = threading.Semaphore(self.url.connections)

    # -- statements -----------------------------------------------------------------------------

    def query(self, text: str) -> bytes:
        """Return a statement with the store's schema in the place of `{schema}`."""
        found = self._queries.get(text)
        if found is None:
            found = self._queries[text] = text.replace("{schema}", self.schema).encode()
        return found

    def run(
        self, text: str, params: Params | None = None, *, binary: bool = False
    ) -> list[TupleRow]:
        """Execute a statement, retrying it if the connection is lost, and return its rows."""
        return self.retry(lambda: self.attempt(text, params, binary=binary))

    def attempt(
        self, text: str, params: Params | None = None, *, binary: bool = False
    ) -> list[TupleRow]:
        """Execute a statement once; raise `ConnectionLost` if it may be retried."""
        query = self.query(text)
        return self.call(lambda lent: lent.fetch(query, params, binary=binary))

    def call(self, do: Callable[[Connection], Answer], deadline: float | None = None) -> Answer:
        """Call something once with a connection."""
        with self.using(deadline) as connection:
            return do(connection)

    def retry(self, do: Callable[[], Answer]) -> Answer:
        """Call something that may be done twice until no connection is lost, or patience is over."""
        return self.retry_noting(do)[0]

    def retry_noting(
        self, do: Callable[[], Answer], deadline: float | None = None
    ) -> tuple[Answer, bool]:
        """Do the same; return also whether an earlier try may have been committed."""
        patience = self.url.patience if deadline is None else deadline - time.monotonic()
        backoff = Backoff(patience, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        uncertain = False
        while True:
            try:
                return do(), uncertain
            except ConnectionLost as lost:
                if not backoff.sleep():
                    raise lost.error from None
                uncertain = uncertain or not lost.certain

    @contextmanager
    def using(self, deadline: float | None = None) -> Iterator[Connection]:
        """Lend a connection. Errors are hansard's or `ConnectionLost`, except a unique violation."""
        connection = self._lend(deadline)
        try:
            yield connection
        except psycopg.Error as error:
            raise server_errors.to_error(self.url, error, connection) from None
        finally:
            self._give_back(connection)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend a connection inside a transaction that may take long: no statement is cancelled."""
        with self.using() as connection, connection.transaction():
            connection.execute("SELECT set_config('statement_timeout', '0', true)")
            yield connection

    @contextmanager
    def own_transaction(self) -> Iterator[Connection]:
        """Return a connection in a transaction. Not of the pool, which may have one: the block may read."""
        dedicated = DedicatedConnection(self)
        with closing(dedicated), dedicated.using() as connection, connection.transaction():
            yield connection

    # -- the pool -------------------------------------------------------------------------------

    def _lend(self, deadline: float | None) -> Connection:
        left = self.url.patience if deadline is None else deadline - time.monotonic()
        if not self._free.acquire(timeout=max(0.001, left)):
            exhausted = BackendUnavailable(
                f"{self.url.where}: all {self.url.connections} connections of this process were in use for "
                f"{self.url.patience:g} s. Allow more in the URL (`?connections=N`), or use fewer threads"
            )
            raise ConnectionLost(exhausted, certain=True)
        try:
            self.check_open()
            with suppress(IndexError):
                return self._idle.pop()
            return self.open()
        except BaseException:
            self._free.release()
            raise

    def _give_back(self, connection: Connection) -> None:
        if connection.generation != disk.generation:
            return  # lent before a fork
        idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        if idle and time.monotonic() < connection.expires:
            self._idle.append(connection)
        else:
            connection.close()
        self._free.release()
        if self._closed:
            self.close()  # after the append: another thread may close the store before it

    def check_open(self) -> None:
        """Raise `Closed` if the store was closed."""
        if self._closed:
            raise Closed(f"{self.url.where}: the store is closed; open it again")

    def close(self) -> None:
        """Close all pooled connections; those in use are closed when they are given back."""
        self._closed = True
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    # -- opening --------------------------------------------------------------------------------

    def open(self) -> Connection:
        """Open a connection; raise `ConnectionLost` if that may succeed later."""
        self.check_open()
        parameters = {"application_name": f"hansard {os.getpid()}", **self._parameters}
        try:
            connection: Connection = Connection.connect("", autocommit=True, **parameters)
            try:
                # Columns of type `text` hold JSON: read in binary, they stay bytes.
                connection.adapters.register_loader("text", ByteaBinaryLoader)
                connection.execute(self._settings)
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            lost = server_errors.lost(self.url, error, certain=True)
            # A mistake in the URL shows at the first connection. Later, anything may pass.
            if self._connected or server_errors.is_unreachable(error):
                raise lost from None
            raise lost.error from None
        self._connected = True
        return connection

    def _libpq_parameters(self) -> dict[str, Any]:
        try:
            given = psycopg.conninfo.conninfo_to_dict(self.url.libpq)
        except psycopg.Error:
            # libpq's message repeats the URL.
            raise ValueError(
                f"{self.url.where}: invalid URL (not shown, because it may contain a password); "
                "percent-encode special characters in user, password and options"
            ) from None
        return {**_DEFAULTS, **given, "client_encoding": "UTF8"}

    def _session_settings(self) -> bytes:
        """Return the statement that sets up a connection. Timeouts in the URL take precedence."""
        given = str(self._parameters.get("options", ""))
        timeouts = {"lock_timeout": self.lock_timeout, "statement_timeout": _STATEMENT_TIMEOUT}
        settings = {
            name: f"{max(1, round(seconds * 1000))}ms"
            for name, seconds in timeouts.items()
            if name not in given
        }
        settings["default_transaction_isolation"] = "read committed"
        if self.read_only:
            settings["default_transaction_read_only"] = "on"
        sets = [f"set_config('{name}', '{value}', false)" for name, value in settings.items()]
        # An append is durable when it returns, even if the server's default is off. A store that was opened
        # for less turns it off per append. A setting stricter than "on" stays.
        sets.append(
            "CASE WHEN current_setting('synchronous_commit') = 'off' "
            "THEN set_config('synchronous_commit', 'on', false) END"
        )
        return f"SELECT {', '.join(sets)}".encode()


class DedicatedConnection:
    """A connection outside the pool, for a caller that needs its state. For one thread at a time.

    It is opened when it is first used, and again after a loss or in a forked child. What was set up on it is
    then missing.

    Attributes:
        opened: how often it was opened; compare it to notice that its state is missing.
    """

    def __init__(self, connections: Connections) -> None:
        self.opened = 0
        self._connections = connections
        self._connection: Connection | None = None

    @contextmanager
    def using(self) -> Iterator[Connection]:
        """Return the connection. Errors are hansard's or `ConnectionLost`."""
        connection = self._connection
        if connection is None or connection.closed or connection.generation != disk.generation:
            self.close()
            connection = self._connection = self._connections.open()
            self.opened += 1
        try:
            yield connection
        except psycopg.Error as error:
            raise server_errors.to_error(self._connections.url, error, connection) from None

    def close(self, *, unlock: bool = False) -> None:
        """Close the connection; the next use opens another. `unlock`: release its advisory locks first."""
        connection, self._connection = self._connection, None
        if connection is None or connection.generation != disk.generation:
            return  # the parent's must not be closed
        if unlock:
            # The server notices the end of a connection later: the next caller could find them held.
            with suppress(psycopg.Error):
                connection.execute("SELECT pg_advisory_unlock_all()")
        connection.close()


class AdvisoryLock(Hold):
    """A lock on the server, held by a dedicated connection: if the process dies, the server releases it."""

    def __init__(self, connections: Connections, purpose: str, name: str) -> None:
        self.number = lock_number(purpose, connections.url.schema, name)
        self._pid = os.getpid()
        self._connections = connections
        self._connection = DedicatedConnection(connections)
        self._release = finalize(self, self._connection.close, unlock=True)
        self._release.atexit = False

    def acquire(self, timeout: float) -> bool:
        """Take the lock; return False if another one has held it for `timeout` seconds."""
        backoff = Backoff(timeout, first=_LOCK_PAUSE, longest=_LOCK_PAUSE)
        try:
            while not self._connections.retry(self._try):
                if not backoff.sleep():
                    self.close()
                    return False
        except BaseException:
            self.close()
            raise
        return True

    def _try(self) -> bool:
        with self._connection.using() as connection:
            found = connection.execute("SELECT pg_try_advisory_lock(%s)", (self.number,))
            return found.fetchone() == (True,)

    def check(self) -> None:
        if self._pid != os.getpid():
            raise Closed("opened before a fork, by the parent process; open it in this process")
        if not self._release.alive:
            raise Closed("closed; open it again")

    def close(self) -> None:
        self._release()


def lock_number(purpose: str, schema: str, *names: str) -> Int8:
    """Return the number of an advisory lock: the same for the same names on every machine."""
    digest = hashlib.sha256("\0".join(("hansard", purpose, schema, *names)).encode()).digest()
    return Int8(int.from_bytes(digest[:8], signed=True))
