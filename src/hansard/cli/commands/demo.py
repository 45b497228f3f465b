"""`hansard demo`: concurrent writers, a kill, a fork, a revert, damage and compaction, on a real store.

Each scene announces what it does, does it, and prints the outcome; the figures are also returned. The
processes and the kill are real.
"""

import itertools
import multiprocessing
import shlex
import shutil
import sys
import tempfile
import time
from ctypes import c_int
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

import hansard
from hansard.cli.command import Call, define
from hansard.cli.screen import Screen, many
from hansard.message.parse import size

WRITERS: Final = 8
EACH: Final = 200

#: Seconds to wait for the processes of a scene.
_PATIENCE: Final = 60.0

Figures = dict[str, Any]


@define("demo", "demo", "demo /tmp/demo  # in this directory, which must be new or empty")
@click.argument("directory", required=False, type=click.Path(file_okay=False))
def command(call: Call, directory: str | None) -> None:
    """Run a demo on a real store.

    Eight processes write concurrently and one is killed; a fork, a revert, damage, compaction, verify. It
    takes a few seconds, and leaves the store for you to explore: in DIRECTORY, or in a new one.

    With --json: one document with the figures.
    """
    wanted = directory or (call.store if call.named else None)
    if wanted is not None and "://" in wanted:
        raise click.UsageError("the demo damages files, so it needs a directory, not a URL")
    store = Path(wanted or Path(tempfile.mkdtemp(prefix="hansard-demo-")) / "store")
    if store.exists() and any(store.iterdir()):
        raise click.UsageError(f"{store} is not empty; name a new directory")
    screen = call.screen
    begun = time.perf_counter()
    figures: Figures = {"store": str(store)}
    for scene in _SCENES:
        with hansard.open(store) as opened:
            figures |= scene(_Stage(store, screen, opened)) or {}
    figures["seconds"] = round(time.perf_counter() - begun, 1)
    screen.document(figures)
    # In a checkout, `hansard` is not on PATH.
    installed = shutil.which("hansard") == str(Path(sys.executable).with_name("hansard"))
    program = "hansard" if installed else f"{shlex.quote(sys.executable)} -m hansard"
    screen.line()
    screen.line((f"Done in {figures['seconds']} s. Explore the store:", "bold"))
    # No comments: zsh passes them to the command.
    screen.line()
    screen.line(f"export HANSARD_STORE={shlex.quote(str(store))}", indent=4)
    for example in (
        "replay support/42",
        "replay support/42 --step",
        "replay support/42 --at 'before the answer'",
        "ls --tree",
        "doctor",
        "serve --port 0",
    ):
        screen.line(f"{program} {example}", indent=4)


class _Stage(NamedTuple):
    """The store and the screen of the demo."""

    path: Path
    screen: Screen
    store: "hansard.Store"

    def scene(self, title: str) -> None:
        """Print the title of a scene."""
        self.screen.line()
        self.screen.line((f"— {title}", "bold"))

    def say(self, text: str) -> None:
        """Print an outcome."""
        self.screen.line(text, indent=2)
        self.screen.flush()

    def log_of(self, name: str) -> Path:
        """Return the active segment of a session."""
        return self.path / "sessions" / name / "log.jsonl"

    def files(self) -> list[Path]:
        """Return the files of the store."""
        return [file for file in self.path.rglob("*") if file.is_file()]


def _conversation(stage: _Stage) -> None:
    stage.scene("A conversation: each message is one line, synced before the call returns")
    session = stage.store.create("support/42", metadata={"title": "Refund", "user": "u7"})
    session.add_message({"role": "user", "content": "Where is my refund?"})
    event = session.add_message({"role": "assistant", "content": "Let me look."})
    stage.say(f"the answer is event {event.seq}, written at {event.stamp}")
    stage.say(f"messages: {session.messages()}")
    stage.scene("A retry with the same key is one event; an unexpected seq is refused")
    turn = [{"role": "user", "content": "Thanks."}, {"role": "assistant", "content": "Bye."}]
    first = [event.seq for event in session.add_messages(turn, key="turn-2")]
    again = [event.seq for event in session.add_messages(turn, key="turn-2")]
    stage.say(f"first call: events {first}, retry: {again}")
    try:
        session.add_message({"role": "user", "content": "stale"}, expected_seq=3)
    except hansard.SeqConflict as error:
        stage.say(f"{type(error).__name__}: {error}")


def _writers(stage: _Stage) -> Figures:
    stage.scene(f"{WRITERS} processes append to one session; one is killed with -9 while it writes")
    begun = time.perf_counter()
    acknowledged = _run_writers(stage.path)
    took = time.perf_counter() - begun
    session = stage.store.session("meeting")
    seen: dict[int, list[int]] = {}
    for message in session.messages():
        seen.setdefault(message["writer"], []).append(message["number"])
    kept = all(
        seen[number] == list(range(len(seen[number]))) and len(seen[number]) >= count
        for number, count in enumerate(acknowledged)
    )
    total, first = sum(acknowledged), acknowledged[0]
    stage.say(f"acknowledged: {total:,}, stored: {session.seq:,}, in {took:.1f} s")
    stage.say(f"the killed writer had {first:,} acknowledged; {len(seen[0]):,} are stored")
    stage.say(f"nothing acknowledged lost, nothing duplicated, each writer's order kept: {kept}")
    stored = session.seq
    if not kept:
        raise hansard.HansardError(
            f"hansard lost events in {stage.path}: keep the store, and report this"
        )
    return {"writers": WRITERS, "acknowledged": total, "stored": stored}


def _run_writers(path: Path) -> list[int]:
    """Run the writers, and kill the first; return how many messages of each were acknowledged."""
    # Each is a new Python, as independent programs are.
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(WRITERS)
    # Without locks: the killed writer would not release its own.
    counts = [context.RawValue("i", 0) for _ in range(WRITERS)]
    processes = [
        context.Process(target=_write, args=(path, number, start, count))
        for number, count in enumerate(counts)
    ]
    try:
        for process in processes:
            process.start()
        while counts[0].value < EACH // 4 and processes[0].is_alive():
            time.sleep(0.001)
        processes[0].kill()
        for process in processes:
            process.join(_PATIENCE)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [count.value for count in counts]


def _write(path: Path, number: int, start: Barrier, acknowledged: c_int) -> None:
    """Run one of the writers; `acknowledged` gets the number of its messages that are stored."""
    with hansard.open(path, durability="os") as store:
        session = store.session("meeting")
        start.wait(_PATIENCE)
        # The first one never ends: it is always in the middle of its work when it is killed.
        for place in range(EACH) if number else itertools.count():
            session.add_message({"role": "user", "writer": number, "number": place})
            acknowledged.value = place + 1


def _revert(stage: _Stage) -> None:
    stage.scene("A revert takes the model view back to a snapshot; the history keeps everything")
    session = stage.store.session("support/42")
    session.snapshot("before the answer")
    session.add_message({"role": "assistant", "content": "It was lost."})
    session.revert("before the answer")
    stage.say(f"reverted: the last message is {session.messages()[-1]}")
    session.add_message({"role": "assistant", "content": "It was sent **on Monday**."})


def _fork(stage: _Stage) -> Figures:
    stage.scene("A fork is one event, however long its parent; it reads inherited events there")
    session = stage.store.session("meeting")
    fork = session.fork("meeting-again", at=100)
    fork.add_message({"role": "user", "content": "Let us begin again."})
    took = stage.log_of(fork.id).stat().st_size
    parent, child = len(session.messages()), len(fork.messages())
    stage.say(f"{parent:,} messages in the parent, {child} in the fork, which has {took} bytes")
    return {"fork_bytes": took}


def _damage(stage: _Stage) -> None:
    stage.scene("One flipped bit in a log is detected, and nothing overwrites it")
    path = stage.log_of("meeting")
    original = path.read_bytes()
    flipped = bytearray(original)
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(flipped)
    try:
        try:
            stage.store.session("meeting").messages()
        except hansard.Damaged as error:
            stage.say(f"Damaged: …/{path.name}: byte {error.offset}: {error.reason}")
        reports = stage.store.verify().sessions
        damaged = [report.session for report in reports if not report.ok]
        stage.say(f"{many(len(reports), 'session')} verified; damaged: {', '.join(damaged)}")
    finally:
        path.write_bytes(original)
    stage.say("(the bit was flipped back)")


def _compaction(stage: _Stage) -> Figures:
    stage.scene("Compaction: logs are compressed, and redacted data is erased")
    session = stage.store.session("meeting")
    secret = session.add_message({"role": "user", "content": "the password is swordfish"})
    session.redact(secret.seq, reason="sent by mistake")
    messages = session.messages()
    before = sum(file.stat().st_size for file in stage.files())
    begun = time.perf_counter()
    report = stage.store.compact()
    took = time.perf_counter() - begun
    after = sum(file.stat().st_size for file in stage.files())
    same = session.messages() == messages
    records = (record.raw for record in session.dump())
    contents = (file.read_bytes() for file in stage.files())
    there = any(b"swordfish" in data for data in itertools.chain(records, contents))
    compacted = f"{many(report.sessions, 'session')} compacted in {took:.2f} s"
    stage.say(f"{compacted}: {size(before)} before, {size(after)} after")
    stage.say(f"every message is unchanged: {same}")
    stage.say(f"'swordfish' is in a file of the store: {there}")
    return {"bytes_before": before, "bytes_after": after, "secret_left": there}


def _verify(stage: _Stage) -> Figures:
    stage.scene("Verify: every byte of every session is checked")
    rows = [
        [info.id, info.title or "", f"{info.seq:,}", size(info.bytes)]
        for info in stage.store.sessions().items
    ]
    report = stage.store.verify()
    stage.screen.table(["session", "title", "events", "size"], rows, numbers="events size")
    verdict = "all valid" if report.ok else "DAMAGED"
    stage.say(f"{many(len(rows), 'session')}, {verdict}")
    return {"ok": report.ok, "sessions": len(rows)}


_SCENES: Final = (_conversation, _writers, _revert, _fork, _damage, _compaction, _verify)
