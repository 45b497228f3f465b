r"""Let many processes and threads use one store at once, and check all that they were told.

Above: tests, ours and yours.  Below: `history_worker`, which asks; `history_checks`, which judges.

    history = histories.run("data", processes=4, threads=2, operations=200, kills=10, seed=7)
    violations = histories.check(history)
    assert not violations, "\n".join(map(str, violations))

Workers append, one by one and in batches, with keys and without, at a seq that they expect; they fork,
revert, create, delete, restore, compact, read, list and search, all at the same few sessions, and some of
them are killed with `kill -9`. Each journals what it asks and what it is told. Afterwards everything must
fit: what was acknowledged is there once and whole, in an order that no clock contradicts; what was not is
there once or not at all; every reader saw a beginning of the session, and all that had been acknowledged; a
key has one answer; what was expected was so; and what was deleted stayed away until it was restored.

Needs a store that other processes can open: a directory, or whatever else `hansard.open` takes.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import hansard
from tests.crashlab.history_checks import check
from tests.crashlab.history_values import (
    Final as End,
)
from tests.crashlab.history_values import (
    History,
    Kind,
    Operation,
    Outcome,
    Record,
    Violation,
)
from tests.crashlab.history_worker import WEIGHTS, record

__all__ = [
    "WEIGHTS",
    "End",
    "History",
    "Kind",
    "Operation",
    "Outcome",
    "Record",
    "Violation",
    "check",
    "read",
    "run",
]

#: How often to look whether it is time for the next kill.
_GLANCE: Final = 0.001


def run(
    path: str | os.PathLike[str],
    *,
    processes: int = 4,
    threads: int = 2,
    operations: int = 100,
    kills: int = 0,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    weights: Mapping[str, int] | None = None,
    prepare: str = "",
    timeout: float = 120.0,
) -> History:
    """Let workers use a store, and return what they asked, what they were told, and what is in it then.

    What happens depends on who comes first: the same seed gives the same kind of history, not the same one.

    Args:
        path: what `hansard.open` takes; a store that is empty, or not there yet.
        processes: how many there are at a time; one that is killed is followed by another.
        threads: how many each of them has.
        operations: how many things each thread asks for.
        kills: how many of them are killed with `kill -9`, spread over the run.
        seed: decides what is asked, and who is killed.
        options: more arguments of `hansard.open`, such as `{"durability": "os"}`.
        weights: how often what is asked, where it is not as in `WEIGHTS`; 0: never.
        prepare: a function that each worker calls first, as `module:name`.
        timeout: how many seconds a history may take before what is still running is said to hang.
    """
    where = os.fsdecode(path)
    if where == "memory:":
        raise ValueError("a store in memory cannot be opened by other processes; give a directory")
    folder = tempfile.mkdtemp(prefix="hansard-history-")
    try:
        siege = _Siege(
            {
                "path": where,
                "options": dict(options or {}),
                "folder": folder,
                "threads": threads,
                "prepare": prepare,
                "weights": {**WEIGHTS, **(weights or {})},
            },
            random.Random(seed),
            operations,
        )
        noticed = siege.run(processes, kills, time.monotonic() + timeout)
        asked = list(read(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sessions, wrong = _look(where, dict(options or {}))
    return History(asked, sessions, [*noticed, *wrong])


def read(folder: str) -> Iterator[Operation]:
    """Yield what the journals in a folder say, those of killed workers among them."""
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            # The last line of one that was killed may not be whole: then it had said nothing.
            lines = [json.loads(line) for line in file if line.endswith(b"\n")]
        asked: Operation | None = None
        for line in lines:
            if line[0] == "asked":
                if asked is not None:
                    yield asked
                asked = Operation(*line[1:])
            else:
                outcome, _, result, returned = line
                assert asked is not None  # an answer follows its question
                yield asked._replace(outcome=outcome, result=result, returned=returned)
                asked = None
        if asked is not None:
            yield asked


class _Siege:
    """The workers of one history, and who of them dies."""

    def __init__(self, orders: dict[str, Any], rng: random.Random, operations: int) -> None:
        self._orders = orders
        self._rng = rng
        self._operations = operations
        self._seed = rng.getrandbits(32)
        self._started = 0
        self._living: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, processes: int, kills: int, deadline: float) -> list[Violation]:
        """Start them, kill some, and wait for the others; return what was wrong with how they ended."""
        noticed: list[Violation] = []
        try:
            for _ in range(processes):
                self._start(self._operations, [])
            # Killed when the journals have grown so far: whatever a machine takes for it.
            expected = processes * self._orders["threads"] * self._operations
            moments = sorted(self._rng.randrange(expected) for _ in range(kills))
            while self._living:
                if time.monotonic() > deadline:
                    names = ", ".join(self._living)
                    return [*noticed, Violation("hung", "", f"still running: {names}")]
                noticed += self._bury()
                busy = sorted(name for name in self._living if self._has_begun(name))
                if moments and busy and self._asked() >= moments[0]:
                    moments.pop(0)
                    self._kill(self._rng.choice(busy))
                else:
                    time.sleep(_GLANCE)
        finally:
            for process in self._living.values():
                process.kill()
                process.communicate()
        return noticed

    def _has_begun(self, name: str) -> bool:
        # To kill one that is still importing would show nothing.
        return os.path.exists(os.path.join(self._orders["folder"], f"{name}.0"))

    def _asked(self) -> int:
        """Return about how many things have been asked for."""
        folder = self._orders["folder"]
        # A question and its answer take about so many bytes.
        return (
            sum(os.stat(os.path.join(folder, name)).st_size for name in os.listdir(folder)) // 260
        )

    def _start(self, operations: int, retries: list[tuple[str, str, str, int]]) -> None:
        name = f"w{self._started}"
        self._started += 1
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crashlab.history_worker"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._living[name] = process
        orders = {
            **self._orders,
            "name": name,
            "seed": self._seed,
            "operations": operations,
            "retries": retries,
        }
        assert process.stdin is not None  # asked for above
        with process.stdin as line:
            line.write(json.dumps(orders).encode())
        process.stdin = None  # what `communicate` must not close again

    def _bury(self) -> list[Violation]:
        """Forget those that have come to their end; return what was wrong with it."""
        noticed = []
        for name, process in list(self._living.items()):
            if process.poll() is not None:
                del self._living[name]
                _, errors = process.communicate()
                if process.returncode:
                    said = errors.decode(errors="replace")
                    detail = f"worker {name} ended with {process.returncode}:\n{said}"
                    noticed.append(Violation("failed", "", detail))
        return noticed

    def _kill(self, name: str) -> None:
        """Kill one, and let another do what it has left undone."""
        process = self._living.pop(name)
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.communicate()
        done = [one for one in read(self._orders["folder"]) if one.id.startswith(f"{name}.")]
        retries = [
            (one.session, one.asked["key"], one.asked["of"], one.asked["size"])
            for one in done
            if one.outcome == "unknown" and one.do == "append" and one.asked["key"] is not None
        ]
        left = self._operations - len(done) // self._orders["threads"]
        if left > 0 or retries:
            self._start(max(left, 1), retries)


def _look(path: str, options: dict[str, Any]) -> tuple[dict[str, End], list[Violation]]:
    """Return what is in a store, also in its trash, and what `verify` finds."""
    sessions: dict[str, End] = {}
    wrong: list[Violation] = []
    with hansard.open(path, **options) as store:
        trash = store.trash()
        for name in trash:
            store.restore(name)
        report = store.verify()
        if not report.ok:
            wrong.append(Violation("damaged", "", str(report)))
        for name in [info.id for info in store.sessions().items]:
            try:
                events = [record(event) for event in store.session(name).events()]
            except hansard.HansardError as error:
                wrong.append(Violation("damaged", name, str(error)))
                events = []
            sessions[name] = End(events, deleted=name in trash)
        for name in trash:
            store.delete(name)
    return sessions, wrong
