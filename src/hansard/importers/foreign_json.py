"""Read values of foreign JSON without trusting their types."""

import math
from datetime import UTC, datetime
from typing import Any, Final

from hansard import clock

#: Numbers from these on are nanoseconds, microseconds, milliseconds; smaller ones are seconds (until 5138).
_UNITS: Final = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))


class Unreadable(Exception):
    """A file, session or item cannot be read; the text says why, and is empty if that was reported."""


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


def member(value: object, *path: str) -> Any:
    """Return a member of nested objects; None if one of them is not an object or lacks it."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_of(value: object) -> str | None:
    """Return a string that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None


def text_in(data: object, *names: str) -> str | None:
    """Return the first of these members that is a string and not empty."""
    return next((text for name in names if (text := text_of(member(data, name)))), None)


def time_in(data: object, *names: str) -> str | None:
    """Return the first of these members that is a time, as `parse_time` returns it."""
    return next((time for name in names if (time := parse_time(member(data, name)))), None)


def count_of(value: object) -> int:
    """Return an integer; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def list_of(value: object) -> list[Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return an object without these members, and without empty ones."""
    return {name: value for name, value in data.items() if name not in names and value}


def json_type(value: object) -> str:
    """Return the type of a JSON value, for a report."""
    return {dict: "object", list: "array", str: "string", bool: "boolean"}.get(
        type(value), "null" if value is None else "number"
    )


def object_of(value: object, what: str) -> dict[str, Any]:
    """Return an object, or raise `Unreadable`; `what` it should be, for the report."""
    if isinstance(value, dict):
        return value
    raise Unreadable(f"a JSON {json_type(value)}, not {what}")
