"""Forks on a real disk: what is synced when, and what they cost. `test_disk_faults` refuses each call."""

from pathlib import Path

import pytest

import hansard
from tests.crashlab import faults
from tests.unit.disk_probe import Traffic

# -- what is synced, and when -------------------------------------------------------------------


def test_a_fork_makes_its_parent_durable_first(tmp_path: Path) -> None:
    """N-37: all inherited events, by any writer, are synced before the child is created."""
    path = tmp_path / "store"
    with hansard.open(path, durability="sync") as store:
        store.session("s").add_message({"n": 1})
    with hansard.open(path, durability="sync") as store:
        parent = store.session("s")
        # Two appends that were not synced: a part, and another process's.
        parent.stream(gather=0).write("x")
        with hansard.open(path, durability="os") as other:
            other.session("s").add_message({"n": 2})
        with faults.record() as seen:
            child = parent.fork("c")
    calls = [(call.operation, call.place) for call in seen.calls]
    parent_sync = calls.index(("sync", str(path / "sessions" / "s" / "log.jsonl")))
    named = [place for place, (operation, _) in enumerate(calls) if operation == "publish"]
    assert len(named) == 1
    assert parent_sync < named[0]
    # And then the child: its file before its name, its names before `fork` returns.
    synced = [place for place, (operation, _) in enumerate(calls) if operation == "sync"]
    assert parent_sync < synced[1] < named[0]
    after = [operation for operation, _ in calls[named[0] :]]
    assert after.count("sync_directory") == 2
    assert child.id == "c"


def test_a_fork_whose_parent_cannot_be_synced_is_not_made(tmp_path: Path) -> None:
    """N-29, N-89: if the parent's sync fails, no child exists, and the parent is write-blocked."""
    path = tmp_path / "store"
    with hansard.open(path, durability="sync") as store:
        parent = store.session("s")
        parent.add_message({"n": 1})
        with hansard.open(path, durability="os") as other:
            other.session("s").add_message({"n": 2})
        with faults.fail_sync(lost=None), pytest.raises(hansard.SyncFailed):
            parent.fork("c")
        assert not store.exists("c")
        with pytest.raises(hansard.SyncFailed):
            parent.add_message({"n": 3})
        assert parent.verify().ok
        assert parent.fork("c").messages() == [{"n": 1}, {"n": 2}]


def test_a_fork_syncs_what_is_not_synced_yet_and_nothing_twice(tmp_path: Path) -> None:
    """N-37: a parent that has not grown since its last sync is not synced again."""
    path = tmp_path / "store"

    def synced(parent: hansard.Session) -> list[str]:
        with faults.record() as seen:
            parent.fork()
        assert [call.operation for call in seen.calls].count("sync_directory") == 2
        return [Path(call.place).parent.name for call in seen.calls if call.operation == "sync"]

    with hansard.open(path, durability="sync") as store:
        parent = store.session("s")
        parent.add_message({"n": 1})
        (child,) = synced(parent)
        assert child != "s"
        stream = parent.stream(gather=0)
        stream.write("not synced")
        assert synced(parent)[0] == "s"
        assert "s" not in synced(parent)
        with hansard.open(path, durability="os") as other:
            other.session("s").add_message({"n": 2})
        assert synced(parent)[0] == "s"
        assert "s" not in synced(parent)


# -- what it costs ------------------------------------------------------------------------------

MESSAGE = {"role": "user", "content": "x" * 100}
LENGTHS = {"short": 10, "long": 100_000}


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a session of 10 messages and one of 100,000."""
    root = tmp_path_factory.mktemp("grown") / "s"
    with hansard.open(root, durability="os") as store:
        for name, length in LENGTHS.items():
            for _ in range(length // 10):
                store.session(name).add_messages([MESSAGE] * 10)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("at", ["end", "middle"])
def test_a_fork_costs_the_same_at_any_length(
    at: str, grown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-71, N-73: forking 100,000 messages writes under 2 KB, and reads no more than a window at the end."""
    traffic = Traffic(monkeypatch)
    cost = {}
    for name, length in LENGTHS.items():
        with hansard.open(grown, durability="os") as store:
            traffic.clear()
            child = store.session(name).fork(
                f"{name}-{at}", at=length if at == "end" else length // 2
            )
            cost[name] = (traffic.written, traffic.read)
            assert traffic.written < 2_000
            traffic.clear()
            # The tail of a child costs the tail of its parent, cold.
            assert child.messages(last=5) == [MESSAGE] * 5
            assert traffic.read < 5_000_000
    assert cost["long"][0] - cost["short"][0] <= 20
    assert cost["long"][1] <= 100_000
