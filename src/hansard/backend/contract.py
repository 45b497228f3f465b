"""What a store asks of the place where its sessions live.

A `Backend` holds sessions and internal logs, a `Log` is one of them, a `Stage` is a session that is not there
yet. All but a stage are safe to use from many threads, and so is what they point to from many processes.
`tests/contract` tests each promise below on every backend.

All backends promise:

1. An append is all there or not at all, in the order and with the seqs that were returned.
2. When `append` returns, its events are as durable as the backend's `durability` says.
3. Of two appends with one key, the first counts; the second returns the first one's events, also if its
   `expected_seq` would not match.
4. Reads see a prefix of the session: never a later event without all earlier ones, never half an append.
5. Reading writes nothing.
6. What cannot be read is an error; it is never an empty session.
7. Of two appends at one expected seq, one counts; an internal log that was dropped is at no seq but 0.
8. What is staged is seen by nobody until it is published, and then by everybody, whole.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

import msgspec

from hansard.backend.status import StoreStatus
from hansard.errors import InvalidEvent
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART, read
from hansard.log.append_request import AppendRequest as AppendRequest  # noqa: PLC0414 - a part of it

Given = TypeVar("Given")
Answer = TypeVar("Answer")

#: What the id of an internal log begins with: no session can have such an id (F-5).
INTERNAL: Final = "\0"

#: The internal log of what was done to whole sessions, and what the names of cursors' logs begin with.
AUDIT: Final = "audit"
CURSOR: Final = "cursor/"


class StreamPart(NamedTuple):
    """What an event says about a message that is streamed: another part of it, or its end."""

    seq: int
    stream: str
    #: The message without its content, on the first part only.
    message: dict[str, Any] | None
    text: str
    #: There will be no more: the message was added whole, or discarded.
    over: bool


class Head(NamedTuple):
    """Where a session stands."""

    #: The last event's seq.
    seq: int
    #: When the session began, and when its last event was written: RFC 3339 text.
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


#: What to do about an event whose JSON holds a key twice.
DUPLICATE: Final = "views show the last value only: scrub() and compact() remove the others"

#: What to do about a checkpoint that is whole, and wrong.
WRONG_CHECKPOINT: Final = "what is read by it is wrong: delete the file, or repair the session"


class CompactionFilter(NamedTuple):
    """What a compaction leaves out."""

    #: Returns an event as it is to be from now on: the same object if it stays.
    mask: Callable[[Event], Event]
    #: The seqs of events that it changes, and the streams whose parts it changes.
    seqs: frozenset[int]
    streams: frozenset[str]
    #: Which events it leaves without their data, or with other data, also where that was done before.
    replaced: Mapping[int, bytes]
    #: Says whether a part of a message may go: by its seq, and that at which the message was over.
    drop_part: Callable[[int, int], bool]
    #: It changes everything before this seq that was said (`kinds.is_content`); 0 for nothing.
    before: int = 0
    #: Says whether `drop_part` has other answers by now than it gave: somebody is led to another place.
    has_moved: Callable[[], bool] = bool

    def fingerprint(self, first: int, last: int) -> str:
        """Return a digest of what it changes in these seqs, by seq and by bound; empty if nothing."""
        changed = sorted((seq, data) for seq, data in self.replaced.items() if first <= seq <= last)
        before = min(self.before, last + 1) if self.before > first else 0
        if not (changed or before):
            return ""
        # Here, because few segments need it and the import costs milliseconds.
        import hashlib

        said = msgspec.json.encode((before, changed))
        return hashlib.blake2b(said, digest_size=8).hexdigest()


#: Returns what a compaction would leave out now. Called once the session is known to be readable.
MakeFilter = Callable[[], CompactionFilter]


class SavedState(NamedTuple):
    """The state in a checkpoint: up to a seq, and where the checkpoint is stored, for messages."""

    seq: int
    state: bytes
    where: str


class CompactionResult(NamedTuple):
    """What a compaction has done: bytes of the sealed segments, and how many were rewritten."""

    before: int
    after: int
    segments: int
    #: Events whose data were taken out.
    blanked: int


class Known(NamedTuple):
    """What the forks of a session know of it."""

    #: The last seq of it that they refer to.
    seq: int = 0
    #: When it began; empty if unknown.
    created: str = ""


class RepairResult(NamedTuple):
    """What a repair has done: nothing, if there are no findings."""

    #: What was damaged, and is mended.
    findings: Sequence[Finding] = ()
    #: Stretches of seqs, first and last, whose events are lost.
    lost: Sequence[tuple[int, int]] = ()
    #: Under which names the damaged bytes are kept, beside the log.
    kept: Sequence[str] = ()
    #: How many events were saved from what was damaged.
    salvaged: int = 0
    #: The seqs of those among them whose checksum could not be checked.
    unchecked: Sequence[int] = ()
    #: How many of the lost ones are known to have been control events.
    controls: int = 0
    #: Segments that are not there at all, and were left so.
    missing: Sequence[Finding] = ()


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

    def messages_joined(self) -> bytes | None:
        """Return all that the events add, as stored JSON with commas between the messages.

        Only where each of the events adds a whole message, which is a JSON object and was not streamed; None
        otherwise, or where it is no faster than `messages_json`.
        """
        return None

    def keyed(self) -> dict[int, int]:
        """Return, by the seq of the first, how many events each append with a key has, if more than one.

        For who copies events: the same key must stand for the same events there.
        """
        return {}

    def span(self) -> tuple[int, int]:
        """Return the seq before the first of the events, and that of the last."""
        events = self.events()
        return events[0].seq - 1, events[-1].seq

    def streamed(self) -> list[StreamPart]:
        """Return what the events say about streamed messages."""
        found = (streamed(event) for event in self.events())
        return [said for said in found if said is not None]


def between(events: list[Event], after: int, upto: int) -> list[Event]:
    """Return the events with after < seq <= upto, of some in the order of their seqs."""
    begin = bisect_right(events, after, key=_seq_of) if after else 0
    return events[begin : bisect_right(events, upto, key=_seq_of)]


_seq_of = attrgetter("seq")


def streamed(event: Event) -> StreamPart | None:
    """Return what an event says about a streamed message; None if it says nothing."""
    if event.kind == MESSAGE_PART:
        part = read(MESSAGE_PART, event.raw)
        if part is not None:
            return StreamPart(event.seq, part.stream, part.message, part.text, part.over)
    elif event.kind == MESSAGE_ADDED:
        added = read(MESSAGE_ADDED, event.raw)
        if added is not None and added.stream is not None:
            return StreamPart(event.seq, added.stream, None, "", over=True)
    return None


def attempt(call: Callable[[Given], Answer], argument: Given) -> Answer | Exception:
    """Return what a call returns, or the error that it raises."""
    try:
        return call(argument)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this caller's alone
        return error


class LogReader(ABC):
    """One session as it was at one moment: the one at which `Log.reader` was called.

    All of its answers agree with one another, whatever is appended afterwards. Use it for one call, and
    take another for the next. For a session that does not exist, every answer is None or empty.
    """

    __slots__ = ()

    session_id: str

    @abstractmethod
    def head(self) -> Head | None:
        """Return where the session ends; None if it does not exist. Costs no scan."""

    @abstractmethod
    def first(self) -> Event | None:
        """Return the first event that the session itself has; None if it does not exist.

        Its data may be left out, unless it is a `session.forked`.
        """

    @abstractmethod
    def checkpoint(self) -> SavedState | None:
        """Return the state that the last compaction saved; None if there is none."""

    @abstractmethod
    def controls(self, upto: int | None = None, *, after: int = 0) -> list[Event]:
        """Return the control events with after < seq <= upto. Costs their number, not the session's."""

    @abstractmethod
    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        """Yield the events with after < seq <= upto, in order, in pieces of bounded size."""

    @abstractmethod
    def read_back(self, upto: int | None = None, after: int = 0) -> Iterator[Chunk]:
        """Yield the same from the last chunk to the first; inside a chunk events are in order."""

    @abstractmethod
    def size(self, *, unpacked: bool = False) -> int:
        """Return the bytes that the session takes where it is stored, or would take without compression."""


class Log(ABC):
    """One session in a backend."""

    __slots__ = ()

    session_id: str

    @abstractmethod
    def append(self, request: AppendRequest) -> list[Event]:
        """Append all events of a request or none, and return them. The first append makes the session."""

    def append_many(self, requests: Sequence[AppendRequest]) -> list[list[Event] | Exception]:
        """Do several appends, in order and each for itself; return for each its events or its error.

        For one caller who speaks for many. Where a backend can, they share one write and one sync.
        """
        return [attempt(self.append, request) for request in requests]

    @abstractmethod
    def sync(self) -> None:
        """Make everything that can be read of the session durable, also where appends are not."""

    @abstractmethod
    def reader(self) -> LogReader:
        """Look at the session once, and return what can be read of it as it is now.

        Raises if it was deleted, or if its end cannot be read.
        """

    @abstractmethod
    def wait(self, after: int, timeout: float) -> bool:
        """Wait until there is an event with a higher seq than `after`; False if none came in time."""

    @abstractmethod
    def is_busy(self) -> bool:
        """Say whether somebody is writing to the session at this very moment. Waits for nobody."""

    @abstractmethod
    def salvage(self) -> Iterator[Event | Finding]:
        """Yield all that can still be read: the events of whole records, and a finding for each damage.

        In the order in which they stand. What is damaged is passed over, and so is what was never finished.
        For people and tools that mend; a session that is whole is read with `read`.
        """

    def records(self) -> Iterator[Record]:
        """Yield what the session's files hold, line by line, whole or not; nothing if it has no files."""
        return iter(())

    def drop_checkpoint(self) -> None:  # noqa: B027 - a backend need not have any
        """Remove it: what it says can be had from the events."""

    @abstractmethod
    def compact(
        self,
        filter: CompactionFilter,
        *,
        level: int,
        progress: Callable[[int, int], None] | None = None,
        state: Callable[[int], bytes] | None = None,
        wait: bool = True,
        dry_run: bool = False,
    ) -> CompactionResult:
        """Rewrite what is stored, smaller, and without what is to be forgotten; events stay as they are.

        Safe beside writers, readers and other compactors, of which the second may wait for the first before
        it raises `LockTimeout`; not if `wait` is false. `state` is called with a seq, and returns what
        `checkpoint` is to give back for it.

        `dry_run`: write nothing, and return what would be rewritten; `after` is not known, and as `before`.
        Not counted: sealed segments with which others are joined, and parts of messages that are whole.
        """

    @abstractmethod
    def verify(self, filter: MakeFilter | None = None) -> list[Finding]:
        """Check all that is stored of the session, and return what is wrong with it.

        If a sync has failed and nothing is found, the session can be appended to again.
        `SessionNotFound` if there is no such session: nothing is not whole.
        """

    def repair(
        self,
        *,
        known: Known | None = None,
        filter: MakeFilter | None = None,
        missing: bool = False,
    ) -> RepairResult:
        """Mend what is damaged, if anything is; keep the damaged bytes, and record it in the session.

        Every event that is whole keeps its seq, and one of the kind `event.lost` stands for each that is not.
        `missing`: also where a part of the session is not there at all. A backend that leaves damage to those
        who run it has nothing to do here.
        """
        del known, filter, missing
        return RepairResult()


class InternalLog(Log):
    """A log of the store itself, for which no session stands."""

    __slots__ = ()

    @abstractmethod
    def replace(self, events: Sequence[NewEvent], *, expected_seq: int) -> None:
        """Put events in the place of all there are, durably and at once.

        They continue after `expected_seq`, at which the log must be: otherwise `SeqConflict`, or
        `SessionNotFound`, and nothing has changed. A log whose sync has failed can be appended to again.
        """


class Stage(ABC):
    """A session that is being put together, and that nobody sees before it is whole.

    It is its maker's alone, who calls it from one thread at a time. If the maker dies, or closes the backend,
    it is gone, as if it had never been. Two may be made for one id: the first that is published counts.
    """

    __slots__ = ()

    session_id: str

    @abstractmethod
    def append(self, drafts: Sequence[NewEvent], *, key: str | None = None) -> None:
        """Add events, in order. `InvalidEvent` if another append has the key already."""

    @abstractmethod
    def publish(self) -> None:
        """Let it be a session, whole and at once; durable when it returns.

        `SessionExists` if there is a session of that id by now, `SessionDeleted` if there is one in the
        trash: then nothing has changed. A stage without events raises `InvalidEvent`.
        """

    @abstractmethod
    def discard(self) -> None:
        """Let it be gone, unless it was published."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def key_used(session_id: str, key: str) -> InvalidEvent:
    """Return the error for a key that a stage has twice."""
    return InvalidEvent(f"session {session_id!r}: idempotency key {key!r:.60} is used twice")


def nothing_staged(session_id: str) -> InvalidEvent:
    """Return the error for a stage that is to be published without an event."""
    return InvalidEvent(
        f"session {session_id!r}: nothing was staged, so there is nothing to publish"
    )


class Hold(ABC):
    """What `Backend.exclusive` returns. It ends with its process, or when no reference is left."""

    __slots__ = ()

    @abstractmethod
    def check(self) -> None:
        """Raise `Closed` if it was closed, or was taken before a fork of the process."""

    @abstractmethod
    def close(self) -> None:
        """Let others have it. Harmless if that was done before, and in a forked child."""


class Changed(NamedTuple):
    """What may have changed since an earlier refresh of the index."""

    #: Sessions to read, whatever their stamps are. Some may be missing, deleted or unchanged.
    ids: frozenset[str] = frozenset()
    #: Nothing is known of the others: compare all `Backend.stamps`, also for those that are new or missing.
    every: bool = False
    #: If some may have appeared or vanished without being among `ids`: the ids of all that may be sessions.
    present: frozenset[str] | None = None
    #: What to pass to the next call, once what was read is committed; "" if nothing is known.
    since: str = ""
    #: To be called after the commit: these changes need not be reported again. Raises nothing.
    done: Callable[[], None] = lambda: None


class IndexFile(ABC):
    """A file for an index of a store's sessions, which SQLite opens by its path.

    It may be deleted at any time, and others may change what the path leads to.
    """

    __slots__ = ()

    #: What to call it in errors.
    path: str

    @abstractmethod
    def prepare(self, content: bytes) -> str:
        """Return the path of a regular file that this store has created; `OSError` if there cannot be one.

        A new file begins with this content. No `-journal` is next to it.
        """

    @abstractmethod
    def identity(self) -> str | None:
        """Return what tells the file from any other; None if there is none. Opens nothing."""

    @abstractmethod
    def discard(self) -> None:
        """Remove the file and those next to it; the next one gets another name."""

    @abstractmethod
    def sweep(self) -> None:
        """Remove files of this kind that this store did not create, or does not use any more."""


class IndexTables(ABC):
    """Tables for an index of a store's sessions, in the database that holds these.

    For one thread at a time. `%s` stands for a value of a statement. The tables may be emptied at any time.
    """

    __slots__ = ()

    #: Nothing may be changed.
    read_only: bool

    @abstractmethod
    def trying(self, do: Callable[[], Any]) -> Any:
        """Do something that may be done twice, again if the database was away meanwhile."""

    @abstractmethod
    def run(self, text: str, values: Sequence[Any] = (), *, rows: bool = True) -> list[Any]:
        """Run a statement; return its rows, if they are wanted."""

    @abstractmethod
    def run_all(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each of several rows."""

    @abstractmethod
    def change(self) -> AbstractContextManager[None]:
        """Change several things, or none; the only one who does, of all processes."""

    @abstractmethod
    def look(self) -> AbstractContextManager[None]:
        """Ask several things of one moment, whatever others change meanwhile."""

    @abstractmethod
    def changing(self) -> bool:
        """Say whether something was begun, and is not over."""

    @abstractmethod
    def rewrite(self, *names: str) -> bool:
        """Write tables again, without a byte of what was removed from them; False if that was refused."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""


class Finder(Protocol):
    """Finds sessions in a backend by what was derived from them."""

    def close(self) -> None:
        """Let go of everything."""

    def release_files(self) -> None:
        """Close its files unless they are in use."""


class Compactor(Protocol):
    """Compacts sessions in the background."""

    def schedule(self, session_id: str) -> None:
        """Compact a session soon. Called after the append that made it grow was acknowledged."""

    def stop(self) -> None:
        """Start nothing more, interrupt the current compaction, and return when it has ended."""


class Backend(ABC):
    """Holds sessions."""

    __slots__ = ()

    #: What every id begins with: not nothing only for a part of a backend (`scoped`).
    prefix: str = ""
    #: Compacts sessions that have grown; None if they are not compacted automatically.
    compactor: "Compactor | None" = None
    #: Whoever finds sessions in the whole of it; None until somebody has asked.
    finder: "Finder | None" = None
    #: Where it is, for people; without credentials.
    where: str
    read_only: bool
    durability: str

    @property
    def unscoped(self) -> "Backend":
        """The backend with all sessions: itself, unless it is scoped."""
        return self

    @abstractmethod
    def check_open(self) -> None:
        """Raise `Closed` if it was closed: what cannot be read must not look empty."""

    def prefetch(self, session_ids: Sequence[str]) -> "Backend":
        """Return this backend for reading these sessions soon, in this order.

        It may read several at a time: what it returns may be as old as this call.
        """
        del session_ids
        return self

    @abstractmethod
    def log(self, session_id: str, *, from_trash: bool = False) -> Log:
        """Return a session, which need not exist yet. Touches nothing.

        `from_trash`: only to read, for its forks: also if it is in the trash, or outside of the scope.
        """

    def population(self) -> object:
        """Return something that is equal as long as no session was made, deleted or restored."""
        return object()

    @abstractmethod
    def stage(self, session_id: str, *, before: int = 0) -> Stage:
        """Begin a session that nobody sees until it is published. Its first event gets `before` + 1."""

    @abstractmethod
    def ids(self, *, trash: bool = False) -> Iterator[str]:
        """Yield the ids of all sessions, or of those in the trash, unsorted; also of unreadable ones."""

    @abstractmethod
    def delete(
        self, session_id: str, *, expected_seq: int | None = None, timeout: float | None = None
    ) -> None:
        """Move a session to the trash: whole, or not at all.

        `SessionNotFound` if there is none, `SessionDeleted` if it is there already, `SeqConflict` if
        it is not at `expected_seq`, `LockTimeout` if another writes to it for longer than `timeout`
        seconds (None: for as long as an append would wait).
        """

    @abstractmethod
    def restore(self, session_id: str) -> None:
        """Bring a deleted session back. `SessionNotFound` if it is not in the trash."""

    @abstractmethod
    def purge(self, session_id: str) -> None:
        """Remove a session from the trash for good. `SessionNotFound` if it is not there.

        Whether others were forked from it is the caller's business.
        """

    @abstractmethod
    def internal(self, name: str) -> InternalLog:
        """Return an internal log, which need not exist yet. Touches nothing.

        It is a log like a session's, but not a session: it is in no list of sessions, no stamp and no change
        tells of it, and it is never in the trash. `verify` checks it.
        """

    @abstractmethod
    def internals(self) -> list[str]:
        """Return the names of the internal logs that exist, sorted; one that cannot be read is among them."""

    @abstractmethod
    def drop_internal(self, name: str) -> bool:
        """Remove an internal log, readable or not; return whether there was one.

        The caller has it for itself (`exclusive`).
        """

    @abstractmethod
    def exclusive(self, name: str, *, timeout: float = 0.0) -> Hold:
        """Take an internal log for one caller among all processes; waits for at most `timeout` seconds.

        `LockTimeout`, with the holder if it is known. Where the lock belongs to a connection, a holder may
        lose it without notice: only an append at an expected seq tells that no other has it.
        """

    @abstractmethod
    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        """Return a string for each session that changes with each append, and if the session is replaced.

        Of these sessions, or of all; missing ones are left out. Cheap: opens no session.
        """

    def unchanged(self, since: str) -> bool:
        """Return whether no change was acknowledged since a refresh; False if that is not known.

        Costs little and changes nothing. `since`: what that refresh stored.
        """
        del since
        return False

    def changed(self, since: str) -> Changed:
        """Begin a refresh: return what may have changed since an earlier one ("" at first).

        For one consumer at a time: the caller holds a lock until it has called `done`. A refresh may end
        anywhere: changes are reported until `done` is called. All that was acknowledged before this call
        can be read after it. Changes inside a session by other programs are not reported.
        """
        del since
        return Changed(every=True)

    def index_storage(self) -> "IndexFile | IndexTables | None":
        """Return where to store an index of the sessions; None: nowhere, or nothing may be written."""
        return None

    def vacuum(self) -> bool:
        """Remove all bytes of erased data that compactions left; return whether there may have been any.

        Writers may have to wait. Only for a backend whose compaction leaves some.
        """
        return False

    def compacting(self, *, wait: bool = True) -> AbstractContextManager[None]:
        """Return a block in which sessions may be compacted: never while the store's files are copied.

        `LockTimeout` if they are: immediately, or with `wait` after the time that an append waits.
        At its end, what interrupted purges have left is removed.
        """
        del wait
        return nullcontext()

    def status(self) -> StoreStatus:
        """Return the status of the files and of their file system. Changes nothing."""
        return StoreStatus()

    @abstractmethod
    def probe(self) -> Health:
        """Check that the backend can be read and, unless read-only, written; leave nothing in it."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. What was acknowledged is as durable as it was before.

        Every later call that would read or write raises `Closed`.
        """
