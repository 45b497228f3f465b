"""Tell from the marks which sessions have changed: for whoever keeps an index of a directory of sessions.

The other half of `log.marks`. A pass begins the next epoch, reads the marks of those before it, and has the
lock of each marked session for a moment: a writer that saw the old epoch has written when that is over. The
files of the marks go when what was read is kept, and not before.

Marks are not synced, and others may have had their hands in the store. So a pass looks at all sessions if
anything says that a mark may be missing: the machine was started anew, the directories are others, somebody
else has read the marks, or a writer could not leave one. docs/format.md, F-128 to F-134.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final
from weakref import ref

import msgspec

from hansard.backend.contract import Changed, Watch
from hansard.errors import LockTimeout, UnsafePath
from hansard.log import disk, names
from hansard.log.disk import Lock
from hansard.log.marks import CONSUMED, EPOCH, LOST, Table, following
from hansard.log.store_directory import StoreDirectory

#: How long one pass waits, in all, for writers that hold the locks of marked sessions.
PATIENCE: Final = 1.0

#: A directory that was changed so short a time ago may change again without its time changing.
RACY: Final = 2_000_000_000

#: How often to start again when a lock file is taken away under our hands.
_TRIES: Final = 5


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """What a pass that was kept has seen of the store."""

    #: The run of the machine.
    boot: str = ""
    #: Which directory of sessions it was, and which file of numbers.
    place: tuple[int, ...] = ()
    lost: int = 0
    #: The marks of all epochs before this one have been read.
    epoch: int = 0
    #: When a name appeared in the directory of sessions, or vanished; 0 if that cannot be relied on.
    names: int = 0


class LocalWatch(Watch):
    """The marks of a store, read pass by pass."""

    __slots__ = ("_boot", "_found", "_ids_of", "_read", "_root", "_table")

    def __init__(
        self, root: StoreDirectory, ids_of: Callable[[Iterable[str]], Iterator[str]]
    ) -> None:
        self._root = root
        self._ids_of = ids_of
        self._boot = disk.boot()
        #: Of those that the store has open: it is the store that lets go of them, when it is closed.
        self._table: Callable[[], Table | None] = _none
        self._found: Seen | None = None
        self._read: list[int] = []

    def quiet(self, known: str) -> bool:
        # The marks that everybody has, or none: who has not opened them yet begins a pass, which does.
        table = self._table()
        try:
            if table is None or not table.in_place(self._root.descriptor) or table.epochs():
                return False
            found = self._look(table)
        except OSError:
            return False
        return bool(found.boot and found.names) and found == _seen(known)

    def begin(self, known: str) -> Changed:
        self._found = None
        self._read = []
        # What a closed store says is for the caller; what a disk says is only that there are no marks.
        root = self._root.descriptor
        try:
            table = self._root.marks.table(root)
            self._table = _none if table is None else ref(table)
            if table is None:
                return Changed(every=True)
            return self._begin(table, _seen(known))
        except OSError:
            self._found = None
            self._read = []
            return Changed(every=True)

    def _begin(self, table: Table, known: Seen) -> Changed:
        numbers = table.numbers
        consumed = numbers[CONSUMED]
        found = self._look(table)
        marked: set[str] = set()
        if not _follows(known, found, consumed) or table.epochs():
            # From here on changes are marked in the next epoch.
            epoch = following(found.epoch)
            table.put(EPOCH, epoch)
            if not numbers[LOST]:
                table.lose()
            # After the epoch: who saw the old one and could not mark has said so, or will see the new one.
            found = msgspec.structs.replace(found, epoch=epoch, lost=numbers[LOST])
            # No closure: CPython loses the arguments of a function if it has no memory for a cell.
            for old in table.epochs():
                if old < epoch:
                    self._read.append(old)
                    marked.update(table.read(old))
        certain = _follows(known, found, consumed) and numbers[CONSUMED] == consumed
        # A mark that is missing may be that of a change which is not written yet.
        self._wait(table, marked if certain else {*marked, *self._root.directories()})
        self._found = found
        rebooted = not found.boot or found.boot != known.boot
        return Changed(
            frozenset(self._ids_of(marked)),
            every=rebooted or not certain,
            # The id of what is gone cannot be told from a hashed name.
            names=known.names != found.names
            or not found.names
            or any(names.is_hashed(name) for name in marked),
        )

    def _look(self, table: Table) -> Seen:
        """Return what can be seen of the store at this moment."""
        now = time.time_ns()
        modified = disk.version(self._root.sessions, ".")[1]
        return Seen(
            self._boot,
            (*disk.identity(self._root.sessions)[:2], table.inode),
            table.numbers[LOST],
            table.numbers[EPOCH],
            modified if now - modified > RACY else 0,
        )

    def _wait(self, table: Table, marked: Iterable[str]) -> None:
        """Have the lock of each session for a moment; mark those again that cannot be had."""
        deadline = time.monotonic() + PATIENCE
        for name in marked:
            try:
                self._pass(name, deadline)
            except LockTimeout:
                table.mark(name)
            except UnsafePath:
                continue  # a link or a file: no writer goes there

    def _pass(self, name: str, deadline: float) -> None:
        for _ in range(_TRIES):
            directory = self._root.open_live(name)
            if directory is None:
                return  # deleted: with its lock held, and under a mark
            path = self._root.path_of(name, names.LOCK)
            try:
                lock = Lock(disk.open_file(directory, names.LOCK), path)
            except FileNotFoundError:
                return  # nobody has written here since it was lost
            except OSError as error:
                raise disk.explain(error, "open", path) from error
            finally:
                disk.close(directory)
            with lock.for_a_moment(max(0.0, deadline - time.monotonic())):
                if lock.exists():
                    return

    def ids(self) -> Iterable[str]:
        return self._ids_of(self._root.directories())

    def done(self) -> str:
        return "" if self._found is None else msgspec.json.encode(self._found).decode()

    def consumed(self) -> None:
        table, read = self._table(), self._read
        self._read = []
        if table is None or not read:
            return
        # If this fails, they are read once more.
        with suppress(OSError):
            # The number first: who has read none of them must know that they are going.
            table.put(CONSUMED, read[-1])
            for epoch in read:
                table.remove(epoch)


def _none() -> None:
    """Stand for marks that are not open."""


def _seen(known: str) -> Seen:
    try:
        return msgspec.json.decode(known, type=Seen)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Seen()


def _follows(known: Seen, found: Seen, consumed: int) -> bool:
    """Say whether nothing of the marks is missing between what was known and what is found."""
    return (
        known.place == found.place
        and known.lost == found.lost
        # Neither set back, nor read by somebody else since.
        and consumed < known.epoch <= found.epoch
    )


def stamps(root: StoreDirectory, sessions: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield ids, each with a text that changes when its log does; given ids and names of directories."""
    directory = root.sessions
    for session_id, name in sessions:
        try:
            inode, modified, size = disk.version(directory, f"{name}/{names.LOG}")
            yield session_id, f"{inode} {size} {modified}"
        except OSError:
            # No log, or not yet; or one that cannot be looked at, which is a session all the same.
            if root.holds_log(name):
                yield session_id, "?"
