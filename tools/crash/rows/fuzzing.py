"""Row 13: every reader is fed altered data.

A case is some inputs for one target: many if one takes microseconds, few if it takes milliseconds.
"""

import atexit
import random
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tools.crash.fuzz import fuzz
from tools.crash.fuzz_targets import BY_NAME, TARGETS, Bench
from tools.crash.row import Outcome, Row
from tools.crash.struck import Wrong

#: This number of cases takes about ten minutes on two cores.
ROW = Row(13, "decoder fuzzing: altered files, exports, tokens, names, queries", 36, 6_000)


@cache
def bench() -> Bench:
    """Return the prepared store of this process."""
    made = Bench()
    atexit.register(made.close)
    return made


class Case(NamedTuple):
    """Some inputs for one target."""

    target: str
    seed: int

    @property
    def label(self) -> str:
        """Its name."""
        return f"fuzz {self.target} {self.seed}"

    def run(self) -> Outcome:
        """Feed them."""
        target = BY_NAME[self.target]
        try:
            fuzz(bench(), target, target.inputs, random.Random(self.seed))
        except Wrong as wrong:
            return Outcome(ok=False, label=self.label, detail=str(wrong))
        return Outcome(ok=True, label=self.label, detail=f"{target.inputs} inputs")


def cases(count: int, rng: random.Random) -> Iterator[Case]:
    """Yield `count` cases, one target after the other."""
    for number in range(count):
        yield Case(TARGETS[number % len(TARGETS)].name, rng.getrandbits(32))
