"""Know what each fork of a store begins with, reading each session once for all that were forked from it.

Above: `index`, `upkeep`.  Below: `lineage`, `fold`, `redaction`, `workspace`, `backend.contract`.
To read each fork through all those it was forked from takes the square of their number if they are a chain.
What a fork inherits is what its parent inherits, and some of the parent's own events. A graph is for one
pass: what it has read of a session is as old as the pass.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hansard import workspace as workspaces
from hansard.backend.contract import Backend, Finding, Head, Log, between
from hansard.errors import UNREADABLE, HansardError
from hansard.event.envelope import Event
from hansard.event.kinds import SESSION_FORKED, SessionForked
from hansard.state import checkpoint, fold, lineage, redaction
from hansard.state.fold import EMPTY, State
from hansard.state.redaction import NOTHING, Redactions
from hansard.workspace import Workspace


class Inherited(NamedTuple):
    """What a session begins with."""

    #: What those it was forked from have taken out of what it inherits.
    redactions: Redactions = NOTHING
    #: What the events that it inherits add up to, without that.
    state: State = EMPTY
    workspace: Workspace | None = None

    def with_own(self, own: Redactions, begin: int) -> Redactions | None:
        """Return these redactions and the session's own; None if its own reach before its first event.

        Then the inherited events add up to something else for it.
        """
        if not own:
            return self.redactions
        found = redaction.joined([self.redactions, own])
        return found if redaction.clipped(found, begin) == self.redactions else None


class _Node(NamedTuple):
    """A session from which others were forked, as it was found."""

    log: Log
    head: Head
    first: Event
    controls: list[Event]
    redactions: Redactions


class ForkGraph:
    """What the sessions of a store inherit."""

    __slots__ = ("_backend", "_found", "_nodes", "_origins", "_thorough")

    def __init__(self, backend: Backend, *, thorough: bool = False) -> None:
        """`thorough`: read every event, also where a compaction has saved what they add up to."""
        self._backend = backend.whole
        self._thorough = thorough
        self._nodes: dict[str, _Node] = {}
        #: What each fork inherits, or why it cannot be read.
        self._found: dict[str, Inherited | HansardError] = {}
        #: The session whose own event is the last one that a fork inherits, and the seq of that event.
        self._origins: dict[str, tuple[str, int]] = {}

    def inherited(self, session_id: str, first: Event) -> Inherited:
        """Return what a session begins with; raise if that cannot be read. `first`: its first event."""
        waiting = []
        seen = {session_id}
        child, begin = session_id, first
        while child not in self._found:
            forked = lineage.origin(begin)
            if forked is None:
                self._found[child] = Inherited()
                break
            try:
                parent = self._parent(child, forked, seen)
            except HansardError as error:
                self._found[child] = error
                break
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

    def moved(self, kinds: Iterable[str]) -> list[str]:
        """Return the sessions that have events of some kinds by now which were not there when it was read."""
        return [
            session_id
            for session_id, node in self._nodes.items()
            if any(event.kind in kinds for event in _since(node))
        ]

    def _parent(self, child: str, forked: SessionForked, seen: set[str]) -> _Node:
        known = self._nodes.get(forked.parent)
        ends = None if known is None else (known.log, known.head, known.first)
        log, head, first = lineage.parent_of(self._backend, child, forked, seen, ends)
        if known is None:
            controls = log.controls()
            known = _Node(log, head, first, controls, redaction.of(controls))
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
        node = self._nodes[name]
        begin = node.first.seq - 1
        base = self._found[name]
        if isinstance(base, HansardError):
            raise base
        log, controls = node.log, between(node.controls, begin, upto)
        state, workspace = base.state, base.workspace
        if redaction.clipped(taken, begin) != base.redactions:
            # What was taken out since lies before: all of it again.
            log, begin = lineage.whole(self._backend, node.log), 0
            state, workspace = EMPTY, None
            controls = log.controls(upto)
        if not state.seq and not self._thorough:
            state = saved_state(log, upto, taken)
        for chunk in log.read(state.seq or begin, upto):
            state = fold.apply_all(state, [taken.mask(event) for event in chunk.events()])
        for event in controls:
            workspace = workspaces.of(taken.mask(event), workspace)
        return Inherited(taken, state, workspace)


def _since(node: _Node) -> list[Event]:
    last = node.controls[-1].seq if node.controls else 0
    try:
        return node.log.controls(after=last)
    except HansardError:
        return []  # which shows when it is described itself


def saved_state(log: Log, upto: int, redactions: Redactions) -> State:
    """Return the state that a compaction saved of a session itself, or of the oldest that it comes from."""
    stretches = log.stretches if isinstance(log, lineage.Lineage) else ()
    if stretches:
        log, upto = stretches[0].log, min(upto, stretches[0].upto)
    known = log.checkpoint()
    if known is None or known[0] > upto:
        return EMPTY
    return checkpoint.load(known[1], redactions) or EMPTY


def forks(backend: Backend) -> Iterator[tuple[str, SessionForked | None]]:
    """Yield the sessions that were forked from others, in the trash or not, sorted, by their own logs.

    None: what one was forked from cannot be told any more. To lose a fork here is to lose what it needs, so
    this asks no index, and an error that is not the session's own is raised.
    """
    whole = backend.whole
    # The trash twice: what is deleted while the others are listed is in one of the three.
    for session_id in sorted({*whole.trash(), *whole.ids(), *whole.trash()}):
        try:
            forked = origin_of(whole.ancestor(session_id))
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
        return lineage.origin(log.first())
    except UNREADABLE:
        for found in log.salvage():
            if isinstance(found, Finding):
                continue
            # Only a fork's first event is of this kind, and only a first event has seq 1.
            if found.kind == SESSION_FORKED or found.seq == 1:
                return lineage.origin(found)
            break
        raise
