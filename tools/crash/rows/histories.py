"""Row 7: workers killed with kill -9 while four processes × two threads make all kinds of calls.

A case is one history: thirty workers are killed while others append, compact, fork, delete and list,
every third of them at a chosen call of the disk. In every fifth history, parents are deleted during forks.
"""

import random
import shutil
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from tests.crashlab import histories
from tests.crashlab.faults import APPENDING
from tools.crash.row import Outcome, Row

#: Kills in each history.
KILLS = 30

ROW = Row(7, f"histories of four processes × two threads, {KILLS} kills in each", 10, 170)


class Case(NamedTuple):
    """One history."""

    seed: int
    forking: bool = False

    @property
    def label(self) -> str:
        """Its name."""
        return f"{'forks' if self.forking else 'history'} {self.seed}"

    def run(self) -> Outcome:
        """Run the history, and check it."""
        directory = tempfile.mkdtemp(prefix="hansard-history-")
        try:
            history = histories.run(
                f"{directory}/store",
                operations=80,
                kills=KILLS,
                deaths=APPENDING,
                seed=self.seed,
                options={"durability": "os", "lock_timeout": 60.0},
                timeout=300.0,
                weights=histories.FORKING if self.forking else None,
                prepare="tests.faults.workers:take_time_to_fork" if self.forking else "",
            )
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        wrong = histories.check(history)
        detail = (
            "\n".join(map(str, wrong)) or f"{history.kills} {len(history.operations)} operations"
        )
        return Outcome(ok=not wrong, label=self.label, detail=detail)


def cases(count: int, rng: random.Random) -> Iterator[Case]:
    """Yield `count` histories."""
    for number in range(1, count + 1):
        yield Case(rng.getrandbits(32), forking=number % 5 == 0)
