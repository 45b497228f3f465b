"""Append every kind of event to a session, read all of it, and search every file for it."""

from typing import Any

from hansard import Session

HIDDEN = "correct-horse-battery"


def said(session: Session) -> dict[str, Any]:
    """Return everything that can be asked of a session."""
    seq = session.seq
    times = [event.time for event in session.events()]
    return {
        "events": [
            (event.seq, event.kind, event.data, event.key, event.time) for event in session.events()
        ],
        "at": [session.messages(at=n) for n in range(seq + 1)],
        "history": session.messages(view="history"),
        "model": session.messages(),
        "json": session.messages_json(),
        "last": [session.messages(last=n) for n in (0, 1, 3, 1000)],
        "after": [session.messages(after=n) for n in range(0, seq + 2, 3)],
        "window": [session.window(messages=n) for n in (1, 3, 10)],
        "state": session.state(),
        "states": [session.state(at=n) for n in range(0, seq + 1, 4)],
        "times": [session.messages(at=time) for time in times[::5]],
        "snapshots": session.snapshots,
        "usage": session.usage,
        "metadata": session.metadata,
        "title": session.title,
        "parent": session.parent,
        "children": session.children(),
        "seq": seq,
    }


def talk(session: Session, begin: int = 0, count: int = 12) -> None:
    """Append every kind of event."""
    for number in range(begin, begin + count):
        session.add_message({"role": "user", "content": f"q{number}"}, key=f"k{number}")
        call = {"id": f"c{number}"}
        session.add_messages(
            [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": "r" * number},
            ],
            key=f"pair{number}",
        )
        if number % 4 == 0:
            session.snapshot(f"s{number}")
            session.patch_metadata({"round": number})
            session.record_usage(model="m", input_tokens=number, output_tokens=1)
    session.set_title(f"title {begin}")
