"""Redactions hold everywhere, at all times, and permanently."""

from typing import Any

import msgspec

from hansard import Event
from hansard.state import redaction
from hansard.state.redaction import BLANK, BLANK_MESSAGE, NOTHING


def event(seq: int, kind: str, /, **data: Any) -> Event:
    """Return an event."""
    return Event(seq, "2026-01-01T00:00:00.000000Z", kind, msgspec.json.encode(data))


def redacted(seq: int, of: int, /, **data: Any) -> Event:
    """Return an event that takes another one out."""
    return event(seq, "message.redacted", seq=of, **data)


def test_what_is_taken_out_leaves_its_place() -> None:
    """N-66: a redacted event keeps seq, time, kind and key, and nothing of its content."""
    found = redaction.of([redacted(9, 1), redacted(10, 2), redacted(11, 3)])
    said = event(1, "message.added", message={"content": "secret"}, stream="s")
    summary = event(2, "summary.added", upto=1, message={"content": "secret"})
    masked = found.mask(said)
    assert masked == msgspec.structs.replace(said, raw=BLANK_MESSAGE)
    assert masked.message is None
    assert found.mask(summary).raw == BLANK
    other = event(4, "message.added", message={"content": "fine"})
    assert found.mask(other) is other


def test_an_event_of_another_shape_takes_nothing_out() -> None:
    """N-43: a redaction of an unknown shape is ignored."""
    assert redaction.of([event(1, "message.redacted", place="here")]) is NOTHING


def dropped(seq: int, before: int, /, **data: Any) -> Event:
    """Return an event that drops history before a seq."""
    return event(seq, "history.dropped", before=before, **data)


def test_what_was_said_before_a_bound_is_out_and_what_was_done_is_not() -> None:
    """F-119: messages, parts, summaries and application events are dropped; the state stays."""
    found = redaction.of([dropped(20, 10)])
    assert found
    out = [
        event(1, "message.added", message={"n": 1}),
        event(2, "summary.added", upto=1, message={"n": 1}),
        event(3, "x.todo", secret=1),
    ]
    assert [found.mask(one).raw for one in out] == [BLANK_MESSAGE, BLANK, BLANK]
    part = event(4, "message.part", stream="s", text="secret", message={"role": "user"})
    assert found.mask(part).data == {"stream": "s", "over": True, "redacted": True}
    assert found.mask(event(5, "message.part", of="a newer version")).raw == BLANK
    done = [
        event(6, "metadata.set", metadata={"a": 1}),
        event(7, "usage.recorded", model="m"),
        event(8, "session.snapshotted", label="l", seq=3),
        event(9, "of.a.newer.version", secret=1),
        event(10, "message.added", message={"n": 1}),
    ]
    assert all(found.mask(one) is one for one in done)
