"""Make disk calls fail: one at a time, in every way in which disks fail.

For example:

    for at in itertools.count(1):
        with faults.fail(errno.ENOSPC, at=at) as fault:
            try:
                session.add_message({"role": "user", "content": "hello"})
            except hansard.HansardError:
                ...                     # what does your program do now?
        if not fault.fired:
            break                       # every call has had its turn

A loop ends when the fault *did not fire*, not when the call succeeds: a program that hides an error
succeeds too. Works in this process only, and for stores on files. Blocks can be nested, and the
innermost strikes first.

    record        nothing fails; what is called is written down
    fail          the nth call fails with an error number, once or from then on
    short         the nth write takes only a part; the next one gives the reason
    kill          the process "dies" before or after the nth call: nothing that follows has any effect
    fail_sync     the nth sync fails, and what was written since the last good one is lost
"""

import contextlib
import errno
import itertools
import os
import signal
from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple

from hansard.log import disk
from tests.crashlab.seam import MUTATING, READING, Asked, Call, Faults, Lost, Watch

__all__ = [
    "APPENDING", "BEGINNING", "MUTATING", "READING", "Call", "Death", "Faults", "Kept", "Kill",
    "Killed", "Lost", "Seen", "Watch", "When", "fail", "fail_sync", "kill", "record", "short",
]  # fmt: skip

When = Literal["before", "after"]
Kept = Literal["one byte", "half", "all but one"]
Seen = Literal["at once", "later"]


class Killed(BaseException):
    """The process would be dead by now. Not an `Exception`: nothing catches its own death."""


class _Fail(Faults):
    def __init__(self, number: int, when: When, **counting: Any) -> None:
        super().__init__(**counting)
        self._number = number
        self._when = when

    def _strike(self, asked: Asked) -> Any:
        if self._when == "after":
            self._let(asked)
        raise _error(self._number)


class _Short(Faults):
    def __init__(self, kept: Kept, number: int, **counting: Any) -> None:
        super().__init__(only=("write",), **counting)
        self._kept = kept
        self._number = number
        #: A short write is not an error; the next one returns it.
        self._reason_due = False

    def _strikes(self, operation: str) -> bool:
        return (self._reason_due and operation == "write") or super()._strikes(operation)

    def _strike(self, asked: Asked) -> Any:
        with self._mutex:
            if self._reason_due:
                self._reason_due = self._lasting
                raise _error(self._number)
            self._reason_due = True
        descriptor, data = asked.arguments
        length = {"one byte": 1, "half": len(data) // 2, "all but one": len(data) - 1}[self._kept]
        return asked.real(descriptor, bytes(data[:length]))


class Kill(Faults):
    """The fault of `kill`."""

    def __init__(self, when: When, **counting: Any) -> None:
        super().__init__(**counting)
        self._when = when

    def _strikes(self, operation: str) -> bool:
        # The dead do nothing: after the blow every call is struck, also one that only looks.
        return self.fired or super()._strikes(operation)

    def _strike(self, asked: Asked) -> Any:
        with self._mutex:
            lives, self._when = self._when == "after", "before"
        if lives:
            # The system closes the files of a dead process.
            self._let(asked)
        raise Killed(f"killed at {asked.operation}")


class _FailSync(Faults):
    def __init__(self, number: int, lost: Lost | None, seen: Seen, **counting: Any) -> None:
        super().__init__(only=("sync",), **counting)
        self._number = number
        self._lost = lost
        self._when_seen = seen

    def _strike(self, asked: Asked) -> Any:
        file = self._track(asked.arguments[0])
        with self._mutex:
            begin, end = file.synced, file.size()
            # The kernel calls the pages clean from now on: the next sync will be a success.
            file.synced = end
            if self._lost is not None and end > begin:
                if self._when_seen == "at once":
                    file.forget(begin, end, self._lost)
                    file.synced = file.size()
                else:
                    file.lost.append((begin, end))
        raise _error(self._number)

    def _let(self, asked: Asked) -> Any:
        if asked.operation == "forget_cached":
            file = self._track(asked.arguments[0])
            with self._mutex:
                for begin, end in file.lost:
                    # Other processes may have written after the hole, so nothing can be cut off.
                    file.forget(begin, end, "nul")
                file.lost.clear()
        return super()._let(asked)


def record(*, watch: Watch | None = None) -> Faults:
    """Record the calls, and let none fail."""
    return Faults(watch=watch)


def fail(
    error: int,
    *,
    at: int = 1,
    only: Collection[str] = MUTATING,
    lasting: bool = False,
    when: When = "before",
) -> Faults:
    """Let the nth call of some fail with an error number, once or, if `lasting`, from then on.

    `when="after"`: the call does its work and fails all the same, as over a network.
    """
    return _Fail(error, when, at=at, only=only, lasting=lasting)


def short(kept: Kept, *, at: int = 1, error: int = errno.ENOSPC, lasting: bool = False) -> Faults:
    """Let the nth write take only a part of its bytes, and the next write fail with the reason."""
    return _Short(kept, error, at=at, lasting=lasting)


def kill(*, at: int = 1, when: When = "before", only: Collection[str] = MUTATING) -> Faults:
    """Let the process die before or after a call: `Killed` is raised, there and ever after.

    What the store does on its way out has no effect on the disk, as in a process that is dead.
    """
    return Kill(when, at=at, only=only)


def fail_sync(
    *,
    at: int = 1,
    error: int = errno.EIO,
    lost: Lost | None = "nul",
    seen: Seen = "at once",
    lasting: bool = False,
) -> Faults:
    """Let a sync fail and lose the bytes written to its file since the last good one.

    Kernels behave so: the pages are dropped or called clean, and the *next* sync succeeds. A
    store that ignores the error, or tries again, has then acknowledged what is not there.

    `lost="nul"`: the bytes read as NUL; "cut": the file ends before them; None: they are safe after all.
    `seen="later"`: the cache still shows them, until the store drops it.
    """
    return _FailSync(error, lost, seen, at=at, lasting=lasting)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Death(NamedTuple):
    """Where a process kills itself with `kill -9`: before, during or after the nth call of a function."""

    call: str
    number: int
    moment: str

    def arm(self) -> None:
        """Wait for that call from now on."""
        real: Callable[..., Any] = getattr(disk, self.call)
        calls = itertools.count(1)

        def call_or_die(*arguments: Any, **options: Any) -> Any:
            if next(calls) != self.number:
                return real(*arguments, **options)
            if self.moment == "amid":
                _half(self.call, real, arguments)
            elif self.moment == "after":
                # An error, such as a file that does not exist yet, ends the call too.
                with contextlib.suppress(OSError):
                    real(*arguments, **options)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("not reached")

        setattr(disk, self.call, call_or_die)


def _half(call: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Do half of what a call does."""
    if call == "write":
        descriptor, data = arguments
        real(descriptor, data[: len(data) // 2])
    elif call == "publish":
        directory, temporary, name = arguments
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


#: Each disk call of an append: before it, after it, and during it where possible.
APPENDING = [("write", "before"), ("write", "amid"), ("write", "after")]
APPENDING += [("sync", "before"), ("sync", "after")]
#: The same for the first append of a session.
BEGINNING = [
    (call, moment)
    for call in ("make_directory", "open_file", "create_file", "publish", "sync_directory")
    for moment in ("before", "after")
]
BEGINNING += [("publish", "amid"), *APPENDING]
