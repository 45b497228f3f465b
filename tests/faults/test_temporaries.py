"""Claims about temporary files: which process may remove one, and which must not. N-27, N-38."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.log import disk, names
from hansard.log.store_directory import sweep
from tests.faults.workers import Crew, Wire, open_store, replaced
from tests.unit.disk_probe import index_of, log_of

#: The number of no process here, as that of a process in another PID namespace may be.
ELSEWHERE = 2**22 + 1


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where a store is, for a process that has another number than this system gives it."""
    monkeypatch.setattr("hansard.log.names.os.getpid", lambda: ELSEWHERE)
    return tmp_path / "store"


def _sweep(store: Path) -> list[str]:
    """Sweep every directory of a store, as others may at any moment; return what went."""
    swept = []
    for folder, _, files in os.walk(store):
        directory = disk.open_root(folder)
        sweep(directory)
        swept += [name for name in files if not (Path(folder) / name).exists()]
    return swept


@contextmanager
def _swept_all_the_time(store: Path) -> Iterator[list[str]]:
    """Let others sweep before every call that writes or renames; make all temporary files look old."""
    calls: list[str] = []

    def after_a_sweep(name: str) -> Callable[..., Any]:
        real = getattr(disk, name)

        def call(*args: Any) -> Any:
            for file in store.rglob(".tmp-*"):
                if file.is_file():
                    calls.append(file.name)
                    os.utime(file, (0, 0))
            assert _sweep(store) == []
            return real(*args)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("write_all", "sync", "move", "publish", "remove"):
            patch.setattr(disk, name, after_a_sweep(name))
        yield calls


def _repair(store: hansard.Store, tmp: Path) -> None:
    log = log_of(tmp / "store", "s")
    log.write_bytes(log.read_bytes().replace(b"said 3", b"SAID 3"))
    assert store.session("s").repair().repaired


WORK: dict[str, Callable[[hansard.Store, Path], object]] = {
    "begin": lambda store, _: store.session("new").add_message({"text": "begun"}),
    "compact": lambda store, _: store.session("s").compact(),
    "import": lambda store, tmp: store.import_session((tmp / "export.jsonl").read_bytes(), id="i"),
    "repair": _repair,
    "probe": lambda store, _: store.health(),
}


@pytest.mark.parametrize("work", WORK)
def test_what_is_in_use_is_not_swept(path: Path, work: str) -> None:
    """N-38: work goes well though processes that do not see this one sweep its directories all the time."""
    with hansard.open(path, auto_compact=False) as store:
        for number in range(5):
            store.session("s").add_message({"text": f"said {number}"})
        path.with_name("export.jsonl").write_bytes(b"".join(store.session("s").export()))
        with _swept_all_the_time(path) as calls:
            WORK[work](store, path.parent)
        assert calls, "there was something to sweep"
        assert store.verify().ok
    assert not [file for file in path.rglob(".tmp-*") if "staged" not in file.name]


def test_a_file_that_is_swept_before_it_is_locked_is_created_again(path: Path) -> None:
    """N-38: a sweep between the creation of a temporary file and its lock costs a second try, and no file."""
    path.mkdir()
    directory = disk.open_root(str(path))
    name = names.temporary("x")
    lock, sweeps = fcntl.flock, [2]

    def swept_first(descriptor: int, how: int) -> None:
        if how == fcntl.LOCK_EX and sweeps[0]:
            sweeps[0] -= 1
            assert _sweep(path) == [name]
        lock(descriptor, how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", swept_first)
        file = disk.create_file(directory, name)
    assert not sweeps[0]
    assert disk.is_named(directory, name, file)
    assert _sweep(path) == []


def test_a_sweeper_that_comes_late_leaves_a_file_that_has_its_name(path: Path) -> None:
    """N-38: a temporary file that was renamed between a sweeper's two checks is not removed."""
    path.mkdir()
    directory = disk.open_root(str(path))
    name = names.temporary("x")
    files = [disk.create_file(directory, name)]
    opened = disk.open_file

    def renamed_when_open(*args: Any, **options: Any) -> int:
        descriptor = opened(*args, **options)
        disk.move(directory, name, directory, "x")
        files.clear()
        return descriptor

    with replaced("open_file", renamed_when_open):
        _sweep(path)
    assert [file.name for file in path.iterdir()] == ["x"]


def test_what_a_killed_process_left_is_swept_at_once(path: Path) -> None:
    """N-38: the lock goes with its process, so what is left over goes at the next sweep, however young."""
    with Crew() as crew:
        worker = crew.start(_stage_and_stay, str(path))
        worker.hear()
        assert len(list(path.glob(".tmp-staged-*"))) == 1
        assert _sweep(path) == []
        worker.kill()
    assert len(_sweep(path)) == 1
    assert not list(path.glob(".tmp-*"))


def _stage_and_stay(wire: Wire, path: str) -> None:
    from hansard.backend.local.backend import LocalBackend
    from hansard.event.event import NewEvent

    with open_store(path, "os"):
        stage = LocalBackend(path).stage("s")
        stage.append([NewEvent("x.said", b"{}", control=False)])
        wire.tell("staged")
        wire.wait()


def test_a_purge_that_was_ended_is_finished_by_the_next(path: Path) -> None:
    """N-38, F-64: what is left of a purged session is removed by the next purge of any process."""
    with open_store(str(path), "os") as store:
        for name in ("a", "b"):
            store.session(name).add_message({"text": "said"})
            store.delete(name)
        (path / "trash" / "a").rename(path / "trash" / names.temporary("purged"))
        store.purge("b")
    assert not list((path / "trash").iterdir())


@pytest.mark.parametrize("named", [False, True], ids=["before its name", "after its name"])
def test_a_sweep_does_not_cost_a_store_its_index(
    named: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-155: a sweep that takes the new database's temporary file leaves the store a shared index."""
    real = disk.publish
    swept: list[str] = []

    def publish(directory: int, temporary: str, name: str) -> None:
        if not swept:
            if named:
                os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            swept.extend(_sweep(path))
            if named:
                raise FileNotFoundError(2, "No such file or directory")
        real(directory, temporary, name)

    with open_store(str(path), "os") as store:
        monkeypatch.setattr(disk, "publish", publish)
        assert store.sessions().items == []
        assert len(swept) == 1
        assert index_of(path).is_file()
        # Only a shared index looks for change markers; no writer has created them.
        assert (path / "marks").is_dir()
