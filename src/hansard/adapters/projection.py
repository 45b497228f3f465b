"""Fold a session's events for a framework, and on the next call add only what is new.

A `Projection` is kept in memory and in no file: a text that is redacted, scrubbed or dropped has no second
copy that would survive it. It is thrown away when it may be wrong: the session, or one that it was forked
from, lost content, or its id belongs to another session now.
"""

import copy
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final, Generic, TypeVar

import hansard
from hansard import Event

Found = TypeVar("Found")

#: Events that remove content of earlier ones; and those that change which events count.
_ERASING: Final = frozenset({"message.redacted", "history.dropped", "session.repaired"})
CHANGING: Final = _ERASING | {"session.reverted", "session.cleared"}

#: Sums kept by an adapter that lists sessions.
SUMS: Final = 1024

#: Events read first, from the end; each further look reads four times as many.
_LOOK: Final = 16


class Projection(ABC):
    """What a framework needs to know of one session.

    Attributes:
        handle: the session.
        lock: held while the projection is read, and never during an append.
        seq: the last event that is known.
    """

    #: Kinds of events that make what is known wrong.
    _outdating: ClassVar[frozenset[str]] = _ERASING

    def __init__(self, store: hansard.Store, session_id: str) -> None:
        self.handle = store.session(session_id)
        self.lock = threading.RLock()
        self._store = store
        self._reset()

    @abstractmethod
    def _begin(self) -> None:
        """Reset to the state before the first event."""

    @abstractmethod
    def _add(self, event: Event) -> None:
        """Add the next event."""

    def refresh(self) -> None:
        """Read what is new. A deleted session is an empty one."""
        with self.lock:
            try:
                if not self._follow():
                    self._reset()
                    self._read()
            except hansard.SessionDeleted:
                self._reset()

    def _reset(self) -> None:
        self.seq = 0
        self._last: Event | None = None
        self._ancestors: list[_Ancestor] | None = []
        self._begin()

    def _read(self) -> None:
        """Read all events."""
        # Before the events: what an ancestor loses concurrently is noticed by the next call.
        self._ancestors = _ancestors(self._store, self.handle)
        self._take(self.handle.events())

    def _follow(self) -> bool:
        """Read what is new; False if what is known is wrong, or if nothing is known."""
        # From the last known event: if it differs, the id belongs to another session now.
        events = self.handle.events(after=max(self.seq - 1, 0))
        if self._last is None or next(events, None) != self._last:
            return False
        try:
            if self._ancestors is None or not all(one.is_unchanged() for one in self._ancestors):
                return False
        except hansard.SessionDeleted:
            return False  # an ancestor may be restored, redacted and deleted again
        return self._take(events, known=True)

    def _take(self, events: Iterator[Event], *, known: bool = False) -> bool:
        for event in events:
            if known and event.kind in self._outdating:
                return False
            self._add(event)
            self.seq, self._last = event.seq, event
        return True


class Sum(Projection):
    """What the events that count add up to: none that a revert or a clear has put aside."""

    _outdating = CHANGING

    def __init__(
        self,
        store: hansard.Store,
        session_id: str,
        begin: Callable[[], dict[str, Any]],
        add: Callable[[dict[str, Any], Event], None],
    ) -> None:
        """Make a projection; `add` changes the value that it is given."""
        self._begin_value, self._add_to_value = begin, add
        super().__init__(store, session_id)

    def _begin(self) -> None:
        self._value = self._begin_value()

    def _add(self, event: Event) -> None:
        self._add_to_value(self._value, event)

    def _take(self, events: Iterator[Event], *, known: bool = False) -> bool:
        if known:
            return super()._take(events, known=True)
        every = list(events)
        for event in shown(every):
            self._add(event)
        if every:
            self.seq, self._last = every[-1].seq, every[-1]
        return True

    def value(self) -> tuple[int, dict[str, Any]]:
        """Return the last seq and what all events add up to, for the caller to change."""
        with self.lock:
            self.refresh()
            return self.seq, copy.deepcopy(self._value)


class _Ancestor:
    """A session that another was forked from, and the last event of it that is known."""

    def __init__(self, session: hansard.Session) -> None:
        self._session = session
        self._last = next(session.events(after=max(session.seq - 1, 0)), None)

    def is_unchanged(self) -> bool:
        """Return whether it still exists and has lost no content since the last call."""
        events = self._session.events(after=max((self._last.seq if self._last else 0) - 1, 0))
        if next(events, None) != self._last:
            return False
        for event in events:
            if event.kind in _ERASING:
                return False
            self._last = event
        return True


def _ancestors(store: hansard.Store, session: hansard.Session) -> "list[_Ancestor] | None":
    """Return the sessions that one was forked from; None if one is in the trash or out of scope."""
    found = []
    try:
        while (parent := session.parent) is not None:
            session = store.session(parent)
            found.append(_Ancestor(session))
    except (hansard.SessionDeleted, hansard.InvalidSessionId):
        return None
    return found


class Recent(Generic[Found]):
    """Projections by the ids of their sessions: the most recently used."""

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._mutex = threading.Lock()
        self._known: OrderedDict[str, Found] = OrderedDict()

    def of(self, session_id: str, make: Callable[[str], Found]) -> Found:
        """Return the projection of a session; `make` it if it is not kept."""
        with self._mutex:
            if session_id not in self._known:
                self._known[session_id] = make(session_id)
            self._known.move_to_end(session_id)
            if len(self._known) > self._limit:
                self._known.popitem(last=False)
            return self._known[session_id]

    def forget(self, session_id: str | None = None) -> None:
        """Drop the projection of one session, or all."""
        with self._mutex:
            if session_id is None:
                self._known.clear()
            else:
                self._known.pop(session_id, None)


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
    """Return whether one of these events changes what earlier ones mean."""
    return any(event.kind in CHANGING for event in events)


def shown(events: Iterable[Event]) -> list[Event]:
    """Return the events that count, given all from the first: none before a clear, none reverted."""
    # Each event knows its predecessor, so a revert continues from an earlier one; a revert to before
    # another revert continues from what that one had put aside.
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
