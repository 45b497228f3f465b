"""Items of OpenAI's Responses, as one JSON array: what the Agents SDK's sessions and `Runner.run` take.

Above: `exporters`.  Below: `telling`, `adapters.openai_items`.
`importers.openai_agents` reads it again.
"""

from collections.abc import Iterator

import msgspec

from hansard.adapters.openai_items import items_of
from hansard.adapters.values import as_json
from hansard.exporters.telling import Told


def render(told: Told) -> Iterator[bytes]:
    """Yield the array, an item in each line."""
    before = b"[\n"
    for event in told.events:
        message = event.message
        for item in items_of(message) if message else ():
            yield before + msgspec.json.encode(as_json(item))
            before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"
