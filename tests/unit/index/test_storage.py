"""The storage of the index: portable statements, transactions, and erasure."""

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.index import sqlite_storage, text_index
from hansard.index.sqlite_storage import Storage
from tests.unit.disk_probe import index_of
from tools.crash.erasure import leaks

SOURCES = Path(sqlite_storage.__file__).parent

#: Messages that have no substring in common.
WORDS = {"a": "kwvzrqhjxkwv", "b": "tnbmygdpftnb", "later": "lcsouieawlcs"}

#: SQL that one of the two databases, or a SQLite before 3.35, does not have.
NOT_PORTABLE = re.compile(
    r"\b(RETURNING|IS (NOT )?DISTINCT|INSERT OR|REPLACE INTO|instr\(|strpos\(|ILIKE|GLOB|lastrowid)"
    r"|\{schema\}"
)


@pytest.mark.parametrize("name", ["catalog", "listing", "search", "stats", "text_index"])
def test_statements_are_valid_in_both_databases(name: str) -> None:
    """Statements outside of the two storages use no SQL that one of the databases lacks."""
    assert NOT_PORTABLE.findall((SOURCES / f"{name}.py").read_text()) == []


def fill(path: Path) -> None:
    """Create three sessions, one of them a fork, and search."""
    with hansard.open(path) as store:
        for name in "ab":
            store.session(name).add_message({"role": "user", "content": f"{WORDS[name]} lion"})
        store.session("a").fork("c").add_message({"role": "user", "content": "of the fork"})
        store.session("a").add_message({"role": "user", "content": f"{WORDS['later']} lion"})
        assert len(store.search("lion")) == 3


def in_index(path: Path, word: str) -> bool:
    """Return whether a file of the index holds a word."""
    return any("index" in leak for leak in leaks(path, word))


def test_texts_of_a_session_in_the_trash_leave_the_index_at_compact(tmp_path: Path) -> None:
    """Texts in the trash are not found; after `compact`, only those that forks show are stored."""
    path = tmp_path / "store"
    fill(path)
    with hansard.open(path) as store:
        store.delete("a")
        store.delete("b")
        assert {(hit.session, hit.seq) for hit in store.search("lion")} == {("c", 1)}
        assert in_index(path, WORDS["b"])
        store.compact()
        assert not in_index(path, WORDS["b"])
        assert {(hit.session, hit.seq) for hit in store.search("lion")} == {("c", 1)}
        assert in_index(path, WORDS["a"])
        assert not in_index(path, WORDS["later"])
        assert not in_index(path, WORDS["b"])
        store.restore("a")
        assert {(hit.session, hit.seq) for hit in store.search("lion")} == {("a", 1), ("a", 2)}


@pytest.mark.parametrize("at", ["DROP TABLE", "index_text", "index_log", "index_unread"])
def test_an_erasure_that_fails_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Texts and positions are removed in one transaction: stopped anywhere, every message is found."""
    path = tmp_path / "store"
    fill(path)
    real = Storage.do

    def failing(self: Storage, statement: str, *values: Any) -> None:
        if at in statement and not values:
            raise KeyboardInterrupt
        real(self, statement, *values)

    with hansard.open(path) as store:
        store.session("b").redact(1)
        with monkeypatch.context() as patch:
            patch.setattr(Storage, "do", failing)
            with pytest.raises(KeyboardInterrupt):
                store.compact()
        assert {(hit.session, hit.seq) for hit in store.search("lion")} == {("a", 1), ("a", 2)}
        store.compact()
        assert leaks(path, WORDS["b"]) == []
        assert {(hit.session, hit.seq) for hit in store.search("lion")} == {("a", 1), ("a", 2)}


@pytest.mark.parametrize(
    "name", ["redacted", "scrubbed", "title", "value", "purged", "created again"]
)
def test_compact_erases_what_was_removed_from_all_files(tmp_path: Path, name: str) -> None:
    """N-45, N-66: after `compact`, neither logs nor index contain it, and the write-ahead log is empty."""
    path, word = tmp_path / "store", "kwvzrqhjxkwv"
    with hansard.open(path) as store:
        session = store.session(name)
        session.set_title(word if name in {"title", "created again"} else "talk")
        session.set_metadata(user=word if name == "value" else "u")
        text = word if name in {"redacted", "scrubbed", "purged"} else "hello"
        seq = session.add_message({"role": "user", "content": f"my {text} lion"}).seq
        session.add_message({"role": "user", "content": "lion"})
        store.search("lion")
        session.set_title("another")
        store.search("lion")
        assert in_index(path, word)
        if name == "redacted":
            session.redact(seq)
        elif name in {"purged", "created again"}:
            store.delete(name)
            store.purge(name)
        else:
            session.scrub(word)
        if name == "created again":
            session.add_message({"role": "user", "content": "lion"})
        store.compact()
        assert leaks(path, word) == []
        database = index_of(path)
        # One page: the record that nothing is left to erase.
        assert database.with_name(f"{database.name}-wal").stat().st_size < 2 * 4096
        assert len(store.search("lion")) == {"redacted": 1, "purged": 0, "created again": 1}.get(
            name, 2
        )


def test_compact_removes_an_index_that_came_with_a_copy(tmp_path: Path) -> None:
    """F-155: `compact` removes the index of a copied store, even before the first listing."""
    fill(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with hansard.open(tmp_path / "copy") as store:
        store.session("a").redact(1)
        store.compact()
        assert leaks(tmp_path / "copy", WORDS["a"]) == []


def test_nothing_is_erased_if_nothing_was_removed(tmp_path: Path) -> None:
    """`compact` keeps the texts of a store in which nothing was redacted, dropped or deleted."""
    fill(tmp_path / "store")
    with hansard.open(tmp_path / "store") as store:
        store.session("a").set_title("another title")
        store.search("lion")
        store.compact()
        with closing(sqlite3.connect(index_of(tmp_path / "store"))) as connection:
            assert connection.execute("SELECT count(*) FROM index_log").fetchone() == (3,)


def test_texts_are_read_inside_the_transaction_that_stores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a redaction comes between reading a text and storing it, the next search sees it."""
    states: list[bool] = []
    real = text_index.TextIndexer._read

    def watched(self: text_index.TextIndexer, session_id: str) -> None:
        states.append(self._storage._connection.in_transaction)
        real(self, session_id)

    monkeypatch.setattr(text_index.TextIndexer, "_read", watched)
    fill(tmp_path / "store")
    assert states == [True] * 3
