"""Iterate on the loop over what is read in a thread.

Above: `session`, `follower`.  Below: `pool`.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, TypeVar

from hansard.aio.pool import Pool

Item = TypeVar("Item")

#: So many items are handed over at a time: enough to make the way to the thread and back cheap.
_PIECE: Final = 256


async def pieces(pool: Pool, begin: Callable[[], Iterator[Item]]) -> AsyncIterator[Item]:
    """Yield what an iterator yields that a thread begins and goes on with."""
    iterator = await pool.run(begin)
    over = False
    while not over:
        items, error, over = await pool.run(lambda: take(iterator))
        for item in items:
            yield item
        if error is not None:
            # Only now: what came before it is the caller's.
            raise error


def take(iterator: Iterator[Item]) -> tuple[list[Item], Exception | None, bool]:
    """Return the next items, what was raised instead of one more, and whether that was all."""
    items: list[Item] = []
    try:
        for item in iterator:
            items.append(item)
            if len(items) == _PIECE:
                return items, None, False
    except Exception as error:  # noqa: BLE001 - raised by whoever iterates, in its place
        return items, error, True
    return items, None, True
