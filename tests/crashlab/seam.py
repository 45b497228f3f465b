"""Record the disk calls of a store, and inject faults into some of them.

The store always calls the disk as `disk.write(…)`, so replacing the module's functions reaches all of it.
"""

import os
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self

from hansard.log import disk

#: The calls that change a file, or open one to do so. `at` counts these, unless `only` names others.
MUTATING: Final = (
    "make_root", "make_directory", "create_file", "open_file", "open_to_change", "lengthen", "write",
    "write_at", "sync", "publish", "link", "sync_directory", "move", "remove", "remove_empty",
)  # fmt: skip

#: The calls that only read. They fail with `only=READING`.
READING: Final = (
    "open_root", "for_group", "real", "open_directory", "read_at", "map_numbers", "size", "names",
    "present", "is_link", "identity", "links", "inode", "is_named", "status_of", "status", "may_write",
    "forget_cached", "free_bytes", "free_names",
)  # fmt: skip

Lost = Literal["cut", "nul"]


class Call(NamedTuple):
    """One disk call. `place` is its path, if the system reports it."""

    operation: str
    place: str
    #: The error number that it failed with; 0 if it did not.
    error: int = 0


#: Called after each successful call, with the call, its arguments and its result.
Watch = Callable[[Call, tuple[Any, ...], Any], None]


class Asked(NamedTuple):
    """A call that the store is about to make."""

    operation: str
    real: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def make(self) -> Any:
        """Call the real function and return its result."""
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
    """Recorded disk calls: a context manager, returned by the functions of this module.

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

    def _replacement(self, operation: str) -> Callable[..., Any]:
        real = self._real[operation]

        def call(*arguments: Any, **options: Any) -> Any:
            asked = Asked(operation, real, arguments, options)
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
        """Count a call, and return whether it is the one. The caller holds the mutex."""
        if not self._at or operation not in self._only:
            return False
        self._seen += 1
        hit = self._seen == self._at or (self._lasting and self._seen > self._at)
        self.fired = self.fired or hit
        return hit

    def _let(self, asked: Asked) -> Any:
        """Let a call through."""
        if asked.operation != "sync":
            return asked.make()
        file = self._track(asked.arguments[0])
        # What is written while the sync runs is not in it.
        size = file.size()
        asked.make()
        file.synced = max(file.synced, size)
        return None

    def _strike(self, asked: Asked) -> Any:
        """Do instead of a call what this kind of fault does."""
        return self._let(asked)

    def _place(self, operation: str, arguments: tuple[Any, ...]) -> str:
        """Return the path that a call is about."""
        match operation, arguments:
            case (("make_root" | "open_root"), (path,)):
                return str(path)
            case "move", (_, _, int(directory), str(name)):
                return f"{self._path(directory)}/{name}"
            case (("publish" | "link"), (int(directory), _, str(name))):
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


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
