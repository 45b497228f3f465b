"""What snapshots, reverts, summaries, redactions and clears do to the views of a session."""

from typing import Any

import pytest

import hansard


def say(session: hansard.Session, *texts: str) -> None:
    """Append messages, one by one."""
    for text in texts:
        session.add_message({"role": "user", "content": text})


def texts(session: hansard.Session, **options: Any) -> list[str]:
    """Return what a view shows."""
    return [message["content"] for message in session.messages(**options)]


def test_a_revert_can_keep_the_summary(session: hansard.Session) -> None:
    """N-49: a revert to before a summary was added keeps it, if that is wished, in one append."""
    say(session, "a", "b", "c", "d")
    session.summarize(upto=2, message={"role": "system", "content": "a and b"})
    assert texts(session) == ["a and b", "c", "d"]
    assert session.messages_json().startswith(b'[{"role":"system","content":"a and b"},')
    said = [{"role": "user", "content": "e"}]
    event = session.revert(3, keep_summary=True, messages=said, expected_seq=5)
    assert texts(session) == ["a and b", "c", "e"]
    assert [one.kind for one in session.events(after=event.seq)] == [
        "summary.added",
        "message.added",
    ]
    with pytest.raises(hansard.SeqConflict):
        session.revert(3, keep_summary=True, expected_seq=5)
    session.revert(3)
    assert texts(session) == ["a", "b", "c"]
    session.revert(1, keep_summary=True)
    assert texts(session) == ["a"]


def test_a_revert_can_say_something_else_instead(session: hansard.Session) -> None:
    """N-49, N-89: a revert and what is said in its place come together, at the expected seq, or not."""
    say(session, "a", "b", "c")
    instead = [{"role": "user", "content": text} for text in "xy"]
    assert session.revert(1, messages=instead, expected_seq=3).seq == 4
    assert texts(session) == ["a", "x", "y"]
    assert texts(session, view="history") == ["a", "b", "c", "x", "y"]
    with pytest.raises(hansard.SeqConflict):
        session.revert(0, messages=instead, expected_seq=3)
    with pytest.raises(hansard.InvalidEvent):
        session.revert(0, messages=[*instead, {"content": float("nan")}])
    assert (session.seq, texts(session)) == (6, ["a", "x", "y"])


def test_messages_are_told_with_their_seqs(session: hansard.Session) -> None:
    """Each message of a view has its seq, and a summary with its event's."""
    say(session, "a", "b", "c")
    session.set_title("T")
    say(session, "d")
    session.revert(2)
    say(session, "e")

    def told(**options: Any) -> list[tuple[int, str]]:
        return [(seq, message["content"]) for seq, message in session.numbered(**options)]

    assert told() == [(1, "a"), (2, "b"), (7, "e")]
    assert told(last=1) == [(7, "e")]
    assert told(last=0) == []
    assert told(after=1) == [(2, "b"), (7, "e")]
    assert told(at=5) == [(1, "a"), (2, "b"), (3, "c"), (5, "d")]
    assert told(view="history") == [(1, "a"), (2, "b"), (3, "c"), (5, "d"), (7, "e")]
    session.summarize(upto=2, message={"role": "system", "content": "S"})
    assert told() == [(8, "S"), (7, "e")]
    with session.stream(gather=0) as message:
        message.write("par")
        assert told(last=1) == [(9, "par")]
    assert [text for _, text in told()] == texts(session)


def test_usage_adds_up_by_model(session: hansard.Session) -> None:
    """Recorded usage is summed for each model; a revert does not give the tokens back."""
    session.record_usage(model="m1", input_tokens=10, output_tokens=5, cost=0.25)
    session.record_usage(model="m1", input_tokens=1, output_tokens=2, cost=0.5, cached_tokens=7)
    session.record_usage(model="m2", input_tokens=3)
    session.revert(0)
    assert session.usage == {
        "m1": hansard.Usage(calls=2, input_tokens=11, output_tokens=7, cost=0.75),
        "m2": hansard.Usage(calls=1, input_tokens=3, output_tokens=0, cost=0.0),
    }
    with pytest.raises(hansard.InvalidEvent):
        session.record_usage(model="m1", input_tokens="many")  # type: ignore[arg-type]
    assert list(session.events())[1].data["cached_tokens"] == 7


def test_a_window_of_a_session(session: hansard.Session) -> None:
    """N-55: a window shows the end of the model view and keeps calls with their results."""
    say(session, "one")
    session.add_message({"role": "assistant", "tool_calls": [{"id": "c1"}]})
    session.add_message({"role": "tool", "tool_call_id": "c1", "content": "4"})
    say(session, "two")
    assert [m.get("content") for m in session.window(messages=2)] == ["two"]
    assert [m.get("content") for m in session.window(messages=2, keep_first=True)] == ["one", "two"]
    assert len(session.window(messages=3)) == 3
    assert len(session.window(turns=1)) == 1
    assert session.window(tokens=0) == []
    with pytest.raises(ValueError, match="turns"):
        session.window(turns=-1)
    assert session.pairing() == []
    session.add_message({"role": "tool", "tool_call_id": "c2", "content": "?"})
    assert session.pairing() == [hansard.Problem("orphan result", 4, "c2")]


def test_a_window_of_a_long_session_is_cut_from_its_end(session: hansard.Session) -> None:
    """A window of a long session is that of the complete view, whether or not the end is enough."""
    session.add_message({"role": "system", "content": "be kind"})
    say(session, "first")
    session.add_message({"role": "assistant", "tool_calls": [{"id": "long"}]})
    say(session, *[f"{number}" for number in range(400)])
    session.add_message({"role": "tool", "tool_call_id": "long", "content": "done"})
    say(session, "last")

    def shown(**limits: Any) -> list[Any]:
        return [message.get("content") for message in session.window(**limits)]

    assert shown(messages=2) == ["last"]
    assert shown(messages=2, keep_first=True) == ["first", "last"]
    assert len(shown(messages=500)) == 405
    assert len(shown(turns=402)) == 405
    # The call before all these turns is answered after them, so no turn before that may begin.
    assert shown(turns=401) == ["last"]
