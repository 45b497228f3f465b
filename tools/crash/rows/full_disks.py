"""Row 10: full and read-only disks, missing permissions, limits; all works after the cause is removed."""

import random
from collections.abc import Iterator

from tools.crash.full_disks import SITUATIONS, Refusal
from tools.crash.nursery import start
from tools.crash.row import Row

ROW = Row(
    10,
    "full and read-only disks, no permission, limits; works again",
    len(SITUATIONS),
    len(SITUATIONS),
)


#: Called first in a process that runs cases.
prepare = start


def cases(count: int, rng: random.Random) -> Iterator[Refusal]:
    """Yield all situations, or a random sample."""
    chosen = list(SITUATIONS)
    if count < len(chosen):
        chosen = rng.sample(chosen, count)
    return map(Refusal, chosen)
