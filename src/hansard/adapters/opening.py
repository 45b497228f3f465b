"""Accept an open store, or the path of one.

A framework often creates a session object for each turn, so a path is opened once in a process and stays open
until the process ends. To set options, or to close the store, open it and pass it in.

An adapter calls `settled` in its constructor, which touches no disk, and `opened` or `aopened` in each call.
After `close` it keeps a `ClosedPlace`, which refuses further calls; the store stays open for others.
"""

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

import hansard
from hansard import aio

Answer = TypeVar("Answer")

#: What a caller may pass as a store.
StoreLike = hansard.Store | aio.Store | str | os.PathLike[str]


class ClosedPlace:
    """What a closed adapter has in place of its store."""

    def __init__(self, name: str) -> None:
        self.name = name


#: The same, with a path that stays the same place when the process changes its folder.
Settled = hansard.Store | aio.Store | str

_MEMORY = "memory:"

_guard = threading.Lock()
_open: dict[str, hansard.Store] = {}


def settled(store: StoreLike | ClosedPlace) -> Settled:
    """Return a store, or the absolute path of one: where a program goes later does not move it.

    `memory:` is a new store each time, as it is for `hansard.open`.
    """
    if isinstance(store, hansard.Store | aio.Store):
        return store
    if isinstance(store, ClosedPlace):
        raise hansard.Closed(f"{store.name} is closed; create another one")
    if not isinstance(store, str | os.PathLike):
        raise TypeError(
            f"store must be a hansard.Store, a hansard.aio.Store or a path, not {type(store).__name__}"
        )
    path = os.fsdecode(store)
    if path == _MEMORY:
        return hansard.open(path)
    # A name with a scheme is not a path: `hansard.open` accepts or refuses it.
    return path if not path or ":" in path.partition("/")[0] else os.path.abspath(path)


def opened(store: StoreLike | ClosedPlace) -> hansard.Store:
    """Return a store for calls that may wait for the disk; a path is opened once in a process."""
    place = settled(store)
    if isinstance(place, hansard.Store):
        return place
    if isinstance(place, aio.Store):
        return aio.under(place)
    with _guard:
        if place not in _open:
            _open[place] = hansard.open(place)
        return _open[place]


async def aopened(store: StoreLike | ClosedPlace) -> aio.Store:
    """Return a store for an event loop, which waits for nothing: a path is opened in another thread."""
    place = settled(store)
    if isinstance(place, aio.Store):
        return place
    if isinstance(place, str):
        known = _open.get(place)
        place = known if known is not None else await asyncio.to_thread(opened, place)
    return aio.over(place)


async def finished(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Await some work; if that is cancelled, finish the work first, then raise the cancellation."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def escaped(name: str) -> str:
    """Return a framework's name for something as one part of an id: without a slash."""
    return name.replace("%", "%25").replace("/", "%2F")


def unescaped(part: str) -> str:
    """Return the name that `escaped` was given."""
    return part.replace("%2F", "/").replace("%25", "%")


def missing(module: str, package: str, extra: str, error: ImportError) -> NoReturn:
    """Raise an error that names the extra that an adapter needs."""
    raise ImportError(
        f"hansard.adapters.{module} needs {package}: pip install 'hansard[{extra}]' ({error})",
        name=error.name,
    ) from error


def _forked() -> None:
    # Another thread may have held it: in the child no thread would release it.
    global _guard  # noqa: PLW0603 - the only one there is
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_forked)


@atexit.register
def _close() -> None:
    for store in _open.values():
        # What was acknowledged is safe; an error here would only hide what the program said last.
        with contextlib.suppress(hansard.HansardError):
            store.close()
    _open.clear()
