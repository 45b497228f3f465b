"""Stores of a Unix group: with any umask, all members read, write and maintain them."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from hansard.log import disk
from tests.programs import python
from tests.unit.disk_probe import modes

GROUP = 54_321

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes the superuser")

#: Runs a function as each of two members of the group, and as another user, in children.
PRELUDE = """
import contextlib, io, os, sys
import hansard
from hansard.cli import app
warm = hansard.open(sys.argv[1] + "/warm")
session = warm.session("a")
session.add_messages([{"role": "user", "content": "x"}] * 3, key="k")
session.fork("b")
session.redact(1)
session.compact()
warm.search("x"), warm.verify(), warm.diagnose(), warm.follow(cursor="c").close()
warm.delete("a"), warm.restore("a"), warm.stats()
warm.close()
with contextlib.redirect_stdout(io.StringIO()):
    for words in (["add", "b", "x"], ["ls"]):
        app.run(["-s", sys.argv[1] + "/warm", *words])
path = sys.argv[1] + "/store"

def start(uid, groups, do):
    pid = os.fork()
    if not pid:
        try:
            os.umask(0o077)
            os.setgroups(groups); os.setgid(uid); os.setuid(uid)
            do()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}")
            sys.stdout.flush()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    return pid

def act(uid, groups, do):
    os.waitpid(start(uid, groups, do), 0)

def message(text):
    return {"role": "user", "content": text}
"""


@pytest.fixture
def above() -> Iterator[Path]:
    """A directory that all users may enter, with one for a store: of a member, and for the group."""
    with tempfile.TemporaryDirectory(prefix="hansard-group-") as directory:
        Path(directory).chmod(0o755)
        (Path(directory) / "store").mkdir()
        give(Path(directory) / "store", 0o2770)
        yield Path(directory)


def give(path: Path, mode: int) -> None:
    """Give a directory to the first member and the group."""
    os.chown(path, 1001, GROUP)
    path.chmod(mode)


def run(program: str, above: Path) -> list[str]:
    """Run a program after the prelude; return its output."""
    done = python("-c", PRELUDE + program, above)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@as_root
def test_members_share_everything(above: Path) -> None:
    """F-172: two accounts with umask 077 append, index, compact, repair, delete and follow in turn."""
    program = f"""
def first():
    with hansard.open(path, group=True) as store:
        store.session("a").add_message(message("one"))
        store.create("gone").add_message(message("x"))
        store.delete("gone")
        list(store.sessions().items)
        store.follow(cursor="c").close()

def second():
    with hansard.open(path, group=True, auto_compact=False) as store:
        session = store.session("a")
        session.add_message(message("two"))
        session.fork("b").add_message(message("three"))
        session.redact(1)
        print(session.compact().sessions, store.verify().ok)
        store.restore("gone")
        print(len(store.search("two")), len(store.sessions().items))
        store.follow(cursor="c").close()
        print([one.code for one in store.diagnose().diagnostics if one.severity == "problem"])

def third():
    with hansard.open(path, group=True) as store:
        session = store.session("a")
        session.add_message(message("four"))
        print([one["content"] for one in session.messages()], session.compact().sessions)
        store.delete("gone")
        store.purge("gone")
        print(len(store.search("four")), [info.id for info in store.sessions().items])

act(1001, [{GROUP}], first)
act(1002, [{GROUP}], second)
act(1001, [{GROUP}], third)
"""
    assert run(program, above) == ["1 True", "1 3", "[]", "['two', 'four'] 1", "1 ['a', 'b']"]
    found = modes(above / "store")
    assert {mode for mode in found.values() if mode[0] == "d"} == {"drwxrws---"}
    assert {mode for mode in found.values() if mode[0] == "-"} == {"-rw-rw----"}
    assert {path.stat().st_gid for path in (above / "store").rglob("*")} == {GROUP}
    assert {path.stat().st_uid for path in (above / "store").rglob("*")} == {1001, 1002}
    assert not [name for name in found if ".tmp" in name]


@as_root
def test_members_begin_sessions_at_the_same_time(above: Path) -> None:
    """F-172: no member meets a file or directory without its mode, however many begin at once."""
    program = f"""
def begin():
    with hansard.open(path, group=True, durability="os") as store:
        for number in range(300):
            store.session(f"s{{number}}").add_message(message("one"))

for pid in [start(uid, [{GROUP}], begin) for uid in (1001, 1002)]:
    os.waitpid(pid, 0)
with hansard.open(path) as store:
    print({{info.message_count for info in store.sessions().items}}, store.verify().ok)
"""
    assert run(program, above) == ["{2} True"]


@as_root
def test_the_choice_is_stored_and_who_does_not_make_it_is_refused(above: Path) -> None:
    """F-173: a member without `group=True` may only read another user's store; the owner does not need it."""
    program = f"""
def make():
    hansard.open(path, group=True).session("a").add_message(message("one"))

def use():
    with hansard.open(path) as store:
        print(store.session("a").add_message(message("two")).seq)

def read():
    with hansard.open(path, read_only=True) as store:
        print(len(store.session("a").messages()))

def command(*words):
    return lambda: app.run(list(words))

act(1001, [{GROUP}], make)
act(1001, [{GROUP}], use)
act(1002, [{GROUP}], use)
act(1002, [{GROUP}], read)
act(1003, [], use)
act(1002, [{GROUP}], command("-s", path, "add", "a", "three"))
act(1002, [{GROUP}], read)
os.chdir(path)
os.rename(path, sys.argv[1] + "/.hansard")
os.chdir(sys.argv[1])
act(1002, [{GROUP}], command("add", "a", "four"))
act(1002, [{GROUP}], command("ls", "--json"))
os.rename(sys.argv[1] + "/.hansard", path)
"""
    owner, refused, count, stranger, *rest = run(program, above)
    assert owner == "2"
    assert refused.startswith("UnsafePath")
    assert refused.endswith(
        "use your own directory, group=True if it is for your group, or read_only=True"
    )
    assert count == "2"
    assert "Permission denied" in stranger
    added, count, listed = rest
    assert (added, count) == ("a: 1 event, seq 3", "3"), "the call names the store"
    assert '"a"' in listed, "one in the current directory is only read"
    text = (above / "store" / "hansard.json").read_text()
    assert text == '{"hansard":"store","version":1,"group":true}\n'


@as_root
def test_what_the_group_cannot_use_is_refused_with_the_commands_to_run(above: Path) -> None:
    """F-173: a wrong mode or group is found when the store is opened, and the given commands repair it."""
    give(above / "store", 0o755)
    with pytest.raises(hansard.UnsafePath, match="needs group 54321 and mode 2770"):
        hansard.open(above / "store", group=True)
    assert list((above / "store").iterdir()) == []
    give(above / "store", 0o2770)
    with hansard.open(above / "store", group=True) as store:
        store.session("a").add_message({"n": 1})
    (above / "store" / "sessions").chmod(0o700)
    with pytest.raises(hansard.UnsafePath) as refused:
        hansard.open(above / "store")
    (above / "store/sessions/a/log.jsonl").chmod(0o600)
    commands = str(refused.value).partition("owner run: ")[2]
    subprocess.run(["/bin/sh", "-ec", commands], check=True)
    with hansard.open(above / "store") as store:
        store.session("a").add_message({"n": 2})
        problems = [one for one in store.diagnose().diagnostics if one.severity == "problem"]
        assert problems == []
    assert set(modes(above / "store").values()) == {"drwxrws---", "-rw-rw----"}


@as_root
def test_doctor_reports_what_the_group_or_others_may_do(above: Path) -> None:
    """F-172: a file that the group cannot write, and one that others can read, are problems."""
    with hansard.open(above / "store", group=True) as store:
        store.session("a").add_message({"n": 1})
        (above / "store/sessions/a/log.jsonl").chmod(0o600)
        (above / "store/sessions/a/lock").chmod(0o664)
        found = [one.code for one in store.diagnose().diagnostics if one.severity == "problem"]
    assert sorted(found) == ["loose-mode", "tight-mode"]


def test_a_store_of_ones_own_stays_private(tmp_path: Path) -> None:
    """F-3, F-172: without the choice a setgid directory changes nothing; the choice needs a new store."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s").chmod(0o2770)
    with hansard.open(tmp_path / "s") as store:
        store.session("a").add_message({"n": 1})
    found = modes(tmp_path / "s" / "sessions")
    assert {mode[4:].replace("S", "-") for mode in found.values()} == {"------"}
    with pytest.raises(hansard.UnsafePath, match="was not created as a store of a group"):
        hansard.open(tmp_path / "s", group=True)
    for where in ("memory:", "postgresql://h/d"):
        with pytest.raises(ValueError, match="group is only for directories"):
            hansard.open(where, group=True)


def test_a_new_directory_is_for_the_group(tmp_path: Path) -> None:
    """F-172: what does not exist yet gets its modes, with the directories above it."""
    before = os.umask(0o077)
    try:
        with hansard.open(tmp_path / "above" / "s", group=True) as store:
            store.session("a").add_message({"n": 1})
    finally:
        os.umask(before)
    found = modes(tmp_path / "above")
    assert {mode for mode in found.values() if mode[0] == "d"} == {"drwxrws---"}
    assert {mode for mode in found.values() if mode[0] == "-"} == {"-rw-rw----"}


def test_a_directory_that_another_creates_first_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-172: a member who is faster wins; nothing is replaced but an empty directory, and nothing is left."""
    path = tmp_path / "d"
    path.mkdir()
    directory = disk.for_group(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
    (path / "x").mkdir()
    (path / "x" / "file").touch()
    monkeypatch.setattr(disk, "present", lambda *_: False)
    assert not disk.make_directory(directory, "x")
    (path / "lock").touch()
    assert stat.S_ISREG(os.fstat(disk.open_file(directory, "lock", create=True)).st_mode)
    assert sorted(os.listdir(path)) == ["lock", "x"]
    assert os.listdir(path / "x") == ["file"]


def test_a_directory_that_is_being_created_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-64, N-38: a compaction removes what purges have left, and not the directory of a new audit log."""
    path = tmp_path / "s"
    other = hansard.open(path, group=True)
    rename = os.rename

    def compact_first(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if target == "audit":
            other.compact()
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", compact_first)
    with hansard.open(path, group=True) as store:
        store.session("a").add_message({"n": 1})
        store.delete("a")
        assert [event.kind for event in other.audit()] == ["session.deleted"]
    other.close()


def test_a_kill_between_creation_and_mode_leaves_no_name(tmp_path: Path) -> None:
    """F-172: killed before any mode is set, a member leaves nothing under its name that others cannot use."""
    program = """
import os, sys
import hansard
with hansard.open(sys.argv[1], group=True, durability="os") as store:
    real, left = os.fchmod, int(sys.argv[2])

    def fchmod(descriptor, mode):
        global left
        left -= 1
        if not left:
            os._exit(9)
        real(descriptor, mode)

    os.umask(0o077)
    os.fchmod = fchmod
    session = store.session("a")
    session.add_message({"n": 1})
    store.sessions()
    session.compact()
"""
    for at in range(1, 50):
        path = tmp_path / f"s{at}"
        hansard.open(path, group=True).close()
        command = [sys.executable, "-c", program, str(path), str(at)]
        code = subprocess.run(command, check=False).returncode
        named = {name: mode for name, mode in modes(path).items() if ".tmp-" not in name}
        assert set(named.values()) <= {"drwxrws---", "-rw-rw----"}, (at, named)
        with hansard.open(path) as store:
            store.session("a").add_message({"n": 2})
            assert store.verify().ok
        if code != 9:
            break
    assert code == 0
    assert at > 8, "directories, locks, segments and derived files were begun"
