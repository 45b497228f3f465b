"""Find texts by their words, where the index is kept by PostgreSQL.

Above: `server`.  Below: `words`, `text`, `backend.contract.Tables`; SQLite, which is part of Python.
A text is a row with its words as a `tsvector`, under a GIN index. What is a word, FTS5 decides here as it
does for an index that is a file, in a table in memory: PostgreSQL's own parser takes `user@example.com` or
`a/b.py` for one word each, and would find other texts. What must stand together is found by PostgreSQL as
words that are all there, and then looked at by FTS5: a `tsvector` knows only the first 256 places of a word
and none beyond 16,383, so here it has none.
"""

import re
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from hansard.backend.contract import Tables
from hansard.index.database import Connection
from hansard.index.words import SAID, SNIPPET, TEXTS, Row, Words, without_fts5
from hansard.message.search_text import CLOSE, OPEN

if TYPE_CHECKING:
    from hansard.index.server import ServerDatabase

#: PostgreSQL knows no word of more bytes; longer ones are found by how they begin, and looked at.
_LONGEST: Final = 2000
#: Nor more than 1 MiB of words in one text, with what goes with each.
_MOST: Final = 1 << 20
_PER_WORD: Final = 16

#: No word has a blank in it.
_NEVER: Final = "' '"

_TERM: Final = re.compile(r'"(?P<phrase>[^"]*)"(?P<starred> \*)?|\b(?P<operator>AND|OR|NOT)\b')
_OPERATORS: Final = {"AND": "&", "OR": "|", "NOT": "& !"}


#: A text that is looked at, with its words in their order; and one of which only the words are wanted.
_TABLES: Final = (
    TEXTS,
    "CREATE VIRTUAL TABLE words USING fts5vocab(found, 'instance')",
    TEXTS.replace("found", "bare").replace("(text", "(text, content=''"),
    "CREATE VIRTUAL TABLE terms USING fts5vocab(bare, 'row')",
)


class _Tokens:
    """A table of FTS5's in memory, for one text at a time."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, factory=Connection)
        try:
            for statement in _TABLES:
                self._connection.execute(statement)
        except sqlite3.OperationalError as error:
            raise without_fts5() from error

    def of(self, text: str) -> list[str]:
        """Return the words of a text, each once."""
        self._connection.execute("INSERT INTO bare (rowid, text) VALUES (1, ?)", (text,))
        found = self._connection.execute("SELECT term FROM terms").fetchall()
        self._connection.execute("INSERT INTO bare (bare) VALUES ('delete-all')")
        return [term for (term,) in found]

    def in_order(self, text: str) -> list[str]:
        """Return the words of a short text, in their order."""
        self._hold(text)
        rows = self._connection.execute("SELECT term FROM words ORDER BY offset")
        return [term for (term,) in rows]

    def fits(self, text: str, expression: str) -> bool:
        """Say whether a text fits."""
        self._hold(text)
        found = self._connection.execute("SELECT 1 FROM found WHERE found MATCH ?", (expression,))
        return found.fetchone() is not None

    def snippet(self, text: str, expression: str) -> str:
        """Return the words around what was found in a text, with marks."""
        return self._ask(text, expression, "snippet(found, 0, ?, ?, '…', ?)", SNIPPET) or text[:200]

    def marked(self, text: str, expression: str) -> str:
        """Return a text with marks around each word that was found."""
        return self._ask(text, expression, "highlight(found, 0, ?, ?)") or text

    def _ask(self, text: str, expression: str, what: str, *values: int) -> str | None:
        self._hold(text)
        row = self._connection.execute(
            f"SELECT {what} FROM found WHERE found MATCH ?",  # noqa: S608 - our own words
            (OPEN, CLOSE, *values, expression),
        ).fetchone()
        return None if row is None else str(row[0])

    def _hold(self, text: str) -> None:
        self._connection.execute("DELETE FROM found")
        self._connection.execute("INSERT INTO found (rowid, text) VALUES (1, ?)", (text,))


_own = threading.local()


def _tokens() -> _Tokens:
    """Return this thread's."""
    found = getattr(_own, "tokens", None)
    if found is None:
        found = _own.tokens = _Tokens()
    assert isinstance(found, _Tokens)
    return found


def vector(text: str) -> str:
    """Return the words of a text as PostgreSQL reads a `tsvector`, without their places.

    A word has letters and digits only, so nothing in it need be escaped.
    """
    words = _tokens().of(text)
    # A character has four bytes at most. Most texts are seen here to fit, without a look at each word.
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
    """Return what FTS5 is to look for as PostgreSQL reads a `tsquery`, and whether that finds too much."""
    doubtful = False
    excluded = False

    def said(term: "re.Match[str]") -> str:
        nonlocal doubtful, excluded
        if term["operator"] is not None:
            # What is left out stands last.
            excluded = excluded or term["operator"] == "NOT"
            return _OPERATORS[term["operator"]]
        words = _tokens().in_order(term["phrase"])
        is_exact = len(words) == 1 and _cut(words[0]) == words[0]
        doubtful = doubtful or not is_exact
        if not words or (excluded and not is_exact):
            return _NEVER
        quoted = [f"'{_cut(word)}'" for word in words]
        if term["starred"] or _cut(words[-1]) != words[-1]:
            quoted[-1] += ":*"
        return f"({' & '.join(quoted)})"

    return _TERM.sub(said, expression), doubtful


def _cut(word: str) -> str:
    raw = word.encode()
    return word if len(raw) <= _LONGEST else raw[:_LONGEST].decode(errors="ignore")


class ServerWords(Words):
    """The texts of an index, and what PostgreSQL finds in them."""

    __slots__ = ("_tables",)

    _database: "ServerDatabase"

    def __init__(self, database: "ServerDatabase", tables: Tables) -> None:
        super().__init__(database)
        self._tables = tables

    def are_there(self) -> bool:
        return self._database.one("SELECT 1 FROM talk LIMIT 1") is not None

    def prepare(self) -> None:
        pass  # the tables came with those of the sessions

    def add(self, d: int, text: str) -> None:
        self._database.add_text(d, text, vector(text))

    def remove(self, rows: list[tuple[int]]) -> None:
        self._database.write_waiting()
        self._tables.run(
            "DELETE FROM {schema}.index_found WHERE d = ANY(%s::bigint[])",
            [[d for (d,) in rows]],
            rows=False,
        )

    def merge(self) -> None:
        pass  # `clean` does it

    def rows(
        self,
        expression: str,
        conditions: str,
        values: Sequence[Any],
        shown: Sequence[tuple[int, int]],
        limit: int,
    ) -> list[Row]:
        from hansard.index.server import fitting, translate

        asked, doubtful = question(expression)
        said = f"({translate(SAID)})"
        text = (
            f"SELECT d.d, d.t, d.seq, {said} AS said, d.role "  # noqa: S608 - values are apart
            "FROM {schema}.index_found f JOIN {schema}.index_doc d ON d.d = f.d "
            "JOIN {schema}.index_talk k ON k.t = d.t "
            "LEFT JOIN unnest(%s::bigint[], %s::bigint[]) AS w (t, upto) ON w.t = d.t "
            "WHERE f.words @@ %s::tsquery AND "
            + re.sub(r"\bsaid\b", said.replace("\\", r"\\"), translate(conditions))
            + " ORDER BY said DESC, k.id, d.seq LIMIT %s OFFSET %s"
        )
        logs, upto = [t for t, _ in shown], [seq for _, seq in shown]
        given = [logs, upto, asked, *map(fitting, values)]
        if not doubtful:
            return [Row(*row) for row in self._tables.run(text, [*given, limit, 0])]
        found: list[Row] = []
        offset = 0
        while len(found) < limit:
            some = [Row(*row) for row in self._tables.run(text, [*given, limit, offset])]
            fit = self._fitting(expression, (row.d for row in some))
            found += [row for row in some if row.d in fit]
            if len(some) < limit:
                break
            offset += limit
        return found[:limit]

    def _fitting(self, expression: str, ds: Iterable[int]) -> set[int]:
        """Return which of some texts fit, word for word."""
        return {
            d
            for d, text in self._tables.run(
                "SELECT d, body FROM {schema}.index_found WHERE d = ANY(%s::bigint[])", [list(ds)]
            )
            if _tokens().fits(text, expression)
        }

    def fits(self, expression: str, d: int) -> bool:
        return bool(self._fitting(expression, [d]))

    def marked(self, expression: str, d: int) -> str:
        return _tokens().marked(self._body(d), expression)

    def snippet(self, expression: str, d: int) -> str:
        return _tokens().snippet(self._body(d), expression)

    def _body(self, d: int) -> str:
        rows = self._tables.run("SELECT body FROM {schema}.index_found WHERE d = %s", [d])
        return str(rows[0][0])
