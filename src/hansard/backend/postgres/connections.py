"""Get connections to the server, run statements on them, and try again when the server was away.

Above: everything in this package that asks the server.  Below: `address`, `faults`, psycopg and
psycopg_pool.
A statement goes through a pool, in autocommit: one statement is one transaction and one round trip. Who
needs a connection of its own (a listener, a cursor's lock, a stage) gets one that the pool does not know.

What was lost on its way is tried again for as long as the store's patience lasts. So every statement that
is run here may be run twice: reading is harmless, and what writes has a key, or sees that it was done.

After a fork the child makes connections of its own. Its parent's are the parent's: they are not closed
there, only never used.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import TupleRow
from psycopg.types.string import ByteaBinaryLoader
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from hansard.backend.postgres import faults
from hansard.backend.postgres.address import Address
from hansard.backend.postgres.direct import Direct, Value
from hansard.backend.postgres.faults import Lost
from hansard.backend.postgres.pooled import Connection, Pooled, cursor_of
from hansard.errors import BackendUnavailable, Closed

Params = Mapping[str, Any]
Answer = TypeVar("Answer")

#: How long one try to get a connection lasts, in seconds: then the next one begins.
_SLICE: Final = 1.0
#: For so long, in seconds, a connection may go from one statement to the next without the pool's seeing it.
_AT_HAND: Final = 60.0
#: Between two tries of a statement.
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.25
#: A statement that takes longer is cancelled: whoever waits for it has other plans by then. In seconds; not
#: for what is long by its nature, which says so (`unhurried`).
_STATEMENT_TIMEOUT: Final = 60.0

#: What libpq is told unless the URL says otherwise: notice within a minute that the other side is gone.
_DEFAULTS: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "45000",
}

# What the pool has to say comes with the errors that are raised here; nobody asked for it on stderr.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

#: Pools and connections of a parent process. Kept, so that nothing of them is finalised in this one.
_inherited: list[object] = []


class Connections:
    """The connections of one store in this process."""

    __slots__ = (
        "_asking",
        "_at_hand",
        "_closed",
        "_info",
        "_lock_timeout",
        "_mutex",
        "_pid",
        "_pool",
        "_refused",
        "_settings",
        "_spare",
        "address",
        "patience",
        "read_only",
    )

    def __init__(self, address: Address, *, read_only: bool, lock_timeout: float) -> None:
        self.address = address
        self.read_only = read_only
        #: How long to go on trying, in seconds.
        self.patience = address.patience
        self._lock_timeout = lock_timeout
        self._mutex = threading.Lock()
        self._closed = False
        self._pool: ConnectionPool[Pooled] | None = None
        self._pid = os.getpid()
        #: The connection that was used last: to get one from the pool and to give it back takes as long as
        #: all else that an append does in this process. And those who found none there, and ask the pool.
        #: Lists, since one step of theirs is one for all threads.
        self._at_hand: list[Pooled] = []
        self._asking: list[None] = []
        #: Why the last connection could not be made; None if it could.
        self._refused: Exception | None = None
        #: The connection by which the store was opened, for the pool to begin with.
        self._spare: Connection | None = None
        self._info = self._options()
        self._settings = self._session_settings()

    def __repr__(self) -> str:
        return f"<Connections {self.address.where!r}>"

    # -- statements -----------------------------------------------------------------------------

    def run(
        self, query: bytes, params: Params | None = None, *, binary: bool = False
    ) -> list[TupleRow]:
        """Run a statement until it has been run, and return its rows."""
        return self.trying(lambda: self.attempt(query, params, binary=binary))

    def attempt(
        self,
        query: bytes,
        params: Params | None = None,
        *,
        binary: bool = False,
        deadline: float | None = None,
    ) -> list[TupleRow]:
        """Run a statement once; raises `Lost` if it may be tried again."""
        with self.using(deadline) as connection:
            # The same for all of a connection's small answers: a new one costs a quarter of an append's time
            # in this process. Large ones come in binary, and are not kept.
            cursor = cursor_of(connection, binary=binary)
            cursor.execute(query, params, prepare=True, binary=binary)
            # Not `description`, which is made anew each time, column by column.
            result = cursor.pgresult
            return cursor.fetchall() if result is not None and result.nfields else []

    def attempt_directly(
        self, statement: Direct, values: Sequence[Value], deadline: float
    ) -> PGresult:
        """Run a statement once, as fast as can be; raises `Lost` if it may be tried again."""
        pool = self._current()
        connection = self._lend(pool, deadline)
        try:
            return connection.prepared.run(statement, values)
        except psycopg.Error as error:
            raise self._meant(error, connection) from None
        finally:
            self._give_back(pool, connection)

    def trying(self, do: Callable[[], Answer]) -> Answer:
        """Do something that may be done twice, again and again until nothing is lost or time is over."""
        deadline = time.monotonic() + self.patience
        pause = _FIRST_PAUSE
        while True:
            try:
                return do()
            except Lost as found:
                pause = self.pause(found, deadline, pause)

    def pause(self, found: Lost, deadline: float, pause: float) -> float:
        """Wait a little before the next try, and return how long to wait then; raises if time is over."""
        if time.monotonic() + pause > deadline:
            raise found.error from None
        time.sleep(pause)
        return min(2 * pause, _LONGEST_PAUSE)

    @contextmanager
    def using(self, deadline: float | None = None) -> Iterator[Connection]:
        """Lend a connection. Errors of the server's come out in hansard's words, or as `Lost`."""
        pool = self._current()
        connection = self._lend(pool, deadline)
        try:
            yield connection
        except psycopg.Error as error:
            raise self._meant(error, connection) from None
        finally:
            self._give_back(pool, connection)

    def _meant(self, error: psycopg.Error, connection: Connection) -> Exception:
        """Return what to raise for an error on a connection."""
        if isinstance(error, psycopg.errors.UniqueViolation):
            return error  # it says that something is there already, which is an answer
        if faults.is_lost(error, broken=connection.broken or connection.closed):
            return faults.lost(self.address, error, certain=faults.is_deadlock(error))
        return faults.translate(self.address, error)

    def _give_back(self, pool: "ConnectionPool[Pooled]", connection: Pooled) -> None:
        """Keep a connection at hand for the next who wants one, or give it to the pool."""
        if (
            pool is self._pool
            and not self._at_hand
            and connection.pgconn.transaction_status == TransactionStatus.IDLE
            and time.monotonic() < connection.until
        ):
            self._at_hand.append(connection)
            # After that, and who asks looks there after saying so: one of the two sees the other.
            if not self._asking and not self._closed:
                return
            try:
                connection = self._at_hand.pop()
            except IndexError:
                return  # somebody has taken it
        with suppress(PoolClosed):
            pool.putconn(connection)

    @contextmanager
    def unhurried(self) -> Iterator[Connection]:
        """Lend a connection inside a transaction, for what may take long: no statement is cancelled."""
        with self.using() as connection, connection.transaction():
            connection.execute("SELECT set_config('statement_timeout', '0', true)")
            yield connection

    def own(self) -> Connection:
        """Make a connection that is the caller's alone, to be closed by it."""
        self.check_open()
        try:
            return self._connect(psycopg.Connection[TupleRow])
        except psycopg.Error as error:
            raise faults.lost(self.address, error, certain=True) from None

    @contextmanager
    def first(self) -> Iterator[Connection]:
        """Make the first connection: whatever is wrong with the URL shows here, and at once.

        Raises `Lost` if the server is only away.
        """
        self.check_open()
        try:
            connection = self._connect(Pooled)
        except psycopg.Error as error:
            found = faults.lost(self.address, error, certain=True)
            raise (found if faults.is_away(error) else found.error) from None
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._spare = connection

    # -- opening and closing --------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise if the store was closed."""
        if self._closed:
            raise Closed(f"{self.address.where}: the store was closed; open it again")

    def close(self) -> None:
        """Let go of all of them."""
        with self._mutex:
            self._closed = True
            pool, self._pool = self._pool, None
            spare, self._spare = self._spare, None
        if self._pid == os.getpid():
            if pool is not None:
                while self._at_hand:
                    pool.putconn(self._at_hand.pop())
                pool.close()
            if spare is not None:
                spare.close()

    def _current(self) -> "ConnectionPool[Pooled]":
        self.check_open()
        pool = self._pool
        if pool is not None and self._pid == os.getpid():
            return pool
        with self._mutex:
            self.check_open()
            if self._pid != os.getpid():
                _inherited.append((self._pool, self._spare, self._at_hand))
                self._pool = self._spare = None
                self._at_hand, self._asking = [], []
                self._pid = os.getpid()
            if self._pool is None:
                self._pool = self._make_pool()
            return self._pool

    def _make_pool(self) -> "ConnectionPool[Pooled]":
        return ConnectionPool(
            "",
            kwargs={"make": self._next},
            connection_class=Pooled,
            min_size=0,
            max_size=self.address.connections,
            num_workers=2,
            # One try: the next is made by the next who asks, and not after a pause of the pool's.
            reconnect_timeout=0.0,
            timeout=_SLICE,
            open=True,
            name="hansard",
        )

    def _next(self) -> Connection:
        """Make a connection for the pool, and remember why if it cannot be had: the pool only logs it."""
        with self._mutex:
            spare, self._spare = self._spare, None
        if spare is not None:
            return spare
        try:
            made = self._connect(Pooled)
        except psycopg.Error as error:
            self._refused = error
            raise
        self._refused = None
        return made

    def _lend(self, pool: "ConnectionPool[Pooled]", deadline: float | None) -> Pooled:
        try:
            return self._at_hand.pop()
        except IndexError:
            pass
        self._asking.append(None)
        try:
            return self._at_hand.pop()
        except IndexError:
            found = self._ask(pool, deadline)
            found.until = time.monotonic() + _AT_HAND
            return found
        finally:
            self._asking.pop()

    def _ask(self, pool: "ConnectionPool[Pooled]", deadline: float | None) -> Pooled:
        """Get a connection from the pool."""
        end = time.monotonic() + self.patience if deadline is None else deadline
        while True:
            left = end - time.monotonic()
            try:
                return pool.getconn(timeout=max(0.001, min(_SLICE, left)))
            except PoolTimeout:
                self.check_open()
                if left > _SLICE:
                    continue
                # It was not even asked.
                raise Lost(self._unavailable(), certain=True) from None
            except PoolClosed:
                self.check_open()
                raise

    def _unavailable(self) -> BackendUnavailable:
        refused = self._refused
        if refused is not None:
            error = faults.lost(self.address, refused).error
            assert isinstance(error, BackendUnavailable)  # `lost` makes no others
            return error
        return BackendUnavailable(
            f"{self.address.where}: all {self.address.connections} connections of this process were in use "
            f"for {self.patience:g} s; open the store with more (`?connections=…`), or ask for less at a time"
        )

    # -- making one -----------------------------------------------------------------------------

    def _options(self) -> dict[str, Any]:
        """Return what libpq is given."""
        try:
            given = psycopg.conninfo.conninfo_to_dict(self.address.url)
        except psycopg.Error:
            # What libpq says about it repeats it whole.
            raise ValueError(
                f"{self.address.where}: libpq cannot read this URL (not shown whole, since it may hold a "
                "password); special characters in user, password and options must be percent-encoded"
            ) from None
        name = f"hansard {os.getpid()}"
        return {**_DEFAULTS, "application_name": name, **given, "client_encoding": "UTF8"}

    def _session_settings(self) -> dict[str, str]:
        """Return the settings of each connection, in the order in which they are set."""
        given = str(self._info.get("options", ""))
        settings = {"default_transaction_isolation": "read committed"}
        if "lock_timeout" not in given:
            settings["lock_timeout"] = f"{max(1, round(self._lock_timeout * 1000))}ms"
        if "statement_timeout" not in given:
            settings["statement_timeout"] = f"{round(_STATEMENT_TIMEOUT * 1000)}ms"
        if self.read_only:
            settings["default_transaction_read_only"] = "on"
        return settings

    def _connect(self, kind: type[Connection]) -> Connection:
        info = dict(self._info)
        if info["application_name"].startswith("hansard "):
            info["application_name"] = f"hansard {os.getpid()}"
        # Not by `kind.connect`: it is from there that a pool comes here.
        connect = psycopg.Connection.connect.__func__  # type: ignore[attr-defined]
        made: Connection = connect(kind, "", autocommit=True, **info)
        try:
            # Texts that are read in binary are JSON, and stay the bytes that they are.
            made.adapters.register_loader("text", ByteaBinaryLoader)
            sets = [
                f"set_config('{name}', '{value}', false)" for name, value in self._settings.items()
            ]
            # An append is durable when it returns, whatever the server's default: a store that was opened for
            # less says so with each append. A stricter setting than "on" stays.
            sets.append(
                "CASE WHEN current_setting('synchronous_commit') = 'off' "
                "THEN set_config('synchronous_commit', 'on', false) END"
            )
            made.execute(f"SELECT {', '.join(sets)}".encode())
        except BaseException:
            made.close()
            raise
        return made


def unlock_all(connection: Connection) -> None:
    """Let go of a connection's advisory locks before it is closed.

    The server notices the end of a connection a moment later: the next who comes would still find them.
    """
    with suppress(psycopg.Error):
        connection.execute("SELECT pg_advisory_unlock_all()")
