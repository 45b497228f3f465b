"""Make the disk fail on purpose: one call at a time, in every way that disks fail.

Above: tests, ours and yours.  Below: `hansard.log.disk`, whose functions are replaced for a while.
A store that has never met a full disk is a store of which nobody knows what it does then. So:

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

import errno
import os
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self

from hansard.log import disk

__all__ = [
    "MUTATING",
    "READING",
    "Call",
    "Faults",
    "Killed",
    "fail",
    "fail_sync",
    "kill",
    "record",
    "short",
]

#: The calls that change something, or open a file to do so. What `at` counts unless `only` says otherwise.
MUTATING: Final = (
    "make_root",
    "make_directory",
    "create_file",
    "open_file",
    "write",
    "sync",
    "publish",
    "sync_directory",
    "move",
    "remove",
)

#: The calls that only look. They can be made to fail with `only=READING`.
READING: Final = (
    "open_root",
    "open_directory",
    "read_at",
    "size",
    "names",
    "present",
    "modified",
    "identity",
    "forget_cached",
    "free_bytes",
)

_OPENING: Final = ("create_file", "open_file", "open_root", "open_directory")

When = Literal["before", "after"]
Kept = Literal["one byte", "half", "all but one"]
Lost = Literal["cut", "nul"]
Seen = Literal["at once", "later"]


class Killed(BaseException):
    """The process would be dead by now. Not an `Exception`: nothing catches its own death."""


class Call(NamedTuple):
    """One call of the disk. `place` is the path it was about, where the system tells it."""

    operation: str
    place: str
    #: The error number that it failed with; 0 if it did not.
    error: int = 0


#: Called after each call that succeeded: with the call, its arguments, and what it returned.
Watch = Callable[[Call, tuple[Any, ...], Any], None]


class _Asked(NamedTuple):
    """A call that the store is about to make."""

    operation: str
    real: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def make(self) -> Any:
        return self.real(*self.arguments, **self.options)


class _File:
    """A file that was written to: how much of it is on the disk, and which bytes never will be."""

    def __init__(self, descriptor: int) -> None:
        # Opened once more: the store's own descriptor may be closed when the bytes are to go,
        # and on Linux one that appends cannot write anywhere else.
        self.descriptor = os.open(f"/dev/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        self.synced = self.size()
        self.lost: list[tuple[int, int]] = []

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def forget(self, begin: int, end: int, lost: Lost) -> None:
        if lost == "cut":
            os.ftruncate(self.descriptor, begin)
        else:
            os.pwrite(self.descriptor, bytes(end - begin), begin)


class Faults:
    """The disk while it is watched: a context manager, made by the functions of this module.

    Attributes:
        fired: whether the fault has struck.
        calls: every call, in order, also those that failed.
    """

    def __init__(
        self,
        *,
        at: int = 0,
        only: Collection[str] = MUTATING,
        lasting: bool = False,
        watch: Watch | None = None,
    ) -> None:
        unknown = set(only) - {*MUTATING, *READING}
        if unknown or at < 0:
            raise ValueError(f"no such call: {', '.join(sorted(unknown)) or at}")
        self.fired = False
        self.calls: list[Call] = []
        self._at = at
        self._only = frozenset(only)
        self._lasting = lasting
        self._watch = watch
        self._seen = 0
        #: Guards the counters. Never held during a call: the store's threads must be able to meet.
        self._mutex = threading.RLock()
        self._real: dict[str, Any] = {}
        self._files: dict[tuple[int, int], _File] = {}
        self._published: dict[tuple[int, int], str] = {}

    def __enter__(self) -> Self:
        for name in (*MUTATING, *READING):
            self._real[name] = getattr(disk, name)
            setattr(disk, name, self._replacement(name))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for name, real in self._real.items():
            setattr(disk, name, real)
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()

    def drop_unsynced(self, lost: Lost = "cut") -> None:
        """Take away all that was written in this block and not synced, as a power cut would."""
        with self._mutex:
            for file in self._files.values():
                for begin, end in file.lost:
                    file.forget(begin, end, "nul")
                file.lost.clear()
                if file.size() > file.synced:
                    file.forget(file.synced, file.size(), lost)

    # -- one call -------------------------------------------------------------------------------

    def _replacement(self, operation: str) -> Callable[..., Any]:
        real = self._real[operation]

        def call(*arguments: Any, **options: Any) -> Any:
            asked = _Asked(operation, real, arguments, options)
            place = self._place(operation, arguments)
            with self._mutex:
                strikes = self._strikes(operation)
            if operation in {"write", "sync"}:
                self._track(arguments[0])
            try:
                result = self._strike(asked) if strikes else self._let(asked)
            except OSError as error:
                self.calls.append(Call(operation, place, error.errno or 0))
                raise
            if operation == "publish":
                # The system still calls the open file by its temporary name.
                self._published[_key(os.stat(arguments[2], dir_fd=arguments[0]))] = place
            done = Call(operation, place)
            self.calls.append(done)
            if self._watch is not None:
                self._watch(done, arguments, result)
            return result

        return call

    def _strikes(self, operation: str) -> bool:
        """Count a call, and say whether it is the one. The caller holds the mutex."""
        if not self._at or operation not in self._only:
            return False
        self._seen += 1
        hit = self._seen == self._at or (self._lasting and self._seen > self._at)
        self.fired = self.fired or hit
        return hit

    def _let(self, asked: _Asked) -> Any:
        """Let a call through."""
        if asked.operation != "sync":
            return asked.make()
        file = self._track(asked.arguments[0])
        # What is written while the sync runs is not in it.
        size = file.size()
        asked.make()
        file.synced = max(file.synced, size)
        return None

    def _strike(self, asked: _Asked) -> Any:
        """Do instead of a call what this kind of fault does."""
        return self._let(asked)

    def _let_and_close(self, asked: _Asked) -> None:
        """Let a call through whose caller will never see the result."""
        result = self._let(asked)
        if asked.operation in _OPENING:
            disk.close(result)

    def _place(self, operation: str, arguments: tuple[Any, ...]) -> str:
        """Return the path that a call is about."""
        match operation, arguments:
            case (("make_root" | "open_root"), (path,)):
                return str(path)
            case "move", (_, _, int(directory), str(name)):
                return f"{self._path(directory)}/{name}"
            case "publish", (int(directory), _, str(name)):
                return f"{self._path(directory)}/{name}"
            case _, (int(directory), str(name), *_):
                return f"{self._path(directory)}/{name}"
            case _, (int(descriptor), *_):
                return self._path(descriptor)
            case _:
                return ""

    def _path(self, descriptor: int) -> str:
        try:
            known = self._published.get(_key(os.fstat(descriptor)))
            return known or os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            return str(descriptor)  # no /proc, as on a Mac

    def _track(self, descriptor: int) -> _File:
        key = _key(os.fstat(descriptor))
        with self._mutex:
            if key not in self._files:
                # What was there before this block counts as being on the disk.
                self._files[key] = _File(descriptor)
            return self._files[key]


class _Fail(Faults):
    def __init__(self, number: int, when: When, **counting: Any) -> None:
        super().__init__(**counting)
        self._number = number
        self._when = when

    def _strike(self, asked: _Asked) -> Any:
        if self._when == "after":
            self._let_and_close(asked)
        raise _error(self._number)


class _Short(Faults):
    def __init__(self, kept: Kept, number: int, **counting: Any) -> None:
        super().__init__(only=("write",), **counting)
        self._kept = kept
        self._number = number
        #: A short write is no error; the next one says why.
        self._reason_due = False

    def _strikes(self, operation: str) -> bool:
        return (self._reason_due and operation == "write") or super()._strikes(operation)

    def _strike(self, asked: _Asked) -> Any:
        with self._mutex:
            if self._reason_due:
                self._reason_due = self._lasting
                raise _error(self._number)
            self._reason_due = True
        descriptor, data = asked.arguments
        length = {"one byte": 1, "half": len(data) // 2, "all but one": len(data) - 1}[self._kept]
        return asked.real(descriptor, bytes(data[:length]))


class _Kill(Faults):
    def __init__(self, when: When, **counting: Any) -> None:
        super().__init__(**counting)
        self._when = when

    def _strikes(self, operation: str) -> bool:
        # The dead do nothing: after the blow every call is struck, also one that only looks.
        return self.fired or super()._strikes(operation)

    def _strike(self, asked: _Asked) -> Any:
        with self._mutex:
            lives, self._when = self._when == "after", "before"
        if lives:
            # The system closes the files of a dead process.
            self._let_and_close(asked)
        raise Killed(f"killed at {asked.operation}")


class _FailSync(Faults):
    def __init__(self, number: int, lost: Lost | None, seen: Seen, **counting: Any) -> None:
        super().__init__(only=("sync",), **counting)
        self._number = number
        self._lost = lost
        self._when_seen = seen

    def _strike(self, asked: _Asked) -> Any:
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

    def _let(self, asked: _Asked) -> Any:
        if asked.operation == "forget_cached":
            file = self._track(asked.arguments[0])
            with self._mutex:
                for begin, end in file.lost:
                    # Others may have written behind the hole, so nothing can be cut off.
                    file.forget(begin, end, "nul")
                file.lost.clear()
        return super()._let(asked)


def record(*, watch: Watch | None = None) -> Faults:
    """Let everything through, and write down what is called."""
    return Faults(watch=watch)


def fail(
    error: int,
    *,
    at: int = 1,
    only: Collection[str] = MUTATING,
    lasting: bool = False,
    when: When = "before",
) -> Faults:
    """Let a call fail.

    Args:
        error: the number to fail with, such as `errno.ENOSPC`.
        at: which call: the first is 1.
        only: the names of the calls that count, and that can fail.
        lasting: all later ones fail too, until the block ends.
        when: "after": the call does its work and fails all the same, as over a network.
    """
    return _Fail(error, when, at=at, only=only, lasting=lasting)


def short(kept: Kept, *, at: int = 1, error: int = errno.ENOSPC, lasting: bool = False) -> Faults:
    """Let a write take only a part of its bytes, and the next write fail with the reason.

    Args:
        kept: how much is written.
        at: which write: the first is 1.
        error: what the next write fails with.
        lasting: all later writes fail too, until the block ends.
    """
    return _Short(kept, error, at=at, lasting=lasting)


def kill(*, at: int = 1, when: When = "before", only: Collection[str] = MUTATING) -> Faults:
    """Let the process die before or after a call: `Killed` is raised, there and ever after.

    What the store does on its way out has no effect on the disk, as in a process that is dead.
    """
    return _Kill(when, at=at, only=only)


def fail_sync(
    *,
    at: int = 1,
    error: int = errno.EIO,
    lost: Lost | None = "nul",
    seen: Seen = "at once",
    lasting: bool = False,
) -> Faults:
    """Let a sync fail and lose what was written to its file since the last good one.

    That is what kernels do: the pages are dropped or called clean, and the *next* sync succeeds. A
    store that ignores the error, or tries again, has then acknowledged what is not there.

    Args:
        at: which sync: the first is 1.
        error: what it fails with.
        lost: what becomes of the bytes: "nul", they read as NUL; "cut", the file ends before them;
            None, they are safe after all.
        seen: "later": the cache still shows them, until the store asks for it to be dropped.
        lasting: all later syncs fail too, until the block ends.
    """
    return _FailSync(error, lost, seen, at=at, lasting=lasting)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
