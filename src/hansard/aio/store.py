"""A store of sessions, awaited: `hansard.Store`, and the `hansard.Follower` that it returns."""

from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec, Self

import hansard
from hansard.aio.append_queue import AppendQueue
from hansard.aio.methods import Twin, awaited, converted, later, pieces, poll
from hansard.aio.pool import Pool
from hansard.aio.session import Session
from hansard.errors import Closed
from hansard.follow import FollowedEvent
from hansard.log import names

if TYPE_CHECKING:
    from hansard.transfer.copy import CopyReport

P = ParamSpec("P")


class Follower(Twin[hansard.Follower]):
    """Yields the events of many sessions. Created by `store.follow`; for one task at a time.

    See `hansard.Store.follow`: an event counts as done when the next one is requested, and at the end of an
    `async with` block that ends without an error. Callbacks are called in a thread. A follower that waits
    uses no thread.
    """

    __slots__ = ("_kept",)

    def __init__(self, pool: Pool, make: Callable[[], hansard.Follower]) -> None:
        super().__init__(pool, make)
        #: An event taken for a task that was cancelled before it got it.
        self._kept: FollowedEvent | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FollowedEvent:
        while (found := await self.take(60.0)) is None:
            pass
        return found

    async def __aenter__(self) -> Self:
        await self._pool.run(self._sync)
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.commit()
        await self.close()

    async def take(self, timeout: float) -> FollowedEvent | None:  # noqa: ASYNC109 - as its twin
        """Return the next event; None if none comes within `timeout` seconds."""
        await poll(self._pool, self._look, finish=True, seconds=timeout)
        found, self._kept = self._kept, None
        return found

    def _look(self) -> bool:
        """Take the next event if there is one, and keep it: the task may be cancelled by then."""
        if self._kept is None:
            self._kept = self._sync().take(0.0)
        return self._kept is not None

    async def commit(self) -> None:
        """Mark everything returned so far as done."""
        await self._pool.run(self._commit)

    def _commit(self) -> None:
        if self._kept is None:
            self._sync().commit()
        else:
            self._sync()._save()  # noqa: SLF001 - no task has had the last event yet

    async def close(self) -> None:
        """Stop following. Events that are not done are returned again with the same cursor."""
        await self._pool.run(lambda: None if self._made is None else self._made.close())


def over(store: hansard.Store) -> "Store":
    """Return the async twin of an open store; the same one each time. Closing one closes both."""
    known = store._awaited  # noqa: SLF001 - kept there for this
    if not isinstance(known, Store):
        # Two threads may both create one; the other ends with its last call.
        known = Store(store, Pool(store._backend.where))  # noqa: SLF001 - its twin's
        store._awaited = known  # noqa: SLF001 - kept there for this
    return known


def under(store: "Store") -> hansard.Store:
    """Return the sync twin of an async store, for code without an event loop."""
    return store._sync()  # noqa: SLF001 - its twin


class Opening:
    """A store that is about to be opened: await it, or use it as `async with`."""

    def __init__(self, make: Callable[[], hansard.Store]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, None, "Store"]:
        return self._open().__await__()

    async def _open(self) -> "Store":
        pool = Pool()
        try:
            opened = await pool.run(self._make)
            pool.where = opened._backend.where  # noqa: SLF001 - its twin's
            return Store(opened, pool)
        except BaseException:
            await pool.close(lambda: None)
            raise

    async def __aenter__(self) -> "Store":
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()


def _opening(call: Callable[P, hansard.Store]) -> Callable[P, Opening]:
    parameters = signature(call)

    @wraps(call)
    def begin(*args: P.args, **kwargs: P.kwargs) -> Opening:
        parameters.bind(*args, **kwargs)  # or raise, now
        return Opening(partial(call, *args, **kwargs))

    return begin


#: `hansard.aio.open`, as `async with hansard.aio.open(…) as store` or `store = await hansard.aio.open(…)`.
open_store = _opening(hansard.open)


def _twin(store: "Store", found: hansard.Session) -> Session:
    return store.session(found.id)


def _twin_if_any(store: "Store", found: hansard.Session | None) -> Session | None:
    return None if found is None else store.session(found.id)


class Store(Twin[hansard.Store]):
    """Holds sessions, for an event loop. Created by `hansard.aio.open`; see `hansard.Store`.

    For any number of tasks, of loops one after the other, and of threads each with its own loop.
    """

    __slots__ = ("_parent", "_queue")

    def __init__(self, twin: hansard.Store, pool: Pool, parent: "Store | None" = None) -> None:
        super().__init__(pool, lambda: twin)
        #: The store that this one is a part of, and whose threads it uses.
        self._parent = parent
        self._queue: AppendQueue = AppendQueue(pool) if parent is None else parent._queue  # noqa: SLF001

    def __repr__(self) -> str:
        return f"<hansard.aio.Store {self._pool.where!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Release all files, after everything requested before is done and answered."""
        if self._parent is None:
            await self._pool.close(self._sync().close)
        else:
            with suppress(Closed):  # the complete store was closed before this part of it
                await self._pool.run(self._sync().close)

    def session(self, id: str | None = None) -> Session:
        """Return a handle on a session; it exists from its first event on. Touches nothing."""
        prefix = self._sync()._backend.prefix  # noqa: SLF001 - its twin's
        if id is None:
            id = prefix + names.new_id()
        names.check_id(id)
        if not id.startswith(prefix):
            self._sync().session(id)  # which refuses it
        return Session(self._queue, id, lambda: self._sync().session(id))

    def scoped(self, prefix: str) -> "Store":
        """Return a store of the sessions whose ids begin with a prefix. Touches nothing."""
        return Store(self._sync().scoped(prefix), self._pool, self)

    async def copy_to(
        self,
        target: "Store",
        ids: Iterable[str] | None = None,
        *,
        prefix: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> "CopyReport":
        """Copy sessions to another store; `progress` is called in a thread."""
        here, there = self._sync(), target._sync()  # noqa: SLF001 - a store's, too
        return await self._pool.run(
            lambda: here.copy_to(there, ids, prefix=prefix, progress=progress)
        )

    create = converted(hansard.Store.create, _twin)
    restore = converted(hansard.Store.restore, _twin)
    latest = converted(hansard.Store.latest, _twin_if_any, finish=False)
    follow = later(hansard.Store.follow, Follower)
    audit = later(hansard.Store.audit, pieces)

    delete = awaited(hansard.Store.delete)
    purge = awaited(hansard.Store.purge)
    prune = awaited(hansard.Store.prune)
    retention = awaited(hansard.Store.retention)
    set_retention = awaited(hansard.Store.set_retention)
    compact = awaited(hansard.Store.compact)
    verify = awaited(hansard.Store.verify)
    health = awaited(hansard.Store.health)
    metrics = awaited(hansard.Store.metrics, finish=False)
    drop_cursor = awaited(hansard.Store.drop_cursor)
    import_session = awaited(hansard.Store.import_session)

    exists = awaited(hansard.Store.exists, finish=False)
    trash = awaited(hansard.Store.trash, finish=False)
    sessions = awaited(hansard.Store.sessions, finish=False)
    count = awaited(hansard.Store.count, finish=False)
    search = awaited(hansard.Store.search, finish=False)
    stats = awaited(hansard.Store.stats, finish=False)
    cursors = awaited(hansard.Store.cursors, finish=False)
    diagnose = awaited(hansard.Store.diagnose, finish=False)
