"""Claims about messages that are stored in parts."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import hansard
from hansard import Session
from hansard import stream as streaming
from tests.crashlab import faults


def test_what_is_over_is_over(session: Session) -> None:
    """A finished or discarded stream takes no more text; other types are refused."""
    done, gone = session.stream(gather=0), session.stream()
    done.write("a")
    done.write("")  # no part
    done.finish()
    gone.discard()
    for stream in (done, gone):
        for call in (lambda: stream.write("b"), stream.finish, stream.discard):  # noqa: B023
            with pytest.raises(hansard.InvalidEvent, match="begin another"):
                call()
    with pytest.raises(hansard.InvalidEvent, match="must be a string, got dict"):
        session.stream(gather=0).write({"a": 1})  # type: ignore[arg-type]
    with pytest.raises(hansard.InvalidEvent):
        session.stream(gather=0, role="user", of={1, 2})
    with pytest.raises(hansard.InvalidEvent):
        session.stream(gather=0).write("\ud800")
    assert session.seq == 2


def test_a_close_writes_what_was_gathered(tmp_path: Path) -> None:
    """A text whose `write` returned is not lost because the store was closed in time."""
    with hansard.open(tmp_path / "store") as store:
        stream = store.session("s").stream(gather=1.0)
        stream.write("a")
        stream.write("b")
    with hansard.open(tmp_path / "store") as store:
        assert [message["content"] for message in store.session("s").messages()] == ["ab"]


@pytest.fixture
def syncing(tmp_path: Path) -> Iterator[Session]:
    """Return a warm session of a store that syncs."""
    with hansard.open(tmp_path / "store", durability="sync") as store:
        session = store.session("s")
        session.add_message({"n": 1})
        session.add_message({"n": 2})
        yield session


def test_a_write_in_a_signal_handler_does_not_wait_forever(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-25: if another thread writes the parts and waits for the interrupted append, `write` raises."""
    monkeypatch.setattr(streaming, "_PATIENCE", 0.1)
    stream = session.stream()
    stream.write("one ")
    inside, over = threading.Event(), threading.Event()

    def occupy() -> None:
        with stream._held():
            inside.set()
            over.wait(60)

    other = threading.Thread(target=occupy)
    other.start()
    assert inside.wait(60)
    try:
        with pytest.raises(hansard.LockTimeout, match="set a flag and write later"):
            stream.write("two ")
    finally:
        over.set()
        other.join()
    stream.write("three")
    assert stream.finish().data["message"]["content"] == "one three"


def test_parts_are_not_synced_and_the_message_is(syncing: Session) -> None:
    """N-37: a hundred parts cost one write each and no sync; the message is synced once."""
    stream = syncing.stream(gather=0)
    with faults.record() as seen:
        for number in range(100):
            stream.write(f"{number} ")
    assert [call.operation for call in seen.calls if call.operation in {"sync", "write"}] == [
        "write"
    ] * 100
    with faults.record() as seen:
        stream.finish()
    operations = [call.operation for call in seen.calls]
    assert operations.count("sync") == 1
    assert operations.index("write") < operations.index("sync")
    with faults.record() as seen:
        other = syncing.stream(gather=0)
        other.write("x")
        other.discard()
    assert [call.operation for call in seen.calls].count("sync") == 1


def test_what_parts_begin_is_durable_with_their_message(tmp_path: Path) -> None:
    """N-37, F-31: a session that begins with a part has its directories synced with the first message."""
    with hansard.open(tmp_path / "store", durability="sync") as store:
        session = store.session("s")
        stream = session.stream(gather=0)
        with faults.record() as seen:
            stream.write("a")
        before = [call.operation for call in seen.calls]
        with faults.record() as seen:
            stream.finish()
        after = [call.operation for call in seen.calls]
        assert after.count("sync") == 1
        # The session's directory, and its parent.
        assert after.count("sync_directory") == 2, (before, after)


def test_an_error_in_write_says_so_and_keeps_the_rest(syncing: Session) -> None:
    """N-29: a part that cannot be written raises; earlier parts stay."""
    stream = syncing.stream(gather=0)
    stream.write("a")
    with faults.short("half"), pytest.raises(hansard.HansardError):
        stream.write("b")
    stream.write("c")
    assert stream.text == "ac"
    assert syncing.messages(last=1)[0]["content"] == "ac"
    assert stream.finish().message == {"role": "assistant", "content": "ac"}


TOKENS = [f"word{number % 10} " for number in range(2000)]


def test_streaming_costs_few_events_and_bytes(tmp_path: Path) -> None:
    """2,000 tokens take 100 seqs and three times their bytes at most, parts and message together."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        session = store.session("s")
        with session.stream(gather=1) as stream:  # the length decides, also on a busy machine
            for token in TOKENS:
                stream.write(token)
        text = "".join(TOKENS)
        assert session.messages() == [{"role": "assistant", "content": text}]
        assert session.seq <= 100
        size = (tmp_path / "store/sessions/s/log.jsonl").stat().st_size
        assert size <= 3 * len(text)
        parts = [event for event in session.events() if event.kind == "message.part"]
        # In order, and all but what the message itself brought.
        assert text.startswith("".join(part.data["text"] for part in parts))
        assert all(len(part.raw) < 1024 + 100 for part in parts)


@pytest.mark.parametrize("gather", [-0.01, 1.01, float("nan")])
def test_gather_has_bounds(session: Session, gather: float) -> None:
    """A text waits for a second at most: an exit of the interpreter waits for it."""
    with pytest.raises(ValueError, match="gather must be 0 to 1 seconds"):
        session.stream(gather=gather)


def test_what_was_gathered_is_written_when_the_block_raises(session: Session) -> None:
    """An error leaves all that was written, as a partial message; a discarded stream leaves nothing."""
    with suppress(KeyError), session.stream(gather=1) as stream:
        for text in ("a", "b", "c"):
            stream.write(text)
        raise KeyError
    assert session.messages() == [{"role": "assistant", "content": "abc", "partial": True}]
    with session.stream(gather=1) as stream:
        for text in ("a", "b", "c"):
            stream.write(text)
        stream.discard()
    assert len(session.messages()) == 1
    assert no_thread_waits()


def no_thread_waits(seconds: float = 60.0) -> bool:
    """Return whether the thread that flushes streams ends soon."""
    deadline = time.monotonic() + seconds
    while any(thread.name == "hansard-stream" for thread in threading.enumerate()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def test_a_flush_that_fails_is_tried_again(syncing: Session) -> None:
    """N-29: what cannot be written stays gathered; the next text brings it, or the error."""
    stream = syncing.stream(gather=1)
    stream.write("a")
    stream._due += 60  # on a busy machine, a second may pass here
    with faults.short("half"):
        stream.write("b")
        with streaming._flusher._changed:
            streaming._flusher.due[stream] = 0
            streaming._flusher._changed.notify()
        assert no_thread_waits()
    assert syncing.messages(last=1)[0]["content"] == "a"
    stream.write("c")
    stream.flush()
    assert syncing.messages(last=1)[0]["content"] == stream.text == "abc"


KILLED = """
import os, sys, threading, time
import hansard

stream = hansard.open(sys.argv[1], durability="os").session("s").stream()
for text in ("a", "b", "c"):
    stream.write(text)
if sys.argv[2] == "kill":
    while any(thread.name == "hansard-stream" for thread in threading.enumerate()):
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
if sys.argv[2] == "fork":
    # The child has the same texts, and its parent writes them.
    if os.fork() == 0:
        stream.flush()
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("end", ["kill", "fork", "exit"])
def test_what_is_older_than_gather_survives_its_process(tmp_path: Path, end: str) -> None:
    """N-39: a killed process has stored all but its last 50 ms; one that exits has stored all, once."""
    path = tmp_path / "store"
    process = subprocess.run([sys.executable, "-c", KILLED, str(path), end], check=False)
    assert process.returncode == (-9 if end == "kill" else 0)
    with hansard.open(path) as store:
        (message,) = store.session("s").messages()
        assert message == {"role": "assistant", "content": "abc", "partial": True}


def test_json_shows_unfinished_streams_where_messages_do(tmp_path: Path) -> None:
    """Before, between and after other messages, two at one place, and from every seq on."""
    session = hansard.open(tmp_path, durability="os").session("s")
    for count in (2, 1, 0, 1):
        for number in range(count):
            session.stream(gather=0).write(f"{count}-{number}")
        for number in range(count):
            session.add_message({"role": "user", "content": f"after {count}-{number}"})
    session.append("x.other", {})
    session.stream(gather=0).write("last")
    assert sum("partial" in message for message in session.messages()) == 5
    for after in range(session.seq + 1):
        assert json.loads(session.messages_json(after=after)) == session.messages(after=after)
    assert hansard.open(tmp_path).session("none").messages_json() == b"[]"
