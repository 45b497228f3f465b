"""Row 2: a write takes only a part of its bytes; the next one continues, or returns the error."""

import errno
import random
from collections.abc import Iterator
from typing import Final, Literal

from tools.crash.row import Row
from tools.crash.rows._choosing import chosen
from tools.crash.shim import Fault
from tools.crash.shimmed import Struck, calls_of, start
from tools.crash.workloads import WORKLOADS

ROW = Row(2, "short writes: one byte, half, all but one", 300, 300)

WRITES: Final = ("write",)
KEPT: Final[tuple[Literal["one", "half", "most"], ...]] = ("one", "half", "most")


#: Called first in a process that runs cases.
prepare = start


def every_case() -> list[Struck]:
    """Return all cases: each write of each workload, cut short in each way."""
    return [
        Struck(workload, Fault("short", at, WRITES, lasting=then > 0, keep=keep, then=then))
        for workload in WORKLOADS
        for at in range(1, calls_of(workload, WRITES) + 1)
        for keep in KEPT
        for then in (0, errno.ENOSPC)
    ]


def cases(count: int, rng: random.Random) -> Iterator[Struck]:
    """Yield `count` of all cases, spread over the workloads."""
    return chosen(every_case(), count, rng)
