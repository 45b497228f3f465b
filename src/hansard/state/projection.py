"""Keep what the control events of a session add up to, and add what is new.

Reading all of them for each call would take the square of their number. What is kept is discarded when it
may be outdated: when something was redacted, dropped or repaired, or when the last known event differs now,
because the session was purged and its id is used again, or was restored from a backup.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hansard.backend.contract import LogReader
from hansard.event import kinds
from hansard.event.event import Event
from hansard.event.kinds import (
    HISTORY_DROPPED,
    MESSAGE_REDACTED,
    SESSION_CLEARED,
    SESSION_REPAIRED,
    SESSION_REVERTED,
    SUMMARY_ADDED,
)
from hansard.state import fold, lineage
from hansard.state.fold import State
from hansard.state.lineage import ForkedReader
from hansard.state.redaction import NOTHING, Redactions

#: What changes the meaning of events before it.
_CHANGING: Final = frozenset({HISTORY_DROPPED, MESSAGE_REDACTED, SESSION_REPAIRED})


class _Bound(NamedTuple):
    """A clear, or a summary."""

    seq: int
    #: The last seq that it removes from the view.
    upto: int
    #: The highest `upto` of this one and of all before it.
    reach: int
    #: None for a clear.
    summary: Event | None


class Course:
    """The control events that decide the model view, parsed once. Grows; what it holds does not change."""

    __slots__ = ("_marks", "_reverts")

    def __init__(self) -> None:
        #: The seq of each revert, and the seq that it leads back to.
        self._reverts: list[tuple[int, int]] = []
        self._marks: list[_Bound] = []

    def add(self, controls: Iterable[Event]) -> None:
        """Add the control events that follow, masked."""
        for event in controls:
            if event.kind == SESSION_REVERTED:
                reverted = kinds.read(SESSION_REVERTED, event.raw)
                if reverted is not None:
                    # Always further back: a revert leads to a seq before its own.
                    self._reverts.append((event.seq, min(reverted.seq, event.seq - 1)))
            elif event.kind == SESSION_CLEARED:
                self._mark(event.seq, event.seq, None)
            elif event.kind == SUMMARY_ADDED:
                added = kinds.read(SUMMARY_ADDED, event.raw)
                if added is not None and added.upto >= 0:
                    self._mark(event.seq, added.upto, event)

    def _mark(self, seq: int, upto: int, summary: Event | None) -> None:
        reach = max(upto, self._marks[-1].reach) if self._marks else upto
        self._marks.append(_Bound(seq, upto, reach, summary))

    def ranges_back(self, upto: int) -> Iterator[tuple[int, int]]:
        """Follow reverts back from a seq: yield the ranges that are left, the last one first."""
        end = upto
        while end > 0:
            place = bisect_right(self._reverts, end, key=_seq_of)
            begin, target = self._reverts[place - 1] if place else (0, 0)
            if begin < end:
                yield begin, end
            end = target

    def bound(self, upto: int) -> tuple[int, Event | None]:
        """Return the seq after which the model view at a seq begins, and the summary before it.

        Follows the reverts back no further than to the oldest mark that can matter.
        """
        covered, summary = -1, None
        ranges = self.ranges_back(upto)
        current = next(ranges, None)
        for mark in reversed(self._marks):
            if mark.reach <= covered:
                break
            while current is not None and mark.seq <= current[0]:
                current = next(ranges, None)
            if current is None:
                break
            if mark.seq > current[1]:
                continue  # reverted
            if mark.summary is None:
                return max(mark.seq, covered), summary
            # A later one stands for more; one that stands for less says nothing new.
            if mark.upto > covered:
                covered, summary = mark.upto, mark.summary
        return max(covered, 0), summary


def _seq_of(revert: tuple[int, int]) -> int:
    return revert[0]


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
