"""The files of a store: no link is followed, no mode is loose, nothing is left incomplete."""

import ast
import inspect
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

import hansard
from hansard.log import disk
from tests.unit.disk_probe import flip, log_of, modes, tree


def write_everything(root: Path) -> None:
    """Call all that writes: open, append to an old and to a new session, delete, restore, probe, follow."""
    with hansard.open(root, durability="os", lock_timeout=1) as store:
        store.session("a").add_message({"n": 2})
        store.session("a").set_metadata(title="T")
        store.session("new").add_message({"n": 1})
        store.delete("b")
        store.restore("b")
        store.health()
        store.follow(cursor="c").close()


#: What is replaced by a link to outside: a name for the test, and the place.
LINKS = {
    "the root": ".",
    "hansard.json": "hansard.json",
    "sessions/": "sessions",
    "trash/": "trash",
    "a session's directory": "sessions/a",
    "a log": "sessions/a/log.jsonl",
    "a lock": "sessions/a/lock",
    "a directory that is to be deleted": "sessions/b",
    "internal/": "internal",
    "a cursor's directory": "internal/cursor-c",
    "a cursor's log": "internal/cursor-c/log.jsonl",
    "a cursor's lock": "internal/cursor-c/holder",
}


@pytest.mark.parametrize("dangling", [False, True], ids=["leads somewhere", "leads nowhere"])
@pytest.mark.parametrize("what", LINKS)
def test_a_link_is_refused(what: str, dangling: bool, tmp_path: Path) -> None:
    """N-11, F-4: if any part of a store is a symbolic link, writing raises and the target stays."""
    place = LINKS[what]
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        for name in "ab":
            store.session(name).add_message({"n": 1})
        store.follow(cursor="c").close()
    outside = tmp_path / "outside"
    (root / place).rename(outside)
    if dangling:
        outside.rename(tmp_path / "kept")
    (root / place).symlink_to(outside)
    link = (root / place).lstat()
    before = tree(tmp_path / "kept" if dangling else outside)
    with pytest.raises(hansard.UnsafePath, match="nothing was followed"):
        write_everything(root)
    assert tree(tmp_path / "kept" if dangling else outside) == before
    assert outside.exists() is not dangling
    assert (root / place).lstat() == link


@pytest.mark.parametrize("dangling", [False, True])
def test_a_planted_temporary_is_refused(
    dangling: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-11, N-27: a link under a temporary's name, which is made to be unique, is not written through."""
    target = tmp_path / "target"
    if not dangling:
        target.write_text("mine")
    hansard.open(tmp_path / "old", durability="os").close()
    planted: list[str] = []
    real = disk.create_file

    def create_file(directory: int, name: str) -> int:
        os.symlink(target, name, dir_fd=directory)
        planted.append(name)
        return real(directory, name)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "create_file", create_file)
        store = hansard.open(tmp_path / "old", durability="os")
        attempts: list[Callable[[], object]] = [
            lambda: store.session("a").add_message({"n": 1}),
            store.health,
            lambda: hansard.open(tmp_path / "new"),
        ]
        for attempt in attempts:
            with pytest.raises(hansard.HansardError):
                attempt()
        assert len(set(planted)) == len(attempts)
    assert not target.exists() if dangling else target.read_text() == "mine"
    # Once the links are no longer planted, all of it works.
    assert store.session("a").add_message({"n": 1}).seq == 1
    store.health()
    hansard.open(tmp_path / "new").close()


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Set the umask to 0, so that a mode is what the program requested."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("durability", ["os", "sync"])
def test_modes_are_tight_from_the_first_moment(
    durability: Literal["os", "sync"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-13, N-85, F-3: under umask 0 directories are 0700, files 0600: locks, trash, what a repair kept."""
    seen: set[str] = set()
    write = disk.write

    def look(directory: int) -> None:
        for entry in os.scandir(directory):
            mode = stat.filemode(entry.stat(follow_symlinks=False).st_mode)
            assert mode in {"-rw-------", "drwx------"}, entry.name
            seen.add(entry.name)

    def looking(real: Callable[..., None]) -> Callable[..., None]:
        def call(directory: int, *names: str) -> None:
            look(directory)
            real(directory, *names)

        return call

    def checked_write(descriptor: int, data: bytes) -> int:
        assert stat.filemode(os.fstat(descriptor).st_mode) == "-rw-------"
        return write(descriptor, data)

    for name in ("publish", "remove"):
        monkeypatch.setattr(disk, name, looking(getattr(disk, name)))
    monkeypatch.setattr(disk, "write", checked_write)
    above = tmp_path / "above"
    root = above / "more" / "store"
    with hansard.open(root, durability=durability) as store:
        for name in ("a", "deleted", "X" * 900):
            store.session(name).add_message({"n": 1})
        store.delete("deleted")
        store.follow(cursor="mail/out").close()
        store.health()
        flip(log_of(root, "a"))
        assert store.session("a").repair().kept
    assert any(name.startswith(".tmp") for name in seen), "no temporary was looked at"
    found = modes(above)
    assert {mode for name, mode in found.items() if mode[0] == "d"} == {"drwx------"}
    assert {mode for name, mode in found.items() if mode[0] != "d"} == {"-rw-------"}
    assert "more/store/trash/deleted/lock" in found
    assert "more/store/internal/cursor-mail+out/holder" in found


def test_modes_are_never_changed_afterwards() -> None:
    """N-12: no module calls chmod, chown or umask. For a group, `disk` sets modes by descriptor (F-172)."""
    sources = Path(inspect.getfile(hansard)).parent
    calls = {
        f"{path.relative_to(sources)}: {node.attr}"
        for path in sources.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Attribute)
        and node.attr.lstrip("fl") in {"chmod", "chmodat", "chown", "umask"}
    }
    assert calls == {"log/disk.py: fchmod"}


def test_publish_never_replaces(tmp_path: Path) -> None:
    """N-41: a file gets its name only if the name is free; nothing that is there is ever replaced.

    So the question of replacing a file that another process has open, which Windows answers with
    an error, does not come up: a log is appended to, and a new file is linked to a new name. Where there
    are no hard links a rename takes their place, under the session's lock.
    """
    (tmp_path / "temporary").write_text("new")
    (tmp_path / "name").write_text("old")
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with open(tmp_path / "name", "rb") as reader:
            with pytest.raises(FileExistsError):
                disk.publish(descriptor, "temporary", "name")
            assert reader.read() == b"old"
        assert (tmp_path / "name").read_text() == "old"
        disk.publish(descriptor, "temporary", "free")
    finally:
        os.close(descriptor)
    assert sorted(os.listdir(tmp_path)) == ["free", "name"]
    used = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(disk)))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    }
    assert "rename" in used
    assert used & {"replace", "renames", "truncate", "ftruncate"} == set()


def test_a_session_replaced_by_a_link_to_nowhere_is_listed_and_flagged(tmp_path: Path) -> None:
    """N-11, N-35, F-4: a session whose directory has become a dangling link does not vanish."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        store.session("a").add_message({"n": 1})
        store.session("b").add_message({"n": 2})
    directory = tmp_path / "store" / "sessions" / "a"
    directory.rename(tmp_path / "taken")
    directory.symlink_to(tmp_path / "nowhere")
    with hansard.open(tmp_path / "store") as store:
        assert {info.id: bool(info.damaged) for info in store.sessions().items} == {
            "a": True,
            "b": False,
        }
