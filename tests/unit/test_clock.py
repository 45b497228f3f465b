"""Times as strings, and pauses between polls."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from hansard import clock
from hansard.clock import Backoff


def test_stamps_sort_by_time() -> None:
    """A time is written in UTC with four digits for the year and six after the second."""
    times = [datetime(24, 5, 1, tzinfo=UTC), datetime(2026, 1, 31, 12, tzinfo=UTC), clock.now()]
    stamps = [clock.stamp(when) for when in times]
    assert stamps == sorted(stamps)
    assert stamps[:2] == ["0024-05-01T00:00:00.000000Z", "2026-01-31T12:00:00.000000Z"]
    east = timezone(timedelta(hours=2))
    assert clock.stamp(datetime(2026, 1, 31, 14, tzinfo=east)) == stamps[1]


def test_a_time_without_a_zone_is_refused() -> None:
    """Which moment it is cannot be known."""
    with pytest.raises(ValueError, match="has no time zone"):
        clock.stamp(datetime(2026, 1, 31))  # noqa: DTZ001 - the point


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let time pass only by sleeping; return the pauses."""
    pauses: list[float] = []
    monkeypatch.setattr("hansard.clock.time.monotonic", lambda: sum(pauses))
    monkeypatch.setattr("hansard.clock.time.sleep", pauses.append)
    return pauses


def test_pauses_double_up_to_a_limit_and_end_at_the_deadline(slept: list[float]) -> None:
    """The last pause is cut at the deadline, and after it there is none."""
    backoff = Backoff(20, first=1, longest=6)
    while backoff.sleep():
        assert len(slept) < 10
    assert slept == [1, 2, 4, 6, 6, 1]
    assert not Backoff(0).sleep()


def test_a_slow_poll_is_followed_by_a_longer_pause(slept: list[float]) -> None:
    """With `share`, a pause lasts at least that many times as long as the poll before it."""
    backoff = Backoff(1000, first=1, longest=4, share=20)
    backoff.begin()
    slept.append(3)  # the poll took so long
    assert backoff.next_pause() == 60
