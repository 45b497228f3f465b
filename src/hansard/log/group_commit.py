"""Let threads that ask at the same time share one piece of work.

The first to come *leads*: it takes all orders that wait, does the work for them, and wakes those
who asked. Those who come meanwhile queue; when the leader is done, the first of them leads. A single
thread pays for no hand-over, and there is no thread of our own to keep alive, stop, or restart
after a fork. Who wants to be *alone* takes a place in the same queue, and leads without orders.

An interrupt can come wherever a function begins or a call of C returns, so also right after a step
that others wait for. Hence what others wait for is changed and told inside one `with` of the gate,
telling it twice is harmless, and whoever is interrupted in the middle of telling it tells it again.

A signal handler runs in the middle of its thread's work, and may ask too. What it would wait for then waits
for it: such a thread is told so instead (`Reentered`).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from threading import get_ident
from typing import Generic, TypeVar

from hansard.errors import Reentered

Asked = TypeVar("Asked")


class _Place(Generic[Asked]):
    """A place in the queue. `wake` is released when the order is done, or when it is to lead."""

    __slots__ = ("following", "gone", "leads", "order", "thread", "wake", "woken")

    def __init__(self, order: Asked | None) -> None:
        #: None for one who wants to be alone, and has nothing for others to do.
        self.order = order
        self.thread = get_ident()
        self.leads = False
        #: Who is to be woken next, by this one.
        self.following: _Place[Asked] | None = None
        self.woken = False
        #: Interrupted while waiting: will wake nobody.
        self.gone = False
        self.wake = threading.Lock()
        self.wake.acquire()


class GroupCommit(Generic[Asked]):
    """A queue of orders, and who works on them."""

    __slots__ = ("_gate", "_held", "_leader", "_queue", "_waiting", "_where", "_work")

    def __init__(
        self,
        work: Callable[[list[Asked]], None],
        *,
        where: str = "",
        held: Callable[[], bool] = lambda: False,
    ) -> None:
        """`held`: whether this thread holds something that the work needs. `where`: for people."""
        self._work = work
        self._where = where
        self._held = held
        #: Guards the queue and who leads; held for a moment only. An RLock, for a signal handler that finds
        #: it held by its own thread: it may lead if nobody does, and must not wait.
        self._gate = threading.RLock()
        self._queue: list[_Place[Asked]] = []
        #: The threads that have a place in the queue, or are to be woken by others.
        self._waiting: set[int] = set()
        #: The thread that leads; 0 if none does.
        self._leader = 0

    def submit(self, order: Asked) -> None:
        """Return when the work for the order has been done, by this thread or by another.

        How it went is for `work` to leave in the order; what it raises is raised by the leader. If the
        leader was interrupted before it could begin, nothing is left there.
        """
        if self._come(order):
            try:
                self._lead(order)
            except BaseException:
                self.release()
                raise

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Wait until nobody leads, and keep it so."""
        self._come(None)
        try:
            yield
            self.release()
        except BaseException:
            self.release()
            raise

    def try_lead(self) -> bool:
        """Lead if nobody does; whoever is told True must call `release`, again if that is interrupted."""
        if self._leader:
            return False
        claimed = False
        me = get_ident()
        try:
            with self._gate:
                if self._leader == 0:
                    self._leader = me
                    claimed = True
        except BaseException:
            if claimed:
                self.release()
            raise
        return claimed

    def release(self) -> None:
        """Stop leading: the first in the queue is next. Harmless if this thread does not lead."""
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

    def _come(self, order: Asked | None) -> bool:
        """Lead at once, or queue: return True when it is this thread's turn to lead."""
        if self.try_lead():
            return True
        self._check_waits_for_others()
        place = _Place(order)
        try:
            with self._gate:
                if self._leader == 0:
                    # Freed meanwhile: nobody would come to wake this one.
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
        """Raise if this thread would wait for what it was doing when a signal came."""
        me = get_ident()
        if (
            self._leader == me
            or me in self._waiting
            or self._gate._is_owned()  # type: ignore[attr-defined] # noqa: SLF001 - as `Condition` asks it
            or self._held()
        ):
            raise Reentered(
                f"{self._where}: cannot append from a signal handler or finalizer during a call on this "
                "session; nothing was appended. Set a flag and append later"
            )

    def _leave(self, place: _Place[Asked]) -> None:
        """Give up a place whose thread was interrupted, so that nobody waits for it.

        If nobody has taken its order, nobody will; if it was to lead, or to wake others, the next does.
        """
        with self._gate:
            place.gone = True
            with suppress(ValueError):
                self._queue.remove(place)
            woken = place.woken
        if place.leads:
            self.release()
        elif woken:
            self._wake(place.following)
        self._waiting.discard(place.thread)

    def _wake(self, place: _Place[Asked] | None) -> None:
        """Wake the next one whose order is done; it wakes the one after it.

        One after the other: threads woken all at once only queue for the interpreter, and 16 of them append
        a fifth less in a second.
        """
        with self._gate:
            while place is not None and place.gone:
                place = place.following
            if place is not None and not place.woken:
                place.woken = True
                place.wake.release()

    def _lead(self, order: Asked) -> None:
        taken: list[_Place[Asked]] = []
        orders = [order]
        try:
            with self._gate:
                for place in self._queue:
                    if place.order is None:
                        break
                    orders.append(place.order)
                count = len(orders) - 1
                taken, self._queue = self._queue[:count], self._queue[count:]
            self._work(orders)
        finally:
            try:
                self._end(taken)
            except BaseException:
                self._end(taken)
                raise

    def _end(self, taken: list[_Place[Asked]]) -> None:
        """Wake those whose orders are done, and let the next one lead."""
        for place, following in pairwise(taken):
            place.following = following
        # Those who are done before the heir: they come back with new orders while it works.
        if taken:
            self._wake(taken[0])
        self.release()
