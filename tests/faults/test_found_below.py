"""Defects that faults below Python have found, repeated with faults in Python: fast, without a compiler."""

import errno
import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from hansard.backend.local.backend import LocalBackend
from hansard.index import erase_removed
from hansard.log import disk
from tests.crashlab import faults
from tests.unit.disk_probe import index_of, log_of

ID = "s"
SAID = [{"role": "user", "content": "first"}, {"role": "user", "content": "second"}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with a session of two messages."""
    with hansard.open(tmp_path / "store") as store:
        store.session(ID).add_messages(SAID)
    return tmp_path / "store"


def test_syncs_that_fail_after_a_sealed_segment_shut_the_session(path: Path) -> None:
    """F-35, F-86: a failed sync's note needs a segment, that needs a sync, and its failure no other note."""
    with hansard.open(path) as store, faults.kill(only=("move",)), pytest.raises(faults.Killed):
        store.session(ID).compact()
    with hansard.open(path) as store:
        session = store.session(ID)
        with faults.fail_sync(lost=None, lasting=True):
            for _ in range(2):
                with pytest.raises(hansard.SyncFailed):
                    session.add_message({"role": "user", "content": "third"})
        assert session.messages() == SAID
        assert session.verify().ok
        session.add_message({"role": "user", "content": "fourth"})
        assert [said["content"] for said in session.messages()] == ["first", "second", "fourth"]


def test_a_verification_reads_a_segment_whose_sync_failed_from_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-35: the sync that fails is that of a segment which has been sealed by the time of the check."""
    with hansard.open(path) as store, faults.kill(only=("move",)), pytest.raises(faults.Killed):
        store.session(ID).compact()
    with hansard.open(path) as store:
        with faults.fail_sync(lost=None), pytest.raises(hansard.SyncFailed):
            store.session(ID).add_message({"role": "user", "content": "third"})
        forgotten = []
        forget = disk.forget_cached

        def forget_and_note(descriptor: int) -> None:
            forgotten.append(disk.identity(descriptor))
            forget(descriptor)

        monkeypatch.setattr(disk, "forget_cached", forget_and_note)
        assert store.session(ID).verify().ok
        segments = log_of(path, ID).parent.glob("*.jsonl")
        files = [(found.st_dev, found.st_ino) for found in map(Path.stat, segments)]
        assert len(files) == 2
        assert sorted(forgotten) == sorted(files)


def test_the_time_of_the_last_event_is_found_before_a_piece_of_notes(path: Path) -> None:
    """F-29: a reader of a log that ended in a note, and is sealed since, skips a piece without events."""
    with hansard.open(path) as store:
        session = store.session(ID)
        # Longer than what is read at once: the note after it has a piece for itself.
        with faults.fail_sync(lost=None), pytest.raises(hansard.SyncFailed):
            session.add_message({"role": "user", "content": "x" * 100_000})
        assert session.verify().ok
        (last,) = session.events(after=2)
        backend = LocalBackend(str(path))
        reader = backend.log(ID).reader()
        session.compact()
        session.add_message({"role": "user", "content": "later"})
        assert backend.log(ID).reader().head() != reader.head()
        head = reader.head()
        backend.close()
        assert head is not None
        assert (head.seq, head.updated) == (last.seq, last.stamp)


def test_an_index_that_cannot_be_removed_is_an_error_of_ours(path: Path) -> None:
    """N-29: a compaction names an index that may contain erased text and cannot be removed."""
    with hansard.open(path) as store:
        store.compact()
        store.sessions()
    index_of(path).write_bytes(b"no database " * 100)
    with hansard.open(path) as store:
        with (
            faults.fail(errno.EIO, only=("remove",), lasting=True),
            pytest.raises(hansard.DiskFailed, match=r"index: remove: .*delete it"),
        ):
            store.compact()
        store.compact()
        assert [info.id for info in store.sessions().items] == [ID]


def test_a_session_that_was_damaged_while_it_was_restored_can_be_repaired(path: Path) -> None:
    """F-35, F-36: it is not in the trash any more, so `restore` cannot bring it back, and `repair` does."""
    with hansard.open(path) as store:
        store.delete(ID)
        deleted = (path / "trash" / ID / "log.jsonl").read_bytes()
        store.restore(ID)
    # The sync of the `restored` note has failed, and its bytes are lost; the `failed` note is there.
    log = log_of(path, ID)
    with (
        hansard.open(path) as store,
        faults.fail_sync(lost=None),
        pytest.raises(hansard.SyncFailed),
    ):
        store.session(ID).fork("f")
    data = log.read_bytes()
    end = data.index(b"\n", len(deleted)) + 1
    log.write_bytes(deleted + bytes(end - len(deleted)) + data[end:])
    with hansard.open(path) as store:
        session = store.session(ID)
        assert not session.verify().ok
        assert session.repair().repaired
        assert session.verify().ok
        assert session.messages()[:2] == SAID
        session.add_message({"role": "user", "content": "fourth"})
        assert [info.id for info in store.sessions().items] == [ID]


def test_a_lock_that_is_refused_is_not_taken_for_one_that_is_held(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-26, N-29: a refused lock is reported immediately, and not as held by another process."""

    def refuse(descriptor: int, how: int) -> None:
        del descriptor
        if not how & fcntl.LOCK_UN:
            raise PermissionError(errno.EACCES, "refused")

    # As a security module answers it.
    monkeypatch.setattr(disk, "_flock", refuse)
    with hansard.open(path, lock_timeout=5) as store:
        with pytest.raises(hansard.DiskFailed, match="lock: Permission denied"):
            store.session(ID).add_message({"role": "user", "content": "third"})
        monkeypatch.undo()
    with hansard.open(path) as store:
        assert store.session(ID).messages() == SAID
        store.session(ID).add_message({"role": "user", "content": "third"})


def test_a_store_that_cannot_be_listed_is_an_error_of_ours(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-29: a disk that fails while a compaction erases the index is a `DiskFailed` that names the index."""

    def refuse(_: int) -> Iterator[str]:
        raise OSError(errno.EIO, "Input/output error")

    with hansard.open(path) as store:
        monkeypatch.setattr(disk, "names", refuse)
        with pytest.raises(hansard.DiskFailed, match="index: remove: Input/output error"):
            erase_removed(store._backend)
        monkeypatch.undo()


def test_a_lock_that_a_dead_disk_refuses_is_an_error_of_ours(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-29: on a file system that was shut down, an append raises `DiskFailed`, and nothing is appended."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with hansard.open(path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(disk, "open_file", refuse)
            patch.setattr(disk, "status_of", refuse)
            with pytest.raises(hansard.DiskFailed, match="nothing was appended"):
                store.session(ID).add_message({"role": "user", "content": "third"})
        assert store.session(ID).messages() == SAID
