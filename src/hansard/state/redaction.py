"""Know what was taken out of a session, and what stands there instead.

Above: `path`, `views`, `lineage`, `session`.  Below: `event`.
A redaction holds for all times: what was taken out yesterday is gone from the view of the day before too,
since its bytes will go. Whoever hands out events or messages asks here first.
"""

from typing import Final, NamedTuple

import msgspec

from hansard.event import kinds
from hansard.event.envelope import Event
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART, MESSAGE_REDACTED

#: The data of an event of which nothing is left.
BLANK: Final = b'{"redacted":true}'
BLANK_MESSAGE: Final = b'{"message":null,"redacted":true}'


class Redactions(NamedTuple):
    """What was taken out: places, and messages that were streamed."""

    #: Seqs, each with the data that stand there instead; None for nothing.
    seqs: dict[int, bytes | None]
    #: Streams whose parts are out, and those whose whole message is out too, whenever it is added.
    streams: frozenset[str]
    gone: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.seqs or self.streams)

    def mask(self, event: Event) -> Event:
        """Return an event as it may be shown."""
        if self.streams and event.kind == MESSAGE_PART:
            part = kinds.read(MESSAGE_PART, event.raw)
            if part is not None and part.stream in self.streams:
                # Whose part it is may be known; that nothing more is to come must be, or the message
                # would seem to be streaming for ever.
                kept = {"stream": part.stream, "over": True, "redacted": True}
                return msgspec.structs.replace(event, raw=msgspec.json.encode(kept))
        if event.seq in self.seqs or self._is_gone(event):
            instead = self.seqs.get(event.seq)
            if instead is None:
                instead = BLANK_MESSAGE if event.kind == MESSAGE_ADDED else BLANK
            # Made anew: of one with large content nothing must be left.
            return Event(event.seq, event.stamp, event.kind, instead, event.key)
        return event

    def _is_gone(self, event: Event) -> bool:
        """Say whether an event adds a message that was taken out while it was being streamed."""
        if not self.gone or event.kind != MESSAGE_ADDED or b'"stream"' not in event.raw:
            return False
        added = kinds.read(MESSAGE_ADDED, event.raw)
        return added is not None and added.stream in self.gone


NOTHING: Final = Redactions({}, frozenset())


def of(controls: list[Event], *, upto: int | None = None) -> Redactions:
    """Return what the control events of a session take out, up to a seq if one is given.

    A message behind that seq may have parts before it, so what was streamed is taken out in any case.
    """
    seqs: dict[int, bytes | None] = {}
    streams: set[str] = set()
    gone: set[str] = set()
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
        # Once it is gone, no later redaction brings something of it back.
        if read.seq not in seqs or seqs[read.seq] is not None:
            seqs[read.seq] = None if read.data is None else msgspec.json.encode(read.data)
    return _made(seqs, streams, gone)


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
    return _made(seqs, streams, gone)


def _made(seqs: dict[int, bytes | None], streams: set[str], gone: set[str]) -> Redactions:
    return Redactions(seqs, frozenset(streams), frozenset(gone)) if seqs or streams else NOTHING
