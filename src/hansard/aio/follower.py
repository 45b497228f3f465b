"""Follow a store, awaited: the twin of `hansard.follow.Follower`.

Above: user code.  Below: `pool`, `hansard.follow`.
It waits on the loop, not in a thread: a follower that has nothing to do costs a look now and then, and ends
at once when its task is cancelled.
"""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import hansard.follow
from hansard.aio.pool import Pool
from hansard.follow import Followed

#: Between two looks: at first, at the most, and so many times as long as the last look took.
_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05
_SHARE: Final = 20


class Follower:
    """Yields the events of many sessions as they come. Made by `store.follow`; for one task at a time.

    See `hansard.Store.follow`: an event counts as done when the next one is asked for, and at the end of an
    `async with` block that no error ends. Callbacks are called in a thread.
    """

    __slots__ = ("_kept", "_make", "_pool", "_twin")

    def __init__(self, pool: Pool, make: Callable[[], hansard.follow.Follower]) -> None:
        self._pool = pool
        self._make = make
        self._twin: hansard.follow.Follower | None = None
        #: What was taken for a task that was cancelled meanwhile: nobody has had it in hand.
        self._kept: Followed | None = None

    def _follower(self) -> hansard.follow.Follower:
        if self._twin is None:
            self._twin = self._make()
        return self._twin

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Followed:
        while True:
            found = await self.take(60.0)
            if found is not None:
                return found

    async def __aenter__(self) -> Self:
        await self._pool.run(self._follower, finish=True)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del error, trace
        if kind is None:
            await self.commit()
        await self.close()

    async def take(self, timeout: float) -> Followed | None:  # noqa: ASYNC109 - as its twin
        """Return the next event; None if none came within so many seconds."""
        deadline = time.monotonic() + timeout
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            await self._pool.run(self._look, finish=True)
            found, self._kept = self._kept, None
            now = time.monotonic()
            if found is not None or now >= deadline:
                return found
            await asyncio.sleep(min(max(pause, _SHARE * (now - began)), deadline - now))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _look(self) -> None:
        """Take the next event if there is one, and keep it: whoever asked may be gone when it is there."""
        if self._kept is None:
            self._kept = self._follower().take(0.0)

    async def commit(self) -> None:
        """Say that everything handed out so far is done with."""
        await self._pool.run(lambda: self._follower().commit(), finish=True)

    async def close(self) -> None:
        """Stop following; what is done with is remembered, what is in the consumer's hands comes again."""
        await self._pool.run(self._close, finish=True)

    def _close(self) -> None:
        if self._twin is not None:
            self._twin.close()
