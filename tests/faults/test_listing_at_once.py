"""Listing while other processes write, list and are killed.

Each test needs real processes: what one of them has acknowledged, another must list.
"""

import os
import random
import signal
import time
from mmap import mmap
from pathlib import Path

import pytest

import hansard
from hansard.backend.local.backend import LocalBackend
from hansard.log import disk
from tests.crashlab import faults
from tests.faults.workers import Crew, Wire, open_store, replaced
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


# -- change marks -------------------------------------------------------------------------------

SESSIONS, WRITERS, SECONDS = 12, 2, 2.0


def shared(board: str) -> memoryview:
    """Return numbers that processes share, through a file: the last seqs that writers were told."""
    with open(board, "r+b") as file:
        return memoryview(mmap(file.fileno(), 0)).cast("Q")


def append_and_note(wire: Wire, path: str, board: str, writer: int, seed: int) -> int:
    """Append to random sessions, and note each acknowledged seq; return how many there were."""
    rng = random.Random(seed)
    acknowledged = shared(board)
    write = disk.write

    def write_late(descriptor: int, data: bytes) -> int:
        # Races are just before a write.
        if rng.random() < 0.2:
            time.sleep(rng.random() / 2_000)
        return write(descriptor, data)

    count = 0
    with open_store(path, "os") as store, replaced("write", write_late):
        wire.tell("ready")
        while not wire.told_to_go():
            # Few at a time: the next append to a session hides that one was missed.
            number = rng.randrange(SESSIONS)
            for _ in range(rng.randrange(1, 4)):
                seq = store.session(f"s{number}").append("x.note", {}).seq
                acknowledged[writer * SESSIONS + number] = seq
                count += 1
    return count


@pytest.mark.slow
def test_every_refresh_finds_what_was_acknowledged_before_it(tmp_path: Path, seed: int) -> None:
    """F-130, F-131: next to two writers, each refresh finds all appends acknowledged before it began."""
    path, board = str(tmp_path / "store"), tmp_path / "board"
    board.write_bytes(bytes(8 * SESSIONS * WRITERS))
    acknowledged = shared(str(board))
    backend = LocalBackend(path, durability="os")
    seqs: dict[str, int] = {}
    known, refreshes, complete = "", 0, 0
    with Crew() as crew:
        workers = [
            crew.start(append_and_note, path, str(board), writer, seed + writer)
            for writer in range(WRITERS)
        ]
        for worker in workers:
            worker.hear()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or refreshes <= SESSIONS:
            numbers = acknowledged.tolist()
            before = [max(numbers[number::SESSIONS]) for number in range(SESSIONS)]
            changed = backend.changed(known)
            for name in backend.ids() if changed.every else changed.ids:
                head = backend.log(name).reader().head()
                seqs[name] = 0 if head is None else head.seq
            known = changed.since
            changed.done()
            refreshes += 1
            complete += changed.every
            missed = [(n, seq) for n, seq in enumerate(before) if seqs.get(f"s{n}", 0) < seq]
            assert missed == []
        for worker in workers:
            worker.go()
        assert min(worker.result() for worker in workers) > SESSIONS
    assert complete == 1
