"""Let threads that ask at the same time share one piece of work.

Above: `writer`.  Below: nothing of the store.
The first to come *leads*: it takes all orders that wait, does the work for them, and wakes those who
asked. Those who come meanwhile queue; when the leader is done, the first of them leads. A single thread
pays for no hand-over, and no thread of our own has to be kept alive, stopped or restarted after a fork.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Asked = TypeVar("Asked")


class _Place(Generic[Asked]):
    """A place in the queue. `wake` is released when the order is done, or when it is to lead."""

    __slots__ = ("leads", "order", "wake")

    def __init__(self, order: Asked) -> None:
        self.order = order
        self.leads = False
        self.wake = threading.Lock()
        self.wake.acquire()


class Turns(Generic[Asked]):
    """A queue of orders, and who works on them."""

    __slots__ = ("_gate", "_led", "_queue", "_work")

    def __init__(self, work: Callable[[list[Asked]], None]) -> None:
        self._work = work
        #: Guards the queue and whether somebody leads; held for a moment only.
        self._gate = threading.Lock()
        self._queue: list[_Place[Asked]] = []
        self._led = False

    def ask(self, order: Asked) -> None:
        """Return when the work for the order has been done, by this thread or by another.

        How it went is for `work` to leave in the order; what it raises is raised by the leader.
        """
        place: _Place[Asked] | None = None
        with self._gate:
            if self._led:
                place = _Place(order)
                self._queue.append(place)
            else:
                self._led = True
        if place is not None and not self._wait(place):
            return
        self._lead(order)

    def _wait(self, place: _Place[Asked]) -> bool:
        """Wait until the order is done, or until this thread is to lead: True."""
        try:
            place.wake.acquire()
        except BaseException:
            # Interrupted. If nobody has taken the order, nobody will; and if this thread was to lead, the
            # next one must, or all would wait for ever.
            with self._gate:
                if place in self._queue:
                    self._queue.remove(place)
            if place.leads:
                self._hand_over()
            raise
        return place.leads

    def _lead(self, order: Asked) -> None:
        others: list[_Place[Asked]] = []
        try:
            with self._gate:
                others, self._queue = self._queue, []
            self._work([order, *[place.order for place in others]])
        finally:
            self._hand_over()
            for place in others:
                place.wake.release()

    def _hand_over(self) -> None:
        with self._gate:
            if not self._queue:
                self._led = False
                return
            heir = self._queue.pop(0)
            heir.leads = True
        heir.wake.release()
