"""What is forgotten, what is kept for others, and what the report says: N-45, N-48, N-50."""

from pathlib import Path
from random import Random

import pytest
import zstandard

import hansard
from hansard import Store
from hansard.backend.local import compact as backend_compaction
from hansard.log.sealed_segment import SegmentIndex
from hansard.log.sealed_writer import SealedWriter
from hansard.maintenance.compact import PinnedSeqs, compaction_filter
from tests.unit.disk_probe import Traffic, flip


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return an empty store, in memory and in files."""
    return hansard.open("memory:" if request.param == "memory" else tmp_path / "store")


def _say(store: Store, name: str, count: int) -> None:
    store.session(name).add_messages([{"n": n} for n in range(count)])


def test_places_are_those_that_forks_and_their_forks_lead_to(store: Store) -> None:
    """N-50: fork points and reverts of all descendants pin seqs of the session with the events."""
    _say(store, "root", 20)
    child = store.session("root").fork("child", at=10)
    _say(store, "child", 5)
    child.fork("early", at=4)
    child.fork("late", at=13)
    child.revert(7)
    child.revert(12)
    store.session("early").revert(2)
    places = PinnedSeqs(store._backend)
    assert (places.of("root"), places.of("child")) == ({10, 7, 4, 2}, {13})
    child.revert(5)
    store.session("late").revert(12)
    assert (places.of("root"), places.of("child")) == ({10, 7, 5, 4, 2}, {12, 13})


def test_places_of_sessions_in_the_trash_count(store: Store) -> None:
    """N-50: a deleted fork pins seqs too, because it can be restored."""
    _say(store, "root", 20)
    store.session("root").fork("child", at=10)
    store.delete("child")
    assert PinnedSeqs(store._backend).of("root") == {10}
    store.purge("child")
    assert PinnedSeqs(store._backend).of("root") == set()


def test_a_part_goes_unless_a_place_lies_between_it_and_the_end(store: Store) -> None:
    """N-48: a pinned seq in the middle of a stream keeps the parts up to it, and no others."""
    _say(store, "s", 9)
    store.session("s").revert(5)
    forget = compaction_filter(store._backend.log("s").reader().controls, lambda: {7})
    wanted = {(4, 6), (5, 6), (4, 9), (7, 8), (6, 8)}
    every = [(seq, ended) for seq in range(1, 10) for ended in range(seq + 1, 10)]
    kept = {pair for pair in every if not forget.drop_part(*pair)}
    assert wanted <= kept
    assert kept == {(s, e) for s, e in every if s <= 5 < e or s <= 7 < e}


def test_a_session_that_cannot_be_compacted_stops_no_other(tmp_path: Path) -> None:
    """N-35, N-89: a damaged session is reported with the reason, and the others are compacted."""
    with hansard.open(tmp_path / "store") as store:
        for name in ("a", "b", "c"):
            _say(store, name, 5)
    log = tmp_path / "store" / "sessions" / "b" / "log.jsonl"
    data = flip(log)
    with hansard.open(tmp_path / "store") as store:
        done: list[tuple[int, int]] = []
        report = store.compact(progress=lambda *how_far: done.append(how_far))
        assert report.sessions == 2
        assert list(report.failed) == ["b"]
        assert "log.jsonl" in report.failed["b"]
        assert store.compact(prefix="a").failed == {}
    assert log.read_bytes() == data


def test_a_label_that_comes_while_compaction_begins_is_not_overlooked(store: Store) -> None:
    """N-48: pinned seqs are read after the segment is sealed, not when compaction is called."""
    session = store.session("s")
    stream = session.stream(gather=0, role="assistant")
    stream.write("a")
    log = store._backend.log("s")
    forget = compaction_filter(lambda: log.reader().controls(), set)
    stream.write("b")
    session.snapshot("middle")
    expected = session.messages()
    stream.write("c")
    stream.finish()
    log.compact(forget, level=1)
    assert session.messages(at="middle") == expected
    assert expected[-1]["content"] == "ab"


def test_a_fork_that_is_made_while_the_store_is_compacted_is_what_it_was(store: Store) -> None:
    """N-48, N-50: forks and their reverts that are made during a compaction of the store count."""
    for name in ("a", "b", "c", "d"):
        session = store.session(name)
        stream = session.stream(gather=0, role="assistant")
        for word in ("one ", "two ", "three "):
            stream.write(word)
        stream.finish()
    store.session("c").fork("known")
    shown: dict[str, object] = {}

    def progress(done: int, _: int) -> None:
        if done == 1:
            shown["fork"] = store.session("b").fork("fork", at=2).messages()
            store.session("known").revert(2)
            shown["known"] = store.session("known").messages()
            store.session("d").revert(2)
            shown["d"] = store.session("d").messages()

    store.compact(progress=progress)
    assert [message["content"] for message in shown["fork"]] == ["one two "]  # type: ignore[attr-defined]
    assert store.session("fork").messages() == shown["fork"]
    assert store.session("known").messages() == shown["known"]
    assert store.session("d").messages() == shown["d"]


@pytest.mark.parametrize("how", ["fork", "revert"])
def test_a_place_that_comes_while_a_session_is_compacted_is_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """N-48, N-50: pinned seqs are checked again before a rewritten segment gets its name."""
    monkeypatch.setattr("hansard.backend.local.compact._TELL", 1)
    session = store.session("s")
    stream = session.stream(gather=0, role="assistant")
    for word in ("one ", "two ", "three "):
        stream.write(word)
    stream.finish()
    expected = session.messages(at=2)
    made: list[object] = []

    def progress(*_: int) -> None:
        if not made:
            made.append(session.fork("child", at=2) if how == "fork" else session.revert(2))

    session.compact(progress=progress)
    progress()  # memory reports no progress
    shown = store.session("child") if how == "fork" else session
    assert shown.messages() == expected
    assert session.verify().ok


def test_compacting_again_reads_what_is_new(
    tmp_path: Path, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-71: compacted segments are neither read nor written again."""
    monkeypatch.setattr(backend_compaction, "LARGEST", 200_000)
    noise = [{"content": rng.randbytes(30_000).hex()} for _ in range(50)]
    with hansard.open(tmp_path / "store", auto_compact=False) as store:
        session = store.session("s")
        session.add_messages(noise)
        session.compact()
        before = sum(path.stat().st_size for path in (tmp_path / "store").rglob("*.zst"))
        traffic = Traffic(monkeypatch)
        session.add_message({"content": "new"})
        assert session.compact().sessions == 1
    # The end of each segment, with its index, is.
    assert traffic.read < 300_000 < before
    assert traffic.written < 50_000


@pytest.mark.parametrize("error", [zstandard.ZstdError("not enough memory"), MemoryError()])
def test_whatever_fails_in_one_session_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """N-35: a foreign exception is reported for its session, and the others are compacted."""
    real = SealedWriter.finish

    def finish(sealer: SealedWriter) -> SegmentIndex:
        if sealer.session_id == "b":
            raise error
        return real(sealer)

    monkeypatch.setattr(SealedWriter, "finish", finish)
    with hansard.open(tmp_path / "store", auto_compact=False) as store:
        for name in "abc":
            store.session(name).add_message({"content": "x" * 100})
        report = store.compact()
        assert (report.sessions, list(report.failed)) == (2, ["b"])
        assert type(error).__name__ in report.failed["b"]
        assert store.verify().ok
        monkeypatch.undo()
        assert store.compact().sessions == 1


def test_a_far_fork_pins_the_event_that_it_points_to(store: Store) -> None:
    """N-50: a revert or a snapshot of a distant fork keeps the parts of the session that has them."""
    session = store.session("root")
    with session.stream(gather=0) as stream:
        stream.write("one ")
        stream.write("two")
    for number in range(5):
        session = session.fork(f"s{number}")
    session.revert(1)
    expected = session.messages()
    assert [message["content"] for message in expected] == ["one "]
    assert PinnedSeqs(store._backend, checked=2).of("root") == {1, 3}
    store.compact()
    assert session.messages() == expected
