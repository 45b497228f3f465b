"""Threads that wait for the disk, so that the event loop need not.

Above: `group`, `session`, `stream`, `follower`, `store`.  Below: `log.disk`, to know of forks.
Each store has its own, not the loop's: what else a program runs there cannot keep a store waiting. They are
made when they are needed and bounded in number. They are daemons: an interpreter that ends waits for none of
them, and what they had in hand was not acknowledged.

A call that is cancelled has one of two outcomes, and never one that nobody knows: it had not begun, and
never will; or it is over before `CancelledError` is raised. A call that only reads is not waited for.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from hansard.errors import Closed
from hansard.log import disk

Answer = TypeVar("Answer")

#: So many calls of one store can wait for the disk at a time; more wait for their turn.
MAX_THREADS: Final = 16


class Job:
    """Something for a thread to do, once; whoever is first begins it or calls it off."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        # Taken out by the first to come: the pop of a list cannot be halved, and waits for nobody.
        self._free = [None]

    def take(self) -> bool:
        """Say whether this is the first call: then the job is the caller's, to do or to drop."""
        try:
            self._free.pop()
        except IndexError:
            return False
        return True

    def run(self) -> None:
        """Do it, unless it was called off."""
        if self.take():
            self.do()

    def do(self) -> None:
        """Do it."""
        raise NotImplementedError


class Call(Job, Generic[Answer]):
    """A call whose answer a task awaits."""

    __slots__ = ("_error", "_future", "_over", "_settled", "call", "loop")

    def __init__(self, call: Callable[[], Answer]) -> None:
        super().__init__()
        self.call = call
        self.loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Answer] = self.loop.create_future()
        #: For a task that was cancelled, and waits for the end all the same.
        self._over: asyncio.Future[None] | None = None
        self._settled = False
        self._error: BaseException | None = None

    def do(self) -> None:
        """Make the call, and hand the answer over to the loop."""
        try:
            answer = self.call()
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            deliver(self.loop, [(self, None, error)])
        else:
            deliver(self.loop, [(self, answer, None)])

    def settle(self, answer: Any, error: BaseException | None) -> None:
        """Give the task its answer. On the loop."""
        self._settled = True
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        if self._future.done():
            self._error = error  # cancelled: nobody waits for the answer any more
            return
        if error is None:
            self._future.set_result(answer)
        elif isinstance(error, StopIteration):
            # A future cannot carry one; a generator would say the same.
            self._future.set_exception(RuntimeError("the call raised StopIteration"))
        else:
            self._future.set_exception(error)

    async def answer(self, *, finish: bool) -> Answer:
        """Wait for the answer.

        If the task is cancelled, the call is called off; if it has begun, and `finish`, it is over before
        the cancellation goes on.
        """
        try:
            return await self._future
        except asyncio.CancelledError as cancelled:
            if not self.take() and finish:
                await self._end()
            if self._error is not None:
                # Nobody is told but those who look at the cancellation.
                cancelled.__cause__ = self._error
            raise

    async def _end(self) -> None:
        """Wait until the call is over, however often the task is cancelled meanwhile."""
        while not self._settled:
            self._over = self.loop.create_future()
            with contextlib.suppress(asyncio.CancelledError):
                await self._over


Outcome = tuple[Call[Any], Any, BaseException | None]


def deliver(loop: asyncio.AbstractEventLoop, outcomes: list[Outcome]) -> None:
    """Hand answers over to a loop: many for the price of one."""
    with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, outcomes)


def _settle(outcomes: list[Outcome]) -> None:
    for call, answer, error in outcomes:
        call.settle(answer, error)


class Pool:
    """The threads of one store.

    Attributes:
        where: the store, for people.
    """

    __slots__ = (
        "__weakref__",
        "_closed",
        "_generation",
        "_idle",
        "_jobs",
        "_mutex",
        "_threads",
        "where",
    )

    def __init__(self, where: str) -> None:
        self.where = where
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        #: One token for each thread that waits for a job that nobody has put yet.
        self._idle: deque[None] = deque()
        #: Guards the list of threads; taken only to make one more.
        self._mutex = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._generation = disk.generation

    def __del__(self) -> None:
        self._jobs.put(None)

    async def run(self, call: Callable[[], Answer], *, finish: bool = False) -> Answer:
        """Let a thread make a call, and return its answer. `finish`: it may change something."""
        asked = Call(call)
        self.submit(asked)
        return await asked.answer(finish=finish)

    def submit(self, job: Job) -> None:
        """Queue a job for the threads. Waits for nothing."""
        if self._generation != disk.generation:
            self._reset()  # forked: the threads stayed with the parent
        self.check_open()
        self._jobs.put(job)
        try:
            # Closed meanwhile: the job may lie behind the last one that is done.
            self.check_open()
            self._wake()
        except BaseException:
            if job.take():
                raise
            # A thread has begun it all the same, and will answer.

    def check_open(self) -> None:
        """Raise if the store was closed."""
        if self._closed:
            raise Closed(f"{self.where}: the store was closed; open it again")

    def _wake(self) -> None:
        """See to it that a thread comes for what was put."""
        try:
            self._idle.pop()
        except IndexError:
            try:
                self._add_thread()
            except RuntimeError:
                if not self._threads:
                    raise  # the system gives no thread, and there is none that could come later

    def _add_thread(self) -> None:
        if len(self._threads) >= MAX_THREADS:
            return
        with self._mutex:
            number = len(self._threads) + 1
            if number > MAX_THREADS:
                return
            thread = threading.Thread(
                target=_serve,
                args=(self._jobs, self._idle),
                name=f"hansard-aio-{number}",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)

    async def close(self, last: Callable[[], None]) -> None:
        """Take no more jobs, do those that were taken, and then one last thing. Again: does nothing."""
        with contextlib.suppress(Closed):
            await self.run(lambda: self._end(last), finish=True)

    def _end(self, last: Callable[[], None]) -> None:
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        with self._mutex:
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()
        last()


def _serve(jobs: "SimpleQueue[Job | None]", idle: deque[None]) -> None:
    # It knows the queue and not the pool: a pool that nobody closes can end, and says so when it does.
    while True:
        job = jobs.get()
        if job is None:
            jobs.put(None)  # for the next thread
            return
        job.run()
        del job
        idle.append(None)
