"""Claims about a session that is deleted or restored while others use it: N-28, F-36."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.backend.local.log import LocalLog
from hansard.errors import DiskFailed, LockTimeout, SessionDeleted, SessionNotFound
from hansard.log import disk, names, session_files
from hansard.log.segment_reader import open_segment
from hansard.log.session_files import SessionFiles
from hansard.log.writer import LogWriter
from tests.crashlab import faults
from tests.faults.workers import open_store, replaced
from tests.unit.disk_probe import log_of


def once(
    call: Callable[..., object],
    *,
    before: Callable[[], object] = bool,
    after: Callable[[], object] = bool,
) -> Callable[..., object]:
    """Return a call of which the first, and only the first, has something happen before and after it."""
    left = [True]

    def call_between(*arguments: object) -> object:
        if not left:
            return call(*arguments)
        left.clear()
        before()
        result = call(*arguments)
        after()
        return result

    return call_between


def test_a_name_in_the_trash_is_not_given_to_a_new_session(tmp_path: Path) -> None:
    """N-28, F-36: a writer that looks for a session while it is restored and deleted begins no other."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store, open_store(str(path), "os") as other:
        other.session("s").add_message({"by": "other"})
        other.delete("s")
        # It is not in its place when the writer looks there, and not in the trash when it looks there.
        present = once(
            disk.present, before=lambda: other.restore("s"), after=lambda: other.delete("s")
        )
        with replaced("present", present), pytest.raises(SessionDeleted):
            store.session("s").add_message({"by": "us"})
        assert store.sessions().items == []
        assert not log_of(path, "s").exists()
        with pytest.raises(SessionDeleted):
            store.session("s").add_message({"by": "us"})
        store.restore("s")
        assert store.session("s").messages() == [{"by": "other"}]
        assert store.session("s").add_message({"by": "us"}).seq == 2
        assert other.session("s").add_message({"by": "other"}).seq == 3
        assert store.verify().ok


def test_a_session_never_looks_absent_while_it_is_restored(tmp_path: Path) -> None:
    """N-28, N-31: a caller that looks for a session while it is restored finds it, and not an empty one."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store:
        store.session("s").add_message({"by": "us"})

        def delete(other: hansard.Store) -> bool:
            other.delete("s")
            return True

        looks: list[Callable[[hansard.Store], object]] = [
            lambda other: other.session("s").messages() == [{"by": "us"}],
            lambda other: other.session("s").seq == 1,
            lambda other: other.exists("s"),
            delete,
        ]
        for look in looks:
            store.delete("s")
            # Not in its place when it is looked for there, and not in the trash when looked for there.
            present = once(disk.present, before=lambda: store.restore("s"))
            with open_store(str(path), "os") as other, replaced("present", present):
                assert look(other)
            if not store.exists("s"):
                store.restore("s")


def test_no_process_restores_between_the_two_steps_of_a_deletion(tmp_path: Path) -> None:
    """N-28, F-36: what `delete` has deleted stays so, for warm handles too, until it is restored."""
    path = tmp_path / "store"
    with (
        open_store(str(path), "os") as store,
        open_store(str(path), "os", lock_timeout=0.02) as other,
    ):
        warm = other.session("s")
        warm.add_message({"by": "other"})

        def restore() -> None:
            with pytest.raises(LockTimeout):
                other.restore("s")

        with replaced("move", once(disk.move, before=restore)):
            store.delete("s")
        with pytest.raises(SessionDeleted):
            warm.add_message({"by": "other"})
        with pytest.raises(SessionDeleted):
            warm.messages()
        other.restore("s")
        assert warm.add_message({"by": "other"}).seq == 2
        assert store.verify().ok


def finish_in_the_middle(
    path: str, patch: pytest.MonkeyPatch, store: hansard.Store, first: Callable[[], object]
) -> None:
    """Purge a session of which a killed process wrote only the note, while others do something first."""
    with open_store(path, "os") as killed:
        killed.session("s").add_message({"by": "us"})
        with faults.kill(only=("move",)), pytest.raises(faults.Killed):
            killed.delete("s")
    move = LogWriter.delete

    def after_others(writer: LogWriter, **options: Any) -> bool:
        patch.setattr(LogWriter, "delete", move)
        first()
        return move(writer, **options)

    patch.setattr(LogWriter, "delete", after_others)
    store._backend.purge("s")


def test_a_deletion_is_finished_even_if_another_process_moves_the_session_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-28, F-36: of two processes that finish a deletion, each finds it finished."""
    path = str(tmp_path / "store")
    with open_store(path, "os") as store, open_store(path, "os") as other:
        log = other._backend.log("s")
        assert isinstance(log, LocalLog)
        moved: list[bool] = []
        finish_in_the_middle(path, monkeypatch, store, lambda: moved.append(log.finish_delete()))
        assert moved == [True]
        assert other.trash() == []
        assert not other.exists("s")


def test_finishing_a_deletion_does_not_move_another_session_of_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-28, F-36: a process moves only the session whose note it has read, not one created since."""
    path = str(tmp_path / "store")
    with open_store(path, "os") as store, open_store(path, "os") as other:

        def purge_and_create() -> None:
            # The purge is not finished: the lock file still has its name.
            with replaced("remove_directory", lambda *_: None):
                other.purge("s")
            other.session("s").add_message({"by": "other"})

        with pytest.raises(SessionNotFound):
            finish_in_the_middle(path, monkeypatch, store, purge_and_create)
        assert other.trash() == []
        assert other.session("s").messages() == [{"by": "other"}]


def test_a_session_is_not_deleted_while_another_one_of_its_name_is_in_the_trash(
    tmp_path: Path,
) -> None:
    """N-28, F-36: as after a restore from a backup: the deletion fails, and leaves the session as it was."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store:
        store.session("s").add_message({"n": 1})
        shutil.copytree(log_of(path, "s").parent, tmp_path / "backup")
        store.delete("s")
        shutil.copytree(tmp_path / "backup", log_of(path, "s").parent)
        with pytest.raises(DiskFailed, match="nothing was changed"):
            store.delete("s")
        assert store.session("s").add_message({"n": 2}).seq == 2
        assert store.session("s").messages() == [{"n": 1}, {"n": 2}]
        assert (path / names.TRASH / "s").exists()


def test_a_purge_takes_no_other_session_of_the_name_for_the_one_that_it_has_checked(
    tmp_path: Path,
) -> None:
    """F-36, F-66: the session is in its place, a kill after its note; another is in the trash."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store:
        store.session("s").add_message({"n": 1})
        shutil.copytree(log_of(path, "s").parent, tmp_path / "backup")
        with faults.kill(only=("move",)), pytest.raises(faults.Killed):
            store.delete("s")
    shutil.copytree(tmp_path / "backup", path / names.TRASH / "s")
    with open_store(str(path), "os") as store:
        with pytest.raises(DiskFailed):
            store.purge("s")
        assert (path / names.TRASH / "s" / names.LOG).exists()


def test_a_purge_concurrent_with_a_read_is_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-64, F-175: a directory that lost its log first, and its sealed segments not yet, was purged."""
    path = tmp_path / "store"

    def remove_log(directory: int, name: str) -> None:
        disk.remove(disk.open_directory(directory, name), names.LOG)

    with open_store(str(path), "os") as store, open_store(str(path), "os") as other:
        other.session("s").add_message({"n": 1})
        other.session("s").compact()
        other.delete("s")
        read = partial(open_segment, writable=False)
        purge = once(read, before=lambda: other.purge("s"))
        monkeypatch.setattr(session_files, "open_segment", lambda *words, **_: purge(*words))
        with replaced("remove_directory", remove_log):
            assert store._backend.log("s", from_trash=True).reader().head() is None


def test_a_deletion_between_the_two_steps_of_a_restoration_is_noticed(tmp_path: Path) -> None:
    """N-28, F-36, F-63: a session deleted again while it is restored is deleted, also for warm handles."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store, open_store(str(path), "os") as other:
        warm = store.session("s")
        warm.add_message({"by": "us"})
        other.delete("s")
        move = once(disk.move, after=lambda: other.delete("s"))
        with replaced("move", move), pytest.raises(SessionDeleted):
            store.restore("s")
        assert not store.exists("s")
        with pytest.raises(SessionDeleted):
            warm.add_message({"by": "us"})
        other.restore("s")
        assert warm.add_message({"by": "us"}).seq == 2
        assert store.verify().ok


def test_a_writer_after_a_sealed_segment_is_told_of_a_deletion_and_continues_after_a_restore(
    tmp_path: Path,
) -> None:
    """N-28, F-87: a missing log after a sealed segment leaves the writer no half-open files."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store:
        session = store.session("s")
        for number in range(2):
            session.add_message({"n": number})
        # The segment is sealed and compressed, and its old file, which this writer has open, is still there.
        with (
            open_store(str(path), "os") as other,
            faults.kill(only=("remove",)),
            pytest.raises(faults.Killed),
        ):
            other.session("s").compact()
        with open_store(str(path), "os") as other:
            other.delete("s")
            with pytest.raises(SessionDeleted):
                session.messages()
            for _ in range(2):
                with pytest.raises(SessionDeleted):
                    session.add_message({"n": 2})
            other.restore("s")
        assert session.add_message({"n": 2}).seq == 3
        assert session.messages() == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_session_that_is_sealed_again_and_again_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that another process sealed before the lock was taken is not taken for a deleted session."""
    path = tmp_path / "store"
    with hansard.open(path) as store, hansard.open(path) as other:
        store.session("s").append("x.y", {"n": 0})
        log, rival = store._backend.log("s"), other._backend.log("s")
        assert isinstance(log, LocalLog)
        assert isinstance(rival, LocalLog)
        opening = SessionFiles.open_to_append
        left = [1, 2]

        def seal_after(files: SessionFiles, **options: bool) -> disk.Lock | None:
            lock = opening(files, **options)
            if files is log.files and left:
                other.session("s").append("x.y", {"n": left.pop()})
                rival._writer.seal()
            return lock

        monkeypatch.setattr(SessionFiles, "open_to_append", seal_after)
        store.delete("s")
        monkeypatch.undo()
        assert not store.exists("s")
        store.restore("s")
        assert [event.data["n"] for event in store.session("s").events()] == [0, 2]
