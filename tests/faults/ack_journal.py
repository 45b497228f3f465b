"""Keep a journal beside each append, survive kill -9 with it, and check a store against all journals.

Beside: `test_killed_writers`, which kills; `workers`, which starts what is killed.
A writer says in its journal what it is about to append, appends, and then says that it was acknowledged. Each
is one write to a file of its own, so a kill leaves the journal whole. What a store holds must
then fit the journals: the acknowledged exactly once, the rest once or not at all, and nothing else.
"""

import contextlib
import itertools
import json
import os
import queue
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import hansard
from hansard.log import disk, names
from tests.faults.workers import Wire, open_store

#: Now and then one record is longer than what the system writes in one piece: only then can a kill tear it.
LONG = 40_000


class Attempt(NamedTuple):
    """One append that a writer is about to make: its events carry writer and number."""

    writer: str
    number: int
    session: str
    size: int
    key: str | None
    #: Made with `store.create`, so its one event is no message.
    creates: bool = False

    def messages(self, pad: int = 0) -> list[dict[str, Any]]:
        """Return what is to be appended."""
        return [
            {"writer": self.writer, "number": self.number, "place": place, "pad": "x" * pad}
            for place in range(self.size)
        ]

    def make(self, store: hansard.Store, pad: int = 0) -> list[int]:
        """Append, and return the seqs that were acknowledged."""
        if self.creates:
            return [store.create(self.session, metadata=self.messages()[0]).seq]
        session = store.session(self.session)
        messages = self.messages(pad)
        if self.size == 1:
            return [session.add_message(messages[0], key=self.key).seq]
        return [event.seq for event in session.add_messages(messages, key=self.key)]


class Journal:
    """What one thread of a writer says about its appends; `folder` holds the journals of all."""

    def __init__(self, folder: str, writer: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(os.path.join(folder, writer), flags, 0o600)

    def about(self, attempt: Attempt) -> None:
        """Say what comes next."""
        os.write(self._file, json.dumps(attempt).encode() + b"\n")

    def acknowledged(self, seqs: list[int]) -> None:
        """Say that it has come to pass."""
        os.write(self._file, json.dumps(seqs).encode() + b"\n")

    def close(self) -> None:
        """Close it; a killed writer never comes to do so."""
        os.close(self._file)


def read_journal(path: Path) -> list[tuple[Attempt, list[int] | None]]:
    """Return a writer's attempts with the seqs that it was told; None for one that it was not told of."""
    found: list[tuple[Attempt, list[int] | None]] = []
    if not path.exists():
        return found
    for line in path.read_bytes().split(b"\n")[:-1]:
        entry = json.loads(line)
        if isinstance(entry[0], str):
            found.append((Attempt(*entry), None))
        else:
            found[-1] = (found[-1][0], entry)
    return found


# ------------------------------------------------------------------ the writers that are killed


class Death(NamedTuple):
    """Where a process kills itself: in which call of `disk`, the how-manieth, before, amid or after it."""

    call: str
    number: int
    moment: str

    def arm(self) -> None:
        """From now on, wait for that call."""
        real: Callable[..., Any] = getattr(disk, self.call)
        calls = itertools.count(1)

        def call_or_die(*arguments: Any, **options: Any) -> Any:
            if next(calls) != self.number:
                return real(*arguments, **options)
            if self.moment == "amid":
                _half(self.call, real, arguments)
            elif self.moment == "after":
                # To find that a file is not there yet is a call's end, too.
                with contextlib.suppress(OSError):
                    real(*arguments, **options)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("nobody survives this")

        setattr(disk, self.call, call_or_die)


def _half(call: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Do half of what a call does."""
    if call == "write":
        descriptor, data = arguments
        real(descriptor, data[: len(data) // 2])
    elif call == "publish":
        directory, temporary, name = arguments
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


def write_until_killed(
    wire: Wire,
    path: str,
    folder: str,
    writer: str,
    seed: int,
    *,
    sessions: list[str],
    durability: str,
    threads: int = 2,
    death: Death | None = None,
    retries: Iterable[Attempt] = (),
) -> None:
    """Append in threads for as long as it lives, telling of each acknowledgement.

    `sessions`: where to; with none, each append begins a session. `retries`: keyed appends of a killed
    writer, of which nobody knows whether they were made: made again, with the same key.
    """
    wire.narrow()
    store = open_store(path, durability)
    failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def write(number: int) -> None:
        name = f"{writer}.{number}"
        rng = random.Random(f"{seed} {number}")
        journal = Journal(folder, name)
        try:
            for attempt in itertools.chain(
                retries if number == 0 else (),
                (_attempt(rng, name, count, sessions) for count in itertools.count()),
            ):
                journal.about(attempt)
                seqs = attempt.make(store, LONG if rng.random() < 0.01 else rng.randrange(60))
                journal.acknowledged(seqs)
                wire.tell("acknowledged")
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must hear of it
            failures.put(error)

    if death is not None:
        death.arm()
    for number in range(threads):
        threading.Thread(target=write, args=(number,), daemon=True).start()
    raise failures.get()


def _attempt(rng: random.Random, writer: str, count: int, sessions: list[str]) -> Attempt:
    """Choose what to append next: one message, three at once, or with a key."""
    session = rng.choice(sessions) if sessions else f"new/{writer}/{count}"
    creates = not sessions and rng.random() < 0.3
    size = 1 if creates or rng.random() < 0.6 else 3
    key = f"{writer} {count}" if not creates and rng.random() < 0.3 else None
    return Attempt(writer, count, session, size, key, creates)


# ------------------------------------------------------------------ the checker


class Checker:
    """Compares a store with the journals of all who wrote to it. Reads only what is new each time."""

    def __init__(self, path: str, folder: str) -> None:
        self._store = hansard.open(path, read_only=True)
        self._folder = Path(folder)
        #: Seq of each event, by session, writer, number and place.
        self._found: dict[tuple[str, str, int, int], int] = {}
        self._seqs: dict[str, int] = {}

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()

    def look(self, sessions: Iterable[str]) -> None:
        """Take in what is new; every event has its place, and there is no gap."""
        for session in sessions:
            for event in self._store.session(session).events(after=self._seqs.get(session, 0)):
                assert event.seq == self._seqs.get(session, 0) + 1, f"{session}: {event.seq}"
                self._seqs[session] = event.seq
                tag = event.message or event.data["metadata"]
                place = (session, tag["writer"], tag["number"], tag["place"])
                assert place not in self._found, f"twice: {place}"
                self._found[place] = event.seq

    def check(self, writer: str) -> list[Attempt]:
        """Check one journal; return what it says nothing about the end of. Look first."""
        unsure = []
        for attempt, told in read_journal(self._folder / writer):
            seqs = self._seqs_of(attempt)
            if told is None:
                unsure.append(attempt)
            else:
                assert seqs == told, f"acknowledged at {told}, found at {seqs}: {attempt}"
            if seqs:
                # All of a batch, side by side; or none of it.
                assert seqs == list(range(seqs[0], seqs[0] + attempt.size)), f"{attempt}: {seqs}"
        return unsure

    def _seqs_of(self, attempt: Attempt) -> list[int]:
        places = (
            (attempt.session, attempt.writer, attempt.number, place)
            for place in range(attempt.size)
        )
        return [self._found[place] for place in places if place in self._found]

    def check_all(self) -> "Counter[str]":
        """Check all journals, and that nothing is there that nobody wrote.

        Return how many appends were acknowledged, were not but are there, and are not there.
        """
        written: set[tuple[str, str, int, int]] = set()
        fates: Counter[str] = Counter()
        for journal in self._folder.iterdir():
            self.check(journal.name)
            for attempt, told in read_journal(journal):
                written.update(
                    (attempt.session, attempt.writer, attempt.number, place)
                    for place in range(attempt.size)
                )
                there = "there" if self._seqs_of(attempt) else "not there"
                fates[there if told is None else "acknowledged"] += 1
        assert self._found.keys() <= written, self._found.keys() - written
        # In a session, what one writer wrote stands in the order in which it wrote it.
        order = sorted((place[:2], seq, place[2:]) for place, seq in self._found.items())
        for (one, _, earlier), (other, _, later) in itertools.pairwise(order):
            assert one != other or earlier < later, f"{one}: {later} before {earlier}"
        return fates


def leftovers(directory: Path) -> list[Path]:
    """Return the temporary files in a session's directory, which need not be there."""
    files = directory.iterdir() if directory.exists() else iter(())
    return [file for file in files if names.is_temporary(file.name)]
