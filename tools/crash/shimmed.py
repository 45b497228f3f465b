"""One case: a workload with one failed call, and a check by a process without faults."""

import contextlib
import errno
import functools
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tools.crash import shim
from tools.crash.ledger import Step, read
from tools.crash.nursery import Ended, nursery, place
from tools.crash.row import Outcome
from tools.crash.workloads import LEFT, THREADED

#: The outcome if there was no such call to strike.
UNFIRED = "did not fire"


class Stage:
    """A directory for one case: a store, and next to it the reports about it."""

    def __init__(self, workload: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="hansard-struck-", dir=place()))
        self.under = self.directory / "below"
        self.store = self.under / "store"
        self.workload = workload
        self.ledgers = [str(self.directory / "prepared")]
        self.report = shim.Report(0, 0, "", "", ())
        self.under.mkdir()
        template, ledger = _template(workload)
        shutil.copy(ledger, self.ledgers[0])
        if template.exists():
            shutil.copytree(template, self.store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.directory)

    def strike(
        self, workload: str, fault: shim.Fault, job: str = "tools.crash.workloads:perform"
    ) -> Ended:
        """Run a workload in a child, under a fault; `job` is its function."""
        told = self.directory / "report"
        shim.new_report(told)
        self.ledgers.append(str(self.directory / f"ledger{len(self.ledgers)}"))
        ended = nursery(shim.library()).run(
            job,
            name=workload,
            path=str(self.store),
            ledger=self.ledgers[-1],
            fault=fault,
            under=str(self.under),
            report=str(told),
        )
        self.report = shim.read_report(told)
        self._lose(self.report.lost)
        return ended

    def _lose(self, ranges: tuple[shim.Lost, ...]) -> None:
        """Remove what only the cache still showed."""
        for lost in ranges:
            for found in self.under.rglob("*"):
                if found.is_file() and found.stat().st_ino == lost.inode:
                    with found.open("r+b") as file:
                        file.seek(lost.begin)
                        file.write(bytes(min(lost.end, found.stat().st_size) - lost.begin))
                    break

    def steps(self) -> list[Step]:
        """Return what the last process that was struck says about itself."""
        return read(self.ledgers[-1:])

    def check(self, **options: Any) -> dict[str, Any]:
        """Check the store in a process without faults; return what it found."""
        ended = nursery().run(
            "tools.crash.checker:check", path=str(self.store), ledger=self.ledgers, **options
        )
        if ended.result is None:
            how = "hung" if ended.hung else ended.error or f"died of signal {ended.signal}"
            return {"wrong": [f"the checker: {how}"], "temporaries": []}
        found: dict[str, Any] = ended.result
        return found


def _template(workload: str) -> tuple[Path, Path]:
    """Return a workload's store before the fault, and its ledger: created once, then copied."""
    path = Path(place(), f"template-{workload}")
    if not path.exists():
        path.mkdir()
        (path / "ledger").touch()
        ended = nursery().run(
            "tools.crash.workloads:prepare",
            name=workload,
            path=str(path / "store"),
            ledger=str(path / "ledger"),
        )
        assert not ended.error, ended.error
    return path / "store", path / "ledger"


def start() -> None:
    """Start both nurseries, before leftovers are counted."""
    nursery().run("os:getpid")
    with contextlib.suppress(shim.Unavailable):
        nursery(shim.library()).run("os:getpid")


@functools.cache
def calls_of(workload: str, calls: tuple[str, ...] = shim.MUTATING) -> int:
    """Return the number of calls of a workload that can be struck, from a run without faults."""
    try:
        shim.library()
    except shim.Unavailable:
        return 1  # the case reports it, with the reason
    with Stage(workload) as stage:
        ended = stage.strike(workload, shim.Fault(calls=calls))
        refused = [step for step in stage.steps() if not step.done]
        assert ended.result == {"descriptors": 0, "threads": 0}, ended
        assert not refused, refused
        # Threads make a different number of calls in each run; the cases must be the same.
        seen = stage.report.seen
        return max(8, seen - seen % 16) if workload in THREADED else seen


@dataclass(frozen=True)
class Struck:
    """A workload, and the call of it that is struck; before that, perhaps, one at which it was killed."""

    workload: str
    fault: shim.Fault
    killed: shim.Fault | None = None

    @property
    def label(self) -> str:
        """Its name."""
        if self.killed is None:
            return f"{self.workload}: {self.fault}"
        return f"{self.workload}: {self.killed}; recover: {self.fault}"

    def run(self) -> Outcome:
        """Inject the fault, check, continue, check again."""
        try:
            shim.library()
        except shim.Unavailable as reason:
            return Outcome(ok=True, label=self.label, skipped=str(reason))
        with Stage(self.workload) as stage:
            if self.killed is None:
                ended = stage.strike(self.workload, self.fault)
            else:
                stage.strike(self.workload, self.killed)
                ended = stage.strike("recover", self.fault)
            found = stage.check(damage=self.fault.act == "drop" and self.fault.lost == "later")
            wrong = [*self._process(ended, stage), *found["wrong"], *self._left(found, stage)]
            fired = stage.report.fired
            at = f"{stage.report.call} {stage.report.place}" if fired else UNFIRED
            if fired and not wrong:
                at = ""
            return Outcome(ok=not wrong, label=self.label, detail="; ".join([at, *wrong]))

    def _process(self, ended: Ended, stage: Stage) -> list[str]:
        """Return what is wrong with a process: it died, hung, left something, or its error was unclear."""
        if ended.hung:
            return ["it hung"]
        if ended.error:
            return [ended.error]
        if self.fault.act in {"before", "after"}:
            if bool(ended.signal) != bool(stage.report.fired):
                return [f"struck {stage.report.fired} times, ended with {ended}"]
            return []
        if ended.signal:
            return [f"died of signal {ended.signal}"]
        wrong = [f"{count} {what} left over" for what, count in ended.result.items() if count]
        refused = [step for step in stage.steps() if step.refused]
        if refused and self.killed is None and not any(map(self._is_clear, refused)):
            wrong.append(f"no error is clear: {refused[0]}")
        return wrong

    def _is_clear(self, step: Step) -> bool:
        """Return whether an error has the reason that the system gave."""
        reasons = [os.strerror(self.fault.error), os.strerror(self.fault.then or errno.ENOSPC)]
        # For locks, EACCES means that another process holds it.
        held = step.refused == "LockTimeout" and self.fault.error == errno.EACCES
        return held or any(reason in step.said for reason in reasons)

    def _left(self, found: dict[str, Any], stage: Stage) -> list[str]:
        """Return the temporary files that a living process should have removed."""
        if self.fault.act in {"before", "after"} or self.fault.lasting or self.killed is not None:
            return []
        if stage.report.call == "unlink" or not stage.report.fired:
            return []
        return [f"{name} is left over" for name in found["temporaries"] if LEFT not in name]
