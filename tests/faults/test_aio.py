"""Claims about `hansard.aio` in processes that end, are killed, or fork: nothing is lost or hangs."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.faults.workers import PATIENCE

#: The start of every program. `say` appends durably and prints the acknowledged message.
HEAD = """
import asyncio, os, signal, sys
import hansard.aio

PATH = sys.argv[1]

async def say(store, by):
    session = store.session("s")
    number = 0
    while True:
        await session.add_message({"n": f"{by}/{number}"})
        os.write(1, f"ack {by}/{number}\\n".encode())
        number += 1
        said.append(by)

# Three tasks append, and one streams and never ends. All have begun when `under_way` returns.
said = []

async def stream(store):
    async with store.session("streamed").stream(gather=0) as message:
        await message.write("half a ")
        await message.write("sentence")
        os.write(1, b"streams\\n")
        said.append("streams")
        await asyncio.Event().wait()

async def under_way():
    while len(said) < 30 or "streams" not in said:
        await asyncio.sleep(0.001)

async def busy(store):
    await asyncio.gather(stream(store), *(say(store, by) for by in "abc"))
"""

UNCLOSED = f"""{HEAD}
async def main():
    store = await hansard.aio.open(PATH)
    await busy(store)

asyncio.run(main())
"""

CLOSED = f"""{HEAD}
async def main():
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    loop.add_signal_handler(signal.SIGTERM, me.cancel)
    async with hansard.aio.open(PATH) as store:
        await busy(store)

try:
    asyncio.run(main())
except asyncio.CancelledError:
    os.write(1, b"ended well\\n")
"""

# The program ends while its tasks run.
ABANDONED = f"""{HEAD}
store = None

async def main():
    global store
    store = await hansard.aio.open(PATH)
    task = asyncio.create_task(busy(store))
    await under_way()
    return task

loop = asyncio.new_event_loop()
task = loop.run_until_complete(main())
loop.close()
os.write(1, b"ended well\\n")
"""

# Tasks that are not awaited: `asyncio.run` cancels them.
UNAWAITED = f"""{HEAD}
async def main():
    store = await hansard.aio.open(PATH)
    tasks = [asyncio.create_task(say(store, by)) for by in "abc"]
    tasks.append(asyncio.create_task(stream(store)))
    await under_way()

asyncio.run(main())
os.write(1, b"ended well\\n")
"""


def started(program: str, path: Path) -> "subprocess.Popen[str]":
    """Start a program."""
    command = [sys.executable, "-W", "error", "-c", program, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def completed(program: str, path: Path) -> tuple[str, list[Any]]:
    """Run a program to its end; return its output, and the messages that it stored."""
    with started(program, path) as child:
        try:
            out, errors = child.communicate(timeout=PATIENCE)
        finally:
            child.kill()
    assert (child.returncode, errors) == (0, "")
    with hansard.open(path) as store:
        assert store.verify().ok
        return out, [message["n"] for message in store.session("s").messages()]


def heard(child: "subprocess.Popen[str]", signum: int | None) -> tuple[list[str], str]:
    """Read until a program is busy, send it a signal, and return everything that it printed."""
    said: list[str] = []
    assert child.stdout is not None
    assert child.stderr is not None
    watchdog = threading.Timer(PATIENCE, child.kill)
    watchdog.start()
    try:
        while sum(line.startswith("ack ") for line in said) < 20 or "streams" not in said:
            line = child.stdout.readline()
            if not line:
                break
            said.append(line.strip())
        if signum is not None:
            child.send_signal(signum)
        # Not `communicate`, which would skip what the pipe's buffer already holds.
        said += child.stdout.read().split("\n")
        errors = child.stderr.read()
        child.wait()
    finally:
        watchdog.cancel()
        child.kill()
    return said, errors


def check(path: Path, said: list[str]) -> None:
    """Check that acknowledged appends are stored once, that the stream is partial, and that appends work."""
    # The last line of a killed process may be incomplete.
    acknowledged = [line[4:] for line in said if re.fullmatch(r"ack ./\d+", line)]
    with hansard.open(path, lock_timeout=5.0) as store:
        assert store.verify().ok
        session = store.session("s")
        seen = [message["n"] for message in session.messages()]
        assert len(seen) == len(set(seen))
        assert set(acknowledged) <= set(seen)
        for by in "abc":
            own = [int(name[2:]) for name in seen if name[0] == by]
            assert own == list(range(len(own)))
        assert store.session("streamed").messages() == [
            {"role": "assistant", "content": "half a sentence", "partial": True}
        ]
        assert session.add_message({"n": "after"}).seq == len(seen) + 1


@pytest.mark.parametrize(
    ("program", "signum"),
    [
        pytest.param(UNCLOSED, signal.SIGTERM, id="killed by SIGTERM"),
        pytest.param(UNCLOSED, signal.SIGKILL, id="killed by SIGKILL"),
        pytest.param(UNCLOSED, signal.SIGINT, id="interrupted, store not closed"),
        pytest.param(CLOSED, signal.SIGTERM, id="SIGTERM handled"),
        pytest.param(CLOSED, signal.SIGINT, id="interrupted, store closed"),
        pytest.param(ABANDONED, None, id="loop stopped and closed"),
        pytest.param(UNAWAITED, None, id="tasks not awaited"),
    ],
)
def test_no_end_of_a_process_loses_acknowledged_appends(
    program: str, signum: int | None, tmp_path: Path
) -> None:
    """N-39, N-59, N-75: in every end of a process with busy tasks, acknowledged messages are stored."""
    path = tmp_path / "store"
    with started(program, path) as child:
        said, errors = heard(child, signum)
    if signum in {signal.SIGKILL, signal.SIGTERM} and program == UNCLOSED:
        assert child.returncode == -int(signum or 0)
    elif signum == signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    else:
        assert said[-2:] == ["ended well", ""], errors
        assert child.returncode == 0
    assert "Exception in thread" not in errors
    check(path, said)


# An append of the parent waits for its sync when the process forks.
FORKED_BUSY = (
    HEAD
    + """
import threading
from hansard.log import disk

sync, inside, go = disk.sync, threading.Event(), threading.Event()

def stay(*arguments):
    inside.set()
    go.wait()
    return sync(*arguments)

async def opened():
    return await hansard.aio.open(PATH)

async def say(by):
    return (await store.session("s").add_message({"n": by})).seq

loop = asyncio.new_event_loop()
store = loop.run_until_complete(opened())
loop.run_until_complete(say("first"))
disk.sync = stay
task = loop.create_task(say("parent"))
loop.run_until_complete(asyncio.sleep(0))
inside.wait()
disk.sync = sync
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    asyncio.run(say("child"))
    os._exit(0)
go.set()
loop.run_until_complete(task)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
loop.run_until_complete(store.close())
loop.close()
"""
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_during_an_append_appends(tmp_path: Path) -> None:
    """N-23, N-75: a child does not wait for the parent's thread that appends to the same session."""
    _, seen = completed(FORKED_BUSY, tmp_path / "store")
    assert sorted(seen) == ["child", "first", "parent"]


# The main thread ends, and with it every executor; the loop of another thread, and one at exit, continue.
LATE = (
    HEAD
    + """
import atexit, threading

async def some(store, by):
    session = store.session("s")
    for number in range(20):
        await session.add_message({"n": f"{by}/{number}"})
        os.write(1, f"ack {by}/{number}\\n".encode())

async def go_on():
    global store
    store = await hansard.aio.open(PATH)
    await some(store, "a")
    while threading.main_thread().is_alive():
        await asyncio.sleep(0.001)
    await some(store, "b")

async def at_exit():
    await some(store, "c")
    await store.close()
    os.write(1, b"ended well\\n")

atexit.register(lambda: asyncio.run(at_exit()))
threading.Thread(target=lambda: asyncio.run(go_on())).start()
"""
)


def test_loops_work_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    """N-75: a store works in a loop that outlives the main thread, and is closed in one at exit."""
    out, seen = completed(LATE, tmp_path / "store")
    assert out.endswith("ended well\n")
    assert seen == [f"{by}/{number}" for by in "abc" for number in range(20)]
