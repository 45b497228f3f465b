"""Keep sessions as files below a directory.

Translates between the two vocabularies beneath it: events, which mean something, and records,
which are bytes in a segment. What a file holds and in which order is in docs/format.md.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakSet, WeakValueDictionary

from hansard.backend.contract import (
    INTERNAL,
    Backend,
    Changed,
    Health,
    Hold,
    InternalLog,
    Log,
    Stage,
)
from hansard.backend.local import changes
from hansard.backend.local.index_file import LocalIndexFile
from hansard.backend.local.log import LocalLog
from hansard.backend.status import StoreStatus
from hansard.errors import (
    Closed,
    HansardError,
    SessionDeleted,
    SessionNotFound,
)
from hansard.log import disk, names
from hansard.log.disk import Lock
from hansard.log.segment import open_segment
from hansard.log.store_directory import InternalDirectory, StoreDirectory
from hansard.log.writer import Durability

#: How long a writer waits for the lock before it names the holder and gives up.
LOCK_TIMEOUT: Final = 10.0


class LocalHold(Hold):
    """The lock of an internal log."""

    def __init__(self, lock: Lock) -> None:
        self._lock: Lock | None = lock
        self._generation = disk.generation

    def check(self) -> None:
        if self._generation != disk.generation:
            raise Closed("opened before a fork, by the parent process; open it in this process")
        if self._lock is None:
            raise Closed("closed; open it again")

    def close(self) -> None:
        lock, self._lock = self._lock, None
        # In a child the lock is the parent's: an unlock through an inherited descriptor would free it.
        if lock is not None and self._generation == disk.generation:
            # Unlocked, not only closed: a process that is just being started may have a copy of it.
            lock.release()
            lock.close()


class LocalBackend(Backend):
    """A directory of sessions."""

    durability: Durability
    descriptors = disk.STORE_FILES

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "sync",
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        self._root = StoreDirectory(path, create=create, read_only=read_only)
        self._internal = InternalDirectory(self._root)
        self._holds: WeakSet[LocalHold] = WeakSet()
        self.where = self._root.path
        self.read_only = read_only
        self.durability = durability
        self.lock_timeout = lock_timeout
        self._closed = False
        self._mutex = disk.ForkLock()
        #: One log per session, shared by all handles on it, so that their appends share syncs.
        self._logs: WeakValueDictionary[str, LocalLog] = WeakValueDictionary()
        #: Sessions from which others were forked: a log of its own for each, which may lie in the trash.
        self._ancestors: WeakValueDictionary[str, LocalLog] = WeakValueDictionary()
        #: The ids of sessions by the names of their directories, for those who ask again and again.
        self.compactor = None
        self.finder = None
        self._ids: dict[str, str] = {}
        #: Those that may have files open, which are kept without another reference.
        self._recent: set[LocalLog] = set()
        self._latest: LocalLog | None = None
        disk.hold_files(self)

    def log(self, session_id: str, *, from_trash: bool = False) -> Log:
        names.check_id(session_id)
        with self._mutex.lock:
            logs = self._ancestors if from_trash else self._logs
            found = logs.get(session_id)
            if found is None:
                name = self._name_of(session_id)
                found = LocalLog(self, self._root, session_id, name, from_trash=from_trash)
                logs[session_id] = found
            return found

    def _name_of(self, session_id: str) -> str:
        """Return the name of a session's directory."""
        # What `ids` or `trash` calls by its name, for want of its id, must be found under it.
        nameless = names.is_hashed(session_id) and (
            self._root.holds_log(session_id) or self._root.in_trash(session_id)
        )
        if nameless and self._true_id(session_id) is None:
            return session_id
        return names.encode(session_id)

    def check_open(self) -> None:
        """Raise if the store was closed: what cannot be read must not look empty."""
        if self._closed:
            raise Closed(f"{self.where}: the store was closed; open it again")
        disk.hold_files(self)

    def used(self, log: LocalLog) -> None:
        """Note that a log is about to use its files, and close those of one unused for longest."""
        if self._closed:
            self.check_open()
        # Most often the same one again. A race here only misjudges which is the oldest.
        if self._latest is log:
            return
        with self._mutex.lock:
            self._latest = log
            self._recent.add(log)
        disk.hold_files(self)
        disk.hold_files(log)

    def unused(self, log: LocalLog) -> None:
        """Note that a log has closed its files."""
        if self._latest is log:
            self._latest = None
        self._recent.discard(log)

    def release_files(self, *, wait: bool = True) -> None:  # noqa: ARG002 - nothing here is waited for
        """Close what the store has open, but for its own directory."""
        self._latest = None
        self._root.release_files()
        if self.finder is not None:
            self.finder.release_files()

    def begin_with(self, session_id: str, staged: str) -> None:
        """Let a session, which must not exist, begin with a log that was staged."""
        self._local(session_id).begin_with(staged)

    def stage(self, session_id: str, *, before: int = 0) -> Stage:
        names.check_id(session_id)
        self.check_open()
        # Here, because few programs move sessions from store to store.
        from hansard.backend.local.staging import LocalStage

        return LocalStage(self, self._root, session_id, before)

    def internal(self, name: str) -> InternalLog:
        session_id = INTERNAL + name
        with self._mutex.lock:
            found = self._logs.get(session_id)
            if found is None:
                directory = names.internal_directory(name)
                found = LocalLog(self, self._internal, session_id, directory)
                self._logs[session_id] = found
            return found

    def internals(self) -> list[str]:
        self.check_open()
        found = []
        for directory in self._internal.session_names():
            name = names.internal_name(directory)
            if name is not None:
                if names.is_hashed(name.partition("/")[2]):
                    name = self._true_name(directory) or name
                found.append(name)
        return sorted(found)

    def exclusive(self, name: str, *, timeout: float = 0.0) -> Hold:
        self.check_open()
        self._root.check_writable()
        directory = names.internal_directory(name)
        deadline = time.monotonic() + timeout
        while True:
            lock = self._internal.open_holder(directory)
            try:
                lock.acquire(max(0.0, deadline - time.monotonic()))
                if self._internal.is_holder(directory, lock):
                    hold = LocalHold(lock)
                    self._holds.add(hold)
                    return hold
            except BaseException:
                lock.close()
                raise
            # The log was dropped between the opening and the locking (F-164): its directory is another.
            lock.close()

    def _true_name(self, directory: str) -> str | None:
        """Return the name of an internal log as its header has it; None if it cannot be read."""
        header = _id_in(self._internal, directory)
        name = None if header is None else header.removeprefix(INTERNAL)
        return name if name and names.internal_directory(name) == directory else None

    def ids(self, *, trash: bool = False) -> Iterator[str]:
        self.check_open()
        return self._trashed() if trash else self._ids_of(self._root.session_names())

    def _trashed(self) -> Iterator[str]:
        moved = set(self._ids_of(self._root.trash_names()))
        yield from moved
        # Where a crash came between the two steps of a deletion, the note decides (F-36).
        for session_id in self.ids():
            try:
                self.log(session_id).reader()
            except SessionDeleted:
                if session_id not in moved:
                    yield session_id
            except HansardError:
                continue  # it cannot be read, so nothing says that it was deleted

    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        self.check_open()
        if session_ids is None:
            return dict(changes.stamps(self._root, self._named(self._root.directories())))
        asked = ((session_id, self._name_of(session_id)) for session_id in session_ids)
        return dict(changes.stamps(self._root, asked))

    def unchanged(self, since: str) -> bool:
        return not self.read_only and changes.unchanged(self._root, since)

    def changed(self, since: str) -> Changed:
        # A read-only store begins no epoch.
        if self.read_only:
            return super().changed(since)
        return changes.changed(self._root, self._known_ids, since)

    def _known_ids(self, found: Iterable[str]) -> Iterator[str]:
        self.check_open()
        return (session_id for session_id, _ in self._named(found))

    def _named(self, found: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield ids and names of what is called so, without a look at what is known already."""
        known = self._ids
        for name in found:
            session_id = known.get(name)
            if session_id is None:
                session_id = next(self._ids_of([name]), None)
                if session_id is None:
                    continue
                # A name that stands for an id nobody knows may get one, when its log is mended.
                if session_id != name or not names.is_hashed(name):
                    known[name] = session_id
            yield session_id, name

    def _ids_of(self, found: Iterable[str]) -> Iterator[str]:
        for name in found:
            try:
                session_id = names.decode(name)
            except ValueError:
                continue  # no session's name, so not ours
            if session_id is None:
                session_id = self._true_id(name) or name
            yield session_id

    def _true_id(self, name: str) -> str | None:
        """Return the id of a session whose name does not tell it; None if its log does not."""
        session_id = _id_in(self._root, name)
        # A log that was copied here from under another name is not this one's.
        return session_id if session_id and names.encode(session_id) == name else None

    def delete(
        self, session_id: str, *, expected_seq: int | None = None, timeout: float | None = None
    ) -> None:
        log = self._local(session_id)
        self._root.check_writable()
        log.delete(expected_seq, timeout)

    def restore(self, session_id: str) -> None:
        log = self._local(session_id)
        self._root.check_writable()
        log.restore()

    def purge(self, session_id: str) -> None:
        log = self._local(session_id)
        name = self._name_of(session_id)
        self._root.check_writable()
        with log.marked():
            purged = self._root.purge(name) or (log.finish_delete() and self._root.purge(name))
        if not purged:
            raise SessionNotFound(f"no session {session_id!r} in the trash")
        # Whatever was wrong with it, the next session of this name has nothing to do with it.
        self._root.failed.discard(session_id)
        log.release_files()

    def _local(self, session_id: str) -> LocalLog:
        log = self.log(session_id)
        self.check_open()
        assert isinstance(log, LocalLog)  # `log` makes no others
        return log

    def index_storage(self) -> LocalIndexFile | None:
        self.check_open()
        return None if self.read_only else LocalIndexFile(self._root)

    def population(self) -> object:
        self.check_open()
        return self._root.population()

    def status(self) -> StoreStatus:
        self.check_open()
        # Imported here, because few programs call it.
        from hansard.backend.local.file_report import examine

        return examine(self._root)

    @contextmanager
    def compacting(self, *, wait: bool = True) -> Iterator[None]:
        self.check_open()
        path = f"{self.where}/{names.MARKER}"
        try:
            lock = Lock(disk.open_file(self._root.descriptor, names.MARKER), path)
        except OSError as error:
            raise disk.explain(error, "open", path) from error
        lock.acquire_shared(self.lock_timeout if wait else 0.0)
        try:
            yield
            if wait:
                self._root.sweep_trash()
                self._internal.sweep_trash()
        finally:
            lock.release()

    def probe(self) -> Health:
        self.check_open()
        free = self._root.probe()
        return Health(self.where, self.durability, not self.read_only, free)

    def close(self) -> None:
        if self.compactor is not None:
            self.compactor.stop()
        if self.finder is not None:
            self.finder.close()
        self._closed = True
        with self._mutex.lock:
            logs = [*self._logs.values(), *self._ancestors.values()]
            self._recent.clear()
            self._latest = None
        for log in logs:
            log.release_files()
        for hold in list(self._holds):
            hold.close()
        self._root.close()


def _id_in(root: StoreDirectory, name: str) -> str | None:
    """Return the id in the header of a log; None if it cannot be read."""
    try:
        directory = root.open_session(name, name, from_trash=True)
        if directory is None:
            return None
        opened = disk.OwnedFd(directory)
        path = root.path_of(name, names.LOG)
        segment = open_segment(opened.descriptor, path, None, writable=False)
    except HansardError:
        return None
    return None if segment is None else segment.session_id
