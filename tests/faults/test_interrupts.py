"""Interrupts and failed allocations, in a process that continues.

Each run takes 500 of the points and 500 of the allocations; `tools/crash/campaign --rows 12` takes all.
"""

import faulthandler
import gc
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from weakref import ref

import pytest

import hansard
from hansard.backend.local import changes
from hansard.log import disk, writer
from hansard.log.group_commit import GroupCommit
from tests.faults.workers import run_threads
from tools.crash import interrupts, memory
from tools.crash.rows.interrupts import Interrupted, OutOfMemory, cases
from tools.crash.struck import BY_NAME, Stage, Wrong, run


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Return a prepared store to strike."""
    made = Stage()
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupt_anywhere_holds_no_lock_and_loses_nothing(
    stage: Stage, rng: random.Random
) -> None:
    """N-23, N-39: 500 interrupts leave the state before or after, no lock, and a store that works."""
    struck = 0
    for case in cases(1_000, rng):
        if isinstance(case, Interrupted):
            struck += interrupts.interrupt(stage, case.operation, case.at).fired
    assert struck > 400


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_allocation_that_fails_anywhere_holds_no_lock_and_loses_nothing(
    rng: random.Random,
) -> None:
    """N-23, N-39: 500 failed allocations leave the state before or after, no lock, a store that works."""
    if memory.missing():
        pytest.skip(memory.missing())
    chosen = [case for case in cases(1_000, rng) if isinstance(case, OutOfMemory)]
    answers = memory.strike([(case.operation, case.at) for case in chosen])
    assert [answer for answer in answers if answer.outcome == "wrong"] == []
    assert len(answers) == 500
    assert sum(answer.outcome == "struck" for answer in answers) > 250


@pytest.mark.parametrize(
    ("operation", "function"),
    [
        ("begin", "LogWriter._begin"),
        ("compact", "LogWriter._begin_next"),
        ("compact", "LogWriter._go_on"),
        ("compact", "SessionFiles.adopt"),
        ("list", "SessionFiles._open"),
        ("restore", "StoreDirectory.open_session"),
    ],
)
def test_no_point_takes_the_end_of_one_file_for_that_of_another(
    stage: Stage, operation: str, function: str
) -> None:
    """N-23, N-36: interrupted anywhere while it goes over to another file, a handle finds no damage there."""
    at = 1
    while interrupts.interrupt(stage, operation, at, within=function).fired:
        at += 1
    assert at > 1, "it has points"


class Idle:
    """Holds files that can be closed."""

    descriptors = 3

    def release_files(self, *, wait: bool = True) -> None:
        """Close them."""


def test_an_interrupt_while_idle_files_are_closed_holds_no_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N-23: interrupted anywhere while idle files are closed, another thread can open files."""
    at, fired = 0, True
    while fired:
        at += 1
        idle = [Idle() for _ in range(4)]
        monkeypatch.setattr(disk, "_holders", {ref(one): one.descriptors for one in idle})
        interrupter = interrupts.Interrupter(at)
        interrupter(disk._release_idle_files)
        run_threads([partial(disk.hold_files, idle[0])])
        fired = interrupter.fired
    assert at > 10, "it has points"


@pytest.mark.slow
def append_interrupted(session: hansard.Session, after: int) -> bool:
    """Append, and interrupt it at a call of Python or after a call of C; return whether it came so far."""
    left = count(after, -1)

    def interrupt(_: FrameType, event: str, __: object) -> None:
        if event in {"call", "c_return"} and next(left) == 0:
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        session.append_all([("x.y", {"n": 1})], key="k")
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_an_interrupted_append_to_memory_is_stored_once() -> None:
    """N-39: repeated with its key, it is stored once, wherever the first try was interrupted."""
    for after in count():
        with hansard.open("memory:") as store:
            session = store.session("s")
            interrupted = append_interrupted(session, after)
            session.append_all([("x.y", {"n": 1})], key="k")
            assert [event.key for event in session.events()] == ["k"], after
        if not interrupted:
            return


def test_a_stream_that_is_interrupted_anywhere_stops_no_other_thread(stage: Stage) -> None:
    """N-23: no point of a stream keeps a lock, which a `Condition` of Python would."""
    # Their number depends on the clock: a writer compares names until a change of its directory is past.
    struck = takewhile(lambda at: interrupts.interrupt(stage, "stream", at).fired, count(1))
    assert sum(1 for _ in struck) > 100


def test_a_leader_that_is_interrupted_and_stays_leader_is_noticed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-23: without the line that releases leadership after an interrupt, the check fails."""

    def submit(self: GroupCommit[object], order: object) -> None:
        if self._join(order):
            self._lead(order)

    def strike() -> interrupts.Interrupter:
        interrupter = interrupts.Interrupter(1, within="GroupCommit._lead")
        run(stage, BY_NAME["batch"], interrupter, (KeyboardInterrupt,), interrupter.may_lose)
        return interrupter

    assert strike().fired
    monkeypatch.setattr(GroupCommit, "submit", submit)
    with pytest.raises(Wrong, match="cannot continue"):
        strike()


def test_close_releases_all_files_after_a_listing(tmp_path: os.PathLike[str]) -> None:
    """N-89: a store that has listed and searched has no file open once it is closed, though it is kept."""
    store = hansard.open(tmp_path, durability="os")
    store.session("s").add_message({"role": "user", "content": "words"})
    assert len(store.sessions().items) == len(store.search("words")) == 1
    store.close()
    found = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert [place for place in found if place.startswith(os.path.realpath(tmp_path))] == []


def files_left_open(
    path: Path, at: int, module: ModuleType, name: str, use: Callable[[hansard.Store], object]
) -> int:
    """Let the nth allocation of a function fail in a child; return how many files of the store stay open."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = 255
    try:
        import _testcapi  # type: ignore[import-not-found]

        faulthandler.disable()
        real = getattr(module, name)

        def struck(*arguments: Any) -> Any:
            _testcapi.set_nomemory(at, at + 1)
            return real(*arguments)

        setattr(module, name, struck)
        with hansard.open(path, durability="os") as store, suppress(Exception):
            use(store)
        _testcapi.remove_mem_hooks()
        gc.collect()
        links = [os.path.join("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
        left = sum(os.path.realpath(link).startswith(str(path)) for link in links)
    finally:
        os._exit(left)


@pytest.mark.skipif(bool(memory.missing()), reason=memory.missing())
def test_a_listing_without_memory_for_a_cell_leaks_no_files(tmp_path: Path) -> None:
    """N-79: CPython loses the arguments of a function whose closure cannot be allocated: it has none."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        store.session("s").add_message({"n": 1})
        store.sessions()
        store.session("s").add_message({"n": 2})
    left = {
        at: files_left_open(tmp_path / "store", at, changes, "_changed", hansard.Store.sessions)
        for at in range(1, 12)
    }
    # One may stay open: without memory for the call that closes it.
    assert {at: count for at, count in left.items() if count > 1} == {}


@pytest.mark.skipif(bool(memory.missing()), reason=memory.missing())
def test_a_seal_without_memory_for_a_cell_leaks_no_files(tmp_path: Path) -> None:
    """N-79: the same of the function that replaces the active segment, which has log and directory."""
    left = {}
    for at in range(1, 12):
        path = tmp_path / str(at)
        with hansard.open(path, durability="os") as store:
            store.session("s").add_messages([{"role": "user", "content": "words"}] * 50)
        left[at] = files_left_open(
            path, at, writer, "create_segment", lambda store: store.session("s").compact()
        )
    assert {at: count for at, count in left.items() if count > 1} == {}
