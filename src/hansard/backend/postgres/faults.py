"""Say in hansard's words what PostgreSQL and psycopg say in theirs.

Above: `connections`.  Below: `address`, `errors`.
Nothing of psycopg's leaves this package: an error is raised anew, without the one that caused it, since
what libpq says may repeat the URL that it was given, password and all.
"""

import errno
from typing import TYPE_CHECKING, Final

from hansard.backend.postgres.address import Address
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

#: The classes of SQLSTATE, or whole ones, after which the same can be tried again elsewhere or later:
#: connection exceptions, a server that stops, starts or is full, and transactions in each other's way.
_PASSING: Final = ("08", "57P01", "57P02", "57P03", "57P05", "53300", "40001", "40P01")

#: What libpq says of a server that cannot be reached just now, or that is not ready: one that is started
#: again, replaced or full. Beside the SQLSTATE, since an error of the first connection has none. Anything
#: else (a wrong password, no such database, a bad certificate) does not get better by waiting.
_AWAY: Final = (
    "connection refused",
    "connection reset",
    "connection timed out",
    "timeout expired",
    "no route to host",
    "network is unreachable",
    "broken pipe",
    "no such file or directory",
    "temporary failure in name resolution",
    "server closed the connection",
    "could not receive data",
    "could not send data",
    "the database system is",
    "terminating connection",
    "too many clients",
    "connection slots",
    "session is read-only",
    "server is in hot standby",
)

_DEADLOCKS: Final = ("40001", "40P01")


class Lost(Exception):
    """The connection is gone, or the server cannot go on: whether the last statement counts is not known.

    Attributes:
        error: what to raise when trying again is of no use.
        certain: nothing of the statement counts.
    """

    def __init__(self, error: HansardError, *, certain: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.certain = certain


def missing_extra() -> BackendUnavailable:
    """Return the error for a Python without psycopg."""
    return BackendUnavailable(
        "a store in PostgreSQL needs psycopg, which is not installed; run `pip install 'hansard[postgres]'`"
    )


def lost(address: Address, error: Exception, *, certain: bool = False) -> Lost:
    """Return what to raise where a connection was lost, or could not be had."""
    said = f"{address.where}: {_said(address, error)}"
    hint = (
        "see that the server runs, and that host, user, password and database of the URL are right"
    )
    return Lost(BackendUnavailable(f"{said}; {hint}"), certain=certain)


def is_lost(error: "psycopg.Error", *, broken: bool) -> bool:
    """Say whether the same statement may be tried again. `broken`: so is the connection."""
    return broken or (error.sqlstate or "").startswith(_PASSING)


def is_away(error: "psycopg.Error") -> bool:
    """Say whether a connection that could not be made may be made in a moment: all hosts are only away."""
    text = " ".join(str(error).lower().split())
    # One part for each address that was tried.
    _, *parts = text.split("connection to server ")
    return all(any(said in part for said in _AWAY) for part in parts or [text])


def translate(  # noqa: PLR0911 - one for each thing that a server may say
    address: Address, error: "psycopg.Error"
) -> HansardError:
    """Return an error of the server's in hansard's words."""
    state = error.sqlstate or ""
    said = f"{address.where}: {_said(address, error)}"
    match state:
        case "55P03":
            return LockTimeout(
                f"{said}; another writer held on for too long: try again, or give a longer lock_timeout"
            )
        case "57014":
            return BackendUnavailable(
                f"{said}; nothing was changed: the server's or the URL's statement_timeout is too short for "
                "this, or the server is too busy"
            )
        case "25006":
            return ReadOnly(
                f"{said}; this server only reads: it is a standby, or was made read-only. Nothing was "
                "changed: give the URL of the primary, or open the store with read_only=True"
            )
        case "42501":
            return ReadOnly(
                f"{said}; the role lacks a privilege: docs/guides/postgres.md lists the grants"
            )
        case "53100":
            cause = OSError(errno.ENOSPC, "")
            return DiskFailed("write", address.where, cause, "the server's disk is full")
        case "3F000" | "42P01" | "42703":
            return UnknownFormat(
                f"{said}; the store's tables are gone, or of another version: `hansard doctor` looks at them"
            )
    return BackendUnavailable(said)


def is_deadlock(error: "psycopg.Error") -> bool:
    """Say whether a transaction was undone because another one was in its way."""
    return error.sqlstate in _DEADLOCKS


def _said(address: Address, error: Exception) -> str:
    """Return what an error says, on one line and without secrets."""
    text = " ".join(str(error).split()) or type(error).__name__
    return address.hide(text)
