"""What a store asks of the place where its sessions live.

Above: `state`, `upkeep`, `store`, `session`.  Below: `event`, `errors`.
Two nouns: a `Backend` holds sessions, a `Log` is one session in it. Both are safe to use from many
threads, and so is what they point to from many processes. `hansard.testing.contract` holds each
promise below as a check that every backend must pass.

All backends promise:

1. An append is all there or not at all, in the order and with the seqs that were returned.
2. When `append` returns, its events are as durable as the backend's `durability` says.
3. Of two appends with one key, the first counts; the second returns the first one's events, also if its
   `expected_seq` would not match.
4. Reads see a prefix of the session: never a later event without all earlier ones, never half an append.
5. Reading writes nothing.
6. What cannot be read is an error; it is never an empty session.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hansard.event.envelope import Draft, Event


class Head(NamedTuple):
    """Where a session stands."""

    #: The last event's seq.
    seq: int
    #: When the session began, and when its last event was written: RFC 3339 text.
    created: str
    updated: str
    #: Bytes that the session takes where it lives.
    size: int


class Finding(NamedTuple):
    """Something that `verify` found."""

    #: "damage" must be repaired; "note" is normal after a crash, and only said.
    severity: str
    where: str
    offset: int
    length: int
    reason: str


class Health(NamedTuple):
    """What a probe of the backend found out; one that fails raises instead."""

    where: str
    durability: str
    writable: bool
    free_bytes: int | None


class Chunk(ABC):
    """Some events that follow one another, decoded as far as the caller asks."""

    __slots__ = ()

    @abstractmethod
    def events(self) -> list[Event]:
        """Return the events."""

    @abstractmethod
    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        """Return seq and message of each `message.added` event; the messages are the caller's."""

    @abstractmethod
    def messages_json(self) -> list[tuple[int, bytes]]:
        """Return seq and message, as the stored JSON, of each `message.added` event."""


class Log(ABC):
    """One session in a backend."""

    __slots__ = ()

    session_id: str

    @abstractmethod
    def append(
        self,
        drafts: Sequence[Draft],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
        new_only: bool = False,
    ) -> list[Event]:
        """Append all drafts or none, and return them as events.

        The first append to a session makes it. `key`: an earlier append with the same key is
        returned instead. `expected_seq`: the session's seq, 0 if it does not exist, or `SeqConflict`.
        `new_only`: the session must not exist, or `SessionExists`.
        """

    @abstractmethod
    def head(self) -> Head | None:
        """Return where the session stands; None if it does not exist. Costs no scan."""

    @abstractmethod
    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        """Yield the events with after < seq <= upto, in order, in pieces of bounded size."""

    @abstractmethod
    def read_back(self, upto: int | None = None, after: int = 0) -> Iterator[Chunk]:
        """Yield the same from the last chunk to the first; inside a chunk events stand in order."""

    @abstractmethod
    def controls(self, upto: int | None = None) -> list[Event]:
        """Return the control events with seq <= upto. Costs their number, not the session's."""

    @abstractmethod
    def wait(self, after: int, timeout: float) -> bool:
        """Wait until there is an event with a higher seq than `after`; False if none came in time."""

    @abstractmethod
    def verify(self) -> list[Finding]:
        """Check all that is stored of the session, and return what is wrong with it.

        If a sync has failed and nothing is found, the session can be appended to again.
        `SessionNotFound` if there is no such session: nothing is not whole.
        """


class Backend(ABC):
    """Holds sessions."""

    __slots__ = ()

    #: Where it is, for people; without credentials.
    where: str
    read_only: bool
    durability: str

    @abstractmethod
    def log(self, session_id: str) -> Log:
        """Return a session, which need not exist yet. Touches nothing."""

    @abstractmethod
    def ids(self) -> Iterator[str]:
        """Yield the ids of all sessions, unsorted; one that cannot be read is among them."""

    @abstractmethod
    def delete(self, session_id: str) -> None:
        """Move a session to the trash: whole, or not at all.

        `SessionNotFound` if there is none, `SessionDeleted` if it is there already.
        """

    @abstractmethod
    def restore(self, session_id: str) -> None:
        """Bring a deleted session back. `SessionNotFound` if it is not in the trash."""

    @abstractmethod
    def health(self) -> Health:
        """Try that the backend can be read and, unless read-only, written; leave nothing behind."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. What was acknowledged is as durable as it was before.

        Every later call that would read or write raises `Closed`.
        """
