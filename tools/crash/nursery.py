"""Start processes that may be killed, forked from one that has imported everything.

A new Python takes a quarter of a second to start; a fork of a ready one takes two milliseconds. The
nursery never opens a store, so a child inherits only imported modules. A job is named `module:function`,
and takes and returns JSON values.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

CHECKOUT: Final = Path(__file__).resolve().parents[2]

#: A job that takes longer has hung.
PATIENCE: Final = 60.0

_MEMORY: Final = "/dev/shm"  # noqa: S108 - a directory of our own is made in it

#: Modules that a child would otherwise import during the fault.
_NEEDED: Final = (
    "ctypes",
    "portalocker",
    "zstandard",
    "hansard",
    "hansard.backend.local.backend",
    "hansard.index.index",
    "hansard.index.search",
    "hansard.maintenance.compact",
    "hansard.transfer.export_file",
    "hansard.transfer.copy",
    "hansard.maintenance.trash",
    "hansard.maintenance.verify",
    "tools.crash.checker",
    "tools.crash.full_disks",
    "tools.crash.power",
    "tools.crash.workloads",
)


class Ended(NamedTuple):
    """How a child ended: the result of its job, or its error."""

    result: Any = None
    #: The traceback of a job that raised something.
    error: str = ""
    #: The signal that killed it; 0 if none did.
    signal: int = 0
    #: It was still running after a long time, and was killed.
    hung: bool = False


class Nursery:
    """A process that starts others on request, one at a time."""

    def __init__(self, preload: Path | None = None, patience: float = PATIENCE) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([f"{CHECKOUT}/src", str(CHECKOUT)]),
        }
        if preload is not None:
            environment["LD_PRELOAD"] = str(preload)
        #: A directory for cases, removed by the nursery when it ends, soon after its owner.
        self.directory = tempfile.mkdtemp(prefix="hansard-nursery-", dir=_memory())
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(patience), self.directory],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # If its owner and its process group are killed, this process cleans up.
            start_new_session=True,
        )
        self._patience = patience

    def run(self, job: str, **options: Any) -> Ended:
        """Run a job in a separate child, and return how it ended."""
        asked, answers = self._pipes()
        asked.write(json.dumps([job, options]) + "\n")
        asked.flush()
        line = answers.readline()
        if not line:
            raise RuntimeError(f"the nursery died, with {self._process.wait(self._patience)}")
        return Ended(*json.loads(line))

    def close(self) -> None:
        """End it; a child that is running is killed by it."""
        for pipe in self._pipes():
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._process.wait(self._patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


def _memory() -> str:
    """Return a directory in memory, if there is one."""
    return _MEMORY if os.access(_MEMORY, os.W_OK) else tempfile.gettempdir()


_open: dict[tuple[int, Path | None], Nursery] = {}


def nursery(preload: Path | None = None) -> Nursery:
    """Return this process's nursery, with the shim or without; there is one of each."""
    key = (os.getpid(), preload)
    if key not in _open:
        if not any(pid == os.getpid() for pid, _ in _open):
            _open.clear()  # after a fork: they are the parent's
            atexit.register(close_all)
        _open[key] = Nursery(preload)
    return _open[key]


def place() -> str:
    """Return a directory for cases, which this process's nursery removes when it ends."""
    return nursery().directory


def start() -> None:
    """Start a nursery, before leftovers are counted."""
    nursery().run("os:getpid")


def close_all() -> None:
    """End this process's nurseries."""
    for pid, preload in list(_open):
        found = _open.pop((pid, preload))
        if pid == os.getpid():
            found.close()


# -- in the nursery ------------------------------------------------------------------------------


def _serve(patience: float, directory: str) -> None:
    try:
        _answer(patience)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _answer(patience: float) -> None:
    for name in _NEEDED:
        importlib.import_module(name)
    # Children collect their garbage: existing objects need not be searched, nor copied.
    gc.collect()
    gc.freeze()
    out = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin:
        job, options = json.loads(line)
        answer = json.dumps(_deliver(job, options, patience)) + "\n"
        os.write(out, answer.encode())


def _deliver(job: str, options: dict[str, Any], patience: float) -> Ended:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _live(job, options, writer)
    os.close(writer)
    said, hung = _hear(reader, patience)
    os.close(reader)
    if hung:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if not said:
        return Ended(signal=killed, hung=hung)
    kind, what = json.loads(said)
    return Ended(result=what) if kind == "result" else Ended(error=what)


def _hear(reader: int, patience: float) -> tuple[bytes, bool]:
    """Return the output of a child until it ends, and whether it timed out."""
    said = b""
    deadline = time.monotonic() + patience
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return b"", True
        piece = os.read(reader, 65536)
        if not piece:
            return said, False
        said += piece


def _live(job: str, options: dict[str, Any], writer: int) -> None:
    module, function = job.split(":")
    try:
        result = getattr(importlib.import_module(module), function)(**options)
        said = json.dumps(["result", result])
    except BaseException:  # noqa: BLE001 - reported, and ends only this child
        said = json.dumps(["error", traceback.format_exc()])
    view = said.encode()
    while view:
        view = view[os.write(writer, view) :]
    # The nursery cleans up its own objects.
    os._exit(0)


if __name__ == "__main__":
    _serve(float(sys.argv[1]), sys.argv[2])
