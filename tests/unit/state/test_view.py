"""Which messages a view shows, and how little of a log it reads for them."""

from typing import Any

import pytest

from hansard.backend.contract import AppendRequest, LogReader
from hansard.backend.memory import MemoryBackend
from hansard.event import codec
from hansard.event.event import NewEvent
from hansard.state import view


def drafts(count: int, *, kind: str = "message.added") -> list[NewEvent]:
    """Return drafts of messages, or of events that look like some."""
    return [
        NewEvent(kind, codec.encode({"message": {"n": number}}), control=False)
        for number in range(count)
    ]


def filled(messages: int = 3_500) -> LogReader:
    """Return a log of several chunks: messages, with others between."""
    log = MemoryBackend().log("s")
    log.append(AppendRequest(drafts(10, kind="x.before")))
    log.append(AppendRequest(drafts(messages)))
    log.append(AppendRequest(drafts(2_500, kind="x.after")))
    return log.reader()


def last(*args: Any, **options: Any) -> list[Any]:
    """Return the last messages, without their seqs."""
    return [message for _, message in view.read_last(*args, **options)]


@pytest.mark.parametrize("take", [view.decoded, view.encoded])
def test_the_last_are_the_end_of_all(take: view.MessageFormat[Any]) -> None:
    """`read_last` returns the end of what `read_all` returns, even if chunks have no messages."""
    log = filled()
    ranges = view.ranges_of(log)
    everything = view.read_all(log, take, ranges)
    assert len(everything) == 3_500
    for count in (0, 1, 999, 1_000, 1_001, 3_500, 9_999):
        assert last(log, take, ranges, count) == everything[len(everything) - min(count, 3_500) :]
    assert view.read_all(log, take, view.ranges_of(log, upto=12), after=10) == everything[:2]
    assert last(log, take, ranges, 5, after=3_508) == everything[-2:]
    assert last(log, take, view.ranges_of(log, upto=10), 5) == []
