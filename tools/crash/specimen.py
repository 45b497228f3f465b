"""A small store with one file of each kind, and its expected answers.

Sessions: `s`, partly sealed and compressed, with checkpoint, keys and an active segment; `t`, sealed and
not compressed; `child`, a fork of `s`; `other`, which no case damages, and which must always be read
unchanged.
"""

import functools
import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import hansard
from hansard.backend.local import compact
from hansard.log import format
from tests.crashlab import faults

#: The session that is read after each case, with any damage.
OTHER = "other"

#: Every way to read a session; what it returns can be compared.
READINGS: dict[str, Callable[[hansard.Session], object]] = {
    "messages": lambda session: session.messages(),
    "last": lambda session: session.messages(last=2),
    "events": lambda session: list(session.events()),
    "metadata": lambda session: session.metadata,
    "seq": lambda session: session.seq,
    "state": lambda session: session.state(),
}

#: Session → way to read → its answer.
Answers = dict[str, dict[str, object]]

#: An answer that is a refusal, with its reason.
Refused = hansard.HansardError

KEY = "turn-1"

#: Next to the store: the log of `s` as it was before it was sealed for the second time.
OLDER = "older.jsonl"


class File(NamedTuple):
    """One file of the store, and its role for readers."""

    kind: str
    path: str
    #: The sessions that need it; no other session may be affected.
    sessions: tuple[str, ...]
    #: Whether every answer must be right with any content: derived or redundant files.
    spare: bool = False
    #: Whether its last record is a torn tail, as a crash leaves one, without the last newline (F-28).
    active: bool = False


def _clock() -> Callable[[], bytes]:
    ticks = itertools.count()
    return lambda: b"2026-01-01T00:00:%02d.000000Z" % (next(ticks) % 60)


@contextmanager
def small() -> Iterator[None]:
    """Write a checkpoint for short sessions too, and slow the clock down."""
    changed = (
        (compact, "CHECKPOINT", 0),
        # Each time the same bytes: byte 821 of a segment is the same one in every process, and in every run.
        (format, "now", _clock()),
    )
    before = [(module, name, getattr(module, name)) for module, name, _ in changed]
    for module, name, value in changed:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def opened(path: Path, **how: Any) -> hansard.Store:
    """Open a store that compacts nothing in the background."""
    return hansard.open(path, durability="os", auto_compact=False, **how)


def make(path: Path) -> None:
    """Create the store."""
    rng = random.Random(1)
    common = [f"{rng.getrandbits(64):x} is what we all say, again and again" for _ in range(12)]
    with small(), opened(path) as store:
        store.session(OTHER).add_messages([{"n": number} for number in range(3)])
        assert not store.session(OTHER).compact().failed
        session = store.session("s")
        session.add_message({"role": "user", "content": common[0]}, key=KEY)
        session.add_messages([{"n": number, "content": common[number]} for number in range(1, 4)])
        # Too long to be joined with later segments.
        session.add_message({"n": "long", "content": "x" * 9_000})
        session.set_metadata(title="A title")
        assert not store.compact().failed
        session.add_messages([{"n": number} for number in range(4, 7)])
        session.snapshot("here")
        shutil.copy(path / "sessions" / "s" / "log.jsonl", path.with_name(OLDER))
        assert not session.compact().failed
        session.add_message({"n": 9}, key="turn-9")
        session.fork("child", at=4).add_message({"n": "child"})
        store.session("t").add_messages([{"n": number} for number in range(3)])
    with small(), opened(path) as store, faults.kill(only=("move",)), suppress(faults.Killed):
        store.session("t").compact()
    for left in path.rglob(".tmp-*"):
        left.unlink()
    with small(), opened(path) as store:
        store.session(OTHER).add_message({"n": 3})
        # The next append continues in a new file, so the sealed one is separate.
        store.session("t").add_message({"n": 3})
        store.health()


class Specimen:
    """The store in one place, with its true answers and its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = _files(path)
        self.truth = answers(path, ("s", "t", "child", OTHER))

    def file(self, kind: str) -> File:
        """Return the file of a kind."""
        return next(file for file in self.files if file.kind == kind)


@functools.cache
def specimen() -> Specimen:
    """Return the store of this process, created at the first call."""
    place = Path(tempfile.mkdtemp(prefix="hansard-specimen-"))
    make(place / "store")
    return Specimen(place / "store")


def forget() -> None:
    """Remove the store of this process."""
    shutil.rmtree(specimen().path.parent)
    specimen.cache_clear()


def copied(place: Path) -> Path:
    """Return a copy of the store."""
    shutil.copytree(specimen().path, place, symlinks=True)
    return place


def _files(path: Path) -> tuple[File, ...]:
    def only(pattern: str) -> str:
        found = sorted(path.glob(pattern))
        assert found, f"the specimen has no {pattern}"
        return str(found[0].relative_to(path))

    return (
        File("first segment", only("sessions/s/*.zst"), ("s", "child")),
        File(
            "second segment",
            str(max(path.glob("sessions/s/*.zst")).relative_to(path)),
            ("s",),
        ),
        File("checkpoint", only("sessions/s/checkpoint"), ("s", "child"), spare=True),
        File("sealed, not compressed", only("sessions/t/0*.jsonl"), ("t",)),
        File("log of a fork", "sessions/child/log.jsonl", ("child",), active=True),
        File("marker of the store", "hansard.json", ("s", "t", "child", OTHER)),
    )


def answers(path: Path, sessions: tuple[str, ...], readings: Iterable[str] = READINGS) -> Answers:
    """Return the answers of some ways to read sessions; a refusal is an answer."""
    found: Answers = {name: {} for name in sessions}
    try:
        store = opened(path, read_only=True)
    except hansard.HansardError as error:
        return {name: dict.fromkeys(readings, error) for name in sessions}
    with store:
        for name, reading in itertools.product(sessions, readings):
            try:
                found[name][reading] = READINGS[reading](store.session(name))
            except hansard.HansardError as error:
                found[name][reading] = error
    return found


def retried(path: Path, session: str, key: str) -> int | None:
    """Return the seq of the append that has a key; None if the call is refused."""
    try:
        with opened(path) as store:
            return store.session(session).add_message({"twice": True}, key=key).seq
    except hansard.HansardError:
        return None


def put(path: Path, data: bytes) -> None:
    """Write a file over, without emptying it first, which ext4 would put on the disk at once."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, data)
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)
