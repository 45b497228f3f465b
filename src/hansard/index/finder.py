"""Find sessions in a store: the index, as `store` sees it.

Above: `store`.  Below: `catalogue`, `listing`, `stats`, `indexing`, `search`.
Every question first brings the index up to date, which costs next to nothing if nothing has changed. If the
file of the index turns out to be damaged, it is made anew; if it cannot be used at all, a database of this
process's own takes its place. Either way the answer is the same: it comes from the logs.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakSet

import msgspec

from hansard.backend.contract import Backend
from hansard.errors import BackendUnavailable, Closed
from hansard.index import indexing, listing, search, stats
from hansard.index.catalogue import Catalogue, Progress
from hansard.index.database import (
    RESIDUE,
    Database,
    Unusable,
    hold_all,
    is_refused,
    release_all,
)
from hansard.index.description import Description
from hansard.index.entry import Hit, Page, StoreStats
from hansard.index.listing import SessionFilter
from hansard.index.search import Sought
from hansard.log import disk

#: How often a question is asked of an index that has turned out to be damaged, and was made anew.
_TRIES: Final = 3

#: What a damaged file leads to where SQLite does not find it out: what is read from it makes no sense. What
#: the caller has given was checked before.
_NONSENSE: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError)

Answer = TypeVar("Answer")


class _Stopped(Exception):
    """What the caller's own function has raised is no sign of a damaged file."""

    def __init__(self, reason: Exception) -> None:
        super().__init__()
        self.reason = reason


class _Careful:
    """Calls the caller's function, and tells what it raises from what the index does."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __call__(self, done: int, total: int) -> None:
        try:
            self._progress(done, total)
        except Exception as error:
            raise _Stopped(error) from error


class Index:
    """What is known of all sessions of a backend, shared by all threads of a process."""

    __slots__ = (
        "__weakref__",
        "_aside",
        "_backend",
        "_catalogue",
        "_closed",
        "_database",
        "_generation",
        "_memory",
        "_mutex",
        "_shared",
        "_tables",
        "_texts",
    )

    def __init__(
        self, backend: Backend, *, texts: bool = True, shared: bool = True, aside: bool = False
    ) -> None:
        """`texts`: the store's own file may hold what was said. `shared`: it is used at all.

        `aside`: it is the part of another that searches.
        """
        self._backend = backend
        self._closed = False
        #: Whether the store's own file is used, and not one of this process's.
        self._shared = shared
        self._memory = not shared or backend.durability == "none"
        #: Where a server keeps the index, if one does.
        self._tables = backend.tables() if shared else None
        self._texts = texts
        #: Who searches, so that nobody who lists has to wait while a first time takes minutes. Texts that
        #: must not be in the store's own file are in memory, and nowhere else.
        self._aside = None if aside else Index(backend, shared=texts, aside=True)
        self._database: Database | None = None
        self._catalogue: Catalogue | None = None
        self._generation = -1
        self._reset()
        _indexes.add(self)

    def _notice_fork(self) -> None:
        if self._generation != disk.generation:
            with disk.fork_guard:
                if self._generation != disk.generation:
                    self._reset()

    def let_go(self) -> None:
        """Close the file to free descriptors, unless it is in use."""
        # The mutex is re-entrant: this thread may be in the middle of a question.
        owned = self._mutex._is_owned()  # type: ignore[attr-defined] # noqa: SLF001
        if self._generation == disk.generation and not owned and self.hold(0.0):
            self.release()

    def hold(self, timeout: float) -> bool:
        """Keep other threads out, and close the file, until `release`; say whether that was possible."""
        # A child that inherits what SQLite knows of its locks would take them for its own.
        self._notice_fork()
        if not self._mutex.acquire(timeout=timeout):
            return False
        database = self._database
        if database is not None and database.place is not None:
            if database.is_changing():
                # Only so if this very thread forks in the middle of a question.
                self._mutex.release()
                return False
            database.close()
            self._database = self._catalogue = None
        return True

    def release(self) -> None:
        """Let other threads ask again."""
        self._mutex.release()

    def _reset(self) -> None:
        if self._database is not None:
            self._database.abandon()
        self._mutex = threading.RLock()
        self._database = None
        self._catalogue = None
        # Last: whoever finds it current must find the rest so.
        self._generation = disk.generation

    def close(self) -> None:
        """Let go of the database."""
        self._notice_fork()
        with self._mutex:
            self._closed = True
            database, self._database = self._database, None
            if database is not None:
                database.close()
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
        """Return a page of the sessions that are filters."""
        listing.check(filters, order, cursor)
        return self._ask(
            lambda database: listing.page(
                database, filters, order=order, limit=limit, cursor=cursor
            ),
            progress,
        )

    def count(self, filters: SessionFilter, *, progress: Progress | None = None) -> int:
        """Return how many sessions are filters."""
        listing.check(filters)
        return self._ask(lambda database: listing.count(database, filters), progress)

    def stats(self, filters: SessionFilter, *, progress: Progress | None = None) -> StoreStats:
        """Add up the sessions that are filters."""
        listing.check(filters)
        careful = None if progress is None else _Careful(progress)
        return self._ask(
            lambda database: stats.stats(self._backend, database, filters, careful),
            progress,
            changes=True,
        )

    def described(self) -> list[Description]:
        """Return what is known of every session, sorted by id."""
        return self._ask(listing.described)

    def children(self, parent: str, created: str) -> list[str]:
        """Return the ids of the sessions that were forked from one, sorted."""
        return self._ask(lambda database: listing.children(database, parent, created))

    def search(self, sought: Sought, *, progress: Progress | None = None) -> list[Hit] | None:
        """Return what was found; None if the one session that is searched cannot be read."""
        if self._aside is not None:
            return self._aside.search(sought, progress=progress)
        careful = None if progress is None else _Careful(progress)
        return self._ask(
            lambda database: indexing.answer(
                self._backend, database, lambda clean: search.ask(clean, sought), careful
            ),
            alone=True,
        )

    def drop_texts(self) -> None:
        """Remove the texts from the file of the index: opening it does."""
        if self._is_kept():
            self._ask(lambda _: None)

    def forget(self) -> None:
        """Rid the file of the index of what was taken out of the logs; costs little if nothing was.

        Texts that were taken out are not found any more; but where they stood, and in the index of words,
        bytes of them are left until the file is written anew.
        """
        if self._texts and self._aside is not None:
            self._aside.forget()
            return
        if self._is_kept():
            self._ask(self._rid, alone=True)

    def _is_kept(self) -> bool:
        """Say whether there is an index that is not this process's own."""
        self._notice_fork()
        with self._mutex:
            if self._tables is None:
                place = self._backend.place()
                return place is not None and place.identity() is not None
            if self._closed or self._database is not None:
                return self._database is not None
            try:
                return bool(self._tables.trying(lambda: self._open()[0].get("watch")))
            except Unusable:
                # They hold texts that are not wanted, and may not be changed.
                self._do_without()
                return False

    def _rid(self, database: Database) -> None:
        if database.is_own():
            # The file cannot be used, and nobody can say what is in it.
            place = self._backend.place()
            if place is not None:
                place.discard()
            return
        there = database.words.are_there()
        if there:
            indexing.update(self._backend, database, known=True)
        if not database.get(RESIDUE):
            return
        if there:
            database.words.merge()
        if not database.truncate():
            # Another process reads what is to be erased, and does not stop. A server's tables stay as they
            # are, and the next compaction tries again.
            if not database.served:
                database.replace()
            return
        # Only now: whoever is interrupted before this does it all again.
        with database.changing():
            database.put(RESIDUE, 0)

    # -- the database ---------------------------------------------------------------------------

    def _ask(
        self,
        question: Callable[[Database], Answer],
        progress: Progress | None = None,
        *,
        changes: bool = False,
        alone: bool = False,
    ) -> Answer:
        """Bring the index up to date, and put a question to it.

        `changes`: it writes something into the index. `alone`: it begins its own transactions.
        """
        self._notice_fork()
        with self._mutex:
            if self._closed:
                raise Closed(f"{self._backend.where}: the store was closed; open it again")
            for attempt in range(_TRIES):
                try:
                    if self._tables is not None:
                        # All of it again, if the server was away meanwhile.
                        return self._tables.trying(  # type: ignore[no-any-return] # what is done gives
                            lambda: self._answer(question, progress, changes=changes, alone=alone)
                        )
                    return self._answer(question, progress, changes=changes, alone=alone)
                except Unusable:
                    self._do_without()
                except _Stopped as stopped:
                    raise stopped.reason from None
                except sqlite3.DatabaseError as error:
                    if self._is_own() or self._tables is not None:
                        raise self._unavailable(error) from error
                    # Locked by another for too long, a full disk, no longer allowed to write.
                    self._begin_anew(without=attempt > 0 or is_refused(error))
                except _NONSENSE:
                    # A server's tables are no file that anybody may have written into.
                    if self._is_own() or self._tables is not None:
                        raise
                    self._begin_anew(without=attempt > 0)
            raise AssertionError  # the last attempt answers or raises

    def _answer(
        self,
        question: Callable[[Database], Answer],
        progress: Progress | None,
        *,
        changes: bool,
        alone: bool,
    ) -> Answer:
        database, catalogue = self._open()
        database.check()
        catalogue.update(None if progress is None else _Careful(progress))
        if alone:
            return question(database)
        with database.changing() if changes else database.reading():
            return question(database)

    def _is_own(self) -> bool:
        """Say whether the database is this process's own, so that nobody else can have damaged it."""
        return self._database is None or self._database.is_own()

    def _open(self) -> tuple[Database, Catalogue]:
        if self._database is None or self._catalogue is None:
            self._database = self._make()
            if not self._texts and self._database.words.are_there():
                self._database.replace()
            self._catalogue = Catalogue(self._backend, self._database)
        return self._database, self._catalogue

    def _make(self) -> Database:
        if self._tables is not None:
            from hansard.index.server import ServerDatabase

            return ServerDatabase(self._tables)
        place = self._backend.place() if self._shared and not _inherited else None
        return Database(place, memory=self._memory)

    def _do_without(self) -> None:
        """Go on with a database of this process's own."""
        self._shared = False
        self._tables = None
        if self._database is not None:
            self._database.close()
        self._database = self._catalogue = None

    def _begin_anew(self, *, without: bool) -> None:
        """Go on with an empty file in the place of a damaged one, or without a file."""
        assert self._database is not None  # it is what was found to be damaged
        try:
            if not without:
                self._database.replace()
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

#: How long a fork waits for a thread that is asking the index, in seconds: the child can then use the file.
_FORK_WAIT: Final = 1.0

#: And how long for a thread that is in a call of SQLite's.
_CALL_WAIT: Final = 10.0

#: What `hold_before_fork` holds, and whether that is all there is.
_held: Final[list[Index]] = []
_left_open = False


def hold_before_fork() -> None:
    """See to it that no thread is using SQLite when the process is forked. `store` calls it."""
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


def without_texts(backend: Backend) -> None:
    """Keep what was said out of the file of an index, and remove it if it is there."""
    index = backend.finder = Index(backend, texts=False)  # type: ignore[misc] # as below
    index.drop_texts()


def of(backend: Backend) -> Index:
    """Return the index of a backend, or of that which it is a part of."""
    whole = backend.whole
    found = whole.finder
    if not isinstance(found, Index):
        # Two threads may make one each: nothing is opened yet, and one of them is forgotten.
        found = Index(whole)
        whole.finder = found  # type: ignore[misc] # what is whole has a slot for it
    return found
