"""Keep sessions in memory: for tests, and for what may be lost.

The simplest form of the contract: read it first to see what `local` must do with files.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from hansard.backend.contract import (
    INTERNAL,
    AppendRequest,
    Backend,
    Chunk,
    CompactionFilter,
    CompactionResult,
    Finding,
    Head,
    Health,
    Hold,
    InternalLog,
    LogReader,
    SavedState,
    Stage,
    between,
    check_parent,
    key_used,
    nothing_staged,
)
from hansard.errors import Closed, LockTimeout, Reentered
from hansard.event.event import Event, NewEvent, repeated
from hansard.event.kinds import SessionForked
from hansard.log import disk, format, names
from hansard.log.store_directory import deleted, not_found
from hansard.log.write_batch import seq_conflict, session_exists
from hansard.observe import Counters

_PIECE = 1000


@dataclass(eq=False)
class MemoryChunk(Chunk):
    """Events from a list. `keys`: first seq and number of events of each append with a key."""

    _events: list[Event]
    _keys: dict[str, tuple[int, int]]

    def events(self) -> list[Event]:
        return list(self._events)

    def keyed(self) -> dict[int, int]:
        found = (self._keys.get(event.key or "", (0, 0)) for event in self._events)
        return {seq: count for seq, count in found if count > 1}


@dataclass
class _Record:
    """The data of one session, shared by its logs.

    Lists are appended to or replaced, never changed otherwise: readers keep what they have seen.
    """

    #: The seq before the first event.
    before: int = 0
    events: list[Event] = field(default_factory=list)
    controls: list[Event] = field(default_factory=list)
    #: First seq and number of events of each append with a key.
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    deleted: bool = False
    #: Number of times that its content was replaced: then its end may not have moved.
    rewritten: int = 0
    #: A thread, which holds the lock, is in the middle of an append.
    is_written: bool = False

    def add(self, request: AppendRequest) -> list[Event]:
        """Add events and return them."""
        key, seq = request.key, self.seq
        now = format.now().decode()
        events = [
            Event(seq + place, one.time or now, one.kind, one.data, key if place == 1 else None)
            for place, one in enumerate(request.events, 1)
        ]
        pairs = zip(events, request.events, strict=True)
        controls = [event for event, one in pairs if one.control]
        place = seq + 1, len(events)
        # No call from here on: an interrupt comes before all of this, or after it.
        self.events += events
        self.controls += controls
        if key is not None:
            self.keys[key] = place
        return events

    def become(self, other: "_Record") -> None:
        """Take over the content of another record."""
        self.before, self.events = other.before, other.events
        self.controls, self.keys = other.controls, other.keys
        self.deleted = False
        self.rewritten += 1

    @property
    def seq(self) -> int:
        return self.before + len(self.events)

    @property
    def exists(self) -> bool:
        return bool(self.events) and not self.deleted


class MemoryReader(LogReader):
    """The events that a session had."""

    def __init__(self, session_id: str, record: _Record) -> None:
        self.session_id = session_id
        self._before, self._seq, self._keys = record.before, record.seq, record.keys
        self._events, self._controls = record.events, record.controls

    def head(self) -> Head | None:
        first = self.first()
        if first is None:
            return None
        return Head(self._seq, first.stamp, self._events[self._seq - self._before - 1].stamp)

    def first(self) -> Event | None:
        return self._events[0] if self._seq > self._before else None

    def checkpoint(self) -> SavedState | None:
        return None

    def controls(self, upto: int | None = None, *, after: int = 0) -> list[Event]:
        return between(self._controls, after, self._end(upto))

    def read(
        self, after: int = 0, upto: int | None = None, *, back: bool = False
    ) -> Iterator[Chunk]:
        starts = range(max(after, self._before), self._end(upto), _PIECE)
        for start in reversed(starts) if back else starts:
            begin, end = start - self._before, min(start + _PIECE, starts.stop) - self._before
            yield MemoryChunk(self._events[begin:end], self._keys)

    def size(self, *, unpacked: bool = False) -> int:
        del unpacked  # nothing is compressed
        return sum(len(event.raw) for event in self._events[: self._seq - self._before])

    def _end(self, upto: int | None) -> int:
        return self._seq if upto is None else min(max(upto, 0), self._seq)


@dataclass(eq=False)
class MemoryLog(InternalLog):
    """A session as a list of events. `from_trash`: only to read, and also from the trash."""

    _backend: "MemoryBackend"
    session_id: str
    _record: _Record
    _from_trash: bool = False

    @contextmanager
    def _writing(self) -> Iterator[_Record]:
        """Lock the session; refuse an append by a signal handler that interrupts an append."""
        record = self._record
        with self._backend.lock:
            if record.is_written:
                raise Reentered(
                    f"memory: session {self.session_id!r}: cannot append from a signal handler during a "
                    "call on this session; nothing was appended. Set a flag and append later"
                )
            try:
                record.is_written = True
                self._check_open()
                yield record
                self._backend.news.notify_all()
            finally:
                record.is_written = False

    def append(self, request: AppendRequest) -> list[Event]:
        try:
            return self._append(request)
        except Exception:
            self._backend.counters.errors += 1
            raise

    def _append(self, request: AppendRequest) -> list[Event]:
        with self._writing() as record:
            if request.key in record.keys:
                first, count = record.keys[request.key]
                stored = record.events[first - record.before - 1 :][:count]
                return repeated(self.session_id, request.key, request.events, stored)
            exists = bool(record.events)
            refusal = request.refusal(self.session_id, self._seq(), exists=exists)
            if refusal is not None:
                raise refusal
            if request.check is not None:
                request.check()
            events = record.add(request)
            counters = self._backend.counters
            counters.appends += 1
            counters.more_events += len(events) - 1
            counters.bytes += sum(len(event.raw) for event in events)
            return events

    def begin_with(self, staged: _Record) -> None:
        """Make a staged record the session, which must not exist."""
        with self._writing() as record:
            if record.events:
                raise session_exists(self.session_id, record.seq)
            record.become(staged)

    def replace(self, events: Sequence[NewEvent], *, expected_seq: int) -> None:
        with self._writing() as record:
            if self._seq() != expected_seq or not record.events:
                raise seq_conflict(self.session_id, expected_seq, self._seq())
            staged = _Record(expected_seq)
            staged.add(AppendRequest(events))
            record.become(staged)

    def drop(self) -> bool:
        # Emptied, and not forgotten: an append that expects its events must find none.
        with self._backend.lock:
            self._check_open()
            there = self._record.exists
            self._record.become(_Record())
        return there

    def sync(self) -> None:
        self._check_open()

    def reader(self) -> LogReader:
        with self._backend.lock:
            self._check_open()
            self._backend.counters.reads += 1
            return MemoryReader(self.session_id, self._record)

    def wait(self, after: int, timeout: float) -> bool:
        with self._backend.lock:
            return self._backend.news.wait_for(lambda: self._seq() > after, timeout)

    def _seq(self) -> int:
        self._check_open()
        return self._record.seq if self._record.events else 0

    def salvage(self) -> Iterator[Event | Finding]:
        for chunk in self.reader().read():
            yield from chunk.events()

    def compact(self, filter: CompactionFilter, **_: object) -> CompactionResult:
        record = self._record
        with self._backend.lock:
            self._check_open()
            if not record.events:
                raise not_found(self.session_id)
            masked = [filter.mask(event) for event in record.events]
            pairs = zip(masked, record.events, strict=True)
            # What was erased before is erased again, and not counted.
            blanked = sum(new.raw != old.raw for new, old in pairs)
            record.events = masked
            record.controls = [filter.mask(event) for event in record.controls]
            record.rewritten += 1
            return CompactionResult(0, 0, 0, blanked)

    def verify(self) -> list[Finding]:
        if self.reader().head() is None:
            raise not_found(self.session_id)
        return []

    def _check_open(self) -> None:
        self._backend.check_open()
        if self._record.deleted and not self._from_trash:
            raise deleted(self.session_id)


@dataclass(eq=False)
class MemoryStage(Stage):
    """A session that is in no dict yet."""

    _backend: "MemoryBackend"
    session_id: str
    _staged: _Record
    _forked: SessionForked | None

    def append(self, events: Sequence[NewEvent], *, key: str | None = None) -> None:
        self._backend.check_open()
        if key is not None and key in self._staged.keys:
            raise key_used(self.session_id, key)
        self._staged.add(AppendRequest(events, key))

    def publish(self) -> None:
        if not self._staged.events:
            raise nothing_staged(self.session_id)
        log, forked = self._backend.log(self.session_id), self._forked
        with self._backend.lock:
            if forked is not None:
                head = self._backend.log(forked.parent, from_trash=True).reader().head()
                check_parent(self.session_id, forked, head, self._backend.where)
            log.begin_with(self._staged)
        self.discard()

    def discard(self) -> None:
        self._staged = _Record()


@dataclass(eq=False)
class MemoryHold(Hold):
    """The lock of an internal log."""

    _backend: "MemoryBackend | None"
    _name: str

    def check(self) -> None:
        if self._backend is None:
            raise Closed("closed; open it again")

    def close(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.free(self._name, self)


class MemoryBackend(Backend):
    """A dict of sessions."""

    def __init__(self) -> None:
        self.where = "memory:"
        self.read_only = False
        self.durability = "none"
        self.counters = Counters()
        self._closed = False
        #: Sessions by id, and internal logs by `INTERNAL` and their name.
        self._records: dict[str, _Record] = {}
        self._held: WeakValueDictionary[str, MemoryHold] = WeakValueDictionary()
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock of all data, which another thread of the parent may have held."""
        #: Held by `with`, and not through the condition: an interrupt in a function of Python could keep it.
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)
        for record in self._records.values():
            record.is_written = False

    def log(self, session_id: str, *, from_trash: bool = False) -> MemoryLog:
        names.check_id(session_id)
        return MemoryLog(self, session_id, self._record(session_id), from_trash)

    def _record(self, log_id: str) -> _Record:
        with self.lock:
            return self._records.setdefault(log_id, _Record())

    def stage(
        self, session_id: str, *, before: int = 0, forked: SessionForked | None = None
    ) -> Stage:
        names.check_id(session_id)
        self.check_open()
        return MemoryStage(self, session_id, _Record(before), forked)

    def internal(self, name: str) -> InternalLog:
        return MemoryLog(self, INTERNAL + name, self._record(INTERNAL + name))

    def internals(self) -> list[str]:
        found = (log_id for log_id, record in self._all(internal=True) if record.exists)
        return sorted(log_id.removeprefix(INTERNAL) for log_id in found)

    def exclusive(self, name: str) -> Hold:
        self.check_open()
        with self.lock:
            if name in self._held:
                raise LockTimeout(f"memory: {name!r} is held by this process", holder=os.getpid())
            hold = self._held[name] = MemoryHold(self, name)
            return hold

    def free(self, name: str, hold: MemoryHold) -> None:
        """Release a lock."""
        with self.lock:
            if self._held.get(name) is hold:
                del self._held[name]

    def ids(self, *, trash: bool = False) -> Iterator[str]:
        return (
            session_id
            for session_id, record in self._all()
            if (record.deleted if trash else record.exists)
        )

    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        found = {session_id: record for session_id, record in self._all() if record.exists}
        asked = found if session_ids is None else [one for one in session_ids if one in found]
        return {one: f"{found[one].rewritten} {found[one].seq}" for one in asked}

    def _all(self, *, internal: bool = False) -> list[tuple[str, _Record]]:
        self.check_open()
        with self.lock:
            found = list(self._records.items())
        return [item for item in found if item[0].startswith(INTERNAL) == internal]

    def delete(
        self,
        session_id: str,
        *,
        expected_seq: int | None = None,
        timeout: float | None = None,
        check: Callable[[], object] = bool,
    ) -> None:
        del timeout  # no session is locked for longer than an append takes
        with self._changing(session_id, trashed=False) as record:
            if expected_seq is not None and expected_seq != record.seq:
                raise seq_conflict(session_id, expected_seq, record.seq)
            check()
            record.deleted = True

    def restore(self, session_id: str) -> None:
        with self._changing(session_id, trashed=True) as record:
            record.deleted = False

    def purge(self, session_id: str, check: Callable[[], object] = bool) -> None:
        with self._changing(session_id, trashed=True) as record:
            check()
            record.become(_Record())

    @contextmanager
    def _changing(self, session_id: str, *, trashed: bool) -> Iterator[_Record]:
        """Lock a session that is in the trash, or is not."""
        names.check_id(session_id)
        self.check_open()
        with self.lock:
            record = self._records.get(session_id)
            if record is not None and record.deleted > trashed:
                raise deleted(session_id)
            if record is None or not record.events or record.deleted < trashed:
                raise not_found(session_id, "the trash" if trashed else "this store")
            yield record
            self.news.notify_all()

    def probe(self) -> Health:
        self.check_open()
        return Health(self.where, self.durability, writable=True, free_bytes=None)

    def close(self) -> None:
        if self.finder is not None:
            self.finder.close()
        with self.lock:
            self._closed = True
            self._records = {}
            self.news.notify_all()

    def check_open(self) -> None:
        """Raise if the store was closed."""
        if self._closed:
            raise Closed(f"{self.where}: the store was closed; its sessions were in memory")
