"""Read SQLite files that others wrote, without touching them.

Above: `openai_agents`, `langgraph`, `pydantic_ai`.  Below: `source`.
To open a SQLite file in place is to write beside it: a `-shm` file at least, and whoever opens it without
one does not see what still stands in its write-ahead log. So the bytes of both are read, what was committed
in the log is put in its place in memory, and SQLite is given the result: https://www.sqlite.org/walformat.html
"""

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from hansard.importers.source import Files, Unreadable

MAGIC: Final = b"SQLite format 3\0"

#: The places in a database's header that say whether it has a write-ahead log, and what stands there if not.
_VERSIONS: Final = slice(18, 20)
_NO_LOG: Final = b"\x01\x01"

_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = 24
#: What a write-ahead log begins with; in the second case its checksums are made of big-endian numbers.
_LOG_MAGICS: Final = {0x377F0682: "<", 0x377F0683: ">"}

#: How often a file is read again that changed while it was being read.
_ATTEMPTS: Final = 20


@contextmanager
def opened(files: Files, path: Path) -> Iterator[sqlite3.Connection]:
    """Open what is in a SQLite file, in memory; raise `Unreadable` if that cannot be."""
    content = _content(files, path)
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.deserialize(content)
            connection.execute("PRAGMA query_only=ON")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except (sqlite3.Error, OverflowError) as error:
            raise Unreadable(f"no SQLite database that can be read: {error}") from None
        connection.text_factory = _text
        yield connection


def _text(content: bytes) -> str | bytes:
    """Return what is stored as text; bytes, if it is none."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def columns(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Return the tables of a database, with their columns."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: {row[1] for row in connection.execute(f"PRAGMA table_info({quoted(name)})")}
        for (name,) in tables
        if isinstance(name, str)
    }


def quoted(name: str) -> str:
    """Return a name as it stands in SQL."""
    return '"' + name.replace('"', '""') + '"'


def rows(
    files: Files, where: str, connection: sqlite3.Connection, query: str, *given: Any
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query, as many as can be had; what is damaged is reported."""
    try:
        yield from connection.execute(query, given)
    except sqlite3.Error as error:
        files.report(
            where, f"the database is damaged: {error}; what follows in this table is missing"
        )


def _content(files: Files, path: Path) -> bytes:
    """Return a database with all that was committed to it."""
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
    content = _committed(content, log)
    return content[: _VERSIONS.start] + _NO_LOG + content[_VERSIONS.stop :]


def _is_changing(files: Files, journal: Path) -> bool:
    """Say whether a journal tells how to undo what is being changed, or was when its program died."""
    return files.exists(journal) and any(files.read(journal) or b"")


def _log(files: Files, path: Path) -> bytes:
    return (files.read(path) or b"") if files.exists(path) else b""


def _committed(content: bytes, log: bytes) -> bytes:
    """Return a database with the pages that were committed in its log, and are whole."""
    if len(log) < _LOG_HEADER:
        return content
    magic, _, size = struct.unpack(">III", log[:12])
    if magic not in _LOG_MAGICS or size < 512 or size & (size - 1):  # noqa: PLR2004 - SQLite's smallest page
        return content
    order = _LOG_MAGICS[magic]
    salt = log[16:24]
    sums = _checksum(order, log[:24], (0, 0))
    if struct.pack(">II", *sums) != log[24:32]:
        return content
    pages: dict[int, bytes] = {}
    waiting: dict[int, bytes] = {}
    length = 0
    for start in range(_LOG_HEADER, len(log) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        head = log[start : start + _FRAME_HEADER]
        page = log[start + _FRAME_HEADER : start + _FRAME_HEADER + size]
        sums = _checksum(order, page, _checksum(order, head[:8], sums))
        if head[8:16] != salt or struct.pack(">II", *sums) != head[16:24]:
            break  # of an older round, or never finished: so ends the log
        number, commits = struct.unpack(">II", head[:8])
        waiting[number] = page
        if commits:
            pages.update(waiting)
            waiting, length = {}, commits
    if not length:
        return content
    whole = bytearray(content[: length * size].ljust(length * size, b"\0"))
    for number, page in pages.items():
        if 0 < number <= length:
            whole[(number - 1) * size : number * size] = page
    return bytes(whole)


def _checksum(order: str, content: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    numbers = struct.unpack(f"{order}{len(content) // 4}I", content)
    for place in range(0, len(numbers), 2):
        first = (first + numbers[place] + second) & 0xFFFFFFFF
        second = (second + numbers[place + 1] + first) & 0xFFFFFFFF
    return first, second
