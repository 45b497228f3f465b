"""What is taken out is gone: everywhere, at all times, and for good."""

from typing import Any

import msgspec
import pytest

from hansard import Event
from hansard.state import redaction
from hansard.state.redaction import BLANK, BLANK_MESSAGE, NOTHING, Redactions


def event(seq: int, kind: str, /, **data: Any) -> Event:
    """Return an event."""
    return Event(seq, "2026-01-01T00:00:00.000000Z", kind, msgspec.json.encode(data))


def redacted(seq: int, of: int, /, **data: Any) -> Event:
    """Return an event that takes another one out."""
    return event(seq, "message.redacted", seq=of, **data)


def test_nothing_is_nothing() -> None:
    """Without redactions nothing is masked, and the answer is false."""
    assert redaction.of([event(1, "metadata.set", metadata={})]) is NOTHING
    assert redaction.joined([NOTHING, NOTHING]) is NOTHING
    assert not NOTHING
    message = event(2, "message.added", message={"n": 1})
    assert NOTHING.mask(message) is message


def test_what_is_taken_out_leaves_its_place() -> None:
    """N-66: a redacted event keeps seq, time, kind and key; of its content nothing is left."""
    found = redaction.of([redacted(9, 1), redacted(10, 2), redacted(11, 3)])
    said = event(1, "message.added", message={"content": "secret"}, stream="s")
    summary = event(2, "summary.added", upto=1, message={"content": "secret"})
    masked = found.mask(said)
    assert masked == msgspec.structs.replace(said, raw=BLANK_MESSAGE)
    assert masked.message is None
    assert found.mask(summary).raw == BLANK
    other = event(4, "message.added", message={"content": "fine"})
    assert found.mask(other) is other


def test_what_was_streamed_goes_with_its_message() -> None:
    """A redaction that names a stream masks all its parts, and says of them that no more is to come."""
    found = redaction.of([redacted(9, 3, stream="s")])
    part = event(2, "message.part", stream="s", text="secret", message={"role": "user"})
    assert found.mask(part).data == {"stream": "s", "over": True, "redacted": True}
    own = event(3, "message.part", stream="s", text="secret")
    assert found.mask(own).data == {"stream": "s", "over": True, "redacted": True}
    other = event(4, "message.part", stream="t", text="fine")
    assert found.mask(other) is other
    odd = event(5, "message.part", of="a newer version")
    assert found.mask(odd) is odd


def test_data_can_stand_instead() -> None:
    """A message that was only rid of its secrets is shown without them; once gone, it stays gone."""
    clean = {"message": {"content": "[redacted]"}}
    later = {"message": {"content": "back again"}}
    found = redaction.of([redacted(9, 1, data=clean)])
    said = event(1, "message.added", message={"content": "secret"})
    assert found.mask(said).data == clean
    gone = redaction.of([redacted(9, 1, data=clean), redacted(10, 1), redacted(11, 1, data=later)])
    assert gone.seqs == {1: None}
    cleaner = redaction.of([redacted(9, 1, data=later), redacted(10, 1, data=clean)])
    assert cleaner.mask(said).data == clean


@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_that_leave_something_the_stricter_counts(swapped: bool) -> None:
    """Joined, a place is gone if it is gone for one of them, in whatever order they come."""
    both = [Redactions({1: b"{}", 2: None}, frozenset("s")), Redactions({1: None}, frozenset("t"))]
    if swapped:
        both.reverse()
    assert redaction.joined(both) == Redactions({1: None, 2: None}, frozenset("st"))
    assert redaction.joined([NOTHING, *both]) == redaction.joined(both)


def test_an_ancestor_s_redactions_count_up_to_the_fork() -> None:
    """N-50: what an ancestor takes out behind the fork says nothing, but for what was streamed before it."""
    controls = [redacted(20, 3), redacted(21, 12), redacted(22, 13, stream="s")]
    found = redaction.of(controls, upto=10)
    assert found == Redactions({3: None}, frozenset("s"), frozenset("s"))
    assert redaction.of(controls[1:2], upto=10) is NOTHING
    only_streamed = redaction.of(controls[2:], upto=10)
    assert only_streamed
    assert redaction.joined([only_streamed]) == only_streamed


def test_an_event_of_another_shape_takes_nothing_out() -> None:
    """N-43: a redaction that a newer version wrote in another shape is passed over, not guessed at."""
    assert redaction.of([event(1, "message.redacted", place="here")]) is NOTHING
