"""A disk that refuses a call: every call, every reason, once and for good.

Each case strikes one call of one scene (fault_scenarios.py), and the loop continues until the
fault does not fire any more: then every call has had its turn.
"""

import contextlib
import errno
import gc
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.crashlab import faults
from tests.faults.fault_scenarios import (
    ID,
    SCENES,
    THIRD,
    Leftovers,
    Scene,
    Seen,
    do_not_wait_for_the_disk,
    look,
    temporaries,
)

CHECKOUT = Path(__file__).resolve().parents[2]

#: With each of these, each call; the rest take turns, by the run's seed.
ERRORS = {"ENOSPC": [errno.ENOSPC], "EIO": [errno.EIO]}
ERRORS["another"] = [errno.EACCES, errno.EROFS, errno.EMFILE, errno.EDQUOT]

#: No scene makes fewer calls than this that could be refused.
FEWEST = 3

scenes = pytest.mark.parametrize("scene", SCENES, ids=str)
lastings = pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])


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


def stages(templates: Path, scene: Scene, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Yield 1, 2, 3 … and a fresh copy of the scene's store for each."""
    # Stores that earlier tests left open are garbage in cycles, and hold descriptors: what is counted
    # from here on must not shrink when they go.
    gc.collect()
    for at in itertools.count(1):
        stage = tmp_path / str(at)
        if (templates / scene.name).exists():
            shutil.copytree(templates / scene.name, stage)
        yield at, stage
        if stage.exists():
            shutil.rmtree(stage)


class Struck:
    """A scene under one fault: how far it came, and the store object, which must work again."""

    def __init__(
        self, scene: Scene, stage: Path, fault: faults.Faults, lost: faults.Lost | None = None
    ) -> None:
        self.scene = scene
        self.stage = stage
        self.fault = fault
        self.store: hansard.Store | None = None
        self.error: BaseException | None = None
        self.acknowledged = 0
        with fault:
            try:
                self.store = hansard.open(stage)
                for step in scene.steps:
                    step(self.store)
                    self.acknowledged += 1
            except BaseException as error:  # noqa: BLE001 - which one it is, is what is checked
                self.error = error
            if self.error is None or lost is not None:
                # What was acknowledged is there after a power cut too.
                fault.drop_unsynced(lost or "cut")

    def check_error(self, *numbers: int) -> None:
        """Fail unless the error is ours and says operation, path and reason."""
        error = self.error
        assert isinstance(error, hansard.DiskFailed)
        assert error.errno in numbers
        assert error.path.startswith(str(self.stage))
        assert str(error).startswith(f"{error.path}: {error.operation}: ")

    def check_state(self) -> Seen:
        """Fail unless a stranger finds what was acknowledged, and at most one step more."""
        seen = look(self.stage)
        assert seen in self.scene.allowed(self.acknowledged)
        return seen

    def go_on(self, seen: Seen) -> None:
        """Do what is left to do, with the same store object, now that the disk is well."""
        store = self.store or hansard.open(self.stage)
        if isinstance(self.error, hansard.SyncFailed) and "internal/audit" in self.error.path:
            # The record of what is done to sessions could not be synced: nothing was done, and nothing is
            # until it was verified.
            with pytest.raises(hansard.SyncFailed, match=r"nothing was done.*store\.verify"):
                self.scene.steps[self.acknowledged](store)
            assert store.verify().ok
        elif isinstance(self.error, hansard.SyncFailed) and store.exists(ID):
            with pytest.raises(hansard.SyncFailed):
                store.session(ID).add_message(THIRD)
            assert store.session(ID).verify().ok
        for step in self.scene.steps[self.acknowledged :]:
            try:
                step(store)
            except (hansard.SessionExists, hansard.SessionDeleted, hansard.SessionNotFound):
                assert seen == self.scene.states[-1], "only what was done may be refused"
        assert look(self.stage) == self.scene.after_retry(seen, self.acknowledged)
        store.close()

    def close(self) -> None:
        """Release everything, including the error's traceback with its frames."""
        if self.store is not None:
            self.store.close()
        self.store = self.error = None


def refused(fault: faults.Faults, number: int) -> bool:
    """Return whether a call that matters was refused."""
    # To list a directory it is opened once more. Here only the sweep of old temporaries lists, and
    # does not insist. And a checkpoint may be missing at any time, and so may marks (F-128).
    harmless = ("/.", "/checkpoint", "/marks")
    return any(
        call.error == number
        and not call.place.endswith(harmless)
        and not os.path.dirname(call.place).endswith("/marks")
        for call in fault.calls
    )


def strike_every_call(
    templates: Path,
    scene: Scene,
    tmp_path: Path,
    make: Callable[[int], faults.Faults],
    *numbers: int,
) -> int:
    """Strike each call of a scene in turn, with one of the errors, and check all; return how many."""
    for at, stage in stages(templates, scene, tmp_path):
        leftovers = Leftovers()
        struck = Struck(scene, stage, make(at))
        if struck.error is not None or any(refused(struck.fault, number) for number in numbers):
            struck.check_error(*numbers)
        seen = struck.check_state()
        if struck.error is not None:
            struck.go_on(seen)
        struck.close()
        leftovers.check()
        if not struck.fault.fired:
            return at - 1
    raise AssertionError


@pytest.mark.slow
@scenes
@lastings
@pytest.mark.parametrize("numbers", ERRORS.values(), ids=list(ERRORS))
def test_a_refused_call_is_an_error_and_the_store_goes_on(
    templates: Path, scene: Scene, lasting: bool, numbers: list[int], tmp_path: Path, seed: int
) -> None:
    """N-29, N-89, F-40: any refused call is an error, leaves old state or new, and stops no later call.

    The error says what and where; a success is durable; the same store object works once the cause
    is gone, after `verify` if it was a sync; no descriptor and no thread is left over.
    """

    def make(at: int) -> faults.Faults:
        return faults.fail(numbers[(at + seed) % len(numbers)], at=at, lasting=lasting)

    assert strike_every_call(templates, scene, tmp_path, make, *numbers) >= FEWEST


@scenes
def test_a_call_that_did_its_work_and_says_that_it_failed(
    templates: Path, scene: Scene, tmp_path: Path
) -> None:
    """N-29, F-40: an error after the deed, as over a network, is an error; the deed is there once or not."""

    def make(at: int) -> faults.Faults:
        return faults.fail(errno.EIO, at=at, when="after")

    assert strike_every_call(templates, scene, tmp_path, make, errno.EIO) >= FEWEST


@scenes
def test_a_look_that_is_refused_is_an_error(templates: Path, scene: Scene, tmp_path: Path) -> None:
    """N-29, N-32: a call that only looks, and is refused, is an error of ours and never an absence."""

    def make(at: int) -> faults.Faults:
        return faults.fail(errno.EIO, at=at, only=set(faults.READING) - {"names"})

    assert strike_every_call(templates, scene, tmp_path, make, errno.EIO) >= 3


@pytest.mark.slow
@scenes
@lastings
@pytest.mark.parametrize("kept", ["one byte", "half", "all but one"])
def test_a_short_write_is_completed_or_an_error(
    templates: Path, scene: Scene, lasting: bool, kept: faults.Kept, tmp_path: Path
) -> None:
    """N-29, N-33, F-40: what a short write leaves is a torn tail, which the next append ends."""
    for at, stage in stages(templates, scene, tmp_path):
        leftovers = Leftovers()
        struck = Struck(scene, stage, faults.short(kept, at=at, lasting=lasting))
        if struck.error is not None or (lasting and struck.fault.fired):
            struck.check_error(errno.ENOSPC)
        seen = struck.check_state()
        if struck.error is not None:
            struck.go_on(seen)
        struck.close()
        leftovers.check()
        if not struck.fault.fired:
            break
    assert at > 1


@pytest.mark.slow
@scenes
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("lost", [None, "cut", "nul"], ids=["no power cut", "cut", "nul"])
def test_a_process_killed_at_any_call_leaves_the_old_state_or_the_new(
    templates: Path, scene: Scene, when: faults.When, lost: faults.Lost | None, tmp_path: Path
) -> None:
    """N-39, F-28: killed at any call, with or without a power cut, a store opens undamaged and continues."""
    for at, stage in stages(templates, scene, tmp_path):
        struck = Struck(scene, stage, faults.kill(at=at, when=when), lost)
        assert isinstance(struck.error, faults.Killed) == struck.fault.fired
        seen = struck.check_state()
        if struck.fault.fired:
            # A dead process's store is gone with it.
            struck.store, struck.error = None, None
            struck.go_on(seen)
        struck.close()
        if not struck.fault.fired:
            break
    assert at > FEWEST


@scenes
def test_what_was_refused_leaves_no_temporary_file(
    templates: Path, scene: Scene, tmp_path: Path
) -> None:
    """N-38: a call that was refused once leaves no unfinished file, listed or not."""
    for at, stage in stages(templates, scene, tmp_path):
        struck = Struck(scene, stage, faults.fail(errno.ENOSPC, at=at))
        # Only the refused removal itself may leave one.
        removal = any(call.error and call.operation == "remove" for call in struck.fault.calls)
        assert temporaries(stage) == [] or removal
        struck.close()
        if not struck.fault.fired:
            break


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
    """N-29: if from some call on each one fails, also one that only looks, no bare `OSError` gets out."""
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


# -- the operating system itself -------------------------------------------------------------------


@pytest.fixture
def public_place() -> Iterator[Path]:
    """Return a directory that another user can reach, which `tmp_path` is not."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def confined(kind: str, place: Path) -> dict[str, Any]:
    """Run a program of limited_process.py in a separate process and return what it found."""
    command = [sys.executable, "-m", "tests.faults.limited_process", kind, str(place)]
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_may_not_be_read_is_an_error_and_no_absence(public_place: Path) -> None:
    """N-32: without permission every call raises, nothing reads as empty, and nothing is created again."""
    found = confined("permissions", public_place)
    assert len(found) == 5
    for part, said in found.items():
        for call, answer in said.items():
            if call in {"sessions", "verify"} and part.startswith("sessions/"):
                # A listing that can be made flags the one session that cannot be read.
                assert answer.startswith("returned ["), (part, call)
            else:
                assert answer.startswith("raised "), (part, call)
            assert "Permission denied" in answer, (part, call)


def test_a_real_limit_of_the_file_size_is_an_error_until_it_is_lifted(tmp_path: Path) -> None:
    """N-29, F-40: at the system's own limit an append raises, and works again once there is space."""
    found = confined("file-size", tmp_path)
    assert found["acknowledged"] > 10
    assert "log.jsonl: write: File too large" in found["said"]
    assert found["torn"] in ([], ["note"])


def test_a_process_out_of_descriptors_gets_errors_and_loses_nothing(tmp_path: Path) -> None:
    """N-29: however few descriptors are left, a call works or raises an error of ours, and leaves no harm."""
    found = confined("descriptors", tmp_path)
    assert found["refused"] >= 4
    assert found["seq"] == found["acknowledged"]


def test_a_real_full_disk_is_an_error_until_there_is_room(tmp_path: Path) -> None:
    """N-29, F-40: on a full file system an append raises; with more space nothing is lost."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)]
    try:
        mounted = (
            subprocess.run(mount, capture_output=True, timeout=60, check=False).returncode == 0
        )
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("needs the right to mount a small file system")
    try:
        with hansard.open(tmp_path / "store") as store:
            session = store.session(ID)
            expected: list[dict[str, Any]] = []

            def fill() -> None:
                while True:
                    message = {"number": len(expected), "content": "x" * 500}
                    session.add_message(message)
                    expected.append(message)

            with pytest.raises(hansard.DiskFailed, match="No space left on device"):
                fill()
            assert session.messages() == expected
            room = ["mount", "-o", "remount,size=1m", str(tmp_path)]
            subprocess.run(room, check=True, timeout=60)
            session.add_message(THIRD)
            assert session.messages() == [*expected, THIRD]
            # What was cut off by the full disk is noted, and nothing else.
            assert [one.severity for one in session.verify().findings] in ([], ["note"])
    finally:
        # Lazily: an error's frames may still hold files of the store.
        subprocess.run(["umount", "-l", str(tmp_path)], check=True, timeout=60)
