"""Some cases of the campaign's rows in each run, chosen by the run's seed; `tools/crash/campaign` runs more.

Rows 1 to 4 strike system calls of real processes through LD_PRELOAD (tools/crash/shim.c). The faults at the
seam (`tests.crashlab.faults`) strike each call in each run; these show that nothing goes past the seam,
SQLite's files included. Rows 6 and 10 mount file systems in a namespace of a child process, and need root.
"""

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.faults.workers import until
from tools.crash import hostile, nursery
from tools.crash.damaged import plain_log
from tools.crash.damages import DAMAGES
from tools.crash.failing_disk import FailingDisk
from tools.crash.full_disks import SITUATIONS, Refusal
from tools.crash.fuzz_targets import BY_NAME
from tools.crash.power import PowerCut
from tools.crash.rows import (
    cut_files,
    erasure,
    flipped_bits,
    fuzzing,
    hostile_files,
    lost_syncs,
    power_cuts,
    short_writes,
    struck_calls,
    struck_recovery,
    tenants,
)
from tools.crash.shimmed import UNFIRED
from tools.crash.specimen import forget, specimen

Sample = Callable[[random.Random], Iterable[Any]]

#: Each kind of guise once, in a place where it once was, or could be, believed.
DISGUISES = (
    ("hansard.json", "a pipe"),
    ("sessions/s", "a link to a directory"),
    ("sessions/s/log.jsonl", "a device that swallows"),
    ("sessions/s/lock", "a link to nothing"),
    ("sessions/s/checkpoint", hostile.OTHERS),
    ("sessions/s/00000000000000000001.jsonl.zst", "a bomb"),
    ("marks/epoch", "a socket"),
    ("index.db", "a pipe"),
    ("index.db-journal", "a crafted journal"),
    ("trash", "a full directory"),
)

ASKED = ("sessions", "count", "stats", "exists", "follow", "trash")


def _only(*cases: Any) -> Sample:
    return lambda _: cases


def _cuts(kind: str) -> Sample:
    return lambda rng: [case for case in power_cuts.cases(40, rng) if case.kind == kind]


def _fuzzed(name: str) -> Sample:
    return lambda rng: [fuzzing.Case(name, rng.getrandbits(32)) for _ in range(4)]


def _damaged(cases: Iterable[Any], most: int) -> list[Any]:
    """Leave out the plain log, of which test_damage and test_torn_tails try every byte."""
    return [case for case in cases if getattr(case, "kind", "log") != "log"][:most]


def _asked(rng: random.Random) -> Iterator[tenants.Asked]:
    yield from (tenants.Asked("memory", f"Store.{name}") for name in ASKED)
    some = {"Store.search", "Store.copy_to", *rng.sample(sorted(tenants.public()), 4)}
    yield from (tenants.Asked("files", name) for name in sorted(some))


def _erased(way: str) -> Iterator[erasure.Case]:
    contents = ["a tool's arguments", "a summary", "a stream"]
    if way == "scrub":
        contents += ["a title", "metadata", "an application's event"]
    for number, content in enumerate(contents):
        yield erasure.Case("files", way, content, "searched and compacted", number)


#: The cases of a row, and how many of them must have had an effect.
SAMPLES: dict[str, tuple[Sample, int]] = {
    "1 struck calls": (lambda rng: struck_calls.cases(56, rng), 40),
    "2 short writes": (lambda rng: short_writes.cases(24, rng), 16),
    "3 lost syncs": (lambda rng: list(lost_syncs.cases(25, rng))[1:], 16),
    "3 a disk that really fails": (_only(FailingDisk()), 1),
    "4 struck recovery": (lambda rng: struck_recovery.cases(16, rng), 8),
    # Appends, batches, sealed segments, compactions, deletes, forks, imports; with "os", a prefix.
    **{f"6 {kind}": (_cuts(kind), 20) for kind in power_cuts.KINDS},
    "8 flipped bits": (lambda rng: _damaged(flipped_bits.cases(4_000, rng), 4_000), 2_800),
    "9 cut files": (lambda rng: _damaged(cut_files.cases(2_000, rng), 400), 200),
    "9 named damages": (_only(*map(cut_files.NamedDamage, DAMAGES)), 25),
    **{f"10 {label}": (_only(Refusal(label)), 1) for label in SITUATIONS},
    **{f"16 {it[0]}": (_only(hostile_files.Disguise(*it)), 1) for it in DISGUISES},
    # Whatever is in a file, a token or a name, the answer is right, or an error of ours.
    **{f"13 {name}": (_fuzzed(name), 4) for name in BY_NAME},
    "17 tenants": (_asked, 10),
    **{f"18 {way}": (_only(*_erased(way)), 3) for way in erasure.WAYS},
}


def loops() -> set[str]:
    """Return which of our files are disks of the system just now."""
    found = set()
    for place in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # it was one
            found.add(place.read_text())
    return {file for file in found if "hansard-" in file}


@pytest.fixture(scope="module", autouse=True)
def _nothing_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prepare what cases share; end what was started, of which nothing may be mounted still."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("rows")))
        specimen()
        yield
        forget()
        plain_log.cache_clear()
    nursery.close_all()
    assert "hansard-" not in Path("/proc/mounts").read_text(encoding="utf-8")
    # Another process of the run may be at other tests of this file: its disks come and go.
    left = loops()
    until(lambda: not left & loops())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_of_a_row_breaks_no_promise(name: str, rng: random.Random) -> None:
    """N-26, N-29 to N-34, N-37, N-39, N-45, N-66, N-89, F-28, F-31, F-32, F-35, F-109: each case passes."""
    if name.startswith("16"):
        hostile_files.prepare()
    cases, fewest = SAMPLES[name]
    outcomes = [case.run() for case in cases(rng)]
    assert [outcome for outcome in outcomes if not outcome.ok] == []
    run = [outcome for outcome in outcomes if not outcome.skipped]
    if not run:
        pytest.skip(outcomes[0].skipped)
    idle = [one for one in run if UNFIRED in one.detail or one.detail.startswith("harmless")]
    assert len(run) - len(idle) >= fewest


def test_every_kind_of_file_is_tried() -> None:
    """N-17: row 16 is made of the files that a store has, so that a new kind is tried without being named."""
    kinds = " ".join(hostile.files())
    parts = (
        "hansard.json log.jsonl lock compaction checkpoint jsonl.zst index.db-wal index.db-journal"
    )
    for part in [*parts.split(), "internal/cursor-", "marks/", "trash/", "internal/audit"]:
        assert part in kinds


def test_every_public_method_is_asked() -> None:
    """N-17: row 17 asks about a new method of a store or a session, or this fails."""
    assert [name for name, questions in tenants.public().items() if not questions] == []


def test_a_leak_between_tenants_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-17: a scoped store that counts what is outside is noticed by row 17."""
    count = hansard.Store.count
    leaking = lambda store, **_: count(store) + len([*store._backend.unscoped.ids()])  # noqa: E731
    monkeypatch.setattr(hansard.Store, "count", leaking)
    assert not tenants.Asked("memory", "Store.count").run().ok


def test_what_is_left_of_what_was_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-17: a store that forgets without erasing is noticed by row 18, with the file that still has it."""
    case = erasure.Case("files", "redact", "a message", "new", 1)
    assert case.run().ok
    monkeypatch.setattr(hansard.Store, "compact", lambda _, **__: None)
    left = case.run()
    assert not left.ok
    assert "log.jsonl" in left.detail


@pytest.mark.slow
def test_a_store_that_does_not_sync_loses_what_it_says_is_durable() -> None:
    """N-17, N-37: the same power cut, without the syncs, is noticed: so the cut is a real one."""
    cut = PowerCut("xfs", "group", 16, "os")
    if reason := cut.run().skipped:
        pytest.skip(reason)
    # Written without syncs, and judged as if each append had been promised to last.
    judged = [" ".join(cut.suffer(strictly=True)[0]) for _ in range(3)]
    assert any("is missing" in told for told in judged)
