"""Row 5: every state that a power cut may leave, rebuilt from the recorded disk calls."""

import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hansard.log import disk
from tests.crashlab import crashes
from tests.faults.crash_runs import PLANS, RUNS, Durability, problem_of, recorded
from tools.crash.row import Outcome, Row

ROW = Row(5, "crash states, two-writer traces among them", 2_000, 10_000)


@dataclass
class CrashState:
    """One state of one run."""

    label: str
    state: crashes.State
    allowed: list[object]
    ids: tuple[str, ...]

    def run(self) -> Outcome:
        """Build the state, open it, compare it."""
        # Syncs are recorded, so nothing waits for the disk.
        sync, sync_directory = disk.sync, disk.sync_directory
        disk.sync = disk.sync_directory = os.fstat  # type: ignore[assignment]
        try:
            with tempfile.TemporaryDirectory() as place:
                problem = problem_of(self.state, self.allowed, self.ids, Path(place) / "state")
        finally:
            disk.sync, disk.sync_directory = sync, sync_directory
        return Outcome(not problem, self.label, problem)


def cases(count: int, rng: random.Random) -> Iterator[CrashState]:
    """Yield states of every run in turn, drawn by chance; runs with few states give all of them."""
    # Each run has a thousand states or more: a few runs are enough for a few cases.
    runs = rng.sample(RUNS, min(len(RUNS), 1 + count // 100))
    found: list[list[CrashState]] = [_states(name, durability) for name, durability in runs]
    for states in found:
        rng.shuffle(states)
    while count > 0 and any(found):
        for states in found:
            if states and count > 0:
                count -= 1
                yield states.pop()


def _states(name: str, durability: Durability) -> list[CrashState]:
    with tempfile.TemporaryDirectory() as place:
        run, recording = recorded(Path(place), PLANS[name], durability)
    return [
        CrashState(
            f"{name}, {durability}, {state.label}", state, run.allowed(state.acknowledged), run.ids
        )
        for state in recording.states()
    ]
