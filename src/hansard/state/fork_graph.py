"""Compute what each fork of a store inherits, and read each session once for all of its forks.

To read each fork through all of its ancestors would take the square of the length of a chain. A fork inherits
what its parent inherits, and some of the parent's own events. If a fork redacts inherited events, only the
few events that can change its state are folded again, from memory. A graph is for one index refresh: it keeps
what it has read.
"""

from bisect import bisect_right, insort
from collections.abc import Iterator
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from hansard import workspace as workspaces
from hansard.backend.contract import Backend, Head, LogReader, between
from hansard.errors import HansardError
from hansard.event import kinds
from hansard.event.event import Event
from hansard.event.kinds import SessionForked
from hansard.state import fold, lineage, redaction
from hansard.state.fold import EMPTY, State
from hansard.state.redaction import NOTHING, Redactions
from hansard.workspace import Workspace

#: Events whose redaction can change the state that a fork begins with, as those of streams can. Others count
#: in a state whether redacted or not.
_CHANGEABLE: Final = frozenset(
    {kinds.METADATA_SET, kinds.SESSION_CREATED, kinds.SESSION_SNAPSHOTTED, kinds.USAGE_RECORDED}
)
_CHANGED: Final = ("metadata", "named", "snapshots", "usage", "streams")


class Inherited(NamedTuple):
    """What a session begins with."""

    #: The redactions of its ancestors, as far as they concern what it inherits.
    redactions: Redactions = NOTHING
    #: What the inherited events add up to, with these redactions.
    state: State = EMPTY
    workspace: Workspace | None = None


class _Node(NamedTuple):
    """A parent, as it was read."""

    reader: LogReader
    head: Head
    first: Event
    controls: list[Event]
    redactions: Redactions


class ForkGraph:
    """What the sessions of a store inherit."""

    def __init__(self, backend: Backend, *, thorough: bool = False) -> None:
        """`thorough`: read every event, even if a compaction saved the state."""
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
            try:
                self._found[found] = self._inherit(found, forked, bound)
            except HansardError as error:
                self._found[found] = error
        return self._answer(session_id)

    def _answer(self, session_id: str) -> Inherited:
        found = self._found[session_id]
        if isinstance(found, HansardError):
            raise found
        return found

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

    def controls(self, session_id: str) -> list[Event] | None:
        """Return the control events that were read of a session; None if no fork of it was asked about."""
        node = self._nodes.get(session_id)
        return None if node is None else node.controls

    def _parent(self, child: str, forked: SessionForked, seen: set[str]) -> _Node:
        known = self._nodes.get(forked.parent)
        ends = None if known is None else (known.reader, known.head, known.first)
        reader, head, first = lineage.parent_of(self._backend, child, forked, seen, ends)
        if known is None:
            controls = reader.controls()
            known = _Node(reader, head, first, controls, redaction.of(controls))
            self._nodes[forked.parent] = known
        return known

    def _inherit(self, session_id: str, forked: SessionForked, bound: int) -> Inherited:
        taken = self._answer(forked.parent).redactions
        parent = self._nodes[forked.parent]
        upto = min(bound, forked.seq)
        if parent.redactions:
            taken = redaction.joined([taken, parent.redactions])
        taken = redaction.clipped(taken, upto)
        # Forked at a seq that the parent itself inherits: find the session that has the event.
        name = forked.parent
        while name in self._origins and upto < self._nodes[name].first.seq:
            name, seq = self._origins[name]
            upto = min(upto, seq)
        self._origins[session_id] = (name, upto)
        return self._prefix(name, upto, taken)

    def _prefix(self, name: str, upto: int, taken: Redactions) -> Inherited:
        """Return the state of a session at a seq that it has itself, with these redactions."""
        node = self._nodes[name]
        begin = node.first.seq - 1
        base = self._answer(name)
        known = self._prefixes.setdefault(name, [])
        nearest = bisect_right(known, upto, key=itemgetter(0)) - 1
        # Of many forks of one session, each continues from the one before it.
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
        workspace = workspaces.of(map(taken.mask, between(node.controls, begin, upto)), workspace)
        found = Inherited(taken, state, workspace)
        if upto > begin:
            insort(known, (upto, found), key=itemgetter(0))
        return found

    # -- redactions of inherited events ---------------------------------------------------------

    def _redacted(self, session_id: str, known: Inherited, taken: Redactions) -> Inherited:
        """Return what a session begins with, given these redactions instead of the known ones."""
        if taken == known.redactions:
            return known
        events = [taken.mask(event) for event in self._inherited_changeable(session_id)]
        folded = fold.apply_all(EMPTY, events)
        changed = {name: getattr(folded, name) for name in _CHANGED}
        state = msgspec.structs.replace(known.state, **changed)
        return Inherited(taken, state, workspaces.of(events))

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
        """Yield the ancestors with inherited events, the nearest first, each with the last seq."""
        name, upto = session_id, None
        while name in self._origins:
            name, seq = self._origins[name]
            upto = seq if upto is None else min(upto, seq)
            yield name, upto


def _changeable(event: Event) -> Event | None:
    """Return an event, without its texts, if its redaction can change a state; otherwise None."""
    if event.kind in _CHANGEABLE:
        return event
    if event.kind == kinds.MESSAGE_PART:
        part = kinds.read(kinds.MESSAGE_PART, event.raw)
        kept = None if part is None else {"stream": part.stream, "over": part.over}
    elif event.kind == kinds.MESSAGE_ADDED and b'"stream"' in event.raw:
        added = kinds.read(kinds.MESSAGE_ADDED, event.raw)
        kept = None if added is None else {"message": {}, "stream": added.stream}
    else:
        return None
    return None if kept is None else msgspec.structs.replace(event, raw=msgspec.json.encode(kept))
