"""Times as events have them, and pauses between two polls.

A time is stored in UTC, with six digits after the second: such strings sort by time. The appending path makes
its own, in `log.format`.
"""

import time
from datetime import UTC, datetime
from typing import Final


def stamp(when: datetime) -> str:
    """Return a time as events have it, such as `2026-01-31T12:00:00.000000Z`."""
    if when.tzinfo is None:
        raise ValueError(f"{when!r} has no time zone; pass one, such as datetime.UTC")
    # `strftime` writes the year 24 with two digits on some systems.
    return f"{when.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def moment(stamp: str) -> datetime | None:
    """Return the time of a stamp; None if it is empty, or not a time."""
    try:
        return datetime.fromisoformat(stamp)
    except ValueError:
        return None


class Dated:
    """What has the stamps of its first and its last activity."""

    __slots__ = ()
    created_stamp: str
    updated_stamp: str

    @property
    def created(self) -> datetime | None:
        """The time of the first event; None without events."""
        return moment(self.created_stamp)

    @property
    def updated(self) -> datetime | None:
        """The time of the last event; in a listing, of the last activity. None without events."""
        return moment(self.updated_stamp)


#: The names of these stamps in JSON.
STAMPS: Final = {"created_stamp": "created", "updated_stamp": "updated"}


def now() -> datetime:
    """Return the current time, in UTC."""
    return datetime.fromtimestamp(time.time(), UTC)


class Backoff:
    """Pauses between polls: they double up to a limit, and end at a deadline.

    Args:
        timeout: seconds until the deadline.
        first: the first pause, in seconds.
        longest: the longest pause, in seconds.
        share: a pause lasts at least this many times as long as the poll before it took.
    """

    __slots__ = ("_began", "_deadline", "_longest", "_pause", "_share")

    def __init__(
        self, timeout: float, *, first: float = 0.001, longest: float = 0.05, share: float = 0
    ) -> None:
        self._began = time.monotonic()
        self._deadline = self._began + timeout
        self._pause = first
        self._longest = longest
        self._share = share

    def next_pause(self) -> float | None:
        """Return how long to pause now; None if the deadline has passed."""
        at = time.monotonic()
        if at >= self._deadline:
            return None
        pause = min(max(self._pause, self._share * (at - self._began)), self._deadline - at)
        self._pause = min(2 * self._pause, self._longest)
        return pause

    def begin(self) -> None:
        """Note that a poll begins, after a pause."""
        self._began = time.monotonic()

    def sleep(self) -> bool:
        """Pause; return False, without a pause, if the deadline has passed."""
        pause = self.next_pause()
        if pause is None:
            return False
        time.sleep(pause)
        self.begin()
        return True
