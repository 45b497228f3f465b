"""A rollout of the Codex CLI: one JSON object in each line.

Above: `exporters`.  Below: `telling`, `adapters.openai_items` (its items are those of OpenAI's Responses).
What came from a rollout goes out as its own lines. Of anything else, what was said becomes `response_item`s
behind a `session_meta`, as which every rollout begins.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from hansard import Event
from hansard.adapters import common
from hansard.adapters.openai_items import items_of
from hansard.adapters.values import as_json
from hansard.exporters.telling import Told

#: The kind of the events that hold lines which are no items.
LINE: Final = "x.codex.line"

#: Codex names the parts of a message by who says them.
_PARTS: Final = {"assistant": "output_text"}


def render(told: Told) -> Iterator[bytes]:
    """Yield the rollout, line by line."""
    lines = [line for event in told.events for line in _lines(event)]
    # A fork has its parent's first line, too; the last one is its own.
    heads = [line for line in lines if line.get("type") == "session_meta"]
    yield _encoded(heads[-1] if heads else _head(told))
    yield from (_encoded(line) for line in lines if line.get("type") != "session_meta")


def _encoded(line: dict[str, Any]) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _head(told: Told) -> dict[str, Any]:
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


def _lines(event: Event) -> list[dict[str, Any]]:
    """Return the lines that an event is."""
    if event.kind == LINE:
        line = event.data.get("line")
        return [{"timestamp": event.stamp, **line}] if isinstance(line, dict) else []
    message = event.message
    if not message:
        return []
    # What a line said besides its item was noted by the import.
    frame = (common.origin_of(message) or {}).get("line")
    before = {"timestamp": event.stamp, **(frame if isinstance(frame, dict) else {})}
    return [
        {**before, "type": "response_item", "payload": _item(as_json(item))}
        for item in items_of(message)
    ]


def _item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as Codex has it: a message names its type, and its content is a list."""
    role = item.get("role")
    if not isinstance(role, str):
        return item
    content = item.get("content")
    if isinstance(content, str):
        content = [{"type": _PARTS.get(role, "input_text"), "text": content}]
    return {"type": "message", **item, "content": content}
