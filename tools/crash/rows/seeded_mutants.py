"""Row 14: deliberate bugs in our source, each of which a named test must catch."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tools.crash.mutants import MUTANTS
from tools.crash.mutants.mutant import examine
from tools.crash.row import Outcome, Row

ROW = Row(14, "seeded mutants caught", len(MUTANTS), len(MUTANTS))


@dataclass
class Seeded:
    """One mutant."""

    label: str

    def run(self) -> Outcome:
        """Apply it to a copy of the source, and run its tests."""
        verdict = examine(MUTANTS[self.label])
        return Outcome(verdict.caught, self.label, verdict.told)


def cases(count: int, rng: random.Random) -> Iterator[Seeded]:
    """Yield all mutants, or some."""
    names = list(MUTANTS)
    yield from map(Seeded, names if count >= len(names) else rng.sample(names, count))
