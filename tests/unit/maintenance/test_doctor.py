"""A diagnosis reports the state of a store, and changes nothing."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import hansard
from hansard.log import disk
from hansard.maintenance.doctor import Diagnosis, Diagnostic
from tests.crashlab import faults
from tests.unit.disk_probe import flip, index_of, tree

PATIENCE = 60.0
MESSAGE = {"role": "user", "content": "hello"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with a session that was forked, one in the trash, a cursor, an index."""
    where = tmp_path / "s"
    with hansard.open(where, durability="os") as store:
        session = store.session("a/1")
        session.add_messages([MESSAGE, {"role": "user", "content": "x" * 500}])
        session.fork("a/2").add_message(MESSAGE)
        session.compact()
        session.add_message(MESSAGE)
        store.session("gone").add_message(MESSAGE)
        store.delete("gone")
        with store.follow(cursor="mine") as follower:
            follower.take(0.0)
        store.search("hello")
    return where


def diagnose(path: Path) -> Diagnosis:
    """Examine a store as the command does."""
    with hansard.open(path, read_only=True) as store:
        return store.diagnose()


def only(found: Diagnosis) -> Diagnostic:
    """Return the one diagnostic that there is."""
    (diagnostic,) = found.diagnostics
    return diagnostic


def test_a_sound_store_has_no_diagnostics(path: Path) -> None:
    """A store without problems has no diagnostics, and the right counts."""
    found = diagnose(path)
    assert found.diagnostics == []
    assert found.ok
    assert (found.version, found.sessions, found.trash, found.cursors) == (1, 2, 1, 1)
    assert (found.locks, found.leftovers, found.oddities) == ([], [], [])
    assert found.home.owner == found.home.user == os.geteuid()
    assert found.home.writable
    assert (found.home.free_bytes or 0) > 0
    assert found.index.there
    assert found.index.bytes > 0


def test_a_diagnosis_changes_no_file(path: Path) -> None:
    """N-62: diagnosing changes no file, even with an index that another process left open."""
    before = tree(path)
    diagnose(path)
    assert tree(path) == before
    program = (
        f"import hansard, os; s = hansard.open({str(path)!r}); s.sessions()\n"
        "s.session('b').add_message({'role': 'user'}); s.sessions(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program], timeout=PATIENCE, check=True)
    assert (path / f"{index_of(path).name}-wal").exists()
    before = tree(path)
    assert diagnose(path).index.there
    after = tree(path)
    # The file that readers of SQLite use in common is theirs to change; it holds nothing.
    assert {k: v for k, v in after.items() if not k.endswith("-shm")} == {
        k: v for k, v in before.items() if not k.endswith("-shm")
    }


def test_whose_temporary_files_are_is_said(path: Path) -> None:
    """N-38: a temporary file is a leftover unless a process has locked it."""
    dead = 2**22 + 1
    staged = f".tmp-staged-{dead}-{'0' * 16}"
    used = f".tmp-probe-{dead}-{'0' * 16}"
    left = f".tmp-log.jsonl-{os.getpid()}-{'1' * 16}"
    for name, folder in ((staged, path), (left, path / "sessions" / "a+1")):
        (folder / name).write_bytes(b"12345")
        (folder / name).chmod(0o600)
    directory = disk.open_root(str(path))
    held = disk.create_file(directory, used)
    past = datetime.now(UTC) - timedelta(days=2)
    os.utime(path / used, (past.timestamp(), past.timestamp()))
    found = diagnose(path)
    del held
    told = {Path(one.where).name: one.what for one in found.leftovers}
    assert told == {staged: "temporary", left: "temporary"}
    assert (only(found).code, only(found).count, found.ok) == ("leftover", 2, True)


def test_what_a_repair_has_kept_is_listed(path: Path) -> None:
    """N-85: damaged files that a repair kept are listed with their bytes, until they are removed."""
    log = path / "sessions" / "a+1" / "log.jsonl"
    flip(log, -30)
    with hansard.open(path) as store:
        kept = store.session("a/1").repair().kept
    found = diagnose(path)
    assert [Path(one.where).name for one in found.leftovers] == [Path(k).name for k in kept]
    assert [one.what for one in found.leftovers] == ["damaged"] * len(kept)
    assert "kept-damage" in {diagnostic.code for diagnostic in found.diagnostics}
    assert found.ok


def test_a_held_lock_names_its_holder(path: Path) -> None:
    """N-23: the holder of a lock is named with its command; a stopped one is a problem."""
    program = (
        f"import sys; from hansard.log.disk import Lock; import os\n"
        f"lock = Lock(os.open({str(path / 'sessions' / 'a+1' / 'lock')!r}, os.O_RDWR), '')\n"
        "lock.acquire(0); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"held\n"
            found = diagnose(path)
            (lock,) = found.locks
            assert (lock.pid, lock.stopped, found.ok) == (child.pid, False, True)
            # The program without its arguments, which may contain a password.
            assert lock.command == sys.executable
            os.kill(child.pid, 19)  # SIGSTOP
            os.waitid(os.P_PID, child.pid, os.WSTOPPED)
            stopped = diagnose(path)
            assert (only(stopped).code, stopped.ok) == ("stopped-holder", False)
            assert str(child.pid) in only(stopped).advice
        finally:
            child.kill()
    assert diagnose(path).locks == []


def loosen(path: Path) -> None:
    """Let others read a file and a directory."""
    (path / "sessions" / "a+1" / "log.jsonl").chmod(0o644)
    (path / "trash").chmod(0o755)


def plant_a_pipe(path: Path) -> None:
    """Put a pipe in the place of a file."""
    (path / "sessions" / "a+1" / "checkpoint").unlink(missing_ok=True)
    os.mkfifo(path / "sessions" / "a+1" / "checkpoint", 0o600)


def plant_a_note(path: Path) -> None:
    """Leave a file that is not hansard's in three places."""
    for place in (path, path / "sessions" / "a+1", path / "marks"):
        (place / "notes.txt").write_text("mine")


def plant_a_link(path: Path) -> None:
    """Put a link among the sessions."""
    (path / "sessions" / "b").symlink_to(path / "sessions" / "a+1")


def give_away(path: Path) -> None:
    """Give a file to another user."""
    os.chown(path / "sessions" / "a+2" / "log.jsonl", 65534, 65534)


def give_all_away(path: Path) -> None:
    """Give the store to another user."""
    for file in (path, *path.rglob("*")):
        os.chown(file, 65534, 65534)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.mark.parametrize(
    ("change", "codes", "ok"),
    [
        (loosen, {"loose-mode": 2}, False),
        (plant_a_pipe, {"foreign-file": 1}, True),
        (plant_a_note, {"foreign-file": 3}, True),
        (plant_a_link, {"symbolic-link": 1, "unreadable-session": 1}, False),
        pytest.param(give_away, {"other-owner": 1}, False, marks=as_root),
        pytest.param(give_all_away, {"other-user": 1}, True, marks=as_root),
    ],
)
def test_what_is_not_as_it_was_made_is_found(
    change: Callable[[Path], None], codes: dict[str, int], ok: bool, path: Path
) -> None:
    """N-11, N-13, N-87: loose modes, links and files of others are problems; foreign files are notes."""
    change(path)
    before = tree(path)
    found = diagnose(path)
    assert {one.code: one.count for one in found.diagnostics} == codes
    assert found.ok is ok
    assert tree(path) == before


def test_a_session_that_cannot_be_read_is_named(path: Path) -> None:
    """N-35: an unreadable session is named, and the others are counted."""
    (path / "sessions" / "a+2" / "log.jsonl").write_bytes(b"nonsense\n")
    found = diagnose(path)
    assert (only(found).code, only(found).where) == ("unreadable-session", "a/2")
    assert "hansard verify" in only(found).advice
    assert found.sessions == 2


def test_a_failed_sync_is_found(path: Path) -> None:
    """F-35: a session that is write-blocked after a failed sync is named until it was verified."""
    with hansard.open(path) as store:
        with faults.fail(errno.EIO, only={"sync"}), pytest.raises(hansard.SyncFailed):
            store.session("a/2").add_message(MESSAGE)
        found = diagnose(path)
        assert (only(found).code, only(found).where, found.ok) == ("failed-sync", "a/2", False)
        assert store.session("a/2").verify().ok
    assert diagnose(path).ok


def test_an_event_of_tomorrow_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-16: a last event in the future is a problem of the clock."""
    now = datetime.now(UTC).timestamp()
    monkeypatch.setattr("hansard.clock.time.time", lambda: now - 86400)
    found = diagnose(path)
    assert (only(found).code, only(found).count, found.ok) == ("future-event", 2, False)


def test_little_room_is_a_problem(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-29: a disk that is nearly full, in bytes or in files, is a problem before an append fails."""
    monkeypatch.setattr(disk, "free_bytes", lambda _: 5_000_000)
    monkeypatch.setattr(disk, "free_names", lambda _: 10)
    found = diagnose(path)
    assert [diagnostic.code for diagnostic in found.diagnostics] == ["low-space", "few-inodes"]


def test_a_network_file_system_is_a_problem(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store on a network file system is a problem, with its type."""
    table = f"27 1 254:0 / / rw - ext4 /dev/vda rw\n40 27 0:40 / {path.parent} rw - nfs4 x:/ rw\n"
    told = disk.told_by_system
    monkeypatch.setattr(
        disk, "told_by_system", lambda p: table if p.endswith("mountinfo") else told(p)
    )
    found = diagnose(path)
    assert (only(found).code, found.home.file_system) == ("network-file-system", "nfs4")
    assert not found.ok


def test_a_part_of_a_store_sees_no_files(path: Path) -> None:
    """N-69: diagnosing a scoped store covers its sessions, and no others and no files."""
    loosen(path)
    (path / "sessions" / "a+1" / "log.jsonl").write_bytes(b"nonsense\n")
    with hansard.open(path, read_only=True) as store:
        found = store.scoped("b/").diagnose()
    assert (found.sessions, found.trash, found.diagnostics, found.oddities) == (0, 0, [], [])


def test_a_diagnosis_next_to_writers_finds_nothing(path: Path) -> None:
    """N-62: while processes create, seal and delete sessions, nothing is unexpected."""
    program = (
        f"import hansard\nfrom itertools import count\n"
        f"with hansard.open({str(path)!r}, durability='os') as s:\n"
        "  for n in count():\n"
        "    x = s.session(f'w/{n}'); x.add_message({'role': 'user'}); x.compact()\n"
        "    if n % 3 == 0: s.delete(f'w/{n}'); print('go', flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            for _ in range(8):
                assert child.stdout.readline() == b"go\n"
                found = diagnose(path)
                assert [r for r in found.diagnostics if r.severity == "problem"] == []
                assert found.oddities == []
            assert child.poll() is None
        finally:
            child.kill()
