"""Claims about imports and copies that are killed, raced, or run out of disk: nothing is half there."""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Store
from hansard.log import disk, names
from tests.crashlab import faults
from tests.faults.workers import Crew, Wire, replaced

EVENTS = 40
#: Long texts, which take many calls.
LARGE = 2

DYING = suppress(faults.Killed)


def big(count: int = EVENTS) -> dict[str, str]:
    """Return a large message."""
    return {"role": "user", "content": f"{count} " * 400}


def fill(store: Store) -> bytes:
    """Make a session and a fork of it; return the session as a file."""
    session = store.session("s")
    for number in range(EVENTS):
        said = big(number) if number < LARGE else {"role": "user", "content": f"{number}"}
        session.add_message(said, key=f"k{number}")
    fork = session.fork("f", at=10)
    fork.add_message(big())
    return b"".join(session.export(redacted=False))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """Return a store with two sessions, and one of them as a file."""
    path = tmp_path_factory.mktemp("source") / "store"
    with hansard.open(path, durability="os") as store:
        return path, fill(store)


@pytest.fixture
def crew() -> Iterator[Crew]:
    """Return what starts processes, and ends them."""
    with Crew() as started:
        yield started


def target(path: Path) -> Store:
    """Open the store that is imported or copied to."""
    return hansard.open(path, durability="sync", auto_compact=False)


def whole(store: Store, data: bytes) -> bool:
    """Return whether the session exists with all events of the file."""
    again = b"".join(store.session("s").export(redacted=False))
    return again.splitlines()[1:-1] == data.splitlines()[1:-1]


@pytest.mark.slow
def test_a_copy_that_dies_at_any_call_is_completed_by_the_next(
    tmp_path: Path, source: tuple[Path, bytes]
) -> None:
    """N-84: killed before a disk call, a copy leaves a prefix, and the next copy completes it."""
    origin, data = source
    prefixes = set()
    with hansard.open(origin, read_only=True) as here:
        # Every third call: most are syncs, one after the other.
        for at in itertools.count(1, 3):
            path = tmp_path / f"{at}"
            with target(path) as store, faults.kill(at=at) as fault, DYING:
                here.copy_to(store)
            with target(path) as store:
                prefixes.add(store.session("s").seq)
                report = here.copy_to(store)
                assert report.failed == {}
                assert whole(store, data)
                assert store.session("f").parent == "s"
                assert store.session("f").messages() == here.session("f").messages()
                assert store.verify().ok
            if not fault.fired:
                break
    assert {0, EVENTS} <= prefixes


def stay_in_mid_publish(wire: Wire, path: str, data: bytes) -> None:
    """Import a file, and pause just before it gets its name until released."""
    real = disk.move

    def stay_then_move(*arguments: Any) -> None:
        if arguments[-1] == names.LOG:
            wire.tell("publishing")
            wire.wait()
        real(*arguments)

    with target(Path(path)) as store, replaced("move", stay_then_move):
        store.import_session(data)


def test_no_process_writes_while_an_import_is_published(
    tmp_path: Path, source: tuple[Path, bytes], crew: Crew
) -> None:
    """N-88, F-136: the session's lock is held between the check and the rename, so no log is replaced."""
    _, data = source
    path = tmp_path / "store"
    importer = crew.start(stay_in_mid_publish, str(path), data)
    assert importer.hear() == "publishing"
    with hansard.open(path, durability="os", lock_timeout=0.2) as store:
        with pytest.raises(hansard.LockTimeout):
            store.session("s").add_message({"role": "user", "content": "mine"})
        assert not store.exists("s")
        importer.go()
        importer.result()
        assert whole(store, data)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_what_is_staged_is_synced_before_it_has_its_name(
    tmp_path: Path, source: tuple[Path, bytes], durability: Any
) -> None:
    """F-25, F-135, F-136: a staged session is synced, then renamed, then its directory is synced."""
    with (
        hansard.open(tmp_path / "store", durability=durability) as store,
        faults.record() as record,
    ):
        store.import_session(source[1])
    calls = [call.operation for call in record.calls]
    moved = calls.index("move")
    assert calls[:moved][::-1].index("sync") < calls[:moved][::-1].index("write")
