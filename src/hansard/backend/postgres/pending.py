"""An append on its way, and what it and its session go by in the tables.

Above: `append`, `staging`, and whoever asks for a session.  Below: `backend.contract`, `event`.
"""

import hashlib
import os
import time
from itertools import count
from typing import Final

from hansard.backend.contract import AppendRequest
from hansard.errors import BackendUnavailable
from hansard.event.envelope import Event


def session_number(session_id: str) -> str:
    """Return what a session goes by in the tables: 128 bits of a hash of its id.

    An id may have 4,096 bytes, and an index takes 2,700.
    """
    return _number(b"session\0" + session_id.encode())


def _number(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]


class _Drawn:
    """Ids that nobody else has: 64 bits of time, and 64 that were drawn once and are counted up.

    Each is later than those before it, so they come to lie side by side in the index. A tenth of the time of
    `names.new_id`, which draws anew each time: these are unique in a session, and no secret.
    """

    __slots__ = ("_counted",)

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Draw anew: a child that counted on would count as its parent does."""
        self._counted = count(int.from_bytes(os.urandom(8)))

    def next(self) -> str:
        """Return one; a step of `count` is one step for all threads."""
        return f"{time.time_ns():016x}{next(self._counted) & _64_BITS:016x}"


_64_BITS: Final = (1 << 64) - 1

_drawn = _Drawn()
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_drawn.forget)


class PendingInsert:
    """An append on its way; whoever does it sets `events` or `error`."""

    __slots__ = ("error", "events", "id", "request", "size")

    def __init__(self, request: AppendRequest) -> None:
        self.request = request
        new = request.events
        self.size = len(new[0].data) if len(new) == 1 else sum(len(one.data) for one in new)
        key = request.key
        self.id = _drawn.next() if key is None else _number(b"key\0" + key.encode())
        #: What it has become; of nothing, nothing.
        self.events: list[Event] | None = None if new else []
        self.error: Exception | None = None

    @property
    def alone(self) -> bool:
        """Whether it goes without others."""
        request = self.request
        return request.expected_seq is not None or request.new_only or request.before != 0

    @property
    def single(self) -> bool:
        """Whether it is one event, and nothing beside it."""
        return len(self.request.events) == 1

    def outcome(self) -> list[Event]:
        """Return its events, or raise."""
        if self.error is not None:
            raise self.error
        if self.events is None:
            raise BackendUnavailable(
                "an append that was to go together with another thread's was not done, since that "
                "thread was interrupted; nothing of it was appended: try again"
            )
        return self.events
