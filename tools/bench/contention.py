"""Measure many processes on one session, a new session, and a process whose own session is being compacted.

Processes are compared with SQLite by hand, in turn. Fairness is the number of appends of the slowest writer
over that of the fastest.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import hansard
from tools.bench import compaction, during_compaction
from tools.bench.result import Result, claim_of
from tools.bench.scale import FULL
from tools.bench.workload import alternate, median_us, messages
from tools.bench.writers import writers

ROUNDS: Final = 5
SECONDS: Final = 2.0
#: Messages of the session that is compacted: 40 MB.
COMPACTED: Final = 34_000
#: Calls before the measurement, which compile, open and cache, and calls of an idle store.
FIRST: Final = 200
CALLS: Final = 2_000
_MESSAGES: Final = messages(1_000)


def processes_4_os(directory: Path) -> Result:
    """Appends a second of 4 processes on one `"os"` session, and on SQLite, NORMAL."""
    return _over_sqlite(processes_4_os, directory, "os", 4, 2.2)


def processes_16_os(directory: Path) -> Result:
    """Appends a second of 16 processes on one `"os"` session, and on SQLite, NORMAL."""
    return _over_sqlite(processes_16_os, directory, "os", 16, 2.0)


def processes_100_os(directory: Path) -> Result:
    """Appends a second of 100 processes on one `"os"` session, and of 16."""
    run = partial(_rate, directory, "hansard_os")
    ours, limit, ratio = alternate(
        lambda: run(100)["rate"], lambda: run(16)["rate"], max(1, ROUNDS - 2)
    )
    return Result(
        "processes_100_os",
        claim_of(processes_100_os),
        f"{ours:,.0f}/s",
        f"{limit:,.0f}/s",
        ratio,
        0.5,
        more=True,
    )


def processes_1_sync(directory: Path) -> Result:
    """Appends a second of 1 process on one `"sync"` session, and on SQLite, FULL."""
    return _over_sqlite(processes_1_sync, directory, "sync", 1, 0.9)


def processes_4_sync(directory: Path) -> Result:
    """Appends a second of 4 processes on one `"sync"` session, and on SQLite, FULL."""
    return _over_sqlite(processes_4_sync, directory, "sync", 4, 1.05)


def processes_16_sync(directory: Path) -> Result:
    """Appends a second of 16 processes on one `"sync"` session, and on SQLite, FULL."""
    return _over_sqlite(processes_16_sync, directory, "sync", 16, 1.15)


def new_session(directory: Path) -> Result:
    """The first message of a new session in an `"os"` store, and mkdir and two files."""
    store = hansard.open(directory / "store", durability="os", auto_compact=False)

    def bare(_: int) -> None:
        made = tempfile.mkdtemp(dir=directory)
        for name in ("lock", "log"):
            file = os.open(f"{made}/{name}", os.O_CREAT | os.O_RDWR)
            os.write(file, b"x" * 850 * (name == "log"))
            os.close(file)

    ours, limit, ratio = alternate(
        lambda: median_us(lambda i: store.session().add_message(_MESSAGES[i]), 100),
        lambda: median_us(bare, 100),
        ROUNDS,
    )
    return Result(
        "new_session", claim_of(new_session), f"{ours:.0f} µs", f"{limit:.0f} µs", ratio, 4.0
    )


def own_compaction_read(directory: Path) -> Result:
    """The p99 of `messages(last=50)` while the store's own thread compacts another session, and while not."""
    return _during(own_compaction_read, directory, lambda session: session.messages(last=50))


def own_compaction_append(directory: Path) -> Result:
    """The p99 of an `"os"` append while the store's own thread compacts another session, and while not."""
    message = _MESSAGES[0]
    return _during(own_compaction_append, directory, lambda session: session.add_message(message))


ALL: list[Callable[[Path], Result]] = [
    processes_4_os,
    processes_16_os,
    processes_100_os,
    processes_1_sync,
    processes_4_sync,
    processes_16_sync,
    new_session,
    own_compaction_read,
    own_compaction_append,
]


def _rate(directory: Path, system: str, count: int) -> dict[str, Any]:
    """Let processes append to one session of a new store; return what `writers` returns."""
    place = Path(tempfile.mkdtemp(dir=directory))
    return writers(system, FULL._replace(budget=SECONDS), place, "processes", count, many=False)


def _over_sqlite(
    measurement: Callable[[Path], Result],
    directory: Path,
    durability: str,
    count: int,
    target: float,
) -> Result:
    other = {"os": "sqlite_normal", "sync": "sqlite_full"}[durability]
    pairs = [
        (_rate(directory, f"hansard_{durability}", count), _rate(directory, other, count))
        for _ in range(ROUNDS)
    ]

    def middle(key: str, which: int) -> float:
        return statistics.median(float(pair[which][key]) for pair in pairs)

    return Result(
        measurement.__name__,
        claim_of(measurement),
        f"{middle('rate', 0):,.0f}/s",
        f"{middle('rate', 1):,.0f}/s",
        statistics.median(ours["rate"] / theirs["rate"] for ours, theirs in pairs),
        target,
        more=True,
        note=f"fairness {middle('fairness', 0):.2f}, SQLite {middle('fairness', 1):.2f}",
    )


def _during(
    measurement: Callable[[Path], Result],
    directory: Path,
    action: Callable[[hansard.Session], object],
) -> Result:
    path = directory / "store"
    with hansard.open(path, durability="os", auto_compact=False) as store:
        compaction.fill(store.session("long"), COMPACTED)
        store.session("other").add_messages(_MESSAGES)
        _times(store.session("other"), action, lambda taken: len(taken) < FIRST)
        quiet = _times(store.session("other"), action, lambda taken: len(taken) < CALLS)
    with hansard.open(path, durability="os") as store:
        _times(store.session("other"), action, lambda taken: len(taken) < FIRST)
        store.session("long").add_message(_MESSAGES[0])
        during = _times(
            store.session("other"), action, lambda _: not during_compaction.is_compacted(path)
        )
    ours, limit = _p99(during), _p99(quiet)
    return Result(
        measurement.__name__,
        claim_of(measurement),
        f"{ours:.0f} µs",
        f"{limit:.0f} µs",
        ours / limit,
        3.0,
        note=f"{len(during):,} calls during the compaction; the median is "
        f"{statistics.median(during):.0f} µs, otherwise {statistics.median(quiet):.0f} µs",
    )


def _times(
    session: hansard.Session,
    action: Callable[[hansard.Session], object],
    more: Callable[[list[float]], bool],
) -> list[float]:
    """Return how long each call took, in microseconds."""
    taken: list[float] = []
    while more(taken):
        begin = time.perf_counter_ns()
        action(session)
        taken.append((time.perf_counter_ns() - begin) / 1000)
    return taken


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]
