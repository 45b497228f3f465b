"""Claims about messages that are said bit by bit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from hansard import Session
from tests.crashlab import faults


def test_a_finished_message_is_one_message(session: Session) -> None:
    """A streamed message reads like an added one; its parts are events and not messages."""
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


def test_what_is_over_is_over(session: Session) -> None:
    """A finished or discarded stream takes no more text; other types are refused."""
    done, gone = session.stream(), session.stream()
    done.write("a")
    done.finish()
    gone.discard()
    for stream in (done, gone):
        for call in (lambda: stream.write("b"), stream.finish, stream.discard):  # noqa: B023
            with pytest.raises(hansard.InvalidEvent, match="begin another"):
                call()
    with pytest.raises(hansard.InvalidEvent, match="must be a string, got dict"):
        session.stream().write({"a": 1})  # type: ignore[arg-type]
    with pytest.raises(hansard.InvalidEvent):
        session.stream(role="user", of={1, 2})
    with pytest.raises(hansard.InvalidEvent):
        session.stream().write("\ud800")
    assert session.seq == 2


@pytest.fixture
def syncing(tmp_path: Path) -> Iterator[Session]:
    """Return a warm session of a store that syncs."""
    with hansard.open(tmp_path / "store", durability="sync") as store:
        session = store.session("s")
        session.add_message({"n": 1})
        session.add_message({"n": 2})
        yield session


def test_parts_are_not_synced_and_the_message_is(syncing: Session) -> None:
    """N-37: a hundred parts cost one write each and no sync; the message is synced once."""
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
        # The session's directory, and its parent.
        assert after.count("sync_directory") == 2, (before, after)


def test_an_error_in_write_says_so_and_keeps_the_rest(syncing: Session) -> None:
    """N-29: a part that cannot be written raises; earlier parts stay."""
    stream = syncing.stream()
    stream.write("a")
    with faults.short("half"), pytest.raises(hansard.HansardError):
        stream.write("b")
    stream.write("c")
    assert stream.text == "ac"
    assert syncing.messages(last=1)[0]["content"] == "ac"
    assert stream.finish().message == {"role": "assistant", "content": "ac"}


def test_a_message_begun_before_a_revert_is_shown_whole(session: Session) -> None:
    """N-59: a view after a revert includes the beginning of a message that continues after it."""
    stream = session.stream()
    stream.write("one ")
    session.add_message({"role": "user", "content": "dropped"})
    reverted = session.revert(1)
    stream.write("two")
    expected = [{"role": "assistant", "content": "one two", "partial": True}]
    assert session.messages(after=reverted.seq) == session.messages(last=1) == expected
