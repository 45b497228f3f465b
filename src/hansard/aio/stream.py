"""A message while it is being said, awaited: the twin of `hansard.stream.Stream`.

Above: user code.  Below: `pool`, `hansard.stream`.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import hansard.stream
from hansard.aio.pool import Pool
from hansard.event.envelope import Event

Answer = TypeVar("Answer")


class Stream:
    """A message that is being streamed. Made by `session.stream`; for one task at a time.

    As `async with` it finishes the message at the end of the block. If the block is left by an error, or
    cancelled, what was written stays, and views show it as partial.
    """

    __slots__ = ("_make", "_pool", "_twin")

    def __init__(self, pool: Pool, make: Callable[[], hansard.stream.Stream]) -> None:
        self._pool = pool
        self._make = make
        self._twin: hansard.stream.Stream | None = None

    def _stream(self) -> hansard.stream.Stream:
        if self._twin is None:
            self._twin = self._make()
        return self._twin

    async def _write(self, call: Callable[[hansard.stream.Stream], Answer]) -> Answer:
        return await self._pool.run(lambda: call(self._stream()), finish=True)

    async def __aenter__(self) -> Self:
        await self._pool.run(self._stream)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._write(lambda stream: stream.__exit__(kind, error, trace))

    @property
    def id(self) -> str:
        """What ties the parts and the message together; empty until the first thing is awaited."""
        return "" if self._twin is None else self._twin.id

    @property
    def text(self) -> str:
        """What was written so far."""
        return "" if self._twin is None else self._twin.text

    @property
    def event(self) -> Event | None:
        """The event that added the whole message; None until then."""
        return None if self._twin is None else self._twin.event

    async def write(self, text: str) -> None:
        """Add to the message. What was written survives a killed process when this returns."""
        await self._write(lambda stream: stream.write(text))

    async def finish(self, message: dict[str, Any] | None = None) -> Event:
        """Add the whole message: the text that was written, or a message that says it better."""
        return await self._write(lambda stream: stream.finish(message))

    async def discard(self) -> None:
        """Let go of the message: no view shows what was written of it."""
        await self._write(lambda stream: stream.discard())
