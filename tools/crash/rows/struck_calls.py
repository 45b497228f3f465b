"""Row 1: every mutating call fails, or is the last one before the process is killed, below Python."""

import errno
import random
from collections.abc import Iterator
from typing import Final

from tools.crash.row import Row
from tools.crash.rows._choosing import chosen
from tools.crash.shim import MUTATING, Fault
from tools.crash.shimmed import Struck, calls_of, start
from tools.crash.workloads import WORKLOADS

ROW = Row(
    1, "every mutating call refused, once and from then on, or the last before death", 600, 4800
)

#: Errors that a call may meet apart from EIO and ENOSPC; one of them for every call, in turn.
RARER: Final = (errno.EDQUOT, errno.EMFILE, errno.EACCES, errno.EROFS, errno.ENOLCK)


#: Called first in a process that runs cases.
prepare = start


def every_case() -> list[Struck]:
    """Return all cases: each call of each workload, struck in each way."""
    found = []
    for workload in WORKLOADS:
        for at in range(1, calls_of(workload, MUTATING) + 1):
            faults = [
                Fault("fail", at, error=error, lasting=lasting)
                for error in (errno.EIO, errno.ENOSPC)
                for lasting in (False, True)
            ]
            faults += [Fault("before", at), Fault("after", at)]
            faults.append(Fault("fail", at, error=RARER[at % len(RARER)]))
            found += [Struck(workload, fault) for fault in faults]
    return found


def cases(count: int, rng: random.Random) -> Iterator[Struck]:
    """Yield `count` of all cases, spread over the workloads."""
    return chosen(every_case(), count, rng)
