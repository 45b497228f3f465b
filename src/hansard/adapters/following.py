"""What an adapter knows of one session, brought up to date by the events that are new in it.

Above: `langgraph_thread`, `strands_session`.  Below: `hansard`.
A framework asks for its state again and again; a session's log only grows. So what the events add up to is
kept, and a look at it reads what has come since. It is read anew when what was kept may not be true any more:
the name belongs to another session by now, or something was taken out.
"""

import threading
from abc import ABC, abstractmethod
from typing import Final

import hansard

#: What changes events that were read already.
_CHANGING: Final = frozenset({"message.redacted", "history.dropped"})


class Following(ABC):
    """What is known of one session.

    Attributes:
        handle: the session.
        lock: held by whoever reads what is known, and never during an append.
        seq: how far it is known.
    """

    def __init__(self, handle: hansard.Session) -> None:
        self.handle = handle
        self.lock = threading.RLock()
        self._begin_anew()

    @abstractmethod
    def _forget(self) -> None:
        """Know nothing of the session, as in the beginning."""

    @abstractmethod
    def _add(self, event: hansard.Event) -> None:
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
        self._last: hansard.Event | None = None
        self._forget()

    def _follow(self) -> bool:
        """Read what is new; False if what is known is not true any more."""
        known = self._last
        anew = known is None
        # From the last one that is known: if it is not the same, the name is another session's by now.
        for event in self.handle.events(after=0 if anew else self.seq - 1):
            if known is not None:
                if event != known:
                    return False
                known = None
                continue
            if not anew and event.kind in _CHANGING:
                return False
            self._add(event)
            self.seq, self._last = event.seq, event
        return known is None
