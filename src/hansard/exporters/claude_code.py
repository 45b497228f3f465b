"""A transcript of Claude Code: one JSON object in each line.

Above: `exporters`.  Below: `telling`, `adapters.claude_entries`.
What came from a transcript goes out as its own entries. Anything else becomes entries that each name the one
before as their parent. Claude Code finds a transcript by its name: `<sessionId>.jsonl`.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from hansard.adapters import claude_entries
from hansard.adapters.values import as_json
from hansard.exporters.telling import Told


def render(told: Told) -> Iterator[bytes]:
    """Yield the transcript, line by line."""
    entries = claude_entries.entries(told.events, told.uuid)
    for entry in entries:
        yield _encoded(entry)
    title = told.metadata.get("title")
    if isinstance(title, str) and title and not any(claude_entries.titles(entries)):
        yield _encoded({"type": "custom-title", "customTitle": title, "sessionId": told.uuid})


def _encoded(entry: dict[str, Any]) -> bytes:
    return msgspec.json.encode(as_json(entry)) + b"\n"
