"""Call the operating system's file functions: the only module of the store that does.

Functions take a directory's descriptor and a bare name. No path component below the store's directory is
looked up twice, and no symbolic link is followed (docs/format.md, F-4). They raise plain `OSError`; `explain`
and `reporting` turn one into an error of hansard. Tests inject faults by replacing the functions of this
module (`tests/crashlab/faults.py`). So other modules call them as `disk.write(...)`, and never bind them to
a name.

`Lock` is the OS lock between processes (F-38). It belongs to the open file: the system releases it when its
holder dies. Appends call `flock` themselves: importing portalocker takes longer than everything else that a
new process does to append (docs/decisions/0033).
"""

import contextlib
import errno
import fcntl
import math
import os
import resource
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol
from weakref import WeakSet, ref

from hansard.clock import Backoff
from hansard.errors import DiskFailed, HansardError, LockTimeout, UnsafePath
from hansard.observe import WARNING, Counters, report

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
#: In a store of a group (F-172). With setgid, what is created in a directory belongs to its group.
GROUP_DIRECTORY_MODE = 0o2770
GROUP_FILE_MODE = 0o660

#: Errors of a file system without hard links, or at their limit.
NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
)

_CLOEXEC = os.O_CLOEXEC | os.O_NOFOLLOW
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY

# Aliases, not wrappers: most of these are called on every append or every read.
write = os.write
write_at = os.pwrite
read_at = os.pread
status_of = os.fstat
close = os.close
sync_directory = os.fsync
real = os.path.realpath
user = os.geteuid


def absolute(path: str) -> str:
    """Return an absolute path. Not an alias: no module may read the environment at import (N-90)."""
    return os.path.abspath(path)


# -- forks of the process -----------------------------------------------------------------------

#: Grows by one in each forked child. The files of a session compare it with the value at which they were
#: opened, and are opened again: a child that used its parent's lock file would release the parent's lock.
generation = 0

#: Held while a forked child replaces inherited objects, so that only one of its threads does.
fork_guard = threading.Lock()


class AfterFork(Protocol):
    """Has locks or threads that are useless in a forked child: another thread may hold the locks."""

    def after_fork(self) -> None:
        """Replace them. Called in the child, before anything else runs there; must not wait or lock."""


_reset_after_fork: "WeakSet[AfterFork]" = WeakSet()
#: Files that a forked child closes: a killed parent's lock would otherwise remain locked.
_not_inherited: "WeakSet[Lock]" = WeakSet()


def reset_after_fork(owner: AfterFork) -> None:
    """Call `after_fork` of an object in each forked child."""
    _reset_after_fork.add(owner)


def _forked() -> None:
    global generation, fork_guard  # noqa: PLW0603 - one of each for the process is the point
    # First: Python ignores exceptions of a hook.
    generation += 1
    fork_guard = threading.Lock()
    for file in list(_not_inherited):
        file.close()
    for owner in list(_reset_after_fork):
        with contextlib.suppress(Exception):
            owner.after_fork()


os.register_at_fork(after_in_child=_forked)


class ForkLock:
    """A re-entrant lock that forked children replace. Use `with it.lock`: that releases the one it took."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock."""
        self.lock = threading.RLock()


# -- descriptors --------------------------------------------------------------------------------


class OwnedFd(int):
    """The descriptor of a file or directory, closed with its last reference; nothing else may close it.

    Not before: a thread that is reading must never find another file under its number. It *is* the number: a
    call that passes it to the system holds a reference until it returns.
    """

    __slots__ = ()

    def __del__(self) -> None:
        close(self)


class GroupFd(OwnedFd):
    """A descriptor in a store of a group; so is every one that is opened in it."""

    __slots__ = ()


#: Descriptors of a session that is written to: its log, its lock and its directory.
SESSION_FILES: Final = 3
#: Of a store, besides its root directory: two directories, three for change marks, three for its index.
STORE_FILES: Final = 8

#: The minimum and maximum of the budget, in descriptors.
_FEWEST: Final = 2 * STORE_FILES
_MOST: Final = 256 * SESSION_FILES


class FileHolder(Protocol):
    """Keeps files open for reuse.

    Attributes:
        descriptors: maximum number of its open files.
    """

    descriptors: int

    def release_files(self, *, wait: bool = True) -> None:
        """Close idle files. Without `wait`, skip locked ones: the calling thread may hold the lock."""


#: Open stores: each keeps its root directory open, to find it after it was renamed.
open_stores: "WeakSet[object]" = WeakSet()

#: Guards `_holders`. Re-entrant, for signal handlers.
_holders_mutex = ForkLock()
#: The holders, the least recently used first, with their numbers of descriptors. Not an `OrderedDict`, which
#: looks up each key to add up the values: 60 µs for 140 holders, since ended ones share their hashes.
_holders: "dict[ref[FileHolder], int]" = {}


def file_budget() -> int:
    """Return how many descriptors all holders may keep: half of the process's limit, less one per store."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    half = _MOST if soft == resource.RLIM_INFINITY else soft // 2
    return max(_FEWEST, min(_MOST, half - len(open_stores)))


def files_held() -> int:
    """Return the number of descriptors that the holders may have open."""
    return sum(_holders.values())


def hold_files(holder: FileHolder) -> None:
    """Record that a holder opens files; over the budget, close those of the least recently used ones."""
    me = ref(holder)
    with _holders_mutex.lock:
        _holders.pop(me, None)
        _holders[me] = holder.descriptors
    _release_idle_files(file_budget())


def _release_idle_files(budget: int = 0) -> None:
    while files_held() > budget:
        with _holders_mutex.lock:
            oldest = next(iter(_holders), None)
            if oldest is not None:
                del _holders[oldest]
        holder = None if oldest is None else oldest()
        if holder is not None:
            holder.release_files(wait=False)


def _open(path: str, flags: int, mode: int = 0o777, *, directory: int | None = None) -> OwnedFd:
    """Open a file; if too many are open, close idle ones and retry once."""
    owned = GroupFd if isinstance(directory, GroupFd) else OwnedFd
    try:
        return owned(os.open(path, flags, mode, dir_fd=directory))
    except OSError as error:
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
    _release_idle_files()
    return owned(os.open(path, flags, mode, dir_fd=directory))


# -- files --------------------------------------------------------------------------------------


def size(descriptor: int) -> int:
    """Return the size of an open file. A seek costs a third of an `fstat`."""
    return os.lseek(descriptor, 0, os.SEEK_END)


def next_data(descriptor: int, offset: int) -> int:
    """Return where data begin at or after an offset, past a hole of a sparse file; or the file's end."""
    seek_data = getattr(os, "SEEK_DATA", None)
    if seek_data is None:  # pragma: no cover - not on every system
        return offset
    try:
        return os.lseek(descriptor, offset, seek_data)
    except OSError as error:
        # ENXIO: there are none. Otherwise the file system does not tell holes from zeros.
        return max(size(descriptor), offset) if error.errno == errno.ENXIO else offset


if sys.platform == "darwin":  # pragma: no cover - needs a Mac

    def sync(descriptor: int) -> None:
        """Make a file's data survive a power cut: `fsync` only passes them to the drive."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:
    sync = os.fdatasync


def open_file(
    directory: int, name: str, *, writable: bool = False, create: bool = False
) -> OwnedFd:
    """Open a regular file to read, or to read and append; links, pipes and devices are refused."""
    flags = os.O_RDWR | os.O_APPEND if writable else os.O_RDONLY
    if create:
        flags |= os.O_CREAT
    return _open_regular(directory, name, flags, links=sys.maxsize)


def open_to_change(directory: int, name: str) -> OwnedFd:
    """Open a regular file to write anywhere in it, or create it; links, pipes and devices are refused."""
    # Without O_APPEND: on Linux, it would send every write to the end of the file.
    # A file with a second name may belong to another program, and must not be written.
    return _open_regular(directory, name, os.O_RDWR | os.O_CREAT, links=1)


def _open_regular(directory: int, name: str, flags: int, *, links: int) -> OwnedFd:
    if flags & os.O_CREAT and isinstance(directory, GroupFd):
        _create_for_group(directory, name)
    # O_NONBLOCK: a pipe under this name must not make us wait for its other end.
    descriptor = _open(name, flags | os.O_NONBLOCK | _CLOEXEC, FILE_MODE, directory=directory)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > links:
        raise OSError(errno.ELOOP, "not a regular file of ours", name)
    return descriptor


def lengthen(descriptor: int, length: int) -> None:
    """Extend a shorter file to this length, with zeros."""
    there = size(descriptor)
    if there < length:
        os.pwrite(descriptor, bytes(length - there), there)


def map_numbers(descriptor: int, length: int) -> Sequence[int]:
    """Map the beginning of a file as 64-bit numbers; unmapped with the last reference."""
    import mmap

    return memoryview(mmap.mmap(descriptor, length, prot=mmap.PROT_READ)).cast("Q")


def read_all(directory: int, name: str, limit: int) -> bytes:
    """Return the content of a file; raise if it is larger than `limit` bytes."""
    descriptor = open_file(directory, name)
    # Not `limit` bytes at once: that would allocate as much for a small file.
    there = size(descriptor)
    data = read_at(descriptor, there + 1, 0) if there <= limit else b""
    if max(there, len(data)) > limit:
        raise OSError(errno.EFBIG, "larger than it can be", name)
    return data


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything; after a short write, continue until the system reports an error."""
    written = write(descriptor, data)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(data):
        step = write(descriptor, view[written:])
        if step == 0:
            raise OSError(errno.EIO, "the system accepts no more bytes")
        written += step


def copy_content(source: int, target: int) -> None:
    """Append the content of one open file to another."""
    offset = 0
    while data := read_at(source, 1 << 20, offset):
        write_all(target, data)
        offset += len(data)


def forget_cached(descriptor: int) -> None:
    """Ask the kernel to drop its cached pages of a file, so that a read comes from the disk."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


# -- temporary files ----------------------------------------------------------------------------


def create_file(directory: int, name: str) -> OwnedFd:
    """Create a file that must not exist, to read and append, and lock it: it is in use until it is closed."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _CLOEXEC
    while True:
        descriptor = _open(name, flags, FILE_MODE, directory=directory)
        try:
            if isinstance(directory, GroupFd):
                # The umask may have taken the group's bits. Before it has its final name, and through the
                # descriptor: no process has to wait for the mode, and no link is followed.
                os.fchmod(descriptor, GROUP_FILE_MODE)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Otherwise it was removed by a sweep before it was locked.
            if links(descriptor):
                return descriptor
        except BaseException:
            discard(directory, name)
            raise


def _create_for_group(directory: int, name: str) -> None:
    """Create an empty file of a group, unless there is one: it has its mode before it has its name."""
    from hansard.log import names as file_names

    temporary = file_names.temporary("new")
    if not present(directory, name):
        with contextlib.suppress(FileExistsError), temporary_file(directory, temporary) as file:
            publish(directory, temporary, name)
            # Not only closed: a process that was forked since has a copy, and would keep it locked.
            fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def temporary_file(directory: int, name: str) -> Iterator[OwnedFd]:
    """Create a file for a block, which renames it; after an error, it is removed."""
    descriptor = create_file(directory, name)
    try:
        yield descriptor
    except BaseException:
        discard(directory, name)
        raise


def is_in_use(directory: int, name: str) -> bool:
    """Return whether a process holds the lock of a file that `create_file` created."""
    try:
        fcntl.flock(open_file(directory, name), SHARED)
    except OSError:
        return True  # or no one can tell
    return False


def remove_unused(directory: int, name: str) -> None:
    """Delete a file that `create_file` created; raise if it is in use."""
    descriptor = open_file(directory, name, writable=True)
    fcntl.flock(descriptor, _EXCLUSIVE_NOW)
    # It may have been renamed and be in use. Only the holder of the lock removes its name.
    if is_named(directory, name, descriptor):
        remove(directory, name)


# -- directories and names ----------------------------------------------------------------------


def open_root(path: str) -> OwnedFd:
    """Open a store's root directory; the last component must not be a link."""
    return _open(path, _DIRECTORY | _CLOEXEC)


def for_group(directory: int) -> GroupFd:
    """Open a directory again, as one of a store of a group."""
    return GroupFd(os.open(".", _DIRECTORY | _CLOEXEC, dir_fd=directory))


def in_group_store(directory: int) -> bool:
    """Return whether a descriptor is one in a store of a group."""
    return isinstance(directory, GroupFd)


def make_root(path: str, *, group: bool = False) -> None:
    """Create the root directory of a store, and missing directories above it, durably.

    `group`: they are for the group of this process, or of the directory above.
    """
    above = os.path.dirname(path)
    missing = []
    while above and not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    for made in (*reversed(missing), path):
        with contextlib.suppress(FileExistsError):
            os.mkdir(made, DIRECTORY_MODE)
            if group:
                os.fchmod(open_root(made), GROUP_DIRECTORY_MODE)
        if made != path:
            sync_directory(_open(os.path.dirname(made) or ".", _DIRECTORY | os.O_CLOEXEC))


def sync_above(directory: int) -> None:
    """Make the entry of an open directory durable, even after it was moved."""
    try:
        above = _open("..", _DIRECTORY | os.O_CLOEXEC, directory=directory)
    except PermissionError:
        return  # a directory that this user must not read cannot be synced either
    sync_directory(above)


def open_directory(parent: int, name: str) -> OwnedFd:
    """Open a directory; a link in its place is refused."""
    return _open(name, _DIRECTORY | _CLOEXEC, directory=parent)


def make_directory(parent: int, name: str) -> bool:
    """Create a directory; return whether it is new."""
    try:
        if isinstance(parent, GroupFd):
            _make_for_group(parent, name)
        else:
            os.mkdir(name, DIRECTORY_MODE, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def _make_for_group(parent: int, name: str) -> None:
    """Create a directory of a group: it has its mode before it has its name."""
    from hansard.log import names as file_names

    if present(parent, name):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    temporary = file_names.temporary("new")
    os.mkdir(temporary, DIRECTORY_MODE, dir_fd=parent)
    try:
        os.fchmod(open_directory(parent, temporary), GROUP_DIRECTORY_MODE)
        # It may replace an empty directory that another process has just created: that one tries again.
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            remove_empty(parent, temporary)
        if isinstance(error, OSError) and error.errno == errno.ENOTEMPTY:
            raise FileExistsError(error.errno, error.strerror, name) from error
        raise


def publish(directory: int, temporary: str, name: str) -> None:
    """Link a finished file to its name, which must be free, and remove the temporary name."""
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # A file system without hard links. The caller holds the lock and has seen the name free.
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        return
    os.unlink(temporary, dir_fd=directory)


def link(directory: int, name: str, second: str) -> None:
    """Give a file a second name; the name may exist already, for this file or for a copy of it."""
    try:
        os.link(name, second, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        if not os.path.samestat(_stat(directory, name), _stat(directory, second)):
            # Most copies of a store turn one file with two names into two files.
            os.unlink(second, dir_fd=directory)
            os.link(name, second, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)


def move(source: int, name: str, target: int, new_name: str) -> None:
    """Rename, across directories of one store."""
    os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def remove(directory: int, name: str) -> None:
    """Delete a file."""
    os.unlink(name, dir_fd=directory)


def discard(directory: int, name: str) -> None:
    """Delete a useless file, if it exists; if that fails, a later sweep removes it."""
    with contextlib.suppress(OSError):
        remove(directory, name)


def remove_empty(directory: int, name: str) -> None:
    """Delete an empty directory."""
    os.rmdir(name, dir_fd=directory)


def remove_directory(directory: int, name: str) -> None:
    """Delete a directory and the files in it; raise for anything that is not a file."""
    inner = open_directory(directory, name)
    for last in (False, False, False, True):
        for file in list(names(inner)):
            # Another process may be removing the same files.
            with contextlib.suppress(FileNotFoundError):
                remove(inner, file)
        try:
            remove_empty(directory, name)
        except OSError as error:
            # A process that has opened the directory may create its lock file now.
            if last or error.errno != errno.ENOTEMPTY:
                raise
        else:
            return


def names(directory: int) -> Iterator[str]:
    """Yield the names in a directory, unsorted."""
    # Opened again: readers of one open directory share its position, even in other threads and processes.
    with os.scandir(open_directory(directory, ".")) as entries:
        for entry in entries:
            yield entry.name


# -- status -------------------------------------------------------------------------------------


Status = os.stat_result


def _stat(directory: int, name: str = ".") -> Status:
    """Return what the system reports about a name in a directory, without following links."""
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


# Not called below: a test that replaces it replaces nothing else.
status = _stat


def kind(status: Status) -> str:
    """Return "file", "directory", "link" or "other"."""
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(status.st_mode), "other")


def mode(status: Status) -> int:
    """Return the permission bits, with setgid."""
    return stat.S_IMODE(status.st_mode)


def present(directory: int, name: str) -> bool:
    """Return whether a name exists, even as a dangling link; a refusal is an error."""
    try:
        _stat(directory, name)
    except FileNotFoundError:
        return False
    return True


def _find(directory: int, name: str) -> Status | None:
    try:
        return _stat(directory, name)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_link(directory: int, name: str) -> bool:
    """Return whether a name is a symbolic link."""
    found = _find(directory, name)
    return found is not None and stat.S_ISLNK(found.st_mode)


def identity(descriptor: int) -> tuple[int, int]:
    """Return device and inode of an open file."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def links(descriptor: int) -> int:
    """Return how many names an open file has: 0 once it was deleted."""
    return os.fstat(descriptor).st_nlink


def inode(directory: int, name: str) -> int | None:
    """Return the inode of a name; None if it does not exist."""
    found = _find(directory, name)
    return None if found is None else found.st_ino


def is_named(directory: int, name: str, descriptor: int) -> bool:
    """Return whether a name leads to an open file."""
    found = _find(directory, name)
    return found is not None and os.path.samestat(found, os.fstat(descriptor))


def may_write(directory: int) -> bool:
    """Return whether this process may create files in a directory."""
    return os.access(".", os.W_OK | os.X_OK, dir_fd=directory, effective_ids=True)


def is_member(group: int) -> bool:
    """Return whether this process belongs to a group, or may use every file."""
    return user() == 0 or group == os.getegid() or group in os.getgroups()


def free_names(descriptor: int) -> int | None:
    """Return how many more files this user may create; None where there is no limit."""
    status = os.statvfs(descriptor)
    return status.f_favail if status.f_files else None


def free_bytes(descriptor: int) -> int:
    """Return the bytes that this user may still write to the file system."""
    status = os.statvfs(descriptor)
    return status.f_bavail * status.f_frsize


# -- what the system reports below /proc ----------------------------------------------------------


def told_by_system(path: str) -> str:
    """Return the content of a file below /proc; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def boot() -> str:
    """Return the id of this boot of the machine; empty where the system does not report it."""
    return told_by_system("/proc/sys/kernel/random/boot_id").strip()


def lock_holders() -> dict[tuple[int, int], int]:
    """Return the processes that hold OS locks on files, by the file's device and inode; Linux only."""
    found = {}
    for line in told_by_system("/proc/locks").splitlines():
        # "1: FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF"; waiters have "->" in second place.
        words = line.split()
        with contextlib.suppress(IndexError, ValueError):
            if words[1] == "FLOCK":
                major, minor, inode = words[5].split(":")
                found[os.makedev(int(major, 16), int(minor, 16)), int(inode)] = int(words[4])
    return found


def command_of(pid: int) -> str:
    """Return the program of a process; empty where the system does not report it.

    Without its options, which may contain a password: errors with this text are logged. Without control
    characters, because a process can choose its own name.
    """
    words = told_by_system(f"/proc/{pid}/cmdline")[:200].split("\0")
    option = next(iter(words[1:]), "")
    told = words[:3] if option == "-m" else words[:1] if option.startswith("-") else words[:2]
    return "".join(c if c.isprintable() else "?" for c in " ".join(told)).strip()


# -- the lock between processes -----------------------------------------------------------------

#: First retry delay in seconds; doubles each time. With 200 µs, four processes append 30,000 times a second
#: to one session; with 50 µs, 25,000 times, because a waiter takes the processor from the holder.
_FIRST_PAUSE: Final = 0.000_2
#: Longest retry delay, in seconds. A retry takes 25 µs of processor time, since the waiter's data have left
#: the caches: with 2 ms, 100 processes do little else, and append half as often.
_LONGEST_PAUSE: Final = 0.006
#: Seconds after which a wait is reported.
_LONG: Final = 1.0

SHARED: Final = fcntl.LOCK_SH | fcntl.LOCK_NB
_EXCLUSIVE_NOW: Final = fcntl.LOCK_EX | fcntl.LOCK_NB

_flock: Callable[[int, int], object] = fcntl.flock


def _portalocker() -> Callable[[int, int], object]:
    from portalocker.portalocker import FlockLocker

    return FlockLocker().locker


class Lock:
    """The lock of one session, as one open lock file. For one thread at a time.

    `rare`: no append takes it; it belongs to compactions, to a consumer or to the store.

    Attributes:
        path: the lock file, for messages.
        release: releases the lock; harmless if it is not held. Not a method: an interrupt can come where a
            Python function begins, and this must not be interrupted.
    """

    __slots__ = ("__weakref__", "_counters", "_flock", "descriptor", "path", "release")

    def __init__(
        self, descriptor: int, path: str, counters: Counters | None = None, *, rare: bool = False
    ) -> None:
        self.descriptor = descriptor
        self._counters = counters or Counters()
        _not_inherited.add(self)
        self.path = path
        self._flock = _portalocker() if rare else _flock
        # The number alone: this must not keep the file open.
        self.release = partial(self._flock, int(descriptor), fcntl.LOCK_UN)

    def acquire(self, timeout: float, how: int = _EXCLUSIVE_NOW) -> None:
        """Take the lock, waiting for at most `timeout` seconds. `how`: `SHARED` for a shared lock."""
        try:
            self._flock(self.descriptor, how)
        except OSError as error:
            self._wait(error, timeout, partial(self._flock, self.descriptor, how))

    def pass_through(self, timeout: float) -> None:
        """Take the lock and release it: it was free at some moment.

        One call of C code does both. So no signal handler that appends waits for its own thread.
        """
        calls = (self.descriptor, self.descriptor), (_EXCLUSIVE_NOW, fcntl.LOCK_UN)
        try:
            list(map(self._flock, *calls))
        except OSError as error:
            self._wait(error, timeout, lambda: list(map(self._flock, *calls)))

    def close(self) -> None:
        """Close it now. No thread may be using it."""
        self.descriptor = -1

    def is_closed(self) -> bool:
        """Return whether it was closed, as forked children do."""
        return self.descriptor < 0

    def exists(self) -> bool:
        """Return whether the lock file is still linked."""
        with reporting("lock", self.path):
            return links(self.descriptor) > 0

    def _wait(self, error: OSError, timeout: float, attempt: Callable[[], object]) -> None:
        """Poll for the lock: short pauses first, since most holders release it within microseconds."""
        backoff = Backoff(timeout, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        began = time.monotonic()
        long = began + _LONG
        try:
            while True:
                if error.errno != errno.EAGAIN:
                    # Not held: `flock` reports that as EAGAIN only. EACCES comes from a security module.
                    raise explain(error, "lock", self.path) from error
                if not backoff.sleep():
                    raise self._timed_out(timeout)
                if time.monotonic() >= long:
                    long = math.inf
                    who, _ = self._holder()
                    text = "waiting for %s for more than %g s: held by %s"
                    report("lock", WARNING, text, self.path, _LONG, who)
                try:
                    attempt()
                except OSError as next_error:
                    error = next_error
                else:
                    return
        finally:
            # With 0, the caller only asks whether it is free.
            if timeout:
                waited = time.monotonic() - began
                self._counters.lock_waits += 1
                self._counters.lock_wait_seconds += waited

    def _holder(self) -> tuple[str, int | None]:
        """Return the process that holds the lock, for messages, and its number if it is known."""
        holder = lock_holders().get(identity(self.descriptor))
        if holder is None:
            return "another process", None
        command = command_of(holder)
        return f"process {holder}" + (f" ({command})" if command else ""), holder

    def _timed_out(self, timeout: float) -> LockTimeout:
        who, holder = self._holder()
        if timeout:
            self._counters.lock_timeouts += 1
        return LockTimeout(
            f"could not lock {self.path} within {timeout:g} s: held by {who}; "
            "nothing was changed. Retry, or stop that process if it is stuck",
            holder=holder,
        )


def open_lock(
    directory: int,
    name: str,
    path: str,
    counters: Counters | None = None,
    *,
    create: bool = True,
    rare: bool = False,
    hint: str = "",
) -> Lock | None:
    """Open a lock file; None if its directory was removed, or without `create` if it is missing."""
    try:
        file = open_file(directory, name, writable=create, create=create)
        return Lock(file, path, counters, rare=rare)
    except OSError as error:
        if error.errno != errno.ENOENT or (create and links(directory)):
            raise explain(error, "open", path, hint) from error
    return None


# -- errors -------------------------------------------------------------------------------------


def explain(error: OSError, operation: str, path: str, hint: str = "") -> HansardError:
    """Return the error to raise for an `OSError` at a path of the store."""
    if isinstance(error, HansardError):
        return error  # converted already
    if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EISDIR}:
        return UnsafePath(
            f"{path}: not what hansard put there (a symbolic link or another kind of file); "
            "nothing was followed or written"
        )
    return DiskFailed(operation, path, error, hint)


@contextlib.contextmanager
def reporting(operation: str, path: str, hint: str = "") -> Iterator[None]:
    """Raise an error of hansard for an `OSError` in the block.

    Not for a block that opens a file: an interrupt at its end would lose the descriptor.
    """
    try:
        yield
    except OSError as error:
        raise explain(error, operation, path, hint) from error
