"""Write appends that tasks request concurrently with one write and one sync.

While a thread appends to a session, the appends of other tasks to it gather here; a thread then takes all of
them. So a sync is shared by all tasks that wait, not only by as many as there are threads.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, Final, NoReturn, cast

import hansard
from hansard.aio.pool import Pool, PooledCall, deliver
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

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Start without waiting appends: the threads that would do them stayed in the parent."""
        #: A session is among them while a thread works for it, or is about to.
        self._waiting: dict[str, list[PooledCall[Any]]] = {}
        #: Guards the above. Never held while something is called, so the loop may take it.
        self._mutex = threading.Lock()

    async def append(self, session_id: str, request: Callable[[], Any]) -> list[Event]:
        """Make a call on a requesting handle, and do what it requests together with what others request."""
        self.pool.check_open()
        call = PooledCall(request)
        with self._mutex:
            first = session_id not in self._waiting
            self._waiting.setdefault(session_id, []).append(call)
        if first:
            try:
                self.pool.submit(partial(self._work, session_id))
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                # No thread will do the appends that wait for the session.
                with self._mutex:
                    calls = [call for call in self._waiting.pop(session_id, ()) if call.claim()]
                for refused in calls:
                    refused.error = copy(error)
                deliver(calls)
        events: list[Event] = await call.outcome(finish=True)
        return events

    def _work(self, session_id: str) -> None:
        """Do the appends that wait for a session; if more arrive, queue again after other sessions."""
        while True:
            with self._mutex:
                waiting = self._waiting.get(session_id, [])
                taken = waiting[:_MOST]
                del waiting[:_MOST]
            try:
                _commit([call for call in taken if call.claim()])  # the others were cancelled
            finally:
                with self._mutex:
                    more = bool(self._waiting.get(session_id))
                    if not more:
                        self._waiting.pop(session_id, None)
            if not more:
                return
            # If the pool is closed, `close` waits for this thread, which does what came before it.
            with suppress(hansard.Closed, RuntimeError):
                self.pool.submit(partial(self._work, session_id))
                return


def _commit(calls: list[PooledCall[Any]]) -> None:
    """Make calls, do the appends that they request, and deliver the outcomes."""
    requested: list[PooledCall[Any]] = []
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
