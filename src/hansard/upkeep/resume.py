"""Find the session to go on with: the one in which something happened last.

Above: `store`.  Below: `survey`, `workspace`, `state.activity`, `backend.contract`.
By the times of events, not of files. A session that cannot be read and may be the newest is an error: to
go on with an older one in silence is how people lose a conversation without noticing.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hansard.backend.contract import Backend, Finding
from hansard.errors import Damaged, HansardError, SessionDeleted
from hansard.event.envelope import Event
from hansard.event.kinds import CONTROL
from hansard.state import fold, lineage
from hansard.state.activity import HOUSEKEEPING
from hansard.upkeep.survey import UNREADABLE, Claims, SessionFilter, Survey


class Ranking(NamedTuple):
    """What an index says about the sessions that may be wanted. It is checked against their logs."""

    #: Ids, each with the time at which something last happened; the newest first.
    newest: Iterable[tuple[str, str]]
    #: Those that it could not read.
    doubtful: Iterable[str]


def latest(
    backend: Backend,
    filters: SessionFilter,
    *,
    skip_damaged: bool = False,
    ranking: Ranking | None = None,
) -> str | None:
    """Return the id of the newest session, of a workspace or of all; None if there is none.

    `ranking`: where to look first, instead of at all sessions.
    """
    search = _Search(backend, filters)
    try:
        best = None if ranking is None else search.best_of(ranking)
    except _Untrue:
        ranking = None
    if ranking is None:
        best = search.best(filter(filters.matches_id, backend.ids()))
    if not skip_damaged:
        search.report("" if best is None else best[0])
    return None if best is None else best[1]


class _Untrue(Exception):
    """A ranking says something else than a log."""


class _Search:
    """One search; remembers what could not be read on the way."""

    def __init__(self, backend: Backend, filters: SessionFilter) -> None:
        self._backend = backend
        self._match = filters.workspace
        self._archived = filters.archived is None
        self._survey = Survey(backend)
        self._unreadable: dict[str, HansardError] = {}

    def best(self, session_ids: Iterable[str]) -> tuple[str, str] | None:
        """Return the newest of these sessions, behind its time; None if none is wanted."""
        times = [(self.time_of(session_id), session_id) for session_id in session_ids]
        known = sorted(((time, found) for time, found in times if time is not None), reverse=True)
        return next((place for place in known if self.wants(place[1])), None)

    def best_of(self, ranking: Ranking) -> tuple[str, str] | None:
        """Return the same, of all sessions, by what is said about them."""
        # What could not be read may have been mended since, or be damaged where it does not matter here.
        doubtful = self.best(ranking.doubtful)
        for session_id, said in ranking.newest:
            time = self.time_of(session_id)
            if time is None or not self.wants(session_id):
                continue
            if time < said:
                raise _Untrue
            place = (time, session_id)
            return place if doubtful is None else max(place, doubtful)
        return doubtful

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
