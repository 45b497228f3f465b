"""Measure first listings, a first search, and a search for a frequent word.

Listings and the frequent word have a time as their goal. The same by hand with SQLite is measured
alternately, and noted: a listing reads each log and writes a row, without checksums, forks or redactions; a
search is FTS5 over the texts, ready-made, as `sqlite-utils enable-fts` creates it.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final

import hansard
from tools.bench.finding import fill, fill_table, texts
from tools.bench.listing import fill as fill_sessions
from tools.bench.result import Result, claim_of
from tools.bench.workload import alternate, seconds

#: How many sessions are listed.
SESSIONS: Final = 10_000
MANY_SESSIONS: Final = 100_000
MEGABYTES: Final = 60
#: Of the store in which a frequent word is searched.
LARGE: Final = 1_200
ROUNDS: Final = 3
SEARCHES: Final = 15


def _list_by_hand(root: Path, table: Path) -> None:
    table.unlink(missing_ok=True)
    with closing(sqlite3.connect(table)) as connection:
        connection.execute(
            "CREATE TABLE session (id PRIMARY KEY, title, seq, created, updated, count)"
        )
        for log in sorted(root.glob("sessions/*/log.jsonl")):
            header, *events = [json.loads(line) for line in log.read_bytes().splitlines()]
            added = [event for event in events if event["kind"] == "message.added"]
            title = next((e["data"].get("metadata", {}).get("title") for e in events), None)
            connection.execute(
                "INSERT INTO session VALUES (?, ?, ?, ?, ?, ?)",
                (
                    log.parent.name,
                    title,
                    len(events),
                    header["time"],
                    events[-1]["time"],
                    len(added),
                ),
            )
        connection.commit()


def first_listing(directory: Path) -> Result:
    """A first listing of 10,000 sessions, and 1.5 s."""
    return _listing(directory, first_listing, SESSIONS, 1.5, ROUNDS)


def read_only_listing(directory: Path) -> Result:
    """A listing of 10,000 sessions by a process that may not write, and 1.5 s."""
    return _listing(directory, read_only_listing, SESSIONS, 1.5, ROUNDS, read_only=True)


def long_first_listing(directory: Path) -> Result:
    """A first listing of 100,000 sessions, and 20 s."""
    return _listing(directory, long_first_listing, MANY_SESSIONS, 20, 1)


def _listing(
    directory: Path,
    measured: Callable[[Path], Result],
    sessions: int,
    goal: float,
    rounds: int,
    *,
    read_only: bool = False,
) -> Result:
    root = directory / "store"
    with hansard.open(root, durability="os", auto_compact=False) as store:
        fill_sessions(store, sessions)

    def listed() -> float:
        for file in root.glob("index*"):
            file.unlink()
        with hansard.open(root, durability="os", read_only=read_only) as store:
            return seconds(lambda: store.sessions(limit=50))

    def by_hand() -> float:
        return seconds(lambda: _list_by_hand(root, directory / "table.db"))

    ours, theirs, ratio = alternate(listed, by_hand, rounds)
    note = f"by hand {theirs:.2f} s, a ratio of {ratio:.2f}"
    claim = claim_of(measured)
    return Result(
        measured.__name__, claim, f"{ours:.2f} s", f"{goal:g} s", ours / goal, 1, note=note
    )


_ENABLE_FTS: Final = (
    "CREATE VIRTUAL TABLE words USING fts5(text, content = 'message')",
    "INSERT INTO words (rowid, text) SELECT rowid, text FROM message",
)


def first_search(directory: Path) -> Result:
    """MB of messages a second into a first text index, and of ready-made texts into FTS5."""
    root, table = directory / "store", directory / "texts.db"
    with hansard.open(root, durability="os", auto_compact=False) as store:
        fill(store, MEGABYTES)
    fill_table(table, MEGABYTES)

    def indexed() -> float:
        for file in root.glob("index*"):
            file.unlink()
        with hansard.open(root, durability="os", auto_compact=False) as store:
            store.count()
            return MEGABYTES / seconds(lambda: store.search("zzz"))

    def by_hand() -> float:
        with closing(sqlite3.connect(table)) as connection:
            connection.execute("DROP TABLE IF EXISTS words")
            return MEGABYTES / seconds(lambda: _run(connection, *_ENABLE_FTS))

    ours, theirs, ratio = alternate(indexed, by_hand, ROUNDS)
    claim = claim_of(first_search)
    return Result(
        "first_search", claim, f"{ours:.1f} MB/s", f"{theirs:.1f} MB/s", ratio, 2, more=True
    )


def _run(connection: sqlite3.Connection, *statements: str) -> list[object]:
    for statement in statements:
        rows = connection.execute(statement).fetchall()
    connection.commit()
    return rows


def frequent_word(directory: Path) -> Result:
    """The first page of a search for the most frequent word in 1.2 GB of messages, and 50 ms."""
    root, table = directory / "store", directory / "texts.db"
    counts = Counter(word for text in islice(texts(1), 400) for word in set(text.split()))
    ((word, _),) = counts.most_common(1)
    fill_table(table, LARGE)
    best = f"SELECT rowid FROM words WHERE words MATCH '{word}' ORDER BY rank LIMIT 10"  # noqa: S608 - our own word
    with (
        hansard.open(root, durability="os", auto_compact=False) as store,
        closing(sqlite3.connect(table)) as connection,
    ):
        fill(store, LARGE)
        assert len(store.search(word, limit=10)) == len(_run(connection, *_ENABLE_FTS, best))
        ours, theirs, ratio = alternate(
            lambda: seconds(lambda: store.search(word, limit=10)),
            lambda: seconds(lambda: _run(connection, best)),
            SEARCHES,
        )
    claim = claim_of(frequent_word)
    milliseconds = 1000 * ours
    note = f"the best ten of FTS5 {1000 * theirs:.0f} ms, a ratio of {ratio:.3f}"
    return Result(
        "frequent_word", claim, f"{milliseconds:.1f} ms", "50 ms", milliseconds / 50, 1, note=note
    )


ALL: Final[list[Callable[[Path], Result]]] = [
    first_listing,
    read_only_listing,
    long_first_listing,
    first_search,
    frequent_word,
]
