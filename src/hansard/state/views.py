"""Decide which messages a view shows.

Above: `session`.  Below: `backend.contract`, `event`.
A view is a pure function of the events. *history* is every message; *model* is what a model should be given.
They differ by what control events say (redactions, reverts, summaries), and those are few.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar, get_args

from hansard.backend.contract import Chunk, Log

View = Literal["model", "history"]
VIEWS: tuple[str, ...] = get_args(View)

Shown = TypeVar("Shown", dict[str, Any], bytes)
Take = Callable[[Chunk], list[tuple[int, Shown]]]


def decoded(chunk: Chunk) -> list[tuple[int, dict[str, Any]]]:
    """Take messages as dicts."""
    return chunk.messages()


def encoded(chunk: Chunk) -> list[tuple[int, bytes]]:
    """Take messages as the JSON bytes that are stored."""
    return chunk.messages_json()


def show(log: Log, take: Take[Shown], *, after: int = 0, upto: int | None = None) -> list[Shown]:
    """Return the messages with after < seq <= upto, in order."""
    return [message for chunk in log.read(after=after, upto=upto) for _, message in take(chunk)]


def show_last(
    log: Log, take: Take[Shown], count: int, *, after: int = 0, upto: int | None = None
) -> list[Shown]:
    """Return the last `count` of those messages, in order, reading no more than they need."""
    pieces: list[list[Shown]] = []
    missing = count
    if missing == 0:
        return []
    for found in _newest_first(log, take, after=after, upto=upto):
        pieces.append(found[-missing:])
        missing -= len(pieces[-1])
        if missing == 0:
            break
    pieces.reverse()
    return [message for piece in pieces for message in piece]


def _newest_first(
    log: Log, take: Take[Shown], *, after: int, upto: int | None
) -> Iterator[list[Shown]]:
    for chunk in log.read_back(upto=upto):
        found = take(chunk)
        yield [message for seq, message in found if seq > after]
        if found and found[0][0] <= after:
            return
