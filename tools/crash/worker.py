"""Run cases in separate processes; a case that hangs or kills its process is a failure."""

import contextlib
import importlib
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Generator, Iterable
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from tools.crash.leftovers import Leftovers
from tools.crash.row import Case, Outcome

#: A case that takes longer has hung; most take milliseconds.
PATIENCE = 300.0


class Done(NamedTuple):
    """The result of a case, and its leftovers in the process."""

    outcome: Outcome
    left: str = ""


def run_case(case: Case) -> Done:
    """Run a case here; an error of the case itself is a failure, too."""
    before = Leftovers()
    try:
        outcome = case.run()
    except Exception:  # noqa: BLE001 - any error is this case's
        outcome = Outcome(ok=False, label=case.label, detail=traceback.format_exc(limit=-6))
    return Done(outcome, before.more())


def _serve(wire: Connection, modules: list[str], place: str) -> None:
    """Run the cases that arrive on the pipe until it is closed."""
    # Ctrl-C is for the campaign, which then ends this process: it must not reach the children of cases.
    os.setpgid(0, 0)
    tempfile.tempdir = place
    os.environ["TMPDIR"] = place
    # Imports and permanent helpers of a first case are not leftovers.
    resource_tracker.ensure_running()
    for module in modules:
        found = importlib.import_module(module)
        getattr(found, "prepare", lambda: None)()
    with contextlib.suppress(EOFError, BrokenPipeError):
        wire.send(None)  # from here on, the time counts for the case
        while True:
            case = wire.recv()
            wire.send(run_case(case))


class _Worker:
    def __init__(self, modules: list[str], place: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.wire, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, modules, place))
        self.process.start()
        theirs.close()
        self.case: Case | None = None
        #: When it started its case; infinity before the first.
        self.since = math.inf
        self._begun = False

    def give(self, case: Case) -> None:
        self.case = case
        self.since = time.monotonic() if self._begun else math.inf
        self.wire.send(case)

    def look(self, *, ready: bool) -> Done | None:
        """Return the result of its case; None while it runs. A dead or hung process keeps the case."""
        assert self.case is not None
        if ready:
            try:
                done = self.wire.recv()
            except (EOFError, ConnectionError):
                self.process.join(10)
                told = f"the case ended its process: exit code {self.process.exitcode}"
            else:
                if done is None:
                    self._begun = True
                    self.since = time.monotonic()
                    return None
                assert isinstance(done, Done)
                self.case = None
                return done
        elif time.monotonic() - self.since > PATIENCE:
            told = f"no end after {PATIENCE:.0f} s"
        else:
            return None
        return Done(Outcome(ok=False, label=self.case.label, detail=told))

    def end(self) -> None:
        """End the process and all that it has started, without waiting for a case."""
        self.wire.close()
        if self.process.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid or 0, signal.SIGKILL)
            self.process.kill()
        self.process.join(10)


def run_all(
    cases: Iterable[Case], *, jobs: int, modules: list[str], place: str
) -> Generator[Done, None, None]:
    """Run cases in `jobs` processes, and yield each when it is done, in any order.

    Args:
        cases: taken when needed, so that no case is created and not used.
        jobs: how many run at once.
        modules: what a process imports before the first case.
        place: a directory for temporary files.
    """
    workers: list[_Worker] = []
    left = iter(cases)
    try:
        for case in left:
            workers.append(_Worker(modules, place))
            workers[-1].give(case)
            if len(workers) == jobs:
                break
        while busy := [worker for worker in workers if worker.case is not None]:
            ready = wait([worker.wire for worker in busy], timeout=1)
            for worker in busy:
                done = worker.look(ready=worker.wire in ready)
                if done is None:
                    continue
                if worker.case is not None:
                    # It died or hung: start another process.
                    worker.end()
                    workers[workers.index(worker)] = worker = _Worker(modules, place)  # noqa: PLW2901
                yield done
                following = next(left, None)
                if following is not None:
                    worker.give(following)
    finally:
        for worker in workers:
            worker.end()
        sys.stderr.flush()
