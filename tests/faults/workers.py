"""Start real processes that use a store, and receive their results.

A *job* is a function at the top of a module, so that another process can
find it; its first argument is the *wire* to the test that started it. Processes are forked from a clean
server that has imported what they need, so one costs milliseconds and inherits no open store.
"""

import faulthandler
import multiprocessing
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self

import portalocker  # noqa: F401 - for the children, which would otherwise import it one by one

import hansard
from hansard.backend.contract import Backend
from hansard.backend.local.backend import LocalStage
from hansard.backend.local.log import LocalLog
from hansard.clock import Backoff
from hansard.errors import LockTimeout
from hansard.follow import Cursor
from hansard.log import disk
from tests.crashlab import history_worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Seconds that are enough for any machine; a process that takes longer has hung.
PATIENCE = 60.0

Options = ParamSpec("Options")

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["pytest", __name__, "tests.crashlab.history_worker"])


class Wire:
    """A process's end of the line to the test that started it. For all threads of the process."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._mutex = threading.Lock()

    def tell(self, what: object) -> None:
        """Send a value that the test waits for."""
        self._send("told", what)

    def wait(self) -> None:
        """Wait for the signal `go` of the test."""
        assert self._connection.poll(PATIENCE), "the test never said go"
        self._connection.recv()

    def told_to_go(self) -> bool:
        """Return whether the test has sent `go`."""
        return self._connection.poll(0)

    def end(self, word: str, what: object) -> None:
        """Send the result of the job, as the last message."""
        self._send(word, what)

    def _send(self, word: str, what: object) -> None:
        with self._mutex:
            self._connection.send((word, what))


class Worker:
    """A process that does a job, seen from the test."""

    def __init__(self, job: Callable[..., object], *args: object, **options: object) -> None:
        self._connection, other = context.Pipe()
        self._process = context.Process(
            target=_do, args=(other, job, args, options), name=job.__name__, daemon=True
        )
        self._process.start()
        # Only the child's end may be left: then its death is the end of what can be heard.
        other.close()

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process.pid is not None  # started by the constructor
        return self._process.pid

    def is_alive(self) -> bool:
        """Return whether the job is running: it has neither returned nor failed."""
        return self._process.is_alive() and not self._connection.poll(0)

    def go(self) -> None:
        """Let a waiting job continue."""
        self._connection.send("go")

    def hear(self) -> Any:
        """Return the next value that the job sends; an error of the job is raised here."""
        word, what = self._receive()
        assert word == "told", f"{self._process.name} returned {what!r} instead of telling"
        return what

    def result(self) -> Any:
        """Return the result of the job; skip earlier values."""
        word, what = self._receive()
        while word == "told":
            word, what = self._receive()
        self.wait()
        return what

    def _receive(self) -> tuple[str, Any]:
        if not self._connection.poll(PATIENCE):
            raise AssertionError(f"{self._process.name} hung")
        word, what = self._connection.recv()
        if word == "failed":
            raise AssertionError(f"{self._process.name} failed:\n{what}")
        return word, what

    def kill(self) -> None:
        """Kill -9, and wait until it is dead."""
        self._process.kill()
        self.wait()

    def hear_it_die(self) -> bool:
        """Receive until the pipe is closed; return whether the job was killed."""
        try:
            while self._receive()[0] != "returned":
                pass
        except (EOFError, ConnectionResetError):
            pass
        return self.wait() == -signal.SIGKILL

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""
        self._process.join(PATIENCE)
        code = self._process.exitcode
        assert code is not None, f"{self._process.name} does not end"
        return code

    def discard(self) -> None:
        """Kill it, and close what belongs to it."""
        self._process.kill()
        self._process.join(PATIENCE)
        self._process.close()
        self._connection.close()


class Crew:
    """The processes of one test; none of them outlives it."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.discard()

    def start(
        self,
        job: Callable[Concatenate[Wire, Options], object],
        *args: Options.args,
        **options: Options.kwargs,
    ) -> Worker:
        """Start a process that does a job."""
        worker = Worker(job, *args, **options)
        self._workers.append(worker)
        return worker

    def discard(self, worker: Worker) -> None:
        """Forget about a process: for tests with hundreds of them."""
        worker.discard()
        self._workers.remove(worker)


def _do(
    connection: "Connection[Any, Any]",
    job: Callable[..., object],
    args: tuple[object, ...],
    options: dict[str, object],
) -> None:
    wire = Wire(connection)
    try:
        returned = job(wire, *args, **options)
    except BaseException:  # noqa: BLE001 - whatever it is, the test must hear of it
        wire.end("failed", traceback.format_exc())
    else:
        wire.end("returned", returned)


def until(condition: Callable[[], object]) -> None:
    """Poll until a condition holds; fail if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "this never came to be"
        time.sleep(0.0005)


def run_threads(targets: Iterable[Callable[[], object]]) -> None:
    """Run functions in threads at the same time; fail if one hangs."""
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        if thread.is_alive():
            faulthandler.dump_traceback(2)
        assert not thread.is_alive(), "a thread hangs"


def append_one(wire: Wire, path: str, session: str, durability: str = "os") -> int:
    """Append one message and return its seq."""
    with open_store(path, durability) as store:
        return store.session(session).add_message({"by": "another process"}).seq


def stay_in_mid_append(wire: Wire, path: str, session: str, durability: str = "os") -> int:
    """Append, but pause in the middle, with the lock held, until released."""
    write = disk.write

    def stay_then_write(descriptor: int, data: bytes) -> int:
        wire.tell("the lock is held")
        wire.wait()
        return write(descriptor, data)

    with open_store(path, durability) as store:
        handle = store.session(session)
        with replaced("write", stay_then_write):
            return handle.add_message({"by": "the holder"}).seq


def stay_in_mid_sync(wire: Wire, path: str, session: str, *, warm: bool = False) -> int:
    """Append durably, but pause in the sync until released; `warm`: by the fast path."""
    sync = disk.sync

    def stay_then_sync(descriptor: int) -> None:
        wire.tell("it is written")
        wire.wait()
        sync(descriptor)

    with open_store(path, "sync") as store:
        handle = store.session(session)
        if warm:
            handle.add_message({"by": "the slow one"})
        with replaced("sync", stay_then_sync):
            return handle.add_message({"by": "the slow one"}).seq


@contextmanager
def replaced(call: str, by: Callable[..., object]) -> Iterator[None]:
    """Put something else in the place of a call of `disk`: the only seam where faults come in."""
    real = getattr(disk, call)
    setattr(disk, call, by)
    try:
        yield
    finally:
        setattr(disk, call, real)


def open_store(path: str, durability: str, *, lock_timeout: float = PATIENCE) -> hansard.Store:
    """Open a store that waits for a lock as long as a test waits for anything."""
    assert durability in {"os", "sync"}
    return hansard.open(
        path, durability="os" if durability == "os" else "sync", lock_timeout=lock_timeout
    )


def said(path: Path | str, session: str = "s") -> list[str]:
    """Check all messages of a session, and return their writers in order."""
    with hansard.open(path, read_only=True) as store:
        assert store.verify().ok
        events = list(store.session(session).events())
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        return [event.message["by"] for event in events if event.message is not None]


def take_time_to_fork() -> None:
    """Let a history's workers use sessions that are deleted, and take time to fork them (F-67).

    A fork then takes milliseconds between checking the parent and the lock, and before the child's rename.
    """
    history_worker.STEADY = ()  # type: ignore[misc, assignment]
    publish, begin_with = LocalStage.publish, LocalLog.begin_with

    def wait_and_publish(self: LocalStage) -> None:
        time.sleep(random.random() * 0.03)
        publish(self)

    def wait_and_begin(self: LocalLog, staged: str) -> None:
        time.sleep(random.random() * 0.02)
        begin_with(self, staged)

    LocalStage.publish = wait_and_publish  # type: ignore[method-assign]
    LocalLog.begin_with = wait_and_begin  # type: ignore[method-assign]


def take_out_the_lock() -> None:
    """Let the locks of this process exclude no other process, a mutation that tests must notice (N-17)."""
    disk._flock = lambda _, __: None


def wait_for_cursor(backend: Backend, name: str) -> Cursor:
    """Open a cursor as soon as no other consumer has it."""
    backoff = Backoff(PATIENCE)
    while True:
        try:
            return Cursor(backend, name)
        except LockTimeout:
            if not backoff.sleep():
                raise
