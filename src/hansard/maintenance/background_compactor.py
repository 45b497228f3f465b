"""Compact grown sessions in a background thread, so that no append waits for it.

The backend schedules a session when an append has made its active segment too long and was acknowledged. One
thread compacts scheduled sessions one by one, at a fast zstd level. It starts with the first one and ends
when none is left. A failure does not change the log and is logged once per session; the session is scheduled
again when it has grown further.
"""

import logging
import threading
from typing import Final
from weakref import ref

from hansard.backend.contract import Backend
from hansard.errors import Closed, LockTimeout, SessionDeleted, SessionNotFound
from hansard.log import disk

_log = logging.getLogger("hansard")

#: Seconds without a scheduled session after which the thread ends.
_PATIENCE: Final = 2.0


class _Stopped(Exception):
    """Interrupts a compaction; nothing is lost."""


class BackgroundCompactor:
    """Compacts the scheduled sessions of a backend."""

    def __init__(self, backend: Backend) -> None:
        # A weak reference: a store without references is closed.
        self._backend = ref(backend)
        self._stopped = False
        #: Sessions whose failure was logged.
        self._failed: set[str] = set()
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Start without a thread: a forked child does not inherit it."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        #: In order; the first one is compacted now.
        self._scheduled: dict[str, None] = {}

    def schedule(self, session_id: str) -> None:
        """Compact a session soon."""
        with self._changed:
            if self._stopped or session_id in self._scheduled:
                return
            self._scheduled[session_id] = None
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_run, args=(ref(self),), name="hansard-compaction", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """Interrupt the current compaction and start no other; return when the thread has ended."""
        with self._changed:
            self._stopped = True
            self._scheduled.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def next(self) -> str | None:
        """Return the next session to compact; None if the thread must end."""
        with self._changed:
            if not self._scheduled and not self._stopped:
                self._changed.wait(_PATIENCE)
            if self._stopped or not self._scheduled:
                self._thread = None
                return None
            return next(iter(self._scheduled))

    def compact(self, session_id: str) -> None:
        """Compact a session, if its store is still open."""
        backend = self._backend()
        try:
            if backend is not None:
                self._compact(backend, session_id)
        except (_Stopped, Closed, LockTimeout, SessionDeleted, SessionNotFound):
            pass  # another process compacts it, or it needs no compaction any more
        except Exception as error:  # noqa: BLE001 - one session's failure must not end the thread
            if session_id not in self._failed:
                self._failed.add(session_id)
                said = f"{type(error).__name__}: {error}"
                _log.warning("background compaction of session %r failed: %s", session_id, said)
        else:
            self._failed.discard(session_id)
        finally:
            with self._changed:
                self._scheduled.pop(session_id, None)

    def _compact(self, backend: Backend, session_id: str) -> None:
        # Imported here: few stores have sessions that grow so much.
        from hansard.index import erase_removed
        from hansard.maintenance import compact

        report = compact.compact_session(
            backend, session_id, level=compact.QUICK, progress=self._check, wait=False
        )
        if report.blanked:
            erase_removed(backend)

    def _check(self, done: int, total: int) -> None:
        del done, total
        if self._stopped:
            raise _Stopped


def _run(found: "ref[BackgroundCompactor]") -> None:
    """Run the thread, which refers to the compactor only while it works."""
    while True:
        compactor = found()
        if compactor is None:
            return
        session_id = compactor.next()
        if session_id is None:
            return
        compactor.compact(session_id)
        del compactor
