"""Read values of foreign JSON without trusting their types."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from hansard import clock

#: Numbers from these on are nanoseconds, microseconds, milliseconds; smaller ones are seconds (until 5138).
_UNITS: Final = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))


def parse_time(value: object) -> str | None:
    """Return a time as hansard writes it, from ISO 8601 text or a number of seconds, ms, µs or ns.

    None for anything else. Text without a time zone is UTC.
    """
    try:
        if isinstance(value, str):
            text = value.strip()
            if text.replace(".", "", 1).isdigit():
                return parse_time(float(text))
            when = datetime.fromisoformat(text)
            when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            if not math.isfinite(value) or value <= 0:
                return None
            divisor = next((unit for least, unit in _UNITS if value >= least), 1)
            when = datetime.fromtimestamp(value / divisor, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return clock.stamp(when)


def text_of(value: object) -> str | None:
    """Return a string that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None


def count_of(value: object) -> int:
    """Return an integer; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def list_of(value: object) -> list[Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def common_prefix(ours: Sequence[object], theirs: Sequence[object]) -> int:
    """Return how many values at the beginning of two sequences are equal."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(ours), len(theirs)))


def json_type(value: object) -> str:
    """Return the type of a JSON value, for a report."""
    return {dict: "object", list: "array", str: "string", bool: "boolean"}.get(
        type(value), "null" if value is None else "number"
    )
