"""Parse a message into its parts: texts, reasoning, tool calls and tool results.

Known shapes: OpenAI chat and Responses items, Anthropic blocks, Claude Code entries, Google and ADK parts,
Pydantic AI, LangChain, and Bedrock blocks (Strands). Anything else becomes a part of kind "data", which is
shown as JSON: no text of a message is left out.

Parts hold values as given. `text` and `pretty` render them for people; strings stay verbatim.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

import msgspec

from hansard.message.values import compact

Kind = Literal["text", "thinking", "call", "result", "data"]
Message = Mapping[str, Any]

#: Members that identify or describe something, and hold no text of the conversation.
LABELS: Final = frozenset(
    {
        "role", "type", "kind", "part_kind", "id", "call_id", "tool_call_id", "tool_use_id", "message_id",
        "response_id", "provider_response_id", "item_id", "file_id", "model", "model_name", "provider_name",
        "status", "finish_reason", "stop_reason", "stop_sequence", "signature", "thought_signature",
        "thoughtSignature", "encrypted_content", "media_type", "mime_type", "mimeType", "format", "detail",
        "timestamp", "created_at", "object", "cache_control", "usage", "logprobs", "annotations",
    }
)  # fmt: skip
#: Labels that readers want to see: sources, and the status of a tool unless it succeeded.
_SHOWN_LABELS: Final = frozenset({"annotations", "status"})
_SUCCESS: Final = frozenset({"completed", "success"})

#: Members of a message that `walk` reads, or that only identify it.
_READ: Final = frozenset(
    {
        "content", "id", "invalid_tool_calls", "kind", "name", "object", "partial", "parts", "reasoning",
        "reasoning_content", "refusal", "role", "tool_call_id", "tool_calls", "type",
    }
)  # fmt: skip

#: Types of reasoning blocks, the members that hold the text, and those that hold it encrypted.
_THINKING: Final = frozenset(
    {"thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text"}
)
_THOUGHTS: Final = ("thinking", "reasoning", "summary", "content", "text")
_ENCRYPTED: Final = {"redacted_thinking": ("data",), "": ("redactedContent",)}
#: Placeholder for reasoning that a provider encrypts or withholds.
HIDDEN: Final = "(not shown by its provider)"
#: Name of a part that holds the remaining members of a message or a block.
REST: Final = "also"

#: Members of a result that say that its call failed.
_FAILURES: Final = frozenset({"is_error", "outcome", "status"})
#: Members that hold a call's arguments, and a result's value, in order of preference.
_ARGUMENTS: Final = ("arguments", "args", "input", "action", "operation")
_OUTPUTS: Final = ("content", "response")
#: Members of a block that contain an entire call, or an entire result.
_INNER_CALLS: Final = ("function", "custom", "function_call", "functionCall", "toolUse")
_INNER_RESULTS: Final = ("function_response", "functionResponse", "toolResult")
#: Google's member with a call, and the one with its result, as its API and as its Python client writes them.
GOOGLE: Final = {"functionCall": "functionResponse", "function_call": "function_response"}
_NAMES: Final = frozenset({"name", "tool_name", "toolUseId"})

#: The names that frameworks have for roles.
ROLES: Final = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "model"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function"), "tool"),
}
_PLAIN: Final = frozenset({"role", "content"})


class Shape(Enum):
    """How a framework writes calls and results, and where a result must be."""

    #: A result is a message, directly after the message that calls.
    CHAT = "chat"
    #: Call and result are separate items, in this order.
    ITEM = "item"
    #: A result is a block of `content`, in the very next message.
    BLOCK = "block"
    #: The provider runs the tool: the result is a block of the model's message.
    SERVER_BLOCK = "server block"
    #: A result is one of the `parts` of the next request.
    PART = "part"
    #: The provider runs the tool: the result is one of the `parts` of a response.
    SERVER_PART = "server part"
    #: Bedrock: as BLOCK, in a member of the block.
    BEDROCK = "bedrock"
    #: Google: a result is one of the `parts` of the very next turn. Ids are optional: names and order pair.
    GOOGLE = "google"


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


class ContentPart(NamedTuple):
    """A part of a message."""

    kind: Kind
    #: A string or blocks, the arguments of a call, any JSON.
    value: Any
    #: The tool of a call or a result, if the message names it.
    name: str = ""
    #: The id that call and result share.
    call_id: str = ""
    #: How call and result are paired; None if they cannot be paired.
    shape: Shape | None = None
    #: Index in the list inside the message; 0 if the message itself is the part.
    slot: int = 0
    #: It is the result of a call that failed, as far as its framework says.
    failed: bool = False

    @property
    def text(self) -> str:
        """The value: strings verbatim, others as JSON in one line."""
        return self._render(compact)

    @property
    def pretty(self) -> str:
        """As `text`, with JSON indented, also arguments that are a string of JSON."""
        if self.kind == "call" and isinstance(self.value, str):
            try:
                return msgspec.json.format(self.value, indent=2)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                return self.value
        return self._render(to_json)

    def _render(self, write: Callable[[object], str]) -> str:
        if isinstance(self.value, str) or self.kind == "result":
            return as_text(self.value, write)
        return "" if self.value is None and self.kind == "call" else write(self.value)


class ParsedMessage(NamedTuple):
    """A message as readers see it."""

    role: str
    parts: list[ContentPart]
    #: Members that are unknown here, or that only programs need.
    rest: dict[str, Any]
    #: The name of the speaker, if the message has one.
    name: str = ""
    partial: bool = False

    @property
    def speaker(self) -> str:
        """The role, with the name."""
        return f"{self.role} ({self.name})" if self.name else self.role

    def shown(self, *, full: bool) -> list[ContentPart]:
        """Return the parts; with `full`, or if there are none, also the rest as one more."""
        if self.rest and (full or not self.parts):
            return [*self.parts, ContentPart("data", self.rest, REST)]
        return self.parts


def parse(message: Message) -> ParsedMessage:
    """Return the role of a message, its parts, and its remaining members."""
    # An entry of Claude Code wraps a message, and LangChain's notation of one.
    wrapper = "data" if "data" in message else "message"
    inner = message.get(wrapper)
    if isinstance(inner, Mapping) and "content" in inner and message.keys().isdisjoint(_PLAIN):
        parsed = parse(inner)
        rest = {key: value for key, value in message.items() if key != wrapper and _says(value)}
        if parsed.rest:
            rest[wrapper] = parsed.rest
        partial = parsed.partial or rest.pop("partial", None) is True
        return parsed._replace(rest=rest, partial=partial)
    parts: list[ContentPart] = []
    called: set[str] = set()
    for part in walk(message):
        if part.kind == "call" and part.call_id:
            if part.call_id in called:
                continue  # some frameworks write a call as a block and as a chat does
            called.add(part.call_id)
        parts.append(part)
    name = _word(message.get("name"))
    if any(part.name == name for part in parts):
        name = ""  # the tool's name
    read = _READ | _item(message)[1]
    rest = {key: value for key, value in message.items() if _says(value) and key not in read}
    if not isinstance(message.get("name"), str) and _says(message.get("name")):
        rest["name"] = message["name"]
    return ParsedMessage(_role(message, parts), parts, rest, name, message.get("partial") is True)


def role_of(message: Message) -> str:
    """Return "system", "user", "assistant" or "tool", in any spelling of the role, or another role.

    Results of tools that come as a message of the user are the tool's.
    """
    role = _word(message.get("role"))
    if role == "user" and isinstance(message.get("content"), str):
        return role
    if role not in ROLES or role == "user":
        parsed = parse(message)
        role = parsed.role
        if role == "user" and any(part.kind == "result" for part in parsed.parts):
            return "tool"
    return ROLES.get(role, role)


def origin_of(message: Message) -> dict[str, Any] | None:
    """Return what an adapter stored with a message to restore its framework's item; None without one.

    `hansard.message.origin` creates it. A member `origin` of any other shape is the application's.
    """
    origin = message.get("origin")
    if isinstance(origin, dict) and isinstance(origin.get("format"), str) and "item" in origin:
        return origin
    return None


def to_json(value: object) -> str:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def as_text(content: object, write: Callable[[object], str] = compact) -> str:
    """Return content as text: strings and text blocks verbatim, one per line; the rest as JSON."""
    if isinstance(content, str):
        return content
    blocks = list(content) if isinstance(content, list) else []
    if not any(map(_is_text, blocks)):
        return "" if content is None else write(content)
    return "\n".join(
        "\n".join(part.text for part in _block(block)) if _is_text(block) else write(block)
        for block in blocks
    )


def _is_text(block: object) -> bool:
    return isinstance(block, Mapping) and isinstance(block.get("text"), str)


# -- the walker ---------------------------------------------------------------------------------


def walk(message: Message) -> Iterator[ContentPart]:
    """Yield the parts of a message, in order."""
    role, content = message.get("role"), message.get("content")
    if (
        isinstance(content, str)
        and message.keys() == _PLAIN
        and role in ("user", "assistant", "system")
    ):
        if content:  # the fast path of most messages
            yield ContentPart("text", content)
        return
    if _word(role or message.get("type")) not in {"tool", "function"}:
        yield from _members(message)
        return
    call_id = message.get("tool_call_id")
    # With an id, the message is the result, even if its content looks like something else.
    is_result = isinstance(call_id, str)
    if is_result or not any(part.kind == "result" for part in _members(message)):
        shape = Shape.CHAT if role == "tool" else None
        yield _half("result", message, content, _word(message.get("name")), call_id, shape)
        message = {key: value for key, value in message.items() if key != "content"}
    for part in _members(message):
        yield part._replace(shape=None) if is_result and role == "tool" else part


def _members(message: Message) -> Iterator[ContentPart]:
    items, read = _item(message)
    yield from items
    for name in ("reasoning_content", "reasoning"):
        if name not in read:
            yield from _named("thinking", name, message.get(name))
    if "content" not in read:
        yield from _content(message.get("content"))
    yield from _named("text", "refusal", message.get("refusal"))
    seen: Counter[tuple[str, str]] = Counter()
    for part in _listed("parts", message.get("parts"), _part):
        lacks_id = part.shape is Shape.GOOGLE and not part.call_id
        yield part._replace(call_id=google_key(part, seen)) if lacks_id else part
    # Last: a framework that also writes a call as a block answers it as a chat does.
    yield from _listed("tool_calls", message.get("tool_calls"), _chat_call)
    for part in _listed("invalid_tool_calls", message.get("invalid_tool_calls"), _chat_call):
        yield part._replace(shape=None)


def _item(message: Message) -> tuple[list[ContentPart], frozenset[str]]:
    """Return the parts of an OpenAI Responses item, and the members that were read."""
    kind, call_id = _word(message.get("type")), message.get("call_id")
    if kind.endswith("_call"):
        name = _word(message.get("name")) or kind.removesuffix("_call")
        source = next((key for key in _ARGUMENTS if key in message), None)
        if source is not None:
            value, read = message[source], [source]
        else:
            # Without arguments, as in a file search, all other members are the arguments.
            known = LABELS | _READ | {"output"}
            value = {k: v for k, v in message.items() if k not in known and _says(v)} or None
            read = list(value or ())
        found = [_half("call", message, value, name, call_id, Shape.ITEM)]
        if _says(message.get("output")):
            # The provider's tool.
            found.append(_half("result", message, message["output"], name, None, None))
        return found, frozenset({*read, "output", "call_id"})
    if kind.endswith("_output"):
        if call_id is None and kind == "local_shell_call_output":
            call_id = message.get("id")  # OpenAI's published type; its server requires `call_id`
        source = "tools" if "tools" in message and "output" not in message else "output"
        is_answer = kind.endswith("_call_output") or kind == "tool_search_output"
        shape = Shape.ITEM if is_answer else None
        part = _half("result", message, message.get(source), "", call_id, shape)
        return [part], frozenset({source, "call_id"})
    if kind == "reasoning":
        return [_thought(message)], frozenset({*_THOUGHTS, "encrypted_content"})
    if isinstance(message.get("function_call"), Mapping):  # OpenAI's chat, before `tool_calls`
        return list(_tool("call", message["function_call"], None)), frozenset({"function_call"})
    return [], frozenset()


def _content(content: object) -> Iterator[ContentPart]:
    if isinstance(content, str):
        if content:
            yield ContentPart("text", content)
    elif isinstance(content, Mapping) and isinstance(content.get("parts"), list):
        for slot, part in enumerate(content["parts"]):  # ADK nests Google's parts in an object
            yield from (found._replace(shape=None) for found in _part(part, slot))
        yield from _rest(content, {"parts"})
    elif isinstance(content, list):
        for slot, block in enumerate(content):
            yield from _block(block, slot)
    elif content is not None:
        yield ContentPart("data", content)


def google_key(part: ContentPart, seen: "Counter[tuple[str, str]]") -> str:
    """Return what a call of Google's and its result share: the name, with a number after the first one."""
    seen[part.kind, part.name] += 1
    number = seen[part.kind, part.name]
    return f"{part.name}-{number}" if number > 1 else part.name


def _chat_call(call: object, slot: int) -> Iterator[ContentPart]:
    if isinstance(call, Mapping):
        flat = _flat(call, _INNER_CALLS) or call
        yield from _tool("call", flat, call.get("id"), Shape.CHAT, slot)
    else:
        yield ContentPart("data", call)


def _block(block: object, slot: int | None = None) -> Iterator[ContentPart]:
    """Yield the parts of a block of `content`. `slot`: its index, if its calls can be paired there."""
    if not isinstance(block, Mapping):
        yield ContentPart("text" if isinstance(block, str) else "data", block)
        return
    kind = _word(block.get("type"))
    shape = None if slot is None else _BLOCK_SHAPES.get(kind)
    if kind.endswith("tool_use"):
        yield from _tool("call", block, block.get("id"), shape, slot or 0)
    elif kind.endswith("_call"):
        # In LangChain, a block with an id repeats a call. In OpenAI, the id is the item's own.
        call_id = block.get("id" if kind == "tool_call" else "call_id")
        yield from _tool("call", {"name": kind.removesuffix("_call"), **block}, call_id)
    elif kind.endswith("tool_result"):
        # Results of a provider's tools have the tool's name in their type.
        shape = None if slot is None else shape or Shape.SERVER_BLOCK
        yield from _tool("result", block, block.get("tool_use_id"), shape, slot or 0)
    elif (flat := _flat(block, _INNER_CALLS)) is not None:
        shape = Shape.BEDROCK if slot is not None and "toolUse" in block else None
        yield from _tool("call", flat, flat.get("toolUseId", flat.get("id")), shape, slot or 0)
    elif (flat := _flat(block, _INNER_RESULTS)) is not None:
        shape = Shape.BEDROCK if slot is not None and "toolResult" in block else None
        yield from _tool("result", flat, flat.get("toolUseId", flat.get("id")), shape, slot or 0)
    else:
        yield from _text_block(block, kind)


def _text_block(block: Message, kind: str) -> Iterator[ContentPart]:
    """Yield the parts of a block that is neither a call nor a result."""
    thought = _flat(block, ("reasoningContent",))
    if thought is not None:
        block = _flat(thought, ("reasoningText",)) or thought
    if thought is not None or kind in _THINKING or block.get("thought") is True:
        yield _thought(block)
        yield from _rest(block, {*_THOUGHTS, *_ENCRYPTED.get(kind, ()), "thought"})
        return
    for name in ("text", "refusal"):
        if isinstance(block.get(name), str) and name in {"text", kind}:
            yield ContentPart("text", block[name])
            yield from _rest(block, {name, "thought"})
            return
    yield ContentPart("data", block)


def _part(part: object, slot: int) -> Iterator[ContentPart]:
    """Yield the parts of one of the `parts` of Pydantic AI or Google."""
    kind = part.get("part_kind") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(kind, str):
        is_google = (
            isinstance(part, Mapping) and _flat(part, (*GOOGLE, *GOOGLE.values())) is not None
        )
        for found in _block(part):
            is_half = is_google and found.kind in {"call", "result"}
            yield found._replace(shape=Shape.GOOGLE, slot=slot) if is_half else found
        return
    shape = _PART_SHAPES.get(kind)
    if shape is not None and (kind != "retry-prompt" or part.get("tool_name") is not None):
        half: Kind = "call" if kind.endswith("call") else "result"
        yield from _tool(half, part, part.get("tool_call_id"), shape, slot)
    elif kind == "thinking":
        yield _thought(part)
        yield from _rest(part, {*_THOUGHTS})
    elif "content" in part:
        yield from (found._replace(shape=None) for found in _content(part["content"]))
        yield from _rest(part, {"content"})
    else:
        yield from _block(part)


def _flat(block: Message, members: Iterable[str]) -> Message | None:
    """Return a block merged with the member that holds its call or result; None without one."""
    member = next((name for name in members if isinstance(block.get(name), Mapping)), None)
    if member is None or (block.keys() & block[member].keys()) - LABELS:
        return None
    return {**{key: block[key] for key in block if key != member}, **block[member]}


def _tool(
    kind: Kind, block: Message, call_id: object, shape: Shape | None = None, slot: int = 0
) -> Iterator[ContentPart]:
    """Yield a call or a result, and the remaining members of its block."""
    is_call = kind == "call"
    sources = _ARGUMENTS if is_call else _OUTPUTS
    source = next((key for key in sources if key in block), sources[0])
    name = _word(block.get("tool_name")) or _word(block.get("name")) or ("?" if is_call else "")
    part = _half(kind, block, block.get(source), name, call_id, shape, slot)
    yield part
    read = {"index"} if is_call else _FAILURES if part.failed else set()
    yield from _rest(block, {source, *read}, part)


def _half(
    kind: Kind,
    block: Message,
    value: object,
    name: str,
    call_id: object,
    shape: Shape | None,
    slot: int = 0,
) -> ContentPart:
    """Return a call or a result. Without an id, as in a hosted search, it is not paired."""
    failed = kind == "result" and (
        block.get("is_error") is True
        or block.get("status") == "error"
        or block.get("part_kind") == "retry-prompt"
        or block.get("outcome") in {"failed", "retried"}
    )
    if not isinstance(call_id, str):
        return ContentPart(kind, value, name, failed=failed)
    return ContentPart(kind, value, name, call_id, shape, slot, failed)


def _thought(block: Message) -> ContentPart:
    found = [text for key in _THOUGHTS if _says(block.get(key)) and (text := as_text(block[key]))]
    return ContentPart("thinking", "\n".join(found) or HIDDEN)


def _named(kind: Kind, name: str, value: object) -> Iterator[ContentPart]:
    """Yield a member that should hold a string; any other value as data."""
    if isinstance(value, str):
        if value:
            yield ContentPart(kind, value)
    elif _says(value):
        yield ContentPart("data", {name: value})


def _listed(
    name: str, value: object, read: Callable[[object, int], Iterator[ContentPart]]
) -> Iterator[ContentPart]:
    """Yield the parts of a member that should hold a list; any other value as data."""
    if isinstance(value, list):
        for slot, entry in enumerate(value):
            yield from read(entry, slot)
    elif _says(value):
        yield ContentPart("data", {name: value})


def _rest(block: Message, read: set[str], part: ContentPart | None = None) -> Iterator[ContentPart]:
    """Yield the members of a block that were not read, as data. `part`: its call or result."""
    rest = {
        key: value
        for key, value in block.items()
        if key not in read
        and (key not in LABELS or key in _SHOWN_LABELS)
        and not (part and key in _NAMES and value in (part.name, part.call_id))
        and _says(value)
    }
    if rest:
        yield ContentPart("data", rest, REST)


def _says(value: object) -> bool:
    """Return whether a member is worth showing: neither empty nor a report of success."""
    if isinstance(value, str):
        return bool(value) and value not in _SUCCESS
    return value is not None and value is not False and value not in ([], {})


def _role(message: Message, parts: list[ContentPart]) -> str:
    content = message.get("content")
    inner = content.get("role") if isinstance(content, Mapping) else None
    role = _word(message.get("role")) or _word(inner)
    if role:
        return role
    kinds = {part.kind for part in parts}
    listed, kind = message.get("parts"), _word(message.get("kind"))
    if kind in {"request", "response"} and isinstance(listed, list):
        asked = [part.get("part_kind") for part in listed if isinstance(part, Mapping)]
        if kind == "response" or "user-prompt" in asked:
            return "assistant" if kind == "response" else "user"
        return "system" if "system-prompt" in asked else "tool" if "result" in kinds else "user"
    kind = _word(message.get("type"))
    if kind in ROLES:
        return ROLES[kind]
    if kinds & {"call", "thinking"}:
        return "assistant"
    return "tool" if "result" in kinds else kind or "message"


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


# -- binary data ---------------------------------------------------------------------------------

#: A data URL, and a text that is base64.
_DATA_URL: Final = re.compile(r"data:([\w.+/-]*)[^,]{0,100};base64,")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{64,}+={0,2}+")

#: Members that name the type of binary data next to them, and those that hold it without a type.
_TYPES: Final = ("media_type", "mediaType", "mime_type", "mimeType", "format")
_BINARY: Final = frozenset({"data", "bytes", "base64", "b64_json", "file_data"})


def without_binary(part: ContentPart) -> ContentPart:
    """Return a part with the type and size of its images and other binary data instead of these."""
    found: list[str] = []

    def named(value: Any, type: str, key: str) -> Any:
        if isinstance(value, Mapping):
            type = next((value[n] for n in _TYPES if isinstance(value.get(n), str)), type)
            return {name: named(member, type, name) for name, member in value.items()}
        if isinstance(value, list):
            return [named(member, type, key) for member in value]
        if not isinstance(value, str):
            return value
        url = _DATA_URL.match(value)
        if url is None and not (key in _BINARY and _BASE64.fullmatch(value)):
            return value
        length = len(value.rstrip("=")) - (url.end() if url else 0)
        found.append(f"[{(url and url[1]) or type or 'binary'}, {size(length * 3 // 4)}]")
        return found[-1]

    value = named(part.value, "", "") if part.kind in {"data", "result"} else part.value
    # A picture alone is its name.
    alone = part.kind == "data" and len(found) == 1
    return part._replace(kind="text", value=found[0]) if alone else part._replace(value=value)


def size(number: float) -> str:
    """Return a number of bytes with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:  # noqa: PLR2004 - the next unit
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
