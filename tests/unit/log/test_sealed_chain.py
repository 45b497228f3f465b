"""The sealed segments of a log are found by their names, whichever file covers an event."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.log import disk, format, names
from hansard.log.sealed_chain import SealedChain, check_chain
from hansard.log.segment_reader import Segment, SegmentReader
from tests.unit.log.sealed_files import Record, plain, seal

UPTO = 30

#: What a header says of the segment before it.
PREVIOUS = {"seq": 10, "crc": 0, "time": ""}


def records(first: int, last: int) -> list[Record]:
    """Return the events from one seq to another; every fifth has a key, every tenth is a control record."""
    return [
        Record(b'{"n":%d}' % n, f"k{n}" if n % 5 == 0 else None, control=n % 10 == 0)
        for n in range(first, last + 1)
    ]


def put(directory: Path, first: int, last: int, *, packed: bool = True, **facts: Any) -> Path:
    """Put a sealed segment into a session's directory, compressed or not."""
    name = names.sealed(first) if packed else names.unpacked(first)
    path = directory / name
    if packed:
        return seal(path, records(first, last), before=first - 1, begins=first == 1)
    path.write_bytes(plain(records(first, last), before=first - 1, **facts))
    return path


def chain_of(directory: Path) -> SealedChain:
    """Return the chain of the segments in a directory."""

    def open_directory() -> disk.OwnedFd:
        return disk.OwnedFd(os.open(directory, os.O_RDONLY))

    return SealedChain("s", f"{directory}/log.jsonl", UPTO, open_directory)


def seqs(chain: SealedChain, after: int = 0, upto: int = UPTO) -> list[int]:
    """Return the seqs that are read forwards, each once, as a reader takes them."""
    return [
        line.seq
        for piece, last in chain.forwards(after, upto)
        for line in piece.lines(format.decode_lines)
        if last < line.seq <= upto
    ]


def seqs_back(chain: SealedChain, upto: int = UPTO, after: int = 0) -> list[int]:
    """Return the seqs that are read backwards."""
    return [
        line.seq
        for piece, last in chain.backwards(upto, after)
        for line in reversed(piece.lines(format.decode_lines))
        if after < line.seq <= last
    ]


LAYOUTS: dict[str, Callable[[Path], object]] = {
    "one": lambda d: put(d, 1, 30),
    "three": lambda d: [put(d, 1, 10), put(d, 11, 20), put(d, 21, 30)],
    "one not compressed": lambda d: [put(d, 1, 10), put(d, 11, 20), put(d, 21, 30, packed=False)],
    "joined, the old ones left": lambda d: [put(d, 1, 30), put(d, 11, 20), put(d, 21, 30)],
    "joined, one of them left": lambda d: [put(d, 1, 30), put(d, 11, 20)],
    "joined, the last one left": lambda d: [put(d, 1, 30), put(d, 21, 30, packed=False)],
    "joined with the first": lambda d: [put(d, 1, 20), put(d, 11, 20), put(d, 21, 30)],
    "compressed and not": lambda d: [put(d, 1, 30), put(d, 1, 10, packed=False)],
    "foreign files, too": lambda d: [put(d, 1, 30), (d / ".tmp-x").write_bytes(b""),
        (d / "00000000000000000000.jsonl").write_bytes(b"")],
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whichever_file_covers_an_event_will_do(tmp_path: Path, layout: str) -> None:
    """F-167, N-39: with leftovers of a crash, each event is read once, in order, from anywhere."""
    LAYOUTS[layout](tmp_path)
    for after in range(UPTO):
        assert seqs(chain_of(tmp_path), after) == list(range(after + 1, UPTO + 1))
        assert seqs_back(chain_of(tmp_path), UPTO, after) == list(range(UPTO, after, -1))
    chain = chain_of(tmp_path)
    assert [line.seq for line in chain.controls()] == [10, 20, 30]
    assert chain.first().seq == 1
    for n in range(1, UPTO + 1):
        assert chain.find_key(f"k{n}") == ((n, 1) if n % 5 == 0 else None)
    assert chain.size() > 0


MISSING: dict[str, tuple[Callable[[Path], object], str]] = {
    "in the middle": (lambda d: [put(d, 1, 10), put(d, 21, 30)], r"event (11|20) is missing"),
    "the first": (lambda d: [put(d, 11, 20), put(d, 21, 30)], "event 10 is missing"),
    "the first, not compressed": (
        lambda d: [put(d, 11, 20, packed=False, previous=PREVIOUS), put(d, 21, 30)],
        "event 10 is missing",
    ),
}


@pytest.mark.parametrize("place", MISSING)
def test_a_segment_that_is_missing_is_damage(tmp_path: Path, place: str) -> None:
    """F-84, F-87, N-31: a missing segment is named; later events can be read, and none is skipped."""
    lay, says = MISSING[place]
    lay(tmp_path)
    assert seqs(chain_of(tmp_path), 20) == list(range(21, 31))
    for call in (
        seqs,
        seqs_back,
        lambda chain: chain.controls(),
        lambda chain: chain.find_key("x"),
    ):
        with pytest.raises(hansard.Damaged, match=says):
            call(chain_of(tmp_path))


def test_no_segment_at_all_is_damage(tmp_path: Path) -> None:
    """N-31: an active segment whose header names an earlier one does not begin the log."""
    with pytest.raises(hansard.Damaged, match="are missing"):
        seqs(chain_of(tmp_path))


def test_a_segment_under_another_name_is_damage(tmp_path: Path) -> None:
    """N-8: a segment that was copied over another's name, of the same log even, is refused."""
    LAYOUTS["three"](tmp_path)
    (tmp_path / names.sealed(21)).write_bytes((tmp_path / names.sealed(1)).read_bytes())
    with pytest.raises(hansard.Damaged, match="begins with event 1"):
        seqs(chain_of(tmp_path))
    (tmp_path / names.sealed(21)).unlink()
    seal(tmp_path / names.sealed(21), records(21, 30), before=20, session_id="other")
    with pytest.raises(hansard.Damaged, match="'other'"):
        seqs(chain_of(tmp_path))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """F-4, N-11: a symbolic link in the place of a sealed segment is refused, wherever it leads."""
    inside = tmp_path / "session"
    inside.mkdir()
    put(tmp_path, 1, 30)
    (inside / names.sealed(1)).symlink_to(tmp_path / names.sealed(1))
    with pytest.raises(hansard.UnsafePath):
        seqs(chain_of(inside))


def test_verify_reads_every_segment(tmp_path: Path) -> None:
    """F-87, N-34: a check of the chain meets damage in any segment, and a gap before the active one."""
    LAYOUTS["three"](tmp_path)
    log = tmp_path / "log.jsonl"
    log.write_bytes(plain([], before=UPTO))
    check_chain(chain_of(tmp_path), _active(log))
    for first in (1, 11, 21):
        path = tmp_path / names.sealed(first)
        data = path.read_bytes()
        path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
        with pytest.raises(hansard.Damaged):
            check_chain(chain_of(tmp_path), _active(log))
        path.write_bytes(data)
    log.write_bytes(plain([], before=UPTO + 5))
    with pytest.raises(hansard.Damaged):
        check_chain(chain_of(tmp_path), _active(log))


def _active(path: Path) -> SegmentReader:
    return SegmentReader(Segment(os.open(path, os.O_RDONLY), str(path), "s"))
