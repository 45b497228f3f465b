"""Writers that are killed while others write and compact, and a check of everything they were told.

Beside: `test_killed_writers`, and the campaign's row of kills; `ack_journal`, whose writers these are.
"""

import contextlib
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from hansard.errors import LockTimeout, SessionNotFound
from hansard.log import names
from tests.faults.ack_journal import (
    Attempt,
    Checker,
    Death,
    Journal,
    read_journal,
    write_until_killed,
)
from tests.faults.workers import Crew, Wire, Worker, open_store, until

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


class KillLoop:
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
        self._compactor: Worker | None = None
        #: Whether a torn tail was seen to be passed over.
        self.recovered = False

    def run(
        self, kills: int, sessions: list[str], deaths: list[tuple[str, str]], *, pace: int
    ) -> Iterator[str]:
        """Kill so many writers, every third by its own hand at the next of the `deaths`; name each.

        Between two kills, everyone makes about as many appends as `pace` says.
        """
        planned = itertools.cycle(deaths)
        for _ in range(4):
            self._start(sessions)
        if sessions:
            self._compact_anew()
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
            if sessions and self.kills % 10 == 0:
                self._compact_anew()
            yield name
            if self.kills + len(self._living) < kills:
                call = next(planned) if self.kills % 3 == 0 else None
                self._start(sessions, call, self._unsure(name))

    def withstand(
        self, kills: int, sessions: list[str], deaths: list[tuple[str, str]], *, pace: int
    ) -> "Counter[str]":
        """Kill so many, look after each, and at last check everything; return what became of the appends."""
        for name in self.run(kills, sessions, deaths, pace=pace):
            self.append(self._rng.choice(sessions))
            self._look_for_recovery(sessions)
            self.checker.look(sessions)
            for thread in range(2):
                self.checker.check(f"{name}.{thread}")
        self.checker.look(sessions)
        fates = self.checker.check_all()
        assert self.store.verify().ok
        for session in sessions:
            self.append(session)
        assert self.kills == kills
        return fates

    def _look_for_recovery(self, sessions: list[str]) -> None:
        self.recovered = (
            self.recovered
            or _seen(self.path).exists()
            or any(tells_of_recovery(self.path, session) for session in sessions)
        )

    def _compact_anew(self) -> None:
        """Kill whoever compacts, wherever it is, and let another go on."""
        if self._compactor is not None:
            self._compactor.signal(signal.SIGKILL)
            self._compactor.hear_it_die()
            self._crew.discard(self._compactor)
        seed = self._rng.getrandbits(32)
        self._compactor = self._crew.start(compact_until_killed, str(self.path), seed)

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


def tells_of_recovery(path: Path, session: str) -> bool:
    """Say whether the log has a note that a torn tail was passed over."""
    try:
        log = (path / names.SESSIONS / names.encode(session) / names.LOG).read_bytes()
    except FileNotFoundError:
        return False
    return b'{"log":"recovered"' in log


def _seen(path: Path) -> Path:
    """Return the file by which a compactor says that it has seen such a note."""
    return path.with_name("recovery-seen")


def compact_until_killed(wire: Wire, path: str, seed: int) -> None:
    """Compact sessions, one after the other, for as long as it lives.

    It leaves no trace of a recovery, so it looks for one before.
    """
    rng = random.Random(seed)
    folder = os.path.join(path, names.SESSIONS)
    store = open_store(path, "os")
    until(lambda: os.path.exists(folder) and os.listdir(folder))
    while True:
        found = names.decode(rng.choice(os.listdir(folder)))
        # One that is just beginning is not there yet.
        with contextlib.suppress(SessionNotFound, LockTimeout):
            if found is not None:
                if tells_of_recovery(Path(path), found):
                    _seen(Path(path)).touch()
                store.session(found).compact()
        # So that writers have their turn, too: there are fewer processors than processes.
        time.sleep(rng.random() * 0.05)
