"""Fold a session's events for a framework; a later call adds only the new events.

An `AdapterProjection` is kept in memory only: a redacted, scrubbed or dropped text has no second copy. It is
rebuilt when it may be wrong: if the session, or one that it was forked from, lost content; if a revert or a
clear changed which events count. A session with the id of an earlier one gets a new projection. Adapters keep
those that they used last, by the ids of their sessions (`lru_cache`).
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import hansard
from hansard import Event

#: Kinds of events that remove content of earlier ones, and those that change which events count.
_ERASING: Final = frozenset({"message.redacted", "history.dropped", "session.repaired"})
CHANGING: Final = _ERASING | {"session.reverted", "session.cleared"}


@dataclass
class _ProjectionTail:
    """The last known event of a session."""

    session: hansard.Session
    last: Event | None = None

    @property
    def seq(self) -> int:
        return self.last.seq if self.last else 0

    def follow(self, outdating: frozenset[str] = _ERASING) -> list[Event] | None:
        """Return the new events; None if the session changed, or one is of an outdating kind."""
        # From the last known event: if it differs, the id belongs to another session now.
        events = self.session.events(after=max(self.seq - 1, 0))
        if next(events, None) != self.last:
            return None
        found = []
        for event in events:
            if event.kind in outdating:
                return None
            found.append(event)
        if found:
            self.last = found[-1]
        return found


class AdapterProjection(ABC):
    """What a framework needs to know of one session.

    Attributes:
        handle: the session.
        lock: held while the projection is read, and never during an append.
    """

    #: Whether events before a clear, and reverted ones, are left out.
    _follows_reverts: ClassVar[bool] = True

    def __init__(self, store: hansard.Store, session_id: str) -> None:
        self.handle = store.session(session_id)
        self.lock = threading.RLock()
        self._store = store
        self._reset()

    @property
    def seq(self) -> int:
        """The last known seq."""
        return self._tail.seq

    @abstractmethod
    def _begin(self) -> None:
        """Reset to the state before the first event."""

    @abstractmethod
    def _add(self, event: Event) -> None:
        """Add the next event."""

    @contextmanager
    def fresh(self) -> Iterator[Self]:
        """Hold the lock, with all events read."""
        with self.lock:
            self.refresh()
            yield self

    def refresh(self) -> None:
        """Read new events. A deleted session is an empty one."""
        with self.lock:
            try:
                if not self._follow():
                    self._reset()
                    self._read()
            except hansard.SessionDeleted:
                self._reset()

    def _reset(self) -> None:
        self._tail = _ProjectionTail(self.handle)
        self._ancestors: list[_ProjectionTail] | None = []
        self._begin()

    def _read(self) -> None:
        # Before the events: the next call notices what an ancestor loses concurrently.
        self._ancestors = _ancestors(self._store, self.handle)
        events: Iterable[Event] = self.handle.events()
        if self._follows_reverts:
            events = list(events)
            for event in shown(events):
                self._add(event)
        for event in events:
            if not self._follows_reverts:
                self._add(event)
            self._tail.last = event

    def _follow(self) -> bool:
        """Add new events; return False if all must be read."""
        found = self._tail.follow(CHANGING if self._follows_reverts else _ERASING)
        if found is None or self._ancestors is None:
            return False
        try:
            if any(ancestor.follow() is None for ancestor in self._ancestors):
                return False
        except hansard.SessionDeleted:
            return False  # an ancestor may be restored, redacted and deleted again
        for event in found:
            self._add(event)
        return True


def _ancestors(store: hansard.Store, session: hansard.Session) -> list[_ProjectionTail] | None:
    """Return the sessions that one was forked from; None if one is in the trash or out of scope."""
    found = []
    try:
        while (parent := session.parent) is not None:
            session = store.session(parent)
            last = next(session.events(after=max(session.seq - 1, 0)), None)
            found.append(_ProjectionTail(session, last))
    except (hansard.SessionDeleted, hansard.InvalidSessionId):
        return None
    return found


def shown(events: Iterable[Event]) -> list[Event]:
    """Return the events that count, given all from the first: none before a clear, none reverted."""
    # Each event is stored with its predecessor. A revert continues from an earlier event; a revert to a
    # place before another revert continues from events that the other one had hidden.
    paths: list[tuple[Event, int]] = []
    last = -1
    at = [last]
    for event in events:
        if event.kind == "session.reverted":
            last = at[min(event.data["seq"], len(at) - 1)]
        elif event.kind == "session.cleared":
            last = -1
        else:
            paths.append((event, last))
            last = len(paths) - 1
        at.append(last)
    found = []
    while last >= 0:
        event, last = paths[last]
        found.append(event)
    found.reverse()
    return found
