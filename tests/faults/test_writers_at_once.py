"""Claims about many processes that write at the same time: N-16 to N-19, N-22, N-26 and N-27."""

import os
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

import hansard
from hansard.errors import Damaged, SeqConflict, SessionExists
from hansard.log import disk, names
from tests.faults.workers import PATIENCE, Crew, Wire, append_one, context, open_store
from tests.unit.disk_probe import log_of


def append_many(
    wire: Wire,
    path: str,
    sessions: list[str],
    writer: int,
    count: int,
    durability: str,
    barrier: Barrier,
) -> dict[str, list[int]]:
    """Append `count` messages to each session, in turn, and return the seqs that were acknowledged."""
    with open_store(path, durability) as store:
        handles = [store.session(name) for name in sessions]
        seqs: dict[str, list[int]] = {name: [] for name in sessions}
        barrier.wait(PATIENCE)
        for number in range(count):
            for handle in handles:
                event = handle.add_message({"writer": writer, "number": number})
                seqs[handle.id].append(event.seq)
    return seqs


def check_each_once(session: hansard.Session, seqs: list[list[int]], count: int) -> None:
    """Check that each writer's messages are there once, in its order, at the seqs it was given."""
    events = list(session.events())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    found: list[list[int]] = [[] for _ in seqs]
    places: list[list[int]] = [[] for _ in seqs]
    for event in events:
        if event.message is not None:
            found[event.message["writer"]].append(event.message["number"])
            places[event.message["writer"]].append(event.seq)
    assert found == [list(range(count))] * len(seqs)
    assert places == seqs
    assert session.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("durability", "writers", "sessions", "count"),
    [("os", 8, 1, 200), ("sync", 8, 1, 100), ("os", 4, 64, 8), ("sync", 4, 64, 2)],
)
def test_processes_append_to_the_same_sessions_and_every_event_is_there_once(
    tmp_path: Path, durability: str, writers: int, sessions: int, count: int
) -> None:
    """N-16, N-17, N-26, N-27: all events are there once each, in their order, with contiguous seqs."""
    path = tmp_path / "store"
    names = [f"team/{number}" for number in range(sessions)]
    barrier = context.Barrier(writers)
    with Crew() as crew:
        workers = [
            crew.start(append_many, str(path), names, writer, count, durability, barrier)
            for writer in range(writers)
        ]
        acknowledged = [worker.result() for worker in workers]
    with hansard.open(path, read_only=True) as store:
        for name in names:
            check_each_once(store.session(name), [of_one[name] for of_one in acknowledged], count)


def test_a_writer_that_opened_earlier_overwrites_nothing(tmp_path: Path) -> None:
    """N-18: of two stores opened before either wrote, each appends after what the other appended."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as one, open_store(str(path), "os") as two:
        first, second = one.session("s"), two.session("s")
        assert (first.seq, second.seq) == (0, 0)
        assert first.add_message({"by": "one"}).seq == 1
        assert second.add_message({"by": "two"}).seq == 2
        assert first.add_message({"by": "one"}).seq == 3
        with Crew() as crew:
            assert crew.start(append_one, str(path), "s").result() == 4
        assert second.add_message({"by": "two"}).seq == 5
    with hansard.open(path, read_only=True) as fresh:
        said = [message["by"] for message in fresh.session("s").messages()]
    assert said == ["one", "two", "one", "another process", "two"]


def test_a_warm_handle_sees_another_process_at_once_whatever_the_clock_says(tmp_path: Path) -> None:
    """N-19: what another process appends is in the next read, also if the file's times did not move."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store:
        session = store.session("s")
        session.add_message({"by": "this process"})
        assert len(session.messages()) == session.seq == session.state().seq == 1
        before = os.stat(log_of(path, "s"))
        with Crew() as crew:
            crew.start(append_one, str(path), "s").result()
        os.utime(log_of(path, "s"), ns=(before.st_atime_ns, before.st_mtime_ns))
        assert session.seq == 2
        assert [message["by"] for message in session.messages()] == [
            "this process",
            "another process",
        ]
        assert session.messages(last=1) == [{"by": "another process"}]
        assert session.state().message_count == 2
        assert session.add_message({"by": "this process"}).seq == 3


def _others_append(path: Path, count: int) -> None:
    """Append through another handle, once with a key in between."""
    with open_store(str(path), "os") as other:
        for number in range(count):
            if number == count // 2:
                other.session("s").add_message({"key": "once"}, key="k")
            other.session("s").add_message({"text": "x" * 500, "number": number})


def test_an_append_after_many_of_others_reads_their_last_and_forgets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-18, F-39, N-18: a warm writer reads few bytes, and still knows keys, control records and seqs."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store:
        session = store.session("s")
        session.add_message({"by": "this process"})
        session.add_message({"by": "this process"}, key="first")
        with open_store(str(path), "os") as other:
            other.session("s").set_metadata(title="by another")
        _others_append(path, 60)
        lengths: list[int] = []

        def read_at(descriptor: int, length: int, offset: int) -> bytes:
            lengths.append(length)
            return os.pread(descriptor, length, offset)

        with monkeypatch.context() as patch:
            patch.setattr(disk, "read_at", read_at)
            assert session.add_message({"by": "this process"}).seq == 65
        assert 0 < sum(lengths) < 5_000
        assert session.metadata["title"] == "by another"
        with pytest.raises(SeqConflict):
            session.add_message({"late": True}, expected_seq=3)
        assert session.add_message({"again": True}, key="k").seq == 34
        assert len(session.messages()) == 64
        assert session.seq == 65
        assert store.verify().ok


def _damage(log: Path, number: int) -> int:
    """Alter the record of a number; return the size of the log."""
    data = log.read_bytes()
    log.write_bytes(data.replace(b'"number":%d}' % number, b'"Number":%d}' % number))
    return len(data)


def test_damage_in_what_a_writer_did_not_read_is_found_by_readers(tmp_path: Path) -> None:
    """F-32, F-39, N-30: an append may follow it; readers, verify and an append with a key find it."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store:
        session = store.session("s")
        session.add_message({"by": "this process"}, key="first")
        assert len(session.messages()) == 1
        _others_append(path, 60)
        _damage(log_of(path, "s"), 20)
        assert session.add_message({"by": "this process"}).seq == 63
        with pytest.raises(Damaged):
            session.messages()
        with pytest.raises(Damaged):
            session.messages(after=1)
        with pytest.raises(Damaged):
            session.add_message({"x": 1}, key="new")
        assert not store.verify().ok


def test_a_writer_appends_nothing_after_a_damaged_last_record(tmp_path: Path) -> None:
    """F-32, F-39, N-30: the last record of others is always checked."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store:
        session = store.session("s")
        session.add_message({"by": "this process"})
        _others_append(path, 60)
        size = _damage(log_of(path, "s"), 59)
        with pytest.raises(Damaged):
            session.add_message({"by": "this process"})
        assert log_of(path, "s").stat().st_size == size


def race(
    job: Callable[[Wire, str, int, int, Barrier], list[bool]], path: Path, rounds: int
) -> list[int]:
    """Let two processes do something round by round; return which of the two won each, as exactly one did."""
    barrier = context.Barrier(2)
    with Crew() as crew:
        workers = [crew.start(job, str(path), writer, rounds, barrier) for writer in range(2)]
        first, second = (worker.result() for worker in workers)
    assert [one + other for one, other in zip(first, second, strict=True)] == [1] * rounds
    return [0 if won else 1 for won in first]


def compare_and_set(
    wire: Wire, path: str, writer: int, rounds: int, barrier: Barrier
) -> list[bool]:
    """Append at the seq that both writers have seen, round by round; return which rounds were won."""
    won = []
    with open_store(path, "os") as store:
        session = store.session("s")
        for number in range(rounds):
            seen = session.seq
            # Both have looked, and only then does either append.
            barrier.wait(PATIENCE)
            try:
                session.add_message({"writer": writer, "round": number}, expected_seq=seen)
                won.append(True)
            except SeqConflict as conflict:
                won.append((conflict.expected, conflict.actual) != (seen, seen + 1))
            barrier.wait(PATIENCE)
    return won


def test_of_two_processes_that_expect_the_same_seq_exactly_one_appends(tmp_path: Path) -> None:
    """N-22: in each of 500 rounds, one of two appends at the same seq wins and the other changes nothing."""
    path = tmp_path / "store"
    winners = race(compare_and_set, path, 500)
    with hansard.open(path, read_only=True) as store:
        messages = store.session("s").messages()
        assert [message["writer"] for message in messages] == winners
        assert [message["round"] for message in messages] == list(range(500))


def begin_sessions(wire: Wire, path: str, writer: int, rounds: int, barrier: Barrier) -> list[bool]:
    """Begin each session at the same moment as another process; return which `create` calls won."""
    won = []
    with open_store(path, "os") as store:
        for number in range(rounds):
            barrier.wait(PATIENCE)
            store.session(f"added-{number}").add_message({"writer": writer})
            barrier.wait(PATIENCE)
            try:
                store.create(f"created-{number}", metadata={"writer": writer})
                won.append(True)
            except SessionExists:
                won.append(False)
    return won


def test_two_processes_that_begin_the_same_session_make_one_whole_file(tmp_path: Path) -> None:
    """N-10, N-27, F-25: a session begun by two processes has one header, both events, and no other file."""
    path = tmp_path / "store"
    winners = race(begin_sessions, path, 100)
    with hansard.open(path, read_only=True) as store:
        assert store.verify().ok
        for number, winner in enumerate(winners):
            session = store.session(f"added-{number}")
            assert sorted(message["writer"] for message in session.messages()) == [0, 1]
            created = store.session(f"created-{number}")
            assert created.seq == 1
            assert created.metadata == {"writer": winner}
            for log in (log_of(path, session.id), log_of(path, created.id)):
                assert log.read_bytes().count(b'{"log":"header"') == 1
                assert {entry.name for entry in log.parent.iterdir()} == {names.LOG, names.LOCK}
