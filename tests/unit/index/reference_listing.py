"""A reference for listings: read every session from its first event to its last, without an index."""

import functools
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import hansard
from hansard import Event, SessionInfo, Store

HOUSEKEEPING = {
    "metadata.set", "session.archived", "session.closed", "session.held", "session.released",
}  # fmt: skip

#: What a listing can be sorted by.
ORDERS: dict[str, Callable[[SessionInfo], Any]] = {
    "id": lambda info: info.id,
    "created": lambda info: info.created_stamp,
    "updated": lambda info: info.updated_stamp,
    "title": lambda info: info.title or "",
    "message_count": lambda info: info.message_count,
    "bytes": lambda info: info.bytes,
    "tokens": lambda info: info.input_tokens + info.output_tokens,
    "cost": lambda info: info.cost,
}


def own_events(session: hansard.Session) -> list[Event]:
    """Return a session's own events, without inherited ones."""
    events = list(session.events())
    if session.parent is None:
        return events
    forked = max(place for place, event in enumerate(events) if event.kind == "session.forked")
    return events[forked:]


def describe(store: Store, session_id: str) -> SessionInfo:
    """Describe a session, without the number of its forks; `damaged` if it cannot be read."""
    session = store.session(session_id)
    try:
        state = session.state()
        own = own_events(session)
        size = store._backend.log(session_id).reader().size()
    except hansard.HansardError as error:
        return SessionInfo(session_id, damaged=str(error))
    happened = [event.stamp for event in own if event.kind not in HOUSEKEEPING]
    path = state.metadata.get("workspace")
    return SessionInfo(
        session_id,
        title=state.title,
        seq=state.seq,
        created_stamp=own[0].stamp,
        updated_stamp=happened[-1] if happened else own[0].stamp,
        message_count=sum(event.kind == "message.added" for event in session.events()),
        bytes=size,
        input_tokens=sum(used.input_tokens for used in state.usage.values()),
        output_tokens=sum(used.output_tokens for used in state.usage.values()),
        cost=sum((used.cost for used in state.usage.values()), Decimal(0)),
        parent=session.parent,
        forked_at=state.forked_at,
        workspace=path if isinstance(path, str) else None,
        archived=state.archived,
        closed=state.closed,
        metadata=session.metadata,
    )


def everything(store: Store) -> list[SessionInfo]:
    """Describe all sessions of a store, by id."""
    found = [describe(store, session_id) for session_id in sorted(store._backend.ids())]
    live = [info for info in found if store.exists(info.id)]
    parents = [parent_of(store, info.id) for info in live]
    return [_with_children(info, parents.count(info.id)) for info in live]


def parent_of(store: Store, session_id: str) -> str | None:
    """Return the parent of a session; None if it cannot be read."""
    try:
        return store.session(session_id).parent
    except hansard.HansardError:
        return None


def _with_children(info: SessionInfo, count: int) -> SessionInfo:
    return SessionInfo(
        **{**{f: getattr(info, f) for f in info.__struct_fields__}, "children": count}
    )


def listing(
    known: list[SessionInfo],
    *,
    prefix: str = "",
    where: Mapping[str, Any] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    title: str = "",
    workspace: Path | None = None,
    parent: str | None = None,
    archived: bool | None = None,
    damaged: bool | None = None,
    order: str = "id",
) -> list[SessionInfo]:
    """Filter and sort descriptions like `store.sessions`."""
    value = ORDERS[order.removeprefix("-")]
    wanted = [
        info
        for info in known
        if info.id.startswith(prefix)
        and all(same(info.metadata.get(key), said) for key, said in (where or {}).items())
        and (since is None or info.updated_stamp >= stamp(since))
        and (until is None or info.updated_stamp < stamp(until))
        and title.casefold() in (info.title or "").casefold()
        and (workspace is None or info.workspace == str(workspace))
        and parent in {None, info.parent}
        and archived in {None, info.archived}
        and damaged in {None, bool(info.damaged)}
    ]
    return sorted(wanted, key=lambda info: (value(info), info.id), reverse=order[0] == "-")


def same(one: object, other: object) -> bool:
    """Return whether two values are equal in JSON: a boolean is not a number, and 1.0 equals 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def stamp(time: datetime) -> str:
    """Return a time in UTC as events have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def pages(
    list_some: Callable[..., hansard.Page],
    limit: int,
    between: Callable[[], object] | None = None,
    **filters: Any,
) -> list[SessionInfo]:
    """Return the sessions of all pages of a listing; call `between` between two pages."""
    found: list[SessionInfo] = []
    cursor: str | None = None
    ask = functools.partial(list_some, limit=limit, **filters)
    while True:
        page = ask(cursor=cursor)
        assert len(page.items) <= limit
        found += page.items
        cursor = page.next
        if cursor is None:
            return found
        assert len(page.items) == limit
        assert len(found) < 1000, "too many pages"
        if between is not None:
            between()
