"""Move inactive sessions to the trash.

`prune` first makes a plan, then carries it out; a dry run ends with the plan. The index proposes sessions,
and the log of each decides. A session is moved only if its last seq has not changed since, and `prune` does
not wait for a session that a process is writing to. Forks are moved before their parents, so a fork that
stays keeps its ancestors.
"""

from contextlib import suppress
from datetime import timedelta
from functools import partial
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import Any, Final

import msgspec

from hansard import clock, errors
from hansard.backend.contract import AUDIT, AppendRequest, Backend
from hansard.event import kinds
from hansard.event.event import Event, NewEvent
from hansard.index import SessionInfo, index
from hansard.index.catalog import Description, describe
from hansard.index.listing import SessionFilter
from hansard.log.store_directory import not_found
from hansard.maintenance import hold
from hansard.maintenance.trash import announce, purge, refusals_recorded
from hansard.state.fold import latest_activity
from hansard.state.fork_graph import ForkGraph
from hansard.state.lineage import forks

#: The metadata key that keeps a session from being pruned.
PINNED: Final = "pinned"

Age = timedelta | float


class PruneReport(msgspec.Struct, frozen=True):
    """What `prune` moved to the trash, or would move.

    Attributes:
        pruned: the ids of the moved sessions, sorted.
        kept: the ids of all other sessions that were checked, each with the reason.
        dry_run: nothing was done; the report says what would be done.
        archived: the ids of the sessions that were archived, sorted.
        purged: the ids of the sessions that were purged from the trash, sorted.
    """

    pruned: list[str]
    kept: dict[str, str]
    dry_run: bool
    archived: list[str] = []
    purged: list[str] = []


class PruneOptions(msgspec.Struct, frozen=True):
    """What to prune; see `Store.prune`."""

    older_than: Age | None = None
    max_size: int | None = None
    archive_after: Age | None = None
    purge_trash: Age | None = None
    archived: bool = False
    finished_parent: bool = False
    keep_last: int = 0
    all_workspaces: bool = False


def prune(
    backend: Backend, filters: SessionFilter, options: PruneOptions, *, dry_run: bool
) -> PruneReport:
    """Move sessions to the trash, archive others, and purge the trash."""
    older_than = _seconds("older_than", options.older_than)
    archive_after = _seconds("archive_after", options.archive_after)
    purge_trash = _seconds("purge_trash", options.purge_trash)
    max_size, keep_last = options.max_size, options.keep_last
    if not (older_than or archive_after or purge_trash) and max_size is None:
        raise ValueError(
            "pass max_size, or older_than, archive_after or purge_trash, greater than 0"
        )
    _check_number("max_size", "number of bytes", max_size or 0)
    _check_number("keep_last", "count", keep_last)
    if filters.workspace is not None and (options.all_workspaces or purge_trash):
        other = "all_workspaces" if options.all_workspaces else "purge_trash"
        raise ValueError(f"workspace and {other} exclude each other")
    if not dry_run and backend.read_only:
        raise errors.ReadOnly(
            f"{backend.where}: store is read-only; pass dry_run=True, or reopen without read_only=True"
        )
    plan = _Plan(backend, filters, options)
    plan.keep_young(_cutoff(older_than))
    plan.keep_newest(keep_last)
    plan.settle()
    if max_size is not None:
        plan.shrink(max_size)
    archive = plan.to_archive(_cutoff(archive_after))
    purges = _Purges(backend, _cutoff(purge_trash))
    purged = purges.plan(filters, plan.kept) if purge_trash else []
    if not dry_run:
        facts = {
            "older_than": older_than,
            "max_size": max_size,
            "keep_last": keep_last,
            "prefix": filters.prefix,
            "workspace": None if filters.workspace is None else filters.workspace.path,
            "all_workspaces": options.all_workspaces,
        }
        for session_id in plan.order():
            _prune_one(backend, plan, session_id, facts)
        archive = [info for info in archive if _archive_one(backend, plan, info)]
        purged = [session_id for session_id in purged if purges.run(session_id, plan.kept)]
    return PruneReport(
        sorted(plan.doomed),
        dict(sorted(plan.kept.items())),
        dry_run,
        sorted(info.id for info in archive),
        sorted(purged),
    )


def _check_number(name: str, what: str, value: object) -> None:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be a non-negative {what}, got {value!r}")


def _seconds(name: str, age: Age | None) -> float:
    """Return an age in seconds; 0 for none."""
    if age is None:
        return 0.0
    seconds = age.total_seconds() if isinstance(age, timedelta) else age
    if type(seconds) not in {int, float} or not seconds > 0:
        raise ValueError(f"{name} must be a timedelta or seconds, greater than 0, got {age!r}")
    return float(seconds)


def _cutoff(seconds: float) -> str:
    """Return the time some seconds ago; for none, the earliest one."""
    try:
        return clock.stamp(clock.now() - timedelta(seconds=seconds)) if seconds else ""
    except OverflowError:
        return ""  # before the first date


class _Plan:
    """The sessions to move, and why the others stay.

    Attributes:
        doomed: the sessions to move, as they were when they were checked.
        kept: the sessions that stay, each with the reason.
    """

    def __init__(self, backend: Backend, filters: SessionFilter, options: PruneOptions) -> None:
        self.doomed: dict[str, SessionInfo] = {}
        self.kept: dict[str, str] = {}
        self._backend = backend
        self._match = filters.workspace
        self._options = options
        self._graph = ForkGraph(backend)
        #: Sessions that stay only because they were active since the cutoff.
        self._young: dict[str, SessionInfo] = {}
        self._workspaces: dict[str, str] = {}
        #: The live forks of each session.
        self._children: dict[str, list[str]] = {}
        self._parents: dict[str, str] = {}
        known = index.of(backend).described()
        #: Parents that are archived or closed.
        self._finished = {one.info.id for one in known if one.info.archived or one.info.closed}
        for found in known:
            if filters.matches_id(found.info.id):
                self._decide(found)
        for found in known:
            parent = self.doomed.get(found.info.parent or "")
            if parent is not None and found.parent_created in {"", parent.created_stamp}:
                self._children.setdefault(parent.id, []).append(found.info.id)
                self._parents[found.info.id] = parent.id
        #: All sessions that this call considers, including those that it keeps.
        self._considered = dict(self.doomed)

    def _decide(self, found: Description) -> None:
        """Decide about a session, except by its age."""
        info, said = found.info, found.workspace
        self.doomed.pop(info.id, None)
        if info.damaged:
            self.kept[info.id] = f"cannot be read: {info.damaged}"
        elif self._match is not None and not self._match(said):
            other = "another workspace" if said else "no workspace"
            self.kept[info.id] = f"belongs to {other}"
        elif self._match is None and said is not None and not self._options.all_workspaces:
            self.kept[info.id] = f"belongs to the workspace {said.path}"
        else:
            self.doomed[info.id] = info
            # After a workspace was moved, its sessions have different paths, but the same workspace id.
            self._workspaces[info.id] = "" if said is None or self._match else said.key
            if info.held:
                self.kept[info.id] = "held"
            elif info.metadata.get(PINNED):
                self.kept[info.id] = "pinned"
            elif self._options.archived and not info.archived:
                self.kept[info.id] = "not archived"
            elif self._options.finished_parent and info.parent not in self._finished:
                self.kept[info.id] = "no fork of a finished session"

    def keep_young(self, cutoff: str) -> None:
        """Keep sessions with activity since the cutoff."""
        for session_id, info in list(self.doomed.items()):
            if session_id not in self.kept:
                # The index never decides to move a session: its log does.
                now = info if info.updated_stamp >= cutoff else self._decide_by_log(session_id)
                if now is not None and now.updated_stamp >= cutoff:
                    self.kept[session_id] = f"last active: {now.updated_stamp}"
                    self._young[session_id] = now

    def _decide_by_log(self, session_id: str) -> SessionInfo | None:
        """Decide about a session again; return it if it can be moved."""
        try:
            self._decide(self._by_log(session_id))
        except (errors.SessionDeleted, *errors.UNREADABLE) as error:
            self.kept[session_id] = f"cannot be read: {error}"
        return None if session_id in self.kept else self.doomed[session_id]

    def _by_log(self, session_id: str) -> Description:
        found = describe(self._backend, session_id, self._graph)
        if found is None:
            raise errors.SessionDeleted(f"session {session_id!r} is missing")
        log = self._backend.log(session_id).reader()
        updated = max(found.info.updated_stamp, latest_activity(log, found.info.seq))
        return found._replace(info=msgspec.structs.replace(found.info, updated_stamp=updated))

    def keep_newest(self, count: int) -> None:
        """Keep the newest `count` sessions of each workspace."""
        if not count:
            return
        left: dict[str, int] = {}
        newest = sorted(
            self.doomed.values(), key=lambda info: (info.updated_stamp, info.id), reverse=True
        )
        for info in newest:
            place = self._workspaces[info.id]
            left[place] = left.get(place, count) - 1
            if left[place] >= 0:
                self._young.pop(info.id, None)
                self.kept.setdefault(info.id, f"one of the newest {count}")

    def settle(self) -> None:
        """Keep the parents of sessions that stay."""
        for session_id in [found for found in self.doomed if found in self.kept]:
            del self.doomed[session_id]
        for session_id in list(self.doomed):
            if any(fork not in self.doomed for fork in self._children.get(session_id, ())):
                self._keep_for_forks(session_id)

    def shrink(self, max_size: int) -> None:
        """Move also the sessions that are inactive for longest, until the others have `max_size` bytes.

        A parent comes after its forks.
        """
        left = sum(info.bytes for one, info in self._considered.items() if one not in self.doomed)
        waiting = [
            (info.updated_stamp, one) for one, info in self._young.items() if self._is_free(one)
        ]
        heapify(waiting)
        while left > max_size and waiting:
            updated, session_id = heappop(waiting)
            del self.kept[session_id]
            now = self._decide_by_log(session_id)
            if now is not None and now.updated_stamp > updated:
                # The log has events that the index has not read.
                self.kept[session_id] = f"last active: {now.updated_stamp}"
            if session_id in self.kept:
                self.doomed.pop(session_id, None)
                continue
            left -= self._considered[session_id].bytes
            parent = self._parents.get(session_id)
            if parent in self._young and self._is_free(parent):
                heappush(waiting, (self._young[parent].updated_stamp, parent))

    def _is_free(self, session_id: str) -> bool:
        return all(fork in self.doomed for fork in self._children.get(session_id, ()))

    def to_archive(self, cutoff: str) -> list[SessionInfo]:
        """Return the sessions that stay and are to be archived, because of no activity since the cutoff."""
        found = []
        for session_id, info in self._considered.items():
            is_wanted = info.updated_stamp < cutoff and not (
                info.archived or info.metadata.get(PINNED)
            )
            if is_wanted and session_id not in self.doomed:
                with suppress(errors.SessionDeleted, *errors.UNREADABLE):
                    now = self._by_log(session_id).info
                    if now.updated_stamp < cutoff and not now.archived:
                        found.append(now)
        return found

    def order(self) -> list[str]:
        """Return the sessions to move, forks before their parents."""
        first = {session_id: self._children.get(session_id, ()) for session_id in self.doomed}
        return list(TopologicalSorter(first).static_order())

    def _keep_for_forks(self, session_id: str | None) -> None:
        """Keep a session because one of its forks stays, and so its ancestors."""
        while session_id is not None and self.doomed.pop(session_id, None) is not None:
            fork = next(one for one in self._children[session_id] if one not in self.doomed)
            shown = fork if fork.startswith(self._backend.prefix) else "outside of this store"
            self.kept[session_id] = f"has a live child: {shown}"
            self._young[session_id] = self._considered[session_id]
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
        backend,
        kinds.SESSION_PRUNED,
        session=session_id,
        seq=info.seq,
        updated=info.updated_stamp,
        **facts,
    )
    try:
        with refusals_recorded(backend, [record]):
            check = partial(hold.check, backend, session_id)
            backend.delete(session_id, expected_seq=info.seq, timeout=0.0, check=check)
    except errors.SeqConflict:
        plan.spare(session_id, "appended to by another process")
    except errors.Held:
        plan.spare(session_id, "held")
    except errors.LockTimeout:
        plan.spare(session_id, "being written to")
    except (errors.SessionDeleted, errors.SessionNotFound):
        plan.spare(session_id, "deleted by another process")
    except errors.DAMAGED as error:
        plan.spare(session_id, f"cannot be read: {error}")


def _archive_one(backend: Backend, plan: _Plan, info: SessionInfo) -> bool:
    """Archive a session, if it has not changed since it was checked."""
    draft = NewEvent(kinds.SESSION_ARCHIVED, b"{}", control=True)
    try:
        backend.log(info.id).append(AppendRequest([draft], expected_seq=info.seq))
    except (errors.SeqConflict, errors.LockTimeout, errors.SessionDeleted, *errors.UNREADABLE):
        plan.kept.setdefault(info.id, "changed by another process")
        return False
    return True


# -- the trash ----------------------------------------------------------------------------------


class _Purges:
    """Purges sessions that were moved to the trash before a cutoff, according to the audit log."""

    def __init__(self, backend: Backend, cutoff: str) -> None:
        self._backend = backend
        self._cutoff = cutoff
        #: By session and by the seq of the record, when it was moved to the trash; empty if out of it.
        self._moves: dict[str, dict[int, str]] = {}
        self._read = 0

    def plan(self, filters: SessionFilter, kept: dict[str, str]) -> list[str]:
        """Return the sessions to purge, forks before their parents; `kept` gets the others."""
        children: dict[str, list[str]] = {}
        for session_id in filter(filters.matches_id, self._backend.ids(trash=True)):
            reason = self._why_not(session_id)
            if reason:
                kept[session_id] = reason
            else:
                children[session_id] = []
        for fork, forked in forks(self._backend) if children else ():
            # A session that cannot be read may be a fork of any session.
            for parent in children if forked is None else (forked.parent,):
                if parent in children and parent != fork:
                    children[parent].append(fork)
        # Not those in a circle, as of two that cannot be read and may each be a fork of the other.
        sorter = TopologicalSorter(children)
        with suppress(CycleError):
            sorter.prepare()
        order: list[str] = []
        while ready := [one for one in sorter.get_ready() if one in children]:
            order += ready
            sorter.done(*ready)
        kept |= dict.fromkeys(children.keys() - set(order), "in the trash, with forks that stay")
        return order

    def run(self, session_id: str, kept: dict[str, str]) -> bool:
        """Purge a session; return whether that was possible."""
        try:
            purge(self._backend, session_id, partial(self._check, session_id))
        except (errors.Held, errors.InUse, errors.LockTimeout, errors.SessionNotFound):
            kept[session_id] = "changed by another process"
            return False
        return True

    def _check(self, session_id: str) -> None:
        """Raise if a session was restored, and perhaps deleted again, since `plan`."""
        if (self._since(session_id) or self._cutoff) >= self._cutoff:
            raise not_found(session_id, "the trash for so long")

    def _why_not(self, session_id: str) -> str:
        """Return why a session stays in the trash; empty if it does not."""
        try:
            hold.check(self._backend, session_id)
        except errors.Held:
            return "held"
        except errors.UNREADABLE as error:
            return f"cannot be read: {error}"
        since = self._since(session_id)
        if not since:
            return "in the trash, without a record of when it was deleted"
        return "" if since < self._cutoff else f"in the trash since: {since}"

    def _since(self, session_id: str) -> str:
        """Return when a session was moved to the trash, by the current audit log; empty if it was not."""
        for chunk in self._backend.internal(AUDIT).reader().read(self._read):
            for event in chunk.events():
                self._add(event)
        return next(reversed(self._moves.get(session_id, {}).values()), "")

    def _add(self, event: Event) -> None:
        self._read = event.seq
        moves = self._moves.setdefault(str(event.data.get("session")), {})
        if event.kind == kinds.SESSION_KEPT:
            moves.pop(event.data.get("record", 0), None)  # that operation was refused
        elif event.kind != kinds.RETENTION_SET:  # which names no session
            is_deleted = event.kind in {kinds.SESSION_DELETED, kinds.SESSION_PRUNED}
            moves[event.seq] = event.stamp if is_deleted else ""


# -- the policy ---------------------------------------------------------------------------------


def policy_of(backend: Backend) -> dict[str, Any]:
    """Return the retention policy: the last one in the audit log. A scoped store has none."""
    if backend.prefix:
        return {}  # it may name ids outside of the scope
    for chunk in backend.unscoped.internal(AUDIT).reader().read(back=True):
        for event in reversed(chunk.events()):
            if event.kind == kinds.RETENTION_SET:
                return event.data
    return {}


def set_policy(backend: Backend, options: dict[str, Any]) -> None:
    """Record a retention policy."""
    if backend.prefix:
        raise ValueError(f"{backend.where}: a scoped store has no retention policy; set it for all")
    if options.keys() & {"policy", "workspace"}:
        raise ValueError("a retention policy has no workspace, and refers to no other policy")
    if options.get("max_size") == 0:
        raise ValueError("max_size of a retention policy must be greater than 0")
    seconds = {
        name: one.total_seconds() for name, one in options.items() if isinstance(one, timedelta)
    }
    announce(backend, kinds.RETENTION_SET, **options | seconds)
