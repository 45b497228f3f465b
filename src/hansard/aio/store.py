"""A store of sessions, awaited: the twin of `hansard.Store`.

Above: user code.  Below: `session`, `follower`, `pool`, `hansard.Store`.
"""

import os
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import hansard
from hansard.aio.follower import Follower
from hansard.aio.group import Groups
from hansard.aio.pieces import pieces
from hansard.aio.pool import Pool
from hansard.aio.session import Session
from hansard.backend.contract import Health
from hansard.backend.postgres.address import shown
from hansard.errors import Closed, HansardError
from hansard.event.envelope import Event
from hansard.index.entry import Hit, Page, StoreStats
from hansard.log import names
from hansard.upkeep.compaction import CompactReport
from hansard.upkeep.pruning import PruneReport
from hansard.upkeep.verify import StoreReport

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from hansard.upkeep.examination import Examination
    from hansard.upkeep.transfer_copy import CopyReport
    from hansard.upkeep.transfer_file import Source
    from hansard.upkeep.transfer_import import ImportReport
    from hansard.workspace import Folder

Answer = TypeVar("Answer")


def open(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Literal["sync", "os"] = "sync",
    lock_timeout: float = 10.0,
    auto_compact: bool = True,
    search_index: bool = True,
    schema: str | None = None,
) -> "Opening":
    """Open a store, making it if it is missing; takes what `hansard.open` takes.

    Either `async with hansard.aio.open(…) as store`, or `store = await hansard.aio.open(…)`.
    """
    return Opening(
        shown(os.fsdecode(path)),
        lambda: hansard.open(
            path,
            create=create,
            read_only=read_only,
            durability=durability,
            lock_timeout=lock_timeout,
            auto_compact=auto_compact,
            search_index=search_index,
            schema=schema,
        ),
    )


def over(store: hansard.Store) -> "Store":
    """Return the async twin of a store that is open; the same one each time. To close one closes both."""
    known = store._awaited  # noqa: SLF001 - kept there for this
    if not isinstance(known, Store):
        # Two threads may both make one; the other one's ends with its last call.
        known = Store(store, Pool(store._backend.where))  # noqa: SLF001 - its twin's
        store._awaited = known  # noqa: SLF001 - kept there for this
    return known


def under(store: "Store") -> hansard.Store:
    """Return the twin of an async store whose calls wait for the disk; for code without an event loop."""
    return store._twin  # noqa: SLF001 - its twin


class Opening:
    """A store that is about to be opened: await it, or use it as `async with`."""

    __slots__ = ("_make", "_store", "_where")

    def __init__(self, where: str, make: Callable[[], hansard.Store]) -> None:
        self._where = where
        self._make = make
        self._store: Store | None = None

    def __repr__(self) -> str:
        return f"<hansard.aio.open({self._where!r})>"

    def __await__(self) -> Generator[Any, None, "Store"]:
        return self._open().__await__()

    async def _open(self) -> "Store":
        pool = Pool(self._where)
        try:
            return Store(await pool.run(self._make, finish=True), pool)
        except BaseException:
            await pool.close(lambda: None)
            raise

    async def __aenter__(self) -> "Store":
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        if self._store is not None:
            await self._store.close()


class Store:
    """Holds sessions, to be used on an event loop. Made by `hansard.aio.open`; see `hansard.Store`.

    For any number of tasks, of loops one after the other, and of threads each with its own loop.
    """

    __slots__ = ("_groups", "_parent", "_pool", "_twin")

    def __init__(self, twin: hansard.Store, pool: Pool, parent: "Store | None" = None) -> None:
        self._twin = twin
        self._pool = pool
        #: The store of which this one is a part; the threads are that one's.
        self._parent = parent
        self._groups = Groups(pool)

    def __repr__(self) -> str:
        return f"<hansard.aio.Store {self._pool.where!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all files. What was asked for before is done first, and answered."""
        if self._parent is None:
            await self._pool.close(self._twin.close)
        else:
            with suppress(Closed):  # the whole was closed before its part
                await self._write(self._twin.close)

    async def _read(self, call: Callable[[], Answer]) -> Answer:
        return await self._pool.run(call)

    async def _write(self, call: Callable[[], Answer]) -> Answer:
        return await self._pool.run(call, finish=True)

    # -- sessions -------------------------------------------------------------------------------

    def session(self, id: str | None = None) -> Session:
        """Return a handle on a session; it exists from its first event on. Touches nothing."""
        prefix = self._twin._backend.prefix  # noqa: SLF001 - its twin's
        if id is None:
            id = prefix + names.new_id()
        names.check_id(id)
        if not id.startswith(prefix):
            self._twin.session(id)  # which refuses it
        return self._handle(id)

    def _handle(self, session_id: str) -> Session:
        return Session(self._groups, session_id, lambda: self._twin.session(session_id))

    async def create(
        self,
        id: str,
        *,
        metadata: dict[str, Any] | None = None,
        workspace: "Folder | None" = None,
    ) -> Session:
        """Make a session that must not exist yet, or raise `SessionExists`."""
        await self._write(lambda: self._twin.create(id, metadata=metadata, workspace=workspace))
        return self._handle(id)

    async def exists(self, id: str) -> bool:
        """Say whether a session has an event and is not deleted; one that cannot be read exists."""
        return await self._read(lambda: self._twin.exists(id))

    async def delete(self, id: str) -> None:
        """Move a session to the trash. Handles on it raise `SessionDeleted` from now on."""
        await self._write(lambda: self._twin.delete(id))

    async def restore(self, id: str) -> Session:
        """Bring a deleted session back, with everything that was in it."""
        await self._write(lambda: self._twin.restore(id))
        return self._handle(id)

    async def trash(self) -> list[str]:
        """Return the ids of the deleted sessions that can be restored, sorted."""
        return await self._read(self._twin.trash)

    async def purge(self, id: str) -> None:
        """Remove a session from the trash for good."""
        await self._write(lambda: self._twin.purge(id))

    async def latest(
        self,
        *,
        workspace: "Folder | None" = None,
        prefix: str = "",
        archived: bool = False,
        skip_damaged: bool = False,
    ) -> Session | None:
        """Return the session in which something happened last; None if there is none."""
        found = await self._read(
            lambda: self._twin.latest(
                workspace=workspace, prefix=prefix, archived=archived, skip_damaged=skip_damaged
            )
        )
        return None if found is None else self._handle(found.id)

    async def sessions(
        self,
        *,
        prefix: str = "",
        where: "Mapping[str, Any] | None" = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        title: str = "",
        workspace: "Folder | None" = None,
        parent: str | None = None,
        archived: bool | None = None,
        damaged: bool | None = None,
        order: str = "id",
        limit: int | None = None,
        cursor: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Page:
        """List sessions, with what can be said about each; `progress` is called in another thread."""
        return await self._read(
            lambda: self._twin.sessions(
                prefix=prefix,
                where=where,
                since=since,
                until=until,
                title=title,
                workspace=workspace,
                parent=parent,
                archived=archived,
                damaged=damaged,
                order=order,
                limit=limit,
                cursor=cursor,
                progress=progress,
            )
        )

    async def import_session(self, source: "Source", *, id: str | None = None) -> "ImportReport":
        """Take in a session that `session.export()` wrote; the source is read in another thread."""
        return await self._write(lambda: self._twin.import_session(source, id=id))

    async def copy_to(
        self,
        target: "Store",
        ids: Iterable[str] | None = None,
        *,
        prefix: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> "CopyReport":
        """Copy sessions to another store; `progress` is called in another thread."""
        there = target._twin  # noqa: SLF001 - a store's, too
        return await self._write(
            lambda: self._twin.copy_to(there, ids, prefix=prefix, progress=progress)
        )

    async def count(
        self,
        *,
        prefix: str = "",
        where: "Mapping[str, Any] | None" = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        title: str = "",
        workspace: "Folder | None" = None,
        parent: str | None = None,
        archived: bool | None = None,
        damaged: bool | None = None,
    ) -> int:
        """Return how many sessions there are. The arguments are those of `sessions`."""
        return await self._read(
            lambda: self._twin.count(
                prefix=prefix,
                where=where,
                since=since,
                until=until,
                title=title,
                workspace=workspace,
                parent=parent,
                archived=archived,
                damaged=damaged,
            )
        )

    async def search(
        self,
        text: str,
        *,
        prefix: str = "",
        session: str | None = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        role: str | None = None,
        limit: int = 20,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Hit]:
        """Find messages by their words, sessions by their titles; `progress` is called in another thread."""
        return await self._read(
            lambda: self._twin.search(
                text,
                prefix=prefix,
                session=session,
                since=since,
                until=until,
                role=role,
                limit=limit,
                progress=progress,
            )
        )

    async def stats(
        self, *, prefix: str = "", progress: Callable[[int, int], None] | None = None
    ) -> StoreStats:
        """Add up what is in the store; `progress` is called in another thread."""
        return await self._read(lambda: self._twin.stats(prefix=prefix, progress=progress))

    def scoped(self, prefix: str) -> "Store":
        """Return a store of the sessions whose ids begin with a prefix. Touches nothing."""
        return Store(self._twin.scoped(prefix), self._pool, self)

    def follow(
        self,
        *,
        prefix: str = "",
        session: str | None = None,
        cursor: str | None = None,
        commit_every: int = 1,
        from_now: bool = False,
        on_damage: Callable[[str, HansardError], None] | None = None,
    ) -> Follower:
        """Yield the events of all sessions, those that are there and those to come, for ever."""
        return Follower(
            self._pool,
            lambda: self._twin.follow(
                prefix=prefix,
                session=session,
                cursor=cursor,
                commit_every=commit_every,
                from_now=from_now,
                on_damage=on_damage,
            ),
        )

    async def cursors(self) -> list[str]:
        """Return the names of the cursors that `follow` keeps."""
        return await self._read(self._twin.cursors)

    async def drop_cursor(self, name: str) -> bool:
        """Forget how far a consumer got; say whether there was such a cursor."""
        return await self._write(lambda: self._twin.drop_cursor(name))

    # -- looking after it -----------------------------------------------------------------------

    async def compact(
        self,
        *,
        prefix: str = "",
        progress: Callable[[int, int], None] | None = None,
        dry_run: bool = False,
    ) -> CompactReport:
        """Compact sessions; `progress` is called in another thread."""
        return await self._write(
            lambda: self._twin.compact(prefix=prefix, progress=progress, dry_run=dry_run)
        )

    async def verify(self) -> StoreReport:
        """Check every byte of every session, and report."""
        return await self._write(self._twin.verify)

    async def prune(
        self,
        *,
        older_than: "timedelta | float",
        keep_last: int = 0,
        workspace: "Folder | None" = None,
        prefix: str = "",
        dry_run: bool = False,
        all_workspaces: bool = False,
    ) -> PruneReport:
        """Move sessions in which nothing has happened for long into the trash, and report."""
        return await self._write(
            lambda: self._twin.prune(
                older_than=older_than,
                keep_last=keep_last,
                workspace=workspace,
                prefix=prefix,
                dry_run=dry_run,
                all_workspaces=all_workspaces,
            )
        )

    def audit(self) -> AsyncIterator[Event]:
        """Yield what was done to whole sessions: deleted, restored, purged, pruned."""
        return pieces(self._pool, self._twin.audit)

    async def examine(self) -> "Examination":
        """Say how the store is, and what needs attention. Looks, and changes nothing."""
        return await self._read(self._twin.examine)

    async def health(self) -> Health:
        """Try that the store can be read and, unless read-only, written. Raises if it cannot."""
        return await self._write(self._twin.health)
