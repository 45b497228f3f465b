"""Row 3: a sync fails and loses its bytes, as another process sees.

A plain error does not detect a store that ignores it, because the cache keeps the bytes. This does.
"""

import random
from collections.abc import Iterator
from typing import Final, Literal

from tools.crash.failing_disk import FailingDisk
from tools.crash.row import Case, Row
from tools.crash.rows._choosing import chosen
from tools.crash.shim import Fault
from tools.crash.shimmed import Struck, calls_of, start
from tools.crash.workloads import WORKLOADS

ROW = Row(3, "a failed sync that loses the bytes, seen from another process", 250, 251)

SYNCS: Final = ("sync",)
LOST: Final[tuple[Literal["nul", "cut", "later"], ...]] = ("nul", "cut", "later")


#: Called first in a process that runs cases.
prepare = start


def every_case() -> list[Struck]:
    """Return all cases of the shim: each sync of each workload, failing in each way."""
    return [
        Struck(workload, Fault("drop", at, SYNCS, lasting=lasting, lost=lost))
        for workload in WORKLOADS
        for at in range(1, calls_of(workload, SYNCS) + 1)
        for lost in LOST
        for lasting in (False, True)
    ]


def cases(count: int, rng: random.Random) -> Iterator[Case]:
    """Yield `count` of all cases, and first the disk that really fails."""
    yield FailingDisk()
    yield from chosen(every_case(), count - 1, rng)
