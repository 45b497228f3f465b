"""Record the sessions that are about to change, so that an index refresh reads only those.

docs/format.md, F-128 to F-134, has the files and the rules. All processes map the epoch, so that comparing it
costs nothing.

The order matters: add the name, *read the epoch again*, then write, all with the session's lock held. If the
epoch has changed, add the name to the new file too: the old one may have been read already. A consumer that
takes the session's lock after it set the epoch finds all changes recorded in earlier files.

No append fails because a name could not be recorded.
"""

import errno
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from hansard.log import disk, names

#: Bytes beyond which no name is added to a file: no consumer reads it.
MAX_BYTES: Final = 1 << 20

#: No epoch has this number.
UNMARKED: Final = -1

#: In place of the mapped epoch if there is none; with `UNMARKED`, each change tries again.
NOWHERE: Final[Sequence[int]] = (0,)

#: Names remembered per epoch, in order not to add them twice.
_REMEMBERED: Final = 10_000

_BYTES: Final = 8
_LAST: Final = (1 << 8 * _BYTES) - 1


class MarkFiles:
    """The open directory `marks`.

    Attributes:
        numbers: the current epoch, mapped: other processes change it. 0: there was never a consumer.
        inode: identifies the file `epoch`.
    """

    __slots__ = ("_directory", "_file", "_marked", "inode", "numbers")

    def __init__(self, root: int) -> None:
        disk.make_directory(root, names.MARKS)
        self._directory = disk.open_directory(root, names.MARKS)
        self._file = disk.open_to_change(self._directory, names.EPOCH)
        # Never shorten it: a process that has it mapped would be killed.
        disk.lengthen(self._file, _BYTES)
        self.numbers: Sequence[int] = disk.map_numbers(self._file, _BYTES)
        self.inode = disk.identity(self._file)[1]
        #: An epoch and names added in it, in one tuple: other threads must not mix two epochs.
        self._marked: tuple[int, set[str]] = (0, set())

    def in_place(self, root: int) -> bool:
        """Return whether other processes find these files: the directory may have been removed."""
        return disk.inode(root, f"{names.MARKS}/{names.EPOCH}") == self.inode

    def mark(self, name: str) -> int:
        """Record a session that is about to change; return the epoch. The caller holds its lock."""
        while True:
            epoch = self.numbers[0]
            if epoch:
                self._mark_in(epoch, name)
            # The file of an earlier epoch may have been read before the name was added.
            if self.numbers[0] == epoch:
                return epoch

    def _mark_in(self, epoch: int, name: str) -> None:
        of, marked = self._marked
        if of != epoch or len(marked) >= _REMEMBERED:
            marked = set()
            self._marked = (epoch, marked)
        if name in marked:
            return
        try:
            self._add(epoch, name)
        except OSError:
            with suppress(FileNotFoundError):
                self.remove(epoch)
        marked.add(name)

    def _add(self, epoch: int, name: str) -> None:
        # A line feed before it too: a full disk may have cut off the name before.
        line = b"\n%s\n" % name.encode()
        file = disk.open_file(self._directory, str(epoch), writable=True)
        if disk.size(file) > MAX_BYTES:
            raise OSError(errno.EFBIG, "no consumer reads it")
        if disk.write(file, line) != len(line):
            raise OSError(errno.ENOSPC, "the name was cut off")

    def begin(self) -> int:
        """Begin the next epoch, and return it: its file first. After the last possible one comes 1."""
        epoch = self.numbers[0] % _LAST + 1
        disk.open_file(self._directory, str(epoch), writable=True, create=True)
        disk.write_at(self._file, epoch.to_bytes(_BYTES, sys.byteorder), 0)
        return epoch

    def is_empty(self, epoch: int) -> bool:
        """Return whether no name was added in an epoch; False if its file is missing."""
        try:
            return disk.status(self._directory, str(epoch)).st_size == 0
        except FileNotFoundError:
            return False

    def epochs(self) -> set[int]:
        """Return the epochs that have a file."""
        found = disk.names(self._directory)
        return {int(name) for name in found if name.isdecimal() and str(int(name)) == name}

    def read(self, epoch: int) -> set[str]:
        """Return the names that were added in an epoch."""
        data = disk.read_all(self._directory, str(epoch), 2 * MAX_BYTES)
        found = {line.decode("ascii", "replace") for line in data.split(b"\n") if line}
        # Others may be cut off, or lead out of the directory of sessions.
        return set(filter(names.is_encoded, found))

    def remove(self, epoch: int) -> None:
        """Remove the file of an epoch."""
        disk.remove(self._directory, str(epoch))


class ChangeMarks:
    """The marks of an open store, for all threads of this process and forked children.

    Attributes:
        files: those that were opened last; None if there are none yet.
    """

    __slots__ = ("_reported", "_used", "files")

    def __init__(self, *, used: bool = True) -> None:
        """`used`: False for internal logs, which no index lists."""
        self.files: MarkFiles | None = None
        self._used = used
        self._reported: set[tuple[str, int]] = set()

    def open(self, root: int) -> MarkFiles | None:
        """Open the files, or create them; None if that is refused. Several threads may do so."""
        files = self.files
        try:
            if files is None or not files.in_place(root):
                files = self.files = MarkFiles(root)
        except (OSError, ValueError):  # ValueError: the file system cannot map files
            files = self.files = None
        return files

    def leave(self, root: int, name: str) -> tuple[Sequence[int], int]:
        """Record a session; return the mapped epoch, and the epoch in which it is recorded now."""
        if not self._used:
            return NOWHERE, NOWHERE[0]
        files = self.open(root)
        if files is None:
            return NOWHERE, UNMARKED
        try:
            return files.numbers, files.mark(name)
        except OSError:
            # Neither recorded nor reported as lost: the index compares some sessions at each question.
            return files.numbers, UNMARKED

    def report(self, root: int, name: str, offset: int) -> None:
        """Record a session in which a reader found damage, once per offset: the consumer finds it too."""
        if (name, offset) not in self._reported:
            self._reported.add((name, offset))
            self.leave(root, name)

    def close(self) -> None:
        """Release the files; the epoch stays mapped for those that still compare it."""
        self.files = None
