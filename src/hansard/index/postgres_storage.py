"""Store an index in PostgreSQL, in the schema that has the sessions.

The statements are those of `sqlite_storage`: the same code fills and queries both kinds of index, and gives
the same answers. Nothing has to be opened, replaced or checked: the server takes care of its tables. They
hold nothing that the logs do not, and may be emptied at any time.

Statements have no name of a schema: each transaction sets its own `search_path`. A process that changes the
tables holds an advisory lock until its commit.

A text is a row with its words as a `tsvector`, under a GIN index. FTS5 splits it into words here, in memory,
as it does for an index in a file. PostgreSQL's own parser takes `user@example.com` or `a/b.py` for one word
each, and would find other texts. PostgreSQL finds phrases as words that all occur, and FTS5 checks these
texts: a `tsvector` has only the first 256 positions of a word and none beyond 16,383, so here it has none.
"""

import contextlib
import re
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import psycopg

from hansard.backend.postgres.connection import (
    Connection,
    Connections,
    DedicatedConnection,
    lock_number,
)
from hansard.backend.postgres.schema import SEARCH_PATH
from hansard.backend.postgres.server_errors import ConnectionLost, to_error
from hansard.errors import HansardError, LockTimeout, ReadOnly
from hansard.index.sqlite_storage import (
    MATCHING,
    NEWEST,
    WORDS,
    IndexRow,
    Storage,
    Unusable,
    connect,
    fts5_required,
    matching,
)

TABLES: Final = (
    "index_entry", "index_session", "index_label", "index_tally", "index_unread", "index_log",
    "index_text", "index_words", "index_meta",
)  # fmt: skip

#: How long to wait for another process that refreshes the index: the first time may take long.
_PATIENCE: Final = "60s"

_SNAPSHOT: Final = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"

#: Characters of a word that are stored, since PostgreSQL takes 2,046 bytes: longer ones are found by their
#: beginning, and checked.
_LONGEST: Final = 500
#: The most bytes of words that it takes in one text, with what each word adds.
_MOST: Final = 1 << 20
_PER_WORD: Final = 16

#: A word that does not occur: none has a space in it.
_NEVER: Final = "' '"

_TERM: Final = re.compile(r'"(?P<phrase>[^"]*)"(?P<starred> \*)?|\b(?P<operator>AND|OR|NOT)\b')
_OPERATORS: Final = {"AND": "&", "OR": "|", "NOT": "& !"}


@lru_cache(maxsize=1024)
def _query(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def storable(value: object) -> object:
    """Return a value as PostgreSQL can store it: with U+0001, which sorts the same, instead of NUL."""
    return value.replace("\0", "\x01") if isinstance(value, str) and "\0" in value else value


class PostgresStorage(Storage):
    """The index that a server stores."""

    served = True

    def __init__(self, connections: Connections) -> None:
        self.private = False
        self._connections = connections
        # Not from the pool, which may have no second connection while sessions are read.
        self._dedicated = DedicatedConnection(connections)
        #: The connection of the transaction that is open.
        self._current: Connection | None = None

    def all(self, statement: str, *values: Any) -> list[Any]:
        with self._transaction() as connection:
            return connection.execute(_query(statement), list(map(storable, values))).fetchall()

    def do(self, statement: str, *values: Any) -> None:
        self.do_all(statement, [values])

    def do_all(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._transaction() as connection:
            # No answer is waited for: inside `changing`, statements are sent together.
            for values in rows:
                connection.execute(_query(statement), list(map(storable, values)))

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        if self._connections.read_only:
            raise Unusable("the store was opened read-only")
        try:
            with self._transaction() as connection:
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
        except (ReadOnly, LockTimeout) as error:
            # A standby, a role that may only read, or another process that has refreshed for a minute.
            raise Unusable(str(error)) from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        with self._transaction(_SNAPSHOT):
            yield

    @contextlib.contextmanager
    def _transaction(self, mode: bytes | None = None) -> Iterator[Connection]:
        """Yield the connection inside a transaction, which is the current one if there is one."""
        if self._current is not None:
            try:
                yield self._current
            except psycopg.Error as error:
                raise to_error(self._connections.url, error, self._current) from None
            return
        with self._dedicated.using() as connection, connection.transaction():
            self._current = connection
            try:
                if mode is not None:
                    connection.execute(mode)
                # Not an option of the session: a pooler may give the connection to another client.
                connection.execute(self._connections.query(SEARCH_PATH))
                yield connection
            finally:
                self._current = None

    def in_place(self) -> bool:
        return True

    def truncate(self) -> bool:
        """Write the tables again, without what was removed from them."""
        query = self._connections.query
        with (
            contextlib.suppress(HansardError, ConnectionLost),
            self._dedicated.using() as connection,
        ):
            return not any(connection.rewrite(query(f"{{schema}}.{name}")) for name in TABLES)
        return False

    def close(self) -> None:
        self._dedicated.close()

    def abandon(self) -> None:
        pass  # the connection knows its process

    def prepare_texts(self) -> None:
        pass  # the table was created with the others

    def add_texts(self, rows: Sequence[tuple[int, str]]) -> None:
        numbers, bodies = zip(*rows, strict=True)
        given = [list(numbers), list(map(storable, bodies)), list(map(vector, bodies))]
        # One statement takes half the time of one for each.
        self.do(
            "INSERT INTO index_words (text, body, words) SELECT n.text, n.body, n.words::tsvector "
            "FROM unnest(?::bigint[], ?::varchar[], ?::varchar[]) AS n (text, body, words)",
            *given,
        )

    def remove_texts(self, texts: Sequence[int]) -> None:
        self.do("DELETE FROM index_words WHERE text = ANY(?::bigint[])", list(texts))

    def drop_texts(self) -> None:
        self.do("DELETE FROM index_words")

    def matching_texts(
        self,
        expression: str,
        conditions: str,
        values: Sequence[Any],
        shown: Sequence[tuple[int, int]],
        limit: int,
    ) -> list[IndexRow]:
        asked, doubtful = question(expression)
        text = (
            f"SELECT {MATCHING} "  # noqa: S608 - values are apart
            "FROM index_words f JOIN index_text d ON d.text = f.text "
            "JOIN index_log k ON k.log = d.log "
            "LEFT JOIN unnest(?::bigint[], ?::bigint[]) AS w (log, upto) ON w.log = d.log "
            f"WHERE f.words @@ ?::tsquery AND {conditions} "
            f"ORDER BY {NEWEST} LIMIT ? OFFSET ?"
        )
        logs, upto = [log for log, _ in shown], [seq for _, seq in shown]
        given = [logs, upto, asked, *values]
        found: list[IndexRow] = []
        offset = 0
        while True:
            some = list(map(matching, self.all(text, *given, limit, offset)))
            fit = self.ask_texts("1", expression, [row.text for row in some]) if doubtful else None
            found += [row for row in some if fit is None or row.text in fit]
            if len(some) < limit or len(found) >= limit:
                return found[:limit]
            offset += limit

    def ask_texts(
        self, function: str, expression: str, texts: Sequence[int], *values: Any
    ) -> dict[int, Any]:
        rows = self.all(
            "SELECT text, body FROM index_words WHERE text = ANY(?::bigint[])", list(texts)
        )
        return {
            text: found
            for text, body in rows
            for (found,) in _splitter().ask(function, expression, body, values)
        }


#: A text to check, with its words in order; and one of which only the words are needed.
_SPLITTING: Final = (
    WORDS,
    "CREATE VIRTUAL TABLE ordered USING fts5vocab(index_words, 'instance')",
    WORDS.replace("index_words", "bare").replace("(body", "(body, content=''"),
    "CREATE VIRTUAL TABLE terms USING fts5vocab(bare, 'row')",
)


class _Splitter(threading.local):
    """Tables of FTS5 in memory, for one text at a time, in each thread."""

    def __init__(self) -> None:
        self._connection = connect(":memory:")
        with fts5_required():
            for statement in _SPLITTING:
                self._connection.run(statement)

    def words(self, text: str) -> list[str]:
        """Return the words of a text, each once."""
        self._connection.run("INSERT INTO bare (rowid, body) VALUES (1, ?)", (text,))
        found = self._connection.run("SELECT term FROM terms")
        self._connection.run("INSERT INTO bare (bare) VALUES ('delete-all')")
        return [term for (term,) in found]

    def words_in_order(self, text: str) -> list[str]:
        """Return the words of a short text, in order."""
        self._load(text)
        return [
            term for (term,) in self._connection.run("SELECT term FROM ordered ORDER BY offset")
        ]

    def ask(self, function: str, expression: str, text: str, values: Sequence[Any]) -> list[Any]:
        """Return what a function of FTS5 returns for a text; nothing if it does not match."""
        self._load(text)
        ask = f"SELECT {function} FROM index_words WHERE index_words MATCH ?"  # noqa: S608 - our own functions
        return self._connection.run(ask, (*values, expression))

    def _load(self, text: str) -> None:
        self._connection.run("DELETE FROM index_words")
        self._connection.run("INSERT INTO index_words (rowid, body) VALUES (1, ?)", (text,))


@lru_cache(maxsize=1)
def _splitter() -> _Splitter:
    return _Splitter()


def vector(text: str) -> str:
    """Return the words of a text as PostgreSQL reads a `tsvector`, as many as it takes, without positions.

    A word has letters and digits only, so nothing in it must be escaped.
    """
    left = _MOST
    found: dict[str, None] = {}
    for word in _splitter().words(text):
        short = word[:_LONGEST]
        left -= len(short.encode()) + _PER_WORD
        if left < 0:
            break
        found[f"'{short}'"] = None
    return " ".join(found)


def question(expression: str) -> tuple[str, bool]:
    """Return an expression of FTS5 as a `tsquery`, and whether that finds too much."""
    doubtful = False
    excluded = False

    def translated(term: "re.Match[str]") -> str:
        nonlocal doubtful, excluded
        if term["operator"] is not None:
            # Exclusions come last.
            excluded = excluded or term["operator"] == "NOT"
            return _OPERATORS[term["operator"]]
        words = _splitter().words_in_order(term["phrase"])
        is_exact = len(words) == 1 and len(words[0]) <= _LONGEST
        doubtful = doubtful or not is_exact
        if not words or (excluded and not is_exact):
            return _NEVER
        quoted = [f"'{word[:_LONGEST]}'" for word in words]
        if term["starred"] or len(words[-1]) > _LONGEST:
            quoted[-1] += ":*"
        return f"({' & '.join(quoted)})"

    return _TERM.sub(translated, expression), doubtful
