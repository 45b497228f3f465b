"""Many writers at the same time: threads, tasks and processes, on one session and on many.

Each writer appends until the budget ends. Every message has its writer and its number.
A new handle then counts lost and duplicated ones among the acknowledged messages.
"""
# ruff: noqa: FBT001 - on one session or on many is part of what a workload is, and comes from its name

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tools.bench.peers import class_of
from tools.bench.peers.peer import Message, Peer
from tools.bench.scale import Scale

_TEXT = "the session store keeps every message in order and a reader sees a prefix of it " * 9


def writers(
    system: str, scale: Scale, directory: Path, kind: str, count: int, many: bool
) -> dict[str, Any]:
    """Let `count` writers append; return their rate, and the lost and doubled messages."""
    peers = class_of(system)
    if (kind == "tasks" and not peers.has("append_async")) or not (
        many or count == 1 or peers.shared
    ):
        return {}
    run = {"threads": _threads, "tasks": _tasks, "processes": _processes}[kind]
    said, elapsed = run(system, directory, count, many, scale.budget)
    acknowledged = {name for names, _ in said for name in names}
    refused = sum(number for _, number in said)
    found: Counter[str] = Counter()
    reader = peers.reader(directory)
    for name in sorted({_session(number, many=many) for number in range(count)}):
        found.update(peers.text_of(item).split(" ", 1)[0] for item in reader.load(name))
    reader.close()
    return {
        "rate": len(acknowledged) / elapsed,
        # Appends of the slowest writer over those of the fastest.
        "fairness": min(len(names) for names, _ in said) / max(len(names) for names, _ in said),
        "lost": sum(name not in found for name in acknowledged),
        "duplicated": sum(number - 1 for name, number in found.items() if name != "begin"),
        "refused": refused,
        "acknowledged": len(acknowledged),
    }


Said = tuple[list[str], int]


def write(peer: Peer, number: int, many: bool, budget: float) -> Said:
    """Append until the time is over; return acknowledged messages and the number of refused ones."""
    session = _session(number, many=many)
    names: list[str] = []
    refused = 0
    end = time.perf_counter() + budget
    while time.perf_counter() < end:
        name = f"w{number}-{len(names) + refused}"
        try:
            peer.append(session, _message(name))
        except Exception as error:  # noqa: BLE001 - any error of a system that cannot
            if not refused:
                print(f"refused: {type(error).__name__}: {error}", file=sys.stderr)
            refused += 1
        else:
            names.append(name)
    return names, refused


def one_of_many(system: str, directory: Path, number: int, many: bool, budget: float) -> None:
    """Run as a writing process: report that it is ready, wait for a line, and report what was written."""
    peer = class_of(system)(directory)
    # The first append, which imports and opens, is not measured.
    peer.append(_session(number, many=many), _message("begin"))
    print("ready", flush=True)
    sys.stdin.buffer.readline()
    said = write(peer, number, many, budget)
    print(msgspec.json.encode(said).decode(), flush=True)
    peer.close()


def _threads(
    system: str, directory: Path, count: int, many: bool, budget: float
) -> tuple[list[Said], float]:
    peer = class_of(system)(directory)
    barrier = threading.Barrier(count + 1)
    said: list[Said] = []

    def work(number: int) -> None:
        mine = peer.twin()
        mine.append(_session(number, many=many), _message("begin"))
        barrier.wait(60)
        said.append(write(mine, number, many, budget))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    barrier.wait(60)
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    elapsed = time.perf_counter() - begin
    peer.close()
    return said, elapsed


def _tasks(
    system: str, directory: Path, count: int, many: bool, budget: float
) -> tuple[list[Said], float]:
    peer = class_of(system)(directory)
    said: list[Said] = [([], 0) for _ in range(count)]

    async def work(number: int, end: float) -> None:
        session, names = _session(number, many=many), said[number][0]
        while time.perf_counter() < end:
            name = f"w{number}-{len(names)}"
            await peer.append_async(session, _message(name))
            names.append(name)

    async def main() -> float:
        await peer.append_async(_session(0, many=many), _message("begin"))
        begin = time.perf_counter()
        await asyncio.gather(*(work(number, begin + budget) for number in range(count)))
        elapsed = time.perf_counter() - begin
        await peer.close_async()
        return elapsed

    elapsed = asyncio.run(main())
    peer.close()
    return said, elapsed


def _processes(
    system: str, directory: Path, count: int, many: bool, budget: float
) -> tuple[list[Said], float]:
    started = []
    try:
        for number in range(count):
            task = msgspec.json.encode([system, str(directory), number, many, budget]).decode()
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tools.bench.worker", "--write", task],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"{system}: a writer did not start")
        begin = time.perf_counter()
        for process in started:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
        said: list[Said] = []
        for process in started:
            assert process.stdout is not None
            said.append(msgspec.json.decode(process.stdout.readline(), type=Said))
        return said, time.perf_counter() - begin
    finally:
        for process in started:
            process.communicate(timeout=60)


def _session(number: int, *, many: bool) -> str:
    return f"s{number}" if many else "s"


def _message(name: str) -> Message:
    return {"role": "user", "content": f"{name} {_TEXT}"}
