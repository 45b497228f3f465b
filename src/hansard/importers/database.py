"""Read SQLite files that other programs wrote, without changing them and without trusting them.

SQLite writes next to a file that it opens, and a hostile file can make it do more than that. So it opens a
private copy of the database and of its write-ahead log, never of a journal, and may only read plain tables:
an authorizer refuses views, functions, virtual tables and everything else, and a budget in proportion to
the file's size ends what would not end otherwise.
"""

import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from hansard.importers.source import AGAIN, LONGEST, SMALL, Files, Unreadable

MAGIC: Final = b"SQLite format 3\0"

#: Length of a write-ahead log's header. It changes whenever SQLite begins the log from its start again.
_LOG_HEADER: Final = 32

#: How often a file is read again that changed while it was being read.
_ATTEMPTS: Final = 20

#: Instructions of SQLite's virtual machine between two looks at the budget.
_STEP: Final = 10_000

_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: LONGEST,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 2,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 8,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_READING: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})


class Database(sqlite3.Connection):
    """A connection that reads plain tables, and as much of them as there can be.

    Attributes:
        left: how many instructions and bytes may still be read.
    """

    left: int = 0

    def spend(self, count: int = _STEP) -> bool:
        """Take from what is left; return whether nothing is."""
        self.left -= count
        return self.left < 0


@contextmanager
def opened(files: Files, path: Path) -> Iterator[Database]:
    """Open a private copy of a SQLite file; raise `Unreadable` if that cannot be."""
    content, log = _content(files, path)
    with tempfile.TemporaryDirectory(prefix="hansard-import-") as folder:
        copy = Path(folder, "copy.db")
        copy.write_bytes(content)
        copy.with_name("copy.db-wal").write_bytes(log)
        size = len(content) + len(log)
        del content, log
        address = f"{copy.as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, factory=Database)) as connection:
            try:
                _confine(connection, size)
                connection.execute("SELECT name FROM sqlite_master").fetchone()
            except (sqlite3.Error, OverflowError) as error:
                raise Unreadable(f"no SQLite database that can be read: {error}") from None
            yield connection


def _confine(connection: Database, size: int) -> None:
    for limit, value in _LIMITS.items():
        connection.setlimit(limit, value)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)  # noqa: FBT003 - its only form
    for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
        connection.execute(f"PRAGMA {pragma}")
    connection.left = AGAIN * size + SMALL
    connection.set_progress_handler(connection.spend, _STEP)
    connection.set_authorizer(_allowed)
    connection.text_factory = _text


def _allowed(action: int, one: str | None, _two: object, _schema: object, view: object) -> int:
    """Authorize what reads a table directly, and nothing else."""
    fine = action in _READING or (action == sqlite3.SQLITE_PRAGMA and one == "table_xinfo")
    return sqlite3.SQLITE_OK if fine and view is None else sqlite3.SQLITE_DENY


def _text(content: bytes) -> str | bytes:
    """Return what is stored as text; bytes, if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def columns(connection: Database) -> dict[str, set[str]]:
    """Return the plain tables of a database, with their columns.

    Views, virtual tables and tables with generated columns compute what they show: they are left out.
    """
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
    found = {}
    try:
        for name, sql in connection.execute(query).fetchall():
            # As SQLite itself writes it, and reads it again to know what the table is.
            if isinstance(name, str) and isinstance(sql, str) and sql.startswith("CREATE TABLE "):
                told = connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
                if not any(row[6] for row in told):
                    found[name] = {row[1] for row in told}
    except sqlite3.Error as error:
        raise Unreadable(f"the tables of the database cannot be read: {error}") from None
    return found


def quoted(name: str) -> str:
    """Return a name as it stands in SQL."""
    return '"' + name.replace('"', '""') + '"'


def rows(
    files: Files, where: str, connection: Database, query: str, *given: Any
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query, as many as can be had; what is damaged is reported."""
    try:
        for row in connection.execute(query, given):
            # Damaged pages can show one row, or one long value, any number of times.
            if connection.spend(sum(len(cell) for cell in row if isinstance(cell, str | bytes))):
                break
            yield row
        else:
            return
        why = "it yields more than it can hold"
    except sqlite3.Error as error:
        why = "it takes too long to read" if connection.left < 0 else str(error)
    files.report(where, f"the database is damaged: {why}; what follows in this table is missing")


def _content(files: Files, path: Path) -> tuple[bytes, bytes]:
    """Return a database and its write-ahead log, as they were at one moment."""
    journal = path.with_name(path.name + "-journal")
    beside = path.with_name(path.name + "-wal")
    for _ in range(_ATTEMPTS):
        before = _log(files, beside)
        count = len(files.problems)
        content = files.read(path)
        if content is None:
            problem = files.problems.pop() if len(files.problems) > count else None
            raise Unreadable(problem.what if problem else "cannot be read")
        # With a log, a database is changed only out of it. As long as that was not begun anew, all that was
        # changed while the database was being read stands in the log, and covers it. Without one, it is
        # read a second time, and must be the same; and in between there must have been no journal, or both
        # may be of the same moment in the middle of a change.
        changing = _is_changing(files, journal)
        log = _log(files, beside)
        if log[:_LOG_HEADER] == before[:_LOG_HEADER] and (log or files.read(path) == content):
            if _is_changing(files, journal):
                raise Unreadable(
                    "its program writes to it, or stopped in the middle of that, as the file *-journal "
                    "says; let it finish, or open it once with that program, which puts it right, and "
                    "import it then"
                )
            if not changing:
                break
    else:
        raise Unreadable("it is being written to all the time; import it when its program rests")
    if not content.startswith(MAGIC):
        raise Unreadable("no SQLite database")
    return content, log


def _is_changing(files: Files, journal: Path) -> bool:
    """Return whether a journal says how to undo a change, as SQLite knows it: by its first byte."""
    return files.exists(journal) and (files.read(journal, upto=1) or b"\0") != b"\0"


def _log(files: Files, path: Path) -> bytes:
    return (files.read(path) or b"") if files.exists(path) else b""
