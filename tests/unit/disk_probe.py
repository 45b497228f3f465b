"""Inspect the files of a store, and count its reads and writes."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hansard.log import disk, names


class Seen(NamedTuple):
    """All that can be seen of a file from outside, but for when it was read."""

    mode: int
    inode: int
    links: int
    size: int
    modified: int
    changed: int
    #: The bytes of a file, the target of a link, nothing of a directory.
    content: bytes


def tree(root: Path) -> dict[str, Seen]:
    """Return every file and directory below a path, and the path itself; follows no link."""
    found = {".": _see(root)}
    for path in sorted(root.rglob("*")):
        found[str(path.relative_to(root))] = _see(path)
    return found


def _see(path: Path) -> Seen:
    status = path.lstat()
    content = b""
    if stat.S_ISLNK(status.st_mode):
        content = os.fsencode(path.readlink())
    elif stat.S_ISREG(status.st_mode):
        content = path.read_bytes()
    return Seen(
        status.st_mode,
        status.st_ino,
        status.st_nlink,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        content,
    )


def modes(root: Path) -> dict[str, str]:
    """Return type and permissions of everything below a path, as `ls` shows them."""
    return {name: stat.filemode(seen.mode) for name, seen in tree(root).items()}


def log_of(store: Path, name: str) -> Path:
    """Return the active segment of a session, by the name of its directory."""
    return store / "sessions" / name / "log.jsonl"


class Traffic:
    """Counts the bytes that pass through `hansard.log.disk`, and can be set back to nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        #: Offset and length of each read; the largest that was requested.
        self.reads: list[tuple[int, int]] = []
        self.largest = 0
        #: The length of each write, and the inodes of the files that were written to.
        self.writes: list[int] = []
        self.files: set[int] = set()
        read_at, write = disk.read_at, disk.write

        def counted_read(descriptor: int, length: int, offset: int) -> bytes:
            data = read_at(descriptor, length, offset)
            self.reads.append((offset, len(data)))
            self.largest = max(self.largest, length)
            return data

        def counted_write(descriptor: int, data: Any) -> int:
            self.files.add(os.fstat(descriptor).st_ino)
            done = write(descriptor, data)
            self.writes.append(done)
            return done

        monkeypatch.setattr(disk, "read_at", counted_read)
        monkeypatch.setattr(disk, "write", counted_write)

    def clear(self) -> None:
        """Forget what was counted so far."""
        self.reads.clear()
        self.largest = 0
        self.writes.clear()
        self.files.clear()

    @property
    def read(self) -> int:
        """The number of bytes that were read."""
        return sum(length for _, length in self.reads)

    @property
    def written(self) -> int:
        """The number of bytes that were written."""
        return sum(self.writes)


class Counted:
    """Counts the calls of some functions, and the bytes that they return."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.calls = 0
        self.bytes = 0

    def watch(self, owner: object, name: str) -> None:
        """Count the calls of a function."""
        real: Callable[..., Any] = getattr(owner, name)

        def counted(*args: Any, **options: Any) -> Any:
            self.calls += 1
            found = real(*args, **options)
            self.bytes += len(found) if isinstance(found, bytes) else 0
            return found

        self._patch.setattr(owner, name, counted)

    def of(self, call: Callable[[], object]) -> int:
        """Return how many calls one call makes."""
        before = self.calls
        call()
        return self.calls - before


def index_of(store: Path) -> Path:
    """Return the database of a store's index (F-155); a path that does not exist if there is none."""
    try:
        status = (store / names.INDEX).lstat()
    except FileNotFoundError:
        return store / names.INDEX
    return store / names.index_database(status.st_ino, status.st_ctime_ns)


def flip(path: Path, at: int | None = None) -> bytes:
    """Flip a bit of a file, in its middle or at an offset, and return the bytes that are there now."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)
    return bytes(data)
