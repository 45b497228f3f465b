"""The file system of a store, as the system reports it."""

import pytest

from hansard.backend.local.file_report import find_mount, is_network
from hansard.backend.status import Home

TABLE = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:40 / /home rw,nosuid shared:7 master:1 - nfs4 server:/export rw,vers=4.2
41 40 0:41 / /home/me/my\\040disk ro - fuse.sshfs me@host: rw
42 27 0:42 / /home/me/over rw - tmpfs tmpfs rw
43 27 0:43 / /home/me/over rw - 9p share rw
nonsense
44 27 0:44
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/srv/data", ("ext4", "/", False)),
        ("/home/you", ("nfs4", "/home", False)),
        ("/homestead", ("ext4", "/", False)),
        ("/home/me/my disk/s", ("fuse.sshfs", "/home/me/my disk", True)),
        ("/home/me/over", ("9p", "/home/me/over", False)),
    ],
)
def test_the_mount_of_a_path_is_the_deepest_and_latest(
    path: str, found: tuple[str, str, bool]
) -> None:
    """A path is on the deepest mount above it; of two at one place on the later; escapes are undone."""
    home = find_mount(TABLE, path)
    assert (home.file_system, home.mounted, not home.writable) == found


def test_no_table_says_nothing() -> None:
    """Without the system's table of mounts, the file system is unknown."""
    assert find_mount("", "/x") == Home()


@pytest.mark.parametrize(
    ("kind", "network"),
    [
        *((kind, True) for kind in ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "fuse.sshfs")),
        *((kind, True) for kind in ("ceph", "lustre", "virtiofs", "drvfs", "fuse.s3fs")),
        *((kind, False) for kind in ("ext4", "xfs", "btrfs", "zfs", "apfs", "overlay", "tmpfs")),
        *((kind, False) for kind in ("f2fs", "fuseblk", "fuse.fuse-overlayfs")),
    ],
)
def test_network_file_systems_are_known(kind: str, network: bool) -> None:
    """Remote and local file systems are distinguished."""
    assert is_network(kind) == network
