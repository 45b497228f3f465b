"""A store of sessions: open one, find sessions in it, look after it."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Self

from hansard.backend.contract import Backend, Health
from hansard.errors import (
    Damaged,
    HansardError,
    InvalidSessionId,
    SessionDeleted,
    UnknownFormat,
)
from hansard.event.envelope import Event
from hansard.index.entry import Hit, Page
from hansard.session import Session, create

# What only some programs call is imported where it is called: `import hansard` is on everybody's way.
if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from hansard.backend.postgres.url import StoreUrl
    from hansard.follow import Follower
    from hansard.index.entry import StoreStats
    from hansard.index.listing import SessionFilter
    from hansard.maintenance.compact import CompactReport
    from hansard.maintenance.doctor import Diagnosis
    from hansard.maintenance.prune import PruneReport
    from hansard.maintenance.verify import StoreReport
    from hansard.transfer.copy import CopyReport
    from hansard.transfer.export_file import Source
    from hansard.transfer.staged_import import ImportReport
    from hansard.workspace import Folder


def _import_before_fork() -> None:
    """Import all that a call may import later, if another thread could be importing it right now.

    Python's lock on a module that is being imported stays locked in a child without the thread that has it.
    """
    if len(sys._current_frames()) == 1:  # noqa: SLF001 - documented, and counts threads of any origin
        return
    import pkgutil
    from contextlib import suppress
    from importlib import import_module

    # Those of PostgreSQL only if there are such stores: they take long, and may not be installed.
    served = "hansard.backend.postgres.backend" in sys.modules
    packages = [f"hansard.{name}" for name in _PACKAGES]
    packages += ["hansard.backend.postgres"] if served else []
    wanted = [*_MODULES]
    for package in packages:
        found = pkgutil.iter_modules(import_module(package).__path__, f"{package}.")
        wanted += [name for _, name, is_package in found if not is_package]
    for name in wanted:
        if served or not name.startswith("hansard.index.postgres"):
            with suppress(ImportError):
                import_module(name)


#: Where calls import from when they need it; a test compares these with what they import.
_PACKAGES = ("backend", "event", "index", "log", "maintenance", "state", "transfer")
_MODULES = (
    "binascii",
    "hashlib",
    "hansard.follow",
    "hansard.workspace",
    "importlib.metadata",
    "mmap",
    "portalocker.portalocker",
    "zstandard",
)


def _before_fork() -> None:
    _import_before_fork()
    # After that, and not by a separate hook: one that another thread registers now would not be called.
    index = sys.modules.get("hansard.index.index")
    if index is not None:
        index.hold_before_fork()


os.register_at_fork(before=_before_fork)


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
) -> "Store":
    """Open a store, making it if it is missing.

    Args:
        path: a directory; `memory:` for a store that lives as long as this object; or the URL of a database,
            `postgresql://…`, as libpq takes it, for a store that many machines share. Any other scheme is
            refused: a directory with a colon in its name needs a slash before it, as in `./a:b`.
        create: make the directory, or the tables, if they are not there; otherwise raise `StoreNotFound`.
        read_only: write nothing at all; works on a read-only file system.
        durability: "sync": an acknowledged append survives a power cut. "os": it survives a killed
            process, and costs a hundredth.
        lock_timeout: how many seconds to wait for another writer of the same session.
        auto_compact: compact sessions that have grown by some megabytes, in a thread, after the append that
            did it was acknowledged.
        search_index: keep what `search` needs in the file of the index: a second copy of all that was said.
            False, for what must not be written twice: every process that searches reads the logs into its
            memory, and a copy that is there is removed.
        schema: the schema of the database that the store's tables are in, "hansard" if none is given: one
            database can hold several stores. Also as an option of the URL, `?schema=…`.
    """
    if durability not in {"sync", "os"}:
        raise ValueError(f"durability must be 'sync' or 'os', got {durability!r}")
    if not lock_timeout >= 0:
        raise ValueError(f"lock_timeout must be seconds >= 0, got {lock_timeout!r}")
    where = os.fsdecode(path)
    if not where or "\0" in where:
        raise ValueError(f"path must be a non-empty string without NUL, got {where!r}")
    if where == "memory:" and schema is None:
        from hansard.backend.memory import MemoryBackend

        return Store(MemoryBackend())
    if _is_database(where):
        return _open_database(
            where,
            schema=schema,
            create=create,
            read_only=read_only,
            durability=durability,
            lock_timeout=lock_timeout,
            search_index=search_index,
        )
    if schema is not None:
        raise ValueError(f"schema is only for postgresql:// URLs, got {where!r}")
    from hansard.backend.local import LocalBackend

    backend = LocalBackend(
        where,
        create=create,
        read_only=read_only,
        durability=durability,
        lock_timeout=lock_timeout,
    )
    if auto_compact and not read_only:
        from hansard.maintenance.background_compactor import BackgroundCompactor

        backend.compactor = BackgroundCompactor(backend)
    if not search_index:
        from hansard.index.index import without_texts

        without_texts(backend)
    return Store(backend)


def _is_database(path: str) -> bool:
    """Return whether a path is the URL of a database; raise ValueError for an unknown scheme."""
    # Most paths are directories, and need no more.
    if ":" not in path.partition("/")[0]:
        return False
    from hansard.backend.postgres.url import is_postgres_url

    return is_postgres_url(path)


def _open_database(url: str, *, schema: str | None, search_index: bool, **options: Any) -> "Store":
    place = _place_of(url, schema)
    from hansard.backend.postgres.backend import PostgresBackend

    backend = PostgresBackend(place, **options)
    if not search_index:
        from hansard.index.index import without_texts

        without_texts(backend)
    return Store(backend)


def _place_of(url: str, schema: str | None) -> "StoreUrl":
    """Return where a store in PostgreSQL is; raises if there is no driver."""
    from hansard.backend.postgres.errors import missing_extra
    from hansard.backend.postgres.url import parse_url

    # First, so that a mistake in the URL is told whether or not there is a driver.
    place = parse_url(url, schema=schema)
    try:
        import psycopg  # noqa: F401 - an optional dependency, which may be missing or without its libpq
    except ImportError:
        raise missing_extra() from None
    return place


def migrate(path: str, *, schema: str | None = None) -> list[int]:
    """Bring the tables of a store in a database up to date; return the versions that were gone through.

    An older store is refused until this was done: once, when all programs that write to it are of this
    version. A directory needs none of it.

    Args:
        path: the URL of the database.
        schema: the schema that the store's tables are in, as for `open`.
    """
    if not _is_database(path):
        if schema is not None:
            raise ValueError(f"schema is only for postgresql:// URLs, got {path!r}")
        open(path, create=False, read_only=True).close()
        return []
    place = _place_of(path, schema)
    from hansard.backend.postgres.schema import migrate_store

    return migrate_store(place)


class Store:
    """Holds sessions. Made by `hansard.open`; safe to share between threads and across a fork."""

    __slots__ = ("_awaited", "_backend")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        #: What `hansard.aio.over` made of it: one for all who ask, since each has threads of its own.
        self._awaited: object = None

    def __repr__(self) -> str:
        return f"<hansard.Store {self._backend.where!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all files. What was acknowledged was safe before; nothing is left to write."""
        # Its threads end with the last one that holds it.
        self._awaited = None
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
            return self._backend.log(id).reader().head() is not None
        except SessionDeleted:
            return False
        except (Damaged, UnknownFormat):
            return True

    def delete(self, id: str) -> None:
        """Move a session to the trash. Handles on it raise `SessionDeleted` from now on."""
        from hansard.maintenance import trash

        trash.delete(self._backend, id)

    def restore(self, id: str) -> Session:
        """Bring a deleted session back, with everything that was in it."""
        from hansard.maintenance import trash

        trash.restore(self._backend, id)
        return Session(self._backend, id)

    def trash(self) -> list[str]:
        """Return the ids of the deleted sessions that can be restored, sorted."""
        return sorted(self._backend.trash())

    def purge(self, id: str) -> None:
        """Remove a session from the trash for good.

        Raises `InUse` while other sessions that were forked from it exist, be it in the trash: they need
        its events.
        """
        from hansard.maintenance import trash

        trash.purge(self._backend, id)

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
        something that happened in it. The first time reads every session; after that, what is new.

        Args:
            workspace: only sessions that belong to this folder; also after it was moved or renamed, if it
                is in a git repository.
            prefix: only ids that begin so.
            archived: consider sessions that were archived, too.
            skip_damaged: pass over sessions that cannot be read. Otherwise one that may be the newest
                raises `Damaged`: to go on with an older one is for the caller to decide.
        """
        from hansard.index.latest import latest

        filters = self._filters(
            prefix=prefix, workspace=workspace, archived=None if archived else False
        )
        found = latest(self._backend, filters, skip_damaged=skip_damaged)
        return None if found is None else Session(self._backend, found)

    def sessions(
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
        """List sessions, with what can be said about each without reading it.

        What was acknowledged before the call is in it. A session that cannot be read is listed too, and says
        why. A session whose place in the order changes between two pages may be on both or on neither.

        Args:
            prefix: only ids that begin so.
            where: only sessions whose metadata have these members; None: have no such member.
            since: only those in which something happened at this time or later.
            until: only those in which nothing happened at this time or later.
            title: only those whose title has this text in it, whatever the case.
            workspace: only those that belong to this folder.
            parent: only those that were forked from this session.
            archived: only those that were archived, or only those that were not.
            damaged: only those that cannot be read, or only those that can.
            order: `id`, `created`, `updated`, `title`, `message_count`, `bytes`, `tokens` or `cost`; with `-`
                before it, the largest or latest first.
            limit: at most so many; the page's `next` is the `cursor` for the rest.
            cursor: go on after a page.
            progress: called with the number of sessions that were looked at, and of how many, if some have
                changed: the first time, all. Not by a scoped store: the numbers count sessions outside of it.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be >= 1, got {limit!r}")
        from hansard.index import index, listing

        listing.check_order(order)
        filters = self._filters(
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
        return index.of(self._backend).sessions(
            filters, order=order, limit=limit, cursor=cursor, progress=self._told(progress)
        )

    def _told(
        self, progress: Callable[[int, int], None] | None
    ) -> Callable[[int, int], None] | None:
        """Return what to call; nothing in a scoped store, since all sessions of the whole are counted."""
        return None if self._backend.prefix else progress

    def count(
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
        from hansard.index import index

        filters = self._filters(
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
        return index.of(self._backend).count(filters)

    def search(
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
        """Find messages by their words, and sessions by their titles; the best first.

        Found is what the history view shows, and summaries; what was redacted, dropped or deleted is not.
        What forks inherit is found once, in the session that said it. The first time reads every session;
        after that, what is new.

        Args:
            text: words, all of which must be there, whatever their case and accents. `"some words"` must
                stand together; `refun*` is the beginning of a word; of `a OR b`, one must be there; `-a`
                must not.
            prefix: only sessions whose ids begin so.
            session: only what this session shows, inherited messages included.
            since: only what was said at this time or later.
            until: only what was said before this time.
            role: only messages of this role.
            limit: at most so many.
            progress: called with the number of events that were read, and of how many, if there are new ones.
                Not by a scoped store.
        """
        if limit < 1:
            raise ValueError(f"limit must be >= 1, got {limit!r}")
        from hansard.clock import stamp
        from hansard.index import index, search

        query = search.SearchQuery(
            search.expression(text),
            self._filters(prefix=prefix),
            session,
            None if since is None else stamp(since),
            None if until is None else stamp(until),
            role,
            limit,
        )
        if session is not None:
            # Which raises if it is deleted, or none of this store's.
            exists = self._backend.log(session).reader().head() is not None
            if not exists or not session.startswith(prefix):
                return []
        hits = index.of(self._backend).search(query, progress=self._told(progress))
        if hits is None:
            assert session is not None  # of many, one that cannot be read is passed over
            # Which says why it cannot be read.
            Session(self._backend, session).messages(view="history")
        return hits or []

    def stats(
        self, *, prefix: str = "", progress: Callable[[int, int], None] | None = None
    ) -> "StoreStats":
        """Add up what is in the store: how much there is, how it grew, and what the models took.

        The first time reads every session once; after that, what is new.

        Args:
            prefix: only sessions whose ids begin so.
            progress: called with the number of sessions that were looked at, and of how many, if some have
                changed. Not by a scoped store.
        """
        from hansard.index import index

        filters = self._filters(prefix=prefix)
        return index.of(self._backend).stats(filters, progress=self._told(progress))

    def _filters(
        self,
        *,
        where: "Mapping[str, Any] | None" = None,
        workspace: "Folder | None" = None,
        **others: Any,
    ) -> "SessionFilter":
        from hansard.index.listing import SessionFilter
        from hansard.workspace import Match

        # Of a part of a store, nothing outside of it, whatever is asked for.
        self._backend.check_open()
        match = None if workspace is None else Match(workspace)
        return SessionFilter(self._backend.prefix, where=where or {}, workspace=match, **others)

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
        from hansard.transfer.staged_import import import_session

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
        failed. Forks stay forks: what they were forked from is copied before them. A scoped
        store copies a fork that inherits from outside of it with what it inherits, as a session that is not a
        fork. What was redacted is not copied. The source is only read, and may be written to concurrently.

        Args:
            target: the store to copy to, of whatever kind.
            ids: the sessions to copy; all of them, if not given.
            prefix: only sessions whose ids begin so.
            progress: called with the number of events that are done, and of how many.
        """
        from hansard.transfer.copy import copy_sessions

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
            raise InvalidSessionId("prefix must not be empty; pass one such as 'tenant-a/'")
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
            raise ValueError(f"commit_every must be >= 1, got {commit_every!r}")
        from hansard.follow import Cursor, Follower

        opened = None if cursor is None else Cursor(self._backend, cursor)
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
        from hansard.follow import cursors

        return cursors(self._backend)

    def drop_cursor(self, name: str) -> bool:
        """Remove a cursor; return whether there was one. `LockTimeout` while a consumer has it open."""
        from hansard.follow import drop_cursor

        return drop_cursor(self._backend, name)

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
        from hansard.index import residue
        from hansard.maintenance.compact import compact_store

        wanted = (found for found in self._backend.ids() if found.startswith(prefix))
        report = compact_store(self._backend, wanted, progress=progress, dry_run=dry_run)
        if not dry_run:
            residue.forget(self._backend)
        return report

    def verify(self) -> "StoreReport":
        """Check every byte of every session, and report."""
        from hansard.maintenance.verify import verify_store

        return verify_store(self._backend, self._backend.ids())

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
        from hansard.maintenance.prune import prune

        return prune(
            self._backend,
            self._filters(prefix=prefix, workspace=workspace),
            older_than=older_than,
            keep_last=keep_last,
            dry_run=dry_run,
            all_workspaces=all_workspaces,
        )

    def audit(self) -> Iterator[Event]:
        """Yield what was done to whole sessions: deleted, restored, purged, pruned.

        Each is recorded before it is done. If it was refused after all, a `session.kept` follows.
        """
        from hansard.maintenance import trash

        return trash.audit(self._backend)

    def examine(self) -> "Diagnosis":
        """Say how the store is: files, locks, leftovers, the place where it is, and what needs attention.

        Looks, and changes nothing. Damage inside of sessions is for `verify` to find. Of a part of a store,
        the files of the whole are not looked at.
        """
        from hansard.index.index import status
        from hansard.maintenance.doctor import examine

        return examine(self._backend, status)

    def health(self) -> Health:
        """Try that the store can be read and, unless read-only, written. Raises if it cannot."""
        return self._backend.health()
