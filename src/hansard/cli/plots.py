"""Small plots: bars across, one for each thing, and columns that show how something grew.

Above: `commands`.  Below: `drawing`.
Pure: numbers go in, lines of text come out.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from hansard.cli.drawing import Pens

#: How many days one column of a plot may stand for.
_SPANS = ((1, "day"), (7, "week"), (28, "4 weeks"), (364, "52 weeks"))


def bar(value: float, most: float, width: int, pens: Pens) -> str:
    """Return a bar across: as long as there is room, for the most. What is not nothing is seen."""
    if value <= 0 or most <= 0 or width < 1:
        return ""
    parts = len(pens.across)
    eighths = min(max(round(value / most * width * parts), 1), width * parts)
    whole, rest = divmod(eighths, parts)
    return pens.across[-1] * whole + (pens.across[rest - 1] if rest else "")


def columns(values: Sequence[float], height: int, pens: Pens) -> list[str]:
    """Return lines, from above, of a plot with a column for each value. What is not nothing is seen."""
    most = max(values, default=0)
    parts = len(pens.upward)
    heights = [
        min(max(round(value / most * height * parts), 1), height * parts) if value > 0 else 0
        for value in values
    ]
    lines = []
    for row in range(height - 1, -1, -1):
        line = ""
        for tall in heights:
            filled = min(max(tall - row * parts, 0), parts)
            line += pens.upward[filled - 1] if filled else " "
        lines.append(line.rstrip())
    return lines


class Growth(NamedTuple):
    """How something grew: what each span of days has added."""

    #: What a column stands for: "day", "week" …
    span: str
    first: date
    last: date
    values: list[int]


def growth(days: Mapping[str, int], width: int) -> Growth | None:
    """Gather what each day has added, so that all of it has room; None if there is nothing.

    Days on which nothing happened count, as 0: a gap is a gap.
    """
    known = {date.fromisoformat(day): value for day, value in days.items()}
    if not known:
        return None
    first, last = min(known), max(known)
    length = (last - first).days + 1
    long = math.ceil(length / max(width, 1))
    span, name = next((known for known in _SPANS if known[0] >= long), (long, f"{long} days"))
    values = [0] * math.ceil(length / span)
    for day, value in known.items():
        values[(day - first).days // span] += value
    end = min(first + timedelta(days=len(values) * span - 1), last)
    return Growth(name, first, end, values)
