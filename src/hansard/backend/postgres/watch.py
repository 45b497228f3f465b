"""Tell whoever waits for a session that it has grown: here at once, elsewhere by NOTIFY.

Above: `log`, `backend`.  Below: `connections`.
A notification is a hint, and looking is the truth: who waits looks when he is told, and every second
anyway. It is sent behind the append's back, by a thread of its own and for many appends at a time: inside
the append's transaction it would let all writers of the database wait for one another. One connection of a
process listens, from the first time that somebody waits.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final
from weakref import ref

import psycopg

from hansard.backend.postgres.connections import Connections
from hansard.backend.postgres.faults import Lost
from hansard.backend.postgres.pooled import Connection
from hansard.errors import HansardError

#: At the most so often a process sends notifications, in seconds.
_EVERY: Final = 0.02
#: More sessions than this at once are told in one word: all of them.
_MOST: Final = 100
#: How often to look without being told: with a listener, and while there is none.
_LOOK: Final = 1.0
_LOOK_ALONE: Final = 0.1
#: After so long without work a thread looks whether it is still needed.
_BREATH: Final = 0.5

_NOTIFY: Final = b"""
SELECT pg_notify(%(channel)s, said), set_config('synchronous_commit', 'off', true)
FROM unnest(%(said)s::varchar[]) AS said"""

_ALL: Final = ""


class News:
    """Who waits for which session, in this process, and the two threads that talk to others."""

    __slots__ = (
        "__weakref__",
        "_channel",
        "_connections",
        "_listener",
        "_listening",
        "_mutex",
        "_notifier",
        "_pid",
        "_said",
        "_stopped",
        "_waiting",
        "_wanted",
    )

    def __init__(self, connections: Connections, channel: str) -> None:
        self._connections = connections
        self._channel = channel
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._stopped = False
        #: By session, those who wait for it.
        self._waiting: dict[str, list[threading.Event]] = {}
        #: What is to be said to other processes.
        self._said: set[str] = set()
        self._wanted = threading.Event()
        self._listening = threading.Event()
        self._notifier: threading.Thread | None = None
        self._listener: threading.Thread | None = None

    def _after_fork(self) -> None:
        """Begin anew in a child: the threads are the parent's, and so may be who holds the mutex."""
        if self._pid != os.getpid():
            self._begin()

    def tell(self, session: str) -> None:
        """Say that a session has grown, or was deleted, or restored."""
        self._after_fork()
        # Whoever begins to wait after this has not looked yet, and will.
        if self._waiting:
            self._wake(session)
        if session in self._said:
            return  # it will be said
        with self._mutex:
            self._said.add(session)
            if self._notifier is None or not self._notifier.is_alive():
                self._notifier = _thread(_notify, self)
        self._wanted.set()

    def wait(self, session: str, is_behind: Callable[[], bool], timeout: float) -> bool:
        """Wait until somebody is behind, and say so; False if that was not in time."""
        if is_behind():
            return True
        if timeout <= 0:
            return False
        self._after_fork()
        deadline = time.monotonic() + timeout
        mine = threading.Event()
        with self._mutex:
            self._waiting.setdefault(session, []).append(mine)
            if self._listener is None or not self._listener.is_alive():
                self._listening.clear()
                self._listener = _thread(_listen, self)
        try:
            # Listen first, then look, then wait: what comes in between is heard.
            self._listening.wait(min(timeout, _LOOK_ALONE))
            while True:
                mine.clear()
                if is_behind():
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                mine.wait(min(left, _LOOK if self._listening.is_set() else _LOOK_ALONE))
        finally:
            with self._mutex:
                others = self._waiting.get(session, [])
                others.remove(mine)
                if not others:
                    self._waiting.pop(session, None)

    def stop(self) -> None:
        """Wake everybody, and let the threads end."""
        self._after_fork()
        self._stopped = True
        self._wanted.set()
        self._wake(_ALL)

    def _wake(self, session: str) -> None:
        with self._mutex:
            if session == _ALL:
                found = [event for events in self._waiting.values() for event in events]
            else:
                found = list(self._waiting.get(session, ()))
        for event in found:
            event.set()

    # -- what the threads do: one step each, so that none of them keeps a store alive ------------

    def send(self) -> bool:
        """Send what is to be said; False if there is nothing more to do, ever."""
        if not self._wanted.wait(_BREATH):
            return not self._stopped
        self._wanted.clear()
        with self._mutex:
            said, self._said = self._said, set()
        if said:
            words = sorted(said) if len(said) <= _MOST else [_ALL]
            try:
                params = {"channel": self._channel, "said": words}
                self._connections.attempt(_NOTIFY, params)
            except (HansardError, Lost):
                pass  # it is a hint: whoever waits looks by himself
        return not self._stopped

    def listen(self) -> Connection | None:
        """Return a connection that listens; None if the server is away."""
        try:
            connection = self._connections.own()
        except (HansardError, Lost):
            return None
        try:
            connection.execute(f'LISTEN "{self._channel}"'.encode())
        except psycopg.Error:
            connection.close()
            return None
        self._listening.set()
        # Whoever waits may have missed something while nobody listened.
        self._wake(_ALL)
        return connection

    def hear(self, connection: Connection) -> bool:
        """Hear what others say, for a moment; False if the connection is of no use any more."""
        try:
            for said in connection.notifies(timeout=_BREATH, stop_after=1):
                self._wake(said.payload)
        except psycopg.Error:
            self._listening.clear()
            return False
        return True

    @property
    def stopped(self) -> bool:
        """Whether the store was closed."""
        return self._stopped


def _thread(target: "Callable[[ref[News]], None]", news: News) -> threading.Thread:
    # A daemon: an interpreter that ends waits for none, and what they do is a courtesy.
    thread = threading.Thread(
        target=target, args=(ref(news),), name=f"hansard-{target.__name__.strip('_')}", daemon=True
    )
    thread.start()
    return thread


def _notify(found: "ref[News]") -> None:
    while True:
        news = found()
        if news is None or not news.send():
            return
        del news
        time.sleep(_EVERY)


def _listen(found: "ref[News]") -> None:
    connection: Connection | None = None
    try:
        while True:
            news = found()
            if news is None or news.stopped:
                return
            if connection is None:
                connection = news.listen()
                if connection is None:
                    time.sleep(_LOOK_ALONE)
            elif not news.hear(connection):
                connection.close()
                connection = None
            del news
    finally:
        if connection is not None:
            connection.close()
