"""The conversation in a thread of LangGraph, out of what its checkpoints hold, without LangChain.

Above: `langgraph`.  Below: `adapters.values`.
What the adapter adds to a session as messages, `adapters.langgraph_records.Said`, this finds in what
LangGraph's serializer wrote: so the marks are the same, and the adapter goes on where the import ended.
"""

from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from hansard.adapters.values import as_json, as_text

#: The channel whose messages are mirrored.
MIRRORED: Final = "messages"

#: Codes of LangGraph's extensions of MessagePack: what pydantic makes (1 and 2), and a list that is stored
#: as what was added to it.
_MODELS: Final = frozenset({4, 5})
_SNAPSHOT: Final = 7
#: Such a model is its module, its class, and its members.
_MEMBERS: Final = 2

_ROLES: Final = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}

_encode = msgspec.json.Encoder(order="sorted").encode


class Said(NamedTuple):
    """What a checkpoint adds: how many messages stay, what is new, its marks, and where it goes back to."""

    kept: int
    messages: list[dict[str, Any]]
    marks: list[str]
    back: int | None


class Mirror:
    """The messages of a thread that are part of the conversation so far."""

    def __init__(self) -> None:
        #: What each is known by, and after how many items it stands, itself among them.
        self._known: list[tuple[str, int]] = []

    def said(self, value: Any, written: list[tuple[Any, ...]]) -> Said | None:
        """Return what a new value of the channel, or what was written to it, adds; None if nothing does.

        Args:
            value: the channel's value; None if only what was written is stored of it.
            written: rows of the table `writes`, of the checkpoint before.
        """
        if value is None:
            mine = [row for row in written if row[3] == MIRRORED]
            rows = sorted(mine, key=lambda row: (row[1], row[0], row[2]))
            natives = [one for row in rows for one in _listed(_decoded(row[4], row[5]))]
        else:
            natives = _listed(value)
        messages = [message for native in natives if (message := _message(native)) is not None]
        marks = [blake2b(_encode(one), digest_size=16).hexdigest() for one in messages]
        if value is None:
            kept, common = len(self._known), 0
        else:
            common = 0
            while (
                common < min(len(marks), len(self._known))
                and marks[common] == self._known[common][0]
            ):
                common += 1
            kept = common
        back = None
        if kept < len(self._known):
            back = self._known[kept - 1][1] if kept else self._known[0][1] - 1
        new = messages[common:]
        return Said(kept, new, marks[common:], back) if new or back is not None else None

    def placed(self, said: Said, items: int) -> None:
        """Note that what was said stands behind so many items."""
        del self._known[said.kept :]
        self._known += [(mark, items + place) for place, mark in enumerate(said.marks, start=1)]


def _decoded(kind: object, content: bytes | None) -> Any:
    try:
        return (msgspec.json if kind == "json" else msgspec.msgpack).decode(content or b"")
    except (msgspec.MsgspecError, ValueError):
        return None


def _listed(value: Any) -> list[Any]:
    if isinstance(value, msgspec.msgpack.Ext) and value.code == _SNAPSHOT:
        value = _decoded("msgpack", bytes(value.data))
    return value if isinstance(value, list) else [value]


def _message(native: Any) -> dict[str, Any] | None:
    """Return a message as everybody reads it; None if it is none."""
    given = _model(native)
    if given is None:
        if isinstance(native, dict) and isinstance(native.get("role"), str) and "content" in native:
            return dict(as_json(native))
        return None
    kind, content = given.get("type"), given.get("content")
    if not isinstance(kind, str) or kind == "remove":
        return None
    message: dict[str, Any] = {"role": _ROLES.get(kind, kind), "content": content}
    calls = given.get("tool_calls")
    if isinstance(calls, list) and calls:
        message["tool_calls"] = [_call(call) for call in calls if isinstance(call, dict)]
    for name in ("tool_call_id", "name"):
        if isinstance(given.get(name), str):
            message[name] = given[name]
    return dict(as_json(message))


def _model(native: Any) -> dict[str, Any] | None:
    """Return the members of a message of LangChain's; None if it is none."""
    given: Any = None
    if isinstance(native, msgspec.msgpack.Ext) and native.code in _MODELS:
        told = _decoded("msgpack", bytes(native.data))
        if (
            isinstance(told, list)
            and len(told) > _MEMBERS
            and str(told[0]).startswith("langchain_core.messages")
        ):
            given = told[_MEMBERS]
    elif isinstance(native, dict) and native.get("lc") and isinstance(native.get("id"), list):
        given = native.get("kwargs")
    return given if isinstance(given, dict) else None


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = {"name": call.get("name"), "arguments": as_text(call.get("args"))}
    return {"id": call.get("id") or "", "type": "function", "function": function}
