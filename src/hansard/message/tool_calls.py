"""Pair tool calls with their results, and repair a view so that a provider accepts it.

A model refuses a history in which a call has no result or a result no call. `parse` knows how each framework
writes them; a message of unknown shape neither calls nor answers.

The log keeps what happened; `repair` changes only what a reader is shown. It removes a result without a call,
and a second result of one call. A call without a result gets a stand-in; a call of the provider's own tool is
removed. A result that came late is moved to where its provider expects it:

- chat: a message directly after the one that calls, with the other results;
- Anthropic: a block at the beginning of the very next message, which is the user's;
- Bedrock: likewise;
- Pydantic AI: a part of the next request;
- Google: a separate turn, with the other results. Its ids are optional, so names and order pair;
- Responses: anywhere after its call, so no result moves. A stand-in follows the calls made together with its
  own, and their results. Results of a provider's tools do not move either: one may come in a later message.

A stand-in has the shape that its framework expects. It is a text which says that the result is missing, or an
image if the result is a screenshot. Where only codes are allowed, it has the one that claims least. The same
call always gets the same stand-in, so that a prompt does not change between turns.
"""

import copy
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hansard.message.parse import GOOGLE, Shape, google_key, walk

Message = dict[str, Any]


class Half(NamedTuple):
    """A call, or a result."""

    is_call: bool
    #: The id that call and result share.
    call_id: str
    shape: Shape
    #: Index in the list inside the message; 0 if it is the message itself.
    slot: int
    #: Index of its message.
    place: int


class Pair(NamedTuple):
    """A call and its result; one of them is None if it is missing."""

    call: Half | None
    result: Half | None


class Problem(NamedTuple):
    """A call without a result, or a result without a call."""

    #: "orphan call" or "orphan result".
    what: str
    #: Index of its message.
    place: int
    #: The id that call and result should share.
    call_id: str


def calls(message: Mapping[str, Any]) -> list[str]:
    """Return the ids of the tool calls that a message makes."""
    return [half.call_id for half in _halves(message, 0) if half.is_call]


def results(message: Mapping[str, Any]) -> list[str]:
    """Return the ids of the tool calls that a message answers."""
    return [half.call_id for half in _halves(message, 0) if not half.is_call]


def problems(messages: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """Return the calls and results without their counterpart, in the order of the messages.

    A result must come after its call. A call at the end, which may still be answered, is a problem too: the
    caller knows whether the conversation continues.
    """
    found = []
    for call, result in pairs(messages):
        half = result if call is None else call
        if half is not None and (call is None or result is None):
            what = "orphan call" if half.is_call else "orphan result"
            found.append(Problem(what, half.place, half.call_id))
    return sorted(found, key=lambda problem: problem.place)


def pairs(messages: Sequence[Mapping[str, Any]]) -> list[Pair]:
    """Return every call with its result, and the halves that are alone.

    The first result after a call with the same id answers it. Some models reuse an id in a later turn: an
    earlier call that has no result by then never gets one.
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


def _halves(message: Mapping[str, Any], place: int) -> Iterator[Half]:
    seen: Counter[tuple[str, str]] = Counter()
    for part in walk(message):
        # Some clients return the id of a call, and others do not.
        call_id = google_key(part, seen) if part.shape is Shape.GOOGLE else part.call_id
        if part.shape is not None:
            yield Half(part.kind == "call", call_id, part.shape, part.slot, place)


#: The member of a message that holds the halves of a shape.
_HOLDERS = {
    Shape.CHAT: "tool_calls",
    Shape.BLOCK: "content",
    Shape.SERVER_BLOCK: "content",
    Shape.PART: "parts",
    Shape.SERVER_PART: "parts",
    Shape.BEDROCK: "content",
    Shape.GOOGLE: "parts",
}
_SERVER = {Shape.SERVER_BLOCK, Shape.SERVER_PART}


def repair(messages: Sequence[Message]) -> list[Message]:
    """Return the messages so that every provider accepts them; the given ones are not changed.

    A message that needs no repair is returned as the same object. An unfinished message of a stream loses its
    mark, `"partial": true`, which providers do not know.
    """
    return _PairRepair(messages).run()


class _PairRepair:
    """The changes that a list of messages needs, by the index of a message."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._repaired: list[Message] = []
        #: Messages that move or go.
        self._dropped: set[int] = set()
        #: Chat results, by the index of the call; stand-ins for items, by that of the item before them.
        self._replies: dict[int, list[Message]] = defaultdict(list)
        #: Results that belong into the message after the call, by the index of the call and their holder.
        self._answers: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        #: Slots whose content leaves, by message and holder.
        self._leaving: dict[tuple[int, str], set[int]] = defaultdict(set)
        #: The id of the call that an item makes, and items that answer.
        self._item_calls: dict[int, str] = {}
        self._item_results: set[int] = set()
        found = pairs(messages)
        for call, result in found:
            if call is not None and call.shape is Shape.ITEM:
                self._item_calls[call.place] = call.call_id
            if result is not None:
                self._plan_result(call, result)
        alone = [call for call, result in found if call is not None and result is None]
        for call in sorted(alone, key=lambda call: (call.place, call.slot)):
            if call.shape is not Shape.ITEM:
                self._plan_stand_in(call)
        self._plan_items({call.place for call in alone if call.shape is Shape.ITEM})

    def _plan_result(self, call: Half | None, result: Half) -> None:
        place, shape = result.place, result.shape
        if shape is Shape.ITEM:
            (self._dropped if call is None else self._item_results).add(place)
        elif shape is Shape.CHAT:
            self._dropped.add(place)
            if call is not None:
                self._replies[call.place].append(self._messages[place])
        elif call is None or shape not in _SERVER:
            holder = _HOLDERS[shape]
            self._leaving[place, holder].add(result.slot)
            if call is not None:
                self._answers[call.place][holder].append(self._messages[place][holder][result.slot])

    def _plan_stand_in(self, call: Half) -> None:
        holder = _HOLDERS[call.shape]
        message = self._messages[call.place]
        if call.shape in _SERVER:
            slots: set[int] = set()  # it may be written twice, or again after its result
            for half in _halves(message, call.place):
                if half.call_id == call.call_id:
                    slots = slots | {half.slot} if half.is_call else set()
            self._leaving[call.place, holder] |= slots
            return
        made = _MAKERS[call.shape](message[holder][call.slot])
        if call.shape is Shape.CHAT:
            self._replies[call.place].append(made)
        else:
            self._answers[call.place][holder].append(made)

    def _plan_items(self, alone: set[int]) -> None:
        """Put the stand-ins for items after the run of calls and results that they belong to.

        Calls made together are consecutive, and their results follow. A result between two of the calls would
        separate the second from the reasoning that both belong to.
        """
        waiting: dict[str, Message] = {}
        answered, last = False, 0
        for place in range(len(self._messages) + 1 if alone else 0):
            call_id = self._item_calls.get(place)
            if place in self._dropped:
                continue
            if place in self._item_results:
                answered = True
            # A reused id needs its own result after this call.
            elif call_id is None or answered or call_id in waiting:
                self._replies[last] += waiting.values()
                waiting, answered = {}, False
            if call_id is not None and place in alone:
                waiting[call_id] = _item(self._messages[place])
            last = place

    def run(self) -> list[Message]:
        """Return the repaired messages."""
        answers: dict[str, list[Any]] = {}
        for place, message in enumerate(self._messages):
            is_empty = self._rewritten(place, {}) is None
            here = {
                holder: given
                for holder, given in answers.items()
                if _takes(message, holder) and (not is_empty or _shares(message[holder], given))
            }
            if place in self._dropped or (is_empty and not here):
                continue
            for holder in answers.keys() - here.keys():
                self._add(_message_of(holder, answers[holder]))
            rest = self._rewritten(place, here)
            if rest is not None:
                self._add(rest)
            self._add(*self._replies.get(place, ()))
            answers = self._answers.get(place, {})
        self._add(*(_message_of(holder, given) for holder, given in answers.items()))
        return self._repaired

    def _rewritten(self, place: int, answers: Mapping[str, list[Any]]) -> Message | None:
        """Return a message without what leaves, and with these answers first; None if empty."""
        message = self._messages[place]
        changes = {}
        for holder in ("content", "parts"):
            leaving, given = self._leaving.get((place, holder), set()), answers.get(holder, [])
            if not leaving and not given:
                continue
            held = blocks(message[holder])
            # Anthropic requires results first; Pydantic AI sorts its parts itself.
            in_order = holder == "parts" and _is_same(
                [held[slot] for slot in sorted(leaving)], given
            )
            kept = [*given, *(one for slot, one in enumerate(held) if slot not in leaving)]
            if not in_order and not _is_same(kept, message[holder]):
                changes[holder] = kept
        if not changes:
            return message
        changed = message | changes
        return changed if any(map(changed.get, ("content", "parts", "tool_calls"))) else None

    def _add(self, *messages: Message) -> None:
        for message in messages:
            unfinished = message.get("partial") is True
            self._repaired.append(
                {name: value for name, value in message.items() if name != "partial"}
                if unfinished
                else message
            )


def _is_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return [*map(id, one)] == [*map(id, other)]


def _shares(held: Sequence[Any], given: Sequence[Any]) -> bool:
    return not {*map(id, held)}.isdisjoint(map(id, given))


def _takes(message: Message, holder: str) -> bool:
    """Return whether results can be added to a message that follows their calls."""
    if holder == "content":
        return message.get("role") == "user" and isinstance(message.get("content"), str | list)
    if message.get("kind") == "request":
        return isinstance(message.get("parts"), list)
    return only_answers(message)


def only_answers(message: Message) -> bool:
    """Return whether a message is a turn of Google's function responses and nothing else."""
    halves = [half.shape is Shape.GOOGLE and not half.is_call for half in _halves(message, 0)]
    return all(halves) and 0 < len(halves) == len(message["parts"])


def _message_of(holder: str, answers: list[Any]) -> Message:
    first = {"kind": "request"} if "part_kind" in answers[0] else {"role": "user"}
    return {**first, holder: answers}


def blocks(content: object) -> list[Any]:
    """Return content as blocks; an empty string is none, since providers refuse an empty block."""
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content and isinstance(content, str) else []


#: The answer to a call without a recorded result.
NO_RESULT = "No result was recorded for this call."

#: The same sentence as an image, 238 by 23 pixels, for calls that are answered with a screenshot.
NO_RESULT_IMAGE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAO4AAAAXCAAAAAApGCwvAAABI0lEQVR42u1XXW/EMAizp/3/v+w95MPQprmcNm0PI1KqKuUAG8y1"
    "FP7T+kDBLbgFt+AW3IL7h+vz/Z8QgADi23/ZhH083Sdz+dEufMuw57muLgmSJ0nqx95MtL7nJoROsmjPVhahuhQViSVEtN0IA6BJ"
    "Kk0wIYrRUmsP4+pzhPNQm1nH6TVEpCsXCxijnGp3uEJvh7EJKLMl0ycz0S2XHnz1RjjPnrNVjKhZ/hgr+j+CKy5axxTuOp2jFjdL"
    "xdbQ5dxK23b8rrNTLL0AezSZJT1IZcRKw0O6IeiN8UCY3hgGvIuUMZ1X85OpGS7atT6IOexCo9q0y/4yUJLCknatV3mMWqOwdqMW"
    "m+D7mLgOL2JZWyUGWB+ABbfgFtyCW3AL7q+tL1N0pBUIcQEUAAAAAElFTkSuQmCC"
)

#: Members of the item that answers a call, where that is not a string in `output`.
_ITEM_OUTPUTS: dict[str, Message] = {
    "computer_call": {"output": {"type": "computer_screenshot", "image_url": NO_RESULT_IMAGE}},
    "shell_call": {
        # An outcome is an exit code or a timeout, and no exit was recorded.
        "output": [{"stdout": "", "stderr": NO_RESULT, "outcome": {"type": "timeout"}}],
        "status": "incomplete",
    },
    "apply_patch_call": {"output": NO_RESULT, "status": "failed"},
    "tool_search_call": {"tools": [], "execution": "client", "status": "incomplete"},
}


def _chat(call: Message) -> Message:
    return {"role": "tool", "tool_call_id": call["id"], "content": NO_RESULT}


def _item(call: Message) -> Message:
    kind = call["type"]
    output = "tool_search_output" if kind == "tool_search_call" else f"{kind}_output"
    # Copied: a caller may change its stand-in. A program that called gets the result, not the model.
    members = copy.deepcopy(_ITEM_OUTPUTS.get(kind, {"output": NO_RESULT}))
    return {"type": output, "call_id": call["call_id"], **_given(call, "caller"), **members}


def _block(call: Message) -> Message:
    answered = {"type": "tool_result", "tool_use_id": call["id"]}
    return {**answered, "content": NO_RESULT, "is_error": True, **_given(call, "toolset_name")}


def _part(call: Message) -> Message:
    return {
        "part_kind": "tool-return",
        "tool_name": call.get("tool_name", ""),
        "tool_call_id": call["tool_call_id"],
        "content": NO_RESULT,
        "outcome": "failed",
    }


def _bedrock(call: Message) -> Message:
    answered = {"toolUseId": call["toolUse"]["toolUseId"], "content": [{"text": NO_RESULT}]}
    return {"toolResult": {**answered, "status": "error"}}


def _google(call: Message) -> Message:
    holder = next(name for name in GOOGLE if isinstance(call.get(name), Mapping))
    answered = {**_given(call[holder], "id"), "name": call[holder].get("name", "?")}
    return {GOOGLE[holder]: {**answered, "response": {"error": NO_RESULT}}}


def _given(call: Message, name: str) -> Message:
    return {} if call.get(name) is None else {name: call[name]}


_MAKERS = {
    Shape.CHAT: _chat,
    Shape.BLOCK: _block,
    Shape.PART: _part,
    Shape.BEDROCK: _bedrock,
    Shape.GOOGLE: _google,
}
