"""Measure how long appends take while their session is compacted: four processes append to 200 MB of it.

The same four processes append all the time, first alone and then during the compaction, and each records
when an append began and how long it took. So does a probe, which writes lines to a separate file with bare
calls: it waits only for the file system, which all processes share. A fifth process compacts
(`during_other_…`), or the background thread of a store in one of the four (`during_own_…`).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import hansard
from tools.bench import compaction
from tools.bench.result import Result, claim_of

#: The size of the session: 200 MB with the framing of records.
MESSAGES: Final = 170_000
WRITERS: Final = 4

#: Seconds of appends before the compaction, at most during it, and after it. The last count as during it,
#: because its effects may be delayed.
ALONE: Final = 10.0
PATIENCE: Final = 120.0
AFTER: Final = 1.0

#: The tolerance of an append during the compaction.
TARGET: Final = 0.050

_WRITER: Final = """
import json, os, sys, time
import hansard
from tools.bench.conversation import conversation
path, durability, keeps, stop, out = sys.argv[1:]
messages = conversation(7_000 + os.getpid() % 100, 200)
store = hansard.open(path, durability=durability, auto_compact=False)
session = store.session("long")
session.add_message(messages[0])
print("ready", flush=True)
sys.stdin.readline()
found = []
place = 0
clock = time.perf_counter
while not os.path.exists(stop):
    if keeps and os.path.exists(stop + ".begin"):
        keeps = ""
        store.close()
        session = hansard.open(path, durability=durability).session("long")
    begin = clock()
    session.add_message(messages[place % 200])
    found.append((begin, clock() - begin))
    place += 1
    time.sleep(0.002)
with open(out, "w") as file:
    json.dump(found, file)
"""

#: Appends and syncs lines of a separate file, without hansard: it waits only for the disk.
_PROBE: Final = """
import json, os, sys, time
path, durability, _, stop, out = sys.argv[1:]
file = os.open(path + ".probe", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
print("ready", flush=True)
sys.stdin.readline()
found = []
clock = time.perf_counter
while not os.path.exists(stop):
    begin = clock()
    os.write(file, bytes(1200))
    if durability == "sync":
        os.fdatasync(file)
    found.append((begin, clock() - begin))
    time.sleep(0.002)
with open(out, "w") as file:
    json.dump(found, file)
"""

#: At the background level. A requested compaction takes ten times as long.
_COMPACTOR: Final = """
import sys
import hansard
from hansard.maintenance import compact as compaction
path, durability = sys.argv[1:]
with hansard.open(path, durability=durability, auto_compact=False) as store:
    compaction.compact_session(store._backend, "long", level=compaction.QUICK)
"""


def during_other_sync(directory: Path) -> Result:
    """The longest `"sync"` append during a compaction in another process, less the longest without; 50 ms."""
    return _measure(directory, during_other_sync, "sync", own=False)


def during_other_os(directory: Path) -> Result:
    """The longest `"os"` append during a compaction in another process, less the longest without; 50 ms."""
    return _measure(directory, during_other_os, "os", own=False)


def during_own_sync(directory: Path) -> Result:
    """The longest `"sync"` append during a compaction in one of the four, less the longest without; 50 ms."""
    return _measure(directory, during_own_sync, "sync", own=True)


def during_own_os(directory: Path) -> Result:
    """The longest `"os"` append during a compaction in one of the four, less the longest without; 50 ms."""
    return _measure(directory, during_own_os, "os", own=True)


ALL: list[Callable[[Path], Result]] = [
    during_other_sync,
    during_other_os,
    during_own_sync,
    during_own_os,
]


def _measure(
    directory: Path, function: Callable[..., object], durability: str, *, own: bool
) -> Result:
    path, stop = str(directory / "store"), str(directory / "stop")
    with hansard.open(path, durability="os", auto_compact=False) as store:
        compaction.fill(store.session("long"), MESSAGES)
    size = compaction.on_disk(directory / "store")[0]
    os.sync()
    outs = [str(directory / f"out-{number}") for number in range(WRITERS + 1)]
    programs = [*[(_WRITER, "")] * (WRITERS - 1), (_WRITER, "keeps" if own else ""), (_PROBE, "")]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program, path, durability, keeps, stop, out],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for (program, keeps), out in zip(programs, outs, strict=True)
    ]
    others: list[subprocess.Popen[str]] = []
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        time.sleep(ALONE)
        begin = time.perf_counter()
        Path(stop + ".begin").touch()
        if not own:
            others.append(
                subprocess.Popen([sys.executable, "-c", _COMPACTOR, path, durability], text=True)
            )
        while not is_compacted(directory / "store") and time.perf_counter() < begin + PATIENCE:
            time.sleep(0.02)
        end = time.perf_counter()
        time.sleep(AFTER)
        Path(stop).touch()
        for process in [*writers, *others]:
            assert process.wait(60) == 0
    finally:
        for process in [*writers, *others]:
            if process.poll() is None:
                process.kill()
            process.communicate()
    found: list[list[tuple[float, float]]] = [json.loads(Path(out).read_text()) for out in outs]
    return _judge(function, found, begin, end, size)


def is_compacted(store: Path) -> bool:
    """Return whether all sealed segments are compressed, and the checkpoint, which comes last, is written."""
    names = os.listdir(store / "sessions/long")
    return "checkpoint" in names and not any(name.endswith("1.jsonl") for name in names)


def _judge(
    function: Callable[..., object],
    found: list[list[tuple[float, float]]],
    begin: float,
    end: float,
    size: int,
) -> Result:
    """Compare the appends that overlap a time with the others."""
    without, during = _parted(found[:WRITERS], begin)
    calm, stirred = _parted(found[WRITERS:], begin)
    more = max(during) - max(without)
    note = (
        f"{size / 1e6:.0f} MB compacted in {end - begin:.1f} s; in ms, p50 / p99 / p99.9 / max: "
        f"without {_spread(without)}, during it {_spread(during)}; bare calls on another file: "
        f"without {_spread(calm)}, during it {_spread(stirred)}"
    )
    return Result(
        getattr(function, "__name__", ""),
        claim_of(function),
        f"{max(during) * 1000:.1f} ms",
        f"{max(without) * 1000:.1f} ms",
        more / TARGET,
        1.0,
        note=note,
    )


def _parted(
    found: list[list[tuple[float, float]]], begin: float
) -> tuple[list[float], list[float]]:
    """Return the durations before a moment, and after it."""
    without: list[float] = []
    during: list[float] = []
    for appends in found:
        for at, taken in appends:
            (during if at + taken > begin else without).append(taken)
    return without, during


def _spread(times: list[float]) -> str:
    ordered = sorted(times)
    last = len(ordered) - 1
    shares = (0.5, 0.99, 0.999, 1.0)
    values = " / ".join(f"{ordered[round(last * share)] * 1000:.2f}" for share in shares)
    return f"{values} ({len(ordered):,} appends)"
