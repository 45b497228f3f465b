"""Convert items of OpenAI's Responses to common messages, and back.

Imports nothing of OpenAI. Text or blocks with a role become the message's content; calls and results are
written as in a chat; reasoning and hosted tools are blocks. An item that no other framework can read, such as
an encrypted one, is an empty message with the item in its `origin`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from hansard.message import origin
from hansard.message.parse import HIDDEN, ContentPart, parse

FORMAT: Final = "openai-agents"

_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
#: Types of items that hold nothing for other readers.
_OPAQUE: Final = frozenset({"compaction", "item_reference"})

ChatOf = Callable[[Mapping[str, Any]], list[origin.Message]]


def message_of(item: Any) -> dict[str, Any]:
    """Return the message that an item is stored as."""
    if not isinstance(item, Mapping):
        raise TypeError(f"an item must be a dict, not {type(item).__name__}")
    native = dict(item)
    kind, role = native.get("type"), native.get("role")
    if isinstance(role, str):
        return origin.pack(FORMAT, native, role=role, content=native.get("content", ""))
    if not isinstance(kind, str) or kind in _OPAQUE:
        return origin.pack(FORMAT, native, role="assistant", content="")
    part = next(iter(parse(native).parts), ContentPart("data", None))
    if part.kind == "result" and part.call_id:
        content = "" if part.value is None else part.value
        return origin.pack(FORMAT, native, role="tool", content=content, tool_call_id=part.call_id)
    # A hosted tool, or a type that is still unknown: readers and the search see all of it.
    content, calls = [native], None
    if part.kind == "call" and part.call_id:
        given = {} if part.value is None else part.value
        content, calls = "", [origin.call_of(part.call_id, part.name, given)]
    elif part.kind == "thinking":
        hidden = part.value == HIDDEN
        content = "" if hidden else [{"type": "thinking", "thinking": part.value}]
    return origin.pack(FORMAT, native, role="assistant", content=content, tool_calls=calls)


def items_of(message: dict[str, Any], chat_of: ChatOf = origin.chat) -> list[Any]:
    """Return the items of a stored message: one, or any number if another framework stored it.

    `chat_of`: returns the chat messages of the latter.
    """
    item = origin.unpack(message, FORMAT, chat=True)
    if item is not None:
        return [item]
    found: list[Any] = []
    for chat in chat_of(message):
        if chat["role"] == "tool":
            answered = {"type": "function_call_output", "call_id": chat["tool_call_id"]}
            found.append({**answered, "output": chat["content"]})
            continue
        if chat["content"]:
            role = chat["role"] if chat["role"] in _ROLES else "user"
            found.append({"role": role, "content": chat["content"]})
        found += [
            {"type": "function_call", "call_id": call["id"], **call["function"]}
            for call in chat.get("tool_calls", ())
        ]
    return found
