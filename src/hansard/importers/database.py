"""Read SQLite files that other programs wrote, without changing them.

SQLite writes next to a file that it opens. So it opens a private copy of the database and of its write-ahead
log, never of a journal. Only plain tables are read, whose rows a database cannot compute. A budget in
proportion to the file's size ends reads that damage would make endless.
"""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from hansard.importers.foreign_json import Unreadable
from hansard.importers.source import LONGEST, Files

#: What the names of databases end in.
ENDINGS: Final = (".db", ".sqlite", ".sqlite3")

MAGIC: Final = b"SQLite format 3\0"

#: Length of a write-ahead log's header, which changes whenever SQLite starts the log again.
_LOG_HEADER: Final = 32

#: Maximum attempts to read a file that changes while it is read.
_ATTEMPTS: Final = 20

#: The budget: bytes read and instructions of SQLite for each byte of the file, and `SMALL` more.
AGAIN: Final = 64
SMALL: Final = 256 * 1024 * 1024
#: Instructions between two checks of the budget.
_STEP: Final = 10_000


class Database(sqlite3.Connection):
    """A connection that reads plain tables, within a budget.

    Attributes:
        files: where problems are reported.
        name: the database's name in reports.
        prefix: put before the ids of its sessions, if there may be several databases.
        tables: the columns of each plain table; not of views, virtual tables and tables with generated
            columns, which compute what they return.
        left: how many instructions of SQLite and bytes may still be used.
    """

    files: Files
    name: str
    prefix: str
    tables: dict[str, set[str]]
    left: int = 0

    def has(self, table: str, columns: frozenset[str]) -> bool:
        """Return whether there is a plain table with these columns."""
        return self.tables.get(table, set()) >= columns

    def rows(self, table: str, query: str, *given: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query that can be read; report damage as the table's."""
        try:
            for row in self.execute(query, given):
                # Damaged pages can repeat a row, or a long value, without end.
                if self.spend(sum(len(cell) for cell in row if isinstance(cell, str | bytes))):
                    break
                yield row
            else:
                return
            why = "it yields more than it can hold"
        except sqlite3.Error as error:
            why = "it takes too long to read" if self.left < 0 else str(error)
        what = f"the database is damaged: {why}; the rest of this table is missing"
        self.files.report(f"{self.name}:{table}", what)

    def spend(self, count: int = _STEP) -> bool:
        """Subtract from the budget; return whether it is exceeded."""
        self.left -= count
        return self.left < 0


def paths(files: Files, *endings: str) -> list[Path]:
    """Return the files below the root that may be databases, or end so; a root that is a file always is."""
    return list(files.walk(*ENDINGS, *endings)) if files.is_directory else [files.root]


@contextmanager
def opened(files: Files, path: Path) -> Iterator[Database]:
    """Open a private copy of a SQLite file, or raise `Unreadable`."""
    content, log = _content(files, path)
    with tempfile.TemporaryDirectory(prefix="hansard-import-") as directory:
        copy = Path(directory, "copy.db")
        copy.write_bytes(content)
        copy.with_name("copy.db-wal").write_bytes(log)
        size = len(content) + len(log)
        del content, log
        address = f"{copy.as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, factory=Database)) as connection:
            connection.files, connection.name = files, files.name(path)
            connection.prefix = f"{files.stem(path)}/" if files.is_directory else ""
            try:
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
                connection.execute("PRAGMA trusted_schema=OFF")
                connection.left = AGAIN * size + SMALL
                connection.set_progress_handler(connection.spend, _STEP)
                connection.text_factory = _text
                connection.tables = dict(_tables(connection))
            except (sqlite3.Error, OverflowError) as error:
                raise Unreadable(f"not a readable SQLite database: {error}") from None
            yield connection


def _text(content: bytes) -> str | bytes:
    """Return a stored text; its bytes if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _tables(connection: Database) -> Iterator[tuple[str, set[str]]]:
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
    for name, sql in connection.execute(query).fetchall():
        # SQLite stores the statement in this form, and reads it to know what the table is.
        if isinstance(name, str) and isinstance(sql, str) and sql.startswith("CREATE TABLE "):
            told = connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
            if not any(row[6] for row in told):
                yield name, {row[1] for row in told}


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _content(files: Files, path: Path) -> tuple[bytes, bytes]:
    """Return a database and its write-ahead log, as of one moment."""
    journal = path.with_name(path.name + "-journal")
    log_path = path.with_name(path.name + "-wal")
    for _ in range(_ATTEMPTS):
        before = _log(files, log_path)
        content = files.read(path)
        if content is None:
            raise Unreadable("")  # `read` has reported why
        # With a log, SQLite changes a database only from the log. Unless the log was started again, every
        # change made during the read is still in it. Without a log, two reads must be equal, and no journal
        # may exist between them: both could see the same moment in the middle of a change.
        changing = _is_changing(files, journal)
        log = _log(files, log_path)
        if log[:_LOG_HEADER] == before[:_LOG_HEADER] and (log or files.read(path) == content):
            if _is_changing(files, journal):
                raise Unreadable(
                    "its *-journal file shows an unfinished change; wait until its program has finished, or "
                    "open it once with that program, and import it then"
                )
            if not changing:
                break
    else:
        raise Unreadable("it is written to all the time; import it when its program is idle")
    if not content.startswith(MAGIC):
        raise Unreadable("not a SQLite database")
    return content, log


def _is_changing(files: Files, journal: Path) -> bool:
    """Return whether a journal is hot; SQLite decides this by its first byte, too."""
    return files.exists(journal) and (files.read(journal, upto=1) or b"\0") != b"\0"


def _log(files: Files, path: Path) -> bytes:
    return (files.read(path) or b"") if files.exists(path) else b""
