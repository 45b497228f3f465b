"""Two writers and one who goes over what has changed, as real processes: nothing acknowledged is missed."""

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
    """What every writer has been acknowledged in every session, in memory that all processes share.

    Eight bytes for each, written by one process: a number is seen whole, or not yet.
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
    """Let this process lose the processor, now and then, just before it writes: that is where races are."""
    real = disk.write

    def write(descriptor: int, data: bytes) -> int:
        if rng.random() < 0.2:
            time.sleep(rng.random() / 2_000)
        return real(descriptor, data)

    disk.write = write  # type: ignore[assignment] # in this process only, which ends with its job


def append(wire: Wire, store: str, board: str, writer: int, seed: int) -> int:
    """Append to sessions at random until told to end; return how often."""
    rng = random.Random(seed)
    dawdle(rng)
    acknowledged = Board(Path(board))
    backend = LocalBackend(store, durability="os")
    logs = [backend.log(f"s{number}") for number in range(SESSIONS)]
    count = 0
    wire.tell("ready")
    while not wire.told_to_go():
        # Few at a time: a session that is appended to all the time hides that an append was missed.
        number = rng.randrange(SESSIONS)
        for _ in range(rng.randrange(1, 4)):
            key = str(rng.random()) if rng.random() < 0.3 else None
            (event,) = logs[number].append(AppendRequest(NOTES, key))
            acknowledged.note(writer, number, event.seq)
            count += 1
    return count


class Index:
    """Keeps the seq of each session, as far as it was told to look."""

    def __init__(self, store: str, kept: Path | None = None) -> None:
        self._backend = LocalBackend(store, durability="os")
        self._watch = self._backend.watch()
        self._kept = kept
        self.known = ""
        self.seqs: dict[str, int] = {}
        if kept is not None and kept.exists():
            self.known, *lines = kept.read_text().split("\n")
            self.seqs = {name: int(seq) for name, seq in (line.split() for line in lines)}
        self.passes = self.whole = 0

    def go_over(self) -> None:
        """Look at what has changed, and keep it."""
        changed = self._watch.begin(self.known)
        self.passes += 1
        self.whole += changed.every
        for session_id in self._backend.ids() if changed.every else changed.ids:
            head = self._backend.log(session_id).reader().head()
            if head is not None:
                self.seqs[session_id] = head.seq
        self.known = self._watch.done()
        if self._kept is not None:
            lines = [self.known, *(f"{name} {seq}" for name, seq in self.seqs.items())]
            aside = self._kept.with_suffix(".new")
            aside.write_text("\n".join(lines))
            aside.replace(self._kept)
        self._watch.consumed()

    def knows(self, seqs: list[int]) -> list[tuple[int, int, int]]:
        """Return where it is behind: session, what it knows, what there is."""
        return [
            (number, self.seqs.get(f"s{number}", 0), seq)
            for number, seq in enumerate(seqs)
            if self.seqs.get(f"s{number}", 0) < seq
        ]


def index(wire: Wire, store: str, kept: str, seed: int) -> int:
    """Go over what has changed, again and again, until killed."""
    del seed
    found = Index(store, Path(kept))
    wire.tell("ready")
    while not wire.told_to_go():
        found.go_over()
    return found.passes


@pytest.fixture
def crew() -> Iterator[Crew]:
    """Return the processes of a test."""
    with Crew() as crew:
        yield crew


def stands(store: str) -> list[int]:
    """Return the seqs at which the sessions really are."""
    backend = LocalBackend(store, read_only=True)
    heads = [backend.log(f"s{number}").reader().head() for number in range(SESSIONS)]
    return [0 if head is None else head.seq for head in heads]


@pytest.mark.slow
def test_every_pass_knows_what_was_acknowledged_before_it(
    crew: Crew, tmp_path: Path, seed: int
) -> None:
    """F-130, F-131: beside two writers, each pass finds all appends acknowledged before it began."""
    store, board = str(tmp_path / "store"), tmp_path / "board"
    acknowledged = Board(board)
    found = Index(store)
    workers = [
        crew.start(append, store, str(board), writer, seed + writer) for writer in range(WRITERS)
    ]
    for worker in workers:
        worker.hear()
    found.go_over()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or found.passes <= SESSIONS:
        before = acknowledged.seqs()
        found.go_over()
        assert found.knows(before) == []
    for worker in workers:
        worker.go()
    counts = [worker.result() for worker in workers]
    found.go_over()
    assert found.knows(stands(store)) == []
    # It has been about marks, and about something.
    assert found.whole == 1
    assert min(counts) > SESSIONS
    assert found.passes > SESSIONS


@pytest.mark.slow
def test_killed_writers_and_a_killed_consumer_leave_nothing_unknown(
    crew: Crew, tmp_path: Path, rng: random.Random
) -> None:
    """F-130, F-131: whoever is killed at whatever moment, the next pass knows all that there is."""
    store, board, kept = str(tmp_path / "store"), tmp_path / "board", tmp_path / "kept"
    Board(board)
    Index(store, kept).go_over()
    whole = 0
    for _ in range(12):
        writer = crew.start(append, store, str(board), 0, rng.randrange(1 << 30))
        consumer = crew.start(index, store, str(kept), rng.randrange(1 << 30))
        writer.hear()
        consumer.hear()
        time.sleep(rng.random() / 10)  # until some moment, whichever
        for worker in rng.sample([writer, consumer], 2):
            worker.kill()
        found = Index(store, kept)
        found.go_over()
        assert found.knows(stands(store)) == []
        whole += found.whole
    assert whole == 0


@pytest.mark.slow
def test_marks_that_are_removed_beside_writers_are_found_again(
    crew: Crew, tmp_path: Path, seed: int
) -> None:
    """F-128, F-132: without its marks a store goes on; who opens it anew marks where all others do."""
    store, board = str(tmp_path / "store"), tmp_path / "board"
    Board(board)
    found = Index(store)
    worker = crew.start(append, store, str(board), 0, seed)
    worker.hear()
    for _ in range(20):
        found.go_over()
        for name in os.listdir(tmp_path / "store/marks"):
            with contextlib.suppress(FileNotFoundError):
                (tmp_path / "store/marks" / name).unlink()
        with contextlib.suppress(OSError):
            (tmp_path / "store/marks").rmdir()
    worker.go()
    worker.result()
    found.go_over()
    assert found.knows(stands(store)) == []
