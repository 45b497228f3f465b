"""Redactions hold everywhere, at all times, and permanently."""

from typing import Any

import msgspec

from hansard import Event
from hansard.state import redaction
from hansard.state.redaction import BLANK, BLANK_MESSAGE, NOTHING, Redactions


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


def test_data_can_stand_instead() -> None:
    """A scrubbed message is shown without its secrets; after a redaction without data it stays empty."""
    clean = {"message": {"content": "[redacted]"}}
    later = {"message": {"content": "back again"}}
    found = redaction.of([redacted(9, 1, data=clean)])
    said = event(1, "message.added", message={"content": "secret"})
    assert found.mask(said).data == clean
    gone = redaction.of([redacted(9, 1, data=clean), redacted(10, 1), redacted(11, 1, data=later)])
    assert gone.seqs == {1: None}
    cleaner = redaction.of([redacted(9, 1, data=later), redacted(10, 1, data=clean)])
    assert cleaner.mask(said).data == clean


def test_an_ancestor_s_redactions_count_up_to_the_fork() -> None:
    """N-50: an ancestor's redactions of later events count only for streams that began before."""
    controls = [redacted(20, 3), redacted(21, 12), redacted(22, 13, stream="s")]
    found = redaction.of(controls, upto=10)
    assert found == Redactions({3: None}, frozenset("s"), frozenset("s"))
    assert redaction.of(controls[1:2], upto=10) is NOTHING
    only_streamed = redaction.of(controls[2:], upto=10)
    assert only_streamed
    assert redaction.joined([only_streamed]) == only_streamed


def test_an_event_of_another_shape_takes_nothing_out() -> None:
    """N-43: a redaction of an unknown shape is ignored."""
    assert redaction.of([event(1, "message.redacted", place="here")]) is NOTHING


# -- dropped history ----------------------------------------------------------------------------


def dropped(seq: int, before: int, /, **data: Any) -> Event:
    """Return an event that drops what was said before a seq."""
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


def test_of_several_bounds_the_highest_counts_and_none_for_what_comes_after() -> None:
    """F-119: a bound is never after its own event, nor after the point of a fork."""
    controls = [dropped(8, 5), dropped(9, 3), dropped(12, 99), dropped(13, "no seq")]  # type: ignore[arg-type]
    assert redaction.of(controls[:2]).before == 5
    assert redaction.of(controls).before == 12
    assert redaction.of(controls, upto=7).before == 8
    assert redaction.of(controls, upto=0) is NOTHING
    assert redaction.of([dropped(8, 1)]) is NOTHING
    both = redaction.joined([redaction.of(controls[:1]), redaction.of(controls[:2], upto=3)])
    assert both.before == 5


def test_a_bound_stands_for_all_redactions_before_it() -> None:
    """F-119: redactions before a bound are not listed, with or without data; those of metadata are."""
    controls = [
        redacted(11, 1),
        redacted(12, 2, kind="message.added", data={"message": {"n": "rest"}}),
        redacted(14, 4, kind="x.todo", data={"n": "rest"}),
        redacted(15, 5, kind="metadata.set", data={"metadata": {"n": "[redacted]"}}),
        redacted(17, 19),
    ]
    assert set(redaction.of(controls).seqs) == {1, 2, 4, 5, 19}
    controls.append(dropped(20, 10))
    found = redaction.of(controls)
    assert set(found.seqs) == {5, 19}
    masked = [found.mask(control) for control in controls]
    assert [new.seq for new, old in zip(masked, controls, strict=True) if new is not old] == [
        12,
        14,
    ]
    assert b"rest" not in b"".join(control.raw for control in masked)
    # Masking the masked events changes nothing more.
    assert redaction.of(masked) == found
    assert all(found.mask(control) is control for control in masked)


def test_what_stood_instead_goes_with_the_message() -> None:
    """F-121, N-66: a redaction without data also removes the rest that a scrub left."""
    rest = redacted(8, 1, stream="s", kind="message.added", data={"message": {"content": "rest"}})
    parts = redacted(9, 2, stream="t", kind="message.part", data={"stream": "t"})
    assert redaction.of([rest, parts]).mask(rest) is rest
    found = redaction.of([rest, parts, redacted(10, 1, stream="s"), redacted(11, 2)])
    assert found.mask(rest).data["data"] == {"redacted": True}
    assert found.mask(parts) is parts
    assert (
        redaction.of([found.mask(rest), parts, redacted(10, 1, stream="s"), redacted(11, 2)])
        == found
    )


def test_streams_that_were_dropped_unfinished_are_out_wherever_their_parts_are() -> None:
    """N-55: later parts of a dropped stream are not shown; its complete message is."""
    found = redaction.of([dropped(20, 10, streams=["s"])])
    later = event(25, "message.part", stream="s", text="rest")
    assert found.mask(later).data == {"stream": "s", "over": True, "redacted": True}
    whole = event(26, "message.added", message={"content": "all of it"}, stream="s")
    assert found.mask(whole) is whole
