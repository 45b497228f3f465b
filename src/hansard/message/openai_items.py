"""Convert items of OpenAI's Responses to common messages, and back.

Imports nothing of OpenAI. Text or blocks with a role become the message's content; calls and results are
written as in a chat; reasoning and hosted tools are blocks. An item that no other framework can read, such as
an encrypted one, is an empty message with the item in its `origin`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from hansard.message import origin

FORMAT: Final = "openai-agents"

_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
#: Types of items that hold nothing for other readers.
_OPAQUE: Final = frozenset({"compaction", "item_reference"})
_ARGUMENTS: Final = ("arguments", "input", "action", "operation")

ChatOf = Callable[[Mapping[str, Any]], list[origin.Message]]


def message_of(item: Any) -> dict[str, Any]:
    """Return the message that an item is stored as."""
    if not isinstance(item, Mapping):
        raise TypeError(f"an item must be a dict, not {type(item).__name__}")
    native = dict(item)
    kind, role, call_id = native.get("type"), native.get("role"), native.get("call_id")
    more: dict[str, Any] = {}
    # A hosted tool, or a type that is still unknown: readers and the search see all of it.
    content: Any = [native]
    if isinstance(role, str):
        content = native.get("content", "")
    elif not isinstance(kind, str) or kind in _OPAQUE:
        content = ""
    elif kind.endswith("_output") and isinstance(call_id, str):
        role, content = "tool", native.get("output", native.get("tools", ""))
        more = {"tool_call_id": call_id}
    elif kind.endswith("_call") and isinstance(call_id, str):
        given: Any = next((native[name] for name in _ARGUMENTS if name in native), {})
        name = native.get("name") or kind.removesuffix("_call")
        content, more = "", {"tool_calls": [origin.call_of(call_id, name, given)]}
    elif kind == "reasoning":
        thought = "\n".join(_texts(native.get("summary")) + _texts(native.get("content")))
        content = [{"type": "thinking", "thinking": thought}] if thought else ""
    role = role if isinstance(role, str) else "assistant"
    return origin.pack(FORMAT, native, role=role, content=content, **more)


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


def _texts(blocks: object) -> list[str]:
    return [
        block["text"]
        for block in (blocks if isinstance(blocks, list) else ())
        if isinstance(block, dict) and isinstance(block.get("text"), str) and block["text"]
    ]
