"""Claims about cursors between processes: kill -9, rivals, droppers and forked children. F-159 to F-164."""

import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from hansard.backend.contract import AppendRequest
from hansard.backend.local.backend import LocalBackend
from hansard.errors import Closed, LockTimeout
from hansard.event.event import NewEvent
from hansard.follow import Cursor, drop_cursor
from tests.faults.workers import PATIENCE, Crew, Wire, context

# -- kill -9 ------------------------------------------------------------------------------------------

SESSIONS = [f"s{number}" for number in range(4)]
EVENTS = 200
KILLS = 25


def consume(wire: Wire, path: str, journal: str, durability: str, *, paced: bool) -> str:
    """Do something with each event, then move past it; say where it began, and each move."""
    backend = LocalBackend(path, durability=durability)  # type: ignore[arg-type]
    done = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    cursor = Cursor(backend, "c", timeout=PATIENCE)
    wire.tell(cursor.positions)
    for seq in range(1, EVENTS + 1):
        for session in SESSIONS:
            position = cursor.positions.get(session, 0)
            if position >= seq:
                continue
            if paced:
                wire.wait()
            for chunk in backend.log(session).reader().read(position, seq):
                for event in chunk.events():
                    os.write(done, b"%s %d\n" % (session.encode(), event.seq))
            # Some moves with an id that makes the log grow, so that it is replaced often.
            cursor.move({session: seq, "x" * 900 + session: seq})
            wire.tell({session: seq})
    cursor.close()
    os.close(done)
    return "all done"


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["os", "sync"])
def test_a_killed_consumer_resumes_and_skips_nothing(
    durability: str, tmp_path: Path, rng: random.Random
) -> None:
    """F-160, F-163, N-23, N-39: killed 25 times, a consumer resumes at its position and misses no event."""
    path, journal = str(tmp_path / "store"), str(tmp_path / "journal")
    backend = LocalBackend(path, durability="os")
    for session in SESSIONS:
        backend.log(session).append(AppendRequest([NewEvent("x.n", b"{}", control=False)] * EVENTS))
    backend.close()
    acknowledged: dict[str, int] = {}
    kills = 0
    with Crew() as crew:
        while True:
            consumer = crew.start(consume, path, journal, durability, paced=kills < KILLS)
            begun = consumer.hear()
            handled = seqs_in(journal)
            for session in SESSIONS:
                at = begun.get(session, 0)
                # Not before what was acknowledged, and not after what was done.
                assert acknowledged.get(session, 0) <= at <= max(handled[session], default=0)
                # What it says of the long ids was moved together with this.
                assert begun.get("x" * 900 + session, 0) == at
            if kills == KILLS:
                assert consumer.result() == "all done"
                break
            # It may move so often, and is killed somewhere on the way.
            moves = rng.randrange(5, 30)
            for _ in range(moves):
                consumer.go()
            for _ in range(rng.randrange(moves)):
                acknowledged.update(consumer.hear())
            consumer.signal(signal.SIGKILL)
            while True:
                try:
                    acknowledged.update(consumer.hear())
                except (EOFError, ConnectionResetError):
                    break
            assert consumer.wait() == -signal.SIGKILL
            crew.discard(consumer)
            kills += 1
    for session, seqs in seqs_in(journal).items():
        first_times = list(dict.fromkeys(seqs))
        assert first_times == list(range(1, EVENTS + 1)), session
        # Each kill costs at most the events of one move again.
        assert len(seqs) <= EVENTS + kills


def seqs_in(journal: str) -> dict[str, list[int]]:
    """Return what was done, session by session, in order; a half-written last line was not done."""
    found: dict[str, list[int]] = {session: [] for session in SESSIONS}
    if os.path.exists(journal):
        for line in Path(journal).read_text("utf-8").splitlines():
            session, seq = line.split()
            found[session].append(int(seq))
    return found


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


# -- forks --------------------------------------------------------------------------------------------


def in_child(do: Callable[[], object]) -> bool:
    """Run a function in a forked child; return whether it succeeded."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    signal.alarm(int(PATIENCE))
    status = 1
    try:
        do()
        status = 0
    except BaseException:  # noqa: BLE001 - a child must never run on into the parent's code
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def fork_with_an_open_cursor(wire: Wire, path: str) -> None:
    """Fork while a cursor is open, and use it in parent and child."""
    backend = LocalBackend(path, durability="os")
    cursor = Cursor(backend, "c")
    cursor.move({"s": 1})

    def use_the_parents() -> None:
        with pytest.raises(Closed, match="opened before a fork"):
            cursor.move({"s": 9})
        with pytest.raises(LockTimeout) as caught:
            Cursor(backend, "c")
        assert caught.value.holder == os.getppid()
        other = Cursor(backend, "d")
        other.move({"s": 5})
        cursor.close()
        # None of this, nor the end of this process, may free the parent's lock.
        backend.close()

    assert in_child(use_the_parents)
    with pytest.raises(LockTimeout):
        Cursor(LocalBackend(path), "c")
    cursor.move({"s": 2})
    assert Cursor(backend, "d").positions == {"s": 5}

    def take_over() -> None:
        mine = Cursor(backend, "c")
        mine.move({"s": mine.positions["s"] + 1})

    # A child that lives on does not keep the cursor from being closed and opened again.
    reading, writing = os.pipe()
    lives_on = os.fork()
    if not lives_on:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    cursor.close()
    assert in_child(take_over)
    assert Cursor(backend, "c").positions == {"s": 3}
    os.close(writing)
    os.waitpid(lives_on, 0)
    wire.tell("went well")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_does_not_use_its_parents_cursor(tmp_path: Path) -> None:
    """F-160: in a child an inherited cursor raises, and the child cannot release the parent's lock."""
    with Crew() as crew:
        assert crew.start(fork_with_an_open_cursor, str(tmp_path / "store")).hear() == "went well"
