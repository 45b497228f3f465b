"""Every error that hansard raises, in one tree.

    HansardError
    ├── InvalidSessionId      the id can be no session's name           (before anything is touched)
    ├── InvalidEvent          the event cannot be stored as it is
    │   └── SecretRefused     … for it holds what looks like a credential
    ├── StoreNotFound         there is no store at this path            (opening)
    ├── UnknownFormat         a store or log of a version not known here
    ├── UnsafePath            a link or a foreign file stands where the store's own should be
    ├── ReadOnly              the store was opened read-only
    ├── Closed                the store was closed
    ├── SessionNotFound       no such session                           (finding)
    ├── SessionExists         `create` of a session that exists, or a copy over another one
    ├── SessionDeleted        the session is in the trash
    ├── InUse                 others were forked from the session, and need its events
    ├── InvalidExport         a file is no export, or not whole         (moving)
    ├── NothingToImport       nothing of this kind is at the path
    ├── SeqConflict           `expected_seq` is not the session's seq   (appending)
    ├── LockTimeout           another writer held the lock for too long
    ├── Reentered             this thread is in the middle of an append to the session
    ├── DiskFailed            the operating system refused a call
    │   └── SyncFailed        … and it was a sync: the session is shut until verified
    ├── Damaged               bytes of a log fail their checksum        (reading)
    └── BackendUnavailable    the backend's server cannot be reached

An error says where, what, and what to do next. Its fields carry the same facts for programs.
"""

import os
from typing import Any, Final


class HansardError(Exception):
    """Base of every error that hansard raises. Survives pickling, so pools can pass it on."""

    def __reduce__(self) -> tuple[Any, ...]:
        fields = dict(self.__dict__)
        if isinstance(self, OSError) and self.errno is not None:
            fields["errno"] = self.errno  # which an OSError does not keep in its __dict__
        return _rebuild, (type(self), self.args, fields)


def _rebuild(kind: type[HansardError], args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    """Undo `HansardError.__reduce__`, whatever the error's own constructor asks for."""
    error = kind.__new__(kind)
    error.args = args
    for name, value in fields.items():
        setattr(error, name, value)
    return error


class InvalidSessionId(HansardError, ValueError):
    """The id is empty, too long, or holds characters that no backend can keep."""


class InvalidEvent(HansardError, ValueError):
    """The event cannot be stored so that it comes back equal: nothing of it was written."""


class SecretRefused(InvalidEvent):
    """Metadata or settings hold what looks like a credential: nothing of them was written.

    Attributes:
        place: where it stands, by its keys; never the value.
    """

    def __init__(self, message: str, *, place: str) -> None:
        super().__init__(message)
        self.place = place


class StoreNotFound(HansardError, FileNotFoundError):
    """There is no store at this path, and the call was not allowed to create one."""


class UnknownFormat(HansardError):
    """The store or log says a format version that this version of hansard does not know."""


class UnsafePath(HansardError):
    """A symbolic link or a foreign file stands where one of the store's own files should be."""


class ReadOnly(HansardError, PermissionError):
    """The store was opened with `read_only=True`; this call would write."""


class Closed(HansardError, ValueError):
    """The store was closed; open it again."""


class SessionNotFound(HansardError, LookupError):
    """There is no session with this id."""


class SessionExists(HansardError):
    """A session with this id exists already."""


class SessionDeleted(HansardError, LookupError):
    """The session was deleted and is in the trash; `store.restore(id)` brings it back."""


class InUse(HansardError):
    """Other sessions were forked from this one and need its events; nothing was removed.

    Attributes:
        children: the ids of those sessions.
    """

    def __init__(self, message: str, *, children: list[str]) -> None:
        super().__init__(message)
        self.children = children


class InvalidExport(HansardError, ValueError):
    """What is to be imported is not what `export` writes, or not all of it: nothing was imported.

    Attributes:
        line: the line at which it was noticed, from 1.
    """

    def __init__(self, message: str, *, line: int) -> None:
        super().__init__(message)
        self.line = line


class NothingToImport(HansardError, ValueError):
    """There is nothing at the path that can be imported as this kind: nothing was changed.

    Attributes:
        report: what is wrong: a `hansard.importers.Report`.
    """

    def __init__(self, message: str, *, report: Any) -> None:
        super().__init__(message)
        self.report = report


class SeqConflict(HansardError):
    """The session is not at the seq that the caller expected; nothing was appended.

    Attributes:
        expected: the seq that the caller gave.
        actual: the seq at which the session stood when the lock was held.
    """

    def __init__(self, message: str, *, expected: int, actual: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class LockTimeout(HansardError, TimeoutError):
    """Another writer held the session's lock for longer than this one was willing to wait.

    Attributes:
        holder: the process id of the holder, where the operating system tells it.
    """

    def __init__(self, message: str, *, holder: int | None = None) -> None:
        super().__init__(message)
        self.holder = holder


class Reentered(HansardError, RuntimeError):
    """A signal handler or a finaliser appended to a session while its own thread was appending to it.

    Nothing of it was appended: waiting for the thread's own work would be waiting for ever. Set a flag in
    the handler, and append where the program goes on.
    """


class DiskFailed(HansardError, OSError):
    """The operating system refused a call; what was not acknowledged may or may not be there.

    Attributes:
        path: the file or directory.
        operation: what was being done: `write`, `open`, `rename` …
        errno: the operating system's number for the cause.
    """

    def __init__(self, operation: str, path: str, cause: OSError, hint: str = "") -> None:
        reason = os.strerror(cause.errno) if cause.errno else str(cause)
        super().__init__(f"{path}: {operation}: {reason}" + (f"; {hint}" if hint else ""))
        self.operation = operation
        self.path = path
        self.errno = cause.errno


class SyncFailed(DiskFailed):
    """A sync failed: the kernel may have dropped the bytes, so no retry can be believed.

    The session is shut for every process until `verify` has found it whole.
    """


class Damaged(HansardError):
    """Bytes inside a log fail their checksum; nothing was skipped and nothing overwritten.

    Attributes:
        path: the file.
        offset: the byte at which the first damaged record begins.
        reason: what was expected there.
    """

    def __init__(self, path: str, offset: int, reason: str, hint: str = "") -> None:
        # Of a missing file, or its header, only the file is named.
        where = f"{path} at byte {offset}" if offset else path
        super().__init__(f"{where}: {reason}" + (f"; {hint}" if hint else ""))
        self.path = path
        self.offset = offset
        self.reason = reason


class BackendUnavailable(HansardError, ConnectionError):
    """The backend's server cannot be reached, or refused the connection."""


#: What it means that a session cannot be read: it is damaged, or the system refuses it, now or for good.
DAMAGED: Final = (Damaged, UnknownFormat, UnsafePath)
UNREADABLE: Final = (*DAMAGED, DiskFailed)
