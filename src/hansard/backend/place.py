"""Where the index of a directory of sessions is kept: beside them, in a file that SQLite opens by its path.

Above: `local`.  Below: `contract`, `log`.
"""

import errno
from contextlib import suppress

from hansard.backend.contract import Place
from hansard.log import disk, names
from hansard.log.root import Root

#: What SQLite adds to the name of a database for what it keeps beside it.
_BESIDE = ("-wal", "-shm", "-journal")


class LocalPlace(Place):
    """The file `index.db` of a store."""

    __slots__ = ("_root", "path")

    def __init__(self, root: Root) -> None:
        self._root = root
        self.path = f"{root.path}/{names.INDEX}"

    def prepare(self) -> None:
        """See to it that the file exists, is no link, and is nobody else's to read."""
        directory = self._root.descriptor
        self._check_path(directory)
        for name in (names.INDEX, *(names.INDEX + end for end in _BESIDE)):
            # SQLite would follow it.
            if disk.is_link(directory, name):
                raise OSError(errno.ELOOP, f"{name} is a symbolic link")
            # Nor is it only ours if it has a second name: then it is left to whoever has that.
            with suppress(FileNotFoundError):
                if disk.status(directory, name).links > 1:
                    disk.remove(directory, name)
        # Only if there is none: to close a file that SQLite has open would free SQLite's locks on it.
        with suppress(FileExistsError):
            disk.close(disk.create_file(directory, names.INDEX))

    def _check_path(self, directory: int) -> None:
        """Raise if the path leads to another directory by now."""
        found = disk.open_root(self._root.path)
        try:
            if disk.identity(found)[:2] != disk.identity(directory)[:2]:
                raise OSError(errno.ESTALE, f"{self._root.path} is another directory by now")
        finally:
            disk.close(found)

    def identity(self) -> int | None:
        """Return what tells the file from another of its name; None if there is none."""
        try:
            return disk.version(self._root.descriptor, names.INDEX)[0]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk.explain(error, "look at", self.path) from error

    def discard(self) -> None:
        """Remove the file, and those beside it."""
        try:
            for end in ("", *_BESIDE):
                with suppress(FileNotFoundError):
                    disk.remove(self._root.descriptor, names.INDEX + end)
        except OSError as error:
            hint = "it may still say what was taken out of the logs: compact again, or delete it"
            raise disk.explain(error, "remove", self.path, hint) from error
