"""Find out which sessions of a directory have changed: the consumer of `log.change_marks`.

A refresh begins the next epoch, and reads the names that writers added in earlier ones. It takes the lock of
each named session for a moment: a writer that saw an earlier epoch has then written. The files of these
epochs are removed after the caller has committed.

Marks are not synced, and other programs may change the store. So all sessions are compared if a mark may be
missing: after a reboot, in another directory, or without the file of an epoch. (Another consumer has read
such a file, or a writer could not add to it.) docs/format.md, F-128 to F-134.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from typing import Final

import msgspec

from hansard.backend.contract import Changed
from hansard.errors import LockTimeout, UnsafePath
from hansard.log import disk, names
from hansard.log.change_marks import MarkFiles
from hansard.log.store_directory import StoreDirectory, is_past

#: Seconds that a refresh waits in all for writers that hold the locks of marked sessions.
PATIENCE: Final = 1.0

Ids = Callable[[Iterable[str]], Iterator[str]]

boot_id = cache(disk.boot)


class _Seen(msgspec.Struct, frozen=True, array_like=True):
    """What a refresh that was committed has seen of the store."""

    boot: str = ""
    #: Device and inode of the directory of sessions, and the inode of `epoch`.
    place: tuple[int, ...] = ()
    #: The names of all earlier epochs have been read.
    epoch: int = 0
    #: The modification time of the directory of sessions; 0 if it is too recent to rely on.
    names: int = 0


_decode_seen = msgspec.json.Decoder(_Seen).decode


def version(root: StoreDirectory) -> str:
    """Return what the last refresh has seen, if nothing was recorded or lost since; "" if unknown."""
    files = root.marks.files
    try:
        if files is None or not files.in_place(root.descriptor):
            return ""
        found = _look(root, files)
        current = found.boot and found.names and _is_current(files, found, found)
    except OSError:
        return ""
    return _encode(found) if current else ""


def changed(root: StoreDirectory, ids_of: Ids, since: str) -> Changed:
    """Begin a refresh. `ids_of`: returns the ids of the sessions in directories."""
    descriptor = root.descriptor  # raises if the store is closed
    try:
        files = root.marks.open(descriptor)
        return Changed(every=True) if files is None else _changed(root, files, ids_of, since)
    except OSError:
        return Changed(every=True)


# No closure in it: CPython loses the arguments of a function if it has no memory for a cell.
def _changed(root: StoreDirectory, files: MarkFiles, ids_of: Ids, since: str) -> Changed:
    known = _decode(since)
    found = _look(root, files)
    marked: set[str] = set()
    read: list[int] = []
    old: set[int] = set()
    certain = _is_current(files, found, known)
    if not certain:
        last = found.epoch
        found = msgspec.structs.replace(found, epoch=files.begin())
        # After it began: a writer that saw the last epoch has added its name, or removed the file, or will
        # see the new one.
        old = files.epochs() - {found.epoch}
        for epoch in old:
            with suppress(OSError):
                marked.update(files.read(epoch))
                read.append(epoch)
        # Whether the files of all epochs since were read; there may be too many to list.
        first = known.epoch
        count = len({*read} & {*range(first, last + 1)}) if last - first < len(read) else 0
        certain = known.place == found.place and 0 < first <= last < first + count
    # A session that is not recorded may not be written yet either.
    _wait(root, files, marked if certain else {*marked, *root.directories()})
    every = not certain or not found.boot or found.boot != known.boot
    # The id of a session that is missing cannot be derived from a hashed name.
    appeared = known.names != found.names or not found.names or any(map(names.is_hashed, marked))
    present = None if every or not appeared else frozenset(ids_of(root.directories()))
    ids, done = frozenset(ids_of(marked)), partial(_remove, files, old)
    return Changed(ids, every, present, _encode(found), done)


def _look(root: StoreDirectory, files: MarkFiles) -> _Seen:
    modified = disk.status(root.sessions).st_mtime_ns
    return _Seen(
        boot_id(),
        (*disk.identity(root.sessions), files.inode),
        files.numbers[0],
        modified if is_past(modified) else 0,
    )


def _is_current(files: MarkFiles, found: _Seen, known: _Seen) -> bool:
    """Return whether nothing was recorded or lost since a refresh, which began the current epoch."""
    same = (known.place, known.epoch) == (found.place, found.epoch)
    return same and found.epoch > 0 and files.is_empty(found.epoch)


def _wait(root: StoreDirectory, files: MarkFiles, marked: Iterable[str]) -> None:
    """Take the lock of each session for a moment; mark those again that stay locked."""
    deadline = time.monotonic() + PATIENCE
    for name in marked:
        try:
            # One that is deleted was deleted with its lock held, and recorded.
            root.pass_lock(name, max(0.0, deadline - time.monotonic()))
        except LockTimeout:
            files.mark(name)
        except UnsafePath:
            continue  # a link or a file: no writer follows it


def _remove(files: MarkFiles, epochs: set[int]) -> None:
    """Remove files that were read; one that stays is read again."""
    for epoch in epochs:
        with suppress(OSError):
            files.remove(epoch)


def _encode(seen: _Seen) -> str:
    return msgspec.json.encode(seen).decode()


def _decode(since: str) -> _Seen:
    try:
        return _decode_seen(since)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _Seen()


def stamps(root: StoreDirectory, sessions: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield ids with a string that changes when the log does; given ids and names of directories."""
    directory = root.sessions
    for session_id, name in sessions:
        try:
            found = disk.status(directory, f"{name}/{names.LOG}")
            yield session_id, f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"
        except OSError:
            # No log yet, or one that cannot be examined, which is a session too.
            if root.holds_log(name):
                yield session_id, "?"
