"""What is asked of a log, and what became of it: a request to append, and its result."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from hansard.errors import SeqConflict, SessionExists


class Entry(Protocol):
    """What is to become one record. `data` is a JSON object, as bytes."""

    @property
    def kind(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def control(self) -> bool: ...
    @property
    def time(self) -> str | None: ...


class AppendRequest(msgspec.Struct, frozen=True, gc=False):
    """Events to append to a session, all or none, and on which conditions.

    A struct like the events: it costs 30 ns, where a named tuple costs 400.
    """

    events: Sequence[Entry]
    #: The idempotency key: the events of an earlier append with the same key are returned instead.
    key: str | None = None
    #: The session's seq, 0 if it does not exist; `SeqConflict` if it has another.
    expected_seq: int | None = None
    #: The session must not exist; `SessionExists` if it does.
    new_only: bool = False
    #: The seq before the first event, if this append begins the session.
    before: int = 0
    #: False: no sync must come before the answer; a later append or `sync` makes the events durable.
    durable: bool = True

    def refusal(
        self, session_id: str, seq: int, *, exists: bool
    ) -> SessionExists | SeqConflict | None:
        """Return why a session at this seq does not meet the conditions; None if it does."""
        if self.new_only and exists:
            return SessionExists(f"session {session_id!r} exists already, at seq {seq}")
        if self.expected_seq is not None and self.expected_seq != seq:
            return seq_conflict(session_id, self.expected_seq, seq)
        return None


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """Where an append went. `duplicate`: its key was known, and these are the earlier events."""

    first: int
    length: int
    time: str
    duplicate: bool = False


def seq_conflict(session_id: str, expected: int, actual: int) -> SeqConflict:
    """Return the error for a session that is at another seq."""
    return SeqConflict(
        f"session {session_id!r} is at seq {actual}, not at the expected {expected}; "
        "nothing was appended: read what is new and decide again",
        expected=expected,
        actual=actual,
    )
