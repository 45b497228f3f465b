"""Measure listing: all sessions with their titles and times, compared with a SQLite table of the same rows.

    python -m tools.bench.listing [--sessions 10000] [--json FILE]

The table is what a person would write by hand for this purpose: one row for each session, the columns that
are shown, an index for the order, and an object made of each row. It does not know of other writers; the
listing of a store checks what has changed before it answers. Both are measured in turn, in the same run.
"""

import argparse
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

import hansard
from hansard import SessionInfo, Store

_ROUNDS = 15
_COLUMNS = (
    "id, title, seq, created, updated, message_count, bytes, input_tokens, output_tokens, cost, "
    "metadata"
)


class _Row(msgspec.Struct):
    """A line of the table by hand."""

    id: str
    title: str
    seq: int
    created: str
    updated: str
    message_count: int
    bytes: int
    input_tokens: int
    output_tokens: int
    cost: float
    metadata: str


def fill(store: Store, count: int) -> None:
    """Create sessions with a title and a message."""
    for number in range(count):
        metadata = {"title": f"What was said in session {number}", "user": f"u{number % 97}"}
        session = store.create(f"s{number:06}", metadata=metadata)
        session.add_message(
            {"role": "user", "content": "My parcel is late. What can be done about it?"}
        )


def _by_hand(path: Path, infos: list[SessionInfo]) -> sqlite3.Connection:
    """Make the table."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(
        f"CREATE TABLE session ({_COLUMNS.replace('id,', 'id TEXT PRIMARY KEY,', 1)})"
    )
    connection.execute("CREATE INDEX by_updated ON session (updated, id)")
    rows = [
        [
            getattr(info, name) if name != "metadata" else json.dumps(info.metadata)
            for name in _COLUMNS.split(", ")
        ]
        for info in infos
    ]
    connection.executemany("INSERT INTO session VALUES (?,?,?,?,?,?,?,?,?,?,?)", rows)
    connection.commit()
    return connection


def _milliseconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - begin)


def _in_turn(*calls: Callable[[], object]) -> list[float]:
    """Return the median of each, measured in turn, so that a disturbance affects all."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(_ROUNDS):
        for place, call in enumerate(calls):
            times[place].append(_milliseconds(call))
    return [statistics.median(of_one) for of_one in times]


def measure(directory: Path, count: int) -> dict[str, float]:
    """Fill a store, and return milliseconds by call."""
    found: dict[str, float] = {}
    with hansard.open(directory / "store", durability="os", auto_compact=False) as store:
        fill(store, count)
        found["first index"] = _milliseconds(store.count)
        infos = store.sessions().items
        assert len(infos) == count
        table = _by_hand(directory / "table.db", infos)
        every = f"SELECT {_COLUMNS} FROM session ORDER BY"  # noqa: S608 - our own names

        def by_hand(order: str, limit: int = -1) -> Callable[[], object]:
            return lambda: [_Row(*row) for row in table.execute(f"{every} {order} LIMIT {limit}")]

        def append_and_list() -> None:
            store.session("s000007").add_message({"role": "user", "content": "Still late."})
            store.count()

        names = ("all, by id", "all, newest first", "newest 50", "count", "one append and a count")
        ours = _in_turn(
            store.sessions,
            lambda: store.sessions(order="-updated"),
            lambda: store.sessions(order="-updated", limit=50),
            store.count,
            append_and_list,
        )
        theirs = _in_turn(by_hand("id"), by_hand("updated DESC, id DESC"))
        both = _in_turn(store.sessions, by_hand("id"))
        found.update(zip(names, ours, strict=True))
        found.update(zip(("table, by id", "table, newest first"), theirs, strict=True))
        found["ratio, all by id"] = both[0] / both[1]
        table.close()
    with hansard.open(directory / "store", durability="os") as store:
        found["a new process, all by id"] = _milliseconds(store.sessions)
    with hansard.open(directory / "store", read_only=True) as store:
        found["a process that may not write, first time"] = _milliseconds(store.sessions)
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="hansard-bench-"))
    try:
        found = measure(directory, arguments.sessions)
    finally:
        shutil.rmtree(directory)
    for name, value in found.items():
        unit = "" if name.startswith("ratio") else " ms"
        print(f"{name:45}{value:12.2f}{unit}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
