"""Fail system calls of a process, below Python: build the shim, configure it, read its report.

The shim counts the calls of a process that change something below a path, and makes one of them fail.
Unlike the faults of `tests/crashlab`, it reaches calls that do not pass `hansard.log.disk`: those of
SQLite and of the interpreter.
"""

import ctypes
import errno
import functools
import hashlib
import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final, Literal, NamedTuple

SOURCE: Final = Path(__file__).with_name("shim.c")

#: The calls that the shim knows. "look" opens a file or a directory only to read it, "unlink" is also
#: `rmdir`, "sync" also `fdatasync`, and "write" every call that writes.
CALLS: Final = (
    "write",
    "sync",
    "truncate",
    "open",
    "look",
    "rename",
    "link",
    "unlink",
    "mkdir",
    "flock",
    "unlock",
    "touch",
)

#: Calls that change a file, or open one to do so. On the file systems with guarantees,
#: releasing a lock never fails.
MUTATING: Final = tuple(call for call in CALLS if call not in {"look", "unlock"})

#: SQLite's files, which lose bytes only when the process has ended, as with `lost` "later": until then a
#: kernel's cache shows them, and SQLite reads back its journal.
SPARED: Final = "/index-"

Act = Literal["fail", "short", "before", "after", "drop"]

_SHAPE: Final = struct.Struct("=QQ32s2048sQ")
_RANGE: Final = struct.Struct("=QQQ")
_RANGES: Final = 64
REPORT_BYTES: Final = _SHAPE.size + _RANGES * _RANGE.size


class Unavailable(Exception):
    """The shim cannot be built or loaded here; the text says why."""


class Fault(NamedTuple):
    """A fault and the call that it strikes. With `at` 0, calls are only counted."""

    act: Act = "fail"
    at: int = 0
    calls: tuple[str, ...] = MUTATING
    lasting: bool = False
    #: The error of a struck call.
    error: int = errno.EIO
    #: What a short write keeps.
    keep: Literal["one", "half", "most"] = "half"
    #: The error of the write after a short one; 0: it succeeds.
    then: int = 0
    #: The fate of bytes whose sync failed: NUL, cut off, or NUL after the end of the process.
    lost: Literal["nul", "cut", "later"] = "nul"

    def __str__(self) -> str:
        """Describe the fault briefly, for labels."""
        which = "" if self.calls == MUTATING else "+".join(self.calls) + " "
        more = {
            "fail": errno.errorcode[self.error],
            "short": f"short {self.keep}" + (f" {errno.errorcode[self.then]}" if self.then else ""),
            "before": "killed before",
            "after": "killed after",
            "drop": f"lost {self.lost}",
        }[self.act]
        return f"{which}{self.at} {more}" + (" from then on" if self.lasting else "")

    def lines(self, under: str, report: str) -> str:
        """Return what `shim_arm` takes."""
        told = {
            "under": under,
            "calls": ",".join(self.calls),
            "at": self.at,
            "lasting": int(self.lasting),
            "act": self.act,
            "error": self.error,
            "keep": self.keep,
            "then": self.then,
            "lost": self.lost,
            "spared": SPARED,
            "report": report,
        }
        return "\n".join(f"{name}={value}" for name, value in told.items())


class Lost(NamedTuple):
    """Bytes of a file that are not on the disk, and that the cache still shows."""

    inode: int
    begin: int
    end: int


class Report(NamedTuple):
    """What the shim did, read from a mapped file, also after the process was killed."""

    seen: int
    fired: int
    call: str
    place: str
    lost: tuple[Lost, ...]


def new_report(path: str | Path) -> None:
    """Make the file that a shim reports to."""
    Path(path).write_bytes(bytes(REPORT_BYTES))


def read_report(path: str | Path) -> Report:
    """Return what the shim has done so far."""
    data = Path(path).read_bytes()
    seen, fired, call, place, ranges = _SHAPE.unpack_from(data)
    begin = _SHAPE.size
    lost = [Lost(*_RANGE.unpack_from(data, begin + n * _RANGE.size)) for n in range(ranges)]
    return Report(seen, fired, _text(call), _text(place), tuple(lost))


def _text(padded: bytes) -> str:
    return os.fsdecode(padded.split(b"\0", 1)[0])


@functools.cache
def library() -> Path:
    """Return the shim, built if it is not there yet; `Unavailable` with the reason where it cannot be."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        raise Unavailable("the shim is written for Linux on a machine of 64 bits")
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise Unavailable("no C compiler (cc, gcc or clang) is installed")
    source = SOURCE.read_bytes()
    digest = hashlib.sha256(source + platform.machine().encode()).hexdigest()[:16]
    built = SOURCE.parent / "__pycache__" / f"shim-{digest}.so"
    if not built.exists():
        built.parent.mkdir(exist_ok=True)
        # Built under another name and renamed: two processes may build concurrently.
        temporary = built.with_suffix(f".{os.getpid()}")
        flags = ["-O2", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", "-pthread"]
        command = [compiler, *flags, "-o", str(temporary), str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["without a word"])[0]
            raise Unavailable(f"{compiler} cannot build the shim: {said}")
        temporary.rename(built)
    _check(built)
    return built


def _check(built: Path) -> None:
    """Load the shim in a process, and check that both sides use the same report structure."""
    program = "import ctypes; print(ctypes.CDLL(None).shim_report_size())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LD_PRELOAD": str(built)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0 or done.stdout.strip() != str(REPORT_BYTES):
        said = (done.stderr.strip().splitlines() or [done.stdout.strip()])[-1]
        raise Unavailable(f"the shim cannot be loaded into this Python: {said}")


def arm(fault: Fault, under: str, report: str) -> None:
    """Strike this process, which was started with the shim, from now on."""
    lines = fault.lines(os.path.realpath(under), report)
    if ctypes.CDLL(None).shim_arm(os.fsencode(lines)) != 0:
        raise Unavailable(f"the shim cannot write its report {report}")


def disarm() -> None:
    """Strike no call from now on."""
    ctypes.CDLL(None).shim_disarm()
