"""Choose some of many cases, equally many of each workload if possible."""

import random
from collections.abc import Iterator

from tools.crash.shimmed import Struck


def chosen(every: list[Struck], count: int, rng: random.Random) -> Iterator[Struck]:
    """Yield `count` cases, or all if there are fewer, in an order that has each workload in turn."""
    by_workload: dict[str, list[Struck]] = {}
    for case in every:
        by_workload.setdefault(case.workload, []).append(case)
    for cases in by_workload.values():
        rng.shuffle(cases)
    left = min(count, len(every))
    while left:
        for cases in by_workload.values():
            if cases and left:
                left -= 1
                yield cases.pop()
