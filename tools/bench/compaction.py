"""Measure the results of compaction: size on disk, speed of reads, and the work that it took.

The messages are those of `conversation`. A new process makes cold reads; its imports are not counted.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard

import hansard
from tools.bench.conversation import conversation
from tools.bench.result import Result, claim_of
from tools.bench.workload import alternate, seconds

SESSIONS: Final = 1_000
EACH: Final = 50
MILLION: Final = 1_000_000
GROWN: Final = 10_000
TIMES: Final = (30, 60, 120)
ROUNDS: Final = 15
LOADED: Final = 100_000
READ: Final = 40_000


def small_sessions(directory: Path) -> Result:
    """1,000 sessions × 50 messages on disk, compacted, and their JSON."""
    raw = _raw()
    with hansard.open(directory / "store", durability="os", auto_compact=False) as store:
        for number, lines in enumerate(_sessions()):
            session = store.session(f"session-{number}")
            for line in lines:
                session.add_message(msgspec.json.decode(line))
        before = on_disk(directory / "store")[0]
        taken = seconds(store.compact)
    size, blocks = on_disk(directory / "store")
    share, speed = _reference()
    note = (
        f"{before / raw:.3f} before; compaction {raw / taken / 1e6:.1f} MB/s; counted in blocks of the file "
        f"system {blocks / raw:.3f}; zstd -19 over the JSON alone: {share:.3f} at {speed:.1f} MB/s"
    )
    return _share("small_sessions", small_sessions, size, raw, 0.32, note)


def long_session(directory: Path) -> Result:
    """One session of 50,000 messages on disk, compacted, and their JSON."""
    raw = _raw()
    with hansard.open(directory / "store", durability="os", auto_compact=False) as store:
        session = store.session("long")
        for line in _lines():
            session.add_message(msgspec.json.decode(line))
        taken = seconds(store.compact)
    size = on_disk(directory / "store")[0]
    packed, spent = 0, 0.0
    # A sample, since it takes half a minute for all.
    pieces = list(_pieces(4 << 20))[:3]
    compressor = zstandard.ZstdCompressor(level=19)
    for piece in pieces:
        begin = time.perf_counter()
        packed += len(compressor.compress(piece))
        spent += time.perf_counter() - begin
    some = sum(map(len, pieces))
    note = (
        f"compaction {raw / taken / 1e6:.1f} MB/s; zstd -19 in pieces of 4 MiB, over the JSON alone: "
        f"{packed / some:.3f} at {some / spent / 1e6:.1f} MB/s"
    )
    return _share("long_session", long_session, size, raw, 0.25, note)


def last_cold(directory: Path) -> Result:
    """The last 50 of 1,000,000 messages, compacted, in a new process, and of 1,000."""
    with hansard.open(directory / "store", durability="os", auto_compact=False) as store:
        fill(store.session("short"), 1_000)
        compact_quickly(store, "short")
        # After each growth by this size, as the background compactor does.
        for _ in range(0, MILLION, GROWN):
            fill(store.session("long"), GROWN)
            compact_quickly(store, "long")

    growth: dict[str, list[int]] = {"long": [], "short": []}

    def cold(name: str) -> float:
        answer = run_cold(str(directory / "store"), name)
        growth[name].append(answer["grown"])
        assert answer["count"] == EACH
        return float(answer["seconds"]) * 1000

    ours, limit, ratio = alternate(lambda: cold("long"), lambda: cold("short"), ROUNDS)
    files = len(os.listdir(directory / "store/sessions/long"))
    note = (
        f"{files} files; resident memory grew by {max(growth['long']) / 1024:.1f} MiB, of 1,000 by "
        f"{max(growth['short']) / 1024:.1f} MiB"
    )
    return Result(
        "last_cold", claim_of(last_cold), f"{ours:.1f} ms", f"{limit:.1f} ms", ratio, 2.0, note=note
    )


def load_compacted(directory: Path) -> Result:
    """Loading 100,000 compacted messages into dicts, and zstandard and msgspec on the same bytes."""
    store = hansard.open(directory / "store", durability="os", auto_compact=False)
    session = store.session("long")
    fill(session, LOADED)
    compact_quickly(store, "long")
    (path,) = (directory / "store/sessions/long").glob("*.zst")
    frames = _frames(path.read_bytes())
    decompress = zstandard.ZstdDecompressor().decompress
    decode = msgspec.json.Decoder().decode_lines

    def bare() -> list[Any]:
        # Frames end with complete lines, so this gives the same result with less memory.
        return [decode(decompress(frame)) for frame in frames]

    assert len(session.messages()) == LOADED
    ours, limit, ratio = alternate(lambda: seconds(session.messages), lambda: seconds(bare), 5)
    store.close()
    return Result(
        "load_compacted",
        claim_of(load_compacted),
        f"{ours * 1000:.0f} ms",
        f"{limit * 1000:.0f} ms",
        ratio,
        1.5,
    )


def read_sealed(directory: Path) -> Result:
    """CPU time to load 40,000 messages as the background compaction leaves them, and unsealed."""
    with hansard.open(directory / "store", durability="os", auto_compact=False) as store:
        for _ in range(0, READ, READ // 4):
            fill(store.session("sealed"), READ // 4)
            fill(store.session("unsealed"), READ // 4)
            compact_quickly(store, "sealed")
        store.session("batch").add_messages(store.session("unsealed").messages())
        compact_quickly(store, "batch")
    path = directory / "store"
    note = "; ".join(
        f"{what}: {_read_ratio(path, name, 'unsealed', json=json)[2]:.2f}"
        for what, name, json in (
            ("as JSON", "sealed", True),
            ("one batch, sealed", "batch", False),
            ("the same as JSON", "batch", True),
        )
    )
    ours, limit, ratio = _read_ratio(path, "sealed", "unsealed")
    decompress = zstandard.ZstdDecompressor().decompress
    files = [file.read_bytes() for file in (path / "sessions/sealed").glob("*.zst")]
    frames = [frame for data in files for frame in _frames(data)]
    spent = min(_cpu(lambda: [len(decompress(frame)) for frame in frames]) for _ in range(ROUNDS))
    note = f"zstd alone {spent:.0f} ms; {note}"
    return Result(
        "read_sealed",
        claim_of(read_sealed),
        f"{ours:.0f} ms",
        f"{limit:.0f} ms",
        ratio,
        1.3,
        note=note,
    )


def read_batch(directory: Path) -> Result:
    """CPU time to load 40,000 messages that were one batch, and batches of 100."""
    with hansard.open(directory / "store", durability="os", auto_compact=False) as store:
        fill(store.session("hundreds"), READ)
        store.session("batch").add_messages(store.session("hundreds").messages())
    path = directory / "store"
    as_json = _read_ratio(path, "batch", "hundreds", json=True)[2]
    again = _read_ratio(path, "batch", "hundreds", warm=True)[2]
    note = f"as JSON: {as_json:.2f}; again through the same handle: {again:.2f}"
    ours, limit, ratio = _read_ratio(path, "batch", "hundreds")
    return Result(
        "read_batch",
        claim_of(read_batch),
        f"{ours:.0f} ms",
        f"{limit:.0f} ms",
        ratio,
        1.1,
        note=note,
    )


def _read_ratio(
    path: Path, one: str, other: str, *, json: bool = False, warm: bool = False
) -> tuple[float, float, float]:
    """Load two sessions in turn, each through a fresh handle; return CPU time in ms, and the ratio."""

    def load(name: str) -> float:
        with hansard.open(path, read_only=True) as store:
            session = store.session(name)
            action = session.messages_json if json else session.messages
            if warm:
                action()
            return _cpu(action)

    return alternate(lambda: load(one), lambda: load(other), ROUNDS)


def _cpu(action: Callable[[], object]) -> float:
    """Return the CPU time of an action in ms."""
    begin = time.process_time()
    action()
    return (time.process_time() - begin) * 1000


def linear(directory: Path) -> Result:
    """Bytes read and written by 120 compactions for each byte that a session grew by, and by 30."""
    each = 400  # together more than 8 MiB, the maximum size of joined segments

    def work(times: int) -> float:
        moved = appended = 0
        with hansard.open(
            directory / f"store-{times}", durability="os", auto_compact=False
        ) as store:
            session = store.session("s")
            for place in range(times):
                lines = _lines()[place * each : (place + 1) * each]
                session.add_messages([msgspec.json.decode(line) for line in lines])
                appended += sum(map(len, lines))
                before = _moved()
                compact_quickly(store, "s")
                moved += _moved() - before
        return moved / appended

    found = {times: work(times) for times in TIMES}
    note = "; ".join(
        f"{times} times {each} messages: {ratio:.2f}" for times, ratio in found.items()
    )
    last, first = found[TIMES[-1]], found[TIMES[0]]
    return Result(
        "linear", claim_of(linear), f"{last:.1f}", f"{first:.1f}", last / first, 1.5, note=note
    )


def _moved() -> int:
    """Return the bytes that this process has read from files and written to them."""
    with open("/proc/self/io") as file:
        said = dict(line.split(": ") for line in file.read().splitlines())
    return int(said["rchar"]) + int(said["wchar"])


ALL: list[Callable[[Path], Result]] = [
    small_sessions,
    long_session,
    last_cold,
    load_compacted,
    read_sealed,
    read_batch,
    linear,
]


def compact_quickly(store: hansard.Store, session_id: str) -> None:
    """Compact a session as the thread of a store does."""
    from hansard.maintenance.compact import QUICK, compact_session

    compact_session(store._backend, session_id, level=QUICK)  # noqa: SLF001 - the only way


# -- messages -----------------------------------------------------------------------------------


@cache
def _sessions() -> list[list[bytes]]:
    """Return the messages of the sessions, as JSON."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(_encoded, range(SESSIONS), chunksize=20))


def _encoded(number: int) -> list[bytes]:
    return [msgspec.json.encode(message) for message in conversation(number, EACH)]


@cache
def _lines() -> list[bytes]:
    return [line for lines in _sessions() for line in lines]


def _raw() -> int:
    return sum(map(len, _lines()))


def _pieces(size: int) -> Iterator[bytes]:
    whole = b"\n".join(_lines())
    for begin in range(0, len(whole), size):
        yield whole[begin : begin + size]


def fill(session: hansard.Session, count: int) -> None:
    """Append messages, a hundred at a time; they repeat after 50,000, too far away for compression."""
    lines = _lines()
    for begin in range(0, count, 100):
        at = begin % len(lines)
        session.add_messages([msgspec.json.decode(line) for line in lines[at : at + 100]])


def _reference() -> tuple[float, float]:
    """Return the share that zstd -19 leaves of a tenth of the sessions, and its MB/s."""
    sessions = _sessions()
    texts = [b"\n".join(lines) for lines in sessions[: max(1, len(sessions) // 10)]]
    compressor = zstandard.ZstdCompressor(level=19)
    begin = time.perf_counter()
    packed = sum(len(compressor.compress(text)) for text in texts)
    taken = time.perf_counter() - begin
    raw = sum(map(len, texts))
    return packed / raw, raw / taken / 1e6


# -- files --------------------------------------------------------------------------------------


def on_disk(directory: Path) -> tuple[int, int]:
    """Return the bytes of all files of a store, and of the blocks of files and directories."""
    size = blocks = 0
    for path, _, files in os.walk(directory):
        blocks += os.stat(path).st_blocks * 512
        for file in files:
            status = os.lstat(os.path.join(path, file))
            size += status.st_size
            blocks += status.st_blocks * 512
    return size, blocks


def _frames(data: bytes) -> list[bytes]:
    """Return the zstd frames of a sealed segment that hold lines."""
    from hansard.log.sealed_segment import ENTRY, TABLE_END

    count = TABLE_END.unpack(data[-TABLE_END.size :])[0]
    at = len(data) - TABLE_END.size - count * ENTRY.size
    lengths = [ENTRY.unpack_from(data, at + place * ENTRY.size)[0] for place in range(count)]
    frames, begin = [], 0
    for length in lengths:
        frames.append(data[begin : begin + length])
        begin += length
    return frames


_COLD: Final = """
import json, sys, time
import hansard, msgspec, zstandard
import hansard.session, hansard.store, hansard.backend.local.backend, hansard.log.sealed_segment
def resident(word):
    # Not ru_maxrss: that of a new process begins with what its parent had.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(word))
before = resident("VmRSS")
begin = time.perf_counter()
found = hansard.open(sys.argv[1], read_only=True).session(sys.argv[2]).messages(last=50)
taken = time.perf_counter() - begin
print(json.dumps({"seconds": taken, "count": len(found), "grown": resident("VmHWM") - before}))
"""


def run_cold(store: str, session: str) -> dict[str, Any]:
    """Read the last messages of a session in a new process; return seconds, count, and KiB of growth."""
    answer = subprocess.run(
        [sys.executable, "-c", _COLD, store, session], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def _share(
    name: str, function: Callable[..., object], size: int, raw: int, target: float, note: str
) -> Result:
    ours, limit = f"{size / 1e6:.1f} MB", f"{raw / 1e6:.1f} MB"
    return Result(name, claim_of(function), ours, limit, size / raw, target, note=note)
