"""Every error that hansard raises, in one tree.

A message names the place, the reason, the state of the data and the next step. Programs find the same facts
in the attributes.
"""

import os
from typing import Any, Final


class HansardError(Exception):
    """Base of every error that hansard raises. It can be pickled, so process pools can return it."""

    def __reduce__(self) -> tuple[Any, ...]:
        fields = dict(self.__dict__)
        if isinstance(self, OSError) and self.errno is not None:
            fields["errno"] = self.errno  # not in the __dict__ of an OSError
        return _rebuild, (type(self), self.args, fields)


def _rebuild(kind: type[HansardError], args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    """Undo `HansardError.__reduce__` without a call of the error's constructor."""
    error = kind.__new__(kind)
    error.args = args
    for name, value in fields.items():
        setattr(error, name, value)
    return error


class InvalidSessionId(HansardError, ValueError):
    """The id is empty, too long, or contains characters that a backend cannot store."""


class InvalidEvent(HansardError, ValueError):
    """The event would not decode to an equal one; nothing was written."""


class SecretRefused(InvalidEvent):
    """Metadata or usage contain what looks like a credential; nothing was written.

    Attributes:
        place: the keys that lead to it; never the value.
    """

    def __init__(self, message: str, *, place: str) -> None:
        super().__init__(message)
        self.place = place


class StoreNotFound(HansardError, FileNotFoundError):
    """No store exists at this path, and the call was not allowed to create one."""


class UnknownFormat(HansardError):
    """The store or log has a format version that this version of hansard does not support."""


class UnsafePath(HansardError):
    """A symbolic link or an external file has the name of one of the store's files."""


class ReadOnly(HansardError, PermissionError):
    """The store was opened with `read_only=True`, and this call writes."""


class Closed(HansardError, ValueError):
    """The store was closed; open it again."""


class SessionNotFound(HansardError, LookupError):
    """No session has this id."""


class SessionExists(HansardError):
    """A session with this id exists already."""


class SessionDeleted(HansardError, LookupError):
    """The session is in the trash; `store.restore(id)` restores it."""


class InUse(HansardError):
    """Forks of this session need its events; nothing was removed.

    Attributes:
        children: the ids of the forks.
    """

    def __init__(self, message: str, *, children: list[str]) -> None:
        super().__init__(message)
        self.children = children


class Held(HansardError):
    """The session is under a legal hold; nothing was deleted, redacted or dropped.

    Attributes:
        session: the id of the held session: the session itself, or an ancestor.
        reason: the reason of the hold.
    """

    def __init__(self, message: str, *, session: str, reason: str) -> None:
        super().__init__(message)
        self.session = session
        self.reason = reason


class InvalidExport(HansardError, ValueError):
    """The file is truncated, modified or not an export; nothing was imported.

    Attributes:
        line: the line of the defect, counted from 1.
    """

    def __init__(self, message: str, *, line: int) -> None:
        super().__init__(message)
        self.line = line


class NothingToImport(HansardError, ValueError):
    """Nothing at the path can be imported as this kind; nothing was changed.

    Attributes:
        report: the reasons, as a `hansard.importers.Report`.
    """

    def __init__(self, message: str, *, report: Any) -> None:
        super().__init__(message)
        self.report = report


class SeqConflict(HansardError):
    """The session's last seq is not the expected one; nothing was appended.

    Attributes:
        expected: the seq that the caller passed.
        actual: the session's last seq.
    """

    def __init__(self, message: str, *, expected: int, actual: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class LockTimeout(HansardError, TimeoutError):
    """Another writer held the session's lock for longer than the timeout.

    Attributes:
        holder: the process id of the holder; None where the operating system does not report it.
    """

    def __init__(self, message: str, *, holder: int | None = None) -> None:
        super().__init__(message)
        self.holder = holder


class Reentered(HansardError, RuntimeError):
    """A signal handler or finalizer appended to a session while its own thread was appending to it.

    Nothing was appended: a thread that waits for itself never continues. Set a flag in the handler, and
    append later.
    """


class DiskFailed(HansardError, OSError):
    """The operating system refused a call; an append that was not acknowledged may or may not be stored.

    Attributes:
        path: the file or directory.
        operation: the failed operation, such as `write`, `open` or `rename`.
        errno: the operating system's error number.
    """

    def __init__(self, operation: str, path: str, cause: OSError, hint: str = "") -> None:
        reason = os.strerror(cause.errno) if cause.errno else str(cause)
        super().__init__(f"{path}: {operation}: {reason}" + (f"; {hint}" if hint else ""))
        self.operation = operation
        self.path = path
        self.errno = cause.errno


class SyncFailed(DiskFailed):
    """A sync failed: the kernel may have dropped the bytes, so a retry proves nothing.

    The session is write-blocked for every process until `verify` finds no damage.
    """


class Damaged(HansardError):
    """Bytes of a log fail their checksum; nothing was skipped or overwritten.

    Attributes:
        path: the file.
        offset: the first byte of the damaged record; 0 if the file is missing or its header is invalid.
        reason: what is wrong there.
    """

    def __init__(self, path: str, offset: int, reason: str, hint: str = "") -> None:
        # For a missing file or an invalid header, the message names only the file.
        where = f"{path} at byte {offset}" if offset else path
        super().__init__(f"{where}: {reason}" + (f"; {hint}" if hint else ""))
        self.path = path
        self.offset = offset
        self.reason = reason


class BackendUnavailable(HansardError, ConnectionError):
    """The backend's server cannot be reached, or refused the connection."""


#: Errors of an unreadable session: it is damaged, or (`UNREADABLE`) the operating system refuses a call.
DAMAGED: Final = (Damaged, UnknownFormat, UnsafePath)
UNREADABLE: Final = (*DAMAGED, DiskFailed)
