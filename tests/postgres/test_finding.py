"""Listing and search in PostgreSQL give the same answers as in files."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import hansard
from hansard import Store
from hansard.backend.postgres.index_tables import PostgresTables
from hansard.index import listing, postgres_storage
from hansard.index.index import of
from hansard.index.postgres_storage import PostgresStorage
from hansard.index.search import expression
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server
from tests.unit.index.random_store import IDS, KEYS, TITLES, VALUES, RandomStore

#: Queries with words of most messages, of some, and of none.
QUESTIONS = (
    "refund", "muller", '"refund of"', "of -refund", "str*", "message", "mes*", "1 OR 2", "100 quoted",
    "user@example.com", '"日本"', "nothing-like-it",
)  # fmt: skip

TEXTS = (
    "refund of Müller, message 1",
    "write to user@example.com about src/app.py:10",
    "日本語のテキスト と refund",
    "naïve STRASSE straße 100% quoted",
    "of of of refund",
)


def told(info: hansard.SessionInfo) -> Any:
    """Return the fields of a listing that do not depend on the backend."""
    return (
        info.id, info.title, info.seq, info.message_count, info.input_tokens, info.output_tokens,
        info.cost, info.parent, info.forked_at, info.children, info.workspace, info.archived, info.closed,
        info.metadata, info.damaged,
    )  # fmt: skip


def listed(store: Store, **wanted: Any) -> list[Any]:
    """Return all pages of a listing, three sessions each."""
    found: list[Any] = []
    cursor = None
    while True:
        page = store.sessions(limit=3, cursor=cursor, **wanted)
        found += [told(info) for info in page.items]
        cursor = page.next
        if cursor is None:
            assert found == [told(info) for info in store.sessions(**wanted).items]
            assert len(found) == store.count(
                **{name: value for name, value in wanted.items() if name != "order"}
            )
            return found


def answers(store: Store, rng: random.Random, folders: list[Path]) -> list[Any]:
    """Return the answers of a store to all queries."""
    asked: list[dict[str, Any]] = [
        {"order": sign + order}
        for order in listing.ORDERS
        if order != "bytes"
        for sign in ("", "-")
    ]
    asked += [{"where": {key: rng.choice([*VALUES, None])}} for key in KEYS]
    asked += [{"prefix": prefix} for prefix in ("a", "a/1", "B", "b/😀", "z")]
    asked += [{"title": title} for title in (*TITLES, "REFUND")]
    asked += [{"archived": True}, {"archived": False, "order": "-updated"}, {"damaged": True}]
    asked += [{"parent": rng.choice(IDS)}, {"workspace": rng.choice(folders)}]
    found: list[Any] = [listed(store, **wanted) for wanted in asked]
    for text in QUESTIONS:
        for where in ({}, {"prefix": "a"}, {"role": "user"}):
            hits = store.search(text, limit=1000, **where)  # type: ignore[arg-type]
            found.append(
                sorted(
                    (h.session, h.seq, h.role, h.snippet, h.matches, h.rank, h.title) for h in hits
                )
            )
    stats = store.stats()
    found.append(
        (stats.sessions, stats.archived, stats.forks, stats.events, stats.messages, stats.models)
    )
    newest = store.latest()
    found.append(None if newest is None else newest.id)
    found += [store.session(id).children() for id in IDS if store.exists(id)]
    return found


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Return workspaces of sessions."""
    found = [tmp_path / name for name in ("one", "two")]
    for folder in found:
        folder.mkdir()
    return found


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Return a store in an empty database."""
    with hansard.open(url) as found:
        yield found


@pytest.mark.slow
def test_a_storage_answers_as_files_do(
    store: Store, tmp_path: Path, folders: list[Path], seed: int
) -> None:
    """N-86: after the same random calls, pages, counts, hits and sums are those of the local index."""
    with hansard.open(tmp_path / "files", durability="os", auto_compact=False) as files:
        pairs = [(found, random.Random(seed), random.Random(seed)) for found in (files, store)]
        busy = [RandomStore(found, rng, folders) for found, rng, _ in pairs]
        for step in range(3):
            for one, (found, rng, _) in zip(busy, pairs, strict=True):
                one.do(16)
                name = rng.choice(IDS)
                if found.exists(name) or name not in found.trash():
                    found.session(name).add_message({"role": "user", "content": rng.choice(TEXTS)})
            here, there = (answers(found, asking, folders) for found, _, asking in pairs)
            for place, (one_said, other_said) in enumerate(zip(here, there, strict=True)):
                assert one_said == other_said, (step, place)
        # Both are on the server, not in a private database of this process.
        index = of(store._backend)
        assert index._aside is not None
        assert isinstance(index._storage, PostgresStorage)
        assert isinstance(index._aside._storage, PostgresStorage)


def test_only_what_changed_is_read(url: str, store: Store, server: Server) -> None:
    """N-76: a listing after one append describes one session again, and no other."""
    for number in range(20):
        store.session(f"s{number}").add_message({"role": "user", "content": "x"})
    assert store.count() == 20
    name = url.rsplit("/", 1)[1]
    ask = "SELECT id, xmin::text FROM hansard.index_session"
    before: dict[Any, Any] = dict(server.execute(ask, database=name))  # type: ignore[arg-type]
    store.session("s7").add_message({"role": "user", "content": "y"})
    assert store.count() == 20
    after: dict[Any, Any] = dict(server.execute(ask, database=name))  # type: ignore[arg-type]
    assert {found for found in before if before[found] != after[found]} == {"s7"}
    assert server.execute("SELECT * FROM hansard.index_purged", database=name) == []


@pytest.mark.parametrize("change", ["append", "delete and restore", "purge"])
def test_a_change_during_a_refresh_is_reported_by_the_next(change: str, store: Store) -> None:
    """N-76: a refresh removes no mark of a row that was written since it read the marks."""
    store.session("a").add_message({"role": "user", "content": "x"})
    changed = store._backend.changed("marks")
    assert changed.ids == {"a"}
    if change == "append":
        store.session("a").add_message({"role": "user", "content": "y"})
    else:
        store._backend.delete("a")
        (store._backend.purge if change == "purge" else store._backend.restore)("a")
    changed.done()
    changed = store._backend.changed("marks")
    assert changed.ids == {"a"}
    changed.done()
    assert store._backend.version(appends=True) == "marks"


def test_a_locked_session_does_not_block_a_listing(url: str, store: Store) -> None:
    """N-76: a refresh waits for no writer, and leaves the mark of a row that is locked."""
    store.session("a").add_message({"role": "user", "content": "x"})
    assert store.count() == 1
    store.session("a").add_message({"role": "user", "content": "y"})
    with psycopg.connect(url) as holder:
        holder.execute("SELECT * FROM hansard.sessions FOR UPDATE")
        assert [info.seq for info in store.sessions().items] == [2]
    assert not store._backend.version(appends=True)
    store.session("a").add_message({"role": "user", "content": "z"})
    assert [info.seq for info in store.sessions().items] == [3]
    assert store._backend.version(appends=True) == "marks"


@pytest.mark.parametrize("search_index", [True, False])
def test_a_read_only_store_finds_new_messages_and_writes_nothing(
    url: str, server: Server, *, search_index: bool
) -> None:
    """N-62: a read-only store lists and finds what is not in the tables yet, and does not change these."""
    name = url.rsplit("/", 1)[1]
    ask = (
        "SELECT (SELECT count(*) FROM hansard.index_words), count(*) FILTER (WHERE marked) "
        "FROM hansard.sessions"
    )
    with hansard.open(url) as store:
        for number in range(3):
            store.session(f"s{number}").add_message({"role": "user", "content": "hello"})
        assert len(store.search("hello")) == 3
        store.session("s0").add_message({"role": "user", "content": "hello again"})
        before = server.execute(ask, database=name)
        assert before == [(3, 1)]
        with hansard.open(url, read_only=True, search_index=search_index) as reader:
            assert [info.seq for info in reader.sessions().items] == [2, 1, 1]
            assert [hit.seq for hit in reader.search("again")] == [2]
            assert len(reader.search("hello")) == 4
        assert server.execute(ask, database=name) == before


def test_search_index_false_stores_no_texts(url: str, server: Server) -> None:
    """With search_index=False, search works, and the database has no second copy of the texts."""
    name = url.rsplit("/", 1)[1]
    ask = "SELECT count(*) FROM hansard.index_words"
    with hansard.open(url) as store:
        store.session("a").add_message({"role": "user", "content": "hello there"})
        assert len(store.search("hello")) == 1
        assert server.execute(ask, database=name) == [(1,)]
    with hansard.open(url, search_index=False) as store:
        assert server.execute(ask, database=name) == [(0,)]
        assert [hit.session for hit in store.search('"hello there"')] == ["a"]
        assert store.count() == 1
        assert server.execute(ask, database=name) == [(0,)]


def test_awkward_texts_and_names_are_found(store: Store) -> None:
    """N-3, N-7: NUL, very long ids, keys, words and texts are listed and found."""
    long_id = "".join(chr(0x1F600 + number % 64) for number in range(1024))
    other = "x/" + "é" * 1000
    store.session(long_id).add_message(
        {"role": "user", "content": "nul \0 inside " + "я" * 1500 + " end"}
    )
    store.session(long_id).set_metadata(title="a\0b", **{"k" * 5000: "v"})
    many = " ".join(f"w{number}" for number in range(120_000))
    store.session(other).add_message({"role": "user", "content": "many " + many})
    store.session(other).add_message(
        {"role": "user", "content": "the " * 20_000 + "needle in the hay"}
    )
    assert [info.id for info in store.sessions().items] == sorted([long_id, other])
    assert store.count(title="A\0B") == 1
    assert store.count(where={"k" * 5000: "v"}) == 1
    assert [info.title for info in store.sessions(prefix=long_id[:9]).items] == ["a\0b"]
    assert [hit.seq for hit in store.search("inside")] == [1]
    assert [hit.seq for hit in store.search("end " + "Я" * 1500)] == [1]
    assert [hit.seq for hit in store.search('"needle in the hay"')] == [2]
    assert store.search('"hay needle"') == []
    assert [hit.session for hit in store.search("w123 many")] == [other]


@pytest.mark.parametrize(
    ("typed", "asked", "doubtful"),
    [
        ("refund", "(('refund'))", False),
        ("Müller*", "(('muller':*))", False),
        ("a OR b c", "(('a') | ('b')) & (('c'))", False),
        ('"a b"', "(('a' & 'b'))", True),
        ("a -b", "((('a'))) & ! (('b'))", False),
        ('a -"b c"', "((('a'))) & ! (' ')", True),
    ],
)
def test_queries_are_translated_for_postgresql(typed: str, asked: str, *, doubtful: bool) -> None:
    """Words become words; phrases become words that all occur, and are checked afterwards."""
    assert postgres_storage.question(expression(typed)) == (asked, doubtful)


def test_a_listing_survives_a_lost_connection(url: str, proxy: Proxy) -> None:
    """N-56: a request or answer that is lost during a listing is repeated, with the same result."""
    with hansard.open(proxy.through(url)) as store:
        for number in range(5):
            store.session(f"s{number}").add_message({"role": "user", "content": "x"})
        assert store.count() == 5
        store.session("s5").add_message({"role": "user", "content": "y"})
        for lose in (proxy.lose_answer, proxy.lose_question):
            lose()
            assert [info.id for info in store.sessions().items] == [f"s{n}" for n in range(6)]
            assert proxy.lost.is_set()
        proxy.cut()
        assert [hit.session for hit in store.search("y")] == ["s5"]


def test_concurrent_refreshes_agree(url: str, store: Store) -> None:
    """N-76: four stores that list and search concurrently, while sessions grow, agree without an error."""
    for number in range(12):
        store.session(f"s{number}").add_message({"role": "user", "content": f"word{number}"})
    found: list[object] = []
    start = threading.Barrier(4)

    def ask() -> None:
        try:
            with hansard.open(url) as own:
                start.wait(60)
                for turn in range(3):
                    own.session("s0").add_message({"role": "user", "content": f"turn{turn}"})
                    listed_ids = sorted(info.id for info in own.sessions().items)
                    hits = [hit.session for hit in own.search("word7")]
                    found.append((len(listed_ids), hits))
        except BaseException as error:  # noqa: BLE001 - shown below
            found.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [(12, ["s7"])] * 12
    assert [info.seq for info in store.sessions(prefix="s0").items] == [13]
    assert len(store.search("turn1")) == 4


def test_an_emptied_index_is_rebuilt(url: str, store: Store, server: Server) -> None:
    """N-86: after its tables are emptied, the index gives the same answers."""
    for number in range(6):
        session = store.session(f"s{number}")
        session.add_message({"role": "user", "content": f"hello {number}"})
    before = (store.sessions(order="-updated").items, store.search("hello"))
    name = url.rsplit("/", 1)[1]
    for (table,) in server.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'hansard' AND tablename LIKE 'index%'",
        database=name,
    ):
        server.execute(f"DELETE FROM hansard.{table}", database=name)  # noqa: S608 - its own names
    assert (store.sessions(order="-updated").items, store.search("hello")) == before


def test_texts_of_the_index_sort_by_bytes(url: str, server: Server, store: Store) -> None:
    """N-69: prefixes are ranges, and the boundary of a scope: no column sorts by a language."""
    del store
    name = url.rsplit("/", 1)[1]
    rows = server.execute(
        "SELECT table_name, column_name, collation_name FROM information_schema.columns "
        "WHERE table_schema = 'hansard' AND table_name LIKE 'index\\_%' "
        "AND data_type IN ('character varying', 'text')",
        database=name,
    )
    assert len(rows) > 20
    assert {row[2] for row in rows} == {"C"}


def test_the_index_finds_its_tables_whatever_the_search_path_is(url: str, store: Store) -> None:
    """Each transaction sets its own: neither a temporary table nor another path changes an answer."""
    store.session("a").add_message({"role": "user", "content": "zebra"})
    assert store.count() == len(store.search("zebra")) == 1
    index = of(store._backend)
    assert index._aside is not None
    for part in (index, index._aside):
        assert isinstance(part._storage, PostgresStorage)
        tables = part._storage._tables
        assert isinstance(tables, PostgresTables)
        with tables._connection.using() as connection:
            connection.execute("CREATE TEMP TABLE index_session (id varchar)")
            connection.execute("CREATE TEMP TABLE index_words (id varchar)")
            connection.execute("SET search_path = public")
    store.session("b").add_message({"role": "user", "content": "zebra"})
    assert store.count() == len(store.search("zebra")) == 2
    assert connection.execute("SHOW search_path").fetchone() == ("public",)


def test_a_purge_removes_its_rows_of_the_index(url: str, server: Server, store: Store) -> None:
    """A purged session has no row in a table of the index, before anyone lists or searches again."""
    name = url.rsplit("/", 1)[1]
    for session_id in ("a", "b"):
        store.create(session_id, metadata={"title": f"title-{session_id}", "user": session_id})
        store.session(session_id).add_message({"role": "user", "content": f"zebra{session_id}"})
    assert len(store.search("zebra*")) == 2
    assert store.stats().messages == 2
    store.delete("a")
    store.purge("a")

    def count(table: str) -> int:
        ask = f"SELECT count(*) FROM hansard.index_{table}"  # noqa: S608 - our own names
        return int(str(server.execute(ask, database=name)[0][0]))

    tables = ("session", "entry", "log", "tally")
    assert [count(table) for table in tables] == [1] * len(tables)
    assert (count("text"), count("words")) == (2, 2)
    assert [hit.session for hit in store.search("zebra*")] == ["b"]
