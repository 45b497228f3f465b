"""Remember how far consumers have got, and let one have a cursor at a time.

Above: `backend`.  Below: `backend.cursors` (the rules), `connections`, `schema` (the numbers of locks).
Whoever has a cursor open holds an advisory lock of the server's, which is his until he lets go of it or his
connection ends: so a consumer that dies holds up nobody. One connection holds the locks of all cursors of a
store in this process, and moves them: if it is lost, so are the locks, and nothing is moved without. A
cursor whose lock was lost takes it again before its next move, if nobody has moved it meanwhile.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary, finalize

import psycopg
from psycopg.types.numeric import Int8

from hansard.backend.contract import Cursor
from hansard.backend.cursors import OpenCursor, closed
from hansard.backend.postgres import errors, statements
from hansard.backend.postgres.append import session_number
from hansard.backend.postgres.connection import Connection, lock_number
from hansard.backend.postgres.errors import ConnectionLost
from hansard.errors import HansardError, LockTimeout
from hansard.log import names
from hansard.log.positions import Changes, apply

if TYPE_CHECKING:
    from hansard.backend.postgres.backend import PostgresBackend

Answer = TypeVar("Answer")

#: The number of a lock, and during which of the connections it was taken.
_Dropped = tuple[int, int]

#: How often to ask for a lock that another holds, in seconds.
_ASK: Final = 0.02

_READ: Final = "SELECT id, seq FROM {schema}.positions WHERE cursor = %(cursor)s::uuid"
_NAMES: Final = "SELECT name FROM {schema}.cursors"
_MAKE: Final = """
INSERT INTO {schema}.cursors (cursor, name) VALUES (%(cursor)s::uuid, %(name)s) ON CONFLICT DO NOTHING"""
_MOVE: Final = """
INSERT INTO {schema}.positions AS p (cursor, session, id, seq)
SELECT %(cursor)s::uuid, n.session, n.id, n.seq
FROM unnest(%(sessions)b::varchar[]::uuid[], %(ids)b::varchar[], %(seqs)b::bigint[]) AS n (session, id, seq)
ON CONFLICT (cursor, session) DO UPDATE SET seq = excluded.seq"""
_FORGET: Final = """
DELETE FROM {schema}.positions
WHERE cursor = %(cursor)s::uuid AND session = ANY(%(sessions)b::varchar[]::uuid[])"""
_DROP_POSITIONS: Final = "DELETE FROM {schema}.positions WHERE cursor = %(cursor)s::uuid"
_DROP: Final = "DELETE FROM {schema}.cursors WHERE cursor = %(cursor)s::uuid RETURNING name"
_HOLDER: Final = b"""
SELECT a.pid, a.application_name, coalesce(host(a.client_addr), 'the same machine')
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND ((l.classid::bigint << 32) | l.objid::bigint) = %(number)s
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


class PostgresCursor(OpenCursor):
    """A cursor whose lock is held."""

    __slots__ = ("_cursors", "_open", "_positions", "held", "lost", "number")

    def __init__(
        self, name: str, cursors: "PostgresCursors", number: int, held: int, known: dict[str, int]
    ) -> None:
        super().__init__(name)
        self.number = number
        #: During which of the connections its lock was taken.
        self.held = held
        #: What happens if nobody has it any more, and it was not closed.
        self.lost: finalize[[_Dropped], PostgresCursor] | None = None
        self._cursors = cursors
        self._positions = known
        self._open = True

    def _known(self) -> dict[str, int]:
        self._cursors.backend.check_open()
        if not self._open:
            raise closed(self.name)
        return self._positions

    def _commit(self, changes: Changes) -> None:
        wanted = dict(self._positions)
        apply(wanted, changes)
        self._cursors.move(self, self._positions, changes, wanted)
        self._positions = wanted

    def close(self) -> None:
        if self._open:
            self._open = False
            self._cursors.let_go(self)


class ReadOnlyCursor(OpenCursor):
    """Looks anew each time: it has no lock, so the consumer may be at work."""

    __slots__ = ("_backend", "_closed")

    def __init__(self, name: str, backend: "PostgresBackend") -> None:
        super().__init__(name)
        self._backend = backend
        self._closed = False

    def _known(self) -> dict[str, int]:
        self._backend.check_open()
        if self._closed:
            raise closed(self.name)
        query = statements.statement(self._backend.schema, _READ)
        rows = self._backend.connections.run(query, {"cursor": _cursor_number(self.name)})
        return dict(rows)

    def _check_movable(self) -> None:
        self._backend.check_writable()

    def _commit(self, changes: Changes) -> None:
        raise NotImplementedError  # `_check_movable` comes before

    def close(self) -> None:
        self._closed = True


class PostgresCursors:
    """The cursors of a store.

    Attributes:
        backend: the store.
    """

    __slots__ = ("_connection", "_dropped", "_generation", "_mutex", "_opened", "_pid", "backend")

    def __init__(self, backend: "PostgresBackend") -> None:
        self.backend = backend
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        #: Guards the connection, and what is open.
        self._mutex = threading.RLock()
        self._opened: WeakValueDictionary[str, PostgresCursor] = WeakValueDictionary()
        #: The locks of cursors that nobody has any more, and that were not closed.
        self._dropped: deque[_Dropped] = deque()
        self._connection: Connection | None = None
        #: How many connections there have been.
        self._generation = 0

    def open(self, name: str, timeout: float) -> Cursor:
        """Return a cursor, which nobody else has until it is closed."""
        names.check_cursor(name)
        self.backend.check_open()
        if self.backend.read_only:
            return ReadOnlyCursor(str(name), self.backend)
        number = self._number(name)
        deadline = time.monotonic() + timeout
        while True:
            found = self.backend.connections.retry(lambda: self._try_to_open(str(name), number))
            if found is not None:
                return found
            if time.monotonic() >= deadline:
                raise self._taken(name, number)
            time.sleep(_ASK)

    def _try_to_open(self, name: str, number: int) -> PostgresCursor | None:
        with self._guard():
            if name in self._opened or not self._lock(number):
                return None
            known = self._read(name)
            cursor = PostgresCursor(name, self, number, self._generation, known)
            self._opened[name] = cursor
            self._mind(cursor)
            return cursor

    def _mind(self, cursor: PostgresCursor) -> None:
        """See to it that a cursor that is forgotten about is in nobody's way."""
        if cursor.lost is not None:
            cursor.lost.detach()
        cursor.lost = finalize(cursor, self._forgotten, (cursor.number, cursor.held))
        cursor.lost.atexit = False

    def _forgotten(self, dropped: "_Dropped") -> None:
        # A finaliser may run anywhere, and so must wait for nobody.
        self._dropped.append(dropped)
        with suppress(RuntimeError):  # at the interpreter's end there are no more threads
            threading.Thread(target=self._release_all, daemon=True).start()

    def move(
        self,
        cursor: PostgresCursor,
        known: dict[str, int],
        changes: Changes,
        wanted: dict[str, int],
    ) -> None:
        """Move a cursor from where it is known to be."""
        self.backend.connections.retry(lambda: self._move(cursor, known, changes, wanted))

    def _move(
        self,
        cursor: PostgresCursor,
        known: dict[str, int],
        changes: Changes,
        wanted: dict[str, int],
    ) -> None:
        with self._guard():
            if self._own() and cursor.held != self._generation:
                if not self._lock(cursor.number):
                    raise self._taken(cursor.name, cursor.number)
                found = self._read(cursor.name)
                cursor.held = self._generation
                self._mind(cursor)
                if found == wanted:
                    return  # the move that was lost has counted
                if found != known:
                    self.let_go(cursor)
                    raise LockTimeout(
                        f"{self.backend.where}: cursor {cursor.name!r} was taken over by another "
                        "consumer while the server could not be reached; nothing was moved: open "
                        "it again, and go on from where it is"
                    )
            self._on_connection(lambda connection: self._write(connection, cursor.name, changes))

    def _write(self, connection: Connection, name: str, changes: Changes) -> None:
        schema = self.backend.schema
        cursor = _cursor_number(name)
        moved = {session_id: seq for session_id, seq in changes.items() if seq is not None}
        gone = [session_id for session_id, seq in changes.items() if seq is None]
        with connection.transaction():
            params: dict[str, object] = {"cursor": cursor, "name": name}
            connection.execute(statements.statement(schema, _MAKE), params)
            if moved:
                params = {
                    "cursor": cursor,
                    "sessions": [session_number(session_id) for session_id in moved],
                    "ids": list(moved),
                    "seqs": [Int8(seq) for seq in moved.values()],
                }
                connection.execute(statements.statement(schema, _MOVE), params)
            if gone:
                params = {"cursor": cursor, "sessions": [session_number(one) for one in gone]}
                connection.execute(statements.statement(schema, _FORGET), params)

    def let_go(self, cursor: PostgresCursor) -> None:
        """Let others open a cursor that was closed."""
        if self._pid != os.getpid():
            return
        with self._mutex:
            if self._opened.get(cursor.name) is cursor:
                del self._opened[cursor.name]
            if cursor.lost is not None and cursor.lost.detach() is not None:
                self._dropped.append((cursor.number, cursor.held))
            self._release()

    def names(self) -> list[str]:
        """Return the names of all cursors."""
        self.backend.check_open()
        query = statements.statement(self.backend.schema, _NAMES)
        return sorted(name for (name,) in self.backend.connections.run(query))

    def drop(self, name: str) -> bool:
        """Remove a cursor; say whether there was one."""
        names.check_cursor(name)
        self.backend.check_writable()
        number = self._number(name)
        return self.backend.connections.retry(lambda: self._drop(str(name), number))

    def _drop(self, name: str, number: int) -> bool:
        with self._guard():
            if name in self._opened or not self._lock(number):
                raise self._taken(name, number)
            try:
                return self._on_connection(lambda connection: self._remove(connection, name))
            finally:
                self._dropped.append((number, self._generation))
                self._release()

    def _remove(self, connection: Connection, name: str) -> bool:
        params = {"cursor": _cursor_number(name)}
        schema = self.backend.schema
        with connection.transaction():
            connection.execute(statements.statement(schema, _DROP_POSITIONS), params)
            return (
                connection.execute(statements.statement(schema, _DROP), params).fetchone()
                is not None
            )

    def close(self) -> None:
        """Let go of all of them."""
        if self._pid == os.getpid():
            with self._mutex:
                connection, self._connection = self._connection, None
                self._opened.clear()
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.execute("SELECT pg_advisory_unlock_all()")
                connection.close()

    # -- the connection -------------------------------------------------------------------------

    def _guard(self) -> threading.RLock:
        if self._pid != os.getpid():
            # The connection is the parent's, and so are the locks.
            _inherited.append(self._connection)
            self._begin()
        return self._mutex

    def _own(self) -> bool:
        """See to it that there is a connection."""
        self.backend.check_open()
        if self._connection is not None and (self._connection.broken or self._connection.closed):
            self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = self.backend.connections.open()
            self._generation += 1
        return True

    def _on_connection(self, do: Callable[[Connection], Answer]) -> Answer:
        self._own()
        self._release()
        connection = self._connection
        assert connection is not None  # `_own` has made it
        try:
            return do(connection)
        except psycopg.Error as error:
            raise errors.to_error(self.backend.connections.url, error, connection) from None

    def _lock(self, number: int) -> bool:
        def ask(connection: Connection) -> bool:
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (Int8(number),)).fetchone()
            return row is not None and bool(row[0])

        return self._on_connection(ask)

    def _read(self, name: str) -> dict[str, int]:
        query = statements.statement(self.backend.schema, _READ)
        params = {"cursor": _cursor_number(name)}
        return self._on_connection(
            lambda connection: dict(connection.execute(query, params).fetchall())
        )

    def _release(self) -> None:
        """Let go of the locks of cursors that are not open any more."""
        connection = self._connection
        while self._dropped and connection is not None:
            number, generation = self._dropped.popleft()
            if generation != self._generation:
                continue  # it went with its connection
            try:
                connection.execute("SELECT pg_advisory_unlock(%s)", (Int8(number),))
            except psycopg.Error:
                return  # then the connection has ended, and all locks with it

    def _release_all(self) -> None:
        with self._mutex:
            self._release()

    def _number(self, name: str) -> int:
        return lock_number("cursor", self.backend.schema, name)

    def _taken(self, name: str, number: int) -> LockTimeout:
        if name in self._opened:
            return LockTimeout(
                f"{self.backend.where}: cursor {name!r} is open already in this process; close it, or take "
                "another name: two consumers of one cursor would each miss what the other has read",
                holder=os.getpid(),
            )
        by = ""
        with suppress(HansardError, ConnectionLost):
            for pid, application, host in self.backend.connections.attempt(
                _HOLDER, {"number": Int8(number)}
            ):
                by = f" by {application!r} (connection {pid}, from {host})"
        return LockTimeout(
            f"{self.backend.where}: cursor {name!r} is open elsewhere{by}; wait for it to be closed, or take "
            "another name"
        )


#: Connections of a parent process.
_inherited: list[object] = []


def _cursor_number(name: str) -> str:
    """Return what a cursor goes by in the tables."""
    return session_number(f"cursor\0{name}")
