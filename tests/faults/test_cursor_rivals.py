"""Claims about cursors between processes: rivals and droppers. `test_fork` has forked children."""

import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

from hansard.backend.local.backend import LocalBackend
from hansard.errors import LockTimeout
from hansard.follow import drop_cursor
from tests.faults.workers import PATIENCE, Crew, Wire, context, wait_for_cursor


def open_and_drop(wire: Wire, path: str, rounds: int, barrier: Barrier) -> int:
    """Open the cursor and drop it, again and again, alone each time; return how often it was had."""
    backend = LocalBackend(path, durability="os")
    witness = f"{path}/witness"
    had = 0
    barrier.wait(PATIENCE)
    for _ in range(rounds):
        try:
            cursor = wait_for_cursor(backend, "c")
            # The holder of the cursor is alone: this fails if the file exists.
            os.close(os.open(witness, os.O_CREAT | os.O_EXCL, 0o600))
            had += 1
            os.unlink(witness)
            cursor.close()
            drop_cursor(backend, "c")
        except LockTimeout:
            continue  # another process had it when it was to be dropped
    return had


def test_a_cursor_that_is_dropped_while_others_wait_has_one_consumer(tmp_path: Path) -> None:
    """F-164, N-28: processes that waited for a cursor while it was dropped do not share it."""
    path = str(tmp_path / "store")
    LocalBackend(path).close()
    barrier = context.Barrier(3)
    with Crew() as crew:
        rivals = [crew.start(open_and_drop, path, 300, barrier) for _ in range(3)]
        assert [rival.result() for rival in rivals] == [300] * 3
