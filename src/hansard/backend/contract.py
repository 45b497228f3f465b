"""What a store requires of a backend.

A `Backend` holds sessions and internal logs, and a `Log` is one of them. A `LogReader` is a log at one
moment; a `Stage` is a session that is being built. All except a stage are safe for many threads, and the
stored data for many processes. `tests/contract` tests each promise on every backend:

1. An append is complete or absent, in the order and with the seqs that were returned.
2. When `append` returns, its events are as durable as the backend's `durability` says.
3. Of two appends with one key, the first counts. The second returns the events of the first, even if its
   `expected_seq` does not match.
4. Reads see a prefix of the session: no event without all earlier ones, and no part of an append.
5. Reading writes nothing.
6. What cannot be read is an error; it is never an empty session.
7. Of two appends at one expected seq, one counts. An internal log that was dropped is at no seq but 0.
8. A staged session is invisible until it is published, and then complete for all.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

import msgspec

from hansard.errors import InvalidEvent, SessionNotFound
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART, CallPart, SessionForked, read
from hansard.log.write_batch import AppendRequest as AppendRequest  # noqa: PLC0414 - a part of it
from hansard.observe import Counters

if TYPE_CHECKING:
    from hansard.backend.local.index_file import LocalIndexFile
    from hansard.backend.postgres.connection import Connections
    from hansard.backend.status import StoreStatus

Given = TypeVar("Given")
Answer = TypeVar("Answer")

#: Called with how much is done, and the total.
Progress = Callable[[int, int], None]

#: Prefix of the id of an internal log: no session can have such an id (F-5).
INTERNAL: Final = "\0"

#: The internal log of deletions and similar acts, and the prefix of the names of cursors' logs.
AUDIT: Final = "audit"
CURSOR: Final = "cursor/"

#: What to do about an event whose JSON holds a key twice, and about a checkpoint with wrong content.
DUPLICATE: Final = "views show the last value only: scrub() and compact() remove the others"
WRONG_CHECKPOINT: Final = "what is read by it is wrong: delete the file, or repair the session"


# -- values -------------------------------------------------------------------------------------


class StreamPart(msgspec.Struct, frozen=True):
    """What an event says about a streamed message: a part of it, or its end."""

    seq: int
    stream: str
    #: The message without its content, on the first part only.
    message: dict[str, Any] | None
    text: str
    #: There will be no more parts: the complete message was added, or discarded.
    over: bool
    calls: list[CallPart] = []


class Head(msgspec.Struct, frozen=True):
    """The end of a session."""

    #: The last event's seq.
    seq: int
    #: When the session began, and when its last event was written: RFC 3339 strings.
    created: str
    updated: str
    #: A sync has failed: nothing can be appended until `verify` has passed.
    failed: bool = False


class Finding(NamedTuple):
    """Something that `verify` found."""

    #: "damage" must be repaired; a "note" is normal after a crash.
    severity: str
    #: The file or directory.
    where: str
    #: Where it begins in the file, in bytes.
    offset: int
    #: Its length in bytes; 0 if it has none.
    length: int
    #: What is wrong, for people.
    reason: str


class Record(NamedTuple):
    """A line of a session's files, unchanged."""

    #: The name of the file in the session's directory.
    file: str
    #: Where the line begins, in bytes; in a sealed segment, after decompression.
    offset: int
    #: The length of the line, in bytes.
    length: int
    #: The bytes of the line.
    raw: bytes
    #: What is wrong with it; empty for a valid line.
    problem: str


class CompactionFilter(msgspec.Struct, frozen=True):
    """What a compaction leaves out."""

    #: Returns an event as it will be stored: the same object if it stays.
    mask: Callable[[Event], Event]
    #: The events without data, or with other data, also where that was done before.
    replaced: Mapping[int, bytes] = {}
    #: The streams whose parts, and whose messages, are without their texts.
    streams: tuple[str, ...] = ()
    #: It changes all content (`kinds.is_content`) before this seq; 0 for nothing.
    before: int = 0

    def fingerprint(self, first: int, last: int) -> str:
        """Return a digest of what it may change in these seqs; empty if nothing.

        A stream counts in all segments: where its parts are is not known.
        """
        changed = sorted((seq, data) for seq, data in self.replaced.items() if first <= seq <= last)
        before = min(self.before, last + 1) if self.before > first else 0
        if not (changed or self.streams or before):
            return ""
        # Imported here, because few segments need it and the import costs milliseconds.
        import hashlib

        said = msgspec.json.encode((before, changed, self.streams))
        return hashlib.blake2b(said, digest_size=8).hexdigest()


class CompactionResult(msgspec.Struct, frozen=True):
    """Bytes of the session before and after, rewritten segments, and events that lost their data.

    All bytes of the session's files, or of its rows; 0 if nothing was rewritten.
    """

    before: int
    after: int
    segments: int
    blanked: int


class SavedState(NamedTuple):
    """The state in a checkpoint: up to a seq, and where the checkpoint is stored, for messages."""

    seq: int
    state: bytes
    where: str


class RepairHints(msgspec.Struct, frozen=True):
    """What is known of a damaged session."""

    #: From its forks: the last seq that they use, and when it began.
    seq: int = 0
    created: str = ""
    #: What its checkpoint contains is wrong.
    wrong_checkpoint: bool = False


class RepairReport(msgspec.Struct, frozen=True):
    """What a repair did.

    Attributes:
        session: the session's id.
        findings: the damage that was repaired; empty if there was none.
        salvaged: number of events recovered from the damaged files.
        lost: ranges of lost seqs: first and last of each.
        unchecked: seqs of events that look valid, but whose checksum depends on lost bytes and could not be
            checked.
        controls: number of lost events that are known to have been control events, which change views.
        kept: the files, in the session's directory, that keep the damaged bytes.
        left: the damage that remains; only a backup can repair it.
    """

    session: str
    findings: list[Finding] = []
    salvaged: int = 0
    lost: list[tuple[int, int]] = []
    unchecked: list[int] = []
    controls: int = 0
    kept: list[str] = []
    left: list[Finding] = []

    @property
    def repaired(self) -> bool:
        """True if damage was repaired."""
        return bool(self.findings)

    @property
    def ok(self) -> bool:
        """True if no damage remains."""
        return not self.left


class Health(NamedTuple):
    """The result of a successful probe; a failed probe raises."""

    #: The path or URL of the store.
    where: str
    #: The durability of appends: "sync" or "os".
    durability: str
    #: False if the store was opened read-only.
    writable: bool
    #: Free space in bytes; None where it is unknown.
    free_bytes: int | None


class Changed(msgspec.Struct, frozen=True):
    """What may have changed since an earlier refresh of the index."""

    #: Sessions to read, with any stamp. Some may be missing, deleted or unchanged.
    ids: frozenset[str] = frozenset()
    #: Nothing is known of the others: compare all `Backend.stamps`, also for those that are new or missing.
    every: bool = False
    #: If some may have appeared or vanished without being among `ids`: the ids of all that may be sessions.
    present: frozenset[str] | None = None
    #: What to pass to the next call, once what was read is committed; "" if nothing is known.
    since: str = ""
    #: To be called after the commit: these changes need not be reported again. Raises nothing.
    done: Callable[[], None] = lambda: None


class _Added(msgspec.Struct, gc=False):
    message: Any = None


class _RawAdded(msgspec.Struct, gc=False):
    message: msgspec.Raw = msgspec.Raw(b"null")


#: Decode the data of a `message.added` event: its message, as objects or as JSON.
_decode_added = msgspec.json.Decoder(_Added).decode
_decode_raw_added = msgspec.json.Decoder(_RawAdded).decode


class Chunk(ABC):
    """Consecutive events, decoded as far as the caller needs."""

    __slots__ = ()

    @abstractmethod
    def events(self) -> list[Event]:
        """Return the events."""

    def added(self) -> list[tuple[int, bytes]]:
        """Return seq and data of each `message.added` event."""
        return [(event.seq, event.raw) for event in self.events() if event.kind == MESSAGE_ADDED]

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        """Return seq and message of each `message.added` event; the caller may change the messages."""
        return [(seq, _decode_added(data).message) for seq, data in self.added()]

    def messages_json(self) -> list[tuple[int, bytes]]:
        """Return seq and message, as the stored JSON, of each `message.added` event."""
        return [(seq, bytes(_decode_raw_added(data).message)) for seq, data in self.added()]

    def messages_joined(self) -> bytes | None:
        """Return all messages as stored JSON with commas between them.

        None unless each event adds a complete message that was not streamed, or if it would not be faster
        than `messages_json`.
        """
        return None

    def keyed(self) -> dict[int, int]:
        """Return the number of events of each append with a key and several events, by its first seq.

        For copies: there, the same key must belong to the same events.
        """
        return {}

    def span(self) -> tuple[int, int]:
        """Return the seq before the first event, and that of the last."""
        events = self.events()
        return events[0].seq - 1, events[-1].seq

    def streamed(self) -> list[StreamPart]:
        """Return what the events say about streamed messages."""
        return [part for part in map(streamed, self.events()) if part is not None]


# -- logs ---------------------------------------------------------------------------------------


class LogReader(ABC):
    """One session at the moment at which `Log.reader` was called.

    All of its answers agree with one another, even after later appends. Use it for one call, and
    take another for the next. For a session that does not exist, every answer is None or empty.
    """

    __slots__ = ()

    session_id: str

    @abstractmethod
    def head(self) -> Head | None:
        """Return the end of the session; None if it does not exist. Costs no scan."""

    @abstractmethod
    def first(self) -> Event | None:
        """Return the session's own first event; without its data unless it is a `session.forked`."""

    @abstractmethod
    def checkpoint(self) -> SavedState | None:
        """Return the state that the last compaction saved; None if there is none."""

    @abstractmethod
    def controls(self, upto: int | None = None, *, after: int = 0) -> list[Event]:
        """Return the control events with after < seq <= upto. Costs their number, not the session's."""

    @abstractmethod
    def read(
        self, after: int = 0, upto: int | None = None, *, back: bool = False
    ) -> Iterator[Chunk]:
        """Yield the events with after < seq <= upto, in order, in chunks of bounded size.

        `back`: from the last chunk to the first; inside a chunk they are in order.
        """

    @abstractmethod
    def size(self, *, unpacked: bool = False) -> int:
        """Return the bytes that the session takes where it is stored, or would take without compression."""


class Log(ABC):
    """One session in a backend."""

    session_id: str

    @abstractmethod
    def append(self, request: AppendRequest) -> list[Event]:
        """Append all events of a request or none, and return them. The first append creates the session."""

    def append_many(self, requests: Sequence[AppendRequest]) -> list[list[Event] | Exception]:
        """Do several independent appends in order; return for each its events or its error.

        Where a backend can, they share one write and one sync.
        """
        return [attempt(self.append, request) for request in requests]

    @abstractmethod
    def sync(self) -> None:
        """Make everything that can be read of the session durable, also where appends are not."""

    @abstractmethod
    def reader(self) -> LogReader:
        """Read the end of the session once; raise if it was deleted, or if its end cannot be read."""

    @abstractmethod
    def wait(self, after: int, timeout: float) -> bool:
        """Wait until there is an event with a higher seq than `after`; False if none came in time."""

    @abstractmethod
    def salvage(self) -> Iterator[Event | Finding]:
        """Yield the events of valid records, and a finding for each damage, in the order of the log."""

    @abstractmethod
    def compact(
        self,
        filter: CompactionFilter,
        *,
        level: int,
        progress: Progress | None = None,
        state: Callable[[int], bytes] | None = None,
        wait: bool = True,
        always: bool = True,
    ) -> CompactionResult:
        """Rewrite what is stored, smaller and without what `filter` leaves out.

        Safe concurrently with writers, readers and other compactors. With `wait`, the second compactor waits
        for the first before it raises `LockTimeout`. `state` returns what `checkpoint` will return for a seq.
        Without `always`, few new events stay as they are if nothing is to be left out.
        """

    @abstractmethod
    def verify(self) -> list[Finding]:
        """Check all that is stored of the session, and return what is wrong with it.

        If a sync has failed and nothing is found, appends are allowed again. `SessionNotFound` if the
        session does not exist.
        """

    def records(self) -> Iterator[Record]:
        """Yield every line of the session's files, valid or not. Only of a backend in files."""
        return iter(())

    def repair(self, known: RepairHints, *, missing: bool) -> RepairReport:
        """Repair damage; keep the damaged bytes, and record it in the session.

        Valid events keep their seqs; an `event.lost` replaces each of the others. `missing`: replace also
        the events of missing segments. A backend that is not in files only deletes a wrong checkpoint.
        """
        del known, missing
        return RepairReport(self.session_id)


class InternalLog(Log):
    """A log of the store itself, which is not a session."""

    @abstractmethod
    def replace(self, events: Sequence[NewEvent], *, expected_seq: int) -> None:
        """Replace all events atomically and durably by others, which continue after `expected_seq`.

        `SeqConflict` or `SessionNotFound` if the log is not at `expected_seq`: then nothing has changed.
        After a failed sync, the log can be appended to again.
        """

    @abstractmethod
    def drop(self) -> bool:
        """Remove the log, readable or not; return whether there was one. The caller holds `exclusive`."""


class Stage(ABC):
    """A session that is being built, invisible until it is complete.

    For one thread at a time. It vanishes when its process ends or the backend is closed. Of two for one id,
    the first that is published counts.
    """

    session_id: str

    @abstractmethod
    def append(self, drafts: Sequence[NewEvent], *, key: str | None = None) -> None:
        """Add events, in order. `InvalidEvent` if another append has the key already."""

    @abstractmethod
    def publish(self) -> None:
        """Make it a session, atomically and durably.

        `SessionExists` if there is a session of that id, `SessionDeleted` if there is one in the trash.
        `SessionNotFound` if it is a fork and its parent is missing. Then nothing has changed. A stage without
        events raises `InvalidEvent`. The parent of a fork is not purged during this call.
        """

    @abstractmethod
    def discard(self) -> None:
        """Remove it, unless it was published."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


class Hold(ABC):
    """What `Backend.exclusive` returns. It ends with its process, or with its last reference."""

    @abstractmethod
    def check(self) -> None:
        """Raise `Closed` if it was closed, or was taken before a fork of the process."""

    @abstractmethod
    def close(self) -> None:
        """Release it. Harmless if that was done before, and in a forked child."""


# -- the backend --------------------------------------------------------------------------------


class Backend(ABC):
    """Holds sessions."""

    #: The prefix of all ids; empty unless the backend is scoped.
    prefix: str = ""
    #: Where to store an index of the sessions; None: nowhere, or nothing may be written.
    index_storage: "LocalIndexFile | Connections | None" = None
    #: The open index of all sessions, an `index.index.Index`; None until it is needed.
    finder: Any = None
    #: The path or URL, for messages; without credentials.
    where: str
    read_only: bool
    durability: str
    #: Compactions leave bytes of erased data, which only a vacuum removes.
    needs_vacuum: bool = False
    #: What was done since the store was opened.
    counters: Counters
    #: Whether recorded usage without a cost gets one (`hansard.prices`).
    prices: bool = False

    @property
    def unscoped(self) -> "Backend":
        """The backend with all sessions: itself, unless it is scoped."""
        return self

    @abstractmethod
    def log(self, session_id: str, *, from_trash: bool = False) -> Log:
        """Return a session, which need not exist yet. Touches nothing.

        `from_trash`: only to read, for its forks: also if it is in the trash, or outside of the scope.
        """

    def prefetch(self, session_ids: Sequence[str]) -> "Backend":
        """Return this backend for reading these sessions soon, in this order.

        It may read several at a time: what it returns may be as old as this call.
        """
        del session_ids
        return self

    @abstractmethod
    def stage(
        self, session_id: str, *, before: int = 0, forked: SessionForked | None = None
    ) -> Stage:
        """Begin a session that is invisible until it is published. Its first event gets `before` + 1.

        `forked`: what a fork is forked from; the parent may be in the trash, or outside of the scope.
        """

    @abstractmethod
    def ids(self, *, trash: bool = False) -> Iterator[str]:
        """Yield the ids of all sessions, or of those in the trash, unsorted; also of unreadable ones."""

    @abstractmethod
    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        """Return a string for each session that changes with each append, and if the session is replaced.

        Of these sessions, or of all; missing ones are left out. Cheap: opens no session.
        """

    def version(self) -> str:
        """Return `Changed.since` of the last refresh if nothing has changed since; "" if that is unknown.

        Costs little and changes nothing.
        """
        return ""

    def changed(self, since: str) -> Changed:
        """Begin a refresh: return what may have changed since an earlier one ("" at first).

        For one consumer at a time: the caller holds a lock until it has called `done`. A refresh may end
        anywhere: changes are reported until `done` is called. All that was acknowledged before this call
        can be read after it. Changes inside a session by other programs are not reported.
        """
        del since
        return Changed(every=True)

    @abstractmethod
    def delete(
        self,
        session_id: str,
        *,
        expected_seq: int | None = None,
        timeout: float | None = None,
        check: Callable[[], object] = bool,
    ) -> None:
        """Move a session to the trash, atomically.

        `SessionNotFound` if there is none, `SessionDeleted` if it is there already, `SeqConflict` if it is
        not at `expected_seq`. `LockTimeout` if another process writes to it for longer than `timeout` seconds
        (None: the time that an append waits).

        `check`: called when nothing can be appended any more; if it raises, nothing is done.
        """

    @abstractmethod
    def restore(self, session_id: str) -> None:
        """Restore a deleted session. `SessionNotFound` if it is not in the trash."""

    @abstractmethod
    def purge(self, session_id: str, check: Callable[[], object] = bool) -> None:
        """Remove a session from the trash permanently. `SessionNotFound` if it is not there.

        `check`: called when no fork of it can be published any more; if it raises, nothing is removed.
        """

    @abstractmethod
    def internal(self, name: str) -> InternalLog:
        """Return an internal log, which need not exist yet. Touches nothing.

        It is not a session: no list of sessions, stamp or change contains it, and it is never in the trash.
        """

    @abstractmethod
    def internals(self) -> list[str]:
        """Return the sorted names of the existing internal logs, also of unreadable ones."""

    @abstractmethod
    def exclusive(self, name: str) -> Hold:
        """Lock an internal log for one caller of all processes. Does not wait.

        `LockTimeout` names the holder if it is known. A lock that belongs to a connection can be lost without
        notice: only an append at an expected seq proves that it is held.
        """

    def compacting(
        self, *, wait: bool = True, vacuum: bool = False
    ) -> AbstractContextManager[None]:
        """Return a block in which sessions may be compacted: never while the store's files are copied.

        `LockTimeout` if they are: immediately, or with `wait` after the time that an append waits.
        At its end, what interrupted purges have left is removed, and with `vacuum` the bytes of erased data
        that compactions leave (`needs_vacuum`). Writers may have to wait for that.
        """
        del wait, vacuum
        return nullcontext()

    def status(self) -> "StoreStatus":
        """Return the status of the files and of their file system. Changes nothing."""
        from hansard.backend.status import StoreStatus

        return StoreStatus()

    @abstractmethod
    def probe(self) -> Health:
        """Check that the backend can be read and, unless read-only, written; leave nothing in it."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. Every later call that would read or write raises `Closed`."""


# -- shared by backends -------------------------------------------------------------------------


def streamed(event: Event) -> StreamPart | None:
    """Return what an event says about a streamed message; None if it says nothing."""
    if event.kind == MESSAGE_PART:
        part = read(MESSAGE_PART, event.raw)
        if part is not None:
            return StreamPart(
                event.seq, part.stream, part.message, part.text, part.over, part.calls
            )
    elif event.kind == MESSAGE_ADDED:
        added = read(MESSAGE_ADDED, event.raw)
        if added is not None and added.stream is not None:
            return StreamPart(event.seq, added.stream, None, "", over=True)
    return None


_seq_of = attrgetter("seq")


def between(events: list[Event], after: int, upto: int) -> list[Event]:
    """Return the events with after < seq <= upto, of events in the order of their seqs."""
    begin = bisect_right(events, after, key=_seq_of) if after else 0
    return events[begin : bisect_right(events, upto, key=_seq_of)]


def attempt(call: Callable[[Given], Answer], argument: Given) -> Answer | Exception:
    """Return what a call returns, or the error that it raises."""
    try:
        return call(argument)
    except Exception as error:  # noqa: BLE001 - any error is this caller's alone
        return error


def key_used(session_id: str, key: str) -> InvalidEvent:
    """Return the error for a key that a stage has twice."""
    return InvalidEvent(f"session {session_id!r}: idempotency key {key!r:.60} is used twice")


def check_parent(session_id: str, forked: SessionForked, head: Head | None, where: str) -> None:
    """Raise unless the parent of a fork is in a store, with the events that the fork inherits."""
    if head is None or head.seq < forked.seq or forked.created not in {"", head.created}:
        raise SessionNotFound(
            f"session {session_id!r} needs its parent {forked.parent!r:.100} up to seq {forked.seq}, which "
            f"is not in {where}; nothing of {session_id!r} was stored"
        )


def nothing_staged(session_id: str) -> InvalidEvent:
    """Return the error for publishing a stage without an event."""
    return InvalidEvent(
        f"session {session_id!r}: nothing was staged, so there is nothing to publish"
    )
