"""Row 6: power cuts on ext4 and XFS."""

import random
from collections.abc import Iterator
from typing import Final

from tools.crash.nursery import start
from tools.crash.power import PowerCut
from tools.crash.row import Row
from tools.crash.workloads import WORKLOADS

ROW = Row(6, "power cuts on ext4 and XFS", 40, 400)

KINDS: Final = ("ext4", "xfs")

#: More than any workload acknowledges: the power cut then follows its end.
MOST: Final = 18

#: With durability "os" there are guarantees only for appends.
CARELESS: Final = ("create", "group")


#: Called first in a process that runs cases.
prepare = start


def cases(count: int, rng: random.Random) -> Iterator[PowerCut]:
    """Yield `count` cuts, on each file system in turn; one in five with durability "os"."""
    workloads = list(WORKLOADS)
    for number in range(count):
        careless = number % 10 in {8, 9}
        yield PowerCut(
            KINDS[number % len(KINDS)],
            rng.choice(CARELESS) if careless else workloads[number // 2 % len(workloads)],
            rng.randint(0, MOST),
            "os" if careless else "sync",
            journal=rng.choice((True, False, False, False)),
        )
