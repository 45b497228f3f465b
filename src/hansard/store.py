"""A store of sessions: open one, find sessions in it, look after it.

Above: user code.  Below: `session`, `upkeep`, `backend`.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Self
from weakref import ref

import msgspec

from hansard.backend.contract import Backend, Health
from hansard.errors import (
    BackendUnavailable,
    Damaged,
    DiskFailed,
    HansardError,
    InvalidSessionId,
    SessionDeleted,
    UnknownFormat,
    UnsafePath,
)
from hansard.event.envelope import Event
from hansard.session import Session, create

# What only some programs call is imported where it is called: `import hansard` is on everybody's way.
if TYPE_CHECKING:
    from datetime import timedelta

    from hansard.follow import Follower
    from hansard.upkeep.collection import CollectionReport
    from hansard.upkeep.compaction import CompactReport
    from hansard.upkeep.periodic import Keeper
    from hansard.upkeep.pruning import PruneReport
    from hansard.upkeep.transfer_copy import CopyReport
    from hansard.upkeep.transfer_file import Source
    from hansard.upkeep.transfer_import import ImportReport
    from hansard.upkeep.verify import StoreReport
    from hansard.workspace import Folder


class SessionInfo(msgspec.Struct, frozen=True):
    """One line of a listing.

    Attributes:
        id: the session's id.
        seq: its last event.
        created, updated: when it began, and when something last happened in it, as RFC 3339 text. To give
            it a title, to archive or to close it is not something that happened.
        bytes: what it takes on disk.
        metadata: what `set_metadata` calls add up to.
        damaged: what is wrong with it; empty if it can be read.
    """

    id: str
    seq: int = 0
    created: str = ""
    updated: str = ""
    bytes: int = 0
    metadata: dict[str, Any] = {}
    damaged: str = ""

    @property
    def title(self) -> str | None:
        """The title that the metadata give it."""
        title = self.metadata.get("title")
        return title if isinstance(title, str) else None


class Page(msgspec.Struct, frozen=True):
    """Some sessions of a listing, and where it goes on: the `cursor` of the next call, or None."""

    items: list[SessionInfo]
    next: str | None


def open(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Literal["sync", "os"] = "sync",
    lock_timeout: float = 10.0,
    large_content: int | None = None,
    auto_compact: bool = True,
) -> "Store":
    """Open a store, making it if it is missing.

    Args:
        path: a directory, or `memory:` for a store that lives as long as this object.
        create: make the directory if it is not there; otherwise raise `StoreNotFound`.
        read_only: write nothing at all; works on a read-only file system.
        durability: "sync": an acknowledged append survives a power cut. "os": it survives a killed
            process, and costs a hundredth.
        lock_timeout: how many seconds to wait for another writer of the same session.
        large_content: keep each text in a message that has more bytes than this, such as 65536, once for the
            whole store, however many messages and forks hold it. None: keep it where it was said. Either
            way, a store reads what was kept in the other.
        auto_compact: compact sessions that have grown by some megabytes, in a thread, after the append that
            did it was acknowledged.
    """
    if durability not in {"sync", "os"}:
        raise ValueError(f"durability must be 'sync' or 'os', not {durability!r}")
    if not lock_timeout >= 0:
        raise ValueError(f"lock_timeout must be a number of seconds, not {lock_timeout!r}")
    _check_large_content(large_content)
    where = os.fsdecode(path)
    if not where or "\0" in where:
        raise ValueError(f"the path of a store must be a text without NUL, not {where!r}")
    if where == "memory:":
        from hansard.backend.memory import MemoryBackend

        return Store(MemoryBackend(large_content=large_content))
    if where.startswith(("postgresql://", "postgres://")):
        raise BackendUnavailable(
            "this version of hansard has no PostgreSQL backend; give a directory, or 'memory:'"
        )
    from hansard.backend.local import LocalBackend

    backend = LocalBackend(
        where,
        create=create,
        read_only=read_only,
        durability=durability,
        lock_timeout=lock_timeout,
        large_content=large_content,
    )
    if auto_compact and not read_only:
        backend.caretaker = _Caretaker(backend)
    return Store(backend)


class _Caretaker:
    """Compacts sessions that have grown. Loads what it takes when the first one has."""

    __slots__ = ("_backend", "_keeper")

    def __init__(self, backend: Backend) -> None:
        # The backend holds on to its caretaker, and not the other way round.
        self._backend = ref(backend)
        self._keeper: Keeper | None = None

    def want(self, session_id: str) -> None:
        backend = self._backend()
        if self._keeper is None and backend is not None:
            from hansard.upkeep.periodic import Keeper

            self._keeper = Keeper(backend)
        if self._keeper is not None:
            self._keeper.want(session_id)

    def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.stop()


def _check_large_content(value: object) -> None:
    from hansard.event.large import SMALLEST

    if value is not None and (type(value) is not int or value < SMALLEST):
        raise ValueError(
            f"large_content must be a number of bytes, {SMALLEST} or more, or None, not {value!r}"
        )


class Store:
    """Holds sessions. Made by `hansard.open`; safe to share between threads and across a fork."""

    __slots__ = ("_backend",)

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __repr__(self) -> str:
        return f"<hansard.Store {self._backend.where!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all files. What was acknowledged was safe before; nothing is left to write."""
        self._backend.close()

    # -- sessions -------------------------------------------------------------------------------

    def session(self, id: str | None = None) -> Session:
        """Return a handle on a session; it exists from its first event on.

        Without an id, one that is fresh, unique and ordered by time.
        """
        if id is None:
            from hansard.log.names import new_id

            id = self._backend.prefix + new_id()
        return Session(self._backend, id)

    def create(
        self,
        id: str,
        *,
        metadata: dict[str, Any] | None = None,
        workspace: "Folder | None" = None,
    ) -> Session:
        """Make a session that must not exist yet, or raise `SessionExists`.

        Args:
            id: the session's id.
            metadata: what is known about it from the start.
            workspace: the folder that it belongs to, by which `latest` finds it.
        """
        given = {} if metadata is None else metadata
        if workspace is not None:
            from hansard.workspace import mark

            given = {**given, **mark(workspace).metadata()}
        return create(self._backend, id, given)

    def exists(self, id: str) -> bool:
        """Say whether a session has an event and is not deleted; one that cannot be read exists."""
        if self._backend.prefix and not id.startswith(self._backend.prefix):
            return False  # what a scoped store cannot see is not there
        try:
            return self._backend.log(id).head() is not None
        except SessionDeleted:
            return False
        except (Damaged, UnknownFormat):
            return True

    def delete(self, id: str) -> None:
        """Move a session to the trash. Handles on it raise `SessionDeleted` from now on."""
        from hansard.upkeep import retention

        retention.delete(self._backend, id)

    def restore(self, id: str) -> Session:
        """Bring a deleted session back, with everything that was in it."""
        from hansard.upkeep import retention

        retention.restore(self._backend, id)
        return Session(self._backend, id)

    def trash(self) -> list[str]:
        """Return the ids of the deleted sessions that can be restored, sorted."""
        return sorted(self._backend.trash())

    def purge(self, id: str) -> None:
        """Remove a session from the trash for good.

        Raises `InUse` while other sessions that were forked from it exist, be it in the trash: they need
        its events.
        """
        from hansard.upkeep import retention

        retention.purge(self._backend, id)

    def latest(
        self,
        *,
        workspace: "Folder | None" = None,
        prefix: str = "",
        archived: bool = False,
        skip_damaged: bool = False,
    ) -> Session | None:
        """Return the session in which something happened last; None if there is none.

        By the times of its events. To give it a title or other metadata, to archive or to close it is not
        something that happened in it.

        Args:
            workspace: only sessions that belong to this folder; also after it was moved or renamed, if it
                is in a git repository.
            prefix: only ids that begin so.
            archived: consider sessions that were archived, too.
            skip_damaged: pass over sessions that cannot be read. Otherwise one that may be the newest
                raises `Damaged`: to go on with an older one is for the caller to decide.
        """
        from hansard.upkeep.resume import latest

        found = latest(
            self._backend,
            workspace=workspace,
            prefix=prefix,
            archived=archived,
            skip_damaged=skip_damaged,
        )
        return None if found is None else Session(self._backend, found)

    def sessions(
        self, *, prefix: str = "", limit: int | None = None, cursor: str | None = None
    ) -> Page:
        """List sessions by id, with what can be said about each without reading it whole.

        Args:
            prefix: only ids that begin so.
            limit: at most so many; the page's `next` is the `cursor` for the rest.
            cursor: go on after a page.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be 1 or more, not {limit!r}")
        ids = sorted(
            found
            for found in self._backend.ids()
            if found.startswith(prefix) and (cursor is None or found > cursor)
        )
        items: list[SessionInfo] = []
        for session_id in ids:
            if limit is not None and len(items) == limit:
                return Page(items, items[-1].id)
            info = self._info(session_id)
            if info is not None:
                items.append(info)
        return Page(items, None)

    def _info(self, session_id: str) -> SessionInfo | None:
        """Describe a session; None if it was deleted meanwhile."""
        log = self._backend.log(session_id)
        try:
            head = log.head()
            if head is None:
                return None
            from hansard.state.activity import last_activity

            updated = last_activity(log, head)
            metadata = Session(self._backend, session_id).metadata
        except SessionDeleted:
            return None
        except (Damaged, UnknownFormat, DiskFailed, UnsafePath) as error:
            # Flagged, and hiding no other: the listing is how people find out.
            return SessionInfo(session_id, damaged=str(error))
        return SessionInfo(
            session_id,
            seq=head.seq,
            created=head.created,
            updated=updated,
            bytes=head.size,
            metadata=metadata,
        )

    # -- moving sessions ------------------------------------------------------------------------

    def import_session(self, source: "Source", *, id: str | None = None) -> "ImportReport":
        """Take in a session that `session.export()` wrote: all of it, or nothing.

        Nobody sees anything before the whole file was read and found right, by its count and its checksum.
        Times, kinds, keys and data are kept as they are. If the session is there already, with the same
        events, nothing is done and the report says so; otherwise an existing session raises
        `SessionExists`, and is left as it is. A file that is not whole, or no export, raises `InvalidExport`.

        Args:
            source: a file that is open to read, or its content: bytes, text, or pieces of them.
            id: the session's id here; the one it had, if it is not given.
        """
        from hansard.upkeep.transfer_import import import_session

        return import_session(self._backend, source, id)

    def copy_to(
        self,
        target: "Store",
        ids: Iterable[str] | None = None,
        *,
        prefix: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> "CopyReport":
        """Copy sessions to another store, event for event, and report.

        What is in the target already is compared, and the copy goes on behind it: after an interruption,
        or when the source has grown. Where the two differ, that session is left as it is and reported as
        failed. Forks stay forks: what they were forked from is copied before them. What was redacted is not
        copied. The source is only read, and may be written to meanwhile.

        Args:
            target: the store to copy to, of whatever kind.
            ids: the sessions to copy; all of them, if not given.
            prefix: only sessions whose ids begin so.
            progress: called with the number of events that are done, and of how many.
        """
        from hansard.upkeep.transfer_copy import copy_sessions

        wanted = sorted(self._backend.ids()) if ids is None else ids
        chosen = (found for found in wanted if found.startswith(prefix))
        there = target._backend  # noqa: SLF001 - a store's, too
        return copy_sessions(self._backend, there, chosen, progress=progress)

    def scoped(self, prefix: str) -> "Store":
        """Return a store of the sessions whose ids begin with a prefix; it cannot see or touch others.

        Ids are the same in both. End the prefix with a separator, as in `tenant-1/`: without it,
        `tenant-10` begins alike. Closing it closes only it.
        """
        if not prefix:
            raise InvalidSessionId(
                "an empty prefix would hide nothing; give one such as 'tenant-a/'"
            )
        if not prefix.startswith(self._backend.prefix):
            raise InvalidSessionId(
                f"prefix {prefix!r:.60} is outside of this store, which sees only the ids that begin "
                f"with {self._backend.prefix!r}"
            )
        from hansard.backend.scoped import ScopedBackend

        return Store(ScopedBackend(self._backend, prefix))

    def follow(
        self,
        *,
        prefix: str = "",
        session: str | None = None,
        cursor: str | None = None,
        commit_every: int = 1,
        from_now: bool = False,
        on_damage: Callable[[str, HansardError], None] | None = None,
    ) -> "Follower":
        """Yield the events of all sessions, those that are there and those to come, for ever.

        Args:
            prefix: only sessions whose ids begin so.
            session: only this session.
            cursor: remember under this name how far the consumer got, and go on from there.
            commit_every: remember it after so many events, and whenever there is nothing to hand out;
                each time costs a sync, and so many events at the most come again after a crash.
            from_now: leave out what is there already, unless the cursor knows the session.
            on_damage: called with id and error for a session that cannot be read, which is then left
                out; without it, the error is raised.
        """
        if commit_every < 1:
            raise ValueError(f"commit_every must be 1 or more, not {commit_every!r}")
        from hansard.follow import Follower

        opened = None if cursor is None else self._backend.cursor(cursor)
        return Follower(
            self._backend,
            wanted=lambda found: found.startswith(prefix) and (session is None or found == session),
            cursor=opened,
            commit_every=commit_every,
            from_now=from_now,
            on_damage=on_damage,
        )

    def cursors(self) -> list[str]:
        """Return the names of the cursors that `follow` keeps."""
        return self._backend.cursors()

    def drop_cursor(self, name: str) -> bool:
        """Forget how far a consumer got; say whether there was such a cursor."""
        return self._backend.drop_cursor(name)

    # -- looking after it -----------------------------------------------------------------------

    def compact(
        self,
        *,
        prefix: str = "",
        progress: Callable[[int, int], None] | None = None,
        dry_run: bool = False,
    ) -> "CompactReport":
        """Compact sessions: those that have something to compact are rewritten, the others left alone.

        Args:
            prefix: only sessions whose ids begin so.
            progress: called with the number of sessions that are done, and of how many.
            dry_run: write nothing, and report what would be rewritten.
        """
        from hansard.upkeep.compaction import compact_store

        wanted = (found for found in self._backend.ids() if found.startswith(prefix))
        return compact_store(self._backend, wanted, progress=progress, dry_run=dry_run)

    def verify(self) -> "StoreReport":
        """Check every byte of every session, and report."""
        from hansard.upkeep.verify import verify_store

        return verify_store(self._backend, self._backend.ids())

    def collect_large(self, *, dry_run: bool = False) -> "CollectionReport":
        """Remove the large content to which no message refers any more, and report.

        Safe beside writers. What is in the trash is still referred to; what was redacted or purged is not.

        Args:
            dry_run: remove nothing, and report what would be removed.
        """
        from hansard.upkeep.collection import collect_large

        return collect_large(self._backend.whole, dry_run=dry_run)

    def prune(
        self,
        *,
        older_than: "timedelta | float",
        keep_last: int = 0,
        workspace: "Folder | None" = None,
        prefix: str = "",
        dry_run: bool = False,
        all_workspaces: bool = False,
    ) -> "PruneReport":
        """Move sessions in which nothing has happened for long into the trash, and report.

        Never touched: sessions whose metadata say `pinned`, those that somebody is writing to, those from
        which sessions that stay were forked, and those that cannot be read.

        Args:
            older_than: for how long nothing has happened: a timedelta, or seconds; more than 0.
            keep_last: keep so many of the newest of each workspace.
            workspace: only sessions that belong to this folder. Without it, only those that belong to none.
            prefix: only ids that begin so.
            dry_run: only report what would be done.
            all_workspaces: whatever workspace they belong to.
        """
        from hansard.upkeep.pruning import prune

        return prune(
            self._backend,
            older_than=older_than,
            keep_last=keep_last,
            workspace=workspace,
            prefix=prefix,
            dry_run=dry_run,
            all_workspaces=all_workspaces,
        )

    def audit(self) -> Iterator[Event]:
        """Yield what was done to whole sessions: deleted, restored, purged, pruned.

        Each is recorded before it is done. If it was refused after all, a `session.kept` follows.
        """
        from hansard.upkeep import retention

        return retention.audit(self._backend)

    def health(self) -> Health:
        """Try that the store can be read and, unless read-only, written. Raises if it cannot."""
        return self._backend.health()
