"""Open or create a store's directory, and find, move and list the session directories in it."""

import contextlib
import errno
import shlex
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from hansard.errors import (
    Closed,
    DiskFailed,
    ReadOnly,
    SessionDeleted,
    SessionNotFound,
    StoreNotFound,
    UnknownFormat,
    UnsafePath,
)
from hansard.log import disk, format, names
from hansard.log.change_marks import ChangeMarks
from hansard.observe import Counters

#: Longer than the resolution of a file system's clock, in nanoseconds; some count in seconds.
_TICK: Final = 100_000_000
_SECOND: Final = 1_000_000_000

#: Maximum attempts to find a lock file that is replaced concurrently.
_TRIES: Final = 5

_MARKER_LIMIT: Final = 64 * 1024
_MARKER_TEXT: Final = b'{"hansard":"store","version":%d}\n' % format.VERSION
_GROUP_TEXT: Final = _MARKER_TEXT.replace(b"}", b',"group":true}')

#: What a directory may contain and still become a store: what another process is creating.
_OURS: Final = frozenset(
    {names.MARKER, names.SESSIONS, names.TRASH, names.INTERNAL, names.INDEX, names.MARKS}
)


class _Marker(msgspec.Struct):
    version: int
    hansard: str = ""
    group: bool = False


_decode_marker = msgspec.json.Decoder(_Marker).decode


class StoreDirectory:
    """The directories of an open store.

    Attributes:
        path: the store's directory, for messages.
        read_only: nothing is written, not even a lock file.
        failed: the sessions of which a sync failed in this process. The log contains a note about it, unless
            that could not be written either.
        marks: the change marks, which the index reads.
        named: `sync_names` was done.
        counters: what was done in the store since it was opened.
    """

    #: The names of the directories of logs, and of those that can be purged.
    home = names.SESSIONS
    trash = names.TRASH

    def __init__(self, path: str, *, create: bool, read_only: bool, group: bool = False) -> None:
        self.path = disk.absolute(path)
        self.read_only = read_only
        self._group = group
        self.failed: set[str] = set()
        self.marks = ChangeMarks()
        self.named = False
        self.counters = Counters()
        #: The open directories, by name; the root has an empty name. None after `close`.
        self._parts: dict[str, disk.OwnedFd] | None = {}
        disk.open_stores.add(self)
        try:
            self._open(create=create and not read_only)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and not isinstance(error, StoreNotFound | ReadOnly):
                raise disk.explain(error, "open", self.path) from error
            raise

    def _open(self, *, create: bool) -> None:
        missing = StoreNotFound(
            f"{self.path}: no hansard store here; check the path, or pass create=True"
        )
        parts = self._parts = {}
        try:
            parts[""] = disk.open_root(self.path)
        except FileNotFoundError:
            if not create:
                raise missing from None
            disk.make_root(self.path, group=self._group)
            parts[""] = disk.open_root(self.path)
        self._check_owner()
        try:
            text = disk.read_all(self.descriptor, names.MARKER, _MARKER_LIMIT)
        except FileNotFoundError:
            if not create:
                raise missing from None
            if self._group:
                self._use_as_group()
            self._make()
            text = disk.read_all(self.descriptor, names.MARKER, _MARKER_LIMIT)
        if self._check_marker(text).group:
            self._use_as_group()
        elif self._group and not self.read_only:
            raise UnsafePath(
                f"{self.path} was not created as a store of a group; create another with group=True, and "
                "copy the sessions to it"
            )
        for name in (names.SESSIONS, names.TRASH):
            self._part(name)

    def _check_owner(self) -> None:
        """Raise if another user owns the directory, and so could read or replace its files.

        For example, another user may have created it in /tmp. Root may use every directory, and every user
        may use root's. A caller that passes `group=True` trusts the group of the directory.
        """
        status, user = disk.status(self.descriptor), disk.user()
        owner = status.st_uid
        if self.read_only or user == 0 or owner in {user, 0}:
            return
        offered = disk.is_member(status.st_gid) and disk.mode(status) == disk.GROUP_DIRECTORY_MODE
        if not (offered and self._group):
            hint = ", group=True if it is for your group," if offered else ""
            raise UnsafePath(
                f"{self.path} belongs to uid {owner}; use your own directory{hint} or read_only=True"
            )

    def _use_as_group(self) -> None:
        """Create everything for the group of the root directory; raise if that cannot work (F-172)."""
        root = self.descriptor
        assert self._parts is not None  # being opened
        self._parts[""] = disk.for_group(root)
        if self.read_only:
            return
        group = disk.status(root).st_gid
        if not disk.is_member(group):
            raise UnsafePath(
                f"{self.path} is for group {group}, to which this process does not belong; add its user to "
                "that group, or use read_only=True"
            )
        for name in (".", names.SESSIONS, names.TRASH, names.INTERNAL, names.MARKS):
            with contextlib.suppress(FileNotFoundError):
                status = disk.status(root, name)
                if status.st_gid != group or disk.mode(status) != disk.GROUP_DIRECTORY_MODE:
                    raise UnsafePath(
                        f"{self.path}/{name}: a store of a group needs group {group} and mode 2770, and this "
                        f"has group {status.st_gid} and mode {disk.mode(status):o}; nothing was changed. "
                        f"Let its owner run: {_chmod(self.path, group)}"
                    )

    def _make(self) -> None:
        """Turn an empty directory into a store. Several processes may do this concurrently."""
        root = self.descriptor
        for name in disk.names(root):
            derived = names.is_temporary(name) or names.is_index_database(name)
            if name not in _OURS and not derived:
                raise UnsafePath(
                    f"{self.path} is not a hansard store and not empty (it contains {name!r}); "
                    "use an empty directory"
                )
        disk.make_directory(root, names.SESSIONS)
        disk.make_directory(root, names.TRASH)
        temporary = names.temporary(names.MARKER)
        # Another process may be faster, and write the same.
        with (
            contextlib.suppress(FileExistsError),
            disk.temporary_file(root, temporary) as descriptor,
        ):
            disk.write_all(descriptor, _GROUP_TEXT if disk.in_group_store(root) else _MARKER_TEXT)
            disk.sync(descriptor)
            # The marker comes last: a directory with it is a complete store.
            disk.publish(root, temporary, names.MARKER)
        self.sync_names()

    def _check_marker(self, text: bytes) -> _Marker:
        """Check that it is a store, then its version (F-1, F-45)."""
        path = f"{self.path}/{names.MARKER}"
        try:
            marker = _decode_marker(text)
        except format.DECODE_ERRORS:
            marker = _Marker(version=0)
        if marker.hansard != "store":
            raise UnknownFormat(f"{path}: not the marker of a hansard store; nothing was changed")
        if marker.version != format.VERSION:
            raise UnknownFormat(
                f"{path}: unsupported store version {marker.version} (supported: {format.VERSION}); "
                "nothing was changed. Upgrade hansard"
            )
        return marker

    def sync_names(self) -> None:
        """Make the directory entries of the root, and of the directories in it, durable.

        Once per opening, not only after creation: the creating process may have died before the sync. Before
        the first write, not after it: an error here, such as too many open files, must not look like a failed
        sync of records (F-31, F-35).
        """
        if self.named:
            return
        self.check_writable()
        with disk.reporting("sync", self.path, "nothing was appended"):
            disk.sync_directory(self.descriptor)
            disk.sync_above(self.descriptor)
        self.named = True

    def check_writable(self) -> None:
        """Raise if the store was opened read-only."""
        if self.read_only:
            raise ReadOnly(f"{self.path}: store is read-only; reopen without read_only=True")

    # -- open directories -----------------------------------------------------------------------

    @property
    def descriptor(self) -> int:
        """The descriptor of the store's root directory."""
        return self._part("")

    @property
    def sessions(self) -> int:
        """The directory of sessions; -1 if it is missing and the store is read-only."""
        return self._part(self.home)

    @property
    def _trash(self) -> int:
        return self._part(self.trash)

    def _part(self, name: str) -> int:
        """Return an open directory; -1 if it is missing and was not created."""
        parts = self._parts
        if parts is None:
            # Another thread closed it during this call.
            raise Closed(f"{self.path}: the store was closed; open it again")
        found = parts.get(name)
        if found is None:
            found = self._open_part(name)
            if found is None:
                return -1
            parts[name] = found
        return found

    def _open_part(self, name: str) -> disk.OwnedFd | None:
        root = self.descriptor
        try:
            return disk.open_directory(root, name)
        except FileNotFoundError:
            # The directory of internal logs is created with the first of them.
            if self.read_only or name == names.INTERNAL:
                return None
            # Its content is lost already: an empty directory loses nothing more.
            disk.make_directory(root, name)
            return disk.open_directory(root, name)

    def close(self) -> None:
        """Close the directories; one that a thread is using is closed when that call ends."""
        self._parts = None
        self.marks.close()
        disk.open_stores.discard(self)

    def release_files(self) -> None:
        """Close all directories except the root, until they are needed again."""
        parts = self._parts
        if parts is not None:
            for name in (names.SESSIONS, names.TRASH, names.INTERNAL):
                parts.pop(name, None)
        self.marks.close()

    # -- one session ----------------------------------------------------------------------------

    def path_of(self, name: str, file: str = "") -> str:
        """Return the path of a session's directory or of a file in it, for messages."""
        return f"{self.path}/{self.home}/{name}" + (f"/{file}" if file else "")

    def _path_in_trash(self, name: str) -> str:
        return f"{self.path}/{self.trash}/{name}"

    def open_session(
        self, session_id: str, name: str, *, create: bool = False, from_trash: bool = False
    ) -> disk.OwnedFd | None:
        """Open a session's directory; None if there is none.

        Raises if it is in the trash, unless `from_trash`: then it is opened there.
        """
        second_try = False
        while (found := self.open_in(self.home, name)) is None:
            if self.in_trash(name):
                if not from_trash:
                    raise deleted(session_id)
                found = self.open_in(self.trash, name)
                if found is not None:
                    break
                continue  # restored or purged concurrently
            if create:
                with disk.reporting("open", self.path_of(name)):
                    disk.make_directory(self.sessions, name)
            elif second_try:
                break
            # It may have been restored between the two checks: try again.
            second_try = True
        return found

    def open_in(self, part: str, name: str) -> disk.OwnedFd | None:
        """Open the directory of a name in `home` or in `trash`; None if there is none."""
        try:
            directory = self._part(part)
            # Otherwise the store is read-only, and that directory is missing.
            return disk.open_directory(directory, name) if directory >= 0 else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk.explain(error, "open", self.path_of(name)) from error

    def pass_lock(self, name: str, timeout: float) -> None:
        """Wait until no process held the lock of a session at some moment."""
        deadline = time.monotonic() + timeout
        path = self.path_of(name, names.LOCK)
        for _ in range(_TRIES):
            directory = self.open_in(self.home, name)
            if directory is None:
                return  # deleted with its lock held
            # Another open file: what this process holds through its own is held, too.
            lock = disk.open_lock(directory, names.LOCK, path, self.counters, create=False)
            if lock is None:
                return  # no process has written here since it was lost
            lock.pass_through(max(0.0, deadline - time.monotonic()))
            if lock.exists():
                return

    @contextlib.contextmanager
    def holding(self, name: str, timeout: float) -> Iterator[bool]:
        """Hold the lock of a session, in the trash or not; False if there is no such directory."""
        for _ in range(_TRIES):
            with disk.reporting("open", self.path_of(name)):
                there = disk.present(self.sessions, f"{name}/{names.LOG}")
            part = names.SESSIONS if there else names.TRASH
            directory = self.open_in(part, name)
            if directory is None:
                continue  # missing, or moved concurrently
            path = f"{self.path}/{part}/{name}/{names.LOCK}"
            # Another open file: the lock of this process's writer does not count as held.
            lock = disk.open_lock(directory, names.LOCK, path, self.counters)
            if lock is None:
                continue  # purged concurrently
            try:
                lock.acquire(timeout)
                with disk.reporting("lock", path):
                    # Otherwise it was purged, or replaced by a repair, before the lock was taken.
                    found = any(
                        disk.is_named(where, f"{name}/{names.LOCK}", lock.descriptor)
                        for where in (self.sessions, self._trash)
                    )
                if found:
                    yield True
                    return
            finally:
                lock.release()
                # An error keeps this frame: it must not keep files open.
                lock.close()
                del directory
        yield False

    def in_trash(self, name: str) -> bool:
        """Return whether a deleted session of this name is in the trash."""
        with disk.reporting("open", self._path_in_trash(name)):
            return self._trash >= 0 and disk.present(self._trash, name)

    def move_to_trash(self, name: str) -> None:
        """Move a session's directory to the trash. Not yet durable; the caller holds its lock."""
        self._move(self.sessions, name, self._trash)

    def move_from_trash(self, name: str) -> bool:
        """Move a session's directory back; False if another process did. Not yet durable."""
        try:
            return self._move(self._trash, name, self.sessions)
        except DiskFailed as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            self._clear(name)
            return self._move(self._trash, name, self.sessions)

    def _move(self, source: int, name: str, target: int) -> bool:
        self.check_writable()
        with disk.reporting("move", self.path_of(name)):
            try:
                disk.move(source, name, target, name)
            except FileNotFoundError:
                return False
        return True

    def _clear(self, name: str) -> None:
        """Empty a directory in which a session was being created when its name was moved to the trash."""
        with disk.reporting("move", self.path_of(name)):
            directory = disk.open_directory(self.sessions, name)
            if not disk.present(directory, names.LOG):
                disk.remove(directory, names.LOCK)

    def sync_move(self, name: str) -> None:
        """Make a move to or from the trash durable."""
        with disk.reporting("move", self.path_of(name)):
            # In this order: a crash in between may leave the directory in both places, never in none.
            disk.sync_directory(self._trash)
            disk.sync_directory(self.sessions)

    def purge(self, name: str) -> bool:
        """Delete a session's directory in the trash permanently; False if it is not there."""
        self.check_writable()
        self.sweep_trash()
        path = self._path_in_trash(name)
        temporary = names.temporary(names.PURGED)
        with disk.reporting("purge", path, "nothing was purged"):
            try:
                # Only a directory is a session; hansard did not create a link or a file.
                disk.open_directory(self._trash, name)
                # Renamed first: a crash leaves a temporary directory, never half a session.
                disk.move(self._trash, name, self._trash, temporary)
            except FileNotFoundError:
                return False
        hint = f"the session is purged, but some of its files are still in {temporary}"
        try:
            # A power cut must not restore the name without its files.
            disk.sync_directory(self._trash)
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                disk.remove_directory(self._trash, temporary)
        except OSError as error:
            raise DiskFailed("purge", path, error, hint) from error
        return True

    def sweep_trash(self) -> None:
        """Finish purges that a crash interrupted."""
        # Errors of the trash are reported when it is used.
        with contextlib.suppress(OSError):
            for name in list(disk.names(self._trash)):
                # No other one: in a store of a group, a process may be creating a directory.
                if names.is_purged(name):
                    # Several processes may remove the same files.
                    with contextlib.suppress(OSError):
                        disk.remove_directory(self._trash, name)

    # -- all sessions ---------------------------------------------------------------------------

    def directories(self) -> Iterator[str]:
        """Yield all names in the directory of sessions, unchecked."""
        with disk.reporting("list", f"{self.path}/{self.home}"):
            if self.sessions >= 0:
                yield from disk.names(self.sessions)

    def session_names(self) -> Iterator[str]:
        """Yield the names of the directories that hold a log, unsorted. None is opened."""
        return filter(self.holds_log, self.directories())

    def trash_names(self) -> Iterator[str]:
        """Yield the names of the directories in the trash that hold a log, unsorted."""
        with disk.reporting("list", f"{self.path}/{names.TRASH}"):
            for name in disk.names(self._trash) if self._trash >= 0 else ():
                # Neither what an interrupted purge left, nor a link, which was never a session.
                if names.is_temporary(name) or disk.is_link(self._trash, name):
                    continue
                if _holds_log(self._trash, name):
                    yield name

    def holds_log(self, name: str) -> bool:
        """Return whether a log exists, readable or not."""
        return _holds_log(self.sessions, name)

    # -- staging --------------------------------------------------------------------------------

    def create_staged(self) -> tuple[str, disk.OwnedFd]:
        """Create a temporary file for a new log; return its name and the open file (F-135)."""
        self.check_writable()
        # Remove files of processes that died: large imports may leave much.
        sweep(self.descriptor)
        name = names.temporary(names.STAGED)
        try:
            return name, disk.create_file(self.descriptor, name)
        except OSError as error:
            hint = "nothing was added to the store"
            raise disk.explain(error, "create", f"{self.path}/{name}", hint) from error

    def discard_staged(self, name: str) -> None:
        """Remove it."""
        with contextlib.suppress(Closed):  # then the next staging removes it
            disk.discard(self.descriptor, name)

    # -- probe ----------------------------------------------------------------------------------

    def probe(self) -> int:
        """Write, sync and delete a small file; return the free space in bytes."""
        with disk.reporting("probe", self.path):
            if not self.read_only:
                name, file = self.create_staged()
                try:
                    disk.write_all(file, b"hansard\n")
                    disk.sync(file)
                finally:
                    # Before it is closed: afterwards, another process may remove it.
                    disk.remove(self.descriptor, name)
            return disk.free_bytes(self.descriptor)


class InternalDirectory(StoreDirectory):
    """The directory of internal logs, which are found as sessions are (F-158).

    They are never in the trash, and no change mark names them.
    """

    home = names.INTERNAL
    #: A log that is dropped is removed like one in the trash.
    trash = names.INTERNAL

    def __init__(self, store: StoreDirectory) -> None:
        self._store = store
        self.named = False
        self.path = store.path
        self.read_only = store.read_only
        self.failed = set()
        self.counters = store.counters
        self.marks = ChangeMarks(used=False)

    def _part(self, name: str) -> int:
        return self._store._part(name)  # noqa: SLF001 - the same class

    def open_session(
        self, session_id: str, name: str, *, create: bool = False, from_trash: bool = False
    ) -> disk.OwnedFd | None:
        """Open a log's directory; None if there is none."""
        with disk.reporting("open", self.path_of(name)):
            if create and self.sessions < 0:
                disk.make_directory(self.descriptor, names.INTERNAL)
        return super().open_session(session_id, name, create=create, from_trash=from_trash)

    def in_trash(self, name: str) -> bool:  # noqa: ARG002 - as in the base class
        """Return False."""
        return False

    def hold(self, name: str) -> disk.Lock:
        """Take the lock of a log's holder (F-160); create its file if it is missing."""
        path = self.path_of(name, names.HOLDER)
        while True:
            directory = self.open_session(name, name, create=True)
            if directory is None:
                continue  # removed as soon as it was created
            lock = disk.open_lock(directory, names.HOLDER, path, rare=True)
            if lock is None:
                continue  # the log was dropped, and its directory with it
            lock.acquire(0.0)
            try:
                # Otherwise it was dropped before the lock was taken (F-164): another directory has its name.
                if disk.is_named(self.sessions, f"{name}/{names.HOLDER}", lock.descriptor):
                    return lock
            except OSError as error:
                lock.release()
                raise disk.explain(error, "lock", path) from error


def _holds_log(part: int, name: str) -> bool:
    try:
        # A dangling link counts as an unreadable session, and so do sealed segments without the last one.
        return (
            disk.present(part, f"{name}/{names.LOG}")
            or disk.is_link(part, name)
            or any(map(names.sealed_first_seq, disk.names(disk.open_directory(part, name))))
        )
    except (FileNotFoundError, NotADirectoryError):
        return False  # removed, or a file that hansard did not create
    except OSError:
        return True  # an unreadable session


def is_past(changed: int) -> bool:
    """Return whether a change, at a time in nanoseconds, is old enough for a later one to have another time.

    Changes within a tick of the file system's clock have the same time.
    """
    return abs(time.time_ns() - changed) >= (_TICK if changed % _SECOND else 4 * _SECOND)


def sweep(directory: int) -> None:
    """Delete the temporary files in a directory that no process has locked."""
    try:
        found = [name for name in disk.names(directory) if names.is_temporary(name)]
    except OSError:
        return  # the caller's own operation reports errors
    for name in found:
        # Skip one that is in use, or was removed or renamed concurrently.
        with contextlib.suppress(OSError):
            disk.remove_unused(directory, name)


def _chmod(path: str, group: int) -> str:
    """Return the commands that make a store one of a group."""
    place = shlex.quote(path)
    return (
        f"chgrp -R {group} {place}; chmod -R u=rwX,g=rwX,o= {place}; "
        f"find {place} -type d -exec chmod g+s {{}} +"
    )


def not_found(session_id: str, where: str = "this store") -> SessionNotFound:
    """Return the error for a session that does not exist."""
    return SessionNotFound(f"no session {session_id!r} in {where}")


def deleted(session_id: str) -> SessionDeleted:
    """Return the error for a session that is in the trash."""
    return SessionDeleted(
        f"session {session_id!r} is in the trash; restore it with store.restore(id)"
    )
