"""Listing while other processes write, list, are killed and fork.

Each test needs real processes: what one of them has acknowledged, another must list.
"""

import os
import signal
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.crashlab import faults
from tests.faults.test_fork import ended_well, in_child
from tests.faults.workers import PATIENCE, Crew, Wire, open_store
from tests.unit.disk_probe import index_of
from tests.unit.index import reference_listing

MESSAGE = {"role": "user", "content": "hello"}


# -- kills --------------------------------------------------------------------------------------


def list_and_die(wire: Wire, path: str, at: int) -> bool:
    """List, and kill this process at the nth call of the disk; return True if it survives."""
    calls = [0]

    def count(*_: object) -> None:
        calls[0] += 1
        if calls[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    with hansard.open(path, durability="os") as store, faults.record(watch=count):
        store.sessions(progress=count)
        store.stats(progress=count)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_a_kill_during_an_index_refresh_leaves_nothing_stale(
    tmp_path: Path, *, there: bool
) -> None:
    """N-35, N-86: after kill -9 at any moment of an index refresh, the next listing agrees with the logs."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store, Crew() as crew:
        for number in range(6):
            store.session(f"s{number}").add_message(MESSAGE)
        if there:
            store.sessions()
        survived = False
        at = 1
        while not survived:
            if not there:
                for path in root.glob("index*"):
                    path.unlink()
            store.session(f"s{at % 6}").set_title(f"at {at}")
            store.session(f"t{at}").add_message(MESSAGE)
            worker = crew.start(list_and_die, str(root), at)
            survived = not worker.hear_it_die()
            crew.discard(worker)
            assert store.sessions().items == reference_listing.everything(store)
            store.delete(f"t{at}")
            at += 1 + at // 4
        assert at > 20


def stay_in_a_refresh(wire: Wire, path: str) -> None:
    """Begin an index refresh, and wait in the middle of it."""
    with open_store(path, "os") as store:

        def stay(done: int, total: int) -> None:
            wire.tell((done, total))
            wire.wait()

        store.sessions(progress=stay)


def test_writers_do_not_wait_for_a_listing(tmp_path: Path) -> None:
    """While one process refreshes the index, others append, and a later listing has their events."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os", lock_timeout=0.5) as store, Crew() as crew:
        store.session("s").add_message(MESSAGE)
        worker = crew.start(stay_in_a_refresh, str(root))
        assert worker.hear() == (1, 1)
        for number in range(5):
            store.session("s").add_message(MESSAGE)
            store.session(f"new{number}").set_title("new")
        assert store.session("s").seq == 6
        worker.go()
        worker.result()
        assert store.sessions().items == reference_listing.everything(store)
        assert store.count() == 6


# -- threads and forks --------------------------------------------------------------------------


def list_in_a_forked_child(wire: Wire, path: str) -> None:
    """List, fork, and list in both processes concurrently, three times."""
    with open_store(path, "os") as store:
        store.session("s").add_message(MESSAGE)
        assert store.count() == 1

        def child() -> None:
            for number in range(10):
                store.session(f"child/{number}").add_message(MESSAGE)
                assert store.count(prefix="child/") >= number + 1
            store.close()

        for turn in range(3):
            pid = in_child(child)
            for number in range(10):
                store.session(f"parent/{turn}/{number}").add_message(MESSAGE)
                assert store.count(prefix=f"parent/{turn}/") == number + 1
            assert ended_well(pid)
            assert store.sessions().items == reference_listing.everything(store)
    connection = sqlite3.connect(index_of(Path(path)))
    assert connection.execute("PRAGMA integrity_check(index_session)").fetchone() == ("ok",)
    connection.close()


def fork_during_a_refresh(wire: Wire, path: str) -> None:
    """Fork while another thread refreshes the index: the child must neither wait nor disturb it."""
    with open_store(path, "os") as store:
        for name in "abc":
            store.session(name).add_message(MESSAGE)
        staying, go = threading.Event(), threading.Event()

        def stay(done: int, total: int) -> None:
            staying.set()
            assert go.wait(PATIENCE)

        thread = threading.Thread(target=lambda: store.sessions(progress=stay))
        thread.start()
        assert staying.wait(PATIENCE)

        def child() -> None:
            assert store.sessions().items == reference_listing.everything(store)
            store.session("by the child").add_message(MESSAGE)
            assert store.count() == 4

        assert ended_well(in_child(child))
        go.set()
        thread.join(PATIENCE)
        assert store.sessions().items == reference_listing.everything(store)
        assert store.count() == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("job", [list_in_a_forked_child, fork_during_a_refresh])
def test_a_forked_child_lists_like_its_parent(tmp_path: Path, job: Any) -> None:
    """A forked child lists the inherited store like its parent, even while that lists."""
    with Crew() as crew:
        crew.start(job, str(tmp_path / "store")).result()
