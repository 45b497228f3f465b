"""Call functions in threads, so that the event loop never waits for the disk.

Each store has its own pool: work in the loop's default executor cannot delay a store. An interpreter that
exits finishes the calls that its threads have begun.

A cancelled call has one of two outcomes: it has not begun and never will, or it is over before
`CancelledError` is raised. A call that only reads is not waited for.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from hansard.errors import Closed
from hansard.log import disk

Answer = TypeVar("Answer")

#: Maximum threads of a store; further calls wait for one of them.
MAX_THREADS: Final = 16

#: Threads are named after their pool, which finds them by their names.
_numbers = itertools.count(1)


class PooledCall(Generic[Answer]):
    """A call that a thread makes and a task awaits."""

    __slots__ = ("_claimed", "_future", "answer", "error", "function", "loop")

    def __init__(self, function: Callable[[], Answer]) -> None:
        self.function = function
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] = self.loop.create_future()
        self._claimed = threading.Lock()

    def claim(self) -> bool:
        """Return whether the caller is the first to claim the call, and may make it or drop it."""
        return self._claimed.acquire(blocking=False)

    def run(self) -> None:
        """Make the call, unless it was cancelled, and deliver its outcome."""
        if self.claim():
            try:
                self.answer = self.function()
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                self.error = error
            deliver([self])

    def settle(self) -> None:
        """Deliver the outcome to the task. Runs on the loop."""
        self._renew()
        if self.error is None:
            self._future.set_result(self.answer)
            return
        if isinstance(self.error, StopIteration):
            self.error = RuntimeError("the call raised StopIteration")  # futures refuse it
        self._future.set_exception(self.error)
        self._future.exception()  # a task may not be left to retrieve it

    async def outcome(self, *, finish: bool) -> Answer:
        """Return the answer, or raise the error.

        If the task is cancelled, so is the call. If it has begun, and `finish`, wait for its end first.
        """
        try:
            # Not `asyncio.shield`, which takes 2 µs.
            return await self._future  # type: ignore[no-any-return]
        except asyncio.CancelledError as cancelled:
            if not self.claim() and finish:
                self._renew()
                while not self._future.done():
                    with suppress(asyncio.CancelledError):  # the task may be cancelled again
                        await asyncio.wait([self._future])
                cancelled.__cause__ = self.error
            raise

    def _renew(self) -> None:
        """Replace a cancelled future, so that the call can still deliver its outcome."""
        if self._future.cancelled():
            self._future = self.loop.create_future()


def deliver(calls: Iterable[PooledCall[Any]]) -> None:
    """Deliver the outcomes of calls to their loops; one wake-up serves all calls of a loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[PooledCall[Any]]] = {}
    for call in calls:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, own in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed, and no task waits
            loop.call_soon_threadsafe(_settle, own)


def _settle(calls: list[PooledCall[Any]]) -> None:
    for call in calls:
        call.settle()


class Pool:
    """The threads of one store, for any number of loops; created on demand, they end with the pool."""

    def __init__(self, where: str = "") -> None:
        #: The store, for people.
        self.where = where
        self._name = f"hansard-aio-{next(_numbers)}"
        #: Held from `close` on.
        self._closing = threading.Lock()
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Start without threads: those of the parent stayed there."""
        self._executor = ThreadPoolExecutor(MAX_THREADS, self._name)

    async def run(self, function: Callable[[], Answer], *, finish: bool = True) -> Answer:
        """Call a function in a thread. `finish`: once begun, it is over before a cancellation is raised."""
        call = PooledCall(function)
        try:
            self.submit(call.run)
        except BaseException:
            if call.claim():
                raise
            # A thread has begun the call nevertheless, and will deliver its outcome.
        return await call.outcome(finish=finish)

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job for the threads. Never waits.

        A job may run twice, or after this has raised: the executor queues it before it starts a thread.
        """
        self.check_open()
        try:
            self._executor.submit(job)
        except RuntimeError:
            self.check_open()
            # An executor refuses jobs once the main thread has ended: start a thread for this one.
            try:
                threading.Thread(target=job, name=f"{self._name}_late").start()
            except RuntimeError:
                # The system has no thread left. The executor's threads, if any, do the job later.
                if not self._threads():
                    raise

    def check_open(self) -> None:
        """Raise if the store was closed."""
        if self._closing.locked():
            raise Closed(f"{self.where}: the store was closed; open it again")

    def _threads(self) -> list[threading.Thread]:
        own = f"{self._name}_"
        return [thread for thread in threading.enumerate() if thread.name.startswith(own)]

    async def close(self, last: Callable[[], None]) -> None:
        """Refuse further calls, finish those accepted, then make a last one. If closed, do nothing."""

        def end() -> None:
            if self._closing.acquire(blocking=False):
                self._executor.shutdown(wait=False)
                for thread in self._threads():
                    if thread is not threading.current_thread():
                        thread.join()
                last()

        with suppress(Closed):
            await self.run(end)
