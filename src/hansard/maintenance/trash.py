"""Delete, restore and purge sessions, and keep a record of it.

*Announced first.* Each deed is written to the audit log before it is done, as durably as an append. If that
cannot be written, nothing is done and the error says so: no session ever goes without a trace, and no
deed that was done looks undone. A deed that is refused after all is followed by a `session.kept`. A crash in
between leaves an announcement and no deed, and the session itself, still there, shows it.

docs/format.md, F-58 to F-67, is the law for it.

*What others need stays.* A session from which others were forked is not purged while they exist, be it in
the trash.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from hansard.backend.contract import AUDIT, AppendRequest, Backend
from hansard.errors import (
    DAMAGED,
    Damaged,
    DiskFailed,
    HansardError,
    InUse,
    LockTimeout,
    ReadOnly,
    SeqConflict,
    SessionDeleted,
    SessionNotFound,
    SyncFailed,
)
from hansard.event import codec
from hansard.event.envelope import Event, NewEvent
from hansard.event.kinds import SESSION_DELETED, SESSION_KEPT, SESSION_PURGED, SESSION_RESTORED
from hansard.state.fork_graph import forks

#: After these, nothing has been done.
_REFUSALS: Final = (SeqConflict, LockTimeout, SessionNotFound, SessionDeleted, ReadOnly)

#: So many children are named when a session cannot go because of them.
_NAMED: Final = 5


# -- what is done to a session ------------------------------------------------------------------


def delete(backend: Backend, session_id: str) -> None:
    """Move a session into the trash."""
    head = backend.log(session_id).reader().head()
    if head is None:
        raise SessionNotFound(f"no session {session_id!r} in this store")
    record = announce(backend, SESSION_DELETED, session=session_id, seq=head.seq)
    with refusals_recorded(backend, record):
        backend.delete(session_id)


def restore(backend: Backend, session_id: str) -> None:
    """Bring a session back from the trash."""
    _check_deleted(backend, session_id)
    seq, _ = _last_known(backend, session_id)
    record = announce(backend, SESSION_RESTORED, session=session_id, seq=seq)
    with refusals_recorded(backend, record):
        backend.restore(session_id)


def purge(backend: Backend, session_id: str) -> None:
    """Remove a session from the trash for good, unless others were forked from it."""
    _check_deleted(backend, session_id)
    seq, created = _last_known(backend, session_id)
    check_unused(backend, session_id, created, f"session {session_id!r} cannot be purged")
    facts = {"session": session_id, "seq": seq, "created": created}
    try:
        record = announce(backend, SESSION_PURGED, **facts)
    except DiskFailed as error:
        if isinstance(error, SyncFailed) or error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        # A full disk must not keep anybody from making room: only here the record comes afterwards.
        backend.purge(session_id)
        announce(backend, SESSION_PURGED, **facts)
        return
    with refusals_recorded(backend, record):
        backend.purge(session_id)


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
    """Return the last seq of a session in the trash, and when it began; as far as it can be read."""
    try:
        head = backend.ancestor(session_id).reader().head()
    except DAMAGED:
        head = None
    return (0, "") if head is None else (head.seq, head.created)


def check_unused(
    backend: Backend, session_id: str, created: str, refusal: str, *, since: int = 0
) -> None:
    """Raise if sessions were forked from this one, be they in the trash themselves.

    Args:
        backend: where they may be.
        session_id: the one that is to lose something.
        created: when it began, if that is known.
        refusal: how the error begins.
        since: only a fork that has this seq from it counts.
    """
    children, unknown = [], []
    for other, forked in forks(backend):
        if other == session_id:
            continue
        if forked is None:
            unknown.append(other)
        # Of the same name may have been another session, whose children these are.
        elif (
            forked.parent == session_id
            and forked.seq >= since
            and (not (forked.created and created) or forked.created == created)
        ):
            children.append(other)
    if not children and not unknown:
        return
    seen = [found for found in children or unknown if found.startswith(backend.prefix)]
    shown = ", ".join(map(repr, seen[:_NAMED])) or "sessions outside of this store"
    if len(seen) > _NAMED:
        shown += f" and {len(seen) - _NAMED} more"
    if children:
        raise InUse(
            f"{refusal}: {shown} were forked from it and need its events; delete and purge them first",
            children=seen,
        )
    raise InUse(
        f"{refusal}: {shown} cannot be read, and may have been forked from it; `store.verify()` says "
        "what is wrong with them",
        children=seen,
    )


# -- the record ---------------------------------------------------------------------------------


def audit(backend: Backend) -> Iterator[Event]:
    """Yield what was done to whole sessions, in order; of a part of a store, only to those in it."""
    for chunk in backend.internal(AUDIT).reader().read():
        for event in chunk.events():
            if not backend.prefix or str(event.data.get("session")).startswith(backend.prefix):
                yield event


def announce(backend: Backend, kind: str, **facts: Any) -> Event:
    """Record what is about to be done. What is nothing, or 0, need not be said."""
    data = {name: value for name, value in facts.items() if value}
    new = NewEvent(kind, codec.encode(data), control=False)
    try:
        return backend.internal(AUDIT).append(AppendRequest([new]))[0]
    except SyncFailed as error:
        cause = OSError(error.errno, str(error))
        hint = "nothing was done: what is done is recorded first; `store.verify()` opens the record again"
        raise SyncFailed(error.operation, error.path, cause, hint) from error
    except Damaged as error:
        hint = "nothing was done: what is done is recorded first; move that directory away to begin anew"
        raise Damaged(error.path, error.offset, error.reason, hint) from error


@contextmanager
def refusals_recorded(backend: Backend, record: Event) -> Iterator[None]:
    """Let something be done that was announced; if it is refused, record that too."""
    try:
        yield
    except _REFUSALS as error:
        # The refusal is what the caller must hear of, also if this cannot be written.
        with suppress(HansardError):
            session_id, reason = record.data["session"], type(error).__name__
            announce(backend, SESSION_KEPT, session=session_id, record=record.seq, reason=reason)
        raise
