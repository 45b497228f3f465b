"""Open or make a store's directory, and find, move and list the session directories in it."""

import contextlib
import errno
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from hansard.errors import (
    Closed,
    DiskFailed,
    ReadOnly,
    SessionDeleted,
    StoreNotFound,
    UnknownFormat,
    UnsafePath,
)
from hansard.log import descriptors, disk, format, names
from hansard.log.marks import Marks, NoMarks

#: Longer than file systems take to notice that time has passed, in nanoseconds; some count in seconds.
_TICK: Final = 100_000_000
_SECOND: Final = 1_000_000_000

_MARKER_LIMIT = 64 * 1024
_MARKER_TEXT = b'{"hansard":"store","version":%d}\n' % format.VERSION


class _Marker(msgspec.Struct):
    version: int
    hansard: str = ""


class StoreDirectory:
    """The directories of an open store.

    Attributes:
        path: the store's directory, for people.
        read_only: nothing is ever written, not even a lock file.
        failed: the sessions of which a sync failed in this process. The log says so too, if it
            could still be written; this remembers it if not.
        marks: which sessions have changed, for whoever keeps an index.
    """

    __slots__ = ("__weakref__", "_named", "_parts", "failed", "marks", "path", "read_only")

    def __init__(self, path: str, *, create: bool, read_only: bool) -> None:
        self.path = disk.absolute(path)
        self.read_only = read_only
        self.failed: set[str] = set()
        self.marks = Marks()
        self._named = False
        #: The directories that are open, the root itself under no name; None once it was closed.
        self._parts: dict[str, disk.OwnedDirFd] | None = {}
        descriptors.stores.add(self)
        try:
            self._open(create=create and not read_only)
        except OSError as error:
            self.close()
            if isinstance(error, StoreNotFound | ReadOnly):
                raise
            raise disk.explain(error, "open", self.path) from error
        except BaseException:
            self.close()
            raise

    def _open(self, *, create: bool) -> None:
        missing = StoreNotFound(
            f"{self.path}: no hansard store here; check the path, or pass create=True"
        )
        parts = self._parts = {}
        try:
            parts[""] = disk.OwnedDirFd(disk.open_root(self.path))
        except FileNotFoundError:
            if not create:
                raise missing from None
            disk.make_root(self.path)
            parts[""] = disk.OwnedDirFd(disk.open_root(self.path))
        self._check_owner()
        try:
            text = disk.read_all(self._descriptor, names.MARKER, _MARKER_LIMIT)
        except FileNotFoundError:
            if not create:
                raise missing from None
            self._make()
            text = disk.read_all(self._descriptor, names.MARKER, _MARKER_LIMIT)
        self._check(text)
        for name in (names.SESSIONS, names.TRASH):
            self._part(name)

    def _check_owner(self) -> None:
        """Raise if the directory is another user's, who could read, or swap, whatever is written into it.

        So is a directory that somebody has made in a place where all may, such as /tmp, before we came. The
        superuser may use whose directory he likes, and all may use his.
        """
        owner, user = disk.status(self._descriptor).owner, disk.user()
        if not self.read_only and user != 0 and owner not in {user, 0}:
            raise UnsafePath(
                f"{self.path} belongs to uid {owner}; use your own directory or read_only=True"
            )

    def _make(self) -> None:
        """Turn an empty directory into a store. Two processes may do so at once."""
        ours = {
            names.MARKER,
            names.SESSIONS,
            names.TRASH,
            names.INTERNAL,
            names.INDEX,
            names.MARKS,
        }
        for name in disk.names(self._descriptor):
            derived = names.is_temporary(name) or names.is_index_database(name)
            if name not in ours and not derived:
                raise UnsafePath(
                    f"{self.path} is not a hansard store and not empty (it contains {name!r}); "
                    "use an empty directory"
                )
        disk.make_directory(self._descriptor, names.SESSIONS)
        disk.make_directory(self._descriptor, names.TRASH)
        temporary = names.temporary(names.MARKER)
        descriptor = disk.create_file(self._descriptor, temporary)
        try:
            disk.write_all(descriptor, _MARKER_TEXT)
            disk.sync(descriptor)
            # The marker comes last: with it the directory is a store, and its parts are there.
            disk.publish(self._descriptor, temporary, names.MARKER)
        except FileExistsError:
            # Another process was faster, and wrote the same.
            disk.discard(self._descriptor, temporary)
        except BaseException:
            disk.discard(self._descriptor, temporary)
            raise
        finally:
            disk.close(descriptor)
        self.sync_names()

    def sync_names(self) -> None:
        """Make the names that lead to the sessions durable: the root's, and those in it.

        Once for each opening, not only by whoever made them: that process may have died, or been
        refused, between the making and the sync. Before the write, not after it: what is refused here,
        such as one more descriptor, must not look like a failed sync of records (F-31, F-35).
        """
        if self._named:
            return
        self.check_writable()
        try:
            disk.sync_directory(self._descriptor)
            disk.sync_above(self._descriptor)
        except OSError as error:
            raise disk.explain(error, "sync", self.path, "nothing was appended") from error
        self._named = True

    def _check(self, text: bytes) -> None:
        """Ours? A version we know? In this order (F-1, F-2)."""
        path = f"{self.path}/{names.MARKER}"
        try:
            marker = msgspec.json.decode(text, type=_Marker)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            marker = _Marker(version=0)
        if marker.hansard != "store":
            raise UnknownFormat(f"{path}: not the marker of a hansard store; nothing was changed")
        if marker.version != format.VERSION:
            raise UnknownFormat(
                f"{path}: unsupported store version {marker.version} (supported: {format.VERSION}); "
                "nothing was changed. Upgrade hansard"
            )

    def _open_part(self, name: str) -> int | None:
        try:
            return disk.open_directory(self._descriptor, name)
        except FileNotFoundError:
            # That of the internal logs is created with the first of them.
            if self.read_only or name == names.INTERNAL:
                return None
            # Derived from nothing and holding nothing: an empty one is as good as a lost one.
            disk.make_directory(self._descriptor, name)
            return disk.open_directory(self._descriptor, name)

    def close(self) -> None:
        """Close the directories; one that a thread is using, when that is done with it."""
        self._parts = None
        self.marks.close()
        descriptors.stores.discard(self)

    def let_go(self) -> None:
        """Close all but the store's own directory, until they are needed again."""
        parts = self._parts
        if parts is not None:
            for name in (names.SESSIONS, names.TRASH, names.INTERNAL):
                parts.pop(name, None)
        self.marks.close()

    @property
    def _descriptor(self) -> int:
        return self._part("")

    @property
    def descriptor(self) -> int:
        """The store's own directory."""
        return self._descriptor

    @property
    def sessions(self) -> int:
        """The directory of sessions; -1 if it is missing, and the store read-only."""
        return self._sessions

    @property
    def _sessions(self) -> int:
        return self._part(names.SESSIONS)

    @property
    def _trash(self) -> int:
        return self._part(names.TRASH)

    def _part(self, name: str) -> int:
        """Return an open directory; -1 if it is missing and was not created."""
        parts = self._parts
        if parts is None:
            # By another thread, in the middle of this call.
            raise Closed(f"{self.path}: the store was closed; open it again")
        found = parts.get(name)
        if found is None:
            descriptor = self._open_part(name)
            if descriptor is None:
                return -1
            found = parts[name] = disk.OwnedDirFd(descriptor)
        return found

    def check_writable(self) -> None:
        """Raise if the store was opened to be read only."""
        if self.read_only:
            raise ReadOnly(f"{self.path}: store is read-only; reopen without read_only=True")

    # -- session directories --------------------------------------------------------------------

    def path_of(self, name: str, file: str = "") -> str:
        """Return the path of a session's directory or of a file in it, for people."""
        return f"{self.path}/{names.SESSIONS}/{name}" + (f"/{file}" if file else "")

    def open_session(
        self, session_id: str, name: str, *, create: bool = False, buried: bool = False
    ) -> int | None:
        """Open a session's directory; None if there is none.

        Raises if it is in the trash, unless `buried`: then it is opened there.
        """
        looked = False
        try:
            if self._sessions < 0 <= self._descriptor:
                return None  # read-only, and the directory of sessions is missing
            while True:
                try:
                    return disk.open_directory(self._sessions, name)
                except FileNotFoundError:
                    if self.in_trash(name):
                        if buried:
                            try:
                                # Not in a `with`: an interrupt at its end would lose the descriptor.
                                return disk.open_directory(self._trash, name)
                            except FileNotFoundError:
                                continue  # restored, or purged, just now
                        raise deleted(session_id) from None
                    if create:
                        disk.make_directory(self._sessions, name)
                    elif looked:
                        return None
                    # It may have been restored between the two looks: once more, or it would seem absent.
                    looked = True
        except OSError as error:
            raise disk.explain(error, "open", self.path_of(name)) from error

    def open_live(self, name: str) -> int | None:
        """Open the directory of a session that was not moved to the trash; None if there is none."""
        return self._open_in(self._sessions, name, self.path_of(name))

    def open_trashed(self, name: str) -> int | None:
        """Open the directory of a deleted session; None if there is none."""
        return self._open_in(self._trash, name, f"{self.path}/{names.TRASH}/{name}")

    @staticmethod
    def _open_in(part: int, name: str, path: str) -> int | None:
        try:
            return disk.open_directory(part, name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk.explain(error, "open", path) from error

    def in_trash(self, name: str) -> bool:
        """Say whether a deleted session of this name waits in the trash."""
        try:
            return self._trash >= 0 and disk.present(self._trash, name)
        except OSError as error:
            raise disk.explain(error, "open", f"{self.path}/{names.TRASH}/{name}") from error

    def to_trash(self, name: str) -> bool:
        """Move a session's directory into the trash; False if another was faster. Not yet durable."""
        return self._move(self._sessions, name, self._trash)

    def from_trash(self, name: str) -> bool:
        """Move a session's directory back; False if another was faster. Not yet durable."""
        try:
            return self._move(self._trash, name, self._sessions)
        except DiskFailed as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            self._clear(name)
            return self._move(self._trash, name, self._sessions)

    def _move(self, source: int, name: str, target: int) -> bool:
        self.check_writable()
        try:
            disk.move(source, name, target, name)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise disk.explain(error, "move", self.path_of(name)) from error
        return True

    def sync_move(self, name: str) -> None:
        """Make a move into the trash, or out of it, durable."""
        try:
            # Both: a crash between them may show the directory in two places, never in none.
            disk.sync_directory(self._trash)
            disk.sync_directory(self._sessions)
        except OSError as error:
            raise disk.explain(error, "move", self.path_of(name)) from error

    def purge(self, name: str) -> bool:
        """Delete a session's directory in the trash for good; False if it is not there."""
        self.check_writable()
        self.sweep_trash()
        path = self._path_in_trash(name)
        temporary = names.temporary("purged")
        try:
            # Only what is a directory is a session; a link or a file was put there by somebody else.
            disk.close(disk.open_directory(self._trash, name))
            # Out of the way first, and whole: a crash leaves rubbish, never half a session.
            disk.move(self._trash, name, self._trash, temporary)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise disk.explain(error, "purge", path, "nothing was purged") from error
        try:
            # A power cut must not bring the name back when its files are gone.
            disk.sync_directory(self._trash)
            with contextlib.suppress(FileNotFoundError):  # another one swept it
                disk.remove_directory(self._trash, temporary)
        except OSError as error:
            hint = f"the session is gone, and what is left of its files is in {temporary}"
            raise DiskFailed("purge", path, error, hint) from error
        return True

    def _path_in_trash(self, name: str) -> str:
        return f"{self.path}/{names.TRASH}/{name}"

    def sweep_trash(self) -> None:
        """Go on with purges that a crash ended."""
        # Only tidying up: what is wrong with the trash shows when it is used.
        with contextlib.suppress(OSError):
            for name in list(disk.names(self._trash)):
                # Two processes may remove the same files.
                if names.is_temporary(name):
                    with contextlib.suppress(OSError):
                        disk.remove_directory(self._trash, name)

    def trash_names(self) -> Iterator[str]:
        """Yield the names of the directories in the trash that hold a log, unsorted."""
        if self._trash < 0:
            return
        try:
            for name in disk.names(self._trash):
                if names.is_temporary(name):
                    continue  # what a purge that was ended has left: nobody reads it any more
                # A link there was never a session: one that is moved keeps what it is.
                if not disk.is_link(self._trash, name) and self._holds_log(self._trash, name):
                    yield name
        except OSError as error:
            raise disk.explain(error, "list", f"{self.path}/{names.TRASH}") from error

    def directories(self) -> Iterator[str]:
        """Yield all names in the directory of sessions, without a look at what they are."""
        if self._sessions < 0:
            return
        try:
            yield from disk.names(self._sessions)
        except OSError as error:
            raise disk.explain(error, "list", f"{self.path}/{names.SESSIONS}") from error

    def population(self) -> object:
        """Return something that changes when a session's directory comes, goes or moves."""
        try:
            found = [disk.version(self._descriptor, part) for part in (names.SESSIONS, names.TRASH)]
        except OSError:
            return object()
        return found if all(is_past(changed) for _, changed, _ in found) else object()

    def stamps(self) -> Iterator[tuple[str, int]]:
        """Yield the name of each session's directory, with a number that changes when its log grows."""
        if self._sessions < 0:
            return
        try:
            for name in disk.names(self._sessions):
                with contextlib.suppress(
                    OSError
                ):  # no log, or not yet, or it cannot be looked into
                    yield name, disk.stamp(self._sessions, f"{name}/{names.LOG}")
        except OSError as error:
            raise disk.explain(error, "list", f"{self.path}/{names.SESSIONS}") from error

    def _clear(self, name: str) -> None:
        """Empty a directory in which a session was about to begin when its name went to the trash."""
        try:
            directory = disk.open_directory(self._sessions, name)
            try:
                if not disk.present(directory, names.LOG):
                    disk.remove(directory, names.LOCK)
            finally:
                disk.close(directory)
        except OSError as error:
            raise disk.explain(error, "move", self.path_of(name)) from error

    def session_names(self) -> Iterator[str]:
        """Yield the names of the directories that hold a log, unsorted."""
        try:
            if self._sessions < 0:
                return
            for name in disk.names(self._sessions):
                # Only asked whether it is there: what is wrong with it shows when it is opened.
                if self.holds_log(name):
                    yield name
        except OSError as error:
            raise disk.explain(error, "list", f"{self.path}/{names.SESSIONS}") from error

    def holds_log(self, name: str) -> bool:
        """Say whether there is a log under this name, be it one that cannot be read."""
        return self._holds_log(self._sessions, name)

    @staticmethod
    def _holds_log(part: int, name: str) -> bool:
        try:
            # A link that leads nowhere is a session that somebody took away, not none.
            return disk.present(part, f"{name}/{names.LOG}") or disk.is_link(part, name)
        except NotADirectoryError:
            return False  # a file: not ours
        except OSError:
            return True  # it cannot be looked into: a session that cannot be read, not none

    # -- what is to become a log ----------------------------------------------------------------

    def create_staged(self) -> tuple[str, int]:
        """Create a file for a log that nobody sees yet; return its name, and the open file (F-135)."""
        self.check_writable()
        # What others died over: of large imports much may be left.
        sweep(self._descriptor)
        name = names.temporary(names.STAGED)
        try:
            return name, disk.create_file(self._descriptor, name)
        except OSError as error:
            hint = "nothing was added to the store"
            raise disk.explain(error, "create", f"{self.path}/{name}", hint) from error

    def move_staged(self, name: str, directory: int) -> None:
        """Make it the log of a session. The caller holds the session's lock, and there is no log (F-136)."""
        disk.move(self._descriptor, name, directory, names.LOG)

    def discard_staged(self, name: str) -> None:
        """Remove it."""
        with contextlib.suppress(Closed):  # then the next one who stages something sweeps it up
            disk.discard(self._descriptor, name)

    # -- the whole ------------------------------------------------------------------------------

    def probe(self) -> int:
        """Write, sync and delete a small file; return the bytes that are free."""
        temporary = names.temporary("probe")
        try:
            if not self.read_only:
                sweep(self._descriptor)
                descriptor = disk.create_file(self._descriptor, temporary)
                try:
                    disk.write_all(descriptor, b"hansard\n")
                    disk.sync(descriptor)
                finally:
                    # In this order: once it is closed, others may sweep it.
                    try:
                        disk.remove(self._descriptor, temporary)
                    finally:
                        disk.close(descriptor)
            return disk.free_bytes(self._descriptor)
        except OSError as error:
            raise disk.explain(error, "probe", self.path) from error


class InternalDirectory(StoreDirectory):
    """The directory of internal logs, which are found as sessions are (F-158).

    They are never in the trash, and no change marker names them.
    """

    __slots__ = ("_store",)

    def __init__(self, store: StoreDirectory) -> None:
        self._store = store
        self._named = False
        self.path = store.path
        self.read_only = store.read_only
        self.failed = set()
        self.marks = NoMarks()

    def _part(self, name: str) -> int:
        # A log that is dropped is removed like one in the trash.
        moved = name in {names.SESSIONS, names.TRASH}
        return self._store._part(names.INTERNAL if moved else name)  # noqa: SLF001 - of its own class

    def path_of(self, name: str, file: str = "") -> str:
        """Return the path of a log's directory or of a file in it, for people."""
        return f"{self.path}/{names.INTERNAL}/{name}" + (f"/{file}" if file else "")

    def open_session(
        self, session_id: str, name: str, *, create: bool = False, buried: bool = False
    ) -> int | None:
        """Open a log's directory; None if there is none."""
        try:
            if create and self._sessions < 0:
                disk.make_directory(self._descriptor, names.INTERNAL)
        except OSError as error:
            raise disk.explain(error, "open", self.path_of(name)) from error
        return super().open_session(session_id, name, create=create, buried=buried)

    def in_trash(self, name: str) -> bool:
        """Return False: no internal log is ever there."""
        del name
        return False

    def _path_in_trash(self, name: str) -> str:
        return self.path_of(name)

    def open_holder(self, name: str) -> disk.Lock:
        """Open the file that is locked by whoever holds a log (F-160); create it if it is missing."""
        path = self.path_of(name, names.HOLDER)
        while True:
            directory = self.open_session(name, name, create=True)
            if directory is None:
                continue  # removed as soon as it was created
            try:
                return disk.Lock(
                    disk.open_file(directory, names.HOLDER, writable=True, create=True), path
                )
            except FileNotFoundError:
                continue  # the log was dropped, and its directory with it
            except OSError as error:
                raise disk.explain(error, "open", path) from error
            finally:
                disk.close(directory)

    def is_holder(self, name: str, lock: disk.Lock) -> bool:
        """Return whether an open lock is that of the log which has this name."""
        try:
            return disk.is_named(self._sessions, f"{name}/{names.HOLDER}", lock.descriptor)
        except OSError as error:
            raise disk.explain(error, "lock", self.path_of(name, names.HOLDER)) from error


def is_past(changed: int) -> bool:
    """Return whether a change, at a time in nanoseconds, is old enough for a later one to have another time.

    Two changes within a tick of the file system's clock have the same time.
    """
    return abs(time.time_ns() - changed) >= (_TICK if changed % _SECOND else 4 * _SECOND)


def sweep(directory: int) -> list[str]:
    """Delete the temporary files in a directory that no process has locked; return their names."""
    swept: list[str] = []
    try:
        found = [name for name in disk.names(directory) if names.is_temporary(name)]
    except OSError:
        return swept  # it is only tidying up: what it was called on goes on, or says what is wrong
    for name in found:
        try:
            disk.remove_unused(directory, name)
            swept.append(name)
        except OSError:
            continue  # it is in use, or has just been swept or renamed, or must stay
    return swept


def deleted(session_id: str) -> SessionDeleted:
    """Return the error for a session that is in the trash."""
    return SessionDeleted(
        f"session {session_id!r} is in the trash; restore it with store.restore(id)"
    )
