"""Listing and search in PostgreSQL give the same answers as in files."""

import random
from pathlib import Path
from typing import Any

import psycopg
import pytest

import hansard
from hansard import Store
from hansard.index import postgres_storage
from hansard.index.index import of
from hansard.index.postgres_storage import PostgresStorage
from tests.contract.backends import together
from tests.postgres.helpers import message
from tests.postgres.proxy import Proxy
from tests.postgres.server import sql
from tests.unit.index.random_store import IDS, RandomStore
from tests.unit.index.test_listing import compare, folders

__all__ = ["folders"]

#: Queries with words of most messages, of some, and of none.
QUESTIONS = (
    "refund", "muller", '"refund of"', "of -refund", "str*", "message", "mes*", "1 OR 2", "100 quoted",
    "user@example.com", '"日本"', "nothing-like-it",
)  # fmt: skip

TEXTS = (
    "refund of Müller, message 1", "write to user@example.com about src/app.py:10",
    "日本語のテキスト と refund", "naïve STRASSE straße 100% quoted", "of of of refund",
)  # fmt: skip


@pytest.mark.slow
def test_a_storage_answers_as_files_do(
    store: Store, tmp_path: Path, folders: list[Path], seed: int
) -> None:
    """N-86: after random calls, all answers agree with the logs, and hits are those of the local index."""
    with hansard.open(tmp_path / "files", durability="os", auto_compact=False) as files:
        pairs = [(found, random.Random(seed)) for found in (files, store)]
        busy = [RandomStore(found, rng, folders) for found, rng in pairs]
        for _ in range(3):
            for one, (found, rng) in zip(busy, pairs, strict=True):
                one.do(16)
                name = rng.choice(IDS)
                if found.exists(name) or name not in found.trash():
                    found.session(name).add_message(message(rng.choice(TEXTS)))
            compare(random.Random(seed), store, folders)
            for text in QUESTIONS:
                for where in ({}, {"prefix": "a"}, {"role": "user"}):
                    assert hits(store, text, where) == hits(files, text, where), (text, where)
        # Both are on the server, not in a private database of this process.
        index = of(store._backend)
        assert index._searcher is not None
        assert isinstance(index._storage, PostgresStorage)
        assert isinstance(index._searcher._storage, PostgresStorage)


def hits(store: Store, text: str, where: dict[str, Any]) -> list[Any]:
    """Return the hits of a search, sorted, without their times."""
    found = store.search(text, limit=1000, **where)
    return sorted((h.session, h.seq, h.role, h.snippet, h.matches, h.rank, h.title) for h in found)


def say(store: Store, *texts: str, session: str = "s") -> None:
    """Append messages to a session."""
    store.session(session).add_messages([message(text) for text in texts])


def test_only_what_changed_is_read(url: str, store: Store) -> None:
    """N-76: a listing after one append describes one session again, and no other."""
    for number in range(20):
        say(store, "x", session=f"s{number}")
    assert store.count() == 20
    ask = "SELECT id, xmin::text FROM hansard.index_session"
    before = dict(sql(url, ask))
    say(store, "y", session="s7")
    assert store.count() == 20
    after = dict(sql(url, ask))
    assert {found for found in before if before[found] != after[found]} == {"s7"}
    assert sql(url, "SELECT * FROM hansard.index_purged") == []


@pytest.mark.parametrize("change", ["append", "delete and restore", "purge"])
def test_a_change_during_a_refresh_is_reported_by_the_next(change: str, store: Store) -> None:
    """N-76: a refresh removes no mark of a row that was written since it read the marks."""
    say(store, "x")
    backend = store._backend
    changed = backend.changed("marks")
    assert changed.ids == {"s"}
    if change == "append":
        say(store, "y")
    else:
        backend.delete("s")
        (backend.purge if change == "purge" else backend.restore)("s")
    changed.done()
    changed = backend.changed("marks")
    assert changed.ids == {"s"}
    changed.done()
    assert backend.version() == "marks"


def test_a_locked_session_does_not_block_a_listing(url: str, store: Store) -> None:
    """N-76: a refresh waits for no writer, and leaves the mark of a row that is locked."""
    say(store, "x")
    assert store.count() == 1
    say(store, "y")
    with psycopg.connect(url) as holder:
        holder.execute("SELECT * FROM hansard.sessions FOR UPDATE")
        assert [info.seq for info in store.sessions().items] == [2]
    assert not store._backend.version()
    say(store, "z")
    assert [info.seq for info in store.sessions().items] == [3]
    assert store._backend.version() == "marks"


def test_a_read_only_store_finds_new_messages_and_writes_nothing(url: str, store: Store) -> None:
    """N-62: a read-only store lists and finds events that the tables lack, and does not change the tables."""
    ask = (
        "SELECT (SELECT count(*) FROM hansard.index_words), count(*) FILTER (WHERE marked) "
        "FROM hansard.sessions"
    )
    for number in range(3):
        say(store, "hello", session=f"s{number}")
    assert len(store.search("hello")) == 3
    say(store, "hello again", session="s0")
    assert sql(url, ask) == [(3, 1)]
    with hansard.open(url, read_only=True) as reader:
        assert [info.seq for info in reader.sessions().items] == [2, 1, 1]
        assert [hit.seq for hit in reader.search("again")] == [2]
        assert len(reader.search("hello")) == 4
    assert sql(url, ask) == [(3, 1)]


def test_awkward_texts_and_names_are_found(store: Store) -> None:
    """N-3, N-7: NUL, very long ids, keys, words and texts are listed and found."""
    long_id = "".join(chr(0x1F600 + number % 64) for number in range(1024))
    other = "x/" + "é" * 1000
    say(store, "nul \0 inside " + "я" * 1500 + " end", session=long_id)
    store.session(long_id).set_metadata(title="a\0b", **{"k" * 5000: "v"})
    many = " ".join(f"w{number}" for number in range(120_000))
    say(store, "many " + many, "the " * 20_000 + "needle in the hay", session=other)
    assert [info.id for info in store.sessions().items] == sorted([long_id, other])
    assert store.count(title="A\0B") == 1
    assert store.count(where={"k" * 5000: "v"}) == 1
    assert [info.title for info in store.sessions(prefix=long_id[:9]).items] == ["a\0b"]
    for text, found in (
        ("inside", [(long_id, 1)]),
        ("end " + "Я" * 1500, [(long_id, 1)]),
        ('"needle in the hay"', [(other, 2)]),
        ('"hay needle"', []),
        ("w123 many", [(other, 1)]),
    ):
        assert [(hit.session, hit.seq) for hit in store.search(text)] == found


def test_a_listing_survives_a_lost_connection(url: str, proxy: Proxy) -> None:
    """N-56: a request or answer that is lost during a listing is repeated, with the same result."""
    with hansard.open(proxy.through(url)) as store:
        say(store, "x", session="a")
        assert store.count() == 1
        say(store, "y", session="b")
        for direction in ("answer", "question"):
            proxy.cut_after(0, direction)
            assert [info.id for info in store.sessions().items] == ["a", "b"]
            assert proxy.lost.is_set()
        proxy.cut()
        assert [hit.session for hit in store.search("y")] == ["b"]


def test_concurrent_refreshes_agree(url: str, store: Store) -> None:
    """N-76: four stores that list and search concurrently, while sessions grow, agree without an error."""
    for number in range(12):
        say(store, f"word{number}", session=f"s{number}")

    def ask() -> list[object]:
        found: list[object] = []
        with hansard.open(url) as own:
            for turn in range(3):
                say(own, f"turn{turn}", session="s0")
                hits = [hit.session for hit in own.search("word7")]
                found.append((len(own.sessions().items), hits))
        return found

    assert together([ask] * 4) == [[(12, ["s7"])] * 3] * 4
    assert [info.seq for info in store.sessions(prefix="s0").items] == [13]
    assert len(store.search("turn1")) == 4


def test_an_emptied_index_is_rebuilt(url: str, store: Store) -> None:
    """N-86: after its tables are emptied, the index gives the same answers."""
    for number in range(6):
        say(store, f"hello {number}", session=f"s{number}")
    before = (store.sessions(order="-updated").items, store.search("hello"))
    for table in ("index_purged", *postgres_storage.TABLES):
        sql(url, f"DELETE FROM hansard.{table}")  # noqa: S608 - its own names
    assert (store.sessions(order="-updated").items, store.search("hello")) == before


@pytest.mark.usefixtures("store")
def test_texts_of_the_index_sort_by_bytes(url: str) -> None:
    """N-69: prefixes are ranges, and the boundary of a scope: no column sorts by a language."""
    rows = sql(
        url,
        "SELECT collation_name FROM information_schema.columns WHERE table_schema = 'hansard' "
        "AND starts_with(table_name, 'index_') AND data_type IN ('character varying', 'text')",
    )
    assert len(rows) > 20
    assert set(rows) == {("C",)}


def test_the_index_finds_its_tables_whatever_the_search_path_is(store: Store) -> None:
    """Each transaction sets its own: neither a temporary table nor another path changes an answer."""
    say(store, "zebra", session="a")
    assert store.count() == len(store.search("zebra")) == 1
    index = of(store._backend)
    assert index._searcher is not None
    for part in (index, index._searcher):
        assert isinstance(part._storage, PostgresStorage)
        with part._storage._dedicated.using() as connection:
            connection.execute("CREATE TEMP TABLE index_session (id varchar)")
            connection.execute("CREATE TEMP TABLE index_words (id varchar)")
            connection.execute("SET search_path = public")
    say(store, "zebra", session="b")
    assert store.count() == len(store.search("zebra")) == 2
    assert connection.execute("SHOW search_path").fetchone() == ("public",)


def test_a_purge_removes_its_rows_of_the_index(url: str, store: Store) -> None:
    """A purged session has no row in a table of the index, before anyone lists or searches again."""
    for session_id in ("a", "b"):
        store.create(session_id, metadata={"title": f"title-{session_id}", "user": session_id})
        say(store, f"zebra{session_id}", session=session_id)
    assert len(store.search("zebra*")) == 2
    assert store.stats().messages == 2
    store.delete("a")
    store.purge("a")
    for table, left in {
        "session": 1,
        "entry": 1,
        "log": 1,
        "tally": 1,
        "text": 2,
        "words": 2,
    }.items():
        found = sql(url, f"SELECT count(*) FROM hansard.index_{table}")  # noqa: S608 - our own names
        assert (table, found) == (table, [(left,)])
    assert [hit.session for hit in store.search("zebra*")] == ["b"]
