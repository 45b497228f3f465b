"""Find the most recently active session, by the times of its events.

The index proposes sessions, and their logs decide. An unreadable session that may be the newest is an error:
otherwise a user would continue an older conversation without noticing.
"""

from collections.abc import Iterator
from contextlib import suppress

from hansard import workspace as workspaces
from hansard.backend.contract import Backend, Finding, LogReader
from hansard.errors import UNREADABLE, Damaged, HansardError, SessionDeleted
from hansard.event.event import Event
from hansard.event.kinds import CONTROL
from hansard.index import SessionInfo, index
from hansard.index.index import Index
from hansard.index.listing import SessionFilter
from hansard.state import fold, lineage
from hansard.state.fold import HOUSEKEEPING, last_activity
from hansard.state.lineage import AncestorRange, ForkedReader


def latest(backend: Backend, filters: SessionFilter, *, skip_damaged: bool = False) -> str | None:
    """Return the id of the newest session, of a workspace or of all; None if there is none."""
    search = _LatestSearch(backend, filters)
    time, session_id = search.best(index.of(backend))
    if not skip_damaged:
        search.report(time)
    return session_id or None


class _LatestSearch:
    """One search; collects the unreadable sessions."""

    def __init__(self, backend: Backend, filters: SessionFilter) -> None:
        self._backend = backend
        self._filters = filters
        self._match = filters.workspace
        self._archived = filters.archived is None
        self._unreadable: dict[str, HansardError] = {}

    def best(self, index: Index) -> tuple[str, str]:
        """Return the time and id of the newest matching session; two empty strings without one."""
        damaged = self._filters._replace(workspace=None, archived=None, damaged=True)
        # They may have been repaired since, or be damaged where it does not matter here.
        doubtful = index.sessions(damaged, order="id", limit=None, cursor=None).items
        best = max((self._place_of(info.id) for info in doubtful), default=("", ""))
        for info in _newest(index, self._filters._replace(damaged=False)):
            # If a log says less than the index, the next session may be newer.
            if info.updated <= best[0]:
                break
            best = max(best, self._place_of(info.id))
        return best

    def _place_of(self, session_id: str) -> tuple[str, str]:
        """Return the time of a session's last activity, by its log, and its id; empty if it is not wanted."""
        try:
            log = self._backend.log(session_id).reader()
            head = log.head()
            if head is None:
                return "", ""
            if not self._archived and fold.apply_all(fold.EMPTY, _controls(log)).archived:
                return "", ""
            if self._match is not None:
                complete = lineage.with_ancestors(self._backend.unscoped, log)
                if not self._match(workspaces.of(_controls(complete))):
                    return "", ""
            return last_activity(log, head), session_id
        except SessionDeleted:
            pass
        except UNREADABLE as error:
            self._unreadable[session_id] = error
        return "", ""

    def report(self, best: str) -> None:
        """Raise for an unreadable session that may be newer than the best one."""
        for session_id, error in sorted(self._unreadable.items()):
            if self._may_be_newer(session_id, best):
                hint = (
                    f"session {session_id!r} may be the newest one. Run `verify` for its damage, or pass "
                    "skip_damaged=True to skip it"
                )
                if isinstance(error, Damaged):
                    raise Damaged(error.path, error.offset, error.reason, hint) from error
                raise Damaged(self._backend.where, 0, str(error), hint) from error

    def _may_be_newer(self, session_id: str, best: str) -> bool:
        """Return whether a damaged session may be newer and match, by its valid records."""
        controls: list[Event] = []
        # No valid event, and no event lost before it, is later than this time.
        bound = ""
        # A log that ends with damage may have lost events that are newer than any other.
        gap, ends_damaged = False, True
        try:
            for found in _salvage(self._backend.unscoped, session_id):
                ends_damaged = isinstance(found, Finding)
                if isinstance(found, Finding):
                    gap = True
                    continue
                if found.kind in CONTROL:
                    controls.append(found)
                if gap or found.kind not in HOUSEKEEPING:
                    # After damage, any event is an upper bound for the times of lost events.
                    bound, gap = found.stamp, False
        except SessionDeleted:
            return False
        except UNREADABLE:
            return True  # unknown
        belongs = workspaces.of(controls)
        if self._match is not None and belongs is not None and not self._match(belongs):
            return False
        if ends_damaged:
            return True
        archived = fold.apply_all(fold.EMPTY, controls).archived
        return bound >= best and (self._archived or not archived)


def _salvage(backend: Backend, session_id: str) -> Iterator[Event | Finding]:
    """Yield the valid events and the damage of a session and of its inherited events."""
    own = backend.log(session_id)
    inherited: list[AncestorRange] = []
    with suppress(*UNREADABLE):
        log = lineage.with_ancestors(backend, own.reader())
        inherited = log.inherited if isinstance(log, ForkedReader) else []
    for part in inherited:
        for found in backend.log(part.reader.session_id, from_trash=True).salvage():
            if not isinstance(found, Event) or part.after < found.seq <= part.upto:
                yield found
    yield from own.salvage()


def _newest(index: Index, filters: SessionFilter) -> Iterator[SessionInfo]:
    """Yield sessions, the newest first; mostly only the first one is used."""
    cursor, limit = None, 4
    while True:
        page = index.sessions(filters, order="-updated", limit=limit, cursor=cursor)
        yield from page.items
        cursor, limit = page.next, 100
        if cursor is None:
            return


def _controls(log: LogReader) -> list[Event]:
    """Return the control events of a session, without redacted data."""
    controls = log.controls()
    taken = lineage.redactions_of(log, controls)
    return [taken.mask(event) for event in controls] if taken else controls
