"""Sealing and compaction on a disk that refuses calls, and in processes that die: old store, or new."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

import hansard
from tests.crashlab import faults
from tests.faults.fault_scenarios import (
    FIRST,
    FOURTH,
    ID,
    NAME,
    SECOND,
    THIRD,
    Scene,
    Seen,
    do_not_wait_for_the_disk,
    temporaries,
)
from tests.faults.test_disk_faults import Struck, stages, strike_every_call

HIDDEN = "the cellar's combination"
REDACTED = {"role": "user", "content": HIDDEN}


def _say(path: str, *messages: dict[str, Any]) -> None:
    with hansard.open(path) as store:
        for message in messages:
            store.session(ID).add_message(message)


def _compact(store: hansard.Store) -> None:
    assert store.session(ID).compact().failed == {}


def _compact_all(path: str) -> None:
    with hansard.open(path) as store:
        _compact(store)


def _two(path: str) -> None:
    _say(path, FIRST, SECOND)


def _compacted(path: str) -> None:
    _two(path)
    _compact_all(path)


def _several(path: str) -> None:
    """Make two compressed segments, the first much larger, and new events after them."""
    _say(path, *[{"n": n, "text": "x" * 400} for n in range(20)])
    _compact_all(path)
    _say(path, REDACTED, FIRST)
    _compact_all(path)
    with hansard.open(path) as store:
        store.session(ID).redact(21)
    _say(path, SECOND)
    assert len(list(Path(path, "sessions", NAME).glob("*.zst"))) == 2


def _between(path: str) -> None:
    """Leave a sealed segment without a next one."""
    _two(path)
    with (
        hansard.open(path) as store,
        faults.kill(only=("move",)),
        pytest.raises(faults.Killed),
    ):
        _compact(store)
    for path_left in temporaries(path):
        path_left.unlink()


def _twice(path: str) -> None:
    """Leave duplicate segments, as a process that dies in the middle does."""
    _several(path)
    directory = Path(path, "sessions", NAME)
    before = {file.name: file.stat().st_ino for file in directory.iterdir()}
    at = 0
    # Until the new one has its name, and one of the old ones is about to go.
    while all(before.get(file.name) == file.stat().st_ino for file in directory.glob("*.zst")):
        at += 1
        with (
            hansard.open(path) as store,
            faults.kill(only=("remove",), at=at),
            pytest.raises(faults.Killed),
        ):
            _compact(store)
    assert len(list(directory.glob("0*"))) == 3
    for path_left in temporaries(path):
        path_left.unlink()


def _append(message: dict[str, Any]) -> Callable[[hansard.Store], object]:
    return lambda store: store.session(ID).add_message(message)


LONG = [{"n": n, "text": "x" * 400} for n in range(20)]
TWO = Seen([FIRST, SECOND], {})
THREE = Seen([FIRST, SECOND, THIRD], {})
FOUR = Seen([FIRST, SECOND, THIRD, FOURTH], {})
MANY = Seen([*LONG, FIRST, SECOND], {})

SCENES = [
    Scene("compact", _two, (_compact,), (TWO, TWO)),
    Scene(
        "between appends",
        _two,
        (_append(THIRD), _compact, _append(FOURTH)),
        (TWO, THREE, THREE, FOUR),
        ((THIRD,), (), (FOURTH,)),
    ),
    Scene("append after", _compacted, (_append(THIRD),), (TWO, THREE), ((THIRD,),)),
    Scene("go on", _between, (_append(THIRD),), (TWO, THREE), ((THIRD,),)),
    Scene("join and forget", _several, (_compact,), (MANY, MANY)),
    Scene("clean up", _twice, (_compact,), (MANY, MANY)),
]

scenes = pytest.mark.parametrize("scene", SCENES, ids=str)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare each scene once; the cases work on copies, in which links are links."""
    place = tmp_path_factory.mktemp("templates")
    for scene in SCENES:
        scene.prepare(str(place / scene.name))
    return place


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait_for_the_disk(monkeypatch)


def check_compaction(stage: Path, expected: list[dict[str, Any]] | None) -> None:
    """Fail unless a later compaction works, changes nothing, and leaves one file for each event."""
    with hansard.open(stage) as store:
        session = store.session(ID)
        _compact(store)
        assert session.messages() == expected
        assert session.compact().sessions == 0
        assert session.verify().findings == []
    directory = stage / "sessions" / NAME
    assert list(directory.glob("*.jsonl")) == [directory / "log.jsonl"]
    assert not found_anywhere(stage, HIDDEN.encode())


def found_anywhere(stage: Path, text: bytes) -> list[Path]:
    """Return the files of a store in which a text can be found, compressed or not."""
    found = []
    for path in stage.rglob("*"):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if path.suffix == ".zst":
            reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
            data += reader.read()
        if text in data:
            found.append(path)
    return found


@pytest.mark.slow
@scenes
@pytest.mark.parametrize(
    ("number", "lasting"),
    [(errno.EIO, False), (errno.ENOSPC, True)],
    ids=["EIO", "ENOSPC for good"],
)
def test_a_refused_call_leaves_the_old_segments_or_the_new(
    templates: Path, scene: Scene, lasting: bool, number: int, tmp_path: Path
) -> None:
    """N-29, N-38, N-39: any refused call of sealing or compaction is an error, and nothing is lost by it."""

    def make(at: int) -> faults.Faults:
        return faults.fail(number, at=at, lasting=lasting)

    assert strike_every_call(templates, scene, tmp_path, make, number) >= 3


@scenes
def test_a_refused_call_leaves_no_temporary_file_and_a_later_compaction_cleans_up(
    templates: Path, scene: Scene, tmp_path: Path
) -> None:
    """N-38: after one refused call no unfinished file is left, and the next compaction leaves none twice."""
    for at, stage in stages(templates, scene, tmp_path):
        struck = Struck(scene, stage, faults.fail(errno.ENOSPC, at=at))
        removal = any(call.error and call.operation == "remove" for call in struck.fault.calls)
        assert temporaries(stage) == [] or removal
        seen = struck.check_state()
        if struck.error is not None:
            struck.go_on(seen)
        struck.close()
        check_compaction(stage, look_at(stage))
        if not struck.fault.fired:
            break
    assert at > 3


def look_at(stage: Path) -> list[dict[str, Any]]:
    """Return the messages that a stranger finds."""
    with hansard.open(stage, read_only=True) as store:
        return store.session(ID).messages()


@pytest.mark.slow
@scenes
@pytest.mark.parametrize(("when", "lost"), [("before", None), ("after", "cut")])
def test_who_dies_at_any_call_leaves_the_old_segments_or_the_new(
    templates: Path, scene: Scene, when: faults.When, lost: faults.Lost | None, tmp_path: Path
) -> None:
    """N-39, N-45: killed at any call, all is there, appends work, and the next compaction cleans up."""
    for at, stage in stages(templates, scene, tmp_path):
        struck = Struck(scene, stage, faults.kill(at=at, when=when), lost)
        assert isinstance(struck.error, faults.Killed) == struck.fault.fired
        seen = struck.check_state()
        copy = stage.with_suffix(".copy")
        shutil.copytree(stage, copy)
        check_compaction(copy, seen.messages)
        shutil.rmtree(copy)
        if struck.fault.fired:
            struck.store, struck.error = None, None
            struck.go_on(seen)
        struck.close()
        if not struck.fault.fired:
            break
    assert at > 3
