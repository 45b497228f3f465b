"""Store sessions as files below a directory. docs/format.md specifies the files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet, WeakValueDictionary

from hansard.backend.contract import (
    INTERNAL,
    AppendRequest,
    Backend,
    Changed,
    Head,
    Health,
    Hold,
    InternalLog,
    Stage,
    check_parent,
    key_used,
    nothing_staged,
)
from hansard.backend.local import changes
from hansard.backend.local.index_file import LocalIndexFile
from hansard.backend.local.log import LocalLog
from hansard.errors import Closed, HansardError, SessionDeleted
from hansard.event.event import NewEvent
from hansard.event.kinds import SessionForked
from hansard.log import disk, format, names
from hansard.log.disk import Lock
from hansard.log.segment import header
from hansard.log.segment_reader import open_segment
from hansard.log.store_directory import InternalDirectory, StoreDirectory, not_found
from hansard.log.write_batch import SegmentWriter, session_exists
from hansard.log.writer import Durability

if TYPE_CHECKING:
    from hansard.backend.status import StoreStatus

#: Seconds that a writer waits for the lock.
LOCK_TIMEOUT: Final = 10.0

_NOT_STAGED: Final = "nothing was added to the store"


class LocalStage(Stage):
    """A session in a temporary file of the store's directory (F-135), which is renamed at the end.

    A crash before that leaves a temporary file and nothing else.
    """

    def __init__(
        self,
        backend: "LocalBackend",
        root: StoreDirectory,
        session_id: str,
        before: int,
        forked: SessionForked | None = None,
    ) -> None:
        self.backend = backend
        self.root = root
        self.session_id = session_id
        self.before = before
        self._forked = forked
        root.check_writable()
        self._keys: set[str] = set()
        #: The temporary name of the file; empty before the first append.
        self._name = ""
        self._writer: SegmentWriter | None = None

    def append(self, events: Sequence[NewEvent], *, key: str | None = None) -> None:
        self.backend.check_open()
        if key is not None:
            if key in self._keys:
                raise key_used(self.session_id, key)
            self._keys.add(key)
        now = format.now()
        with disk.reporting("write", self._path, _NOT_STAGED):
            writer = self._writer or self._begin(events[0].time, now)
            writer.add(AppendRequest(events, key), now)

    def _begin(self, time: str | None, now: bytes) -> SegmentWriter:
        self._name, file = self.root.create_staged()
        begun = time.encode() if time else now
        head, start = header(self.session_id, before=self.before, time=begun)
        self._writer = SegmentWriter(file, head, start)
        return self._writer

    def publish(self) -> None:
        log, staged, forked = self.backend.log(self.session_id), self.finish(), self._forked
        if forked is None:
            log.begin_with(staged)
        else:
            # Before the parent's lock is taken: its holder waits only for a session that is newer than the
            # parent, so never in a circle (docs/decisions/0035-a-fork-holds-its-parents-lock.md).
            head = log.reader().head()
            if head is not None:
                raise session_exists(self.session_id, head.seq)
            with self.backend.log(forked.parent).holding() as there:
                head = self._parent_head(forked.parent) if there else None
                check_parent(self.session_id, forked, head, self.backend.where)
                log.begin_with(staged)
        self.discard()

    def _parent_head(self, parent: str) -> Head | None:
        try:
            # The handle that knows its end: it reads what is new.
            return self.backend.log(parent).reader().head()
        except SessionDeleted:
            return self.backend.log(parent, from_trash=True).reader().head()

    def finish(self) -> str:
        """Make the file durable, and return its temporary name."""
        self.backend.check_open()
        if self._writer is None:
            raise nothing_staged(self.session_id)
        with disk.reporting("sync", self._path, _NOT_STAGED):
            self._writer.finish()
        return self._name

    def discard(self) -> None:
        self._writer = None
        if self._name:
            self.root.discard_staged(self._name)
            self._name = ""

    @property
    def _path(self) -> str:
        return f"{self.root.path}/{self._name}"


class LocalHold(Hold):
    """The lock of an internal log."""

    def __init__(self, lock: Lock) -> None:
        self._lock: Lock | None = lock

    def check(self) -> None:
        if self._lock is None or self._lock.is_closed():
            raise Closed("closed, or opened before a fork by the parent process; open it again")

    def close(self) -> None:
        lock, self._lock = self._lock, None
        # In a child it is closed: an unlock through an inherited descriptor would free the parent's.
        if lock is not None and not lock.is_closed():
            # Unlocked, not only closed: a process that is being started may have a copy of it.
            lock.release()
            lock.close()


class LocalBackend(Backend):
    """A directory of sessions."""

    durability: Durability
    descriptors = disk.STORE_FILES
    #: Creates `compactor`, a `BackgroundCompactor`, for the first session that has grown; None: none is
    #: compacted automatically.
    new_compactor: Callable[[Backend], Any] | None = None
    compactor: Any = None

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "sync",
        lock_timeout: float = LOCK_TIMEOUT,
        group: bool = False,
    ) -> None:
        self._root = StoreDirectory(path, create=create, read_only=read_only, group=group)
        self.index_storage = None if read_only else LocalIndexFile(self._root)
        self._internal = InternalDirectory(self._root)
        self._holds: WeakSet[LocalHold] = WeakSet()
        self.where = self._root.path
        self.counters = self._root.counters
        self.read_only = read_only
        self.durability = durability
        self.lock_timeout = lock_timeout
        self._closed = False
        self._mutex = disk.ForkLock()
        #: The logs in use, by id and `from_trash`. All handles on a session share one, and so its syncs.
        self._logs: WeakValueDictionary[tuple[str, bool], LocalLog] = WeakValueDictionary()
        #: The ids of sessions by the names of their directories.
        self._ids: dict[str, str] = {}
        #: Logs that may have files open: they stay without another reference.
        self._recent: set[LocalLog] = set()
        #: The log that was used last; None after `close`.
        self.latest: LocalLog | None = None
        disk.hold_files(self)

    def log(self, session_id: str, *, from_trash: bool = False) -> LocalLog:
        names.check_id(session_id)
        with self._mutex.lock:
            found = self._logs.get((session_id, from_trash))
            if found is None:
                name = self._name_of(session_id)
                found = LocalLog(self, self._root, session_id, name, from_trash=from_trash)
                self._logs[session_id, from_trash] = found
            return found

    def _name_of(self, session_id: str) -> str:
        """Return the name of a session's directory."""
        # `ids` returns the name of a session whose id is unknown: it must be found by that.
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
        """Record that a log is about to use its files, and close those of the least recently used ones."""
        with self._mutex.lock:
            if self._closed:
                self.check_open()
            # Most often the same one again. A race here only misjudges which is the oldest.
            if self.latest is log:
                return
            self.latest = log
            self._recent.add(log)
        disk.hold_files(self)
        disk.hold_files(log)

    def unused(self, log: LocalLog) -> None:
        """Record that a log has closed its files."""
        if self.latest is log:
            self.latest = None
        self._recent.discard(log)

    def schedule_compaction(self, session_id: str) -> None:
        """Compact a session soon, if sessions are compacted automatically."""
        compactor = self.compactor
        if compactor is None and self.new_compactor is not None:
            with self._mutex.lock:
                if self.compactor is None and not self._closed:
                    # Imports it: with too many open files that fails, and the append was acknowledged.
                    with suppress(ImportError, OSError):
                        self.compactor = self.new_compactor(self)
                compactor = self.compactor
        if compactor is not None:
            compactor.schedule(session_id)

    def release_files(self, *, wait: bool = True) -> None:  # noqa: ARG002 - never waits
        """Close all files of the store except its root directory."""
        self.latest = None
        self._root.release_files()
        if self.finder is not None:
            self.finder.release_files()

    def stage(
        self, session_id: str, *, before: int = 0, forked: SessionForked | None = None
    ) -> Stage:
        names.check_id(session_id)
        self.check_open()
        return LocalStage(self, self._root, session_id, before, forked)

    def stage_in(self, root: StoreDirectory, log_id: str, before: int) -> LocalStage:
        """Begin a log that replaces another, also an internal one."""
        return LocalStage(self, root, log_id, before)

    def internal(self, name: str) -> InternalLog:
        log_id = INTERNAL + name
        with self._mutex.lock:
            found = self._logs.get((log_id, False))
            if found is None:
                found = LocalLog(self, self._internal, log_id, names.internal_directory(name))
                self._logs[log_id, False] = found
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

    def exclusive(self, name: str) -> Hold:
        self.check_open()
        self._root.check_writable()
        hold = LocalHold(self._internal.hold(names.internal_directory(name)))
        self._holds.add(hold)
        return hold

    def _true_name(self, directory: str) -> str | None:
        """Return the name of an internal log as its header has it; None if it cannot be read."""
        header = _id_in(self._internal, directory)
        name = None if header is None else header.removeprefix(INTERNAL)
        return name if name and names.internal_directory(name) == directory else None

    def ids(self, *, trash: bool = False) -> Iterator[str]:
        return self._trashed() if trash else self._ids_of(self._root.session_names())

    def _trashed(self) -> Iterator[str]:
        moved = set(self._ids_of(self._root.trash_names()))
        yield from moved
        # After a crash between the two steps of a deletion, the note decides (F-36).
        for session_id in self.ids():
            try:
                self.log(session_id).reader()
            except SessionDeleted:
                if session_id not in moved:
                    yield session_id
            except HansardError:
                continue  # an unreadable session counts as not deleted

    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        self.check_open()
        if session_ids is None:
            return dict(changes.stamps(self._root, self._named(self._root.directories())))
        asked = ((session_id, self._name_of(session_id)) for session_id in session_ids)
        return dict(changes.stamps(self._root, asked))

    def version(self) -> str:
        self.check_open()
        return "" if self.read_only else changes.version(self._root)

    def changed(self, since: str) -> Changed:
        # A read-only store begins no epoch.
        if self.read_only:
            return super().changed(since)
        return changes.changed(self._root, self._ids_of, since)

    def _ids_of(self, found: Iterable[str]) -> Iterator[str]:
        self.check_open()
        return (session_id for session_id, _ in self._named(found))

    def _named(self, found: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield ids and names of directories; open only those whose id is unknown."""
        for name in found:
            session_id = self._ids.get(name)
            if session_id is None:
                try:
                    session_id = names.decode(name)
                except ValueError:
                    continue  # not the name of a session
                session_id = session_id or self._true_id(name)
                if session_id is not None:
                    self._ids[name] = session_id
            # Of a hashed name whose id is unknown, the name: a repair may reveal the id.
            yield session_id or name, name

    def _true_id(self, name: str) -> str | None:
        """Return the id of a session with a hashed name, from its log; None if that cannot be read."""
        session_id = _id_in(self._root, name)
        # A log that was copied here from another directory has another id.
        return session_id if session_id and names.encode(session_id) == name else None

    def delete(
        self,
        session_id: str,
        *,
        expected_seq: int | None = None,
        timeout: float | None = None,
        check: Callable[[], object] = bool,
    ) -> None:
        self._writable(session_id).delete(expected_seq, timeout, check)

    def restore(self, session_id: str) -> None:
        self._writable(session_id).restore()

    def purge(self, session_id: str, check: Callable[[], object] = bool) -> None:
        log = self._writable(session_id)
        name = self._name_of(session_id)
        purged = False
        with log.marked():
            # Also if another one is in the trash, as after a restore from a backup: `check` reads this one.
            if self._root.holds_log(name):
                log.finish_delete()
            with log.holding():
                if self._root.in_trash(name):
                    check()
                    purged = self._root.purge(name)
        if not purged:
            raise not_found(session_id, "the trash")
        # A failed sync does not concern the next session of this name.
        self._root.failed.discard(session_id)
        log.release_files()

    def _writable(self, session_id: str) -> LocalLog:
        log = self.log(session_id)
        self.check_open()
        self._root.check_writable()
        return log

    def status(self) -> "StoreStatus":
        self.check_open()
        # Imported here, because few programs call it.
        from hansard.backend.local.file_report import examine

        try:
            return examine(self._root)
        except OSError as error:
            raise disk.explain(error, "examine", self.where) from error

    @contextmanager
    def compacting(self, *, wait: bool = True, vacuum: bool = False) -> Iterator[None]:
        del vacuum  # a compaction leaves nothing
        self.check_open()
        path = f"{self.where}/{names.MARKER}"
        try:
            file = disk.open_file(self._root.descriptor, names.MARKER)
            lock = Lock(file, path, self.counters, rare=True)
            # A forked child closes the lock, and must not keep this open.
            del file
        except OSError as error:
            raise disk.explain(error, "open", path) from error
        lock.acquire(self.lock_timeout if wait else 0.0, disk.SHARED)
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
        with self._mutex.lock:
            self._closed = True
            logs = list(self._logs.values())
            self._recent.clear()
            self.latest = None
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
        segment = open_segment(directory, root.path_of(name, names.LOG), None, writable=False)
    except HansardError:
        return None
    return None if segment is None else segment.session_id
