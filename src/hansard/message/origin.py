"""One stored shape for the messages of all frameworks.

A framework's item is stored as a message that every framework can read: `role`, `content`, and `tool_calls`
or `tool_call_id` as in a chat. `origin` holds the rest of the item; its framework gets an equal one back:

    {"role": "tool", "tool_call_id": "c1", "content": "18 °C",
     "origin": {"format": "openai-agents", "from": {"/output": "/content"},
                "item": {"type": "function_call_output", "call_id": "c1"}}}

`from` maps places in the item to places in the message, both as JSON pointers (RFC 6901): each text is stored
once. `json:` before a pointer means the value of a string that is JSON. A chat has the arguments of a call as
such a string, and most frameworks have them as an object. `pack` and `unpack` are inverses. An item that is
not JSON is stored as `values.to_json` encodes it, with `"encoded": true`; the rest stays readable.

`chat` and `conversation` convert messages for other frameworks. The search ignores `origin`.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec

from hansard.event import codec
from hansard.message import values
from hansard.message.parse import REST, ROLES, ContentPart, ParsedMessage, Shape, origin_of, parse
from hansard.message.values import compact

Message = dict[str, Any]

#: Before a pointer: its target is a string of JSON.
_AS_JSON: Final = "json:"
#: Maximum count that an event of usage takes: `kinds.MOST`.
_MOST: Final = 10**12
#: What reading back an item raises if `pack` did not create it.
_NOT_PACKED: Final = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    msgspec.MsgspecError,
)
#: A shorter string takes less space than the two pointers that would replace it.
_WORTH: Final = 24


def pack(format: str, native: Message, *, role: str, content: Any, **more: Any) -> Message:
    """Return the message that a framework's item is stored as.

    An item of only a role and a string is the message itself, and needs no origin.

    Args:
        format: the framework's name for its items, such as "openai-agents".
        native: the item; `InvalidEvent` if `values.to_json` refuses it.
        role: "user", "assistant", "tool", "system" …
        content: a string, a list of blocks in a shape that `chat` knows, or None.
        more: `tool_calls`, `tool_call_id`, and other members for all readers; None: no such member.
    """
    if "origin" in more:
        raise TypeError("pack creates `origin`; it cannot be given")
    message = {"role": role, "content": content}
    message.update((name, value) for name, value in more.items() if value is not None)
    if not values.is_json(native) or not values.is_json(message):
        encoded: Message = {"format": format, "item": values.to_json(native), "encoded": True}
        return {**values.readable(message), "origin": encoded}
    if is_plain(native) and _same(native, message):
        return {"role": role, "content": content}
    taken: dict[str, str] = {}
    if isinstance(content, list) and len(content) == 1 and _same(native, content[0]):
        rest, taken = {}, {"": "/content/0"}
    else:
        rest = _without(native, "", _finder(message), taken)
    origin: Message = {"format": format, "item": rest}
    if taken:
        origin["from"] = taken
    return {**msgspec.to_builtins(message), "origin": origin}


def unpack(message: Mapping[str, Any], format: str, *, chat: bool = False) -> Message | None:
    """Return the item that a message was packed from; None if it was not packed in this format.

    Args:
        message: as it was stored.
        format: the requested format.
        chat: a message of only a role and a string is an item of this format.
    """
    origin = origin_of(message)
    if origin is None:
        return dict(message) if chat and is_plain(message) else None
    if origin["format"] != format:
        return None
    native = msgspec.to_builtins(origin["item"])
    try:
        if origin.get("encoded"):
            native = values.from_json(native)
        for target, source in origin.get("from", {}).items():
            value = msgspec.to_builtins(_found(message, source.removeprefix(_AS_JSON)))
            if source.startswith(_AS_JSON):
                value = json.loads(value)
            if not target:
                native = value  # the item is a block of the message
                continue
            holder, _, name = target.rpartition("/")
            place = _found(native, holder)
            place[int(name) if isinstance(place, list) else _unescaped(name)] = value
    except _NOT_PACKED:
        return None  # not created by `pack`: the application's own member
    return native if isinstance(native, dict) else None


def natives(
    messages: Iterable[Message], format: str, convert: Callable[[Message], Any]
) -> Iterator[Any]:
    """Yield the items of stored messages; for those of other frameworks, the converted messages of a chat."""
    both = ((unpack(message, format), message) for message in messages)
    for foreign, group in groupby(both, key=lambda one: one[0] is None):
        if foreign:
            yield from map(convert, conversation(message for _, message in group))
        else:
            yield from (native for native, _ in group)


def readable(message: Mapping[str, Any]) -> ParsedMessage:
    """Return a message for people: the parts of its framework's item, or its own if it has none.

    The item has more than the message, such as the types of pictures; its other members are left out. It does
    not count unless it has every text and result of the message: an `origin` may be the application's own.
    """
    parsed = parse(message)
    origin = origin_of(message)
    if origin is None or _may_expand(message, origin):
        return parsed
    native = unpack(message, origin["format"])
    if native is None:
        return parsed
    # An encoded item may have values that are not JSON.
    item = parse(values.as_json(native))
    if not _told(parsed) <= _told(item):
        return parsed
    rest = {name: value for name, value in parsed.rest.items() if name != "origin"}
    return parsed._replace(parts=item.parts, rest=rest if item.parts else item.rest)


def _may_expand(message: Mapping[str, Any], origin: Message) -> bool:
    """Return whether an item may be huge: an application can let many places of one share a long text."""
    shared = origin.get("from")
    many = isinstance(shared, dict) and len(shared) * len(msgspec.json.encode(message))
    return many > codec.MAX_BYTES


def _told(parsed: ParsedMessage) -> set[str]:
    """Return the texts of a message, and the ids of the calls that it answers."""
    texts = {part.text for part in parsed.parts if part.kind == "text"}
    return texts | {part.call_id for part in parsed.parts if part.kind == "result"}


def is_plain(message: Mapping[str, Any]) -> bool:
    """Return whether a message is a role and a string, and nothing else."""
    return (
        message.keys() == {"role", "content"}
        and isinstance(message["role"], str)
        and isinstance(message["content"], str)
    )


def _finder(message: Message) -> Callable[[object], str | None]:
    """Return a function that returns the pointer to an equal value in the message.

    It finds strings, members, and arguments that are JSON.
    """
    texts: dict[str, str] = {}
    members = [(f"/{_escaped(name)}", value) for name, value in message.items()]
    for pointer, text in _texts(message, ""):
        if len(text) >= _WORTH or (pointer == "/content" and text):
            texts.setdefault(text, pointer)
        if len(text) >= _WORTH and pointer.endswith("/arguments"):
            with contextlib.suppress(ValueError, RecursionError):
                members.append((_AS_JSON + pointer, json.loads(text)))

    def find(value: object) -> str | None:
        if isinstance(value, str):
            return texts.get(value)
        if isinstance(value, dict | list) and value:
            return next((pointer for pointer, one in members if _same(value, one)), None)
        return None

    return find


def _members(value: object) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _texts(value: object, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield pointer, value
    for name, inner in _members(value):
        yield from _texts(inner, f"{pointer}/{_escaped(name)}")


def _without(
    value: Any, pointer: str, find: Callable[[object], str | None], taken: dict[str, str]
) -> Any:
    """Return a copy of a part of an item, without what is noted in `taken`: the message has it."""
    kept = []
    for name, inner in _members(value):
        inside = f"{pointer}/{_escaped(name)}"
        source = find(inner)
        if source is not None:
            taken[inside] = source
        # In a list, None keeps the indexes of the others.
        kept.append((name, None if source else _without(inner, inside, find, taken), source))
    if isinstance(value, list):
        return [inner for _, inner, _ in kept]
    if isinstance(value, dict):
        return {name: inner for name, inner, source in kept if source is None}
    return value


def _same(one: object, other: object) -> bool:
    """Return whether two values are the same JSON: in Python, 1 equals True and 1.0."""
    return one == other and codec.equal(one, other)


def _found(value: Any, pointer: str) -> Any:
    for name in pointer.split("/")[1:]:
        value = value[int(name)] if isinstance(value, list) else value[_unescaped(name)]
    return value


def _escaped(name: object) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def _unescaped(name: str) -> str:
    return name.replace("~1", "/").replace("~0", "~")


def chat(message: Mapping[str, Any]) -> list[Message]:
    """Return the chat messages of a message: first the results of tools, one by one, then the rest.

    Parts that are not text are named in brackets. Omitted: reasoning, calls that a framework could not read,
    and results of the provider's own tools.
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
        else:
            is_content = part.value is message.get("content")
            texts.append(content_text(part.value) if is_content else _part_text(part))
    content = "\n".join(filter(None, texts))
    if results and not content and not calls:
        return results
    role = parsed.role if parsed.role == "developer" else ROLES.get(parsed.role, parsed.role)
    if not isinstance(message.get("role"), str) and role not in {"user", "assistant", "system"}:
        role = "assistant" if "type" in message else "user"
    last: Message = {"role": role, "content": content}
    return [*results, {**last, "tool_calls": calls} if calls else last]


def chat_with_ids(message: Mapping[str, Any], seq: int, ids: dict[str, str]) -> list[Message]:
    """Return the chat messages of a message, each call with an id that no earlier call has.

    Calls may lack ids, and those of Google's repeat in later turns; other programs refuse that.

    Args:
        message: the next message of a session.
        seq: its seq.
        ids: the returned ids of earlier calls, by those that they had; extended by this call.
    """
    found = chat(message)
    for one in found:
        if "tool_call_id" in one:
            one["tool_call_id"] = ids.get(one["tool_call_id"], one["tool_call_id"])
        for number, call in enumerate(one.get("tool_calls", ()), 1):
            own = call["id"] or f"call-{seq}-{number}"
            ids[own] = call["id"] = f"{own}_{seq}" if own in ids else own
    return found


def _is_hosted(message: Mapping[str, Any], part: ContentPart) -> bool:
    """Return whether the provider runs the tool."""
    if part.shape in {Shape.SERVER_BLOCK, Shape.SERVER_PART}:
        return True
    # OpenAI's have no id of a call, as an item or as a block.
    is_block = part.kind == "call" and isinstance(message.get("content"), list)
    return not part.call_id and (is_block or str(message.get("type")).endswith("_call"))


def conversation(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Return stored messages as a chat that every provider accepts.

    Consecutive texts and calls of a model become one message. An empty message is omitted.
    """
    found: list[Message] = []
    for one in (said for message in messages for said in chat(message)):
        last: Message = found[-1] if found else {"role": None}
        if one["role"] == "assistant" and not one["content"] and "tool_calls" not in one:
            continue
        if last["role"] == one["role"] == "assistant" and ("tool_calls" in {**one, **last}):
            last["content"] = "\n".join(filter(None, (last["content"], one["content"])))
            last["tool_calls"] = last.get("tool_calls", []) + one.get("tool_calls", [])
        else:
            found.append(one)
    return found


def call_of(call_id: str | None, name: str, given: object) -> Message:
    """Return a call as a chat has it; arguments that are not a string are written as JSON."""
    arguments = given if isinstance(given, str) else compact(given)
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def calls_of(chat: Message) -> Iterator[tuple[str, str, Message]]:
    """Yield id, tool and arguments of the calls of a chat's message."""
    for call in chat.get("tool_calls", ()):
        yield call["id"], call["function"]["name"], arguments_of(call["function"]["arguments"])


def arguments_of(text: str) -> Message:
    """Return the arguments of a call, a string of JSON, as an object, even if they are not one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {"text": text}
    return found if isinstance(found, dict) else {"value": found}


def usage(model: object, counts: Mapping[str, Any], **more: Any) -> Message | None:
    """Return what to record for a call of a model, without impossible counts; None if none is left."""
    counted = {name: n for name, n in counts.items() if type(n) is int and 0 < n <= _MOST}
    return {"model": str(model or "unknown"), **counted, **more} if counted else None


def content_of(blocks: list[Any]) -> Any:
    """Return blocks as a message's content: a single text as a string, none as an empty one."""
    if len(blocks) == 1 and isinstance(blocks[0], dict) and blocks[0].get("type") == "text":
        return blocks[0]["text"]
    return blocks or ""


def content_text(content: object) -> str:
    """Return a message's content as text. Blocks that are not text are named in brackets."""
    if isinstance(content, list):
        return "\n".join(filter(None, map(_part_text, parse({"content": content}).parts)))
    return content if isinstance(content, str) else "" if content is None else compact(content)


def _part_text(part: ContentPart) -> str:
    if part.kind == "text":
        return str(part.value)
    if part.kind == "thinking" or part.name == REST:
        return ""
    if part.kind != "data" or not isinstance(part.value, Mapping):
        return f"[{part.name}]" if part.name else compact(part.value)
    if "json" in part.value:
        return compact(part.value["json"])
    # Bedrock names a block by its only member.
    kind = part.value.get("type") or (next(iter(part.value)) if len(part.value) == 1 else None)
    return f"[{kind}]" if isinstance(kind, str) else compact(part.value)
