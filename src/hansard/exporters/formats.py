"""Render a session for other programs: one function per kind, named like it.

Nothing of a framework is imported.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from hansard import Event
from hansard.exporters.telling import Told
from hansard.message import claude_entries
from hansard.message.openai_items import items_of
from hansard.message.parse import origin_of
from hansard.message.values import as_json

#: The kind of the events that hold a line of a Codex rollout which is not an item.
_CODEX_LINE: Final = "x.codex.line"


def claude_code(told: Told) -> Iterator[bytes]:
    """Yield the lines of a Claude Code transcript, which must be named `<sessionId>.jsonl`.

    Imported entries are written unchanged. Each other message becomes an entry after the last one.
    """
    entries = claude_entries.entries(told.events, told.uuid)
    for entry in entries:
        yield _line(as_json(entry))
    title = told.metadata.get("title")
    if isinstance(title, str) and title and not any(claude_entries.titles(entries)):
        yield _line({"type": "custom-title", "customTitle": title, "sessionId": told.uuid})


def openai_items(told: Told) -> Iterator[bytes]:
    """Yield a JSON array of OpenAI Responses items, as the Agents SDK's sessions and `Runner.run` take it."""
    before = b"[\n"
    for event in told.events:
        message = event.message
        for item in items_of(message) if message else ():
            yield before + msgspec.json.encode(as_json(item))
            before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


def codex(told: Told) -> Iterator[bytes]:
    """Yield the lines of a Codex rollout: a `session_meta`, then imported lines and messages."""
    lines = [line for event in told.events for line in _codex_lines(event)]
    # A fork inherits its parent's first line; the last one is its own.
    heads = [line for line in lines if line.get("type") == "session_meta"]
    yield _line(heads[-1] if heads else _codex_head(told))
    yield from (_line(line) for line in lines if line.get("type") != "session_meta")


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _codex_head(told: Told) -> dict[str, Any]:
    workspace = told.metadata.get("workspace")
    payload = {
        "id": told.uuid,
        "session_id": told.uuid,
        "timestamp": told.created,
        "cwd": workspace if isinstance(workspace, str) else "",
        "originator": "hansard",
        "cli_version": "0.0.0",
        "source": "cli",
    }
    return {"timestamp": told.created, "type": "session_meta", "payload": payload}


def _codex_lines(event: Event) -> list[dict[str, Any]]:
    if event.kind == _CODEX_LINE:
        line = event.data.get("line")
        return [{"timestamp": event.stamp, **line}] if isinstance(line, dict) else []
    message = event.message
    if not message:
        return []
    # The import has noted the other members of the line.
    frame = (origin_of(message) or {}).get("line")
    before = {"timestamp": event.stamp, **(frame if isinstance(frame, dict) else {})}
    return [
        {**before, "type": "response_item", "payload": _codex_item(as_json(item))}
        for item in items_of(message)
    ]


def _codex_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as Codex writes it: a message has a type, and its content is a list."""
    role = item.get("role")
    if not isinstance(role, str):
        return item
    content = item.get("content")
    if isinstance(content, str):
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    return {"type": "message", **item, "content": content}
