"""Find which parts of a log a view shows.

Above: `views`, `projection`, `session`.  Below: `backend.contract`, `event`.
Events stay where they are; what changes is the path that a view takes through them. A revert leads it back
to an earlier seq, a clear lets it begin anew, a summary stands for all before a seq; redacted messages are
passed over by every view, at every time, since their bytes will go. Where history was dropped, no path begins
before the place up to which it was.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from hansard.backend.contract import Chunk
from hansard.event import kinds
from hansard.event.envelope import Event
from hansard.event.kinds import SESSION_CLEARED, SESSION_REVERTED, SUMMARY_ADDED
from hansard.state.redaction import NOTHING, Redactions


class SummaryChunk(Chunk):
    """The message of a summary, in the place of all that it stands for."""

    __slots__ = ("_event",)

    def __init__(self, event: Event) -> None:
        self._event = event

    def events(self) -> list[Event]:
        """Return the event that added the summary."""
        return [self._event]

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the summary as a message."""
        return [(self._event.seq, self._event.data["message"])]

    def messages_json(self) -> list[tuple[int, bytes]]:
        """Return the summary as the stored JSON."""
        return [(self._event.seq, bytes(_message_of(self._event.raw).message))]


class _Message(msgspec.Struct):
    message: msgspec.Raw


_message_of = msgspec.json.Decoder(_Message).decode


class _Mark(NamedTuple):
    """A clear, or a summary."""

    seq: int
    #: The last seq that it takes out of the view.
    upto: int
    #: The highest `upto` of this mark and of all before it.
    reach: int
    #: None for a clear.
    summary: Event | None


class Course:
    """The control events that decide the model view, parsed once. Grows; what it holds does not change."""

    __slots__ = ("_marks", "_reverts")

    def __init__(self) -> None:
        #: The seq of each revert, and the seq that it leads back to.
        self._reverts: list[tuple[int, int]] = []
        self._marks: list[_Mark] = []

    def add(self, controls: Iterable[Event]) -> None:
        """Take in the control events that follow, masked."""
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
        self._marks.append(_Mark(seq, upto, reach, summary))

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

        Follows the path back no further than to the oldest mark that can matter.
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
                continue  # it is not on the path
            if mark.summary is None:
                return max(mark.seq, covered), summary
            # A later one stands for more; one that stands for less says nothing new.
            if mark.upto > covered:
                covered, summary = mark.upto, mark.summary
        return max(covered, 0), summary


def _seq_of(revert: tuple[int, int]) -> int:
    return revert[0]


class Path:
    """What a view shows: a summary if there is one, then the messages of some ranges.

    Attributes:
        redactions: what no view shows.
        summary: stands for everything before the first range.
    """

    __slots__ = ("_after", "_course", "_upto", "redactions", "summary")

    def __init__(
        self,
        course: Course,
        after: int,
        upto: int,
        redactions: Redactions = NOTHING,
        summary: SummaryChunk | None = None,
    ) -> None:
        self._course = course
        self._after = max(after, redactions.before - 1)
        self._upto = upto
        self.redactions = redactions
        self.summary = summary

    def ranges_back(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of seqs, the last one first; each is (after, upto], without its first seq."""
        for begin, end in self._course.ranges_back(self._upto):
            if end <= self._after:
                return
            yield max(begin, self._after), end

    def ranges(self) -> list[tuple[int, int]]:
        """Return the same in order."""
        return [*self.ranges_back()][::-1]


def history(redactions: Redactions, upto: int) -> Path:
    """Return the path of the history view: everything, but for what was redacted."""
    return Path(Course(), 0, upto, redactions)


def model(course: Course, redactions: Redactions, upto: int) -> Path:
    """Return the path of the model view at a seq, given all control events of the session."""
    after, summary = course.bound(upto)
    return Path(course, after, upto, redactions, None if summary is None else SummaryChunk(summary))
