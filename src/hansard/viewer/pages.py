"""The pages of `hansard serve`: what each one reads from the store, and the values for its template.

A page reads a bounded part of a session. Everything that comes from the store is redacted before a template
sees it, unless the server was started with `--unredacted`.
"""

import html
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import groupby, islice, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup

import hansard
from hansard.cli import screen
from hansard.cli.commands.ls import forest, related
from hansard.cli.table import Row
from hansard.event import secrets
from hansard.message.parse import parse, to_json
from hansard.message.window import estimate_tokens
from hansard.state.view import VIEWS, View
from hansard.transfer.transcript import visible
from hansard.viewer import markup
from hansard.viewer.markup import PageItem

#: Entries on a session's page, sessions on a page of the list, and hits on the page of a search.
WINDOW: Final = 50
_LISTED: Final = 50
_HITS: Final = 50
#: Maximum entries that a filter reads for one page; maximum messages that a comparison shows of each side.
_SCANNED: Final = 2_000
_COMPARED: Final = 100
#: Maximum shared messages that a comparison can unfold; maximum entries that lead a page back to a call.
_SHARED: Final = 20
_FOLLOWING: Final = 20

Query = Mapping[str, str]
#: Entries, and the seqs that lead to those before and after them.
Found = tuple[list["hansard.TranscriptEntry"], int | None, int | None]

ORDERS: Final = {
    "-updated": "last activity",
    "-created": "newest",
    "title": "title",
    "id": "id",
    "-message_count": "messages",
    "-bytes": "size",
    "-tokens": "tokens",
    "-cost": "cost",
}


class Site(NamedTuple):
    """What a server shows.

    Attributes:
        store: the store, scoped if the server is.
        name: the store's path or URL, for people.
        redacted: replace what looks like a credential.
        base: the path at which the pages are; empty for the root.
        window: entries of a page of a session.
        static: the pages are files, without a server.
    """

    store: "hansard.Store"
    name: str
    redacted: bool = True
    base: str = ""
    window: int = WINDOW
    static: bool = False

    def clean(self, value: Any) -> Any:
        """Return JSON-like data without credentials."""
        data = msgspec.to_builtins(value)
        return secrets.redact(data)[0] if self.redacted else data

    def url(self, page: str, **values: object) -> str:
        """Return the address of a page. A value of None or "" is left out; `anchor` is the fragment."""
        anchor = values.pop("anchor", None)
        given = {key.strip("_"): value for key, value in values.items() if value not in {None, ""}}
        query = urlencode(given, errors="replace")
        return f"{self.base}/{page}{'?' * bool(query)}{query}{f'#{anchor}' if anchor else ''}"

    def session(self, query: Query, name: str = "id") -> "hansard.Session":
        """Return the session that a request names."""
        session_id = query.get(name, "")
        if not self.store.exists(session_id):
            raise hansard.SessionNotFound(f"no session {session_id!r} in this store")
        return _handle(self.store, session_id)


@lru_cache(maxsize=64)
def _handle(store: "hansard.Store", session_id: str) -> "hansard.Session":
    """Return a session that keeps its state: to fold 100,000 messages again takes 0.4 s."""
    return store.session(session_id)


# -- sessions -----------------------------------------------------------------------------------


def sessions(site: Site, query: Query) -> dict[str, Any]:
    """List sessions."""
    order = query.get("order", "-updated")
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    tree = "tree" in query
    given = {key: query.get(key, "") for key in _FILTERS}
    chosen: dict[str, Any] = {key: given[key] or None for key in ("parent", "workspace")}
    chosen |= {key: _point(given[key]) for key in ("since", "until")}
    if wrong := [key for key in ("since", "until") if isinstance(chosen[key], int | str)]:
        raise ValueError(f"{wrong[0]} must be a date or a time, got {given[wrong[0]]!r}")
    chosen |= {"prefix": given["prefix"], "title": given["title"], "where": _where(given["where"])}
    chosen |= _SHOWN.get(given["show"], _SHOWN[""])
    page = site.store.sessions(
        **chosen,
        order=order,
        limit=_TREE if tree else _LISTED,
        cursor=None if tree else query.get("cursor") or None,
    )
    parents = related(site.store, page.items) if tree else {}
    rows = forest(page.items, parents, _DEEPEST) if tree else [Row(info) for info in page.items]
    return {
        "rows": [row(site, one.info) | {"depth": min(one.depth, _DEEPEST)} for one in rows],
        "count": site.store.count(**chosen),
        "next": None if tree else page.next,
        "orders": ORDERS,
        "given": given,
        "keep": given | {"order": order},
        "tree": tree,
        "more": any(given[key] for key in ("since", "until", "where", "workspace")),
        "first": "cursor" not in query,
        "filtered": any(given.values()),
        "live": not site.static and "cursor" not in query,
    }


#: The filters of the list, like those of `hansard ls`; the choices of `show`; maximum sessions of a tree.
_FILTERS: Final = ("title", "prefix", "parent", "workspace", "since", "until", "where", "show")
_SHOWN: Final[dict[str, dict[str, bool | None]]] = {
    "": {"archived": False},
    "all": {"archived": None},
    "archived": {"archived": True},
    "damaged": {"damaged": True},
    "held": {"held": True},
}
_TREE: Final = 500
#: Levels of a tree that are indented.
_DEEPEST: Final = 12


def _where(text: str) -> dict[str, Any]:
    """Return the condition KEY=VALUE; the value is JSON, or else a string."""
    key, separator, value = text.partition("=")
    if text and not (key and separator):
        raise ValueError(f"metadata must be KEY=VALUE, got {text!r}")
    try:
        return {key: msgspec.json.decode(value)} if text else {}
    except (msgspec.MsgspecError, UnicodeError):
        return {key: value}


def newest(site: Site) -> list[Any]:
    """Return values that change when the list changes."""
    page = site.store.sessions(order="-updated", limit=_LISTED)
    return [(info.id, info.seq, info.damaged) for info in page.items]


def row(site: Site, info: "hansard.SessionInfo") -> dict[str, Any]:
    """Return a line of the list."""
    shown: dict[str, Any] = site.clean(msgspec.structs.asdict(info))
    model = info.metadata.get("model")
    return {
        **shown,
        "depth": 0,
        "key": info.id,
        "parent_key": info.parent,
        "tokens": info.input_tokens + info.output_tokens,
        "model": site.clean(model) if isinstance(model, str) else "",
    }


# -- a session ----------------------------------------------------------------------------------


def session(site: Site, query: Query) -> dict[str, Any]:
    """Show a window of a session."""
    found = site.session(query)
    if answer := _number(query, "saw"):
        query = {**query, "view": "model", "at": str(_began(found, answer) - 1)}
    view = _view(query)
    at = _point(query.get("at"))
    role, tool = query.get("role", ""), query.get("tool", "")
    wanted = _filter(role, tool)
    entries, earlier, later = _window(site, found, query, view, at, wanted)
    state = found.state(at) if at else _now(site, found)
    later_notes = _notes(site, found, entries, state.seq)
    items = markup.items([*entries, *later_notes], raw="raw" in query)
    lane = _lane(items, entries)
    keep = {key: value for key, value in query.items() if key in _KEPT and value}
    return {
        **_head(site, found, state),
        "items": items,
        "groups": _grouped(items) if "focus" in query else None,
        "earlier": earlier,
        "later": later,
        "view": view,
        "at": query.get("at", ""),
        "role": role,
        "tool": tool,
        "tools": sorted(
            {part.name for item in items for part in item.parts if part.name} | {tool} - {""}
        ),
        "raw": "raw" in query,
        "focus": "focus" in query,
        "keep": keep,
        "last": state.seq,
        "live": not (site.static or at or later or wanted),
        "firsts": [],
        "filtered": bool(role or tool),
        "around": query.get("around", ""),
        "rail": _rail(items),
        "lane": lane._replace(gaps={}, turns={}) if wanted else lane,
        "branches": {}
        if site.static or "part" in query
        else _branches(site, state if at else None, found, items, later),
        "files": _files(entries),
        "model_view": _size(found, at) if view == "model" else None,
    }


def _notes(
    site: Site, found: "hansard.Session", entries: "list[hansard.TranscriptEntry]", last: int
) -> "Iterator[hansard.TranscriptEntry]":
    """Yield the notes about messages of a page that came after it, or that a filter left out."""
    shown = [entry.seq for entry in entries]
    for event in islice(found.events(after=min(shown, default=last)), _SCANNED):
        known = event.seq > last or event.seq in shown
        if event.kind == "x.note" and not known and event.data.get("seq") in shown:
            data = to_json(site.clean(event.data))
            yield hansard.TranscriptEntry(event.seq, event.stamp, event.kind, None, "", data)


#: The parameters that links within a session keep.
_KEPT: Final = frozenset({"view", "at", "role", "tool", "raw", "focus"})


def _now(site: Site, found: "hansard.Session") -> "hansard.State":
    """Return what a session adds up to, from the index: to fold 100,000 messages takes 0.3 s."""
    info = next(iter(site.store.sessions(prefix=found.id, limit=1)), None)
    if info is None or info.id != found.id or info.damaged:
        return found.state()
    fields = ("seq", "created_stamp", "updated_stamp", "parent", "forked_at", "message_count", "metadata",
              "archived", "closed")  # fmt: skip
    used = hansard.Usage(
        input_tokens=info.input_tokens, output_tokens=info.output_tokens, cost=info.cost
    )
    known: dict[str, Any] = {name: getattr(info, name) for name in fields}
    return hansard.State(**known, snapshots=found.snapshots, usage={"": used})


def _head(site: Site, found: "hansard.Session", state: "hansard.State") -> dict[str, Any]:
    """Return what the head of each page of a session shows."""
    used = state.usage.values()
    return {
        "id": found.id,
        "name": site.clean(found.id),
        "title": site.clean(state.title or found.id),
        "state": site.clean(state),
        "metadata": to_json(site.clean(state.metadata)) if state.metadata else "",
        "parent": state.parent,
        "children": found.children(),
        "tokens": sum(one.input_tokens + one.output_tokens for one in used),
        "cost": sum(one.cost for one in used),
    }


def _view(query: Query) -> View:
    view = query.get("view") or "history"
    if view not in VIEWS:
        raise ValueError(f"view must be one of {', '.join(VIEWS)}, got {view!r}")
    return "model" if view == "model" else "history"


def _point(text: str | None) -> "int | str | datetime | None":
    """Return a seq, a time, or the name of a snapshot."""
    if not text:
        return None
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _number(query: Query, name: str) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 16):  # noqa: PLR2004 - a seq is shorter
        raise ValueError(f"{name} must be a seq, got {text!r}")
    return int(text)


def _filter(role: str, tool: str) -> Callable[["hansard.TranscriptEntry"], bool] | None:
    """Return whether an entry is wanted; None if all are. A result is if its call was."""
    calls: set[str] = set()

    def wanted(entry: "hansard.TranscriptEntry") -> bool:
        parsed = parse(entry.message or {})
        named = [part for part in parsed.parts if part.name == tool]
        calls.update(part.call_id for part in named if part.call_id)
        fits = not tool or bool(named) or any(part.call_id in calls for part in parsed.parts)
        return (
            entry.message is not None
            and fits
            and role in {"", markup.role_of(parsed, parsed.parts)}
        )

    return wanted if role or tool else None


def _window(
    site: Site,
    found: "hansard.Session",
    query: Query,
    view: View,
    at: "int | str | datetime | None",
    wanted: Callable[["hansard.TranscriptEntry"], bool] | None,
) -> Found:
    """Return the entries of a window."""
    before, after, around = (_number(query, name) for name in ("before", "after", "around"))

    def page(count: int, before: int | None, after: int | None) -> Found:
        entries: list[hansard.TranscriptEntry] = []
        others: list[hansard.TranscriptEntry] = []
        for _ in range(_SCANNED // site.window):
            read = found.transcript(
                count, before=before, after=after, at=at, view=view, redacted=site.redacted
            )
            seen = [*read.entries, *others]
            kept = [entry for entry in seen if wanted is None or wanted(entry)]
            if wanted and after is None:  # going back, a call comes after its result
                others = [entry for entry in read.entries if not wanted(entry)]
            entries = kept + entries if after is None else entries + kept
            more = read.earlier if after is None else read.later
            if len(entries) >= count or more is None:
                break
            before, after = (more, None) if after is None else (None, more)
        for _ in range(_FOLLOWING):
            if wanted or after is not None or not read.earlier or not _follows(entries[0]):
                break
            read = found.transcript(
                1, before=read.earlier, at=at, view=view, redacted=site.redacted
            )._replace(later=read.later)
            entries = [*read.entries, *entries]
        return entries, read.earlier, read.later

    if around is not None:
        earlier_entries, earlier, _ = page(site.window // 2, around, None)
        later_entries, _, later = page(site.window // 2, None, max(around - 1, 0))
        return earlier_entries + later_entries, earlier, later
    entries, earlier, later = page(site.window, before, after)
    if before is not None:
        later = before - 1
    if after:
        earlier = after + 1
    return entries, earlier, later


def _follows(entry: "hansard.TranscriptEntry") -> bool:
    """Return whether an entry is shown at a message before it: results, or the usage of a turn."""
    parts = parse(entry.message or {}).parts
    results = bool(parts) and all(part.kind == "result" for part in parts)
    return results or entry.kind == "usage.recorded"


def _grouped(items: list[PageItem]) -> list[tuple[bool, list[PageItem]]]:
    """Return runs of items: those that a focused reader sees, and those that are folded.

    A reader sees prompts, and the last text of an answer before the next prompt.
    """
    shown: set[int | None] = set()
    final: int | None = None
    for item in items:
        if item.prompt:
            shown |= {final, item.seq}
            final = None
        elif item.role == "assistant" and item.says:
            final = item.seq
    shown.add(final)
    return [(seen, [*run]) for seen, run in groupby(items, lambda item: item.seq in shown)]


def _rail(items: list[PageItem]) -> list[tuple[int, int, Decimal, int, int]]:
    """Return a bar per turn with usage: the seq of its message, tokens, cost, widths of input and output."""
    turns: list[tuple[int, int, int, Decimal]] = []
    for item in items:
        if item.usage:
            given = sum(used.input_tokens for used in item.usage)
            made = sum(used.output_tokens for used in item.usage)
            cost = sum((Decimal(used.cost) for used in item.usage), Decimal())
            turns.append((item.seq, given, made, cost))
    scale = 100 / (max((given + made for _, given, made, _ in turns), default=0) or 1)
    return [
        (seq, given + made, cost, round(given * scale), max(round(made * scale), 1))
        for seq, given, made, cost in turns
    ]


#: Minimum seconds of a pause, and of a call, to be shown on the page.
_IDLE: Final = 60.0
_NOTABLE: Final = 0.05


class Lane(NamedTuple):
    """How long things took, in seconds.

    Attributes:
        gaps: the pause before an item, if it is long.
        turns: from a prompt to the last entry before the next one.
        calls: from a call to its result, by the seq of the result.
        tools: the calls of each tool, added up, the longest first.
        slowest: the seq of the message with the slowest call, its tool and its time.
    """

    gaps: dict[int, float]
    turns: dict[int, float]
    calls: dict[int, float]
    tools: list[tuple[str, float]]
    slowest: tuple[int, str, float] | None


def _lane(items: list[PageItem], entries: "Iterable[hansard.TranscriptEntry]") -> Lane:
    """Return how long things took between the entries of a page."""
    times = {entry.seq: entry.time for entry in entries}

    def passed(before: int, after: int) -> float:
        one, other = times.get(before), times.get(after)
        return max((other - one).total_seconds(), 0.0) if one and other else 0.0

    # A result is shown at its call, with the time that it took: it ends a pause all the same.
    gaps = {b: passed(a, b) for a, b in pairwise(times)}
    prompts = [item.seq for item in items if item.prompt]
    ends = [max((seq for seq in times if seq < end), default=0) for end in prompts[1:]]
    ends.append(max(times, default=0))
    turns = {seq: passed(seq, end) for seq, end in zip(prompts, ends, strict=False)}
    calls: dict[int, float] = {}
    tools: dict[str, float] = {}
    slowest: tuple[int, str, float] | None = None
    for item in items:
        for part in item.parts:
            took = passed(item.seq, part.result_seq)
            if part.result and took >= _NOTABLE:
                calls[part.result_seq] = took
                tools[part.name] = tools.get(part.name, 0.0) + took
                slowest = max(slowest or (0, "", 0.0), (item.seq, part.name, took), key=_LAST)
    return Lane(
        {seq: gap for seq, gap in gaps.items() if gap >= _IDLE},
        {seq: took for seq, took in turns.items() if took >= _NOTABLE},
        calls,
        sorted(tools.items(), key=_LAST, reverse=True)[:10],
        slowest,
    )


_LAST: Final = itemgetter(-1)


def _branches(
    site: Site,
    then: "hansard.State | None",
    found: "hansard.Session",
    items: list[PageItem],
    later: int | None,
) -> dict[int, list[dict[str, Any]]]:
    """Return the forks of a session, and the sessions of its subagents, by the items that they follow.

    A subagent's session has the id of its session, a slash, and more.
    """
    chosen = [(info, "fork") for info in site.store.sessions(parent=found.id, limit=_LISTED).items]
    below = site.store.sessions(prefix=f"{found.id}/", limit=_LISTED).items
    chosen += [(info, "subagent") for info in below if info.parent != found.id]
    seqs, times = [item.seq for item in items], [item.time for item in items]
    placed: dict[int, list[dict[str, Any]]] = {}
    for info, kind in chosen:
        at = info.forked_at or 0 if kind == "fork" else 0
        place = bisect_right(seqs, at) if at else bisect_right(times, info.created_stamp)
        known = then is None or (at <= then.seq if at else info.created_stamp <= then.updated_stamp)
        if known and place and (place < len(items) or later is None):
            shown = row(site, info) | {"kind": kind, "after": at}
            placed.setdefault(seqs[place - 1], []).append(shown)
    return placed


def _files(entries: "Iterable[hansard.TranscriptEntry]") -> dict[str, dict[int, None]]:
    """Return the files that tool calls name, each with the seqs of the messages."""
    touched: dict[str, dict[int, None]] = {}
    for entry in entries:
        for part in parse(entry.message).parts if entry.message is not None else ():
            for path in markup.files(part) if part.kind == "call" else ():
                touched.setdefault(path[:300], {})[entry.seq] = None
    return dict(sorted(touched.items()))


def _size(found: "hansard.Session", at: "int | str | datetime | None") -> dict[str, int]:
    """Return the size of a model view."""
    messages = found.messages(at=at)
    return {"messages": len(messages), "tokens": sum(map(estimate_tokens, messages))}


# -- one event ----------------------------------------------------------------------------------


def event(site: Site, query: Query) -> bytes:
    """Return an event as JSON."""
    seq = _number(query, "seq") or 0
    found = _event(site.session(query), seq)
    data = {"seq": found.seq, "time": found.stamp, "kind": found.kind, "data": found.data}
    return to_json(site.clean(data)).encode(errors="replace")


def picture(site: Site, query: Query) -> tuple[str, bytes]:
    """Return the type and the bytes of a picture of a message."""
    found = _event(site.session(query), _number(query, "seq") or 0)
    shown = list(markup.pictures(found.data.get("message")))
    place = _number(query, "n") or 0
    if place >= len(shown):
        raise hansard.InvalidEvent(f"event {found.seq} has {len(shown)} pictures")
    return shown[place]


def _began(found: "hansard.Session", seq: int) -> int:
    """Return the seq of a message, or of its first part if it was streamed."""
    stream = _event(found, seq).data.get("stream")
    parts = (event.seq for event in found.events() if event.data.get("stream") == stream)
    return next(parts) if stream else seq


def _event(found: "hansard.Session", seq: int) -> "hansard.Event":
    one = next(found.events(after=seq - 1), None) if seq else None
    if one is None or one.seq != seq:
        raise hansard.InvalidEvent(f"session {found.id!r} has no event {seq}")
    return one


# -- time ---------------------------------------------------------------------------------------


def time(site: Site, query: Query) -> dict[str, Any]:
    """Show a session as it was at a point, and what the event at this point changed."""
    found = site.session(query)
    now = found.state()
    given = _point(query.get("at"))
    state = found.state(min(given, now.seq) if isinstance(given, int) else given)
    seq = state.seq
    page = found.transcript(20, at=seq, view="model", events=False, redacted=site.redacted)
    step: list[hansard.TranscriptEntry] = []
    if seq:
        changed = found.transcript(1, after=seq - 1, at=seq, redacted=site.redacted)
        step = [entry for entry in changed.entries if entry.seq == seq]
    before = found.state(seq - 1) if seq else state
    following = next(found.events(after=seq), None)
    wait = (following.time - state.updated).total_seconds() if following and state.updated else 0
    return {
        **_head(site, found, now),
        "then": site.clean(state),
        "then_metadata": to_json(site.clean(state.metadata)) if state.metadata else "",
        "seq": seq,
        "last": now.seq,
        "wait": max(wait, 0),
        "step": markup.items(step),
        "changes": _changes(site.clean(before), site.clean(state)),
        "items": markup.items(page.entries),
        "omitted": page.earlier,
        "size": _size(found, seq),
    }


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the facts of a state that an event changed."""
    quiet = {"seq", "updated", "created", "kinds"}
    return [
        (name.replace("_", " "), to_json(before[name]), to_json(value))
        for name, value in after.items()
        if name not in quiet and before[name] != value
    ]


# -- the other pages ----------------------------------------------------------------------------


def compare(site: Site, query: Query) -> dict[str, Any]:
    """Compare two sessions, or two points of one."""
    shown: dict[str, Any] = {key: query.get(key, "") for key in ("a", "b", "a_at", "b_at")}
    if not any((shown["b"], shown["a_at"], shown["b_at"])):
        if shown["a"]:
            site.session(query, "a")
        recent = site.store.sessions(order="-updated", limit=_LISTED).items
        return {**shown, "found": None, "recent": [info.id for info in recent]}
    one = site.session(query, "a")
    other = site.session(query, "b") if shown["b"] else one
    found = one.compare(other, at=_point(shown["a_at"]), other_at=_point(shown["b_at"]))
    first = found.divergence.after if found.divergence else found.same
    differs = found.divergence.a if found.divergence else None
    shared = one.transcript(
        _SHARED, before=differs, at=found.a.seq, view="model", events=False, redacted=site.redacted
    )
    sides = []
    for place, only in ((found.a, found.only_a), (found.b, found.only_b)):
        entries = [
            hansard.TranscriptEntry(said.seq, "", "message.added", site.clean(said.message))
            for said in only[:_COMPARED]
        ]
        sides.append(
            {
                "id": place.session,
                "name": site.clean(place.session),
                "seq": place.seq,
                "items": markup.items(entries),
                "omitted": max(len(only) - _COMPARED, 0),
            }
        )
    changes: dict[str, dict[str, tuple[Any, Any]]] = {}
    for what in ("metadata", "usage", "snapshots"):
        values = site.clean(getattr(found, what))
        changes[what] = {name: (one.get("a"), one.get("b")) for name, one in values.items()}
    return {
        **shown,
        "found": found,
        "base": site.clean(found.base) if found.base else None,
        "first": first,
        "shared": markup.items(shared.entries) if first else [],
        "earlier": shared.earlier,
        "calls": site.clean(found.calls[:_COMPARED]),
        "same": found.same,
        "sides": sides,
        "changes": changes,
        "show": to_json,
        "recent": [],
    }


def search(site: Site, query: Query) -> dict[str, Any]:
    """Search all sessions, or one."""
    text, role, inside = query.get("q", ""), query.get("role", ""), query.get("id", "")
    prefix = query.get("prefix", "")
    hits = []
    if text.strip():
        if inside:
            site.session(query)
        hits = site.store.search(
            text, prefix=prefix, session=inside or None, role=role or None, limit=_HITS
        )
    return {
        "q": text,
        "role": role,
        "prefix": prefix,
        "inside": inside,
        "hits": [_hit(site, hit) for hit in hits],
        "most": _HITS,
    }


def _hit(site: Site, hit: "hansard.Hit") -> dict[str, Any]:
    """Return a hit, with its snippet in pieces: text, and whether it matched."""
    snippet = site.clean(hit.snippet)
    pieces, end = [], 0
    # If a credential was replaced, the matches are at different places, which are not known.
    for start, stop in hit.matches if snippet == hit.snippet else ():
        pieces += [(snippet[end:start], False), (snippet[start:stop], True)]
        end = stop
    pieces.append((snippet[end:], False))
    return {
        **site.clean(hit),
        "key": hit.session,
        "pieces": [(text, matched) for text, matched in pieces if text],
    }


def stats(site: Site, query: Query) -> dict[str, Any]:
    """Show totals, growth and usage."""
    prefix = query.get("prefix", "")
    found = site.store.stats(prefix=prefix)
    largest = site.store.sessions(prefix=prefix, order="-bytes", limit=10).items
    known = [date.fromisoformat(day) for day in found.days or ("1970-01-01",)]
    last = max(known)
    length = max(min((last - min(known)).days, 59), 13)
    names = [f"{last - timedelta(days=back)}" for back in range(length, -1, -1)]
    days = [(day, found.days.get(day, hansard.DayStats())) for day in names]
    plots = [
        (name, max((value for _, value in values), default=0), values)
        for name in ("messages", "tokens")
        if (values := [(day, getattr(added, name)) for day, added in days])
    ]
    models = sorted(
        found.models.items(),
        key=lambda one: (-one[1].cost, -one[1].input_tokens - one[1].output_tokens),
    )
    return {
        "prefix": prefix,
        "stats": found,
        "plots": [plot for plot in plots if plot[1]],
        "tools": sorted(site.clean(found.tools).items(), key=lambda one: -one[1][0])[:15],
        "models": [(site.clean(model), used) for model, used in models],
        "workspaces": sorted(site.clean(found.workspaces).items(), key=lambda one: -one[1])[:10],
        "largest": [row(site, info) for info in largest if info.bytes],
    }


def health(site: Site, query: Query) -> dict[str, Any]:
    """Show what `hansard doctor` says, and on request what `hansard verify` says."""
    verified = site.store.verify() if "verify" in query else None
    reports = verified.sessions if verified else []
    diagnosis = site.store.diagnose()
    return {
        "diagnosis": diagnosis,
        "diagnostics": site.clean(diagnosis.diagnostics),
        "verified": verified,
        "findings": [
            {"session": site.clean(report.session), **site.clean(finding._asdict())}
            for report in reports
            for finding in report.findings
        ],
    }


# -- filters of the templates -------------------------------------------------------------------


def code(text: str) -> Markup:
    """Return a text as HTML, with what is between ticks as code."""
    escaped = html.escape(visible(text))
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", escaped))  # noqa: S704 - escaped


def money(amount: Decimal | str) -> str:
    """Return a cost; – for none. The store sums costs exactly."""
    return screen.money(Decimal(amount)) if Decimal(amount) else "–"


def clock(stamp: str) -> str:
    """Return the date and time of a stamp, in seconds."""
    return stamp[:19].replace("T", " ")


def span(seconds: float) -> str:
    """Return a duration in its largest units."""
    whole = int(seconds)
    for unit, name, smaller, other in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // smaller} {other}"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{seconds:.1f} s"  # noqa: PLR2004
