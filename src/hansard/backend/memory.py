"""Keep sessions in this process's memory: for tests, and for what may be lost.

Above: `store`.  Below: `contract`.
The contract in its simplest form: read this first to see what `local` must do with files.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from hansard.backend.contract import Backend, Chunk, Finding, Head, Health, Log
from hansard.errors import (
    Closed,
    SeqConflict,
    SessionDeleted,
    SessionExists,
    SessionNotFound,
)
from hansard.event import codec
from hansard.event.envelope import Draft, Event
from hansard.event.kinds import MESSAGE_ADDED
from hansard.log import format, names

_PIECE = 1000


class MemoryChunk(Chunk):
    """Events from a list."""

    __slots__ = ("_events",)

    def __init__(self, events: list[Event]) -> None:
        self._events = events

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


class _Message(msgspec.Struct):
    message: msgspec.Raw


_message_of = msgspec.json.Decoder(_Message).decode


class MemoryLog(Log):
    """A session as a list of events."""

    __slots__ = (
        "__weakref__",
        "_backend",
        "_changed",
        "_controls",
        "_events",
        "_keys",
        "_size",
        "deleted",
        "session_id",
    )

    def __init__(self, backend: "MemoryBackend", session_id: str) -> None:
        self.session_id = session_id
        self.deleted = False
        self._backend = backend
        #: Only ever appended to, so what a reader has seen of it stays as it was.
        self._events: list[Event] = []
        self._controls: list[Event] = []
        self._keys: dict[str, tuple[int, int]] = {}
        self._size = 0
        self._changed = threading.Condition()

    def append(
        self,
        drafts: Sequence[Draft],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
        new_only: bool = False,
    ) -> list[Event]:
        with self._changed:
            self._check_open()
            seq = len(self._events)
            if key is not None and key in self._keys:
                first, count = self._keys[key]
                return self._events[first - 1 : first - 1 + count]
            if new_only and seq:
                raise SessionExists(f"session {self.session_id!r} exists already, at seq {seq}")
            if expected_seq is not None and expected_seq != seq:
                raise SeqConflict(
                    f"session {self.session_id!r} is at seq {seq}, not at the expected "
                    f"{expected_seq}; nothing was appended: read what is new and decide again",
                    expected=expected_seq,
                    actual=seq,
                )
            now = format.now().decode()
            events = [
                Event(
                    seq + place,
                    draft.time or now,
                    draft.kind,
                    draft.data,
                    key if place == 1 else None,
                )
                for place, draft in enumerate(drafts, 1)
            ]
            self._events.extend(events)
            self._controls += [
                event for event, draft in zip(events, drafts, strict=True) if draft.control
            ]
            self._size += sum(len(draft.data) for draft in drafts)
            if key is not None:
                self._keys[key] = (seq + 1, len(events))
            self._changed.notify_all()
            return events

    def head(self) -> Head | None:
        with self._changed:
            self._check_open()
            if not self._events:
                return None
            first, last = self._events[0], self._events[-1]
            return Head(last.seq, first.stamp, last.stamp, self._size)

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        end = self._end(upto)
        for start in range(max(after, 0), end, _PIECE):
            yield MemoryChunk(self._events[start : min(start + _PIECE, end)])

    def read_back(self, upto: int | None = None, after: int = 0) -> Iterator[Chunk]:
        for end in range(self._end(upto), max(after, 0), -_PIECE):
            yield MemoryChunk(self._events[max(after, 0, end - _PIECE) : end])

    def controls(self, upto: int | None = None) -> list[Event]:
        end = self._end(upto)
        return [event for event in self._controls if event.seq <= end]

    def wait(self, after: int, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_behind(after), timeout)

    def _is_behind(self, after: int) -> bool:
        self._check_open()
        return len(self._events) > after

    def verify(self) -> list[Finding]:
        if self.head() is None:
            raise SessionNotFound(f"no session {self.session_id!r} in this store")
        return []

    def set_deleted(self, *, deleted: bool) -> None:
        """Put the session into the trash, or take it out."""
        with self._changed:
            if deleted:
                self._check_open()
            if not self._events or self.deleted == deleted:
                where = "in this store" if deleted else "in the trash"
                raise SessionNotFound(f"no session {self.session_id!r} {where}")
            self.deleted = deleted
            self._changed.notify_all()

    def wake(self) -> None:
        """Let those who wait look again."""
        with self._changed:
            self._changed.notify_all()

    def exists(self) -> bool:
        """Say whether the session has an event and is not in the trash."""
        return bool(self._events) and not self.deleted

    def _end(self, upto: int | None) -> int:
        """Return the last seq of a reading that is begun now."""
        with self._changed:
            self._check_open()
            seq = len(self._events)
            return seq if upto is None else min(max(upto, 0), seq)

    def _check_open(self) -> None:
        self._backend.check_open()
        if self.deleted:
            raise SessionDeleted(
                f"session {self.session_id!r} was deleted and is in the trash; "
                "`store.restore(id)` brings it back"
            )


class MemoryBackend(Backend):
    """A dict of sessions. Gone when the last reference is."""

    __slots__ = ("_closed", "_logs", "_mutex", "durability", "read_only", "where")

    def __init__(self) -> None:
        self.where = "memory:"
        self.read_only = False
        self.durability = "none"
        self._closed = False
        self._logs: dict[str, MemoryLog] = {}
        self._mutex = threading.Lock()

    def log(self, session_id: str) -> Log:
        names.check_id(session_id)
        with self._mutex:
            return self._logs.setdefault(session_id, MemoryLog(self, session_id))

    def ids(self) -> Iterator[str]:
        self.check_open()
        with self._mutex:
            logs = list(self._logs.values())
        return (log.session_id for log in logs if log.exists())

    def delete(self, session_id: str) -> None:
        self._known(session_id).set_deleted(deleted=True)

    def restore(self, session_id: str) -> None:
        self._known(session_id).set_deleted(deleted=False)

    def health(self) -> Health:
        self.check_open()
        return Health(self.where, self.durability, writable=True, free_bytes=None)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            logs, self._logs = self._logs, {}
        for log in logs.values():
            log.wake()

    def check_open(self) -> None:
        """Raise if the store was closed."""
        if self._closed:
            raise Closed(f"{self.where}: the store was closed, and its sessions are gone")

    def _known(self, session_id: str) -> MemoryLog:
        names.check_id(session_id)
        self.check_open()
        with self._mutex:
            found = self._logs.get(session_id)
        if found is None:
            raise SessionNotFound(f"no session {session_id!r} in this store")
        return found
