"""Convert messages of Pydantic AI, as it writes them in JSON, to common messages, and back.

Imports nothing of Pydantic. A message of Pydantic AI has parts. Texts of the user and the model become the
content. Calls, and a single result, are written as in a chat; several results are blocks. A system prompt
belongs to the agent: it stays in `origin`, unless the message has nothing else.
"""

from collections.abc import Iterable
from typing import Any, Final

from hansard.message import origin

FORMAT: Final = "pydantic-ai"

#: Kinds of the events of a step store: runs, their steps, snapshots, and effects of tools.
RUN: Final = "x.pydantic-ai.run"
STEP: Final = "x.pydantic-ai.step"
SNAPSHOT: Final = "x.pydantic-ai.snapshot"
EFFECT: Final = "x.pydantic-ai.effect"

Native = dict[str, Any]

#: Parts whose content is text.
_TEXTS: Final = frozenset({"text", "compaction", "retry-feedback", "retry-prompt"})


def message_of(native: Native) -> dict[str, Any]:
    """Return the message that one of Pydantic AI's is stored as."""
    parts = [part for part in native.get("parts", ()) if isinstance(part, dict)]
    results = [_result(part) for part in parts if _is_result(part)]
    blocks = [block for part in parts if not _is_result(part) for block in _blocks(part)]
    role, content, more = "user", origin.content_of(blocks), {}
    if native.get("kind") == "response":
        calls = [_call(part) for part in parts if part.get("part_kind") == "tool-call"]
        role, more = "assistant", {"tool_calls": calls or None}
    elif len(results) == 1 and not blocks:
        role, content = "tool", results[0]["content"]
        more = {"tool_call_id": results[0]["tool_use_id"]}
    elif results:
        content = [*results, *blocks]
    elif not blocks:
        system = [part.get("content") for part in parts if part.get("part_kind") == "system-prompt"]
        if system:
            role, content = "system", origin.content_of(_texts(system))
    return origin.pack(FORMAT, native, role=role, content=content, **more)


def usage_of(native: Native) -> dict[str, Any] | None:
    """Return what to record for a response that reports usage; None for any other message."""
    used = native.get("usage")
    if native.get("kind") != "response" or not isinstance(used, dict):
        return None
    details = used.get("details")
    reasoned = details.get("reasoning_tokens") if isinstance(details, dict) else None
    counts = {
        "input_tokens": used.get("input_tokens"),
        "output_tokens": used.get("output_tokens"),
        "cached_tokens": used.get("cache_read_tokens"),
        "cache_write_tokens": used.get("cache_write_tokens"),
        "reasoning_tokens": used.get("output_reasoning_tokens") or reasoned,
    }
    more = {} if used.get("cost") is None else {"cost": str(used["cost"])}
    if isinstance(native.get("provider_response_id"), str):
        more["response_id"] = native["provider_response_id"]
    return origin.usage(native.get("model_name"), counts, **more)


def call_of(native: Native) -> str:
    """Return what identifies the model call of a response, also after its parts were changed."""
    return f"{native.get('run_id')} {native.get('timestamp')} {native.get('provider_response_id')}"


def natives_of(messages: Iterable[dict[str, Any]]) -> list[Native]:
    """Return stored messages as Pydantic AI's.

    Messages of another framework become simple messages of Pydantic AI, fewer or more than there were.
    """
    names: dict[str, str] = {}
    return [*origin.natives(messages, FORMAT, lambda chat: _foreign(chat, names))]


def _foreign(chat: dict[str, Any], names: dict[str, str]) -> Native:
    """Return a simple message for one of a chat. `names`: the tools, by the ids of their calls."""
    role, text = chat["role"], chat["content"]
    if role == "assistant":
        parts: list[Native] = [{"part_kind": "text", "content": text}] if text else []
        for call in chat.get("tool_calls", ()):
            name, given = call["function"]["name"], call["function"]["arguments"]
            names[call["id"]] = name
            made = {"part_kind": "tool-call", "tool_name": name, "args": given}
            parts.append({**made, "tool_call_id": call["id"]})
        return {"kind": "response", "parts": parts}
    if role == "tool":
        called = chat["tool_call_id"]
        # A result of a chat does not name its tool; its call does.
        part = {"part_kind": "tool-return", "tool_name": names.get(called, "tool")}
        part |= {"content": text, "tool_call_id": called}
    else:
        kind = "system-prompt" if role in {"system", "developer"} else "user-prompt"
        part = {"part_kind": kind, "content": text}
    return {"kind": "request", "parts": [part]}


def _is_result(part: Native) -> bool:
    kind = part.get("part_kind")
    return kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name") is not None)


def _result(part: Native) -> dict[str, Any]:
    """Return the result of a tool as a block."""
    content = part.get("content")
    if not isinstance(content, str):
        content = "" if content is None else [{"json": content}]
    called = str(part.get("tool_call_id") or "")
    return {"type": "tool_result", "tool_use_id": called, "content": content}


def _blocks(part: Native) -> list[dict[str, Any]]:
    """Return the blocks of a part that is not a result; of hosted tools and files, only the name."""
    kind, content = part.get("part_kind"), part.get("content")
    if kind == "user-prompt":
        return _texts(content if isinstance(content, list) else [content])
    if kind in _TEXTS or kind == "speech":
        return _texts([part.get("transcript") if kind == "speech" else content])
    if kind == "thinking":
        return [{"type": "thinking", "thinking": content}] if content else []
    if kind in {"file", "builtin-tool-call", "builtin-tool-return"}:
        name = part.get("tool_name")
        return [{"type": kind, "name": name} if isinstance(name, str) else {"type": kind}]
    return []


def _texts(contents: Iterable[Any]) -> list[dict[str, Any]]:
    """Return blocks for contents: texts, and of anything else its kind or its JSON."""
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


def _call(part: Native) -> dict[str, Any]:
    call_id, name = str(part.get("tool_call_id") or ""), str(part.get("tool_name") or "")
    given = part.get("args")
    return origin.call_of(call_id, name, {} if given is None else given)
