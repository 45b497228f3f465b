"""Claims about kill -9: 300 kills, at random moments and at chosen calls. N-27, N-38, N-39, F-25 to F-31."""

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hansard.log import names
from tests.faults.journal import (
    Attempt,
    Checker,
    Death,
    Journal,
    leftovers,
    read_journal,
    write_until_killed,
)
from tests.faults.workers import Crew, Wire, Worker, open_store

SESSIONS = ["a", "b", "c"]

# Each call of an append's way to the disk, before it, after it, and amid it where it has a middle.
APPENDING = [
    ("write", "before"),
    ("write", "amid"),
    ("write", "after"),
    ("sync", "before"),
    ("sync", "after"),
]
BEGINNING = [
    ("make_directory", "before"),
    ("make_directory", "after"),
    ("open_file", "before"),
    ("open_file", "after"),
    ("create_file", "before"),
    ("create_file", "after"),
    ("write", "before"),
    ("write", "amid"),
    ("write", "after"),
    ("sync", "before"),
    ("sync", "after"),
    ("publish", "before"),
    ("publish", "amid"),
    ("publish", "after"),
    ("sync_directory", "before"),
    ("sync_directory", "after"),
]


class Siege:
    """Four writers at a time; when one is killed, what it wrote is checked and another takes its place."""

    def __init__(self, folder: Path, rng: random.Random, crew: Crew) -> None:
        self.path = folder / "store"
        self._journals = folder / "journals"
        self._journals.mkdir()
        self._rng = rng
        self._crew = crew
        self._names = (f"writer-{number}" for number in itertools.count())
        self._living: list[tuple[str, Worker, Death | None]] = []
        self.kills = 0
        #: The test itself appends too, so that it knows at once when a death has left something in the way.
        self.store = open_store(str(self.path), "os")
        self._own = Journal(str(self._journals), "test")
        self._own_counts = itertools.count()
        self.checker = Checker(str(self.path), str(self._journals))

    def run(
        self, kills: int, sessions: list[str], deaths: list[tuple[str, str]], *, pace: int
    ) -> Iterator[str]:
        """Kill so many writers, every third by its own hand at the next of the `deaths`; name each.

        Between two kills, everyone makes about as many appends as `pace` says.
        """
        planned = itertools.cycle(deaths)
        for _ in range(4):
            self._start(sessions)
        while self.kills < kills:
            place = self._rng.randrange(len(self._living))
            name, worker, death = self._living.pop(place)
            for _, other, _ in self._living:
                other.hear_what_was_told(pace)
            if death is None:
                self._kill_at_some_moment(worker)
            worker.hear_it_die()
            self._crew.discard(worker)
            self.kills += 1
            yield name
            if self.kills + len(self._living) < kills:
                call = next(planned) if self.kills % 3 == 0 else None
                self._start(sessions, call, self._unsure(name))

    def _start(
        self,
        sessions: list[str],
        call: tuple[str, str] | None = None,
        retries: Sequence[Attempt] = (),
    ) -> None:
        name = next(self._names)
        death = Death(call[0], self._rng.randrange(1, 25), call[1]) if call else None
        worker = self._crew.start(
            write_until_killed,
            str(self.path),
            str(self._journals),
            name,
            self._rng.getrandbits(32),
            sessions=sessions,
            # One that waits for its death in a sync must come to sync.
            durability="sync" if death else self._rng.choice(["os", "sync"]),
            death=death,
            # With a key, because nobody knows whether the dead one's last append was made.
            retries=[attempt for attempt in retries if attempt.key is not None],
        )
        self._living.append((name, worker, death))

    def _kill_at_some_moment(self, worker: Worker) -> None:
        worker.hear_what_was_told()
        for _ in range(self._rng.randrange(1, 5)):
            worker.hear()
        # Microseconds lie between two appends, and milliseconds between two syncs.
        moment = time.perf_counter() + self._rng.random() * self._rng.choice([0.0001, 0.002])
        while time.perf_counter() < moment:
            pass
        worker.signal(signal.SIGKILL)

    def attempts(self, name: str) -> list[Attempt]:
        """Return what a dead writer, in its two threads, was ever about to append."""
        return [
            attempt
            for thread in range(2)
            for attempt, _ in read_journal(self._journals / f"{name}.{thread}")
        ]

    def _unsure(self, name: str) -> list[Attempt]:
        return [
            attempt for thread in range(2) for attempt in self.checker.check(f"{name}.{thread}")
        ]

    def append(self, session: str) -> None:
        """Append from here: it must work, whatever has just died."""
        attempt = Attempt("test", next(self._own_counts), session, 1, None)
        self._own.about(attempt)
        self._own.acknowledged(attempt.make(self.store))

    def close(self) -> None:
        """Let go of everything."""
        self._own.close()
        self.store.close()
        self.checker.close()


@pytest.fixture
def siege(tmp_path: Path, rng: random.Random) -> Iterator[Siege]:
    """Return a siege that ends with the test."""
    with Crew() as crew:
        siege = Siege(tmp_path, rng, crew)
        yield siege
        siege.close()


@pytest.mark.slow
def test_180_killed_writers_lose_and_double_nothing(siege: Siege, rng: random.Random) -> None:
    """N-39, F-27 to F-31: whoever is killed, what was acknowledged is there once, batches whole, in order."""
    for name in siege.run(180, SESSIONS, APPENDING, pace=4):
        siege.append(rng.choice(SESSIONS))
        siege.checker.look(SESSIONS)
        for thread in range(2):
            siege.checker.check(f"{name}.{thread}")
    siege.checker.look(SESSIONS)
    fates = siege.checker.check_all()
    # They did die in all places: before their writes, amid them, and before they were told.
    assert min(fates["acknowledged"], fates["there"], fates["not there"]) > 0
    logs = [(siege.path / names.SESSIONS / name / names.LOG).read_bytes() for name in SESSIONS]
    assert any(b'{"log":"recovered"' in log for log in logs)
    assert siege.store.verify().ok
    for session in SESSIONS:
        siege.append(session)
    assert siege.kills == 180


@pytest.mark.slow
def test_120_writers_killed_while_they_begin_sessions_damage_none(
    siege: Siege, rng: random.Random
) -> None:
    """N-27, N-38, N-39, F-25: a session whose beginning was killed is there whole, or not; then it begins."""
    swept = 0
    begun: set[str] = set()
    for name in siege.run(120, [], BEGINNING, pace=3):
        attempts = siege.attempts(name)
        # The last one of each thread is the one that may have been under way.
        for session in {attempt.writer: attempt.session for attempt in attempts}.values():
            directory = siege.path / names.SESSIONS / names.encode(session)
            is_there = (directory / names.LOG).exists()
            assert siege.store.exists(session) == is_there
            swept += len(leftovers(directory))
            siege.append(session)
            assert not leftovers(directory)
        begun.update(attempt.session for attempt in attempts)
        siege.checker.look(attempt.session for attempt in attempts)
        for thread in range(2):
            siege.checker.check(f"{name}.{thread}")
    siege.checker.check_all()
    assert swept > 0
    assert siege.store.verify().ok
    listed = siege.store.sessions().items
    assert {item.id for item in listed} == begun
    assert not [item for item in listed if item.damaged]
    assert siege.kills == 120


# ------------------------------------------------------------------ what a death leaves behind


def begin_store(wire: Wire, path: str, death: Death) -> None:
    """Make a store and its first session, and die on the way."""
    death.arm()
    with open_store(path, "sync") as store:
        store.session("s").add_message({"by": "the killed"})


@pytest.mark.slow
def test_a_store_whose_making_was_killed_is_made_by_the_next(tmp_path: Path) -> None:
    """N-39, F-1: killed at every call that makes a store and its first session, the next one succeeds."""
    deaths = 0
    with Crew() as crew:
        for call, moment in [("make_root", "before"), ("make_root", "after"), *BEGINNING]:
            for number in itertools.count(1):
                path = tmp_path / f"{call}-{moment}-{number}"
                worker = crew.start(begin_store, str(path), Death(call, number, moment))
                if not worker.hear_it_die():
                    break
                deaths += 1
                with open_store(str(path), "sync") as store:
                    assert store.session("s").seq in {0, 1}
                    store.session("s").add_message({"by": "the next"})
                    assert [item.id for item in store.sessions().items] == ["s"]
                    assert store.session("s").messages()[-1] == {"by": "the next"}
                    assert store.verify().ok
    assert deaths > 30


def test_temporaries_of_the_dead_and_of_long_ago_are_swept_and_fresh_ones_kept(
    tmp_path: Path,
) -> None:
    """N-38: beginning a session sweeps what a crash has left, and nothing that somebody may be making."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store:
        directory = path / names.SESSIONS / "s"
        directory.mkdir(mode=0o700)
        fresh = directory / names.temporary(names.LOG)
        old = directory / names.temporary(names.LOG)
        # More than any system gives out, so nobody's.
        dead = directory / names.temporary(names.LOG).replace(f"-{os.getpid()}-", "-99999999-")
        for file in (fresh, old, dead):
            file.write_bytes(b"{")
        os.utime(old, (time.time() - 7200, time.time() - 7200))
        assert store.sessions().items == []
        assert not store.exists("s")
        store.session("s").add_message({"by": "the next"})
        assert {file.name for file in directory.iterdir()} == {names.LOG, names.LOCK, fresh.name}
        assert [item.id for item in store.sessions().items] == ["s"]
        assert store.verify().ok
