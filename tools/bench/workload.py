"""Messages for measurements, and functions that measure."""

import random
import statistics
import time
from collections.abc import Callable

SEED = 20_261_116

_TEXT = (
    "the session store keeps every message in order and a reader sees a prefix of it while "
    "writers append under one lock per session so nothing that was acknowledged is ever lost"
)
_WORDS = _TEXT.split(" ")


def messages(count: int) -> list[dict[str, object]]:
    """Return messages of 100 bytes to 8 KB, median about 700, the same in each run."""
    rng = random.Random(SEED)
    made: list[dict[str, object]] = []
    for place in range(count):
        size = int(min(8000, max(60, rng.lognormvariate(6.4, 0.8))))
        text = " ".join(rng.choices(_WORDS, k=size // 5))[:size]
        if place % 5 == 0:
            arguments = '{"query": "' + text[: size // 2] + '"}'
            call = {
                "id": f"call_{place}",
                "type": "function",
                "function": {"name": "search", "arguments": arguments},
            }
            made.append({"role": "assistant", "content": None, "tool_calls": [call]})
        else:
            made.append({"role": ("user", "assistant")[place % 2], "content": text})
    return made


def median_us(action: Callable[[int], object], count: int) -> float:
    """Return the median time of an action in microseconds."""
    taken = []
    for place in range(count):
        start = time.perf_counter_ns()
        action(place)
        taken.append(time.perf_counter_ns() - start)
    return statistics.median(taken) / 1000


def seconds(action: Callable[[], object]) -> float:
    """Return how long an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def alternate(
    ours: Callable[[], float], limit: Callable[[], float], rounds: int
) -> tuple[float, float, float]:
    """Measure two things in turn; return the medians, and the median of their ratios.

    In turn, because the speed of the machine changes: each ratio is of adjacent measurements.
    """
    pairs = [(ours(), limit()) for _ in range(rounds)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )
