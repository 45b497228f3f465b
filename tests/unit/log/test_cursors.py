"""The directory of cursors: modes, links, listing, dropping, and reading that leaves no trace."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hansard.backend.local import LocalBackend
from hansard.errors import Closed, Damaged, LockTimeout, ReadOnly, UnsafePath
from hansard.log import disk, names
from tests.crashlab import faults
from tests.unit.disk_probe import modes, tree
from tests.unit.log.cursor_files import file_of, keep, kept


def test_modes_are_strict_and_nothing_else_is_there(tmp_path: Path) -> None:
    """F-3, F-48, N-12, N-13: under a umask of 0, directory 0700 and files 0600, and no others."""
    old = os.umask(0)
    try:
        backend = LocalBackend(str(tmp_path / "store"))
        assert not (tmp_path / "store" / "cursors").exists(), "made before it is needed"
        cursor = backend.cursor("mail/out")
        assert modes(tmp_path / "store" / "cursors") == {
            ".": "drwx------",
            "mail+out.lock": "-rw-------",
        }
        cursor.move({"s": 1})
        cursor.move({"s": 2})
        backend.close()
    finally:
        os.umask(old)
    assert modes(tmp_path / "store" / "cursors") == {
        ".": "drwx------",
        "mail+out.lock": "-rw-------",
        "mail+out.jsonl": "-rw-------",
    }
    assert (tmp_path / "store" / "cursors" / "mail+out.lock").read_bytes() == b""


@pytest.mark.parametrize("dangling", [False, True], ids=["leads somewhere", "leads nowhere"])
@pytest.mark.parametrize("place", ["cursors", "cursors/c.jsonl", "cursors/c.lock"])
def test_a_link_is_refused(place: str, dangling: bool, backend: LocalBackend) -> None:
    """F-4, N-11: a link under any name of a cursor is not followed, and its target stays as it is."""
    keep(backend, {"s": 1})
    root = Path(backend.where)
    outside = root.parent / "outside"
    (root / place).rename(outside)
    if dangling:
        outside.rename(root.parent / "kept")
    (root / place).symlink_to(outside)
    before = tree(root.parent)
    calls: list[Callable[[], object]] = [lambda: backend.cursor("c")]
    reader = LocalBackend(backend.where, read_only=True)
    if not place.endswith("lock"):
        calls.append(lambda: reader.cursor("c").positions())
    if place == "cursors":
        calls += [backend.cursors, reader.cursors, lambda: backend.drop_cursor("c")]
    for call in calls:
        with pytest.raises(UnsafePath):
            call()
    after = tree(root.parent)
    for path in ("outside", "kept", f"store/{place}"):
        assert after.get(path) == before.get(path)
    reader.close()


@pytest.mark.parametrize("kind", ["pipe", "directory"])
@pytest.mark.parametrize("place", ["c.jsonl", "c.lock"])
def test_what_is_no_file_is_refused(place: str, kind: str, backend: LocalBackend) -> None:
    """F-4: a pipe or a directory under a name of a cursor is refused at once, and nobody waits for it."""
    keep(backend, {"s": 1})
    path = Path(backend.where, "cursors", place)
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(UnsafePath):
        backend.cursor("c")


def test_reading_positions_writes_nothing(backend: LocalBackend) -> None:
    """F-55, N-62: a read-only store gives positions as they are, beside the consumer, and leaves no trace."""
    reader = LocalBackend(backend.where, read_only=True)
    before = tree(Path(backend.where))
    watcher = reader.cursor("c")
    assert (reader.cursors(), watcher.positions(), watcher.get("s")) == ([], {}, 0)
    assert tree(Path(backend.where)) == before
    with backend.cursor("c") as cursor:
        for seq in range(1, 2000):
            cursor.move({"s": seq, "padding" * 50: seq})
            assert watcher.get("s") == seq
        assert reader.cursor("c").positions() == cursor.positions()
        assert reader.cursors() == ["c"]
        before = tree(Path(backend.where))
        writes: list[Callable[[], object]] = [
            lambda: watcher.move({"s": 3000}),
            lambda: watcher.move({}),
            lambda: watcher.forget("s"),
            lambda: reader.drop_cursor("c"),
            lambda: reader.drop_cursor("none"),
        ]
        for write in writes:
            with pytest.raises(ReadOnly):
                write()
        assert tree(Path(backend.where)) == before
    watcher.close()
    with pytest.raises(Closed):
        watcher.positions()
    reader.close()
    with pytest.raises(Closed):
        reader.cursor("c")


def test_a_store_with_cursors_opens_and_lists_its_sessions(backend: LocalBackend) -> None:
    """F-1, F-48: cursors are no sessions, and no foreign files, not even when the marker is made anew."""
    for name in ("c", "sessions", "x.lock", "x", "x.jsonl"):
        keep(backend, {"s": 1}, name)
    (Path(backend.where) / "hansard.json").unlink()
    with_cursors = LocalBackend(backend.where)
    assert list(with_cursors.ids()) == []
    assert with_cursors.cursors() == ["c", "sessions", "x", "x.jsonl", "x.lock"]
    with_cursors.close()


def test_foreign_files_are_no_cursors(backend: LocalBackend) -> None:
    """F-48: what has another name is neither listed nor touched."""
    keep(backend, {"s": 1})
    place = Path(backend.where, "cursors")
    for name in ("Foo.jsonl", "%61.jsonl", ".jsonl", "jsonl", "c.json", "c.jsonl.bak", ".x.jsonl"):
        (place / name).write_bytes(b"mine")
    assert backend.cursors() == ["c"]
    assert kept(backend) == {"s": 1}
    assert backend.drop_cursor("c")
    assert len(list(place.iterdir())) == 7


def test_stale_temporaries_are_swept_and_fresh_ones_kept(backend: LocalBackend) -> None:
    """F-53, N-38: opening removes what a dead consumer left half written, and nothing that is in use."""
    keep(backend, {"s": 1})
    place = Path(backend.where, "cursors")
    left = place / names.temporary("d.jsonl")
    left.write_bytes(b"half")
    used = place / f".tmp-c.jsonl-{2**22 + 1}-{'0' * 16}"
    directory = disk.OwnedFd(disk.open_root(str(place)))
    file = disk.OwnedFd(disk.create_file(directory.descriptor, used.name))
    os.utime(used, (0, 0))
    assert kept(backend) == {"s": 1}
    assert (left.exists(), used.exists()) == (False, True)
    file.close()
    assert kept(backend) == {"s": 1}
    assert not used.exists()


def test_a_damaged_cursor_is_listed_and_can_be_dropped(backend: LocalBackend) -> None:
    """F-52, F-56, N-35: damage hides no other cursor, and ends by dropping, while its error is handled."""
    long = "x" * 1000
    for name in ("a", "b", long):
        keep(backend, {"s": 1}, name)
    assert backend.cursors() == ["a", "b", long]
    for name in ("a", long):
        file_of(backend, name).write_bytes(b"rubbish\n")
    # Only the file itself knew the true name of a long one, so the listing says what there is.
    listed = backend.cursors()
    assert listed == ["a", "b", names.encode(long)]
    for name in ("a", listed[-1]):
        with pytest.raises(Damaged, match="drop the cursor") as caught:
            backend.cursor(name)
        # Its frames live as long as the error does, and must not hold the lock.
        assert caught.value.__traceback__ is not None
        assert backend.drop_cursor(name)
    assert backend.cursors() == ["b"]
    assert kept(backend, long) == {}


def test_a_cursor_is_dropped_under_its_lock(backend: LocalBackend) -> None:
    """F-56, N-28: when a cursor's file goes, its lock is held under its name until then."""
    keep(backend, {"s": 1})
    other = LocalBackend(backend.where)
    looked = []

    def try_to_open(call: faults.Call, arguments: tuple[object, ...], result: object) -> None:
        if call.operation == "remove" and call.place.endswith("c.jsonl"):
            with pytest.raises(LockTimeout):
                other.cursor("c")
            looked.append(call.place)

    with faults.record(watch=try_to_open):
        assert backend.drop_cursor("c")
    assert len(looked) == 1
    assert kept(other) == {}
    other.close()
