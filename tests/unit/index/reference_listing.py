"""A reference for the index: read every session from its first event to its last."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import hansard
from hansard import Event, SessionInfo, Store, Usage
from hansard.index import DayStats, StoreStats

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


def stats(store: Store) -> StoreStats:
    """Count every event of every session, without `raw_bytes`."""
    infos = everything(store)
    readable = [info for info in infos if not info.damaged]
    days: dict[str, Counter[str]] = {}
    models: dict[str, Usage] = {}
    for info in readable:
        days.setdefault(info.created_stamp[:10], Counter())["sessions"] += 1
        for event in own_events(store.session(info.id)):
            day = days.setdefault(event.stamp[:10], Counter())
            day["events"] += 1
            day["messages"] += event.kind == "message.added"
            if event.kind == "usage.recorded" and "model" in event.data:
                names = ("input_tokens", "output_tokens")
                day["tokens"] += sum(event.data.get(name, 0) for name in names)
                add_call(models, event.data)
    return StoreStats(
        sessions=len(infos),
        archived=sum(info.archived for info in readable),
        damaged=len(infos) - len(readable),
        forks=sum(info.parent is not None for info in infos),
        events=sum(day["events"] for day in days.values()),
        messages=sum(day["messages"] for day in days.values()),
        bytes=sum(info.bytes for info in readable),
        days={day: DayStats(**count) for day, count in sorted(days.items())},
        models=dict(sorted(models.items())),
        workspaces=dict(
            sorted(Counter(info.workspace for info in readable if info.workspace).items())
        ),
    )


def add_call(models: dict[str, Usage], data: Mapping[str, Any]) -> None:
    """Add one call of a model."""
    used = models.get(data["model"], Usage())
    models[data["model"]] = Usage(
        used.calls + 1,
        used.input_tokens + data.get("input_tokens", 0),
        used.output_tokens + data.get("output_tokens", 0),
        cost=used.cost + Decimal(data.get("cost") or 0),
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
