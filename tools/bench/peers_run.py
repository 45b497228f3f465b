"""Measure hansard and other systems: each in separate processes, on empty directories.

The light systems are measured in turn, workload by workload, several times, and ratios are of neighbours;
those that take seconds to start are measured once.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tools.bench import installed, syncs
from tools.bench.conversation import conversation
from tools.bench.figures import Figures
from tools.bench.peers import KNOWN
from tools.bench.scale import Scale
from tools.bench.verdicts import Verdict, verdicts

#: Measured in hansard's process against the bare calls; in full with a session of 1,000,000.
EVERYDAY: Final = (
    "append_os", "append_sync", "append_long", "threads", "tasks_16", "load", "load_json", "start",
)  # fmt: skip
#: Workloads with a slow preparation are measured in one round.
_ONCE: Final = {"growth", "listing", "disk"}
_STEPS: Final = (
    ("append",),
    ("growth",),
    ("batch",),
    ("filled",),
    ("read",),
    ("seen",),
    ("fork",),
    ("listing",),
    ("disk",),
    ("writers:processes:4:one",),
    ("writers:processes:4:many",),
)
#: Workloads of systems that sync: reads do not depend on durability.
_SYNCED: Final = {"append", "batch", "fork"}
_TIMEOUT: Final = 600.0


class Run:
    """One run: its directory, and its figures so far."""

    def __init__(self, scale: Scale, wanted: list[str], *, say: bool = True) -> None:
        self.scale = scale
        self.left_out = installed.prepare()
        self.figures = Figures()
        self.failures: dict[str, str] = {}
        packages = sorted({entry.package for entry in KNOWN.values() if entry.package})
        self.versions = installed.versions([*packages, "msgspec"])
        self.systems = [
            name
            for name in wanted
            if not KNOWN[name].package or KNOWN[name].package in self.versions
        ]
        self._say = say
        self._root = Path(tempfile.mkdtemp(prefix="hansard-bench-"))
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(installed.CHECKOUT / "src"), str(installed.CHECKOUT)]
            ),
            # With compiled files, as in installed packages, and without a writable home.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONWARNINGS": "ignore",
            "HOME": str(self._root),
        }

    def everything(self) -> list[Verdict]:
        """Measure everything; return the rows of the report."""
        try:
            self._material()
            self._limits()
            for name in self.systems:
                self._start(name)
            for round_ in range(self.scale.rounds):
                self._light(round_)
            for name in self.systems:
                if not KNOWN[name].light:
                    self._heavy(name)
            self._writers()
            if syncs.available():
                for name in self.systems:
                    self._syncs(name)
        finally:
            shutil.rmtree(self._root, ignore_errors=True)
        return verdicts(self.figures, self.scale)

    def _material(self) -> None:
        """Write the sessions of `disk` once, for all systems."""
        with (self._root / "material.jsonl").open("w") as file:
            for number in range(self.scale.kept):
                file.write(json.dumps(conversation(number, 50)) + "\n")

    def _limits(self) -> None:
        self._order("limits", ["limits"])
        for name in EVERYDAY:
            full = name == "append_long" and self.scale.rounds > 1
            long = 1_000_000 if full else self.scale.long
            self._order("limits", [f"everyday:{name}"], long=long)

    def _light(self, round_: int) -> None:
        for step in _STEPS:
            for name in self.systems:
                if not KNOWN[name].light or (round_ and _ONCE & {*step}):
                    continue
                synced = name.endswith(("_sync", "_full"))
                if synced and not step[0].startswith("writers") and step[0] not in _SYNCED:
                    continue
                self._order(name, list(step), keep=step == ("filled",), again=step == ("read",))

    def _heavy(self, name: str) -> None:
        """Measure systems that start slowly, with as few starts as possible."""
        alone = ["append", "growth", "batch", "fork", "listing", "disk", "filled"]
        self._order(name, alone, keep=True)
        # In a new process, which has nothing cached.
        seen = self.scale.rounds > 1 or name == "openai"
        self._order(name, ["read", "seen"] if seen else ["read"], again=True)
        if self.scale.rounds > 1:
            self._order(name, ["writers:processes:4:one", "writers:processes:4:many"])

    def _writers(self) -> None:
        """Numbers of threads, tasks and processes, on one session and on many."""
        for kind in ("threads", "tasks", "processes"):
            names = [
                f"writers:{kind}:{count}:{where}"
                for count in self.scale.writers
                for where in ("one", "many")
                # One writer has one session; four processes were measured before.
                if (count, where) != (1, "many") and (kind, count) != ("processes", 4)
            ]
            for name in self.systems:
                awaited = name.startswith("hansard") or (name == "openai" and self.scale.rounds > 1)
                if awaited if kind == "tasks" else KNOWN[name].light:
                    self._order(name, names)

    def _syncs(self, name: str) -> None:
        begin = time.perf_counter()
        directory = Path(tempfile.mkdtemp(dir=self._root))
        command = self._command(
            {"system": name, "workloads": ["syncs"], "directory": str(directory)}
        )
        count = syncs.traced(command, self._environment, _TIMEOUT)
        if count is not None:
            self.figures.add(name, {"syncs": count / 40})
        self._tell(begin, f"{name}: syncs")
        shutil.rmtree(directory, ignore_errors=True)

    def _start(self, name: str) -> None:
        """Measure time and memory of the import and the opening of a system."""
        code = (
            "import resource, sys, time; from pathlib import Path\n"
            "from tools.bench.peers import class_of\n"
            "r = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "before, begin = r(), time.perf_counter()\n"
            "class_of(sys.argv[1])(Path(sys.argv[2]))\n"
            "print(); print(time.perf_counter() - begin, r() - before)"
        )
        begin, times = time.perf_counter(), []
        # The first import compiles; a quick run keeps its result.
        for _ in range(3 if KNOWN[name].light else min(2, self.scale.rounds)):
            directory = tempfile.mkdtemp(dir=self._root)
            done = self._process([str(installed.python()), "-c", code, name, directory])
            if done is not None:
                times.append([float(word) for word in done.split()])
        self._tell(begin, f"{name}: start")
        if times:
            taken, memory = min(times)
            # In kilobytes, except on macOS.
            unit = 1e6 if sys.platform == "darwin" else 1e3
            self.figures.add(name, {"start_ms": taken * 1000, "start_mb": memory / unit})

    def _order(
        self,
        name: str,
        workloads: list[str],
        *,
        keep: bool = False,
        again: bool = False,
        **more: Any,
    ) -> None:
        """Run workloads in a process, and keep its figures; with `again`, in a directory that was kept."""
        directory = self._root / f"kept-{name}"
        if not keep and not again:
            directory = Path(tempfile.mkdtemp(dir=self._root))
        begin = time.perf_counter()
        order = {"system": name, "workloads": workloads, "directory": str(directory), **more}
        answer = self._process(self._command(order))
        found: dict[str, Any] = (
            json.loads(answer) if answer else {f"failed:{workloads[0]}": "no answer"}
        )
        for key in [key for key in found if key.startswith(("failed:", "seconds:"))]:
            if key.startswith("failed:"):
                self.failures[f"{name}, {key.removeprefix('failed:')}"] = found[key]
            del found[key]
        self.figures.add(name, found)
        self._tell(begin, f"{name}: {', '.join(workloads)}")
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)

    def _tell(self, begin: float, what: str) -> None:
        """Print progress."""
        if self._say:
            print(f"{time.perf_counter() - begin:6.1f} s  {what}", file=sys.stderr, flush=True)

    def _command(self, order: dict[str, Any]) -> list[str]:
        order |= {"scale": self.scale, "material": str(self._root / "material.jsonl")}
        return [str(installed.python()), "-m", "tools.bench.worker", json.dumps(order)]

    def _process(self, command: list[str]) -> str | None:
        """Run a process of the peers; return its last line, None if it failed."""
        try:
            done = subprocess.run(
                command,
                cwd=installed.CHECKOUT,
                env=self._environment,
                check=True,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT,
            )
        except subprocess.SubprocessError as error:
            said = getattr(error, "stderr", None) or ""
            print(f"{error}\n{said[-2000:]}", file=sys.stderr)
            return None
        return done.stdout.splitlines()[-1]


def machine(versions: dict[str, str]) -> dict[str, Any]:
    """Return the place and time of the measurements."""
    import sqlite3

    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "load when it began": f"{os.getloadavg()[0]:.1f}",
        "sqlite": sqlite3.sqlite_version,
        **versions,
    }
