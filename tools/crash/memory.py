"""Let each memory allocation fail, one at a time, in separate processes.

A driver prepares a store once and forks a child for each case, so a broken Python stays in the child.
Python does not survive the failure of some allocations; then the store must be as after a `kill -9`.

    python -m tools.crash.memory '[["append", 17]]'
"""

import gc
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import hansard
from tools.crash.struck import BY_NAME, PATIENCE, Operation, Stage, Wrong, run, state_of

CHECKOUT = Path(__file__).resolve().parents[2]

#: No operation makes more allocations than this.
MOST = 1 << 22


class Answer(NamedTuple):
    """The result of a case: "struck", "unharmed", "died" or "wrong"."""

    name: str
    at: int
    outcome: str
    detail: str = ""


def missing() -> str:
    """Return why this cannot run here; empty if it can."""
    try:
        import _testcapi  # type: ignore[import-not-found]
    except ImportError:
        return "this Python has no _testcapi, which lets allocations fail"
    return (
        "" if hasattr(_testcapi, "set_nomemory") else "this Python's _testcapi has no set_nomemory"
    )


def strike(cases: Iterable[tuple[str, int]]) -> list[Answer]:
    """Let an allocation fail in each of these operations; `count` returns their number."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.crash.memory", json.dumps(list(cases))],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT / 'src'}{os.pathsep}{CHECKOUT}"},
        capture_output=True,
        check=False,
        timeout=3600,
    )
    if done.returncode:
        raise Wrong(done.stderr.decode(errors="replace"))
    return [Answer(*json.loads(line)) for line in done.stdout.splitlines()]


class _Failing:
    """Calls a step whose nth allocation fails."""

    def __init__(self, at: int) -> None:
        import _testcapi

        self._at = at
        self._fail: Callable[[int, int], None] = _testcapi.set_nomemory
        self._stop: Callable[[], None] = _testcapi.remove_mem_hooks

    def __call__(self, call: Callable[[], object]) -> BaseException | None:
        raised: BaseException | None = None
        self._fail(self._at, self._at + 1)
        try:
            call()
        except RuntimeError as error:
            # As Python reports it without memory for a lock.
            raised = MemoryError() if "allocate" in str(error) and "lock" in str(error) else error
        except BaseException as error:  # noqa: BLE001 - which one it is, is what is checked
            raised = error
        self._stop()
        return raised


#: SystemError: a function written in C that failed without saying why, which hansard cannot fix.
_EXPECTED = (MemoryError, hansard.HansardError, SystemError)


def in_child(stage: Stage, operation: Operation, at: int) -> tuple[str, str]:
    """Run a case in a forked child, and return its result."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            sys.unraisablehook = lambda _: None
            try:
                # One descriptor: without memory for its owner, or for the call that closes it.
                raised = run(stage, operation, _Failing(at), _EXPECTED, lambda: 1)
                said = ["unharmed", ""] if raised is None else ["struck", raised.__name__]
            except BaseException:  # noqa: BLE001 - the parent must hear of it
                said = ["wrong", traceback.format_exc()]
            os.write(writing, json.dumps(said).encode()[:60_000])
        finally:
            os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], 3 * PATIENCE)
        if not ready:
            os.kill(child, signal.SIGKILL)
        heard = os.read(reading, 65_536)
    finally:
        os.close(reading)
    _, status = os.waitpid(child, 0)
    if heard:
        outcome, detail = json.loads(heard)
        return outcome, detail
    if not ready:
        return "wrong", "hung"
    _check_the_remains(stage, operation)
    return "died", str(status)


def _check_the_remains(stage: Stage, operation: Operation) -> None:
    """Check the leftovers of a child that died."""
    for path in stage.copies():
        with hansard.open(path, read_only=True) as store:
            found = state_of(store)
            if found not in stage.states(operation) or not store.verify().ok:
                raise Wrong(f"a dead child left {found}")
        stage.remove(path)


def main(cases: list[list[Any]]) -> None:
    """Run the cases, and print a result for each. An `at` of 0 requests the number of allocations."""
    stage = Stage()
    try:
        for name in {name for name, _ in cases}:
            run(stage, BY_NAME[name], lambda call: (call(), None)[1], ())
        gc.collect()
        gc.freeze()
        for name, at in cases:
            if at:
                try:
                    outcome, detail = in_child(stage, BY_NAME[name], at)
                except Wrong as wrong:
                    outcome, detail = "wrong", str(wrong)
            else:
                outcome, detail = "count", str(_count(stage, BY_NAME[name]))
            print(json.dumps([name, at, outcome, detail]), flush=True)
    finally:
        stage.close()


def _count(stage: Stage, operation: Operation) -> int:
    """Return about how many allocations an operation makes: twice as many at the most."""
    at = 64
    while at < MOST and in_child(stage, operation, at)[0] != "unharmed":
        at *= 2
    return at


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
