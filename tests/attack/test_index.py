"""An index by somebody else: a database with programs in it, another's file, another's directory."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

import hansard
from hansard.backend.place import LocalPlace
from hansard.index.database import APPLICATION, VERSION
from tests.attack.forging import with_a_good_session

#: A question to it is never answered.
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with an index that was used for a listing and for a search."""
    path = with_a_good_session(tmp_path / "store")
    assert listed(path) == ["good"]
    return path


def listed(path: Path) -> list[str]:
    """List, search and examine a store; return the ids, twice the same."""
    with hansard.open(path, durability="os") as opened:
        opened.examine()
        found = [info.id for info in opened.sessions().items]
        assert [hit.session for hit in opened.search("zebra")] == found
        assert opened.count() == len(found)
        return found


PROGRAMS = {
    "a view in the place of the sessions": (
        "DROP TABLE session",
        f"CREATE VIEW session AS {ENDLESS} i AS n, 'x' AS id, '' AS stamp FROM n",
    ),
    "a view in the place of the entries": (
        "DROP TABLE entry",
        f"CREATE VIEW entry AS {ENDLESS} 'x' AS id, '' AS info, i AS crc FROM n",
    ),
    "a trigger that never ends": (
        f"CREATE TRIGGER t AFTER INSERT ON unread BEGIN INSERT INTO meta {ENDLESS} i, i FROM n; END",
    ),
    "a trigger that changes what is listed": (
        "CREATE TRIGGER t AFTER UPDATE ON session BEGIN DELETE FROM entry; END",
    ),
    "a table of another module": (
        "CREATE VIRTUAL TABLE more USING fts5(text, content = 'session')",
    ),
    "a column that is computed": (
        "DROP TABLE unread",
        "CREATE TABLE unread (id TEXT PRIMARY KEY, x AS (hex(zeroblob(1 << 29)))) WITHOUT ROWID",
    ),
    "an index over an expression": (
        "CREATE INDEX more ON session (length(hex(zeroblob(1 << 20) || id)))",
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_in_the_index_is_not_run(program: str, store: Path) -> None:
    """N-86: an index with views, triggers or tables of others is made anew, and no question runs them."""
    with closing(sqlite3.connect(store / "index.db")) as database:
        for statement in PROGRAMS[program]:
            database.execute(statement)
        database.commit()
    assert listed(store) == ["good"]
    with closing(sqlite3.connect(store / "index.db")) as database:
        kinds = {row[0] for row in database.execute("SELECT type FROM sqlite_master")}
        names = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
    assert kinds == {"table", "index"}
    assert names.isdisjoint({"more", "t"})


def test_a_database_that_only_says_that_it_is_ours_is_made_anew(store: Path) -> None:
    """N-86: the number that says whose a file is proves nothing."""
    (store / "index.db").unlink()
    with closing(sqlite3.connect(store / "index.db")) as database:
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute(f"CREATE VIEW entry AS {ENDLESS} i FROM n")
        database.commit()
    assert listed(store) == ["good"]


def test_another_database_under_a_second_name_stays_as_it_is(store: Path, tmp_path: Path) -> None:
    """N-11: a database of somebody's, linked to the name of the index, is not written."""
    (store / "index.db").unlink()
    with closing(sqlite3.connect(tmp_path / "mine.db")) as database:
        database.execute("CREATE TABLE precious (a)")
        database.commit()
    before = (tmp_path / "mine.db").read_bytes()
    os.link(tmp_path / "mine.db", store / "index.db")
    assert listed(store) == ["good"]
    assert (tmp_path / "mine.db").read_bytes() == before
    assert (tmp_path / "mine.db").stat().st_nlink == 1


def test_a_store_swapped_while_its_index_is_opened_is_not_written(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-11, F-4: SQLite opens by path; if that leads elsewhere by then, nothing goes there."""
    (store / "index.db").unlink()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    prepare = LocalPlace.prepare
    swapped: list[bool] = []

    def swap(place: LocalPlace) -> None:
        prepare(place)
        if not swapped:
            # The worst moment: everything was looked at, and SQLite has not opened the file yet.
            store.rename(tmp_path / "away")
            theirs.rename(store)
            swapped.append(True)

    with hansard.open(store, durability="os") as opened:
        monkeypatch.setattr(LocalPlace, "prepare", swap)
        assert [info.id for info in opened.sessions().items] == ["good"]
        assert [hit.session for hit in opened.search("zebra")] == ["good"]
    assert swapped
    said = b"".join(file.read_bytes() for file in store.rglob("*") if file.is_file())
    assert b"zebra" not in said
    assert b"good" not in said


def test_what_is_typed_is_never_syntax(store: Path) -> None:
    """N-64: signs of FTS5's and LIKE's, quotes, NUL and lone surrogates in a search are only text."""
    typed = [
        'zebra" OR 1=1 --',
        "zebra') UNION SELECT",
        "text:zebra",
        "NEAR(zebra goat)",
        "{text} : zebra",
        "^zebra",
        "zebra*",
        "%",
        "_",
        "a\0b",
        "\ud800zebra",
        '"' * 999,
        "(" * 999,
        "zebra " * 200,
    ]
    with hansard.open(store, durability="os") as opened:
        for text in typed:
            with suppress(ValueError):  # that there is no word in it
                assert {hit.session for hit in opened.search(text)} <= {"good"}
        assert opened.sessions(title="%").items == []
        assert opened.sessions(title="_").items == []
