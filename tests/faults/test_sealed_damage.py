"""A sealed segment of which any byte is wrong, or which ends anywhere, never gives a wrong answer."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

import hansard
from hansard.log.format import decode_lines
from hansard.log.sealed_segment import SealedSegment, hash_of
from tests.unit.log.sealed_files import Record, opened, plain, read, reader_of, seal

RECORDS = [
    Record(b'{"message":{"role":"user","content":"hello"}}', "k1", 1),
    Record(b'{"message":{"role":"assistant","content":"How can I help?"}}'),
    Record(b'{"metadata":{"title":"Greeting"}}', control=True),
    Record(b'{"message":{"role":"user","content":"I lost my key, my key, my key."}}', "k2"),
    Record(b'{"metadata":{"title":"Keys"}}', control=True),
]


def _records(sealed: SealedSegment) -> object:
    return [(line.seq, bytes(line.data), line.key, line.more) for line in read(sealed)]


def _backwards(sealed: SealedSegment) -> object:
    pieces = reader_of(sealed).backwards(sealed.end)
    return [bytes(line.data) for piece in pieces for line in piece.lines(decode_lines)]


def _controls(sealed: SealedSegment) -> object:
    return [(line.seq, bytes(line.data)) for line in reader_of(sealed).controls(sealed.index.ctl)]


def _keys(sealed: SealedSegment) -> object:
    return [sealed.find_key(hash_of(key)) for key in ("k1", "k2", "k3")]


def _known(sealed: SealedSegment) -> object:
    return sealed.start, sealed.end, sealed.time, sealed.session_id, sealed.index.ctl


QUESTIONS: list[Callable[[SealedSegment], object]] = [
    _records,
    _backwards,
    _controls,
    _keys,
    _known,
]


def answers(path: Path) -> Iterator[object]:
    """Yield what each question is answered with; None where damage is reported."""
    try:
        sealed = opened(path)
    except hansard.Damaged:
        yield from [None] * len(QUESTIONS)
        return
    for ask in QUESTIONS:
        try:
            yield ask(sealed)
        except hansard.Damaged:
            yield None


def passes(path: Path) -> bool:
    """Return whether `verify` would find nothing."""
    try:
        sealed = opened(path)
        read(sealed)
        sealed.check()
    except hansard.Damaged:
        return False
    return True


@pytest.fixture
def valid(tmp_path: Path) -> Path:
    """Return a small sealed segment."""
    return seal(tmp_path / "valid", RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_every_byte_that_is_wrong_is_noticed_or_harmless(
    tmp_path: Path, valid: Path, flip: int
) -> None:
    """F-32, N-34: a flipped byte is reported by reads of what it damages; no answer is ever wrong."""
    data = valid.read_bytes()
    right = list(answers(valid))
    path = tmp_path / "flipped"
    harmless = 0
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
        found = list(answers(path))
        for place, answer in enumerate(found):
            assert answer in (None, right[place]), (at, QUESTIONS[place])
        if passes(path):
            # What `verify` lets pass must be of no consequence at all: zstd's own tools, too, print the same.
            harmless += 1
            assert found == right, at
            assert _printed(path) == plain(RECORDS), at
    assert harmless <= 3, "bits of a frame's header that mean nothing"


def _printed(path: Path) -> bytes:
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
