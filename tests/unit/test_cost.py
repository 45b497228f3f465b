"""The cost of a call, in bytes, does not grow with what is stored."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

import hansard
from hansard import Session
from hansard.log.disk import Lock
from tests.unit.disk_probe import Counted, Traffic, log_of

MESSAGE = {"role": "user", "content": "x" * 700}

LENGTHS = {"short": 10, "long": 20_000}

#: A reader reads the header and a window at the end: at most this many bytes.
COLD = 100_000


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """Count the bytes that are read and written."""
    return Traffic(monkeypatch)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a session of 10 events and one of 20,000, appended one at a time."""
    root = tmp_path_factory.mktemp("grown") / "s"
    with hansard.open(root, durability="os", auto_compact=False) as store:
        for name, length in LENGTHS.items():
            session = store.session(name)
            for _ in range(length):
                session.add_message(MESSAGE)
    return root


APPENDS: dict[str, Callable[[Session, int], object]] = {
    "add_message": lambda session, _: session.add_message(MESSAGE),
    "with a key": lambda session, turn: session.add_message(MESSAGE, key=f"{session.id}{turn:09d}"),
    "with expected_seq": lambda session, _: session.add_message(MESSAGE, expected_seq=session.seq),
    "a batch": lambda session, _: session.add_messages([MESSAGE, MESSAGE]),
    "an own event": lambda session, _: session.append("x.todo", MESSAGE),
    "metadata": lambda session, turn: session.set_metadata(turn=f"{turn:09d}"),
}


@pytest.mark.parametrize("what", APPENDS)
def test_an_append_costs_the_same_at_any_length(
    what: str, grown: Path, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-71, N-73: at 10 and at 20,000 events, an append writes the same bytes, once, and reads none.

    The handle is warm: a new one reads the log once for its idempotency keys.
    """
    append = APPENDS[what]
    monkeypatch.setattr(copy, "deepcopy", None)
    cost: dict[str, list[int]] = {}
    with hansard.open(grown, durability="os", auto_compact=False) as store:
        for name in LENGTHS:
            session = store.session(name)
            old = log_of(grown, name).stat().st_size
            append(session, 0)  # warm up
            cost[name] = []
            for turn in range(1, 21):
                traffic.clear()
                append(session, turn)
                cost[name].append(traffic.written)
                assert len(traffic.writes) == 1
                # Metadata are compared with their last values, which this test appended.
                assert traffic.read == 0 or what == "metadata"
                assert all(offset > old - 100 for offset, _ in traffic.reads)
    # Only the digits of seqs and offsets may differ.
    assert max(cost["long"]) - min(cost["short"]) <= 32, cost


@pytest.mark.parametrize("name", LENGTHS)
def test_a_cold_append_reads_the_end_only(name: str, grown: Path, traffic: Traffic) -> None:
    """N-73: the first append of a new process reads only the end of the log."""
    with hansard.open(grown, durability="os", auto_compact=False) as store:
        traffic.clear()
        store.session(name).add_message(MESSAGE)
    assert traffic.read <= COLD


def test_an_append_after_another_s_takes_the_lock_once(
    tmp_path: Path, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-71: of two alternating writers, each reads only what the other wrote, under one lock."""
    taken = Counted(monkeypatch)
    taken.watch(Lock, "acquire")
    with (
        hansard.open(tmp_path / "s", durability="os") as one,
        hansard.open(tmp_path / "s", durability="os") as other,
    ):
        writers = one.session("s"), other.session("s")
        for session in writers:
            session.add_message(MESSAGE)
        for turn in range(20):
            written = traffic.written
            traffic.clear()
            assert taken.of(lambda: writers[turn % 2].add_message(MESSAGE)) == 1  # noqa: B023
            assert len(traffic.writes) == 1
            assert turn == 0 or traffic.read == written
        assert writers[0].seq == writers[1].seq == 22
        assert one.verify().ok


@pytest.fixture(scope="module")
def long_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a session of more than 80 MB, and metadata at its beginning."""
    root = tmp_path_factory.mktemp("long") / "s"
    with hansard.open(root, durability="os", auto_compact=False) as store:
        session = store.create("a", metadata={"title": "T"})
        for number in range(10_000):
            session.add_message({"n": number, "content": "x" * 8_000})
    assert log_of(root, "a").stat().st_size > 80_000_000
    return root


TAILS: dict[str, Callable[[Session], object]] = {
    "last": lambda session: session.messages(last=50),
    "last as JSON": lambda session: session.messages_json(last=50),
    "after": lambda session: session.messages(after=9_951),
    "last inside": lambda session: session.messages(last=50, at=5_000),
    "a range inside": lambda session: session.messages(after=5_000, at=5_050),
    "events after": lambda session: list(session.events(after=9_990)),
    "seq": lambda session: session.seq,
    "metadata": lambda session: session.metadata,
    "transcript": lambda session: session.transcript(50),
    "transcript inside": lambda session: session.transcript(50, before=5_000),
}


@pytest.mark.parametrize("what", TAILS)
def test_the_tail_is_read_in_bounded_bytes(what: str, long_store: Path, traffic: Traffic) -> None:
    """N-77: a cold read of any 50 messages reads a small part of a log of 80 MB."""
    with hansard.open(long_store, read_only=True) as store:
        traffic.clear()
        TAILS[what](store.session("a"))
    # 50 messages have 400 kB. Those inside are found by bisection, in windows of up to 1 MiB.
    # A page of a transcript also looks for an entry in the other direction.
    most = {"seq": COLD, "metadata": COLD, "transcript inside": 8_000_000}.get(what, 5_000_000)
    assert traffic.read <= most
    assert traffic.largest <= 1 << 20
    assert traffic.writes == []


def test_a_full_read_reads_each_byte_once(long_store: Path, traffic: Traffic) -> None:
    """N-77: reading everything reads every byte once, in chunks of bounded size."""
    size = log_of(long_store, "a").stat().st_size
    with hansard.open(long_store, read_only=True) as store:
        for read in (store.session("a").messages, store.session("a").state):
            traffic.clear()
            read()
            assert size * 0.99 <= traffic.read <= size * 1.02 + COLD
            assert traffic.largest <= 1 << 20
        # The second time costs nothing.
        session = store.session("a")
        session.state()
        traffic.clear()
        session.state()
        assert traffic.read == 0
