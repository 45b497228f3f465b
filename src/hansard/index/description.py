"""Say what a listing says about a session, by its log.

Above: `catalogue`.  Below: `entry`, `state`, `backend.contract`.
What was said at an earlier seq is gone on from: to describe a session again costs what is new in it.
"""

from contextlib import suppress
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from hansard import workspace as workspaces
from hansard.backend.contract import Backend, Head, LogReader
from hansard.errors import HansardError
from hansard.event.kinds import MESSAGE_REDACTED, SESSION_REPAIRED, SessionForked
from hansard.index.entry import SessionInfo
from hansard.state import checkpoint, fold, lineage, redaction
from hansard.state.activity import HOUSEKEEPING, last_activity
from hansard.state.fold import State
from hansard.state.fork_graph import ForkGraph, Inherited, origin_of, saved_state
from hansard.state.redaction import Redactions
from hansard.workspace import Workspace

#: After these, what forks of a session inherit is something else.
UNSETTLING: Final = (MESSAGE_REDACTED, SESSION_REPAIRED)

#: So many bytes of checksum stand before the state that is kept.
_CHECK: Final = 4


class Known(NamedTuple):
    """What was said about a session before: to be gone on from, if it still holds."""

    seq: int
    created: str
    updated: str
    size: int
    state: bytes


class Description(NamedTuple):
    """What is to be said about a session."""

    info: SessionInfo
    workspace: Workspace | None
    #: When the session began that it was forked from: what tells it from another of its name.
    parent_created: str
    #: What to go on from.
    state: bytes = b""
    #: Changes when its forks, too, have to be described again.
    unsettled: int = -1
    #: Whether what was said before still holds, and only what is new was read.
    resumed: bool = False


def describe(
    backend: Backend,
    session_id: str,
    known: Known | None = None,
    *,
    graph: ForkGraph | None = None,
    thorough: bool = False,
) -> Description | None:
    """Describe a session; None if there is none. Raises if it is deleted, or cannot be read.

    Args:
        backend: where it is.
        session_id: the session.
        known: what was said of it before.
        graph: what forks inherit, if others of the store are described, too; for thorough ones if so.
        thorough: read all of it, also what a compaction has saved the state of.
    """
    own = backend.log(session_id).reader()
    head = own.head()
    if head is None:
        return None
    size = own.size()
    if known is not None and (known.seq, known.size) == (head.seq, size):
        # It was changed, and neither grew nor was compacted: somebody has found it damaged, or has written
        # into it. What was said of it is not believed, nor is anything that saves reading it.
        known, thorough, graph = None, True, None
    basis = _inherited(own, graph or ForkGraph(backend, thorough=thorough))
    redactions = basis.redactions
    start = _resume(own, head, known, redactions)
    folded = _Folded(start or basis.state)
    folded.add(own, basis.redactions, head, thorough=thorough)
    if start is not None and folded.repaired:
        # What was folded before may have been mended since.
        start, folded = None, _Folded(basis.state)
        folded.add(own, basis.redactions, head, thorough=thorough)
    updated = folded.activity
    if not updated:
        # Nothing but housekeeping is new.
        updated = known.updated if known and start is not None else last_activity(own, head)
    found = _describe(own, basis, head, size, folded.state, updated)
    return found._replace(resumed=start is not None)


def _inherited(own: LogReader, graph: ForkGraph) -> Inherited:
    """Return what a session begins with; `redactions`: all that hold for it."""
    first = own.first()
    taken = redaction.of(own.controls())
    if first is None or lineage.fork_source(first) is None:
        return Inherited(taken)
    return graph.seen(own.session_id, first, taken)


def describe_damaged(backend: Backend, session_id: str, error: HansardError) -> Description:
    """Say of a session that it cannot be read, and what can still be told from outside."""
    info = SessionInfo(session_id, damaged=str(error))
    created = ""
    # What it was forked from: when that is mended, it may be whole again.
    with suppress(HansardError):
        forked = origin_of(backend.log(session_id))
        if forked is not None:
            created = forked.created
            info = msgspec.structs.replace(info, parent=forked.parent, forked_at=forked.seq)
    return Description(info, None, created)


class _Folded:
    """A state, and when something last happened among the events that were added to it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.activity = ""
        self._repairs = state.kinds.get(SESSION_REPAIRED)

    @property
    def repaired(self) -> bool:
        return self.state.kinds.get(SESSION_REPAIRED) != self._repairs

    def add(self, log: LogReader, redactions: Redactions, head: Head, *, thorough: bool) -> None:
        """Add the events that are new."""
        if not self.state.seq and not thorough:
            self.state = saved_state(log, head.seq, redactions)
        for chunk in log.read(after=self.state.seq, upto=head.seq):
            events = chunk.events()
            self.state = fold.apply_all(self.state, [redactions.mask(event) for event in events])
            happened = next((e for e in reversed(events) if e.kind not in HOUSEKEEPING), None)
            if happened is not None:
                self.activity = happened.stamp


def _resume(
    log: LogReader, head: Head, known: Known | None, redactions: Redactions
) -> State | None:
    """Return what was folded before, if it is of these very events; None if not."""
    if known is None or known.created != head.created or not 0 < known.seq <= head.seq:
        return None
    check, saved = known.state[:_CHECK], known.state[_CHECK:]
    # The index may have been damaged: SQLite keeps no checksums, and what it says must not be built on then.
    if check != crc32(saved).to_bytes(_CHECK):
        return None
    state = checkpoint.load(saved, redactions)
    if state is None:
        return None
    # An older log may have been put in its place, and have gone on otherwise.
    last = [event for chunk in log.read(known.seq - 1, known.seq) for event in chunk.events()]
    return state if last and last[-1].stamp == state.updated else None


def _describe(
    log: LogReader, basis: Inherited, head: Head, size: int, state: State, updated: str
) -> Description:
    redactions = basis.redactions
    forked: SessionForked | None = lineage.fork_source(log.first())
    workspace = basis.workspace
    for event in log.controls(head.seq):
        workspace = workspaces.of(redactions.mask(event), workspace)
    usage = state.usage.values()
    info = SessionInfo(
        log.session_id,
        title=state.title,
        seq=head.seq,
        created=head.created,
        updated=updated,
        message_count=state.message_count,
        bytes=size,
        input_tokens=sum(used.input_tokens for used in usage),
        output_tokens=sum(used.output_tokens for used in usage),
        cost=sum(used.cost for used in usage),
        parent=state.parent,
        forked_at=state.forked_at,
        workspace=None if workspace is None else workspace.path,
        archived=state.archived,
        closed=state.closed,
        metadata=state.metadata,
    )
    saved = checkpoint.save(state, redactions)
    return Description(
        info,
        workspace,
        forked.created if forked else "",
        crc32(saved).to_bytes(_CHECK) + saved,
        sum(state.kinds.get(kind, 0) for kind in UNSETTLING),
    )
