"""Rebuild every state in which a power cut may leave a store, from what the store asked of the disk.

A recorder writes down each call that changes something. After each of them the power may go, and then:

- of a file, what was synced is there; what was written since is there, or not, or in part, or as NUL bytes;
- of a directory, the names that were synced are there; of the changes since, each may be there or not.

So each point of a run has many legal states. They are made anew in a fresh directory, and opened.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hansard.testing import faults

#: A directory as name → directory or content; what is rebuilt.
Tree = dict[str, Any]


@dataclass(frozen=True)
class Naming:
    """A change of names: each (directory, name, what it names now) at once, or not at all."""

    entries: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True)
class Writing:
    """Bytes at the end of a file."""

    file: int
    data: bytes


@dataclass(frozen=True)
class Syncing:
    """A file's data, or a directory's names, are on the disk from here on."""

    what: int


@dataclass(frozen=True)
class Acknowledged:
    """The caller was told that a step is done."""

    step: int


Operation = Naming | Writing | Syncing | Acknowledged


class Recorder:
    """Writes down what a run asks of the disk; everything is below one directory, which is durable."""

    def __init__(self, base: Path) -> None:
        self.base = base.stat().st_ino
        self.operations: list[Operation] = []
        self.directories: set[int] = {self.base}
        self._known: set[int] = {self.base}

    def run(self, steps: list[Callable[[], object]]) -> None:
        """Take steps one after the other, each acknowledged when it returns."""
        with faults.record(watch=self._watch):
            for number, step in enumerate(steps, 1):
                step()
                self.operations.append(Acknowledged(number))

    def _watch(self, call: faults.Call, arguments: tuple[Any, ...], result: Any) -> None:
        match call.operation:
            case "make_root":
                made = os.stat(arguments[0]).st_ino
                self.directories.add(made)
                self._named(os.stat(os.path.dirname(arguments[0])).st_ino, call.place, made)
            case "make_directory":
                made = os.stat(arguments[1], dir_fd=arguments[0]).st_ino
                self.directories.add(made)
                self._named(_inode(arguments[0]), arguments[1], made)
            case "create_file" | "open_file":
                self._named(_inode(arguments[0]), arguments[1], _inode(result))
            case "write":
                self.operations.append(Writing(_inode(arguments[0]), bytes(arguments[1])[:result]))
            case "sync" | "sync_directory":
                self.operations.append(Syncing(_inode(arguments[0])))
            case "publish":
                directory, temporary, name = arguments
                file = os.stat(name, dir_fd=directory).st_ino
                self.operations.append(Naming(((_inode(directory), name, file),)))
                self.operations.append(Naming(((_inode(directory), temporary, None),)))
            case "link":
                directory, _, name = arguments
                file = os.stat(name, dir_fd=directory).st_ino
                self.operations.append(Naming(((_inode(directory), name, file),)))
            case "move":
                source, name, target, new_name = arguments
                moved = os.stat(new_name, dir_fd=target).st_ino
                gone, come = (_inode(source), name, None), (_inode(target), new_name, moved)
                # One entry of the file system's journal: never seen by halves.
                self.operations.append(Naming((gone, come)))
            case "remove":
                self.operations.append(Naming(((_inode(arguments[0]), arguments[1], None),)))

    def _named(self, directory: int, name: str, made: int) -> None:
        if made not in self._known:
            self._known.add(made)
            self.operations.append(Naming(((directory, os.path.basename(name), made),)))


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


@dataclass
class _Disk:
    """What is on the disk, and what is only in memory, after some operations."""

    names: dict[int, dict[str, int]] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)
    pending_names: list[Naming] = field(default_factory=list)
    pending_data: dict[int, bytes] = field(default_factory=dict)

    def take(self, operation: Operation) -> None:
        match operation:
            case Naming():
                self.pending_names.append(operation)
            case Writing(file, data):
                self.pending_data[file] = self.pending_data.get(file, b"") + data
            case Syncing(what):
                self.data[what] = self.data.get(what, b"") + self.pending_data.pop(what, b"")
                for naming in list(self.pending_names):
                    if what in {directory for directory, _, _ in naming.entries}:
                        self.pending_names.remove(naming)
                        _apply(self.names, naming)

    def states(self, base: int, directories: set[int]) -> Iterator[Tree]:
        """Yield all states that a power cut at this moment may leave."""
        for kept in _some_of(self.pending_names):
            names = {directory: dict(entries) for directory, entries in self.names.items()}
            for naming in kept:
                _apply(names, naming)
            for data in self._datas():
                yield _tree(base, directories, names, data)

    def _datas(self) -> Iterator[dict[int, bytes]]:
        if not self.pending_data:
            yield self.data
        for file, pending in self.pending_data.items():
            synced = self.data.get(file, b"")
            length = len(pending)
            for cut in {0, 1, length - 1, length, *range(0, length, length // 12 + 1)}:
                for end in (pending[:cut], pending[:cut] + bytes(length - cut)):
                    yield {**self.data, file: synced + end}


def _apply(names: dict[int, dict[str, int]], naming: Naming) -> None:
    for directory, name, what in naming.entries:
        entries = names.setdefault(directory, {})
        if what is None:
            entries.pop(name, None)
        else:
            entries[name] = what


def _some_of(namings: list[Naming]) -> Iterator[list[Naming]]:
    """Yield which pending changes of names a power cut may spare: all first ones, all but one, one."""
    count = len(namings)
    for end in range(count + 1):
        yield namings[:end]
    for place in range(count):
        yield namings[:place] + namings[place + 1 :]
        yield [namings[place]]


def _tree(
    directory: int, directories: set[int], names: dict[int, dict[str, int]], data: dict[int, bytes]
) -> Tree:
    return {
        name: _tree(what, directories, names, data) if what in directories else data.get(what, b"")
        for name, what in names.get(directory, {}).items()
    }


def crash_states(recorder: Recorder) -> Iterator[tuple[int, Tree]]:
    """Yield each legal state once, with the number of steps that had been acknowledged by then."""
    disk = _Disk()
    acknowledged = 0
    seen: set[str] = set()
    for operation in [None, *recorder.operations]:
        if isinstance(operation, Acknowledged):
            acknowledged = operation.step
        elif operation is not None:
            disk.take(operation)
        for tree in disk.states(recorder.base, recorder.directories):
            key = f"{acknowledged} {tree}"
            if key not in seen:
                seen.add(key)
                yield acknowledged, tree


def build(tree: Tree, place: Path) -> None:
    """Make a directory as it was left."""
    place.mkdir(mode=0o700)
    for name, content in tree.items():
        if isinstance(content, dict):
            build(content, place / name)
        else:
            (place / name).write_bytes(content)
