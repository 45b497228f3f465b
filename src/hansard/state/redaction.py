"""Know what was taken out of a session, and what stands there instead.

A redaction holds for all times: what was taken out yesterday is gone from the view of the day before too,
since its bytes will go. Every path that returns events or messages asks here first.
"""

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
    """What was taken out: places, messages that were streamed, and all that was said before a seq."""

    #: Seqs, each with the data that stand there instead; None for nothing.
    seqs: dict[int, bytes | None]
    #: Streams whose parts are out, and those whose whole message is out too, whenever it is added.
    streams: frozenset[str]
    gone: frozenset[str] = frozenset()
    #: What was said before this seq is out; 0 if no history was dropped.
    before: int = 0

    def __bool__(self) -> bool:
        return bool(self.seqs or self.streams or self.before)

    def mask(self, event: Event) -> Event:
        """Return an event as it may be shown."""
        dropped = event.seq < self.before and is_content(event.kind)
        if event.kind == MESSAGE_PART and (dropped or self.streams):
            part = kinds.read(MESSAGE_PART, event.raw)
            if part is not None and (dropped or part.stream in self.streams):
                # Whose part it is may be known; that nothing more is to come must be, or the message
                # would seem to be streaming permanently.
                kept = {"stream": part.stream, "over": True, "redacted": True}
                return msgspec.structs.replace(event, raw=msgspec.json.encode(kept))
        if dropped or self._is_replaced(event) or self._is_gone(event):
            instead = None if dropped else self.seqs.get(event.seq)
            if event.kind == MESSAGE_ADDED and not _has_message(instead):
                # Nothing, or what the writer of the redaction took for a message: readers expect one.
                instead = BLANK_MESSAGE
            elif instead is None:
                instead = BLANK
            return Event(event.seq, event.stamp, event.kind, instead, event.key)
        return self._without_data(event) if event.kind == MESSAGE_REDACTED else event

    def _is_replaced(self, event: Event) -> bool:
        """Say whether something else stands in an event's place; what a fork was made of always stands."""
        return event.seq in self.seqs and event.kind != SESSION_FORKED

    def _without_data(self, event: Event) -> Event:
        """Return a redaction without what it put in the place of something that is gone altogether now."""
        read = kinds.read(MESSAGE_REDACTED, event.raw)
        if read is None or read.data is None or read.data.keys() <= {"stream", "redacted"}:
            return event
        if not self._is_erased(read):
            return event
        kept = event.data | {"data": {"redacted": True}}
        if read.seq < self.before and _is_of_what_was_said(read):
            # By which it is known, without the data, that the bound covers it.
            kept["kind"] = read.kind or MESSAGE_ADDED
        return msgspec.structs.replace(event, raw=msgspec.json.encode(kept))

    def is_void(self, event: Event) -> bool:
        """Return whether an event is a redaction whose replacement data are, or are to be, erased."""
        if event.kind == MESSAGE_REDACTED:
            read = kinds.read(MESSAGE_REDACTED, event.raw)
            return read is not None and read.data is not None and self._is_erased(read)
        return False

    def _is_erased(self, read: MessageRedacted) -> bool:
        """Return whether nothing is left of what a redaction is of: dropped, or redacted without data."""
        dropped = read.seq < self.before and _is_of_what_was_said(read)
        return dropped or self.seqs.get(read.seq, BLANK) is None

    def _is_gone(self, event: Event) -> bool:
        """Say whether an event adds a message that was taken out while it was being streamed."""
        if not self.gone or event.kind != MESSAGE_ADDED or b'"stream"' not in event.raw:
            return False
        added = kinds.read(MESSAGE_ADDED, event.raw)
        return added is not None and added.stream in self.gone


class _Data(msgspec.Struct):
    message: dict[str, msgspec.Raw]


_decode_data = msgspec.json.Decoder(_Data).decode


def _has_message(data: bytes | None) -> bool:
    """Say whether some data have the shape of those of a message."""
    try:
        return data is not None and bool(_decode_data(data))
    except msgspec.MsgspecError:
        return False


NOTHING: Final = Redactions({}, frozenset())


def of(controls: list[Event], *, upto: int | None = None) -> Redactions:
    """Return what the control events of a session take out, up to a seq if one is given.

    A message after that seq may have parts before it, so what was streamed is taken out in any case.
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
        if read.seq < before and _is_of_what_was_said(read):
            continue  # a bound is enough, and shorter
        # Once it is gone, no later redaction brings something of it back.
        if read.seq not in seqs or seqs[read.seq] is not None:
            seqs[read.seq] = None if read.data is None else msgspec.json.encode(read.data)
    return _made(seqs, streams, gone, before)


def _bound(controls: list[Event], streams: set[str]) -> int:
    """Return the seq before which history was dropped; add the streams that were dropped with it."""
    before = 0
    for event in controls:
        if event.kind != HISTORY_DROPPED:
            continue
        read = kinds.read(HISTORY_DROPPED, event.raw)
        if read is not None:
            # Never what comes after it, whatever its writer.
            before = max(before, min(read.before, event.seq))
            streams.update(read.streams)
    return before


def _is_of_what_was_said(read: MessageRedacted) -> bool:
    """Say whether a redaction is of an event that goes when history is dropped."""
    if read.data is None or read.kind:
        return read.data is None or is_content(read.kind)
    # Written before redactions said so themselves.
    return "message" in read.data or read.data.keys() == {"stream"}


def joined(several: list[Redactions]) -> Redactions:
    """Return what all of them take out; of two for one place, that which leaves less."""
    seqs: dict[int, bytes | None] = {}
    streams: set[str] = set()
    gone: set[str] = set()
    for one in several:
        for seq, instead in one.seqs.items():
            if seq not in seqs or seqs[seq] is not None:
                seqs[seq] = instead
        streams |= one.streams
        gone |= one.gone
    return _made(seqs, streams, gone, max(one.before for one in several))


def clipped(found: Redactions, upto: int) -> Redactions:
    """Return what of some redactions concerns events up to a seq; as in `of`, what was streamed does."""
    if found.before <= upto + 1 and all(seq <= upto for seq in found.seqs):
        return found
    seqs = {seq: instead for seq, instead in found.seqs.items() if seq <= upto}
    return _made(seqs, set(found.streams), set(found.gone), min(found.before, upto + 1))


def _made(
    seqs: dict[int, bytes | None], streams: set[str], gone: set[str], before: int
) -> Redactions:
    # Before seq 1 there is nothing.
    found = Redactions(seqs, frozenset(streams), frozenset(gone), before if before > 1 else 0)
    return found or NOTHING
