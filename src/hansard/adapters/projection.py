"""What a session's events add up to for a framework, without reading them all each time.

A framework asks again and again, and a log only grows. So a `Projection` stays in memory, and a look at it
reads what has come since. It is thrown away when it may not hold any more: something was taken out of the
session, or its id is another session's by now.

A listing asks this of every session, in a process that has read none. So a `Noted` projection is stored in
the log now and then, as an event that says how far it goes, and is added up from there. Such a note may be
missing, late or written twice, and the result is the same.
"""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

import hansard
from hansard import Event
from hansard.adapters import values

Found = TypeVar("Found")

#: What changes events that were read already; and, for what counts of them, takes some back.
_ERASING: Final = frozenset({"message.redacted", "history.dropped", "session.repaired"})
_CHANGING: Final = _ERASING | {"session.reverted", "session.cleared"}

#: A note is due whenever so many events have come.
EVERY: Final = 32

#: How many events are looked at first, from the end; if there is no note among them, four times as many.
_LOOK: Final = 16

#: So many projections are kept.
_RECENT: Final = 64


# -- in memory ----------------------------------------------------------------------------------


class Projection(ABC):
    """What is known of one session.

    Attributes:
        handle: the session.
        lock: held while what is known is read, and never during an append.
        seq: how far it is known.
    """

    def __init__(self, handle: hansard.Session) -> None:
        self.handle = handle
        self.lock = threading.RLock()
        self._begin_anew()

    @abstractmethod
    def _begin(self) -> None:
        """Know nothing of the session, as in the beginning."""

    @abstractmethod
    def _add(self, event: Event) -> None:
        """Add the next event to what is known."""

    def refresh(self) -> None:
        """Read what is new. A session that is gone is an empty one."""
        with self.lock:
            try:
                if not self._follow():
                    self._begin_anew()
                    self._follow()
            except hansard.SessionDeleted:
                self._begin_anew()

    def _begin_anew(self) -> None:
        self.seq = 0
        self._last: Event | None = None
        self._begin()

    def _follow(self) -> bool:
        """Read what is new; False if what is known is not true any more."""
        known = self._last
        fresh = known is None
        # From the last one that is known: if it is not the same, the name is another session's by now.
        for event in self.handle.events(after=0 if fresh else self.seq - 1):
            if known is not None:
                if event != known:
                    return False
                known = None
                continue
            if not fresh and event.kind in _ERASING:
                return False
            self._add(event)
            self.seq, self._last = event.seq, event
        return known is None


class Recent(Generic[Found]):
    """Projections by the ids of their sessions: those that were used last."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._known: OrderedDict[str, Found] = OrderedDict()

    def of(self, session_id: str, make: Callable[[], Found]) -> Found:
        """Return the one of a session, made if it is not here."""
        with self._mutex:
            if session_id not in self._known:
                self._known[session_id] = make()
            self._known.move_to_end(session_id)
            if len(self._known) > _RECENT:
                self._known.popitem(last=False)
            return self._known[session_id]

    def forget(self, session_id: str | None = None) -> None:
        """Let one go, or all."""
        with self._mutex:
            if session_id is None:
                self._known.clear()
            else:
                self._known.pop(session_id, None)


# -- noted in the log ---------------------------------------------------------------------------


class Sum(NamedTuple):
    """What the events up to a seq add up to."""

    seq: int
    value: dict[str, Any]


class Noted(NamedTuple):
    """A projection of the events that count: where it is noted, how it begins, and what an event adds."""

    #: The kind of the events that note it.
    kind: str
    #: Makes the sum of nothing, a JSON object.
    begin: Callable[[], dict[str, Any]]
    #: Adds an event; it may change the sum that it is given.
    add: Callable[[dict[str, Any], Event], None]

    def of(self, session: hansard.Session) -> Sum:
        """Return what all events of a session add up to; reads as far back as the last note.

        Of a fork it reads all: what was redacted in its parent may be in a note, and no event in the fork
        says so.
        """
        forked = session.parent is not None
        for events, complete in looking_back(session):
            found = None if forked else self._from_note(events)
            if found is None and complete:
                found = self._added(self.begin(), shown(events))
            if found is not None:
                return Sum(events[-1].seq if events else 0, found)
        raise AssertionError("the last look is complete")

    def _from_note(self, events: list[Event]) -> dict[str, Any] | None:
        """Return the sum, if the last note is among these events, and all that it lacks."""
        for event in reversed(events):
            if event.kind in _CHANGING:
                return None
            if event.kind != self.kind:
                continue
            upto, value = event.data.get("upto"), values.unwrap(event.data, "value")
            if not isinstance(value, dict) or not isinstance(upto, int):
                continue  # it was scrubbed, or belongs to another session
            since = [one for one in events if one.seq > upto]
            # A note goes at most as far as what stood before it: in between, something may have changed.
            lacking = upto < events[0].seq - 1 or changed(since)
            return None if lacking else self._added(value, since)
        return None

    def _added(self, value: dict[str, Any], events: Iterable[Event]) -> dict[str, Any]:
        for event in events:
            self.add(value, event)
        return value

    def note(self, session: hansard.Session, before: int, after: int) -> Event | None:
        """Note the sum, if one is due when a session has come from one seq to another."""
        if before // EVERY == after // EVERY or session.parent is not None:
            return None
        seq, value = self.of(session)
        return session.append(self.kind, {"upto": seq, **values.wrap("value", value)})


def looking_back(session: hansard.Session) -> Iterator[tuple[list[Event], bool]]:
    """Yield the last events of a session, then more of them, and whether these are all."""
    look = _LOOK
    while True:
        after = max(0, session.seq - look)
        yield list(session.events(after=after)), after == 0
        if not after:
            return
        look *= 4


def changed(events: Iterable[Event]) -> bool:
    """Say whether one of some events changes what was there before."""
    return any(event.kind in _CHANGING for event in events)


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
