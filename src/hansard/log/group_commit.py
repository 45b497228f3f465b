"""Let threads that commit at the same time share one write and one sync.

The first thread *leads*: it takes all waiting requests, does the work for them, and wakes their threads.
Threads that come later queue; when the leader is done, the first of them leads. A single thread pays for no
hand-over, and there is no background thread to keep alive, stop, or restart after a fork. `exclusive` queues
too, and leads without requests.

An interrupt can come wherever a Python function begins or a C call returns. So a thread changes and announces
what others wait for under one hold of the gate. To announce it twice is harmless, and a thread that is
interrupted while it announces does so again.

A signal handler runs in the middle of its thread's work. If it submits a request that would wait for its own
thread, it gets `Reentered`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from threading import get_ident
from typing import Generic, TypeVar

from hansard.errors import Reentered

Request = TypeVar("Request")


class _Place(Generic[Request]):
    """A place in the queue. `wake` is released when the request is done, or when its thread is to lead."""

    __slots__ = ("following", "interrupted", "leads", "request", "thread", "wake", "woken")

    def __init__(self, request: Request | None) -> None:
        #: None for `exclusive`.
        self.request = request
        self.thread = get_ident()
        self.leads = False
        #: The place that this thread wakes next.
        self.following: _Place[Request] | None = None
        self.woken = False
        #: Interrupted while waiting: wakes no one.
        self.interrupted = False
        self.wake = threading.Lock()
        self.wake.acquire()


class GroupCommit(Generic[Request]):
    """A queue of requests, and the thread that works on them."""

    __slots__ = ("_gate", "_held", "_leader", "_queue", "_waiting", "_where", "_work")

    def __init__(
        self,
        work: Callable[[list[Request]], None],
        *,
        where: str = "",
        held: Callable[[], bool] = lambda: False,
    ) -> None:
        """`held`: whether this thread holds something that the work needs. `where`: for messages."""
        self._work = work
        self._where = where
        self._held = held
        #: Guards the queue and the leader; held for moments. Re-entrant, for a signal handler: it may lead if
        #: no thread does, and must not wait.
        self._gate = threading.RLock()
        self._queue: list[_Place[Request]] = []
        #: The threads that have a place in the queue, or wait to be woken.
        self._waiting: set[int] = set()
        #: The leading thread; 0 if there is none.
        self._leader = 0

    def submit(self, request: Request) -> None:
        """Return when the work for the request is done, by this thread or by another.

        `work` leaves its outcome in the request; an exception is raised in the leader. If the leader is
        interrupted before it begins, there is no outcome.
        """
        if self._join(request):
            try:
                self._lead(request)
            except BaseException:
                self.release()
                raise

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Wait for exclusive leadership."""
        self._join(None)
        try:
            yield
            self.release()
        except BaseException:
            self.release()
            raise

    def try_lead(self) -> bool:
        """Try to become leader; on True the caller must call `release`, again if that is interrupted."""
        if self._leader:
            return False
        leads = False
        me = get_ident()
        try:
            with self._gate:
                if self._leader == 0:
                    self._leader = me
                    leads = True
        except BaseException:
            if leads:
                self.release()
            raise
        return leads

    def release(self) -> None:
        """Stop leading: the first in the queue leads next. Harmless if this thread does not lead."""
        me = get_ident()
        with self._gate:
            if self._leader != me:
                return
            if not self._queue:
                self._leader = 0
                return
            heir, *self._queue = self._queue
            heir.leads = True
            self._leader = heir.thread
            heir.wake.release()

    def _join(self, request: Request | None) -> bool:
        """Lead, or queue; return whether this thread leads."""
        if self.try_lead():
            return True
        self._check_waits_for_others()
        place = _Place(request)
        try:
            with self._gate:
                if self._leader == 0:
                    # Released in between: no thread would wake this one.
                    self._leader = place.thread
                    place.leads = True
                    return True
                self._waiting.add(place.thread)
                self._queue.append(place)
            place.wake.acquire()
            self._wake(place.following)
            self._waiting.discard(place.thread)
        except BaseException:
            self._leave(place)
            raise
        return place.leads

    def _check_waits_for_others(self) -> None:
        """Raise if this thread would wait for the work that a signal interrupted."""
        me = get_ident()
        if (
            self._leader == me
            or me in self._waiting
            or self._gate._is_owned()  # type: ignore[attr-defined] # noqa: SLF001 - as `Condition` does
            or self._held()
        ):
            raise Reentered(
                f"{self._where}: cannot append from a signal handler or finalizer during a call on this "
                "session; nothing was appended. Set a flag and append later"
            )

    def _leave(self, place: _Place[Request]) -> None:
        """Give up the place of an interrupted thread, so that no thread waits for it.

        A request that no leader has taken is dropped; if the thread was to lead, or to wake others, the next
        one does.
        """
        with self._gate:
            place.interrupted = True
            with suppress(ValueError):
                self._queue.remove(place)
            woken = place.woken
        if place.leads:
            self.release()
        elif woken:
            self._wake(place.following)
        self._waiting.discard(place.thread)

    def _wake(self, place: _Place[Request] | None) -> None:
        """Wake the next thread whose request is done; it wakes the one after it.

        Threads that are woken together only queue for the interpreter: 16 of them append a fifth less.
        """
        with self._gate:
            while place is not None and place.interrupted:
                place = place.following
            if place is not None and not place.woken:
                place.woken = True
                place.wake.release()

    def _lead(self, request: Request) -> None:
        taken: list[_Place[Request]] = []
        requests = [request]
        try:
            with self._gate:
                for place in self._queue:
                    if place.request is None:
                        break
                    requests.append(place.request)
                count = len(requests) - 1
                taken, self._queue = self._queue[:count], self._queue[count:]
            self._work(requests)
        finally:
            try:
                self._finish(taken)
            except BaseException:
                self._finish(taken)
                raise

    def _finish(self, taken: list[_Place[Request]]) -> None:
        """Wake the threads whose requests are done, and let the next one lead."""
        for place, following in pairwise(taken):
            place.following = following
        # Before the heir: they come back with new requests while it works.
        if taken:
            self._wake(taken[0])
        self.release()
