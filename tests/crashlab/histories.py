r"""Let many processes and threads use one store concurrently, and check all answers.

    history = histories.run("data", processes=4, threads=2, operations=200, kills=10, seed=7)
    violations = histories.check(history)
    assert not violations, "\n".join(map(str, violations))

Workers append, one by one and in batches, with keys and without, at a seq that they expect; they fork,
revert, create, delete, restore, purge, compact, read, list and search, all at the same few sessions, and
some of them are killed with `kill -9`. Each journals what it asks and what it is told. Afterwards
everything must fit: what was acknowledged is there once and complete, in an order that no clock contradicts;
what was not is there once or not at all; every reader saw a beginning of the session, and all that had been
acknowledged; a key has one answer; what was expected was so; and what was deleted stayed away until it was
restored.

Needs a store that other processes can open: a directory, or anything else that `hansard.open` takes.
"""

import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess as _Process
from typing import Any, Final

import hansard
from tests.crashlab.faults import Death
from tests.crashlab.history_checks import check
from tests.crashlab.history_values import Final as End
from tests.crashlab.history_values import History, Kind, Operation, Outcome, Record, Violation
from tests.crashlab.history_worker import FORKING, WEIGHTS, Orders, record, work

__all__ = [
    "FORKING", "WEIGHTS", "End", "History", "Kind", "Operation", "Outcome", "Record", "Violation",
    "check", "read", "run",
]  # fmt: skip

#: How often to look whether it is time for the next kill.
_GLANCE: Final = 0.001

#: How many operations a worker gets that is started because kills are left to do.
_MORE: Final = 10

#: Workers are forked from a clean server that has imported what they need.
_CONTEXT: Final = multiprocessing.get_context("forkserver")


def run(
    path: str | os.PathLike[str],
    *,
    processes: int = 4,
    threads: int = 2,
    operations: int = 100,
    kills: int = 0,
    deaths: Sequence[tuple[str, str]] = (),
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    weights: Mapping[str, int] | None = None,
    prepare: str = "",
    timeout: float = 120.0,
) -> History:
    """Let workers use a store; return their requests, the answers, and the content of the store.

    The order of threads decides what happens: a seed gives the same kind of history, not the same one.

    Args:
        path: what `hansard.open` takes; a store that is empty, or not there yet.
        processes: how many there are at a time; one that is killed is followed by another.
        threads: how many each of them has.
        operations: how many calls each thread makes.
        kills: how many of them are killed with `kill -9`, spread over the run, or kill themselves.
        deaths: calls of the disk, and before, amid or after: every third worker kills itself at the next one.
        seed: decides the calls and the kills.
        options: more arguments of `hansard.open`, such as `{"durability": "os"}`.
        weights: how often what is asked, where it is not as in `WEIGHTS`; 0: never.
        prepare: a function that each worker calls first, as `module:name`.
        timeout: how many seconds a history may take before what is still running is said to hang.
    """
    where = os.fsdecode(path)
    directory = tempfile.mkdtemp(prefix="hansard-history-")
    rng = random.Random(seed)
    orders = Orders(
        path=where,
        options=dict(options or {}),
        directory=directory,
        name="",
        seed=rng.getrandbits(32),
        threads=threads,
        operations=operations,
        retries=(),
        prepare=prepare,
        weights={**WEIGHTS, **(weights or {})},
        death=None,
    )
    try:
        workers = _Workers(orders, rng, deaths)
        noticed = workers.run(processes, kills, time.monotonic() + timeout)
        asked = list(read(directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    sessions, wrong = _look(where, dict(options or {}))
    return History(asked, sessions, [*noticed, *wrong], workers.kills)


def read(directory: str, worker: str = "") -> Iterator[Operation]:
    """Yield the calls in the journals of a directory, or of one worker."""
    for name in sorted(os.listdir(directory)):
        if worker and not name.startswith(f"{worker}."):
            continue
        with open(os.path.join(directory, name), "rb") as file:
            # The last line of a killed worker may be incomplete: then it was not answered.
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


def _end(process: _Process) -> int | None:
    """Wait for a process, close its pipes, and return its exit code."""
    process.join()
    code = process.exitcode
    process.close()
    return code


class _Workers:
    """The workers of one history, and which of them die."""

    def __init__(
        self, orders: Orders, rng: random.Random, deaths: Sequence[tuple[str, str]]
    ) -> None:
        self._orders = orders
        self._rng = rng
        self._deaths = itertools.cycle(deaths)
        self._dies = bool(deaths)
        self._started = 0
        self._living: dict[str, tuple[_Process, Orders]] = {}
        self._errors = tempfile.mkdtemp(prefix="hansard-errors-")
        #: How much was journaled by those that have ended.
        self._ended = 0
        self.kills: Counter[str] = Counter()

    def run(self, processes: int, kills: int, deadline: float) -> list[Violation]:
        """Start the workers, kill some, and wait for the others; return the errors of their ends."""
        noticed: list[Violation] = []
        try:
            for _ in range(processes):
                self._start(self._orders.operations, [])
            # Killed when the journals have grown so far: independent of the machine's speed.
            expected = processes * self._orders.threads * self._orders.operations
            moments = sorted(self._rng.randrange(expected) for _ in range(kills))
            while self._living:
                if time.monotonic() > deadline:
                    names = ", ".join(self._living)
                    return [*noticed, Violation("hung", "", f"still running: {names}")]
                noticed += self._collect()
                due = kills - self.kills.total()
                while len(self._living) < processes and due > 0:
                    self._start(_MORE, [])
                busy = sorted(name for name in self._living if self._may_be_killed(name))
                if due > 0 and busy and self._asked() >= moments[-due]:
                    self._kill(self._rng.choice(busy))
                else:
                    time.sleep(_GLANCE)
        finally:
            for process, _ in self._living.values():
                process.kill()
                _end(process)
            shutil.rmtree(self._errors, ignore_errors=True)
        return noticed

    def _may_be_killed(self, name: str) -> bool:
        # To kill one that has not begun would show nothing. Some kill themselves.
        _, orders = self._living[name]
        begun = os.path.exists(os.path.join(orders.directory, f"{name}.0"))
        return begun and orders.death is None

    def _asked(self) -> int:
        """Return about how many calls were made."""
        # A call and its answer take about 260 bytes.
        return (self._ended + sum(map(self._size, self._living))) // 260

    def _size(self, name: str) -> int:
        """Return how much a worker has journaled."""
        found = 0
        for thread in range(self._orders.threads):
            with suppress(FileNotFoundError):
                found += os.stat(os.path.join(self._orders.directory, f"{name}.{thread}")).st_size
        return found

    def _start(self, operations: int, retries: list[tuple[str, str, str, int]]) -> None:
        name = f"w{self._started}"
        self._started += 1
        orders = self._orders._replace(name=name, operations=operations, retries=retries)
        if self._dies and self._started % 3 == 0:
            call, moment = next(self._deaths)
            # One that waits for its death in a sync must come to sync.
            orders = orders._replace(
                death=Death(call, self._rng.randrange(1, 13), moment),
                options={**orders.options, "durability": "sync"},
            )
        errors = os.path.join(self._errors, name)
        process = _CONTEXT.Process(target=work, args=(orders, errors), name=name, daemon=True)
        process.start()
        self._living[name] = process, orders

    def _collect(self) -> list[Violation]:
        """Remove ended workers, replace those that killed themselves; return errors."""
        noticed = []
        for name, (process, orders) in list(self._living.items()):
            if process.exitcode is None:
                continue
            if orders.death is not None and process.exitcode == -signal.SIGKILL:
                self._replace(name, f"{orders.death.call} {orders.death.moment}")
                continue
            del self._living[name]
            self._ended += self._size(name)
            code = _end(process)
            if code:
                said = ""
                with suppress(FileNotFoundError), open(os.path.join(self._errors, name)) as file:
                    said = file.read()
                detail = f"worker {name} ended with {code}:\n{said}"
                noticed.append(Violation("failed", "", detail))
        return noticed

    def _kill(self, name: str) -> None:
        process, _ = self._living[name]
        process.kill()
        self._replace(name, "chosen")

    def _replace(self, name: str, how: str) -> None:
        """Let another worker do what a killed one has left undone."""
        process, orders = self._living.pop(name)
        _end(process)
        self.kills[how] += 1
        self._ended += self._size(name)
        done = list(read(orders.directory, name))
        retries = [
            (one.session, one.asked["key"], one.asked["of"], one.asked["size"])
            for one in done
            if one.outcome == "unknown" and one.do == "append" and one.asked["key"] is not None
        ]
        left = orders.operations - len(done) // orders.threads
        if left > 0 or retries:
            self._start(max(left, 1), retries)


def _look(path: str, options: dict[str, Any]) -> tuple[dict[str, End], list[Violation]]:
    """Return the content of a store and its trash, and the findings of `verify`."""
    sessions: dict[str, End] = {}
    wrong: list[Violation] = []
    with hansard.open(path, **options) as store:
        trash = store.trash()
        restored = []
        for name in trash:
            try:
                store.restore(name)
                restored.append(name)
            except hansard.Damaged as error:
                wrong.append(Violation("damaged", name, str(error)))
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
        for name in restored:
            store.delete(name)
    return sessions, wrong
