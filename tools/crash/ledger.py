"""Record what a process is about to do to a store, and the result, so that it is known after a kill.

Each line is one write, so a kill leaves complete lines.
"""

import itertools
import json
import os
import struct
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hansard import HansardError


class Step(NamedTuple):
    """An operation on a session or on the store, attempted or finished."""

    process: int
    number: int
    writer: str
    #: "append", "import", "fork", "delete", "restore", "purge", or an operation that changes nothing, such
    #: as "compact".
    act: str
    session: str
    #: The messages that it adds, all or none.
    ids: tuple[str, ...]
    done: bool
    #: Name and text of the error that refused it; empty if it succeeded.
    refused: str = ""
    said: str = ""
    errno: int = 0
    #: The traceback of an error that is not a HansardError.
    wrong: str = ""


class Ledger:
    """The lines of one writer, in a file that several writers share."""

    _numbers = itertools.count()

    def __init__(self, path: str, writer: str = "w", wire: int | None = None) -> None:
        self.writer = writer
        self._path = path
        #: The reader gets each acknowledgement immediately, as 16 bytes: process and number.
        self._wire = wire
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def other(self, writer: str) -> "Ledger":
        """Return a ledger for another writer of this process, in the same file."""
        return Ledger(self._path, writer, self._wire)

    def step(
        self, act: str, session: str, call: Callable[[], Any], ids: Iterable[str] = ()
    ) -> bool:
        """Call a function, with a line before and after; return whether it was acknowledged."""
        number = self.about(act, session, ids)
        try:
            found = call()
        except HansardError as error:
            reason = getattr(error, "errno", None) or 0
            self._write("refused", number, type(error).__name__, str(error), reason)
            return False
        except Exception:  # noqa: BLE001 - the checker decides by its type
            self._write("wrong", number, traceback.format_exc())
            return False
        failed = getattr(found, "failed", {})
        if failed:  # a report that names what failed
            self._write("refused", number, "report", str(failed), 0)
            return False
        self._write("done", number)
        if self._wire is not None:
            os.write(self._wire, struct.pack("=QQ", os.getpid(), number))
        return True

    def about(self, act: str, session: str, ids: Iterable[str] = ()) -> int:
        """Record an attempt, and return its number. Without a result, it was interrupted."""
        number = next(self._numbers)
        self._write("about", number, self.writer, act, session, list(ids))
        return number

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, *line: Any) -> None:
        os.write(self._file, json.dumps([os.getpid(), *line]).encode() + b"\n")


def read(paths: Iterable[str]) -> list[Step]:
    """Return the operations of ledgers, in order; none for a missing ledger."""
    steps: dict[tuple[int, int], Step] = {}
    for path in paths:
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            for line in file:
                pid, word, number, *rest = json.loads(line)
                key = (pid, number)
                if word == "about":
                    writer, act, session, ids = rest
                    steps[key] = Step(pid, number, writer, act, session, tuple(ids), done=False)
                elif word == "done":
                    steps[key] = steps[key]._replace(done=True)
                elif word == "refused":
                    name, said, reason = rest
                    steps[key] = steps[key]._replace(refused=name, said=said, errno=reason)
                else:
                    steps[key] = steps[key]._replace(wrong=rest[0])
    return list(steps.values())
