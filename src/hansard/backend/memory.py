"""Keep sessions in this process's memory: for tests, and for what may be lost.

The contract in its simplest form: read this first to see what `local` must do with files.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import msgspec

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
    MakeFilter,
    SavedState,
    Stage,
    between,
    key_used,
    nothing_staged,
)
from hansard.errors import (
    Closed,
    LockTimeout,
    Reentered,
    SessionDeleted,
    SessionExists,
    SessionNotFound,
)
from hansard.event import codec
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import MESSAGE_ADDED
from hansard.log import disk, format, names
from hansard.log.write_batch import seq_conflict

_PIECE = 1000


class MemoryChunk(Chunk):
    """Events from a list."""

    __slots__ = ("_events", "_keys")

    def __init__(self, events: list[Event], keys: dict[str, tuple[int, int]] | None = None) -> None:
        self._events = events
        #: First seq and number of events of each append with a key.
        self._keys = keys or {}

    def events(self) -> list[Event]:
        return list(self._events)

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        return [
            (event.seq, codec.decode(event.raw)["message"])
            for event in self._events
            if event.kind == MESSAGE_ADDED
        ]

    def messages_json(self) -> list[tuple[int, bytes]]:
        return [
            (event.seq, bytes(_message_of(event.raw).message))
            for event in self._events
            if event.kind == MESSAGE_ADDED
        ]

    def span(self) -> tuple[int, int]:
        return self._events[0].seq - 1, self._events[-1].seq

    def keyed(self) -> dict[int, int]:
        known = (self._keys.get(event.key or "") for event in self._events)
        appends = dict(found for found in known if found is not None)
        return {seq: count for seq, count in appends.items() if count > 1}


class _Message(msgspec.Struct):
    message: msgspec.Raw


_message_of = msgspec.json.Decoder(_Message).decode


class _Record:
    """What there is of one session; shared by the logs that show it."""

    __slots__ = (
        "_written",
        "before",
        "changed",
        "controls",
        "deleted",
        "events",
        "keys",
        "rewritten",
        "size",
    )

    def __init__(self) -> None:
        self.after_fork()
        #: How often all of it was replaced: an end that has not moved does not tell.
        self.rewritten = 0
        self.clear()

    def after_fork(self) -> None:
        """Have a lock that no other thread holds, and nothing under way."""
        self.changed = threading.Condition()
        self._written = False

    def clear(self) -> None:
        """Start anew, with nothing."""
        #: The seq before the first event.
        self.before = 0
        #: Only ever appended to, so what a reader has seen of it stays as it was.
        self.events: list[Event] = []
        self.controls: list[Event] = []
        self.keys: dict[str, tuple[int, int]] = {}
        self.size = 0
        self.deleted = False
        self.rewritten += 1

    @contextmanager
    def writing(self, session_id: str) -> Iterator[None]:
        """Keep a signal handler from appending in the middle of its own thread's append."""
        if self._written:
            raise Reentered(
                f"memory: session {session_id!r}: this thread is in the middle of an append, which a signal "
                "handler or a finaliser has interrupted; nothing was appended: set a flag there, and "
                "append where the program goes on"
            )
        self._written = True
        try:
            yield
        finally:
            self._written = False

    def add(self, request: AppendRequest) -> list[Event]:
        """Add events and return them."""
        key, new = request.key, request.events
        seq = self.seq
        now = format.now().decode()
        events = [
            Event(seq + place, one.time or now, one.kind, one.data, key if place == 1 else None)
            for place, one in enumerate(new, 1)
        ]
        self.events += events
        self.controls += [event for event, one in zip(events, new, strict=True) if one.control]
        self.size += sum(len(one.data) for one in new)
        if key is not None:
            self.keys[key] = (seq + 1, len(events))
        return events

    def become(self, staged: "_Record") -> None:
        """Take over all that another one has, which nobody else knows."""
        self.before = staged.before
        self.events = staged.events
        self.controls = staged.controls
        self.keys = staged.keys
        self.size = staged.size

    @property
    def seq(self) -> int:
        return self.before + len(self.events)

    @property
    def exists(self) -> bool:
        return bool(self.events) and not self.deleted

    def between(self, after: int, upto: int) -> list[Event]:
        """Return the events with after < seq <= upto."""
        return self.events[max(after - self.before, 0) : max(upto - self.before, 0)]


class MemoryReader(LogReader):
    """The events that a session had. Its lists are appended to or replaced, so what was seen of one stays."""

    __slots__ = ("_before", "_controls", "_events", "_keys", "_seq", "_size", "session_id")

    def __init__(self, session_id: str, record: _Record) -> None:
        self.session_id = session_id
        self._before = record.before
        self._seq = record.seq
        self._events = record.events
        self._controls = record.controls
        self._keys = record.keys
        self._size = record.size

    def head(self) -> Head | None:
        if self._seq == self._before:
            return None
        last = self._events[self._seq - self._before - 1]
        return Head(last.seq, self._events[0].stamp, last.stamp)

    def first(self) -> Event | None:
        return self._events[0] if self._seq > self._before else None

    def checkpoint(self) -> SavedState | None:
        return None

    def controls(self, upto: int | None = None, *, after: int = 0) -> list[Event]:
        return between(self._controls, after, self._end(upto))

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        end = self._end(upto)
        for start in range(max(after, self._before), end, _PIECE):
            yield self._chunk(start, min(start + _PIECE, end))

    def read_back(self, upto: int | None = None, after: int = 0) -> Iterator[Chunk]:
        begin = max(after, self._before)
        for end in range(self._end(upto), begin, -_PIECE):
            yield self._chunk(max(begin, end - _PIECE), end)

    def size(self, *, unpacked: bool = False) -> int:
        del unpacked  # nothing is compressed
        return self._size

    def _chunk(self, after: int, upto: int) -> MemoryChunk:
        return MemoryChunk(self._events[after - self._before : upto - self._before], self._keys)

    def _end(self, upto: int | None) -> int:
        return self._seq if upto is None else min(max(upto, 0), self._seq)


class MemoryLog(InternalLog):
    """A session as a list of events. `from_trash`: only to read, and also from the trash."""

    def __init__(
        self,
        backend: "MemoryBackend",
        session_id: str,
        record: _Record,
        *,
        from_trash: bool = False,
    ) -> None:
        self.session_id = session_id
        self._backend = backend
        self._record = record
        self._from_trash = from_trash

    def append(self, request: AppendRequest) -> list[Event]:
        record = self._record
        with record.changed, record.writing(self.session_id):
            self._check_open()
            if request.key is not None and request.key in record.keys:
                first, count = record.keys[request.key]
                return record.between(first - 1, first - 1 + count)
            exists = bool(record.events)
            refusal = request.refusal(self.session_id, record.seq if exists else 0, exists=exists)
            if refusal is not None:
                raise refusal
            if not exists:
                record.before = request.before
            events = record.add(request)
            record.changed.notify_all()
            return events

    def begin_with(self, staged: _Record) -> None:
        """Let the session, which must not exist, be what was staged."""
        record = self._record
        with record.changed, record.writing(self.session_id):
            self._check_open()
            if record.events:
                raise SessionExists(
                    f"session {self.session_id!r} exists already, at seq {record.seq}"
                )
            record.become(staged)
            record.changed.notify_all()

    def replace(self, events: Sequence[NewEvent], *, expected_seq: int) -> None:
        record = self._record
        with record.changed, record.writing(self.session_id):
            self._check_open()
            seq = record.seq if record.events else 0
            if seq != expected_seq or not record.events:
                raise seq_conflict(self.session_id, expected_seq, seq)
            staged = _Record()
            staged.before = expected_seq
            staged.add(AppendRequest(events))
            record.become(staged)
            record.changed.notify_all()

    def drop(self) -> bool:
        # Emptied, and not forgotten: an append that expects its events must find none.
        with self._record.changed:
            self._check_open()
            there = self._record.exists
            self._record.clear()
        return there

    def sync(self) -> None:
        self._check_open()

    def reader(self) -> LogReader:
        with self._record.changed:
            self._check_open()
            return MemoryReader(self.session_id, self._record)

    def wait(self, after: int, timeout: float) -> bool:
        with self._record.changed:
            return self._record.changed.wait_for(lambda: self._is_behind(after), timeout)

    def _is_behind(self, after: int) -> bool:
        self._check_open()
        return bool(self._record.events) and self._record.seq > after

    def is_busy(self) -> bool:
        self._check_open()
        return False

    def salvage(self) -> Iterator[Event | Finding]:
        for chunk in self.reader().read():
            yield from chunk.events()

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
        del level, progress, state, wait
        record = self._record
        with record.changed:
            self._check_open()
            if not record.events:
                raise SessionNotFound(f"no session {self.session_id!r} in this store")
            # A list of its own: who reads the old one reads on in it.
            masked = [filter.mask(event) for event in record.events]
            # What was blank before is blank again, which is nothing new.
            blanked = sum(
                new is not old and new.raw != old.raw
                for new, old in zip(masked, record.events, strict=True)
            )
            if not dry_run:
                record.events = masked
                record.controls = [filter.mask(event) for event in record.controls]
                record.rewritten += 1
            return CompactionResult(0, 0, 0, blanked)

    def verify(self, filter: MakeFilter | None = None) -> list[Finding]:
        del filter  # `compact` leaves nothing
        if self.reader().head() is None:
            raise SessionNotFound(f"no session {self.session_id!r} in this store")
        return []

    def set_deleted(self, *, deleted: bool, expected_seq: int | None = None) -> None:
        """Put the session into the trash, or take it out."""
        record = self._record
        with record.changed:
            if deleted:
                self._check_open()
            if not record.events or record.deleted == deleted:
                where = "in this store" if deleted else "in the trash"
                raise SessionNotFound(f"no session {self.session_id!r} {where}")
            if expected_seq is not None and expected_seq != record.seq:
                raise seq_conflict(self.session_id, expected_seq, record.seq)
            record.deleted = deleted
            record.changed.notify_all()

    def purge(self) -> None:
        """Forget a session that is in the trash."""
        record = self._record
        with record.changed:
            if not record.deleted:
                raise SessionNotFound(f"no session {self.session_id!r} in the trash")
            record.clear()

    def _check_open(self) -> None:
        self._backend.check_open()
        if self._record.deleted and not self._from_trash:
            raise SessionDeleted(
                f"session {self.session_id!r} was deleted and is in the trash; "
                "`store.restore(id)` brings it back"
            )


class MemoryStage(Stage):
    """A session that is in no dict yet."""

    def __init__(self, backend: "MemoryBackend", session_id: str, before: int) -> None:
        self.session_id = session_id
        self._backend = backend
        self._staged = _Record()
        self._staged.before = before

    def append(self, events: Sequence[NewEvent], *, key: str | None = None) -> None:
        self._backend.check_open()
        if key is not None and key in self._staged.keys:
            raise key_used(self.session_id, key)
        self._staged.add(AppendRequest(events, key))

    def publish(self) -> None:
        if not self._staged.events:
            raise nothing_staged(self.session_id)
        self._backend.log(self.session_id).begin_with(self._staged)
        self.discard()

    def discard(self) -> None:
        self._staged = _Record()


class MemoryHold(Hold):
    """A name that others wait for."""

    def __init__(self, backend: "MemoryBackend", name: str) -> None:
        self._backend: MemoryBackend | None = backend
        self._name = name

    def check(self) -> None:
        if self._backend is None:
            raise Closed("closed; open it again")

    def close(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.free(self._name, self)


class MemoryBackend(Backend):
    """A dict of sessions. Gone when the last reference is."""

    def __init__(self) -> None:
        self.where = "memory:"
        self.read_only = False
        self.durability = "none"
        self.finder = None
        self._closed = False
        self._records: dict[str, _Record] = {}
        self._internal: dict[str, _Record] = {}
        #: The names that are held, and what says when one is free.
        self._held: WeakValueDictionary[str, MemoryHold] = WeakValueDictionary()
        self._freed = threading.Condition()
        self._mutex = threading.RLock()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Replace all mutexes, in a forked child."""
        self._mutex = threading.RLock()
        self._freed = threading.Condition()
        for record in (*self._internal.values(), *self._records.values()):
            record.after_fork()

    def log(self, session_id: str, *, from_trash: bool = False) -> MemoryLog:
        return MemoryLog(self, session_id, self._record(session_id), from_trash=from_trash)

    def stage(self, session_id: str, *, before: int = 0) -> Stage:
        names.check_id(session_id)
        self.check_open()
        return MemoryStage(self, session_id, before)

    def internal(self, name: str) -> InternalLog:
        with self._mutex:
            record = self._internal.setdefault(name, _Record())
        return MemoryLog(self, INTERNAL + name, record)

    def internals(self) -> list[str]:
        self.check_open()
        with self._mutex:
            return sorted(name for name, record in self._internal.items() if record.exists)

    def exclusive(self, name: str, *, timeout: float = 0.0) -> Hold:
        self.check_open()
        with self._freed:
            if not self._freed.wait_for(lambda: name not in self._held, timeout):
                raise LockTimeout(
                    f"memory: {name!r} is held by this process for more than {timeout:g} s",
                    holder=os.getpid(),
                )
            hold = self._held[name] = MemoryHold(self, name)
            return hold

    def free(self, name: str, hold: "MemoryHold") -> None:
        """Let others have a name."""
        with self._freed:
            if self._held.get(name) is hold:
                del self._held[name]
                self._freed.notify_all()

    def _record(self, session_id: str) -> _Record:
        names.check_id(session_id)
        with self._mutex:
            return self._records.setdefault(session_id, _Record())

    def ids(self, *, trash: bool = False) -> Iterator[str]:
        return (
            session_id
            for session_id, record in self._all()
            if (record.deleted if trash else record.exists)
        )

    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        found = dict(self._all())
        asked = found if session_ids is None else session_ids
        known = ((session_id, found.get(session_id)) for session_id in asked)
        return {
            session_id: f"{record.rewritten} {record.seq}"
            for session_id, record in known
            if record is not None and record.exists
        }

    def _all(self) -> list[tuple[str, _Record]]:
        self.check_open()
        with self._mutex:
            return list(self._records.items())

    def delete(
        self, session_id: str, *, expected_seq: int | None = None, timeout: float | None = None
    ) -> None:
        del timeout  # nobody holds a session here for longer than it takes to append
        self._known(session_id).set_deleted(deleted=True, expected_seq=expected_seq)

    def restore(self, session_id: str) -> None:
        self._known(session_id).set_deleted(deleted=False)

    def purge(self, session_id: str) -> None:
        self._known(session_id).purge()

    def probe(self) -> Health:
        self.check_open()
        return Health(self.where, self.durability, writable=True, free_bytes=None)

    def close(self) -> None:
        if self.finder is not None:
            self.finder.close()
        with self._mutex:
            self._closed = True
            records, self._records = self._records, {}
        for record in records.values():
            with record.changed:
                record.changed.notify_all()

    def check_open(self) -> None:
        """Raise if the store was closed."""
        if self._closed:
            raise Closed(f"{self.where}: the store was closed, and its sessions are gone")

    def _known(self, session_id: str) -> MemoryLog:
        names.check_id(session_id)
        self.check_open()
        with self._mutex:
            found = self._records.get(session_id)
        if found is None:
            raise SessionNotFound(f"no session {session_id!r} in this store")
        return MemoryLog(self, session_id, found)
