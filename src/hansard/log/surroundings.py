"""What the system says about the place of a store: its file system, and who holds locks on its files.

Above: `backend.examination`.  Below: `disk`.
From /proc, and so on Linux only: elsewhere nothing is known, and nothing is said.
"""

import re
from typing import Final, NamedTuple

from hansard.log import disk

_MOUNTS: Final = "/proc/self/mountinfo"
_LOCKS: Final = "/proc/locks"

#: A space, a tab, a line feed or a backslash in a path, as the table of mounts has them.
_OCTAL: Final = re.compile(r"\\([0-7]{3})")

#: File systems behind which there is another machine, or a program that may not know locks and syncs.
_NETWORK: Final = re.compile(
    r"nfs\d*|cifs|smb\w*|ncpfs|afs|9p|ceph|glusterfs|lustre|gpfs|beegfs|orangefs|pvfs2|coda|sshfs"
    r"|davfs\w*|drvfs|vboxsf|vmhgfs|prl_fs|virtiofs|fuse(\..+)?"
)
#: Of those that are programs, the ones that keep their files on this machine and pass on what they are told.
_LOCAL_PROGRAMS: Final = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs"})

#: What these hold is gone when the machine stops.
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})


class FileSystem(NamedTuple):
    """Where a directory is mounted, and what it is."""

    kind: str
    mounted: str
    read_only: bool

    @property
    def is_network(self) -> bool:
        """Whether its locks and syncs cannot be trusted."""
        return self.kind not in _LOCAL_PROGRAMS and _NETWORK.fullmatch(self.kind) is not None

    @property
    def is_volatile(self) -> bool:
        """Whether a restart of the machine empties it."""
        return self.kind in _VOLATILE


def file_system(path: str) -> FileSystem | None:
    """Return the file system that a path is on; None where the system does not tell."""
    return find_mount(disk.told_by_system(_MOUNTS), disk.real(path))


def find_mount(table: str, path: str) -> FileSystem | None:
    """Find the mount that a path without links is below."""
    found: FileSystem | None = None
    for line in table.splitlines():
        # "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw": what is before " - " varies.
        before, _, after = line.partition(" - ")
        words, kinds = before.split(" "), after.split(" ")
        if len(words) < 6 or not kinds[0]:  # noqa: PLR2004 - up to the options
            continue
        mounted = _OCTAL.sub(lambda match: chr(int(match[1], 8)), words[4])
        below = path == mounted or path.startswith(mounted.rstrip("/") + "/")
        # The deepest one counts; of two at one place the later, which lies over the other.
        if below and (found is None or len(mounted) >= len(found.mounted)):
            found = FileSystem(kinds[0], mounted, "ro" in words[5].split(","))
    return found


def lock_holders() -> dict[tuple[str, int], int]:
    """Return the processes that hold an OS lock on a file, by the file's device and inode."""
    found = {}
    for line in disk.told_by_system(_LOCKS).splitlines():
        # "1: FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF"; waiters have "->" in second place.
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[4].isdecimal():  # noqa: PLR2004 - the file
            device, _, inode = words[5].rpartition(":")
            if inode.isdecimal():
                found[device, int(inode)] = int(words[4])
    return found


def lock_key(status: disk.Status) -> tuple[str, int]:
    """Return how the table of locks names a file."""
    return f"{disk.major(status.device):02x}:{disk.minor(status.device):02x}", status.inode


def is_stopped(pid: int) -> bool:
    """Say whether a process was stopped, by Ctrl-Z or a debugger, and so lets go of nothing."""
    _, _, rest = disk.told_by_system(f"/proc/{pid}/stat").rpartition(") ")
    return rest[:1] in {"T", "t"}
