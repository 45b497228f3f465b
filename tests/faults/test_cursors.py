"""Claims about cursors under fire: refused calls, lost bytes, power cuts. F-159 to F-164."""

import errno
import gc
import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hansard import follow
from hansard.backend.local.backend import LocalBackend
from hansard.errors import DiskFailed
from hansard.follow import Cursor, cursors, drop_cursor
from tests.crashlab import faults
from tests.faults.fault_scenarios import Leftovers, do_not_wait_for_the_disk, temporaries

Positions = dict[str, int]

# -- what a cursor is doing when a fault strikes ------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """Moves of a cursor that has two positions to start with, unless it was never moved."""

    name: str
    prepare: Callable[[LocalBackend], None]
    steps: tuple[Callable[[LocalBackend, Cursor], object], ...]
    #: Before the first step, and after each.
    states: tuple[Positions, ...]

    def __str__(self) -> str:
        return self.name


TWO: Positions = {"s": 1, "t": 1}


def _nothing(_: LocalBackend) -> None:
    """Leave the store empty."""


def _moved(backend: LocalBackend) -> None:
    cursor = Cursor(backend, "c")
    cursor.move(TWO)
    cursor.close()


def _torn(backend: LocalBackend) -> None:
    _moved(backend)
    with Path(backend.where, "internal", "cursor-c", "log.jsonl").open("ab") as file:
        file.write(b'{"seq":9,"time":"2026')


def _move(**positions: int) -> Callable[[LocalBackend, Cursor], object]:
    return lambda _, cursor: cursor.move(positions)


def _replace(**positions: int) -> Callable[[LocalBackend, Cursor], object]:
    """Move, and replace the log."""

    def step(_: LocalBackend, cursor: Cursor) -> None:
        slack, follow.SLACK = follow.SLACK, -(2**40)  # type: ignore[misc]
        try:
            cursor.move(positions)
        finally:
            follow.SLACK = slack  # type: ignore[misc]

    return step


def _drop(backend: LocalBackend, cursor: Cursor) -> None:
    cursor.close()
    drop_cursor(backend, "c")


SCENES = [
    Scene("begin", _nothing, (_move(s=1), _move(s=2, t=2)), ({}, {"s": 1}, {"s": 2, "t": 2})),
    Scene(
        "append", _moved, (_move(s=2, t=2), _move(s=3)), (TWO, {"s": 2, "t": 2}, {"s": 3, "t": 2})
    ),
    Scene("torn", _torn, (_move(s=2, t=2), _move(s=3)), (TWO, {"s": 2, "t": 2}, {"s": 3, "t": 2})),
    Scene("forget", _moved, (lambda _, cursor: cursor.move({"s": None}),), (TWO, {"t": 1})),
    Scene(
        "replace",
        _moved,
        (_replace(s=2, t=2), _replace(s=3)),
        (TWO, {"s": 2, "t": 2}, {"s": 3, "t": 2}),
    ),
    Scene("drop", _moved, (_drop,), (TWO, {})),
]

scenes = pytest.mark.parametrize("scene", SCENES, ids=str)
lastings = pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])


@pytest.fixture
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait_for_the_disk(monkeypatch)


instantly = pytest.mark.usefixtures("_no_waiting")


def look(stage: Path) -> Positions:
    """Return the positions as a stranger reads them."""
    reader = LocalBackend(str(stage), read_only=True)
    try:
        assert cursors(reader) in ([], ["c"])
        return Cursor(reader, "c").positions
    finally:
        reader.close()


class Struck:
    """A scene under one fault: how far it came."""

    def __init__(
        self, scene: Scene, stage: Path, fault: faults.Faults, lost: faults.Lost | None = None
    ) -> None:
        self.scene = scene
        self.stage = stage
        self.fault = fault
        self.error: BaseException | None = None
        self.cursor: Cursor | None = None
        self.acknowledged = 0
        maker = LocalBackend(str(stage))
        scene.prepare(maker)
        maker.close()
        self.backend = LocalBackend(str(stage))
        with fault:
            try:
                self.cursor = Cursor(self.backend, "c")
                for step in scene.steps:
                    step(self.backend, self.cursor)
                    self.acknowledged += 1
            except BaseException as error:  # noqa: BLE001 - which one it is, is what is checked
                self.error = error
            if self.error is None or lost is not None:
                # What was acknowledged is there after a power cut too.
                fault.drop_unsynced(lost or "cut")

    def check(self) -> None:
        """Fail unless a stranger finds what was acknowledged, or one step more."""
        allowed = self.scene.states[self.acknowledged : self.acknowledged + 2]
        assert look(self.stage) in allowed

    def go_on(self) -> None:
        """Do what is left to do, with the same cursor if there is one, now that the disk is well."""
        try:
            cursor = self.cursor or Cursor(self.backend, "c")
            for step in self.scene.steps[self.acknowledged :]:
                step(self.backend, cursor)
            cursor.close()
        finally:
            self.backend.close()
        assert look(self.stage) == self.scene.states[-1]

    def close(self) -> None:
        """Release everything, including the traceback's frames."""
        self.backend.close()
        self.error = self.cursor = None


def strike(
    scene: Scene,
    tmp_path: Path,
    make: Callable[[int], faults.Faults],
    lost: faults.Lost | None = None,
) -> Iterator[Struck]:
    """Strike each call in turn; yield what came of it, last the run in which no call was left to strike."""
    gc.collect()
    for at in itertools.count(1):
        struck = Struck(scene, tmp_path / str(at), make(at), lost)
        yield struck
        struck.close()
        shutil.rmtree(struck.stage)
        if not struck.fault.fired:
            assert at > 3, "nothing was struck"
            return


def refused(fault: faults.Faults, number: int) -> bool:
    """Return whether a call was refused that matters: the sweep of old temporaries does not insist."""
    return any(call.error == number and not call.place.endswith("/.") for call in fault.calls)


@scenes
@lastings
@instantly
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_a_refused_call_is_an_error_and_the_cursor_goes_on(
    scene: Scene, lasting: bool, number: int, tmp_path: Path
) -> None:
    """F-163, N-29, N-39: any refused call raises, and leaves old positions or new ones."""
    for struck in strike(scene, tmp_path, lambda at: faults.fail(number, at=at, lasting=lasting)):
        leftovers = Leftovers()
        if struck.error is not None or refused(struck.fault, number):
            assert isinstance(struck.error, DiskFailed)
            assert struck.error.errno == number
            assert struck.error.path.startswith(str(struck.stage))
        struck.check()
        removal = any(call.error and call.operation == "remove" for call in struck.fault.calls)
        # The directory of a dropped cursor may be left under a name that the next drop sweeps.
        left = [path for path in temporaries(struck.stage) if ".tmp-purged-" not in path.name]
        assert left == [] or removal
        if struck.error is not None:
            struck.go_on()
        struck.close()
        assert leftovers._count() <= leftovers._descriptors


@scenes
@instantly
def test_a_call_that_did_its_work_and_says_that_it_failed(scene: Scene, tmp_path: Path) -> None:
    """F-161, N-29: after an error that follows a successful write, the next move is right."""
    for struck in strike(scene, tmp_path, lambda at: faults.fail(errno.EIO, at=at, when="after")):
        assert isinstance(struck.error, DiskFailed) or not refused(struck.fault, errno.EIO)
        struck.check()
        if struck.error is not None:
            struck.go_on()


@scenes
@instantly
def test_a_look_that_is_refused_is_an_error(scene: Scene, tmp_path: Path) -> None:
    """N-29, N-32: a refused read raises, and is never a position of 0."""
    # A list has what cannot be looked at, and so it is dropped.
    looks = set(faults.READING) - ({"names", "present"} if scene.name == "drop" else {"names"})
    for struck in strike(scene, tmp_path, lambda at: faults.fail(errno.EIO, at=at, only=looks)):
        assert isinstance(struck.error, DiskFailed) or not refused(struck.fault, errno.EIO)
        struck.check()
        if struck.error is not None:
            struck.go_on()


@scenes
@lastings
@instantly
@pytest.mark.parametrize("kept", ["one byte", "half", "all but one"])
def test_a_short_write_is_completed_or_an_error(
    scene: Scene, lasting: bool, kept: faults.Kept, tmp_path: Path
) -> None:
    """F-163, N-29: a short write leaves a torn tail, after which nothing is written."""
    for at in itertools.count(1):
        struck = Struck(scene, tmp_path / str(at), faults.short(kept, at=at, lasting=lasting))
        if struck.fault.fired:
            assert isinstance(struck.error, DiskFailed)
        struck.check()
        if struck.error is not None:
            struck.go_on()
        struck.close()
        if not struck.fault.fired:
            break


@scenes
@instantly
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("lost", [None, "cut", "nul"], ids=["no power cut", "cut", "nul"])
def test_a_consumer_killed_at_any_call_finds_the_old_positions_or_the_new(
    scene: Scene, when: faults.When, lost: faults.Lost | None, tmp_path: Path
) -> None:
    """F-163, N-39: killed at any call, a cursor opens with old positions or new ones."""
    for struck in strike(scene, tmp_path, lambda at: faults.kill(at=at, when=when), lost):
        assert isinstance(struck.error, faults.Killed) == struck.fault.fired
        struck.check()
        if struck.fault.fired:
            # A dead process's lock is released, and its memory is lost.
            struck.backend.close()
            struck.backend, struck.cursor = LocalBackend(str(struck.stage)), None
            struck.go_on()


@scenes
@instantly
@pytest.mark.parametrize("lost", ["cut", "nul", None])
@pytest.mark.parametrize("seen", ["at once", "later"])
def test_a_failed_sync_is_never_believed_again(
    scene: Scene, lost: faults.Lost | None, seen: faults.Seen, tmp_path: Path
) -> None:
    """F-163: after a failed sync that lost its bytes the next move writes a new file with all positions."""
    for at in itertools.count(1):
        fault = faults.fail_sync(at=at, lost=lost, seen=seen)
        struck = Struck(scene, tmp_path / str(at), fault)
        if not fault.fired:
            struck.close()
            break
        assert isinstance(struck.error, DiskFailed)
        assert struck.error.operation == "sync"
        # At the opening, or in a new log that did not get its name, nothing was moved.
        moved = struck.acknowledged > 0 and ".tmp-staged-" not in struck.error.path
        assert not moved or "its events may come again" in str(struck.error)
        struck.check()
        syncs = faults.record()
        with syncs:
            struck.go_on()
        created = {call.operation for call in syncs.calls}
        assert "create_file" in created, "the old file was written to, or synced, once more"
        struck.close()
