"""Read a forked session through those it was forked from.

Above: `session`, `store`.  Below: `redaction`, `backend.contract`, `event`.
A fork is one event: parent and seq. Nothing is copied, so reading the child reads its ancestors, each up to
the place where the next one left it, and then the child itself. Seqs run on from the parent's, so every
place has one number in all of them. What an ancestor did after the fork does not reach the child, but for
redactions.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from hansard.backend.contract import (
    AppendRequest,
    Backend,
    Chunk,
    CompactionFilter,
    CompactionResult,
    Finding,
    Head,
    Known,
    Log,
    Repaired,
)
from hansard.errors import Damaged, InvalidEvent
from hansard.event import kinds
from hansard.event.envelope import Event
from hansard.event.kinds import SESSION_FORKED, SessionForked
from hansard.state import redaction
from hansard.state.redaction import Redactions

#: The longest chain of forks of forks. To read a fork costs a look at each session that it comes from.
MAX_DEPTH: Final = 10_000


class Stretch(NamedTuple):
    """The part of an ancestor that a child inherits: after < seq <= upto; it may be empty."""

    log: Log
    after: int
    upto: int
    #: The ancestor's first event: what tells it from another of its name.
    first: Event


def origin(first: Event | None) -> SessionForked | None:
    """Return what the first event of a session says it was forked from; None if it was not."""
    if first is None or first.kind != SESSION_FORKED:
        return None
    found: SessionForked | None = kinds.read(SESSION_FORKED, first.raw)
    return found


def next_depth(parent: Log) -> int:
    """Return the depth of a fork of a session; raise if that is more than may be."""
    forked = origin(parent.first())
    depth = 1 if forked is None else forked.depth + 1
    if depth > MAX_DEPTH:
        raise InvalidEvent(
            f"cannot fork session {parent.session_id!r}: it comes from {depth - 1} forks of forks, and "
            f"{MAX_DEPTH} is the limit. Export it, and import it as a session without a parent"
        )
    return depth


def redactions_of(log: Log, controls: list[Event] | None = None) -> Redactions:
    """Return what was taken out of a session, by itself or by those it was forked from.

    `controls`: its control events, all of them, if they are at hand: they are not asked for once more.
    """
    if isinstance(log, Lineage):
        return log.redactions()
    return redaction.of(log.controls() if controls is None else controls)


class Lineage(Log):
    """A forked session with all that it inherits, to be read like any other.

    Attributes:
        first_event: the event that made the fork.
        own: the session itself, without what it inherits.
        stretches: what it inherits, the oldest first.
    """

    __slots__ = ("first_event", "own", "session_id", "stretches")

    def __init__(self, backend: Backend, own: Log, first: Event) -> None:
        self.session_id = own.session_id
        self.first_event = first
        self.stretches = _trace(backend, own.session_id, first)
        self.own = own

    def stands(self) -> bool:
        """Say whether every ancestor is still there, and none of them another that has taken its name."""
        return all(_same(stretch.log.first(), stretch.first) for stretch in self.stretches)

    def append(self, request: AppendRequest) -> list[Event]:
        """Append to the session itself."""
        return self.own.append(request)

    def sync(self) -> None:
        """Sync the session itself: what it inherits was durable before it began."""
        self.own.sync()

    def first(self) -> Event | None:
        """Return the event that made the fork."""
        return self.own.first()

    def head(self) -> Head | None:
        """Return where the session itself stands."""
        return self.own.head()

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        """Yield the events of all, in order."""
        for log, begin, end, _ in self.stretches:
            last = end if upto is None else min(upto, end)
            if max(begin, after) < last:
                yield from log.read(max(begin, after), last)
        if upto is None or upto >= self.first_event.seq:
            yield from self.own.read(after, upto)

    def read_back(self, upto: int | None = None, after: int = 0) -> Iterator[Chunk]:
        """Yield the same from the last chunk to the first."""
        begin = self.first_event.seq - 1
        if upto is None or upto > begin:
            yield from self.own.read_back(upto, max(after, begin))
        for log, begin, end, _ in reversed(self.stretches):
            last = end if upto is None else min(upto, end)
            if max(begin, after) < last:
                yield from log.read_back(last, max(begin, after))

    def controls(self, upto: int | None = None, *, after: int = 0) -> list[Event]:
        """Return the control events that are the session's, inherited ones first."""
        # Asked anew each time: a repair of an ancestor changes what it has, and each log knows when to look.
        inherited = [
            event
            for log, begin, end, _ in self.stretches
            if begin < end and after < end
            for event in log.controls(end if upto is None else min(upto, end), after=after)
        ]
        return inherited + self.own.controls(upto, after=after)

    def redactions(self) -> Redactions:
        """Return what was taken out, by the session or, at any time, by an ancestor."""
        found = [redaction.of(log.controls(), upto=end) for log, _, end, _ in self.stretches]
        return redaction.joined([*found, redaction.of(self.own.controls())])

    def wait(self, after: int, timeout: float) -> bool:
        """Wait for an event of the session itself."""
        return self.own.wait(after, timeout)

    def failed(self) -> bool:
        """Say so of the session itself."""
        return self.own.failed()

    def busy(self) -> bool:
        """Say whether somebody is writing to the session itself."""
        return self.own.busy()

    def salvage(self) -> Iterator[Event | Finding]:
        """Yield what can still be read of all, in order; damage that is only an ancestor's counts too."""
        for log, begin, end, _ in self.stretches:
            for found in log.salvage():
                if not isinstance(found, Event) or begin < found.seq <= end:
                    yield found
        yield from self.own.salvage()

    def compact(self, filter: CompactionFilter, **options: Any) -> CompactionResult:
        """Compact the session itself."""
        return self.own.compact(filter, **options)

    def checkpoint_file(self) -> str:
        """Return where the session's own is."""
        return self.own.checkpoint_file()

    def drop_checkpoint(self) -> None:
        """Remove the session's own."""
        self.own.drop_checkpoint()

    def taken_out(self) -> Iterator[Event]:
        """Yield those of the session itself."""
        return self.own.taken_out()

    def verify(self) -> list[Finding]:
        """Check the session itself."""
        return self.own.verify()

    def repair(self, *, known: Known | None = None, missing: bool = False) -> Repaired:
        """Mend the session itself."""
        return self.own.repair(known=known, missing=missing)


def _same(now: Event | None, then: Event) -> bool:
    """Say whether a session begins as it began then: with its data or without."""
    return now is not None and (now.seq, now.stamp, now.kind) == (then.seq, then.stamp, then.kind)


def whole(backend: Backend, own: Log, known: Lineage | None = None) -> Log:
    """Return a session with what it inherits: itself, if it is no fork. `known`: an earlier answer."""
    first = own.first()
    if first is None or first.kind != SESSION_FORKED:
        return own
    if known is not None and known.first_event == first and known.stands():
        return known
    return Lineage(backend, own, first)


def common(one: Log, one_upto: int, other: Log, other_upto: int) -> tuple[str, int] | None:
    """Return the last event that two sessions of one store share by descent; None if there is none.

    Both are given with what they inherit, each up to a seq. Named by the session that said it, and its seq.
    """
    found = None
    for a, b in zip(_trail(one, one_upto), _trail(other, other_upto), strict=False):
        if a.log.session_id != b.log.session_id or not _same(a.first, b.first):
            break
        upto = min(a.upto, b.upto)
        # Where one of them left an ancestor early, it has nothing of what comes after it.
        if upto > a.after:
            found = (a.log.session_id, upto)
    return found


def _trail(log: Log, upto: int) -> Iterator[Stretch]:
    """Yield what a session is made of, up to a seq: what it inherits, and its own."""
    if isinstance(log, Lineage):
        for stretch in log.stretches:
            yield stretch._replace(upto=min(stretch.upto, upto))
    first = log.first()
    if first is not None:
        yield Stretch(log, first.seq - 1, upto, first)


def _trace(backend: Backend, session_id: str, first: Event) -> list[Stretch]:
    """Walk from a fork to the session in which all began; return what is inherited, oldest first."""
    stretches: list[Stretch] = []
    seen = {session_id}
    child = session_id
    forked = origin(first)
    bound = first.seq - 1
    while forked is not None:
        log, _, begin = parent_of(backend, child, forked, seen)
        bound = min(bound, forked.seq)
        stretches.append(Stretch(log, begin.seq - 1, bound, begin))
        child, forked = forked.parent, origin(begin)
    stretches.reverse()
    return stretches


def check(backend: Backend, session_id: str, sound: set[str]) -> None:
    """Raise `Damaged` if a session was forked from what is not there, or from itself.

    `sound`: sessions that were found to be in order; this one is among them afterwards, with all that it
    was forked from. So a store is checked in one walk, however deep its forks.
    """
    seen: set[str] = set()
    child = session_id
    while child not in sound:
        seen.add(child)
        forked = origin(backend.ancestor(child).first())
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
    known: tuple[Log, Head | None, Event | None] | None = None,
) -> tuple[Log, Head, Event]:
    """Return the session that a child was forked from, its head and its first event, or raise `Damaged`.

    `seen`: the sessions on the way here; this one is added. `known`: what is known of it, if something is.
    """
    problem = f"session {child!r} was forked from {forked.parent!r} at seq {forked.seq}"
    where = f"{backend.where}: {child}"
    if forked.parent in seen:
        raise Damaged(where, 0, f"{problem}, which was forked from it: the lineage is a circle")
    seen.add(forked.parent)
    if known is None:
        log = backend.ancestor(forked.parent)
        known = (log, log.head(), log.first())
    log, head, begin = known
    if head is None or begin is None:
        raise Damaged(where, 0, f"{problem}, and that is gone; restore it from a backup")
    if forked.created and head.created != forked.created:
        raise Damaged(where, 0, f"{problem}, and that is gone; another session has taken its name")
    if head.seq < forked.seq:
        raise Damaged(where, 0, f"{problem}, which has only {head.seq} events")
    return log, head, begin
