"""What snapshots, reverts, summaries, redactions and clears do to the views of a session."""

from datetime import UTC
from typing import Any

import pytest

import hansard
from hansard.message import tool_calls
from hansard.state import view


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
    """N-49, N-89: a revert and its replacement are appended together, at the expected seq, or not at all."""
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
    assert session.numbered()[1].seq == 7
    assert session.numbered()[1].message["content"] == "e"
    with session.stream(gather=0) as message:
        message.write("par")
        assert told(last=1) == [(9, "par")]
    assert [text for _, text in told()] == texts(session)


def test_views_are_repaired_on_request(session: hansard.Session) -> None:
    """N-55, N-59: `repair=True` answers calls without a result, and completes unfinished messages."""
    say(session, "one")
    session.add_message({"role": "assistant", "tool_calls": [{"id": "c1"}]})
    session.stream(gather=0).write("half")
    assert [problem.call_id for problem in session.pairing()] == ["c1"]
    for shown in (session.messages(repair=True), session.window(messages=9, repair=True)):
        assert tool_calls.problems(shown) == []
        assert "partial" not in str(shown)
    with pytest.raises(ValueError, match="turns"):
        session.window(turns=-1)


def test_a_window_keeps_what_a_model_needs(session: hansard.Session) -> None:
    """The system message, the summary and the question of a long turn stay in the window, and count."""
    session.add_message({"role": "system", "content": "be kind"})
    say(session, "task")
    for number in range(100):
        session.add_message({"role": "assistant", "content": f"step {number}"})

    def shown(**limits: Any) -> list[Any]:
        return [message.get("content") for message in session.window(**limits)]

    for _ in range(2):
        assert shown(messages=4) == ["be kind", "task", "step 98", "step 99"]
        # The list is the caller's, also when the session knows how the view begins.
        for message in session.window(messages=4):
            message.clear()
    assert shown(messages=2, keep_system=False) == ["task", "step 99"]
    assert shown(messages=2, keep_system=False, start_on=None) == ["step 98", "step 99"]
    assert shown(messages=2, end_on="user") == ["be kind", "task"]
    # The shortest list that a model accepts, even over the limit.
    assert shown(messages=2) == ["be kind", "task", "step 99"]
    assert shown(tokens=1) == ["be kind", "task", "step 99"]
    assert shown(messages=1) == ["be kind"]
    session.summarize(upto=90, message={"role": "user", "content": "so far"})
    assert shown(messages=2) == ["so far", "step 99"]
    assert shown(messages=2, keep_system=False) == ["so far", "step 99"]
    assert shown(messages=2, start_on="assistant") == ["so far", "step 99"]
    session.clear()
    session.add_message({"role": "assistant", "content": "hello"})
    assert shown() == ["hello"]
    say(session, "hi")
    assert shown() == ["hi"]


def test_a_fork_knows_the_label_that_it_was_forked_at(store: hansard.Store) -> None:
    """The state and the first event of a fork have the name of the snapshot, if one was given."""
    session = store.session("s")
    say(session, "a")
    session.snapshot("draft")
    for at, label in (("draft", "draft"), (1, "")):
        fork = session.fork(at=at)
        assert next(fork.events(after=1)).data.get("label", "") == label
        assert fork.state().forked_label == label
        assert fork.fork().state().forked_label == ""


def test_times_in_results_are_datetimes(store: hansard.Store) -> None:
    """Times of states, listings, hits and transcripts are datetimes in UTC; None without events."""
    session = store.session("s")
    assert (session.state().created, session.state().updated) == (None, None)
    event = session.add_message({"role": "user", "content": "hello"})
    (info,) = store.sessions()
    (hit,) = store.search("hello")
    (entry,) = session.transcript().entries
    assert {session.state().created, info.created, info.updated, hit.time, entry.time} == {
        event.time
    }
    assert {session.state().updated_stamp, info.created_stamp, hit.stamp, entry.stamp} == {
        event.stamp
    }
    assert event.time.tzinfo is UTC


def test_a_page_is_a_sequence_of_sessions(store: hansard.Store) -> None:
    """A page can be iterated and has a length; without a limit it has all sessions."""
    for number in range(3):
        say(store.session(f"s{number}"), "a")
    page = store.sessions(limit=2)
    assert ([info.id for info in page], len(page)) == (["s0", "s1"], 2)
    assert [info.id for info in store.sessions()] == ["s0", "s1", "s2"]


def test_a_window_of_a_new_session_shows_nothing_of_a_purged_one(store: hansard.Store) -> None:
    """A handle keeps the beginning of a long view, and not after its id became another session's."""
    session = store.session("s")
    for life in ("old", "new"):
        session.add_message({"role": "system", "content": f"{life} rules"})
        say(session, f"{life} task", *["step"] * 100)
        shown = [message["content"] for message in session.window(messages=3, keep_first=True)]
        assert shown == [f"{life} rules", f"{life} task", "step"]
        store.delete("s")
        store.purge("s")


def test_a_window_does_not_depend_on_how_much_is_read_at_first(session: hansard.Session) -> None:
    """With several limits, an earlier turn still counts, and reasoning stays with what it led to."""
    say(session, "one")
    session.add_messages([{"role": "assistant", "content": "step"}] * 80)
    say(session, "two")
    session.add_messages([{"role": "assistant", "content": "step"}] * 20)
    assert len(session.window(turns=1, messages=50, start_on=None)) == 21
    session.add_message({"type": "reasoning", "id": "r", "summary": []})
    session.add_message({"role": "assistant", "tool_calls": [{"id": "long"}]})
    session.add_messages([{"role": "assistant", "content": "step"}] * 62)
    session.add_message({"role": "tool", "tool_call_id": "long", "content": "done"})
    window = session.window(tokens=1, start_on=None)
    assert (window[0].get("type"), len(window)) == ("reasoning", 65)


def test_a_summary_that_is_redacted_during_a_revert_is_not_added_again(
    session: hansard.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-66: `keep_summary` copies the summary as it is when the revert is appended."""
    say(session, "a", "b", "c")
    seq = session.summarize(upto=2, message={"role": "system", "content": "hunter2"}).seq
    read = view.ranges_of

    def redacted(*args: Any, **options: Any) -> view.ViewRanges:
        found = read(*args, **options)
        monkeypatch.undo()
        session.redact(seq)
        return found

    monkeypatch.setattr(view, "ranges_of", redacted)
    session.revert(3, keep_summary=True, messages=iter([{"role": "user", "content": "d"}]))
    assert "hunter2" not in str([event.raw for event in session.events()])
    assert texts(session) == ["a", "b", "c", "d"]
