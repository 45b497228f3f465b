"""Measure searching: time and size of a first index, and the cost of a search after that.

    python -m tools.bench.finding [--megabytes 200] [--sqlite-utils PATH] [--json FILE]

Compared with it: the same texts as rows of a SQLite table that `sqlite-utils enable-fts` indexes: the same
engine without a log to read, messages to decode, forks, redactions or seqs. `--sqlite-utils` is the command,
in a separate environment; without it, only hansard is measured.
"""

import argparse
import json
import random
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import hansard
from tools.bench.workload import SEED

_SESSIONS = 200
_BATCH = 50


def texts(megabytes: int) -> Iterator[str]:
    """Yield texts of about 700 characters, of 50,000 words of which few are frequent; always the same."""
    rng = random.Random(SEED)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 10))) for _ in range(50_000)]
    weights = list(accumulate(1 / (place + 3) for place in range(len(words))))
    left = megabytes * 1_000_000
    while left > 0:
        size = int(min(8000, max(60, rng.lognormvariate(6.4, 0.8))))
        text = " ".join(rng.choices(words, cum_weights=weights, k=size // 7 + 1))
        left -= len(text)
        yield text


def fill(store: hansard.Store, megabytes: int) -> None:
    """Append the texts to many sessions."""
    batch: list[dict[str, object]] = []
    for place, text in enumerate(texts(megabytes)):
        batch.append({"role": ("user", "assistant")[place % 2], "content": text})
        if len(batch) == _BATCH:
            store.session(f"s{place // _BATCH % _SESSIONS:03}").add_messages(batch)
            batch.clear()


def fill_table(path: Path, megabytes: int) -> None:
    """Put the same texts into a table."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, text TEXT)")
    connection.executemany(
        "INSERT INTO message (text) VALUES (?)", ((text,) for text in texts(megabytes))
    )
    connection.commit()
    connection.close()


_BUILD = """
import resource, sys, time
import hansard
store = hansard.open(sys.argv[1])
store.count()
begin = time.perf_counter()
store.search("zzz")
taken = time.perf_counter() - begin
print(taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def build(path: Path) -> tuple[float, float]:
    """Index a store in a separate process; return seconds, and peak megabytes of memory."""
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, str(path)], capture_output=True, text=True, check=True
    )
    taken, memory = done.stdout.split()
    return float(taken), int(memory) / 1024


def enable_fts(command: str, path: Path) -> tuple[float, float]:
    """Do the same with sqlite-utils."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    begin = time.perf_counter()
    subprocess.run([command, "enable-fts", str(path), "message", "text", "--fts5"], check=True)
    taken = time.perf_counter() - begin
    return taken, max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


def milliseconds(action: Callable[[], object], count: int = 15) -> float:
    """Return the median time of an action."""
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        action()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1000


def searches(path: Path) -> dict[str, float]:
    """Return the cost of searches with an existing index, in milliseconds."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        sample = next(texts(1)).split()
        common, rare = min(sample, key=len), max(sample, key=len)
        store.search(rare)
        session = store.session("s007")

        def append_and_search() -> None:
            session.add_message({"role": "user", "content": "the newest thing"})
            assert store.search("newest", limit=1)

        return {
            "rare word": milliseconds(lambda: store.search(rare)),
            "frequent word": milliseconds(lambda: store.search(common)),
            "two words": milliseconds(lambda: store.search(f"{common} {rare}")),
            "beginning of a word": milliseconds(lambda: store.search(f"{rare[:3]}*")),
            "one session": milliseconds(lambda: store.search(common, session="s007")),
            "append, then search": milliseconds(append_and_search),
        }


def measure(directory: Path, megabytes: int, command: str | None) -> dict[str, object]:
    """Measure everything."""
    path = directory / "store"
    with hansard.open(path, durability="os", auto_compact=False) as store:
        fill(store, megabytes)
    logs = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6
    taken, memory = build(path)
    report: dict[str, object] = {
        "logs, MB": logs,
        "first index, s": taken,
        "first index, MB/s": logs / taken,
        "first index, peak memory, MB": memory,
        "index / logs": next(path.glob("index-*.db")).stat().st_size / 1e6 / logs,
        "search, ms": searches(path),
    }
    if command is not None:
        table = directory / "table.db"
        fill_table(table, megabytes)
        size = table.stat().st_size
        other, other_memory = enable_fts(command, table)
        report["sqlite-utils enable-fts, s"] = other
        report["sqlite-utils enable-fts, peak memory, MB (upper bound)"] = other_memory
        report["sqlite-utils, index / table"] = table.stat().st_size / size - 1
        report["hansard / sqlite-utils, time"] = taken / other
    return report


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description="Measure searching.")
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--sqlite-utils", metavar="PATH")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="hansard-bench-"))
    try:
        report = measure(directory, given.megabytes, given.sqlite_utils)
    finally:
        shutil.rmtree(directory)
    text = json.dumps(report, indent=2)
    print(text)
    if given.json is not None:
        given.json.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
