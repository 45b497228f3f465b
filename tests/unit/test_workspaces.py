"""Workspaces of sessions, and the latest session of a workspace: N-61, N-54, N-62, N-11, N-13."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Session, Store, workspace
from tests.crashlab import faults
from tests.faults.workers import PATIENCE, Crew, Wire, context
from tests.unit.disk_probe import flip, log_of, tree
from tests.unit.maintenance.test_trash import say


def repository(directory: Path) -> Path:
    """Create a directory that looks like a git repository."""
    (directory / ".git").mkdir(parents=True)
    (directory / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return directory


def marker(directory: Path) -> Path:
    """Return the file with the repository's id."""
    return directory / ".git" / workspace.MARKER


def latest(store: Store, directory: Path | str | None = None, **options: Any) -> str | None:
    """Return the id of the latest session."""
    found = store.latest(workspace=directory, **options)
    return None if found is None else found.id


def test_the_latest_session_has_the_last_activity(store: Store) -> None:
    """N-61: the times of events decide, not the order in which sessions were created."""
    assert store.latest() is None
    say(store, "b", days=1)
    say(store, "c", days=3)
    say(store, "a", days=2)
    assert isinstance(store.latest(), Session)
    assert latest(store) == "b"
    say(store, "c")
    assert latest(store) == "c"
    store.delete("c")
    assert latest(store) == "b"
    assert latest(store, prefix="a") == "a"
    assert store.latest(prefix="x") is None
    store.session("b").archive()
    assert latest(store) == "a"
    assert latest(store, archived=True) == "b"
    store.session("b").unarchive()
    assert latest(store) == "b"


@pytest.mark.parametrize("how", ["title", "metadata", "archive", "close", "reopen"])
def test_housekeeping_is_not_activity(store: Store, how: str) -> None:
    """N-54: setting metadata, archiving and closing change neither `latest` nor `updated`."""
    store.session("only metadata").set_metadata(n=1)
    (info,) = store.sessions().items
    assert info.updated == info.created
    store.delete("only metadata")
    old = say(store, "old", days=5)
    say(store, "new", days=1)
    before = store.sessions(prefix="old").items[0].updated_stamp
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
    assert store.sessions(prefix="old").items[0].updated_stamp == before
    old.add_message({"role": "user", "content": "more"})
    assert latest(store, archived=True) == "old"
    assert store.sessions(prefix="old").items[0].updated_stamp > before


def test_latest_writes_nothing(tmp_path: Path, root: Path) -> None:
    """N-62: `latest` works on a read-only store, and changes neither store nor workspace."""
    directory = repository(tmp_path / "project")
    with hansard.open(root) as store:
        say(store, "s", days=1).set_workspace(directory)
    # As if another machine had set it.
    marker(directory).unlink()
    before = tree(root), tree(directory)
    with hansard.open(root, read_only=True) as store:
        assert latest(store, directory) == "s"
        assert latest(store, tmp_path) is None
    assert (tree(root), tree(directory)) == before
    assert not marker(directory).exists()


def test_a_workspace_finds_its_own_sessions_only(store: Store, tmp_path: Path) -> None:
    """F-68: a session belongs to the workspace in its metadata, however the path is spelled."""
    one, two = tmp_path / "one", tmp_path / "two"
    for directory in (one, two):
        directory.mkdir()
    (tmp_path / "link").symlink_to(one)
    say(store, "tagged", days=3).set_workspace(one)
    store.create("made", workspace=two, metadata={"title": "T"})
    say(store, "plain", days=1).set_metadata(workspace=f"{one}/../one/")
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
    """N-90: `.` is the current directory, and `~` the home, at the time of the call."""
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


def test_a_moved_repository_keeps_its_sessions(store: Store, tmp_path: Path) -> None:
    """N-87: a moved git repository keeps its sessions; other directories are known by their paths."""
    directory = repository(tmp_path / "before")
    say(store, "s", days=1).set_workspace(directory)
    say(store, "sub", days=2).set_workspace(directory / "src")
    plain = tmp_path / "plain"
    plain.mkdir()
    say(store, "p", days=1).set_workspace(plain)
    moved = directory.rename(tmp_path / "after")
    assert latest(store, moved) == "s"
    assert latest(store, moved / "src") == "sub"
    assert latest(store, moved / "other") is None
    assert latest(store, plain.rename(tmp_path / "plain2")) is None
    # Another repository at the old path has none of its sessions.
    repository(directory)
    say(store, "new").set_workspace(directory)
    assert latest(store, directory) == "new"
    assert latest(store, moved) == "s"
    # Continued there, and moved again.
    say(store, "t").set_workspace(moved)
    again = moved.rename(tmp_path / "again")
    assert latest(store, again) == "t"
    store.delete("t")
    assert latest(store, again) == "s"


@pytest.mark.parametrize("tagged", [False, True], ids=["fresh copy", "used copy"])
def test_a_copy_is_a_separate_workspace(store: Store, tmp_path: Path, tagged: bool) -> None:
    """F-69: a copy of a repository has none of the original's sessions, even if that moves."""
    directory = repository(tmp_path / "original")
    say(store, "o", days=2).set_workspace(directory)
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    assert latest(store, copy) is None
    if tagged:
        say(store, "c", days=1).set_workspace(copy)
        moved = directory.rename(tmp_path / "moved")
        assert latest(store, moved) == "o"
        assert latest(store, copy) == "c"
        copy = copy.rename(tmp_path / "copy2")
        assert latest(store, copy) == "c"
        assert latest(store, moved) == "o"
    else:
        assert latest(store, directory) == "o"


def test_a_path_in_the_metadata_is_a_path_alone(store: Store, tmp_path: Path) -> None:
    """A workspace that was set by metadata is found at its path; nothing is added to the metadata."""
    directory = repository(tmp_path / "before")
    for path in (str(directory), "relative", str(tmp_path), "\0"):
        session = say(store, f"s/{path!r}")
        session.set_metadata(workspace=path)
        assert session.metadata == {"workspace": path}
    assert list((directory / ".git").iterdir()) == [directory / ".git" / "HEAD"]
    assert latest(store, directory) == f"s/{str(directory)!r}"
    directory.rename(tmp_path / "after")
    assert latest(store, tmp_path / "after") is None


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_repositories_created_by_git_are_recognized(store: Store, tmp_path: Path) -> None:
    """A repository keeps its sessions, a worktree is known by its path, and git does not track the file."""

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
    assert latest(store, tmp_path / "tree") == "tree"
    (tmp_path / "tree").rename(tmp_path / "tree2")
    assert latest(store, tmp_path / "tree2") is None
    (tmp_path / "main").rename(tmp_path / "main2")
    assert latest(store, tmp_path / "main2") == "main"


def test_the_marker_is_private_and_written_once(store: Store, tmp_path: Path) -> None:
    """N-13, N-27: the file has mode 0600 with any umask, and later sessions do not change it."""
    directory = repository(tmp_path / "project")
    before = os.umask(0)
    try:
        say(store, "a").set_workspace(directory)
    finally:
        os.umask(before)
    seen = tree(directory)
    assert stat.S_IMODE(marker(directory).stat().st_mode) == 0o600
    assert sorted(os.listdir(directory / ".git")) == ["HEAD", workspace.MARKER]
    say(store, "b").set_workspace(directory)
    say(store, "c").set_workspace(directory / "src")
    assert tree(directory) == seen
    ids = {store.session(name).metadata["workspace_id"] for name in "ab"}
    assert len(ids) == 1
    assert store.session("c").metadata["workspace_id"] == f"{ids.pop()}/src"


def replace_git(git: Path, text: str = "", *, target: Path | None = None) -> None:
    """Replace the git directory by a file or a link."""
    shutil.rmtree(git)
    if target is None:
        git.write_text(text)
    else:
        git.symlink_to(target)


#: What replaces the file, or the git directory; given this directory, and one outside of the repository.
SPOILED: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda git, outside: os.symlink(outside / "secret", git / workspace.MARKER),
    "dangling link": lambda git, outside: os.symlink(outside / "no", git / workspace.MARKER),
    "directory": lambda git, _: os.mkdir(git / workspace.MARKER),
    "pipe": lambda git, _: os.mkfifo(git / workspace.MARKER),
    "no HEAD": lambda git, _: os.remove(git / "HEAD"),
    ".git is a link": lambda git, outside: replace_git(git, target=outside),
    "pointer": lambda git, outside: replace_git(git, f"gitdir: {outside}\n"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_anything_in_place_of_the_marker_is_not_changed(
    store: Store, tmp_path: Path, how: str
) -> None:
    """N-11: no link is followed, nothing outside is written, and the path alone decides."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("mine")
    directory = repository(tmp_path / "project")
    SPOILED[how](directory / ".git", outside)
    before = tree(outside), tree(directory)
    say(store, "s").set_workspace(directory)
    assert (tree(outside), tree(directory)) == before
    assert latest(store, directory) == "s"
    assert store.session("s").metadata == {"workspace": os.path.realpath(directory)}


def test_an_invalid_marker_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    """N-30, N-74: a foreign file of this name is not changed, and the path alone decides."""
    directory = repository(tmp_path / "project")
    deep = b'{"x":%b%b}' % (b"[" * 20_000, b"]" * 20_000)
    wrong = (b"", b"null", b"{}", b"\xff", b'{"workspace":"","path":""}', b"x" * 100_000, deep)
    for text in wrong:
        marker(directory).write_bytes(text)
        say(store, "s").set_workspace(directory)
        assert marker(directory).read_bytes() == text
        assert latest(store, directory) == "s"


def test_without_a_writable_git_directory_the_path_decides(tmp_path: Path, root: Path) -> None:
    """N-29, N-38: if the marker cannot be written, no temporary file stays, and the path decides."""
    with hansard.open(root) as store:
        say(store, "s").set_workspace(tmp_path)
        for name in ("create_file", "write", "sync", "publish"):
            directory = repository(tmp_path / name)
            with faults.fail(13, only=(name,)) as fault:
                found = workspace.find(directory, mark=True)
            assert fault.fired
            assert found == workspace.Workspace(os.path.realpath(directory))
            assert os.listdir(directory / ".git") == ["HEAD"]


def mark_at_once(wire: Wire, directory: str, barrier: Barrier) -> str | None:
    """Mark a repository at the same time as others; return its id."""
    barrier.wait(PATIENCE)
    return workspace.find(directory, mark=True).id


def test_concurrent_marks_of_a_repository_agree(tmp_path: Path) -> None:
    """N-22: processes that mark one repository concurrently get the same id."""
    directory = repository(tmp_path / "project")
    barrier = context.Barrier(6)
    with Crew() as crew:
        workers = [crew.start(mark_at_once, str(directory), barrier) for _ in range(6)]
        assert {worker.result() for worker in workers} == {workspace.find(directory).id}
    assert sorted(os.listdir(directory / ".git")) == ["HEAD", workspace.MARKER]


def test_a_damaged_newest_session_is_reported_and_not_skipped(root: Path) -> None:
    """N-61: if the newest session is damaged, `latest` raises, with its id and what to do."""
    with hansard.open(root) as store:
        say(store, "old", days=5)
        say(store, "new", days=2)
        say(store, "new", days=1)
    flip(log_of(root, "new"), -40)
    with hansard.open(root) as store:
        with pytest.raises(hansard.Damaged, match=r"'new'.*skip_damaged=True") as caught:
            store.latest()
        assert str(log_of(root, "new")) in str(caught.value)
        assert latest(store, skip_damaged=True) == "old"
        # Its last record is damaged, so it may still be newer.
        say(store, "old")
        with pytest.raises(hansard.Damaged, match="'new'"):
            store.latest()


def test_damage_in_another_workspace_is_not_reported(tmp_path: Path, root: Path) -> None:
    """N-61: the valid records of a damaged session have its workspace, and only that workspace reports it."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with hansard.open(root) as store:
        say(store, "mine", days=5).set_workspace(ours)
        store.create("hurt", workspace=theirs)
        say(store, "hurt", days=1)
    flip(log_of(root, "hurt"), -40)
    with hansard.open(root) as store:
        assert latest(store, ours) == "mine"
        for directory in (theirs, None):
            with pytest.raises(hansard.Damaged, match="'hurt'"):
                store.latest(workspace=directory)
        assert latest(store, theirs, skip_damaged=True) is None
