"""Show what hansard does, on a real store: writers at once, kills, forks, reverts, damage, compaction.

Run by `tools/try [FOLDER]`. Each step says what it does and prints what came out; the store is left
for the reader to look at.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zstandard

import hansard

WRITERS = 8
EACH = 200


def main() -> int:
    """Play all scenes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", help="where to make the store (default: a new one)")
    parser.add_argument("--writer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--speaker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.writer is not None:
        return write(Path(options.folder), options.writer)
    if options.speaker:
        return speak(Path(options.folder))
    folder = Path(options.folder or Path(tempfile.mkdtemp(prefix="hansard-demo-")) / "store")
    if folder.exists() and any(folder.iterdir()):
        print(f"{folder} is not empty; give a new folder", file=sys.stderr)
        return 1
    start = time.perf_counter()
    a_conversation(folder)
    writers_at_once(folder)
    retries(folder)
    an_interrupted_answer(folder)
    another_way(folder)
    a_torn_log(folder)
    damage(folder)
    compaction(folder)
    looking_around(folder)
    print(f"\nAll of it in {time.perf_counter() - start:.1f} s. The store is yours to look at:\n")
    print(f"    ls -R {folder}")
    print(f"    zstdcat {folder}/sessions/support+42/*.zst | head -c 600")
    print(f"    python -c \"import hansard; print(hansard.open('{folder}').sessions().items)\"")
    return 0


def scene(title: str) -> None:
    """Begin a step."""
    print(f"\n— {title}")


def a_conversation(folder: Path) -> None:
    """Say something, and read it back."""
    scene("A conversation: each message is one line, synced before the call returns")
    with hansard.open(folder) as store:
        session = store.create("support/42", metadata={"title": "Refund", "user": "u7"})
        session.add_message({"role": "user", "content": "Where is my refund?"})
        event = session.add_message({"role": "assistant", "content": "Let me look."})
        print(f"  the answer is event {event.seq}, written at {event.stamp}")
        print(f"  messages: {session.messages()}")
        print(f"  metadata: {session.metadata}")


def writers_at_once(folder: Path) -> None:
    """Let eight processes append to one session, and kill one of them."""
    scene(f"{WRITERS} processes append {EACH} messages each to one session; one is killed with -9")
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder), "--writer", str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    acknowledged: dict[int, int] = {}
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # ready
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        victim = processes[0]
        assert victim.stdout is not None
        # The victim says how many were acknowledged, line by line; after a quarter it dies.
        for line in victim.stdout:
            acknowledged[0] = int(line)
            if acknowledged[0] == EACH // 4:
                os.kill(victim.pid, signal.SIGKILL)
        for number, process in enumerate(processes[1:], 1):
            output, _ = process.communicate(timeout=120)
            acknowledged[number] = int(output.split()[-1])
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.communicate()
    with hansard.open(folder, read_only=True) as store:
        session = store.session("meeting")
        seen: dict[int, list[int]] = {}
        for message in session.messages():
            seen.setdefault(message["writer"], []).append(message["number"])
        kept = all(
            seen[number] == list(range(len(seen[number]))) and len(seen[number]) >= count
            for number, count in acknowledged.items()
        )
        print(f"  acknowledged: {sum(acknowledged.values())}, stored: {session.seq} events")
        print(f"  the killed writer was told of {acknowledged[0]}; {len(seen[0])} are there")
        print(f"  nothing acknowledged lost, nothing twice, each writer's order kept: {kept}")
        print(f"  verify: {'whole' if session.verify().ok else 'DAMAGED'}")
    if not kept:
        raise SystemExit("hansard lost something: please report this")


def write(folder: Path, number: int) -> int:
    """Be one of the writers."""
    with hansard.open(folder, durability="os") as store:
        session = store.session("meeting")
        print("ready", flush=True)
        sys.stdin.readline()
        for place in range(EACH):
            session.add_message({"role": "user", "writer": number, "number": place})
            print(place + 1, flush=True)
    return 0


def retries(folder: Path) -> None:
    """Retry with a key, and compare and set."""
    scene("A retry with the same key is one event; an unexpected seq is refused")
    with hansard.open(folder) as store:
        session = store.session("support/42")
        turn = [{"role": "user", "content": "Thanks."}, {"role": "assistant", "content": "Bye."}]
        first = session.add_messages(turn, key="turn-2")
        again = session.add_messages(turn, key="turn-2")
        print(f"  first call: events {[e.seq for e in first]}, retry: {[e.seq for e in again]}")
        try:
            session.add_message({"role": "user", "content": "stale"}, expected_seq=3)
        except hansard.SeqConflict as error:
            print(f"  {type(error).__name__}: {error}")


def an_interrupted_answer(folder: Path) -> None:
    """Kill a process while it streams an answer, and look at what is left."""
    scene("A process is killed with -9 while it streams an answer: what it had said is there")
    speaker = subprocess.Popen(
        [sys.executable, __file__, str(folder), "--speaker"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert speaker.stdout is not None
        speaker.stdout.readline()  # it has said four words, and goes on
    finally:
        speaker.kill()
        speaker.communicate()
    with hansard.open(folder) as store:
        session = store.session("support/42")
        message = session.messages()[-1]
        message["content"] = message["content"][:40] + " …"
        print(f"  the next process sees {message}")
        session.revert("before the answer")
        print(f"  reverted: the last message is {session.messages()[-1]}")
        session.add_message({"role": "assistant", "content": "It was sent on Monday."})


def speak(folder: Path) -> int:
    """Be the process that is killed."""
    with hansard.open(folder) as store:
        session = store.session("support/42")
        session.add_message({"role": "user", "content": "So where is it?"})
        session.snapshot("before the answer")
        with session.stream(role="assistant") as answer:
            for place in range(100_000):
                answer.write(f"word {place} ")
                if place == 3:  # noqa: PLR2004 - four words
                    print("speaking", flush=True)
    return 0


def another_way(folder: Path) -> None:
    """Fork a session, and go another way in the fork."""
    scene("A fork is one event, whatever the length; what it inherits is read where it is")
    with hansard.open(folder) as store:
        session = store.session("meeting")
        fork = session.fork("meeting-again", at=100)
        fork.add_message({"role": "user", "content": "Let us begin again."})
        size = sum(file.stat().st_size for file in (folder / "sessions" / fork.id).iterdir())
        print(
            f"  {len(session.messages()):,} messages in the parent, {len(fork.messages())} in the fork"
        )
        print(f"  which takes {size} bytes; its parent is {fork.parent!r}")


def a_torn_log(folder: Path) -> None:
    """Leave half a line at the end, as a crash does, and append after it."""
    scene("A crash leaves half a line: readers pass over it, the next append ends it")
    path = folder / "sessions" / "meeting" / "log.jsonl"
    before = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"seq":99999,"time":"2026-11-16T00:0')
    with hansard.open(folder) as store:
        session = store.session("meeting")
        print(f"  {len(session.messages()):,} messages are there as before")
        session.add_message({"role": "user", "writer": -1, "number": 0})
        tail = path.read_bytes()[before:].decode().splitlines()
        for line in tail:
            print(f"    {line[:110]}")


def damage(folder: Path) -> None:
    """Flip a bit inside a log, see it found, and put it right again."""
    scene(
        "One flipped bit inside a log is found, reported with its place, and overwritten by nobody"
    )
    path = folder / "sessions" / "meeting" / "log.jsonl"
    original = path.read_bytes()
    flipped = bytearray(original)
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(flipped)
    with hansard.open(folder) as store:
        try:
            store.session("meeting").messages()
        except hansard.Damaged as error:
            print(f"  {type(error).__name__}: …/{path.name}: byte {error.offset}: {error.reason}")
        listed = {info.id: bool(info.damaged) for info in store.sessions().items}
        print(f"  the other session is not hurt: {sorted(listed)}")
    path.write_bytes(original)
    print("  (the bit was flipped back)")


def compaction(folder: Path) -> None:
    """Redact something, make the logs small, and look for the bytes."""
    scene("Compaction: logs are sealed and compressed, and what was redacted is gone from the disk")
    with hansard.open(folder) as store:
        session = store.session("meeting")
        secret = session.add_message({"role": "user", "content": "the password is swordfish"})
        session.redact(secret.seq, reason="said by mistake")
        before = session.messages()
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        report = store.compact()
        after = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(f"  {report.sessions} sessions compacted, {size:,} bytes before, {after:,} after")
        same = session.messages() == before
        lines = b"".join(_lines(file) for file in folder.rglob("*") if file.is_file())
        print(f"  every message is what it was: {same}")
        print(f"  “swordfish” is in a file of the store: {b'swordfish' in lines}")


def _lines(file: Path) -> bytes:
    """Return what a file holds, unpacked."""
    data = file.read_bytes()
    if file.suffix != ".zst":
        return data
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        return bytes(reader.read())


def looking_around(folder: Path) -> None:
    """List what is there."""
    scene("What is in the store")
    with hansard.open(folder, read_only=True) as store:
        for info in store.sessions().items:
            title = f" “{info.title}”" if info.title else ""
            print(f"  {info.id:14}{title:12} {info.seq:6,} events {info.bytes:9,} bytes")
        report = store.verify()
        print(
            f"  verify: {len(report.sessions)} sessions, {'all whole' if report.ok else 'DAMAGED'}"
        )


if __name__ == "__main__":
    sys.exit(main())
