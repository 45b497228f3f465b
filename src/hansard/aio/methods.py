"""Make the methods of a sync class awaitable: same name, parameters, docstring and result.

    class Session(Twin[hansard.Session]):
        set_title = awaited(hansard.Session.set_title)
        messages = awaited(hansard.Session.messages, finish=False)
        export = later(hansard.Session.export, pieces)

Each is a plain function, whose exact type type checkers know.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from hansard.aio.pool import Pool
from hansard.clock import Backoff

P = ParamSpec("P")
Answer = TypeVar("Answer")
Given = TypeVar("Given")
Item = TypeVar("Item")
Sync = TypeVar("Sync")

#: Items that an iteration fetches from its thread at a time.
_PIECE: Final = 256
#: A pause lasts this many times as long as the call before it.
_PAUSE_PER_CALL: Final = 20


class Twin(Generic[Sync]):
    """An object whose methods are those of a sync object, called in the threads of a store."""

    __slots__ = ("_made", "_make", "_pool")

    def __init__(self, pool: Pool, make: Callable[[], Sync]) -> None:
        self._pool = pool
        self._make = make
        self._made: Sync | None = None

    def _sync(self) -> Sync:
        """Return the sync object. To create it may read the disk: call this in a thread."""
        # Two threads may both create one; either will do.
        if self._made is None:
            self._made = self._make()
        return self._made


def awaited(
    call: Callable[Concatenate[Any, P], Answer], *, finish: bool = True
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Answer]]:
    """Return a method's awaitable twin. `finish`: once begun, it is over before a cancellation is raised."""
    return converted(call, lambda _, answer: answer, finish=finish)


def converted(
    call: Callable[Concatenate[Any, P], Given],
    convert: Callable[[Any, Given], Answer],
    *,
    finish: bool = True,
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Answer]]:
    """Do as `awaited` does, for a method whose result has a twin, too: `convert(self, result)`."""

    @wraps(call)
    async def method(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        given = await self._pool.run(lambda: call(self._sync(), *args, **kwargs), finish=finish)
        return convert(self, given)

    return method


def later(
    call: Callable[Concatenate[Any, P], Given], twin: Callable[[Pool, Callable[[], Given]], Answer]
) -> Callable[Concatenate[Any, P], Answer]:
    """Return a method that touches nothing: its result calls the sync method when it is first used."""

    @wraps(call)
    def method(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        return twin(self._pool, lambda: call(self._sync(), *args, **kwargs))

    return method


async def pieces(pool: Pool, begin: Callable[[], Iterator[Item]]) -> AsyncIterator[Item]:
    """Yield the items of an iterator that threads create and advance."""
    iterator = await pool.run(begin, finish=False)
    end: Exception | None = None
    while end is None:
        items, end = await pool.run(lambda: _take(iterator), finish=False)
        for item in items:
            yield item
    if not isinstance(end, StopIteration):
        raise end


def _take(iterator: Iterator[Item]) -> tuple[list[Item], Exception | None]:
    """Return the next items, and what ended the iteration after them, if anything did."""
    items: list[Item] = []
    try:
        while len(items) < _PIECE:
            items.append(next(iterator))
    except Exception as end:  # noqa: BLE001 - raised by the iteration, after the items before it
        return items, end
    return items, None


async def poll(
    pool: Pool, look: Callable[[], Answer], *, finish: bool, seconds: float = math.inf
) -> Answer:
    """Call a function in a thread until it returns something true; return its last answer.

    Give up after `seconds`. Between two calls no thread waits, so a cancellation takes effect immediately.
    """
    backoff = Backoff(seconds, share=_PAUSE_PER_CALL)
    while True:
        backoff.begin()
        found = await pool.run(look, finish=finish)
        pause = None if found else backoff.next_pause()
        if pause is None:
            return found
        await asyncio.sleep(pause)
