"""Record in which thread a store does its work."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hansard.log.disk import Lock
from hansard.log.group_commit import GroupCommit
from hansard.log.session_files import SessionFiles
from tests.crashlab import faults
from tests.crashlab.faults import Call
from tests.faults.test_group_commit import Stay

# Calls in which a thread may wait for another one, or for another process.
WAITING: tuple[tuple[type, str], ...] = (
    (GroupCommit, "try_lead"),
    (GroupCommit, "_join"),
    (SessionFiles, "refresh"),
    (Lock, "acquire"),
)


class Watch:
    """The calls that were made, as (name of the call, name of the thread)."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def note(self, what: str) -> None:
        """Record a call of this thread."""
        self.seen.add((what, threading.current_thread().name))

    def by(self, thread: str) -> list[str]:
        """Return the calls of threads whose names begin with a prefix."""
        return sorted({what for what, name in self.seen if name.startswith(thread)})


@contextlib.contextmanager
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Record the thread of each disk call, and of each call that may wait."""
    watch = Watch()

    def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            watch.note(name)
            return real(*arguments, **options)

        return call

    def disk_call(call: Call, _: tuple[Any, ...], __: object) -> None:
        watch.note(call.operation)

    with monkeypatch.context() as patch, faults.record(watch=disk_call):
        for cls, name in WAITING:
            patch.setattr(cls, name, wrap(f"{cls.__name__}.{name}", getattr(cls, name)))
        yield watch


async def reached(stay: Stay) -> None:
    """Return when a thread is inside a call, without blocking the loop."""
    await asyncio.to_thread(stay.wait)


async def come_round(times: int = 50) -> None:
    """Let the loop run everything that is ready."""
    for _ in range(times):
        await asyncio.sleep(0)
