"""Move sessions in which nothing has happened for long into the trash.

Above: `store`.  Below: `retention`, `survey`, `workspace`, `backend.contract`.
First a plan, then the deeds; a dry run is the plan alone. What moves is not touched: a session goes only if
it is at the seq at which it was looked at, and nobody waits for one that somebody is writing to. Children
go before their parents, so a child that stays after all keeps those that it was forked from.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from hansard.backend.contract import Backend
from hansard.errors import (
    HansardError,
    LockTimeout,
    ReadOnly,
    SeqConflict,
    SessionDeleted,
    SessionNotFound,
)
from hansard.event.kinds import SESSION_PRUNED
from hansard.state.activity import latest_activity
from hansard.upkeep.retention import announce, refusals_recorded
from hansard.upkeep.survey import DAMAGED, UNREADABLE, Claims, Own, SessionFilter, Survey, origin_of
from hansard.workspace import Match


class PruneReport(msgspec.Struct, frozen=True):
    """What `prune` has moved into the trash, or would move.

    Attributes:
        pruned: the ids of the sessions that went, sorted.
        kept: the ids of all others that were looked at, each with the reason why it stayed.
        dry_run: True if nothing was done.
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
    """Move the sessions in which nothing has happened for so long into the trash."""
    seconds = _check_age(older_than)
    if type(keep_last) is not int or keep_last < 0:
        raise ValueError(f"keep_last must be a number of sessions, 0 or more, not {keep_last!r}")
    if filters.workspace is not None and all_workspaces:
        raise ValueError("give one workspace, or all_workspaces=True, not both")
    if not dry_run and backend.read_only:
        raise ReadOnly(f"{backend.where}: opened read-only; only a dry run works here")
    plan = _Plan(backend, filters, all_workspaces=all_workspaces)
    plan.keep_young(_cutoff(seconds))
    plan.keep_newest(keep_last)
    plan.keep_busy()
    order = plan.settle()
    if not dry_run:
        facts = {
            "older_than": seconds,
            "keep_last": keep_last,
            "prefix": filters.prefix,
            "workspace": None if filters.workspace is None else filters.workspace.path,
            "all_workspaces": all_workspaces,
        }
        for session_id in order:
            _prune_one(backend, plan, session_id, facts)
    return PruneReport(sorted(plan.doomed), dict(sorted(plan.kept.items())), dry_run)


def _check_age(older_than: object) -> float:
    seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ValueError(
            f"older_than must be a timedelta, or seconds, of more than 0, not {older_than!r}: "
            "an age of 0 would take everything"
        )
    return float(seconds)


def _cutoff(seconds: float) -> str:
    """Return the time before which nothing must have happened, as events have it."""
    try:
        then = datetime.now(UTC) - timedelta(seconds=seconds)
    except OverflowError:
        return ""  # longer ago than there are dates
    return then.strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27)


class _Plan:
    """Which sessions are to go, and why the others stay.

    Attributes:
        doomed: those that are to go, with what was seen of them.
        kept: those that stay, each with its reason.
    """

    def __init__(self, backend: Backend, filters: SessionFilter, *, all_workspaces: bool) -> None:
        self.doomed: dict[str, Own] = {}
        self.kept: dict[str, str] = {}
        self._backend = backend
        self._workspaces: dict[str, str] = {}
        #: The live sessions that were forked from each.
        self._children: dict[str, list[str]] = {}
        self._parents: dict[str, str] = {}
        survey = Survey(backend)
        for session_id in list(filter(filters.matches_id, backend.ids())):
            try:
                own = survey.own(session_id)
                if own is not None:
                    self._place(
                        session_id,
                        own,
                        survey.claims(session_id),
                        filters.workspace,
                        anywhere=all_workspaces,
                    )
            except SessionDeleted:
                continue
            except UNREADABLE as error:
                self.kept[session_id] = f"cannot be read: {error}"
        self._find_children()

    def _place(
        self, session_id: str, own: Own, claims: Claims, match: Match | None, *, anywhere: bool
    ) -> None:
        said = claims.workspace
        if match is not None and not match(said):
            self.kept[session_id] = (
                "belongs to another workspace" if said else "belongs to no workspace"
            )
        elif match is None and said is not None and not anywhere:
            self.kept[session_id] = f"belongs to the workspace {said.path}"
        else:
            self.doomed[session_id] = own
            # Of one workspace that was moved, the sessions have different paths and one id.
            self._workspaces[session_id] = "" if match is not None or said is None else said.key
            if claims.pinned:
                self.kept[session_id] = "pinned"

    def _find_children(self) -> None:
        whole = self._backend.whole
        for session_id in whole.ids():
            try:
                forked = origin_of(whole.log(session_id))
            except (SessionDeleted, *UNREADABLE):
                continue  # in the trash its parent's events can still be read
            parent = None if forked is None else self.doomed.get(forked.parent)
            if forked is None or parent is None:
                continue
            if not forked.created or forked.created == parent.created:
                self._children.setdefault(forked.parent, []).append(session_id)
                self._parents[session_id] = forked.parent

    def keep_young(self, cutoff: str) -> None:
        """Keep those in which something has happened since, by any of their events."""
        for session_id, own in list(self.doomed.items()):
            activity = own.activity
            if activity < cutoff and session_id not in self.kept:
                # Only of what would go: this reads all of it.
                try:
                    log = self._backend.log(session_id)
                    activity = max(activity, latest_activity(log, own.seq))
                except (SessionDeleted, *UNREADABLE) as error:
                    self.kept[session_id] = f"cannot be read: {error}"
                self.doomed[session_id] = own._replace(activity=activity)
            if activity >= cutoff:
                self.kept.setdefault(session_id, f"active since: {activity}")

    def keep_newest(self, count: int) -> None:
        """Keep so many of each workspace."""
        newest = sorted(self.doomed, key=lambda found: (self.doomed[found].activity, found))
        left: dict[str, int] = {}
        for session_id in reversed(newest):
            place = self._workspaces[session_id]
            left[place] = left.get(place, count) - 1
            if left[place] >= 0:
                self.kept.setdefault(session_id, f"one of the newest {count}")

    def keep_busy(self) -> None:
        """Keep those that somebody is writing to at this moment."""
        for session_id in self.doomed:
            if session_id not in self.kept:
                try:
                    if self._backend.log(session_id).busy():
                        self.kept[session_id] = "being written to"
                except HansardError as error:
                    self.kept[session_id] = f"cannot be looked at: {error}"

    def settle(self) -> list[str]:
        """Keep the parents of those that stay; return what goes, children before their parents."""
        for session_id in [found for found in self.doomed if found in self.kept]:
            del self.doomed[session_id]
        live = [found for found in self.doomed if self._kept_children(found)]
        while live:
            self.keep(live.pop(), live)
        # From the leaves on: whoever's children all go comes next.
        waiting = {found: len(self._children.get(found, ())) for found in self.doomed}
        order = [found for found, count in waiting.items() if count == 0]
        for session_id in order:
            parent = self._parents.get(session_id)
            if parent in waiting:
                waiting[parent] -= 1
                if waiting[parent] == 0:
                    order.append(parent)
        for session_id in set(self.doomed) - set(order):
            del self.doomed[session_id]
            self.kept[session_id] = "forked from its own descendant"
        return order

    def _kept_children(self, session_id: str) -> list[str]:
        return [found for found in self._children.get(session_id, ()) if found not in self.doomed]

    def keep(self, session_id: str, live: list[str]) -> None:
        """Keep a session for its children's sake, and note its parent as one to be kept."""
        if self.doomed.pop(session_id, None) is None:
            return
        child = self._kept_children(session_id)[0]
        inside = child.startswith(self._backend.prefix)
        self.kept[session_id] = f"has a live child: {child if inside else 'outside of this store'}"
        parent = self._parents.get(session_id)
        if parent is not None:
            live.append(parent)

    def spare(self, session_id: str, reason: str) -> None:
        """Keep a session that could not be deleted after all, and with it all that it was forked from."""
        self.doomed.pop(session_id, None)
        self.kept[session_id] = reason
        parent = self._parents.get(session_id)
        live = [] if parent is None else [parent]
        while live:
            self.keep(live.pop(), live)


def _prune_one(backend: Backend, plan: _Plan, session_id: str, facts: dict[str, Any]) -> None:
    """Delete a session as planned, if it is still as it was when it was looked at."""
    own = plan.doomed.get(session_id)
    if own is None:
        return  # a child of it was kept after all
    record = announce(
        backend, SESSION_PRUNED, session=session_id, seq=own.seq, updated=own.activity, **facts
    )
    try:
        with refusals_recorded(backend, record):
            backend.delete(session_id, expected_seq=own.seq, timeout=0.0)
    except SeqConflict:
        plan.spare(session_id, "appended to meanwhile")
    except LockTimeout:
        plan.spare(session_id, "being written to")
    except (SessionDeleted, SessionNotFound):
        plan.spare(session_id, "deleted by another meanwhile")
    except DAMAGED as error:
        plan.spare(session_id, f"cannot be read: {error}")
