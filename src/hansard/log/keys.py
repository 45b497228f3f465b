"""Remember which append an idempotency key belongs to, so that a retry adds nothing (F-18).

Read from the log when the first key is needed, and from then on only from what is new. For the leader, under
the session's lock.
"""

import msgspec

from hansard.log.format import Position
from hansard.log.segment_reader import SegmentReader


class KeyIndex:
    """The keys of a segment up to a mark, with first seq and number of events of each append."""

    __slots__ = ("_known", "_segment", "_upto")

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        #: Where the segment begins, which tells it from all others.
        self._segment: Position | None = None
        self._upto: Position | None = None

    def begin(self, start: Position) -> None:
        """Start with a segment that has no records yet."""
        self._known = {}
        self._segment = start
        self._upto = start

    def forget(self) -> None:
        """Know nothing: the log is not what it was, or an append failed half-way."""
        self._known = {}
        self._upto = None

    def learn(self, reader: SegmentReader, end: Position) -> None:
        """Read the keys of what was appended since the last time."""
        if self._segment != reader.segment.start:
            # The log has gone on in another segment: a reader may have seen so before any writer did.
            self.forget()
            self._segment = reader.segment.start
        start = self._upto or reader.segment.start
        if start is end:
            return
        for piece in reader.forwards(start, end):
            for line in piece.lines(_decode_keys):
                if line.key is not None:
                    self.add(line.key, line.seq, line.more + 1)
        self._upto = end

    def add(self, key: str, first: int, count: int) -> None:
        """Note the key of an append."""
        self._known[key] = (first, count)

    def find(self, key: str) -> tuple[int, int] | None:
        """Return first seq and number of events of the append that has this key."""
        return self._known.get(key)

    def advance(self, before: Position, after: Position) -> None:
        """Go along with an append of our own, if nothing before it is unread."""
        if self._upto is before:
            self._upto = after


class _Line(msgspec.Struct, gc=False):
    """As much of a line as the search for keys needs."""

    seq: int
    key: str | None = None
    more: int = 0
    log: str | None = None


_decode_keys = msgspec.json.Decoder(_Line).decode_lines
