"""A hostile index: a database with programs in it, another file, another directory."""

import os
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import hansard
from hansard.backend.local.index_file import LocalIndexFile
from tests.hostile.forge_files import confined, with_a_good_session
from tests.unit.disk_probe import index_of

#: Never returns.
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with an index that was used for a listing and for a search."""
    path = with_a_good_session(tmp_path / "store")
    assert listed(path) == ["good"]
    return path


def listed(path: Path) -> list[str]:
    """List, search and diagnose a store; return the ids."""
    with hansard.open(path, durability="os") as opened:
        opened.diagnose()
        found = [info.id for info in opened.sessions().items]
        assert [hit.session for hit in opened.search("zebra")] == found
        assert opened.count() == len(found)
        return found


PROGRAMS = {
    "a view in the place of the sessions": ("DROP TABLE index_session",
        f"CREATE VIEW index_session AS {ENDLESS} i AS n, 'x' AS id, '' AS stamp FROM n"),
    "a view in the place of the entries": ("DROP TABLE index_entry",
        f"CREATE VIEW index_entry AS {ENDLESS} 'x' AS id, '' AS info, i AS crc FROM n"),
    "a trigger that never ends": (
        (
            "CREATE TRIGGER t AFTER INSERT ON index_unread BEGIN "
            f"INSERT INTO index_meta {ENDLESS} i, i FROM n; END"
        ),
    ),
    "a trigger that changes what is listed": (
        "CREATE TRIGGER t AFTER UPDATE ON index_session BEGIN DELETE FROM index_entry; END",
    ),
    "a table of another module": (
        "CREATE VIRTUAL TABLE more USING fts5(text, content = 'index_session')",
    ),
    "a column that is computed": ("DROP TABLE index_unread",
        "CREATE TABLE index_unread (id TEXT PRIMARY KEY, x AS (hex(zeroblob(1 << 29)))) WITHOUT ROWID"),
    "an index over an expression": (
        "CREATE INDEX more ON index_session (length(hex(zeroblob(1 << 20) || id)))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_in_the_index_is_not_run(program: str, store: Path) -> None:
    """N-86: an index with foreign views, triggers or tables is rebuilt, and no statement runs them.

    They have our application id and version, which prove nothing.
    """
    with closing(sqlite3.connect(index_of(store))) as database:
        for statement in PROGRAMS[program]:
            database.execute(statement)
        database.commit()
    assert listed(store) == ["good"]
    with closing(sqlite3.connect(index_of(store))) as database:
        kinds = {row[0] for row in database.execute("SELECT type FROM sqlite_master")}
        names = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
    assert kinds == {"table", "index"}
    assert names.isdisjoint({"more", "t"})


def journal_that_deletes(victim: Path, database: Path) -> bytes:
    """Return a hot journal whose super-journal is another file: SQLite deletes that after the rollback."""
    magic = bytes.fromhex("d9d505f920a163d7")
    name = os.fsencode(victim)
    pages = database.stat().st_size // 4096
    return (
        (magic + struct.pack(">5I", 0, 1, pages, 512, 4096)).ljust(512, b"\0")
        + struct.pack(">I", 0x40000000 // 4096 + 1)
        + name
        + struct.pack(">2I", len(name), sum(name))
        + magic
    )


def next_to(path: Path, end: str) -> Path:
    """Return a file that SQLite keeps next to a database."""
    return path.with_name(path.name + end)


def test_a_journal_next_to_the_index_deletes_nothing(store: Path, tmp_path: Path) -> None:
    """N-86, F-156: SQLite never sees a `-journal`: it would delete the file that one names."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    index = index_of(store)
    crafted = journal_that_deletes(precious, index)
    # Its effect on a program that opens the database without this protection.
    shutil.copy(index, tmp_path / "bare.db")
    next_to(tmp_path / "bare.db", "-journal").write_bytes(crafted)
    with closing(sqlite3.connect(tmp_path / "bare.db")) as database:
        database.execute("SELECT * FROM index_meta").fetchall()
    assert not precious.exists()
    precious.write_text("kept")
    next_to(index, "-journal").write_bytes(crafted)
    assert listed(store) == ["good"]
    assert precious.read_text() == "kept"
    assert index_of(store) == index
    assert not next_to(index, "-journal").exists()


def test_an_index_that_came_with_a_store_is_not_opened(store: Path, tmp_path: Path) -> None:
    """N-86, F-155: an index that was cloned or copied is removed unopened, and rebuilt."""
    with closing(sqlite3.connect(index_of(store))) as database:
        # It is valid, and wrong.
        database.execute("UPDATE index_entry SET info = replace(info, '\"good\"', '\"evil\"')")
        for name, info in database.execute("SELECT id, info FROM index_entry").fetchall():
            crc = zlib.crc32(info.encode())
            database.execute("UPDATE index_entry SET crc = ? WHERE id = ?", (crc, name))
        database.commit()
    next_to(index_of(store), "-wal").write_bytes(b"hostile")
    clone = tmp_path / "clone"
    shutil.copytree(store, clone)
    came = [file.name for file in clone.glob("index-*")]
    assert len(came) == 2
    assert listed(clone) == ["good"]
    assert [file.name for file in clone.glob("index-*")] == [index_of(clone).name]
    assert index_of(clone).name not in came


def test_a_write_ahead_log_without_its_database_is_not_used(store: Path) -> None:
    """N-86, F-155: if only the database was deleted, the new one gets another name."""
    before = index_of(store)
    before.unlink()
    next_to(before, "-wal").write_bytes(b"of another")
    assert listed(store) == ["good"]
    assert index_of(store) != before
    assert not next_to(before, "-wal").exists()


def pipe(path: Path) -> None:
    """Create a pipe: opening it waits for its other end."""
    os.mkfifo(path)


def dangling(path: Path) -> None:
    """Create a link whose target does not exist: SQLite would create it."""
    path.symlink_to(path.parent.parent / "made elsewhere")


@pytest.mark.parametrize("plant", [pipe, dangling, Path.mkdir])
@pytest.mark.parametrize("end", ["stamp", "", "-wal", "-shm", "-journal"])
def test_what_is_not_a_regular_file_is_not_opened(
    end: str, plant: Callable[[Path], None], store: Path, tmp_path: Path
) -> None:
    """N-11, N-86, F-4: a pipe, link or directory in place of an index's file is not opened."""
    path = store / "index" if end == "stamp" else next_to(index_of(store), end)
    path.unlink(missing_ok=True)
    plant(path)
    program = (
        "import sys; from pathlib import Path; from tests.hostile.test_index import listed\n"
        "assert listed(Path(sys.argv[1])) == ['good']"
    )
    confined(program, store)
    assert not (tmp_path / "made elsewhere").exists()
    assert not path.is_file()


def test_another_database_under_a_second_name_stays_as_it_is(store: Path, tmp_path: Path) -> None:
    """N-11: another database, hard-linked to the name of the index, is not written."""
    index_of(store).unlink()
    with closing(sqlite3.connect(tmp_path / "mine.db")) as database:
        database.execute("CREATE TABLE precious (a)")
        database.commit()
    before = (tmp_path / "mine.db").read_bytes()
    os.link(tmp_path / "mine.db", index_of(store))
    assert listed(store) == ["good"]
    assert (tmp_path / "mine.db").read_bytes() == before
    assert (tmp_path / "mine.db").stat().st_nlink == 1


def test_a_store_swapped_while_its_index_is_opened_is_not_written(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-11, F-4: SQLite opens by path; if that leads elsewhere by then, nothing is written there."""
    index_of(store).unlink()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    prepare = LocalIndexFile.prepare
    swapped: list[bool] = []

    def swap(place: LocalIndexFile, content: bytes) -> str:
        path = prepare(place, content)
        if not swapped:
            # The worst moment: everything was checked, and SQLite has not opened the file yet.
            store.rename(tmp_path / "away")
            theirs.rename(store)
            swapped.append(True)
        return path

    with hansard.open(store, durability="os") as opened:
        monkeypatch.setattr(LocalIndexFile, "prepare", swap)
        assert [info.id for info in opened.sessions().items] == ["good"]
        assert [hit.session for hit in opened.search("zebra")] == ["good"]
    assert swapped
    said = b"".join(file.read_bytes() for file in store.rglob("*") if file.is_file())
    assert b"zebra" not in said
    assert b"good" not in said
