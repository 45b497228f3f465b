"""Keep what the control events of a session add up to, and add what is new.

Above: `reading`, `views`.  Below: `fold`, `path`, `lineage`, `redaction`.
To read all of them for each call would take the square of their number. What is kept is thrown away when it
may not hold any more: when something was redacted, dropped or repaired, or when the last event that is known
is another one now, because the session was purged and its id is used again, or was restored from a backup.
"""

from typing import Final, NamedTuple

from hansard.backend.contract import LogReader
from hansard.event.envelope import Event
from hansard.event.kinds import HISTORY_DROPPED, MESSAGE_REDACTED, SESSION_REPAIRED
from hansard.state import fold, lineage
from hansard.state.fold import State
from hansard.state.lineage import ForkedReader
from hansard.state.path import Course
from hansard.state.redaction import NOTHING, Redactions

#: What changes the meaning of events before it.
_CHANGING: Final = frozenset({HISTORY_DROPPED, MESSAGE_REDACTED, SESSION_REPAIRED})


class Known(NamedTuple):
    """What the control events add up to at one moment. Its dicts are shared: copy what you hand out."""

    #: The fold of the control events: metadata, title, snapshots.
    state: State
    #: What was redacted in the session, or in those it was forked from.
    redactions: Redactions
    #: Which parts of the log the model view shows.
    course: Course


class Projection:
    """What is known of a session's control events. Not to be refreshed by two threads at once."""

    __slots__ = ("_known", "_last")

    def __init__(self) -> None:
        self._known = Known(fold.EMPTY, NOTHING, Course())
        #: The last control event that is known of each log: of the ancestors, and of the session.
        self._last: list[tuple[str, Event | None]] = []

    def refresh(self, log: LogReader) -> Known:
        """Take in the control events that are new; all of them, if what is known does not hold any more."""
        logs = log.readers() if isinstance(log, ForkedReader) else [log]
        new = self._new(logs) if self._last else None
        if new is None:
            self._last = [(one.session_id, None) for one in logs]
            new = [one.controls() for one in logs]
            changed = any(event.kind in _CHANGING for events in new for event in events)
            redactions = lineage.redactions_of(log) if changed else NOTHING
            self._known = Known(fold.EMPTY, redactions, Course())
        state, redactions, course = self._known
        inherited = [part.upto for part in log.inherited] if isinstance(log, ForkedReader) else []
        added: list[Event] = []
        for place, events in enumerate(new):
            if events:
                self._last[place] = (self._last[place][0], events[-1])
            if place < len(inherited):
                events = [event for event in events if event.seq <= inherited[place]]  # noqa: PLW2901
            added += events
        if added:
            masked = [redactions.mask(event) for event in added]
            course.add(masked)
            self._known = Known(fold.apply_all(state, masked), redactions, course)
        return self._known

    def _new(self, logs: list[LogReader]) -> list[list[Event]] | None:
        """Return the control events of each log that are not known; None if what is known does not hold."""
        if [name for name, _ in self._last] != [one.session_id for one in logs]:
            return None
        found = []
        for one, (_, last) in zip(logs, self._last, strict=True):
            events = one.controls(after=0 if last is None else last.seq - 1)
            if last is not None:
                if not events or events[0] != last:
                    return None
                events = events[1:]
            if any(event.kind in _CHANGING for event in events):
                return None
            found.append(events)
        return found


def known_of(log: LogReader) -> Known:
    """Return what the control events of a session add up to, for one call."""
    return Projection().refresh(log)
