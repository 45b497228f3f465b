"""Plain copies of a live store: complete, if compaction waits for them."""

import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import hansard
from hansard.backend.local import log as local_log


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Hold the lock that a backup holds."""
    descriptor = os.open(root / "hansard.json", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def files(root: Path) -> dict[str, int]:
    """Return the files of the sessions, by their paths, with their inodes."""
    found = (root / "sessions").rglob("*")
    return {str(path.relative_to(root)): path.stat().st_ino for path in found if path.is_file()}


@pytest.mark.parametrize("backwards", [False, True])
def test_a_copy_under_the_lock_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    """F-98, F-174: files are listed and copied later, in any order, between appends; nothing is lost."""
    monkeypatch.setattr(local_log, "SEAL", 5_000)
    root, copy = tmp_path / "s", tmp_path / "copy"
    with hansard.open(root, durability="os", lock_timeout=0.01) as store:
        session = store.session("a")
        session.add_messages({"n": n} for n in range(10))
        session.compact()
        said = session.messages()
        with held(root):
            before = files(root)
            for number, name in enumerate(sorted(before, reverse=backwards)):
                # Enough for the background to want to seal, each time.
                session.add_messages({"n": n, "x": "y" * 400} for n in range(20))
                for thread in threading.enumerate():
                    if thread.name == "hansard-compaction":
                        thread.join(60)
                with pytest.raises(hansard.LockTimeout, match=r"hansard\.json within .* held by"):
                    session.compact() if number % 2 else store.compact()
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)
            assert files(root) == before
        shutil.copy2(root / "hansard.json", copy / "hansard.json")
        assert store.compact().sessions == 1
        assert files(root) != before
    with hansard.open(copy, read_only=True) as store:
        assert store.verify().ok
        assert store.session("a").messages()[:10] == said


def test_a_copy_does_not_begin_during_a_compaction(tmp_path: Path) -> None:
    """F-174: a process that takes the lock for a copy waits for a compaction, and for no append."""
    root = tmp_path / "s"
    refused: list[bool] = []

    def progress(*_: int) -> None:
        with pytest.raises(BlockingIOError), held(root):
            pass
        refused.append(True)

    with hansard.open(root, durability="os", auto_compact=False) as store:
        for name in "ab":
            store.session(name).add_message({"n": 1})
        store.compact(progress=progress)
        store.session("a").add_message({"n": 2})
        store.session("a").compact(progress=progress)
        assert len(refused) >= 3
        with held(root):
            store.session("a").add_message({"n": 3})
            assert len(store.session("a").messages()) == 3
