"""Parse a message: who speaks, what is said, which tools are called, what they answer.

Known are the shapes of OpenAI chat and Responses items, Anthropic blocks, Claude Code entries, Google and ADK
parts, Pydantic AI, LangChain, and Bedrock blocks (Strands). What is not known becomes a part of kind "data",
which is shown as JSON: nothing is left out because this module does not know it.

Parts hold values as they were given. `text` and `pretty` render them for people; texts stay verbatim.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

import msgspec

Kind = Literal["text", "thinking", "call", "result", "data"]
Message = Mapping[str, Any]

#: Members of a message, and of what is in it, that are not text: they say what it is, or which.
LABELS: Final = frozenset(
    {
        "role", "type", "kind", "part_kind", "id", "call_id", "tool_call_id", "tool_use_id", "message_id",
        "response_id", "provider_response_id", "item_id", "file_id", "model", "model_name", "provider_name",
        "status", "finish_reason", "stop_reason", "stop_sequence", "signature", "thought_signature",
        "thoughtSignature", "encrypted_content", "media_type", "mime_type", "mimeType", "format", "detail",
        "timestamp", "created_at", "object", "cache_control", "usage", "logprobs", "annotations",
    }
)  # fmt: skip

#: Labels that a reader wants to see next to a text: sources, and how a tool ended.
_TOLD: Final = frozenset({"annotations", "status"})
#: How a tool ends as a rule, which goes without saying.
_SUCCESS: Final = frozenset({"completed", "success"})

#: Members of a message that are read here, or only name it.
_READ: Final = frozenset(
    {
        "content", "id", "invalid_tool_calls", "kind", "name", "object", "partial", "parts", "reasoning",
        "reasoning_content", "refusal", "role", "tool_call_id", "tool_calls", "type",
    }
)  # fmt: skip

#: Members of a chat message in which providers return a model's thoughts as text.
_REASONING: Final = ("reasoning_content", "reasoning")
_THINKING: Final = frozenset(
    {"thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text"}
)
#: Members that hold them.
_THOUGHTS: Final = ("thinking", "reasoning", "summary", "content", "text")
#: Members that hold them encrypted, by the type of the block.
_ENCRYPTED: Final = {"redacted_thinking": ("data",), "": ("redactedContent",)}
#: The name of a part that holds what a message or a block has besides what is known of it.
REST: Final = "also"
#: Stands for thoughts that a provider encrypts or withholds.
HIDDEN: Final = "(not shown by its provider)"

#: Members that hold the arguments of a call, and the answer to one, in the order of preference.
_ARGUMENTS: Final = ("arguments", "args", "input", "action")
_OUTPUTS: Final = ("content", "response")

#: Members of a block that hold all of a call, or of a result.
_INNER_CALLS: Final = ("function", "custom", "function_call", "functionCall", "toolUse")
_INNER_RESULTS: Final = ("function_response", "functionResponse", "toolResult")

#: Members that name a tool or a call, which the part has.
_NAMES: Final = frozenset({"name", "tool_name", "toolUseId"})

#: LangChain's names for roles, in a message without one.
_ROLES: Final = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_TOOLS: Final = frozenset({"tool", "function"})
_PLAIN: Final = frozenset({"role", "content"})
_SPEAKERS: Final = ("user", "assistant", "system")


class Shape(Enum):
    """How a framework writes calls and results, and where a result must stand."""

    #: A result is a separate message, directly after the message that calls.
    CHAT = "chat"
    #: Call and result are items of their own, in this order.
    ITEM = "item"
    #: A result is a block of `content`, in the very next message.
    BLOCK = "block"
    #: The provider runs the tool itself: the result is a block of what the model says.
    SERVER_BLOCK = "server block"
    #: A result is one of the `parts` of the next request.
    PART = "part"
    #: As a server's block, among the `parts` of a response.
    SERVER_PART = "server part"


_BLOCK_SHAPES: Final = {
    "tool_use": Shape.BLOCK,
    "tool_result": Shape.BLOCK,
    "server_tool_use": Shape.SERVER_BLOCK,
    "mcp_tool_use": Shape.SERVER_BLOCK,
}
_PART_SHAPES: Final = {
    "tool-call": Shape.PART,
    "tool-return": Shape.PART,
    "retry-prompt": Shape.PART,
    "builtin-tool-call": Shape.SERVER_PART,
    "builtin-tool-return": Shape.SERVER_PART,
}


class MessagePart(NamedTuple):
    """A piece of a message."""

    kind: Kind
    #: What is said: a string or blocks, the arguments of a call, any JSON.
    value: Any
    #: The tool, for a call or a result, as far as it is named there.
    name: str = ""
    #: The id that call and result share.
    call_id: str = ""
    #: How call and result are paired; None if they cannot be: the shape is not known, or names no id.
    shape: Shape | None = None
    #: Its place in the list inside the message; 0 if it is the message itself.
    slot: int = 0

    @property
    def text(self) -> str:
        """What is said, verbatim; values as JSON in one line."""
        return self._rendered(compact)

    @property
    def pretty(self) -> str:
        """As `text`, but JSON is indented, also the arguments that came as a string of JSON."""
        if self.kind == "call" and isinstance(self.value, str):
            try:
                return msgspec.json.format(self.value, indent=2)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                return self.value
        return self._rendered(to_json)

    def _rendered(self, write: Callable[[object], str]) -> str:
        if isinstance(self.value, str) or self.kind == "result":
            return as_text(self.value, write)
        return "" if self.value is None and self.kind == "call" else write(self.value)


class ParsedMessage(NamedTuple):
    """A message, as it is shown."""

    role: str
    parts: list[MessagePart]
    #: What else it has: members that are not known here, or that only programs need.
    rest: dict[str, Any]
    #: The name of the one who speaks, if the message says it.
    name: str = ""
    partial: bool = False

    @property
    def speaker(self) -> str:
        """The role, with the name."""
        return f"{self.role} ({self.name})" if self.name else self.role

    def shown(self, *, full: bool) -> list[MessagePart]:
        """Return the parts, and with `full`, or if there are none, the rest as one more."""
        if self.rest and (full or not self.parts):
            return [*self.parts, MessagePart("data", self.rest, REST)]
        return self.parts


def parse(message: Message) -> ParsedMessage:
    """Return the role of a message, its parts, and what else it has."""
    inner = message.get("message")
    if isinstance(inner, Mapping) and "content" in inner and "content" not in message:
        return _parse_entry(message, inner)
    parts: list[MessagePart] = []
    called: set[str] = set()
    for part in walk(message):
        if part.kind == "call" and part.call_id:
            if part.call_id in called:
                continue  # some frameworks write a call as a block and as a chat does
            called.add(part.call_id)
        parts.append(part)
    name = _word(message.get("name"))
    if any(part.name == name for part in parts):
        name = ""  # a tool's
    read = _READ | _item(message)[1]
    rest = {key: value for key, value in message.items() if _says(value) and key not in read}
    if not isinstance(message.get("name"), str) and _says(message.get("name")):
        rest["name"] = message["name"]
    return ParsedMessage(_role(message, parts), parts, rest, name, message.get("partial") is True)


def _parse_entry(entry: Message, inner: Message) -> ParsedMessage:
    """Parse an entry of Claude Code, which wraps a message."""
    parsed = parse(inner)
    rest = {key: value for key, value in entry.items() if key != "message" and _says(value)}
    if parsed.rest:
        rest["message"] = parsed.rest
    partial = parsed.partial or rest.pop("partial", None) is True
    return parsed._replace(rest=rest, partial=partial)


def origin_of(message: Message) -> dict[str, Any] | None:
    """Return what an adapter stored next to a message to restore its framework's item; None without one.

    `hansard.message.origin` creates it; a member `origin` of any other shape is the caller's own.
    """
    origin = message.get("origin")
    if isinstance(origin, dict) and isinstance(origin.get("format"), str) and "item" in origin:
        return origin
    return None


def compact(value: object) -> str:
    """Return a value as JSON in one line, with its text readable."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def to_json(value: object) -> str:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def as_text(content: object, write: Callable[[object], str] = compact) -> str:
    """Return content as text: strings and blocks of text verbatim, one below the other; the rest as JSON."""
    if isinstance(content, str):
        return content
    blocks = list(content) if isinstance(content, list) else []
    if not any(_is_text(block) for block in blocks):
        return "" if content is None else write(content)
    return "\n".join(
        "\n".join(part.text for part in _block(block)) if _is_text(block) else write(block)
        for block in blocks
    )


def _is_text(block: object) -> bool:
    return isinstance(block, Mapping) and isinstance(block.get("text"), str)


# -- the walker ---------------------------------------------------------------------------------


def walk(message: Message) -> Iterator[MessagePart]:
    """Yield the parts of a message, in order."""
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str) and message.keys() == _PLAIN and role in _SPEAKERS:
        # As most messages are.
        if content:
            yield MessagePart("text", content)
        return
    if _word(role or message.get("type")) not in _TOOLS:
        yield from _members(message)
        return
    call_id = message.get("tool_call_id")
    # With an id, the message is the result, whatever its content looks like.
    is_result = isinstance(call_id, str)
    if is_result or not any(part.kind == "result" for part in _members(message)):
        shape = Shape.CHAT if role == "tool" else None
        yield _paired("result", content, _word(message.get("name")), call_id, shape)
        message = {key: value for key, value in message.items() if key != "content"}
    for part in _members(message):
        yield part._replace(shape=None) if is_result and role == "tool" else part


def _members(message: Message) -> Iterator[MessagePart]:
    """Yield what the members of a message say."""
    items, read = _item(message)
    yield from items
    for name in _REASONING:
        if name not in read:
            yield from _named("thinking", name, message.get(name))
    if "content" not in read:
        yield from _content(message.get("content"))
    yield from _named("text", "refusal", message.get("refusal"))
    yield from _listed("parts", message.get("parts"), _part)
    # Last: some frameworks write a call as a block too, and answer it as a chat does.
    yield from _listed("tool_calls", message.get("tool_calls"), _chat_call)
    for part in _listed("invalid_tool_calls", message.get("invalid_tool_calls"), _chat_call):
        yield part._replace(shape=None)


def _item(message: Message) -> tuple[list[MessagePart], frozenset[str]]:
    """Return what a message says as an item of OpenAI's Responses, and the members that were read."""
    kind = _word(message.get("type"))
    call_id = message.get("call_id")
    if kind.endswith("_call"):
        name = _word(message.get("name")) or kind.removesuffix("_call")
        given = {key: message[key] for key in _ARGUMENTS if key in message}
        if given:
            value, read = next(iter(given.values())), [next(iter(given))]
        else:
            # Without arguments, as of a file search, all that it has are its arguments.
            known = LABELS | _READ | {"output"}
            value = {k: v for k, v in message.items() if k not in known and _says(v)} or None
            read = list(value or ())
        found = [_paired("call", value, name, call_id, Shape.ITEM)]
        if _says(message.get("output")):
            # A tool of the provider's: call and result are one item.
            found.append(MessagePart("result", message["output"], name))
        return found, frozenset({*read, "output", "call_id"})
    if kind.endswith("_output"):
        if call_id is None and kind == "local_shell_call_output":
            # Its published type has the call's id here; the server asks for `call_id`.
            call_id = message.get("id")
        source = "tools" if "tools" in message and "output" not in message else "output"
        is_answer = kind.endswith("_call_output") or kind == "tool_search_output"
        shape = Shape.ITEM if is_answer else None
        found = [_paired("result", message.get(source), "", call_id, shape)]
        return found, frozenset({source, "call_id"})
    if kind == "reasoning":
        return [_thought(message)], frozenset({*_THOUGHTS, "encrypted_content"})
    if isinstance(message.get("function_call"), Mapping):  # OpenAI's chat, before `tool_calls`
        return list(_call(message["function_call"], None)), frozenset({"function_call"})
    return [], frozenset()


def _content(content: object) -> Iterator[MessagePart]:
    if isinstance(content, str):
        if content:
            yield MessagePart("text", content)
    elif isinstance(content, Mapping) and isinstance(content.get("parts"), list):
        # ADK has Google's parts in an object.
        for slot, part in enumerate(content["parts"]):
            yield from (found._replace(shape=None) for found in _part(part, slot))
        yield from _rest(content, {"parts"})
    elif isinstance(content, list):
        for slot, block in enumerate(content):
            yield from _block(block, slot)
    elif content is not None:
        yield MessagePart("data", content)


def _chat_call(call: object, slot: int) -> Iterator[MessagePart]:
    if isinstance(call, Mapping):
        yield from _call(_flat(call, _INNER_CALLS) or call, call.get("id"), Shape.CHAT, slot)
    else:
        yield MessagePart("data", call)


def _block(block: object, slot: int | None = None) -> Iterator[MessagePart]:
    """Yield what one block of a content says. `slot`: its place, if its calls can be paired there."""
    if not isinstance(block, Mapping):
        yield MessagePart("text" if isinstance(block, str) else "data", block)
        return
    kind = _word(block.get("type"))
    shape = None if slot is None else _BLOCK_SHAPES.get(kind)
    if kind.endswith("tool_use"):
        yield from _call(block, block.get("id"), shape, slot or 0)
    elif kind.endswith("_call"):
        yield from _call(block, block.get("call_id", block.get("id")))
    elif kind.endswith("tool_result"):
        # A result of a provider's own tool is named after the tool.
        shape = None if slot is None else shape or Shape.SERVER_BLOCK
        yield from _result(block, block.get("tool_use_id"), shape, slot or 0)
    elif (flat := _flat(block, _INNER_CALLS)) is not None:
        yield from _call(flat, flat.get("toolUseId", flat.get("id")))
    elif (flat := _flat(block, _INNER_RESULTS)) is not None:
        yield from _result(flat, flat.get("toolUseId", flat.get("id")))
    else:
        yield from _said(block, kind)


def _said(block: Message, kind: str) -> Iterator[MessagePart]:
    """Yield what a block says that is neither a call nor a result."""
    thought = _flat(block, ("reasoningContent",))
    if thought is not None:
        block = _flat(thought, ("reasoningText",)) or thought
    if thought is not None or kind in _THINKING or block.get("thought") is True:
        yield _thought(block)
        yield from _rest(block, {*_THOUGHTS, *_ENCRYPTED.get(kind, ()), "thought"})
    elif isinstance(block.get("text"), str):
        yield MessagePart("text", block["text"])
        yield from _rest(block, {"text", "thought"})
    elif kind == "refusal" and isinstance(block.get(kind), str):
        yield MessagePart("text", block[kind])
        yield from _rest(block, {kind})
    else:
        yield MessagePart("data", block)


def _tool(block: Message) -> str:
    """Return the name of the tool that a block calls, or that answers."""
    return _word(block.get("tool_name")) or _word(block.get("name"))


def _flat(block: Message, members: Iterable[str]) -> Message | None:
    """Return a block that holds all of a call or a result in one of some members as if it did not."""
    member = next((name for name in members if isinstance(block.get(name), Mapping)), None)
    if member is None or (block.keys() & block[member].keys()) - LABELS:
        return None
    return {**{key: block[key] for key in block if key != member}, **block[member]}


def _call(
    block: Message, call_id: object, shape: Shape | None = None, slot: int = 0
) -> Iterator[MessagePart]:
    source = next((key for key in _ARGUMENTS if key in block), "arguments")
    part = _paired("call", block.get(source), _tool(block) or "?", call_id, shape, slot)
    yield part
    yield from _rest(block, {source, "index"}, part)


def _result(
    block: Message, call_id: object, shape: Shape | None = None, slot: int = 0
) -> Iterator[MessagePart]:
    source = next((key for key in _OUTPUTS if key in block), "content")
    part = _paired("result", block.get(source), _tool(block), call_id, shape, slot)
    yield part
    yield from _rest(block, {source}, part)


def _part(part: object, slot: int) -> Iterator[MessagePart]:
    """Yield what one of the `parts` of Pydantic AI or Google says."""
    kind = part.get("part_kind") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(kind, str):
        yield from _block(part)
        return
    shape = _PART_SHAPES.get(kind)
    # Without a tool's name it asks for another answer, not for another call.
    if kind == "retry-prompt" and part.get("tool_name") is None:
        shape = None
    if shape is not None:
        is_call = kind.endswith("call")
        source = "args" if is_call else "content"
        found = _paired(
            "call" if is_call else "result",
            part.get(source),
            _tool(part) or ("?" if is_call else ""),
            part.get("tool_call_id"),
            shape,
            slot,
        )
        yield found
        yield from _rest(part, {source}, found)
    elif kind == "thinking":
        yield _thought(part)
        yield from _rest(part, {"content"})
    elif "content" in part:
        yield from (found._replace(shape=None) for found in _content(part["content"]))
        yield from _rest(part, {"content"})
    else:
        yield from _block(part)


# -- small things -------------------------------------------------------------------------------


def _paired(
    kind: Kind, value: object, name: str, call_id: object, shape: Shape | None, slot: int = 0
) -> MessagePart:
    """Return a call or a result. Without an id, as of a hosted search, it waits for nothing."""
    if not isinstance(call_id, str):
        return MessagePart(kind, value, name)
    return MessagePart(kind, value, name, call_id, shape, slot)


def _thought(block: Message) -> MessagePart:
    """Return what a model thought, whichever member has it."""
    found = [text for key in _THOUGHTS if _says(block.get(key)) and (text := as_text(block[key]))]
    return MessagePart("thinking", "\n".join(found) or HIDDEN)


def _named(kind: Kind, name: str, value: object) -> Iterator[MessagePart]:
    """Yield a member that holds a text; as data, if it holds something else."""
    if isinstance(value, str):
        if value:
            yield MessagePart(kind, value)
    elif _says(value):
        yield MessagePart("data", {name: value})


def _listed(
    name: str, value: object, read: Callable[[object, int], Iterator[MessagePart]]
) -> Iterator[MessagePart]:
    """Yield what the entries of a list say; what should be a list and is not, as data."""
    if isinstance(value, list):
        for slot, entry in enumerate(value):
            yield from read(entry, slot)
    elif _says(value):
        yield MessagePart("data", {name: value})


def _rest(block: Message, read: set[str], part: MessagePart | None = None) -> Iterator[MessagePart]:
    """Yield what a block has besides what was read of it, as data. `part`: the call or result it became."""
    rest = {
        key: value
        for key, value in block.items()
        if key not in read
        and (key not in LABELS or key in _TOLD)
        and not (part and key in _NAMES and value in (part.name, part.call_id))
        and _says(value)
    }
    if rest:
        yield MessagePart("data", rest, REST)


def _says(value: object) -> bool:
    """Return whether a member says anything: empty ones do not, nor does success."""
    if isinstance(value, str):
        return bool(value) and value not in _SUCCESS
    return value is not None and value is not False and value not in ([], {})


def _role(message: Message, parts: list[MessagePart]) -> str:
    content = message.get("content")
    inner = content.get("role") if isinstance(content, Mapping) else None
    role = _word(message.get("role")) or _word(inner)
    if role:
        return role
    kind = _word(message.get("kind"))
    if kind in {"request", "response"} and isinstance(message.get("parts"), list):
        return "assistant" if kind == "response" else _requested(message["parts"], parts)
    kind = _word(message.get("type"))
    if kind in _ROLES:
        return _ROLES[kind]
    if any(part.kind in {"call", "thinking"} for part in parts):
        return "assistant"
    if any(part.kind == "result" for part in parts):
        return "tool"
    return kind or "message"


def _requested(request: list[Any], parts: list[MessagePart]) -> str:
    """Return whose the parts of a request are."""
    kinds = [part.get("part_kind") for part in request if isinstance(part, Mapping)]
    if "user-prompt" in kinds:
        return "user"
    if "system-prompt" in kinds:
        return "system"
    return "tool" if any(part.kind == "result" for part in parts) else "user"


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""
