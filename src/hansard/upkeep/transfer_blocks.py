"""Say what a message says, in blocks, whichever framework wrote it.

Above: `transfer_markdown`, `transfer_html`.  Below: `event.codec`.
Known are the shapes that `state.pairing` knows, too: OpenAI chat messages and Responses items, Anthropic
content blocks, Pydantic AI and Google parts. Whatever is not known is shown as the JSON that it is: in a
transcript nothing is left out for being new.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

Kind = Literal["text", "thinking", "call", "result", "data"]

#: What every message may have, and what is shown elsewhere or says nothing to people.
_KNOWN: Final = frozenset(
    {
        "role",
        "content",
        "parts",
        "type",
        "kind",
        "tool_calls",
        "tool_call_id",
        "id",
        "partial",
        "name",
    }
)

#: Members that hold what a part says, in the order in which they are looked for.
_TEXTS: Final = ("text", "content", "thinking", "refusal", "output_text", "input_text")

_THINKING: Final = frozenset({"thinking", "reasoning", "redacted_thinking", "summary_text"})


class Block(NamedTuple):
    """A piece of a message."""

    kind: Kind
    #: The name of a tool, or of what is not known.
    title: str
    text: str
    #: The id that a call and its result share.
    call_id: str = ""


def role_of(message: Mapping[str, Any]) -> str:
    """Return whose message it is."""
    role = message.get("role")
    if isinstance(role, str) and role:
        return role
    kind = message.get("type") or message.get("kind")
    if not isinstance(kind, str):
        return "message"
    if kind.endswith("_output"):
        return "tool"
    said = kind.endswith("_call") or kind in {"response", "reasoning"}
    return "assistant" if said else {"request": "user"}.get(kind, kind)


def blocks_of(message: Mapping[str, Any]) -> list[Block]:
    """Return what a message says, in order."""
    return list(_blocks(message))


def _blocks(message: Mapping[str, Any]) -> Iterator[Block]:
    if isinstance(message.get("tool_call_id"), str) and message.get("role") == "tool":
        name = message.get("name")
        title = name if isinstance(name, str) else ""
        yield Block("result", title, _text_of(message.get("content")), message["tool_call_id"])
    elif _is_item(message):
        yield _part(message)
        return
    else:
        yield from _content(message.get("content"))
        yield from _content(message.get("parts"))
        yield from _content(message.get("tool_calls"))
    rest = {name: value for name, value in message.items() if name not in _KNOWN and value}
    if rest:
        yield Block("data", "also", to_json(rest))


def _is_item(message: Mapping[str, Any]) -> bool:
    """Say whether a message is one part, and no more: an item of OpenAI's Responses."""
    kind = message.get("type")
    return isinstance(kind, str) and kind != "message" and "role" not in message


def _content(content: object) -> Iterator[Block]:
    if content is None or content == "":
        return
    if isinstance(content, str):
        yield Block("text", "", content)
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, str):
                yield Block("text", "", part)
            elif isinstance(part, Mapping):
                yield _part(part)
            else:
                yield Block("data", "", to_json(part))
    else:
        yield Block("data", "", to_json(content))


def _part(part: Mapping[str, Any]) -> Block:
    kind = part.get("type") or part.get("part_kind") or ""
    kind = kind if isinstance(kind, str) else ""
    call = _call(part, kind) or _result(part, kind)
    if call is not None:
        return call
    if kind in _THINKING:
        return Block("thinking", "", _own_text(part) or _text_of(part.get("summary")))
    text = _own_text(part)
    # A part that has a text and something else of weight, such as a picture, is shown as it is.
    if text and all(not isinstance(value, dict | list) for value in part.values()):
        return Block("text", "", text)
    return Block("data", kind, to_json(part))


def _call(part: Mapping[str, Any], kind: str) -> Block | None:
    inner = part.get("function") if isinstance(part.get("function"), Mapping) else None
    inner = inner or (
        part["function_call"] if isinstance(part.get("function_call"), Mapping) else None
    )
    if inner is not None:
        name, given = inner.get("name"), inner.get("arguments", inner.get("args"))
    elif kind.endswith(("tool_use", "_call")) or kind in {"tool-call", "builtin-tool-call"}:
        name = part.get("name", part.get("tool_name", kind))
        given = next(
            (part[key] for key in ("input", "arguments", "args", "action") if key in part), None
        )
    else:
        return None
    call_id = next((part[key] for key in ("call_id", "tool_call_id", "id") if key in part), "")
    return Block("call", str(name or "tool"), _arguments(given), str(call_id or ""))


def _result(part: Mapping[str, Any], kind: str) -> Block | None:
    if isinstance(part.get("function_response"), Mapping):
        inner = part["function_response"]
        return Block("result", str(inner.get("name", "")), _text_of(inner.get("response")))
    known = kind.endswith(("tool_result", "_call_output")) or kind in {
        "tool-return",
        "builtin-tool-return",
    }
    if not known:
        return None
    given = part.get("content", part.get("output"))
    call_id = next(
        (part[key] for key in ("tool_use_id", "call_id", "tool_call_id") if key in part), ""
    )
    return Block("result", str(part.get("tool_name", "")), _text_of(given), str(call_id or ""))


def _own_text(part: Mapping[str, Any]) -> str:
    found = (part[name] for name in _TEXTS if isinstance(part.get(name), str))
    return next(found, "")


def _text_of(value: object) -> str:
    """Return what a tool said: its text, or JSON if it is more than that."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = [_own_text(part) for part in value if isinstance(part, Mapping)]
        if texts and len(texts) == len(value) and all(texts):
            return "\n\n".join(texts)
    return to_json(value)


def _arguments(value: object) -> str:
    """Return the arguments of a call, as JSON that can be read, also if they came as text."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return str(value)
    return "" if value is None else to_json(value)


def to_json(value: object) -> str:
    """Return JSON for people to read."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
