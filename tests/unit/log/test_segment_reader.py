"""Reading from either end, in pieces of any size, gives the same records, and only those requested."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import hansard
from hansard.log import format, names, segment_reader
from hansard.log.segment_reader import SegmentReader, open_segment
from tests.crashlab import faults
from tests.format.handwritten_log import HandwrittenLog


class Written:
    """A random log, and its content."""

    def __init__(self, rng: random.Random, length: int) -> None:
        self.log = HandwrittenLog()
        self.events: list[int] = []
        self.controls: list[int] = []
        #: The offsets between two appends.
        self.marks = [len(self.log.data)]
        self._ctl = 0
        for _ in range(length):
            self._step(rng)

    def _extra(self, more: int = 0) -> str:
        batch = f',"more":{more}' if more else ""
        return batch + (f',"ctl":{self._ctl}' if self._ctl else "")

    def _step(self, rng: random.Random) -> None:
        log = self.log
        kind = rng.choice(["one", "one", "one", "batch", "control", "note", "torn", "large"])
        if kind == "control":
            offset = len(log.data)
            log.record({"n": 1}, extra=',"control":true' + self._extra())
            self._ctl = offset
            self.controls.append(log.seq)
        elif kind == "note":
            log.note("word", {}, extra=self._extra())
        elif kind == "torn":
            log.data += b""
            self._tear(rng)
        else:
            size = rng.choice([2, 3, 5, 40]) if kind == "batch" else 1
            text = "x" * (rng.randrange(400) if kind == "large" else 3)
            for more in reversed(range(size)):
                log.record({"n": log.seq, "text": text}, extra=self._extra(more))
        self.events = list(range(1, log.seq + 1))
        self.marks.append(len(log.data))

    def _tear(self, rng: random.Random) -> None:
        offset, seq = len(self.log.data), self.log.seq
        # An unfinished batch: none of its records, or some, of as many as there would have been.
        size = rng.choice([2, 3, 20])
        for more in range(size - 1, size - 1 - rng.randrange(size), -1):
            self.log.record({"lost": more}, extra=self._extra(more))
        self.log.data += b'{"seq":99' + bytes(rng.randrange(30)) + b"~torn\n"
        self.log.seq = seq
        torn = {"offset": offset, "bytes": len(self.log.data) - offset}
        self.log.note("recovered", torn, extra=self._extra())


def read(tmp_path: Path, directory: int, data: bytes) -> SegmentReader:
    """Return a reader of these bytes."""
    (tmp_path / names.LOG).write_bytes(data)
    segment = open_segment(directory, str(tmp_path / names.LOG), "s", writable=False)
    assert segment is not None
    return SegmentReader(segment)


@pytest.fixture(params=[64, 300, 1 << 16], ids="windows of {} bytes".format)
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Read in pieces of this size: the logs of these tests are short."""
    size: int = request.param
    monkeypatch.setattr(segment_reader, "WINDOW", size)
    monkeypatch.setattr(segment_reader, "PIECE", 2 * size)
    monkeypatch.setattr(segment_reader, "_NEAR", 2 * size)
    return size


def test_both_directions_give_all_events(
    tmp_path: Path, directory: int, rng: random.Random, window: int
) -> None:
    """F-41, N-77: forwards and backwards, in pieces of any size, every event comes once, in order."""
    for length in (1, 5, 60, 60):
        written = Written(rng, length)
        found = read(tmp_path, directory, written.log.data)
        tail = found.log_end()
        assert (tail.position.seq, tail.position.offset) == (written.log.seq, len(written.log.data))
        assert tail.position.crc == format.crc32(written.log.data)
        forwards = [
            line.seq
            for piece in found.forwards(found.segment.start, tail.position)
            for line in piece.lines(format.decode_lines)
        ]
        assert forwards == written.events
        backwards: list[int] = []
        for piece in found.backwards(tail.position):
            backwards[:0] = [line.seq for line in piece.lines(format.decode_lines)]
        assert backwards == written.events


def test_the_end_does_not_depend_on_what_was_known(
    tmp_path: Path, directory: int, rng: random.Random, window: int
) -> None:
    """F-39, F-41, N-18: the answer about the end does not depend on cached state."""
    written = Written(rng, 40)
    data = written.log.data
    watching = read(tmp_path, directory, data[: written.marks[0]])
    known = watching.log_end()
    for mark in written.marks[1:]:
        (tmp_path / names.LOG).write_bytes(data[:mark])
        known = watching.log_end(known)
        fresh = read(tmp_path, directory, data[:mark]).log_end()
        assert known == fresh
        assert known.position.offset == mark == known.size


@pytest.mark.parametrize("tail", [150, 600, 1 << 12])
def test_the_last_record_says_what_all_new_lines_say(
    tmp_path: Path, directory: int, rng: random.Random, monkeypatch: pytest.MonkeyPatch, tail: int
) -> None:
    """F-39, N-18: from any known end, the last record gives the same end, or none; a short one gives it."""
    monkeypatch.setattr(segment_reader, "_TAIL", tail)
    written = Written(rng, 40)
    data = written.log.data
    given = 0
    for place, mark in enumerate(written.marks[1:], 1):
        found = read(tmp_path, directory, data[:mark])
        whole = found.log_end()
        for before in written.marks[:place]:
            known = read(tmp_path, directory, data[:before]).log_end()
            (tmp_path / names.LOG).write_bytes(data[:mark])
            end = found.end_after(known, mark)
            assert end in (None, whole)
            given += end is not None
            last = data[data.rfind(b"\n", 0, mark - 1) + 1 : mark]
            if mark - before > tail and last.startswith(b'{"seq"') and len(last) < tail - 20:
                assert end == whole
    assert given


def _known_and_new() -> tuple[bytes, HandwrittenLog]:
    """Return a short log, and the same with many more records."""
    log = HandwrittenLog().message({"n": 0})
    known = log.data
    for number in range(1, 9):
        log.message({"n": number})
    return known, log


def _after_a_fragment(log: HandwrittenLog) -> bytes:
    log.data += b'{"seq":10~torn\n'
    return log.message({"n": 9}).data


def _flipped(data: bytes, offset: int) -> bytes:
    return data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]


def _cut_and_grown(log: HandwrittenLog) -> bytes:
    other = HandwrittenLog().message({"other": 0})
    while len(other.data) < len(log.data):
        other.message({"other": 1})
    return other.data


#: What is at the end of a log of which all but the first record is new.
ENDS: dict[str, Callable[[HandwrittenLog], bytes]] = {
    "a note": lambda log: log.note("failed", {"shut": ["failed"]}).data,
    "an unfinished batch": lambda log: log.message({"n": 9}, extra=',"more":1').data,
    "a torn tail": lambda log: log.data[:-1],
    "zeros": lambda log: log.data + bytes(5),
    "a damaged record": lambda log: _flipped(log.data, len(log.data) - 40),
    "a record after a damaged checksum": lambda log: _flipped(
        log.data, log.data.rfind(b"\n", 0, -1) - 5
    ),
    "a discarded fragment": lambda log: log.data + b'{"seq":~torn\n',
    "a record after a fragment": _after_a_fragment,
    "a seq given out before": lambda log: log.record({"n": 1}, seq=1).data,
    "another log": _cut_and_grown,
}


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("tail", [200, 1 << 12], ids=["the last line", "all that is new"])
def test_the_last_line_alone_is_not_trusted_unless_it_is_a_record_of_this_log(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch, kind: str, tail: int
) -> None:
    """F-32, F-34, F-39, N-29: every other end of a log is left to the full check."""
    monkeypatch.setattr(segment_reader, "_TAIL", tail)
    before, log = _known_and_new()
    found = read(tmp_path, directory, before)
    known = found.log_end()
    (tmp_path / names.LOG).write_bytes(log.data)
    assert found.end_after(known, len(log.data)) == read(tmp_path, directory, log.data).log_end()
    data = ENDS[kind](log)
    (tmp_path / names.LOG).write_bytes(data)
    assert found.end_after(known, len(data)) is None


def test_a_log_that_was_cut_has_no_end_after_the_known_one(tmp_path: Path, directory: int) -> None:
    """F-32, F-39: a shorter file is left to the full check, which refuses it."""
    before, log = _known_and_new()
    found = read(tmp_path, directory, log.data)
    known = found.log_end()
    (tmp_path / names.LOG).write_bytes(before)
    assert found.end_after(known, len(before)) is None


def test_the_control_records_are_found_from_the_end(
    tmp_path: Path, directory: int, rng: random.Random, window: int
) -> None:
    """F-19: the last line leads to all control records, and each costs one read."""
    for _ in range(5):
        written = Written(rng, 50)
        found = read(tmp_path, directory, written.log.data)
        tail = found.log_end()
        with faults.record() as trace:
            controls = found.controls(tail.ctl)
        assert [line.seq for line in controls] == written.controls
        reads = [call for call in trace.calls if call.operation == "read_at"]
        assert len(reads) <= 2 * len(controls)


def test_a_place_is_found_for_every_seq(
    tmp_path: Path, directory: int, rng: random.Random, window: int
) -> None:
    """F-12: for each seq there is a mark at or before it, from which reading on finds it."""
    written = Written(rng, 80)
    found = read(tmp_path, directory, written.log.data)
    end = found.log_end().position
    for seq in rng.sample(written.events, len(written.events)):
        mark = found.locate(seq, end)
        assert mark.seq <= seq
        piece = next(found.forwards(mark, end), None)
        lines = [] if piece is None else piece.lines(format.decode_lines)
        assert [line.seq for line in lines] == list(range(mark.seq + 1, mark.seq + len(lines) + 1))


def test_a_batch_that_is_longer_than_a_piece_is_not_decoded_line_by_line(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-77, F-41: to find the ends of a batch of 3,000 records, some dozens of its lines are decoded."""
    log = HandwrittenLog().message({"n": 0})
    # Not by `record`, which computes the checksum of all for each.
    check = format.crc32(log.data)
    lines = []
    for seq in range(2, 3_002):
        line, check = format.record(seq, b"now", b"x", b'{"n":1}', check, more=3_001 - seq)
        lines.append(line)
    found = read(tmp_path, directory, log.data + b"".join(lines))
    monkeypatch.setattr(segment_reader, "PIECE", 1 << 12)
    monkeypatch.setattr(segment_reader, "WINDOW", 1 << 10)
    decoded: list[bytes] = []

    def count(raw: bytes) -> format.Line:
        decoded.append(raw)
        return decode_line(raw)

    decode_line = format.decode_line
    monkeypatch.setattr(format, "decode_line", count)
    tail = found.log_end()
    with faults.record() as trace:
        pieces = list(found.forwards(found.segment.start, tail.position))
    # Once to check that the batch is finished, and once to read it.
    assert len(trace.calls) <= 2 * tail.position.offset // (1 << 12) + 10
    assert max(len(piece.data) for piece in pieces) <= 1 << 12
    with faults.record() as trace:
        again = list(found.forwards(found.segment.start, tail.position))
    assert again == pieces
    assert len(trace.calls) == len(pieces)
    pieces += found.backwards(tail.position)
    assert tail.position.seq == 3_001
    assert sum(len(piece.lines(format.decode_lines)) for piece in pieces) == 2 * 3_001
    assert len(decoded) < 250


@pytest.mark.parametrize("retried", [3, 6, 20, 40])
def test_a_batch_that_was_not_finished_is_left_out_however_it_is_cut(
    tmp_path: Path, directory: int, window: int, retried: int
) -> None:
    """F-29, F-30: it may be longer than a piece, and a known position after it may have one of its seqs."""
    log = HandwrittenLog().message({"n": 0})
    offset = len(log.data)
    for more in range(19, 9, -1):
        log.record({"try": 1}, extra=f',"more":{more}')
    log.seq = 1
    log.note("recovered", {"offset": offset, "bytes": len(log.data) - offset})
    for more in reversed(range(retried)):
        log.record({"try": 2}, extra=f',"more":{more}' if more else "")
    found = read(tmp_path, directory, log.data)
    end = found.log_end().position
    # A second time, from and to positions that the first one remembers.
    for _ in range(2):
        lines = [
            line
            for piece in found.forwards(found.segment.start, end)
            for line in piece.lines(format.decode_lines)
        ]
        assert [line.seq for line in lines] == list(range(1, retried + 2))
        assert all(b"1" not in bytes(line.data) for line in lines)


@pytest.mark.parametrize("lost", range(1, 9))
def test_a_batch_that_failed_twice_ends_after_the_note(
    tmp_path: Path, directory: int, lost: int
) -> None:
    """F-29, F-41: two unfinished batches that look alike are two: the log ends between them."""
    log = HandwrittenLog().message({"n": 0})
    offset = len(log.data)

    def fail() -> None:
        for more in range(10, 10 - lost, -1):
            log.record({"n": more}, extra=f',"more":{more}')
        log.seq = 1

    fail()
    log.data += b'{"seq":~torn\n'
    log.note("recovered", {"offset": offset, "bytes": len(log.data) - offset})
    end = len(log.data)
    fail()
    tail = read(tmp_path, directory, log.data).log_end()
    assert (tail.position.offset, tail.position.seq, tail.size) == (end, 1, len(log.data))


def test_a_control_chain_that_leads_astray_is_damage(tmp_path: Path, directory: int) -> None:
    """F-19, F-32: a `ctl` that points to no control record is damage, and never a loop."""
    log = HandwrittenLog()
    first = len(log.data)
    log.message({"n": 1}).message({"n": 2}, f',"ctl":{first}')
    found = read(tmp_path, directory, log.data)
    with pytest.raises(hansard.Damaged, match="invalid control-event offset"):
        found.controls(found.log_end().ctl)
    log = HandwrittenLog()
    log.record({}, extra=f',"control":true,"ctl":{len(log.data)}')
    found = read(tmp_path, directory, log.data)
    with pytest.raises(hansard.Damaged, match="invalid control-event offset"):
        found.controls(found.log_end().ctl)
