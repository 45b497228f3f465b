"""What was redacted in a session, and what replaces it.

A redaction holds for all times: views of earlier times do not show the event either, because compaction
erases its bytes. Everything that returns events or messages masks them here first.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from hansard.event import kinds
from hansard.event.event import Event
from hansard.event.kinds import (
    HISTORY_DROPPED,
    MESSAGE_ADDED,
    MESSAGE_PART,
    MESSAGE_REDACTED,
    SESSION_FORKED,
    MessageRedacted,
    is_content,
)

#: The data of an event of which nothing is left.
BLANK: Final = b'{"redacted":true}'
BLANK_MESSAGE: Final = b'{"message":null,"redacted":true}'


class Redactions(NamedTuple):
    """Redacted seqs and streams, and the seq before which history was dropped."""

    #: Seqs, each with the data that replace the event's; None for nothing.
    seqs: dict[int, bytes | None]
    #: Streams whose parts are redacted, and those whose message is redacted too, whenever it is added.
    streams: frozenset[str]
    gone: frozenset[str] = frozenset()
    #: What was said before this seq is dropped; 0 if no history was dropped.
    before: int = 0

    def __bool__(self) -> bool:
        return bool(self.seqs or self.streams or self.before)

    def mask(self, event: Event) -> Event:
        """Return an event as it may be shown."""
        dropped = event.seq < self.before and is_content(event.kind)
        if event.kind == MESSAGE_PART and (dropped or self.streams):
            part = kinds.read(MESSAGE_PART, event.raw)
            if part is not None and (dropped or part.stream in self.streams):
                # The stream's id may be shown. That it ended must be, or it would seem to stream forever.
                kept = {"stream": part.stream, "over": True, "redacted": True}
                return msgspec.structs.replace(event, raw=msgspec.json.encode(kept))
        # The event that makes a fork is never replaced.
        replaced = event.seq in self.seqs and event.kind != SESSION_FORKED
        if dropped or replaced or self._is_gone(event):
            instead = None if dropped else self.seqs.get(event.seq)
            if event.kind == MESSAGE_ADDED and not kinds.read(MESSAGE_ADDED, instead or b""):
                # Nothing, or not a message, which readers expect.
                instead = BLANK_MESSAGE
            return Event(event.seq, event.stamp, event.kind, instead or BLANK, event.key)
        return self._without_data(event) if event.kind == MESSAGE_REDACTED else event

    def _without_data(self, event: Event) -> Event:
        """Return a redaction without replacement data for an event of which nothing is left now."""
        read = kinds.read(MESSAGE_REDACTED, event.raw)
        if read is None or read.data is None or read.data.keys() <= {"stream", "redacted"}:
            return event
        if not self._is_erased(read):
            return event
        kept = event.data | {"data": {"redacted": True}}
        if self._is_dropped(read):
            # Tells readers, without the data, that the bound covers it.
            kept["kind"] = read.kind or MESSAGE_ADDED
        return msgspec.structs.replace(event, raw=msgspec.json.encode(kept))

    def is_void(self, event: Event) -> bool:
        """Return whether an event is a redaction whose replacement data are, or are to be, erased."""
        read = kinds.read(MESSAGE_REDACTED, event.raw) if event.kind == MESSAGE_REDACTED else None
        return read is not None and read.data is not None and self._is_erased(read)

    def _is_erased(self, read: MessageRedacted) -> bool:
        """Return whether nothing is left of a redacted event: dropped, or redacted without data."""
        return self._is_dropped(read) or self.seqs.get(read.seq, BLANK) is None

    def _is_dropped(self, read: MessageRedacted) -> bool:
        return read.seq < self.before and _is_of_said(read)

    def _is_gone(self, event: Event) -> bool:
        """Return whether an event adds a message that was redacted while it was streamed."""
        if not self.gone or event.kind != MESSAGE_ADDED or b'"stream"' not in event.raw:
            return False
        added = kinds.read(MESSAGE_ADDED, event.raw)
        return added is not None and added.stream in self.gone


NOTHING: Final = Redactions({}, frozenset())


def of(controls: list[Event], *, upto: int | None = None) -> Redactions:
    """Return what the control events of a session redact, up to a seq if one is given.

    A message after that seq may have parts before it, so streams are redacted in any case.
    """
    seqs: dict[int, bytes | None] = {}
    streams: set[str] = set()
    gone: set[str] = set()
    before = _bound(controls, streams)
    if upto is not None:
        before = min(before, upto + 1)
    for event in controls:
        if event.kind != MESSAGE_REDACTED:
            continue
        read = kinds.read(MESSAGE_REDACTED, event.raw)
        if read is None:
            continue
        if read.stream:
            streams.add(read.stream)
            if read.data is None:
                gone.add(read.stream)
        if upto is not None and read.seq > upto:
            continue
        if read.seq < before and _is_of_said(read):
            continue  # a bound is enough, and shorter
        _add(seqs, read.seq, None if read.data is None else msgspec.json.encode(read.data))
    return _redactions(seqs, streams, gone, before)


def _bound(controls: list[Event], streams: set[str]) -> int:
    """Return the seq before which history was dropped; add the streams that were dropped with it."""
    before = 0
    for event in controls:
        read = kinds.read(HISTORY_DROPPED, event.raw) if event.kind == HISTORY_DROPPED else None
        if read is not None:
            # Never what comes after it, even if the event says so.
            before = max(before, min(read.before, event.seq))
            streams.update(read.streams)
    return before


def _add(seqs: dict[int, bytes | None], seq: int, instead: bytes | None) -> None:
    # Once nothing is left of an event, no later redaction restores a part of it.
    if seq not in seqs or seqs[seq] is not None:
        seqs[seq] = instead


def _is_of_said(read: MessageRedacted) -> bool:
    """Return whether a redaction is of an event that is dropped with the history."""
    return read.data is None or is_content(read.kind)


def joined(several: list[Redactions]) -> Redactions:
    """Return what all of them redact; of two for one seq, the one that leaves less."""
    seqs: dict[int, bytes | None] = {}
    for one in several:
        for seq, instead in one.seqs.items():
            _add(seqs, seq, instead)
    streams = (stream for one in several for stream in one.streams)
    gone = (stream for one in several for stream in one.gone)
    return _redactions(seqs, streams, gone, max(one.before for one in several))


def clipped(found: Redactions, upto: int) -> Redactions:
    """Return what of some redactions concerns events up to a seq; as in `of`, all streams do."""
    if found.before <= upto + 1 and all(seq <= upto for seq in found.seqs):
        return found
    seqs = {seq: instead for seq, instead in found.seqs.items() if seq <= upto}
    return _redactions(seqs, found.streams, found.gone, min(found.before, upto + 1))


def _redactions(
    seqs: dict[int, bytes | None], streams: Iterable[str], gone: Iterable[str], before: int
) -> Redactions:
    # Before seq 1 there is nothing.
    found = Redactions(seqs, frozenset(streams), frozenset(gone), before if before > 1 else 0)
    return found or NOTHING
