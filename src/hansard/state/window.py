"""Cut a view to what a model can take: the last messages, turns or tokens.

Above: `session`.  Below: `pairing`.
A cut never stands between a call and its result. Where the wanted place would, the cut moves on to a later
one, so that a limit stays a limit; only if nothing would be left does it move back, past the call.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hansard.state import pairing

Message = dict[str, Any]

#: A token is about four bytes of JSON, as a rule of thumb for English and code.
_BYTES_PER_TOKEN = 4

_encode = msgspec.json.Encoder().encode


def estimate_tokens(message: Message) -> int:
    """Guess how many tokens a message takes: a quarter of its bytes as JSON, rounded up."""
    return -(-len(_encode(message)) // _BYTES_PER_TOKEN)


def window(
    messages: Sequence[Message],
    *,
    turns: int | None = None,
    count: int | None = None,
    tokens: int | None = None,
    keep_first: bool = False,
    counter: Callable[[Message], int] = estimate_tokens,
) -> list[Message]:
    """Return the last messages that fit every limit that is given.

    Args:
        messages: what to cut.
        turns: at most so many turns; a turn begins with a message of the user.
        count: at most so many messages.
        tokens: at most so many tokens, as `counter` counts them.
        keep_first: begin with the first message of the user, even if it is older; it counts.
        counter: how many tokens a message takes.
    """
    first = _first_user(messages) if keep_first else None
    for_first = 0 if first is None else 1
    cut = 0
    if turns is not None:
        cut = max(cut, _turn_cut(messages, turns))
    if count is not None:
        cut = max(cut, len(messages) - count)
        if first is not None and first < cut:
            cut = max(cut, len(messages) - (count - for_first))
    if tokens is not None:
        left = tokens
        if first is not None:
            left -= counter(messages[first])
        cut = max(cut, _token_cut(messages, left, counter))
    cut = _whole_cut(messages, min(cut, len(messages)))
    kept = list(messages[cut:])
    if first is not None and first < cut:
        kept.insert(0, messages[first])
    return kept


def _first_user(messages: Sequence[Message]) -> int | None:
    for place, message in enumerate(messages):
        if _is_user(message):
            return place
    return None


def _is_user(message: Message) -> bool:
    """Say whether a person speaks: results of tools come in messages of the user's too."""
    if pairing.results(message):
        return False
    if message.get("role") == "user":
        return True
    parts = message.get("parts")
    return isinstance(parts, list) and any(
        isinstance(part, dict) and part.get("part_kind") == "user-prompt" for part in parts
    )


def _turn_cut(messages: Sequence[Message], turns: int) -> int:
    starts = [place for place, message in enumerate(messages) if _is_user(message)]
    if turns <= 0:
        return len(messages)
    return starts[-turns] if len(starts) > turns else 0


def _token_cut(messages: Sequence[Message], left: int, counter: Callable[[Message], int]) -> int:
    for place in range(len(messages) - 1, -1, -1):
        left -= counter(messages[place])
        if left < 0:
            return place + 1
    return 0


def _whole_cut(messages: Sequence[Message], wanted: int) -> int:
    """Return the first place from `wanted` on that splits no call from its result, or the last before."""
    legal = _legal_cuts(messages)
    later = [place for place in legal if place >= wanted]
    if later and later[0] < len(messages):
        return later[0]
    if wanted >= len(messages):
        return len(messages)
    return max(place for place in legal if place <= wanted)


def _legal_cuts(messages: Sequence[Message]) -> list[int]:
    """Return the places between messages over which no call waits for its result."""
    last_result: dict[str, int] = {}
    for place, message in enumerate(messages):
        for call_id in pairing.results(message):
            last_result[call_id] = place
    legal = []
    reach = -1
    for place, message in enumerate(messages):
        if reach < place:
            legal.append(place)
        for call_id in pairing.calls(message):
            reach = max(reach, last_result.get(call_id, -1))
    legal.append(len(messages))
    return legal
