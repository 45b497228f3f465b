"""Listing while other processes write, list and are killed.

Each test needs real processes: what one of them has acknowledged, another must list.
"""

import os
import signal
from pathlib import Path

import pytest

import hansard
from tests.crashlab import faults
from tests.faults.workers import Crew, Wire
from tests.unit.index import reference_listing

MESSAGE = {"role": "user", "content": "hello"}


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
