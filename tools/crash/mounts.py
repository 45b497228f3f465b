"""File systems that can be filled, made read-only, or cut off from power. Needs root.

Everything is mounted in a mount namespace of the process that requests it. When that process ends, its
mounts and their loop devices disappear.
"""

import ctypes
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tools.crash.nursery import nursery, place

#: ioctl: the file system stops at once, as after a power cut. ext4, XFS and others take it.
_SHUTDOWN: Final = 0x8004587D
#: No more writes reach the disk: unsynced data is lost.
CUT: Final = 2
#: The journal of the file system is written again, then nothing.
CUT_AFTER_JOURNAL: Final = 1

_CLONE_NEWNS: Final = 0x00020000
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 1 << 18

#: Size of each kind of image, and the command that creates it.
_IMAGES: Final = {
    "ext4": (32 << 20, ["mkfs.ext4", "-q", "-F", "-b", "4096"]),
    "xfs": (320 << 20, ["mkfs.xfs", "-q", "-f"]),
}


class Unavailable(Exception):
    """This cannot be mounted here; the text says why."""


def enter_namespace() -> None:
    """Hide the mounts of this process from all but its children. For a process that ends soon."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0 or (
        libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None) != 0
    ):
        raise Unavailable(f"no mount namespace: {os.strerror(ctypes.get_errno())}")


def run(*command: str) -> None:
    """Run a command, which must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["without a word"]
        raise Unavailable(f"{' '.join(command[:4])}: {said[-1]}")


def mount_memory(point: Path, *options: str) -> None:
    """Mount a file system in memory, with options such as `size=64k`."""
    run("mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(point))


def remount(point: Path, *options: str) -> None:
    """Give a mounted file system other options."""
    run("mount", "-o", ",".join(["remount", *options]), str(point))


def unmount(point: Path) -> None:
    """Unmount a file system, which must not be in use."""
    run("umount", str(point))


class Image:
    """A file that is a disk with a file system, mounted at `point`."""

    def __init__(self, kind: str, file: Path, point: Path, *options: str) -> None:
        size, command = _IMAGES[kind]
        self.file, self.point = file, point
        self._options = ",".join(["loop", *options])
        with file.open("wb") as made:
            made.truncate(size)
        if shutil.which(command[0]) is None:
            raise Unavailable(f"{command[0]} is not installed")
        run(*command, str(file))
        point.mkdir(exist_ok=True)
        self._kind = kind
        self.mount()

    def mount(self) -> None:
        """Mount it, and let the kernel recover it if it must."""
        run("mount", "-t", self._kind, "-o", self._options, str(self.file), str(self.point))

    def cut(self, how: int = CUT) -> None:
        """Cut the power. Every use of a file fails from now on."""
        descriptor = os.open(self.point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", how))
        finally:
            os.close(descriptor)

    def power_on(self) -> None:
        """Unmount it and mount it again: now it has only what is on the disk."""
        unmount(self.point)
        self.mount()


@functools.cache
def missing(kind: str = "tmpfs") -> str:
    """Return why a kind of file system cannot be mounted here; empty if it can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "needs root, to mount file systems"
    with tempfile.TemporaryDirectory(prefix="hansard-mount-", dir=place()) as directory:
        ended = nursery().run("tools.crash.mounts:attempt", kind=kind, directory=directory)
    said = ended.result if ended.result is not None else ended.error or "it hung"
    return f"cannot mount {kind} here: {said}" if said else ""


def attempt(kind: str, directory: str) -> str:
    """Mount a kind of file system; return why that is not possible, or nothing. For a nursery."""
    point = Path(directory, "point")
    point.mkdir()
    try:
        enter_namespace()
        if kind == "tmpfs":
            mount_memory(point, "size=64k")
        else:
            Image(kind, Path(directory, "image"), point)
    except (Unavailable, OSError, subprocess.SubprocessError) as error:
        return str(error)
    return ""
