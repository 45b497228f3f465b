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
    ends, alone = _ends_of_pairs(messages)
    cut = _legal_cut(wanted, ends, -1)
    # The call of a result that has none here may be among the earlier messages, or nowhere.
    if partial and cut != _legal_cut(wanted, ends, alone):
        return None
    return cut


def _legal_cut(wanted: int, ends: Sequence[int], reach: int) -> int | None:
    """Return the first place from `wanted` on that is not in a pair; if none is left, the last one before.

    `ends`: by message, the last result of its calls. `reach`: no cut up to this message.
    """
    legal = []
    for place, end in enumerate(ends):
        if reach < place:
            legal.append(place)
        reach = max(reach, end)
    legal.append(len(ends))
    later = next((place for place in legal if place >= wanted), len(ends))
    if later < len(ends) or wanted >= len(ends):
        return later
    return max((place for place in legal if place <= wanted), default=None)


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


def _ends_of_pairs(messages: Sequence[Message]) -> tuple[list[int], int]:
    """Return the place of the last result of each message's calls, and of the last result without a call.

    A result belongs to the last call before it that has its id: some models reuse ids.
    """
    ends = [-1] * len(messages)
    called: dict[str, int] = {}
    alone = -1
    for place, message in enumerate(messages):
        for call_id in tool_calls.results(message):
            if call_id in called:
                ends[called[call_id]] = place
            else:
                alone = place
        called.update(dict.fromkeys(tool_calls.calls(message), place))
    return ends, alone
