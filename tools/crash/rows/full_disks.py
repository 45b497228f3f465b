"""Row 10: full disks, read-only disks, no permission, limits; and it works again when the cause is gone.

Above: `campaign`.  Below: `full_disks`.
"""

import random
from collections.abc import Iterator

from tools.crash.full_disks import SITUATIONS, Refusal
from tools.crash.nursery import start
from tools.crash.row import Row

ROW = Row(10, "full and read-only disks, no permission, limits; works again", 10, 10)


#: A process that runs cases calls this first.
prepare = start


def cases(count: int, rng: random.Random) -> Iterator[Refusal]:
    """Yield each situation, or so many of them by chance."""
    chosen = list(SITUATIONS)
    if count < len(chosen):
        chosen = rng.sample(chosen, count)
    return map(Refusal, chosen)
