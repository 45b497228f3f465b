"""`hansard diff`: what two sessions share, and where they differ."""

from pathlib import Path

import pytest

import hansard as library
from tests.cli.running import hansard


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a store with two runs of one agent that went different ways."""
    with library.open(tmp_path / "runs", durability="os") as store:
        for name, order, answer in (("run/1", 1, "sent"), ("run/2", 2, "lost")):
            session = store.session(name)
            session.add_message({"role": "user", "content": "Where is it?"})
            for call_id, tool in ((f"{name}-a", "lookup"), (f"{name}-b", "today")):
                given = f'{{"order": {order}}}' if tool == "lookup" else "{}"
                called = {"name": tool, "arguments": given}
                calls = [{"id": call_id, "type": "function", "function": called}]
                session.add_message({"role": "assistant", "content": None, "tool_calls": calls})
                said = {"role": "tool", "tool_call_id": call_id, "content": answer}
                session.add_message(said)
    return tmp_path / "runs"


def test_a_fork_and_what_it_was_forked_from(store: Path) -> None:
    """Base, first difference, messages, metadata and usage are told, with exit 1."""
    done = hansard("diff", "agent/1", "agent/1-b", store=store)
    assert (done.code, done.err) == (1, "")
    assert done.out.splitlines()[:7] == [
        "- agent/1@12",
        "+ agent/1-b@7",
        "common up to seq 5 of agent/1",
        "messages: 4 in both, 1 only in -, 1 only in +",
        "they differ after 4 messages: at seq 9 of -, at seq 7 of +",
        "  -    9  assistant: It was sent.",
        "  +    7  user: Another way.",
    ]
    assert "  - user = u8\n  + user = u7\n" in done.out
    assert "  - m = " in done.out


def test_the_same_is_exit_0(store: Path) -> None:
    """A session is the same as itself, and as its fork where that begins; points are named with @."""
    for words in (("agent/1", "agent/1"), ("agent/1@looked", "agent/1-b@6")):
        done = hansard("diff", *words, store=store)
        assert (done.code, done.err) == (0, "")
        assert "equal: " in done.out
    done = hansard("diff", "agent/1@3", "agent/1@2026-01-01", "--json", store=store)
    assert (done.code, done.json["b"]["seq"]) == (1, 0)


def test_tool_calls_are_compared(runs: Path) -> None:
    """A call with other arguments, and one with another answer, are told side by side."""
    done = hansard("diff", "run/1", "run/2", store=runs)
    assert done.code == 1
    assert "not related" in done.out
    told = done.out[done.out.index("tool calls:") :].splitlines()
    assert told == [
        "tool calls:",
        "  lookup: different arguments",
        '    -    2  lookup({"order": 1}) ← sent',
        '    +    2  lookup({"order": 2}) ← lost',
        "  today: same arguments, different result",
        "    -    4  today({}) ← sent",
        "    +    4  today({}) ← lost",
    ]
    document = hansard("diff", "run/1", "run/2", "--json", store=runs).json
    assert [call["what"] for call in document["calls"]] == ["arguments", "result"]
    assert document["calls"][0]["b"]["arguments"] == {"order": 2}
    assert document["divergence"] == {"after": 1, "a": 2, "b": 2}
    assert (document["equal"], document["base"], document["same"]) == (False, None, 1)


def test_ids_and_labels_with_the_sign_in_them(tmp_path: Path) -> None:
    """The longest existing id is the session; the rest is the point, even if it contains an @."""
    with library.open(tmp_path / "s", durability="os") as store:
        session = store.session("me@example.com")
        session.add_message({"role": "user", "content": "1"})
        session.snapshot("a@b")
        session.add_message({"role": "user", "content": "2"})
    at = tmp_path / "s"
    assert hansard("diff", "me@example.com", "me@example.com", store=at).code == 0
    one = hansard("diff", "me@example.com@a@b", "me@example.com@1", "--json", store=at)
    assert (one.code, one.json["a"]["seq"], one.json["equal"]) == (0, 1, True)
