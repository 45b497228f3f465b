"""Find the session to go on with: the one in which something happened last.

Above: `store`.  Below: `survey`, `workspace`, `state.activity`, `backend.contract`.
By the times of events, not of files. A session that cannot be read and may be the newest is an error: to
go on with an older one in silence is how people lose a conversation without noticing.
"""

from hansard.backend.contract import Backend, Finding
from hansard.errors import Damaged, HansardError, SessionDeleted
from hansard.event.envelope import Event
from hansard.event.kinds import CONTROL
from hansard.state import fold, lineage
from hansard.state.activity import HOUSEKEEPING
from hansard.upkeep.survey import UNREADABLE, Claims, Survey
from hansard.workspace import Folder, Match


def latest(
    backend: Backend,
    *,
    workspace: Folder | None = None,
    prefix: str = "",
    archived: bool = False,
    skip_damaged: bool = False,
) -> str | None:
    """Return the id of the newest session, of a workspace or of all; None if there is none."""
    search = _Search(backend, None if workspace is None else Match(workspace), archived=archived)
    times: list[tuple[str, str]] = []
    for session_id in backend.ids():
        if session_id.startswith(prefix):
            time = search.time_of(session_id)
            if time is not None:
                times.append((time, session_id))
    times.sort(reverse=True)
    best = next((place for place in times if search.wants(place[1])), None)
    if not skip_damaged:
        search.report("" if best is None else best[0])
    return None if best is None else best[1]


class _Search:
    """One search; remembers what could not be read on the way."""

    def __init__(self, backend: Backend, match: Match | None, *, archived: bool) -> None:
        self._backend = backend
        self._match = match
        self._archived = archived
        self._survey = Survey(backend)
        self._unreadable: dict[str, HansardError] = {}

    def time_of(self, session_id: str) -> str | None:
        """Return when something last happened in a session; None if it is not to be resumed."""
        try:
            own = self._survey.own(session_id)
        except SessionDeleted:
            return None
        except UNREADABLE as error:
            self._unreadable[session_id] = error
            return None
        return None if own is None or (own.archived and not self._archived) else own.activity

    def wants(self, session_id: str) -> bool:
        """Say whether a session belongs to the workspace."""
        if self._match is None:
            return True
        try:
            return self._match(self._survey.claims(session_id).workspace)
        except UNREADABLE as error:
            self._unreadable[session_id] = error
            return False

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
            own = self._backend.log(session_id)
            try:
                log = lineage.whole(self._backend.whole, own)
            except UNREADABLE:
                log = own
            for found in log.salvage():
                remains.add(found)
        except SessionDeleted:
            return False
        except UNREADABLE:
            return True  # nothing can be told
        said = Claims().after(remains.controls).workspace
        if self._match is not None and said is not None and not self._match(said):
            return False
        archived = fold.apply_all(fold.EMPTY, remains.controls).archived
        if archived and not self._archived and not remains.ends_damaged:
            return False
        return remains.ends_damaged or remains.bound >= best


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
