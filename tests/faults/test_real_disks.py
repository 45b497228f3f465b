"""Real disks: power that goes, syncs that fail, disks that are full; on file systems that are mounted for it.

All this needs root, and says so where there is none. Everything is mounted in a namespace of a child
process, so that nothing can be left mounted. `tools/crash/campaign --rows 6,10` does more of it.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.faults.workers import until
from tools.crash import mounts, nursery
from tools.crash.failing_disk import FailingDisk
from tools.crash.full_disks import SITUATIONS, Refusal
from tools.crash.power import PowerCut
from tools.crash.row import Outcome
from tools.crash.rows import power_cuts

pytestmark = pytest.mark.slow

#: Of each kind of file system.
CUTS: Final = 20


def loops() -> set[str]:
    """Return which of our files are disks of the system just now."""
    found = set()
    for place in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # it was one
            found.add(place.read_text())
    return {file for file in found if "hansard-" in file}


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    """End what was started; nothing of it may be mounted still."""
    yield
    nursery.close_all()
    assert "hansard-" not in Path("/proc/mounts").read_text(encoding="utf-8")
    # Another process of the run may be at other tests of this file: its disks come and go.
    left = loops()
    until(lambda: not left & loops())


def needs(kind: str) -> None:
    """Skip the test, with the reason, where this file system cannot be mounted."""
    reason = mounts.missing(kind)
    if reason:
        pytest.skip(reason)


def kept(outcome: Outcome) -> Outcome:
    """Return an outcome that is as it should be; a skipped one skips the test, with its reason."""
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.ok, f"{outcome.label}: {outcome.detail}"
    return outcome


@pytest.mark.parametrize("kind", power_cuts.KINDS)
def test_what_was_acknowledged_survives_a_power_cut(kind: str, rng: random.Random) -> None:
    """N-37, N-39, F-31: on a real file system, whenever the power goes, what was acknowledged is there.

    Appends, batches, sealed segments, compactions, deletes, forks, imports; with durability "os", a prefix.
    """
    needs(kind)
    cuts = [case for case in power_cuts.cases(2 * CUTS, rng) if case.kind == kind]
    assert len(cuts) == CUTS
    acknowledged = 0
    for cut in cuts:
        wrong, heard = cut.suffer()
        assert wrong == [], cut.label
        acknowledged += heard
    assert acknowledged > CUTS


def test_a_store_that_does_not_sync_loses_what_it_says_is_durable() -> None:
    """N-17, N-37: the same cut, without the syncs, is noticed: so the cut is a real one."""
    cut = PowerCut("xfs", "group", 16, "os")
    needs(cut.kind)
    # Written without syncs, and judged as if each append had been promised to last.
    judged = [" ".join(cut.suffer(strictly=True)[0]) for _ in range(3)]
    assert any("gone" in told for told in judged)


def test_a_sync_that_really_fails_shuts_the_session() -> None:
    """N-29, F-35: after a failed sync, appends are refused although the disk recovers; nothing is lost."""
    assert kept(FailingDisk().run()).ok


@pytest.mark.parametrize("label", SITUATIONS)
def test_what_the_system_refuses_is_a_clear_error_until_it_does_not(label: str) -> None:
    """N-29, N-32, N-89: a full, read-only or forbidden disk is a clear error; then all works again."""
    assert kept(Refusal(label).run()).ok
