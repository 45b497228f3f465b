"""Compute what each fork of a store inherits, and read each session once for all of its forks.

To read each fork through all of its ancestors would take the square of the length of a chain. A fork inherits
what its parent inherits, and some of the parent's own events. Only for a fork that redacts inherited events
are these read again. A graph is for one index refresh: it keeps what it has read.
"""

from bisect import bisect_right, insort
from operator import itemgetter
from typing import NamedTuple

from hansard import workspace as workspaces
from hansard.backend.contract import Backend, Head, LogReader, between
from hansard.errors import HansardError
from hansard.event.event import Event
from hansard.event.kinds import SessionForked
from hansard.state import fold, lineage, redaction
from hansard.state.fold import EMPTY, State
from hansard.state.redaction import NOTHING, Redactions
from hansard.workspace import Workspace


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
        self.thorough = thorough
        self._nodes: dict[str, _Node] = {}
        #: What each fork inherits, or why it cannot be read.
        self._found: dict[str, Inherited | HansardError] = {}
        #: The session whose own event is the last one that a fork inherits, and the seq of that event.
        self._origins: dict[str, tuple[str, int]] = {}
        #: By session, what it adds up to at the seqs at which others were forked from it, in order.
        self._prefixes: dict[str, list[tuple[int, Inherited]]] = {}

    def inherited(self, own: LogReader, first: Event, redactions: Redactions) -> Inherited:
        """Return what a session begins with, with its own redactions; raise if that cannot be read."""
        found = self._inherited(own.session_id, first)
        if not redactions:
            return found
        taken = redaction.joined([found.redactions, redactions])
        known = self._redacted(own, first, found, redaction.clipped(taken, first.seq - 1))
        return known._replace(redactions=taken)

    def controls(self, session_id: str) -> list[Event] | None:
        """Return the control events that were read of a session; None if no fork of it was asked about."""
        node = self._nodes.get(session_id)
        return None if node is None else node.controls

    def _inherited(self, session_id: str, first: Event) -> Inherited:
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
            waiting.append((child, forked.parent, min(begin.seq - 1, forked.seq)))
            child, begin = forked.parent, parent.first
        for name, source, upto in reversed(waiting):
            try:
                self._found[name] = self._inherit(name, source, upto)
            except HansardError as error:
                self._found[name] = error
        return self._answer(session_id)

    def _answer(self, session_id: str) -> Inherited:
        found = self._found[session_id]
        if isinstance(found, HansardError):
            raise found
        return found

    def _parent(self, child: str, forked: SessionForked, seen: set[str]) -> _Node:
        known = self._nodes.get(forked.parent)
        ends = None if known is None else (known.reader, known.head, known.first)
        reader, head, first = lineage.parent_of(self._backend, child, forked, seen, ends)
        if known is None:
            controls = reader.controls()
            known = _Node(reader, head, first, controls, redaction.of(controls))
            self._nodes[forked.parent] = known
        return known

    def _inherit(self, session_id: str, name: str, upto: int) -> Inherited:
        """Return what a fork of the session with this name inherits, which is up to this seq."""
        taken = self._answer(name).redactions
        if self._nodes[name].redactions:
            taken = redaction.joined([taken, self._nodes[name].redactions])
        taken = redaction.clipped(taken, upto)
        # Forked at a seq that the parent itself inherits: find the session that has the event.
        while name in self._origins and upto < self._nodes[name].first.seq:
            name, seq = self._origins[name]
            upto = min(upto, seq)
        self._origins[session_id] = (name, upto)
        node = self._nodes[name]
        begin = node.first.seq - 1
        known = self._prefixes.setdefault(name, [])
        nearest = bisect_right(known, upto, key=itemgetter(0)) - 1
        # Of many forks of one session, each continues from the one before it.
        if nearest >= 0 and known[nearest][1].redactions == redaction.clipped(
            taken, known[nearest][0]
        ):
            begin, start = known[nearest]
        else:
            start = self._answer(name)
            start = self._redacted(node.reader, node.first, start, redaction.clipped(taken, begin))
        state = start.state
        if not state.seq and not self.thorough:
            state = fold.saved_state(node.reader, upto, taken)
        state = fold.replay(node.reader, start=state, upto=upto, redactions=taken)
        masked = map(taken.mask, between(node.controls, begin, upto))
        found = Inherited(taken, state, workspaces.of(masked, start.workspace))
        insort(known, (upto, found), key=itemgetter(0))
        return found

    def _redacted(
        self, own: LogReader, first: Event, known: Inherited, taken: Redactions
    ) -> Inherited:
        """Return what a session begins with, given these redactions instead of the known ones."""
        if taken == known.redactions:
            return known
        reader = lineage.ForkedReader(self._backend, own, first)
        state = fold.replay(reader, upto=first.seq - 1, redactions=taken)
        workspace = workspaces.of(map(taken.mask, reader.controls(first.seq - 1)))
        return Inherited(taken, state, workspace)
