"""Count what happened in a session itself, day by day, without what it inherits.

Above: `stats`.  Below: `state`, `backend.contract`, `event`.
To know it means to read all of the session, also what a compaction has put away, which a listing never does.
So it is counted when somebody asks, kept in the index, and gone on with when the session has grown.
"""

import msgspec

from hansard.backend.contract import LogReader
from hansard.event.envelope import Event
from hansard.event.kinds import MESSAGE_ADDED, USAGE_RECORDED
from hansard.state import fold, redaction
from hansard.state.fold import State, Usage


class Tally(msgspec.Struct, array_like=True):
    """What happened in a session up to a seq: events and messages by day (UTC), and usage by model."""

    seq: int = 0
    days: dict[str, tuple[int, int]] = {}
    usage: dict[str, Usage] = {}


def count(log: LogReader, before: Tally, upto: int) -> Tally:
    """Return what happened in a session itself up to a seq; `before`: what was counted of it already."""
    redactions = redaction.of(log.controls())
    days = dict(before.days)
    state = State(usage=before.usage)
    for chunk in log.read(before.seq, upto):
        events = chunk.events()
        _add(days, events)
        used = [redactions.mask(event) for event in events if event.kind == USAGE_RECORDED]
        state = fold.apply_all(state, used)
    return Tally(upto, days, state.usage)


def _add(days: dict[str, tuple[int, int]], events: list[Event]) -> None:
    for event in events:
        day = event.stamp[:10]
        there, messages = days.get(day, (0, 0))
        is_message = event.kind == MESSAGE_ADDED
        days[day] = (there + 1, messages + is_message)
