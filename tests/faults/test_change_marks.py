"""Two writers and a consumer of change marks, as real processes: no acknowledged append is missed."""

import contextlib
import os
import random
import time
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path

import pytest

from hansard.backend.contract import AppendRequest
from hansard.backend.local.backend import LocalBackend
from hansard.event.event import NewEvent
from hansard.log import disk
from tests.faults.workers import Crew, Wire

NOTES = [NewEvent("app.note", b"{}", control=False)]
SESSIONS = 12
WRITERS = 2
SECONDS = 2.0


class Board:
    """The last acknowledged seq of each writer in each session, in shared memory.

    Eight bytes each, written by one process: a reader sees the old number or the new one.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(8 * SESSIONS * WRITERS))
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap(file.fileno(), 0)).cast("Q")

    def note(self, writer: int, session: int, seq: int) -> None:
        """Note that an append was acknowledged."""
        self._numbers[writer * SESSIONS + session] = seq

    def seqs(self) -> list[int]:
        """Return the last acknowledged seq of each session."""
        numbers = self._numbers.tolist()
        return [max(numbers[session::SESSIONS]) for session in range(SESSIONS)]


def dawdle(rng: random.Random) -> None:
    """Sleep now and then just before a write: races are there."""
    real = disk.write

    def write(descriptor: int, data: bytes) -> int:
        if rng.random() < 0.2:
            time.sleep(rng.random() / 2_000)
        return real(descriptor, data)

    disk.write = write  # type: ignore[assignment] # in this process only, which ends with its job


def append(wire: Wire, store: str, board: str, writer: int, seed: int) -> int:
    """Append to random sessions until told to end; return the number of appends."""
    rng = random.Random(seed)
    dawdle(rng)
    acknowledged = Board(Path(board))
    backend = LocalBackend(store, durability="os")
    logs = [backend.log(f"s{number}") for number in range(SESSIONS)]
    count = 0
    wire.tell("ready")
    while not wire.told_to_go():
        # Few at a time: the next append to a session hides that one was missed.
        number = rng.randrange(SESSIONS)
        for _ in range(rng.randrange(1, 4)):
            key = str(rng.random()) if rng.random() < 0.3 else None
            (event,) = logs[number].append(AppendRequest(NOTES, key))
            acknowledged.note(writer, number, event.seq)
            count += 1
    return count


class Index:
    """Stores the seq of each session that it was told of."""

    def __init__(self, store: str, kept: Path | None = None) -> None:
        self._backend = LocalBackend(store, durability="os")
        self._kept = kept
        self.known = ""
        self.seqs: dict[str, int] = {}
        if kept is not None and kept.exists():
            self.known, *lines = kept.read_text().split("\n")
            self.seqs = {name: int(seq) for name, seq in (line.split() for line in lines)}
        self.refreshes = self.complete = 0

    def refresh(self) -> None:
        """Read what has changed, and commit it."""
        changed = self._backend.changed(self.known)
        self.refreshes += 1
        self.complete += changed.every
        for session_id in self._backend.ids() if changed.every else changed.ids:
            head = self._backend.log(session_id).reader().head()
            if head is not None:
                self.seqs[session_id] = head.seq
        self.known = changed.since
        if self._kept is not None:
            lines = [self.known, *(f"{name} {seq}" for name, seq in self.seqs.items())]
            aside = self._kept.with_suffix(".new")
            aside.write_text("\n".join(lines))
            aside.replace(self._kept)
        changed.done()

    def missed(self, seqs: list[int]) -> list[tuple[int, int, int]]:
        """Return the sessions of which it missed an append: number, known seq, acknowledged seq."""
        return [
            (number, self.seqs.get(f"s{number}", 0), seq)
            for number, seq in enumerate(seqs)
            if self.seqs.get(f"s{number}", 0) < seq
        ]


def index(wire: Wire, store: str, kept: str, seed: int) -> int:
    """Refresh until killed."""
    del seed
    found = Index(store, Path(kept))
    wire.tell("ready")
    while not wire.told_to_go():
        found.refresh()
    return found.refreshes


@pytest.fixture
def crew() -> Iterator[Crew]:
    """Return the processes of a test."""
    with Crew() as crew:
        yield crew


def last_seqs(store: str) -> list[int]:
    """Return the last seq of each session, as its log has it."""
    backend = LocalBackend(store, read_only=True)
    heads = [backend.log(f"s{number}").reader().head() for number in range(SESSIONS)]
    return [0 if head is None else head.seq for head in heads]


@pytest.mark.slow
def test_every_refresh_finds_what_was_acknowledged_before_it(
    crew: Crew, tmp_path: Path, seed: int
) -> None:
    """F-130, F-131: next to two writers, each refresh finds all appends acknowledged before it began."""
    store, board = str(tmp_path / "store"), tmp_path / "board"
    acknowledged = Board(board)
    found = Index(store)
    workers = [
        crew.start(append, store, str(board), writer, seed + writer) for writer in range(WRITERS)
    ]
    for worker in workers:
        worker.hear()
    found.refresh()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or found.refreshes <= SESSIONS:
        before = acknowledged.seqs()
        found.refresh()
        assert found.missed(before) == []
    for worker in workers:
        worker.go()
    counts = [worker.result() for worker in workers]
    found.refresh()
    assert found.missed(last_seqs(store)) == []
    assert found.complete == 1
    assert min(counts) > SESSIONS
    assert found.refreshes > SESSIONS


@pytest.mark.slow
def test_a_killed_writer_and_a_killed_consumer_lose_nothing(
    crew: Crew, tmp_path: Path, rng: random.Random
) -> None:
    """F-130, F-131: after a kill at any moment, the next refresh finds everything, by marks alone."""
    store, board, kept = str(tmp_path / "store"), tmp_path / "board", tmp_path / "kept"
    Board(board)
    Index(store, kept).refresh()
    complete = 0
    for _ in range(12):
        writer = crew.start(append, store, str(board), 0, rng.randrange(1 << 30))
        consumer = crew.start(index, store, str(kept), rng.randrange(1 << 30))
        writer.hear()
        consumer.hear()
        time.sleep(rng.random() / 10)  # until a random moment
        for worker in rng.sample([writer, consumer], 2):
            worker.kill()
        found = Index(store, kept)
        found.refresh()
        assert found.missed(last_seqs(store)) == []
        complete += found.complete
    assert complete == 0


@pytest.mark.slow
def test_marks_that_are_removed_next_to_a_writer_are_created_again(
    crew: Crew, tmp_path: Path, seed: int
) -> None:
    """F-128, F-132: appends continue without marks, and nothing is missed in the end."""
    store, board = str(tmp_path / "store"), tmp_path / "board"
    Board(board)
    found = Index(store)
    worker = crew.start(append, store, str(board), 0, seed)
    worker.hear()
    for _ in range(20):
        found.refresh()
        for name in os.listdir(tmp_path / "store/marks"):
            with contextlib.suppress(FileNotFoundError):
                (tmp_path / "store/marks" / name).unlink()
        with contextlib.suppress(OSError):
            (tmp_path / "store/marks").rmdir()
    worker.go()
    worker.result()
    found.refresh()
    assert found.missed(last_seqs(store)) == []
