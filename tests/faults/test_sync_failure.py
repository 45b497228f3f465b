"""A sync that fails is final: for every handle, every store object and every process, until `verify`.

After one failed sync the kernel calls the pages clean, and the next sync succeeds for bytes that are
lost. So an error that is ignored, or a sync that is tried again, acknowledges what is not there. The
faults here lose the bytes too, which a plain error number does not, and the last tests show that they
find such a store out.
"""

import errno
from pathlib import Path

import pytest

import hansard
from tests.crashlab import faults
from tests.faults.workers import Crew, Wire, open_store

ID = "s"


def read_and_append(wire: Wire, path: str, durability: str) -> tuple[int, str]:
    """Read and append; return how many messages there were, and how the append went."""
    with open_store(path, durability) as store:
        seen = len(store.session(ID).messages())
        try:
            store.session(ID).add_message({"from": "another process"})
        except hansard.HansardError as error:
            return seen, type(error).__name__
        return seen, "appended"


def verify(wire: Wire, path: str) -> bool:
    """Verify all sessions of the store."""
    with open_store(path, "sync") as store:
        return store.verify().ok


def append_elsewhere(path: Path, durability: str = "sync") -> tuple[int, str]:
    """Let another process read and append."""
    with Crew() as crew:
        found: tuple[int, str] = crew.start(read_and_append, str(path), durability).result()
        return found


def read(path: Path) -> list[object]:
    """Return the numbers of the messages, read with another store object."""
    with hansard.open(path, read_only=True) as store:
        return [message["n"] for message in store.session(ID).messages() if "n" in message]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with two acknowledged messages, 0 and 1."""
    with hansard.open(tmp_path / "store") as store:
        store.session(ID).add_messages([{"n": 0}])
        store.session(ID).add_messages([{"n": 1}])
    return tmp_path / "store"


@pytest.mark.parametrize("verifier", ["same store", "another store", "another process"])
def test_a_failed_sync_shuts_the_session_for_every_process(path: Path, verifier: str) -> None:
    """F-35, F-34, N-25: after a failed sync no process appends, all can read; one `verify` opens it for all.

    Other sessions are not affected.
    """
    with hansard.open(path) as store, hansard.open(path) as other:
        session = store.session(ID)
        store.session("t").add_message({"n": 0})
        with faults.fail_sync(lost=None), pytest.raises(hansard.SyncFailed) as caught:
            session.add_message({"n": 2})
        assert caught.value.errno == errno.EIO
        assert caught.value.operation == "sync"
        assert caught.value.path == str(path / "sessions" / ID / "log.jsonl")
        for shut in (session, store.session(ID), other.session(ID)):
            with pytest.raises(hansard.SyncFailed, match="verify"):
                shut.add_message({"n": 3})
            with pytest.raises(hansard.SyncFailed):
                shut.add_messages([{"n": 3}, {"n": 4}], key="k")
            with pytest.raises(hansard.SyncFailed):
                shut.set_metadata(title="T")
            assert shut.messages() == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert append_elsewhere(path) == (3, "SyncFailed")
        assert append_elsewhere(path, "os") == (3, "SyncFailed")
        for one in (store, other):
            one.session("t").add_message({"n": 1})
        assert len(store.session("t").messages()) == 3

        if verifier == "same store":
            assert session.verify().ok
        elif verifier == "another store":
            assert other.verify().ok
        else:
            with Crew() as crew:
                assert crew.start(verify, str(path)).result()
        log = (path / "sessions" / ID / "log.jsonl").read_bytes()
        assert log.count(b'"log":"failed"') == log.count(b'"log":"verified"') == 1

        assert append_elsewhere(path) == (3, "appended")
        other.session(ID).add_message({"n": 3})
        session.add_message({"n": 4})
    assert read(path) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("lost", ["nul", "cut"])
@pytest.mark.parametrize("count", [1, 3])
def test_what_a_failed_sync_loses_was_not_acknowledged(
    path: Path, lost: faults.Lost, count: int
) -> None:
    """F-35, N-29: bytes that vanish with the failed sync leave a torn tail, and all that was acknowledged."""
    with hansard.open(path) as store:
        session = store.session(ID)
        with faults.fail_sync(lost=lost) as fault, pytest.raises(hansard.SyncFailed):
            session.add_messages([{"n": 2 + more} for more in range(count)])
        assert fault.fired
        assert read(path) == [0, 1]
        assert append_elsewhere(path) == (2, "SyncFailed")
        with pytest.raises(hansard.SyncFailed):
            session.add_message({"n": 3})
        assert session.verify().ok
        session.add_message({"n": 4})
        assert append_elsewhere(path) == (3, "appended")
    assert read(path) == [0, 1, 4]
    with hansard.open(path, read_only=True) as store:
        assert store.verify().ok


def test_what_only_the_cache_still_shows_is_found_missing_by_verify(path: Path) -> None:
    """F-35, F-32: verify reads the disk and not the cache, reports the hole, and keeps it shut."""
    file = path / "sessions" / ID / "log.jsonl"
    acknowledged = file.read_bytes()
    with hansard.open(path) as store:
        session = store.session(ID)
        with faults.fail_sync(lost="nul", seen="later") as fault:
            with pytest.raises(hansard.SyncFailed):
                session.add_message({"n": 2})
            # The kernel calls the lost pages clean, so all processes can still read them.
            assert read(path) == [0, 1, 2]
            assert append_elsewhere(path) == (3, "SyncFailed")
            assert fault.fired
            report = session.verify()
        assert not report.ok
        assert [finding.offset for finding in report.findings] == [len(acknowledged)]
        for again in range(2):
            with pytest.raises((hansard.Damaged, hansard.SyncFailed)):
                session.add_message({"n": 3})
            assert session.verify().ok == (again > 1)
    assert file.read_bytes().startswith(acknowledged)


def test_a_tail_that_only_the_cache_still_shows_is_recovered(path: Path) -> None:
    """F-35, F-28: if not even the note of the failure could be written, the hole is a torn tail."""
    file = path / "sessions" / ID / "log.jsonl"
    acknowledged = file.read_bytes()
    with hansard.open(path) as store:
        session = store.session(ID)
        with faults.fail_sync(lost="nul", seen="later"):
            # The first write is the message; the second would be the note.
            with (
                faults.fail(errno.EIO, at=2, only=("write",), lasting=True),
                pytest.raises(hansard.SyncFailed),
            ):
                session.add_message({"n": 2})
            with pytest.raises(hansard.SyncFailed):
                session.add_message({"n": 3})
            assert session.verify().ok
        # What was believed of the end is forgotten: the next record follows what is on the disk.
        session.add_message({"n": 4})
    assert read(path) == [0, 1, 4]
    assert file.read_bytes().startswith(acknowledged)
    with hansard.open(path, read_only=True) as store:
        assert [one.severity for one in store.verify().findings] == ["note"]


def test_verify_does_not_open_a_session_on_a_disk_that_still_fails(path: Path) -> None:
    """F-35: the note `verified` must itself be synced; while syncs fail, the session stays shut."""
    with hansard.open(path) as store:
        session = store.session(ID)
        with faults.fail_sync(lost=None, lasting=True):
            with pytest.raises(hansard.SyncFailed):
                session.add_message({"n": 2})
            with pytest.raises(hansard.SyncFailed):
                session.verify()
        with pytest.raises(hansard.SyncFailed):
            session.add_message({"n": 3})
        assert append_elsewhere(path) == (3, "SyncFailed")
        assert session.verify().ok
        session.add_message({"n": 3})
    assert read(path) == [0, 1, 2, 3]


def test_a_failed_sync_of_a_directory_is_a_failed_sync(tmp_path: Path) -> None:
    """F-31, F-35: a record whose names are not durable is not acknowledged either."""
    with hansard.open(tmp_path / "store") as store:
        session = store.session(ID)
        only = ("sync_directory",)
        for at in (1, 2):
            with faults.fail(errno.EIO, at=at, only=only), pytest.raises(hansard.SyncFailed):
                store.session(f"{at}").add_message({"n": 0})
            with pytest.raises(hansard.SyncFailed):
                store.session(f"{at}").add_message({"n": 1})
        session.add_message({"n": 0})


def loses_what_it_acknowledged(path: Path) -> bool:
    """Append through a failing sync and a power cut; return whether something acknowledged is lost."""
    acknowledged = [0, 1]
    with hansard.open(path) as store, faults.fail_sync(at=2, lost="nul", seen="later") as fault:
        for number in range(2, 8):
            try:
                store.session(ID).add_message({"n": number})
                acknowledged.append(number)
            except hansard.SyncFailed:
                break
        fault.drop_unsynced()
    try:
        return read(path)[: len(acknowledged)] != acknowledged
    except hansard.Damaged as error:
        # Nothing can be read after the hole. Before it, every acknowledged message is intact.
        log = (path / "sessions" / ID / "log.jsonl").read_bytes()
        return not all(b'"n":%d}' % number in log[: error.offset] for number in acknowledged)


def test_this_store_loses_nothing_that_it_acknowledged(path: Path) -> None:
    """N-29, F-35: the same fault that finds the mutants out finds nothing here."""
    assert not loses_what_it_acknowledged(path)
