"""Answer the calls of a store: open the index, refresh it, query it, and rebuild it if it is damaged.

Every call first refreshes the index, which costs next to nothing if nothing has changed. A damaged file is
rebuilt; if it cannot be used at all, a private database of this process takes its place. Either way the
answer is the same: it comes from the logs.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

import msgspec

from hansard import observe, workspace
from hansard.backend.contract import Backend, Finding, Progress
from hansard.backend.local.index_file import LocalIndexFile
from hansard.errors import UNREADABLE, BackendUnavailable, Closed, Damaged, HansardError
from hansard.event.event import Event
from hansard.event.kinds import CONTROL
from hansard.index import Hit, Page, StoreStats, catalog, listing, sqlite_storage
from hansard.index.catalog import Description
from hansard.index.listing import SessionFilter
from hansard.index.sqlite_storage import RESIDUE, Storage, Unusable, is_refused

# Imported where they are used: a listing needs neither search nor texts, which take a tenth of its time.
if TYPE_CHECKING:
    from hansard.index.search import SearchQuery

#: Errors by which a damaged file shows where SQLite does not notice it. Arguments were checked before.
_NONSENSE: Final = (
    msgspec.MsgspecError,
    AttributeError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
)

Answer = TypeVar("Answer")


class _RefreshStopped(Exception):
    """The caller's `progress` has raised its argument: not a sign of a damaged file."""


def _guarded(progress: Progress | None) -> Progress | None:
    """Return a callback whose errors can be told from those of the index."""
    if progress is None:
        return None

    def call(done: int, total: int) -> None:
        try:
            progress(done, total)
        except Exception as error:
            raise _RefreshStopped(error) from error

    return call


class Index:
    """The index of a backend, shared by all threads of a process."""

    def __init__(self, backend: Backend, searcher: "Index | None" = None) -> None:
        """`searcher`: another one, which searches: a listing need not wait for the first search."""
        self._backend = backend
        self._searcher = searcher
        self._closed = False
        self._home = backend.index_storage
        self._storage: Storage | None = None
        self.reset()
        _indexes.add(self)

    def reset(self) -> None:
        """Begin again in a child process; the connection belongs to its parent."""
        if self._storage is not None:
            self._storage.abandon()
        if _inherited and isinstance(self._home, LocalIndexFile):
            self._home = None
        self._mutex = threading.RLock()
        self._storage = None
        #: Whether a thread, which holds the mutex, is in the middle of a call.
        self._asking = False

    def release_files(self) -> None:
        """Close the file to free descriptors, unless it is in use."""
        if self.hold(0.0):
            self.release()

    def hold(self, timeout: float) -> bool:
        """Keep other threads out, and close the file, until `release`; return whether that was possible."""
        # A child that inherits what SQLite knows of its locks would take them for its own.
        if not self._mutex.acquire(timeout=timeout):
            return False
        if self._asking:
            # This very thread is in the middle of a call.
            self._mutex.release()
            return False
        if isinstance(self._home, LocalIndexFile):
            self._close()
        return True

    def release(self) -> None:
        """Let other threads use the index again."""
        self._mutex.release()

    def close(self) -> None:
        """Close the database."""
        with self._mutex:
            self._closed = True
            self._close()
        if self._searcher is not None:
            self._searcher.close()

    def _close(self) -> None:
        if self._storage is not None:
            self._storage.close()
        self._storage = None

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

    def count(self, filters: SessionFilter) -> int:
        """Return the number of wanted sessions."""
        listing.check(filters)
        return self._ask(lambda storage: listing.count(storage, filters))

    def stats(self, filters: SessionFilter, *, progress: Progress | None = None) -> StoreStats:
        """Add up the wanted sessions."""
        listing.check(filters)
        from hansard.index import stats

        guarded = _guarded(progress)
        return self._ask(
            lambda storage: stats.stats(self._backend, storage, filters, guarded),
            progress,
            alone=True,
        )

    def latest(self, filters: SessionFilter, *, skip_damaged: bool) -> str | None:
        """Return the id of the newest session; None if there is none.

        Raises `Damaged` for an unreadable session: otherwise a user would continue an older conversation
        without noticing.
        """
        readable = filters._replace(damaged=False)
        newest = self.sessions(readable, order="-updated", limit=1, cursor=None).items
        unreadable = filters._replace(workspace=None, archived=None, damaged=True)
        if not skip_damaged:
            for info in self.sessions(unreadable, order="id", limit=None, cursor=None).items:
                if self._may_be_newer(info.id, newest[0].updated_stamp if newest else "", filters):
                    hint = (
                        f"session {info.id!r} may be the newest one. Run `verify` for its damage, or "
                        "pass skip_damaged=True to skip it"
                    )
                    raise Damaged(self._backend.where, 0, info.damaged, hint)
        return newest[0].id if newest else None

    def _may_be_newer(self, session_id: str, than: str, filters: SessionFilter) -> bool:
        """Return whether a damaged session may match, and be newer, by its valid records."""
        found: list[Event | Finding] = []
        with suppress(*UNREADABLE):
            found = list(self._backend.log(session_id).salvage())
        events = [event for event in found if isinstance(event, Event)]
        belongs = workspace.of([event for event in events if event.kind in CONTROL])
        if filters.workspace is not None and belongs is not None and not filters.workspace(belongs):
            return False
        # If it ends with damage, what is lost may be newer than anything.
        return not events or found[-1] is not events[-1] or events[-1].stamp >= than

    def described(self) -> list[Description]:
        """Return the description of every session, sorted by id."""
        return self._ask(catalog.described)

    def children(self, parent: str, created: str) -> list[str]:
        """Return the ids of the forks of a session, sorted."""
        return self._ask(lambda storage: listing.children(storage, parent, created))

    def search(self, query: "SearchQuery", *, progress: Progress | None = None) -> list[Hit] | None:
        """Return the hits; None if the one session that is searched cannot be read."""
        if self._searcher is not None:
            return self._searcher.search(query, progress=progress)
        try:
            "".join((query.filters.prefix, query.role or "")).encode()
        except UnicodeEncodeError:
            return []  # a lone surrogate: no session and no message has it
        from hansard.index import search, text_index

        backend, guarded = self._backend, _guarded(progress)

        def ask(storage: Storage) -> list[Hit] | None:
            return search.ask(backend, storage, query)

        return self._ask(lambda one: text_index.answer(backend, one, ask, guarded), alone=True)

    def forget(self) -> None:
        """Erase from the shared index what was removed from the logs; costs little if nothing was.

        Removed texts are not found any more, but bytes of them stay in the file until it is erased.
        """
        if self._searcher is not None:
            self._searcher.forget()
        else:
            self._use(self._erase)

    def _erase(self) -> None:
        storage = self._open()
        if storage.private:
            # The file cannot be used, so nothing is known of its content.
            home = self._backend.index_storage
            if isinstance(home, LocalIndexFile):
                home.discard()
            return
        if storage.get("watch") is None:
            return  # it was never filled
        catalog.refresh(self._backend, storage)
        if not storage.get(RESIDUE):
            return
        from hansard.index import text_index

        text_index.erase(storage)
        if storage.truncate():
            # Only now: if this is interrupted before, the next call does all of it again.
            with storage.changing():
                storage.put(RESIDUE, 0)
        elif not storage.served:
            # Another process reads what is to be erased, and does not stop. A server's tables stay as they
            # are, and the next compaction tries again.
            self._discard()

    def _ask(
        self,
        question: Callable[[Storage], Answer],
        progress: Progress | None = None,
        *,
        alone: bool = False,
    ) -> Answer:
        """Refresh the index, and ask it a question. `alone`: the question begins its own transactions."""

        def answer() -> Answer:
            storage = self._open()
            catalog.refresh(self._backend, storage, _guarded(progress))
            with nullcontext() if alone else storage.reading():
                return question(storage)

        return self._use(answer)

    def _use(self, answer: Callable[[], Answer]) -> Answer:
        """Return an answer, from an index that is rebuilt if it is damaged."""
        with self._mutex:
            if self._closed:
                raise Closed(f"{self._backend.where}: the store was closed; open it again")
            before, self._asking = self._asking, True
            try:
                return self._attempt(answer)
            finally:
                self._asking = before

    def _attempt(self, answer: Callable[[], Answer]) -> Answer:
        replaced = False
        while True:
            try:
                if self._home is not None and not isinstance(self._home, LocalIndexFile):
                    # All of it again if the connection to the server was lost.
                    return self._home.retry(answer)
                return answer()
            except Unusable:
                self._do_without()
            except _RefreshStopped as stopped:
                raise stopped.args[0] from None
            except (sqlite3.DatabaseError, *_NONSENSE) as error:
                # No other program can have damaged what is private, or a server's.
                if not isinstance(self._home, LocalIndexFile):
                    if not isinstance(error, sqlite3.DatabaseError):
                        raise
                    where = self._backend.where
                    raise BackendUnavailable(f"{where}: cannot list sessions: {error}") from error
                # Refused: locked by another process for too long, a full disk, no longer writable.
                if replaced or is_refused(error):
                    self._do_without()
                else:
                    self._discard()
                    replaced = True

    def _open(self) -> Storage:
        home = self._home
        if self._storage is not None and not self._storage.in_place():
            self._close()
        if self._storage is None:
            if home is None or isinstance(home, LocalIndexFile):
                self._storage = Storage(home, memory=self._backend.durability == "none")
            else:
                from hansard.index.postgres_storage import PostgresStorage

                self._storage = PostgresStorage(home)
        return self._storage

    def _do_without(self) -> None:
        """Continue with a private database."""
        self._close()
        self._home = None

    def _discard(self) -> None:
        """Remove the file, unless another process has replaced it; the next call creates another."""
        assert isinstance(self._home, LocalIndexFile)  # only a file can be damaged
        in_place = self._storage is None or self._storage.in_place()
        self._close()
        observe.report(
            "index",
            observe.WARNING,
            "the index of %s was damaged, of another version or in use; it is built again",
            self._backend.where,
        )
        try:
            if in_place:
                self._home.discard()
        except HansardError:
            self._home = None


#: All of this process.
_indexes: Final["WeakSet[Index]"] = WeakSet()

#: Whether this process was forked while another thread was using the file of an index. It then uses none.
_inherited = False

#: Seconds that a fork waits for a thread that uses the index: the child can then use the file.
_FORK_WAIT: Final = 1.0

#: Seconds that it waits for a thread in a call of SQLite.
_CALL_WAIT: Final = 10.0

#: Releases what `hold_before_fork` holds.
_held: Final[list[Callable[[], None]]] = []
_left_open = False


def hold_before_fork() -> None:
    """Ensure that no thread uses SQLite when the process is forked. `store` calls it."""
    global _left_open  # noqa: PLW0603 - a fork concerns the process
    _left_open = False
    deadline = time.monotonic() + _FORK_WAIT
    for index in list(_indexes):
        if index.hold(max(0.0, deadline - time.monotonic())):
            _held.append(index.release)
        else:
            _left_open = True
    deadline = time.monotonic() + _CALL_WAIT
    # The first keeps the number of connections as it is.
    if _hold_lock(sqlite_storage.opening, deadline):
        for connection in list(sqlite_storage.connections):
            _hold_lock(connection.gate, deadline)


def _hold_lock(lock: Any, deadline: float) -> bool:
    if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
        _held.append(lock.release)
        return True
    return False


def _release() -> None:
    while _held:
        _held.pop()()


def _forked() -> None:
    global _inherited  # noqa: PLW0603 - as above
    _inherited = _inherited or _left_open
    _release()
    sqlite_storage.opening = threading.RLock()
    for index in list(_indexes):
        index.reset()


os.register_at_fork(after_in_parent=_release, after_in_child=_forked)


def of(backend: Backend) -> Index:
    """Return the index of a backend; of a scoped one, that of the unscoped one."""
    unscoped = backend.unscoped
    found = unscoped.finder
    if not isinstance(found, Index):
        # Two threads may create one each: nothing is opened yet, and one of them is dropped.
        found = Index(unscoped, searcher=Index(unscoped))
        unscoped.finder = found
    return found
