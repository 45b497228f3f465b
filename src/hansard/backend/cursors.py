"""Give consumers their cursors: the same rules, whether positions are kept in files or in memory.

Above: `local`, `memory`, `postgres.cursors`.  Below: `contract`, `log.cursor` (the files).
"""

import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Final
from weakref import WeakSet, WeakValueDictionary

from hansard.backend.contract import Cursor
from hansard.errors import Closed, LockTimeout, SeqConflict
from hansard.log import cursors, names
from hansard.log.cursor import CursorFile
from hansard.log.positions import Changes, apply
from hansard.log.store_directory import StoreDirectory

#: No seq is higher: a PostgreSQL bigint holds it.
MAX_SEQ: Final = 2**63 - 1


class OpenCursor(Cursor):
    """Checks what a caller gives, and lets one thread move at a time."""

    __slots__ = ("__weakref__", "_mutex", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._mutex = threading.Lock()

    def __repr__(self) -> str:
        return f"<hansard.Cursor {self.name!r}>"

    @abstractmethod
    def _known(self) -> dict[str, int]:
        """Return the positions, not to be changed; raise if the cursor cannot be used."""

    @abstractmethod
    def _commit(self, changes: Changes) -> None:
        """Keep all changes, or none. One thread at a time."""

    def _check_movable(self) -> None:
        """Raise if this cursor can only be read."""

    def positions(self) -> dict[str, int]:
        self._known()  # before the mutex, which after a fork may be held by a thread that is not there
        with self._mutex:
            return dict(self._known())

    def get(self, session_id: str) -> int:
        names.check_id(session_id)
        return self._known().get(session_id, 0)

    def move(self, positions: Mapping[str, int], *, back: bool = False) -> None:
        wanted = {}
        for session_id, seq in positions.items():
            names.check_id(session_id)
            # A copy, and plain: what a caller changes later, or what only looks like a number, stays out.
            wanted[str(session_id)] = _checked(session_id, seq)
        self._check_movable()
        self._known()  # as above
        with self._mutex:
            known = self._known()
            changes: Changes = {}
            for session_id, seq in wanted.items():
                at = known.get(session_id)
                if at is not None and seq < at and not back:
                    raise self._behind(session_id, seq, at)
                if at != seq:
                    changes[session_id] = seq
            if changes:
                self._commit(changes)

    def forget(self, *session_ids: str) -> None:
        for session_id in session_ids:
            names.check_id(session_id)
        self._check_movable()
        self._known()  # as above
        with self._mutex:
            known = self._known()
            changes: Changes = {str(given): None for given in session_ids if given in known}
            if changes:
                self._commit(changes)

    def _behind(self, session_id: str, seq: int, at: int) -> SeqConflict:
        return SeqConflict(
            f"cursor {self.name!r} is at seq {at} of session {session_id!r}, and {seq} lies before that; "
            "nothing was moved: give back=True if events are to be read again",
            expected=seq,
            actual=at,
        )


def _checked(session_id: str, seq: object) -> int:
    if not isinstance(seq, int) or isinstance(seq, bool) or not 0 <= seq <= MAX_SEQ:
        raise ValueError(f"a position is a seq, 0 or more, not {seq!r} (session {session_id!r})")
    return int(seq)


# -- in files ---------------------------------------------------------------------------------------


class LocalCursor(OpenCursor):
    """A cursor whose lock is held."""

    __slots__ = ("_check_open", "_file")

    def __init__(self, name: str, file: CursorFile, check_open: Callable[[], None]) -> None:
        super().__init__(name)
        self._file = file
        self._check_open = check_open

    def _known(self) -> dict[str, int]:
        self._check_open()
        self._file.check()
        return self._file.positions

    def _commit(self, changes: Changes) -> None:
        self._file.commit(changes)

    def close(self) -> None:
        if self._file.is_ours():
            with self._mutex:
                self._file.close()


class ReadOnlyCursor(OpenCursor):
    """Looks anew each time: it has no lock, so the consumer may be at work."""

    __slots__ = ("_check_open", "_closed", "_root")

    def __init__(self, name: str, root: StoreDirectory, check_open: Callable[[], None]) -> None:
        super().__init__(name)
        self._root = root
        self._check_open = check_open
        self._closed = False

    def _known(self) -> dict[str, int]:
        self._check_open()
        if self._closed:
            raise closed(self.name)
        return cursors.read_positions(self._root, self.name)

    def _check_movable(self) -> None:
        self._root.check_writable()

    def _commit(self, changes: Changes) -> None:
        raise NotImplementedError  # `_check_movable` comes before

    def close(self) -> None:
        self._closed = True


class LocalCursors:
    """The cursors of a store on files."""

    __slots__ = ("_check_open", "_opened", "_root", "_syncs")

    def __init__(
        self, root: StoreDirectory, check_open: Callable[[], None], *, syncs: bool
    ) -> None:
        self._root = root
        self._check_open = check_open
        self._syncs = syncs
        self._opened: WeakSet[LocalCursor] = WeakSet()

    def open(self, name: str, timeout: float) -> Cursor:
        """Return a cursor, whose lock is then held; from a read-only store one that only reads."""
        names.check_cursor(name)
        self._check_open()
        if self._root.read_only:
            return ReadOnlyCursor(str(name), self._root, self._check_open)
        file = CursorFile(self._root, str(name), syncs=self._syncs, timeout=timeout)
        cursor = LocalCursor(str(name), file, self._check_open)
        self._opened.add(cursor)
        return cursor

    def names(self) -> list[str]:
        """Return the names of all cursors."""
        self._check_open()
        return cursors.list_names(self._root)

    def drop(self, name: str) -> bool:
        """Remove a cursor; say whether there was one."""
        names.check_cursor(name)
        self._check_open()
        return cursors.drop(self._root, str(name), syncs=self._syncs)

    def close(self) -> None:
        """Let go of those that are open."""
        for cursor in list(self._opened):
            cursor.close()


# -- in memory --------------------------------------------------------------------------------------


class MemoryCursor(OpenCursor):
    """A cursor that lives as long as its store."""

    __slots__ = ("_cursors", "_open")

    def __init__(self, name: str, cursors: "MemoryCursors") -> None:
        super().__init__(name)
        self._cursors = cursors
        self._open = True

    def _known(self) -> dict[str, int]:
        self._cursors.check_open()
        if not self._open:
            raise closed(self.name)
        return self._cursors.kept.get(self.name, {})

    def _commit(self, changes: Changes) -> None:
        apply(self._cursors.kept.setdefault(self.name, {}), changes)

    def close(self) -> None:
        self._open = False
        self._cursors.let_go(self)


class MemoryCursors:
    """The cursors of a store in memory.

    Attributes:
        kept: name → positions, of every cursor that was ever moved.
        check_open: raises if the store was closed.
    """

    __slots__ = ("_closing", "_opened", "check_open", "kept")

    def __init__(self, check_open: Callable[[], None]) -> None:
        self.check_open = check_open
        self.kept: dict[str, dict[str, int]] = {}
        #: Guards what is open, and says when that changes.
        self.renew_locks()
        self._opened: WeakValueDictionary[str, MemoryCursor] = WeakValueDictionary()

    def renew_locks(self) -> None:
        """Have a lock that no other thread holds."""
        self._closing = threading.Condition()

    def open(self, name: str, timeout: float) -> Cursor:
        """Return a cursor, which nobody else has until it is closed."""
        names.check_cursor(name)
        self.check_open()
        with self._closing:
            self._wait_until_free(name, timeout)
            cursor = self._opened[name] = MemoryCursor(name, self)
            return cursor

    def let_go(self, cursor: MemoryCursor) -> None:
        """Let others open a cursor that was closed."""
        with self._closing:
            if self._opened.get(cursor.name) is cursor:
                del self._opened[cursor.name]
                self._closing.notify_all()

    def names(self) -> list[str]:
        """Return the names of all cursors that were ever moved."""
        self.check_open()
        return sorted(self.kept)

    def drop(self, name: str) -> bool:
        """Remove a cursor; say whether there was one."""
        names.check_cursor(name)
        self.check_open()
        with self._closing:
            self._wait_until_free(name, 0.0)
            return self.kept.pop(name, None) is not None

    def _wait_until_free(self, name: str, timeout: float) -> None:
        if not self._closing.wait_for(lambda: name not in self._opened, timeout):
            raise LockTimeout(
                f"memory: cursor {name!r} is open already in this process; close it, or take another "
                "name: two consumers of one cursor would each miss what the other has read",
                holder=os.getpid(),
            )


def closed(name: str) -> Closed:
    """Return the error for a cursor that was closed."""
    return Closed(f"cursor {name!r} was closed; open it again")
