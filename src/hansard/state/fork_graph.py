"""Compute what each fork of a store inherits, reading each session once for all that were forked from it.

To read each fork through all its ancestors would take the square of their number if they are a chain. What a
fork inherits is what its parent inherits, and some of the parent's own events. If a fork redacts inherited
events, only the few events that can change its state are folded again, from memory. A graph is for one pass:
what it has read of a session is as old as the pass.
"""

from bisect import bisect_right, insort
from collections.abc import Container, Iterator
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from hansard import workspace as workspaces
from hansard.backend.contract import Backend, Finding, Head, Log, LogReader, between
from hansard.errors import UNREADABLE, HansardError
from hansard.event import kinds
from hansard.event.event import Event
from hansard.event.kinds import (
    MESSAGE_ADDED,
    MESSAGE_PART,
    METADATA_SET,
    SESSION_CREATED,
    SESSION_FORKED,
    SESSION_SNAPSHOTTED,
    USAGE_RECORDED,
    SessionForked,
)
from hansard.state import fold, lineage, redaction
from hansard.state.fold import EMPTY, State
from hansard.state.redaction import NOTHING, Redactions
from hansard.workspace import Workspace

#: Events whose redaction can change the state that a fork begins with; those of streams do too. The others
#: are counted, whether redacted or not.
_CHANGEABLE: Final = frozenset({METADATA_SET, SESSION_CREATED, SESSION_SNAPSHOTTED, USAGE_RECORDED})


class Inherited(NamedTuple):
    """What a session begins with."""

    #: The redactions of its ancestors, as far as they concern what it inherits.
    redactions: Redactions = NOTHING
    #: What the inherited events add up to, with these redactions.
    state: State = EMPTY
    workspace: Workspace | None = None


class _Node(NamedTuple):
    """A session from which others were forked, as it was found."""

    reader: LogReader
    head: Head
    first: Event
    controls: list[Event]
    redactions: Redactions


class ForkGraph:
    """What the sessions of a store inherit."""

    __slots__ = (
        "_backend",
        "_changeable",
        "_found",
        "_nodes",
        "_origins",
        "_parents",
        "_prefixes",
        "_thorough",
    )

    def __init__(self, backend: Backend, *, thorough: bool = False) -> None:
        """`thorough`: read every event, also where a compaction has saved what they add up to."""
        self._backend = backend.unscoped
        self._thorough = thorough
        self._nodes: dict[str, _Node] = {}
        #: What each fork inherits, or why it cannot be read.
        self._found: dict[str, Inherited | HansardError] = {}
        #: The session whose own event is the last one that a fork inherits, and the seq of that event.
        self._origins: dict[str, tuple[str, int]] = {}
        self._parents: dict[str, str] = {}
        #: By session, what it adds up to at the seqs at which others were forked from it, in order.
        self._prefixes: dict[str, list[tuple[int, Inherited]]] = {}
        #: By session, its own events that a redaction can change.
        self._changeable: dict[str, list[Event]] = {}

    def inherited(self, session_id: str, first: Event) -> Inherited:
        """Return what a session begins with; raise if that cannot be read. `first`: its first event."""
        waiting = []
        seen = {session_id}
        child, begin = session_id, first
        while child not in self._found:
            forked = lineage.fork_source(begin)
            if forked is None:
                self._found[child] = Inherited()
                break
            try:
                parent = self._parent(child, forked, seen)
            except HansardError as error:
                self._found[child] = error
                break
            self._parents[child] = forked.parent
            waiting.append((child, forked, begin.seq - 1))
            child, begin = forked.parent, parent.first
        for found, forked, bound in reversed(waiting):
            above = self._found[forked.parent]
            try:
                self._found[found] = (
                    above
                    if isinstance(above, HansardError)
                    else self._inherit(found, above, forked, bound)
                )
            except HansardError as error:
                self._found[found] = error
        answer = self._found[session_id]
        if isinstance(answer, HansardError):
            raise answer
        return answer

    def seen(self, session_id: str, first: Event, own: Redactions) -> Inherited:
        """Return what a session begins with, given its own redactions; `redactions` has these, too."""
        inherited = self.inherited(session_id, first)
        if not own:
            return inherited
        taken = redaction.joined([inherited.redactions, own])
        known = self._redacted(session_id, inherited, redaction.clipped(taken, first.seq - 1))
        return known._replace(redactions=taken)

    def holder(self, session_id: str, seq: int) -> LogReader | None:
        """Return the ancestor that holds an inherited event; None if the event is not inherited.

        After `inherited` of that session.
        """
        for name, upto in self._ancestors(session_id):
            if seq > upto:
                break
            if seq >= self._nodes[name].first.seq:
                return self._nodes[name].reader
        return None

    def new_streams(self, session_id: str, seen: Inherited) -> dict[str, int]:
        """Return the unfinished streams that a session inherits, without those that its parent inherits.

        By stream, the seq of its last part. After `seen` of that session.
        """
        above = self._found[self._parents[session_id]] if session_id in self._parents else None
        known = above.state.streams if isinstance(above, Inherited) else {}
        return {s: seq for s, seq in seen.state.streams.items() if known.get(s) != seq}

    def count(self, session_id: str, kinds: Container[str]) -> int | None:
        """Return the number of control events of some kinds that were read of a parent; None if not read."""
        node = self._nodes.get(session_id)
        return None if node is None else sum(event.kind in kinds for event in node.controls)

    def _parent(self, child: str, forked: SessionForked, seen: set[str]) -> _Node:
        known = self._nodes.get(forked.parent)
        ends = None if known is None else (known.reader, known.head, known.first)
        reader, head, first = lineage.parent_of(self._backend, child, forked, seen, ends)
        if known is None:
            controls = reader.controls()
            known = _Node(reader, head, first, controls, redaction.of(controls))
            self._nodes[forked.parent] = known
        return known

    def _inherit(
        self, session_id: str, above: Inherited, forked: SessionForked, bound: int
    ) -> Inherited:
        parent = self._nodes[forked.parent]
        upto = min(bound, forked.seq)
        taken = above.redactions
        if parent.redactions:
            taken = redaction.joined([taken, parent.redactions])
        taken = redaction.clipped(taken, upto)
        # Forked from a fork, at a place that this one had inherited itself: from which one, then?
        name = forked.parent
        while name in self._origins and upto < self._nodes[name].first.seq:
            name, seq = self._origins[name]
            upto = min(upto, seq)
        self._origins[session_id] = (name, upto)
        return self._prefix(name, upto, taken)

    def _prefix(self, name: str, upto: int, taken: Redactions) -> Inherited:
        """Return the state of a session at one of its own seqs, with these redactions."""
        node = self._nodes[name]
        begin = node.first.seq - 1
        base = self._found[name]
        if isinstance(base, HansardError):
            raise base
        known = self._prefixes.setdefault(name, [])
        nearest = bisect_right(known, upto, key=itemgetter(0)) - 1
        # Of many forks of one session, each is read on from the one before it.
        if nearest >= 0 and known[nearest][1].redactions == redaction.clipped(
            taken, known[nearest][0]
        ):
            begin, start = known[nearest]
        else:
            start = self._redacted(name, base, redaction.clipped(taken, begin))
        state, workspace = start.state, start.workspace
        if not state.seq and not self._thorough:
            state = fold.saved_state(node.reader, upto, taken)
        for chunk in node.reader.read(state.seq or begin, upto) if upto > begin else ():
            state = fold.apply_all(state, [taken.mask(event) for event in chunk.events()])
        for event in between(node.controls, begin, upto):
            workspace = workspaces.of(taken.mask(event), workspace)
        found = Inherited(taken, state, workspace)
        if upto > begin:
            insort(known, (upto, found), key=itemgetter(0))
        return found

    # -- redactions of inherited events ---------------------------------------------------------

    def _redacted(self, session_id: str, known: Inherited, taken: Redactions) -> Inherited:
        """Return what a session begins with if these redactions hold instead of those that are known."""
        if taken == known.redactions:
            return known
        events = [taken.mask(event) for event in self._inherited_changeable(session_id)]
        folded = fold.apply_all(EMPTY, events)
        workspace = None
        for event in events:
            workspace = workspaces.of(event, workspace)
        state = msgspec.structs.replace(
            known.state,
            metadata=folded.metadata,
            named=folded.named,
            snapshots=folded.snapshots,
            usage=folded.usage,
            streams=folded.streams,
        )
        return Inherited(taken, state, workspace)

    def _inherited_changeable(self, session_id: str) -> Iterator[Event]:
        for name, upto in reversed(list(self._ancestors(session_id))):
            if name not in self._changeable:
                node = self._nodes[name]
                self._changeable[name] = [
                    small
                    for chunk in node.reader.read(node.first.seq - 1, node.head.seq)
                    for event in chunk.events()
                    if (small := _changeable(event)) is not None
                ]
            yield from (event for event in self._changeable[name] if event.seq <= upto)

    def _ancestors(self, session_id: str) -> Iterator[tuple[str, int]]:
        """Yield the sessions whose own events one inherits, the nearest first, each with the last seq."""
        name, upto = session_id, None
        while name in self._origins:
            name, seq = self._origins[name]
            upto = seq if upto is None else min(upto, seq)
            yield name, upto


def _changeable(event: Event) -> Event | None:
    """Return an event if its redaction can change a state, without its texts; None if it cannot."""
    if event.kind in _CHANGEABLE:
        return event
    if event.kind == MESSAGE_PART:
        part = kinds.read(MESSAGE_PART, event.raw)
        kept = None if part is None else {"stream": part.stream, "over": part.over}
    elif event.kind == MESSAGE_ADDED and b'"stream"' in event.raw:
        added = kinds.read(MESSAGE_ADDED, event.raw)
        kept = None if added is None else {"message": {}, "stream": added.stream}
    else:
        return None
    return None if kept is None else msgspec.structs.replace(event, raw=msgspec.json.encode(kept))


def forks(backend: Backend) -> Iterator[tuple[str, SessionForked | None]]:
    """Yield the sessions that were forked from others, in the trash or not, sorted, by their own logs.

    None: what one was forked from cannot be told any more. To lose a fork here is to lose what it needs, so
    this asks no index, and an error that is not the session's own is raised.
    """
    whole = backend.unscoped
    # The trash twice: what is deleted while the others are listed is in one of the three.
    for session_id in sorted({*whole.ids(trash=True), *whole.ids(), *whole.ids(trash=True)}):
        try:
            forked = origin_of(whole.log(session_id, from_trash=True))
        except UNREADABLE:
            yield session_id, None
        else:
            if forked is not None:
                yield session_id, forked


def origin_of(log: Log) -> SessionForked | None:
    """Return what a session was forked from, also if it is damaged; None if it was not.

    Raises if it cannot be told: the damage took away where it came from.
    """
    try:
        return lineage.fork_source(log.reader().first())
    except UNREADABLE:
        for found in log.salvage():
            if isinstance(found, Finding):
                continue
            # Only a fork's first event is of this kind, and only a first event has seq 1.
            if found.kind == SESSION_FORKED or found.seq == 1:
                return lineage.fork_source(found)
            break
        raise
