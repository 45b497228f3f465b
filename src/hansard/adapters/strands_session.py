"""A session of Strands, as its events add up to it; and how a message of Strands is stored.

Above: `strands`.  Below: `hansard`, `common`, `following`.
A message is stored in the common shape, with calls and results as Anthropic's blocks. `origin` has what else
Strands knows of it: its own blocks, its agent, its number, when it was created. A later message of the same
agent and number stands in the place of an earlier one.

Events of the application's own: `x.strands.session`, `x.strands.agent` and `x.strands.multi_agent`, each the
state as Strands writes it to a file; the last one counts.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

import hansard
from hansard.adapters import common, values
from hansard.adapters.following import Following

FORMAT: Final = "strands"

SESSION: Final = "x.strands.session"
AGENT: Final = "x.strands.agent"
MULTI_AGENT: Final = "x.strands.multi_agent"

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Stored(NamedTuple):
    """A message: where it stands, and what is stored, as JSON."""

    seq: int
    message: bytes


class Known(Following):
    """What is known of one session, brought up to date by what is new in it."""

    def _forget(self) -> None:
        self.session: Json | None = None
        self.agents: dict[str, Json] = {}
        self.multi_agents: dict[str, Json] = {}
        #: By agent, by number.
        self.messages: dict[str, dict[int, Stored]] = {}

    def _add(self, event: hansard.Event) -> None:
        if event.kind == "message.added":
            self._add_message(event)
        elif event.kind in {SESSION, AGENT, MULTI_AGENT}:
            told = unwrapped(event.data)
            if told is None:
                return  # redacted
            if event.kind == SESSION:
                self.session = told
            elif event.kind == AGENT:
                self.agents[told["agent_id"]] = told
            else:
                self.multi_agents[told["id"]] = told["state"]

    def _add_message(self, event: hansard.Event) -> None:
        message = event.data["message"]
        # What was redacted has no message.
        item = None if message is None else common.unpack(message, FORMAT)
        if item is not None:
            held = self.messages.setdefault(item["agent"], {})
            held[item["message_id"]] = Stored(event.seq, _encode(message))

    def free(self, agent: str, number: int) -> int:
        """Return a number for a new message: the one that is wished, or the next that nobody has."""
        held = self.messages.get(agent, {})
        return max(held) + 1 if number in held else number


# -- a message ----------------------------------------------------------------------------------


def packed(agent: str, told: Json) -> Json:
    """Return the message that stands for one of Strands, given as it would be written to a file."""
    said = told["message"] if told.get("redact_message") is None else told["redact_message"]
    item: Json = {"agent": agent, **told, "message": said, "redact_message": None}
    if told.get("redact_message") is not None:
        # What was redacted is not kept anywhere: what is said instead stands in both places.
        item["redact_message"] = True
    return common.pack(FORMAT, item, role=said["role"], content=_shown(said["content"]))


def _shown(content: list[Json]) -> str | list[Json]:
    """Return content with blocks as Anthropic has them, which all views know: texts, calls and results."""
    if len(content) == 1 and content[0].keys() == {"text"}:
        return str(content[0]["text"])
    return [_block(block) for block in content]


def _block(block: Json) -> Json:
    if block.keys() == {"text"}:
        return {"type": "text", **block}
    use, result = block.get("toolUse"), block.get("toolResult")
    if isinstance(use, dict):
        named = {"id": use.get("toolUseId"), "name": use.get("name"), "input": use.get("input")}
        return {"type": "tool_use", **named}
    if isinstance(result, dict):
        told = common.content_text(result.get("content"))
        return {"type": "tool_result", "tool_use_id": result.get("toolUseId"), "content": told}
    return block


def unpacked(stored: bytes) -> Json:
    """Return a message as Strands would have written it to a file."""
    item = common.unpack(_decode(stored), FORMAT)
    assert item is not None  # only such messages are kept
    if item["redact_message"]:
        item["redact_message"] = item["message"]
    told: Json = item
    return told


def foreign(messages: Iterable[Json]) -> Iterator[Json]:
    """Yield messages that another framework wrote, in the shape that Strands has."""
    for one in common.conversation(messages):
        if one["role"] == "tool":
            result = {
                "toolUseId": one["tool_call_id"],
                "status": "success",
                "content": [{"text": one["content"]}],
            }
            yield {"role": "user", "content": [{"toolResult": result}]}
            continue
        content: list[Json] = [{"text": one["content"]}] if one["content"] else []
        for call in one.get("tool_calls", ()):
            function = call["function"]
            content.append(
                {
                    "toolUse": {
                        "toolUseId": call["id"],
                        "name": function["name"],
                        "input": _arguments(function["arguments"]),
                    }
                }
            )
        yield {"role": "assistant" if one["role"] == "assistant" else "user", "content": content}


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# -- a state ------------------------------------------------------------------------------------


def wrapped(told: Json) -> Json:
    """Return the data of an event that holds a state."""
    return values.wrap("state", told)


def unwrapped(data: Json) -> Json | None:
    """Return the state that an event holds; None if it was redacted."""
    told: Json | None = values.unwrap(data, "state")
    return told
