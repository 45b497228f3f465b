"""Cut a view to its last messages, turns or tokens.

A cut never separates a call from its result. Where a limit would, the cut moves to a later place, so that the
limit holds. Only if nothing would be left does it move back, before the call.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from hansard.message import tool_calls

Message = dict[str, Any]

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


def window(
    messages: Sequence[Message],
    limits: Limits,
    *,
    first: Message | None = None,
    partial: bool = False,
) -> list[Message] | None:
    """Return the last messages that fit every limit.

    Args:
        messages: a view, or the end of one.
        limits: the maximum of what is kept.
        first: a message to begin with, if it is not kept anyway; it counts.
        partial: there are more messages before these. Return None if they are needed.
    """
    cut = _cut(messages, limits, partial=partial)
    if cut is None or first is None or any(kept is first for kept in messages[cut:]):
        return None if cut is None else list(messages[cut:])
    cut = _cut(messages, limits.less(first), partial=partial)
    return None if cut is None else [first, *messages[cut:]]


def _cut(messages: Sequence[Message], limits: Limits, *, partial: bool) -> int | None:
    """Return where the window begins; None if that depends on earlier messages."""
    wanted = 0
    if limits.turns is not None:
        wanted = max(wanted, _turn_cut(messages, limits.turns))
    if limits.messages is not None:
        wanted = max(wanted, len(messages) - limits.messages)
    if limits.tokens is not None:
        wanted = max(wanted, _token_cut(messages, limits.tokens, limits.counter))
    if partial and wanted == 0:
        return None
    legal = _legal_cuts(messages, partial=partial)
    later = [place for place in legal if place >= wanted]
    if wanted >= len(messages) or (later and later[0] < len(messages)):
        return later[0]
    earlier = [place for place in legal if place <= wanted]
    return earlier[-1] if earlier else None


def is_user(message: Message) -> bool:
    """Return whether a message is a person's: results of tools also have the role user."""
    if tool_calls.results(message):
        return False
    if message.get("role") == "user":
        return True
    parts = message.get("parts")
    return isinstance(parts, list) and any(
        isinstance(part, dict) and part.get("part_kind") == "user-prompt" for part in parts
    )


def _turn_cut(messages: Sequence[Message], turns: int) -> int:
    starts = [place for place, message in enumerate(messages) if is_user(message)]
    if turns <= 0:
        return len(messages)
    return starts[-turns] if len(starts) > turns else 0


def _token_cut(messages: Sequence[Message], left: int, counter: Callable[[Message], int]) -> int:
    for place in range(len(messages) - 1, -1, -1):
        left -= counter(messages[place])
        if left < 0:
            return place + 1
    return 0


def _legal_cuts(messages: Sequence[Message], *, partial: bool) -> list[int]:
    """Return the places between messages that separate no call from its result.

    In the end of a view, a result without a call belongs to an earlier one: no cut before it is legal.
    """
    last_result: dict[str, int] = {}
    called: set[str] = set()
    reach = -1
    for place, message in enumerate(messages):
        for call_id in tool_calls.results(message):
            last_result[call_id] = place
            if partial and call_id not in called:
                reach = place
        called.update(tool_calls.calls(message))
    legal = []
    for place, message in enumerate(messages):
        if reach < place:
            legal.append(place)
        for call_id in tool_calls.calls(message):
            reach = max(reach, last_result.get(call_id, -1))
    legal.append(len(messages))
    return legal
