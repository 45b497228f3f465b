"""The tool that rebuilds crash states works: the tests of power cuts depend on it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansard.log import disk
from tests.crashlab import crashes


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a directory with a file that was there before."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "old").write_bytes(b"old")
    return tmp_path / "base"


@pytest.fixture
def directory(base: Path) -> Iterator[int]:
    """Return the directory, opened as a store opens one."""
    descriptor = os.open(base, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def trees(recording: crashes.Recording, acknowledged: int | None = None) -> list[crashes.Tree]:
    """Return the states, all or those after a number of steps."""
    return [
        state.tree
        for state in recording.states()
        if acknowledged is None or state.acknowledged == acknowledged
    ]


def test_what_was_synced_is_there_and_the_rest_may_be(base: Path, directory: int) -> None:
    """N-37: unsynced bytes are there, not there, cut, or NUL; synced ones, and what was before, always."""
    with crashes.record(base) as recording:
        file = disk.create_file(directory, "new")
        disk.write(file, b"abcd")
        disk.sync(file)
        disk.sync_directory(directory)
        recording.acknowledge()
        disk.write(file, b"efgh")
    assert {tree["old"] for tree in trees(recording)} == {b"old"}
    before = {tree.get("new") for tree in trees(recording, 0)}
    assert before >= {None, b"", b"a", b"abcd", b"\0\0\0\0"}
    after = {tree["new"] for tree in trees(recording, 1)}
    assert after >= {b"abcd", b"abcde", b"abcdefgh", b"abcd\0\0\0\0"}
    assert all(content.startswith(b"abcd") for content in after)
