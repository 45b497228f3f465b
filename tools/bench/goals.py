"""The first rows of docs/benchmarks.md: the cost of processes, writers and readers, with goals.

Each is a ratio of two things that were measured alternately in one run, and has its goal as its target.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import hansard
from tools.bench import compaction, contention, everyday, index, processes, svg
from tools.bench.installed import CHECKOUT
from tools.bench.peers_report import between_marks
from tools.bench.result import Result, claim_of
from tools.bench.workload import alternate, seconds


def load_lmdb(directory: Path) -> Result:
    """Loading 100,000 messages into dicts, and from LMDB."""
    # Imported here, because only this group's environment has the package.
    from tools.bench.peers.lmdb import OsLmdb

    store = hansard.open(directory / "store", durability="os", auto_compact=False)
    session = everyday.long_session(store)
    (directory / "lmdb").mkdir()
    peer = OsLmdb(directory / "lmdb")
    peer.extend("s", session.messages())
    assert peer.load("s") == session.messages()
    ours, theirs, ratio = alternate(
        lambda: seconds(session.messages), lambda: seconds(lambda: peer.load("s")), 5
    )
    peer.close()
    claim = claim_of(load_lmdb)
    return Result("load_lmdb", claim, f"{ours * 1000:.0f} ms", f"{theirs * 1000:.0f} ms", ratio, 1)


class Goal(NamedTuple):
    """A measurement of a row, and the cause if it is known to miss its goal."""

    row: int
    label: str
    measure: Callable[[Path], Result]
    cause: str = ""


_FILES: Final = (
    "the files of each session are opened, checked and locked one by one: half of 100 µs"
)
_IMPORTS: Final = (
    "`import msgspec` with `typing`, `datetime`, `decimal` and `uuid` alone is 1.7; hansard's 38 modules are "
    "1.5, the call is 0.4. Of all this, 0.8 is unloading at exit"
)
_POLLS: Final = "waiters poll for the lock, with pauses of up to 6 ms"
_GROWS: Final = (
    "SQLite overwrites space that is already written. A log grows, so each sync also commits the file "
    "system's journal, which other programs may be filling"
)

GOALS: Final = (
    Goal(1, "new process, append", processes.new_process_append, _IMPORTS),
    Goal(1, "new process, read", processes.new_process_read, _IMPORTS),
    Goal(2, "command: --version", processes.command_version),
    Goal(2, "command: ls", processes.command_ls),
    Goal(2, "command: show", processes.command_show),
    Goal(3, '4 processes, "os"', contention.processes_4_os, _POLLS),
    Goal(3, '16 processes, "os"', contention.processes_16_os, _POLLS),
    Goal(
        3,
        '100 processes, "os"',
        contention.processes_100_os,
        f"{_POLLS}. A poll takes 25 µs of processor time, since a waiter's data have left the caches, and "
        "may take the processor from the holder of the lock: with pauses of up to 2 ms, a wait took 15 "
        "polls, and an append 65 µs of them. "
        "Adaptive pauses gave up to 3 times that rate, and starved some of 16 writers",
    ),
    Goal(4, '1 process, "sync"', contention.processes_1_sync, _GROWS),
    Goal(4, '4 processes, "sync"', contention.processes_4_sync, _GROWS),
    Goal(4, '16 processes, "sync"', contention.processes_16_sync, _GROWS),
    Goal(
        5,
        "sealed, load",
        compaction.read_sealed,
        "zstd alone takes nine tenths of the difference, 0.5 ms for each MB",
    ),
    Goal(6, "one batch, load", compaction.read_batch),
    Goal(
        7,
        "new session",
        contention.new_session,
        "one sync before the log gets its name "
        "([decision 0006](decisions/0006-segments-are-synced-before-they-are-named.md)). "
        "Without it 1.3 to 1.7, but an empty log after a power cut could not be told from a truncated one",
    ),
    Goal(8, "read while compacting", contention.own_compaction_read),
    Goal(
        8,
        "append while compacting",
        contention.own_compaction_append,
        "each of five system calls gives up the interpreter, and to get it back a thread must be woken",
    ),
    Goal(9, "frequent word", index.frequent_word),
    Goal(10, "first listing", index.first_listing, _FILES),
    Goal(10, "first listing, read-only", index.read_only_listing, _FILES),
    Goal(10, "first listing of 100,000", index.long_first_listing, _FILES),
    Goal(
        11,
        "first text index",
        index.first_search,
        "FTS5 takes four fifths of the time for the same words: without the rest it would be 1.3. In memory, "
        "and without the texts, FTS5 is 1.5 times as fast: both together are 2.0. "
        "[Decision 0016](decisions/0016-search.md) has what was tried",
    ),
    Goal(
        12,
        '"os" append',
        everyday.append_os,
        "about 12 µs of Python around five system calls: framing and checksum 2 to 2.6 µs, "
        "the check of the names 1.4 to 2.7, leadership among threads 1.4, encoding 1",
    ),
    Goal(13, "load, over LMDB", load_lmdb, "checksums, and reading 92 MB where LMDB maps its file"),
    Goal(
        13,
        "load as JSON",
        everyday.load_json,
        "reading and checksum take 0.8 of what reading the file takes, checking the JSON of each record 1.5, "
        "writing the result the rest",
    ),
    Goal(14, "16 threads", everyday.threads, "two switches of the interpreter per append"),
    Goal(
        14,
        "16 tasks",
        everyday.tasks_16,
        "28 µs of processor time per append, and a sync of 0.1 to 0.2 ms for 16: "
        "one task alone waits for the same sync and 190 µs",
    ),
    Goal(15, "streaming", everyday.streaming),
)

ALL: Final = [goal.measure for goal in GOALS]

PAGE: Final = CHECKOUT / "docs" / "benchmarks.md"
PLOT: Final = CHECKOUT / "docs" / "images" / "bench-goals.svg"
BEGIN: Final = "<!-- tools/bench/run --group goals --write: from here -->"


def write(results: Sequence[Result], about: str) -> None:
    """Write the results into the page, as a table, and as a plot of ratios over goals.

    Rows that were not measured keep their line.
    """
    page = PAGE.read_text(encoding="utf-8")
    found = _written(page) | {result.claim: result for result in results}
    lines = [
        "| row | what | hansard | compared with | ratio | goal | where missed, why |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows, notes = [], []
    for goal in GOALS:
        result = found.get(claim_of(goal.measure))
        if result is None:
            continue
        sign, over = "≤", result.ratio / result.target
        if result.more:
            sign, over = "≥", 1 / over
        why = "" if result.met else goal.cause or "not known"
        lines.append(
            f"| {goal.row} | {result.claim} | {result.ours} | {result.limit} | {result.ratio:.2f} | "
            f"{sign} {result.target:g} | {why} |"
        )
        name = goal.label if result.met else f"{goal.label}: missed"
        rows.append((name, over, f"{result.ratio:.2f}, goal {sign} {result.target:g}"))
        if result.note:
            notes.append(f"- {result.claim}: {result.note}.")
    text = "\n".join([f"The last run: {about}.", "", *lines, "", *notes])
    PAGE.write_text(between_marks(page, text, BEGIN), encoding="utf-8")
    plot = svg.bars("How far from the goal: 1 meets it, less is better", rows, logarithmic=False)
    PLOT.write_text(plot, encoding="utf-8")


def _written(page: str) -> dict[str, Result]:
    """Return the results on the page, by what they compare."""
    found = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0].isdecimal():
            _, claim, ours, limit, ratio, goal, *_ = cells
            found[claim] = Result(
                "", claim, ours, limit, float(ratio), float(goal[2:]), more=goal[0] == "≥"
            )
        claim, _, note = line.removeprefix("- ").partition(": ")
        if claim in found:
            found[claim] = found[claim]._replace(note=note.removesuffix("."))
    return found
