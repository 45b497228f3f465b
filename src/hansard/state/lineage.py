"""Read a forked session through the sessions that it was forked from.

A fork is one event: parent and seq. Nothing is copied, so reading the child reads its ancestors, each up to
the seq at which the next one was forked, and then the child itself. Seqs continue from the parent's, so an
event has one number in all of them. What an ancestor did after the fork does not reach the child, except for
redactions.
"""

import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from hansard.backend.contract import Backend, Chunk, Finding, Head, Log, LogReader, SavedState
from hansard.errors import UNREADABLE, Damaged, InvalidEvent
from hansard.event import kinds
from hansard.event.event import Event
from hansard.event.kinds import SESSION_FORKED, SessionForked
from hansard.state import redaction
from hansard.state.redaction import Redactions

#: Maximum length of a chain of forks. Reading a fork reads the end of each ancestor's log once.
MAX_DEPTH: Final = 10_000


def fork_source(first: Event | None) -> SessionForked | None:
    """Return what a session was forked from, by its first event; None if it is not a fork."""
    if first is None or first.kind != SESSION_FORKED:
        return None
    found: SessionForked | None = kinds.read(SESSION_FORKED, first.raw)
    return found


def origin_of(log: Log) -> SessionForked | None:
    """Return what a session was forked from, even if it is damaged; None if it is not a fork.

    Raises if the damage includes that.
    """
    try:
        return fork_source(log.reader().first())
    except UNREADABLE:
        event = next((one for one in log.salvage() if not isinstance(one, Finding)), None)
        # Only a fork's first event is of this kind, and only a first event has seq 1.
        if event is not None and (event.kind == SESSION_FORKED or event.seq == 1):
            return fork_source(event)
        raise


def forks(backend: Backend) -> Iterator[tuple[str, SessionForked | None]]:
    """Yield all forks of the store, in the trash or not, sorted, each with what it was forked from.

    None: damaged, so that is unknown. A missed fork would lose what it needs, so this asks no index.
    """
    store = backend.unscoped
    # Twice: a session that is deleted, or deleted and restored, during one listing is in another.
    listings = True, False, True, False
    for session_id in sorted({found for trash in listings for found in store.ids(trash=trash)}):
        try:
            forked = origin_of(store.log(session_id, from_trash=True))
        except UNREADABLE:
            yield session_id, None
        else:
            if forked is not None:
                yield session_id, forked


def next_depth(parent: LogReader) -> int:
    """Return the depth of a fork of a session; raise if that exceeds the maximum."""
    forked = fork_source(parent.first())
    depth = 1 if forked is None else forked.depth + 1
    if depth > MAX_DEPTH:
        raise InvalidEvent(
            f"cannot fork session {parent.session_id!r}: it has {depth - 1} ancestors, and {MAX_DEPTH} is "
            "the limit. Export it, and import it as a session without a parent"
        )
    return depth


class AncestorRange(NamedTuple):
    """The part of an ancestor that a child inherits: after < seq <= upto; it may be empty."""

    reader: LogReader
    after: int
    upto: int
    #: The ancestor's first event, which tells it from another session with the same id.
    first: Event


class ForkedReader(LogReader):
    """A forked session with what it inherits. The end of its log is read once, then that of each ancestor.

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

    def head(self) -> Head | None:
        return self.own.head()

    def first(self) -> Event | None:
        return self.first_event

    def checkpoint(self) -> SavedState | None:
        """Return None: a compaction saves no state that depends on other sessions."""
        return None

    def controls(self, upto: int | None = None, *, after: int = 0) -> list[Event]:
        inherited = [
            event
            for reader, begin, end, _ in self.inherited
            if begin < end and after < end
            for event in reader.controls(end if upto is None else min(upto, end), after=after)
        ]
        return inherited + self.own.controls(upto, after=after)

    def read(
        self, after: int = 0, upto: int | None = None, *, back: bool = False
    ) -> Iterator[Chunk]:
        last = sys.maxsize if upto is None else upto
        first = self.first_event
        parts = [*self.inherited, AncestorRange(self.own, first.seq - 1, last, first)]
        for reader, begin, end, _ in reversed(parts) if back else parts:
            if max(begin, after) < min(end, last):
                yield from reader.read(max(begin, after), min(end, last), back=back)

    def size(self, *, unpacked: bool = False) -> int:
        return self.own.size(unpacked=unpacked)


def with_ancestors(backend: Backend, own: LogReader) -> LogReader:
    """Return a reader of a session with what it inherits: the given one if it is not a fork."""
    first = own.first()
    if first is None or first.kind != SESSION_FORKED:
        return own
    return ForkedReader(backend, own, first)


def redactions_of(log: LogReader) -> Redactions:
    """Return what a session or, at any time, one of its ancestors has redacted."""
    if not isinstance(log, ForkedReader):
        return redaction.of(log.controls())
    found = [redaction.of(part.reader.controls(), upto=part.upto) for part in log.inherited]
    return redaction.joined([*found, redaction.of(log.own.controls())])


def merge_base(
    one: LogReader, one_upto: int, other: LogReader, other_upto: int
) -> tuple[str, int] | None:
    """Return the last event that two sessions of one store share by descent: session id and seq, or None.

    Both readers include what the sessions inherit; each session counts up to a seq.
    """
    found = None
    for a, b in zip(_trail(one, one_upto), _trail(other, other_upto), strict=False):
        if (a.reader.session_id, a.first.stamp) != (b.reader.session_id, b.first.stamp):
            break  # the time of its first event tells a session from another one with its id
        upto = min(a.upto, b.upto)
        # A session that was forked from an early seq of an ancestor shares nothing later.
        if upto > a.after:
            found = (a.reader.session_id, upto)
    return found


def _trail(log: LogReader, upto: int) -> Iterator[AncestorRange]:
    """Yield the parts of a session up to a seq: what it inherits, and its own."""
    if isinstance(log, ForkedReader):
        for part in log.inherited:
            yield part._replace(upto=min(part.upto, upto))
    first = log.first()
    if first is not None:
        yield AncestorRange(log, first.seq - 1, upto, first)


def _trace(backend: Backend, session_id: str, first: Event) -> list[AncestorRange]:
    """Return what a fork inherits from each ancestor, the oldest first."""
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
    """Raise `Damaged` if an ancestor of a session is missing, or if the session is its own ancestor.

    `sound`: sessions that passed this check; the session and its ancestors are added. So a store is checked
    in one walk, however deep its forks are.
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
    """Return a reader of a child's parent, its head and its first event, or raise `Damaged`.

    `seen`: the sessions on the way here; the parent is added. `known`: the result, if it was read before.
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
        raise Damaged(where, 0, f"{problem}, which is missing; restore it from a backup")
    if forked.created and head.created != forked.created:
        reason = f"{problem}, which is missing; another session has its id"
        raise Damaged(where, 0, reason)
    if head.seq < forked.seq:
        raise Damaged(where, 0, f"{problem}, which ends at seq {head.seq}")
    return reader, head, begin
