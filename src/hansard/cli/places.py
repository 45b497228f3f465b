"""Places in a session, as they are typed: a seq, a time, or the label of a snapshot.

Above: `commands`.  Below: the public API.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from hansard import Session

#: What `at=` takes.
Place = int | str | datetime


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
        return value if isinstance(value, int | datetime) else parse(str(value))


def parse(text: str) -> Place:
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


PLACE = PlaceType()
