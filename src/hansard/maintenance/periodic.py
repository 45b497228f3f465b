"""Compact sessions by themselves, when they have grown: off the way of those who append.

A backend says which session has outgrown its active segment, after the append was acknowledged. One thread,
begun when it is needed and gone when it is not, compacts such sessions one after the other, quickly rather
than tightly. What goes wrong here is nobody's error: the log is as it was, and is tried again next time. It
is logged, once for each session.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from weakref import ref

from hansard.backend.contract import Backend
from hansard.errors import Closed, LockTimeout, SessionDeleted, SessionNotFound
from hansard.maintenance import compact as compaction

_log = logging.getLogger("hansard")

#: A thread that has nothing to do for so many seconds ends.
_PATIENCE: Final = 2.0


class _Stopped(Exception):
    """Ends a compaction in the middle; nothing is lost."""


class Keeper:
    """Compacts the sessions of a backend that have grown."""

    __slots__ = (
        "__weakref__",
        "_after",
        "_backend",
        "_changed",
        "_failed",
        "_process",
        "_stopped",
        "_thread",
        "_wanted",
    )

    def __init__(self, backend: Backend, after: Callable[[Backend], None] | None = None) -> None:
        """`after` is called when something was forgotten: what was derived from it may still say it."""
        self._after = after
        # Not kept alive by its keeper: a store that nobody holds any more is closed.
        self._backend = ref(backend)
        self._stopped = False
        #: The sessions whose failure was logged.
        self._failed: set[str] = set()
        self._reset()

    def _reset(self) -> None:
        import os

        self._process = os.getpid()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wanted: OrderedDict[str, None] = OrderedDict()

    def want(self, session_id: str) -> None:
        """Have a session compacted some time soon."""
        import os

        if self._process != os.getpid():
            self._reset()  # after a fork: the thread is the parent's
        with self._changed:
            if self._stopped or session_id in self._wanted:
                return
            self._wanted[session_id] = None
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_keep, args=(ref(self),), name="hansard-compaction", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """Begin nothing more, and end what is under way. Returns when it has ended."""
        with self._changed:
            self._stopped = True
            self._wanted.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def next(self) -> str | None:
        """Return the next session to compact; None if the thread is to end."""
        with self._changed:
            if not self._wanted and not self._stopped:
                self._changed.wait(_PATIENCE)
            if self._stopped or not self._wanted:
                self._thread = None
                return None
            return next(iter(self._wanted))

    def compact(self, session_id: str) -> None:
        """Compact a session, if its store is still there."""
        backend = self._backend()
        try:
            if backend is not None:
                report = compaction.compact_session(
                    backend,
                    session_id,
                    level=compaction.QUICK,
                    progress=self._check,
                    wait=False,
                )
                if report.blanked and self._after is not None:
                    self._after(backend)
        except (_Stopped, Closed, LockTimeout, SessionDeleted, SessionNotFound):
            pass  # another process compacts it, or it need not be compacted any more
        except Exception as error:  # noqa: BLE001 - one session's failure must not end the thread
            # The log is as it was: it is tried again when it has grown further.
            if session_id not in self._failed:
                self._failed.add(session_id)
                said = f"{type(error).__name__}: {error}"
                _log.warning("background compaction of session %r failed: %s", session_id, said)
        else:
            self._failed.discard(session_id)
        finally:
            with self._changed:
                self._wanted.pop(session_id, None)

    def _check(self, done: int, total: int) -> None:
        del done, total
        if self._stopped:
            raise _Stopped


def _keep(found: "ref[Keeper]") -> None:
    """Be the thread: holds on to the keeper only while it works."""
    while True:
        keeper = found()
        if keeper is None:
            return
        session_id = keeper.next()
        if session_id is None:
            return
        keeper.compact(session_id)
        del keeper
