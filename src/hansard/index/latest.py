"""Find the session to go on with: the one in which something happened last.

By the times of events, not of files. The index says where to look, and the logs decide. A session that
cannot be read and may be the newest is an error: to go on with an older one in silence is how people lose a
conversation without noticing.
"""

from collections.abc import Iterator
from contextlib import suppress

from hansard import workspace as workspaces
from hansard.backend.contract import Backend, Finding, LogReader
from hansard.errors import UNREADABLE, BackendUnavailable, Damaged, HansardError, SessionDeleted
from hansard.event.envelope import Event
from hansard.event.kinds import CONTROL
from hansard.index import index
from hansard.index.entry import SessionInfo
from hansard.index.index import Index
from hansard.index.listing import SessionFilter
from hansard.state import fold, lineage
from hansard.state.fold import HOUSEKEEPING, last_activity
from hansard.state.lineage import AncestorRange, ForkedReader
from hansard.workspace import Workspace


def latest(backend: Backend, filters: SessionFilter, *, skip_damaged: bool = False) -> str | None:
    """Return the id of the newest session, of a workspace or of all; None if there is none."""
    search = _Search(backend, filters)
    try:
        best = search.best(index.of(backend))
    except (_Untrue, BackendUnavailable):
        # Whatever is wrong with an index, the logs are there.
        fresh = Index(backend.whole, shared=False)
        try:
            best = search.best(fresh, fresh=True)
        finally:
            fresh.close()
    if not skip_damaged:
        search.report("" if best is None else best[0])
    return None if best is None else best[1]


class _Untrue(Exception):
    """The index says something else than a log."""


class _Search:
    """One search; remembers what could not be read on the way."""

    def __init__(self, backend: Backend, filters: SessionFilter) -> None:
        self._backend = backend
        self._filters = filters
        self._match = filters.workspace
        self._archived = filters.archived is None
        self._unreadable: dict[str, HansardError] = {}

    def best(self, index: Index, *, fresh: bool = False) -> tuple[str, str] | None:
        """Return the newest session, behind its time; None if none is wanted.

        `fresh`: the index was made from the logs just now.
        """
        damaged = self._filters._replace(workspace=None, archived=None, damaged=True)
        # They may have been mended since, or be damaged where it does not matter here.
        doubtful = index.sessions(damaged, order="id", limit=None, cursor=None).items
        found = [self._place_of(info.id) for info in doubtful]
        for info in _newest(index, self._filters._replace(damaged=False)):
            place = self._place_of(info.id)
            if place is not None:
                if place[0] < info.updated and not fresh:
                    raise _Untrue
                found.append(place)
                break
        return max((place for place in found if place is not None), default=None)

    def _place_of(self, session_id: str) -> tuple[str, str] | None:
        """Return a session behind the time at which something last happened in it, by its log.

        None if it is not wanted, or cannot be read.
        """
        try:
            log = self._backend.log(session_id).reader()
            head = log.head()
            if head is None:
                return None
            if not self._archived and fold.apply_all(fold.EMPTY, _controls(log)).archived:
                return None
            if self._match is not None:
                whole = lineage.with_ancestors(self._backend.whole, log)
                if not self._match(_workspace(_controls(whole))):
                    return None
            return last_activity(log, head), session_id
        except SessionDeleted:
            return None
        except UNREADABLE as error:
            self._unreadable[session_id] = error
            return None

    def report(self, best: str) -> None:
        """Raise for a session that cannot be read and may be newer than the best that was found."""
        for session_id, error in sorted(self._unreadable.items()):
            if self._may_be_newer(session_id, best):
                place = (error.path, error.offset) if isinstance(error, Damaged) else None
                path, offset = place or (self._backend.where, 0)
                reason = error.reason if isinstance(error, Damaged) else str(error)
                raise Damaged(
                    path,
                    offset,
                    reason,
                    f"session {session_id!r} may be the newest one, so no older one was taken for it: "
                    "`verify` lists its damage, and `latest(skip_damaged=True)` passes over it",
                ) from error

    def _may_be_newer(self, session_id: str, best: str) -> bool:
        """Say whether a damaged session may be the one that is looked for, by what is whole of it."""
        remains = _Remains()
        try:
            for found in _salvage(self._backend.whole, session_id):
                remains.add(found)
        except SessionDeleted:
            return False
        except UNREADABLE:
            return True  # nothing can be told
        said = _workspace(remains.controls)
        if self._match is not None and said is not None and not self._match(said):
            return False
        archived = fold.apply_all(fold.EMPTY, remains.controls).archived
        if archived and not self._archived and not remains.ends_damaged:
            return False
        return remains.ends_damaged or remains.bound >= best


def _salvage(backend: Backend, session_id: str) -> Iterator[Event | Finding]:
    """Yield what can still be read of a session and of what it inherits; damage there counts, too."""
    own = backend.log(session_id)
    inherited: list[AncestorRange] = []
    with suppress(*UNREADABLE):
        log = lineage.with_ancestors(backend, own.reader())
        inherited = log.inherited if isinstance(log, ForkedReader) else []
    for part in inherited:
        for found in backend.ancestor(part.reader.session_id).salvage():
            if not isinstance(found, Event) or part.after < found.seq <= part.upto:
                yield found
    yield from own.salvage()


def _newest(index: Index, filters: SessionFilter) -> Iterator[SessionInfo]:
    """Yield sessions, the newest first: nearly always, the first one will do."""
    cursor = None
    limit = 4
    while True:
        page = index.sessions(filters, order="-updated", limit=limit, cursor=cursor)
        yield from page.items
        cursor, limit = page.next, 100
        if cursor is None:
            return


def _controls(log: LogReader) -> list[Event]:
    """Return the control events of a session, without what was taken out of them."""
    controls = log.controls()
    taken = lineage.redactions_of(log, controls)
    return [taken.mask(event) for event in controls] if taken else controls


def _workspace(controls: list[Event]) -> Workspace | None:
    """Return where a session with these control events belongs."""
    found = None
    for event in controls:
        found = workspaces.of(event, found)
    return found


class _Remains:
    """What is left of a damaged session, taken in from its beginning to its end."""

    def __init__(self) -> None:
        self.controls: list[Event] = []
        #: Nothing in what is whole, or in the damage before it, happened later than this.
        self.bound = ""
        #: Whether damage comes last, so that what it took away may be newer than anything.
        self.ends_damaged = True
        self._gap = False

    def add(self, found: Event | Finding) -> None:
        """Take in what comes next."""
        if isinstance(found, Finding):
            self._gap = self.ends_damaged = True
            return
        self.ends_damaged = False
        if found.kind in CONTROL:
            self.controls.append(found)
        if found.kind not in HOUSEKEEPING or self._gap:
            # Behind damage any event is a bound for what stood there.
            self.bound = found.stamp
            self._gap = False
