"""Backends that break one promise each: what the contract suite must find out.

Each is the memory backend with one deliberate bug, of the kind that real stores have shipped.
"""
# ruff: noqa: D101, D102 - a mutant's name says what it gets wrong

import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from hansard.backend.contract import Chunk, Finding, Head, Health, Log
from hansard.backend.memory import MemoryBackend, MemoryChunk, MemoryLog
from hansard.event.envelope import Draft, Event
from tests.contract.compaction_mutants import COMPACTION_LOGS
from tests.contract.cursor_mutants import CURSOR_MUTANTS
from tests.contract.forking_mutants import FORKING_LOGS, FORKING_MUTANTS
from tests.contract.large_mutants import LARGE_MUTANTS
from tests.contract.retention_mutants import (
    RETENTION_MUTANTS,
    LogThatIsAlwaysBusy,
    LogThatSalvagesMessages,
)
from tests.contract.staging_mutants import STAGING_MUTANTS
from tests.contract.watch_mutants import WATCH_MUTANTS


class Mutant(MemoryBackend):
    """A memory backend whose logs are of another class."""

    made_of: ClassVar[type[MemoryLog]] = MemoryLog

    def log(self, session_id: str) -> Log:
        return self.made_of(self, session_id, self._record(session_id))

    def _known(self, session_id: str) -> MemoryLog:
        return self.made_of(self, session_id, super()._known(session_id)._record)


class LogWithoutKeys(MemoryLog):
    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        options.pop("key", None)
        return super().append(drafts, **options)


class LogWithLateKeys(MemoryLog):
    """Looks at the expected seq before it looks for the key."""

    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        if options.get("expected_seq") is not None:
            head = self.head()
            if options["expected_seq"] != (head.seq if head else 0):
                options.pop("key", None)
        return super().append(drafts, **options)


class LogThatIgnoresSeq(MemoryLog):
    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        options.pop("expected_seq", None)
        return super().append(drafts, **options)


class LogThatMakesAnew(MemoryLog):
    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        options.pop("new_only", None)
        return super().append(drafts, **options)


class LogOfSingles(MemoryLog):
    """Appends a batch one by one: others see half of it."""

    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        events: list[Event] = []
        for draft in drafts:
            events += super().append([draft], **options)
            options = {}
            time.sleep(0)
        return events


class LogWithoutLock(MemoryLog):
    """Reads the seq, lets others do the same, and then writes."""

    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        if options:
            return super().append(drafts, **options)
        self._check_open()
        seq = len(self._record.events)
        time.sleep(0.0001)
        events = [
            Event(seq + place, "2026-01-01T00:00:00.000000Z", draft.kind, draft.data)
            for place, draft in enumerate(drafts, 1)
        ]
        self._record.events.extend(events)
        return events


class LogThatParaphrases(MemoryLog):
    """Stores what the data mean, not their bytes."""

    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        import json

        tidy = [
            msgspec.structs.replace(
                draft, data=json.dumps(json.loads(draft.data), sort_keys=True).encode()
            )
            for draft in drafts
        ]
        return super().append(tidy, **options)


class LogThatStopsEarly(MemoryLog):
    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        return super().read(after, None if upto is None else upto - 1)


class LogInOnePiece(MemoryLog):
    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        yield MemoryChunk(
            [event for chunk in super().read(after, upto) for event in chunk.events()]
        )


class LooseChunk(MemoryChunk):
    def keyed(self) -> dict[int, int]:
        return {}


class LogOfLooseKeys(MemoryLog):
    """Does not tell which events have a key in common."""

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        for chunk in super().read(after, upto):
            yield LooseChunk(chunk.events())


class LogThatNeverTurns(MemoryLog):
    """Reads backwards by reading forwards."""

    def read_back(self, upto: int | None = None, after: int = 0) -> Iterator[Chunk]:
        return self.read(after, upto)


class LogThatReadsToTheStart(MemoryLog):
    def read_back(self, upto: int | None = None, after: int = 0) -> Iterator[Chunk]:
        return super().read_back(upto)


class SharedChunk(MemoryChunk):
    """Decodes once, and hands out the same objects again."""

    known: ClassVar[dict[int, dict[str, Any]]] = {}

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        return [(seq, self.known.setdefault(seq, message)) for seq, message in super().messages()]


class LogThatShares(MemoryLog):
    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        for chunk in super().read(after, upto):
            yield SharedChunk(chunk.events())


class LogWithAllControls(MemoryLog):
    def controls(self, upto: int | None = None) -> list[Event]:
        return [event for chunk in self.read(0, upto) for event in chunk.events()]


class LogThatNeverWaits(MemoryLog):
    def wait(self, after: int, timeout: float) -> bool:
        return super().wait(after, 0.0)


class LogThatAlwaysWakes(MemoryLog):
    def wait(self, after: int, timeout: float) -> bool:
        super().wait(after, 0.0)
        return True


class LogThatStaysUp(MemoryLog):
    """Goes on taking events after it was deleted."""

    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        self._record.deleted = False
        return super().append(drafts, **options)


class LogWithoutEnd(MemoryLog):
    """Says of every session that it exists."""

    def head(self) -> Head | None:
        return super().head() or Head(0, "", "", 0)


class LogThatIsAlwaysWhole(MemoryLog):
    def verify(self) -> list[Finding]:
        return []


class LogThatForgets(MemoryLog):
    """Loses the last event on its way through the trash."""

    def set_deleted(self, *, deleted: bool, expected_seq: int | None = None) -> None:
        super().set_deleted(deleted=deleted, expected_seq=expected_seq)
        if deleted:
            self._record.events.pop()


class BackendOfOneCase(MemoryBackend):
    def log(self, session_id: str) -> Log:
        super().log(session_id)
        return super().log(session_id.lower())


class BackendThatListsTheTrash(MemoryBackend):
    def ids(self) -> Iterator[str]:
        return (session_id for session_id, record in self._all() if record.events)


class BackendThatListsEverything(MemoryBackend):
    def ids(self) -> Iterator[str]:
        return (session_id for session_id, record in self._all() if not record.deleted)


class BackendThatLeavesProbes(MemoryBackend):
    def health(self) -> Health:
        self.log("probe").append([Draft("x.probe", b"{}", control=False)])
        return super().health()


class BackendThatNeverCloses(MemoryBackend):
    def close(self) -> None:
        """Do nothing."""


def of(logs: type[MemoryLog]) -> type[Mutant]:
    """Return a backend that is made of such logs."""
    return type(f"Mutant{logs.__name__}", (Mutant,), {"made_of": logs})


#: Each mutant, and the capability whose checks must find it.
MUTANTS: dict[type[MemoryBackend], str] = {
    of(LogWithoutKeys): "key",
    of(LogWithLateKeys): "key",
    of(LogThatIgnoresSeq): "expected_seq",
    of(LogThatMakesAnew): "expected_seq",
    of(LogOfSingles): "batch",
    of(LogWithoutLock): "threads",
    of(LogThatParaphrases): "append",
    of(LogThatStopsEarly): "read",
    of(LogInOnePiece): "read",
    of(LogThatNeverTurns): "read_back",
    of(LogThatReadsToTheStart): "read_back",
    of(LogThatShares): "read",
    of(LogWithAllControls): "controls",
    of(LogThatNeverWaits): "wait",
    of(LogThatAlwaysWakes): "wait",
    of(LogThatStaysUp): "delete",
    of(LogWithoutEnd): "ids",
    of(LogThatIsAlwaysWhole): "verify",
    of(LogThatForgets): "restore",
    BackendOfOneCase: "ids",
    BackendThatListsTheTrash: "delete",
    BackendThatListsEverything: "ids",
    BackendThatLeavesProbes: "health",
    BackendThatNeverCloses: "close",
    **CURSOR_MUTANTS,
    **RETENTION_MUTANTS,
    of(LogThatSalvagesMessages): "salvage",
    of(LogThatIsAlwaysBusy): "salvage",
    **LARGE_MUTANTS,
    **STAGING_MUTANTS,
    of(LogOfLooseKeys): "key",
    **WATCH_MUTANTS,
    **FORKING_MUTANTS,
    **{of(logs): capability for logs, capability in FORKING_LOGS.items()},
    **{of(logs): capability for logs, capability in COMPACTION_LOGS.items()},
}
