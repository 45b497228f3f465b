"""Backends that break one promise each of what forks and streams are made of."""
# ruff: noqa: D101, D102 - a mutant's name says what it gets wrong

from collections.abc import Iterator, Sequence
from typing import Any

from hansard.backend.contract import Chunk, Head, Log
from hansard.backend.memory import MemoryBackend, MemoryLog
from hansard.errors import SessionDeleted
from hansard.event.envelope import Draft, Event


class LogThatBeginsAtOne(MemoryLog):
    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        options.pop("before", None)
        return super().append(drafts, **options)


class LogThatStandsWhereItBegins(MemoryLog):
    """Takes a session that does not exist for one that is at the seq before its first."""

    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        if options.get("expected_seq") == options.get("before", 0) and not self._record.events:
            options["expected_seq"] = 0
        return super().append(drafts, **options)


class LogThatLeavesGaps(MemoryLog):
    """Heeds `before` also when the session exists."""

    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        self._record.before = max(self._record.before, options.get("before", 0))
        return super().append(drafts, **options)


class LogThatCountsFromOne(MemoryLog):
    """Reads by the place in the list, not by the seq."""

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        end = None if upto is None else upto + self._record.before
        return super().read(after + self._record.before, end)


class LogWithAnyFirst(MemoryLog):
    """Takes the last event for the first."""

    def first(self) -> Event | None:
        super().first()
        return self._record.events[-1] if self._record.events else None


class LogWhoseFirstOutlivesIt(MemoryLog):
    def first(self) -> Event | None:
        try:
            return super().first()
        except SessionDeleted:
            return None


class LogThatDropsWhatIsLight(MemoryLog):
    """Gives seqs to events that need not be durable, and keeps only the last of them."""

    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        if not options.get("durable", True):
            drafts = drafts[-1:]
        return super().append(drafts, **options)


class LogThatHidesWhatIsLight(MemoryLog):
    """Shows events that need not be durable once they are."""

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        hidden: set[int] = _LIGHT.get(id(self._record), set())
        seqs = [event.seq for event in self._record.events if event.seq not in hidden]
        return super().read(after, min(upto or 2**60, max(seqs, default=0)))

    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        events = super().append(drafts, **options)
        if not options.get("durable", True):
            _LIGHT.setdefault(id(self._record), set()).update(event.seq for event in events)
        return events

    def sync(self) -> None:
        super().sync()
        _LIGHT.pop(id(self._record), None)


_LIGHT: dict[int, set[int]] = {}


class LogThatSyncsForEver(MemoryLog):
    def sync(self) -> None:
        """Say nothing, also when the store was closed."""


class BackendWithoutGraves(MemoryBackend):
    """Reads ancestors like any session, so not from the trash."""

    def ancestor(self, session_id: str) -> Log:
        return self.log(session_id)


class _Copied(MemoryLog):
    """An ancestor as it was when somebody first asked for it."""

    __slots__ = ("_frozen",)

    def head(self) -> Head | None:
        found = super().head()
        if found is not None and not hasattr(self, "_frozen"):
            self._frozen = found.seq
        return found

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        self.head()
        return super().read(after, min(upto or 2**60, getattr(self, "_frozen", 2**60)))


class BackendOfCopies(MemoryBackend):
    def ancestor(self, session_id: str) -> Log:
        return _Copied(self, session_id, self._record(session_id), buried=True)


#: Mutants of logs, and the capability whose checks must find each.
FORKING_LOGS: dict[type[MemoryLog], str] = {
    LogThatBeginsAtOne: "before",
    LogThatStandsWhereItBegins: "before",
    LogThatLeavesGaps: "before",
    LogThatCountsFromOne: "before",
    LogWithAnyFirst: "first",
    LogWhoseFirstOutlivesIt: "first",
    LogThatDropsWhatIsLight: "sync",
    LogThatHidesWhatIsLight: "sync",
    LogThatSyncsForEver: "sync",
}

FORKING_MUTANTS: dict[type[MemoryBackend], str] = {
    BackendWithoutGraves: "ancestor",
    BackendOfCopies: "ancestor",
}
