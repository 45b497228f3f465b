"""Forks on a real disk: what is synced when, and what they cost. `test_disk_faults` refuses each call."""

from pathlib import Path

import pytest

import hansard
from hansard.backend.local.log import LocalLog
from tests.crashlab import faults
from tests.faults.workers import Crew, Wire, open_store
from tests.unit.disk_probe import Traffic


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
    named = [place for place, (operation, _) in enumerate(calls) if operation == "move"]
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


def fork_slowly(wire: Wire, path: str, *, copied: bool = False) -> None:
    """Fork "p" as "c", or copy such a fork, and wait before the rename that makes it a session."""
    begin_with = LocalLog.begin_with

    def wait_and_begin(self: LocalLog, staged: str) -> None:
        wire.tell("locked")
        wire.wait()
        begin_with(self, staged)

    LocalLog.begin_with = wait_and_begin  # type: ignore[method-assign]
    with open_store(path, "sync") as store:
        if copied:
            with hansard.open(f"{path}-source") as source:
                assert source.copy_to(store, ["c"]).failed == {}
        else:
            store.session("p").fork("c")


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """Return a store with a session "p", which was copied from `store-source`, where it has a fork."""
    path = tmp_path / "store"
    with hansard.open(path) as store, hansard.open(tmp_path / "store-source") as source:
        source.session("p").add_message({"n": 1})
        source.copy_to(store)
        source.session("p").fork("c")
        source.delete("p")
    return path


@pytest.mark.parametrize("copied", [False, True])
def test_a_parent_is_neither_deleted_nor_purged_while_it_is_forked(
    parent: Path, *, copied: bool
) -> None:
    """F-67: another process that is storing a fork or a copy of one keeps its parent."""
    with Crew() as crew, hansard.open(parent, lock_timeout=0.05) as store:
        if copied:
            store.delete("p")  # a copy may have its parent in the trash
        forking = crew.start(fork_slowly, str(parent), copied=copied)
        assert forking.hear() == "locked"
        with pytest.raises(hansard.LockTimeout, match=f"held by process {forking.pid}"):
            (store.purge if copied else store.delete)("p")
        # Its name is taken: this waits for no lock, or two processes could wait for one another.
        store.session("q").add_message({"n": 2})
        with pytest.raises((hansard.SessionExists, hansard.SessionDeleted)):
            store.session("q").fork("p")
        forking.go()
        forking.result()
        if not copied:
            store.delete("p")
        with pytest.raises(hansard.InUse, match="'c'"):
            store.purge("p")
        assert store.session("c").messages() == [{"n": 1}]
        assert store.verify().ok


def test_a_process_that_is_killed_while_it_forks_leaves_no_fork_and_no_lock(parent: Path) -> None:
    """F-67: after kill -9 between the lock of the parent and the rename, the parent can be purged."""
    with Crew() as crew, hansard.open(parent, lock_timeout=0.05) as store:
        forking = crew.start(fork_slowly, str(parent))
        assert forking.hear() == "locked"
        forking.kill()
        store.delete("p")
        store.purge("p")
        assert not store.exists("c")
        assert store.trash() == []


def fork_across(wire: Wire, path: str, here: str, there: str) -> list[str]:
    """Fork, delete and purge two sessions crosswise; return the errors that nothing explains."""
    wire.wait()
    unexplained = []
    with open_store(path, "os") as store:
        for number in range(60):
            for call in (
                lambda: store.session(here).fork(there),
                lambda: store.delete(there),
                lambda: store.purge(there),
                lambda: store.session(here).add_message({"n": 1}),
            ):
                try:
                    call()
                except (
                    hansard.SessionNotFound,
                    hansard.SessionDeleted,
                    hansard.SessionExists,
                    hansard.InUse,
                ):
                    pass
                except hansard.HansardError as error:
                    unexplained.append(f"{number}: {error!r}")
    return unexplained


def test_processes_that_fork_crosswise_never_wait_in_a_circle(tmp_path: Path) -> None:
    """F-67: no process that forks crosswise waits for another until its timeout; no fork lacks a parent."""
    path = str(tmp_path / "store")
    with open_store(path, "os") as store:
        store.session("a").add_message({"n": 1})
        store.session("b").add_message({"n": 1})
    with Crew() as crew:
        pairs = (("a", "b"), ("b", "a"), ("b", "c"), ("c", "a"))
        workers = [crew.start(fork_across, path, *pair) for pair in pairs]
        for worker in workers:
            worker.go()
        assert [worker.result() for worker in workers] == [[], [], [], []]
    with hansard.open(path) as store:
        assert store.verify().ok


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
