"""Claims about messages that are said bit by bit."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Session, Store
from tests.crashlab import faults


def test_a_finished_message_is_one_message(session: Session) -> None:
    """A streamed message reads as if it had been added whole; its parts are events and no messages."""
    with session.stream(role="assistant", name="n") as stream:
        stream.write("par")
        stream.write("")
        assert session.messages() == [
            {"role": "assistant", "name": "n", "content": "par", "partial": True}
        ]
        stream.write("tial\u2028")
        assert (stream.text, stream.event) == ("partial\u2028", None)
    whole = {"role": "assistant", "name": "n", "content": "partial\u2028"}
    assert session.messages() == session.messages(last=1) == session.messages(view="history")
    assert session.messages() == [whole]
    assert [event.kind for event in session.events()] == ["message.part"] * 2 + ["message.added"]
    assert stream.event is not None
    assert (stream.event.seq, stream.event.message) == (3, whole)
    assert session.state().streams == {}
    assert session.state().message_count == 1


def test_a_better_message_can_stand_for_the_parts(session: Session) -> None:
    """`finish(message)` adds what the framework says the message is, tool calls and all."""
    stream = session.stream()
    stream.write("let me see")
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
    stream.finish(message)
    assert session.messages() == [message]


def test_a_discarded_message_was_never_there(session: Session) -> None:
    """What was discarded is in no view, now or later; its parts stay in the log."""
    stream = session.stream()
    stream.write("no")
    assert len(session.messages()) == 1
    stream.discard()
    session.add_message({"n": 1})
    for view in VIEWS:
        assert session.messages(view=view) == session.messages(view=view, last=5) == [{"n": 1}]
    assert session.state().streams == {}
    assert [event.kind for event in session.events()][:2] == ["message.part"] * 2


VIEWS: tuple[Any, Any] = ("model", "history")


def test_nothing_written_is_nothing(session: Session, store: Store) -> None:
    """A stream that was opened, left, or discarded without a word makes no event and no session."""
    with session.stream():
        pass
    session.stream().discard()
    stream = session.stream()
    stream.write("")
    assert not store.exists("s")
    stream.finish({"role": "assistant", "content": ""})
    (event,) = session.events()
    assert event.data == {"message": {"role": "assistant", "content": ""}}


def test_what_is_over_is_over(session: Session) -> None:
    """A finished or discarded stream takes no more; what is not text is refused, and nothing is added."""
    done, gone = session.stream(), session.stream()
    done.write("a")
    done.finish()
    gone.discard()
    for stream in (done, gone):
        for call in (lambda: stream.write("b"), stream.finish, stream.discard):  # noqa: B023
            with pytest.raises(hansard.InvalidEvent, match="begin another"):
                call()
    with pytest.raises(hansard.InvalidEvent, match="text, not dict"):
        session.stream().write({"a": 1})  # type: ignore[arg-type]
    with pytest.raises(hansard.InvalidEvent):
        session.stream(role="user", of={1, 2})
    with pytest.raises(hansard.InvalidEvent):
        session.stream().write("\ud800")
    assert session.seq == 2


def test_a_run_that_raises_keeps_what_was_said(session: Session) -> None:
    """N-59: an error inside the block leaves what was written, marked as partial, and goes on its way."""
    session.add_message({"role": "user", "content": "go"})

    def run() -> None:
        with session.stream() as stream:
            stream.write("I wi")
            raise RuntimeError("the model is gone")

    with pytest.raises(RuntimeError, match="model"):
        run()
    partial = {"role": "assistant", "content": "I wi", "partial": True}
    assert session.messages(last=1) == [partial]
    assert json.loads(session.messages_json(last=1)) == [partial]
    assert list(session.state().streams.values()) == [2]
    session.add_message({"role": "user", "content": "and?"})
    assert [message["content"] for message in session.messages()] == ["go", "I wi", "and?"]


@pytest.mark.parametrize("which", ["part", "last part", "message"])
def test_a_redaction_by_any_part_takes_the_whole_message_out(session: Session, which: str) -> None:
    """N-66: whichever of its events is named, a streamed message is gone whole, finished or not."""
    for finished in (True, False):
        stream = session.stream()
        first = session.seq + 1
        stream.write("sec")
        stream.write("ret")
        if finished:
            stream.finish()
        elif which == "message":
            continue
        session.redact(first + {"part": 0, "last part": 1, "message": 2}[which])
        for seq in [None, *range(session.seq + 1)]:
            for view in VIEWS:
                assert session.messages(at=seq, view=view) == []
                assert session.messages(at=seq, view=view, last=3) == []
        assert "ret" not in repr(list(session.events()))
        assert session.state().streams == {}


@pytest.fixture
def syncing(tmp_path: Path) -> Iterator[Session]:
    """Return a warm session of a store that syncs."""
    with hansard.open(tmp_path / "store", durability="sync") as store:
        session = store.session("s")
        session.add_message({"n": 1})
        session.add_message({"n": 2})
        yield session


def test_parts_are_not_synced_and_the_message_is(syncing: Session) -> None:
    """N-37: a hundred parts cost no sync and one write each; the message they become is synced once."""
    stream = syncing.stream()
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
        other = syncing.stream()
        other.write("x")
        other.discard()
    assert [call.operation for call in seen.calls].count("sync") == 1


def test_what_parts_begin_is_durable_with_their_message(tmp_path: Path) -> None:
    """N-37, F-31: a session that begins with a part has its directories synced with the first message."""
    with hansard.open(tmp_path / "store", durability="sync") as store:
        session = store.session("s")
        stream = session.stream()
        with faults.record() as seen:
            stream.write("a")
        before = [call.operation for call in seen.calls]
        with faults.record() as seen:
            stream.finish()
        after = [call.operation for call in seen.calls]
        assert after.count("sync") == 1
        # The session's own directory, and the one that it stands in.
        assert after.count("sync_directory") == 2, (before, after)


def test_an_error_in_write_says_so_and_keeps_the_rest(syncing: Session) -> None:
    """N-29: a part that could not be written is an error; what was written before it is there."""
    stream = syncing.stream()
    stream.write("a")
    with faults.short("half"), pytest.raises(hansard.HansardError):
        stream.write("b")
    stream.write("c")
    assert stream.text == "ac"
    assert syncing.messages(last=1)[0]["content"] == "ac"
    assert stream.finish().message == {"role": "assistant", "content": "ac"}
