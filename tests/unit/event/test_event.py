"""An event never changes, and its data belong to the reader."""

import pickle
from datetime import UTC, datetime

import pytest

from hansard import Event

EVENT = Event(
    7, "2026-02-03T04:05:06.000007Z", "message.added", b'{"message":{"a":[1]},"later":1}', "k"
)


def test_an_event_decodes_its_data() -> None:
    """N-43: `data`, `message` and `time` are read from the stored bytes; unknown fields stay."""
    assert EVENT.data == {"message": {"a": [1]}, "later": 1}
    assert EVENT.message == {"a": [1]}
    assert EVENT.time == datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert Event(1, EVENT.stamp, "x.a", b'{"message":{}}').message is None


def test_an_event_never_changes() -> None:
    """N-63: an event's fields cannot be set, and each read of its data is a new object."""
    with pytest.raises(AttributeError):
        EVENT.seq = 8  # type: ignore[misc]
    EVENT.data["message"]["a"].append(2)
    message = EVENT.message
    assert message is not None
    message.clear()
    assert EVENT.data["message"] == {"a": [1]}


def test_an_event_can_be_pickled() -> None:
    """An event can be pickled, compared and put into a set."""
    assert pickle.loads(pickle.dumps(EVENT)) == EVENT  # noqa: S301
    assert len({EVENT, Event(EVENT.seq, EVENT.stamp, EVENT.kind, EVENT.raw, EVENT.key)}) == 1
