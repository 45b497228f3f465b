"""A store that one may read but does not own: every command that only reads works, and writes nothing."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard as library
from tests.cli.batch import batch
from tests.cli.running import Done
from tests.unit.disk_probe import tree

#: The user to whom the store belongs.
OWNER = 12_345

READING = (
    "ls", "ls --tree", "show a", "show @latest", "replay a", "tail a", "tail", "diff a b", "tree a",
    "search refund", "stats", "stats --model m", "dump a", "verify", "doctor", "export a -o -",
    "snapshot a", "restore", "prune --older-than 1d --dry-run",
)  # fmt: skip


@pytest.fixture
def shared() -> Iterator[Path]:
    """Return a store of another user, which all may read."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a store of another user")
    # Not below pytest's own directory, which other users may not enter.
    directory = Path(tempfile.mkdtemp(prefix="hansard-shared-"))
    path = directory / "store"
    try:
        with library.open(path, durability="os") as store:
            session = store.create("a", metadata={"title": "Refund"})
            session.add_message({"role": "user", "content": "where is my refund"})
            session.fork("b").add_message({"role": "user", "content": "more"})
        yield path
    finally:
        shutil.rmtree(directory)


def hand_over(path: Path, *, indexed: bool) -> None:
    """Give the store to its owner."""
    if indexed:
        with library.open(path) as store:
            assert store.search("refund")
    files = [path.parent, path, *path.rglob("*")]
    for file in files:
        file.chmod(0o755 if file.is_dir() else 0o644)
        os.chown(file, OWNER, OWNER)


def as_reader(*calls: str, store: Path) -> list[Done]:
    """Call the command as a user who owns nothing here."""
    how = {"other_user": True, "cwd": "/"}
    return batch([{"words": ["-s", store, *call.split()], **how} for call in calls])


@pytest.mark.parametrize("indexed", [False, True])
def test_reading_commands_work_on_anothers_store(indexed: bool, shared: Path) -> None:
    """Each command that only reads works, with an index of the owner's or without, and changes no byte."""
    hand_over(shared, indexed=indexed)
    before = tree(shared)
    for call, done in zip(READING, as_reader(*READING, store=shared), strict=True):
        # diff finds a difference, and doctor that others may read the store.
        assert done.code == (1 if call in {"diff a b", "doctor"} else 0), (call, done)
        assert done.err == "", call
        assert done.out or call == "restore"
    assert tree(shared) == before


def test_a_session_that_may_not_be_read_hides_no_other(shared: Path) -> None:
    """One session without read permission is named, and the others are listed; a writing command refuses."""
    hand_over(shared, indexed=True)
    (shared / "sessions" / "b").chmod(0o700)
    listed, refused = as_reader("ls", "add a x", store=shared)
    assert "Refund" in listed.out
    assert "b is damaged" in listed.err
    assert refused.code == 1
    assert "belongs to uid" in refused.err
    assert "read_only" not in refused.err


def test_a_store_without_a_trash_is_read(shared: Path) -> None:
    """A store that one may not complete, such as a copy without empty directories, is read as it is."""
    hand_over(shared, indexed=False)
    (shared / "trash").rmdir()
    os.chown(shared, 0, 0)  # any user may open a store of root's; here it cannot be completed
    listed, shown = as_reader("ls", "show a", store=shared)
    assert (listed.code, listed.err) == (0, "")
    assert (shown.code, shown.err) == (0, "")
