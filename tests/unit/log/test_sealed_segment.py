"""A sealed segment is read by range, and only as far as requested; other files are refused."""

from pathlib import Path

import pytest
import zstandard

import hansard
from hansard.log import format, sealed_segment, sealed_writer
from hansard.log.sealed_segment import FRAME, INDEX_END, PAGE, SegmentIndex
from hansard.log.segment_reader import SegmentReader
from tests.hostile.forge_files import confined
from tests.unit.disk_probe import Traffic
from tests.unit.log.sealed_files import Record, opened, read, reindexed, seal


def big(count: int, size: int) -> list[Record]:
    """Return records of about this size in bytes."""
    return [
        Record(b'{"n":%d,"t":"%b"}' % (n, b"%d" % n * (size // len(str(n))))) for n in range(count)
    ]


def test_reading_a_range_decompresses_the_frames_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-81, N-77: of twenty frames, a few lines in the middle or at the end take one or two."""
    monkeypatch.setattr("hansard.log.sealed_writer.FRAME", MEBIBYTE)
    segment = opened(seal(tmp_path / "a", big(200, 100_000)))
    assert len(segment.index.frames) >= 19
    traffic = Traffic(monkeypatch)
    reader = SegmentReader(segment)
    start = reader.locate(99, segment.end)
    pieces = reader.forwards(start, segment.end)
    assert 100 in (line.seq for piece in pieces for line in piece.lines(format.decode_lines))
    assert len(traffic.reads) <= 3
    again = opened(tmp_path / "a")
    traffic.clear()
    last = next(iter(SegmentReader(again).backwards(again.end)))
    assert last.lines(format.decode_lines)[-1].seq == 200
    assert len(traffic.reads) <= 2


def test_a_key_among_many_is_found_by_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-83, N-56: of 100,000 keys each is found, and none that is not there, by a page or two."""
    records = [Record(b"{}", f"key-{n}") for n in range(100_000)]
    segment = opened(seal(tmp_path / "a", records))
    traffic = Traffic(monkeypatch)
    for n in range(0, 100_000, 997):
        traffic.clear()
        assert n + 1 in segment.find_key(sealed_segment.hash_of(f"key-{n}"))
        assert len(traffic.reads) <= 2
        assert traffic.read <= 2 * PAGE * sealed_segment.KEY.size
    for n in range(500):
        assert segment.find_key(sealed_segment.hash_of(f"other-{n}")) == []
    assert segment.find_key(0) == []
    assert segment.find_key(2**64 - 1) == []


@pytest.mark.parametrize("equal", [1, 2, 255, 256, 257, 700])
def test_keys_with_equal_hashes_are_all_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, equal: int
) -> None:
    """F-83, F-96: however many keys share a hash, and over however many pages, none is overlooked."""

    def hash_of(key: str) -> int:
        return 5 if key.startswith("same") else 1000 + int(key) * (-1) ** int(key)

    monkeypatch.setattr(sealed_writer, "hash_of", hash_of)
    records = [Record(b"{}", f"same{n}") for n in range(equal)]
    records += [Record(b"{}", str(n)) for n in range(900)]
    segment = opened(seal(tmp_path / "a", records))
    assert sorted(segment.find_key(5)) == list(range(1, equal + 1))
    assert segment.find_key(1000) == [equal + 1]
    assert segment.find_key(999) == [equal + 2]


def test_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    """F-45, N-44: an index of version 999 is refused with its version; the file stays unchanged."""
    path = reindexed(seal(tmp_path / "a", [Record(b"{}")]), version=999)
    before = path.read_bytes()
    with pytest.raises(hansard.UnknownFormat, match="999"):
        opened(path)
    assert path.read_bytes() == before


def test_members_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    """F-46, N-43: a newer minor version may have more members in the index."""
    path = reindexed(seal(tmp_path / "a", [Record(b"{}")]), later={"a": 1})
    assert len(read(opened(path))) == 1


MEBIBYTE = 1 << 20


#: Reads a sealed segment, and checks it.
READING = """
import os, sys
import hansard
from hansard.log.sealed_segment import SealedSegment
from hansard.log.segment_reader import SegmentReader
for name in "read", "check":
    try:
        segment = SealedSegment(os.open(sys.argv[1], os.O_RDONLY), "log", "s")
        if name == "read":
            list(SegmentReader(segment).forwards(segment.start, segment.end))
        segment.check()
    except hansard.Damaged as error:
        print(name, error.reason)
"""


def bomb(size: int, *, says: bool = True) -> bytes:
    """Return a zstd frame with this number of zeros, which declares its size or not."""
    maker = zstandard.ZstdCompressor(level=1, write_content_size=says).compressobj(
        size=size if says else -1
    )
    pieces = [maker.compress(bytes(16 * MEBIBYTE)) for _ in range(size // (16 * MEBIBYTE))]
    return b"".join([*pieces, maker.flush()])


@pytest.mark.parametrize(
    ("says", "claimed"),
    [(True, 1 << 30), (True, 1000), (False, 1 << 30), (False, 1000), (False, 60 * MEBIBYTE)],
)
def test_a_frame_that_holds_too_much_is_refused(tmp_path: Path, says: bool, claimed: int) -> None:
    """N-74: a zstd bomb is refused in bounded memory, for any declared size in frame and index."""
    packed = bomb(1 << 30, says=says)
    path = seal(tmp_path / "a", [Record(b"{}")], compress=lambda _: packed)
    reindexed(path, size=claimed)
    assert confined(READING, path, memory=300 * MEBIBYTE).count("frame") >= 2


def test_an_index_that_is_longer_than_one_can_be_is_refused(tmp_path: Path) -> None:
    """N-74: an index of a gigabyte is refused before it is read."""
    path = tmp_path / "a"
    table = sealed_segment.seek_table([(1, 1)])
    with path.open("wb") as file:
        file.truncate(2 << 30)
        file.seek(0, 2)
        file.write(INDEX_END.pack(1 << 30, 0, sealed_segment.OURS) + table)
    assert "does not fit" in confined(READING, path, memory=300 * MEBIBYTE)


def test_the_index_is_small(tmp_path: Path) -> None:
    """F-83: index and seek table of a small session take a few hundred bytes."""
    path = seal(tmp_path / "a", big(50, 1000))
    index: SegmentIndex = opened(path).index
    assert path.stat().st_size - sum(frame.length for frame in index.frames) < 600
    assert FRAME == 4 * MEBIBYTE
