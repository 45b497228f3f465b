"""Row 12: an interrupt at every point where Python delivers one; out of memory at every allocation.

Each kind is half of the cases.
"""

import atexit
import random
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice, zip_longest
from typing import NamedTuple

from tools.crash import memory
from tools.crash.interrupts import interrupt
from tools.crash.row import Outcome, Row
from tools.crash.struck import BY_NAME, Stage, Wrong

ROW = Row(12, "interrupt at every point; out of memory at every allocation", 1_000, 30_000)

#: The approximate number of points and allocations of each operation; a case after the last has no effect.
POINTS: Mapping[str, int] = {
    "append": 330,
    "append warm": 130,
    "append synced": 160,
    "batch": 710,
    "begin": 340,
    "create": 380,
    "stream": 320,
    "fork": 900,
    "revert": 550,
    "compact": 3_070,
    "delete": 850,
    "restore": 1_840,
    "list": 3_030,
    "list again": 420,
    "search": 6_570,
    "import": 850,
}
ALLOCATIONS: Mapping[str, int] = {
    "append": 400,
    "append warm": 100,
    "append synced": 120,
    "batch": 800,
    "begin": 400,
    "create": 450,
    "stream": 100,
    "fork": 900,
    "revert": 600,
    "compact": 3_500,
    "delete": 900,
    "restore": 2_500,
    "list": 3_500,
    "list again": 400,
    "search": 7_000,
    "import": 1_000,
}


@cache
def stage() -> Stage:
    """Return the prepared store of this process."""
    made = Stage()
    atexit.register(made.close)
    return made


class Interrupted(NamedTuple):
    """An operation that is interrupted at one point."""

    operation: str
    at: int

    @property
    def label(self) -> str:
        """Its name."""
        return f"interrupt {self.operation} {self.at}"

    def run(self) -> Outcome:
        """Interrupt it, and check what is left."""
        try:
            struck = interrupt(stage(), self.operation, self.at)
        except Wrong as wrong:
            return Outcome(ok=False, label=self.label, detail=repr(wrong))
        return Outcome(ok=True, label=self.label, detail=struck.place or "not reached")


class OutOfMemory(NamedTuple):
    """An operation one of whose allocations fails."""

    operation: str
    at: int

    @property
    def label(self) -> str:
        """Its name."""
        return f"memory {self.operation} {self.at}"

    def run(self) -> Outcome:
        """Let it fail in a forked child, and check what is left."""
        why_not = memory.missing()
        if why_not:
            return Outcome(ok=True, label=self.label, skipped=why_not)
        operation = BY_NAME[self.operation]
        # Run it once without a fault, to import everything.
        stage().states(operation)
        try:
            outcome, detail = memory.in_child(stage(), operation, self.at)
        except Wrong as wrong:
            outcome, detail = "wrong", str(wrong)
        return Outcome(ok=outcome != "wrong", label=self.label, detail=f"{outcome} {detail}")


def cases(count: int, rng: random.Random) -> Iterator[Interrupted | OutOfMemory]:
    """Yield cases; all of them if `count` is large enough."""
    for kind, table, share in (
        (Interrupted, POINTS, (count + 1) // 2),
        (OutOfMemory, ALLOCATIONS, count // 2),
    ):
        # An equal number for each operation as far as possible: the short ones are the most frequent calls.
        orders = [rng.sample(range(1, most + 1), most) for most in table.values()]
        turns = zip_longest(*orders)
        every = (
            kind(name, at) for turn in turns for name, at in zip(table, turn, strict=True) if at
        )
        yield from islice(every, share)
