"""Find texts by their words: what FTS5 does for an index that is a file.

Above: `indexing`, `documents`, `search`.  Below: `database`, which holds the tables.
`server_words` does the same where the index is kept by a database server.
"""

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hansard.errors import BackendUnavailable
from hansard.message.search_text import CLOSE, OPEN

if TYPE_CHECKING:
    from hansard.index.database import Database

#: The table of texts: words of any script, whatever their case and accents (`text.split` does the rest).
TEXTS: Final = (
    "CREATE VIRTUAL TABLE found USING fts5(text, tokenize = 'unicode61 remove_diacritics 2')"
)

#: What FTS5 gathers in memory before it writes a part of its index: at 1 MiB its time goes into joining them.
_GATHERED: Final = 8 << 20

#: How many words of the text a snippet has.
SNIPPET: Final = 24

#: When it was said; of a title, when something last happened in the session.
SAID: Final = "CASE d.seq WHEN 0 THEN (SELECT updated FROM session WHERE id = k.id) ELSE d.time END"


class Row(NamedTuple):
    """A text that fits."""

    d: int
    t: int
    seq: int
    time: str
    role: str


class Words:
    """The texts of an index, and what is found in them."""

    __slots__ = ("_database",)

    def __init__(self, database: "Database") -> None:
        self._database = database

    def are_there(self) -> bool:
        """Say whether there is an index of texts."""
        return self._database.one("SELECT 1 FROM sqlite_master WHERE name = 'found'") is not None

    def prepare(self) -> None:
        """Make the table of texts, unless it is there."""
        if self.are_there():
            return
        with self._database.changing():
            if self.are_there():
                return
            try:
                self._database.do(TEXTS)
            except sqlite3.OperationalError as error:
                if "no such module" not in str(error):
                    raise
                raise without_fts5() from error
            self._database.do("INSERT INTO found (found, rank) VALUES ('hashsize', ?)", _GATHERED)

    def add(self, d: int, text: str) -> None:
        """Add a text."""
        self._database.do("INSERT INTO found (rowid, text) VALUES (?,?)", d, text)

    def remove(self, rows: list[tuple[int]]) -> None:
        """Take texts out."""
        self._database.do_all("DELETE FROM found WHERE rowid = ?", rows)

    def merge(self) -> None:
        """Write the index of words anew, without what is left in it of texts that were taken out."""
        with self._database.changing():
            self._database.do("INSERT INTO found (found) VALUES ('optimize')")

    # -- questions ------------------------------------------------------------------------------

    def rows(
        self,
        expression: str,
        conditions: str,
        values: Sequence[Any],
        shown: Sequence[tuple[int, int]],
        limit: int,
    ) -> list[Row]:
        """Return the texts that fit, the newest first.

        `conditions`: on `k` (`talk`), `d` (`doc`), `w` (see `shown`) and `said`, with their values. `shown`:
        logs that others show, each up to a seq.
        """
        database = self._database
        database.do("CREATE TEMP TABLE IF NOT EXISTS wanted (t INTEGER PRIMARY KEY, upto INTEGER)")
        database.do("DELETE FROM wanted")
        database.do_all("INSERT INTO wanted VALUES (?,?)", shown)
        rows = database.all(
            f"SELECT d.d, d.t, d.seq, {SAID} AS said, "  # noqa: S608 - values are apart
            "d.role FROM found JOIN doc d ON d.d = found.rowid "
            "JOIN talk k ON k.t = d.t LEFT JOIN wanted w ON w.t = d.t "
            f"WHERE found MATCH ? AND {conditions} ORDER BY said DESC, k.id, d.seq LIMIT ?",
            expression,
            *values,
            limit,
        )
        return [Row(*row) for row in rows]

    def marked(self, expression: str, d: int) -> str:
        """Return a text with marks around each word that was found."""
        (raw,) = self._database.one(
            "SELECT highlight(found, 0, ?, ?) FROM found WHERE found MATCH ? AND rowid = ?",
            OPEN,
            CLOSE,
            expression,
            d,
        )
        return str(raw)

    def fits(self, expression: str, d: int) -> bool:
        """Say whether a text fits."""
        return bool(
            self._database.one(
                "SELECT 1 FROM found WHERE found MATCH ? AND rowid = ?", expression, d
            )
        )

    def snippet(self, expression: str, d: int) -> str:
        """Return the words around what was found in a text, with marks."""
        (raw,) = self._database.one(
            "SELECT snippet(found, 0, ?, ?, '…', ?) FROM found WHERE found MATCH ? AND rowid = ?",
            OPEN,
            CLOSE,
            SNIPPET,
            expression,
            d,
        )
        return str(raw)


def without_fts5() -> BackendUnavailable:
    """Return the error for a Python whose SQLite cannot search."""
    return BackendUnavailable(
        f"SQLite {sqlite3.sqlite_version} was built without FTS5, which searching needs; use a "
        "Python whose SQLite has it"
    )
