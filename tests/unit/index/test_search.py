"""`store.search`: hits, their places, and what is excluded."""

import random
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Store
from hansard.index import sqlite_storage, text_index
from hansard.index.sqlite_storage import TextLog
from tests.unit.disk_probe import flip, index_of
from tests.unit.index.random_store import RandomStore


def say(store: Store, session: str, *texts: str, role: str = "user") -> None:
    """Add messages to a session."""
    store.session(session).add_messages([{"role": role, "content": text} for text in texts])


def places(store: Store, text: str, **options: Any) -> list[tuple[str, int]]:
    """Return session and seq of each hit, sorted."""
    return sorted((hit.session, hit.seq) for hit in store.search(text, **options))


def test_a_hit_has_place_snippet_and_title(store: Store) -> None:
    """A hit has session, seq, time, role, a snippet, the matches in it, and the title."""
    say(store, "a", "first", "the REFUND\nof my\x1b[31m order")
    store.session("a").set_title("Orders")
    (hit,) = store.search("refund")
    assert (hit.session, hit.seq, hit.role, hit.title) == ("a", 2, "user", "Orders")
    assert hit.snippet == "the REFUND of my [31m order"
    assert [hit.snippet[start:end] for start, end in hit.matches] == ["REFUND"]
    assert hit.rank > 0
    assert hit.time == [event.time for event in store.session("a").events()][1]
    say(store, "a", "word " * 300_000 + "zebra")
    (hit,) = store.search("zebra")
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("word zebra")


def test_words_phrases_beginnings_and_exclusions(store: Store) -> None:
    """All words, a phrase, the beginning of a word, one of two words, and excluded words."""
    say(store, "a", "red apple pie", "green apple", "pie of red cherries", "Café au lait")
    assert places(store, "red apple") == [("a", 1)]
    assert places(store, '"apple pie"') == [("a", 1)]
    assert places(store, '"pie apple"') == []
    assert places(store, "app*") == [("a", 1), ("a", 2)]
    assert places(store, "green OR cherries") == [("a", 2), ("a", 3)]
    assert places(store, "apple -red") == [("a", 2)]
    assert places(store, "CAFE") == places(store, "café") == [("a", 4)]


@pytest.mark.parametrize("word", ["退款", "款请", "払い", "환불", "เงิน", "abc", "中"])
def test_scripts_without_spaces(store: Store, word: str) -> None:
    """In scripts without spaces, any run of characters is found inside of a longer one."""
    say(store, "a", "我要退款请求。abc中文", "返金の払い戻し", "환불을 원해요", "คืนเงินให้ฉัน")
    hits = store.search(word)
    assert len(hits) == 1
    assert word in hits[0].snippet
    assert [hits[0].snippet[start:end] for start, end in hits[0].matches] == [word]
    assert places(store, "款退") == []


def test_hits_are_sorted_by_rank_then_time_and_a_limit_returns_the_first(
    store: Store, rng: random.Random
) -> None:
    """More matches and shorter texts rank higher; of equal ranks, newer hits come first."""
    say(store, "b", "pear", "word " * 200 + "pear", "pear pear pear")
    say(store, "a", "pear", "unlike")
    ranked = store.search("pear")
    assert [(hit.session, hit.seq) for hit in ranked] == [("b", 3), ("a", 1), ("b", 1), ("b", 2)]
    assert [hit.rank for hit in ranked] == sorted([hit.rank for hit in ranked], reverse=True)
    for number in range(12):
        texts = ["apple " * rng.choice([1, 1, 2, 3]) for _ in range(4)]
        say(store, f"s{rng.randrange(4)}", *texts, "nothing " * number)
    found = store.search("apple", limit=1000)
    assert len(found) == 48
    for limit in (1, 2, 3, 5, 11, 12, 40, 48):
        assert store.search("apple", limit=limit) == found[:limit]


def test_a_frequent_word_is_found_as_a_rare_one_is(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways to find the newest hits return the same: all that match, sorted, or looked up by time."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        RandomStore(store, rng, [tmp_path]).do(80)
        for number in range(30):
            say(store, f"s{number % 7}", "x" * 20, "refund of Müller", role="tool")
        for text in ("x*", "refund", "muller -x*", "refund OR " + "x" * 20):
            for scope in ("", "a/", "s3"):
                for options in ({}, {"role": "user"}, {"limit": 3}, {"since": a_moment_ago()}):
                    found = []
                    for lookup in (0, 1 << 40):
                        monkeypatch.setattr(sqlite_storage, "_LOOKUP", lookup)
                        some = store.scoped(scope) if scope else store
                        found.append(some.search(text, **options))
                    assert found[0] == found[1]


def test_a_frequent_beginning_of_a_word_is_not_looked_up_in_each_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-52: each lookup of `x*` would read all words that begin with it; of a word, it reads one place."""
    asked: list[str] = []
    real = sqlite_storage.Storage.all

    def recorded(storage: sqlite_storage.Storage, statement: str, *values: Any) -> list[Any]:
        asked.append(statement)
        return real(storage, statement, *values)

    monkeypatch.setattr(sqlite_storage.Storage, "all", recorded)
    monkeypatch.setattr(sqlite_storage, "_LOOKUP", 0)  # every word is frequent
    with hansard.open(tmp_path / "store", durability="os") as store:
        say(store, "a", "xylophone")
        for text, looked_up in (("xylophone", True), ("xylo*", False), ("b OR xylo*", False)):
            asked.clear()
            assert places(store, text) == [("a", 1)]
            assert any("CROSS JOIN" in statement for statement in asked) is looked_up
            assert any("AND rowid IN" in statement for statement in asked) is looked_up


def a_moment_ago() -> datetime:
    """Return a time before which some of a test's messages were added."""
    return datetime.now(UTC) - timedelta(milliseconds=20)


def test_filters(store: Store) -> None:
    """Prefix, session, role and time narrow a search; a missing session has no hits."""
    say(store, "x/a", "apple")
    say(store, "x/b", "apple", role="assistant")
    say(store, "y/a", "apple")
    assert places(store, "apple", prefix="x/") == [("x/a", 1), ("x/b", 1)]
    assert places(store, "apple", session="x/b") == [("x/b", 1)]
    assert places(store, "apple", session="x/b", prefix="y/") == []
    assert places(store, "apple", session="none") == []
    assert places(store, "apple", role="assistant") == [("x/b", 1)]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "pear"}
    store.session("x/c").add_message({"role": "user", "content": [result]})
    assert places(store, "pear", role="tool") == [("x/c", 1)]
    assert places(store, "pear", role="user") == []
    cut = store.session("y/a").state().created
    assert places(store, "apple", since=cut) == [("y/a", 1)]
    assert places(store, "apple", until=cut) == [("x/a", 1), ("x/b", 1)]
    later = datetime.now(UTC) + timedelta(days=1)
    assert places(store, "apple", since=later) == []


def test_invalid_arguments_are_refused(store: Store) -> None:
    """A wrong limit, a time without a zone and a query without a word are a `ValueError`."""
    with pytest.raises(ValueError, match="limit"):
        store.search("apple", limit=0)
    with pytest.raises(ValueError, match="time zone"):
        store.search("apple", since=datetime(2026, 1, 1))  # noqa: DTZ001 - on purpose
    with pytest.raises(ValueError, match="no word"):
        store.search("?!")


@pytest.mark.parametrize(
    ("options", "hits"),
    [
        ({"prefix": "\ud800"}, 0),
        ({"role": "\ud800"}, 0),
        ({"role": ["user"]}, None),
        ({"limit": 2**70}, 1),
    ],
)
def test_an_odd_argument_is_not_taken_for_a_damaged_index(
    tmp_path: Path, options: dict[str, Any], hits: int | None
) -> None:
    """What the database cannot take as a value is answered without it: the shared file stays in use."""
    with hansard.open(tmp_path / "s") as store:
        say(store, "a", "refund")
        assert store.search("refund")
        before = index_of(tmp_path / "s").stat().st_ino
        if hits is None:
            with pytest.raises(TypeError):
                store.search("refund", **options)
        else:
            assert len(store.search("refund", **options)) == hits
        assert len(store.sessions(limit=2**70)) == 1
        assert store.search("refund")
        assert index_of(tmp_path / "s").stat().st_ino == before


def test_a_streamed_message_is_found_when_it_is_finished(store: Store) -> None:
    """The text of a stream is found once, as the finished message, and parts are not."""
    session = store.session("a")
    stream = session.stream(gather=0)
    stream.write("zebra and ")
    stream.write("li")
    say(store, "a", "hello")
    assert places(store, "zebra") == []
    stream.write("on")
    stream.finish()
    assert places(store, '"zebra and lion"') == places(store, "zebra") == [("a", 5)]
    session.stream(gather=0).write("giraffe")
    say(store, "a", "hello")
    assert places(store, "giraffe") == []
    assert session.messages()[-2]["content"] == "giraffe"


def test_a_damaged_session_hides_no_other(tmp_path: Path) -> None:
    """N-35: a damaged session is not found, and raises if it is searched alone; all others are found."""
    with hansard.open(tmp_path / "store") as store:
        for name in "abc":
            say(store, name, "zebra", "lion")
        (log,) = (tmp_path / "store" / "sessions" / "b").glob("log.jsonl")
        flip(log)
        assert places(store, "zebra") == [("a", 1), ("c", 1)]
        with pytest.raises(hansard.Damaged):
            store.search("zebra", session="b")


def test_a_missing_parent_hides_only_its_forks(tmp_path: Path) -> None:
    """N-35: if the directory of a parent was removed, its forks are damaged, and others are found."""
    with hansard.open(tmp_path / "store") as store:
        say(store, "a", "zebra")
        store.session("a").fork("b")
        say(store, "c", "zebra")
        assert places(store, "zebra") == [("a", 1), ("c", 1)]
    (tmp_path / "store" / "sessions" / "a").rename(tmp_path / "away")
    with hansard.open(tmp_path / "store") as store:
        assert places(store, "zebra") == [("c", 1)]


def test_a_fork_that_scrubbed_is_found_by_what_it_shows(store: Store) -> None:
    """N-66: a fork's own text of an inherited message is found in it, and the parent's in the parent."""
    say(store, "a", "a zebra and tiger-secret-7")
    store.session("a").fork("b").scrub("tiger-secret-7")
    assert places(store, "zebra") == [("a", 1), ("b", 1)]
    assert places(store, "tiger") == [("a", 1)]
    assert places(store, "tiger", session="b") == []
    assert places(store, "zebra", session="b") == [("b", 1)]
    assert places(store, "zebra -tiger") == [("b", 1)]
    store.delete("a")
    assert places(store, "zebra") == [("b", 1)]


def test_a_sqlite_without_fts5_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without FTS5, a search names what is missing; a listing works."""
    monkeypatch.setattr(
        sqlite_storage, "WORDS", "CREATE VIRTUAL TABLE index_words USING fts99(body)"
    )
    with hansard.open(tmp_path / "store") as store:
        say(store, "a", "zebra")
        with pytest.raises(hansard.BackendUnavailable, match="FTS5"):
            store.search("zebra")
        assert store.count() == 1


def test_progress_counts_events(store: Store) -> None:
    """`progress` gets the number of events read and their total; it is not called if nothing is new."""
    for number in range(30):
        say(store, f"s{number}", *["lion"] * 10)
    calls: list[tuple[int, int]] = []
    store.search("lion", progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (300, 300)
    calls.clear()
    store.search("lion", progress=lambda done, total: calls.append((done, total)))
    assert calls == []
    say(store, "s1", "zebra")
    store.search("lion", progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (1, 1)


class Enough(Exception):
    """Raised by `progress`."""


def test_an_interrupted_build_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that the caller stops loses at most one step; the next search completes it."""
    monkeypatch.setattr(text_index, "STEP", 20_000)
    with hansard.open(tmp_path / "store", durability="os", auto_compact=False) as store:
        for number in range(20):
            say(store, f"s{number:02}", *["zebra " * 100] * 20)

        def stop(done: int, total: int) -> None:
            if done > total // 2:
                raise Enough

        with pytest.raises(Enough):
            store.search("zebra", progress=stop)
        connection = sqlite3.connect(index_of(tmp_path / "store"))
        (kept,) = connection.execute("SELECT count(*) FROM index_text").fetchone()
        connection.close()
        assert 100 < kept < 300
        assert len(store.search("zebra", limit=1000)) == 400


def test_a_failed_read_stores_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-35: if a log cannot be read to its end, its texts are removed, but not those that a fork shows."""
    monkeypatch.setattr(text_index, "STEP", 200)
    insert = text_index.TextIndexer._insert

    def failing(self: text_index.TextIndexer, log: TextLog, seq: int, *rest: Any) -> None:
        insert(self, log, seq, *rest)
        if log.id == "a" and seq >= 250:
            raise hansard.Damaged("log", 0, "unreadable", "")

    with hansard.open(tmp_path / "store", durability="os", auto_compact=False) as store:
        say(store, "a", *["zebra"] * 300)
        store.session("a").fork("b", at=200)
        with monkeypatch.context() as patch:
            patch.setattr(text_index.TextIndexer, "_insert", failing)
            found = places(store, "zebra", limit=1000)
            assert found == [("b", seq) for seq in range(1, 201)]
        say(store, "a", "lion")
        assert len(places(store, "zebra", limit=1000)) == 300
        with sqlite3.connect(index_of(tmp_path / "store")) as connection:
            assert connection.execute("SELECT count(*) FROM index_text").fetchone() == (301,)
        connection.close()
