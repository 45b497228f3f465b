"""Files of a session, or next to it, with wrong numbers: bombs, holes, counts that would take all memory."""

import os
from pathlib import Path
from typing import Any

import pytest
import zstandard

import hansard
from hansard.log import disk
from hansard.log.sealed_segment import unpack
from tests.hostile.forge_files import (
    confined,
    frame_that_lies,
    nested,
    with_a_good_session,
)
from tests.unit.log.sealed_files import reindexed


def compacted(path: Path) -> Path:
    """Make a store with one session that was compacted; return the sealed segment."""
    with hansard.open(path, durability="os") as store:
        session = store.session("s")
        for number in range(50):
            session.add_message({"role": "user", "content": f"m{number}"}, key=f"k{number}")
        session.set_title("zebra")
        session.compact()
        assert session.seq == 51
    (found,) = (path / "sessions/s").glob("*.zst")
    return found


LIES: dict[str, dict[str, Any]] = {
    "a header without end": {"header": 10**18},
    "a header of nothing": {"header": 0},
    "lines without end": {"size": 10**18},
    "fewer keys than none": {"keys": -5, "pages": []},
    "a control record before the beginning": {"ctl": -1},
    "a control record after the end": {"ctl": 10**18},
    "a last event before the first": {"last": -1},
    "events without end": {"last": 10**30, "before": 10**30 - 51},
    "frames that go round": {"frames": [[10**30, 0, 0, 0], [-(10**30) + 9, 5, 1, 0]]},
    "frames over each other": {"frames": [[9, 0, 0, 0], [9, 0, 0, 0], [9, 0, 0, 0]]},
    "frames that go back": {"frames": [[9, 0, 0, 0], [9, 500, 0, 0], [9, 100, 0, 0]]},
    "no frames": {"frames": []},
    "a frame beyond the file": {"frames": [[10**9, 0, 0, 0]]},
    "more keys than there are": {"keys": 300},
    "fewer pages than keys need": {"pages": []},
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_lies_is_damage(lie: str, tmp_path: Path) -> None:
    """N-74, F-87: an index whose checksum fits, and whose numbers cannot be, is refused unused."""
    reindexed(compacted(tmp_path / "store"), **LIES[lie])
    with hansard.open(tmp_path / "store", durability="os") as store:
        session = store.session("s")
        (tmp_path / "store/sessions/s/checkpoint").unlink(missing_ok=True)
        for ask in (session.messages, session.state, lambda: list(session.events())):
            with pytest.raises(hansard.Damaged):
                ask()
        with pytest.raises(hansard.Damaged):
            session.add_message({"role": "user", "content": "x"}, key="k1")
        assert not session.verify().ok
        assert [info.id for info in store.sessions().items] == ["s"]


def test_a_repair_is_no_match_for_a_frame_that_lies(tmp_path: Path) -> None:
    """N-74, F-114: a frame that declares 60 MiB and has 8 GiB is refused in bounded memory."""
    file = tmp_path / "bomb"
    good = zstandard.ZstdCompressor().compress(b"a valid line\n")
    file.write_bytes(good + frame_that_lies(60 << 20, 1 << 16))
    program = """
import os, sys
from hansard.log.sealed_segment import unpack
target = os.open(sys.argv[1] + ".unpacked", os.O_RDWR | os.O_CREAT, 0o600)
found = unpack(os.open(sys.argv[1], os.O_RDONLY), sys.argv[1], target)
print(len(found.findings), os.fstat(target).st_size)
"""
    assert confined(program, file, memory=800 << 20).split() == [
        "2",
        str(2 + len(b"a valid line\n")),
    ]


def test_what_a_repair_unpacks_is_whole(tmp_path: Path) -> None:
    """F-114: frames without an index are unpacked byte for byte, also one that is fed in many steps."""
    lines = [os.urandom(50_000).hex().encode() + b"\n", b"short\n", b"", b"z" * 3_000_000 + b"\n"]
    packed = b"".join(zstandard.ZstdCompressor(level=1).compress(line) for line in lines)
    (tmp_path / "frames").write_bytes(packed)
    source = os.open(tmp_path / "frames", os.O_RDONLY)
    target = os.open(tmp_path / "lines", os.O_RDWR | os.O_CREAT, 0o600)
    found = unpack(source, "frames", target)
    assert (tmp_path / "lines").read_bytes() == b"".join(lines)
    assert len(found.findings) == 1, "the index is missing"
    os.close(source)
    os.close(target)


def test_a_small_file_that_grows_is_bounded(tmp_path: Path) -> None:
    """N-74: a file that may be small, and is not, is refused before it is read."""
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 40)
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="larger than it can be"):
            disk.read_all(directory, "file", 1 << 20)
    finally:
        os.close(directory)


def test_a_marker_that_is_deep_is_refused(tmp_path: Path) -> None:
    """F-1, N-74: a store whose marker is deeply nested JSON is refused, and left as it is."""
    path = with_a_good_session(tmp_path / "store")
    (path / "hansard.json").write_text(f'{{"hansard":"store","version":1,"x":{nested(20_000)}}}')
    with pytest.raises(hansard.UnknownFormat):
        hansard.open(path)
