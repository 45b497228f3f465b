"""Delete, restore and purge sessions, and record it in the audit log.

Each operation is recorded before it is done, as durably as an append. If the record cannot be written,
nothing is done and the error says so: no session disappears without a record. If the operation is then
refused, a `session.kept` follows. After a crash in between, the record exists and the session is unchanged.
docs/format.md, F-58 to F-67, specifies this.

A session is not purged while forks of it exist, even in the trash.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from hansard import observe
from hansard.backend.contract import AUDIT, AppendRequest, Backend
from hansard.errors import (
    DAMAGED,
    Damaged,
    DiskFailed,
    HansardError,
    Held,
    InUse,
    LockTimeout,
    ReadOnly,
    SeqConflict,
    SessionDeleted,
    SessionNotFound,
    SyncFailed,
)
from hansard.event import codec
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import SESSION_DELETED, SESSION_KEPT, SESSION_PURGED, SESSION_RESTORED
from hansard.maintenance import hold
from hansard.state.lineage import forks

#: Errors after which nothing was done.
_REFUSALS: Final = (
    Held,
    InUse,
    SeqConflict,
    LockTimeout,
    SessionNotFound,
    SessionDeleted,
    ReadOnly,
)

#: Maximum number of forks that an error names.
_NAMED: Final = 5

_NOT_RECORDED: Final = "nothing was done, because it could not be recorded"


def delete(backend: Backend, session_id: str) -> None:
    """Move a session to the trash."""
    head = backend.log(session_id).reader().head()
    if head is None:
        raise SessionNotFound(f"no session {session_id!r} in this store")
    record = announce(backend, SESSION_DELETED, session=session_id, seq=head.seq)
    with refusals_recorded(backend, [record]):
        backend.delete(session_id, check=partial(hold.check, backend, session_id))


def restore(backend: Backend, session_id: str) -> None:
    """Restore a session from the trash."""
    _check_deleted(backend, session_id)
    seq, _ = _last_known(backend, session_id)
    record = announce(backend, SESSION_RESTORED, session=session_id, seq=seq)
    with refusals_recorded(backend, [record]):
        backend.restore(session_id)


def purge(backend: Backend, session_id: str, check: Callable[[], object] = bool) -> None:
    """Delete a session in the trash permanently, unless it has forks or `check` raises."""
    _check_deleted(backend, session_id)
    facts: dict[str, Any] = {}
    records: list[Event] = []

    def look() -> None:
        """Search for forks, and record the purge; PostgreSQL may call this again after a lost connection."""
        seq, created = _last_known(backend, session_id)
        hold.check(backend, session_id)
        check_unused(backend, session_id, created, f"session {session_id!r} cannot be purged")
        facts.update(session=session_id, seq=seq, created=created)
        if records:
            return
        check()
        try:
            records.append(announce(backend, SESSION_PURGED, **facts))
        except DiskFailed as error:
            # On a full disk, purging must free space: only here is the record written afterwards.
            if isinstance(error, SyncFailed) or error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise

    with refusals_recorded(backend, records):
        backend.purge(session_id, look)
    if not records:
        announce(backend, SESSION_PURGED, **facts)
    observe.report("trash", observe.INFO, "purged session %r", session_id)


def _check_deleted(backend: Backend, session_id: str) -> None:
    """Raise unless a session is in the trash."""
    try:
        alive = backend.log(session_id).reader().head() is not None
    except SessionDeleted:
        return
    except DAMAGED:
        alive = True
    hint = "; it was not deleted: `store.delete(id)` puts it there" if alive else ""
    raise SessionNotFound(f"no session {session_id!r} in the trash{hint}")


def _last_known(backend: Backend, session_id: str) -> tuple[int, str]:
    """Return the last seq of a session in the trash and its first time; 0 and "" if it is unreadable."""
    try:
        head = backend.log(session_id, from_trash=True).reader().head()
    except DAMAGED:
        head = None
    return (0, "") if head is None else (head.seq, head.created)


def check_unused(
    backend: Backend, session_id: str, created: str, refusal: str, *, since: int = 0
) -> None:
    """Raise if a session has forks, even in the trash.

    `created`: the time of its first event; empty if unknown. `refusal`: the beginning of the error. `since`:
    only forks that inherit this seq count.
    """
    children, unknown = [], []
    for other, forked in forks(backend):
        if other == session_id:
            continue
        if forked is None:
            unknown.append(other)
        # An earlier session may have had the same id: its forks do not count.
        elif (
            forked.parent == session_id
            and forked.seq >= since
            and (not (forked.created and created) or forked.created == created)
        ):
            children.append(other)
    if children or unknown:
        seen = [found for found in children or unknown if found.startswith(backend.prefix)]
        shown = ", ".join(map(repr, seen[:_NAMED])) or "sessions outside of this store"
        if len(seen) > _NAMED:
            shown += f" and {len(seen) - _NAMED} more"
        why = f"its forks need its events: {shown}; delete and purge them first"
        if not children:
            why = (
                f"{shown} cannot be read, and may be forks of it; `store.verify()` shows the damage"
            )
        raise InUse(f"{refusal}: {why}", children=seen)


def audit(backend: Backend) -> Iterator[Event]:
    """Yield the audit events in order; in a scoped store, only those of its sessions."""
    for chunk in backend.internal(AUDIT).reader().read():
        for event in chunk.events():
            if not backend.prefix or str(event.data.get("session")).startswith(backend.prefix):
                yield event


def announce(backend: Backend, kind: str, **facts: Any) -> Event:
    """Record an operation before it is done. Empty facts are left out."""
    data = {name: value for name, value in facts.items() if value}
    new = NewEvent(kind, codec.encode(data), control=False)
    try:
        return backend.internal(AUDIT).append(AppendRequest([new]))[0]
    except SyncFailed as error:
        cause = OSError(error.errno, str(error))
        hint = f"{_NOT_RECORDED}; `store.verify()` allows appends to the audit log again"
        raise SyncFailed(error.operation, error.path, cause, hint) from error
    except Damaged as error:
        hint = f"{_NOT_RECORDED}; move that directory away to start another audit log"
        raise Damaged(error.path, error.offset, error.reason, hint) from error


@contextmanager
def refusals_recorded(backend: Backend, records: Sequence[Event]) -> Iterator[None]:
    """Run an announced operation; if it is refused, record that too."""
    try:
        yield
    except _REFUSALS as error:
        # The caller gets the refusal, even if this cannot be written.
        with suppress(HansardError):
            for record in records:
                session_id, reason = record.data["session"], type(error).__name__
                announce(
                    backend, SESSION_KEPT, session=session_id, record=record.seq, reason=reason
                )
        raise
