"""Repair a list of messages so that the providers of models accept it.

The rules are those of OpenAI's chat and Responses, Anthropic and Google. Calls have results
(`tool_calls.repair`), and no message is empty. Reasoning comes only before what it led to, and a user and a
model alternate. The caller chooses the first message: see `window`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from hansard.message import tool_calls
from hansard.message.parse import LABELS, parse, role_of

Message = dict[str, Any]

#: Members of a block that has only a text.
_TEXT_BLOCK: Final = frozenset({"type", "text", "cache_control", "annotations"})
#: Types of the calls that a message may hold; a chat's may lack it.
_CALLS: Final = frozenset({"function", "custom", "tool_use"})
#: Types of the blocks that may not end a message of Anthropic's.
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
#: Members of a message in which two neighbors of the same role may differ.
_JOINED: Final = frozenset({"content", "parts", "tool_calls"})
#: Members that programs add to an unfinished message, and that are not content.
_NOT_CONTENT: Final = LABELS | {"origin", "partial"}


def accepted(messages: Sequence[Message]) -> list[Message]:
    """Return messages that providers accept; the given ones are not changed."""
    full = [message for _, message in filled(enumerate(messages))]
    found: list[Message] = []
    for message in _without_lone_reasoning(tool_calls.repair(full)):
        if found and _may_join(found[-1], message):
            found[-1] = _join(found[-1], message)
        else:
            found.append(message)
    return found


def filled(view: Iterable[tuple[int, Message]]) -> Iterator[tuple[int, Message]]:
    """Yield messages, each with its seq, without empty texts and repeated calls; leave out empty ones."""
    for seq, message in view:
        changed = message
        for holder in ("content", "parts", "tool_calls"):
            held = message.get(holder)
            if isinstance(held, list):
                kept = [block for block in held if not _is_blank(block)]
                kept = kept if holder == "parts" else _unique(kept)
                if len(kept) < len(held):
                    changed = changed | {holder: kept}
        if changed.get("partial") is True and isinstance(changed.get("tool_calls"), list):
            # The model never finished a call that was cut off.
            changed = changed | {"tool_calls": [*filter(_is_complete, changed["tool_calls"])]}
        if changed.get("tool_calls") == []:
            changed = {name: value for name, value in changed.items() if name != "tool_calls"}
        if not _is_empty(changed):
            yield seq, changed


def _is_empty(message: Message) -> bool:
    """Return whether a message with a role has no content to send."""
    content = message.get("content")
    if isinstance(content, str) and content.strip():
        return False
    if not isinstance(message.get("role"), str) or message.get("type", "message") != "message":
        return False
    parsed = parse(message)
    return not parsed.rest.keys() - _NOT_CONTENT and all(
        part.kind == "text" and not part.text.strip() for part in parsed.parts
    )


def _is_complete(call: Any) -> bool:
    try:
        msgspec.json.decode(call["function"]["arguments"])
    except (LookupError, TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return False
    return bool(call.get("id"))


def _is_blank(block: object) -> bool:
    if not isinstance(block, Mapping) or not block.keys() <= _TEXT_BLOCK:
        return False
    text = block.get("text")
    return isinstance(text, str) and not text.strip()


def _unique(blocks: list[Any]) -> list[Any]:
    """Leave out calls that repeat the id of an earlier call in the same message."""
    ids = [_call_id(block) for block in blocks]
    return [
        block
        for place, block in enumerate(blocks)
        if ids[place] is None or ids[place] not in ids[:place]
    ]


def _call_id(block: object) -> str | None:
    if not isinstance(block, Mapping) or block.get("type", "function") not in _CALLS:
        return None
    call_id = block.get("id")
    return call_id if isinstance(call_id, str) else None


def _without_lone_reasoning(messages: Sequence[Message]) -> list[Message]:
    """Leave out reasoning that led to nothing: items of OpenAI's, and last blocks of Anthropic's messages."""
    found: list[Message] = []
    follows = False
    for message in reversed(messages):
        kept = message if follows else _without_last_thinking(message)
        if kept is not None:
            follows = role_of(message) == "assistant"
            found.append(kept)
    return found[::-1]


def _without_last_thinking(message: Message) -> Message | None:
    content = message.get("content")
    if message.get("type") == "reasoning":
        return None
    if not isinstance(content, list) or role_of(message) != "assistant" or "tool_calls" in message:
        return message
    thinks = [isinstance(block, Mapping) and block.get("type") in _THINKING for block in content]
    if not any(thinks[-1:]):
        return message
    end = next((at for at in range(len(content), 0, -1) if not thinks[at - 1]), 0)
    return message | {"content": content[:end]} if end else None


def _may_join(one: Message, other: Message) -> bool:
    """Return whether two neighbors have the same role, and nothing else that must stay apart."""
    if (
        "type" in one
        or one.get("role") not in ("user", "assistant", "model")
        or "tool_calls" in one
        or tool_calls.only_answers(one)
    ):
        return False
    return all(
        one.get(name) == other.get(name) for name in (one.keys() | other.keys()) - _JOINED
    ) and ("parts" in one) == ("parts" in other)


def _join(one: Message, other: Message) -> Message:
    joined = {**one, **other}
    first, second = one.get("content"), other.get("content")
    if isinstance(first, str) and isinstance(second, str):
        joined["content"] = f"{first}\n\n{second}"
    elif "content" in joined:
        joined["content"] = [*tool_calls.blocks(first), *tool_calls.blocks(second)] or None
    if "parts" in one:
        joined["parts"] = [*one["parts"], *other["parts"]]
    return joined
