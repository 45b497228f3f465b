"""Streams of tool calls, and streams that another process continues."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.programs import python

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "Ro'}}


def test_a_cut_call_is_shown_as_partial(session: hansard.Session) -> None:
    """Views show the name and the arguments as far as they came; the end of the message replaces them."""
    stream = session.stream(gather=0)
    stream.write("Let me see.")
    stream.write_call(id="c1", name="look")
    stream.write_call('{"at": ')
    stream.write_call('"Ro')
    stream.write_call("{}", index=1, id="c2", name="now")
    other = {"id": "c2", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    shown = {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, other]}
    assert session.messages() == [{**shown, "partial": True}]
    assert session.messages(last=1) == session.messages(after=4)
    assert stream.message == shown
    assert stream.text == "Let me see."
    page = session.transcript(5)
    assert page.entries[-1].message == {**shown, "partial": True}
    # A model never made the call that was cut.
    repaired = session.messages(repair=True)
    assert repaired[0]["tool_calls"] == [other]
    assert [message["role"] for message in repaired] == ["assistant", "tool"]
    stream.write_call('me"}')
    event = stream.finish()
    assert event.message is not None
    assert event.message["tool_calls"][0]["function"]["arguments"] == '{"at": "Rome"}'
    assert session.messages() == [event.message]


def test_a_message_of_calls_only_has_no_content(session: hansard.Session) -> None:
    """As in OpenAI's chat, a message that only calls has the content None."""
    with session.stream() as stream:
        stream.write_call("{}", id="c", name="f")
    assert session.messages()[0]["content"] is None


@pytest.mark.parametrize("given", [{"arguments": 1}, {"index": -1}, {"index": "0"}, {"id": None}])
def test_pieces_of_calls_are_checked(session: hansard.Session, given: dict[str, Any]) -> None:
    """A piece that cannot be stored is refused, and is not part of the message."""
    stream = session.stream()
    with pytest.raises(hansard.InvalidEvent):
        stream.write_call(**given)
    assert "tool_calls" not in stream.message


WRITER = """
import os, signal, sys, hansard
stream = hansard.open(sys.argv[1]).session("s").stream(gather=0, name="n")
stream.write("Far ")
stream.write_call(id="c1", name="look")
stream.write_call('{"at": "Ro')
print(stream.id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_another_process_continues_a_stream_after_a_kill(tmp_path: Path) -> None:
    """A killed process leaves the text and the call; another one continues both, and finishes."""
    killed = python(
        "-c",
        WRITER,
        tmp_path / "store",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert killed.returncode == -signal.SIGKILL
    with hansard.open(tmp_path / "store") as store:
        session = store.session("s")
        begun = {"role": "assistant", "name": "n", "content": "Far ", "tool_calls": [CALL]}
        assert session.messages() == [{**begun, "partial": True}]
        assert list(session.state().streams) == [killed.stdout.strip()]
        with session.stream(resume=killed.stdout.strip()) as stream:
            assert stream.message == begun
            stream.write("away")
            stream.flush()
            assert session.messages()[0]["content"] == "Far away"
            stream.write_call('me"}')
        message = session.messages()[0]
        assert (message["name"], message["content"]) == ("n", "Far away")
        assert message["tool_calls"][0]["function"]["arguments"] == '{"at": "Rome"}'
        assert session.state().streams == {}


def test_only_an_unfinished_stream_can_be_resumed(session: hansard.Session) -> None:
    """A stream that is unknown, finished, discarded or redacted is refused."""
    ended = [session.stream(gather=0) for _ in range(3)]
    for stream in ended:
        stream.write("secret")
    ended[0].finish()
    ended[1].discard()
    session.redact(session.state().streams[ended[2].id])
    for stream_id in ("unknown", *(stream.id for stream in ended)):
        with pytest.raises(hansard.InvalidEvent, match="no unfinished stream"):
            session.stream(resume=stream_id)


def test_secrets_in_streamed_calls_are_found(session: hansard.Session) -> None:
    """A secret that extends over two pieces of a call is redacted in a share, and scrubbed."""
    stream = session.stream(gather=0)
    stream.write_call('{"key": "sk-proj-abcdefghij', id="c", name="f")
    stream.write_call('klmnopqrstuvwxyz0123456789ABCD"}')
    assert "klmnopq" not in str([event.data for event in session.events()][:1])
    shared = str(list(session.share()))
    assert "abcdefghij" not in shared
    assert "klmnopq" not in shared
    session.scrub()
    assert "klmnopq" not in str(session.messages())
