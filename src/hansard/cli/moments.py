"""Times as they are typed, and as they are shown.

Above: `columns`, `commands`.  Below: nothing of hansard.
A person types `2d` and reads `3 h ago`; a program reads RFC 3339, as events have it.
"""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

_AGE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")

#: What is longer ago is told by its date.
_LONG_AGO: Final = 14 * 86400


class Moment(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """A time: `2026-11-16`, `2026-11-16T09:30` (of this machine's zone unless it names one), or `2d` ago."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return it as a datetime with a zone."""
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        age = _AGE.fullmatch(text)
        try:
            if age is not None:
                return now() - timedelta(seconds=float(age[1]) * _UNITS[age[2]])
            found = datetime.fromisoformat(text)
            # Also those that name a zone: what the year 1 is in UTC may be in no calendar.
            return found.astimezone(UTC)
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{text!r} is no time; say 2026-11-16, 2026-11-16T09:30, or 2d for two days ago "
                "(s, m, h, d, w)",
                param,
                ctx,
            )


MOMENT: Final = Moment()


def now() -> datetime:
    """Return what time it is."""
    return datetime.fromtimestamp(time.time(), UTC)


def ago(stamp: str, at: datetime) -> str:
    """Return how long before a time something was; its date, if that is long ago. Short: for a table."""
    if not stamp:
        return ""
    then = datetime.fromisoformat(stamp)
    seconds = (at - then).total_seconds()
    if seconds < -60:  # noqa: PLR2004 - another machine's clock: a difference would explain nothing
        return then.astimezone().strftime("%Y-%m-%d %H:%M")
    if seconds < 60:  # noqa: PLR2004 - a minute
        return "just now"
    if seconds > _LONG_AGO:
        return then.astimezone().strftime("%Y-%m-%d")
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    raise AssertionError  # a minute or more is at least one of these
