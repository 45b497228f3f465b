"""What is put into a sealed segment comes out of it, and zstd's own tools print its lines."""

import io
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import zstandard

from hansard.log.sealed_segment import FRAME
from tests.unit.log.sealed_files import Record, opened, plain, seal


def text(length: int, letter: str = "x") -> bytes:
    """Return data of exactly this size in bytes."""
    return b'{"t":"%b"}' % (letter.encode() * (length - len('{"t":""}')))


def some(rng: random.Random, count: int, largest: int) -> list[Record]:
    """Return random records, some of them in batches, with keys or as control records."""
    records: list[Record] = []
    while len(records) < count:
        batch = rng.choice([1, 1, 1, 2, 5])
        key = f"k{len(records)}" if rng.random() < 0.3 else None
        for place in range(batch):
            data = text(rng.randint(20, largest), rng.choice("abcé"))
            more = batch - 1 - place
            records.append(Record(data, None if place else key, more, rng.random() < 0.1))
    return records


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_a_frame_holds_four_mebibytes_of_whole_lines(tmp_path: Path, off: int) -> None:
    """F-79: a line that just fits stays in the frame; one byte more begins the next."""
    around = len(plain([Record(text(20))])) - 20
    records = [Record(text(FRAME - around + off)), Record(text(30))]
    records += [Record(text(2 * FRAME)), Record(text(30))]
    sealed = opened(seal(tmp_path / "a", records))
    whole = plain(records)
    starts = [frame.offset for frame in sealed.index.frames]
    assert all(whole[start - 1 : start] == b"\n" for start in starts[1:])
    sizes = [b - a for a, b in zip(starts, [*starts[1:], len(whole)], strict=True)]
    assert sum(size > FRAME for size in sizes) == 1, "the long line, alone in its frame"
    assert (sizes[0] == FRAME) == (off == 0)
    assert sealed.read(0, len(whole)) == whole
    sealed.check()


def test_zstd_prints_the_lines(tmp_path: Path, rng: random.Random) -> None:
    """F-82: every decoder of zstd prints exactly the lines, and passes over index and seek table."""
    records = some(rng, 40, 200_000)
    path = seal(tmp_path / "a.zst", records)
    stream = zstandard.ZstdDecompressor().stream_reader(
        io.BytesIO(path.read_bytes()), read_across_frames=True
    )
    assert stream.read() == plain(records)
    binary = shutil.which("zstd")
    if binary is not None:
        done = subprocess.run([binary, "-dc", path], capture_output=True, check=True, timeout=60)
        assert done.stdout == plain(records)
