"""Compaction beside writers, readers and other compactors, and compactors that are killed: nothing is lost.

Real processes on one directory. `PROGRAM` is what they run: one role each.
"""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import pytest

import hansard
from tests.faults.fault_scenarios import temporaries

ID = "s"
PATIENCE = 60

PROGRAM = """
import os, sys
import hansard
from tests.crashlab import faults

role, path, name, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
with hansard.open(path, durability="os") as store:
    session = store.session("s")
    print("ready", flush=True)
    sys.stdin.readline()
    if role == "write":
        for number in range(count):
            session.add_message({"by": name, "n": number}, key=f"{name}-{number}")
            print(number, flush=True)
    elif role == "compact":
        done = rounds = 0
        while not os.path.exists(path + ".over") or not rounds:
            done += session.compact().sessions
            rounds += 1
        print(done, rounds, flush=True)
    elif role == "compact slowly":
        with faults.record(watch=lambda call, *_: print(call.operation, flush=True)):
            while True:
                session.add_message({"by": name})
                session.compact()
    elif role == "read":
        seen = rounds = 0
        while not os.path.exists(path + ".over") or not rounds:
            seqs = [event.seq for event in session.events()]
            assert seqs == list(range(1, len(seqs) + 1)), "a gap, or twice the same"
            assert len(seqs) >= seen, (len(seqs), seen)
            seen = len(seqs)
            numbers = {}
            for message in store.session("s").messages():
                by = message["by"]
                assert message.get("n", 0) == numbers.get(by, 0), message
                numbers[by] = message.get("n", 0) + 1
            tail = session.messages(last=5)
            assert len(tail) == min(5, len(tail))
            report = session.verify()
            assert report.ok, report.findings
            assert session.seq >= seen
            rounds += 1
        print(rounds, flush=True)
"""


class Worker:
    """A process with a role."""

    def __init__(self, role: str, path: Path, name: str = "", count: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, role, str(path), name, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._pipe(self.process.stdout).readline() == "ready\n", self.said()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def go(self) -> None:
        """Let it begin."""
        pipe = self._pipe(self.process.stdin)
        pipe.write("\n")
        pipe.flush()

    def line(self) -> str:
        """Return the next line it prints."""
        return self._pipe(self.process.stdout).readline()

    def said(self) -> str:
        """Return all that it says until it ends, well."""
        out, error = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, error
        return out

    def close(self) -> None:
        """End it, if it has not ended."""
        self.process.kill()
        with suppress(ValueError):
            self.process.communicate(timeout=PATIENCE)


Start = Callable[..., Worker]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return what starts workers, which are gone when the test is over."""
    with ExitStack() as stack:

        def start(*arguments: Any) -> Worker:
            worker = Worker(*arguments)
            stack.callback(worker.close)
            return worker

        yield start


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with a session of a few events, in two segments."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        for _ in range(2):
            store.session(ID).add_message({"by": f"test-{_}"})
            store.session(ID).compact()
    return tmp_path / "store"


def check(path: Path, expected: dict[str, int]) -> None:
    """Fail unless the session holds so many messages of each writer, in order, and is whole."""
    with hansard.open(path) as store:
        session = store.session(ID)
        for _ in range(2):
            found: dict[str, list[int]] = {}
            for message in session.messages():
                found.setdefault(message["by"], []).append(message.get("n", 0))
            for by, count in expected.items():
                assert found[by] == list(range(count))
            assert session.verify().findings == []
            session.compact()
        for by, count in expected.items():
            seq = session.seq
            session.add_message({"by": by, "n": 0}, key=f"{by}-{count - 1}")
            assert session.seq == seq, "a key is a key, wherever it is by now"


@pytest.mark.slow
def test_writers_readers_and_two_compactors_at_once(path: Path, start: Start) -> None:
    """N-16, N-20, N-45, N-56: beside compaction every append is there once, and a reader never sees less.

    Four processes append, two compact in a loop, two read everything in a loop and verify it.
    """
    each = 100
    writers = [start("write", path, f"w{n}", each) for n in range(4)]
    others = [start("compact", path), start("compact", path)]
    others += [start("read", path), start("read", path)]
    for worker in [*others, *writers]:
        worker.go()
    for writer in writers:
        assert writer.said().split() == [str(n) for n in range(each)]
    Path(f"{path}.over").touch()
    done = [list(map(int, worker.said().split())) for worker in others]
    assert done[0][0] + done[1][0] > 0
    assert min(done[2][0], done[3][0]) > 0
    check(path, {f"w{n}": each for n in range(4)})
    assert temporaries(path) == []


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_compactors_are_killed_beside_writers(path: Path, start: Start, rng: random.Random) -> None:
    """N-23, N-38, N-39, N-45: after twenty kills at any call all is there, and what they left is swept."""
    each = 250
    writer = start("write", path, "w", each)
    writer.go()
    struck = set()
    for _ in range(20):
        compactor = start("compact slowly", path, "c")
        compactor.go()
        for _ in range(rng.randint(1, 60)):
            call = compactor.line()
            assert call, compactor.said()
        compactor.process.kill()
        compactor.close()
        struck.add(call.strip())
        with hansard.open(path, read_only=True) as store:
            events = [event.seq for event in store.session(ID).events()]
            assert events == list(range(1, len(events) + 1))
    assert writer.said().split() == [str(n) for n in range(each)]
    for left in temporaries(path):
        os.utime(left, (0, 0))
    check(path, {"w": each})
    assert temporaries(path) == []
    directory = path / "sessions" / ID
    assert list(directory.glob("*.jsonl")) == [directory / "log.jsonl"]
    assert len(struck) > 3


def test_a_second_compactor_is_refused_and_breaks_nothing(path: Path) -> None:
    """N-24, N-25: while one compacts, another hears who holds the lock; appends and reads do not wait."""
    with hansard.open(path) as store, hansard.open(path, lock_timeout=0.01) as other:
        session = store.session(ID)
        session.add_message({"by": "here"})
        heard: list[str] = []

        def progress(done: int, total: int) -> None:
            assert 0 < done <= total
            with pytest.raises(hansard.LockTimeout) as caught:
                other.session(ID).compact()
            heard.append(str(caught.value))
            assert ID in other.compact().failed
            other.session(ID).add_message({"by": "there"})
            assert len(other.session(ID).messages()) == 3 + len(heard)

        session.compact(progress=progress)
        assert heard
        assert all("compaction" in said for said in heard)
        assert session.verify().ok
        assert len(session.messages()) == 3 + len(heard)


LOCKLESS = """
import sys
import hansard
from hansard.log.disk import Lock

if sys.argv[2] == "without":
    real = Lock.acquire
    Lock.acquire = lambda self, wait: None if "compaction" in self.path else real(self, wait)
with hansard.open(sys.argv[1]) as store, hansard.open(sys.argv[1], lock_timeout=0.01) as other:
    session = store.session("s")
    session.add_message({"n": 0})

    def progress(*_):
        other.session("s").add_message({"n": 1})
        try:
            other.session("s").compact()
        except hansard.LockTimeout:
            pass

    session.compact(progress=progress)
    print("whole" if session.verify().ok and len(session.messages()) == session.seq else "lost")
"""


@pytest.mark.parametrize(("lock", "outcome"), [("with", "whole"), ("without", "lost")])
def test_without_its_lock_compaction_would_lose_events(path: Path, lock: str, outcome: str) -> None:
    """N-17: two compactors at once lose nothing, and would if the lock between them were taken out."""
    done = subprocess.run(
        [sys.executable, "-c", LOCKLESS, str(path), lock],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    said = done.stdout.strip() or ("lost" if "is missing" in done.stderr else done.stderr)
    assert said == outcome


@pytest.mark.parametrize("backwards", [False, True])
def test_who_reads_slowly_reads_on_while_segments_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    """N-20, N-45: a reading that is held while all segments are joined goes on, without gap or repetition."""
    monkeypatch.setattr("hansard.log.reader.PIECE", 600)
    monkeypatch.setattr("hansard.log.sealing.FRAME", 700)
    with hansard.open(tmp_path / "store", durability="os") as store:
        session = store.session(ID)
        for _ in range(5):
            session.add_messages([{"n": n, "text": "x" * 50} for n in range(12)])
            session.compact()
        session.add_messages([{"n": n} for n in range(10)])
        with hansard.open(tmp_path / "store", read_only=True) as other:
            log = other._backend.log(ID)
            chunks = log.reader().read_back() if backwards else log.reader().read()
            seqs: list[int] = []
            for chunk in chunks:
                part = [event.seq for event in chunk.events()]
                seqs = part + seqs if backwards else seqs + part
                session.add_message({"more": True})
                session.compact()
            assert seqs == list(range(1, 71))


def test_threads_share_what_is_open(tmp_path: Path) -> None:
    """N-20: threads that read one session object beside a compactor never fail and never see less."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        session = store.session(ID)
        session.add_messages([{"n": n} for n in range(50)])
        errors: list[BaseException] = []
        over = threading.Event()

        def read() -> None:
            seen = 0
            try:
                while not over.is_set():
                    found = len(list(session.events()))
                    assert found >= seen
                    seen = found
                    session.messages(last=3)
                    assert store.sessions().items[0].damaged == ""
            except BaseException as error:  # noqa: BLE001 - looked at in the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            session.add_messages([{"n": n} for n in range(5)])
            session.compact()
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert errors == []
        assert session.seq == 250


def test_deletion_and_forks_beside_compaction(path: Path) -> None:
    """N-28, N-50: what is forked, deleted or restored in the middle of a compaction is whole afterwards."""
    with hansard.open(path) as store, hansard.open(path) as other:
        session = store.session(ID)
        session.add_message({"by": "here"})
        expected = session.messages()

        def in_the_middle(*_: int) -> None:
            if other.exists(ID):
                other.session(ID).fork("child", at=2)
                other.delete(ID)

        with suppress(hansard.SessionDeleted):
            session.compact(progress=in_the_middle)
        assert not store.exists(ID)
        assert store.session("child").messages() == expected[:2]
        store.restore(ID)
        assert store.session(ID).messages() == expected
        assert store.verify().ok
        store.session(ID).add_message({"by": "later"})
        store.session(ID).compact()
        store.session("child").compact()
        assert store.session("child").messages() == expected[:2]
        store.delete(ID)
        assert store.session("child").messages() == expected[:2], "read from the trash"
