"""Compaction concurrently with another compactor. `test_histories` has readers, writers and kills."""

from pathlib import Path

import pytest

import hansard

ID = "s"


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
