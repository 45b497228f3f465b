"""Know which message calls a tool, which one answers it, and what lacks its other half.

Above: `window`, `repair`, `session`.  Below: nothing of the store.
A model refuses a history in which a call has no result or a result no call, and every framework writes them
differently. Known here: OpenAI chat messages (`tool_calls`, role `tool`), OpenAI Responses items
(`…_call`, `…_call_output`), Anthropic content blocks (`tool_use`, `tool_result`) and Pydantic AI parts
(`tool-call`, `tool-return`, `retry-prompt`). What is not known calls nothing and answers nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

Message = Mapping[str, Any]


class Shape(Enum):
    """How a framework writes calls and results, and where a result must stand."""

    #: A result is a message of its own, directly after the message that calls.
    CHAT = "chat"
    #: Call and result are items of their own, in this order.
    ITEM = "item"
    #: A result is a block of `content`, in the very next message.
    BLOCK = "block"
    #: The provider runs the tool itself: the result is a block of what the model says.
    SERVER_BLOCK = "server block"
    #: A result is one of the `parts` of the next request.
    PART = "part"
    #: As a server's block, among the `parts` of a response.
    SERVER_PART = "server part"


class Half(NamedTuple):
    """A call, or a result."""

    is_call: bool
    #: The id that call and result share.
    call_id: str
    shape: Shape
    #: Its place in the list inside the message; 0 if it is the message itself.
    slot: int
    #: Its message's place in the messages that were looked at, from 0.
    place: int


class Pair(NamedTuple):
    """A call and its result; one of them is None if it is missing."""

    call: Half | None
    result: Half | None


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
    return [half.call_id for half in _halves(message, 0) if half.is_call]


def results(message: Message) -> list[str]:
    """Return the ids of the tool calls that a message answers."""
    return [half.call_id for half in _halves(message, 0) if not half.is_call]


def problems(messages: Sequence[Message]) -> list[Problem]:
    """Return what lacks its other half, in the order of the messages.

    A result must come after its call. A call that the last messages may still answer is a problem
    too: whoever looks knows whether the conversation goes on.
    """
    found = []
    for call, result in pairs(messages):
        if call is None and result is not None:
            found.append(Problem("orphan result", result.place, result.call_id))
        elif call is not None and result is None:
            found.append(Problem("orphan call", call.place, call.call_id))
    return sorted(found, key=lambda problem: problem.place)


def pairs(messages: Sequence[Message]) -> list[Pair]:
    """Return every call with its result, and what lacks its other half.

    A result answers the last call before it that has its id, and only the first one does. Some models
    use an id again in a later turn: what the earlier call has not got by then, it never gets.
    """
    waiting: dict[str, Half] = {}
    found = []
    for place, message in enumerate(messages):
        for half in _halves(message, place):
            if not half.is_call:
                found.append(Pair(waiting.pop(half.call_id, None), half))
                continue
            earlier = waiting.get(half.call_id)
            # The same id twice in one message is one call, written twice.
            if earlier is not None and earlier.place != place:
                found.append(Pair(earlier, None))
            waiting[half.call_id] = half
    return found + [Pair(call, None) for call in waiting.values()]


def _halves(message: Message, place: int) -> Iterator[Half]:
    """Yield each call and result in a message."""
    for is_call, call_id, shape, slot in _known(message):
        # A call that names no id, such as a hosted search, waits for nothing.
        if isinstance(call_id, str):
            yield Half(is_call, call_id, shape, slot, place)


_Found = tuple[bool, object, Shape, int]


def _known(message: Message) -> Iterator[_Found]:
    if message.get("role") == "tool" and isinstance(message.get("tool_call_id"), str):
        # The whole message is the result, whatever its content looks like.
        yield False, message["tool_call_id"], Shape.CHAT, 0
        return
    yield from _item(message)
    yield from _blocks(message.get("content"))
    yield from _parts(message.get("parts"))
    # Last: some write a call as a block too, and answer it as chat does.
    for slot, call in _objects(message.get("tool_calls")):
        yield True, call.get("id"), Shape.CHAT, slot


def _item(message: Message) -> Iterator[_Found]:
    kind = message.get("type")
    if not isinstance(kind, str):
        return
    if kind.endswith("_call"):
        yield True, message.get("call_id"), Shape.ITEM, 0
    elif kind.endswith("_call_output") or kind == "tool_search_output":
        call_id = message.get("call_id")
        if call_id is None and kind == "local_shell_call_output":
            # Its published type has the call's id here; the server asks for `call_id`.
            call_id = message.get("id")
        yield False, call_id, Shape.ITEM, 0


def _blocks(content: object) -> Iterator[_Found]:
    for slot, block in _objects(content):
        kind = block.get("type")
        if kind == "tool_use":
            yield True, block.get("id"), Shape.BLOCK, slot
        elif kind in {"server_tool_use", "mcp_tool_use"}:
            yield True, block.get("id"), Shape.SERVER_BLOCK, slot
        elif kind == "tool_result":
            yield False, block.get("tool_use_id"), Shape.BLOCK, slot
        elif isinstance(kind, str) and kind.endswith("tool_result"):
            yield False, block.get("tool_use_id"), Shape.SERVER_BLOCK, slot


def _parts(parts: object) -> Iterator[_Found]:
    for slot, part in _objects(parts):
        kind = part.get("part_kind")
        call_id = part.get("tool_call_id")
        if kind == "tool-call":
            yield True, call_id, Shape.PART, slot
        elif kind == "builtin-tool-call":
            yield True, call_id, Shape.SERVER_PART, slot
        elif kind == "builtin-tool-return":
            yield False, call_id, Shape.SERVER_PART, slot
        elif kind == "tool-return" or (
            # Without a tool's name it asks for another answer, not for another call.
            kind == "retry-prompt" and part.get("tool_name") is not None
        ):
            yield False, call_id, Shape.PART, slot


def _objects(value: object) -> Iterator[tuple[int, Message]]:
    if isinstance(value, list):
        for slot, item in enumerate(value):
            if isinstance(item, Mapping):
                yield slot, item
