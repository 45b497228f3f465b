"""Convert items of OpenAI's Responses to common messages, and back.

Needs nothing of OpenAI's. A text or blocks with a role are the message's content; calls and their results
are written as in a chat; what a model thought, and hosted tools, are blocks. What no other framework can
read, such as an encrypted item, is a message that says nothing, with the item in its `origin`.
"""

from collections.abc import Mapping
from typing import Any, Final

from hansard.message import origin

FORMAT: Final = "openai-agents"

_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})

#: Kinds of items in which nothing is said that another could read.
_OPAQUE: Final = frozenset({"compaction", "item_reference"})


def message_of(item: Any) -> dict[str, Any]:
    """Return the message that an item is stored as."""
    if not isinstance(item, Mapping):
        raise TypeError(f"an item must be a dict, not {type(item).__name__}")
    native = dict(item)
    kind = native.get("type")
    role = native.get("role")
    if isinstance(role, str):
        return origin.pack(FORMAT, native, role=role, content=native.get("content", ""))
    if not isinstance(kind, str) or kind in _OPAQUE:
        return origin.pack(FORMAT, native, role="assistant", content="")
    call_id = native.get("call_id")
    if kind.endswith("_output") and isinstance(call_id, str):
        content = native.get("output", native.get("tools", ""))
        return origin.pack(FORMAT, native, role="tool", content=content, tool_call_id=call_id)
    if kind.endswith("_call") and isinstance(call_id, str):
        return origin.pack(FORMAT, native, role="assistant", content="", tool_calls=[_call(native)])
    if kind == "reasoning":
        thought = "\n".join(_texts(native.get("summary")) + _texts(native.get("content")))
        content = [{"type": "thinking", "thinking": thought}] if thought else ""
        return origin.pack(FORMAT, native, role="assistant", content=content)
    # A hosted tool, or what OpenAI thinks of next: all of it can be seen and found.
    return origin.pack(FORMAT, native, role="assistant", content=[native])


def items_of(message: dict[str, Any]) -> list[Any]:
    """Return the items that a stored message is: one, or of another framework's message any number."""
    item = item_of(message)
    if item is not None:
        return [item]
    found: list[Any] = []
    for said in origin.chat(message):
        if said["role"] == "tool":
            found.append(
                {
                    "type": "function_call_output",
                    "call_id": said["tool_call_id"],
                    "output": said["content"],
                }
            )
            continue
        if said["content"]:
            role = said["role"] if said["role"] in _ROLES else "user"
            found.append({"role": role, "content": said["content"]})
        found += [
            {"type": "function_call", "call_id": call["id"], **call["function"]}
            for call in said.get("tool_calls", ())
        ]
    return found


def item_of(message: dict[str, Any]) -> Any:
    """Return the item that a message was stored for; None if it is another framework's."""
    return origin.unpack(message, FORMAT, chat=True)


def _call(item: dict[str, Any]) -> dict[str, Any]:
    names = ("arguments", "input", "action", "operation")
    given: Any = next((item[name] for name in names if name in item), {})
    name = item.get("name") or item["type"].removesuffix("_call")
    return origin.call_of(item["call_id"], name, given)


def _texts(blocks: object) -> list[str]:
    if not isinstance(blocks, list):
        return []
    return [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and isinstance(block.get("text"), str) and block["text"]
    ]
