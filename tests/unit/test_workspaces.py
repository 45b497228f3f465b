"""Where a session belongs, and which one a workspace goes on with: N-61, N-54, N-62, N-11, N-13."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import hansard
from hansard import Session, Store, workspace
from hansard.backend.contract import AppendRequest
from hansard.event.event import NewEvent
from hansard.event.kinds import MESSAGE_ADDED
from tests.crashlab import faults
from tests.unit.disk_probe import log_of, tree

NOW = datetime.now(UTC)


def say(store: Store, session_id: str, *, hours: float = 0.0) -> Session:
    """Say something in a session, so many hours ago."""
    stamp = (NOW - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    data = b'{"message":{"role":"user","content":"hi"}}'
    store._backend.log(session_id).append(
        AppendRequest([NewEvent(MESSAGE_ADDED, data, control=False, time=stamp)])
    )
    return store.session(session_id)


def repository(folder: Path) -> Path:
    """Make a folder that is a git repository, as far as anybody looks."""
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return folder


def marker(folder: Path) -> Path:
    """Return the file that makes a repository known again."""
    return folder / ".git" / workspace.MARKER


def latest(
    store: Store,
    folder: Path | str | None = None,
    *,
    archived: bool = False,
    skip_damaged: bool = False,
) -> str | None:
    """Return the id of the latest session."""
    found = store.latest(workspace=folder, archived=archived, skip_damaged=skip_damaged)
    return None if found is None else found.id


def damage(store: Path, name: str, place: Callable[[bytes], int]) -> None:
    """Change one byte of a log."""
    path = log_of(store, name)
    data = bytearray(path.read_bytes())
    data[place(bytes(data))] ^= 1
    path.write_bytes(data)


def last_record(data: bytes) -> int:
    """Return a place in the last line of a log."""
    return data.rindex(b'"content"') + 1


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """Return a path for a store in files."""
    return tmp_path / "store"


# -- the newest ---------------------------------------------------------------------------------


def test_the_latest_is_the_one_in_which_something_happened_last(store: Store) -> None:
    """N-61: by the times of events, whatever the order in which sessions were made."""
    assert store.latest() is None
    say(store, "b", hours=1)
    say(store, "c", hours=3)
    say(store, "a", hours=2)
    found = store.latest()
    assert isinstance(found, Session)
    assert found.id == "b"
    say(store, "c")
    assert latest(store) == "c"
    store.delete("c")
    assert latest(store) == "b"
    found = store.latest(prefix="a")
    assert found is not None
    assert found.id == "a"
    assert store.latest(prefix="x") is None


@pytest.mark.parametrize("how", ["title", "metadata", "archive", "close", "reopen"])
def test_housekeeping_is_no_activity(store: Store, how: str) -> None:
    """N-54: to name, archive or close a session does not make it the latest, nor updated."""
    old = say(store, "old", hours=5)
    say(store, "new", hours=1)
    before = store.sessions(prefix="old").items[0].updated
    do: dict[str, Callable[[], object]] = {
        "title": lambda: old.set_title("T"),
        "metadata": lambda: old.set_metadata(user="u7"),
        "archive": old.archive,
        "close": old.close,
        "reopen": old.reopen,
    }
    for _ in range(2):
        do[how]()
    assert latest(store, archived=True) == "new"
    assert store.sessions(prefix="old").items[0].updated == before
    old.add_message({"role": "user", "content": "more"})
    assert latest(store, archived=True) == "old"
    assert store.sessions(prefix="old").items[0].updated > before


def test_a_session_of_nothing_but_housekeeping_is_as_old_as_its_beginning(store: Store) -> None:
    """N-54: a session that has only metadata was last active when it began."""
    session = store.session("s")
    for number in range(3):
        session.set_metadata(n=number)
    (info,) = store.sessions().items
    assert info.updated == info.created
    assert latest(store) == "s"


def test_an_archived_session_is_not_resumed_unless_asked_for(store: Store) -> None:
    """An archived session is out of the way, until it is unarchived or asked for."""
    say(store, "a", hours=2)
    session = say(store, "b", hours=1)
    session.archive()
    assert latest(store) == "a"
    assert latest(store, archived=True) == "b"
    session.unarchive()
    assert latest(store) == "b"


def test_looking_for_the_latest_writes_nothing(tmp_path: Path, local: Path) -> None:
    """N-62: `latest` works on a read-only store, and leaves store and workspace as they were."""
    folder = repository(tmp_path / "project")
    with hansard.open(local) as store:
        say(store, "s", hours=1).set_metadata(workspace=str(folder))
    # As if another machine had said so: here nobody has marked it yet.
    marker(folder).unlink()
    before = tree(local), tree(folder)
    with hansard.open(local, read_only=True) as store:
        assert latest(store, folder) == "s"
        assert latest(store, tmp_path) is None
    assert (tree(local), tree(folder)) == before
    assert not marker(folder).exists()


# -- where a session belongs ----------------------------------------------------------------------


def test_a_workspace_finds_its_own_sessions_only(store: Store, tmp_path: Path) -> None:
    """A session belongs where its metadata say, however the path is spelled, and nowhere else."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    (tmp_path / "link").symlink_to(one)
    say(store, "tagged", hours=3).set_workspace(one)
    store.create("made", workspace=two, metadata={"title": "T"})
    say(store, "plain", hours=1).set_metadata(workspace=f"{one}/../one/")
    store.session("none").add_message({"role": "user", "content": "hi"})
    assert latest(store, one) == latest(store, tmp_path / "link") == "plain"
    assert latest(store, str(two)) == "made"
    assert latest(store, tmp_path) is None
    assert latest(store) == "none"
    assert store.session("made").metadata == {"title": "T", "workspace": os.path.realpath(two)}
    store.session("plain").set_metadata(workspace=None)
    assert latest(store, one) == "tagged"


def test_relative_paths_and_home_are_the_caller_s(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.` is the current folder of the moment, and `~` the home of the moment (N-90)."""
    project = tmp_path / "home" / "project"
    project.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(project)
    say(store, "s").set_workspace()
    monkeypatch.chdir(tmp_path)
    assert latest(store, "~/project") == latest(store, "home/project") == "s"
    assert latest(store, ".") is None
    for bad in ("", "a\0b"):
        with pytest.raises(ValueError, match="path of a directory"):
            store.latest(workspace=bad)


def test_a_fork_belongs_where_its_parent_does(store: Store, tmp_path: Path) -> None:
    """N-51: a fork inherits its workspace, as of where it was forked, and can get one of its own."""
    folder = tmp_path / "project"
    parent = say(store, "parent", hours=2)
    parent.set_workspace(folder)
    child = parent.fork("child")
    early = child.fork("early", at=1)
    child.add_message({"role": "user", "content": "on"})
    parent.set_workspace(tmp_path / "elsewhere")
    assert latest(store, folder) == "child"
    early.set_workspace(folder)
    early.add_message({"role": "user", "content": "on"})
    assert latest(store, folder) == "early"
    assert latest(store, tmp_path / "elsewhere") == "parent"


# -- moved, renamed, copied -----------------------------------------------------------------------


def test_a_repository_that_was_moved_is_known_again(store: Store, tmp_path: Path) -> None:
    """A moved or renamed git repository keeps its sessions; a folder of another kind is known by its path."""
    folder = repository(tmp_path / "before")
    say(store, "s", hours=1).set_workspace(folder)
    say(store, "sub", hours=2).set_workspace(folder / "src")
    plain = tmp_path / "plain"
    plain.mkdir()
    say(store, "p", hours=1).set_workspace(plain)
    moved = folder.rename(tmp_path / "after")
    assert latest(store, moved) == "s"
    assert latest(store, moved / "src") == "sub"
    assert latest(store, moved / "other") is None
    assert latest(store, plain.rename(tmp_path / "plain2")) is None
    # Going on there, and moving once more.
    say(store, "t").set_workspace(moved)
    again = moved.rename(tmp_path / "again")
    assert latest(store, again) == "t"
    store.delete("t")
    assert latest(store, again) == "s"


def test_another_repository_at_an_old_path_has_none_of_its_sessions(
    store: Store, tmp_path: Path
) -> None:
    """N-87: once a new repository has a session of its own, those of the one that moved away are not its."""
    folder = repository(tmp_path / "project")
    say(store, "old", hours=1).set_workspace(folder)
    moved = folder.rename(tmp_path / "moved")
    repository(folder)
    say(store, "new", hours=2).set_workspace(folder)
    assert latest(store, folder) == "new"
    assert latest(store, moved) == "old"


@pytest.mark.parametrize("tagged", [False, True], ids=["fresh copy", "used copy"])
def test_a_copy_is_a_workspace_of_its_own(store: Store, tmp_path: Path, tagged: bool) -> None:
    """A folder copied with its git directory takes none of its original's sessions, also if that moves."""
    folder = repository(tmp_path / "original")
    say(store, "o", hours=2).set_workspace(folder)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert latest(store, copy) is None
    if tagged:
        say(store, "c", hours=1).set_workspace(copy)
        moved = folder.rename(tmp_path / "moved")
        assert latest(store, moved) == "o"
        assert latest(store, copy) == "c"
        copy = copy.rename(tmp_path / "copy2")
        assert latest(store, copy) == "c"
        assert latest(store, moved) == "o"
    else:
        assert latest(store, folder) == "o"


def test_a_path_among_the_metadata_survives_a_move_too(store: Store, tmp_path: Path) -> None:
    """A workspace that is only named among the metadata is known again after its repository was moved."""
    folder = repository(tmp_path / "before")
    say(store, "set", hours=2).set_metadata(workspace=str(folder))
    store.create("made", metadata={"workspace": str(folder), "title": "T"})
    folder.rename(tmp_path / "after")
    assert latest(store, tmp_path / "after") == "made"
    store.delete("made")
    assert latest(store, tmp_path / "after") == "set"
    # What is no absolute path of a repository is kept as it was given, and nothing is added.
    for other in ("relative", str(tmp_path), "\0"):
        session = say(store, "other")
        session.set_metadata(workspace=other)
        assert session.metadata == {"workspace": other}


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_s_own_repositories_are_recognised(store: Store, tmp_path: Path) -> None:
    """A repository, a worktree and a clone as git makes them; the file is nothing that git tracks."""

    def git(*arguments: str) -> str:
        options = ["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]
        command = ["git", "-C", str(tmp_path / "main"), *options, *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    (tmp_path / "main").mkdir()
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    for name in ("main", "tree"):
        say(store, name).set_workspace(tmp_path / name)
    git("clone", "-q", ".", str(tmp_path / "clone"))
    assert latest(store, tmp_path / "clone") is None
    assert git("status", "--porcelain") == ""
    (tmp_path / "tree").rename(tmp_path / "tree2")
    assert latest(store, tmp_path / "tree2") == "tree"
    (tmp_path / "main").rename(tmp_path / "main2")
    assert latest(store, tmp_path / "main2") == "main"


# -- the file in the git directory ----------------------------------------------------------------


def test_the_marker_is_private_and_written_once(store: Store, tmp_path: Path) -> None:
    """N-13, N-27: mode 0600 whatever the umask, whole under its name, and the same for all later sessions."""
    folder = repository(tmp_path / "project")
    before = os.umask(0)
    try:
        say(store, "a").set_workspace(folder)
    finally:
        os.umask(before)
    seen = tree(folder)
    assert stat.S_IMODE(marker(folder).stat().st_mode) == 0o600
    assert sorted(os.listdir(folder / ".git")) == ["HEAD", workspace.MARKER]
    say(store, "b").set_workspace(folder)
    say(store, "c").set_workspace(folder / "src")
    assert tree(folder) == seen
    ids = {store.session(name).metadata["workspace_id"] for name in "ab"}
    assert len(ids) == 1
    assert store.session("c").metadata["workspace_id"] == f"{ids.pop()}/src"


SPOILED = [
    "link",
    "dangling link",
    "directory",
    "pipe",
    "no HEAD",
    ".git is a link",
    "pointer",
    "NUL",
]


def spoil(how: str, folder: Path, outside: Path) -> None:
    """Put something else where the file, or the git directory, should be."""
    git = folder / ".git"
    if how == "link":
        marker(folder).symlink_to(outside / "secret")
    elif how == "dangling link":
        marker(folder).symlink_to(outside / "nothing")
    elif how == "directory":
        marker(folder).mkdir()
    elif how == "pipe":
        os.mkfifo(marker(folder))
    elif how == "no HEAD":
        (git / "HEAD").unlink()
    else:
        shutil.rmtree(git)
        if how == ".git is a link":
            git.symlink_to(outside)
        else:
            git.write_text(f"gitdir: {outside}\n" if how == "pointer" else "gitdir: \0\n")


@pytest.mark.parametrize("how", SPOILED)
def test_what_stands_in_the_marker_s_place_is_left_alone(
    store: Store, tmp_path: Path, how: str
) -> None:
    """N-11: no link is followed and nothing outside is written; the path alone decides then."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("mine")
    folder = repository(tmp_path / "project")
    spoil(how, folder, outside)
    before = tree(outside), tree(folder)
    say(store, "s").set_workspace(folder)
    assert (tree(outside), tree(folder)) == before
    assert latest(store, folder) == "s"
    assert store.session("s").metadata == {"workspace": os.path.realpath(folder)}


def test_a_marker_that_says_nothing_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    """N-30: a file of the same name that is not ours stays as it is, and the path alone decides."""
    folder = repository(tmp_path / "project")
    for text in (b"", b"null", b"{}", b"\xff", b'{"workspace":"","path":""}', b"x" * 100_000):
        marker(folder).write_bytes(text)
        say(store, "s").set_workspace(folder)
        assert marker(folder).read_bytes() == text
        assert latest(store, folder) == "s"


def test_where_the_marker_cannot_be_written_the_path_decides(tmp_path: Path, local: Path) -> None:
    """N-29, N-38: a git directory that takes no file costs only the memory of moves; no rest of one stays."""
    with hansard.open(local) as store:
        say(store, "s").set_workspace(tmp_path)
        for name in ("create_file", "write", "sync", "publish"):
            folder = repository(tmp_path / name)
            with faults.fail(13, only=(name,)) as fault:
                found = workspace.mark(folder)
            assert fault.fired
            assert found == workspace.Workspace(os.path.realpath(folder))
            assert os.listdir(folder / ".git") == ["HEAD"]


def test_all_who_mark_a_repository_at_once_agree(tmp_path: Path) -> None:
    """N-22: real processes that mark one repository at the same time all get the same id."""
    folder = repository(tmp_path / "project")
    script = (
        "import sys; from hansard import workspace\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(workspace.mark(sys.argv[1]).id)\n"
    )
    command = [sys.executable, "-c", script, str(folder)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        found = {worker.communicate("go\n", timeout=60)[0].strip() for worker in workers}
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert len(found) == 1
    assert found == {workspace.find(folder).id}
    assert sorted(os.listdir(folder / ".git")) == ["HEAD", workspace.MARKER]


# -- damage ---------------------------------------------------------------------------------------


def test_a_damaged_newest_session_is_reported_and_not_skipped(local: Path) -> None:
    """N-61: if the newest session is damaged, `latest` raises, with its id and what to do."""
    with hansard.open(local) as store:
        say(store, "old", hours=5)
        say(store, "new", hours=2)
        say(store, "new", hours=1)
    damage(local, "new", last_record)
    with hansard.open(local) as store:
        with pytest.raises(hansard.Damaged, match=r"'new'.*skip_damaged=True") as caught:
            store.latest()
        assert caught.value.path == str(log_of(local, "new"))
        assert latest(store, skip_damaged=True) == "old"
        # Newer or not: its last record is damaged, so nobody knows.
        say(store, "old")
        with pytest.raises(hansard.Damaged, match="'new'"):
            store.latest()


def test_damage_of_another_workspace_concerns_nobody_here(tmp_path: Path, local: Path) -> None:
    """N-61: what is whole of a damaged session says where it belongs, and only that workspace hears of it."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with hansard.open(local) as store:
        say(store, "mine", hours=5).set_workspace(ours)
        store.create("hurt", workspace=theirs)
        say(store, "hurt", hours=1)
    damage(local, "hurt", last_record)
    with hansard.open(local) as store:
        assert latest(store, ours) == "mine"
        for folder in (theirs, None):
            with pytest.raises(hansard.Damaged, match="'hurt'"):
                store.latest(workspace=folder)
        assert latest(store, theirs, skip_damaged=True) is None


def test_a_fork_whose_parent_is_damaged_is_reported(tmp_path: Path, local: Path) -> None:
    """N-61: if what a fork inherits cannot be read, it may belong here, and may be the newest."""
    with hansard.open(local) as store:
        store.create("parent", workspace=tmp_path)
        say(store, "mine", hours=5).set_workspace(tmp_path)
        store.session("parent").fork("child").add_message({"role": "user", "content": "on"})
    log_of(local, "parent").write_bytes(b"")
    with hansard.open(local) as store:
        with pytest.raises(hansard.Damaged, match="'child'"):
            store.latest(workspace=tmp_path)
        assert latest(store, tmp_path, skip_damaged=True) == "mine"
