"""Find which parts of a log a view shows.

Above: `views`, `session`.  Below: `backend.contract`, `event`.
Events stay where they are; what changes is the path that a view takes through them. A revert leads it back
to an earlier seq, a clear lets it begin anew, a summary stands for all before a seq; redacted messages are
passed over by every view, at every time, since their bytes will go. Where history was dropped, no path begins
before the place up to which it was.
"""

from typing import Any, NamedTuple

import msgspec

from hansard.backend.contract import Chunk
from hansard.event import kinds
from hansard.event.envelope import Event
from hansard.event.kinds import (
    SESSION_CLEARED,
    SESSION_REVERTED,
    SESSION_SNAPSHOTTED,
    SUMMARY_ADDED,
)
from hansard.state.redaction import NOTHING, Redactions


class Path(NamedTuple):
    """What a view shows: a summary if there is one, then the messages of some ranges."""

    #: Ranges of seqs, each without its first and with its last: (after, upto].
    ranges: list[tuple[int, int]]
    #: What nobody may see.
    redactions: Redactions = NOTHING
    summary: "SummaryChunk | None" = None


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


def history(redactions: Redactions, upto: int) -> Path:
    """Return the path of the history view: everything, but for what was redacted."""
    return Path(_behind([(0, upto)], redactions.before - 1), redactions)


def model(controls: list[Event], redactions: Redactions, upto: int) -> Path:
    """Return the path of the model view at a seq, given all control events of the session."""
    ranges = _live(controls, upto)
    begin = 0
    summary: Event | None = None
    covered = -1
    for event in controls:
        if not _contains(ranges, event.seq):
            continue
        if event.kind == SESSION_CLEARED:
            begin, summary, covered = event.seq, None, -1
        elif event.kind == SUMMARY_ADDED:
            event = redactions.mask(event)  # noqa: PLW2901 - whoever goes on must see no other
            added = kinds.read(SUMMARY_ADDED, event.raw)
            # A later one stands for more; one that stands for less says nothing new.
            if added is not None and added.upto >= covered:
                summary, covered = event, added.upto
    kept = _behind(ranges, max(begin, covered, redactions.before - 1))
    return Path(kept, redactions, None if summary is None else SummaryChunk(summary))


def _behind(ranges: list[tuple[int, int]], seq: int) -> list[tuple[int, int]]:
    """Return what lies behind a seq."""
    return [(max(after, seq), end) for after, end in ranges if end > seq]


def snapshots(controls: list[Event]) -> dict[str, int]:
    """Return the labels of a session with their seqs; of two with one label the later counts."""
    return {read.label: read.seq for _, read in _all(controls, SESSION_SNAPSHOTTED)}


def _live(controls: list[Event], upto: int) -> list[tuple[int, int]]:
    """Follow reverts back from a seq: return the ranges that are left, in order."""
    reverts = _all(controls, SESSION_REVERTED)
    ranges: list[tuple[int, int]] = []
    end = upto
    while reverts:
        event, reverted = reverts.pop()
        if event.seq > end:
            continue  # it is not on the path
        ranges.append((event.seq, end))
        # Always further back: a revert leads to a seq before its own.
        end = min(reverted.seq, event.seq - 1)
    ranges.append((0, end))
    ranges.reverse()
    return [(after, end) for after, end in ranges if end > after]


def _all(controls: list[Event], kind: str) -> list[tuple[Event, Any]]:
    """Return the events of a kind, each with its data as a struct."""
    found = [(event, kinds.read(kind, event.raw)) for event in controls if event.kind == kind]
    return [(event, read) for event, read in found if read is not None]


def _contains(ranges: list[tuple[int, int]], seq: int) -> bool:
    return any(after < seq <= end for after, end in ranges)
