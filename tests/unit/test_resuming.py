"""Resuming a session: what was stored, and copies that callers may change."""

import copy
from typing import Any

import pytest

from hansard import Session, Store

USER = {"role": "user", "content": "what is 6 × 7?"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "42"}


@pytest.mark.parametrize("stored", [0, 1, 3])
@pytest.mark.parametrize("given", [0, 1, 3, 4])
def test_a_restored_history_is_not_doubled(stored: int, given: int, session: Session) -> None:
    """N-58: `restore_into` does not add messages that the list has, and keeps later ones."""
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


def test_restored_messages_precede_the_caller_s(session: Session) -> None:
    """N-58: a list with other messages gets the session's messages before them."""
    session.add_messages([USER, CALL])
    history = [{"role": "user", "content": "new"}]
    assert session.restore_into(history) == 2
    assert history == [USER, CALL, {"role": "user", "content": "new"}]
    history[0]["content"] = "changed"
    assert session.messages()[0] == USER


def test_arguments_and_results_are_copies(store: Store) -> None:
    """N-63: changing arguments or results of sessions, forks and streams changes nothing that is stored."""
    plain: dict[str, Any] = {"content": {"list": [1]}}
    store.session("plain").add_message(plain)
    plain["content"]["list"].append(2)
    for event in store.session("plain").events():
        event.data["message"]["content"]["list"].append(3)
    assert store.session("plain").messages() == [{"content": {"list": [1]}}]
    session = store.session("s")
    fields: dict[str, Any] = {"meta": {"a": [1]}}
    stream = session.stream(gather=0, **fields)
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
