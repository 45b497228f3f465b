"""What an entry of a Claude Code transcript is in a session's log, and back.

What was said, by the user or the model, is a message that every framework can read (`origin`); everything
else in a transcript is an event of the kind `x.claude.entry`. An entry comes back equal, whatever it holds.
"""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from hansard.event.event import Event
from hansard.message import origin, values

#: The name of these entries among the origins of messages.
FORMAT: Final = "claude-code"

#: The kind of the entries that are not messages.
ENTRY: Final = "x.claude.entry"

_LONGEST_KEY: Final = 1024


class Draft(NamedTuple):
    """An entry, ready to be appended: kind and data, and its key, if it has one."""

    event: tuple[str, dict[str, Any]]
    key: str | None


class Titles(NamedTuple):
    """The last titles among some entries: one that a person gave, and one that a model made up."""

    given: str = ""
    made_up: str = ""


# -- there --------------------------------------------------------------------------------------


def draft(entry: dict[str, Any]) -> Draft:
    """Return what is to be appended for an entry."""
    key = entry.get("uuid")
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY or not _is_text(key):
        key = None
    message = _message(entry)
    if message is None:
        return Draft((ENTRY, values.wrap("entry", entry)), key)
    return Draft(("message.added", {"message": message}), key)


def _message(entry: dict[str, Any]) -> origin.Message | None:
    """Return the message that an entry is; None if it is none."""
    said = entry.get("message")
    if entry.get("type") not in {"user", "assistant"} or not isinstance(said, dict):
        return None
    role, content = said.get("role"), said.get("content")
    if not isinstance(role, str) or not isinstance(content, str | list):
        return None
    return origin.pack(FORMAT, entry, role=role, content=content)


def _is_text(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def titles(entries: Iterable[Mapping[str, Any]]) -> Titles:
    """Return the titles that some entries give."""
    found = Titles()
    for entry in entries:
        given, made_up = entry.get("customTitle"), entry.get("aiTitle")
        if isinstance(given, str) and _is_text(given):
            found = found._replace(given=given)
        if isinstance(made_up, str) and _is_text(made_up):
            found = found._replace(made_up=made_up)
    return found


# -- and back -----------------------------------------------------------------------------------


def entry(event: Event) -> dict[str, Any] | None:
    """Return the entry that an event is; None if it is none, or was redacted."""
    if event.kind == "message.added":
        message = event.message
        return None if message is None else origin.unpack(message, FORMAT)
    if event.kind != ENTRY:
        return None
    found = values.unwrap(event.data, "entry")
    return found if isinstance(found, dict) else None


def entries(events: Iterable[Event], session_id: str) -> list[dict[str, Any]]:
    """Return the entries of a transcript, and in their shape what others have said in it."""
    found: list[dict[str, Any]] = []
    last: str | None = None
    for event in events:
        known = entry(event)
        more = _others(event, session_id, last) if known is None else [known]
        found += more
        for one in more:
            name = one.get("uuid")
            if isinstance(name, str) and not one.get("isSidechain"):
                last = name
    return found


def _others(event: Event, session_id: str, last: str | None) -> list[dict[str, Any]]:
    """Return what an event is in a transcript that was not written as one of its entries."""
    if event.kind != "message.added":
        return []
    message = event.message
    if message is None:
        if event.key is None:
            return []
        # Redacted: nothing of it is left but its name, by which what came after refers to it.
        gone = {"type": "system", "subtype": "redacted", "content": "[redacted]", "isMeta": True}
        return [{**_frame(event, session_id, event.key, last), **gone}]
    found = []
    for place, one in enumerate(origin.chat(message)):
        name = str(uuid.uuid5(uuid.NAMESPACE_URL, f"hansard:{session_id}:{event.seq}:{place}"))
        found.append({**_frame(event, session_id, name, last), **_said(one)})
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


def _said(message: origin.Message) -> dict[str, Any]:
    """Return what a message of a chat says, as an entry says it."""
    role, text = message["role"], message["content"]
    if role == "tool":
        blocks = [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text}]
        return {"type": "user", "message": {"role": "user", "content": blocks}}
    if role not in {"user", "assistant"}:
        return {"type": "system", "subtype": role, "content": text}
    if role == "user":
        return {"type": "user", "message": {"role": "user", "content": text}}
    blocks = [{"type": "text", "text": text}] if text else []
    for call in message.get("tool_calls", ()):
        named = {"id": call["id"], "name": call["function"]["name"]}
        blocks.append({"type": "tool_use", **named, "input": origin.arguments_of(call)})
    return {"type": "assistant", "message": {"role": "assistant", "content": blocks}}
