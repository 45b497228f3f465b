"""Claims about a store that a forked child inherits: the child opens its own files.

Each job below forks in a separate process: the tests' process has threads that are not part of the claim.
"""

import ast
import fcntl
import importlib
import importlib.abc
import importlib.util
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.backend.local.backend import LocalBackend
from hansard.backend.memory import MemoryBackend
from hansard.errors import Closed, LockTimeout
from hansard.follow import Cursor
from hansard.log import disk
from hansard.maintenance.compact import compact_session
from hansard.store import _import_before_fork
from tests.faults.test_group_commit import Appending, Stay
from tests.faults.workers import (
    PATIENCE,
    Crew,
    Wire,
    open_store,
    replaced,
    run_threads,
    said,
    until,
)
from tests.unit.disk_probe import index_of
from tests.unit.index import reference_listing

MESSAGE = {"role": "user", "content": "hello"}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def in_child(do: Callable[[], object]) -> int:
    """Do something in a forked child, which then ends; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    # A child that hangs must end, since the test waits for it.
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


def ended_well(pid: int) -> bool:
    """Wait for a child; return whether it succeeded."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def append(store: hansard.Store, by: str, *, session: str = "s") -> None:
    """Append one message."""
    store.session(session).add_message({"by": by})


class MidAppend:
    """A thread that stays in the middle of an append, with the lock held, until it is released."""

    def __init__(self, store: hansard.Store) -> None:
        self._write = Stay(disk.write)
        setattr(disk, "write", self._write)  # noqa: B010 - what a type checker would refuse
        self._thread = Appending(store.session("s"), "a thread")
        self._write.wait()

    def end(self) -> None:
        """Let it continue, and wait for it."""
        self._write.go()
        self._thread.end()


class Held:
    """Holds a thread at a known point until the process was forked, or until the fork waits for it."""

    def __init__(self, waits_in: str = "") -> None:
        """`waits_in`: the function in which a fork waits for such a thread, if it does."""
        self._waits_in = waits_in
        self._forking = threading.get_ident()
        self._there = threading.Event()
        self._forked = threading.Event()
        #: Whether the thread is at that point: a child is to be made when it is not.
        self.inside = False

    def stay(self, *_: object) -> None:
        """Be that point."""
        self.inside = True
        self._there.set()
        until(lambda: self._forked.is_set() or self._is_awaited())
        self.inside = False

    def _is_awaited(self) -> bool:
        frame = sys._current_frames().get(self._forking)
        while frame is not None and frame.f_code.co_name != self._waits_in:
            frame = frame.f_back
        return frame is not None

    def fork(self, target: Callable[[], object], *children: Callable[[], object]) -> None:
        """Fork while a thread that runs `target` is there; fail unless each child succeeds."""
        thread = threading.Thread(target=target)
        thread.start()
        assert self._there.wait(PATIENCE)
        pids = [in_child(do) for do in children]
        self._forked.set()
        assert [ended_well(pid) for pid in pids] == [True] * len(pids)
        thread.join(PATIENCE)
        assert not thread.is_alive()


# ------------------------------------------------------- the child uses inherited objects


def fork_after_use(wire: Wire, path: str, durability: str) -> None:
    """Use a handle, fork, and use it in parent and child, also in the child's child."""
    with open_store(path, durability) as store:
        session = store.session("s")
        session.add_message({"by": "parent"})

        def in_grandchild() -> None:
            assert session.seq == 3
            session.add_message({"by": "grandchild"})

        def in_first_child() -> None:
            assert session.messages() == [{"by": "parent"}, {"by": "parent"}]
            session.add_message({"by": "child"})
            assert ended_well(in_child(in_grandchild))
            assert [message["by"] for message in session.messages()][2:] == ["child", "grandchild"]
            store.session("new").add_message({"by": "child"})

        session.add_message({"by": "parent"})
        assert ended_well(in_child(in_first_child))
        assert session.seq == 4
        session.add_message({"by": "parent"})
        assert store.session("new").messages() == [{"by": "child"}]
    assert said(path) == ["parent", "parent", "child", "grandchild", "parent"]


def append_beside(wire: Wire, path: str, children: int = 4, count: int = 100) -> None:
    """Append in a parent and in its children at the same time, all with one inherited handle."""
    with open_store(path, "os") as store:
        append(store, "parent")

        def append_all(name: str) -> None:
            for number in range(count):
                append(store, f"{name} {number}")

        pids = [
            in_child(lambda child=child: append_all(f"child-{child}"))  # type: ignore[misc]
            for child in range(children)
        ]
        append_all("parent")
        assert [ended_well(pid) for pid in pids] == [True] * children
    found = said(path)
    assert len(found) == (children + 1) * count + 1
    for name in ["parent", *(f"child-{child}" for child in range(children))]:
        own = [by for by in found if by.startswith(f"{name} ")]
        assert own == [f"{name} {number}" for number in range(count)]


# ------------------------------------------------------------------ a fork in mid-append


Do = Callable[[hansard.Store, Callable[[], None]], None]


def fork_in_mid_append(wire: Wire, path: str, do: Do) -> None:
    """Fork while a thread is in the middle of an append; the child does something with the store."""
    ours, childs = os.pipe()
    with open_store(path, "os", lock_timeout=0.02) as store:
        append(store, "parent")
        thread = MidAppend(store)
        child = in_child(lambda: do(store, lambda: os.close(childs)))
        os.close(childs)
        # The end of the pipe: the child was refused the lock, or it is dead.
        os.read(ours, 1)
        os.close(ours)
        wire.tell("refused")
        wire.wait()
        thread.end()
        assert ended_well(child)
        append(store, "parent")


def wait_then_append(store: hansard.Store, refused: Callable[[], None]) -> None:
    """Be refused the lock that the parent holds; then, when it is free, append."""
    with pytest.raises(LockTimeout):
        append(store, "child")
    refused()

    def appended() -> bool:
        try:
            append(store, "child")
        except LockTimeout:
            return False
        return True

    until(appended)


def read_then_append(store: hansard.Store, refused: Callable[[], None]) -> None:
    """Read first: files that a reader reopens must not keep the writer from reopening its own."""
    assert store.session("s").messages() == [{"by": "parent"}]
    assert store.exists("s")
    wait_then_append(store, refused)


def append_in_many_threads(store: hansard.Store, refused: Callable[[], None]) -> None:
    """Use the store for the first time from many threads of the child concurrently."""
    barrier = threading.Barrier(8)
    failures: list[BaseException] = []

    def begin_and_append(number: int) -> None:
        try:
            barrier.wait(PATIENCE)
            store.session("t").add_message({"by": f"child {number}"})
            store.session("t").messages()
            store.session("s").messages()
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)

    run_threads(partial(begin_and_append, number) for number in range(8))
    assert not failures, failures
    assert store.session("t").seq == 8
    wait_then_append(store, refused)


@pytest.mark.parametrize("do", [wait_then_append, read_then_append, append_in_many_threads])
def test_a_child_forked_in_the_middle_of_an_append_does_not_free_its_parents_lock(
    tmp_path: Path, do: Do
) -> None:
    """N-16, N-23: a child forked during a thread's append is locked out until that append is done."""
    path = tmp_path / "store"
    with Crew() as crew:
        worker = crew.start(fork_in_mid_append, str(path), do)
        worker.hear()
        # The child has tried, and closed its copies of the parent's files: the lock is still held.
        with open_store(str(path), "os", lock_timeout=0.02) as store, pytest.raises(LockTimeout):
            append(store, "another")
        worker.go()
        worker.result()
    found = said(path)
    assert found[:2] == ["parent", "a thread"]
    assert sorted(found[2:]) == ["child", "parent"]


def fork_with_the_backend_busy(wire: Wire, path: str) -> None:
    """Fork while another thread is inside the backend's own, momentary critical section."""
    with open_store(path, "os") as store:
        append(store, "parent")
        backend, held = store._backend, Held()
        assert isinstance(backend, LocalBackend)

        def stay() -> None:
            with backend._mutex.lock:
                held.stay()

        held.fork(stay, lambda: append(store, "child", session="t"))
    assert said(path, "t") == ["child"]


def fork_while_reading(wire: Wire, path: str) -> None:
    """Fork while another thread is in the middle of a read; children read, append and close the store."""
    with open_store(path, "os") as store:
        append(store, "parent")
        store.session("t").add_message({"by": "parent"})
        size, held, session = disk.size, Held(), store.session("s")

        def stay_then_look(descriptor: int) -> int:
            if threading.current_thread() is not threading.main_thread():
                held.stay()
            return size(descriptor)

        with replaced("size", stay_then_look):
            held.fork(
                session.messages, lambda: append(store, "child"), session.messages, store.close
            )
    assert said(path) == ["parent", "child"]


def fork_while_a_lock_file_is_created(wire: Wire, path: str) -> None:
    """Fork while another thread creates the lock file of a session, in a store of a group."""
    publish = disk.publish
    lives_on = 0

    def fork_first(directory: int, temporary: str, name: str) -> None:
        nonlocal lives_on
        if name == "lock":
            lives_on = in_child(signal.pause)
        publish(directory, temporary, name)

    disk.publish = fork_first
    with hansard.open(path, durability="os", group=True, lock_timeout=0.1) as store:
        append(store, "parent")
    os.kill(lives_on, signal.SIGKILL)
    os.waitpid(lives_on, 0)
    assert said(path) == ["parent"]


def fork_and_be_killed(wire: Wire, path: str) -> None:
    """Fork a child that never touches the store, in the middle of an append; then wait to be killed."""
    with open_store(path, "os") as store:
        append(store, "parent")
        MidAppend(store)
        wire.tell(in_child(signal.pause))
        wire.wait()


@contextmanager
def outlived(job: Callable[[Wire, str], None], path: Path) -> Iterator[hansard.Store]:
    """Kill a process that has forked a child, which lives on; return its store."""
    with Crew() as crew:
        worker = crew.start(job, str(path))
        child = worker.hear()
        try:
            worker.kill()
            # Free as soon as the child has closed its copy, which takes a while on a busy machine.
            with open_store(str(path), "os", lock_timeout=PATIENCE / 2) as store:
                yield store
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_child_that_lives_on_does_not_keep_its_killed_parents_lock(tmp_path: Path) -> None:
    """N-23: the lock of a killed writer is free although a child, forked during an append, still runs."""
    path = tmp_path / "store"
    with outlived(fork_and_be_killed, path) as store:
        append(store, "the next")
    assert said(path) == ["parent", "the next"]


def compact_and_be_killed(wire: Wire, path: str) -> None:
    """Fork a child that never touches the store, in the middle of a compaction; then wait to be killed."""
    with open_store(path, "os") as store:
        append(store, "parent")
        inside = threading.Event()

        def stay(_done: int, _total: int) -> None:
            inside.set()
            threading.Event().wait()

        compact = partial(compact_session, store._backend, "s", progress=stay)
        threading.Thread(target=compact, daemon=True).start()
        assert inside.wait(PATIENCE)
        wire.tell(in_child(signal.pause))
        wire.wait()


def test_a_child_that_lives_on_does_not_keep_its_killed_parents_locks_of_a_compaction(
    tmp_path: Path,
) -> None:
    """N-23, F-174: compactions and copies need not wait for a child that was forked during a compaction."""
    path = tmp_path / "store"
    with outlived(compact_and_be_killed, path) as store:
        store.session("s").compact()
        with open(path / "hansard.json", "rb") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert said(path) == ["parent"]


# ------------------------------------------------------- threads that are in the middle of something


class SlowFinder(importlib.abc.MetaPathFinder):
    """Blocks the import of one module until it is released."""

    def __init__(self, module: str, held: Held) -> None:
        self._module = module
        self._held = held

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Find nothing: others do, afterwards."""
        if name == self._module:
            self._held.stay()


def fork_while_importing(wire: Wire, path: str, module: str) -> None:
    """Fork while a thread imports what the child needs, too."""
    with open_store(path, "os") as store:
        append(store, "parent")
        assert module not in sys.modules, "or the test shows nothing"
        held = Held("_import_before_fork")
        sys.meta_path.insert(0, SlowFinder(module, held))

        def do() -> None:
            assert store.count() == 1
            store.session("s").set_metadata(a=1)
            assert store.session("s").verify().ok

        held.fork(partial(importlib.import_module, module), do)


def fork_in_a_call_of_sqlite(wire: Wire, path: str) -> None:
    """Fork while a thread is in the middle of a call of SQLite."""
    # Not at the top, as above.
    from hansard.index.sqlite_storage import Storage

    with open_store(path, "os") as store:
        append(store, "parent")
        assert store.count() == 1
        held = Held("_hold_lock")
        connection = Storage(None, memory=True)._connection
        connection.create_function("stay", 0, held.stay)

        def do() -> None:
            assert not held.inside
            append(store, "child")
            assert store.count() == 1
            store.search("child")

        held.fork(lambda: connection.run("SELECT stay()"), do)
        assert store.count() == 1


def fork_in_memory(wire: Wire, _: str) -> None:
    """Fork while a thread holds the lock of a store in memory."""
    backend = MemoryBackend()
    store = hansard.Store(backend)
    append(store, "parent")
    held = Held()

    def keep() -> None:
        with backend.lock:
            held.stay()

    def do() -> None:
        append(store, "child")
        assert [found["by"] for found in store.session("s").messages()] == ["parent", "child"]

    held.fork(keep, do)


# ------------------------------------------------------------------ listings and cursors


def list_in_child(wire: Wire, path: str) -> None:
    """List, fork, and list in both processes concurrently, three times."""
    with open_store(path, "os") as store:
        store.session("s").add_message(MESSAGE)
        assert store.count() == 1

        def child() -> None:
            for number in range(10):
                store.session(f"child/{number}").add_message(MESSAGE)
                assert store.count(prefix="child/") >= number + 1
            store.close()

        for turn in range(3):
            pid = in_child(child)
            for number in range(10):
                store.session(f"parent/{turn}/{number}").add_message(MESSAGE)
                assert store.count(prefix=f"parent/{turn}/") == number + 1
            assert ended_well(pid)
            assert store.sessions().items == reference_listing.everything(store)
    # Not at the top: another job needs a process that has not imported it.
    import sqlite3

    connection = sqlite3.connect(index_of(Path(path)))
    assert connection.execute("PRAGMA integrity_check(index_session)").fetchone() == ("ok",)
    connection.close()


def fork_during_a_refresh(wire: Wire, path: str) -> None:
    """Fork while another thread refreshes the index: the child must neither wait nor disturb it."""
    with open_store(path, "os") as store:
        for name in "abc":
            store.session(name).add_message(MESSAGE)
        held = Held()

        def child() -> None:
            assert store.sessions().items == reference_listing.everything(store)
            store.session("by the child").add_message(MESSAGE)
            assert store.count() == 4

        held.fork(lambda: store.sessions(progress=held.stay), child)
        assert store.sessions().items == reference_listing.everything(store)
        assert store.count() == 4


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

    assert ended_well(in_child(use_the_parents))
    with pytest.raises(LockTimeout):
        Cursor(LocalBackend(path), "c")
    cursor.move({"s": 2})
    assert Cursor(backend, "d").positions == {"s": 5}

    def take_over() -> None:
        mine = Cursor(backend, "c")
        mine.move({"s": mine.positions["s"] + 1})

    # A child that still runs does not prevent closing and reopening the cursor.
    lives_on = in_child(signal.pause)
    cursor.close()
    assert ended_well(in_child(take_over))
    assert Cursor(backend, "c").positions == {"s": 3}
    os.kill(lives_on, signal.SIGKILL)
    os.waitpid(lives_on, 0)


# ------------------------------------------------------------------ all of these, each in a process

MODULES = ("index.index", "event.secrets", "maintenance.verify")

JOBS: list[tuple[Any, ...]] = [
    (fork_after_use, "os"),
    (fork_after_use, "sync"),
    (append_beside,),
    # A mutex that a thread of the parent held at the moment of the fork is free in the child.
    (fork_with_the_backend_busy,),
    (fork_while_reading,),
    (fork_while_a_lock_file_is_created,),
    # A fork waits for imports of what a call needs; the child's import would never end.
    *((fork_while_importing, f"hansard.{module}") for module in MODULES),
    (fork_while_importing, "sqlite3"),
    # SQLite has locks for all of the process, which a missing thread would keep.
    (fork_in_a_call_of_sqlite,),
    (fork_in_memory,),
    (list_in_child,),
    (fork_during_a_refresh,),
    (fork_with_an_open_cursor,),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: " ".join([job[0].__name__, *job[1:]]))
def test_a_child_works_with_what_it_inherits(tmp_path: Path, job: tuple[Any, ...]) -> None:
    """N-16, N-23, F-38, F-160: parent and child use what was opened before the fork, and neither hangs."""
    with Crew() as crew:
        assert crew.start(job[0], str(tmp_path / "store"), *job[1:]).result() is None


def _late_imports() -> set[str]:
    """Return the modules that functions of the library import when they are called."""
    root = Path(hansard.__file__).parent
    edges = {"adapters", "aio", "cli", "exporters.py", "importers", "testing", "__init__.py"}
    found = set()
    for file in root.rglob("*.py"):
        if file.relative_to(root).parts[0] in edges or "postgres" in file.parts:
            continue
        for function in ast.walk(ast.parse(file.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    names = {f"{node.module}.{alias.name}" for alias in node.names}
                    modules = {name for name in names if importlib.util.find_spec(node.module)}
                    found |= {node.module} | {name for name in modules if _is_module(name)}
    return found


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def import_with_a_thread(wire: Wire, *used: str) -> set[str]:
    """Do what a fork does before it, with these modules in use; return what is imported then."""
    for name in used:
        importlib.import_module(name)
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    _import_before_fork()
    ended.set()
    thread.join(PATIENCE)
    return set(sys.modules)


def test_all_that_calls_import_is_imported_before_a_fork() -> None:
    """N-16: no function imports a module that a fork would not wait for."""
    served = {"psycopg", "hansard.index.postgres_storage"}
    late = {name for name in _late_imports() if "postgres" not in name} - served
    with Crew() as crew:
        # The price list loads slowly: only where prices are in use.
        assert late - {"genai_prices"} <= crew.start(import_with_a_thread).result()
        assert late <= crew.start(import_with_a_thread, "hansard.prices").result()
