"""Find, list, read and drop the cursors of a store: the directory that holds their files.

Above: `cursor`, `backend.cursors`.  Below: `positions`, `root`, `lock`, `disk`; docs/format.md, F-48 to F-56.
"""

import os
import time
from typing import Final

from hansard.errors import Damaged, HansardError, LockTimeout
from hansard.log import disk, names, positions
from hansard.log.disk import Lock
from hansard.log.store_directory import StoreDirectory

#: Ten millions of sessions take less. More is read into nobody's memory (N-74).
_LARGEST: Final = 1 << 30


class Place(disk.OwnedFd):
    """Where the files of one cursor are: the open directory, and their names in it.

    Attributes:
        descriptor: the directory.
        name: the cursor.
        file: the name of its file; `path`: the same, for people.
    """

    __slots__ = ("_lock_file", "_lock_path", "file", "name", "path")

    def __init__(self, root: StoreDirectory, directory: int, name: str) -> None:
        super().__init__(directory)
        self.name = name
        base = self._base(root)
        self.file, self._lock_file = names.cursor_files(base)
        self.path = root.path_of_cursor(self.file)
        self._lock_path = root.path_of_cursor(self._lock_file)

    def _base(self, root: StoreDirectory) -> str:
        """Return what the names of the files begin with."""
        # What `list_names` calls by its file, for want of its name, must be found under it.
        if names.is_hashed(self.name):
            file = names.cursor_files(self.name)[0]
            path = root.path_of_cursor(file)
            if (
                _there(self.descriptor, file, path)
                and _true_name(self.descriptor, file, path) is None
            ):
                return self.name
        return names.encode(self.name)

    def read(self) -> bytes | None:
        """Return all bytes of the file; None if nobody has moved the cursor."""
        return _read_file(self.descriptor, self.file, self.path)

    def take_lock(self, timeout: float) -> Lock:
        """Take the cursor's lock, waiting for at most `timeout` seconds (F-55)."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                file = disk.open_file(self.descriptor, self._lock_file, writable=True, create=True)
            except OSError as error:
                raise disk.explain(error, "open", self._lock_path) from error
            lock = Lock(file, self._lock_path)
            try:
                lock.acquire(max(0.0, deadline - time.monotonic()))
                if self._is_named(lock):
                    return lock
            except LockTimeout as error:
                lock.close()
                raise self._in_use(error.holder) from None
            except BaseException:
                lock.close()
                raise
            # The cursor was dropped between the opening and the locking: there is another file by now.
            lock.close()

    def _is_named(self, lock: Lock) -> bool:
        """Say whether the file that is locked is still the one under the name (F-56)."""
        try:
            found = disk.open_file(self.descriptor, self._lock_file)
            try:
                return disk.identity(found)[:2] == disk.identity(lock.descriptor)[:2]
            finally:
                disk.close(found)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise disk.explain(error, "lock", self._lock_path) from error

    def _in_use(self, holder: int | None) -> LockTimeout:
        who = "another process"
        if holder == os.getpid():
            who = f"this process, {holder}"
        elif holder is not None:
            command = disk.command_of(holder)
            who = f"process {holder}" + (f" ({command})" if command else "")
        return LockTimeout(
            f"{self._lock_path}: cursor {self.name!r} is open in {who}; close it there, or take "
            "another name: two consumers of one cursor would each miss what the other has read",
            holder=holder,
        )

    def is_there(self) -> bool:
        """Say whether there is a file."""
        return _there(self.descriptor, self.file, self.path)

    def is_known(self) -> bool:
        """Say whether there is anything of the cursor, be it only a lock file."""
        return self.is_there() or _there(self.descriptor, self._lock_file, self._lock_path)

    def remove(self, *, syncs: bool) -> None:
        """Remove the files. The caller holds the lock."""
        try:
            if self.is_there():
                disk.remove(self.descriptor, self.file)
            # The lock last: a crash in between leaves a cursor that nobody has moved.
            disk.remove(self.descriptor, self._lock_file)
            if syncs:
                disk.sync_directory(self.descriptor)
        except OSError as error:
            raise disk.explain(error, "remove", self.path) from error


def find(root: StoreDirectory, name: str, *, create: bool = False) -> Place | None:
    """Return where a cursor's files are, or would be; None if there is no directory for them."""
    directory = root.open_cursors(create=create)
    return None if directory is None else Place(root, directory, name)


def read_positions(root: StoreDirectory, name: str) -> dict[str, int]:
    """Return a cursor's positions as they are now. Takes no lock and makes nothing (F-55)."""
    place = find(root, name)
    if place is None:
        return {}
    try:
        data = place.read()
    finally:
        place.close()
    if data is None:
        return {}
    return positions.parse(place.path, name, positions.without_torn_tail(data))[0]


def list_names(root: StoreDirectory) -> list[str]:
    """Return the names of all cursors, sorted; one that cannot be read is among them."""
    directory = root.open_cursors(create=False)
    if directory is None:
        return []
    found = []
    try:
        for file in disk.names(directory):
            base = names.cursor_base(file)
            if base is None:
                continue
            name = names.decode(base)
            if name is None:
                name = _true_name(directory, file, root.path_of_cursor(file)) or base
            found.append(name)
    except OSError as error:
        raise disk.explain(error, "list", root.path_of_cursor("")) from error
    finally:
        disk.close(directory)
    return sorted(found)


def drop(root: StoreDirectory, name: str, *, syncs: bool) -> bool:
    """Remove a cursor, also one that cannot be read; say whether there was one (F-56)."""
    root.check_writable()
    place = find(root, name)
    if place is None:
        return False
    try:
        if not place.is_known():
            return False
        lock = place.take_lock(0.0)
        try:
            there = place.is_there()
            place.remove(syncs=syncs)
        finally:
            lock.release()
            lock.close()
    finally:
        place.close()
    return there


def read_all(descriptor: int, path: str) -> bytes:
    """Return all bytes of an open file; `Damaged` if they are more than any cursor of ours has."""
    pieces: list[bytes] = []
    offset = 0
    try:
        if disk.size(descriptor) > _LARGEST:
            raise Damaged(path, 0, "larger than a cursor can be", "drop the cursor and begin anew")
        while piece := disk.read_at(descriptor, max(disk.size(descriptor) - offset, 1), offset):
            pieces.append(piece)
            offset += len(piece)
    except OSError as error:
        raise disk.explain(error, "read", path) from error
    return b"".join(pieces)


def _read_file(directory: int, file: str, path: str) -> bytes | None:
    try:
        descriptor = disk.open_file(directory, file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk.explain(error, "open", path) from error
    try:
        return read_all(descriptor, path)
    finally:
        disk.close(descriptor)


def _true_name(directory: int, file: str, path: str) -> str | None:
    """Return the name that a file says, where the file's name does not; None if it cannot be had."""
    try:
        data = _read_file(directory, file, path) or b""
        name = positions.name_in(path, data[: data.find(b"\n") + 1])
    except HansardError:
        return None
    return name if names.cursor_files(names.encode(name))[0] == file else None


def _there(directory: int, file: str, path: str) -> bool:
    try:
        return disk.present(directory, file)
    except OSError as error:
        raise disk.explain(error, "open", path) from error
