"""Report the files of a store and its file system: held locks, leftovers and unexpected files.

It opens nothing for writing and waits for no lock, so other processes can write concurrently. A file that is
created or removed concurrently is not reported.
"""

import re
from contextlib import suppress
from typing import Final

import msgspec

from hansard.backend.local import index_file
from hansard.backend.status import (
    HeldLock,
    Home,
    IndexStatus,
    Leftover,
    Odd,
    StoreStatus,
    UnexpectedFiles,
)
from hansard.errors import Damaged, DiskFailed, UnknownFormat, UnsafePath
from hansard.log import disk, format, names, segment_scan
from hansard.log.segment_reader import SegmentReader, open_segment
from hansard.log.store_directory import StoreDirectory

#: Maximum number of unexpected files named per kind.
NAMED: Final = 20

_LOOSE: Final = 0o077
#: In a store of a group, where the group's bits must be set.
_LOOSE_FOR_GROUP: Final = 0o007
_GROUP: Final = 0o060
_DAMAGED: Final = "damaged-"

_MOUNTS: Final = "/proc/self/mountinfo"

#: An escaped space, tab, line feed or backslash in a path of the mount table.
_OCTAL: Final = re.compile(r"\\([0-7]{3})")

#: Remote file systems and those in user space, which may not implement locks and syncs.
_NETWORK: Final = re.compile(
    r"nfs\d*|cifs|smb\w*|ncpfs|afs|9p|ceph|glusterfs|lustre|gpfs|beegfs|orangefs|pvfs2|coda|sshfs"
    r"|davfs\w*|drvfs|vboxsf|vmhgfs|prl_fs|virtiofs|fuse(\..+)?"
)
#: File systems in user space that pass locks and syncs on to a local file system.
_LOCAL_PROGRAMS: Final = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs"})

#: File systems that a restart of the machine empties.
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})


def examine(root: StoreDirectory) -> StoreStatus:
    """Return the status of a store; unreadable files are reported as unexpected."""
    found = _Examiner(root)
    return StoreStatus(
        version=format.VERSION,
        home=_home(root),
        locks=found.locks,
        leftovers=sorted(found.leftovers, key=lambda one: one.where),
        oddities=[
            UnexpectedFiles(what, len(at), sorted(at)[:NAMED]) for what, at in found.odd.items()
        ],
        index=_index(root),
    )


def _index(root: StoreDirectory) -> IndexStatus:
    """Return the status of the index's file, without opening it."""
    with suppress(OSError):  # not a file
        name = index_file.database_name(root.descriptor)
        files = index_file.database_files(root.descriptor, name) if name else {}
        if "" in files:
            return IndexStatus(there=True, bytes=sum(one.st_size for one in files.values()))
    return IndexStatus()


def find_mount(table: str, path: str) -> Home:
    """Return the mount of a resolved path, from the mount table, which only Linux has."""
    found = Home()
    for line in table.splitlines():
        # "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw": fields before " - " vary.
        before, _, after = line.partition(" - ")
        words, kinds = before.split(" "), after.split(" ")
        if len(words) < 6 or not kinds[0]:  # noqa: PLR2004 - up to the options
            continue
        mounted = _OCTAL.sub(lambda match: chr(int(match[1], 8)), words[4])
        below = path == mounted or path.startswith(mounted.rstrip("/") + "/")
        # The longest mount point applies; of two equal ones the later, which covers the other.
        if below and len(mounted) >= len(found.mounted):
            found = Home(
                file_system=kinds[0],
                mounted=mounted,
                network=is_network(kinds[0]),
                volatile=kinds[0] in _VOLATILE,
                writable="ro" not in words[5].split(","),
            )
    return found


def is_network(kind: str) -> bool:
    """Return whether the locks and syncs of a file system cannot be trusted."""
    return kind not in _LOCAL_PROGRAMS and _NETWORK.fullmatch(kind) is not None


def _home(root: StoreDirectory) -> Home:
    found = find_mount(disk.told_by_system(_MOUNTS), disk.real(root.path))
    status = disk.status(root.descriptor)
    return msgspec.structs.replace(
        found,
        writable=found.writable and disk.may_write(root.descriptor),
        owner=status.st_uid,
        user=disk.user(),
        group=status.st_gid if disk.in_group_store(root.descriptor) else None,
        free_bytes=disk.free_bytes(root.descriptor),
        free_files=disk.free_names(root.descriptor),
    )


class _Examiner:
    """Walks through the directories of a store and collects what it finds."""

    def __init__(self, root: StoreDirectory) -> None:
        status = disk.status(root.descriptor)
        self._owner, self._group = status.st_uid, status.st_gid
        self._shared = disk.in_group_store(root.descriptor)
        self._holders = disk.lock_holders()
        self.locks: list[HeldLock] = []
        self.leftovers: list[Leftover] = []
        self.odd: dict[Odd, list[str]] = {}
        self._look_whose(root.path, status)
        self._look_into(root.descriptor, root.path)

    def _look_into(self, parent: int, path: str, *parts: str) -> None:
        """Check everything in a directory. `parts`: its path in the store."""
        try:
            directory = disk.open_directory(parent, parts[-1] if parts else ".")
            for name in disk.names(directory):
                with suppress(FileNotFoundError):
                    self._look_at(directory, f"{path}/{_spelled(name)}", *parts, name)
        except FileNotFoundError:
            return  # removed concurrently
        except OSError:
            self._note("unreadable", path)

    def _look_at(self, directory: int, path: str, *parts: str) -> None:
        status = disk.status(directory, parts[-1])
        kind = disk.kind(status)
        expected = _expected(*parts)
        if not expected or kind not in {expected, "link"}:
            self._note("foreign", path)
        elif kind == "link":
            self._note("link", path)
        else:
            self._look_whose(path, status)
            if expected == "file":
                self._look_at_file(directory, path, parts[-1], status)
            else:
                self._look_into(directory, path, *parts)

    def _look_whose(self, path: str, status: disk.Status) -> None:
        mode = disk.mode(status)
        if self._shared:
            if mode & _LOOSE_FOR_GROUP:
                self._note("others", path)
            if status.st_gid != self._group or mode & _GROUP != _GROUP:
                self._note("group", path)
            return
        if mode & _LOOSE:
            self._note("mode", path)
        if status.st_uid != self._owner:
            self._note("owner", path)

    def _look_at_file(self, directory: int, path: str, name: str, status: disk.Status) -> None:
        if name == names.LOG:
            self._look_for_fragments(directory, path)
        elif name.startswith(_DAMAGED):
            self.leftovers.append(Leftover("damaged", path, status.st_size))
        elif names.is_temporary(name):
            if not disk.is_in_use(directory, name):
                self.leftovers.append(Leftover("temporary", path, status.st_size))
        elif name in {names.LOCK, names.COMPACTION, names.HOLDER}:
            pid = self._holders.get((status.st_dev, status.st_ino))
            if pid is not None:
                stopped = _is_stopped(pid)
                self.locks.append(HeldLock(path, pid, disk.command_of(pid), stopped))

    def _look_for_fragments(self, directory: int, path: str) -> None:
        """Record the discarded fragments of unfinished appends in an active log."""
        # `verify` reports damage of the log.
        with suppress(Damaged, UnknownFormat, DiskFailed, UnsafePath):
            segment = open_segment(directory, path, None, writable=False)
            if segment is None:
                return
            reader = SegmentReader(segment)
            pieces = reader.forwards(segment.start, reader.log_end().position)
            found = [one.length for piece in pieces for one in segment_scan.discarded(piece.data)]
            if found:
                self.leftovers.append(Leftover("discarded", path, sum(found), len(found)))

    def _note(self, what: Odd, path: str) -> None:
        self.odd.setdefault(what, []).append(path)


def _expected(*parts: str) -> str:
    """Return the type that hansard creates at a path: "file", "directory", or "" for nothing."""
    match parts:
        case [names.SESSIONS | names.TRASH | names.INTERNAL | names.MARKS]:
            return "directory"
        case [names.TRASH | names.INTERNAL | names.SESSIONS, name] if names.is_temporary(name):
            return "directory"  # what is being purged, or created for a group
        case [*_, name] if names.is_temporary(name):
            ours = True
        case [name]:
            ours = name in {names.MARKER, names.INDEX} or names.is_index_database(name)
        case [names.SESSIONS | names.TRASH, name]:
            return "directory" if names.is_encoded(name) else ""
        case [names.INTERNAL, name]:
            return "directory" if names.internal_name(name) is not None else ""
        case [names.MARKS, name]:
            ours = name == names.EPOCH or (name.isdecimal() and name.isascii())
        case [names.INTERNAL, _, names.HOLDER]:
            ours = True
        case [_, _, names.LOG | names.CHECKPOINT | names.COMPACTION | names.LOCK]:
            ours = True
        case _:
            ours = parts[-1].startswith(_DAMAGED) or names.sealed_first_seq(parts[-1]) is not None
    return "file" if ours else ""


def _spelled(name: str) -> str:
    """Return a name as a string, even if its bytes are not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, by Ctrl-Z or a debugger."""
    _, _, rest = disk.told_by_system(f"/proc/{pid}/stat").rpartition(") ")
    return rest[:1] in {"T", "t"}
