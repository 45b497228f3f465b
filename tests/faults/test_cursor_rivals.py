"""Claims about cursors between processes: rivals and droppers. `test_fork` has forked children."""

import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

from hansard.backend.local.backend import LocalBackend
from hansard.errors import LockTimeout
from hansard.follow import Cursor, drop_cursor
from tests.faults.workers import PATIENCE, Crew, Wire, context

# -- rivals -------------------------------------------------------------------------------------------


def try_to_open(wire: Wire, path: str, rounds: int, barrier: Barrier) -> list[int | str | None]:
    """Try in each round to open the cursor at the same time as the others; say the holder, or "mine"."""
    backend = LocalBackend(path, durability="os")
    seen: list[int | str | None] = []
    for _ in range(rounds):
        barrier.wait(PATIENCE)
        cursor = None
        try:
            cursor = Cursor(backend, "c")
            seen.append("mine")
        except LockTimeout as error:
            seen.append(error.holder if f"process {error.holder} (" in str(error) else str(error))
        # No process closes before all have tried.
        barrier.wait(PATIENCE)
        if cursor is not None:
            cursor.move({"s": cursor.positions.get("s", 0) + 1})
            cursor.close()
    return seen


def test_of_rival_processes_one_gets_the_cursor(tmp_path: Path) -> None:
    """F-160, N-17, N-22: of 4 processes that open a cursor one succeeds; the others get its pid."""
    path, rounds = str(tmp_path / "store"), 50
    LocalBackend(path).close()
    barrier = context.Barrier(4)
    with Crew() as crew:
        rivals = [crew.start(try_to_open, path, rounds, barrier) for _ in range(4)]
        pids = [rival.pid for rival in rivals]
        seen = [rival.result() for rival in rivals]
    winners = [
        [pid for pid, words in zip(pids, seen, strict=True) if words[at] == "mine"]
        for at in range(rounds)
    ]
    assert [len(winner) for winner in winners] == [1] * rounds
    for at, (winner,) in enumerate(winners):
        assert {words[at] for words in seen} == {"mine", winner}
    assert Cursor(LocalBackend(path), "c").positions == {"s": rounds}


def open_and_drop(wire: Wire, path: str, rounds: int, barrier: Barrier) -> int:
    """Open the cursor and drop it, again and again, alone each time; return how often it was had."""
    backend = LocalBackend(path, durability="os")
    witness = f"{path}/witness"
    had = 0
    barrier.wait(PATIENCE)
    for _ in range(rounds):
        try:
            cursor = Cursor(backend, "c", timeout=PATIENCE)
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
