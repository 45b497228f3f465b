"""Open a store; create, find, move and maintain its sessions."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Self

from hansard.backend.contract import Backend, Health, Progress
from hansard.errors import (
    Damaged,
    HansardError,
    InvalidSessionId,
    SessionDeleted,
    UnknownFormat,
)
from hansard.event.event import Event
from hansard.session import Session, create, handle
from hansard.stream import flush_all

# Modules that only some programs need are imported where they are used, to keep `import hansard` fast.
if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from hansard.backend.postgres.url import StoreUrl
    from hansard.follow import Follower
    from hansard.index import Hit, Page, StoreStats
    from hansard.index.listing import SessionFilter
    from hansard.maintenance.compact import BackgroundCompactor, CompactReport
    from hansard.maintenance.doctor import Diagnosis
    from hansard.maintenance.prune import PruneReport
    from hansard.maintenance.verify import StoreReport
    from hansard.observe import Metrics
    from hansard.transfer.copy import CopyReport, ImportReport
    from hansard.transfer.export_file import Source
    from hansard.workspace import Folder


def _import_before_fork() -> None:
    """Import everything that a call may import later, if other threads run.

    A thread may be importing a module during the fork. The child inherits Python's lock on that module, but
    not the thread that releases it.
    """
    if len(sys._current_frames()) == 1:  # noqa: SLF001 - documented, and counts all threads
        return
    import pkgutil
    from contextlib import suppress
    from importlib import import_module

    # PostgreSQL's modules only if they are in use: they load slowly and may not be installed.
    served = "hansard.backend.postgres.backend" in sys.modules
    packages = [f"hansard.{name}" for name in _PACKAGES]
    packages += ["hansard.backend.postgres"] if served else []
    # So does the price list.
    wanted = ["genai_prices"] if "hansard.prices" in sys.modules else []
    wanted += _MODULES
    for package in packages:
        found = pkgutil.iter_modules(import_module(package).__path__, f"{package}.")
        wanted += [name for _, name, is_package in found if not is_package]
    for name in wanted:
        if served or not name.startswith("hansard.index.postgres"):
            with suppress(ImportError):
                import_module(name)


#: What calls import late; a test compares this list with the imports in the source.
_PACKAGES = (
    "backend",
    "backend.local",
    "event",
    "index",
    "log",
    "maintenance",
    "state",
    "transfer",
)
_MODULES = (
    "binascii",
    "hashlib",
    "hansard.follow",
    "hansard.message.provider_rules",
    "hansard.message.values",
    "hansard.message.window",
    "hansard.prices",
    "hansard.workspace",
    "importlib.metadata",
    "mmap",
    "portalocker.portalocker",
    "urllib.parse",
    "zstandard",
)


def _before_fork() -> None:
    _import_before_fork()
    # After the imports, and not as a separate hook: a hook that is registered now would not be called.
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
    schema: str | None = None,
    group: bool = False,
    prices: bool = False,
) -> "Store":
    """Open a store; create it if it does not exist.

    Args:
        path: a directory; `memory:` for a store that is deleted with this object; or the URL of a database,
            `postgresql://…` as libpq accepts it, for a store that several machines share. Any other scheme
            raises `ValueError`: write a directory with a colon in its name as `./a:b`.
        create: create the directory or the tables if they are missing; otherwise raise `StoreNotFound`.
        read_only: write nothing; works on a read-only file system.
        durability: with "sync", an acknowledged append survives a power cut. With "os", it survives a killed
            process only, and takes about 20 µs instead of 0.3 ms.
        lock_timeout: maximum seconds to wait for another writer of the same session.
        auto_compact: compact sessions that have grown by some megabytes in a background thread, after the
            append was acknowledged.
        schema: the database schema of the store's tables; default "hansard". One database can hold several
            stores. The URL option `?schema=…` does the same.
        group: a directory for all members of its Unix group, also if another user owns it. Directories
            get mode 2770 and files 0660, with any umask. The store keeps this choice.
        prices: when usage of a known model is recorded without a cost, add its list price in US dollars.
            Needs the extra `prices`; no network is used.
    """
    if prices:
        from hansard.prices import check_installed

        check_installed()
    if durability not in {"sync", "os"}:
        raise ValueError(f"durability must be 'sync' or 'os', got {durability!r}")
    if not lock_timeout >= 0:
        raise ValueError(f"lock_timeout must be seconds >= 0, got {lock_timeout!r}")
    where = os.fsdecode(path)
    if not where or "\0" in where:
        raise ValueError(f"path must be a non-empty string without NUL, got {where!r}")
    in_memory = where == "memory:" and schema is None
    url = None if in_memory else _parse_url(where, schema)
    if group and (in_memory or url is not None):
        raise ValueError(f"group is only for directories, got {where!r}")
    backend: Backend
    options: Any = {
        "create": create,
        "read_only": read_only,
        "durability": durability,
        "lock_timeout": lock_timeout,
    }
    if in_memory:
        from hansard.backend.memory import MemoryBackend

        backend = MemoryBackend()
    elif url is not None:
        from hansard.backend.postgres.backend import PostgresBackend

        backend = PostgresBackend(url, **options)
    else:
        from hansard.backend.local.backend import LocalBackend

        backend = LocalBackend(where, **options, group=group)
        if auto_compact and not read_only:
            backend.new_compactor = _new_compactor
    backend.prices = prices
    return Store(backend)


def _new_compactor(backend: Backend) -> "BackgroundCompactor":
    from hansard.maintenance.compact import BackgroundCompactor

    return BackgroundCompactor(backend)


def _parse_url(path: str, schema: str | None) -> "StoreUrl | None":
    """Return the location of a store in PostgreSQL; None for a directory.

    Raises ValueError for an unknown scheme, and if the driver is not installed.
    """
    # Most paths are directories, and need no more.
    if ":" in path.partition("/")[0]:
        from hansard.backend.postgres.url import is_postgres_url, parse_url

        if is_postgres_url(path):
            # First, so that an invalid URL is reported with and without the driver.
            url = parse_url(path, schema=schema)
            try:
                import psycopg  # noqa: F401 - an optional dependency, may be missing or without its libpq
            except ImportError:
                from hansard.backend.postgres.server_errors import missing_extra

                raise missing_extra() from None
            return url
    if schema is not None:
        raise ValueError(f"schema is only for postgresql:// URLs, got {path!r}")
    return None


def migrate(path: str, *, schema: str | None = None) -> list[int]:
    """Upgrade the tables of a store in PostgreSQL; return the versions that were applied.

    `open` refuses an older store until you call this once, after all programs that write to it were
    upgraded. A store in a directory needs no migration.

    Args:
        path: the URL of the database.
        schema: the schema of the store's tables, as for `open`.
    """
    url = _parse_url(path, schema)
    if url is None:
        open(path, create=False, read_only=True).close()
        return []
    from hansard.backend.postgres.schema import migrate_store

    return migrate_store(url)


class Store:
    """A store of sessions, opened by `hansard.open`. Safe to share between threads and across a fork."""

    __slots__ = ("_awaited", "_backend")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        #: The store that `hansard.aio.over` returns: one for all callers, because each has its own threads.
        self._awaited: object = None

    def __repr__(self) -> str:
        return f"<hansard.Store {self._backend.where!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files. Acknowledged appends are already stored; what streams have gathered is written."""
        flush_all()
        # Its threads end with its last reference.
        self._awaited = None
        self._backend.close()

    # -- sessions -------------------------------------------------------------------------------

    def session(self, id: str | None = None) -> Session:
        """Return a handle on a session, which exists from its first event on.

        Without an id, generate a unique one; generated ids sort by time.
        """
        return handle(self._backend, id)

    def create(
        self,
        id: str,
        *,
        metadata: "Mapping[str, Any] | None" = None,
        workspace: "Folder | None" = None,
    ) -> Session:
        """Create a session, or raise `SessionExists` if it exists.

        Args:
            id: the session's id.
            metadata: its initial metadata.
            workspace: the directory that it belongs to, so that `latest` finds it.
        """
        given = {} if metadata is None else metadata
        if workspace is not None:
            from hansard.workspace import find

            given = {**given, **find(workspace, mark=True).metadata()}
        return create(self._backend, id, given)

    def exists(self, id: str) -> bool:
        """Return whether a session has an event and is not deleted; an unreadable session exists."""
        if self._backend.prefix and not id.startswith(self._backend.prefix):
            return False  # outside of this scoped store
        try:
            return self._backend.log(id).reader().head() is not None
        except SessionDeleted:
            return False
        except (Damaged, UnknownFormat):
            return True

    def delete(self, id: str) -> None:
        """Move a session to the trash. Later calls on its handles raise `SessionDeleted`."""
        from hansard.maintenance import trash

        trash.delete(self._backend, id)

    def restore(self, id: str) -> Session:
        """Restore a deleted session with all of its events."""
        from hansard.maintenance import trash

        trash.restore(self._backend, id)
        return Session(self._backend, id)

    def trash(self) -> list[str]:
        """Return the ids of the deleted sessions that can be restored, sorted."""
        return sorted(self._backend.ids(trash=True))

    def purge(self, id: str) -> None:
        """Delete a session in the trash permanently.

        Raises `InUse` while forks of it exist, even in the trash: they need its events.
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
        """Return the most recently active session; None if there is none.

        Activity is the time of the latest event. Setting a title or other metadata, archiving and closing
        are not activity. The first call reads every session; later calls read what is new.

        Args:
            workspace: only sessions of this directory. In a git repository they are found even after the
                directory was moved or renamed.
            prefix: only ids that begin with this.
            archived: include archived sessions.
            skip_damaged: ignore unreadable sessions. Otherwise, an unreadable session raises `Damaged`: it
                may be the newest, and of this workspace.
        """
        from hansard.index import index

        filters = self._filters(
            prefix=prefix, workspace=workspace, archived=None if archived else False
        )
        found = index.of(self._backend).latest(filters, skip_damaged=skip_damaged)
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
        held: bool | None = None,
        order: str = "id",
        limit: int | None = None,
        cursor: str | None = None,
        progress: Progress | None = None,
    ) -> "Page":
        """List sessions from the index, without reading each of them.

        The list includes everything that was acknowledged before the call. An unreadable session is listed
        with the reason. A session whose position changes between two pages may be on both or on neither.

        Args:
            prefix: only ids that begin with this.
            where: only sessions whose metadata have these values; None matches a missing key.
            since: only sessions that were active at this time or later.
            until: only sessions that were not active at this time or later.
            title: only sessions whose title contains this string, ignoring case.
            workspace: only sessions of this directory.
            parent: only forks of this session.
            archived: True for only archived sessions, False for only others.
            damaged: True for only unreadable sessions, False for only readable ones.
            held: True for only sessions under a legal hold, False for only others.
            order: `id`, `created`, `updated`, `title`, `message_count`, `bytes`, `tokens` or `cost`; with a
                prefix `-` in descending order.
            limit: maximum number of sessions; default: all.
            cursor: the `next` of the previous page, to continue after it.
            progress: called with the number of changed sessions that were read, and their total; the first
                call reads all. A scoped store does not call it: the numbers include sessions outside of it.
        """
        if limit is not None:
            _check_limit(limit)
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
            held=held,
        )
        return index.of(self._backend).sessions(
            filters, order=order, limit=limit, cursor=cursor, progress=self._progress(progress)
        )

    def _progress(self, progress: Progress | None) -> Progress | None:
        """Return the callback; None in a scoped store, because the numbers count sessions outside of it."""
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
        held: bool | None = None,
    ) -> int:
        """Return the number of sessions. The arguments are those of `sessions`."""
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
            held=held,
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
        progress: Progress | None = None,
    ) -> "list[Hit]":
        """Search messages and titles; return the best matches first.

        The search covers the history view and summaries, but nothing redacted, dropped or deleted. A message
        that forks inherit is found once, in the session that added it. The first call reads every session;
        later calls read what is new.

        Args:
            text: words that must all occur, ignoring case and accents. `"some words"` matches a phrase,
                `refun*` the beginning of a word, `a OR b` either word, and `-a` excludes a word.
            prefix: only sessions whose ids begin with this.
            session: only this session, including inherited messages.
            since: only messages of this time or later.
            until: only messages before this time.
            role: only messages of this role.
            limit: maximum number of hits.
            progress: called with the number of new events that were read, and their total. A scoped store
                does not call it.
        """
        _check_limit(limit)
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
            # Raises if it is deleted, or outside of this scoped store.
            exists = self._backend.log(session).reader().head() is not None
            if not exists or not session.startswith(prefix):
                return []
        hits = index.of(self._backend).search(query, progress=self._progress(progress))
        if hits is None:
            assert session is not None  # a search of all sessions skips unreadable ones
            # Raises the reason.
            Session(self._backend, session).messages(view="history")
        return hits or []

    def stats(self, *, prefix: str = "", progress: Progress | None = None) -> "StoreStats":
        """Return totals, growth and model usage of the store.

        The first call reads every session; later calls read what is new.

        Args:
            prefix: only sessions whose ids begin with this.
            progress: called with the number of changed sessions that were read, and their total. A scoped
                store does not call it.
        """
        from hansard.index import index

        filters = self._filters(prefix=prefix)
        return index.of(self._backend).stats(filters, progress=self._progress(progress))

    def _filters(
        self,
        *,
        where: "Mapping[str, Any] | None" = None,
        workspace: "Folder | None" = None,
        **others: Any,
    ) -> "SessionFilter":
        from hansard.index.listing import SessionFilter
        from hansard.workspace import Match

        # A scoped store never lists sessions outside of it.
        match = None if workspace is None else Match(workspace)
        return SessionFilter(self._backend.prefix, where=where or {}, workspace=match, **others)

    # -- moving sessions ------------------------------------------------------------------------

    def import_session(self, source: "Source", *, id: str | None = None) -> "ImportReport":
        """Import a session that `session.export()` wrote: all of it, or nothing.

        The session appears after the complete file was read, and its count and checksum were verified.
        Times, kinds, idempotency keys and data do not change. If the session exists with the same events,
        nothing is imported, and the report says so. Any other existing session raises `SessionExists` and
        does not change. A truncated file, or one that is not an export, raises `InvalidExport`.

        Args:
            source: a file that is open for reading, or its content as bytes, a string, or pieces of them.
            id: the session's id in this store; default: its id in the export.
        """
        from hansard.transfer.copy import import_session

        return import_session(self._backend, source, id)

    def copy_to(
        self,
        target: "Store",
        ids: Iterable[str] | None = None,
        *,
        prefix: str = "",
        progress: Progress | None = None,
    ) -> "CopyReport":
        """Copy sessions to another store, event by event, and report.

        `copy_to` compares existing events in the target and appends the missing ones, so it continues after
        an interruption, or when the source has grown. A session that differs does not change and is reported
        as failed. Forks stay forks: their parents are copied first. A scoped store does not copy forks of
        sessions outside of it, and reports them. Redacted data is not copied. The source is only read; other
        processes may write to it concurrently.

        Args:
            target: the store to copy to, of any kind.
            ids: the sessions to copy; default: all.
            prefix: only sessions whose ids begin with this.
            progress: called with the number of sessions that are done, and their total.
        """
        from hansard.transfer.copy import copy_sessions

        wanted = sorted(self._backend.ids()) if ids is None else ids
        chosen = (found for found in wanted if found.startswith(prefix))
        there = target._backend  # noqa: SLF001 - the same class
        return copy_sessions(self._backend, there, chosen, progress=progress)

    def scoped(self, prefix: str) -> "Store":
        """Return a scoped store, which sees and changes only sessions whose ids begin with a prefix.

        Ids are the same in both stores. End the prefix with a separator, as in `tenant-1/`: `tenant-1` also
        matches `tenant-10`. Closing the scoped store does not close this one.
        """
        from hansard.log import names

        if not prefix:
            raise InvalidSessionId("prefix must not be empty; pass one such as 'tenant-a/'")
        names.check_id(prefix)
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
        """Yield the events of all sessions: first the stored ones, then new ones as they are appended.

        The iterator does not end.

        Args:
            prefix: only sessions whose ids begin with this.
            session: only this session.
            cursor: store the consumer's position under this name, and continue from there.
            commit_every: store the position after this many events, and whenever no event is waiting. Each
                commit costs a sync; after a crash, at most this many events are repeated.
            from_now: skip stored events, except of sessions that the cursor knows.
            on_damage: called with id and error of an unreadable session, which is then skipped until it
                changes; without it, the error is raised.
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
        """Return the names of the stored consumer cursors."""
        from hansard.follow import cursors

        return cursors(self._backend)

    def drop_cursor(self, name: str) -> bool:
        """Delete a consumer cursor; return whether it existed. `LockTimeout` while a consumer has it open."""
        from hansard.follow import drop_cursor

        return drop_cursor(self._backend, name)

    # -- maintenance ----------------------------------------------------------------------------

    def compact(
        self,
        ids: Iterable[str] | None = None,
        *,
        prefix: str = "",
        progress: Progress | None = None,
        vacuum: bool = False,
    ) -> "CompactReport":
        """Compact sessions: compress them and erase redacted data.

        Compacted sessions are not rewritten, nor are short ones that would not become smaller and have
        nothing to erase. `session.compact()` compacts these, too.

        Args:
            ids: only these sessions; missing ones are skipped.
            prefix: only sessions whose ids begin with this.
            progress: called with the number of sessions that are done, and their total.
            vacuum: PostgreSQL: then rewrite the tables, so that no page contains erased data. Readers and
                writers of the store wait for that. Files do not need it.
        """
        from hansard.maintenance.compact import compact_store

        known = self._backend.ids() if ids is None else ids
        wanted = (found for found in known if found.startswith(prefix))
        return compact_store(self._backend, wanted, progress=progress, vacuum=vacuum)

    def verify(self) -> "StoreReport":
        """Check every byte of every session, and report what was found."""
        from hansard.maintenance.verify import verify_store

        return verify_store(self._backend, self._backend.ids())

    def prune(
        self,
        *,
        policy: bool = False,
        older_than: "timedelta | float | None" = None,
        max_size: int | None = None,
        archive_after: "timedelta | float | None" = None,
        purge_trash: "timedelta | float | None" = None,
        archived: bool = False,
        finished_parent: bool = False,
        keep_last: int = 0,
        workspace: "Folder | None" = None,
        prefix: str = "",
        dry_run: bool = False,
        all_workspaces: bool = False,
    ) -> "PruneReport":
        """Move inactive sessions to the trash, archive others, purge the trash, and report.

        It keeps sessions with `pinned` in their metadata, held ones, sessions that a process is writing to,
        parents of sessions that stay, and unreadable sessions. At least one of the first four options is
        needed; an age is a timedelta, or seconds, greater than 0.

        Args:
            policy: apply the options that `set_retention` stored; excludes all others but `dry_run`.
            older_than: move sessions without activity for this time.
            max_size: then move those that are inactive for longest, until the other sessions that this call
                considers have at most this many bytes on disk. The trash does not count.
            archive_after: archive the sessions that stay and had no activity for this time.
            purge_trash: permanently delete what has been in the trash for this time, by the audit log.
            archived: move only archived sessions.
            finished_parent: move only forks of sessions that are archived or closed.
            keep_last: number of newest sessions to keep per workspace.
            workspace: only sessions of this directory; default: only sessions without a workspace.
            prefix: only ids that begin with this.
            dry_run: only report what would be done.
            all_workspaces: sessions of every workspace, and those without one.
        """
        from hansard.maintenance.prune import PruneOptions, policy_of, prune

        options: dict[str, Any] = {
            "older_than": older_than,
            "max_size": max_size,
            "archive_after": archive_after,
            "purge_trash": purge_trash,
            "archived": archived,
            "finished_parent": finished_parent,
            "keep_last": keep_last,
            "all_workspaces": all_workspaces,
        }
        if policy:
            if prefix or workspace is not None or any(options.values()):
                raise ValueError("policy excludes all other options but dry_run")
            options = policy_of(self._backend)
            if not options:
                raise ValueError(
                    "the store has no retention policy; set one with store.set_retention()"
                )
            prefix = options.pop("prefix", "")
        filters = self._filters(prefix=prefix, workspace=workspace)
        return prune(self._backend, filters, PruneOptions(**options), dry_run=dry_run)

    def retention(self) -> dict[str, Any]:
        """Return the retention policy: options of `prune`, with ages in seconds; empty if there is none.

        A scoped store has none.
        """
        from hansard.maintenance.prune import policy_of

        return policy_of(self._backend)

    def set_retention(self, /, **options: Any) -> "PruneReport | None":
        """Store options of `prune` as the retention policy of the store; return what they would do now.

        Nothing is pruned: `prune(policy=True)` does that. The audit log keeps every policy.

        Args:
            options: those of `prune`, except `policy`, `workspace` and `dry_run`; none to end the policy,
                and return None.
        """
        from hansard.maintenance.prune import set_policy

        report = self.prune(**options, dry_run=True) if options else None
        set_policy(self._backend, options)
        return report

    def audit(self) -> Iterator[Event]:
        """Yield the audit events: sessions that were deleted, restored, purged or pruned.

        Each is recorded before it is done. If the operation is then refused, a `session.kept` follows.
        """
        from hansard.maintenance import trash

        return trash.audit(self._backend)

    def diagnose(self) -> "Diagnosis":
        """Diagnose the store: its files, locks, leftovers and file system, and what needs attention.

        Changes nothing. `verify` checks the content of sessions. In a scoped store, the files of the
        unscoped store are not checked.
        """
        from hansard.maintenance.doctor import diagnose

        return diagnose(self._backend)

    def metrics(self) -> "Metrics":
        """Return counters of what this process has done in the store since it was opened; reads nothing.

        A scoped store raises `ValueError`: the counters include sessions outside of it.
        """
        if self._backend.prefix:
            raise ValueError("metrics count all sessions; call it on the store that is not scoped")
        return self._backend.counters.metrics()

    def health(self) -> Health:
        """Check that the store can be read and, unless it is read-only, written; raise if it cannot."""
        return self._backend.probe()


def _check_limit(limit: object) -> None:
    if type(limit) is not int or limit < 1:
        raise ValueError(f"limit must be >= 1, got {limit!r}")
