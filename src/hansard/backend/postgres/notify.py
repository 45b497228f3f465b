"""Tell waiting readers that a session has grown: threads of this process directly, others by NOTIFY.

A notification is only a hint: a waiting reader also checks the session every second. A thread sends
notifications after the commit, for many appends at a time: inside the append's transaction, NOTIFY would
serialize all writers of the database. One connection per process listens, from the first wait on.
"""

import threading
import time
from collections.abc import Callable
from typing import Final
from weakref import ref

from hansard.backend.postgres.connection import Connections, DedicatedConnection
from hansard.backend.postgres.server_errors import ConnectionLost
from hansard.errors import HansardError
from hansard.log import disk

#: Minimum seconds between two notifications of a process.
_INTERVAL: Final = 0.02
#: If more sessions have grown, one notification is sent for all.
_MAX_SESSIONS: Final = 100
#: Seconds between two checks of a waiting reader: with a listener, and without.
_CHECK: Final = 1.0
_CHECK_ALONE: Final = 0.1
#: Seconds after which an idle thread checks whether it is still needed.
_IDLE: Final = 0.5

_NOTIFY: Final = """
SELECT pg_notify(%(channel)s, session), set_config('synchronous_commit', 'off', true)
FROM unnest(%(sessions)s::varchar[]) AS session"""

#: The payload that means every session.
_ALL: Final = ""


class Notifier:
    """The waiting readers of this process, and the two threads that send and receive notifications."""

    def __init__(self, connections: Connections, channel: str) -> None:
        self._connections = connections
        self._channel = channel
        self._stopped = False
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Start again, also in a forked child: the threads are the parent's."""
        self._mutex = threading.Lock()
        #: By session, the threads that wait for it.
        self._waiting: dict[str, list[threading.Event]] = {}
        #: Sessions to announce to other processes.
        self._grown: set[str] = set()
        self._has_grown = threading.Event()
        self._listening = threading.Event()
        self._listener = DedicatedConnection(self._connections)
        self._threads: dict[str, threading.Thread] = {}

    def tell(self, session: str) -> None:
        """Report that a session has grown, or was deleted or restored."""
        # A reader that starts to wait after this has not checked the session yet.
        if self._waiting:
            self._wake(session)
        if session in self._grown:
            return
        with self._mutex:
            self._grown.add(session)
            self._start("send")
        self._has_grown.set()

    def wait(self, session: str, is_behind: Callable[[], bool], timeout: float) -> bool:
        """Wait until `is_behind` is true, and return True; False if it is not within `timeout` seconds."""
        if is_behind():
            return True
        if timeout <= 0:
            return False
        deadline = time.monotonic() + timeout
        woken = threading.Event()
        with self._mutex:
            self._waiting.setdefault(session, []).append(woken)
            self._start("listen")
        try:
            # Listen, then check, then wait: an append in between is noticed.
            self._listening.wait(min(timeout, _CHECK_ALONE))
            while True:
                woken.clear()
                if is_behind():
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                woken.wait(min(left, _CHECK if self._listening.is_set() else _CHECK_ALONE))
        finally:
            with self._mutex:
                others = self._waiting.get(session, [])
                others.remove(woken)
                if not others:
                    self._waiting.pop(session, None)

    def stop(self) -> None:
        """Wake all readers, and end the threads."""
        self._stopped = True
        self._has_grown.set()
        self._wake(_ALL)

    def _wake(self, session: str) -> None:
        with self._mutex:
            if session == _ALL:
                found = [event for events in self._waiting.values() for event in events]
            else:
                found = list(self._waiting.get(session, ()))
        for event in found:
            event.set()

    def _start(self, step: str) -> None:
        """Start a thread that repeats a step, unless it runs. The caller holds the mutex."""
        thread = self._threads.get(step)
        if thread is None or not thread.is_alive():
            if step == "listen":
                self._listening.clear()
            # A daemon: an interpreter that ends does not wait for it.
            name = f"hansard_{step}"
            thread = threading.Thread(
                target=_repeat, args=(ref(self), step), name=name, daemon=True
            )
            self._threads[step] = thread
            thread.start()

    def send(self) -> bool:
        """Send pending notifications; return False when the store was closed."""
        if self._has_grown.wait(_IDLE):
            self._has_grown.clear()
            with self._mutex:
                grown, self._grown = self._grown, set()
            sessions = sorted(grown) if len(grown) <= _MAX_SESSIONS else [_ALL]
            try:
                if sessions:
                    params = {"channel": self._channel, "sessions": sessions}
                    self._connections.attempt(_NOTIFY, params)
            except (HansardError, ConnectionLost):
                pass  # a hint: readers check anyway
            time.sleep(_INTERVAL)
        return not self._stopped

    def listen(self) -> bool:
        """Receive notifications for a moment; return False when the store was closed."""
        listener = self._listener
        if self._stopped:
            listener.close()
            return False
        opened = listener.opened
        try:
            with listener.using() as connection:
                if listener.opened != opened:
                    connection.execute(f'LISTEN "{self._channel}"'.encode())
                    self._listening.set()
                    # Readers may have missed notifications while there was no listener.
                    self._wake(_ALL)
                for found in connection.notifies(timeout=_IDLE, stop_after=1):
                    self._wake(found.payload)
        except (HansardError, ConnectionLost):
            self._listening.clear()
            listener.close()
            time.sleep(_CHECK_ALONE)
        return True


def _repeat(found: "ref[Notifier]", step: str) -> None:
    """Repeat a step; between two steps without a reference, so that a store can be collected."""
    notifier = found()
    while notifier is not None and getattr(notifier, step)():
        del notifier
        notifier = found()
