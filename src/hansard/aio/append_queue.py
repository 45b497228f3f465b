"""Write appends that tasks request concurrently with one write and one sync.

While a thread appends to a session, the appends of other tasks to it gather here; a thread then takes all of
them. So a sync is shared by all tasks that wait, not only by as many as there are threads.
"""

import threading
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, Final, NoReturn, cast

import hansard
from hansard.aio.pool import Call, Pool, deliver
from hansard.backend.contract import AppendRequest, Log
from hansard.event.event import Event
from hansard.log import disk

#: Maximum appends in one write: the session's lock is held while they are encoded.
_MOST: Final = 256


class _Requested(BaseException):
    """An append that was requested, and not done. Not an `Exception`: nothing on its way may catch it."""

    def __init__(self, log: Log, append: AppendRequest) -> None:
        self.log = log
        self.append = append


class _RequestingLog:
    """A session's log that raises the requested appends.

    So only `hansard.Session` knows how a message becomes an append, and what is refused.
    """

    def __init__(self, log: Log) -> None:
        self._log = log

    def append(self, request: AppendRequest) -> NoReturn:
        raise _Requested(self._log, request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def requesting(session: hansard.Session) -> hansard.Session:
    """Turn a handle into one for `AppendQueue.append`."""
    session._log = cast("Log", _RequestingLog(session._log))  # noqa: SLF001 - its one seam
    return session


class AppendQueue:
    """The appends that wait for a thread, by session. For any number of loops."""

    __slots__ = ("__weakref__", "_mutex", "_waiting", "pool")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Start without waiting appends: the threads that would do them stayed in the parent."""
        #: A session is among them while a thread works for it, or is about to.
        self._waiting: dict[str, list[Call[Any]]] = {}
        #: Guards the above. Never held while something is called, so the loop may take it.
        self._mutex = threading.Lock()

    async def append(self, session_id: str, request: Callable[[], Any]) -> list[Event]:
        """Make a call on a requesting handle, and do what it requests together with what others request."""
        self.pool.check_open()
        call = Call(request)
        with self._mutex:
            waiting = self._waiting.get(session_id)
            if waiting is None:
                self._waiting[session_id] = [call]
            else:
                waiting.append(call)
        if waiting is None:
            try:
                self.pool.submit(partial(self._work, session_id))
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                self._refuse(session_id, error)
        events: list[Event] = await call.outcome(finish=True)
        return events

    def _refuse(self, session_id: str, error: BaseException) -> None:
        """Fail the appends that wait for a session: no thread will do them."""
        with self._mutex:
            calls = [call for call in self._waiting.pop(session_id, ()) if call.claim()]
        for call in calls:
            call.error = copy(error)
        deliver(calls)

    def _work(self, session_id: str) -> None:
        """Do the appends that wait for a session; if more arrive, queue again after other sessions."""
        while True:
            try:
                _commit(self._take(session_id))
            finally:
                done = self._is_done(session_id)
            if done:
                return
            try:
                self.pool.submit(partial(self._work, session_id))
            except (hansard.Closed, RuntimeError):
                continue  # `close` waits for this thread: what came before it is done
            return

    def _take(self, session_id: str) -> list[Call[Any]]:
        with self._mutex:
            waiting = self._waiting.get(session_id, [])
            taken = waiting[:_MOST]
            del waiting[:_MOST]
        return [call for call in taken if call.claim()]  # the others were cancelled

    def _is_done(self, session_id: str) -> bool:
        with self._mutex:
            if self._waiting.get(session_id):
                return False
            self._waiting.pop(session_id, None)
            return True


def _commit(calls: list[Call[Any]]) -> None:
    """Make calls, do the appends that they request, and deliver the outcomes."""
    requested: list[Call[Any]] = []
    appends: list[AppendRequest] = []
    log: Log | None = None
    for call in calls:
        try:
            call.answer = call.function()
        except _Requested as request:
            # Its parts, not the exception: its traceback would keep this frame alive.
            log = request.log
            appends.append(request.append)
            requested.append(call)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            call.error = error
    if log is not None:
        answers: Sequence[list[Event] | BaseException]
        try:
            answers = log.append_many(appends)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited, each its own
            answers = [copy(error) for _ in appends]
        for call, answer in zip(requested, answers, strict=True):
            if isinstance(answer, BaseException):
                call.error = answer
            else:
                call.answer = answer
    deliver(calls)
