"""Measure the usual calls of a session: append, load, read, fork; and the import of hansard.

Each measurement is a function that returns a `Result`; its docstring says what is compared.
"""

import asyncio
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

import hansard
from tools.bench.result import Result, claim_of
from tools.bench.workload import alternate, median_us, messages, seconds

MESSAGES = messages(2_000)
LONG = 100_000
#: Maximum bytes of a fork on disk.
FORK = 2_000
#: Maximum events for 2,000 streamed tokens.
SEQS = 100


def append_os(directory: Path) -> Result:
    """One `"os"` append, and flock + fstat + write + unlock of a ready line."""
    session = hansard.open(directory / "store", durability="os", auto_compact=False).session("s")
    lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR)
    file = os.open(directory / "file", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    line = b"x" * 850 + b"\n"

    def bare(_: int) -> None:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.fstat(file)
        os.write(file, line)
        fcntl.flock(lock, fcntl.LOCK_UN)

    ours, limit, ratio = alternate(
        lambda: median_us(lambda i: session.add_message(MESSAGES[i % 2000]), 4000),
        lambda: median_us(bare, 4000),
        7,
    )
    return Result("append_os", claim_of(append_os), f"{ours:.1f} µs", f"{limit:.1f} µs", ratio, 2.5)


def append_sync(directory: Path) -> Result:
    """One `"sync"` append, and bare write + fdatasync."""
    session = hansard.open(directory / "store").session("s")
    file = os.open(directory / "file", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    line = b"x" * 850 + b"\n"

    def bare(_: int) -> None:
        os.write(file, line)
        os.fdatasync(file)

    ours, limit, ratio = alternate(
        lambda: median_us(lambda i: session.add_message(MESSAGES[i % 2000]), 400),
        lambda: median_us(bare, 400),
        9,
    )
    return Result(
        "append_sync", claim_of(append_sync), f"{ours:.0f} µs", f"{limit:.0f} µs", ratio, 1.3
    )


def append_long(directory: Path) -> Result:
    """One `"os"` append at 100,000 messages, and at 100."""
    store = hansard.open(directory / "store", durability="os", auto_compact=False)
    long = long_session(store)
    short = store.session("short")
    short.add_messages(MESSAGES[:100])
    ours, limit, ratio = alternate(
        lambda: median_us(lambda i: long.add_message(MESSAGES[i % 2000]), 1000),
        lambda: median_us(lambda i: short.add_message(MESSAGES[i % 2000]), 1000),
        9,
    )
    return Result(
        "append_long", claim_of(append_long), f"{ours:.1f} µs", f"{limit:.1f} µs", ratio, 1.2
    )


def threads(directory: Path) -> Result:
    """Appends a second of 16 threads on one `"sync"` session, and of one thread."""
    store = hansard.open(directory / "store")
    count = iter(range(1000))

    def rate(number: int, each: int) -> float:
        session = store.session(f"s{next(count)}")
        session.add_message({"role": "system", "content": "begin"})

        def work() -> None:
            for place in range(each):
                session.add_message(MESSAGES[place])

        workers = [threading.Thread(target=work) for _ in range(number)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return number * each / (time.perf_counter() - start)

    ours, limit, ratio = alternate(lambda: rate(16, 150), lambda: rate(1, 600), 7)
    return Result(
        "threads", claim_of(threads), f"{ours:.0f}/s", f"{limit:.0f}/s", ratio, 3.5, more=True
    )


def tasks(directory: Path) -> Result:
    """Appends a second of 64 tasks on one `"sync"` session, and of one thread."""

    async def rate(store: hansard.aio.Store, each: int) -> float:
        session = store.session()
        await session.add_message({"role": "system", "content": "begin"})

        async def work() -> None:
            for place in range(each):
                await session.add_message(MESSAGES[place])

        start = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(64)))
        return 64 * each / (time.perf_counter() - start)

    async def once() -> float:
        async with hansard.aio.open(directory / "store") as store:
            return await rate(store, 40)

    def alone() -> float:
        with hansard.open(directory / "store") as store:
            session = store.session()
            return 600 / seconds(lambda: [session.add_message(MESSAGES[i]) for i in range(600)])

    ours, limit, ratio = alternate(lambda: asyncio.run(once()), alone, 7)
    return Result(
        "tasks", claim_of(tasks), f"{ours:.0f}/s", f"{limit:.0f}/s", ratio, 6.0, more=True
    )


def tasks_16(directory: Path) -> Result:
    """Appends a second of 16 tasks on one `"sync"` session, and of one task."""

    async def rate(number: int, each: int) -> float:
        async with hansard.aio.open(directory / "store") as store:
            session = store.session()
            await session.add_message({"role": "system", "content": "begin"})

            async def work() -> None:
                for place in range(each):
                    await session.add_message(MESSAGES[place])

            start = time.perf_counter()
            await asyncio.gather(*(work() for _ in range(number)))
            return number * each / (time.perf_counter() - start)

    ours, limit, ratio = alternate(
        lambda: asyncio.run(rate(16, 100)), lambda: asyncio.run(rate(1, 300)), 7
    )
    return Result(
        "tasks_16", claim_of(tasks_16), f"{ours:.0f}/s", f"{limit:.0f}/s", ratio, 10.0, more=True
    )


def jitter(directory: Path) -> Result:
    """How long an event loop is blocked while 100,000 messages are loaded, listed and verified; 50 ms."""
    long_session(hansard.open(directory / "store", durability="os", auto_compact=False))

    async def beat(gaps: list[float]) -> None:
        # Processor time of this process, without the other processes of the machine.
        last = time.process_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.process_time()
            gaps.append(now - last)
            last = now

    async def main() -> float:
        gaps: list[float] = []
        async with hansard.aio.open(directory / "store") as store:
            beating = asyncio.create_task(beat(gaps))
            session = store.session("long")
            kept: list[object] = [await session.messages(), await session.messages_json()]
            kept += [await store.sessions(), await session.state(), await session.verify()]
            beating.cancel()
        return max(gaps) * 1000

    longest = asyncio.run(main())
    return Result("jitter", claim_of(jitter), f"{longest:.0f} ms", "50 ms", longest / 50, 1.0)


def load(directory: Path) -> Result:
    """Loading 100,000 messages into dicts, and msgspec's `decode_lines` of the same bytes."""
    store = hansard.open(directory / "store", durability="os", auto_compact=False)
    session = long_session(store)
    path = directory / "store" / "sessions" / session.id / "log.jsonl"
    data = path.read_bytes()
    decode = msgspec.json.Decoder().decode_lines
    assert len(session.messages()) == LONG
    ours, limit, ratio = alternate(
        lambda: seconds(session.messages), lambda: seconds(lambda: decode(data)), 5
    )
    return Result(
        "load", claim_of(load), f"{ours * 1000:.0f} ms", f"{limit * 1000:.0f} ms", ratio, 1.5
    )


def load_json(directory: Path) -> Result:
    """Loading 100,000 messages as JSON bytes, and reading the file."""
    store = hansard.open(directory / "store", durability="os", auto_compact=False)
    session = long_session(store)
    path = directory / "store" / "sessions" / session.id / "log.jsonl"
    ours, limit, ratio = alternate(
        lambda: seconds(session.messages_json), lambda: seconds(path.read_bytes), 5
    )
    return Result(
        "load_json",
        claim_of(load_json),
        f"{ours * 1000:.0f} ms",
        f"{limit * 1000:.0f} ms",
        ratio,
        2.5,
    )


def last_fifty(directory: Path) -> Result:
    """The last 50 of 100,000 messages through a fresh handle, and of 100."""
    store = hansard.open(directory / "store", durability="os", auto_compact=False)
    long_session(store)
    store.session("short").add_messages(MESSAGES[:100])
    store.close()

    def cold(name: str) -> float:
        fresh = hansard.open(directory / "store", read_only=True)
        taken = seconds(lambda: fresh.session(name).messages(last=50))
        fresh.close()
        return taken * 1e6

    ours, limit, ratio = alternate(lambda: cold("long"), lambda: cold("short"), 31)
    return Result(
        "last_fifty", claim_of(last_fifty), f"{ours:.0f} µs", f"{limit:.0f} µs", ratio, 1.5
    )


def seen(directory: Path) -> Result:
    """Seeing another handle's append on a warm handle at 100,000 messages, and at 100."""
    writer = hansard.open(directory / "store", durability="os", auto_compact=False)
    long_session(writer)
    writer.session("short").add_messages(MESSAGES[:100])
    reader = hansard.open(directory / "store", read_only=True)

    def once(name: str) -> float:
        theirs, session = writer.session(name), reader.session(name)
        before = session.seq
        session.messages(after=before)

        def look(place: int) -> None:
            session.messages(after=before + place)

        taken = []
        for place in range(50):
            theirs.add_message(MESSAGES[place])
            taken.append(seconds(partial(look, place)) * 1e6)
        return sorted(taken)[25]

    ours, limit, ratio = alternate(lambda: once("long"), lambda: once("short"), 9)
    return Result("seen", claim_of(seen), f"{ours:.0f} µs", f"{limit:.0f} µs", ratio, 1.5)


def fork(directory: Path) -> Result:
    """Forking a session of 100,000 messages, and one of 10."""
    store = hansard.open(directory / "store", durability="os", auto_compact=False)
    long = long_session(store)
    short = store.session("short")
    short.add_messages(MESSAGES[:10])
    ours, limit, ratio = alternate(
        lambda: median_us(lambda _: long.fork(), 40),
        lambda: median_us(lambda _: short.fork(), 40),
        9,
    )
    child = long.fork("child")
    size = sum(file.stat().st_size for file in (directory / "store/sessions/child").iterdir())
    assert size < FORK, f"a fork takes {size} bytes"
    assert child.messages(last=1) == long.messages(last=1)
    return Result("fork", claim_of(fork), f"{ours:.0f} µs", f"{limit:.0f} µs", ratio, 1.5)


def parts(directory: Path) -> Result:
    """A part of a streamed message in a `"sync"` store, and a message in an `"os"` store."""
    stream = hansard.open(directory / "store").session("s").stream(gather=0)
    session = hansard.open(directory / "other", durability="os", auto_compact=False).session("s")
    message = {"role": "assistant", "content": "word "}
    ours, limit, ratio = alternate(
        lambda: median_us(lambda _: stream.write("word "), 2000),
        lambda: median_us(lambda _: session.add_message(message), 2000),
        7,
    )
    return Result("parts", claim_of(parts), f"{ours:.1f} µs", f"{limit:.1f} µs", ratio, 1.5)


def streaming(directory: Path) -> Result:
    """Bytes of log for 2,000 streamed tokens, parts and message, and bytes of their text."""
    store = hansard.open(directory / "store", auto_compact=False)
    session = store.session("s")
    tokens = [f"word{number % 10} " for number in range(2000)]
    with session.stream() as stream:
        for token in tokens:
            stream.write(token)
    text = len("".join(tokens))
    size = (directory / "store/sessions/s/log.jsonl").stat().st_size
    assert session.seq <= SEQS, f"2,000 tokens take {session.seq} seqs"
    store.close()
    return Result("streaming", claim_of(streaming), f"{size} B", f"{text} B", size / text, 3.0)


def start(directory: Path) -> Result:
    """`from hansard import open`, and `import msgspec`: the difference must stay under 25 ms."""
    del directory

    def spent(statement: str) -> float:
        code = (
            "import time; start = time.perf_counter(); "
            f"{statement}; print(time.perf_counter() - start)"
        )
        # With compiled files, as in installed packages, even if they are turned off.
        cached = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
        answer = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=cached
        )
        return float(answer.stdout) * 1000

    # Not only `import hansard`, which loads nearly nothing: with the name that every program uses.
    ours, theirs = "from hansard import open", "import msgspec"
    spent(ours)
    pairs = sorted((spent(ours) - (base := spent(theirs)), base) for _ in range(15))
    difference, base = pairs[len(pairs) // 2]
    return Result(
        "import", claim_of(start), f"+{difference:.1f} ms", f"{base:.1f} ms", difference / 25.0, 1.0
    )


def long_session(store: hansard.Store) -> hansard.Session:
    """Return a session of 100,000 messages."""
    session = store.session("long")
    for place in range(0, LONG, 1000):
        begin = place % 2000
        session.add_messages(MESSAGES[begin : begin + 1000])
    return session


ALL: list[Callable[[Path], Result]] = [
    append_os,
    append_sync,
    append_long,
    threads,
    tasks,
    tasks_16,
    jitter,
    load,
    load_json,
    last_fifty,
    seen,
    fork,
    parts,
    streaming,
    start,
]
