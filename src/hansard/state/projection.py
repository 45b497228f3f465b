"""Keep what the control events of a session add up to, and add what is new.

Reading all of them for each call would take the square of their number. What is kept is discarded when it
may be outdated: when something was redacted, dropped or repaired, or when the last known event differs now,
because the session was purged and its id is used again, or was restored from a backup.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
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

#: Kinds that change the meaning of earlier events.
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

    __slots__ = ("_bounds", "_reverts")

    def __init__(self, controls: Iterable[Event] = ()) -> None:
        #: The seq of each revert, and the seq that it leads back to.
        self._reverts: list[tuple[int, int]] = []
        self._bounds: list[_Bound] = []
        self.add(controls)

    def add(self, controls: Iterable[Event]) -> None:
        """Add the control events that follow, masked."""
        for event in controls:
            if event.kind == SESSION_REVERTED:
                reverted = kinds.read(SESSION_REVERTED, event.raw)
                if reverted is not None:
                    # Always further back: a revert leads to a seq before its own.
                    self._reverts.append((event.seq, min(reverted.seq, event.seq - 1)))
            elif event.kind == SESSION_CLEARED:
                self._add_bound(event.seq, event.seq, None)
            elif event.kind == SUMMARY_ADDED:
                added = kinds.read(SUMMARY_ADDED, event.raw)
                if added is not None and added.upto >= 0:
                    self._add_bound(event.seq, added.upto, event)

    def _add_bound(self, seq: int, upto: int, summary: Event | None) -> None:
        reach = max(upto, self._bounds[-1].reach) if self._bounds else upto
        self._bounds.append(_Bound(seq, upto, reach, summary))

    def ranges_back(self, upto: int) -> Iterator[tuple[int, int]]:
        """Follow reverts back from a seq: yield the ranges that are left, the last one first."""
        end = upto
        while end > 0:
            place = bisect_right(self._reverts, end, key=itemgetter(0))
            begin, target = self._reverts[place - 1] if place else (0, 0)
            if begin < end:
                yield begin, end
            end = target

    def bound(self, upto: int) -> tuple[int, Event | None]:
        """Return the seq after which the model view at a seq begins, and the summary before it.

        Follows the reverts back no further than to the oldest bound that can matter.
        """
        covered, summary = -1, None
        ranges = self.ranges_back(upto)
        current = next(ranges, None)
        for bound in reversed(self._bounds):
            if bound.reach <= covered:
                break
            while current is not None and bound.seq <= current[0]:
                current = next(ranges, None)
            if current is None:
                break
            if bound.seq > current[1]:
                continue  # reverted
            if bound.summary is None:
                return max(bound.seq, covered), summary
            # The summary that covers most counts.
            if bound.upto > covered:
                covered, summary = bound.upto, bound.summary
        return max(covered, 0), summary


class KnownState(NamedTuple):
    """What the control events add up to at one moment. Its dicts are shared: copy what you hand out."""

    #: The fold of the control events: metadata, title, snapshots.
    state: State
    #: What was redacted, in the session or in its ancestors.
    redactions: Redactions
    #: Which parts of the log the model view shows.
    course: Course


class Projection:
    """What is known of a session's control events. For one thread at a time."""

    __slots__ = ("_known", "_last")

    def __init__(self) -> None:
        self._known = KnownState(fold.EMPTY, NOTHING, Course())
        #: The last known control event of each log: of the ancestors, and of the session.
        self._last: list[tuple[str, Event | None]] = []

    def refresh(self, log: LogReader) -> KnownState:
        """Add the new control events; read all of them if what is known does not hold any more."""
        logs = log.readers() if isinstance(log, ForkedReader) else [log]
        bounds = [part.upto for part in log.inherited] if isinstance(log, ForkedReader) else []
        new = self._new(logs) if self._last else None
        if new is None:
            self._last = [(one.session_id, None) for one in logs]
            new = [one.controls() for one in logs]
            changed = any(event.kind in _CHANGING for events in new for event in events)
            redactions = lineage.redactions_of(log) if changed else NOTHING
            self._known = KnownState(fold.EMPTY, redactions, Course())
        state, redactions, course = self._known
        added: list[Event] = []
        for place, events in enumerate(new):
            if events:
                self._last[place] = (self._last[place][0], events[-1])
            inherited = place < len(bounds)
            added += [one for one in events if one.seq <= bounds[place]] if inherited else events
        if added:
            masked = [redactions.mask(event) for event in added]
            course.add(masked)
            self._known = KnownState(fold.apply_all(state, masked), redactions, course)
        return self._known

    def _new(self, logs: list[LogReader]) -> list[list[Event]] | None:
        """Return the new control events of each log; None if what is known does not hold any more."""
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
