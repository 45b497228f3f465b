"""Claims about a session that is taken up again: what was kept, and where one can go back to."""

import copy
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Session, Store
from hansard.message import tool_calls

USER = {"role": "user", "content": "what is 6 × 7?"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "42"}


# -- what was said ------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [0, 1, 3])
@pytest.mark.parametrize("given", [0, 1, 3, 4])
def test_a_restored_history_is_not_doubled(stored: int, given: int, session: Session) -> None:
    """N-58: what the caller has already is not added again, and what it has beyond it stays."""
    said: list[dict[str, Any]] = [
        {"role": "user", "content": "yes"},
        CALL,
        RESULT,
        {"role": "user", "content": "new"},
    ]
    session.add_messages(said[:stored])
    history = copy.deepcopy(said[:given])
    added = session.restore_into(history)
    assert history == said[: max(stored, given)]
    assert added == max(0, stored - given)
    assert session.restore_into(history) == 0
    assert session.seq == stored


def test_a_caller_s_own_beginning_stays_behind(session: Session) -> None:
    """N-58: a list that has nothing in common gets the session's messages in front of its own."""
    session.add_messages([USER, CALL])
    history = [{"role": "user", "content": "new"}]
    assert session.restore_into(history) == 2
    assert history == [USER, CALL, {"role": "user", "content": "new"}]
    history[0]["content"] = "changed"
    assert session.messages()[0] == USER


class BrokenModel(Exception):
    """What a model raises in the middle of a run."""


def run(session: Session, prompt: dict[str, Any], *, fails_at: str) -> None:
    """Do what an agent does: store each thing when it happens, and not at the end."""

    def step(name: str) -> None:
        if name == fails_at:
            raise BrokenModel(name)

    session.add_message(prompt)
    step("before the call")
    session.add_message(CALL)
    step("before the result")
    session.add_message(RESULT)
    with session.stream() as stream:
        stream.write("The answer ")
        step("amid the answer")
        stream.write("is 42.")
    step("after the answer")


@pytest.mark.parametrize(
    ("fails_at", "kept"),
    [
        ("before the call", [USER]),
        ("before the result", [USER, CALL]),
        (
            "amid the answer",
            [USER, CALL, RESULT, {"role": "assistant", "content": "The answer ", "partial": True}],
        ),
        (
            "after the answer",
            [USER, CALL, RESULT, {"role": "assistant", "content": "The answer is 42."}],
        ),
    ],
)
def test_a_run_that_fails_keeps_all_that_was_done(
    fails_at: str, kept: list[dict[str, Any]], tmp_path: Path
) -> None:
    """N-59: whenever a run raises, the user's turn, finished tools and begun answers are stored."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store, pytest.raises(BrokenModel):
        run(store.session("s"), USER, fails_at=fails_at)
    with hansard.open(root, durability="os") as store:
        session = store.session("s")
        assert session.messages() == kept
        # And the next run goes on from there, with a history that every model accepts.
        session.add_message({"role": "user", "content": "again"})
        assert tool_calls.problems(session.messages(repair=True)) == []
        assert "partial" not in str(session.messages(repair=True))


def test_what_was_given_and_what_was_got_can_be_changed(store: Store) -> None:
    """N-63: changing what was passed to, or came from, forks, streams and states changes no session."""
    session = store.session("s")
    fields: dict[str, Any] = {"meta": {"a": [1]}}
    stream = session.stream(**fields)
    fields["meta"]["a"].append(2)
    stream.write("x")
    better = {"role": "assistant", "content": ["x"], **copy.deepcopy(fields)}
    session.set_metadata(tags=["t"])
    session.snapshot("start")
    summary = {"role": "system", "parts": [1]}
    session.summarize(upto=0, message=summary)
    summary["parts"] = []
    child = session.fork("c")
    for one in (session, child):
        expected = [{"role": "system", "parts": [1]},
                    {"role": "assistant", "meta": {"a": [1]}, "content": "x", "partial": True}]  # fmt: skip
        for view in (one.messages(), one.messages(last=2), one.window(messages=2)):
            assert view == expected
            view[1]["meta"]["a"].append(3)
            view[0].clear()
            view.clear()
        one.snapshots.clear()
        one.metadata["tags"].append("u")
        state = one.state()
        state.metadata["tags"].append("u")
        state.snapshots.clear()
        state.streams.clear()
        state.kinds.clear()
        one.children().append("ghost")
        assert one.messages() == expected
        assert (one.metadata, one.snapshots) == ({"tags": ["t"]}, {"start": 2})
        assert (one.state().streams, one.state().metadata) == ({stream.id: 1}, {"tags": ["t"]})
    event = stream.finish(better)
    better["content"] = []
    event.data.clear()
    assert session.messages()[1]["content"] == ["x"]


# -- going back ---------------------------------------------------------------------------------


def test_the_first_message_is_kept_once(session: Session) -> None:
    """A first user message that is in the window anyway does not stand in it twice, however long it is."""
    session.add_messages([{"role": "assistant", "n": number} for number in range(100)])
    session.add_message(USER)
    session.add_messages([{"role": "assistant", "n": number} for number in range(20)])
    assert session.window(messages=30, keep_first=True).count(USER) == 1
    assert session.window(messages=10, keep_first=True)[0] == USER
