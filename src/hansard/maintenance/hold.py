"""Put sessions under a legal hold, which prevents that they are deleted, redacted or dropped.

A hold is an event in the session and in each of its ancestors, because a fork shows their events. So the
control events in a session's log show whether it is held, and `check` reads no other log. Operations that
remove something call `check` under the session's lock. A hold is appended under the same lock.
"""

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter

from hansard.backend.contract import AppendRequest, Backend, Finding, LogReader
from hansard.errors import DAMAGED, Held, SessionDeleted, SessionNotFound
from hansard.event import codec
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import SESSION_HELD, SESSION_RELEASED
from hansard.state import fold, lineage
from hansard.state.lineage import ForkedReader

_KINDS = frozenset({SESSION_HELD, SESSION_RELEASED})


def holds_of(events: list[Event]) -> dict[str, str]:
    """Return the holds of a session from the events, or control events, of its log; see `State.holds`."""
    return fold.apply_all(fold.EMPTY, [event for event in events if event.kind in _KINDS]).holds


def check(backend: Backend, session_id: str) -> None:
    """Raise `Held` if a session is held, in the trash or not. Of a damaged log, the valid events decide."""
    log = backend.log(session_id, from_trash=True)
    try:
        found = holds_of(log.reader().controls())
    except DAMAGED:
        valid = (one for one in log.salvage() if not isinstance(one, Finding))
        # By seq: lines may have been swapped.
        found = holds_of(sorted(valid, key=attrgetter("seq")))
    _refuse(session_id, found)


def check_inherited(reader: LogReader, seq: int) -> None:
    """Raise `Held` if a fork inherits the event at `seq`, or a later one, from a held ancestor."""
    for part in reader.inherited if isinstance(reader, ForkedReader) else ():
        if part.after < part.upto and part.upto >= seq:
            _refuse(part.reader.session_id, holds_of(part.reader.controls()))


def _refuse(session_id: str, found: dict[str, str]) -> None:
    for fork, reason in found.items():
        whose = f" for its fork {fork!r}" if fork else ""
        why = f" ({reason})" if reason else ""
        raise Held(
            f"session {session_id!r} is under a legal hold{whose}{why}; nothing was removed. "
            "Release the hold first",
            session=session_id,
            reason=reason,
        )


def hold(backend: Backend, session_id: str, reason: str) -> Event:
    """Hold a session and its ancestors; return its event: the stored one if it is held for this reason.

    Without a reason, an earlier hold keeps its reason.
    """
    ancestors = _ancestors(backend, session_id)
    log = backend.log(session_id)
    controls = log.reader().controls()
    own = [event for event in controls if event.kind in _KINDS and "fork" not in event.data]
    event = own[-1] if own and own[-1].kind == SESSION_HELD else None
    earlier = None if event is None else event.data.get("reason", "")
    reason = reason or earlier or ""
    _hold_ancestors(backend, session_id, reason, ancestors)
    if event is None or earlier != reason:
        event = _append(backend, session_id, SESSION_HELD, reason=reason)
    else:
        log.sync()
    # Check them again: a concurrent `release` may have released them. Now none can (`_release_for`).
    _hold_ancestors(backend, session_id, reason, _ancestors(backend, session_id))
    return event


def _hold_ancestors(
    backend: Backend, session_id: str, reason: str, ancestors: list[tuple[str, dict[str, str]]]
) -> None:
    for ancestor, found in ancestors:
        try:
            if found.get(session_id) == reason:
                # The process that held it may have been killed before its own sync.
                backend.log(ancestor).sync()
            else:
                _append(backend, ancestor, SESSION_HELD, reason=reason, fork=session_id)
        except SessionDeleted as error:
            raise SessionDeleted(
                f"session {session_id!r} cannot be held: it shows events of {ancestor!r}, which is in "
                "the trash; restore that first"
            ) from error


def release(backend: Backend, session_id: str) -> Event | None:
    """End a session's hold, and those of its ancestors because of it; return its event, or None."""
    ancestors = _ancestors(backend, session_id)
    event = None
    for fork in holds_of(backend.log(session_id).reader().controls()):
        if fork:
            # A process was killed while it held or released the fork, or the session was copied without it.
            _release_for(backend, session_id, fork)
        else:
            event = _append(backend, session_id, SESSION_RELEASED)
    for ancestor, found in ancestors:
        if session_id in found:
            _release_for(backend, ancestor, session_id)
    return event


def _release_for(backend: Backend, session_id: str, fork: str) -> None:
    """End the hold that a session has because of a fork, unless the fork is held (again)."""
    log = backend.unscoped.log(fork, from_trash=True)

    def check() -> None:
        if "" in holds_of(log.reader().controls()):
            raise Held(f"session {fork!r} is under a legal hold", session=fork, reason="")

    with suppress(Held):
        check()
        _append(backend, session_id, SESSION_RELEASED, check, fork=fork)


def _ancestors(backend: Backend, session_id: str) -> list[tuple[str, dict[str, str]]]:
    """Return the ancestors of a session, each with its holds."""
    reader = backend.log(session_id).reader()
    if reader.head() is None:
        raise SessionNotFound(f"no session {session_id!r} in this store")
    whole = lineage.with_ancestors(backend, reader)
    parts = whole.inherited if isinstance(whole, ForkedReader) else []
    return [(one.reader.session_id, holds_of(one.reader.controls())) for one in parts]


def _append(
    backend: Backend,
    session_id: str,
    kind: str,
    check: Callable[[], None] | None = None,
    **facts: str,
) -> Event:
    data = {name: value for name, value in facts.items() if value}
    log = backend.log(session_id)
    new = NewEvent(kind, codec.encode(data), control=True)
    (event,) = log.append(AppendRequest([new], check=check))
    # With any durability: a power cut must not undo a hold that was reported.
    log.sync()
    return event
