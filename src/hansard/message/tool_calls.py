"""Pair tool calls with their results, and repair a view so that a provider accepts it.

A model refuses a history in which a call has no result or a result no call. `parse` knows how each framework
writes them; what it does not know calls nothing and answers nothing.

The log keeps what happened; `repair` changes only what a reader is shown. A result without a call, or a
second one, is left out. A call without a result gets a stand-in that says so. A result that came late, after
something else was said, is moved to where its provider expects it:

- chat: a message directly after the one that calls, with the other results;
- Anthropic: a block at the beginning of the very next message, which is the user's;
- Pydantic AI: a part of the next request;
- Responses: anywhere after its call, so nothing moves; a stand-in follows the calls made together with
  its own, and their results. What a provider's own tool found stays where it is too: it may come in a later
  message than its call.

A stand-in has the shape that its framework expects. Where that has room for text, it says so in words. Where
it has only codes, the one that claims least is used; a screenshot says it as a picture. The same call always
gets the same stand-in, so that a prompt stays the same from turn to turn.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hansard.message.parse import Shape, walk

Message = dict[str, Any]
Json = dict[str, Any]


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


def calls(message: Mapping[str, Any]) -> list[str]:
    """Return the ids of the tool calls that a message makes."""
    return [half.call_id for half in _halves(message, 0) if half.is_call]


def results(message: Mapping[str, Any]) -> list[str]:
    """Return the ids of the tool calls that a message answers."""
    return [half.call_id for half in _halves(message, 0) if not half.is_call]


def problems(messages: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """Return what lacks its other half, in the order of the messages.

    A result must come after its call. A call that the last messages may still answer is a problem
    too: the caller knows whether the conversation continues.
    """
    found = []
    for call, result in pairs(messages):
        if call is None and result is not None:
            found.append(Problem("orphan result", result.place, result.call_id))
        elif call is not None and result is None:
            found.append(Problem("orphan call", call.place, call.call_id))
    return sorted(found, key=lambda problem: problem.place)


def pairs(messages: Sequence[Mapping[str, Any]]) -> list[Pair]:
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


def _halves(message: Mapping[str, Any], place: int) -> Iterator[Half]:
    """Yield each call and result in a message."""
    for part in walk(message):
        if part.shape is not None:
            yield Half(part.kind == "call", part.call_id, part.shape, part.slot, place)


# -- repair -------------------------------------------------------------------------------------


#: The member of a message that holds the halves of a shape.
_HOLDERS = {
    Shape.CHAT: "tool_calls",
    Shape.BLOCK: "content",
    Shape.SERVER_BLOCK: "content",
    Shape.PART: "parts",
    Shape.SERVER_PART: "parts",
}


class _Answer(NamedTuple):
    """A result that belongs into the message after its call."""

    what: Any
    #: Where it was found, message and slot; None if it is a stand-in.
    place: int | None = None
    slot: int | None = None


#: Answers, by the member of the message that is to hold them.
_Answers = dict[str, list[_Answer]]


def repair(messages: Sequence[Message]) -> list[Message]:
    """Return the messages so that every provider accepts them; none of those given is changed.

    What needs no repair is passed on as the same object. A message that a stream left unfinished
    loses its mark, `"partial": true`, which providers do not know.
    """
    plan = _Plan(messages)
    repaired = _Repaired()
    waiting: _Answers = {}
    for place, message in enumerate(messages):
        rest = plan.rewritten(place, {})
        here = {
            holder: answers
            for holder, answers in waiting.items()
            if any(answer.place == place for answer in answers)
        }
        if place in plan.absent or (rest is None and not here):
            continue
        repaired.turn_to(place, plan)
        for holder, answers in waiting.items():
            if holder not in here and _takes(message, holder):
                here[holder] = answers
            elif holder not in here:
                repaired.add(_message_of(holder, answers))
        if here:
            rest = plan.rewritten(place, here)
        if rest is not None:
            repaired.add(rest)
        repaired.add(*plan.replies.get(place, ()))
        waiting = plan.answers.get(place, {})
    repaired.end_run()
    repaired.add(*(_message_of(holder, answers) for holder, answers in waiting.items()))
    return repaired.messages


class _Plan:
    """What must go, what must come, and where."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        #: Places of messages that do not stay where they are.
        self.absent: set[int] = set()
        #: Results that are messages of their own, by the place of the call.
        self.replies: dict[int, list[Message]] = {}
        #: Results that belong into the message after the call, by the place of the call.
        self.answers: dict[int, _Answers] = {}
        #: The id of the call that an item makes, by its place; the places of items that answer one.
        self.item_calls: dict[int, str] = {}
        self.item_results: set[int] = set()
        #: The stand-ins for items and for what the provider's own tools found, by the place of the call.
        self.item_stand_ins: dict[int, Message] = {}
        self._inline: dict[tuple[int, str], dict[int, Any]] = {}
        #: The slots that results leave, by place and holder.
        self._left: dict[tuple[int, str], set[int]] = {}
        found = pairs(messages)
        for call, result in found:
            if call is not None and call.shape is Shape.ITEM:
                self.item_calls[call.place] = call.call_id
            if result is not None:
                self._place_result(call, result)
        missing = [call for call, result in found if call is not None and result is None]
        for call in sorted(missing, key=lambda call: (call.place, call.slot)):
            self._place_stand_in(call)

    def _place_result(self, call: Half | None, result: Half) -> None:
        if result.shape is Shape.ITEM or result.shape is Shape.CHAT:
            self._place_message(call, result)
            return
        holder = _HOLDERS[result.shape]
        from_server = result.shape in {Shape.SERVER_BLOCK, Shape.SERVER_PART}
        if call is not None and from_server:
            return
        self._left.setdefault((result.place, holder), set()).add(result.slot)
        if call is not None:
            what = self._messages[result.place][holder][result.slot]
            self._answer(call, holder, _Answer(what, result.place, result.slot))

    def _place_message(self, call: Half | None, result: Half) -> None:
        if call is None:
            self.absent.add(result.place)
        elif result.shape is Shape.ITEM:
            self.item_results.add(result.place)
        else:
            self.absent.add(result.place)
            self.replies.setdefault(call.place, []).append(self._messages[result.place])

    def _place_stand_in(self, call: Half) -> None:
        message = self._messages[call.place]
        if call.shape is Shape.ITEM:
            self.item_stand_ins[call.place] = stand_in(message, call.shape)
            return
        holder = _HOLDERS[call.shape]
        made = stand_in(message[holder][call.slot], call.shape)
        if call.shape is Shape.CHAT:
            self.replies.setdefault(call.place, []).append(made)
        elif call.shape in {Shape.SERVER_BLOCK, Shape.SERVER_PART}:
            self._inline.setdefault((call.place, holder), {})[call.slot] = made
        else:
            self._answer(call, holder, _Answer(made))

    def _answer(self, call: Half, holder: str, answer: _Answer) -> None:
        self.answers.setdefault(call.place, {}).setdefault(holder, []).append(answer)

    def rewritten(self, place: int, answers: _Answers) -> Message | None:
        """Return a message without the results that leave it and with these; None if it is empty."""
        message = self._messages[place]
        changes = {}
        for holder in ("content", "parts"):
            key = (place, holder)
            if holder in answers or key in self._left or key in self._inline:
                held = self._refilled(place, holder, answers.get(holder, []))
                if not _same(held, message[holder]):
                    changes[holder] = held
        if not changes:
            return message
        changed = message | changes
        left = any(changed.get(holder) for holder in ("content", "parts", "tool_calls"))
        return changed if left else None

    def _refilled(self, place: int, holder: str, answers: Iterable[_Answer]) -> list[Any]:
        """Return what a message holds, without the results that leave it and with these."""
        left = self._left.get((place, holder), set())
        inline = self._inline.get((place, holder), {})
        arriving = [answer for answer in answers if answer.place != place]
        staying = {answer.slot for answer in answers if answer.place == place}
        held: list[tuple[bool, Any]] = []
        end_of_answers = 0
        for slot, item in enumerate(_as_list(self._messages[place][holder])):
            if slot not in left:
                held.append((False, item))
                if slot in inline:
                    held.append((False, inline[slot]))
            elif slot in staying:
                held.append((True, item))
                end_of_answers = len(held)
        held[end_of_answers:end_of_answers] = [(True, answer.what) for answer in arriving]
        if holder == "content":
            # Anthropic wants the results before all else; Pydantic AI sorts its parts itself.
            held.sort(key=lambda entry: not entry[0])
        return [item for _, item in held]


class _Repaired:
    """The messages so far, and the stand-ins for items that wait for the end of their run.

    Calls made together are in a row, and their results after them: a result between two of the
    calls would take the second from the reasoning that both belong to.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._waiting: dict[str, Message] = {}
        self._answered = False

    def add(self, *messages: Message) -> None:
        """Add messages, without the mark of an unfinished one."""
        for message in messages:
            if message.get("partial") is True:
                finished = {name: value for name, value in message.items() if name != "partial"}
                self.messages.append(finished)
            else:
                self.messages.append(message)

    def turn_to(self, place: int, plan: _Plan) -> None:
        """Prepare for the message at a place: end the run of items unless it continues there."""
        if place in plan.item_results:
            self._answered = True
            return
        call_id = plan.item_calls.get(place)
        # An id that is used again asks for its own result after this.
        if call_id is None or self._answered or call_id in self._waiting:
            self.end_run()
        if call_id is not None and place in plan.item_stand_ins:
            self._waiting[call_id] = plan.item_stand_ins[place]

    def end_run(self) -> None:
        """Add the stand-ins that wait."""
        self.messages += self._waiting.values()
        self._waiting = {}
        self._answered = False


def _takes(message: Message, holder: str) -> bool:
    """Return whether results may be put into a message that follows their calls."""
    if holder == "content":
        return message.get("role") == "user" and isinstance(message.get("content"), str | list)
    return message.get("kind") == "request" and isinstance(message.get("parts"), list)


def _message_of(holder: str, answers: Iterable[_Answer]) -> Message:
    """Return a message of nothing but results."""
    held = [answer.what for answer in answers]
    return (
        {"role": "user", "content": held}
        if holder == "content"
        else {"kind": "request", "parts": held}
    )


def _as_list(held: object) -> list[Any]:
    """Return content as blocks: a text is one, and an empty text none, since providers refuse that."""
    if isinstance(held, list):
        return held
    return [{"type": "text", "text": held}] if held else []


def _same(held: list[Any], before: object) -> bool:
    """Return whether a list holds the same objects as before."""
    return (
        isinstance(before, list)
        and len(held) == len(before)
        and all(new is old for new, old in zip(held, before, strict=True))
    )


# -- stand-ins ----------------------------------------------------------------------------------

#: What a call is answered with if the log has no result for it.
NO_RESULT = "No result was recorded for this call."

#: The same sentence as a picture, 238 by 23 pixels, for calls that are answered with a screenshot.
NO_RESULT_IMAGE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAO4AAAAXCAAAAAApGCwvAAABI0lEQVR42u1XXW/EMAizp/3/v+w95MPQprmcNm0PI1KqKuUAG8y1"
    "FP7T+kDBLbgFt+AW3IL7h+vz/Z8QgADi23/ZhH083Sdz+dEufMuw57muLgmSJ0nqx95MtL7nJoROsmjPVhahuhQViSVEtN0IA6BJ"
    "Kk0wIYrRUmsP4+pzhPNQm1nH6TVEpCsXCxijnGp3uEJvh7EJKLMl0ycz0S2XHnz1RjjPnrNVjKhZ/hgr+j+CKy5axxTuOp2jFjdL"
    "xdbQ5dxK23b8rrNTLL0AezSZJT1IZcRKw0O6IeiN8UCY3hgGvIuUMZ1X85OpGS7atT6IOexCo9q0y/4yUJLCknatV3mMWqOwdqMW"
    "m+D7mLgOL2JZWyUGWB+ABbfgFtyCW3AL7q+tL1N0pBUIcQEUAAAAAElFTkSuQmCC"
)

#: What an item holds besides its type and its call's id, where that is not a text in `output`.
_ITEM_OUTPUTS: dict[str, Json] = {
    "computer_call": {"output": {"type": "computer_screenshot", "image_url": NO_RESULT_IMAGE}},
    "shell_call": {
        # An outcome is an exit code or a timeout, and no exit was seen.
        "output": [{"stdout": "", "stderr": NO_RESULT, "outcome": {"type": "timeout"}}],
        "status": "incomplete",
    },
    "apply_patch_call": {"output": NO_RESULT, "status": "failed"},
    "tool_search_call": {"tools": [], "execution": "client", "status": "incomplete"},
}

#: Anthropic's own tools whose results are not named after them.
_SERVER_TOOLS = {"tool_search_tool_regex": "tool_search", "tool_search_tool_bm25": "tool_search"}
#: Of their errors, those that may carry a text.
_WITH_MESSAGE = {"text_editor_code_execution", "tool_search"}
#: Of their results, those that name the program which called.
_WITH_CALLER = {"web_search", "web_fetch"}
#: Their names in Pydantic AI, which sends back what is in `content`.
_ANTHROPIC_PARTS = {
    "web_search",
    "web_fetch",
    "code_execution",
    "bash_code_execution",
    "text_editor_code_execution",
    "advisor",
}


def stand_in(call: Json, shape: Shape) -> Json:
    """Return the result of a call that has none: a message, an item, a block or a part.

    Args:
        call: what calls: an entry of `tool_calls`, an item, a block or a part.
        shape: which of them.
    """
    return _MAKERS[shape](call)


def _chat(call: Json) -> Json:
    return {"role": "tool", "tool_call_id": call["id"], "content": NO_RESULT}


def _item(call: Json) -> Json:
    kind = call["type"]
    output = "tool_search_output" if kind == "tool_search_call" else f"{kind}_output"
    made: Json = {"type": output, "call_id": call["call_id"]}
    # A program that called the tool is given the result, not the model.
    if call.get("caller") is not None:
        made["caller"] = call["caller"]
    made.update(_copied(_ITEM_OUTPUTS.get(kind, {"output": NO_RESULT})))
    return made


def _block(call: Json) -> Json:
    made = {
        "type": "tool_result",
        "tool_use_id": call["id"],
        "content": NO_RESULT,
        "is_error": True,
    }
    if call.get("toolset_name") is not None:
        made["toolset_name"] = call["toolset_name"]
    return made


def _server_block(call: Json) -> Json:
    if call["type"] == "mcp_tool_use":
        return _block(call) | {"type": "mcp_tool_result"}
    tool = _server_tool(call.get("name"))
    made = {
        "type": f"{tool}_tool_result",
        "tool_use_id": call["id"],
        "content": _server_error(tool),
    }
    if call.get("caller") is not None and tool in _WITH_CALLER:
        made["caller"] = call["caller"]
    return made


def _part(call: Json) -> Json:
    return {
        "part_kind": "tool-return",
        "tool_name": call.get("tool_name", ""),
        "tool_call_id": call["tool_call_id"],
        "content": NO_RESULT,
        "outcome": "failed",
    }


def _server_part(call: Json) -> Json:
    made = _part(call) | {"part_kind": "builtin-tool-return"}
    provider = call.get("provider_name")
    if provider is not None:
        made["provider_name"] = provider
    if provider == "anthropic" and made["tool_name"] in _ANTHROPIC_PARTS:
        made["content"] = _server_error(made["tool_name"])
    return made


def _server_tool(name: object) -> str:
    return _SERVER_TOOLS.get(name, name) if isinstance(name, str) else "server"


def _server_error(tool: str) -> Json:
    error = {"type": f"{tool}_tool_result_error", "error_code": "unavailable"}
    return error | {"error_message": NO_RESULT} if tool in _WITH_MESSAGE else error


def _copied(value: Any) -> Any:
    """Return a copy of a table's value: what a caller changes must not change the table."""
    if isinstance(value, dict):
        return {name: _copied(member) for name, member in value.items()}
    return [_copied(member) for member in value] if isinstance(value, list) else value


_MAKERS = {
    Shape.CHAT: _chat,
    Shape.ITEM: _item,
    Shape.BLOCK: _block,
    Shape.SERVER_BLOCK: _server_block,
    Shape.PART: _part,
    Shape.SERVER_PART: _server_part,
}
