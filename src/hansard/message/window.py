"""Cut a view to its last messages, turns or tokens, or to its first ones.

A cut never separates a call from its result, or reasoning from what it led to. If a limit falls between
these, the cut moves to a later message, and the limit still holds. If no message would be left, the cut
moves back to the last place that is allowed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from hansard.message import tool_calls
from hansard.message.parse import ROLES, role_of

Message = dict[str, Any]
Roles = Collection[str]

#: A token is about four bytes of JSON, for English and code.
_BYTES_PER_TOKEN = 4

_encode = msgspec.json.Encoder().encode


def estimate_tokens(message: Message) -> int:
    """Estimate the tokens of a message: a quarter of its bytes as JSON, rounded up."""
    return -(-len(_encode(message)) // _BYTES_PER_TOKEN)


class Limits(NamedTuple):
    """Limits of a window; None: unlimited. `counter` returns the tokens of a message."""

    turns: int | None = None
    messages: int | None = None
    tokens: int | None = None
    counter: Callable[[Message], int] = estimate_tokens

    def less(self, message: Message) -> "Limits":
        """Return the limits that remain when a message is kept in addition to the window."""
        return self._replace(
            messages=None if self.messages is None else max(self.messages - 1, 0),
            tokens=None if self.tokens is None else self.tokens - self.counter(message),
        )


def beginning(
    view: Iterable[tuple[int, Message]],
    system: bool,  # noqa: FBT001 - private
    first: bool,  # noqa: FBT001
    summary: int | None,
) -> tuple[dict[int, Message], tuple[int, Message] | None, bool]:
    """Return the messages to keep from a view's beginning, by seq, and the user's first message after them.

    The third value tells that both are final: later messages do not change them. A message that is still
    streamed is not kept, because its seq changes with each part.

    Args:
        view: the messages of the view with their seqs, from the first one.
        system: keep the system messages and the summary that the view begins with.
        first: look for the first message of the user.
        summary: the seq of the summary.
    """
    head: dict[int, Message] = {}
    for seq, message in view:
        if message.get("partial") is True:
            continue
        if system and (seq == summary or role_of(message) == "system"):
            head[seq] = message
            continue
        system = False
        if not first:
            return head, None, True
        if is_user(message):
            return head, (seq, message), True
    return head, None, False


def window(
    messages: Sequence[Message],
    limits: Limits,
    *,
    head: Sequence[Message] = (),
    first: Message | None = None,
    start_on: Roles | None = None,
    end_on: Roles | None = None,
    partial: bool = False,
) -> list[Message] | None:
    """Return the last messages that fit every limit; if none do, the shortest valid list.

    A limit of 0, or a head that has as many messages as the limit, leaves only the head and `first`.

    Args:
        messages: a view without its head, or the end of one.
        limits: the maximum of what is kept.
        head: the beginning of the view, which is always kept; it counts.
        first: a message to keep after the head, if it is not kept anyway; it counts.
        start_on: roles of the first message after the head, unless the head has one of them. If the cut is in
            the middle of a turn, the message that began the turn leads the window, and counts.
        end_on: roles of the last message; what follows it is left out.
        partial: there are more messages before these. Return None if they are needed.
    """
    if 0 in (limits.turns, limits.messages, limits.tokens):
        return [*head] if first is None else [*head, first]
    start_on, end_on = _common(start_on), _common(end_on)
    ends, alone = _ends_of_pairs(messages)
    if end_on is not None:
        end = _last_end(messages, ends, end_on)
        if partial and end <= max(alone, 0):
            return None
        messages = messages[:end]
        ends, alone = _ends_of_pairs(messages)
    for message in head:
        limits = limits.less(message)
    starts = None
    if start_on is not None and not _begins(head, start_on):
        starts = [role_of(message) in start_on for message in messages]
    view = _View(messages, ends, alone, partial)
    cut = _cut(view, limits, starts)
    if cut is None or first is None or any(message is first for message in view.kept(cut)):
        return None if cut is None else [*head, *view.kept(cut)]
    if start_on is None or _begins([first], start_on):
        starts = None
    cut = _cut(view, limits.less(first), starts)
    return None if cut is None else [*head, first, *view.kept(cut)]


def first_messages(
    view: Iterable[Message], limits: Limits, end_on: Roles | None = None
) -> list[Message]:
    """Return the first messages of a view that fit every limit, without a call whose result does not."""
    end_on = _common(end_on)
    kept: list[Message] = []
    turns = tokens = 0
    cut = False
    for message in view:
        turns += is_user(message)
        tokens += 0 if limits.tokens is None else limits.counter(message)
        used = (turns, limits.turns), (len(kept) + 1, limits.messages), (tokens, limits.tokens)
        cut = any(most is not None and count > most for count, most in used)
        if cut:
            break
        kept.append(message)
    ends, _ = _ends_of_pairs(kept)
    for call, result in tool_calls.pairs(kept) if cut else ():
        if call is not None and result is None:
            ends[call.place] = len(kept)
    if cut and kept and kept[-1].get("type") == "reasoning":
        ends[-1] = len(kept)
    return kept[: _last_end(kept, ends, end_on)]


class _Cut(NamedTuple):
    """Where a window begins."""

    place: int
    #: An earlier message to put before it: the one that began its turn.
    lead: int | None = None


class _View(NamedTuple):
    """The messages to choose from, and what must stay together."""

    messages: Sequence[Message]
    #: By message, the last result of its calls, or the item that its reasoning led to.
    ends: Sequence[int]
    #: The last result without a call.
    alone: int
    partial: bool

    def kept(self, cut: _Cut) -> list[Message]:
        """Return the messages of a window."""
        lead = [] if cut.lead is None else [self.messages[cut.lead]]
        return [*lead, *self.messages[cut.place :]]

    def legal(self) -> Iterator[int]:
        """Yield the places that separate nothing."""
        reach = -1
        for place, end in enumerate(self.ends):
            # The first of these may be what reasoning led to.
            unknown = self.partial and place == 0
            if reach < place and not unknown:
                yield place
            reach = max(reach, end)


#: By message, whether a window may begin with it; None: with any.
_Starts = Sequence[bool] | None


def _cut(view: _View, limits: Limits, starts: _Starts) -> _Cut | None:
    """Return where the window begins; None if earlier messages are needed."""
    wanted = _wanted(view.messages, limits)
    if view.partial and (wanted == 0 or _may_begin_later(view.messages, limits, wanted)):
        return None
    cut = _legal_cut(view, limits, wanted, starts)
    if cut is None and not view.partial:
        # No message may come first, so any may.
        return _legal_cut(view, limits, wanted, None)
    # A result without a call in these messages may have it in the earlier ones.
    if view.partial and cut is not None and cut.place <= view.alone:
        return None
    return cut


def _may_begin_later(messages: Sequence[Message], limits: Limits, wanted: int) -> bool:
    """Return whether the cut is later if there are turns before these messages."""
    starts = [place for place, message in enumerate(messages) if is_user(message)]
    return bool(starts) and len(starts) == limits.turns and starts[0] > wanted


def _legal_cut(view: _View, limits: Limits, wanted: int, starts: _Starts) -> _Cut | None:
    """Return the first legal cut that fits; the last one, if none does."""
    if not view.messages or limits.messages == 0:
        return _Cut(len(view.messages))
    last = None
    for place in view.legal():
        lead = None
        if starts is not None and not starts[place]:
            lead = next((at for at in range(place - 1, -1, -1) if starts[at]), None)
            if lead is None:
                if view.partial and place >= wanted:
                    return None
                last = None
                continue
        last = _Cut(place, lead)
        fits = place >= wanted
        if fits and lead is not None:
            fits = place >= _wanted(view.messages, limits.less(view.messages[lead]))
        if fits:
            break
    return last


def _wanted(messages: Sequence[Message], limits: Limits) -> int:
    """Return the first place from which everything fits the limits."""
    wanted = 0
    if limits.turns is not None:
        starts = [place for place, message in enumerate(messages) if is_user(message)]
        wanted = starts[-limits.turns] if len(starts) > limits.turns else 0
    if limits.messages is not None:
        wanted = max(wanted, len(messages) - limits.messages)
    if limits.tokens is not None:
        left = limits.tokens
        for place in range(len(messages) - 1, wanted - 1, -1):
            left -= limits.counter(messages[place])
            if left < 0:
                return place + 1
    return wanted


def _last_end(messages: Sequence[Message], ends: Sequence[int], roles: Roles | None) -> int:
    """Return the last place that separates nothing and follows a message of these roles; 0: none."""
    found, reach = 0, -1
    for place, end in enumerate(ends):
        reach = max(reach, end)
        if reach <= place and (roles is None or role_of(messages[place]) in roles):
            found = place + 1
    return found


def _common(roles: Roles | None) -> Roles | None:
    """Return roles by the names that `role_of` has for them."""
    return None if roles is None else {ROLES.get(role, role) for role in roles}


def _begins(messages: Sequence[Message], roles: Roles) -> bool:
    return any(role_of(message) in roles for message in messages)


def is_user(message: Message) -> bool:
    """Return whether a message is a person's: results of tools also have the role user."""
    return role_of(message) == "user"


def _ends_of_pairs(messages: Sequence[Message]) -> tuple[list[int], int]:
    """Return the end of what each message must stay with, and the place of the last result without a call."""
    # OpenAI refuses a reasoning item without the item that follows it, and the reverse.
    ends = [
        place + 1 if message.get("type") == "reasoning" and place + 1 < len(messages) else -1
        for place, message in enumerate(messages)
    ]
    alone = -1
    answered: dict[str, int] = {}
    for call, result in tool_calls.pairs(messages):
        if result is None:
            continue
        if call is not None:
            answered[result.call_id] = call.place
        # A second result of one call stays with it, too.
        place = answered.get(result.call_id)
        if place is None:
            alone = result.place
        else:
            ends[place] = max(ends[place], result.place)
    return ends, alone
