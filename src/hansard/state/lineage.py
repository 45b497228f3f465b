"""Read a forked session through the sessions that it was forked from.

A fork is one event: parent and seq. Nothing is copied, so reading the child reads its ancestors, each up to
the seq at which the next one was forked, and then the child itself. Seqs continue from the parent's, so an
event has one number in all of them. What an ancestor did after the fork does not reach the child, except for
redactions.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from hansard.backend.contract import Backend, Chunk, Head, LogReader, SavedState
from hansard.errors import Damaged, InvalidEvent
from hansard.event import kinds
from hansard.event.event import Event
from hansard.event.kinds import SESSION_FORKED, SessionForked
from hansard.state import redaction
from hansard.state.redaction import Redactions

#: Maximum length of a chain of forks. Reading a fork takes a look at each of its ancestors.
MAX_DEPTH: Final = 10_000


class AncestorRange(NamedTuple):
    """The part of an ancestor that a child inherits: after < seq <= upto; it may be empty."""

    reader: LogReader
    after: int
    upto: int
    #: The ancestor's first event: what tells it from another session of its name.
    first: Event


def fork_source(first: Event | None) -> SessionForked | None:
    """Return what the first event of a session says it was forked from; None if it was not."""
    if first is None or first.kind != SESSION_FORKED:
        return None
    found: SessionForked | None = kinds.read(SESSION_FORKED, first.raw)
    return found


def next_depth(parent: LogReader) -> int:
    """Return the depth of a fork of a session; raise if that exceeds the maximum."""
    forked = fork_source(parent.first())
    depth = 1 if forked is None else forked.depth + 1
    if depth > MAX_DEPTH:
        raise InvalidEvent(
            f"cannot fork session {parent.session_id!r}: it comes from {depth - 1} forks of forks, and "
            f"{MAX_DEPTH} is the limit. Export it, and import it as a session without a parent"
        )
    return depth


def redactions_of(log: LogReader, controls: list[Event] | None = None) -> Redactions:
    """Return what was redacted in a session, by its own events or by its ancestors'.

    `controls`: all of its control events, if the caller has them.
    """
    if isinstance(log, ForkedReader):
        return log.redactions()
    return redaction.of(log.controls() if controls is None else controls)


class ForkedReader(LogReader):
    """A forked session with all that it inherits: one look at each of its ancestors, after one at itself.

    Attributes:
        first_event: the event that made the fork.
        own: the session itself, without what it inherits.
        inherited: what it inherits, the oldest first.
    """

    __slots__ = ("first_event", "inherited", "own", "session_id")

    def __init__(self, backend: Backend, own: LogReader, first: Event) -> None:
        self.session_id = own.session_id
        self.first_event = first
        self.inherited = _trace(backend, own.session_id, first)
        self.own = own

    def readers(self) -> list[LogReader]:
        """Return a reader for each ancestor, the oldest first, and for the session itself."""
        return [*(part.reader for part in self.inherited), self.own]

    def head(self) -> Head | None:
        """Return where the session itself ends."""
        return self.own.head()

    def first(self) -> Event | None:
        """Return the event that made the fork."""
        return self.first_event

    def checkpoint(self) -> SavedState | None:
        """Return None: a compaction saves no state that depends on other sessions."""
        return None

    def controls(self, upto: int | None = None, *, after: int = 0) -> list[Event]:
        """Return the control events that are the session's, inherited ones first."""
        inherited = [
            event
            for reader, begin, end, _ in self.inherited
            if begin < end and after < end
            for event in reader.controls(end if upto is None else min(upto, end), after=after)
        ]
        return inherited + self.own.controls(upto, after=after)

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        """Yield the events of all, in order."""
        for reader, begin, end, _ in self.inherited:
            last = end if upto is None else min(upto, end)
            if max(begin, after) < last:
                yield from reader.read(max(begin, after), last)
        if upto is None or upto >= self.first_event.seq:
            yield from self.own.read(after, upto)

    def read_back(self, upto: int | None = None, after: int = 0) -> Iterator[Chunk]:
        """Yield the same from the last chunk to the first."""
        begin = self.first_event.seq - 1
        if upto is None or upto > begin:
            yield from self.own.read_back(upto, max(after, begin))
        for reader, begin, end, _ in reversed(self.inherited):
            last = end if upto is None else min(upto, end)
            if max(begin, after) < last:
                yield from reader.read_back(last, max(begin, after))

    def size(self, *, unpacked: bool = False) -> int:
        """Return the bytes of the session itself."""
        return self.own.size(unpacked=unpacked)

    def redactions(self) -> Redactions:
        """Return what was redacted, by the session or, at any time, by an ancestor."""
        found = [redaction.of(reader.controls(), upto=end) for reader, _, end, _ in self.inherited]
        return redaction.joined([*found, redaction.of(self.own.controls())])


def _same(now: Event, then: Event) -> bool:
    """Return whether two first events are of the same session: with their data or without."""
    return (now.seq, now.stamp, now.kind) == (then.seq, then.stamp, then.kind)


def with_ancestors(backend: Backend, own: LogReader) -> LogReader:
    """Return a session with what it inherits: itself, if it is not a fork."""
    first = own.first()
    if first is None or first.kind != SESSION_FORKED:
        return own
    return ForkedReader(backend, own, first)


def merge_base(
    one: LogReader, one_upto: int, other: LogReader, other_upto: int
) -> tuple[str, int] | None:
    """Return the last event that two sessions of one store share by descent; None if there is none.

    Both are given with what they inherit, each up to a seq. Named by the session that has it, and its seq.
    """
    found = None
    for a, b in zip(_trail(one, one_upto), _trail(other, other_upto), strict=False):
        if a.reader.session_id != b.reader.session_id or not _same(a.first, b.first):
            break
        upto = min(a.upto, b.upto)
        # Where one of them was forked from an ancestor early, it has nothing of what comes after.
        if upto > a.after:
            found = (a.reader.session_id, upto)
    return found


def _trail(log: LogReader, upto: int) -> Iterator[AncestorRange]:
    """Yield what a session is made of, up to a seq: what it inherits, and its own."""
    if isinstance(log, ForkedReader):
        for part in log.inherited:
            yield part._replace(upto=min(part.upto, upto))
    first = log.first()
    if first is not None:
        yield AncestorRange(log, first.seq - 1, upto, first)


def _trace(backend: Backend, session_id: str, first: Event) -> list[AncestorRange]:
    """Walk from a fork to the session in which all began; return what is inherited, oldest first."""
    found: list[AncestorRange] = []
    seen = {session_id}
    child = session_id
    forked = fork_source(first)
    bound = first.seq - 1
    while forked is not None:
        reader, _, begin = parent_of(backend, child, forked, seen)
        bound = min(bound, forked.seq)
        found.append(AncestorRange(reader, begin.seq - 1, bound, begin))
        child, forked = forked.parent, fork_source(begin)
    found.reverse()
    return found


def check(backend: Backend, session_id: str, sound: set[str]) -> None:
    """Raise `Damaged` if a session was forked from one that does not exist, or from itself.

    `sound`: sessions that were found to be in order; this one is among them afterwards, with all of its
    ancestors. So a store is checked in one walk, however deep its forks.
    """
    seen: set[str] = set()
    child = session_id
    while child not in sound:
        seen.add(child)
        forked = fork_source(backend.log(child, from_trash=True).reader().first())
        if forked is None:
            break
        parent_of(backend, child, forked, seen)
        child = forked.parent
    sound |= seen


def parent_of(
    backend: Backend,
    child: str,
    forked: SessionForked,
    seen: set[str],
    known: tuple[LogReader, Head | None, Event | None] | None = None,
) -> tuple[LogReader, Head, Event]:
    """Return the session that a child was forked from, its head and its first event, or raise `Damaged`.

    `seen`: the sessions on the way here; this one is added. `known`: what is known of it, if something is.
    """
    problem = f"session {child!r} was forked from {forked.parent!r} at seq {forked.seq}"
    where = f"{backend.where}: {child}"
    if forked.parent in seen:
        raise Damaged(where, 0, f"{problem}, which was forked from it: the lineage is a circle")
    seen.add(forked.parent)
    if known is None:
        reader = backend.log(forked.parent, from_trash=True).reader()
        known = (reader, reader.head(), reader.first())
    reader, head, begin = known
    if head is None or begin is None:
        raise Damaged(where, 0, f"{problem}, and that is gone; restore it from a backup")
    if forked.created and head.created != forked.created:
        raise Damaged(where, 0, f"{problem}, and that is gone; another session has taken its name")
    if head.seq < forked.seq:
        raise Damaged(where, 0, f"{problem}, which has only {head.seq} events")
    return reader, head, begin
