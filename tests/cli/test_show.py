"""`hansard show`: the state of a session, and its messages."""

from pathlib import Path

import hansard as library
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard


def test_state_and_messages_are_those_of_the_library(store: Path) -> None:
    """`show --json` has the state and the messages that the library gives, and the forks."""
    with library.open(store, read_only=True) as opened:
        session = opened.session("agent/1")
        messages, history = session.messages(), session.messages(view="history")
        at = session.messages(at=3)
    shown = hansard("show", "agent/1", "--json", store=store).json
    assert shown["messages"] == messages
    assert shown["children"] == ["agent/1-b"]
    assert shown["state"]["usage"]["m"]["calls"] == 1
    assert shown["bytes"] > 0
    last = hansard("show", "agent/1", "--json", "-n", "2", "--view", "history", store=store).json
    assert last["messages"] == history[-2:]
    assert hansard("show", "agent/1", "--json", "--at", "3", store=store).json["messages"] == at


def test_a_person_reads_title_state_and_messages(store: Path, terminal: OpenTerminal) -> None:
    """`show` tells title, counts, metadata, snapshots, usage, forks and the messages, on a terminal too."""
    told = hansard("show", "agent/1", store=store)
    assert told.code == 0
    for part in (
        "agent/1 “Refund”",
        "12",
        "u8",
        "snapshot looked",
        "1 call, 1,000 tokens in, 20 out, cost 0.5",
        "agent/1-b",
        "model view: 5 messages",
        "It was sent.",
    ):
        assert part in told.out
    shown = terminal("show", "agent/1-b", store=store, rows=60)
    assert shown.wait() == 0
    assert "agent/1 at 5" in shown.text
    assert "Another way." in shown.text
    part = hansard("show", "agent/1", "-n", "2", store=store).out
    assert "model view: 2 of 5 messages" in part
    assert ("It was sent." in part, "I asked twice." in part) == (True, False)
