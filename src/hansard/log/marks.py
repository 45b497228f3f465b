"""Leave a mark for each session that is about to change, so that an index need not look at all of them.

The rules are docs/format.md, F-128 to F-134.
Time is cut into epochs. The number of the current one stands in a file that everybody has mapped into memory,
so that to look at it costs nothing. The first time in an epoch that a session is to be changed, its name is
appended to the file of that epoch. Whoever keeps an index begins the next epoch, reads the names of those
before it, and removes their files when it is done.

The order is everything. *Position, then look at the epoch once more, then write*: who finds the epoch changed
marks again in the new one, because the file of the old one may have been read by then. All of it with the
session's lock held: when the reader of the marks has had that lock after it began the next epoch, every
change that bears a mark of the old one is there to be read.

A mark is a help, never a condition: what goes wrong here fails no append.
"""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Final

from hansard.log import disk, names

#: A file of marks that has grown beyond this is not read for names any more: all sessions are looked at.
MOST: Final = 1 << 20

#: No epoch has this number.
UNMARKED: Final = -1

#: For those who have no marks: they look for them again each time.
NOWHERE: Final[Sequence[int]] = (0,)

#: The numbers in the file, eight bytes each, in the order of this machine's bytes (F-129).
EPOCH: Final = 0  # the current one; 0: nobody has ever asked, and nobody need mark anything
CONSUMED: Final = 1  # the marks of this epoch, and of those before it, may be gone
LOST: Final = 2  # drawn anew by whoever could not leave a mark

#: So many names are remembered as marked, so as not to mark them twice in an epoch.
_REMEMBERED: Final = 10_000

_BYTES: Final = 8
_SIZE: Final = 3 * _BYTES


class Table:
    """The marks of a store, opened.

    Attributes:
        numbers: the three numbers, mapped: they change under the reader's eyes, which is what they are for.
        inode: tells the file of the numbers from another of its name.
    """

    __slots__ = ("__weakref__", "_directory", "_file", "_marked", "inode", "numbers")

    def __init__(self, root: int) -> None:
        disk.make_directory(root, names.MARKS)
        self._directory = disk.OwnedFd(disk.open_directory(root, names.MARKS))
        self._file = disk.OwnedFd(disk.open_to_change(self._directory.descriptor, names.EPOCH))
        # Longer, never shorter: whoever has it mapped would be killed by a look at what is cut off.
        disk.lengthen(self._file.descriptor, _SIZE)
        self.numbers: Sequence[int] = disk.map_numbers(self._file.descriptor, _SIZE)
        self.inode = disk.identity(self._file.descriptor)[1]
        #: An epoch, and names that bear a mark of it. One pair: threads replace it, and never half of it.
        self._marked: tuple[int, set[str]] = (0, set())

    def in_place(self, root: int) -> bool:
        """Say whether these are the marks that everybody finds: somebody may have removed the directory."""
        try:
            found = disk.version(root, f"{names.MARKS}/{names.EPOCH}")
        except FileNotFoundError:
            return False
        return found[0] == self.inode

    def put(self, place: int, number: int) -> None:
        """Set one of the numbers, for everybody."""
        disk.write_at(self._file.descriptor, number.to_bytes(_BYTES, sys.byteorder), place * _BYTES)

    # -- who changes a session ------------------------------------------------------------------

    def mark(self, name: str) -> int:
        """Mark a session that is about to change; return the epoch. The caller holds the session's lock."""
        while True:
            epoch = self.numbers[EPOCH]
            if epoch:
                self._mark_in(epoch, name)
            # What was added to an epoch that is over may never be read.
            if self.numbers[EPOCH] == epoch:
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
            self.lose()
        marked.add(name)

    def _add(self, epoch: int, name: str) -> None:
        # A line end before it, too: it may stand behind one that a full disk has cut off.
        line = b"\n%s\n" % name.encode()
        file = disk.open_file(self._directory.descriptor, str(epoch), writable=True, create=True)
        try:
            if disk.size(file) > MOST:
                raise OSError(errno.EFBIG, "nobody reads the marks")
            if disk.write(file, line) != len(line):
                raise OSError(errno.ENOSPC, "half a mark")
        finally:
            disk.close(file)

    def lose(self) -> None:
        """Say that a mark is missing: as good as one for every session. Takes no room on the disk."""
        self.put(LOST, int.from_bytes(os.urandom(_BYTES)) | 1)

    # -- who reads the marks ----------------------------------------------------------------------

    def epochs(self) -> list[int]:
        """Return the epochs of which there are marks."""
        found = disk.names(self._directory.descriptor)
        return sorted(int(name) for name in found if name.isdecimal() and name.isascii())

    def read(self, epoch: int) -> set[str]:
        """Return the names of the sessions that were marked in an epoch."""
        data = disk.read_all(self._directory.descriptor, str(epoch), 2 * MOST)
        found = {line.decode("ascii", "replace") for line in data.split(b"\n") if line}
        # Half a name, or one that leads out of the directory of sessions: nobody looks what is there.
        return {name for name in found if _is_session(name)}

    def remove(self, epoch: int) -> None:
        """Remove the marks of an epoch."""
        disk.remove(self._directory.descriptor, str(epoch))


def following(epoch: int) -> int:
    """Return the next epoch; behind the last that eight bytes can say, the first."""
    return epoch % ((1 << 8 * _BYTES) - 1) + 1


def _is_session(name: str) -> bool:
    try:
        names.decode(name)
    except ValueError:
        return False
    return True


class Marks:
    """The marks of an open store, for all threads of this process; forked children may go on with them."""

    __slots__ = ("_reported", "_table")

    def __init__(self) -> None:
        self._table: Table | None = None
        self._reported: set[tuple[str, int]] = set()

    def table(self, root: int) -> Table | None:
        """Open the marks, or make them; None if that is refused. Two threads may do so at once."""
        table = self._table
        try:
            if table is None or not table.in_place(root):
                table = self._table = Table(root)
        except (OSError, ValueError):  # mapping says ValueError where the file system cannot do it
            table = self._table = None
        return table

    def leave(self, root: int, name: str) -> tuple[Sequence[int], int]:
        """Mark a session; return the numbers to compare, and the epoch in which it bears a mark now."""
        table = self.table(root)
        if table is None:
            return NOWHERE, UNMARKED
        try:
            return table.numbers, table.mark(name)
        except OSError:
            # Not even that it is missing can be said. Whoever goes round all sessions will find it.
            return table.numbers, UNMARKED

    def report(self, root: int, name: str, offset: int) -> None:
        """Mark a session that a reader has found to be damaged, once for each place."""
        # Once: whoever reads the marks reads the session, and will find the same.
        if (name, offset) not in self._reported:
            self._reported.add((name, offset))
            self.leave(root, name)

    def close(self) -> None:
        """Let go of the files; who still compares the numbers keeps them mapped."""
        self._table = None


class NoMarks(Marks):
    """For logs that no consumer is told about."""

    __slots__ = ()

    def leave(self, root: int, name: str) -> tuple[Sequence[int], int]:
        """Leave no mark, and say that there is one."""
        del root, name
        return NOWHERE, NOWHERE[0]

    def report(self, root: int, name: str, offset: int) -> None:
        """Leave no mark."""
