"""What a session's events add up to for a framework, without reading them all each time.

Above: `claude_agent`, `adk`.  Below: `hansard`.
A framework asks for sums in places where nobody would expect the whole log to be read: a listing wants the
summary or the state of every session. So a sum is noted in the log itself now and then, as an event of its
own that says how far it goes, and is added up from there. Such a note is a checkpoint: it may be missing,
late or written twice, and the sum is the same.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import hansard
from hansard import Event
from hansard.adapters import values

#: A note is due whenever so many events have come.
EVERY: Final = 32

#: How many events are looked at first, from the end; if there is no note among them, four times as many.
_LOOK: Final = 16

#: What changes what was there before: from here on, a sum must be made anew.
_CHANGING: Final = frozenset(
    {"session.reverted", "session.cleared", "message.redacted", "history.dropped"}
)


class Tally(NamedTuple):
    """A kind of sum: where it is noted, what it begins with, and what an event adds to it."""

    #: The kind of the events that note it.
    kind: str
    #: Makes the sum of nothing, a JSON object.
    begin: Callable[[], dict[str, Any]]
    #: Adds an event; it may change the sum that it is given.
    add: Callable[[dict[str, Any], Event], None]


class Sum(NamedTuple):
    """What the events up to a seq add up to."""

    seq: int
    value: dict[str, Any]


def shown(events: Iterable[Event]) -> list[Event]:
    """Return the events that count, of all from the first: none that a revert or a clear has put aside."""
    # Each event knows the one before it on its way, so that going back is to go on from there; and going
    # back to before a revert is to go on from what that one had put aside.
    ways: list[tuple[Event, int]] = []
    last = -1
    at = [last]
    for event in events:
        if event.kind == "session.reverted":
            last = at[min(event.data["seq"], len(at) - 1)]
        elif event.kind == "session.cleared":
            last = -1
        else:
            ways.append((event, last))
            last = len(ways) - 1
        at.append(last)
    found = []
    while last >= 0:
        event, last = ways[last]
        found.append(event)
    found.reverse()
    return found


def changed(events: Iterable[Event]) -> bool:
    """Say whether one of some events changes what was there before."""
    return any(event.kind in _CHANGING for event in events)


def added_up(session: hansard.Session, tally: Tally) -> Sum:
    """Return what all events of a session add up to; reads as far back as the last note.

    Of a fork it reads all: what was redacted in its parent may be in a note, and no event of its own says so.
    """
    forked = session.parent is not None
    for events, complete in looking_back(session):
        found = None if forked else _from_note(events, tally)
        if found is not None:
            return found
        if complete:
            return Sum(events[-1].seq if events else 0, _added(tally, tally.begin(), shown(events)))
    raise AssertionError("the last look is complete")


def looking_back(session: hansard.Session) -> Iterator[tuple[list[Event], bool]]:
    """Yield the last events of a session, then more of them, and whether these are all."""
    look = _LOOK
    while True:
        after = max(0, session.seq - look)
        yield list(session.events(after=after)), after == 0
        if not after:
            return
        look *= 4


def _from_note(events: list[Event], tally: Tally) -> Sum | None:
    """Return the sum, if the last note is among these events, and all that it lacks."""
    for place in range(len(events) - 1, -1, -1):
        event = events[place]
        if event.kind in _CHANGING:
            return None
        if event.kind != tally.kind:
            continue
        note = event.data
        value = values.unwrap(note, "value")
        if not isinstance(value, dict) or not isinstance(note.get("upto"), int):
            continue  # it was scrubbed, or is somebody else's
        if note["upto"] < events[0].seq - 1:
            return None
        since = [one for one in events if one.seq > note["upto"]]
        # A note goes at most as far as what stood before it: in between, something may have changed.
        return None if changed(since) else Sum(events[-1].seq, _added(tally, value, since))
    return None


def _added(tally: Tally, value: dict[str, Any], events: Iterable[Event]) -> dict[str, Any]:
    for event in events:
        tally.add(value, event)
    return value


def due(session: hansard.Session, before: int, after: int) -> bool:
    """Say whether a note is due when a session has come from one seq to another."""
    return before // EVERY != after // EVERY and session.parent is None


def note(session: hansard.Session, tally: Tally) -> Event:
    """Note what the events add up to."""
    found = added_up(session, tally)
    return session.append(tally.kind, {"upto": found.seq, **values.wrap("value", found.value)})
