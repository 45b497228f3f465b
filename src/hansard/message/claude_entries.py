"""Convert entries of a Claude Code transcript to events, and back.

Messages of the user and the model are stored in the common form (`origin`), all other entries as events of
the kind `x.claude.entry`. An entry is read back equal, with any content.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from hansard.errors import InvalidEvent
from hansard.event import codec
from hansard.event.event import Event
from hansard.message import origin, values

#: The format of these entries in `origin`.
FORMAT: Final = "claude-code"
#: The kind of the entries that are not messages.
ENTRY: Final = "x.claude.entry"

#: Input tokens that were read from a cache, were written to one, and the others.
_INPUT: Final = ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")


class Draft(NamedTuple):
    """An entry to append: kind and data, and its idempotency key, if it has one."""

    event: tuple[str, dict[str, Any]]
    key: str | None


class Titles(NamedTuple):
    """The last titles in some entries: the user's, and the model's."""

    given: str = ""
    made_up: str = ""


def session_id(prefix: str, project: str, session: str, subpath: str | None = None) -> str:
    """Return the id of a transcript's session; no two transcripts have the same."""
    own = f"{prefix}{values.escaped(project)}/{values.escaped(session)}"
    return own if subpath is None else f"{own}/{subpath}"


def draft(entry: dict[str, Any]) -> Draft:
    """Return what to append for an entry."""
    key = entry.get("uuid")
    try:
        codec.check_key(key)
    except InvalidEvent:
        key = None
    message = entry.get("message")
    if entry.get("type") in {"user", "assistant"} and isinstance(message, dict):
        role, content = message.get("role"), message.get("content")
        if isinstance(role, str) and isinstance(content, str | list):
            packed = origin.pack(FORMAT, entry, role=role, content=content)
            return Draft(("message.added", {"message": packed}), key)
    return Draft((ENTRY, values.wrap("entry", entry)), key)


def titles(entries: Iterable[Mapping[str, Any]]) -> Titles:
    """Return the last titles in some entries."""
    found = ["", ""]
    for entry in entries:
        for place, name in enumerate(("customTitle", "aiTitle")):
            title = entry.get(name)
            if isinstance(title, str) and "\0" not in title and values.is_json(title):
                found[place] = title
    return Titles(*found)


class UsageCounts:
    """The usage of a transcript's answers, by their ids.

    The entries of one answer repeat its usage, which grows: each adds the difference.
    """

    def __init__(self) -> None:
        self._known: dict[str, Counter[str]] = {}

    def new(self, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the usage to record for an entry; None if earlier ones have reported all of it."""
        message = entry.get("message")
        if entry.get("type") != "assistant" or not isinstance(message, Mapping):
            return None
        used, model = message.get("usage"), message.get("model")
        if not isinstance(used, Mapping):
            return None
        name = str(message.get("id") or entry.get("uuid"))
        if not isinstance(model, str) or model.startswith("<"):
            return None  # a message of the program, such as an error
        cached, written, rest = (_count(used.get(one)) for one in _INPUT)
        counts = Counter(
            input_tokens=cached + written + rest,
            output_tokens=_count(used.get("output_tokens")),
            cached_tokens=cached,
            cache_write_tokens=written,
        )
        before = self._known.get(name, Counter())
        new = counts - before  # only what is positive
        if not new:
            return None
        return {"model": model, **new, "response_id": name, **({"calls": 0} if before else {})}

    def add(self, recorded: Mapping[str, Any]) -> None:
        """Add what was recorded."""
        known = self._known.setdefault(str(recorded.get("response_id")), Counter())
        for name in ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens"):
            known[name] += _count(recorded.get(name))


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def entry(event: Event) -> dict[str, Any] | None:
    """Return the entry that an event stores; None if it stores none, or was redacted."""
    if event.kind == "message.added":
        message = event.message
        return None if message is None else origin.unpack(message, FORMAT)
    found = values.unwrap(event.data, "entry") if event.kind == ENTRY else None
    return found if isinstance(found, dict) else None


def entries(events: Iterable[Event], session_id: str) -> list[dict[str, Any]]:
    """Return the entries of a transcript, and messages of other writers as entries."""
    found: list[dict[str, Any]] = []
    last: str | None = None
    ids: dict[str, str] = {}
    for event in events:
        known = entry(event)
        more = _foreign(event, session_id, last, ids) if known is None else [known]
        found += more
        for one in more:
            name = one.get("uuid")
            if isinstance(name, str) and not one.get("isSidechain"):
                last = name
    return found


def _foreign(
    event: Event, session_id: str, last: str | None, ids: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the entries for a message that was not stored as one, or was redacted.

    `ids`: as for `origin.chat_with_ids`.
    """
    if event.kind != "message.added":
        return []
    found: list[dict[str, Any]] = []
    message = event.message
    if message is None and event.key is not None:
        # Later entries refer to a redacted one by its uuid.
        removed = {"type": "system", "subtype": "redacted", "content": "[redacted]", "isMeta": True}
        return [{**_frame(event, session_id, event.key, last), **removed}]
    chats = [] if message is None else origin.chat_with_ids(message, event.seq, ids)
    for place, chat in enumerate(chats):
        name = str(uuid.uuid5(uuid.NAMESPACE_URL, f"hansard:{session_id}:{event.seq}:{place}"))
        found.append({**_frame(event, session_id, name, last), **_entry_of(chat)})
        last = name
    return found


def _frame(event: Event, session_id: str, name: str, last: str | None) -> dict[str, Any]:
    return {
        "uuid": name,
        "parentUuid": last,
        "timestamp": event.stamp,
        "sessionId": session_id.rpartition("/")[2],
        "isSidechain": False,
    }


def _entry_of(chat: origin.Message) -> dict[str, Any]:
    """Return the type and the message of an entry for a message of a chat."""
    role, content = chat["role"], chat["content"]
    if role not in {"user", "assistant", "tool"}:
        return {"type": "system", "subtype": role, "content": content}
    if role == "tool":
        answered = {"type": "tool_result", "tool_use_id": chat["tool_call_id"]}
        role, content = "user", [{**answered, "content": content}]
    elif role == "assistant":
        content = [{"type": "text", "text": content}] if content else []
        for call_id, tool, given in origin.calls_of(chat):
            content.append({"type": "tool_use", "id": call_id, "name": tool, "input": given})
    return {"type": role, "message": {"role": role, "content": content}}
