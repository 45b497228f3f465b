"""Know which message calls a tool, which one answers it, and what lacks its other half.

Above: `window`, `session`.  Below: nothing of the store.
A model refuses a history in which a call has no result or a result no call, and every framework writes them
differently. Known here: OpenAI chat messages (`tool_calls`, role `tool`), OpenAI Responses items
(`…_call`, `…_call_output`), Anthropic content blocks (`tool_use`, `tool_result`) and Pydantic AI parts
(`tool-call`, `tool-return`, `retry-prompt`). What is not known calls nothing and answers nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Message = Mapping[str, Any]


class Problem(NamedTuple):
    """A call without a result, or a result without a call."""

    #: "orphan call" or "orphan result".
    what: str
    #: Its place in the messages that were looked at, from 0.
    place: int
    #: The id that call and result should share.
    call_id: str


def calls(message: Message) -> list[str]:
    """Return the ids of the tool calls that a message makes."""
    return [call_id for is_call, call_id in _halves(message) if is_call]


def results(message: Message) -> list[str]:
    """Return the ids of the tool calls that a message answers."""
    return [call_id for is_call, call_id in _halves(message) if not is_call]


def problems(messages: Sequence[Message]) -> list[Problem]:
    """Return what lacks its other half, in the order of the messages.

    A result must come after its call. A call that the last messages may still answer is a problem
    too: whoever looks knows whether the conversation goes on.
    """
    open_calls: dict[str, int] = {}
    found = []
    for place, message in enumerate(messages):
        for is_call, call_id in _halves(message):
            if is_call:
                open_calls[call_id] = place
            elif open_calls.pop(call_id, None) is None:
                found.append(Problem("orphan result", place, call_id))
    found += [Problem("orphan call", place, call_id) for call_id, place in open_calls.items()]
    return sorted(found, key=lambda problem: problem.place)


def _halves(message: Message) -> Iterator[tuple[bool, str]]:
    """Yield each call (True) and result (False) in a message, with the id they share."""
    yield from _chat(message)
    yield from _responses(message)
    yield from _blocks(message.get("content"))
    yield from _parts(message.get("parts"))


def _chat(message: Message) -> Iterator[tuple[bool, str]]:
    for call in _objects(message.get("tool_calls")):
        yield from _with_id(call.get("id"), is_call=True)
    if message.get("role") == "tool":
        yield from _with_id(message.get("tool_call_id"), is_call=False)


def _responses(message: Message) -> Iterator[tuple[bool, str]]:
    kind = message.get("type")
    if isinstance(kind, str) and kind.endswith("_call_output"):
        yield from _with_id(message.get("call_id"), is_call=False)
    elif isinstance(kind, str) and kind.endswith("_call"):
        yield from _with_id(message.get("call_id"), is_call=True)


def _blocks(content: object) -> Iterator[tuple[bool, str]]:
    for block in _objects(content):
        kind = block.get("type")
        if kind in {"tool_use", "server_tool_use"}:
            yield from _with_id(block.get("id"), is_call=True)
        elif isinstance(kind, str) and kind.endswith("tool_result"):
            yield from _with_id(block.get("tool_use_id"), is_call=False)


def _parts(parts: object) -> Iterator[tuple[bool, str]]:
    for part in _objects(parts):
        kind = part.get("part_kind")
        if kind in {"tool-call", "builtin-tool-call"}:
            yield from _with_id(part.get("tool_call_id"), is_call=True)
        elif kind in {"tool-return", "builtin-tool-return"}:
            yield from _with_id(part.get("tool_call_id"), is_call=False)
        elif kind == "retry-prompt" and part.get("tool_name") is not None:
            # Without a tool's name it asks for another answer, not for another call.
            yield from _with_id(part.get("tool_call_id"), is_call=False)


def _objects(value: object) -> Iterator[Message]:
    if isinstance(value, list):
        for item in value:
            if isinstance(item, Mapping):
                yield item


def _with_id(call_id: object, *, is_call: bool) -> Iterator[tuple[bool, str]]:
    if isinstance(call_id, str):
        yield is_call, call_id
