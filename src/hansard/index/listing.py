"""List sessions: filters, orders and pages.

A page begins after the last session of the previous page, by the sort key. A page token holds nothing else,
so it reveals nothing about sessions outside of a scoped store.
"""

import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from hansard.clock import stamp
from hansard.index import Page, SessionInfo
from hansard.index.sqlite_storage import Storage
from hansard.state.view import gc_paused
from hansard.workspace import Match, Workspace

#: More than any listing has: both databases take a limit, and not its absence as a value.
_UNLIMITED: Final = 1 << 62

#: The forks of this many sessions are counted by their parents' ids, those of more in one scan.
_FEW: Final = 500

#: The longest value among the metadata that is stored as it is; a longer one is found by its hash.
_LONGEST: Final = 200


#: The greatest number that a column can hold: a larger one sorts the same.
_GREATEST: Final = (1 << 63) - 1
#: What a listing can be sorted by: the column, and the value of a session.
ORDERS: Final[Mapping[str, tuple[str, Callable[[SessionInfo], Any]]]] = {
    "id": ("id", attrgetter("id")),
    "created": ("created", attrgetter("created_stamp")),
    "updated": ("updated", attrgetter("updated_stamp")),
    "title": ("title", lambda info: info.title or ""),
    "message_count": ("messages", attrgetter("message_count")),
    "bytes": ("bytes", attrgetter("bytes")),
    "tokens": ("tokens", lambda info: min(info.input_tokens + info.output_tokens, _GREATEST)),
    "cost": ("cost", lambda info: float(info.cost)),
}

#: Code points that no text has.
_SURROGATES: Final = 0xD800
_AFTER_SURROGATES: Final = 0xE000

decode_infos = msgspec.json.Decoder(SessionInfo).decode_lines


class SessionFilter(NamedTuple):
    """Filters of a listing; an unset field matches all sessions."""

    #: Only sessions of this scoped store; the number of children does not include others either.
    scope: str = ""
    #: Only ids that begin with this.
    prefix: str = ""
    #: Only sessions whose metadata have these values; None matches a missing key.
    where: Mapping[str, Any] = {}
    #: Only sessions whose last activity was at this time or later, and before this time.
    since: datetime | None = None
    until: datetime | None = None
    #: Only sessions whose title contains this, ignoring case.
    title: str = ""
    workspace: Match | None = None
    parent: str | None = None
    archived: bool | None = None
    damaged: bool | None = None
    held: bool | None = None

    def matches_id(self, session_id: str) -> bool:
        """Return whether an id begins with scope and prefix."""
        return session_id.startswith(self.scope) and session_id.startswith(self.prefix)


class _PageToken(msgspec.Struct, array_like=True):
    """The session after which a page begins, and the order."""

    order: str
    value: str | float
    id: str


_decode_token = msgspec.json.Decoder(_PageToken).decode


def check(filters: SessionFilter, order: str = "id", cursor: str | None = None) -> None:
    """Raise for wrong arguments: a later error is a sign of a damaged index."""
    _simple(filters)
    if str(order).removeprefix("-") not in ORDERS:
        raise ValueError(
            f"order must be one of {', '.join(ORDERS)}, with a prefix '-' for descending order, "
            f"got {order!r}"
        )
    if cursor is not None:
        _read_token(cursor, order)


def page(
    storage: Storage, filters: SessionFilter, *, order: str, limit: int | None, cursor: str | None
) -> Page:
    """Return some of the wanted sessions."""
    after = None if cursor is None else _read_token(cursor, order)
    conditions = clause(storage, filters)
    is_down = order[0] == "-"
    column, key = ORDERS[order.removeprefix("-")]
    if limit is None and after is None:
        # Sorted here: 10,000 in three quarters of the time that SQLite takes to look up each of them.
        joined = f" JOIN index_session s ON s.id = e.id{conditions.text}" if conditions.text else ""
        items = _infos(storage, f"SELECT e.info FROM index_entry e{joined}", conditions.values)  # noqa: S608 - values are apart
        items.sort(key=attrgetter("id"), reverse=is_down)
        items.sort(key=key, reverse=is_down)
        return Page(_with_children(storage, items, filters.scope), None)
    sign, direction = ("<", " DESC") if is_down else (">", "")
    if after is not None:
        conditions = conditions.plus(f"(s.{column}, s.id) {sign} (?, ?)", after.value, after.id)
    items = _infos(
        storage,
        "SELECT e.info FROM index_session s "  # noqa: S608 - as above
        f"JOIN index_entry e ON e.id = s.id{conditions.text} "
        f"ORDER BY s.{column}{direction}, s.id{direction} LIMIT ?",
        [*conditions.values, _UNLIMITED if limit is None else min(limit + 1, _UNLIMITED)],
    )
    token = None
    if limit is not None and len(items) > limit:
        items = items[:limit]
        raw = msgspec.json.encode(_PageToken(order, key(items[-1]), items[-1].id))
        token = urlsafe_b64encode(raw).decode().rstrip("=")
    return Page(_with_children(storage, items, filters.scope), token)


def _infos(storage: Storage, statement: str, values: Sequence[Any]) -> list[SessionInfo]:
    rows = storage.all(statement, *values)
    with gc_paused(len(rows)):
        return decode_infos("\n".join([info for (info,) in rows]))


def _with_children(storage: Storage, items: list[SessionInfo], scope: str) -> list[SessionInfo]:
    """Return sessions with the numbers of their forks, of those inside of the scope."""
    inside, values = within("s", SessionFilter(scope))
    parents = [info.id for info in items] if len(items) <= _FEW else []
    some = f"s.parent IN ({', '.join('?' * len(parents))})" if parents else "s.parent IS NOT NULL"
    counts = dict(
        storage.all(
            "SELECT s.parent, count(*) FROM index_session s JOIN index_session p ON p.id = s.parent "  # noqa: S608 - values are apart
            f"WHERE {some} AND s.parent_created IN ('', p.created) AND {inside} GROUP BY s.parent",
            *parents,
            *values,
        )
    )
    if not counts:
        return items
    return [
        msgspec.structs.replace(info, children=counts[info.id]) if info.id in counts else info
        for info in items
    ]


def count(storage: Storage, filters: SessionFilter) -> int:
    """Return how many sessions are wanted."""
    conditions = clause(storage, filters)
    ask = f"SELECT count(*) FROM index_session s{conditions.text}"  # noqa: S608 - values are apart
    return int(storage.one(ask, *conditions.values)[0])


def children(storage: Storage, parent: str, created: str) -> list[str]:
    """Return the ids of the forks of the session that was created then, sorted."""
    rows = storage.all(
        "SELECT id FROM index_session WHERE parent = ? AND parent_created IN ('', ?) ORDER BY id",
        parent,
        created,
    )
    return [session_id for (session_id,) in rows]


class _Conditions:
    """Conditions on rows, in SQL, and their values."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.values: list[Any] = []

    def plus(self, condition: str, *values: Any) -> "_Conditions":
        """Add one more; return all. Raises `UnicodeEncodeError` for a lone surrogate."""
        for value in values:
            if isinstance(value, str):
                value.encode()
        self._parts.append(condition)
        self.values += values
        return self

    @property
    def text(self) -> str:
        """The clause."""
        return " WHERE " + " AND ".join(self._parts) if self._parts else ""


def clause(storage: Storage, filters: SessionFilter) -> _Conditions:
    """Return the conditions on rows of `index_session s`."""
    found = _simple(filters)
    if filters.workspace is not None:
        # The file system says which of the recorded workspaces are the wanted one.
        pairs = [
            pair
            for pair in storage.all(
                "SELECT DISTINCT workspace, workspace_id FROM index_session "
                "WHERE workspace IS NOT NULL"
            )
            if filters.workspace(Workspace(pair[0], pair[1] or None))
        ]
        either = " OR ".join(["(s.workspace = ? AND s.workspace_id = ?)"] * len(pairs)) or "FALSE"
        found.plus(f"({either})", *(value for pair in pairs for value in pair))
    return found


def _simple(filters: SessionFilter) -> _Conditions:
    """Return the conditions that do not need the file system."""
    try:
        found = _Conditions()
        inside, values = within("s", filters)
        if values:
            found.plus(inside, *values)
        for key, value in filters.where.items():
            if value is None:
                found.plus("s.n NOT IN (SELECT n FROM index_label WHERE key = ?)", key)
            else:
                ask = "s.n IN (SELECT n FROM index_label WHERE key = ? AND value = ?)"
                found.plus(ask, key, label(value))
        for condition, wanted in (
            ("s.updated >= ?", None if filters.since is None else stamp(filters.since)),
            ("s.updated < ?", None if filters.until is None else stamp(filters.until)),
            ("replace(s.folded, ?, '') <> s.folded", filters.title.casefold() or None),
            ("s.parent = ?", filters.parent),
            ("s.archived = ?", filters.archived),
            ("s.damaged = ?", filters.damaged),
            ("s.held = ?", filters.held),
        ):
            if wanted is not None:
                found.plus(condition, wanted)
    except UnicodeEncodeError:
        # A lone surrogate: no session has it.
        return _Conditions().plus("FALSE")
    return found


def within(table: str, filters: SessionFilter) -> tuple[str, list[str]]:
    """Return the condition that ids begin with scope and prefix, and its values."""
    parts: list[str] = []
    values: list[str] = []
    for prefix in filter(None, (filters.scope, filters.prefix)):
        parts.append(f"{table}.id >= ?")
        values.append(prefix)
        end = after_prefix(prefix)
        if end is not None:
            parts.append(f"{table}.id < ?")
            values.append(end)
    return " AND ".join(parts) or "TRUE", values


def after_prefix(prefix: str) -> str | None:
    """Return the least text that is greater than all with a prefix; None if there is none."""
    for place in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[place]) + 1
        if code == _SURROGATES:
            code = _AFTER_SURROGATES
        if code <= sys.maxunicode:
            return prefix[:place] + chr(code)
    return None


def _read_token(text: str, order: str) -> _PageToken:
    """Return a page token; `ValueError` unless it is of this order."""
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        found = _decode_token(raw)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        found = None
    if found is not None and found.order != order:
        raise ValueError(
            f"this cursor is of a listing by {found.order!r}; continue in that order, not by {order!r}"
        )
    _, key = ORDERS[order.removeprefix("-")]
    # A server refuses to compare a column of texts with a number.
    if found is None or isinstance(found.value, str) != isinstance(key(SessionInfo("")), str):
        raise ValueError(f"invalid cursor {text!r:.60}; pass `next` of the previous page")
    return found


def label(value: object) -> str:
    """Return a value among the metadata as the text by which it is found; that of equal values is equal."""
    text = msgspec.json.encode(_plain(value), order="sorted")
    if len(text) <= _LONGEST:
        return text.decode()
    import hashlib

    return f"sha256 {hashlib.sha256(text).hexdigest()}"  # not JSON, so it equals no other value


def _plain(value: object) -> object:
    """Return a value in which equal numbers are the same ones."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
