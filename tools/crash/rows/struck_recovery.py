"""Row 4: a process is killed, and the recovery by the next one fails at one of its calls."""

import errno
import random
from collections.abc import Iterator
from typing import Final

from tools.crash.row import Row
from tools.crash.shim import Fault
from tools.crash.shimmed import Struck, calls_of, start
from tools.crash.workloads import WORKLOADS

ROW = Row(4, "a fault at each call of recovery", 300, 1500)

#: The faults during recovery.
FAULTS: Final = (
    Fault("fail", error=errno.EIO),
    Fault("fail", error=errno.EIO, lasting=True),
    Fault("fail", error=errno.ENOSPC),
    Fault("fail", error=errno.ENOSPC, lasting=True),
    Fault("before"),
    Fault("after"),
)


#: Called first in a process that runs cases.
prepare = start


def cases(count: int, rng: random.Random) -> Iterator[Struck]:
    """Yield `count` cases: each call of recovery in turn, each fault in turn, after a death at random."""
    calls = calls_of("recover")
    workloads = list(WORKLOADS)
    for number in range(count):
        fault = FAULTS[number % len(FAULTS)]
        workload = workloads[number % len(workloads)]
        when = Fault(rng.choice(("before", "after")), rng.randint(1, calls_of(workload)))
        yield Struck(workload, fault._replace(at=number * 7 % calls + 1), killed=when)
