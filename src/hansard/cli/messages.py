"""Read a message as a person would: who speaks, what is said, which tools are called, what they answer.

Above: `telling`.  Below: nothing of hansard.
Messages are whatever a framework makes of them. Known here are the shapes of OpenAI chat (`tool_calls`, role
`tool`), OpenAI Responses items (`function_call`, `function_call_output`, `reasoning`), Anthropic blocks
(`text`, `tool_use`, `tool_result`, `thinking`) and Pydantic AI parts. What is not known is shown as JSON:
nothing is left out because nobody here has heard of it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

#: Members that say who speaks and in what shape, or that only programs need.
_FRAME: Final = frozenset(
    {
        "annotations",
        "call_id",
        "content",
        "id",
        "instructions",
        "kind",
        "name",
        "object",
        "partial",
        "parts",
        "reasoning",
        "reasoning_content",
        "refusal",
        "role",
        "status",
        "tool_call_id",
        "tool_calls",
        "type",
    }
)

#: Members of chat messages in which providers return a model's thoughts as text.
_REASONING: Final = ("reasoning_content", "reasoning")

_PARTS: Final = {
    "system-prompt": "system",
    "user-prompt": "user",
    "text": "assistant",
}


class Said(NamedTuple):
    """A piece of a message."""

    #: "text", "thinking", "call", "result", or "data" for what is not known.
    what: str
    text: str
    #: The tool, for a call or a result, as far as it is named there.
    name: str = ""
    #: What call and result share.
    call_id: str = ""


class Spoken(NamedTuple):
    """A message, as it is shown."""

    role: str
    pieces: list[Said]
    partial: bool = False


def read(message: Mapping[str, Any], *, all_members: bool = False) -> Spoken:
    """Return the role of a message, and its pieces. `all_members`: also those that are not known here."""
    pieces = list(_pieces(message))
    role = _role(message, pieces)
    rest = {key: value for key, value in message.items() if key not in _FRAME}
    if rest and (all_members or not pieces):
        pieces.append(Said("data", compact(rest)))
    return Spoken(role, pieces, partial=message.get("partial") is True)


def compact(value: object) -> str:
    """Return a value as JSON in one line, with its text readable."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def arguments(given: object) -> str:
    """Return the arguments of a call: a string verbatim, anything else as JSON."""
    if isinstance(given, str):
        return given
    return "" if given is None else compact(given)


def _role(message: Mapping[str, Any], pieces: list[Said]) -> str:
    role = message.get("role")
    if isinstance(role, str) and role:
        name = message.get("name")
        return f"{role} ({name})" if isinstance(name, str) and name and role != "tool" else role
    kind = message.get("kind")
    if kind in {"request", "response"} and isinstance(message.get("parts"), list):
        return "assistant" if kind == "response" else _requested(message["parts"])
    if any(piece.what in {"call", "thinking"} for piece in pieces):
        return "assistant"
    if any(piece.what == "result" for piece in pieces):
        return "tool"
    kind = message.get("type")
    return kind if isinstance(kind, str) and kind else "message"


def _requested(parts: list[Any]) -> str:
    """Return whose the first part of a request is."""
    kinds = [part.get("part_kind") for part in parts if isinstance(part, Mapping)]
    if "user-prompt" in kinds:
        return "user"
    return _PARTS.get(kinds[0], "tool") if kinds and isinstance(kinds[0], str) else "user"


def _pieces(message: Mapping[str, Any]) -> Iterator[Said]:
    if message.get("role") in {"tool", "function"}:
        yield Said(
            "result",
            _plain(message.get("content")),
            _word(message.get("name")),
            _word(message.get("tool_call_id")),
        )
        return
    yield from _item(message)
    for name in _REASONING:
        if isinstance(message.get(name), str) and message[name]:
            yield Said("thinking", message[name])
    yield from _content(message.get("content"))
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        yield Said("text", refusal)
    parts = message.get("parts")
    if isinstance(parts, list):
        for part in parts:
            yield from _part(part)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in calls:
            yield _chat_call(call)


def _content(content: object) -> Iterator[Said]:
    if isinstance(content, str):
        if content:
            yield Said("text", content)
    elif isinstance(content, list):
        for block in content:
            yield from _block(block)
    elif content is not None:
        yield Said("data", compact(content))


def _chat_call(call: object) -> Said:
    if not isinstance(call, Mapping):
        return Said("data", compact(call))
    function = call.get("function") or call.get("custom")
    inner = function if isinstance(function, Mapping) else call
    given = inner.get("arguments", inner.get("args", inner.get("input")))
    name = _word(inner.get("name")) or _word(call.get("type")) or "?"
    return Said("call", arguments(given), name, _word(call.get("id")))


def _item(message: Mapping[str, Any]) -> Iterator[Said]:
    """Yield what an item of OpenAI's Responses says."""
    kind = message.get("type")
    if not isinstance(kind, str):
        return
    if kind.endswith("_call"):
        name = _word(message.get("name")) or kind.removesuffix("_call")
        given = next((message[k] for k in ("arguments", "input", "action") if k in message), None)
        yield Said("call", arguments(given), name, _word(message.get("call_id")))
    elif kind.endswith("_output"):
        output = message.get("output", message.get("tools"))
        yield Said("result", _plain(output), call_id=_word(message.get("call_id")))
    elif kind == "reasoning":
        texts = [*_texts(message.get("summary")), *_texts(message.get("content"))]
        yield Said("thinking", "\n".join(texts))


def _block(block: object) -> Iterator[Said]:
    """Yield what one block of a content says."""
    if isinstance(block, str):
        yield Said("text", block)
        return
    if not isinstance(block, Mapping):
        yield Said("data", compact(block))
        return
    kind = block.get("type")
    text = block.get("text")
    if isinstance(kind, str) and kind.endswith("tool_use"):
        name = _word(block.get("name")) or "?"
        yield Said("call", arguments(block.get("input")), name, _word(block.get("id")))
    elif isinstance(kind, str) and kind.endswith("tool_result"):
        yield Said("result", _plain(block.get("content")), call_id=_word(block.get("tool_use_id")))
    elif kind in {"thinking", "redacted_thinking"}:
        yield Said("thinking", str(block.get("thinking") or "(not shown by its provider)"))
    elif isinstance(text, str):
        yield Said("text", text)
    elif isinstance(kind, str) and isinstance(block.get(kind), str):
        yield Said("text", block[kind])
    else:
        yield Said("data", compact(block))


def _part(part: object) -> Iterator[Said]:
    """Yield what one part of a Pydantic AI message says."""
    if not isinstance(part, Mapping):
        yield Said("data", compact(part))
        return
    kind = part.get("part_kind")
    name = _word(part.get("tool_name"))
    if kind in {"tool-call", "builtin-tool-call"}:
        yield Said("call", arguments(part.get("args")), name or "?")
    elif kind in {"tool-return", "builtin-tool-return", "retry-prompt"}:
        yield Said("result", _plain(part.get("content")), name)
    elif kind == "thinking":
        yield Said("thinking", str(part.get("content") or ""))
    elif "content" in part:
        yield from _content(part["content"])
    elif isinstance(part.get("text"), str):
        yield Said("text", part["text"])
    else:
        yield Said("data", compact(part))


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _plain(content: object) -> str:
    """Return what a tool answered, as text."""
    if isinstance(content, str):
        return content
    texts = list(_texts(content))
    if texts:
        return "\n".join(texts)
    return "" if content is None else compact(content)


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            if isinstance(block, Mapping) and isinstance(block.get("text"), str):
                yield block["text"]
            elif isinstance(block, str):
                yield block
            else:
                yield compact(block)
