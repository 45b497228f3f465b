"""Convert messages of Pydantic AI, as it writes them in JSON, to common messages, and back.

Needs nothing of Pydantic's. A message of Pydantic AI has parts: what a user and a model said is the content;
calls, and the only result in a message, are written as in a chat; several results are blocks. A
system prompt is the agent's and not said by anybody: it stays in `origin`, unless there is nothing else.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from hansard.message import origin

FORMAT: Final = "pydantic-ai"

Native = dict[str, Any]

#: Parts whose content is text.
_SAID: Final = frozenset({"text", "compaction", "retry-feedback", "retry-prompt"})


def message_of(native: Native) -> dict[str, Any]:
    """Return the message that one of Pydantic AI's is stored as."""
    parts = [part for part in native.get("parts", ()) if isinstance(part, dict)]
    reading = _Parts(parts)
    if native.get("kind") == "response":
        calls = [_call(part) for part in parts if part.get("part_kind") == "tool-call"]
        return origin.pack(
            FORMAT,
            native,
            role="assistant",
            content=_content(reading.blocks),
            tool_calls=calls or None,
        )
    if len(reading.results) == 1 and not reading.blocks:
        result = reading.results[0]
        return origin.pack(
            FORMAT,
            native,
            role="tool",
            content=result["content"],
            tool_call_id=result["tool_use_id"],
        )
    if reading.results:
        return origin.pack(FORMAT, native, role="user", content=[*reading.results, *reading.blocks])
    if not reading.blocks:
        system = [part.get("content") for part in parts if part.get("part_kind") == "system-prompt"]
        if system:
            return origin.pack(FORMAT, native, role="system", content=_content(_texts(system)))
    return origin.pack(FORMAT, native, role="user", content=_content(reading.blocks))


def natives_of(messages: Iterable[dict[str, Any]]) -> list[tuple[int, Native]]:
    """Return what stored messages are for Pydantic AI, each with the place of the message that it is from.

    What another framework wrote is turned into the simplest messages of Pydantic AI: fewer or more than
    there were. These have the place of the last one that was read together with them.
    """
    found: list[tuple[int, Native]] = []
    names: dict[str, str] = {}
    unpacked = [
        (place, message, origin.unpack(message, FORMAT)) for place, message in enumerate(messages)
    ]
    for own, group in groupby(unpacked, key=lambda one: one[2] is not None):
        chosen = list(group)
        if own:
            found += [(place, native) for place, _, native in chosen if native is not None]
            continue
        last = chosen[-1][0]
        for said in origin.conversation(message for _, message, _ in chosen):
            found.append((last, _foreign(said, names)))
    return found


def _foreign(said: dict[str, Any], names: dict[str, str]) -> Native:
    """Return the simplest message for one of a chat."""
    role, text = said["role"], said["content"]
    if role == "assistant":
        parts: list[Native] = [{"part_kind": "text", "content": text}] if text else []
        for call in said.get("tool_calls", ()):
            name, given = call["function"]["name"], call["function"]["arguments"]
            names[call["id"]] = name
            parts.append(
                {
                    "part_kind": "tool-call",
                    "tool_name": name,
                    "args": given,
                    "tool_call_id": call["id"],
                }
            )
        return {"kind": "response", "parts": parts}
    if role == "tool":
        called = said["tool_call_id"]
        part = {
            "part_kind": "tool-return",
            # A result does not say which tool it is from: the call did.
            "tool_name": names.get(called, "tool"),
            "content": text,
            "tool_call_id": called,
        }
    else:
        kind = "system-prompt" if role in {"system", "developer"} else "user-prompt"
        part = {"part_kind": kind, "content": text}
    return {"kind": "request", "parts": [part]}


class _Parts:
    """What is in the parts of a message that others can read."""

    def __init__(self, parts: list[Native]) -> None:
        #: Results of tools, as blocks.
        self.results: list[dict[str, Any]] = []
        #: Whatever else is said, as blocks.
        self.blocks: list[dict[str, Any]] = []
        for part in parts:
            self._add(part)

    def _add(self, part: Native) -> None:
        kind, content = part.get("part_kind"), part.get("content")
        if kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name") is not None):
            self.results.append(
                {
                    "type": "tool_result",
                    "tool_use_id": str(part.get("tool_call_id") or ""),
                    "content": _result(content),
                }
            )
        elif kind == "user-prompt":
            self.blocks += _texts(content if isinstance(content, list) else [content])
        elif kind in _SAID:
            self.blocks += _texts([content])
        elif kind == "thinking":
            if content:
                self.blocks.append({"type": "thinking", "thinking": content})
        elif kind == "speech":
            self.blocks += _texts([part.get("transcript")])
        elif kind in {"file", "builtin-tool-call", "builtin-tool-return"}:
            block = {"type": kind}
            if isinstance(part.get("tool_name"), str):
                block["name"] = part["tool_name"]
            self.blocks.append(block)


def _texts(contents: Iterable[Any]) -> list[dict[str, Any]]:
    """Return blocks for contents: texts, and of all else what it is."""
    found: list[dict[str, Any]] = []
    for content in contents:
        text = content.get("content") if isinstance(content, dict) else content
        if isinstance(text, str):
            if text:
                found.append({"type": "text", "text": text})
        elif isinstance(content, dict) and isinstance(content.get("kind"), str):
            found.append({"type": content["kind"]})
        elif content is not None:
            found.append({"json": content})
    return found


def _content(blocks: list[dict[str, Any]]) -> Any:
    """Return blocks as a message has them: a single text is not a block."""
    if not blocks:
        return ""
    if len(blocks) == 1 and blocks[0].get("type") == "text":
        return blocks[0]["text"]
    return blocks


def _result(content: Any) -> Any:
    if content is None:
        return ""
    return content if isinstance(content, str) else [{"json": content}]


def _call(part: Native) -> dict[str, Any]:
    call_id, name = str(part.get("tool_call_id") or ""), str(part.get("tool_name") or "")
    given = part.get("args")
    return origin.call_of(call_id, name, {} if given is None else given)
