"""Look at every file of a store, and at the place where it is: who holds locks, what is left over or odd.

Above: `local`.  Below: `condition`, `log`.
Nothing is opened to be written, no lock is taken, and no file is read: a store can be
examined beside its writers. A file that comes or goes meanwhile is no finding.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Literal

from hansard.backend import place
from hansard.backend.condition import (
    Condition,
    HeldLock,
    Home,
    Leftover,
    MarksFiles,
    Oddity,
)
from hansard.errors import Closed, Damaged, DiskFailed, UnknownFormat, UnsafePath
from hansard.log import disk, format, inspection, names, surroundings
from hansard.log.reader import Reader
from hansard.log.root import Root
from hansard.log.segment import open_segment

#: Of files that are odd in one way, so many are named.
NAMED: Final = 20

_LOOSE: Final = 0o077

Odd = Literal["mode", "owner", "link", "kind", "hard link", "foreign", "unreadable"]

#: What belongs to a store, directly and in a session.
_IN_ROOT: Final = {
    names.MARKER: "file",
    names.INDEX: "file",
    names.SESSIONS: "directory",
    names.TRASH: "directory",
    names.CURSORS: "directory",
    names.MARKS: "directory",
}
_IN_SESSION: Final = frozenset({names.LOG, names.CHECKPOINT, names.COMPACTION, names.LOCK})
_LOCKS: Final = frozenset({names.LOCK, names.COMPACTION})
_DAMAGED: Final = "damaged-"


def examine(root: Root) -> Condition:
    """Look at a store; what cannot be looked at is among what is odd."""
    return _Examiner(root).condition()


class _Examiner:
    def __init__(self, root: Root) -> None:
        self._root = root
        self._now = time.time()
        self._owner = disk.status(root.descriptor).owner
        self._holders = surroundings.lock_holders()
        self._locks: list[HeldLock] = []
        self._leftovers: list[Leftover] = []
        self._odd: dict[Odd, list[str]] = {}
        self._odd_count: Counter[Odd] = Counter()
        self._marks = MarksFiles()
        self._index = ""
        self._index_files: dict[str, disk.Status] = {}

    def condition(self) -> Condition:
        root = self._root
        self._look_at_root()
        return Condition(
            version=format.VERSION,
            home=self._home(),
            locks=self._locks,
            leftovers=sorted(self._leftovers, key=lambda found: found.where),
            oddities=[
                Oddity(what, count, sorted(self._odd[what]))
                for what, count in self._odd_count.items()
            ],
            marks=self._marks,
            index_path=f"{root.path}/{self._index}" if self._index else "",
            index_bytes=sum(found.size for found in self._index_files.values()),
            # A journal is not ours: SQLite must not look at it.
            index_shared={place.WAL, place.SHM} == self._index_files.keys() - {""},
        )

    def _home(self) -> Home:
        root = self._root
        found = surroundings.file_system(root.path)
        return Home(
            file_system=found.kind if found else "",
            mounted=found.mounted if found else "",
            network=found is not None and found.is_network,
            volatile=found is not None and found.is_volatile,
            writable=disk.may_write(root.descriptor)
            and not (found is not None and found.read_only),
            owner=self._owner,
            user=disk.user(),
            free_bytes=disk.free_bytes(root.descriptor),
            free_files=disk.free_names(root.descriptor),
        )

    # -- directories ----------------------------------------------------------------------------

    def _look_at_root(self) -> None:
        root = self._root
        self._check("directory", root.path, disk.status(root.descriptor), "directory")
        for name, path, status in self._entries(root.descriptor, root.path):
            ours = "file" if names.is_index_database(name) else _IN_ROOT.get(name, "")
            self._look_at(root.descriptor, name, path, status, ours)
        with suppress(OSError):  # something else is there, which was said of it
            name = place.database_name(root.descriptor) or ""
            self._index_files = place.database_files(root.descriptor, name) if name else {}
            self._index = name if "" in self._index_files else ""
        for part, look in (
            (names.SESSIONS, self._look_at_sessions),
            (names.TRASH, self._look_at_sessions),
            (names.CURSORS, self._look_at_cursors),
            (names.MARKS, self._look_at_marks),
        ):
            self._inside(root.descriptor, part, f"{root.path}/{part}", look)

    def _look_at_sessions(self, directory: int, path: str) -> None:
        for name, where, status in self._entries(directory, path):
            ours = name == names.AUDIT or _is_session(name)
            self._look_at(directory, name, where, status, "directory" if ours else "")
            if ours and status.kind == "directory":
                self._inside(directory, name, where, self._look_at_session)

    def _look_at_session(self, directory: int, path: str) -> None:
        entries = list(self._entries(directory, path))
        for name, where, status in entries:
            ours = name in _IN_SESSION or names.sealed_first_seq(name) is not None
            if name.startswith(_DAMAGED):
                ours = True
                age = self._now - status.modified
                self._leftovers.append(Leftover("damaged", where, status.size, age))
            self._look_at(directory, name, where, status, "file" if ours else "")
            if name == names.LOG and status.kind == "file":
                self._look_for_fragments(directory, where, self._now - status.modified)
        self._look_at_links(directory, entries)

    def _look_for_fragments(self, directory: int, where: str, age: float) -> None:
        """Note what crashes have left in an active log, and later appends have discarded."""
        # What is wrong with the log is for others to say.
        with suppress(Damaged, UnknownFormat, DiskFailed, UnsafePath):
            segment = open_segment(directory, where, None, writable=False)
            if segment is None:
                return
            reader = Reader(segment)
            pieces = reader.forwards(segment.start, reader.tail().mark)
            found = [one.length for piece in pieces for one in inspection.discarded(piece.data)]
            if found:
                size = sum(found)
                self._leftovers.append(Leftover("discarded", where, size, age, count=len(found)))

    def _look_at_cursors(self, directory: int, path: str) -> None:
        for name, where, status in self._entries(directory, path):
            base = names.cursor_base(name.removesuffix(".lock") + ".jsonl")
            ours = names.cursor_base(name) or (name.endswith(".lock") and base)
            self._look_at(directory, name, where, status, "file" if ours else "")

    def _look_at_marks(self, directory: int, path: str) -> None:
        epochs = size = 0
        for name, where, status in self._entries(directory, path):
            epoch = name.isdecimal() and name.isascii()
            self._look_at(
                directory, name, where, status, "file" if epoch or name == names.EPOCH else ""
            )
            if epoch:
                epochs += 1
                size += status.size
        self._marks = MarksFiles(epochs, size)

    # -- files ----------------------------------------------------------------------------------

    def _inside(self, parent: int, name: str, path: str, look: Callable[[int, str], None]) -> None:
        """Look into a directory, if it is there and is one."""
        try:
            directory = disk.open_directory(parent, name)
        except FileNotFoundError:
            return
        except PermissionError:
            self._note("unreadable", path)
            return
        except OSError:
            return  # it is something else, which was said of it
        try:
            look(directory, path)
        finally:
            disk.close(directory)

    def _entries(self, directory: int, path: str) -> Iterator[tuple[str, str, disk.Status]]:
        """Yield name, path and status of everything in a directory."""
        try:
            for name in disk.names(directory):
                with suppress(FileNotFoundError):  # it was there a moment ago
                    yield name, f"{path}/{_spelled(name)}", disk.status(directory, name)
        except Closed:
            raise
        except OSError:
            self._note("unreadable", path)

    def _look_at(
        self, directory: int, name: str, path: str, status: disk.Status, expected: str
    ) -> None:
        """Look at one name. `expected`: what it should be; "" if it is none that we know."""
        if names.is_temporary(name):
            self._leftovers.append(self._leftover(directory, name, path, status))
            expected = status.kind if status.kind == "directory" else "file"
        elif not expected:
            self._note("foreign", path)
            return
        self._check(name, path, status, expected)

    def _check(self, name: str, path: str, status: disk.Status, expected: str) -> None:
        if status.kind == "link":
            self._note("link", path)
            return
        if status.kind != expected:
            self._note("kind", path)
            return
        if status.mode & _LOOSE:
            self._note("mode", path)
        if status.owner != self._owner:
            self._note("owner", path)
        if name in _LOCKS or name.endswith(".lock"):
            self._look_at_lock(path, status)

    def _holder(self, status: disk.Status) -> int | None:
        return self._holders.get(surroundings.lock_key(status)) if self._holders else None

    def _look_at_lock(self, path: str, status: disk.Status) -> None:
        pid = self._holder(status)
        if pid is not None:
            stopped = surroundings.is_stopped(pid)
            self._locks.append(HeldLock(path, pid, disk.command_of(pid), stopped))

    def _look_at_links(self, directory: int, entries: list[tuple[str, str, disk.Status]]) -> None:
        """Note files that have a name elsewhere: what is appended here would appear there too."""
        here = Counter(status.inode for _, _, status in entries)
        for name, path, status in entries:
            if status.kind != "file" or status.links <= here[status.inode]:
                continue
            # A moment ago it may have had another name here, which is how a file gets its own.
            with suppress(FileNotFoundError):
                again = Counter(found.inode for _, _, found in self._entries(directory, path))
                if disk.status(directory, name).links > again[status.inode]:
                    self._note("hard link", path)

    def _leftover(self, directory: int, name: str, path: str, status: disk.Status) -> Leftover:
        age = self._now - status.modified
        living = False
        holder = self._holder(status)
        # What cannot be opened is not what hansard put there; `_check` says so.
        with suppress(OSError):
            living = status.kind == "file" and disk.is_in_use(directory, name)
        return Leftover(
            what="staged" if name.startswith(f".tmp-{names.STAGED}-") else "temporary",
            where=path,
            bytes=status.size if status.kind == "file" else 0,
            age=age,
            pid=names.temporary_pid(name) if holder is None else holder,
            living=living,
            command="" if holder is None else disk.command_of(holder),
        )

    def _note(self, what: Odd, path: str) -> None:
        self._odd_count[what] += 1
        found = self._odd.setdefault(what, [])
        if len(found) < NAMED:
            found.append(path)


def _is_session(name: str) -> bool:
    try:
        names.decode(name)
    except ValueError:
        return False
    return True


def _spelled(name: str) -> str:
    """Return a name as text: others may have made one of bytes that are none."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
