"""Show the messages along a path.

Above: `session`.  Below: `path`, `backend.contract`.
A view is a pure function of the events. *history* is every message; *model* is what a model should be
given. `path` says which parts of the log each one shows; here they are read, forwards or from the end.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, get_args

from hansard.backend.contract import Chunk, Log
from hansard.state import path
from hansard.state.path import Path

View = Literal["model", "history"]
VIEWS: tuple[str, ...] = get_args(View)

#: Reading more than this pauses the garbage collector: 100,000 messages decode in 60 % of the time.
_MANY = 2_000

Shown = TypeVar("Shown", dict[str, Any], bytes)
Take = Callable[[Chunk], list[tuple[int, Shown]]]


def decoded(chunk: Chunk) -> list[tuple[int, dict[str, Any]]]:
    """Take messages as dicts."""
    return chunk.messages()


def encoded(chunk: Chunk) -> list[tuple[int, bytes]]:
    """Take messages as the JSON bytes that are stored."""
    return chunk.messages_json()


def path_of(log: Log, *, view: View = "model", upto: int | None = None) -> Path:
    """Return the path of a view at a seq, or at the end of the log."""
    head = log.head()
    if head is None:
        return Path([], frozenset())
    end = head.seq if upto is None else min(upto, head.seq)
    # All of them, also those behind the end: what was redacted later is gone from earlier views too.
    controls = log.controls()
    return path.model(controls, end) if view == "model" else path.history(controls, end)


def show(
    log: Log,
    take: Take[Shown],
    *,
    after: int = 0,
    upto: int | None = None,
    view: View = "model",
) -> list[Shown]:
    """Return the messages of a view with after < seq <= upto, in order."""
    way = path_of(log, view=view, upto=upto)
    with _quiet_collector(sum(end - max(begin, after) for begin, end in way.ranges)):
        return [
            message
            for chunk in _forwards(log, way, after)
            for seq, message in take(chunk)
            if seq > after and seq not in way.hidden
        ]


@contextmanager
def _quiet_collector(events: int) -> Iterator[None]:
    """Pause the garbage collector while many messages are decoded: none of them is garbage."""
    pause = events > _MANY and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


def each(log: Log) -> Iterator[dict[str, Any]]:
    """Yield the messages of the model view one by one, reading no further than asked."""
    way = path_of(log)
    for chunk in _forwards(log, way, 0):
        for seq, message in chunk.messages():
            if seq not in way.hidden:
                yield message


def show_last(
    log: Log,
    take: Take[Shown],
    count: int,
    *,
    after: int = 0,
    upto: int | None = None,
    view: View = "model",
) -> list[Shown]:
    """Return the last `count` of those messages, in order, reading no more than they need."""
    pieces: list[list[Shown]] = []
    missing = count
    way = path_of(log, view=view, upto=upto)
    if missing == 0:
        return []
    for chunk in _backwards(log, way, after):
        found = [message for seq, message in take(chunk) if seq > after and seq not in way.hidden]
        pieces.append(found[-missing:])
        missing -= len(pieces[-1])
        if missing == 0:
            break
    pieces.reverse()
    return [message for piece in pieces for message in piece]


def _forwards(log: Log, way: Path, after: int) -> Iterator[Chunk]:
    if way.summary is not None:
        yield way.summary
    for begin, end in way.ranges:
        if end > after:
            yield from log.read(after=max(begin, after), upto=end)


def _backwards(log: Log, way: Path, after: int) -> Iterator[Chunk]:
    for begin, end in reversed(way.ranges):
        if end > after:
            yield from log.read_back(upto=end, after=max(begin, after))
    if way.summary is not None:
        yield way.summary
