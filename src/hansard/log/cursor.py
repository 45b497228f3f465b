"""Move a cursor: how far a consumer has got in each session, kept in a file.

Above: `backend.cursors`.  Below: `cursors` (where the file is), `positions` (what it says), `disk`.
A move is a line, added with one write: docs/format.md, F-48 to F-57. Whatever may be wrong behind the last
good line (a torn tail, a write or a sync that failed) is never written behind: the next move writes the
file anew under another name, which is also how the file is made and how it stays small. So there is
one way to recover, and it is used every day.
"""

from typing import Final

from hansard.errors import Closed, HansardError
from hansard.log import cursors, disk, format, names, positions
from hansard.log.disk import Lock
from hansard.log.store_directory import StoreDirectory, sweep

#: A file may be twice as long as its positions need, and this much longer (F-54).
SLACK: Final = 64 * 1024


class CursorFile:
    """An open cursor: its positions, its file, and its lock, which is held. For one thread at a time.

    Attributes:
        path: its file, for people.
        positions: session id → seq, as acknowledged. For reading only.
    """

    __slots__ = (
        "_crc",
        "_file",
        "_fresh",
        "_generation",
        "_lock",
        "_place",
        "_root",
        "_size",
        "_syncs",
        "path",
        "positions",
    )

    def __init__(self, root: StoreDirectory, name: str, *, syncs: bool, timeout: float) -> None:
        root.check_writable()
        place = cursors.find(root, name, create=True)
        assert place is not None  # its directory has just been made
        self.path = place.path
        self.positions: dict[str, int] = {}
        self._root = root
        self._place = place
        self._syncs = syncs
        self._generation = disk.generation
        self._lock: Lock | None = None
        #: The file to append to; None if the next move must write one anew.
        self._file: disk.OwnedFd | None = None
        #: Of the file: its running checksum, its size, and what that would be if it were written anew.
        self._crc = self._size = self._fresh = 0
        try:
            self._lock = place.take_lock(timeout)
            self._load()
            # What a kill left over when a file was written anew: nothing else makes temporaries here.
            sweep(place.descriptor)
            if syncs:
                self._sync_names()
        except BaseException:
            # Now, and not when the error is forgotten: who catches it may want to drop the cursor.
            self.close()
            raise

    def is_ours(self) -> bool:
        """Say whether this process has opened it, and not one that it was forked from."""
        return self._generation == disk.generation

    def check(self) -> None:
        """Raise unless this process has the cursor open."""
        if not self.is_ours():
            raise Closed(
                f"{self.path}: this cursor was opened before a fork, and is the parent's; open one in "
                "this process, under another name or when the parent has closed it"
            )
        if self._lock is None:
            raise Closed(f"{self.path}: the cursor was closed; open it again")

    def close(self) -> None:
        """Let others have the cursor. Harmless if that was done before."""
        if not self.is_ours():
            return  # the lock is the parent's: an unlock through an inherited descriptor would free it
        lock, file = self._lock, self._file
        self._lock = self._file = None
        self._place.close()
        if file is not None:
            file.close()
        if lock is not None:
            # Unlocked, not only closed: a process that is just being started may have a copy of it.
            lock.release()
            lock.close()

    def _load(self) -> None:
        """Read the positions. The lock is held, so nobody else moves them."""
        place = self._place
        try:
            file = disk.OwnedFd(disk.open_file(place.descriptor, place.file, writable=True))
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk.explain(error, "open", self.path) from error
        data = cursors.read_all(file.descriptor, self.path)
        whole = positions.without_torn_tail(data)
        self.positions, self._crc = positions.parse(self.path, place.name, whole)
        self._size = len(whole)
        self._fresh = len(positions.anew(place.name, self.positions)[0])
        if len(whole) == len(data):
            self._file = file

    def _sync_names(self) -> None:
        """Make the names that lead to the file durable, whoever has made them (F-57)."""
        try:
            disk.sync_directory(self._place.descriptor)
        except OSError as error:
            raise disk.explain(error, "sync", self.path, "nothing was moved") from error
        self._root.sync_cursors()

    # -- moving ---------------------------------------------------------------------------------

    def commit(self, changes: positions.Changes) -> None:
        """Move to these positions, and forget the sessions that have None. All or nothing (F-51)."""
        self.check()
        self._check_named()
        line, crc = positions.move(changes, self._crc)
        size = self._size + len(line)
        small = size <= 2 * self._fresh + SLACK and len(line) <= format.MAX_LINE
        # No file from here on, until it is known what became of the write (F-53).
        file, self._file = self._file, None
        if file is not None and small:
            self._append(file, line)
            self._crc, self._size, self._file = crc, size, file
        else:
            self._write_anew(changes)
        positions.apply(self.positions, changes)

    def _check_named(self) -> None:
        """Raise if somebody has deleted what is open: a move into it would be lost."""
        assert self._lock is not None  # `check` has seen it
        try:
            named = disk.identity((self._file or self._lock).descriptor)[2] > 0
        except OSError as error:
            raise disk.explain(error, "move", self.path, "nothing was moved") from error
        if not named:
            raise Closed(
                f"{self.path}: the files of this cursor were deleted while it was open; nothing was "
                "moved: close it and open it again, and it begins at 0"
            )

    def _append(self, file: disk.OwnedFd, line: bytes) -> None:
        operation = "write"
        try:
            disk.write_all(file.descriptor, line)
            if self._syncs:
                operation = "sync"
                disk.sync(file.descriptor)
        except OSError as error:
            raise self._failed(operation, error) from error

    def _write_anew(self, changes: positions.Changes) -> None:
        """Put a new file, with the positions after a move, into the place of the old one (F-53)."""
        moved = dict(self.positions)
        positions.apply(moved, changes)
        content, crc = positions.anew(self._place.name, moved)
        directory, name = self._place.descriptor, self._place.file
        temporary = names.temporary(name)
        operation = "create"
        try:
            file = disk.OwnedFd(disk.create_file(directory, temporary))
            try:
                operation = "write"
                disk.write_all(file.descriptor, content)
                # In every durability, before it has its name: a crash must find the old file or the new.
                operation = "sync"
                disk.sync(file.descriptor)
                operation = "rename"
                disk.move(directory, temporary, directory, name)
            except BaseException:
                disk.discard(directory, temporary)
                raise
            if self._syncs:
                operation = "sync"
                disk.sync_directory(directory)
        except OSError as error:
            raise self._failed(operation, error) from error
        self._crc, self._file = crc, file
        self._size = self._fresh = len(content)

    def _failed(self, operation: str, error: OSError) -> HansardError:
        hint = "this move may not have been kept, so its events may come again; move once more"
        return disk.explain(error, operation, self.path, hint)
