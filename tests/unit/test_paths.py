"""What snapshots, reverts, summaries, redactions and clears do to the views of a session."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import hansard

Message = dict[str, Any]


def say(session: hansard.Session, *texts: str) -> None:
    """Append messages, one by one."""
    for text in texts:
        session.add_message({"role": "user", "content": text})


def texts(session: hansard.Session, **options: Any) -> list[str]:
    """Return what a view shows."""
    return [message["content"] for message in session.messages(**options)]


def test_a_revert_goes_back_and_erases_nothing(session: hansard.Session) -> None:
    """N-49: after a revert the model view ends at its seq, and the history view shows all."""
    say(session, "a", "b", "c")
    assert session.revert(1).seq == 4
    say(session, "d")
    assert texts(session) == ["a", "d"]
    assert texts(session, view="history") == ["a", "b", "c", "d"]
    assert texts(session, last=1) == ["d"]
    assert texts(session, last=9) == ["a", "d"]
    assert texts(session, after=1) == ["d"]


def test_a_revert_can_keep_the_summary(session: hansard.Session) -> None:
    """N-49: a revert to before a summary was added keeps it, if that is wished, in one append."""
    say(session, "a", "b", "c", "d")
    session.summarize(upto=2, message={"role": "system", "content": "a and b"})
    assert texts(session) == ["a and b", "c", "d"]
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


def test_reverting_the_revert_brings_the_later_turns_back(session: hansard.Session) -> None:
    """N-49: a revert to a seq before another revert shows what was shown then."""
    say(session, "a", "b", "c")
    session.revert(1)
    say(session, "d")
    session.revert(3)
    assert texts(session) == ["a", "b", "c"]
    session.revert(5)
    assert texts(session) == ["a", "d"]
    assert texts(session, at=3) == ["a", "b", "c"]
    assert texts(session, at=4) == ["a"]
    assert texts(session, at=5) == ["a", "d"]


def test_a_snapshot_is_a_place_to_come_back_to(session: hansard.Session) -> None:
    """N-48: a revert to a snapshot shows exactly what was there; the later of two labels counts."""
    say(session, "a")
    session.snapshot("start")
    say(session, "b")
    session.snapshot("middle")
    say(session, "c")
    assert session.snapshots == {"start": 1, "middle": 3}
    session.revert("middle")
    assert texts(session) == ["a", "b"]
    session.revert("start")
    assert texts(session) == ["a"]
    session.snapshot("middle")
    assert session.snapshots["middle"] == 7
    assert session.state().snapshots == session.snapshots


def test_a_revert_to_nowhere_is_refused(session: hansard.Session) -> None:
    """A revert to a seq or label that is not there is an error, and appends nothing."""
    say(session, "a")
    for place in (2, -1, True, "nowhere"):
        with pytest.raises(hansard.InvalidEvent):
            session.revert(place)
    assert session.seq == 1
    session.revert(0)
    assert texts(session) == []


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
    """Each message of a view is told with the seq at which it stands, and a summary with its event's."""
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
    with session.stream() as message:
        message.write("par")
        assert told(last=1) == [(9, "par")]
    assert [text for _, text in told()] == texts(session)


def test_a_summary_stands_for_what_it_sums_up(session: hansard.Session) -> None:
    """The model view shows the summary and what came after its seq; the history view shows all."""
    say(session, "a", "b", "c")
    session.summarize(upto=2, message={"role": "system", "content": "a and b"})
    say(session, "d")
    assert texts(session) == ["a and b", "c", "d"]
    assert texts(session, view="history") == ["a", "b", "c", "d"]
    assert texts(session, last=2) == ["c", "d"]
    assert texts(session, last=3) == ["a and b", "c", "d"]
    assert texts(session, at=3) == ["a", "b", "c"]
    assert session.messages_json().startswith(b'[{"role":"system","content":"a and b"},')
    session.summarize(upto=5, message={"role": "system", "content": "all"})
    assert texts(session) == ["all"]
    session.revert(5)
    assert texts(session) == ["a and b", "c", "d"]
    session.revert(3)
    assert texts(session) == ["a", "b", "c"]


def test_a_clear_begins_anew(session: hansard.Session) -> None:
    """N-47: after a clear the model view is empty, summaries included, and can be brought back."""
    say(session, "a", "b")
    session.summarize(upto=1, message={"role": "system", "content": "sum"})
    session.clear()
    assert texts(session) == []
    say(session, "c")
    assert texts(session) == ["c"]
    assert texts(session, view="history") == ["a", "b", "c"]
    session.revert(3)
    assert texts(session) == ["sum", "b"]


def test_a_redacted_message_is_gone_from_every_view(session: hansard.Session) -> None:
    """A redaction holds for every view and every time, whatever is reverted."""
    say(session, "a", "secret", "c")
    session.redact(2, reason="asked for")
    assert texts(session) == ["a", "c"]
    assert texts(session, view="history") == ["a", "c"]
    assert texts(session, at=2) == ["a"]
    assert texts(session, last=2) == ["a", "c"]
    assert b"secret" not in session.messages_json(view="history")
    session.revert(2)
    assert texts(session) == ["a"]
    session.revert(0)
    session.revert(3)
    assert texts(session) == ["a", "c"]


def test_only_a_message_can_be_redacted(session: hansard.Session) -> None:
    """To redact what is no message, or is not there, is an error."""
    say(session, "a")
    session.set_metadata(title="t")
    for seq in (0, 2, 3):
        with pytest.raises(hansard.InvalidEvent):
            session.redact(seq)
    session.summarize(upto=1, message={"role": "system", "content": "sum"})
    session.redact(3)
    assert texts(session) == ["a"]


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


def test_time_travel_by_the_clock(session: hansard.Session) -> None:
    """`at` takes a time, and means the last event written by then."""
    say(session, "a", "b", "c")
    times = [event.time for event in session.events()]
    assert texts(session, at=times[-1]) == ["a", "b", "c"]
    assert texts(session, at=times[0] - timedelta(seconds=1)) == []
    assert session.state(at=datetime.now(tz=UTC) + timedelta(days=1)).seq == 3
    assert session.state(at=times[0] - timedelta(days=1)).seq == 0
    with pytest.raises(ValueError, match="time zone"):
        session.messages(at=times[0].replace(tzinfo=None))


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
    """A window of a long session is that of the whole view, whether or not the end is enough."""
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
    # The call before all these turns is answered behind them, so no turn before that may begin.
    assert shown(turns=401) == ["last"]


def test_nothing_that_shortens_a_view_shortens_the_history(store: hansard.Store) -> None:
    """N-45, N-47: after reverts, clears, summaries and windows every message is still in the history."""
    session = store.session("long")
    said = [{"role": ("user", "assistant")[n % 2], "n": n} for n in range(30)]
    for number, message in enumerate(said):
        session.add_message(message)
        if number % 7 == 3:
            session.revert(session.seq // 2)
        if number % 11 == 5:
            session.clear()
        if number % 13 == 9:
            session.summarize(upto=session.seq, message={"role": "system", "content": "short"})
    session.archive()
    session.close()
    assert len(session.window(turns=1)) < len(said)
    assert len(session.messages()) < len(said)
    assert session.messages(view="history") == said
