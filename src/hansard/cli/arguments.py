"""Times, ages and places in a session, as they are typed and as they are told.

A person types `2d` and reads `3 h ago`; a program reads RFC 3339, as events have it.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from hansard import clock

if TYPE_CHECKING:
    from hansard import Session

#: A place in a session, as `at=` takes it.
Place = int | str | datetime

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

#: What is longer ago is told by its date.
_LONG_AGO: Final = 14 * 86400


def _age(text: str) -> timedelta | None:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhdw])", text)
    return match and timedelta(seconds=float(match[1]) * _UNITS[match[2]])


class Age(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """How long: `30d`, `12h`, `2w`."""

    name = "age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return it as a timedelta."""
        age = _age(str(value))
        if age is None:
            self.fail(f"{value!r} is no age; say 30d, 12h or 2w (s, m, h, d, w)", param, ctx)
        return age


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
        try:
            age = _age(text)
            if age is not None:
                return clock.now() - age
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


class PlaceType(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """A seq (`12`), a time (`2026-11-16T09:30`, of this machine's zone unless it names one), or a label."""

    name = "seq|time|label"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002 - click's signature
        ctx: click.Context | None,  # noqa: ARG002 - click's signature
    ) -> Place:
        """Tell the three apart: what is neither a number nor a time is a label."""
        return value if isinstance(value, int | datetime) else parse_place(str(value))


def parse_place(text: str) -> Place:
    """Return the place that a text names."""
    if text.isdecimal() and text.isascii():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time.astimezone() if time.tzinfo is None else time


def last_before(session: "Session", place: Place) -> int:
    """Return the seq after which a place begins: the event at it is the next one."""
    if isinstance(place, datetime):
        return seq_at(session, place - timedelta(microseconds=1))
    return max(seq_at(session, place) - 1, 0)


def seq_at(session: "Session", place: Place) -> int:
    """Return the seq of the last event at a place; an error if the session has none there."""
    if isinstance(place, int):
        last = session.seq
        if place > last:
            from hansard import InvalidEvent

            raise InvalidEvent(f"session {session.id!r} has the seqs 1 to {last}, and none {place}")
        return place
    if isinstance(place, str):
        known = session.snapshots
        if place in known:
            return known[place]
    return session.state(at=place).seq


AGE: Final = Age()
MOMENT: Final = Moment()
PLACE: Final = PlaceType()
