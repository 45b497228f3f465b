"""Accept an open store, or the path of one.

Frameworks often create a session object for each turn, so a path is opened once in a process and stays open
until the process ends. To set options, or to close the store, open it and pass it in.

An adapter calls `settled` in its constructor, which reads no disk, and `opened` or `aopened` in each call.
"""

import asyncio
import atexit
import contextlib
import os
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import hansard
from hansard import aio

Own = TypeVar("Own")
Given = ParamSpec("Given")
Answer = TypeVar("Answer")

#: What a caller may pass as a store.
StoreLike = hansard.Store | aio.Store | str | os.PathLike[str]
#: The same, with an absolute path.
Settled = hansard.Store | aio.Store | str

_open: dict[str, hansard.Store] = {}


def settled(store: StoreLike) -> Settled:
    """Return a store, or the absolute path of one: the program may change its directory.

    `memory:` is a new store each time, as it is for `hansard.open`.
    """
    if isinstance(store, hansard.Store | aio.Store):
        return store
    if not isinstance(store, str | os.PathLike):
        raise TypeError(
            f"store must be a hansard.Store, a hansard.aio.Store or a path, not {type(store).__name__}"
        )
    path = os.fsdecode(store)
    if path == "memory:":
        return hansard.open(path)
    # A name with a scheme is not a path: `hansard.open` accepts or refuses it.
    return path if not path or ":" in path.partition("/")[0] else os.path.abspath(path)


def opened(store: StoreLike) -> hansard.Store:
    """Return a store for calls that may wait for the disk; a path is opened once in a process."""
    place = settled(store)
    if isinstance(place, hansard.Store):
        return place
    if isinstance(place, aio.Store):
        return aio.under(place)
    if place in _open:
        return _open[place]
    store = hansard.open(place)
    # Of two threads, the first counts. No lock: a fork in another thread would leave it held.
    if (first := _open.setdefault(place, store)) is not store:
        store.close()
    return first


async def aopened(store: StoreLike) -> aio.Store:
    """Return a store for an event loop; a path is opened in another thread."""
    place = settled(store)
    if isinstance(place, aio.Store):
        return place
    if isinstance(place, str):
        known = _open.get(place)
        place = known if known is not None else await asyncio.to_thread(opened, place)
    return aio.over(place)


def threaded(
    method: Callable[Concatenate[Own, Given], Answer],
) -> Callable[Concatenate[Own, Given], Coroutine[Any, Any, Answer]]:
    """Make a method awaitable: it runs in another thread. A cancellation is raised when it has finished."""

    @wraps(method)
    async def awaited(self: Own, /, *args: Given.args, **named: Given.kwargs) -> Answer:
        return await finished(asyncio.to_thread(method, self, *args, **named))

    return awaited


async def finished(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Await some work; a cancellation is raised when the work has finished."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):  # it may be cancelled again
                await asyncio.wait([task])
        raise


def missing(module: str, package: str, extra: str, error: ImportError) -> NoReturn:
    """Raise an error that names the extra that an adapter needs."""
    raise ImportError(
        f"hansard.adapters.{module} needs {package}: pip install '/path/to/hansard[{extra}]' ({error})",
        name=error.name,
    ) from error


@atexit.register
def _close() -> None:
    for store in _open.values():
        # Acknowledged events are safe; an error here would hide the program's last output.
        with contextlib.suppress(hansard.HansardError):
            store.close()
    _open.clear()
