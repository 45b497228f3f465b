"""The shim that lets system calls of a real process fail (tools/crash/shim.c). It needs a C compiler."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hansard.log import disk
from hansard.log.write_batch import SyncTarget
from hansard.log.writer import LogWriter
from tools.crash import nursery, shim, workloads
from tools.crash.shim import Fault
from tools.crash.shimmed import Stage

MINE = __name__

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _shim() -> Iterator[None]:
    """Have the shim built, and end afterwards what was started with it."""
    try:
        shim.library()
    except shim.Unavailable as reason:
        pytest.skip(f"no faults below Python: {reason}")
    yield
    nursery.close_all()


def _ignore_errors(writer: LogWriter, touched: SyncTarget | None) -> None:
    if touched is not None:
        with suppress(OSError):
            disk.sync(touched.segment.descriptor)


def careless(**options: Any) -> dict[str, int]:
    """Do a workload with a store that ignores failed syncs. For a nursery."""
    setattr(LogWriter, "_sync", _ignore_errors)  # noqa: B010 - for this process, which ends soon
    return workloads.perform(**options)


def problems(workload: str, faults: Iterator[Fault], job: Callable[..., Any]) -> list[str]:
    """Return what is found wrong with a mutant, under one fault after the other, until something is."""
    for fault in faults:
        with Stage(workload) as stage:
            stage.strike(workload, fault, f"{MINE}:{job.__name__}")
            wrong: list[str] = stage.check(damage=True)["wrong"]
            if wrong:
                return wrong
    return []


def test_a_store_that_ignores_failed_syncs_is_found_out() -> None:
    """N-17, N-29: a plain error would not show it, for the cache keeps the bytes; the shim loses them."""
    faults = (Fault("drop", at, ("sync",)) for at in range(1, 20))
    assert "was acknowledged and is gone" in " ".join(problems("rotate", faults, careless))
    harmless = (Fault("fail", at, ("sync",)) for at in range(1, 4))
    assert problems("rotate", harmless, careless) == []


def armed(
    program: str, fault: Fault, tmp_path: Path
) -> tuple[subprocess.CompletedProcess[str], shim.Report]:
    """Run a program with the shim; return how it ended, and what the shim says."""
    report = tmp_path / "report"
    under = tmp_path / "under"
    under.mkdir(parents=True)
    shim.new_report(report)
    done = subprocess.run(
        [sys.executable, "-c", program, fault.lines(str(under.resolve()), str(report)), str(under)],
        env={**os.environ, "LD_PRELOAD": str(shim.library())},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done, shim.read_report(report)


PROGRAM = """
import ctypes, fcntl, os, sqlite3, sys
lines, under = sys.argv[1:]
assert ctypes.CDLL(None).shim_arm(os.fsencode(lines)) == 0
os.chdir(under)
file = os.open("a", os.O_RDWR | os.O_CREAT)
os.write(file, b"0123456789")
os.pwrite(file, b"ab", 0)
os.writev(file, [b"x", b"y"])
os.fsync(file)
os.fdatasync(file)
os.ftruncate(file, 4)
fcntl.flock(file, fcntl.LOCK_EX)
os.utime(file)
directory = os.open(".", os.O_RDONLY)
os.mkdir("d", dir_fd=directory)
os.rename("a", "b", src_dir_fd=directory)
os.link("b", "c", src_dir_fd=directory, dst_dir_fd=directory)
os.unlink("c", dir_fd=directory)
os.rmdir("d")
print(os.path.getsize("b"))
"""


def test_the_shim_counts_and_strikes_the_calls_that_python_really_makes(tmp_path: Path) -> None:
    """N-29: each of the calls that a store makes is counted once, and fails if it is struck."""
    done, report = armed(PROGRAM, Fault(), tmp_path / "peace")
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr
    # open, three writes, two syncs, truncate, flock, touch, mkdir, rename, link, unlink, rmdir.
    assert report == shim.Report(14, 0, "", "", ())
    for at in range(1, 15):
        done, report = armed(
            PROGRAM, Fault("fail", at, error=errno.EDQUOT), tmp_path / f"{at}"
        )  # fmt: skip
        assert os.strerror(errno.EDQUOT) in done.stderr
        assert report.fired == 1
        assert report.call in shim.MUTATING
        assert report.place.startswith("/")
