"""Interrupt an operation in a process that continues, and check what must hold afterwards.

An operation is a list of steps on a prepared store. After any step, the store is as before
that step or as after it, and as after it if the step returned. No lock is held, no descriptor is left,
and the same store object works.
"""

import gc
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from types import FrameType
from typing import Any, Literal, NamedTuple

import hansard

#: A step that takes longer has hung.
PATIENCE = 20.0

Step = Callable[[hansard.Store, dict[str, Any]], object]

#: What is in a store, without its times: kinds and data of each session, and what is in the trash.
State = dict[str, Any]


class Hung(BaseException):
    """A step hung. Not an `Exception`, so that no handler takes it for an answer."""


class Operation(NamedTuple):
    """An operation of a store, in steps; `kept` passes values from a step to the next."""

    name: str
    steps: tuple[Step, ...]
    #: Calls before the operation, so that files are open.
    warm: bool = False
    durability: Literal["os", "sync"] = "os"


class Wrong(AssertionError):
    """A broken guarantee."""


def _stream(store: hansard.Store, kept: dict[str, Any]) -> None:
    kept["stream"] = store.session("s").stream(gather=0)


def _write(_: hansard.Store, kept: dict[str, Any]) -> None:
    kept["stream"].write("some words ")


def _import(store: hansard.Store, _: dict[str, Any]) -> None:
    store.import_session(exported(), id="imported")


OPERATIONS = (
    Operation("append", (lambda store, _: store.session("s").add_message({"n": 1}),)),
    Operation(
        "append warm", (lambda store, _: store.session("s").add_message({"n": 1}),), warm=True
    ),
    Operation(
        "append synced",
        (lambda store, _: store.session("s").add_message({"n": 1}),),
        warm=True,
        durability="sync",
    ),
    Operation(
        "batch",
        (lambda store, _: store.session("s").add_messages([{"n": n} for n in range(3)], key="k"),),
    ),
    Operation("begin", (lambda store, _: store.session("new").add_message({"n": 1}),)),
    Operation("create", (lambda store, _: store.create("made", metadata={"n": 1}),)),
    Operation(
        "stream", (_stream, _write, _write, lambda _, kept: kept["stream"].finish()), warm=True
    ),
    Operation("fork", (lambda store, _: store.session("s").fork("child", at=3),)),
    Operation("revert", (lambda store, _: store.session("s").revert(2),)),
    Operation("compact", (lambda store, _: store.session("s").compact(),)),
    Operation("delete", (lambda store, _: store.delete("t"),)),
    Operation("restore", (lambda store, _: store.restore("gone"),)),
    Operation("list", (lambda store, _: store.sessions(),)),
    Operation("list again", (lambda store, _: store.sessions(),), warm=True),
    Operation("search", (lambda store, _: store.search("words"),)),
    Operation("import", (_import,)),
)

BY_NAME = {operation.name: operation for operation in OPERATIONS}


#: Every session that an operation, or a later step, may leave.
NAMES = ("s", "t", "gone", "new", "made", "child", "imported", "the same", "another")


def _prepare(path: str) -> None:
    with hansard.open(path, durability="os") as store:
        for name in ("s", "t", "gone"):
            for number in range(8):
                store.session(name).add_message({"role": "user", "content": f"words {number}"})
        store.session("s").compact()
        store.session("s").add_messages([{"role": "user", "content": "more words"}] * 2)
        store.delete("gone")


@cache
def exported() -> bytes:
    """Return a session as a file."""
    with hansard.open("memory:") as store:
        session = store.session("elsewhere")
        for number in range(5):
            session.add_message({"role": "user", "content": f"words from elsewhere {number}"})
        return b"".join(session.export())


def state_of(store: hansard.Store) -> State:
    """Return what is in a store."""
    # Not with the listing, which takes longest and is an operation itself.
    found: State = {
        name: [(event.kind, _plain(event.data)) for event in store.session(name).events()]
        for name in NAMES
        if store.exists(name)
    }
    found["the trash"] = store.trash()
    return found


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    # The id of a stream and the time of a parent's beginning are different each time.
    return {name: value for name, value in data.items() if name not in {"stream", "created"}}


def scratch(prefix: str) -> str:
    """Create a directory, in memory if possible: no case depends on what a disk keeps."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - by a fresh name
    # A caller that sets the directory of temporary files also removes them.
    return tempfile.mkdtemp(prefix=prefix, dir=None if "TMPDIR" in os.environ else memory)


class Stage:
    """A directory with a prepared store; each case gets a copy."""

    def __init__(self) -> None:
        exported()
        self._folder = scratch("hansard-struck-")
        self._template = os.path.join(self._folder, "template")
        _prepare(self._template)
        self._states: dict[str, list[State]] = {}

    def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def copy(self) -> Iterator[str]:
        """Give out a copy of the store."""
        path = tempfile.mkdtemp(dir=self._folder)
        try:
            shutil.copytree(self._template, path, dirs_exist_ok=True)
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def copies(self) -> list[str]:
        """Return the copies that were not removed."""
        found = (os.path.join(self._folder, name) for name in os.listdir(self._folder))
        return [path for path in found if path != self._template]

    @staticmethod
    def remove(path: str) -> None:
        """Remove a copy."""
        shutil.rmtree(path, ignore_errors=True)

    def states(self, operation: Operation) -> list[State]:
        """Return what is in the store before the first step and after each."""
        if operation.name not in self._states:
            with self.copy() as path, open_store(path) as store:
                kept: dict[str, Any] = {}
                if operation.warm:
                    warm_up(store)
                states = [state_of(store)]
                for step in operation.steps:
                    step(store, kept)
                    states.append(state_of(store))
            self._states[operation.name] = states
        return self._states[operation.name]


def warm_up(store: hansard.Store) -> None:
    """Open the files of a store, and create its index."""
    store.session("s").add_message({"warm": True})
    store.sessions()


def open_store(path: str, durability: Literal["os", "sync"] = "os") -> hansard.Store:
    """Open a store that does not wait: here, no other process can hold a lock."""
    return hansard.open(path, durability=durability, lock_timeout=0.0, auto_compact=False)


@contextmanager
def patience() -> Iterator[None]:
    """Raise `Hung` in an operation that hangs; works only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_: int, __: FrameType | None) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def descriptors() -> set[str]:
    """Return the open descriptors and their targets."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return {one for one in found if "/proc/" not in one}


#: Strikes while a step runs; returns what it raised.
Strike = Callable[[Callable[[], object]], BaseException | None]

#: Errors that a step may raise when it is repeated after it succeeded.
_DONE = (hansard.SessionExists, hansard.SessionDeleted, hansard.SessionNotFound, hansard.Closed)


def run(
    stage: Stage,
    operation: Operation,
    strike: Strike,
    expected: tuple[type[BaseException], ...],
    may_lose: Callable[[], int] = lambda: 0,
) -> type[BaseException] | None:
    """Run an operation with a fault, check all that must hold, and return the error of the struck step.

    `strike` calls each step; once it has struck, it just calls. `may_lose`: how many descriptors.
    """
    states = stage.states(operation)
    with stage.copy() as path, patience():
        gc.collect()
        before = descriptors()
        store = open_store(path, operation.durability)
        kept: dict[str, Any] = {}
        if operation.warm:
            warm_up(store)
        done = 0
        raised: BaseException | None = None
        for step in operation.steps:
            raised = strike(lambda step=step: step(store, kept))  # type: ignore[misc]
            if raised is not None:
                break
            done += 1
        problem = "" if raised is None or isinstance(raised, expected) else f"raised {raised!r}"
        said = None if raised is None else type(raised)
        # This releases the frames of its traceback.
        raised = None
        gc.collect()
        try:
            if problem:
                raise Wrong(problem)
            _check_state(path, states, done)
            _go_on(store, path, operation, kept, done)
        finally:
            kept.clear()
            store.close()
        # Before the store object is deleted: `close` releases all files.
        gc.collect()
        left = descriptors() - before
        if len(left) > may_lose():
            raise Wrong(f"descriptors left over: {sorted(left)}")
        for lost in left:
            os.close(int(lost.partition(" ")[0]))
    return said


def _check_state(path: str, states: list[State], done: int) -> None:
    """Read with another store object: the state is that before or after the struck step."""
    with hansard.open(path, read_only=True) as stranger:
        found = state_of(stranger)
        if found not in states[done : done + 2]:
            raise Wrong(f"after {done} steps, found {found}, not one of {states[done : done + 2]}")


def _go_on(
    store: hansard.Store, path: str, operation: Operation, kept: dict[str, Any], done: int
) -> None:
    """Do the remaining steps with the same store object, then append with another."""
    try:
        for step in operation.steps[done:]:
            stream = kept.get("stream")
            # It may have been finished before the interrupt came.
            if operation.name != "stream" or (stream is not None and stream.event is None):
                with suppress(*_DONE):
                    step(store, kept)
        with open_store(path) as other:
            # Each takes the locks that the struck step may have left held; another thread does not own them.
            _in_thread(partial(_stream_words, store, kept.get("stream")))
            for each, word in ((store, "the same"), (other, "another")):
                each.session("s").add_message({"by": word})
                each.session(word).add_message({"by": word})
            if operation.name in {"compact", "append", "fork"}:
                store.session("s").compact()
            other.delete("another")
            store.delete("the same")
            for each in (store, other):
                each.session("s").add_message({"by": "at last"})
                last = each.session("s").messages(last=1)
                if last != [{"by": "at last"}]:
                    raise Wrong(f"the last message is {last}")
            found = state_of(store)
            if found != state_of(other):
                raise Wrong("the struck store object sees another state than a fresh one")
            _check_listing(store, operation, found)
            if not other.verify().ok:
                raise Wrong(f"verify, after continuing: {other.verify()}")
    except hansard.HansardError as error:
        raise Wrong(f"cannot continue: {type(error).__name__}: {error}") from error


def _stream_words(store: hansard.Store, struck: hansard.Stream | None) -> None:
    if struck is not None:
        struck.flush()
    with store.session("s").stream() as stream:
        stream.write("of another thread")


def _in_thread(call: Callable[[], object]) -> None:
    """Make a call in another thread, which must end without an error."""
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE / 2)
    if not done:
        raise Wrong("another thread failed, or waits for a lock that is never released")


def _check_listing(store: hansard.Store, operation: Operation, found: State) -> None:
    # The slowest check, so only where a listing was made before.
    if operation.warm or operation.name in {"list", "search", "delete", "restore", "import"}:
        listed = [info.id for info in store.sessions().items]
        if sorted({*listed, "the trash"}) != sorted(found):
            raise Wrong(f"listed are {listed}, and there are {sorted(found)}")
