"""Runs of a store that a power cut may end at any point, and what must be found then.

A run is a plan of steps. `crash_states` rebuilds what may be left of it after each call; here each of
these is opened, read and appended to, and compared with what had been acknowledged.
"""

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import hansard
from hansard.testing import faults
from tests.faults.crash_states import Recorder, build, crash_states

ID = "s"

Durability = Literal["sync", "os"]

#: What a stranger finds where there is no store; where there is one and no session, None.
NO_STORE = "no store"

MESSAGES = [{"n": n} for n in range(1, 6)]


class Run:
    """A run that is recorded: its steps, and what a stranger sees before and after each."""

    def __init__(self, base: Path, durability: Durability = "sync") -> None:
        self._path = base / "store"
        self._durability: Durability = durability
        self._stores: list[hansard.Store] = []
        self.steps: list[Callable[[], object]] = []
        #: What may be seen after so many steps have been acknowledged, and before the next has begun.
        self.states: list[tuple[object, ...]] = [(NO_STORE,)]
        self.recorder = Recorder(base)

    def open(self) -> None:
        """Open the store, once more if it is open."""
        self._stores.append(hansard.open(self._path, durability=self._durability))

    def open_and_be_refused(self) -> None:
        """Make a store whose names are not synced, and hear so."""
        with (
            faults.fail(errno.EIO, only=("sync_directory",)),
            pytest.raises(hansard.DiskFailed),
        ):
            hansard.open(self._path)

    def step(self, step: Callable[[], object], *states: object) -> None:
        """Add a step, and what may be seen once it is acknowledged."""
        self.steps.append(step)
        self.states.append(states)

    def append(self, *messages: dict[str, Any], store: int = 0) -> None:
        """Add an append through one of the stores."""
        before = self.states[-1][0] or []
        assert isinstance(before, list)
        self.step(
            lambda: self._stores[store].session(ID).add_messages(messages), [*before, *messages]
        )

    def record(self) -> Recorder:
        """Take the steps, and return what was recorded."""
        self.recorder.run(self.steps)
        for store in self._stores:
            store.close()
        return self.recorder

    @property
    def store(self) -> hansard.Store:
        """The store that was opened first."""
        return self._stores[0]


def whole_life(run: Run) -> None:
    """Open, create, append three times, delete, restore, append."""
    run.step(run.open, None)
    run.step(lambda: run.store.create(ID), [])
    run.append(MESSAGES[0])
    run.append(*MESSAGES[1:3])
    run.append(MESSAGES[3])
    run.step(lambda: run.store.delete(ID), None)
    run.step(lambda: run.store.restore(ID), MESSAGES[:4])
    run.append(MESSAGES[4])


def two_writers(run: Run) -> None:
    """Let two stores, as two processes would, append in turn to one session."""
    run.step(run.open, None)
    run.step(run.open, None)
    for number, message in enumerate(MESSAGES):
        run.append(message, store=number % 2)


def second_try(run: Run) -> None:
    """Make a store whose names were not synced, open it again, and use it."""
    # What was refused may be there or not. To open what is there promises nothing; an append does.
    run.step(run.open_and_be_refused, None, NO_STORE)
    run.step(run.open, None, NO_STORE)
    run.append(MESSAGES[0])


def seen_after_the_cut(path: Path) -> object:
    """Return what a stranger finds, and fail unless the store can be used."""
    try:
        store = hansard.open(path, create=False)
    except hansard.StoreNotFound:
        hansard.open(path).close()
        return NO_STORE
    with store:
        if not store.exists(ID):
            return None
        session = store.session(ID)
        found = session.messages()
        assert session.verify().ok
        session.add_message({"after": True})
        assert session.messages() == [*found, {"after": True}]
        return found


def broken_promises(
    tmp_path: Path, plan: Callable[[Run], None], durability: Durability = "sync"
) -> Iterator[str]:
    """Yield for each state that a power cut may leave of a run what is wrong with it, mostly nothing."""
    base = tmp_path / "run"
    base.mkdir(parents=True)
    run = Run(base, durability)
    plan(run)
    for number, (acknowledged, tree) in enumerate(crash_states(run.record())):
        place = tmp_path / f"state-{number}"
        build(tree, place)
        # With "os" a prefix of what was written; what was acknowledged may be gone.
        first = acknowledged if durability == "sync" else 0
        allowed = [state for states in run.states[first : acknowledged + 2] for state in states]
        try:
            seen = seen_after_the_cut(place / "store")
        except hansard.HansardError as error:
            seen = repr(error)
        shutil.rmtree(place)
        yield "" if seen in allowed else f"after {acknowledged} steps: {seen}"
