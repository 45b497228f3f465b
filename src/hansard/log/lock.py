"""Keep writers of one session apart: one OS lock, taken through portalocker.

Above: `writer`.  Below: `disk`, portalocker.
The lock belongs to the open file, so the operating system frees it when its holder dies; the file
itself is empty for ever and says nothing (F-38). Measured here for lock and unlock: `flock` 1.2 µs,
portalocker's locker called for the bare function it uses 1.2, its checked method 2.9–4.3, `portalocker.Lock`
26 with a poll of 250 ms. So: the bare function, and a poll of our own that starts at 200 µs. With that, four
processes on one session append 30,000 times a second, and 25,000 times if it starts at 50 µs: who wakes too
early takes the processor from the one that holds the lock.
"""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Final

from hansard.errors import LockTimeout
from hansard.log import disk

#: A waiter looks again after this long, then after twice as long …
_FIRST_PAUSE: Final = 0.000_2
#: … but never later than this after the lock was freed.
_LONGEST_PAUSE: Final = 0.002

_SHARED_NOW: Final = 1 | 4  # LOCK_SH | LOCK_NB
_EXCLUSIVE_NOW: Final = 2 | 4  # LOCK_EX | LOCK_NB
_UNLOCK: Final = 8  # LOCK_UN

_flock: Callable[[int, int], object] | None = None

#: The locks that threads have for a moment.
_momentary: Final[dict[int, "Lock"]] = {}


def _locker() -> Callable[[int, int], object]:
    """Return portalocker's function for flock. Imported late: readers need no lock."""
    global _flock  # noqa: PLW0603 - imported once
    if _flock is None:
        from portalocker.portalocker import FlockLocker

        _flock = FlockLocker().locker
    return _flock


class Lock(disk.Open):
    """The lock of one session, as one open lock file. For one thread at a time.

    Attributes:
        path: the lock file, for people.
        release: frees the lock; harmless if it is not held. Not a method: an interrupt can come where a
            function of Python begins, and this is called where nothing may come in between.
    """

    __slots__ = ("__weakref__", "_flock", "path", "release")

    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor)
        disk.close_in_children(self)
        self.path = path
        self._flock = _locker()
        self.release = partial(self._flock, descriptor, _UNLOCK)

    def acquire(self, timeout: float) -> None:
        """Take the lock, waiting for at most `timeout` seconds."""
        try:
            self._flock(self.descriptor, _EXCLUSIVE_NOW)
        except OSError as error:
            self._wait(error, timeout)

    def acquire_shared(self, timeout: float) -> None:
        """Take the lock together with all others who take it shared."""
        try:
            self._flock(self.descriptor, _SHARED_NOW)
        except OSError as error:
            self._wait(error, timeout, _SHARED_NOW)

    @contextmanager
    def for_a_moment(self, timeout: float) -> Iterator[None]:
        """Take the lock only to see that it can be had: all that matters is that it was free once.

        A signal handler that appends at this moment would wait for its own thread; it releases this lock.
        """
        me = get_ident()
        before = _momentary.get(me)
        _momentary[me] = self
        try:
            self.acquire(timeout)
            yield
        finally:
            self.release()
            if before is None:
                _momentary.pop(me, None)
            else:
                _momentary[me] = before

    def exists(self) -> bool:
        """Say whether the lock file still has a name: a lock on a deleted one keeps nobody out."""
        try:
            return disk.links(self.descriptor) > 0
        except OSError as error:
            raise disk.explain(error, "lock", self.path) from error

    def _wait(self, error: OSError, timeout: float, how: int = _EXCLUSIVE_NOW) -> None:
        """Poll for the lock: short pauses first, since most holders are gone in microseconds."""
        own = _momentary.get(get_ident())
        if own is not None and own is not self:
            own.release()
        deadline = time.monotonic() + timeout
        pause = _FIRST_PAUSE
        while True:
            if error.errno == errno.EINTR:
                pass
            elif error.errno != errno.EAGAIN:
                # Not held: `flock` says nothing else of that. EACCES is a security module's word.
                raise disk.explain(error, "lock", self.path) from error
            elif time.monotonic() >= deadline:
                raise self._timed_out(timeout)
            else:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                self._flock(self.descriptor, how)
            except OSError as next_error:
                error = next_error
            else:
                return

    def _timed_out(self, timeout: float) -> LockTimeout:
        holder = disk.lock_holder(self.descriptor)
        who = "another process"
        if holder is not None:
            command = disk.command_of(holder)
            who = f"process {holder}" + (f" ({command})" if command else "")
        return LockTimeout(
            f"{self.path}: held by {who} for more than {timeout:g} s; "
            "nothing was changed: try again, or stop that process if it hangs",
            holder=holder,
        )
