"""Claims about the files of large content: how they are made, read, locked and removed. F-73 to F-78."""

import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

import hansard
from hansard.log import disk, names
from hansard.log.root import Root
from hansard.log.vault import Kept, Vault
from tests.crashlab import faults

CONTENT = b"large " * 1000
OTHER = b"other " * 1000


def digest(content: bytes) -> str:
    """Return the hash of a content."""
    return hashlib.sha256(content).hexdigest()


NAME = digest(CONTENT)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    """Return the root of a new store."""
    made = Root(str(tmp_path / "store"), create=True, read_only=False)
    yield made
    made.close()


@pytest.fixture
def vault(root: Root) -> Vault:
    """Return a vault with nothing in it, whose locks are waited for no longer than a moment."""
    return Vault(root, 0.05)


def keep(vault: Vault, *contents: bytes) -> None:
    """Keep contents."""
    with vault.sharing(create=True):
        vault.keep({digest(content): content for content in contents})


def file_of(root: Root, content: bytes = CONTENT) -> Path:
    """Return the file of a content."""
    name = digest(content)
    return Path(root.path) / "large" / name[:2] / name


def test_a_content_is_a_file_under_its_hash(root: Root, vault: Vault) -> None:
    """F-73: what is kept is the bytes and nothing else, under their hash, and comes back."""
    keep(vault, CONTENT, OTHER)
    assert file_of(root).read_bytes() == CONTENT
    assert vault.read(NAME, len(CONTENT)) == CONTENT
    assert [(kept.sha256, kept.bytes) for kept in vault.listing()] == sorted(
        (digest(content), len(content)) for content in (CONTENT, OTHER)
    )
    assert not list(Path(root.path).rglob(".tmp-*"))


def test_directories_and_files_are_for_their_owner_only(root: Root) -> None:
    """N-12, N-13, F-3: with umask 0 directories have mode 0700 and files 0600, from the beginning."""
    before = os.umask(0)
    try:
        keep(Vault(root, 0.05), CONTENT)
    finally:
        os.umask(before)
    found = {
        path: path.stat()
        for path in (Path(root.path) / "large", *Path(root.path).rglob("large/**/*"))
    }
    assert len(found) == 5
    for path, status in found.items():
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(status.st_mode) == expected, path


def test_the_bytes_are_on_the_disk_before_the_name_and_the_names_before_anything_refers(
    vault: Vault,
) -> None:
    """F-73, N-37: write, sync, rename, then a sync of each directory that leads to the file."""
    with faults.record() as seen:
        keep(vault, CONTENT)
    steps = [call.operation for call in seen.calls if call.operation in faults.MUTATING]
    begin = steps.index("create_file")
    assert steps[begin : begin + 4] == ["create_file", "write", "sync", "move"]
    synced = [Path(call.place).name for call in seen.calls if call.operation == "sync_directory"]
    assert synced[:2] == [NAME[:2], "large"]
    assert "store" in synced[2:]


def test_the_same_content_again_is_the_same_file_with_a_later_time(
    root: Root, vault: Vault
) -> None:
    """F-73: content that is there is not written again; its time moves on, however often in one tick."""
    keep(vault, CONTENT)
    times = []
    inodes = set()
    for _ in range(20):
        with faults.record() as seen:
            keep(vault, CONTENT)
        assert "write" not in [call.operation for call in seen.calls]
        assert "sync_directory" in [call.operation for call in seen.calls]
        status = file_of(root).stat()
        times.append(status.st_mtime_ns)
        inodes.add(status.st_ino)
    assert times == sorted(set(times))
    assert len(inodes) == 1


def test_a_touch_is_later_even_if_the_clock_goes_back(root: Root, vault: Vault) -> None:
    """F-73: a file from the future gets a time that is later still."""
    keep(vault, CONTENT)
    future = 4_000_000_000 * 10**9
    os.utime(file_of(root), ns=(future, future))
    keep(vault, CONTENT)
    assert file_of(root).stat().st_mtime_ns > future


def change(content: bytes) -> dict[str, bytes | None]:
    """Return what may have become of a content's file; None: it is gone."""
    return {
        "missing": None,
        "empty": b"",
        "shorter": content[:-1],
        "longer": content + b"!",
        "a flipped bit": bytes([content[0] ^ 1]) + content[1:],
        "another's": OTHER[: len(content)],
    }


@pytest.mark.parametrize("how", change(CONTENT))
def test_a_content_that_is_not_as_it_was_is_damage_and_is_mended_when_it_is_kept_again(
    root: Root, vault: Vault, how: str
) -> None:
    """F-73, F-74, N-31: content that is not as it was raises with its path; who has the bytes mends it."""
    keep(vault, CONTENT)
    file = file_of(root)
    changed = change(CONTENT)[how]
    if changed is None:
        file.unlink()
    else:
        file.write_bytes(changed)
    with pytest.raises(hansard.Damaged, match="large content") as caught:
        vault.read(NAME, len(CONTENT))
    assert caught.value.path == str(file)
    # The reason is the first that applies: of a file that was cut, its length is.
    if how in {"empty", "shorter", "longer"}:
        assert "bytes has" in caught.value.reason
    keep(vault, CONTENT)
    assert vault.read(NAME, len(CONTENT)) == CONTENT


def test_a_name_that_is_no_hash_leads_nowhere(vault: Vault) -> None:
    """N-1, F-71: a reference whose hash is none, such as a path, is damage, and no file is opened for it."""
    with faults.record() as seen:
        for name in ("../../hansard.json", "", "A" * 64, "0" * 63, "0" * 64 + "\n"):
            with pytest.raises(hansard.Damaged):
                vault.read(name, 1)
    assert seen.calls == []


def test_no_link_is_followed(root: Root, vault: Vault, tmp_path: Path) -> None:
    """N-11, F-4: a link in the place of a directory, a content or a lock is refused."""
    keep(vault, CONTENT)
    large = Path(root.path) / "large"
    places = [large / "lock", large / "gate", file_of(root), file_of(root).parent, large]
    for number, place in enumerate(places):
        outside = tmp_path / f"outside{number}"
        moved = tmp_path / f"moved{number}"
        place.rename(moved)
        if moved.is_dir():
            outside.mkdir()
        else:
            outside.write_bytes(b"mine")
        place.symlink_to(outside)
        with pytest.raises(hansard.UnsafePath):
            keep(vault, CONTENT)
        if place.name not in {"lock", "gate"}:
            with pytest.raises(hansard.UnsafePath):
                vault.read(NAME, len(CONTENT))
        left = list(outside.iterdir()) if outside.is_dir() else outside.read_bytes()
        assert left in ([], b"mine")
        place.unlink()
        moved.rename(place)
    assert vault.read(NAME, len(CONTENT)) == CONTENT


def test_files_with_other_names_are_nobodys_business(root: Root, vault: Vault) -> None:
    """F-78, N-87: what is no content is not listed and not removed, wherever it lies."""
    keep(vault, CONTENT)
    large = Path(root.path) / "large"
    wrong_shelf = large / ("00" if not NAME.startswith("00") else "01")
    wrong_shelf.mkdir()
    foreign = [large / "notes", large / "zz", file_of(root).parent / "x.zst", wrong_shelf / NAME]
    for file in foreign:
        file.write_bytes(b"mine")
    listed = vault.listing()
    assert [kept.sha256 for kept in listed] == [NAME]
    with vault.alone():
        assert vault.remove(listed) == listed
    assert not file_of(root).exists()
    assert all(file.read_bytes() == b"mine" for file in foreign)


def test_what_was_touched_since_it_was_listed_is_not_removed(root: Root, vault: Vault) -> None:
    """F-77: a content to which somebody has begun to refer stays; one made anew stays; the rest goes."""
    third = b"third " * 1000
    keep(vault, CONTENT, OTHER, third)
    listed = vault.listing()
    keep(vault, CONTENT)
    file_of(root, third).unlink()
    keep(vault, third)
    with vault.alone():
        assert [kept.sha256 for kept in vault.remove(listed)] == [digest(OTHER)]
    assert {kept.sha256 for kept in vault.listing()} == {NAME, digest(third)}


def test_many_share_and_one_is_alone(vault: Vault) -> None:
    """F-76, F-77: writers share; a collector waits for them, and they for it, but not for ever."""
    with ExitStack() as several:
        for _ in range(3):
            several.enter_context(vault.sharing(create=True))
        with (
            pytest.raises(hansard.LockTimeout, match="nothing was collected") as caught,
            vault.alone(),
        ):
            pass
        assert caught.value.holder in {None, os.getpid()}
        keep(vault, CONTENT)
    with vault.alone():
        for attempt in (vault.sharing(create=True), vault.alone()):
            with pytest.raises(hansard.LockTimeout), attempt:
                pass
    keep(vault, CONTENT)
    with vault.alone():
        pass


class Relay:
    """Threads that share the lock one after the other, so that there is never a moment without a holder."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._mutex = threading.Lock()
        self._holders = 0
        self._stop = threading.Event()
        #: Set when one has handed over to another.
        self.runs = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._vault.sharing(create=True):
                with self._mutex:
                    self._holders += 1
                # The last one goes only when nobody has come for so long that nobody can.
                for _ in range(300):
                    if self._may_go():
                        break
                    self._stop.wait(0.001)
                else:
                    with self._mutex:
                        self._holders -= 1

    def _may_go(self) -> bool:
        with self._mutex:
            if self._holders == 1:
                return False
            self._holders -= 1
            self.runs.set()
            return True


def test_a_collector_that_waits_is_not_starved(root: Root) -> None:
    """F-76: while writers hand the lock to each other without a gap, a collector gets its turn."""
    vault = Vault(root, 30.0)
    with Relay(vault) as relay:
        for _ in range(3):
            assert relay.runs.wait(60)
            with vault.alone():
                relay.runs.clear()


def test_without_a_directory_there_is_nothing_to_lock_or_to_read(root: Root, vault: Vault) -> None:
    """F-76, N-62: a store without large content gets no directory for it from who moves, lists or reads."""
    with vault.sharing(create=False):
        pass
    assert vault.listing() == []
    assert vault.remove([Kept(NAME, 1)]) == []
    with pytest.raises(hansard.Damaged, match="missing"):
        vault.read(NAME, 1)
    assert not (Path(root.path) / names.LARGE).exists()


def test_a_read_only_store_reads_and_writes_nothing(root: Root, vault: Vault) -> None:
    """N-62: read-only, content can be read; keeping and collecting raise `ReadOnly`."""
    keep(vault, CONTENT)
    closed = Root(root.path, create=False, read_only=True)
    reader = Vault(closed, 0.05)
    assert reader.read(NAME, len(CONTENT)) == CONTENT
    assert [kept.sha256 for kept in reader.listing()] == [NAME]
    for attempt in (reader.sharing(create=True), reader.sharing(create=False), reader.alone()):
        with pytest.raises(hansard.ReadOnly), attempt:
            pass
    closed.close()


def test_what_the_dead_left_is_swept_and_what_is_being_made_is_not(
    root: Root, vault: Vault
) -> None:
    """N-38: temporaries of a dead process go with the next content; those of a living one stay."""
    keep(vault, OTHER)
    large = Path(root.path) / "large"
    living = large / names.temporary(NAME)
    dead = large / names.temporary(NAME).replace(f"-{os.getpid()}-", "-99999999-")
    for file in (living, dead):
        file.write_bytes(b"half")
    keep(Vault(root, 0.05), CONTENT)
    assert living.exists()
    assert not dead.exists()


def test_a_directory_whose_sync_failed_is_not_believed_the_next_time(
    root: Root, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-73, N-29: after a failed sync of the directory the content is written once more."""
    keep(vault, OTHER)
    real = disk.sync_directory

    def refuse(descriptor: int) -> None:
        del descriptor
        raise OSError(5, "EIO")

    monkeypatch.setattr(disk, "sync_directory", refuse)
    with pytest.raises(hansard.DiskFailed, match="nothing was appended"):
        keep(vault, CONTENT)
    first = file_of(root).stat().st_ino
    monkeypatch.setattr(disk, "sync_directory", real)
    keep(vault, CONTENT)
    assert file_of(root).stat().st_ino != first
    second = file_of(root).stat().st_ino
    keep(vault, CONTENT)
    assert file_of(root).stat().st_ino == second
