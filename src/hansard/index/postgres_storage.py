"""Store an index in PostgreSQL, in the schema that has the sessions.

The statements are those of `sqlite_storage`: both kinds of index are filled and asked by the same code, and
give the same answers. Nothing has to be opened, replaced or checked: the server takes care of its tables.

A text is a row with its words as a `tsvector`, under a GIN index. FTS5 splits it into words here, in memory,
as it does for an index in a file: PostgreSQL's own parser takes `user@example.com` or `a/b.py` for one word
each, and would find other texts. PostgreSQL finds phrases as words that all occur, and FTS5 checks these
texts: a `tsvector` knows only the first 256 positions of a word and none beyond 16,383, so here it has none.
"""

import contextlib
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from hansard.backend.contract import IndexTables
from hansard.errors import LockTimeout, ReadOnly
from hansard.index.sqlite_storage import (
    SAID,
    SNIPPET,
    WORDS,
    Connection,
    FullText,
    Row,
    Storage,
    Unusable,
    without_fts5,
)
from hansard.message.search_text import CLOSE, OPEN

TABLES: Final = (
    "index_entry", "index_session", "index_label", "index_tally", "index_unread", "index_log",
    "index_text", "index_words", "index_meta",
)  # fmt: skip

#: A text in PostgreSQL has no NUL. This character is as good for sorting and finding.
_NUL: Final = ("\0", "\x01")

#: The longest word that PostgreSQL takes, in bytes; longer ones are found by their beginning, and checked.
_LONGEST: Final = 2000
#: The most bytes of words that it takes in one text, with what each word adds.
_MOST: Final = 1 << 20
_PER_WORD: Final = 16

#: A word that does not occur: none has a space in it.
_NEVER: Final = "' '"

_TERM: Final = re.compile(r'"(?P<phrase>[^"]*)"(?P<starred> \*)?|\b(?P<operator>AND|OR|NOT)\b')
_OPERATORS: Final = {"AND": "&", "OR": "|", "NOT": "& !"}


@lru_cache(maxsize=1024)
def _query(statement: str) -> str:
    return statement.replace("?", "%s")


def storable(value: object) -> object:
    """Return a value as PostgreSQL can store it."""
    return value.replace(*_NUL) if isinstance(value, str) and "\0" in value else value


class PostgresStorage(Storage):
    """The index that a server keeps."""

    served = True

    def __init__(self, tables: IndexTables) -> None:
        self.file = None
        self.private = False
        self._tables = tables
        self.full_text = PostgresFullText(tables)

    def all(self, statement: str, *values: Any) -> list[Any]:
        return self._tables.run(_query(statement), [storable(value) for value in values])

    def do(self, statement: str, *values: Any) -> None:
        given = [storable(value) for value in values]
        self._tables.run(_query(statement), given, rows=False)

    def do_all(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._tables.run_all(_query(statement), [list(map(storable, row)) for row in rows])

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        if self._tables.read_only:
            raise Unusable("the store was opened read-only")
        try:
            with self._tables.change():
                yield
        except (ReadOnly, LockTimeout) as error:
            # A standby, a role that may only read, or another process that has refreshed for a minute.
            raise Unusable(str(error)) from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        with self._tables.look():
            yield

    def check(self) -> None:
        pass

    def in_place(self) -> bool:
        return True

    def is_changing(self) -> bool:
        return self._tables.changing()

    def replace(self) -> None:
        with self.changing():
            for table in TABLES:
                self.do(f"DELETE FROM {table}")  # noqa: S608 - our own names
        self.truncate()

    def truncate(self) -> bool:
        """Write the tables again, without what was removed from them."""
        return self._tables.rewrite(*TABLES)

    def close(self) -> None:
        self._tables.close()

    def abandon(self) -> None:
        pass  # the connection knows whose it is

    def one(self, statement: str, *values: Any) -> Any:
        rows = self.all(statement, *values)
        return rows[0] if rows else None


# -- words --------------------------------------------------------------------------------------

#: A text to check, with its words in order; and one of which only the words are needed.
_SPLITTING: Final = (
    WORDS,
    "CREATE VIRTUAL TABLE ordered USING fts5vocab(index_words, 'instance')",
    WORDS.replace("index_words", "bare").replace("(body", "(body, content=''"),
    "CREATE VIRTUAL TABLE terms USING fts5vocab(bare, 'row')",
)


class _Words:
    """Tables of FTS5 in memory, for one text at a time."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, factory=Connection)
        try:
            for statement in _SPLITTING:
                self._connection.execute(statement)
        except sqlite3.OperationalError as error:
            raise without_fts5() from error

    def of(self, text: str) -> list[str]:
        """Return the words of a text, each once."""
        self._connection.execute("INSERT INTO bare (rowid, body) VALUES (1, ?)", (text,))
        found = self._connection.execute("SELECT term FROM terms").fetchall()
        self._connection.execute("INSERT INTO bare (bare) VALUES ('delete-all')")
        return [term for (term,) in found]

    def in_order(self, text: str) -> list[str]:
        """Return the words of a short text, in order."""
        self._load(text)
        rows = self._connection.execute("SELECT term FROM ordered ORDER BY offset")
        return [term for (term,) in rows]

    def ask(self, text: str, expression: str, what: str, *values: object) -> Any:
        """Return what FTS5 says of a text; None if it does not match."""
        self._load(text)
        row = self._connection.execute(
            f"SELECT {what} FROM index_words WHERE index_words MATCH ?",  # noqa: S608 - our own words
            (*values, expression),
        ).fetchone()
        return None if row is None else row[0]

    def _load(self, text: str) -> None:
        self._connection.execute("DELETE FROM index_words")
        self._connection.execute("INSERT INTO index_words (rowid, body) VALUES (1, ?)", (text,))


_own = threading.local()


def _words() -> _Words:
    """Return this thread's tables."""
    found = getattr(_own, "words", None)
    if found is None:
        found = _own.words = _Words()
    assert isinstance(found, _Words)
    return found


def vector(text: str) -> str:
    """Return the words of a text as PostgreSQL reads a `tsvector`, without positions.

    A word has letters and digits only, so nothing in it must be escaped.
    """
    words = _words().of(text)
    # A character has four bytes at most, so most texts are known to fit without a check of each word.
    if 4 * len(text) + _PER_WORD * len(words) > _MOST or any(
        len(word) > _LONGEST // 4 for word in words
    ):
        words = _fitting(words)
    return " ".join([f"'{word}'" for word in words])


def _fitting(words: list[str]) -> list[str]:
    """Return as many of a long text's words as PostgreSQL takes, none of them too long."""
    room = _MOST
    found: dict[str, None] = {}
    for word in words:
        short = _cut(word)
        room -= len(short.encode()) + _PER_WORD
        if room < 0:
            break
        found[short] = None
    return list(found)


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
        words = _words().in_order(term["phrase"])
        is_exact = len(words) == 1 and _cut(words[0]) == words[0]
        doubtful = doubtful or not is_exact
        if not words or (excluded and not is_exact):
            return _NEVER
        quoted = [f"'{_cut(word)}'" for word in words]
        if term["starred"] or _cut(words[-1]) != words[-1]:
            quoted[-1] += ":*"
        return f"({' & '.join(quoted)})"

    return _TERM.sub(translated, expression), doubtful


def _cut(word: str) -> str:
    raw = word.encode()
    return word if len(raw) <= _LONGEST else raw[:_LONGEST].decode(errors="ignore")


class PostgresFullText(FullText):
    """Texts in a table with a GIN index."""

    def __init__(self, tables: IndexTables) -> None:
        self._tables = tables

    def prepare(self) -> None:
        pass  # the table was created with the others

    def exists(self) -> bool:
        return bool(self._tables.run("SELECT 1 FROM index_log LIMIT 1"))

    def add(self, rows: Sequence[tuple[int, str]]) -> None:
        numbers, bodies = zip(*rows, strict=True)
        given = [list(numbers), list(map(storable, bodies)), list(map(vector, bodies))]
        # One statement takes half the time of one for each.
        self._tables.run(
            "INSERT INTO index_words (text, body, words) SELECT n.text, n.body, n.words::tsvector "
            "FROM unnest(%s::bigint[], %s::varchar[], %s::varchar[]) AS n (text, body, words)",
            given,
            rows=False,
        )

    def remove(self, texts: Sequence[int]) -> None:
        ask = "DELETE FROM index_words WHERE text = ANY(%s::bigint[])"
        self._tables.run(ask, [list(texts)], rows=False)

    def drop(self) -> None:
        self._tables.run("DELETE FROM index_words", rows=False)

    def rows(
        self,
        expression: str,
        conditions: str,
        values: Sequence[Any],
        shown: Sequence[tuple[int, int]],
        limit: int,
    ) -> list[Row]:
        asked, doubtful = question(expression)
        text = _query(
            f"SELECT d.text, d.log, d.seq, {SAID} AS said, d.role "  # noqa: S608 - values are apart
            "FROM index_words f JOIN index_text d ON d.text = f.text "
            "JOIN index_log k ON k.log = d.log "
            "LEFT JOIN unnest(?::bigint[], ?::bigint[]) AS w (log, upto) ON w.log = d.log "
            f"WHERE f.words @@ ?::tsquery AND {conditions.format(said=SAID)} "
            "ORDER BY said DESC, k.id, d.seq LIMIT ? OFFSET ?"
        )
        logs, upto = [log for log, _ in shown], [seq for _, seq in shown]
        given = [logs, upto, asked, *map(storable, values)]
        found: list[Row] = []
        offset = 0
        while True:
            some = [Row(*row) for row in self._tables.run(text, [*given, limit, offset])]
            fit = self._matching(expression, (row.text for row in some)) if doubtful else None
            found += [row for row in some if fit is None or row.text in fit]
            if len(some) < limit or len(found) >= limit:
                return found[:limit]
            offset += limit

    def _matching(self, expression: str, texts: Iterable[int]) -> set[int]:
        """Return which of some texts match, word for word."""
        ask = "SELECT text, body FROM index_words WHERE text = ANY(%s::bigint[])"
        rows = self._tables.run(ask, [list(texts)])
        return {text for text, body in rows if _words().ask(body, expression, "1") is not None}

    def matches(self, expression: str, text: int) -> bool:
        return bool(self._matching(expression, [text]))

    def marked(self, expression: str, text: int) -> str:
        body = self._body(text)
        what = "highlight(index_words, 0, ?, ?)"
        return str(_words().ask(body, expression, what, OPEN, CLOSE) or body)

    def snippet(self, expression: str, text: int) -> str:
        body = self._body(text)
        what = "snippet(index_words, 0, ?, ?, '…', ?)"
        return str(_words().ask(body, expression, what, OPEN, CLOSE, SNIPPET) or body[:200])

    def _body(self, text: int) -> str:
        return str(self._tables.run("SELECT body FROM index_words WHERE text = %s", [text])[0][0])
