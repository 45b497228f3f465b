"""A disk that refuses a call: every call, every reason, once and for good.

Each case strikes one call of one scene (fault_scenarios.py), and the loop continues until the
fault does not fire any more: then every call has had its turn.
"""

import contextlib
import errno
import gc
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.crashlab import faults
from tests.faults.fault_scenarios import (
    CHILD,
    CURSORS,
    ID,
    MOVING,
    SCENES,
    SESSIONS,
    THIRD,
    Leftovers,
    Scene,
    State,
    do_not_wait_for_the_disk,
    temporaries,
)

#: With each of these, each call; the rest take turns, by the run's seed.
ERRORS = {"ENOSPC": [errno.ENOSPC], "EIO": [errno.EIO]}
ERRORS["another"] = [errno.EACCES, errno.EROFS, errno.EMFILE, errno.EDQUOT]

RAISING = [scene for scene in SCENES if not scene.reports]

#: Everything is refused to sessions; to others, an error once, and a full disk for good.
REFUSALS = [
    pytest.param(scene, lasting, ERRORS[name], id=f"{scene}-{name}{' for good' * lasting}")
    for scene in RAISING
    for lasting in (False, True)
    for name in ERRORS
    if scene in SESSIONS or (lasting, name) in {(False, "EIO"), (True, "ENOSPC")}
]

#: No scene makes fewer calls than this that could be refused.
FEWEST = 3

scenes = pytest.mark.parametrize("scene", RAISING, ids=str)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare each scene once; the cases work on copies."""
    place = tmp_path_factory.mktemp("templates")
    for scene in SCENES:
        scene.prepare(str(place / scene.name))
    return place


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait_for_the_disk(monkeypatch)


class Struck:
    """A scene under one fault: how far it came, and the store object, which must work again."""

    def __init__(
        self, scene: Scene, stage: Path, fault: faults.Faults, lost: faults.Lost | None
    ) -> None:
        self.scene = scene
        self.stage = stage
        self.fault = fault
        self.store: Any = None
        self.error: BaseException | None = None
        self.acknowledged = 0
        with fault:
            try:
                self.store = scene.open(str(stage))
                for step in scene.steps:
                    step(self.store)
                    self.acknowledged += 1
            except BaseException as error:  # noqa: BLE001 - which one it is, is what is checked
                self.error = error
            if self.error is None or lost is not None:
                # What was acknowledged is there after a power cut too.
                fault.drop_unsynced(lost or "cut")

    def check_error(self, *numbers: int) -> None:
        """Fail unless the error is one of hansard and has operation, path and reason."""
        error = self.error
        assert isinstance(error, hansard.DiskFailed)
        assert error.errno in numbers
        assert error.path.startswith(str(self.stage))
        assert str(error).startswith(f"{error.path}: {error.operation}: ")

    def check_state(self) -> State:
        """Fail unless another store object finds the acknowledged steps, and at most one more."""
        found = self.scene.look(self.stage)
        assert found in self.scene.allowed(self.acknowledged)
        return found

    def go_on(self, found: State) -> None:
        """Do what is left to do, with the same store object, now that the disk is well."""
        store = self.store or self.scene.open(str(self.stage))
        if isinstance(self.error, hansard.SyncFailed) and self.scene not in CURSORS:
            self._verify(store, self.error)
        for step in self.scene.steps[self.acknowledged :]:
            try:
                step(store)
            except (hansard.SessionExists, hansard.SessionDeleted, hansard.SessionNotFound):
                assert found == self.scene.states[-1], "only what was done may be refused"
        assert self.scene.look(self.stage) == self.scene.after_retry(found, self.acknowledged)
        store.close()
        self.scene.settle(self.stage)

    def _verify(self, store: hansard.Store, error: hansard.SyncFailed) -> None:
        """Open again what a failed sync has shut."""
        if "internal/audit" in error.path:
            # The record of what is done to sessions could not be synced: nothing was done, and nothing is
            # until it was verified.
            with pytest.raises(hansard.SyncFailed, match=r"nothing was done.*store\.verify"):
                self.scene.steps[self.acknowledged](store)
            assert store.verify().ok
            return
        session = store.session(CHILD if f"/{CHILD}/" in error.path else ID)
        if store.exists(session.id):
            with pytest.raises(hansard.SyncFailed):
                session.add_message(THIRD)
            assert session.verify().ok

    def close(self) -> None:
        """Release everything, including the error's traceback with its frames."""
        if self.store is not None:
            self.store.close()
        self.store = self.error = None


Strike = Callable[..., Iterator[Struck]]


@pytest.fixture
def strike(templates: Path, tmp_path: Path) -> Strike:
    """Return what strikes each call of a scene in turn."""

    def every(
        scene: Scene,
        make: Callable[[int], faults.Faults],
        *,
        lost: faults.Lost | None = None,
        fewest: int = FEWEST,
    ) -> Iterator[Struck]:
        """Yield what came of each, last the run in which no call was left to strike."""
        # Stores that earlier tests left open are garbage in cycles, and hold descriptors: what is counted
        # from here on must not shrink when they go.
        gc.collect()
        for at in itertools.count(1):
            stage = tmp_path / str(at)
            if (templates / scene.name).exists():
                shutil.copytree(templates / scene.name, stage)
            leftovers = Leftovers()
            struck = Struck(scene, stage, make(at), lost)
            yield struck
            struck.close()
            if lost is None and not isinstance(struck.fault, faults.Kill):
                leftovers.check()
            if stage.exists():
                shutil.rmtree(stage)
            if not struck.fault.fired:
                assert at > fewest
                return

    return every


def refused(struck: Struck) -> bool:
    """Return whether a call that matters was refused."""
    # To list a directory it is opened once more. Here only the sweep of old temporaries lists, and
    # does not insist. And a checkpoint may be missing at any time, and so may marks (F-128).
    harmless = ("/.", "/checkpoint", "/marks")
    return any(
        call.error not in {0, errno.EPERM, errno.ENOENT, errno.EEXIST}
        and not call.place.endswith(harmless)
        and not os.path.dirname(call.place).endswith("/marks")
        for call in struck.fault.calls
    )


def check(struck: Struck, *numbers: int) -> None:
    """Fail unless a refused call is an error, leaves the old state or the new, and stops no later call."""
    if struck.error is not None or (refused(struck) and not struck.scene.tidies):
        struck.check_error(*numbers)
    found = struck.check_state()
    if struck.error is not None:
        struck.go_on(found)


@pytest.mark.slow
@pytest.mark.parametrize(("scene", "lasting", "numbers"), REFUSALS)
def test_a_refused_call_is_an_error_and_the_store_continues(
    strike: Strike, scene: Scene, lasting: bool, numbers: list[int], seed: int
) -> None:
    """N-29, N-38, N-39, N-89, F-40, F-163: any refused call is an error, and leaves old state or new.

    The error has the cause and the place; a success is durable; the same store object works when the cause
    was removed, after `verify` if a sync failed; no descriptor, thread or temporary file is left over.
    """

    def make(at: int) -> faults.Faults:
        return faults.fail(numbers[(at + seed) % len(numbers)], at=at, lasting=lasting)

    for struck in strike(scene, make):
        # Only a refused removal may leave one; of a dropped cursor, the next drop sweeps what is left.
        removal = any(call.error and call.operation == "remove" for call in struck.fault.calls)
        left = [path for path in temporaries(struck.stage) if ".tmp-purged-" not in path.name]
        assert lasting or removal or left == []
        check(struck, *numbers)


@scenes
def test_a_call_that_did_its_work_and_says_that_it_failed(strike: Strike, scene: Scene) -> None:
    """N-29, F-40, F-161: an error after the deed, as over a network, is an error; it was done once or not."""
    for struck in strike(scene, lambda at: faults.fail(errno.EIO, at=at, when="after")):
        check(struck, errno.EIO)


@pytest.mark.parametrize("scene", [*SESSIONS, *MOVING, *CURSORS], ids=str)
def test_a_look_that_is_refused_is_an_error(strike: Strike, scene: Scene) -> None:
    """N-29, N-32: a call that only reads, and is refused, is an error of ours and never an absence."""
    # A list has what cannot be looked at, and so it is dropped.
    harmless = {"names", "present"} if scene.name == "cursor: drop" else {"names"}
    looks = set(faults.READING) - harmless
    for struck in strike(scene, lambda at: faults.fail(errno.EIO, at=at, only=looks)):
        check(struck, errno.EIO)


@pytest.mark.slow
@scenes
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("kept", ["one byte", "half", "all but one"])
def test_a_short_write_is_completed_or_an_error(
    strike: Strike, scene: Scene, lasting: bool, kept: faults.Kept
) -> None:
    """N-29, N-33, F-40, F-163: what a short write leaves is a torn tail, which the next append ends."""
    for struck in strike(
        scene, lambda at: faults.short(kept, at=at, lasting=lasting), fewest=0
    ):  # fmt: skip
        if struck.error is not None or (lasting and struck.fault.fired and refused(struck)):
            struck.check_error(errno.ENOSPC)
        found = struck.check_state()
        if struck.error is not None:
            struck.go_on(found)


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=str)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("lost", [None, "cut", "nul"], ids=["no power cut", "cut", "nul"])
def test_a_process_killed_at_any_call_leaves_the_old_state_or_the_new(
    strike: Strike, scene: Scene, when: faults.When, lost: faults.Lost | None
) -> None:
    """N-39, N-45, N-84, N-88, F-28, F-135: killed at any call, even by a power cut, a store continues."""
    for struck in strike(scene, lambda at: faults.kill(at=at, when=when), lost=lost):
        assert isinstance(struck.error, faults.Killed) == struck.fault.fired or scene.tidies
        found = struck.check_state()
        if struck.fault.fired:
            # The store object and the locks of a dead process no longer exist.
            if scene in CURSORS:
                struck.close()
            struck.store, struck.error = None, None
            struck.go_on(found)


#: Calls on a store whose session "s" has a sealed segment, whose "t" exists and whose "u" is in the trash.
CALLS: dict[str, Callable[[hansard.Store], object]] = {
    "append": lambda store: store.session("s").add_message(THIRD, key="new"),
    "begin": lambda store: store.session("new").add_message(THIRD),
    "read": lambda store: store.session("s").messages(),
    "fork": lambda store: store.session("s").fork("f"),
    "export": lambda store: list(store.session("s").export(redacted=False)),
    "compact": lambda store: store.session("s").compact(),
    "delete": lambda store: store.delete("t"),
    "restore": lambda store: store.restore("u"),
    "purge": lambda store: store.purge("u"),
    "list": lambda store: store.sessions(),
    "verify": lambda store: store.verify(),
    "repair": lambda store: store.session("s").repair(),
    "diagnose": lambda store: store.diagnose(),
}


@pytest.fixture(scope="module")
def sealed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store for `CALLS`."""
    path = tmp_path_factory.mktemp("sealed") / "store"
    with hansard.open(path) as store:
        store.session("s").add_messages([THIRD] * 3, key="k")
        store.session("s").compact()
        for name in ("s", "t", "u"):
            store.session(name).add_message(THIRD)
        store.delete("u")
        store.sessions()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_disk_that_dies_at_any_call_is_an_error_of_ours(
    sealed_store: Path, name: str, tmp_path: Path
) -> None:
    """N-29: if from some call on each one fails, also one that only reads, no bare `OSError` gets out."""
    for at in itertools.count(1):
        stage = tmp_path / str(at)
        shutil.copytree(sealed_store, stage)
        fault = faults.fail(
            errno.EIO, at=at, only=(*faults.MUTATING, *faults.READING), lasting=True
        )
        # Anything else that it raises fails the test.
        with hansard.open(stage) as store, fault, contextlib.suppress(hansard.HansardError):
            CALLS[name](store)
        if not fault.fired:
            break
    assert at > FEWEST


@pytest.mark.parametrize("scene", CURSORS, ids=str)
@pytest.mark.parametrize("lost", ["cut", "nul", None])
@pytest.mark.parametrize("shown", ["at once", "later"])
def test_a_cursor_never_believes_a_failed_sync_again(
    strike: Strike, scene: Scene, lost: faults.Lost | None, shown: faults.Seen
) -> None:
    """F-163: after a failed sync that lost its bytes the next move writes a new file with all positions."""

    def make(at: int) -> faults.Faults:
        return faults.fail_sync(at=at, lost=lost, seen=shown)

    for struck in strike(scene, make, fewest=1):
        if not struck.fault.fired:
            continue
        struck.check_error(errno.EIO)
        assert isinstance(struck.error, hansard.DiskFailed)
        assert struck.error.operation == "sync"
        # At the opening, or in a new log that did not get its name, nothing was moved.
        moved = struck.acknowledged > 0 and ".tmp-staged-" not in struck.error.path
        assert not moved or "its events may come again" in str(struck.error)
        found = struck.check_state()
        with faults.record() as calls:
            struck.go_on(found)
        created = {call.operation for call in calls.calls}
        assert "create_file" in created, "the old file was written to, or synced, once more"


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EIO])
def test_a_segment_is_sealed_where_links_are_refused(tmp_path: Path, number: int) -> None:
    """F-85, N-29: where a file system has no second names, it is copied; another error is reported."""
    with hansard.open(tmp_path / "store") as store:
        session = store.session(ID)
        session.add_message(THIRD, key="k")
        with faults.fail(number, only=("link",), lasting=True) as fault:
            if number == errno.EIO:
                with pytest.raises(hansard.DiskFailed):
                    session.compact()
            else:
                assert session.compact().sessions == 1
        assert fault.fired
        assert session.add_message({}, key="k").seq == 1
        assert (session.messages(), session.verify().ok) == ([THIRD], True)
