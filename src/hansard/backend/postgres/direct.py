"""Run a prepared statement with nothing between it and libpq: the way that an append of one event takes.

Above: `connections`.  Below: psycopg's wrapper of libpq.
This is the one fast path of this package. A cursor of psycopg's looks up how to send each value and how to
read each column, and keeps what a caller may ask of it later; an append sends bytes that it has at hand, and
reads a number and a text. Measured in turns with a cursor on one connection, per statement of this process:
42 µs of its time instead of 96, and 63 instead of 144 on a busy machine.

Ctrl-C cancels the statement on the server, and errors are psycopg's own, as with a cursor.
"""

import hashlib
import re
import select
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple
from weakref import ref

import psycopg
from psycopg import generators
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import TupleRow

Value = bytes | None

_PLACE: Final = re.compile(rb"%\((\w+)\)([sb])")
#: A value's bytes as they are; and as text that the server reads.
_BINARY, _TEXT = 1, 0

#: How long to try to tell the server that nobody waits any more, in seconds.
_CANCEL: Final = 5.0


class Direct(NamedTuple):
    """A statement with numbered places."""

    #: It is known by this name on each connection that has prepared it.
    name: bytes
    text: bytes
    #: What goes to which place.
    names: tuple[str, ...]
    formats: tuple[int, ...]


@lru_cache
def direct(query: bytes) -> Direct:
    """Return a statement of psycopg's, whose places have names, as libpq takes it."""
    names: list[str] = []
    formats: list[int] = []

    def numbered(place: "re.Match[bytes]") -> bytes:
        name = place[1].decode()
        if name not in names:
            names.append(name)
            formats.append(_BINARY if place[2] == b"b" else _TEXT)
        return b"$%d" % (names.index(name) + 1)

    text = _PLACE.sub(numbered, query)
    # A name means one text, always and to everybody.
    name = b"hansard_" + hashlib.sha256(text).hexdigest()[:16].encode()
    return Direct(name, text, tuple(names), tuple(formats))


class Prepared:
    """What one connection knows of such statements."""

    __slots__ = ("_connection", "_names", "_poller")

    def __init__(self, connection: "psycopg.Connection[TupleRow]") -> None:
        # Weakly: the connection has this.
        self._connection = ref(connection)
        self._names: set[bytes] = set()
        #: None where there is none: Windows, or a program in which another kind of threads took its place.
        self._poller = select.poll() if hasattr(select, "poll") else None
        if self._poller is not None:
            self._poller.register(connection.pgconn.socket, select.POLLIN)

    def run(self, statement: Direct, values: Sequence[Value]) -> PGresult:
        """Run a statement, and return what came back."""
        connection = self._connection()
        assert connection is not None  # whoever asks this has it
        pgconn = connection.pgconn
        while True:
            fresh = statement.name not in self._names
            if fresh:
                self._prepare(connection, statement)
            pgconn.send_query_prepared(statement.name, values, statement.formats)
            try:
                return self._answer(connection, pgconn)
            except psycopg.errors.InvalidSqlStatementName:
                # Nothing was run. psycopg has the server forget all of a connection's statements when a
                # transaction on it was rolled back.
                self._names.clear()
                if fresh:
                    raise

    def _prepare(self, connection: "psycopg.Connection[TupleRow]", statement: Direct) -> None:
        connection.pgconn.send_prepare(statement.name, statement.text)
        with suppress(psycopg.errors.DuplicatePreparedStatement):
            self._answer(connection, connection.pgconn)
        self._names.add(statement.name)

    def _answer(self, connection: "psycopg.Connection[TupleRow]", pgconn: PGconn) -> PGresult:
        poller = self._poller
        if poller is None or pgconn.flush():
            # There is more to send than goes out at once: psycopg sends and hears in turns.
            result: PGresult = connection.wait(generators.execute(pgconn))[-1]
        else:
            try:
                result = _heard(pgconn, poller)
            except KeyboardInterrupt:
                # As psycopg does: nobody waits for it any more. The pool closes what is not at rest.
                with suppress(psycopg.Error):
                    connection.cancel_safe(timeout=_CANCEL)
                raise
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        return result


def _heard(pgconn: PGconn, poller: "select.poll") -> PGresult:
    """Wait for what a statement gives, and until libpq says that there is no more of it."""
    last: PGresult | None = None
    while True:
        # Before each: `get_result` would wait too, but with the interpreter's lock held.
        while pgconn.is_busy():
            poller.poll()
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            assert last is not None  # there is one for each statement
            return last
        last = result
