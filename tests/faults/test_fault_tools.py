"""The fault tools do what they say: the tests that use them stand on this."""

import errno
import os
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


def test_the_disk_is_as_before_when_the_block_ends(path: Path) -> None:
    """N-29: every function is put back, also if the block raises, and blocks can be nested."""
    before = {name: getattr(disk, name) for name in (*faults.MUTATING, *faults.READING)}

    def raise_inside() -> None:
        with faults.record(), faults.fail(errno.EIO, at=99):
            assert disk.write is not before["write"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        raise_inside()
    assert {name: getattr(disk, name) for name in before} == before


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
        "read_all", "write_all", "sync_parent", "sync_above", "discard", "remove_directory",
        "is_in_use", "remove_unused"
    }  # fmt: skip
    harmless = {
        "absolute",
        "boot",
        "close",
        "close_in_children",
        "command_of",
        "explain",
        "first_hole",
        "lock_holder",
        "lock_holders",
        "next_data",
        "renew_in_children",
        "told_by_system",
        "user",
    }
    assert ours - made_of_others - harmless == {*faults.MUTATING, *faults.READING}


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
def test_the_nth_call_fails_and_only_those_that_count(path: Path, lasting: bool) -> None:
    """N-29: the call that is struck is the nth of those named, and the next ones only if it lasts."""
    with (
        hansard.open(path, durability="os") as store,
        faults.fail(errno.ENOSPC, at=2, only=("write",), lasting=lasting) as fault,
    ):
        session = store.session(ID)
        session.add_message({"n": 1})
        with pytest.raises(hansard.DiskFailed):
            session.add_message({"n": 2})
        if lasting:
            with pytest.raises(hansard.DiskFailed):
                session.add_message({"n": 3})
        else:
            session.add_message({"n": 3})
    assert fault.fired
    struck = [call.operation for call in fault.calls if call.error == errno.ENOSPC]
    assert struck == ["write"] * (2 if lasting else 1)


def test_a_fault_that_did_not_fire_says_so(path: Path) -> None:
    """N-17: a loop over all calls can tell that there are no more."""
    with hansard.open(path) as store, faults.fail(errno.EIO, at=1000) as fault:
        store.session(ID).add_message({"n": 1})
    assert not fault.fired
    with pytest.raises(ValueError, match="no such call: paint"):
        faults.fail(errno.EIO, only=("paint",))


@pytest.mark.parametrize(
    ("kept", "written"), [("one byte", 1), ("half", 5), ("all but one", 9)], ids=str
)
def test_a_short_write_writes_a_part_and_then_gives_the_reason(
    tmp_path: Path, kept: faults.Kept, written: int
) -> None:
    """N-29: of ten bytes so many are written, which is no error; the next write is one."""
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with faults.short(kept, error=errno.EDQUOT):
        assert disk.write(descriptor, b"0123456789") == written
        with pytest.raises(OSError, match="quota"):
            disk.write(descriptor, b"0123456789")
        assert disk.write(descriptor, b"ab") == 2
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"0123456789"[:written] + b"ab"


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_dead_do_nothing(path: Path, when: faults.When) -> None:
    """N-39: from the blow on, no call has any effect, not even one that only looks."""
    size = log(path).stat().st_size
    with (
        hansard.open(path) as store,
        faults.kill(when=when, only=("write",)) as fault,
    ):
        with pytest.raises(faults.Killed):
            store.session(ID).add_message({"n": 1})
        with pytest.raises(faults.Killed):
            store.session(ID).messages()
        with pytest.raises(faults.Killed):
            store.session("other").add_message({"n": 1})
    assert fault.fired
    assert (log(path).stat().st_size > size) == (when == "after")
    assert not (path / "sessions" / "other").exists()


@pytest.mark.parametrize("lost", ["cut", "nul"])
def test_a_failed_sync_takes_with_it_what_was_not_synced(tmp_path: Path, lost: faults.Lost) -> None:
    """F-35: bytes since the last good sync are gone, those before are not, and the next sync succeeds."""
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with faults.fail_sync(at=2, lost=lost) as fault:
        disk.write(descriptor, b"good")
        disk.sync(descriptor)
        disk.write(descriptor, b"lost")
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync(descriptor)
        assert fault.fired
        disk.sync(descriptor)
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == (b"good" if lost == "cut" else b"good\0\0\0\0")


def test_what_the_cache_still_shows_goes_when_it_is_dropped(tmp_path: Path) -> None:
    """F-35: with `seen="later"` the lost bytes can be read until the cache is asked to forget them."""
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with faults.fail_sync(seen="later"):
        disk.write(descriptor, b"lost")
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync(descriptor)
        disk.write(descriptor, b"note")
        assert (tmp_path / "file").read_bytes() == b"lostnote"
        disk.forget_cached(descriptor)
        assert (tmp_path / "file").read_bytes() == b"\0\0\0\0note"
    os.close(descriptor)


def test_a_power_cut_takes_what_was_not_synced(tmp_path: Path) -> None:
    """N-37: `drop_unsynced` leaves what was in a file before the block, and what was synced in it."""
    (tmp_path / "file").write_bytes(b"old ")
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_APPEND)
    with faults.record() as fault:
        disk.write(descriptor, b"synced ")
        disk.sync(descriptor)
        disk.write(descriptor, b"not")
        fault.drop_unsynced("nul")
        assert (tmp_path / "file").read_bytes() == b"old synced \0\0\0"
        fault.drop_unsynced()
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"old synced "
