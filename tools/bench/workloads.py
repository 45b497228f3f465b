"""The workloads: one function each, run in a separate process.

A function gets a system, a scale and a directory, and returns figures by name. Where a system lacks the
operation, nothing is returned; where it is too slow for the scale, the figure is of as many messages as it
reached.
"""

import contextlib
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from tools.bench.peers import class_of
from tools.bench.peers.peer import Message, Peer
from tools.bench.scale import Scale
from tools.bench.syncs import MARK
from tools.bench.workload import messages, seconds

Figures = dict[str, Any]
MESSAGES: Final = messages(2_000)
#: Messages of one call when a session is filled; more for those that write the complete list each time.
CHUNK: Final = 100
WHOLE: Final = 1_000
#: A word that only the messages of `disk` contain.
RARE: Final = "quintessence"
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def append(system: str, scale: Scale, directory: Path) -> Figures:
    """Append one message at a time to a new session."""
    peer = class_of(system)(directory)
    peer.append("s", MESSAGES[0])
    median, done = timed(lambda i: peer.append("s", _message(i)), scale.appends, scale.budget)
    peer.close()
    return {"append_us": median, "appended": done}


def syncs(system: str, scale: Scale, directory: Path) -> Figures:
    """Append between two marks in a trace: syncs of an invalid descriptor."""
    del scale
    count = 40
    peer = class_of(system)(directory)
    peer.append("s", MESSAGES[0])
    _mark()
    for place in range(count):
        peer.append("s", _message(place))
    _mark()
    return {"count": count}


def growth(system: str, scale: Scale, directory: Path) -> Figures:
    """Append one message at a time to a session of growing length."""
    peer = class_of(system)(directory)
    found: dict[str, float] = {}
    length = 0
    for wanted in scale.lengths:
        if wanted > scale.common and not _fast(system):
            break
        length += fill(peer, "s", wanted - length, _patience(system, scale))
        if length < wanted:
            break
        median, done = timed(lambda i: peer.append("s", _message(i)), 200, scale.budget)
        length += done
        found[str(wanted)] = median
    peer.close()
    return {"growth_us": found}


def batch(system: str, scale: Scale, directory: Path) -> Figures:
    """Append 100 messages in one call."""
    kind = class_of(system)
    if not kind.has("extend"):
        return {}
    peer = kind(directory)
    peer.append("s", MESSAGES[0])
    batches = [MESSAGES[begin : begin + 100] for begin in range(0, 2_000, 100)]
    median, _ = timed(
        lambda i: peer.extend("s", batches[i % 20]), max(3, scale.appends // 20), scale.budget
    )
    peer.close()
    return {"batch_us": median / 100}


def filled(system: str, scale: Scale, directory: Path) -> Figures:
    """Create the session for `read`: as long as the system can in the given time."""
    peer = class_of(system)(directory)
    wanted = scale.loaded if _fast(system) else scale.common
    reached = fill(peer, "s", wanted, _patience(system, scale))
    peer.close()
    return {"filled": reached}


def read(system: str, scale: Scale, directory: Path) -> Figures:
    """Load all, cold and warm, and the last 50, cold; and what memory the loaded messages take.

    Cold means: through a fresh handle, opening it included, in a process that has imported the system.
    The file is in the operating system's cache.
    """
    kind = class_of(system)
    # Imports of the first call are not measured.
    warm_up = kind(directory / "other") if _made(directory / "other") else None
    if warm_up is not None:
        warm_up.append("o", MESSAGES[0])
        warm_up.load("o")
        warm_up.close()
    gc.collect()
    before = resident()
    begin = time.perf_counter()
    peer = kind.reader(directory)
    loaded = peer.load("s")
    cold = time.perf_counter() - begin
    memory = resident() - before
    count = len(loaded)
    del loaded
    times = within(lambda: seconds(lambda: peer.load("s")), 5, scale.budget * 3)
    peer.close()
    found = {
        "loaded": count,
        "load_cold_ms": cold * 1000,
        "load_ms": statistics.median(times) * 1000,
        "load_us_each": statistics.median(times) / count * 1e6,
        "memory_mb": memory / 1e6,
    }
    if kind.has("last"):

        def cold_last() -> float:
            begin = time.perf_counter()
            fresh = kind.reader(directory)
            found = fresh.last("s", 50)
            taken = time.perf_counter() - begin
            assert len(found) == 50, len(found)  # noqa: PLR2004 - as requested
            fresh.close()
            return taken

        found["last_us"] = statistics.median(within(cold_last, 31, scale.budget)) * 1e6
    return found


def seen(system: str, scale: Scale, directory: Path) -> Figures:
    """Another process appends: the time until a warm handle sees it, and until it has the complete list."""
    kind = class_of(system)
    peer = kind(directory)
    count = fill(peer, "s", scale.common, scale.filling)
    peer.close()
    reader = kind.reader(directory)
    reader.load("s")
    looks, again = [], []
    with other_writer(system, directory) as write:
        # Each alone: a full load fills the processor's caches.
        if kind.has("after"):
            for _ in range(15):
                write()
                looks.append(seconds(partial(reader.after, "s", count)))
                count += 1
        for _ in range(15):
            write()
            count += 1
            begin = time.perf_counter()
            whole = reader.load("s")
            again.append(time.perf_counter() - begin)
            if len(whole) != count or sum(again) > scale.budget * 4:
                break
    reader.close()
    if len(whole) != count:
        return {"unseen": True, "seen_at": count}
    found: Figures = {"seen_at": count, "again_ms": statistics.median(again) * 1000}
    if kind.has("after"):
        found["seen_us"] = statistics.median(looks) * 1e6
    return found


def fork(system: str, scale: Scale, directory: Path) -> Figures:
    """Fork a session, or copy it where people do that; its size on disk; and, in turn, create one."""
    kind = class_of(system)
    if not kind.has("fork"):
        return {}
    peer = kind(directory)
    count = fill(peer, "s", scale.common, scale.filling)
    before = on_disk(directory)
    first = seconds(lambda: peer.fork("s", "fork-first"))
    taken = on_disk(directory) - before
    number = iter(range(1_000))
    begun: list[float] = []

    def once() -> float:
        name = next(number)
        begun.append(seconds(lambda: peer.append(f"new-{name}", {"role": "user", "content": "Hi"})))
        return seconds(lambda: peer.fork("s", f"fork-{name}"))

    times = within(once, 15, scale.budget)
    peer.close()
    return {
        "fork_ms": statistics.median([first, *times]) * 1000,
        "fork_bytes": taken,
        "forked_at": count,
        "begun_ms": statistics.median(begun) * 1000,
    }


def listing(system: str, scale: Scale, directory: Path) -> Figures:
    """List sessions of one message each; the first time, which may build an index, is not counted."""
    kind = class_of(system)
    if not kind.has("sessions"):
        return {}
    peer = kind(directory)
    begin, made = time.perf_counter(), 0
    while made < scale.listed and time.perf_counter() - begin < _patience(system, scale):
        _put(peer, f"s{made:06}", [MESSAGES[made % 2_000]])
        made += 1
    first = seconds(peer.sessions)
    assert len(peer.sessions()) == made
    times = within(lambda: seconds(peer.sessions), 9, scale.budget)
    peer.close()
    return {
        "list_ms": statistics.median(times) * 1000,
        "list_first_ms": first * 1000,
        "listed": made,
    }


def disk(system: str, scale: Scale, directory: Path, material: Path) -> Figures:
    """Keep sessions of 50 messages: bytes on disk over bytes of JSON; then look for a rare word."""
    kind = class_of(system)
    peer = kind(directory)
    raw = kept = 0
    begin = time.perf_counter()
    with material.open("rb") as file:
        for number, line in enumerate(file):
            said: list[Message] = msgspec.json.decode(line)
            if number % 50 == 0:
                said[1] = {
                    "role": "user",
                    "content": f"Is there such a thing as {RARE} of {number}?",
                }
            raw += sum(len(msgspec.json.encode(message)) for message in said)
            if _fast(system):
                _put(peer, f"session-{number}", said)
            else:
                # Message by message: some systems store the complete list again with each one.
                for message in said:
                    peer.append(f"session-{number}", message)
            kept += 1
            if kept == scale.kept or time.perf_counter() - begin > _patience(system, scale):
                break
    before = on_disk(directory)
    found: Figures = {"kept": kept, "disk_written_ratio": before / raw}
    if kind.has("search"):
        found["search_first_ms"] = seconds(lambda: peer.search(RARE)) * 1000
        times = within(lambda: seconds(lambda: peer.search(RARE)), 5, scale.budget)
        found["search_ms"] = statistics.median(times) * 1000
        peer.close()
        with contextlib.suppress(OSError):  # derived, so not a part of the messages' size
            for file_ in (directory / "store").glob("index*"):
                file_.unlink()
        peer = kind(directory)
    if kind.has("shrink"):
        taken = seconds(peer.shrink)
        found["shrink_mb_s"] = raw / taken / 1e6
    peer.close()
    found["disk_ratio"] = on_disk(directory) / raw
    return found


ALL: Final[dict[str, Callable[..., Figures]]] = {
    function.__name__: function
    for function in (append, syncs, growth, batch, filled, read, seen, fork, listing, disk)
}


def timed(action: Callable[[int], object], count: int, budget: float) -> tuple[float, int]:
    """Repeat an action for some seconds; return its median in microseconds, and the number of runs."""
    taken: list[int] = []
    end = time.perf_counter() + budget
    while len(taken) < count and (len(taken) < 3 or time.perf_counter() < end):  # noqa: PLR2004
        start = time.perf_counter_ns()
        action(len(taken))
        taken.append(time.perf_counter_ns() - start)
    return statistics.median(taken) / 1000, len(taken)


def within(action: Callable[[], float], count: int, budget: float) -> list[float]:
    """Measure repeatedly: at least once, for at most some seconds."""
    end = time.perf_counter() + budget
    found = [action()]
    while len(found) < count and time.perf_counter() < end:
        found.append(action())
    return found


def fill(peer: Peer, session: str, count: int, budget: float) -> int:
    """Append messages as fast as possible for at most some seconds; return their number."""
    end = time.perf_counter() + budget
    done = 0
    step = (CHUNK if type(peer).has("after") else WHOLE) if type(peer).has("extend") else 1
    while done < count and time.perf_counter() < end:
        begin = done % 1_000
        size = min(step, count - done)
        if step == 1:
            peer.append(session, _message(done))
        else:
            peer.extend(session, MESSAGES[begin : begin + size])
        done += size
    return done


def on_disk(directory: Path) -> int:
    """Return the sizes of all files, added up."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def resident() -> int:
    """Return the memory of this process."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextlib.contextmanager
def other_writer(system: str, directory: Path) -> Iterator[Callable[[], None]]:
    """Start a process that appends one message on request."""
    command = [sys.executable, "-m", "tools.bench.worker", "--echo", system, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def write() -> None:
            process.stdin.write(b"\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            assert process.stdout.readline() == b"done\n"  # type: ignore[union-attr]

        try:
            yield write
        finally:
            process.stdin.close()
            process.wait(60)


def echo(system: str, directory: Path, lines: Iterable[bytes]) -> None:
    """Run as the other process: append a message for each line, and confirm it."""
    peer = class_of(system)(directory)
    if system.startswith("pydantic") or system == "strands":
        # The run's state must be loaded before the measurement.
        _resume(peer)
    for place, _ in enumerate(lines):
        peer.append("s", _message(place))
        print("done", flush=True)
    peer.close()


def _resume(peer: Any) -> None:
    found = peer.load("s")
    if hasattr(peer, "_runs"):
        peer._runs["s"] = list(found)  # noqa: SLF001 - a run that continues in another process
    else:
        peer._places["s"] = len(found) - 1  # noqa: SLF001 - the same


def _put(peer: Peer, session: str, said: list[Message]) -> None:
    if type(peer).has("extend"):
        peer.extend(session, said)
    else:
        for message in said:
            peer.append(session, message)


def _message(place: int) -> Message:
    return MESSAGES[place % 2_000]


def _fast(system: str) -> bool:
    return system.startswith(("hansard", "sqlite", "lmdb", "openai", "eventsourcing"))


def _patience(system: str, scale: Scale) -> float:
    """Return the time to fill a store: compared systems need the same size."""
    return scale.filling * (12 if _fast(system) else 1)


def _made(directory: Path) -> bool:
    directory.mkdir(exist_ok=True)
    return True


def _mark() -> None:
    with contextlib.suppress(OSError):
        os.fsync(MARK)
