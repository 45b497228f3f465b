"""A SQLite file is read with everything committed to it; nothing next to it is created or changed."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hansard.importers import database
from hansard.importers.foreign_json import Unreadable
from hansard.importers.source import Files
from tests.importers.sources import untouched


def rows_of(path: Path) -> list[tuple[object, ...]]:
    """Return the rows as the importers read them."""
    with database.opened(Files(path.parent), path) as connection:
        return connection.execute("SELECT * FROM t ORDER BY a").fetchall()


def made(path: Path, *statements: str) -> Path:
    """Create a database, or change it, and close it."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def integrity(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """Return what SQLite reports about a copy."""
    return connection.execute("PRAGMA integrity_check").fetchall()


def written(path: Path, rng: random.Random) -> sqlite3.Connection:
    """Write rows, commit some, checkpoint some of the log, and leave the database open."""
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA page_size={rng.choice([512, 4096, 65536])}")
    connection.execute("PRAGMA journal_mode=wal")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("CREATE TABLE t (a, b)")
    for number in range(rng.randrange(1, 50)):
        row = (number, rng.randbytes(rng.randrange(3000)))
        connection.execute("INSERT INTO t VALUES (?, ?)", row)
        if rng.random() < 0.3:
            connection.execute("DELETE FROM t WHERE a = ?", (rng.randrange(number + 1),))
            connection.commit()
        if rng.random() < 0.1:
            connection.commit()
            how = rng.choice(["PASSIVE", "RESTART", "TRUNCATE"])
            connection.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
    return connection


def test_the_write_ahead_log_is_read(tmp_path: Path, rng: random.Random) -> None:
    """N-62: 10 random databases with a write-ahead log are read as SQLite reads them, and unchanged."""
    for number in range(10):
        path = tmp_path / str(number) / "x.db"
        path.parent.mkdir()
        # A second connection keeps SQLite's files in place before and after.
        with closing(written(path, rng)), closing(sqlite3.connect(path)) as reader:
            wanted = reader.execute("SELECT * FROM t ORDER BY a").fetchall()
            with untouched(path.parent):
                assert rows_of(path) == wanted


def test_a_file_in_the_middle_of_a_change_is_read_again(tmp_path: Path) -> None:
    """N-18: its program pauses in the middle of a change, and finishes it right after the second read."""
    path = made(tmp_path / "x.db", "CREATE TABLE t (a)", *["INSERT INTO t VALUES (1)"] * 5)
    complete = path.read_bytes()
    journal = path.with_name("x.db-journal")
    journal.write_bytes(b"the old content")
    path.write_bytes(complete[: len(complete) // 2].ljust(len(complete), b"\xff"))
    reads = 0

    class Pausing(Files):
        def read(self, path: Path, *, upto: int | None = None) -> bytes | None:
            nonlocal reads
            found = super().read(path, upto=upto)
            reads += path.name == "x.db"
            if reads == 2:
                journal.with_name("x.db").write_bytes(complete)
                journal.unlink(missing_ok=True)
            return found

    with database.opened(Pausing(tmp_path), path) as connection:
        assert len(connection.execute("SELECT a FROM t").fetchall()) == 5
    assert reads == 4


class Overtaken(Files):
    """Files of which one is written to before it is read, up to a number of times."""

    def __init__(self, path: Path, writer: sqlite3.Connection, how: str, times: int) -> None:
        super().__init__(path.parent)
        self._how = how
        self._path = path
        self._writer = writer
        self._left = times

    def read(self, path: Path, *, upto: int | None = None) -> bytes | None:
        """Read a file, after a transaction and a checkpoint of the log."""
        if path == self._path and self._left:
            self._left -= 1
            self._writer.execute("DELETE FROM t WHERE a % 2 = 0")
            rows = [(n, "y" * 900) for n in range(1000, 1100, 2)]
            self._writer.executemany("INSERT INTO t VALUES (?, ?)", rows)
            self._writer.commit()
            self._writer.execute(f"PRAGMA wal_checkpoint({self._how})").fetchall()
        return super().read(path, upto=upto)


def full(path: Path) -> sqlite3.Connection:
    """Return a connection to a database that has rows in its log."""
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=wal")
    writer.execute("CREATE TABLE t (a, b)")
    writer.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x" * 900) for n in range(100)])
    writer.commit()
    return writer


@pytest.mark.parametrize("how", ["PASSIVE", "TRUNCATE"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_checkpoint_between_two_reads_is_noticed(tmp_path: Path, how: str, times: int) -> None:
    """N-18: a transaction between the reads of the log and of the database is read completely."""
    path = tmp_path / "x.db"
    with closing(full(path)) as writer:
        files = Overtaken(path, writer, how, times)
        with database.opened(files, path) as connection:
            found = connection.execute("SELECT * FROM t ORDER BY a").fetchall()
            assert integrity(connection) == [("ok",)]
        assert found == writer.execute("SELECT * FROM t ORDER BY a").fetchall()


def test_a_log_that_is_always_restarted_is_an_error(tmp_path: Path) -> None:
    """N-24: a program that never stops writing is not waited for: the error has a hint."""
    path = tmp_path / "x.db"
    with closing(full(path)) as writer:
        files = Overtaken(path, writer, "TRUNCATE", 10**9)
        opened = database.opened(files, path)
        with pytest.raises(Unreadable, match="when its program is idle"), opened:
            pass


@pytest.mark.parametrize(
    ("ending", "content", "why"),
    [
        ("", b"not a database", "not a SQLite database"),
        ("", b"SQLite format 3\0" + b"\xff" * 4096, "not a readable SQLite database"),
        ("-journal", b"\xd9\xd5\x05\xf9 hot", "an unfinished change"),
    ],
)
def test_an_unreadable_database_is_refused(
    tmp_path: Path, ending: str, content: bytes, why: str
) -> None:
    """N-31: bytes that are not a database, and one whose program died while writing, are clear errors."""
    path = made(tmp_path / "x.db", "CREATE TABLE t (a)")
    (tmp_path / f"x.db{ending}").write_bytes(content)
    with untouched(tmp_path), pytest.raises(Unreadable, match=why):
        rows_of(path)


#: Endless or huge objects that a database may define in place of a table.
ENDLESS = "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n)"
SCHEMAS = {
    "a view": f"CREATE VIEW t AS {ENDLESS} SELECT a, a AS b FROM n",  # noqa: S608
    "a generated column": "CREATE TABLE t (a, b AS (hex(zeroblob(a))))",
    "a stored column": "CREATE TABLE t (a, b AS (length(zeroblob(100000000))) STORED)",
    "a virtual table": "CREATE VIRTUAL TABLE t USING fts5(a, b)",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_only_plain_tables_are_read(tmp_path: Path, name: str) -> None:
    """N-74: a view, a virtual table or a generated column in place of a table is not evaluated."""
    path = made(tmp_path / "x.db", SCHEMAS[name], "CREATE TABLE u (a)")
    if "TABLE t (" in SCHEMAS[name]:
        made(path, "INSERT INTO t (a) VALUES (40000000)")
    with database.opened(Files(tmp_path), path) as connection:
        found = connection.tables
    assert found["u"] == {"a"}
    assert "t" not in found


def test_pages_that_are_listed_many_times_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-74: a tree whose pages all refer to the same page yields no more than the file can hold."""
    monkeypatch.setattr(database, "SMALL", 50_000)
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size=512")
        connection.execute("CREATE TABLE t (a)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 400,)] * 5_000)
        connection.commit()
        root = connection.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]
    content = bytearray(path.read_bytes())

    def children(page: int) -> list[int]:
        """Return where an interior page stores the numbers of its children."""
        start = (page - 1) * 512
        count = int.from_bytes(content[start + 3 : start + 5])
        cells = range(start + 12, start + 12 + 2 * count, 2)
        return [start + int.from_bytes(content[cell : cell + 2]) for cell in cells]

    # On each level, replace all children by the first one.
    page = root
    while content[(page - 1) * 512] == 5:
        places = [*children(page), (page - 1) * 512 + 8]
        first = content[places[0] : places[0] + 4]
        for place in places:
            content[place : place + 4] = first
        page = int.from_bytes(first)
    path.write_bytes(content)
    files = Files(tmp_path)
    monkeypatch.setattr(database, "AGAIN", 0)
    with database.opened(files, path) as connection:
        found = sum(1 for _ in connection.rows("t", "SELECT a FROM t"))
    assert 0 < found < 1_000
    assert "more than it can hold" in files.problems[0].what


def test_a_cleared_journal_is_ignored(tmp_path: Path) -> None:
    """N-62: with journal_mode=PERSIST, a finished journal stays and begins with zeros."""
    persist = "PRAGMA journal_mode=persist"
    path = made(tmp_path / "x.db", persist, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
    made(path, persist, "INSERT INTO t VALUES (2)")
    assert any(path.with_name("x.db-journal").read_bytes())
    with untouched(tmp_path):
        assert rows_of(path) == [(1,), (2,)]
