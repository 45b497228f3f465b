"""Let appends that come at the same time go to the disk together.

Above: `session`.  Below: `pool`, `hansard.Session`, `backend.contract`.
While one write and its sync are under way, what other tasks append to the same session gathers here; one
thread then takes all of it. So a sync is shared by as many tasks as there are, not by as many as there are
threads: 64 tasks append at ten times the rate of one, and at twice that of a pool of 16 threads.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final, NoReturn, cast
from weakref import WeakValueDictionary

import hansard
from hansard.aio.pool import Call, Job, Outcome, Pool, deliver
from hansard.backend.contract import Append, Log
from hansard.event.envelope import Draft, Event
from hansard.log import disk

#: So many appends share one write: the session's lock is held while they are framed.
_MOST: Final = 256


class _Noted(BaseException):
    """An append that was asked for, and not done. No `Exception`: nothing on its way up may catch it."""

    def __init__(self, log: Log, append: Append) -> None:
        self.log = log
        self.append = append


class _NotingLog:
    """A session's log that reads as it is, and does not append: it raises what it was to append.

    So `hansard.Session` alone knows how a message becomes an append, and what is refused.
    """

    def __init__(self, log: Log) -> None:
        self._log = log

    def append(self, drafts: Sequence[Draft], **options: Any) -> NoReturn:
        """Append nothing."""
        raise _Noted(self._log, Append(drafts, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def noting(session: hansard.Session) -> hansard.Session:
    """Turn a handle into one whose appends are noted."""
    session._log = cast("Log", _NotingLog(session._log))  # noqa: SLF001 - its one seam
    return session


class Groups:
    """The groups of a store: one for each session, shared by all handles on it."""

    __slots__ = ("_groups", "pool")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._groups: WeakValueDictionary[str, Group] = WeakValueDictionary()

    def of(self, session_id: str) -> "Group":
        """Return a session's group."""
        # Two threads may both make one; then two groups go to the disk, which is no harm.
        return self._groups.setdefault(session_id, Group(self.pool))


class _Turn(Job):
    """A thread's work for a group."""

    __slots__ = ("_group",)

    def __init__(self, group: "Group") -> None:
        super().__init__()
        self._group = group

    def do(self) -> None:
        """Append what has come together."""
        self._group.work()


class Group:
    """The appends to one session that wait for a thread. For any number of loops."""

    __slots__ = ("__weakref__", "_busy", "_generation", "_pool", "_waiting")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._reset()

    def _reset(self) -> None:
        self._waiting: deque[Call[list[Event]]] = deque()
        #: Held while a thread is under way for this group. The loop never waits for it.
        self._busy = threading.Lock()
        self._generation = disk.generation

    async def append(self, ask: Callable[[], list[Event]]) -> list[Event]:
        """Append what a call on a noting handle asks for, together with what others ask for."""
        if self._generation != disk.generation:
            self._reset()  # forked: the thread that was under way stayed with the parent
        # Here too: while a thread is at work for this group, nothing is submitted that would say so.
        self._pool.check_open()
        call = Call(ask)
        self._waiting.append(call)
        if self._busy.acquire(blocking=False):
            self._send()
        return await call.answer(finish=True)

    def _send(self) -> None:
        """Let a thread work for this group. Whoever calls this holds `_busy`."""
        try:
            self._pool.submit(_Turn(self))
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            self._busy.release()
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        while self._waiting:
            call = self._waiting.popleft()
            if call.take():
                deliver(call.loop, [(call, None, copy(error))])

    def work(self) -> None:
        """Do what waits; if more has come meanwhile, queue for another turn, behind other sessions."""
        while True:
            try:
                self._commit()
            finally:
                self._busy.release()
            # After the release: who came before it saw the lock held, and counts on this.
            if not self._waiting or not self._busy.acquire(blocking=False):
                return
            try:
                self._pool.submit(_Turn(self))
            except (hansard.Closed, RuntimeError):
                # Who closes the store waits for this thread: what came before that is done.
                continue
            return

    def _commit(self) -> None:
        outcomes: list[Outcome] = []
        asked: list[Call[list[Event]]] = []
        appends: list[Append] = []
        log: Log | None = None
        while self._waiting and len(asked) < _MOST:
            call = self._waiting.popleft()
            if not call.take():
                continue  # cancelled before it began
            try:
                outcomes.append((call, call.call(), None))
            except _Noted as noted:
                # Its parts, and not the exception: it knows this frame, and would outlive it.
                log = noted.log
                appends.append(noted.append)
                asked.append(call)
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                outcomes.append((call, None, error))
        if log is not None:
            outcomes += zip(asked, *_done(log, appends), strict=True)
        loops = {call.loop for call, _, _ in outcomes}
        for loop in loops:
            deliver(loop, [outcome for outcome in outcomes if outcome[0].loop is loop])


def _done(
    log: Log, appends: list[Append]
) -> tuple[list[list[Event] | None], list[BaseException | None]]:
    """Do appends, all in one go; return each one's events, and each one's error."""
    answers: Sequence[list[Event] | BaseException]
    try:
        answers = log.append_all(appends)
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited, each its own
        answers = [copy(error) for _ in appends]
    events = [None if isinstance(answer, BaseException) else answer for answer in answers]
    errors = [answer if isinstance(answer, BaseException) else None for answer in answers]
    return events, errors
