"""One stored shape for the messages of all frameworks.

A framework's own item is stored as a message that every framework can read: `role`, `content`, and
`tool_calls` or `tool_call_id` as in a chat. What else the item has is in `origin`, so that its own framework
gets it back equal:

    {"role": "tool", "tool_call_id": "c1", "content": "18 °C",
     "origin": {"format": "openai-agents", "from": {"/output": "/content"},
                "item": {"type": "function_call_output", "call_id": "c1"}}}

`from` says which parts of the item are taken from the message, both as JSON pointers (RFC 6901): what was
said is stored once. With `json:` before it, a pointer means the value that a text is as JSON: a chat has the
arguments of a call so, and most frameworks have them as an object. `pack` and `unpack` are inverses. An item
that is not JSON (NaN, bytes, numbers as keys …) is in `origin` as `values.to_json` writes it, with
`"encoded": true`, and the rest of the message shows what can be read of it.

`plain`, `chat` and `conversation` are how one framework reads what another wrote. The search reads what is
outside of `origin`.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from hansard.message import values
from hansard.message.parse import REST, MessagePart, ParsedMessage, Shape, origin_of, parse

Message = dict[str, Any]

_ORIGIN: Final = "origin"

#: Before a pointer: its target is JSON in a text.
_AS_JSON: Final = "json:"

#: A shorter text takes less space than the two pointers that would replace it.
_WORTH: Final = 24

#: What a model thinks is its own: no other framework is told.
_THOUGHTS: Final = frozenset({"reasoning", "thinking", "redacted_thinking", "reasoningContent"})


# -- there and back -----------------------------------------------------------------------------


def pack(format: str, native: Message, *, role: str, content: Any, **more: Any) -> Message:
    """Return the message that a framework's own item is stored as.

    An item that is nothing but a role and a text is the message itself, and needs no origin.

    Args:
        format: the framework's name for its items, such as "openai-agents".
        native: the item; `InvalidEvent` if it holds what `values.to_json` does not know.
        role: who speaks: "user", "assistant", "tool", "system" …
        content: what is said: a text, or a list of blocks in a shape that `chat` knows. None: nothing.
        more: `tool_calls`, `tool_call_id`, or whatever else all readers should see. None: no such member.
    """
    if _ORIGIN in more:
        raise TypeError("`origin` is what pack makes; it cannot be given")
    message = {"role": role, "content": content}
    message.update((name, value) for name, value in more.items() if value is not None)
    if not values.is_json(native) or not values.is_json(message):
        encoded: Message = {"format": format, "item": values.to_json(native), "encoded": True}
        return {**values.readable(message), _ORIGIN: encoded}
    if is_plain(native) and _same(native, message):
        return {"role": role, "content": content}
    taken: dict[str, str] = {}
    if isinstance(content, list) and len(content) == 1 and _same(native, content[0]):
        rest, taken = {}, {"": "/content/0"}
    else:
        rest = _without(native, "", _Sources(message), taken)
    origin: Message = {"format": format, "item": rest}
    if taken:
        origin["from"] = taken
    return {**_copied(message), _ORIGIN: origin}


def unpack(message: Message, format: str, *, chat: bool = False) -> Message | None:
    """Return the item that a message was packed from; None if it was not packed in this format.

    Args:
        message: as it was stored.
        format: the requested format.
        chat: items of this format may be nothing but a role and a text: such a message is one.
    """
    origin = origin_of(message)
    if origin is None:
        return _copied(message) if chat and is_plain(message) else None
    if origin["format"] != format:
        return None
    native = _copied(origin["item"])
    try:
        if origin.get("encoded"):
            native = values.from_json(native)
        for target, source in origin.get("from", {}).items():
            value = _taken(message, source)
            if not target:
                native = value  # the item is a block of the message
                continue
            holder, _, name = target.rpartition("/")
            place = _found(native, holder)
            place[int(name) if isinstance(place, list) else _unescaped(name)] = value
    except (AttributeError, LookupError, TypeError, ValueError):
        return None  # not made by `pack`: the caller's own member
    return native if isinstance(native, dict) else None


def is_plain(message: Mapping[str, Any]) -> bool:
    """Return whether a message is a role and a text, and nothing else."""
    return (
        message.keys() == {"role", "content"}
        and isinstance(message["role"], str)
        and isinstance(message["content"], str)
    )


class _Sources:
    """What may be taken from a message: its texts, its members, and arguments that are JSON in a text."""

    def __init__(self, message: Message) -> None:
        self._texts: dict[str, str] = {}
        self._values = [(f"/{_escaped(name)}", value) for name, value in message.items()]
        for pointer, text in _texts(message, ""):
            if len(text) >= _WORTH or (pointer == "/content" and text):
                self._texts.setdefault(text, pointer)
            if len(text) >= _WORTH and pointer.endswith("/arguments"):
                with contextlib.suppress(ValueError, RecursionError):
                    self._values.append((_AS_JSON + pointer, json.loads(text)))

    def find(self, value: object) -> str | None:
        """Return the pointer to an equal value in the message."""
        if isinstance(value, str):
            return self._texts.get(value)
        if isinstance(value, dict | list) and value:
            return next((pointer for pointer, one in self._values if _same(value, one)), None)
        return None


def _texts(value: object, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield pointer, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, f"{pointer}/{_escaped(name)}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _texts(inner, f"{pointer}/{place}")


def _without(value: Any, pointer: str, sources: _Sources, taken: dict[str, str]) -> Any:
    """Return a copy of a part of an item without what the message has too, which is noted in `taken`."""
    if isinstance(value, dict):
        rest = {}
        for name, inner in value.items():
            inside = f"{pointer}/{_escaped(name)}"
            source = sources.find(inner)
            if source is None:
                rest[name] = _without(inner, inside, sources, taken)
            else:
                taken[inside] = source
        return rest
    if isinstance(value, list):
        kept = []
        for place, inner in enumerate(value):
            inside = f"{pointer}/{place}"
            source = sources.find(inner)
            if source is None:
                kept.append(_without(inner, inside, sources, taken))
            else:
                taken[inside] = source
                kept.append(None)  # so that the others keep their places
        return kept
    return value


def _copied(value: Any) -> Any:
    """Return a copy of JSON, in a fifth of the time of `deepcopy`, which looks for more than JSON has."""
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(inner) for inner in value]
    return value


def _same(one: object, other: object) -> bool:
    """Return whether two values are the same JSON: for Python, 1 is True and 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    # A zero has a sign, which is told apart by how it is written.
    return one == other and (not isinstance(one, float) or repr(one) == repr(other))


def _taken(message: Message, source: str) -> Any:
    """Return what an item takes from its message."""
    if source.startswith(_AS_JSON):
        return json.loads(_found(message, source.removeprefix(_AS_JSON)))
    return _copied(_found(message, source))


def _found(value: Any, pointer: str) -> Any:
    """Return what a JSON pointer points to."""
    for name in pointer.split("/")[1:]:
        value = value[int(name)] if isinstance(value, list) else value[_unescaped(name)]
    return value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unescaped(name: str) -> str:
    return name.replace("~1", "/").replace("~0", "~")


# -- what any framework can read ----------------------------------------------------------------


def plain(message: Mapping[str, Any]) -> Message:
    """Return a message as a chat has it: `role`, `content` as text, `tool_calls`, `tool_call_id`.

    A message that answers several calls at once is more than one in a chat: see `chat`. This returns the
    first, or what else is said.
    """
    found = chat(message)
    return next((one for one in found if one["role"] != "tool"), found[0])


def chat(message: Mapping[str, Any]) -> list[Message]:
    """Return a message as those of a chat: answers of tools, one by one, then what else is said.

    What is not text is named in brackets. What a model thought is left out, and so are calls that a framework
    could not read, and what the provider's own tools found.
    """
    parsed = parse({key: message[key] for key in message if key != "invalid_tool_calls"})
    results: list[Message] = []
    calls: list[Message] = []
    texts: list[str] = []
    for part in parsed.parts:
        if part.kind in {"call", "result"} and _is_hosted(message, part):
            texts.append(f"[{part.name}]" if part.kind == "call" and part.call_id else "")
        elif part.kind == "result":
            text = content_text(part.value)
            results.append({"role": "tool", "tool_call_id": part.call_id, "content": text})
        elif part.kind == "call":
            given = {} if part.value is None else part.value
            calls.append(call_of(part.call_id, part.name.strip("?"), given))
        elif part.kind == "text":
            texts.append(part.value)
        elif part.kind == "data" and part.name != REST:
            is_content = part.value is message.get("content")
            texts.append((content_text if is_content else _block_text)(part.value))
    content = "\n".join(filter(None, texts))
    if results and not content and not calls:
        return results
    said: Message = {"role": _role(message, parsed), "content": content}
    return [*results, {**said, "tool_calls": calls} if calls else said]


def _is_hosted(message: Mapping[str, Any], part: MessagePart) -> bool:
    """Return whether the provider runs a tool itself, and no other can answer the call."""
    if part.shape in {Shape.SERVER_BLOCK, Shape.SERVER_PART}:
        return True
    return not part.call_id and str(message.get("type")).endswith("_call")


def _role(message: Mapping[str, Any], parsed: ParsedMessage) -> str:
    if isinstance(message.get("role"), str) or parsed.role in {"user", "assistant", "system"}:
        return parsed.role
    return "assistant" if parsed.role == "model" or "type" in message else "user"


def conversation(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Return stored messages as a chat that every provider accepts.

    What a model said in a row, such as a text and several calls, becomes one message. One that says nothing
    is left out.
    """
    found: list[Message] = []
    for message in messages:
        for one in chat(message):
            last = found[-1] if found else None
            if one["role"] == "assistant" and not one["content"] and "tool_calls" not in one:
                continue
            if (
                last is not None
                and last["role"] == one["role"] == "assistant"
                and ("tool_calls" in one or "tool_calls" in last)
            ):
                last["content"] = "\n".join(filter(None, (last["content"], one["content"])))
                last["tool_calls"] = last.get("tool_calls", []) + one.get("tool_calls", [])
            else:
                found.append(one)
    return found


def call_of(call_id: str | None, name: str, given: object) -> Message:
    """Return a call as a chat has it; arguments that are not a string are written as JSON."""
    arguments = given if isinstance(given, str) else values.as_text(given)
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def arguments_of(call: Message) -> dict[str, Any]:
    """Return the arguments of a call as an object, whatever they are."""
    text = call["function"]["arguments"]
    try:
        found = json.loads(text)
    except ValueError:
        return {"text": text}
    return found if isinstance(found, dict) else {"value": found}


def content_text(content: object) -> str:
    """Return a message's content as text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(_block_text, content)))
    return values.as_text(content)


def _block_text(block: object) -> str:
    if not isinstance(block, dict):
        return content_text(block)
    kind = block.get("type")
    if kind in _THOUGHTS or (kind is None and not _THOUGHTS.isdisjoint(block)):
        return ""
    for name in ("text", "refusal"):
        if isinstance(block.get(name), str):
            return str(block[name])
    if "json" in block:
        return values.as_text(block["json"])
    if isinstance(kind, str) and kind:
        return f"[{kind}]"
    # Bedrock names a block by its only member.
    return f"[{next(iter(block))}]" if len(block) == 1 else values.as_text(block)
