"""Translate errors of PostgreSQL and psycopg into errors of hansard.

No error of psycopg leaves this package, not even as a cause: libpq may repeat the URL that it was given,
with its password.
"""

import errno
from typing import TYPE_CHECKING, Any, Final

from hansard.backend.postgres.url import StoreUrl
from hansard.errors import (
    BackendUnavailable,
    DiskFailed,
    HansardError,
    LockTimeout,
    ReadOnly,
    UnknownFormat,
)

if TYPE_CHECKING:
    import psycopg

#: SQLSTATEs, or their classes, after which the same statement can be retried: connection exceptions, a
#: server that stops, starts or is full, serialization failures and deadlocks.
_RETRYABLE: Final = ("08", "57P01", "57P02", "57P03", "57P05", "53300", "40001", "40P01")

#: The transaction was rolled back: nothing of the statement counts.
_ROLLED_BACK: Final = ("40001", "40P01")

#: What libpq says about a server that may be reachable soon. Matched as text, because an error of the first
#: connection has no SQLSTATE. Other errors (wrong password, no such database) do not pass by waiting.
_UNREACHABLE: Final = (
    "connection refused", "connection reset", "connection timed out", "timeout expired", "no route to host",
    "network is unreachable", "broken pipe", "no such file or directory",
    "temporary failure in name resolution", "server closed the connection", "could not receive data",
    "could not send data", "the database system is", "terminating connection", "too many clients",
    "connection slots", "session is read-only", "server is in hot standby",
    # The server could not start a process for the connection.
    "error response during ssl exchange",
)  # fmt: skip

_NO_TABLES: Final = (
    UnknownFormat, "the store's tables are missing or have another version. Run `hansard doctor`"
)  # fmt: skip

#: By SQLSTATE, what to raise for a statement that had no effect, and what to do.
_ADVICE: Final[dict[str, tuple[type[HansardError], str]]] = {
    "55P03": (LockTimeout, "another writer held the lock for longer than lock_timeout. Retry, or raise it"),
    "57014": (BackendUnavailable, "nothing was changed. Raise statement_timeout, or reduce the load"),
    "25006": (ReadOnly, "the server is read-only; nothing was changed. Use the primary, or read_only=True"),
    "42501": (ReadOnly, "the role lacks a privilege. docs/guides/postgres.md lists the grants"),
    "3F000": _NO_TABLES, "42P01": _NO_TABLES, "42703": _NO_TABLES,
}  # fmt: skip


class ConnectionLost(Exception):
    """A connection was lost or could not be opened; retry the statement.

    Attributes:
        error: what to raise when the time for retries is over.
        certain: the statement had no effect. Otherwise it may have been committed.
    """

    def __init__(self, error: HansardError, *, certain: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.certain = certain


def missing_extra() -> BackendUnavailable:
    """Return the error for a Python without psycopg."""
    return BackendUnavailable(
        "a store in PostgreSQL needs psycopg: pip install '/path/to/hansard[postgres]'"
    )


def is_unreachable(error: "psycopg.Error") -> bool:
    """Return whether a connection that failed may succeed soon: every host was unreachable."""
    text = " ".join(str(error).lower().split())
    # libpq reports each host that it tried.
    _, *hosts = text.split("connection to server ")
    return all(any(phrase in host for phrase in _UNREACHABLE) for host in hosts or [text])


def to_error(
    url: StoreUrl, error: "psycopg.Error", connection: "psycopg.Connection[Any]"
) -> Exception:
    """Return what to raise for an error of a statement: `ConnectionLost` if it may be retried.

    A unique violation stays as it is: the caller knows what it means.
    """
    if error.sqlstate == "23505":
        return error
    if connection.broken or connection.closed or (error.sqlstate or "").startswith(_RETRYABLE):
        return lost(url, error, certain=error.sqlstate in _ROLLED_BACK)
    if error.sqlstate == "53100":
        return DiskFailed(
            "write", url.where, OSError(errno.ENOSPC, ""), "the server's disk is full"
        )
    kind, *advice = _ADVICE.get(error.sqlstate or "", (BackendUnavailable,))
    return kind("; ".join([f"{url.where}: {describe(url, error)}", *advice]))


def describe(url: StoreUrl, error: Exception) -> str:
    """Return the message of an error in one line, without secrets."""
    return url.hide(" ".join(str(error).split()) or type(error).__name__)


def lost(url: StoreUrl, error: Exception, *, certain: bool) -> ConnectionLost:
    """Return what to raise for a connection that was lost, or could not be opened."""
    return ConnectionLost(
        BackendUnavailable(
            f"{url.where}: {describe(url, error)}; check that the server runs, and that host, user, password "
            "and database of the URL are right"
        ),
        certain=certain,
    )
