"""The targets of hansard, row by row, and whether it meets them.

Each row is a ratio of two things that were measured in turn in the same run: either against the bare calls
below hansard (the `everyday` measurements) or against peers.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tools.bench.figures import Figures
from tools.bench.peers import KNOWN
from tools.bench.scale import Scale

#: Peers written for this benchmark can continue to read at a place; this row compares the others.
_REREAD = ["lmdb_os", "openai"]
#: Systems that keep a message unchanged; the others keep its text, without tool calls.
_WHOLE = ["sqlite_normal", "lmdb_os", "openai", "langgraph", "eventsourcing"]
#: Milliseconds that the import of hansard may take longer than that of msgspec.
IMPORT = 20.0
FORK = 2_048


class Verdict(NamedTuple):
    """A row: what was compared, the result, and the target."""

    workload: str
    against: str
    found: str
    ratio: float | None
    target: float
    #: Whether a higher ratio is better.
    more: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if nothing was measured."""
        if self.ratio is None:
            return None
        return self.ratio >= self.target if self.more else self.ratio <= self.target


def verdicts(figures: Figures, scale: Scale) -> list[Verdict]:
    """Return all rows."""
    return [
        *_appends(figures),
        *_many(figures),
        *_long(figures),
        *_reads(figures, scale),
        *_rest(figures, scale),
    ]


def _everyday(figures: Figures, name: str, target: float, *, more: bool = False) -> Verdict:
    result: dict[str, Any] | None = figures.one("limits", f"everyday:{name}")
    if result is None:
        return Verdict(name, "", "not measured", None, target, more)
    workload, _, against = result["claim"].partition(", and ")
    found = f"{result['ours']} and {result['limit']}"
    return Verdict(workload, against or "the same", found, result["ratio"], target, more)


def _peer(
    figures: Figures,
    workload: str,
    ours: str,
    theirs: str | None,
    name: str,
    target: float,
    unit: str,
) -> Verdict:
    """Compare a time, or another figure of which less is better."""
    mine, other = figures.get(ours, name), figures.get(theirs or "", name)
    if theirs is None or mine is None or other is None or not figures.alike(ours, theirs, name):
        return Verdict(
            workload, KNOWN[theirs].title if theirs else "peers", "not measured", None, target
        )
    found = f"{_number(mine)} and {_number(other)} {unit}".rstrip()
    return Verdict(workload, KNOWN[theirs].title, found, figures.ratio(ours, theirs, name), target)


def _appends(figures: Figures) -> Iterator[Verdict]:
    yield _everyday(figures, "append_sync", 1.15)
    yield _everyday(figures, "append_os", 2.5)
    yield _peer(figures, 'One `"os"` append', "hansard_os", "lmdb_os", "append_us", 1.0, "µs")


def _many(figures: Figures) -> Iterator[Verdict]:
    sessions = {"one": "one session", "many": "4 sessions"}
    wanted = [
        ("os", "one", "sqlite_normal", 2.0),
        ("os", "one", "lmdb_os", 1.0),
        ("sync", "one", "sqlite_full", 1.4),
        ("sync", "one", "lmdb_sync", 1.0),
        ("os", "many", "sqlite_normal", 4.0),
        ("sync", "many", "sqlite_full", 1.8),
    ]
    for durability, where, theirs, target in wanted:
        ours, name = f"hansard_{durability}", f"writers:processes:4:{where}"
        mine, other = figures.rate(ours, name), figures.rate(theirs, name)
        workload = f'Appends a second of 4 processes on {sessions[where]}, `"{durability}"`'
        if mine is None or other is None:
            yield Verdict(workload, KNOWN[theirs].title, "not measured", None, target, more=True)
            continue
        lost = figures.total(ours, name, "lost") + figures.total(ours, name, "duplicated")
        found = f"{mine:.0f} and {other:.0f}; {lost or 'nothing'} lost or duplicated"
        ratio = figures.ratio(ours, theirs, name)
        yield Verdict(
            workload, KNOWN[theirs].title, found, 0.0 if lost else ratio, target, more=True
        )
    yield _everyday(figures, "threads", 3.5, more=True)
    yield _everyday(figures, "tasks_16", 10.0, more=True)


def _long(figures: Figures) -> Iterator[Verdict]:
    yield _everyday(figures, "append_long", 1.1)
    yield _everyday(figures, "load", 1.1)


def _reads(figures: Figures, scale: Scale) -> Iterator[Verdict]:
    loaded, common = f"{scale.loaded:,}", f"{scale.common:,}"
    light = ["sqlite_normal", "lmdb_os", "eventsourcing"]
    yield _peer(
        figures,
        f"Loading {loaded} messages into dicts",
        "hansard_os",
        "lmdb_os",
        "load_ms",
        1.0,
        "ms",
    )
    yield _everyday(figures, "load_json", 2.5)
    best = figures.best("hansard_os", [*light, "openai"], "last_us")
    what = f"The last 50 of {loaded} messages, cold, the opening included"
    yield _peer(figures, what, "hansard_os", best, "last_us", 1.0, "µs")
    yield _peer(figures, what, "hansard_os", "openai", "last_us", 0.1, "µs")
    best = figures.best("hansard_os", _REREAD, "again_ms")
    mine, other = figures.get("hansard_os", "seen_us"), figures.get(best or "", "again_ms")
    what = f"Another process's append seen at {common} messages, on a warm handle"
    if best is None or mine is None or other is None:
        yield Verdict(what, "peers that read all again", "not measured", None, 200.0, more=True)
    else:
        against = f"{KNOWN[best].title}, reading all again"
        found = f"{_number(mine)} and {_number(other * 1000)} µs"
        yield Verdict(what, against, found, other * 1000 / mine, 200.0, more=True)
    yield _peer(
        figures, "The complete list again after that", "hansard_os", best, "again_ms", 1.0, "ms"
    )


def _rest(figures: Figures, scale: Scale) -> Iterator[Verdict]:
    common = f"{scale.common:,}"
    for theirs in ("lmdb_sync", "praisonai_file"):
        what = f'A fork at {common} messages, `"sync"`'
        yield _peer(figures, what, "hansard_sync", theirs, "fork_ms", 1.0, "ms")
    taken = figures.get("hansard_sync", "fork_bytes")
    found = "not measured" if taken is None else f"{taken:.0f} bytes"
    ratio = None if taken is None else taken / FORK
    yield Verdict("What a fork takes on disk", "2 KB", found, ratio, 1.0)
    fork, append = figures.get("hansard_sync", "fork_ms"), figures.get("hansard_sync", "append_us")
    if fork is not None and append is not None:
        found = f"{_number(fork * 1000)} and {_number(append)} µs"
        yield Verdict("A fork", "one durable append", found, fork * 1000 / append, 1.5)
    begun = figures.get("hansard_sync", "begun_ms")
    if fork is not None and begun is not None:
        found = f"{_number(fork * 1000)} and {_number(begun * 1000)} µs"
        yield Verdict("A fork", "the first append to a session", found, fork / begun, 1.5)
    what = f"Listing {scale.listed:,} sessions"
    for theirs in ("sqlite_normal", "lmdb_os"):
        yield _peer(figures, what, "hansard_os", theirs, "list_ms", 1.0, "ms")
    best = figures.best("hansard_os", _WHOLE, "disk_ratio")
    what = f"{scale.kept:,} sessions × 50 messages on disk, over their JSON"
    yield _peer(figures, what, "hansard_os", best, "disk_ratio", 0.25, "")
    result = figures.one("limits", "everyday:start")
    if result is not None:
        difference = float(result["ours"].removeprefix("+").removesuffix(" ms"))
        yield Verdict(
            "`from hansard import open`",
            "`import msgspec`, and 20 ms",
            result["ours"],
            difference / IMPORT,
            1.0,
        )
    best = figures.best("hansard_os", _WHOLE, "memory_mb")
    what = f"Memory that {scale.loaded:,} loaded messages take"
    yield _peer(figures, what, "hansard_os", best, "memory_mb", 1.0, "MB")


def _number(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004
