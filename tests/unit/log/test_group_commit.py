"""Claims about `hansard.log.group_commit`: which thread does the work, and that no thread is left waiting."""

import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType

import pytest

from hansard.log import group_commit
from hansard.log.group_commit import GroupCommit
from tests.faults.workers import PATIENCE, until


class Work:
    """Work that can be blocked, and that records its groups of requests."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.errors: list[BaseException | None] = []
        self._busy = threading.Lock()
        self._stay = threading.Event()
        self._stay.set()
        self.inside = threading.Event()

    def __call__(self, orders: list[str]) -> None:
        """Do the work."""
        assert self._busy.acquire(blocking=False), "two threads work at the same time"
        try:
            self.groups.append(list(orders))
            self.inside.set()
            assert self._stay.wait(PATIENCE)
            error = self.errors.pop(0) if self.errors else None
            if error is not None:
                raise error
        finally:
            self._busy.release()

    def stay(self) -> None:
        """Block the work until it is released."""
        self.inside.clear()
        self._stay.clear()

    def go(self) -> None:
        """Continue, and do not stop again."""
        self._stay.set()


class Asking(threading.Thread):
    """A thread that asks once, and keeps what became of it."""

    def __init__(self, ask: Callable[[], object], *, interrupted_at: int = 0) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self._left = interrupted_at
        self.fired = False
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Ask; if so wished, be interrupted at the nth place where an interrupt can come."""
        try:
            if self._left:
                sys.setprofile(self._interrupt)
            self._ask()
        except BaseException as error:  # noqa: BLE001 - kept, and looked at by the test
            self.error = error
        finally:
            sys.setprofile(None)

    def _interrupt(self, frame: FrameType, event: str, _: object) -> None:
        # The interpreter looks for signals where a function begins and where a call of C returns.
        if frame.f_code.co_filename != group_commit.__file__ or event not in {"call", "c_return"}:
            return
        self._left -= 1
        if self._left == 0:
            self.fired = True
            raise KeyboardInterrupt

    def end(self) -> None:
        """Wait for the thread, which must end."""
        self.join(PATIENCE)
        assert not self.is_alive(), "a thread waits permanently"


class Queue:
    """GroupCommit with a leader that keeps working, so that others queue."""

    def __init__(self, *, interrupted_at: int = 0) -> None:
        self.work = Work()
        self.turns: GroupCommit[str] = GroupCommit(self.work)
        self.work.stay()
        self.threads: list[Asking] = []
        leader = self.submit("leader", interrupted_at=interrupted_at)
        until(lambda: self.work.inside.is_set() or not leader.is_alive())
        if not leader.is_alive():
            # Interrupted before it led: the others need another leader.
            self.work.stay()
            self.submit("substitute")
            assert self.work.inside.wait(PATIENCE)

    def submit(self, order: str, *, interrupted_at: int = 0) -> Asking:
        """Let one more thread ask, and return when it works, waits, or has given up."""
        return self._start(lambda: self.turns.submit(order), interrupted_at)

    def be_alone(self, name: str, *, interrupted_at: int = 0) -> Asking:
        """Let one more thread wait until it is alone."""

        def alone() -> None:
            with self.turns.exclusive():
                self.work([name])

        return self._start(alone, interrupted_at)

    def _start(self, ask: Callable[[], object], interrupted_at: int = 0) -> Asking:
        queued = len(self.turns._queue)
        worked = self.work.inside.is_set()
        thread = Asking(ask, interrupted_at=interrupted_at)
        until(
            lambda: (
                len(self.turns._queue) > queued
                or self.work.inside.is_set() > worked
                or not thread.is_alive()
            )
        )
        self.threads.append(thread)
        return thread

    def end(self) -> list[list[str]]:
        """Let all continue, wait for them, and return the groups in which the work was done."""
        self.work.go()
        for thread in self.threads:
            thread.end()
        # The next request leads immediately.
        last = Asking(lambda: self.turns.submit("last"))
        last.end()
        assert last.error is None
        assert self.work.groups[-1] == ["last"]
        return self.work.groups[:-1]


# A leader, and in the queue: a, b, an exclusive one, c, d. So a leads for b, c for d.
VICTIMS = ["leader", "a", "b", "alone", "c", "d"]


def interrupt(victim: str, point: int) -> bool:
    """Interrupt one of six threads at its nth point; return whether there was such a point.

    The requests of all others must be done, once, and no thread may be left waiting.
    """
    points = dict.fromkeys(VICTIMS, 0) | {victim: point}
    queue = Queue(interrupted_at=points["leader"])
    threads = {"leader": queue.threads[0]}
    for order in VICTIMS[1:]:
        start = queue.be_alone if order == "alone" else queue.submit
        threads[order] = start(order, interrupted_at=points[order])
    done = [order for group in queue.end() for order in group]
    for order, thread in threads.items():
        if thread.fired:
            assert isinstance(thread.error, KeyboardInterrupt)
        else:
            assert thread.error is None
        if thread.fired or (order, victim) in {("b", "a"), ("d", "c")}:
            # Its own, or that of the one it led for: interrupted before the work began, or after.
            assert done.count(order) <= 1, f"{order}: {done}"
        else:
            assert done.count(order) == 1, f"{order}: {done}"
    return threads[victim].fired


@pytest.mark.parametrize("victim", VICTIMS)
def test_an_interrupt_at_any_point_leaves_no_thread_waiting(victim: str) -> None:
    """N-23: wherever a thread is interrupted, all others get their orders done, and none of them twice."""
    points = 0
    for point in itertools.count(1):
        if not interrupt(victim, point):
            break
        points = point
    assert points > 3
