"""Compaction concurrently with readers and other compactors. `test_histories` has writers and kills."""

import threading
from pathlib import Path

import pytest

import hansard

ID = "s"
PATIENCE = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with a session of a few events, in two segments."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        for _ in range(2):
            store.session(ID).add_message({"by": f"test-{_}"})
            store.session(ID).compact()
    return tmp_path / "store"


def test_a_second_compactor_is_refused_and_breaks_nothing(path: Path) -> None:
    """N-24, N-25: while one compacts, another hears who holds the lock; appends and reads do not wait."""
    with hansard.open(path) as store, hansard.open(path, lock_timeout=0.01) as other:
        session = store.session(ID)
        session.add_message({"by": "here"})
        heard: list[str] = []

        def progress(done: int, total: int) -> None:
            assert 0 < done <= total
            with pytest.raises(hansard.LockTimeout) as caught:
                other.session(ID).compact()
            heard.append(str(caught.value))
            assert ID in other.compact().failed
            other.session(ID).add_message({"by": "there"})
            assert len(other.session(ID).messages()) == 3 + len(heard)

        session.compact(progress=progress)
        assert heard
        assert all("compaction" in said for said in heard)
        assert session.verify().ok
        assert len(session.messages()) == 3 + len(heard)


@pytest.mark.parametrize("backwards", [False, True])
def test_who_reads_slowly_reads_on_while_segments_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    """N-20, N-45: a read that pauses while all segments are joined continues, without gap or repetition."""
    monkeypatch.setattr("hansard.log.segment_reader.PIECE", 600)
    monkeypatch.setattr("hansard.log.sealed_writer.FRAME", 700)
    with hansard.open(tmp_path / "store", durability="os") as store:
        session = store.session(ID)
        for _ in range(5):
            session.add_messages([{"n": n, "text": "x" * 50} for n in range(12)])
            session.compact()
        session.add_messages([{"n": n} for n in range(10)])
        with hansard.open(tmp_path / "store", read_only=True) as other:
            log = other._backend.log(ID)
            chunks = log.reader().read_back() if backwards else log.reader().read()
            seqs: list[int] = []
            for chunk in chunks:
                part = [event.seq for event in chunk.events()]
                seqs = part + seqs if backwards else seqs + part
                session.add_message({"more": True})
                session.compact()
            assert seqs == list(range(1, 71))


def test_threads_share_what_is_open(tmp_path: Path) -> None:
    """N-20: threads that read one session object during compactions never fail and never see less."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        session = store.session(ID)
        session.add_messages([{"n": n} for n in range(50)])
        errors: list[BaseException] = []
        over = threading.Event()

        def read() -> None:
            seen = 0
            try:
                while not over.is_set():
                    found = len(list(session.events()))
                    assert found >= seen
                    seen = found
                    session.messages(last=3)
                    assert store.sessions().items[0].damaged == ""
            except BaseException as error:  # noqa: BLE001 - looked at in the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            session.add_messages([{"n": n} for n in range(5)])
            session.compact()
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert errors == []
        assert session.seq == 250
