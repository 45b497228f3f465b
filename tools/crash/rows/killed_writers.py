"""Row 7: kill -9 of writers, four processes × two threads, compaction running.

A case is a loop of thirty kills. After each one, the dead writer's journal is compared with the store.
"""

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.faults.kill_loop import APPENDING, SESSIONS, KillLoop
from tests.faults.workers import Crew
from tools.crash.row import Outcome, Row

#: Kills in each case.
KILLS = 30

ROW = Row(7, f"writers killed while sessions are compacted, {KILLS} kills in each", 10, 170)


class Case(NamedTuple):
    """One loop of kills."""

    seed: int

    @property
    def label(self) -> str:
        """Its name."""
        return f"kills {self.seed}"

    def run(self) -> Outcome:
        """Kill, and check."""
        folder = Path(tempfile.mkdtemp(prefix="hansard-kills-"))
        try:
            with Crew() as crew:
                kill_loop = KillLoop(folder, random.Random(self.seed), crew)
                try:
                    fates = kill_loop.withstand(KILLS, SESSIONS, APPENDING, pace=4)
                finally:
                    kill_loop.close()
        except (AssertionError, OSError) as wrong:
            return Outcome(ok=False, label=self.label, detail=str(wrong))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return Outcome(ok=True, label=self.label, detail=f"{KILLS} kills: {dict(fates)}")


def cases(count: int, rng: random.Random) -> Iterator[Case]:
    """Yield so many sieges."""
    for _ in range(count):
        yield Case(rng.getrandbits(32))
