"""Mend a view so that a provider accepts it: every call with one result, and that at its place.

Above: `session`.  Below: `pairing`, `stand_in`.
The log keeps what happened; this changes only what a reader is shown. A result without a call, or a second
one, is left out. A call without a result gets a stand-in that says so. A result that came late, after
something else was said, is moved to where its provider looks for it:

- chat: a message directly after the one that calls, with the other results;
- Anthropic: a block at the beginning of the very next message, which is the user's;
- Pydantic AI: a part of the next request;
- Responses: anywhere after its call, so nothing moves; a stand-in follows the calls made together with
  its own, and their results. What a provider's own tool found stays where it is too: it may come in a later
  message than its call.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hansard.state import pairing
from hansard.state.pairing import Half, Shape
from hansard.state.stand_in import stand_in

Message = dict[str, Any]

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
    mended = _Mended()
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
        mended.turn_to(place, plan)
        for holder, answers in waiting.items():
            if holder not in here and _takes(message, holder):
                here[holder] = answers
            elif holder not in here:
                mended.add(_message_of(holder, answers))
        if here:
            rest = plan.rewritten(place, here)
        if rest is not None:
            mended.add(rest)
        mended.add(*plan.replies.get(place, ()))
        waiting = plan.answers.get(place, {})
    mended.end_run()
    mended.add(*(_message_of(holder, answers) for holder, answers in waiting.items()))
    return mended.messages


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
        pairs = pairing.pairs(messages)
        for call, result in pairs:
            if call is not None and call.shape is Shape.ITEM:
                self.item_calls[call.place] = call.call_id
            if result is not None:
                self._place_result(call, result)
        missing = [call for call, result in pairs if call is not None and result is None]
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


class _Mended:
    """The messages so far, and the stand-ins for items that wait for the end of their run.

    Calls made together stand in a row, and their results after them: a result between two of the
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
        """Prepare for the message at a place: end the run of items unless it goes on there."""
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
    """Say whether results may be put into a message that follows their calls."""
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
    """Say whether a list holds the very objects that it held before."""
    return (
        isinstance(before, list)
        and len(held) == len(before)
        and all(new is old for new, old in zip(held, before, strict=True))
    )
