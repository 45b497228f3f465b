"""Other users and processes that can write next to the store, or above it."""

import itertools
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.log import disk
from tests.hostile.forge_files import confined, with_a_good_session

#: A user without rights.
UNPRIVILEGED = 65534
MESSAGE = {"role": "user", "content": "zebra"}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes the superuser")

OPENING = """
import os, sys
import hansard
with hansard.open(sys.argv[1] + "/warm") as store:
    # While everything can be imported: this user may not see the interpreter's files.
    store.session("s").add_message({"role": "user", "content": "x"})
    store.sessions()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for name, read_only in (("trap", 0), ("store", 0), ("store", 1), ("mine", 0), ("volume", 0)):
    try:
        with hansard.open(f"{sys.argv[1]}/{name}", read_only=bool(read_only)) as store:
            if not read_only:
                store.session("s").add_message({"role": "user", "content": "secret"})
            print(len(store.sessions().items))
    except hansard.UnsafePath as error:
        print(error)
"""


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A directory like /tmp: every user may create files in it."""
    # Not pytest's own: only its owner may enter that.
    with tempfile.TemporaryDirectory(prefix="hansard-shared-") as directory:
        Path(directory).chmod(0o1777)
        yield Path(directory)


@as_root
def test_a_directory_that_another_made_is_not_written_into(shared_folder: Path) -> None:
    """N-13, F-3: another user's directory or store is refused; one's own, and the superuser's, is used."""
    for name, owner in (("trap", 12345), ("store", 12345), ("volume", 0)):
        (shared_folder / name).mkdir()
        (shared_folder / name).chmod(0o777)
        os.chown(shared_folder / name, owner, owner)
    (shared_folder / "store/hansard.json").write_text('{"hansard":"store","version":1}')
    for part in ("sessions", "trash"):
        (shared_folder / "store" / part).mkdir()
        (shared_folder / "store" / part).chmod(0o777)
    trap, theirs, read_only, mine, volume = confined(OPENING, shared_folder).splitlines()
    assert "trap belongs to uid 12345" in trap
    assert "store belongs to uid" in theirs
    assert list((shared_folder / "trap").iterdir()) == []
    assert list((shared_folder / "store/sessions").iterdir()) == []
    assert (read_only, mine, volume) == ("0", "1", "1"), "reading is harmless"
    made = (shared_folder / "mine").stat()
    assert (made.st_uid, stat.S_IMODE(made.st_mode)) == (UNPRIVILEGED, 0o700)
    # And the superuser may use every user's.
    with hansard.open(shared_folder / "mine") as store:
        assert store.session("s").seq == 1


@as_root
def test_another_user_can_do_nothing_with_a_store(shared_folder: Path) -> None:
    """N-13, F-3: another user cannot read a store, list it, or hold a lock of it."""
    path = with_a_good_session(shared_folder / "store")
    program = """
import fcntl, os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for name in ("", "hansard.json", "sessions", "sessions/good/lock", "sessions/good/log.jsonl", "marks/epoch"):
    for flags in (os.O_RDONLY, os.O_PATH | os.O_DIRECTORY):
        try:
            os.listdir(sys.argv[1]) if not name else os.close(os.open(f"{sys.argv[1]}/{name}", flags))
        except PermissionError:
            continue
        print("could open", name)
"""
    assert confined(program, path) == ""


@pytest.mark.parametrize(
    "part", ["sessions", "sessions/s", "trash", "internal", "internal/cursor-c", "marks"]
)
def test_a_part_that_becomes_a_link_at_any_moment_is_not_followed(
    part: str, tmp_path: Path
) -> None:
    """N-11, F-4: a directory that is repeatedly swapped for a link and back is never followed outside."""
    path = tmp_path / "store"
    outside = tmp_path / "outside"
    outside.mkdir()
    with hansard.open(path, durability="os") as store:
        store.session("s").add_message({"role": "user", "content": "x" * 1000})
        store.follow(cursor="c").close()
    stop = threading.Event()

    def swap() -> None:
        place, aside = path / part, tmp_path / "aside"
        numbers = itertools.count()
        while not stop.is_set():
            place.rename(aside)
            with suppress(FileExistsError):  # the store was faster, and created the directory again
                place.symlink_to(outside)
            # The attacker may be faster repeatedly: remove its file until the rename succeeds.
            while aside.exists():
                place.rename(tmp_path / f"{next(numbers)}")
                with suppress(OSError):
                    aside.rename(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    done = refused = 0
    try:
        for number in range(25):
            try:
                with hansard.open(path, durability="os") as store:
                    store.session("s").add_message({"role": "user", "content": f"{number}" * 300})
                    store.session(f"n{number}").add_message(MESSAGE)
                    store.follow(cursor="c").close()
                    done += 1
            except hansard.HansardError:
                refused += 1
    finally:
        stop.set()
        swapping.join()
    assert list(outside.iterdir()) == []
    assert done + refused == 25


def test_numbers_are_not_written_into_a_file_with_two_names(tmp_path: Path) -> None:
    """N-11, F-128: another user's file, linked to the name of the epoch, is left as it is."""
    path = with_a_good_session(tmp_path / "store")
    mine = tmp_path / "mine"
    mine.write_bytes(b"precious")
    (path / "marks/epoch").unlink()
    os.link(mine, path / "marks/epoch")
    with hansard.open(path, durability="os") as store:
        store.session("good").add_message(MESSAGE)
        assert [info.seq for info in store.sessions().items] == [2]
        store.session("good").add_message(MESSAGE)
        assert [info.seq for info in store.sessions().items] == [3]
    assert mine.read_bytes() == b"precious"


MARKS = {
    "a NUL": b"\ngo\0od\n",
    "a way out": b"\n../../outside\n/etc\n..\n.\n",
    "no text": b"\n\xff\xfe\n",
    "a name without end": b"\n" + b"x" * 100_000 + b"\n",
    "half a name": b"\ngo",
}


@pytest.mark.parametrize("harm", MARKS)
def test_marks_that_lie_lead_nowhere(
    harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-1, F-128, F-131: an invalid session name among the marks is skipped, and opens nothing."""
    path = with_a_good_session(tmp_path / "store")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/lock").touch()
    with hansard.open(path, durability="os") as store:
        assert len(store.sessions().items) == 1
    epoch = int.from_bytes((path / "marks/epoch").read_bytes()[:8], sys.byteorder)
    (path / "marks" / str(epoch)).write_bytes(MARKS[harm])
    opened: list[str] = []
    original = disk.open_directory

    def open_directory(parent: int, name: str) -> int:
        opened.append(name)
        return original(parent, name)

    monkeypatch.setattr(disk, "open_directory", open_directory)
    with hansard.open(path, durability="os") as store:
        store.session("good").add_message(MESSAGE)
        for _ in range(2):
            assert [info.seq for info in store.sessions().items] == [2]
    assert [name for name in opened if "/" in name or name == ".."] == []


@pytest.mark.parametrize("number", [b"\xff" * 24, b"\xff" * 7 + b"\x7f" + b"\xff" * 16, b"", b"x"])
def test_numbers_of_marks_that_lie_break_nothing(number: bytes, tmp_path: Path) -> None:
    """F-128, F-133, N-86: with any numbers in the files, a listing is right."""
    path = with_a_good_session(tmp_path / "store")
    with hansard.open(path, durability="os") as store:
        assert len(store.sessions().items) == 1
    (path / "marks/epoch").write_bytes(number)
    with hansard.open(path, durability="os") as store:
        for seq in (2, 3, 4):
            store.session("good").add_message(MESSAGE)
            assert [info.seq for info in store.sessions().items] == [seq]
    # And marks are still written: not every process has to read all logs from now on.
    epoch = int.from_bytes((path / "marks/epoch").read_bytes()[:8], sys.byteorder)
    assert 0 < epoch < (1 << 64) - 1


def test_names_that_are_no_text_hide_nothing(tmp_path: Path) -> None:
    """N-6, N-35: files whose names are not UTF-8, or have escapes, are ignored by all readers."""
    path = with_a_good_session(tmp_path / "store")
    for part in ("", "sessions", "trash", "marks"):
        for name in (b"\xff\xfe", b"\x1b[2J", b"a\nb", b".tmp-x-1-0123456789abcdez"):
            os.mkdir(os.fsencode(path / part) + b"/" + name)
    with hansard.open(path, durability="os") as store:
        assert [info.id for info in store.sessions().items] == ["good"]
        assert store.verify().ok
        assert store.trash() == []
        msgspec.json.encode(store.diagnose())
