"""The fault tools work: many tests depend on them."""

from pathlib import Path

import pytest

import hansard
from hansard.log import disk
from tests.crashlab import faults

ID = "s"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with one message."""
    with hansard.open(tmp_path / "store") as store:
        store.session(ID).add_message({"n": 0})
    return tmp_path / "store"


def log(path: Path) -> Path:
    """Return the session's log."""
    return path / "sessions" / ID / "log.jsonl"


def test_every_call_that_changes_something_is_in_the_list() -> None:
    """N-29: no function of the disk that opens, writes, names or syncs is left out of the lists."""
    ours = {
        name
        for name, value in vars(disk).items()
        if callable(value) and not name.startswith("_") and not isinstance(value, type)
        if getattr(value, "__module__", "") != "typing"
    }
    # These are made of others, or touch nothing of a store; closing always works, as for the dead.
    made_of_others = {
        "read_all", "write_all", "sync_above", "discard", "remove_directory",
        "is_in_use", "remove_unused", "copy_content"
    }  # fmt: skip
    harmless = {
        "absolute",
        "boot",
        "close",
        "command_of",
        "explain",
        "file_budget",
        "files_held",
        "hold_files",
        "kind",
        "lock_holders",
        "next_data",
        "reporting",
        "reset_after_fork",
        "told_by_system",
        "user",
    }
    assert ours - made_of_others - harmless == {*faults.MUTATING, *faults.READING}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_process_does_nothing(path: Path, when: faults.When) -> None:
    """N-39: after the kill, no call has an effect, not even one that only reads."""
    size = log(path).stat().st_size
    with hansard.open(path) as store, faults.kill(when=when, only=("write",)) as fault:
        with pytest.raises(faults.Killed):
            store.session(ID).add_message({"n": 1})
        with pytest.raises(faults.Killed):
            store.session(ID).messages()
        with pytest.raises(faults.Killed):
            store.session("other").add_message({"n": 1})
    assert fault.fired
    assert (log(path).stat().st_size > size) == (when == "after")
    assert not (path / "sessions" / "other").exists()
