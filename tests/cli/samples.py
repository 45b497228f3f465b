"""Stores for the command to show."""

from pathlib import Path

import hansard
from tests.unit.disk_probe import flip

#: What would turn a terminal red, set its title, and wipe it.
HOSTILE = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202e"


def agent(path: Path) -> None:
    """Make a store with messages of every shape, in `agent/1`, and a fork of it at seq 5, `agent/1-b`."""
    with hansard.open(path, durability="os") as store:
        session = store.create("agent/1", metadata={"title": "Refund", "user": "u7"})
        session.add_message({"role": "system", "content": "You are **helpful**."})
        session.add_message({"role": "user", "content": "Where is my refund?\nI asked twice."})
        called = {"name": "lookup", "arguments": '{"order": 42, "deep": true}'}
        session.add_message(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": called}],
            }
        )
        session.add_message({"role": "tool", "tool_call_id": "c1", "content": "sent " * 100})
        session.snapshot("looked")  # 6
        with session.stream(gather=0) as answer:  # 7 to 9
            answer.write("It was ")
            answer.write("sent.")
        session.record_usage(model="m", input_tokens=1000, output_tokens=20, cost=0.5)  # 10
        session.append("x.todo", {"task": "call back"})  # 11
        session.set_metadata(user="u8")  # 12
        fork = session.fork("agent/1-b", at="looked")
        fork.add_message({"role": "user", "content": "Another way."})  # 7 of the fork


def damage(path: Path, name: str = "agent+1") -> None:
    """Flip a bit in the middle of a log."""
    flip(path / "sessions" / name / "log.jsonl")
