"""Repair of damage: everything outside it stays, a copy of it is kept, and no caller gets a wrong answer.

A repair may be refused by the disk, may die at any step, may meet writers, readers and other repairers. What
it leaves is the log as it was, or the repaired log, and what others append is in it or was not acknowledged.
"""

import contextlib
import errno
import itertools
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.backend.local import compact
from hansard.backend.local.log import LocalLog
from tests.crashlab import faults
from tests.faults.logs import ID, Bench, Log
from tests.faults.workers import Crew, Wire, open_store, run_threads

NEW = {"role": "user", "content": "new"}


def put(bench: Bench, data: bytes) -> None:
    """Replace the log, with nothing of an earlier repair next to it."""
    for file in bench.file.parent.iterdir():
        if file.name not in {"log.jsonl", "lock"}:
            file.unlink()
    bench.put(data)


def events_of(bench: Bench) -> list[hansard.Event]:
    """Return the events of the log that is there."""
    with bench.reader() as store:
        return list(store.session(ID).events())


def kept_files(bench: Bench) -> dict[str, bytes]:
    """Return the files that repairs have kept."""
    return {
        file.name: file.read_bytes()
        for file in bench.file.parent.iterdir()
        if file.name.startswith("damaged-")
    }


def check_repaired(
    bench: Bench, bad: bytes, truth: list[hansard.Event], report: Any
) -> list[hansard.Event]:
    """Fail unless a repaired session is valid, reports what was lost, and has all other events."""
    assert report.repaired
    assert report.ok
    with bench.writer() as store:
        session = store.session(ID)
        assert session.verify().ok
        events = list(session.events())
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        last = events[-1]
        assert last.kind == "session.repaired"
        assert last.data["kept"] == report.kept
        assert last.data.get("unchecked", []) == report.unchecked
        lost = {seq for first, end in report.lost for seq in range(first, end + 1)}
        for event in events[:-1]:
            assert (event.kind == "event.lost") == (event.seq in lost)
            if event.kind == "event.lost":
                assert event.data["kept"] in report.kept
            else:
                # Nothing is made up: what is there was there before, at this place.
                assert event == truth[event.seq - 1] or event.seq in report.unchecked
        assert session.messages() == [
            event.data["message"] for event in events if event.kind == "message.added"
        ]
        assert session.state().seq == last.seq
        assert session.state().kinds.get("event.lost", 0) == len(lost)
        assert session.add_message(NEW).seq == last.seq + 1
    kept = kept_files(bench)
    assert set(kept) >= set(report.kept)
    assert bad in kept.values()
    assert not [name for name in os.listdir(bench.file.parent) if name.startswith(".tmp")]
    return events[:-1]


def repair_log(bench: Bench, bad: bytes, truth: list[hansard.Event]) -> list[hansard.Event]:
    """Repair a damaged log, and check what came of it."""
    put(bench, bad)
    with bench.writer() as store:
        report = store.session(ID).repair()
    return check_repaired(bench, bad, truth, report)


def line_at(data: bytes, at: int) -> int:
    """Return the number of the line of a byte."""
    return data[:at].count(b"\n")


def seqs_in(lines: list[bytes], truth: list[hansard.Event]) -> dict[int, int]:
    """Return, by the number of a line, the seq of the event that it is the record of."""
    found: dict[int, int] = {}
    for number, line in enumerate(lines):
        if line.startswith(b'{"seq":') and not line.endswith(b"~torn\n"):
            # A seq that was given out again: the later line is the event.
            seq = int(line[7 : line.index(b",")])
            found = {known: old for known, old in found.items() if old != seq}
            found[number] = seq
    assert sorted(found.values()) == [event.seq for event in truth]
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_everything_but_the_altered_lines_is_kept(
    log: Log, bench: Bench, rng: random.Random
) -> None:
    """N-30, N-34, F-110, F-113: whichever bytes are altered, no event of another line is lost or changed."""
    put(bench, log.data)
    truth = events_of(bench)
    seqs = seqs_in(log.data.splitlines(keepends=True), truth)
    places = [[at] for at in range(0, len(log.data) - 1, 31)]
    # Several at once, some of them long, each in separate lines.
    places += [sorted(rng.sample(range(log.start, len(log.data) - 100), 3)) for _ in range(60)]
    for at in places:
        bad, hit = bytearray(log.data), set()
        for begin in at:
            length = 1 if len(at) == 1 else rng.randrange(80)
            filler = rng.choice([log.data[begin] ^ 1 << rng.randrange(8), 0, 0xFF, 0x0A])
            bad[begin : begin + length] = bytes([filler]) * length
            # A line whose end was taken away takes the next one with it.
            hit |= set(range(line_at(log.data, begin), line_at(log.data, begin + length) + 1))
        put(bench, bytes(bad))
        with bench.writer() as store:
            try:
                if store.session(ID).verify().ok:
                    continue
            except hansard.UnknownFormat:
                continue  # a version that is not known is refused: below
        events = repair_log(bench, bytes(bad), truth)
        kept = {event.seq for event in events if event.kind != "event.lost"}
        assert kept >= {seq for number, seq in seqs.items() if number not in hit}, at


def test_lines_that_are_cut_doubled_or_swapped(log: Log, bench: Bench) -> None:
    """N-26, N-34, F-111: of removed lines only these are lost; doubled and swapped ones are kept."""
    put(bench, log.data)
    truth = events_of(bench)
    lines = log.data.splitlines(keepends=True)
    seqs = seqs_in(lines, truth)
    count = len(lines)
    for at in range(1, count - 2):
        events = repair_log(bench, b"".join(lines[:at] + lines[at + 1 :]), truth)
        kept = {event.seq for event in events if event.kind != "event.lost"}
        assert kept >= {seq for number, seq in seqs.items() if number not in {at, at + 1}}
        if at in seqs and at + 1 in seqs and at + 2 in seqs:
            assert kept >= {seqs[at + 1]}, "the line after a missing one is valid"
    everything = {event.seq for event in truth}
    for at in sorted(seqs)[:-1]:
        doubled = repair_log(
            bench, b"".join([*lines[: at + 1], lines[at], *lines[at + 1 :]]), truth
        )
        assert {event.seq for event in doubled if event.kind != "event.lost"} == everything
    for at in range(1, count - 2):
        if {at, at + 1} <= set(seqs):
            swapped = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
            events = repair_log(bench, b"".join(swapped), truth)
            assert {event.seq for event in events if event.kind != "event.lost"} == everything


def test_a_record_is_kept_on_the_other_side_of_a_fragment(bench: Bench) -> None:
    """F-111: a discarded fragment between a record and the one before it costs no event but its own."""
    with bench.writer() as store:
        store.session(ID).add_messages([{"n": n} for n in range(3)])
    # Two of three: their seqs are assigned again.
    bench.file.write_bytes(b"".join(bench.file.read_bytes().splitlines(keepends=True)[:-1]))
    with bench.writer() as store:
        for n in range(3):
            store.session(ID).add_message({"n": n})
    truth = events_of(bench)
    lines = bench.file.read_bytes().splitlines(keepends=True)
    for at in (-1, -2, -3):
        events = repair_log(bench, b"".join([*lines[:at], b"x~torn\n", *lines[at:]]), truth)
        assert [event.kind for event in events] == [event.kind for event in truth]


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("place", [2, -11, -1])
def test_a_last_line_that_was_moved_is_kept_or_named_as_lost(
    bench: Bench, place: int, batch: int
) -> None:
    """N-34, F-113: no seq of a record that was moved is given to another event, however far it was moved."""
    with bench.writer() as store:
        for n in range(1, 60 // batch):
            store.session(ID).add_messages([{"n": n}] * batch)
    truth = events_of(bench)
    *lines, last = bench.file.read_bytes().splitlines(keepends=True)
    events = repair_log(bench, b"".join([*lines[:place], last, *lines[place:]]), truth)
    assert [event.seq for event in events] == [event.seq for event in truth]
    # Next to its place, it is recognized.
    assert (events[-1].kind == "event.lost") == (place != -1)


@pytest.mark.parametrize(
    "bad",
    [b"", b"\n", b"\0" * 5000, b"{}\n[]\nnull\n", b"\xff\xfe\n" * 9, b'{"seq":1}\n', b"x" * 100],
    ids=["empty", "newline", "zeros", "json", "binary", "no-trailer", "no-line"],
)
def test_what_is_no_log_at_all(bench: Bench, bad: bytes) -> None:
    """N-30, N-31, F-112: a file that is not a log is kept, and the session continues after it."""
    put(bench, bad)
    with bench.writer() as store:
        assert not store.session(ID).verify().ok
        report = store.session(ID).repair()
        assert (report.repaired, report.ok, report.salvaged) == (True, True, 0)
        session = store.session(ID)
        events = list(session.events())
        assert {event.kind for event in events[:-1]} <= {"event.lost"}
        assert events[-1].kind == "session.repaired"
        assert session.add_message(NEW).seq == len(events) + 1
    assert list(kept_files(bench).values()) == [bad]


def test_a_damaged_header_is_written_again(log: Log, bench: Bench) -> None:
    """F-23, F-112: without a header all events are there, and the session began when it began."""
    put(bench, log.data)
    truth = events_of(bench)
    with bench.reader() as store:
        created = store.session(ID).state().created_stamp
    other = b"1" if log.data[log.start - 4] == ord("0") else b"0"
    for bad in (
        b"x" + log.data[1:],
        bytes(log.start - 1) + log.data[log.start - 1 :],
        log.data[log.start :],
        log.data.replace(b'"session":"s"', b'"session":"t"', 1),
        log.data[: log.start - 4] + other + log.data[log.start - 3 :],  # only its checksum
    ):
        events = repair_log(bench, bad, truth)
        assert events == truth
        with bench.reader() as store:
            assert store.session(ID).state().created_stamp == created


def test_what_must_not_be_repaired(bench: Bench, log: Log, tmp_path: Path) -> None:
    """N-8, N-44, F-24, F-45: another session's log, a later version's and a read-only store do not change."""
    with hansard.open(tmp_path / "other", durability="os") as other:
        other.session("another").add_message(NEW)
    foreign = (tmp_path / "other/sessions/another/log.jsonl").read_bytes()
    later = log.data.replace(b'"version":1', b'"version":9', 1)
    for data, error in ((foreign, hansard.Damaged), (later, hansard.UnknownFormat)):
        put(bench, data)
        with bench.writer() as store, pytest.raises(error):
            store.session(ID).repair()
        assert bench.file.read_bytes() == data
        assert kept_files(bench) == {}
    put(bench, flipped(log.data))
    with bench.reader() as store, pytest.raises(hansard.ReadOnly):
        store.session(ID).repair()
    assert bench.file.read_bytes() == flipped(log.data)


def test_nothing_to_repair_writes_nothing(log: Log, bench: Bench) -> None:
    """N-62, F-110: a log that is valid, or ends in a torn tail, is not changed, and reported as valid."""
    for data in (log.data, log.data + b'{"seq":99,"ti', log.data[:-1]):
        put(bench, data)
        before = sorted(os.listdir(bench.file.parent))
        with bench.writer() as store, faults.record() as disk_calls:
            report = store.session(ID).repair()
        assert (report.repaired, report.ok, report.kept) == (False, True, [])
        assert not [call for call in disk_calls.calls if call.operation in {"write", "move"}]
        assert bench.file.read_bytes() == data
        assert sorted(os.listdir(bench.file.parent)) == before


# -- sealed segments ----------------------------------------------------------------------------


def check_continues(session: hansard.Session) -> list[hansard.Event]:
    """Fail unless a valid session can be appended to and sealed; return its events before that."""
    assert session.verify().ok
    events = list(session.events())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    session.add_message(NEW)
    # What a crash left next to the log is not taken for it by the next seal (F-87).
    session.compact()
    assert list(session.events())[:-1] == events
    assert session.messages(last=1) == [NEW]
    assert session.verify().ok
    return events


class Sealed:
    """A session with a sealed segment, compressed or not, and its messages."""

    def __init__(self, path: Path, *, packed: bool) -> None:
        self.path = path
        with hansard.open(path, durability="os", auto_compact=False) as store:
            session = store.session(ID)
            for number in range(40):
                session.add_message({"role": "user", "content": f"{number} " + "é" * 40})
            session.add_messages([{"b": 1}, {"b": 2}, {"b": 3}], key="k")
            session.set_metadata(title="t")
            log: Any = store._backend.log(ID)  # sealed by hand, and not compressed
            session.compact() if packed else log._writer.seal()
            for number in range(5):
                session.add_message({"role": "user", "content": f"later {number}"})
            self.truth = list(session.events())
        self.directory = path / "sessions" / ID
        self.files = {file.name: file.read_bytes() for file in self.directory.iterdir()}
        self.name = next(name for name in self.files if name.startswith("0000"))
        self.data = self.files[self.name]
        self.log = self.files["log.jsonl"]

    def put(self, data: bytes | None, log: bytes | None = None) -> None:
        """Put the files back, with the sealed segment damaged, or missing."""
        for file in self.directory.iterdir():
            file.unlink()
        for name, content in self.files.items():
            (self.directory / name).write_bytes(content)
        (self.directory / self.name).unlink()
        if data is not None:
            (self.directory / self.name).write_bytes(data)
        (self.directory / "log.jsonl").write_bytes(self.log if log is None else log)

    def repair(self, **options: bool) -> tuple[Any, list[hansard.Event]]:
        """Repair it, check that it is valid and continues, and return the report and the events."""
        with hansard.open(self.path, durability="os", auto_compact=False) as store:
            session = store.session(ID)
            report = session.repair(**options)
            assert report.ok
            assert session.messages(last=5)
            session.state()
            events = check_continues(session)
            lost = {seq for first, end in report.lost for seq in range(first, end + 1)}
            for event in events[: len(self.truth)]:
                assert (event.kind == "event.lost") == (event.seq in lost)
                assert event.seq in lost or event == self.truth[event.seq - 1]
        return report, events


@pytest.fixture(scope="module", params=[True, False], ids=["packed", "unpacked"])
def sealed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    """Return a session with a sealed segment."""
    return Sealed(tmp_path_factory.mktemp("sealed") / "store", packed=request.param)


@pytest.mark.slow
def test_a_damaged_sealed_segment(sealed: Sealed, rng: random.Random) -> None:
    """N-34, N-46, F-114: whichever byte of a sealed segment is altered, the reported file holds it."""
    for at in rng.sample(range(len(sealed.data)), 15):
        bad = bytearray(sealed.data)
        bad[at] ^= 1 << rng.randrange(8)
        sealed.put(bytes(bad))
        with hansard.open(sealed.path, durability="os") as store:
            try:
                if store.session(ID).verify().ok:
                    continue  # an unused bit of zstd
            except hansard.UnknownFormat:
                continue
        report, _ = sealed.repair()
        assert report.repaired
        assert (sealed.directory / report.kept[0]).read_bytes() == bytes(bad)


def test_a_sealed_segment_that_was_cut(sealed: Sealed) -> None:
    """F-114: of a sealed segment that was cut, or has lost its index, what can be read is kept."""
    for length in (len(sealed.data) - 1, len(sealed.data) - 40, len(sealed.data) // 2, 10, 0):
        sealed.put(sealed.data[:length])
        report, events = sealed.repair()
        if length > len(sealed.data) - 50:
            # Without its last note, an unpacked one still has all of its events, and is not damaged.
            assert report.lost == []
            assert report.repaired or not sealed.name.endswith(".zst")
        else:
            assert report.repaired
            assert events[-1].kind == "session.repaired"


@pytest.mark.parametrize("at", [2, -5], ids=["its start", "its checksum"])
def test_the_header_of_a_later_segment_is_written_again(sealed: Sealed, at: int) -> None:
    """F-112: a header is restored from the sealed segments before it, or from all but its checksum."""
    head, rest = sealed.log.split(b"\n", 1)
    bad = bytearray(head)
    bad[at] ^= 1
    sealed.put(sealed.data, bytes(bad) + b"\n" + rest)
    with hansard.open(sealed.path, read_only=True) as store:
        assert not store.session(ID).verify().ok
    report, events = sealed.repair()
    assert report.lost == []
    assert events[: len(sealed.truth)] == sealed.truth


def test_control_records_are_taken_from_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-114: where a frame is lost, the control records in it are not: the checkpoint repeats them."""
    monkeypatch.setattr(compact, "CHECKPOINT", 0)
    sealed = Sealed(tmp_path / "store", packed=True)
    sealed.put(sealed.data[:40] + bytes(20) + sealed.data[60:])
    report, _ = sealed.repair()
    assert report.lost == [(1, 43)]
    with hansard.open(sealed.path, read_only=True) as store:
        assert store.session(ID).title == "t"


def test_leftovers_of_a_repair_are_ignored_and_removed_by_the_next_seal(tmp_path: Path) -> None:
    """N-39, F-87: a crash before a repair removes replaced files loses nothing, also after a later seal."""
    made = Sealed(tmp_path / "store", packed=True)
    bad = made.data[:40] + bytes(20) + made.data[60:]
    made.put(bad)
    store = hansard.open(made.path, durability="os", auto_compact=False)
    # The lock is moved first, then the log; the next call would remove the sealed segment.
    with faults.kill(at=2, only=("move",), when="after"), pytest.raises(faults.Killed):
        store.session(ID).repair()
    store.close()
    leftover = made.directory / made.name
    assert leftover.read_bytes() == bad
    with hansard.open(made.path, durability="os", auto_compact=False) as store:
        dumped = {record.file for record in store._backend.log(ID).records()}
        assert dumped == {"log.jsonl"}
        assert check_continues(store.session(ID))[-1].kind == "session.repaired"
    assert not leftover.exists() or leftover.read_bytes() != bad


def test_a_repair_that_begins_inside_of_a_sealed_segment_can_be_compacted(tmp_path: Path) -> None:
    """F-87, F-99, F-103: a superseded segment is damaged, and so is the active one."""
    bench = Bench(tmp_path / "store")
    with bench.writer() as store:
        session = store.session(ID)
        log = store._backend.log(ID)
        assert isinstance(log, LocalLog)
        log._writer.seal()
        session.add_messages([{"n": n} for n in range(1, 5)])
        log._writer.seal()
        superseded = bench.file.with_name(f"{2:020}.jsonl")
        data = superseded.read_bytes()
        session.compact()
        session.add_messages([{"n": "lost"}, {"n": 6}])
    # A crash has left it, and the disk has altered both.
    superseded.write_bytes(data.replace(b'{"n":2}', b'{"n":7}'))
    bench.file.write_bytes(bench.file.read_bytes().replace(b"lost", b"LOST"))
    with bench.writer() as store:
        session = store.session(ID)
        assert session.repair().lost == [(6, 6)]
        messages = [{"n": n} for n in (0, 1, 2, 3, 4, 6)]
        assert session.messages() == messages
        session.compact()
        assert not superseded.exists()
        assert session.messages() == messages
        assert session.verify().ok


def test_a_missing_segment_after_a_damaged_one_is_not_given_up(tmp_path: Path) -> None:
    """F-115: the new segment would replace a file that may be restored, so nothing is repaired unasked."""
    path = tmp_path / "store"
    with hansard.open(path, durability="os", auto_compact=False) as store:
        session = store.session(ID)
        for part in range(3):
            session.add_messages([{"n": part}, {"n": part}])
            log: Any = store._backend.log(ID)
            log._writer.seal()
        session.add_message(NEW)
    first, second = (path / "sessions" / ID / f"{seq:020d}.jsonl" for seq in (1, 3))
    first.write_bytes(first.read_bytes().replace(b'{"n":0}', b'{"n":7}', 1))
    away = second.read_bytes()
    second.unlink()
    before = {file.name: file.read_bytes() for file in first.parent.glob("*.jsonl")}
    with hansard.open(path, durability="os", auto_compact=False) as store:
        report = store.session(ID).repair()
        assert (report.repaired, report.ok) == (False, False)
        assert {file.name: file.read_bytes() for file in first.parent.glob("*.jsonl")} == before
        second.write_bytes(away)
        second.chmod(0o600)
        report = store.session(ID).repair()
        assert (report.ok, report.lost) == (True, [(1, 1)])


# -- the disk refuses, the process dies ---------------------------------------------------------


def flipped(data: bytes) -> bytes:
    """Return a log with one message altered."""
    bad = data.replace(b'"n":4', b'"n":5', 1)
    assert bad != data
    return bad


@pytest.fixture(params=["active", "sealed"])
def broken(request: pytest.FixtureRequest, tmp_path: Path, log: Log) -> tuple[Path, Any]:
    """Return a damaged store, and how to damage it again."""
    if request.param == "active":
        bench = Bench(tmp_path / "store")
        return bench.path, lambda: put(bench, flipped(log.data))
    made = Sealed(tmp_path / "store", packed=True)
    middle = len(made.data) // 3
    bad = made.data[:middle] + b"???" + made.data[middle + 3 :]
    return made.path, lambda: made.put(bad, made.log.replace(b"later 2", b"later 9", 1))


def segments(path: Path) -> set[bytes]:
    """Return all bytes that must not be lost: the contents of every segment, in its place or kept."""
    directory = path / "sessions" / ID
    return {file.read_bytes() for file in directory.iterdir() if ".jsonl" in file.name}


def check_old_or_new(path: Path, before: set[bytes]) -> None:
    """Fail unless each damaged segment is still there, in its place or kept, and a repair succeeds."""
    assert before <= segments(path), "bytes were lost that a repair was to keep"
    with hansard.open(path, durability="os", auto_compact=False) as store:
        store.session(ID).repair()
        events = check_continues(store.session(ID))
        assert any(event.kind == "session.repaired" for event in events)


FAULTS: dict[str, Callable[[int], faults.Faults]] = {
    "death before": lambda at: faults.kill(at=at),
    "death after": lambda at: faults.kill(at=at, when="after"),
    "refusal": lambda at: faults.fail(errno.ENOSPC, at=at),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_step(broken: tuple[Path, Any], fault: str) -> None:
    """N-29, N-39, F-116: if any call fails, the log is unchanged or repaired, and no byte is lost."""
    path, damage = broken
    for at in itertools.count(1):
        damage()
        before = segments(path)
        report = None
        with (
            hansard.open(path, auto_compact=False) as store,
            FAULTS[fault](at) as struck,
            contextlib.suppress(faults.Killed, hansard.HansardError),
        ):
            report = store.session(ID).repair()
        assert report is None or report.ok
        check_old_or_new(path, before)
        if not struck.fired:
            break
    assert at > 10


def test_what_was_damaged_is_durable_first(broken: tuple[Path, Any]) -> None:
    """F-116: the copies are synced, and their names, before a segment or the lock is replaced."""
    path, damage = broken
    damage()
    with hansard.open(path, auto_compact=False) as store, faults.record() as seen:
        store.session(ID).repair()
    calls = [(call.operation, call.place.rpartition("/")[2]) for call in seen.calls]
    moved = [at for at, (operation, _) in enumerate(calls) if operation == "move"]
    kept = [at for at, call in enumerate(calls) if call[0] == "publish"]
    assert kept
    for at in kept:
        assert calls[at][1].startswith("damaged-")
        assert any(operation == "sync" for operation, _ in calls[:at])
        assert any(operation == "sync_directory" for operation, _ in calls[at : moved[0]])
    assert calls[moved[0]][1] == "lock", "the lock goes before the log"


# -- others at work -----------------------------------------------------------------------------


def append_when_told(wire: Wire, path: str) -> None:
    """Open the session, and append a message on each signal of the test."""
    with open_store(path, "os") as store:
        session = store.session(ID)
        wire.tell(session.add_message({"n": "opened"}).seq)
        for number in range(1, 4):
            wire.wait()
            wire.tell(session.add_message({"from": number}).seq)


def test_a_writer_that_has_the_damaged_file_open(bench: Bench) -> None:
    """N-18, F-117: what a process appends that had the log open before the repair is in the repaired log."""
    with Crew() as crew, bench.writer() as store:
        worker = crew.start(append_when_told, str(bench.path))
        assert worker.hear() == 2
        worker.go()
        assert worker.hear() == 3
        damage_early_line(bench.file)
        worker.go()
        assert worker.hear() == 4
        assert store.session(ID).repair().lost == [(1, 1)]
        worker.go()
        assert worker.hear() == 6, "after the record of the repair, in the new file"
        messages = store.session(ID).messages()
    assert [message.get("from") for message in messages] == [None, 1, 2, 3]


def test_a_reader_that_has_the_damaged_file_open(tmp_path: Path) -> None:
    """N-19, F-117: a reader with the damaged file open sees the repaired log."""
    bench = Bench(tmp_path / "store")
    with bench.writer() as store, bench.reader() as reader, bench.reader() as later:
        session = store.session(ID)
        session.add_messages([{"n": n} for n in range(1, 5)])
        seen = reader.session(ID)
        assert len(seen.messages()) == 5
        damage_early_line(bench.file)
        with pytest.raises(hansard.Damaged):
            later.session(ID).messages()
        with bench.writer() as other:
            other.session(ID).repair()
        for one in (seen, later.session(ID), session):
            assert one.messages() == [{"n": n} for n in range(1, 5)]
            assert one.seq == 6
        session.add_message(NEW)
        assert seen.messages(last=1) == later.session(ID).messages(last=1) == [NEW]


def test_a_process_that_reads_a_repaired_log_knows_its_keys(bench: Bench) -> None:
    """F-18, F-117: the keys of a damaged file do not count as those of the file that a repair wrote."""
    with bench.writer() as store, bench.writer() as other:
        session = store.session(ID)
        session.add_message({"text": "long" * 500})
        session.add_message(NEW, key="before")
        with bench.file.open("r+b") as opened:
            opened.seek(bench.file.read_bytes().index(b"long"))
            opened.write(b"lost")
        # The new file has the same header, and is shorter than what this process has read of the old one.
        assert other.session(ID).repair().lost == [(2, 2)]
        first = other.session(ID).add_message(NEW, key="after")
        assert session.messages() == other.session(ID).messages()
        assert session.add_message(NEW, key="after") == first


#: How often the log is damaged while its writers append.
ROUNDS = 5


def append_despite_damage(
    wire: Wire, path: str, who: int, count: int
) -> list[tuple[int, int, int]]:
    """After the start signal append `ROUNDS` times, repeating refused calls; return acknowledged messages."""
    acknowledged = []
    with open_store(path, "os") as store:
        for number in range(ROUNDS * count):
            if number % count == 0:
                wire.tell(number)
                wire.wait()
            event = None
            while event is None:
                # Refused, until it is repaired.
                with contextlib.suppress(hansard.Damaged):
                    event = store.session(ID).add_message({"who": who, "n": number})
            acknowledged.append((who, number, event.seq))
    return acknowledged


@pytest.mark.slow
def test_writers_and_repairers_at_once(bench: Bench) -> None:
    """N-16, N-17, F-117: with concurrent writers and repairers, what was acknowledged is there once."""
    path = str(bench.path)
    with Crew() as crew:
        writers = [crew.start(append_despite_damage, path, who, 30) for who in range(3)]
        for number in range(ROUNDS):
            assert [writer.hear() for writer in writers] == [30 * number] * 3
            for writer in writers:
                writer.go()
            damage_early_line(bench.file)
            run_threads([partial(repair_once, bench.path)] * 2)
        acknowledged = {item for writer in writers for item in writer.result()}
    with bench.writer() as store:
        session = store.session(ID)
        session.repair()
        assert session.verify().ok
        events = list(session.events())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    lost = {event.seq for event in events if event.kind == "event.lost"}
    assert len(acknowledged) == 3 * 30 * ROUNDS
    found = {
        (event.message["who"], event.message["n"], event.seq)
        for event in events
        if event.kind == "message.added" and event.message and "who" in event.message
    }
    assert {item for item in acknowledged if item[2] not in lost} <= found
    assert len({item[:2] for item in found}) == len(found)


def damage_early_line(file: Path) -> None:
    """Alter one byte of the first record of a log, in place, unless it is altered already."""
    with file.open("r+b") as opened:
        begin = opened.read(400).index(b"\n") + 40
        opened.seek(begin)
        value = opened.read(1)
        opened.seek(begin)
        opened.write(bytes([value[0] ^ 1]))


def repair_once(path: Path) -> None:
    """Repair through a separate store."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        store.session(ID).repair()
