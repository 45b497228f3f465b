"""The index's database in a store's directory: a file that SQLite opens by its path.

SQLite obeys the files that it finds. A rollback journal makes it delete a file that the journal names, and a
write-ahead log replaces what is in the database. So it opens only files that this store has created. Their
name consists of inode and ctime of the empty file `index` (F-155). Neither survives cloning, copying or
unpacking a store, and the author of a hostile one cannot foresee them.
"""

import errno
from contextlib import suppress

from hansard.log import disk, names
from hansard.log.store_directory import StoreDirectory

#: What SQLite adds to the name of a database for what it keeps next to it.
WAL, SHM, JOURNAL = "-wal", "-shm", "-journal"

_KEPT = "it may still hold texts that were erased from the logs: compact again, or delete it"

#: Attempts to prepare the file while other processes remove it.
_ATTEMPTS = 10


class LocalIndexFile:
    """The index's database of a store."""

    __slots__ = ("_root", "path")

    def __init__(self, root: StoreDirectory) -> None:
        self._root = root
        self.path = f"{root.path}/{names.INDEX}"

    def prepare(self, content: bytes) -> str:
        """Return the path of the database, which is created with this content if it is missing."""
        directory = self._root.descriptor
        # Otherwise the path leads to another directory by now.
        if disk.identity(disk.open_root(self._root.path)) != disk.identity(directory):
            raise OSError(errno.ESTALE, f"{self._root.path} is another directory by now")
        for _ in range(_ATTEMPTS):
            name = database_name(directory)
            if name is None:
                disk.open_file(directory, names.INDEX, writable=True, create=True)
            elif self._is_usable(directory, name, content):
                return f"{self._root.path}/{name}"
            else:
                self.discard()
        raise OSError(errno.EAGAIN, "other processes keep removing it")

    def _is_usable(self, directory: int, name: str, content: bytes) -> bool:
        found = database_files(directory, name)
        if JOURNAL in found:
            # Never ours: the database is in WAL mode from its first byte on.
            with suppress(FileNotFoundError):
                disk.remove(directory, name + JOURNAL)
        if "" in found:
            # SQLite would create an empty one with a journal; one with a second link may be another user's.
            return found[""].st_size > 0 and found[""].st_nlink == 1
        if found.keys() & {WAL, SHM}:
            return False  # of a database that was removed: SQLite would add it to the new one
        _create(directory, name, content)
        self.sweep()
        return True

    def identity(self) -> str | None:
        """Return name and inode of the database; None if there is none."""
        directory = self._root.descriptor
        with disk.reporting("look at", self.path), suppress(FileNotFoundError):
            name = database_name(directory)
            return name and f"{name} {disk.status(directory, name).st_ino}"
        return None

    def discard(self) -> None:
        """Remove the database; the next one gets another name, which no process has open."""
        with disk.reporting("remove", self.path, _KEPT), suppress(FileNotFoundError):
            disk.remove(self._root.descriptor, names.INDEX)
        self.sweep()

    def sweep(self) -> None:
        """Remove databases that are not this store's, without opening them."""
        directory = self._root.descriptor
        with disk.reporting("remove", self.path, _KEPT):
            # Sorted: a database goes before what is next to it, so that no process opens it without that.
            for name in sorted(filter(names.is_index_database, disk.names(directory))):
                if not name.startswith(database_name(directory) or "?"):
                    with suppress(FileNotFoundError, IsADirectoryError):
                        disk.remove(directory, name)


def database_name(directory: int) -> str | None:
    """Return the only name that the index's database can have in a store.

    None if it has none yet, or if `index` is a link, a pipe or a directory.
    """
    try:
        found = disk.status(directory, names.INDEX)
    except FileNotFoundError:
        return None
    if disk.kind(found) != "file":
        return None
    return names.index_database(found.st_ino, found.st_ctime_ns)


def database_files(directory: int, name: str) -> dict[str, disk.Status]:
    """Return the existing files of a database, by the suffix of SQLite; `OSError` for a link or a pipe."""
    files = {}
    for end in ("", WAL, SHM, JOURNAL):
        with suppress(FileNotFoundError):
            files[end] = disk.status(directory, name + end)
            # SQLite would follow a link, and wait for a pipe.
            if disk.kind(files[end]) != "file":
                raise OSError(errno.ELOOP, f"{name}{end} is not a regular file")
    return files


def _create(directory: int, name: str, content: bytes) -> None:
    """Create a file with its content, unless another process was faster."""
    while not disk.present(directory, name):
        temporary = names.temporary(names.INDEX)
        with disk.temporary_file(directory, temporary) as descriptor:
            disk.write_all(descriptor, content)
        del descriptor
        # Closed before it gets its name: closing a file that SQLite has open releases SQLite's locks on it.
        # So it is unlocked, and a sweep may take it: before it has its name, or after.
        try:
            with suppress(FileExistsError, FileNotFoundError):
                disk.publish(directory, temporary, name)
        finally:
            disk.discard(directory, temporary)
