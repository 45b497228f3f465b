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
    """Something that was done to a session, or to the store, or that was tried."""

    process: int
    number: int
    writer: str
    #: What was done: "append", "import", "fork", "delete", "restore", "purge", or what changes nothing, such
    #: as "compact".
    act: str
    session: str
    #: The messages that it adds, which are all there or not at all.
    ids: tuple[str, ...]
    done: bool
    #: The error that refused it, by its name and its text; or nothing.
    refused: str = ""
    said: str = ""
    errno: int = 0
    #: The traceback of an error that is not a HansardError.
    wrong: str = ""


class Ledger:
    """One writer's lines in a file that several may write to."""

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
        except Exception:  # noqa: BLE001 - which one it is, is what the checker looks at
            self._write("wrong", number, traceback.format_exc())
            return False
        failed = getattr(found, "failed", {})
        if failed:  # a report that says what could not be done
            self._write("refused", number, "report", str(failed), 0)
            return False
        self._write("done", number)
        if self._wire is not None:
            os.write(self._wire, struct.pack("=QQ", os.getpid(), number))
        return True

    def about(self, act: str, session: str, ids: Iterable[str] = ()) -> int:
        """Record that something is tried, and return its number. Unless a result follows, it was cut off."""
        number = next(self._numbers)
        self._write("about", number, self.writer, act, session, list(ids))
        return number

    def close(self) -> None:
        """Close the file; the killed never come to do so."""
        os.close(self._file)

    def _write(self, *line: Any) -> None:
        os.write(self._file, json.dumps([os.getpid(), *line]).encode() + b"\n")


def read(paths: Iterable[str]) -> list[Step]:
    """Return what ledgers say, in order; a ledger that was never begun says nothing."""
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
