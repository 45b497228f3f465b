"""Move inactive sessions to the trash.

`prune` first makes a plan, then carries it out; a dry run ends with the plan. The index proposes sessions,
and the log of each decides. A session is moved only if its last seq has not changed since, and `prune` does
not wait for a session that a process is writing to. Forks are moved before their parents, so a fork that
stays keeps its ancestors.
"""

from contextlib import suppress
from datetime import timedelta
from graphlib import TopologicalSorter
from typing import Any, Final

import msgspec

from hansard import clock
from hansard.backend.contract import Backend
from hansard.errors import (
    DAMAGED,
    UNREADABLE,
    HansardError,
    LockTimeout,
    ReadOnly,
    SeqConflict,
    SessionDeleted,
    SessionNotFound,
)
from hansard.event.kinds import SESSION_PRUNED
from hansard.index import SessionInfo, index
from hansard.index.catalog import Description, describe
from hansard.index.listing import SessionFilter
from hansard.maintenance.trash import announce, refusals_recorded
from hansard.state.fold import last_activity, latest_activity
from hansard.state.fork_graph import ForkGraph

#: The metadata key that keeps a session from being pruned.
PINNED: Final = "pinned"


class PruneReport(msgspec.Struct, frozen=True):
    """What `prune` moved to the trash, or would move.

    Attributes:
        pruned: the ids of the moved sessions, sorted.
        kept: the ids of all other sessions that were checked, each with the reason.
        dry_run: nothing was moved; `pruned` is what would be moved.
    """

    pruned: list[str]
    kept: dict[str, str]
    dry_run: bool


def prune(
    backend: Backend,
    filters: SessionFilter,
    *,
    older_than: timedelta | float,
    keep_last: int = 0,
    dry_run: bool = False,
    all_workspaces: bool = False,
) -> PruneReport:
    """Move the sessions without activity for `older_than` to the trash."""
    seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    if type(seconds) not in {int, float} or not seconds > 0:
        raise ValueError(
            f"older_than must be a timedelta or seconds, greater than 0, got {older_than!r}"
        )
    if type(keep_last) is not int or keep_last < 0:
        raise ValueError(f"keep_last must be a non-negative count, got {keep_last!r}")
    if filters.workspace is not None and all_workspaces:
        raise ValueError("workspace and all_workspaces exclude each other")
    if not dry_run and backend.read_only:
        raise ReadOnly(
            f"{backend.where}: store is read-only; pass dry_run=True, or reopen without read_only=True"
        )
    try:
        cutoff = clock.stamp(clock.now() - timedelta(seconds=seconds))
    except OverflowError:
        cutoff = ""  # before the first date
    plan = _Plan(backend, filters, all_workspaces=all_workspaces)
    plan.keep_young(cutoff)
    plan.keep_newest(keep_last)
    plan.keep_busy()
    order = plan.settle()
    if not dry_run:
        facts = {
            "older_than": float(seconds),
            "keep_last": keep_last,
            "prefix": filters.prefix,
            "workspace": None if filters.workspace is None else filters.workspace.path,
            "all_workspaces": all_workspaces,
        }
        for session_id in order:
            _prune_one(backend, plan, session_id, facts)
    return PruneReport(sorted(plan.doomed), dict(sorted(plan.kept.items())), dry_run)


class _Plan:
    """The sessions to move, and why the others stay.

    Attributes:
        doomed: the sessions to move, as they were when they were checked.
        kept: the sessions that stay, each with the reason.
    """

    def __init__(self, backend: Backend, filters: SessionFilter, *, all_workspaces: bool) -> None:
        self.doomed: dict[str, SessionInfo] = {}
        self.kept: dict[str, str] = {}
        self._backend = backend
        self._match = filters.workspace
        self._anywhere = all_workspaces
        self._workspaces: dict[str, str] = {}
        #: The live forks of each session.
        self._children: dict[str, list[str]] = {}
        self._parents: dict[str, str] = {}
        known = index.of(backend).described()
        for found in known:
            if filters.matches_id(found.info.id):
                self._decide(found)
        for found in known:
            parent = self.doomed.get(found.info.parent or "")
            if parent is not None and found.parent_created in {"", parent.created}:
                self._children.setdefault(parent.id, []).append(found.info.id)
                self._parents[found.info.id] = parent.id

    def _decide(self, found: Description) -> None:
        """Decide about a session, except by its age."""
        info, said = found.info, found.workspace
        self.doomed.pop(info.id, None)
        if info.damaged:
            self.kept[info.id] = f"cannot be read: {info.damaged}"
        elif self._match is not None and not self._match(said):
            other = "another workspace" if said else "no workspace"
            self.kept[info.id] = f"belongs to {other}"
        elif self._match is None and said is not None and not self._anywhere:
            self.kept[info.id] = f"belongs to the workspace {said.path}"
        else:
            self.doomed[info.id] = info
            # The sessions of a moved workspace have different paths and one id.
            here = self._match is not None or said is None
            self._workspaces[info.id] = "" if here or said is None else said.key
            if info.metadata.get(PINNED):
                self.kept[info.id] = "pinned"

    def keep_young(self, cutoff: str) -> None:
        """Keep sessions with activity since the cutoff."""
        graph = ForkGraph(self._backend)
        for session_id, info in list(self.doomed.items()):
            if info.updated < cutoff and session_id not in self.kept:
                # Only sessions that would be moved: this reads the log, because the index never decides.
                try:
                    self._decide_by_log(session_id, graph)
                except (SessionDeleted, *UNREADABLE) as error:
                    self.kept[session_id] = f"cannot be read: {error}"
            now = self.doomed.get(session_id)
            if now is not None and now.updated >= cutoff:
                self.kept.setdefault(session_id, f"active since: {now.updated}")

    def _decide_by_log(self, session_id: str, graph: ForkGraph) -> None:
        found = describe(self._backend, session_id, graph=graph)
        if found is None:
            raise SessionDeleted(f"session {session_id!r} is missing")
        log = self._backend.log(session_id).reader()
        updated = max(found.info.updated, latest_activity(log, found.info.seq))
        self._decide(found._replace(info=msgspec.structs.replace(found.info, updated=updated)))

    def keep_newest(self, count: int) -> None:
        """Keep the newest `count` sessions of each workspace."""
        if not count:
            return
        left: dict[str, int] = {}
        for _, session_id in sorted(map(self._time_of, self.doomed.values()), reverse=True):
            place = self._workspaces[session_id]
            left[place] = left.get(place, count) - 1
            if left[place] >= 0:
                self.kept.setdefault(session_id, f"one of the newest {count}")

    def _time_of(self, info: SessionInfo) -> tuple[str, str]:
        """Return the time of a session's last activity, by its log, and its id."""
        updated = info.updated
        if info.id in self.kept:
            # Its log was not read before.
            with suppress(SessionDeleted, *UNREADABLE):
                log = self._backend.log(info.id).reader()
                head = log.head()
                updated = "" if head is None else last_activity(log, head)
        return updated, info.id

    def keep_busy(self) -> None:
        """Keep sessions that a process is writing to now."""
        for session_id in self.doomed:
            if session_id not in self.kept:
                try:
                    if self._backend.log(session_id).is_busy():
                        self.kept[session_id] = "being written to"
                except HansardError as error:
                    self.kept[session_id] = f"cannot be checked: {error}"

    def settle(self) -> list[str]:
        """Keep the parents of sessions that stay; return the others, forks before their parents."""
        for session_id in [found for found in self.doomed if found in self.kept]:
            del self.doomed[session_id]
        for session_id in list(self.doomed):
            if any(fork not in self.doomed for fork in self._children.get(session_id, ())):
                self._keep_for_forks(session_id)
        forks = {session_id: self._children.get(session_id, ()) for session_id in self.doomed}
        return list(TopologicalSorter(forks).static_order())

    def _keep_for_forks(self, session_id: str | None) -> None:
        """Keep a session because one of its forks stays, and so its ancestors."""
        while session_id is not None and self.doomed.pop(session_id, None) is not None:
            fork = next(one for one in self._children[session_id] if one not in self.doomed)
            shown = fork if fork.startswith(self._backend.prefix) else "outside of this store"
            self.kept[session_id] = f"has a live child: {shown}"
            session_id = self._parents.get(session_id)

    def spare(self, session_id: str, reason: str) -> None:
        """Keep a session that could not be moved, and its ancestors."""
        self.doomed.pop(session_id, None)
        self.kept[session_id] = reason
        self._keep_for_forks(self._parents.get(session_id))


def _prune_one(backend: Backend, plan: _Plan, session_id: str, facts: dict[str, Any]) -> None:
    """Move a session to the trash, if it has not changed since it was checked."""
    info = plan.doomed.get(session_id)
    if info is None:
        return  # a fork of it was kept
    record = announce(
        backend, SESSION_PRUNED, session=session_id, seq=info.seq, updated=info.updated, **facts
    )
    try:
        with refusals_recorded(backend, record):
            backend.delete(session_id, expected_seq=info.seq, timeout=0.0)
    except SeqConflict:
        plan.spare(session_id, "appended to by another process")
    except LockTimeout:
        plan.spare(session_id, "being written to")
    except (SessionDeleted, SessionNotFound):
        plan.spare(session_id, "deleted by another process")
    except DAMAGED as error:
        plan.spare(session_id, f"cannot be read: {error}")
