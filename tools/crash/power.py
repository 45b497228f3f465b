"""A power cut while a store is written, on a real file system."""

import os
import select
import shutil
import signal
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.crash import mounts
from tools.crash.checker import check
from tools.crash.nursery import nursery, place
from tools.crash.row import Outcome
from tools.crash.workloads import perform, prepare

#: A process that runs this many seconds after the power cut has hung.
_PATIENCE: Final = 30.0

#: An acknowledgement in a ledger: process and number.
_TOLD: Final = struct.Struct("=QQ")


@dataclass(frozen=True)
class PowerCut:
    """A workload on a file system whose power is cut after a number of acknowledgements."""

    kind: str
    workload: str
    after: int
    durability: str = "sync"
    #: The journal of the file system is still written.
    journal: bool = False

    @property
    def label(self) -> str:
        """Its name."""
        how = ", journal written" if self.journal else ""
        return f"{self.kind}: {self.workload}, {self.durability}, cut after {self.after}{how}"

    def run(self) -> Outcome:
        """Cut the power, remount, check."""
        reason = mounts.missing(self.kind)
        if reason:
            return Outcome(ok=True, label=self.label, skipped=reason)
        wrong, _ = self.suffer()
        return Outcome(ok=not wrong, label=self.label, detail="; ".join(wrong))

    def suffer(self, *, strictly: bool = False) -> tuple[list[str], int]:
        """Return what is wrong afterwards, and how much had been acknowledged.

        `strictly`: as if durability "os" promised what "sync" does.
        """
        directory = tempfile.mkdtemp(prefix="hansard-power-", dir=place())
        job = "tools.crash.power:suffer"
        try:
            ended = nursery().run(job, case=vars(self), directory=directory, strictly=strictly)
        finally:
            shutil.rmtree(directory)
        if ended.result is None:
            return ["hung" if ended.hung else ended.error or f"died of signal {ended.signal}"], 0
        return ended.result["wrong"], ended.result["acknowledged"]


def suffer(case: dict[str, Any], directory: str, *, strictly: bool = False) -> dict[str, Any]:
    """Do all of a case in this process, which has the mounts for itself. For a nursery."""
    cut = PowerCut(**case)
    home = Path(directory)
    mounts.enter_namespace()
    image = mounts.Image(cut.kind, home / "image", home / "disk")
    store = str(image.point / "store")
    ledgers = [str(home / "prepared"), str(home / "ledger")]
    # In another process: its leftovers must be those of a dead process.
    _wait(_fork(lambda: prepare(cut.workload, store, ledgers[0], cut.durability)))
    heard = _write_until_cut(cut, image, store, ledgers[1])
    image.power_on()
    careless = cut.durability == "os" and not strictly
    found = check(store, ledgers, damage=careless, prefix=careless, heard=(ledgers[1], heard))
    return {"wrong": found["wrong"], "acknowledged": len(heard)}


def _write_until_cut(
    cut: PowerCut, image: mounts.Image, store: str, ledger: str
) -> set[tuple[int, int]]:
    """Let a child write, and cut its power after a number of acknowledgements.

    Returns what was acknowledged before. What is acknowledged afterwards does not count: the
    power takes the process with it. The ioctl does not, and a sync that is under way then may return as if
    all were well: so it is with a bare loop of write and fdatasync, on ext4 and, more rarely, on XFS.
    """
    pipe, wire = os.pipe()
    child = _fork(
        lambda: perform(cut.workload, store, ledger, durability=cut.durability, wire=wire)
    )
    os.close(wire)
    told = b""
    while len(told) < cut.after * _TOLD.size or select.select([pipe], [], [], 0)[0]:
        more = os.read(pipe, _TOLD.size)
        if not more:
            break
        told += more
    image.cut(mounts.CUT_AFTER_JOURNAL if cut.journal else mounts.CUT)
    while os.read(pipe, 4096):
        pass
    os.close(pipe)
    _wait(child)
    return set(_TOLD.iter_unpack(told))


def _fork(job: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            job()
        finally:
            os._exit(0)
    return child


def _wait(child: int) -> None:
    """Wait for a child; one that hangs is killed, and is an error."""
    deadline = time.monotonic() + _PATIENCE
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise RuntimeError("a writer whose power was cut does not end")
        time.sleep(0.001)
