"""Keep large content: files under the hash of what is in them, once for a whole store.

Above: `backend.local`.  Below: `root`, `lock`, `disk`; docs/format.md, F-73 to F-78.
A file gets its name after its bytes are on the disk, and never changes. Whoever is about to refer to one
holds a lock together with all others who do so (`sharing`); whoever removes those that nobody refers to
holds it alone, twice and briefly: to note what there is, and to remove what has not been touched since.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from hansard.errors import Damaged, LockTimeout
from hansard.log import disk, names
from hansard.log.lock import Lock
from hansard.log.root import STALE_SECONDS, Root, sweep

_DIGEST: Final = re.compile("[0-9a-f]{64}")
_SHELF: Final = re.compile("[0-9a-f]{2}")

#: A collector that waits for a writer lets others pass after so many seconds, and then waits again.
_PATIENCE: Final = 1.0


class Kept(NamedTuple):
    """A content that is there."""

    sha256: str
    bytes: int
    #: Changes when somebody touches the file, or puts another in its place.
    version: tuple[int, int, int] = (0, 0, 0)


class Vault:
    """The large content of one store. Holds no file open between calls.

    Attributes:
        timeout: how many seconds to wait for a lock.
    """

    __slots__ = ("_doubtful", "_named", "_root", "timeout")

    def __init__(self, root: Root, timeout: float) -> None:
        self._root = root
        self.timeout = timeout
        #: The shelves whose names this process has made durable.
        self._named: set[str] = set()
        #: Content whose name may not be durable, since a sync failed: it is written once more.
        self._doubtful: set[str] = set()

    # -- reading --------------------------------------------------------------------------------

    def read(self, sha256: str, size: int) -> bytes:
        """Return a content; `Damaged` if it is not there, or not as it was (F-74)."""
        if not _DIGEST.fullmatch(sha256):
            raise Damaged(self._root.path_of_large(), 0, f"{sha256!r:.80} is no SHA-256")
        path = self._root.path_of_large(_place(sha256))
        data = self._read(sha256, size, path)
        if data is None:
            raise _damaged(path, "large content that a message refers to is missing")
        if len(data) != size:
            more = "more" if len(data) > size else str(len(data))
            raise _damaged(path, f"large content of {size} bytes has {more}")
        # Here, because only large content needs it and the import costs milliseconds.
        import hashlib

        if hashlib.sha256(data).hexdigest() != sha256:
            raise _damaged(path, "large content that does not have its hash")
        return data

    def _read(self, sha256: str, size: int, path: str) -> bytes | None:
        """Return the bytes of a file, at most one more than they should be; None if there is none."""
        large = self._root.open_large()
        if large is None:
            return None
        shelf = -1
        try:
            shelf = disk.open_directory(large, sha256[:2])
            file = disk.open_file(shelf, sha256)
            try:
                return _read_upto(file, size + 1)
            finally:
                disk.close(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk.explain(error, "read", path) from error
        finally:
            disk.close(large)
            if shelf >= 0:
                disk.close(shelf)

    # -- writing --------------------------------------------------------------------------------

    @contextmanager
    def sharing(self, *, create: bool) -> Iterator[None]:
        """Keep collectors away: while content is looked for and referred to, or a session moves (F-76).

        `create`: make the directory if it is not there. Otherwise, without one, there is nothing to lock.
        """
        self._root.check_writable()
        large = self._root.open_large(create=create)
        if large is None:
            yield
            return
        try:
            lock, gate = self._locks(large)
        finally:
            disk.close(large)
        try:
            deadline = time.monotonic() + self.timeout
            # Through the gate, which a collector that waits keeps shut: so nobody starves.
            gate.acquire(self.timeout)
            lock.acquire_shared(max(0.0, deadline - time.monotonic()))
            gate.release()
            yield
        finally:
            _free(lock, gate)

    def keep(self, contents: Mapping[str, bytes]) -> None:
        """Make contents durable under their names (F-73). The caller is `sharing`."""
        large = self._root.open_large(create=True)
        assert large is not None  # it has just been made
        try:
            # What a kill left over: nothing else makes temporaries here.
            if not self._named:
                sweep(large, older_than=STALE_SECONDS, now=time.time())
            for sha256, content in contents.items():
                self._keep(large, sha256, content)
        finally:
            disk.close(large)

    def _keep(self, large: int, sha256: str, content: bytes) -> None:
        shelf_name = sha256[:2]
        shelf = -1
        operation = "create"
        try:
            disk.make_directory(large, shelf_name)
            shelf = disk.open_directory(large, shelf_name)
            if sha256 in self._doubtful or not _touch(shelf, sha256, content):
                operation = "write"
                _write(large, shelf, sha256, content)
            operation = "sync"
            self._doubtful.add(sha256)
            # Also for one that was there: whoever made it may not have come to this.
            disk.sync_directory(shelf)
            if shelf_name not in self._named:
                disk.sync_directory(large)
                self._root.sync_large()
                self._named.add(shelf_name)
            self._doubtful.discard(sha256)
        except OSError as error:
            path = self._root.path_of_large(_place(sha256))
            raise disk.explain(error, operation, path, "nothing was appended") from error
        finally:
            if shelf >= 0:
                disk.close(shelf)

    # -- collecting -----------------------------------------------------------------------------

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep away all who are `sharing`, once those who are at it are done (F-77)."""
        self._root.check_writable()
        large = self._root.open_large(create=True)
        assert large is not None  # it has just been made
        try:
            lock, gate = self._locks(large)
        finally:
            disk.close(large)
        try:
            self._wait_alone(lock, gate)
            yield
        finally:
            _free(lock, gate)

    def _wait_alone(self, lock: Lock, gate: Lock) -> None:
        deadline = time.monotonic() + self.timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                gate.acquire(left)
                lock.acquire(min(left, _PATIENCE))
            except LockTimeout as error:
                # One writer that is stopped must not stop the others.
                gate.release()
                if left <= _PATIENCE:
                    raise LockTimeout(
                        f"{lock.path}: in use for more than {self.timeout:g} s; nothing was collected: "
                        "try again, or stop the process that hangs",
                        holder=error.holder,
                    ) from None
            else:
                return

    def _locks(self, large: int) -> tuple[Lock, Lock]:
        """Open the two lock files: each time anew, so threads keep each other away like processes."""
        opened: list[Lock] = []
        path = self._root.path_of_large()
        try:
            for name in (names.LOCK, names.GATE):
                path = self._root.path_of_large(name)
                opened.append(Lock(disk.open_file(large, name, writable=True, create=True), path))
        except OSError as error:
            for lock in opened:
                lock.close()
            raise disk.explain(error, "open", path, "nothing was appended") from error
        return opened[0], opened[1]

    def listing(self) -> list[Kept]:
        """Return all content that is there, sorted by hash."""
        large = self._root.open_large()
        if large is None:
            return []
        found: list[Kept] = []
        try:
            for shelf_name in disk.names(large):
                if not _SHELF.fullmatch(shelf_name):
                    continue
                shelf = disk.open_directory(large, shelf_name)
                try:
                    for name in disk.names(shelf):
                        if _DIGEST.fullmatch(name) and name.startswith(shelf_name):
                            with suppress(FileNotFoundError):  # collected just now
                                version = disk.version(shelf, name)
                                found.append(Kept(name, version[2], version))
                finally:
                    disk.close(shelf)
        except OSError as error:
            raise disk.explain(error, "list", self._root.path_of_large()) from error
        finally:
            disk.close(large)
        return sorted(found)

    def remove(self, doomed: Sequence[Kept]) -> list[Kept]:
        """Remove what nobody has touched since it was listed; return what is gone. The caller is `alone`."""
        large = self._root.open_large()
        if large is None:
            return []
        gone: list[Kept] = []
        path = self._root.path_of_large()
        try:
            sweep(large, older_than=STALE_SECONDS, now=time.time())
            for shelf_name in sorted({kept.sha256[:2] for kept in doomed}):
                shelf = disk.open_directory(large, shelf_name)
                try:
                    for kept in doomed:
                        if kept.sha256[:2] != shelf_name:
                            continue
                        path = self._root.path_of_large(_place(kept.sha256))
                        with suppress(FileNotFoundError):  # another collector was faster
                            if disk.version(shelf, kept.sha256) == kept.version:
                                disk.remove(shelf, kept.sha256)
                                gone.append(kept)
                    disk.sync_directory(shelf)
                finally:
                    disk.close(shelf)
        except OSError as error:
            hint = f"{len(gone)} contents to which nothing refers were removed before it"
            raise disk.explain(error, "remove", path, hint) from error
        finally:
            disk.close(large)
        return gone


def _place(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256}"


def _damaged(path: str, reason: str) -> Damaged:
    return Damaged(path, 0, reason, "restore the file from a backup, or redact the message")


def _read_upto(file: int, most: int) -> bytes:
    """Return the bytes of an open file, but no more than so many."""
    data = disk.read_at(file, most, 0)
    # One call for nearly all of them; some systems give large files in pieces.
    while len(data) < most and (piece := disk.read_at(file, most - len(data), len(data))):
        data += piece
    return data


def _touch(shelf: int, sha256: str, content: bytes) -> bool:
    """If the content is there, and whole, let a collector see that somebody is about to refer to it."""
    try:
        file = disk.open_file(shelf, sha256)
    except FileNotFoundError:
        return False
    try:
        if _read_upto(file, len(content) + 1) != content:
            return False
        disk.touch(file)
    finally:
        disk.close(file)
    return True


def _write(large: int, shelf: int, sha256: str, content: bytes) -> None:
    """Write a content under another name, and give it its own when it is on the disk."""
    temporary = names.temporary(sha256)
    file = disk.create_file(large, temporary)
    try:
        try:
            disk.write_all(file, content)
            disk.sync(file)
        finally:
            disk.close(file)
        # Over whatever is there: the same bytes, from one who was faster, or others, which were damage.
        disk.move(large, temporary, shelf, sha256)
    except BaseException:
        disk.discard(large, temporary)
        raise


def _free(*locks: Lock) -> None:
    for lock in locks:
        try:
            # Unlocked, not only closed: a process that is just being started may have a copy of it.
            lock.release()
        finally:
            lock.close()
