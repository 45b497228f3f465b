"""Find sessions in a store: open the index, bring it up to date, ask, and rebuild it if it is damaged.

Every question first brings the index up to date, which costs next to nothing if nothing has changed. A
damaged file is rebuilt; if it cannot be used at all, a private database of this process takes its place.
Either way the answer is the same: it comes from the logs.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final, TypeVar
from urllib.parse import quote
from weakref import WeakSet

import msgspec

from hansard.backend.contract import Backend, IndexFile, IndexTables
from hansard.backend.status import IndexStatus
from hansard.errors import BackendUnavailable, Closed
from hansard.index import Hit, Page, StoreStats, catalog, listing, search, stats, text_index
from hansard.index.catalog import Description, Progress, SessionCatalog
from hansard.index.listing import SessionFilter
from hansard.index.search import SearchQuery
from hansard.index.sqlite_storage import (
    APPLICATION,
    RESIDUE,
    VERSION,
    Connection,
    Storage,
    Unusable,
    has_our_tables,
    hold_all,
    identify,
    is_refused,
    release_all,
)
from hansard.log import disk

#: How often a question is asked of an index that was found damaged, and rebuilt.
_TRIES: Final = 3

#: Seconds that `status` waits for a process that holds the file.
_PATIENCE: Final = 1.0

#: Errors by which a damaged file shows where SQLite does not notice it. Arguments were checked before.
_NONSENSE: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError)

Answer = TypeVar("Answer")


class _Stopped(Exception):
    """The caller's own function has raised: not a sign of a damaged file."""

    def __init__(self, reason: Exception) -> None:
        super().__init__()
        self.reason = reason


class _Careful:
    """Calls the caller's function, and tells its errors from those of the index."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __call__(self, done: int, total: int) -> None:
        try:
            self._progress(done, total)
        except Exception as error:
            raise _Stopped(error) from error


class Index:
    """The index of a backend, shared by all threads of a process."""

    def __init__(
        self, backend: Backend, *, texts: bool = True, shared: bool = True, aside: bool = False
    ) -> None:
        """`texts`: the shared index may hold texts. `shared`: it is used at all.

        `aside`: this is the part of another index that searches.
        """
        self._backend = backend
        self._closed = False
        self._home = backend.index_storage() if shared else None
        self._memory = not shared or backend.durability == "none"
        self._texts = texts
        #: The part that searches, so that a listing need not wait while the first search takes minutes. Texts
        #: that must not be in the shared index are in memory only.
        self._aside = None if aside else Index(backend, shared=texts, aside=True)
        self._storage: Storage | None = None
        self._catalog: SessionCatalog | None = None
        self._generation = -1
        self._reset()
        _indexes.add(self)

    def _notice_fork(self) -> None:
        if self._generation != disk.generation:
            with disk.fork_guard:
                if self._generation != disk.generation:
                    self._reset()

    def release_files(self) -> None:
        """Close the file to free descriptors, unless it is in use."""
        # The mutex is re-entrant: this thread may be in the middle of a question.
        owned = self._mutex._is_owned()  # type: ignore[attr-defined] # noqa: SLF001
        if self._generation == disk.generation and not owned and self.hold(0.0):
            self.release()

    def hold(self, timeout: float) -> bool:
        """Keep other threads out, and close the file, until `release`; return whether that was possible."""
        # A child that inherits what SQLite knows of its locks would take them for its own.
        self._notice_fork()
        if not self._mutex.acquire(timeout=timeout):
            return False
        storage = self._storage
        if storage is not None and storage.file is not None:
            if storage.is_changing():
                # Only if this very thread forks in the middle of a question.
                self._mutex.release()
                return False
            storage.close()
            self._storage = self._catalog = None
        return True

    def release(self) -> None:
        """Let other threads ask again."""
        self._mutex.release()

    def _reset(self) -> None:
        if self._storage is not None:
            self._storage.abandon()
        self._mutex = threading.RLock()
        self._storage = None
        self._catalog = None
        # Last: a thread that finds it current must find the rest so.
        self._generation = disk.generation

    def close(self) -> None:
        """Close the database."""
        self._notice_fork()
        with self._mutex:
            self._closed = True
            storage, self._storage = self._storage, None
            if storage is not None:
                storage.close()
        if self._aside is not None:
            self._aside.close()

    # -- questions ------------------------------------------------------------------------------

    def sessions(
        self,
        filters: SessionFilter,
        *,
        order: str,
        limit: int | None,
        cursor: str | None,
        progress: Progress | None = None,
    ) -> Page:
        """Return a page of the wanted sessions."""
        listing.check(filters, order, cursor)
        return self._ask(
            lambda storage: listing.page(storage, filters, order=order, limit=limit, cursor=cursor),
            progress,
        )

    def count(self, filters: SessionFilter, *, progress: Progress | None = None) -> int:
        """Return how many sessions are wanted."""
        listing.check(filters)
        return self._ask(lambda storage: listing.count(storage, filters), progress)

    def stats(self, filters: SessionFilter, *, progress: Progress | None = None) -> StoreStats:
        """Add up the wanted sessions."""
        listing.check(filters)
        careful = None if progress is None else _Careful(progress)
        return self._ask(
            lambda storage: stats.stats(self._backend, storage, filters, careful),
            progress,
            changes=True,
        )

    def described(self) -> list[Description]:
        """Return the description of every session, sorted by id."""
        return self._ask(catalog.described)

    def children(self, parent: str, created: str) -> list[str]:
        """Return the ids of the forks of a session, sorted."""
        return self._ask(lambda storage: listing.children(storage, parent, created))

    def search(self, query: SearchQuery, *, progress: Progress | None = None) -> list[Hit] | None:
        """Return what was found; None if the one session that is searched cannot be read."""
        if self._aside is not None:
            return self._aside.search(query, progress=progress)
        backend = self._backend
        careful = None if progress is None else _Careful(progress)
        return self._ask(
            lambda storage: text_index.answer(
                backend, storage, lambda clean: search.ask(backend, clean, query), careful
            ),
            alone=True,
        )

    def drop_texts(self) -> None:
        """Remove the texts from the shared index: opening it does."""
        if self._is_kept():
            self._ask(lambda _: None)

    def forget(self) -> None:
        """Erase from the shared index what was removed from the logs; costs little if nothing was.

        Removed texts are not found any more, but bytes of them stay in the file until it is erased.
        """
        if self._texts and self._aside is not None:
            self._aside.forget()
            return
        if self._is_kept():
            self._ask(self._erase, alone=True)

    def _is_kept(self) -> bool:
        """Return whether there is a shared index."""
        self._notice_fork()
        with self._mutex:
            home = self._home or self._backend.index_storage()
            if isinstance(home, IndexFile):
                return home.identity() is not None
            if home is None or self._home is None:
                return False
            if self._closed or self._storage is not None:
                return self._storage is not None
            try:
                return bool(home.trying(lambda: self._open()[0].get("watch")))
            except Unusable:
                # The tables hold texts that are not wanted, and may not be changed.
                self._do_without()
                return False

    def _erase(self, storage: Storage) -> None:
        if storage.private:
            # The file cannot be used, so nothing is known of its content.
            home = self._backend.index_storage()
            if isinstance(home, IndexFile):
                home.discard()
            return
        if not text_index.has_residue(storage):
            return
        text_index.erase(storage)
        if not storage.truncate():
            # Another process reads what is to be erased, and does not stop. A server's tables stay as they
            # are, and the next compaction tries again.
            if not storage.served:
                storage.replace()
            return
        # Only now: if this is interrupted before, the next call does all of it again.
        with storage.changing():
            storage.put(RESIDUE, 0)

    # -- the storage ----------------------------------------------------------------------------

    def _ask(
        self,
        question: Callable[[Storage], Answer],
        progress: Progress | None = None,
        *,
        changes: bool = False,
        alone: bool = False,
    ) -> Answer:
        """Bring the index up to date, and ask it a question.

        `changes`: it writes into the index. `alone`: it begins its own transactions.
        """
        self._notice_fork()
        with self._mutex:
            if self._closed:
                raise Closed(f"{self._backend.where}: the store was closed; open it again")
            for attempt in range(_TRIES):
                try:
                    if isinstance(self._home, IndexTables):
                        # All of it again if the connection to the server was lost.
                        return self._home.trying(  # type: ignore[no-any-return] # what is done gives
                            lambda: self._answer(question, progress, changes=changes, alone=alone)
                        )
                    return self._answer(question, progress, changes=changes, alone=alone)
                except Unusable:
                    self._do_without()
                except _Stopped as stopped:
                    raise stopped.reason from None
                except sqlite3.DatabaseError as error:
                    if self._is_sound():
                        raise self._unavailable(error) from error
                    # Locked by another process for too long, a full disk, no longer writable.
                    self._rebuild(without=attempt > 0 or is_refused(error))
                except _NONSENSE:
                    if self._is_sound():
                        raise
                    self._rebuild(without=attempt > 0)
            raise AssertionError  # the last attempt answers or raises

    def _answer(
        self,
        question: Callable[[Storage], Answer],
        progress: Progress | None,
        *,
        changes: bool,
        alone: bool,
    ) -> Answer:
        storage, sessions = self._open()
        storage.check()
        sessions.refresh(None if progress is None else _Careful(progress))
        if alone:
            return question(storage)
        with storage.changing() if changes else storage.reading():
            return question(storage)

    def _is_sound(self) -> bool:
        """Return whether no other program can have damaged the storage: it is private, or a server's."""
        return self._storage is None or self._storage.private or self._storage.served

    def _open(self) -> tuple[Storage, SessionCatalog]:
        if self._storage is None or self._catalog is None:
            self._storage = self._make()
            if not self._texts and self._storage.full_text.exists():
                self._storage.replace()
            self._catalog = SessionCatalog(self._backend, self._storage)
        return self._storage, self._catalog

    def _make(self) -> Storage:
        home = self._home
        if isinstance(home, IndexTables):
            from hansard.index.postgres_storage import PostgresStorage

            return PostgresStorage(home)
        return Storage(None if _inherited else home, memory=self._memory)

    def _do_without(self) -> None:
        """Continue with a private database."""
        self._home = None
        if self._storage is not None:
            self._storage.close()
        self._storage = self._catalog = None

    def _rebuild(self, *, without: bool) -> None:
        """Continue with an empty file in place of a damaged one, or without a file."""
        assert self._storage is not None  # it was found to be damaged
        try:
            if not without:
                self._storage.replace()
                return
        except Unusable:
            pass
        self._do_without()

    def _unavailable(self, error: Exception) -> BackendUnavailable:
        return BackendUnavailable(f"{self._backend.where}: sessions cannot be listed: {error}")


# -- forks of the process -----------------------------------------------------------------------

#: Those that may have a file open.
_indexes: Final["WeakSet[Index]"] = WeakSet()

#: Whether this process was forked while another thread was using the file of an index. It then uses none.
_inherited = False

#: Seconds that a fork waits for a thread that asks the index: the child can then use the file.
_FORK_WAIT: Final = 1.0

#: Seconds that it waits for a thread in a call of SQLite.
_CALL_WAIT: Final = 10.0

#: What `hold_before_fork` holds, and whether something is missing.
_held: Final[list[Index]] = []
_left_open = False


def hold_before_fork() -> None:
    """Ensure that no thread uses SQLite when the process is forked. `store` calls it."""
    global _left_open  # noqa: PLW0603 - a fork is of the whole process
    _left_open = False
    deadline = time.monotonic() + _FORK_WAIT
    for index in list(_indexes):
        if index.hold(max(0.0, deadline - time.monotonic())):
            _held.append(index)
        else:
            _left_open = True
    hold_all(_CALL_WAIT)


def _release(*, in_child: bool = False) -> None:
    release_all(in_child=in_child)
    while _held:
        _held.pop().release()


def _forked() -> None:
    global _inherited  # noqa: PLW0603 - as above
    _inherited = _inherited or _left_open
    _release(in_child=True)


os.register_at_fork(after_in_parent=_release, after_in_child=_forked)


# -- the index of a backend ---------------------------------------------------------------------


def without_texts(backend: Backend) -> None:
    """Keep texts out of the shared index, and remove those that it has."""
    index = backend.finder = Index(backend, texts=False)  # type: ignore[misc] # as below
    index.drop_texts()


def of(backend: Backend) -> Index:
    """Return the index of a backend, or of that which it is a part of."""
    whole = backend.unscoped
    found = whole.finder
    if not isinstance(found, Index):
        # Two threads may make one each: nothing is opened yet, and one of them is dropped.
        found = Index(whole)
        whole.finder = found  # type: ignore[misc] # a whole backend has a slot for it
    return found


# -- its status ---------------------------------------------------------------------------------


def status(backend: Backend, found: IndexStatus) -> IndexStatus:
    """Add the index's version, and how many sessions it is behind; brings nothing up to date.

    The file is opened read-only, so that nothing changes, and SQLite creates no file next to it.
    """
    home = backend.unscoped.index_storage()
    if isinstance(home, IndexTables):
        return _status_of_tables(home)
    if not found.there:
        return found
    stamps = backend.stamps()
    try:
        with closing(_open_read_only(found)) as connection:
            return msgspec.structs.replace(found, **_status_of_file(connection, stamps))
    except (sqlite3.Error, UnicodeError, TypeError, ValueError) as error:
        return msgspec.structs.replace(found, reason=str(error))


def _status_of_tables(tables: IndexTables) -> IndexStatus:
    try:
        ((sessions, behind, texts),) = tables.trying(lambda: tables.run(_ASK_SERVER))
    finally:
        tables.close()
    if not sessions:
        return IndexStatus()
    return IndexStatus(there=True, version=VERSION, sessions=sessions, behind=behind, texts=texts)


_ASK_SERVER: Final = """
SELECT (SELECT count(*) FROM index_session),
       (SELECT count(*) FROM (SELECT id FROM index_purged
                              UNION SELECT id FROM sessions WHERE marked AND NOT internal) AS b),
       EXISTS (SELECT FROM index_log)"""


def _open_read_only(found: IndexStatus) -> sqlite3.Connection:
    # SQLite reads what is not yet in the file itself only if its two files next to it exist, and would
    # create them. Without them no process has the database open, and it is complete.
    how = "mode=ro" if found.shared else "mode=ro&immutable=1"
    place = f"file:{quote(found.path)}?{how}"
    return sqlite3.connect(
        place, uri=True, timeout=_PATIENCE, isolation_level=None, factory=Connection
    )


def _status_of_file(connection: sqlite3.Connection, stamps: dict[str, str]) -> dict[str, object]:
    application, version = identify(connection)
    if application != APPLICATION:
        return {"reason": "hansard did not create it; the next listing rebuilds it"}
    if version > VERSION:
        reason = "a newer hansard created it; this one does not use it"
    elif version != VERSION:
        reason = "an older hansard created it; the next listing rebuilds it"
    elif not has_our_tables(connection):
        reason = "it does not have the tables of an index; the next listing rebuilds it"
    else:
        known = dict(connection.execute("SELECT id, stamp FROM index_session"))
        behind = len({id for id, _ in known.items() ^ stamps.items()})
        ask = "SELECT 1 FROM sqlite_master WHERE name = 'index_words'"
        texts = connection.execute(ask).fetchone() is not None
        return {"version": version, "sessions": len(known), "behind": behind, "texts": texts}
    return {"version": version, "reason": reason}
