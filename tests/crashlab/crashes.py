"""Rebuild every state in which a power cut may leave a store, from the store's disk calls.

A recording writes down each call that changes something. After each of them the power may go, and then:

- of a file, what was synced is there; what was written since is there, or not, or in part, or as NUL bytes,
  or the later part without the earlier one (`State.hole`);
- of a directory, the names that were synced are there; of the changes since, each may be there or not.

So each point of a run has many legal states. `Recording.states` yields each of them once; a state is built
in a fresh directory, opened, and compared with what had been acknowledged by then:

    with crashes.record(base) as recording:
        store = hansard.open(base / "store")
        store.session("s").add_message(message)
        recording.acknowledge()
    for state in recording.states():
        state.build(place)
        # state.acknowledged == 1: the message must be there

It needs no privileges and no real power cut, and finds what these miss: a real file system often writes a
name to the disk before it must.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.crashlab import faults

__all__ = ["Recording", "State", "Tree", "record"]

#: A directory: name → directory, or content.
Tree = dict[str, Any]

#: At how many places a write is cut, at most, besides its first and its last byte.
_CUTS = 12


class State(NamedTuple):
    """One state that a power cut may leave."""

    #: Which: the number of the call that it comes after, and its number among the states of this call.
    label: str
    #: How many steps had been acknowledged by then.
    acknowledged: int
    tree: Tree
    #: Whether a later write is there and an earlier one of the same file is not. Only damage may be found.
    hole: bool = False

    def build(self, place: str | os.PathLike[str]) -> None:
        """Create the directory, which must not exist, in that state."""
        _build(self.tree, Path(place))


# -- recorded disk calls --------------------------------------------------------------------
# Files and directories are numbered here, because an inode's number may be another file's later.


@dataclass(frozen=True)
class _Naming:
    """A change of names: all of (directory, name, new target), or none."""

    entries: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True)
class _Writing:
    """Bytes in a file; None: at its end."""

    file: int
    data: bytes
    offset: int | None = None


@dataclass(frozen=True)
class _Syncing:
    """A file's data, or a directory's names, are on the disk from here on."""

    what: int


@dataclass(frozen=True)
class _Acknowledging:
    """A step that was acknowledged to the caller."""


_Operation = _Naming | _Writing | _Syncing | _Acknowledging


class Recording:
    """The disk calls of a run, in order: a context manager, returned by `record`.

    Attributes:
        acknowledged: how many steps have been acknowledged so far.
    """

    def __init__(self, base: str | os.PathLike[str]) -> None:
        self.acknowledged = 0
        self._base = Path(base)
        self._operations: list[_Operation] = []
        self._numbers: dict[int, int] = {}
        self._directories: set[int] = set()
        self._last = 0
        self._start = _Disk()
        #: The current targets of all names, durable or not.
        self._names: dict[int, dict[str, int]] = {}
        self._faults = faults.record(watch=self._watch)

    def __enter__(self) -> Self:
        self._root = self._take_in(self._base)
        self._names = {number: dict(names) for number, names in self._start.names.items()}
        self._faults.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._faults.__exit__(kind, error, traceback)

    def acknowledge(self) -> int:
        """Record an acknowledged step; return their number."""
        self.acknowledged += 1
        self._operations.append(_Acknowledging())
        return self.acknowledged

    def states(self) -> Iterator[State]:
        """Yield each state once that a power cut may leave, at any moment of the run."""
        disk = self._start.copy()
        acknowledged = 0
        seen: set[_Key] = set()
        for number, operation in enumerate([None, *self._operations]):
            if isinstance(operation, _Acknowledging):
                acknowledged += 1
                seen.clear()
            elif operation is not None:
                disk.take(operation)
            for variant, (names, data, hole) in enumerate(disk.states()):
                files, key = _reach(self._root, names, data)
                if key not in seen:
                    seen.add(key)
                    tree = _tree(self._root, self._directories, names, files)
                    yield State(f"{number}.{variant}", acknowledged, tree, hole)

    def _take_in(self, directory: Path) -> int:
        """Note down a directory that was there before: all of it is on the disk."""
        number = self._new(directory.stat().st_ino)
        self._directories.add(number)
        names = self._start.names.setdefault(number, {})
        for path in sorted(directory.iterdir()):
            if path.is_dir():
                names[path.name] = self._take_in(path)
            else:
                inode = path.stat().st_ino
                names[path.name] = self._numbers.get(inode) or self._new(inode)
                self._start.data[names[path.name]] = path.read_bytes()
        return number

    def _new(self, inode: int) -> int:
        self._last += 1
        self._numbers[inode] = self._last
        return self._last

    def _number(self, descriptor: int) -> int:
        inode = os.fstat(descriptor).st_ino
        return self._numbers.get(inode) or self._new(inode)

    def _watch(self, call: faults.Call, arguments: tuple[Any, ...], result: Any) -> None:
        match call.operation:
            case "write":
                data = bytes(arguments[1])[:result]
                self._operations.append(_Writing(self._number(arguments[0]), data))
            case "write_at":
                descriptor, data, offset = arguments
                self._operations.append(_Writing(self._number(descriptor), bytes(data), offset))
            case "lengthen":
                descriptor, length = arguments
                self._operations.append(_Writing(self._number(descriptor), b"", length))
            case "sync" | "sync_directory":
                self._operations.append(_Syncing(self._number(arguments[0])))
            case "make_root" | "make_directory" | "create_file" | "open_file" | "open_to_change":
                self._watch_making(call.operation, arguments, result)
            case _:
                self._watch_naming(call.operation, arguments)

    def _watch_making(self, operation: str, arguments: tuple[Any, ...], result: Any) -> None:
        match operation:
            case "make_root":
                above = os.stat(os.path.dirname(arguments[0])).st_ino
                made = os.stat(arguments[0]).st_ino
                if above in self._numbers:
                    self._directories.add(
                        self._made(self._numbers[above], os.path.basename(arguments[0]), made)
                    )
            case "make_directory":
                made = os.stat(arguments[1], dir_fd=arguments[0]).st_ino
                self._directories.add(self._made(self._number(arguments[0]), arguments[1], made))
            case _:
                inode = os.fstat(result).st_ino
                self._made(self._number(arguments[0]), arguments[1], inode)

    def _watch_naming(self, operation: str, arguments: tuple[Any, ...]) -> None:
        match operation:
            case "publish":
                directory, temporary, name = arguments
                place = self._number(directory)
                self._name((place, name, self._names[place][temporary]))
                self._name((place, temporary, None))
            case "link":
                directory, name, second = arguments
                place = self._number(directory)
                self._name((place, second, self._names[place][name]))
            case "move":
                source, name, target, new_name = arguments
                gone = (self._number(source), name, None)
                come = (self._number(target), new_name, self._names[gone[0]][name])
                # One entry of the file system's journal: never seen by halves.
                self._name(gone, come)
            case "remove" | "remove_empty":
                self._name((self._number(arguments[0]), arguments[1], None))

    def _made(self, directory: int, name: str, inode: int) -> int:
        """Note down that a name leads to something; return the number of that, new or not."""
        known = self._names.get(directory, {}).get(name)
        if known is not None:
            return known
        made = self._new(inode)
        self._name((directory, name, made))
        return made

    def _name(self, *entries: tuple[int, str, int | None]) -> None:
        naming = _Naming(entries)
        _apply(self._names, naming)
        self._operations.append(naming)


#: Directory → name → target.
_Names = dict[int, dict[str, int]]

#: The identity of a state: the target of each reachable name, and its content.
_Key = frozenset[tuple[int, str, int, bytes]]


@dataclass
class _Disk:
    """The durable state and the state in memory, after some operations."""

    names: dict[int, dict[str, int]] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)
    pending_names: list[_Naming] = field(default_factory=list)
    pending_data: dict[int, list[_Writing]] = field(default_factory=dict)

    def copy(self) -> "_Disk":
        return _Disk({place: dict(names) for place, names in self.names.items()}, dict(self.data))

    def take(self, operation: _Operation) -> None:
        match operation:
            case _Naming():
                self.pending_names.append(operation)
            case _Writing(file):
                self.pending_data.setdefault(file, []).append(operation)
            case _Syncing(what):
                pending = self.pending_data.pop(what, [])
                self.data[what] = _written(self.data.get(what, b""), pending)
                for naming in list(self.pending_names):
                    if what in {directory for directory, _, _ in naming.entries}:
                        self.pending_names.remove(naming)
                        _apply(self.names, naming)

    def states(self) -> Iterator[tuple[_Names, dict[int, bytes], bool]]:
        """Yield all states that a power cut at this moment may leave, and whether they have a hole."""
        datas = list(self._datas())
        for kept in _some_of(self.pending_names):
            names = {directory: dict(entries) for directory, entries in self.names.items()}
            for naming in kept:
                _apply(names, naming)
            for data, hole in datas:
                yield names, data, hole

    def _datas(self) -> Iterator[tuple[dict[int, bytes], bool]]:
        """Yield what files may hold: one in part, the others not at all, or wholly."""
        wholly = dict(self.data)
        for file, pending in self.pending_data.items():
            wholly[file] = _written(self.data.get(file, b""), pending)
        yield self.data, False
        if self.pending_data:
            yield wholly, False
        for file, pending in self.pending_data.items():
            for content, hole in _parts(self.data.get(file, b""), pending):
                yield {**self.data, file: content}, hole
                if len(self.pending_data) > 1:
                    yield {**wholly, file: content}, hole


def _written(content: bytes, writings: list[_Writing]) -> bytes:
    """Return what a file holds once writes have reached it."""
    for writing in writings:
        at = len(content) if writing.offset is None else writing.offset
        content = content.ljust(at, b"\0")
        content = content[:at] + writing.data + content[at + len(writing.data) :]
    return content


def _parts(synced: bytes, pending: list[_Writing]) -> Iterator[tuple[bytes, bool]]:
    """Yield what a file may hold of writes that were not synced, and whether it has a hole."""
    whole = _written(synced, pending)
    for number, last in enumerate(pending):
        before = _written(synced, pending[:number])
        length = len(last.data)
        for cut in sorted({0, 1, length - 1, length, *range(0, length, length // _CUTS + 1)}):
            content = _written(before, [_Writing(last.file, last.data[: max(cut, 0)], last.offset)])
            yield content, False
            # The size is there and the data is not.
            yield content.ljust(len(_written(before, [last])), b"\0"), False
    if len(pending) > 1 and len(whole) > len(synced):
        for number, lost in enumerate(pending[:-1]):
            zeros = _Writing(lost.file, bytes(len(lost.data)), lost.offset)
            yield _written(synced, [*pending[:number], zeros, *pending[number + 1 :]]), True


def _apply(names: dict[int, dict[str, int]], naming: _Naming) -> None:
    for directory, name, what in naming.entries:
        entries = names.setdefault(directory, {})
        if what is None:
            entries.pop(name, None)
        else:
            entries[name] = what


def _some_of(namings: list[_Naming]) -> Iterator[list[_Naming]]:
    """Yield which pending changes of names a power cut may spare: all first ones, all but one, one."""
    count = len(namings)
    for end in range(count + 1):
        yield namings[:end]
    for place in range(count):
        yield namings[:place] + namings[place + 1 :]
        yield [namings[place]]


def _reach(root: int, names: _Names, data: dict[int, bytes]) -> tuple[dict[int, bytes], _Key]:
    """Return the content of everything below a directory, and one key for it."""
    found: dict[int, bytes] = {}
    entries = []
    todo = [root]
    while todo:
        directory = todo.pop()
        for name, what in names.get(directory, {}).items():
            if what in names:
                todo.append(what)
            found[what] = content = data.get(what, b"")
            entries.append((directory, name, what, content))
    return found, frozenset(entries)


def _tree(
    directory: int, directories: set[int], names: dict[int, dict[str, int]], data: dict[int, bytes]
) -> Tree:
    return {
        name: _tree(what, directories, names, data) if what in directories else data.get(what, b"")
        for name, what in names.get(directory, {}).items()
    }


def _build(tree: Tree, place: Path) -> None:
    place.mkdir(mode=0o700)
    for name, content in tree.items():
        if isinstance(content, dict):
            _build(content, place / name)
        else:
            (place / name).write_bytes(content)


def record(base: str | os.PathLike[str]) -> Recording:
    """Record the disk calls below a directory.

    Args:
        base: the directory, which exists; its present content counts as durable.
    """
    return Recording(base)
