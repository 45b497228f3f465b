"""Look at sessions from outside: which are wanted, where each is, and what it was forked from.

Above: `resume`, `retention`, `index`.  Below: `workspace`, `state`, `backend.contract`.
What a fork says about itself, it says through those it was forked from. Each session is read once for all its
descendants, without recursion, so a chain of thousands costs thousands and not their square.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from hansard import workspace as workspaces
from hansard.backend.contract import Backend, Finding, Log
from hansard.errors import Damaged, DiskFailed, UnknownFormat, UnsafePath
from hansard.event.envelope import Event
from hansard.event.kinds import SESSION_FORKED, SessionForked
from hansard.state import fold, lineage, redaction
from hansard.state.activity import last_activity
from hansard.workspace import Match, Workspace

#: What it means that a session cannot be read: it is damaged, or the system refuses it, now or for good.
DAMAGED: Final = (Damaged, UnknownFormat, UnsafePath)
UNREADABLE: Final = (*DAMAGED, DiskFailed)

#: The metadata that keep a session from being pruned.
PINNED: Final = "pinned"


class SessionFilter(NamedTuple):
    """Which sessions are wanted; a field that is not set matches all."""

    #: Only sessions of this part of a store; others are not counted among the children either.
    scope: str = ""
    #: Only ids that begin so.
    prefix: str = ""
    #: The metadata that they have, or, where it is None, have not.
    where: Mapping[str, Any] = {}
    #: Something happened in it last at this time or later, and before this time.
    since: datetime | None = None
    until: datetime | None = None
    #: The title has this in it, whatever the case.
    title: str = ""
    workspace: Match | None = None
    parent: str | None = None
    archived: bool | None = None
    damaged: bool | None = None

    def matches_id(self, session_id: str) -> bool:
        """Return whether an id begins with scope and prefix."""
        return session_id.startswith(self.scope) and session_id.startswith(self.prefix)


class Own(NamedTuple):
    """What a session's own log says, without what it inherits."""

    seq: int
    created: str
    #: When something last happened in it.
    activity: str
    #: Its first event, and what it was forked from.
    first: int
    parent: SessionForked | None
    archived: bool
    #: Its control events.
    controls: list[Event]


class Claims(NamedTuple):
    """What the metadata of a session say about its keeping."""

    workspace: Workspace | None = None
    pinned: bool = False

    def after(self, events: Iterable[Event]) -> "Claims":
        """Return what holds after some more events."""
        workspace, pinned = self
        for event in events:
            workspace = workspaces.of(event, workspace)
            pinned = bool(workspaces.patch_of(event).get(PINNED, pinned))
        return Claims(workspace, pinned)


class Survey:
    """A look at the sessions of a store; what was read of one is kept for the others."""

    __slots__ = ("_backend", "_inherited", "_own")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._own: dict[str, Own | None] = {}
        #: What a fork had when it began.
        self._inherited: dict[str, Claims] = {}

    def own(self, session_id: str) -> Own | None:
        """Return what a session says itself; None if it does not exist. Raises if it is deleted."""
        found = self._own[session_id] = read(self._backend.log(session_id))
        return found

    def claims(self, session_id: str) -> Claims:
        """Return what a session's metadata say, inherited ones included."""
        own = self._ancestor(session_id)
        if own is None:
            return Claims()
        return self._before(session_id).after(own.controls)

    def _ancestor(self, session_id: str) -> Own | None:
        """Return the same as `own`, also from the trash, and as it was when it was first asked for."""
        if session_id not in self._own:
            self._own[session_id] = read(self._backend.whole.ancestor(session_id))
        return self._own[session_id]

    def _before(self, session_id: str) -> Claims:
        """Return what a session began with: nothing, unless it is a fork."""
        waiting: list[tuple[str, str, int]] = []
        seen = {session_id}
        at = session_id
        while at not in self._inherited:
            place = self._origin(at, seen)
            if place is None:
                self._inherited[at] = Claims()
                break
            waiting.append((at, *place))
            at = place[0]
        for child, parent, seq in reversed(waiting):
            own = self._ancestor(parent)
            assert own is not None  # `_origin` has seen it
            inherited = (event for event in own.controls if event.seq <= seq)
            self._inherited[child] = self._inherited[parent].after(inherited)
        return self._inherited[session_id]

    def _origin(self, session_id: str, seen: set[str]) -> tuple[str, int] | None:
        """Return the ancestor in which a fork begins, and the seq there; None if it is no fork."""
        own = self._ancestor(session_id)
        if own is None or own.parent is None:
            return None
        child, forked, seq = session_id, own.parent, own.parent.seq
        while True:
            parent = self._ancestor(forked.parent)
            where = f"{self._backend.where}: {child}"
            said = f"session {child!r} was forked from {forked.parent!r}"
            if forked.parent in seen:
                raise Damaged(where, 0, f"{said}, which was forked from it: a circle")
            seen.add(forked.parent)
            if parent is None or (forked.created and parent.created != forked.created):
                raise Damaged(where, 0, f"{said}, and that is gone; restore it from a backup")
            if parent.parent is None or seq >= parent.first:
                return forked.parent, seq
            # Forked from a fork, at a place that this one had inherited itself.
            child, forked, seq = forked.parent, parent.parent, min(seq, parent.parent.seq)


def read(log: Log) -> Own | None:
    """Return what a session's own log says; None if there is none."""
    head = log.head()
    first = log.first()
    if head is None or first is None:
        return None
    controls = log.controls(head.seq)
    redactions = redaction.of(controls)
    if redactions:
        controls = [redactions.mask(event) for event in controls]
    return Own(
        head.seq,
        head.created,
        last_activity(log, head),
        first.seq,
        lineage.origin(first),
        fold.apply_all(fold.EMPTY, controls).archived,
        controls,
    )


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
