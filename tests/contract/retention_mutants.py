"""Backends that break one promise about the trash, the audit log or sizes each."""
# ruff: noqa: D101, D102 - a mutant's name says what it gets wrong

import time
from collections.abc import Iterator

from hansard.backend.contract import Finding, Log
from hansard.backend.memory import MemoryBackend, MemoryLog
from hansard.event.envelope import Event


class BackendThatHidesTheTrash(MemoryBackend):
    def trash(self) -> Iterator[str]:
        list(super().trash())
        return iter([])


class BackendThatListsThePurged(MemoryBackend):
    """Empties a session and leaves it in the trash."""

    def purge(self, session_id: str) -> None:
        super().purge(session_id)
        self._records[session_id].deleted = True


class BackendThatKeepsKeys(MemoryBackend):
    """Remembers the keys of a session that was purged."""

    def purge(self, session_id: str) -> None:
        keys = dict(self._record(session_id).keys)
        super().purge(session_id)
        self._record(session_id).keys = keys


class BackendThatPurgesTheLiving(MemoryBackend):
    def purge(self, session_id: str) -> None:
        self._known(session_id)._record.deleted = True
        super().purge(session_id)


class BackendThatPurgesEverything(MemoryBackend):
    """Takes all of the trash with the one session."""

    def purge(self, session_id: str) -> None:
        super().purge(session_id)
        for other in list(self.trash()):
            super().purge(other)


class BackendThatChecksFirst(MemoryBackend):
    """Compares the seq, lets others append, and then deletes."""

    def delete(
        self, session_id: str, *, expected_seq: int | None = None, timeout: float | None = None
    ) -> None:
        log = self._known(session_id)
        if expected_seq is not None and expected_seq != log._record.seq:
            super().delete(session_id, expected_seq=expected_seq)
        time.sleep(0.001)
        super().delete(session_id)


class BackendThatIgnoresTheSeq(MemoryBackend):
    def delete(
        self, session_id: str, *, expected_seq: int | None = None, timeout: float | None = None
    ) -> None:
        super().delete(session_id)


class BackendThatBuriesDeep(MemoryBackend):
    """Does not let children read a parent that was deleted."""

    def ancestor(self, session_id: str) -> Log:
        return self.log(session_id)


class BackendWithAnAuditSession(MemoryBackend):
    def audit(self) -> Log:
        return self.log("audit")


class BackendThatAuditsNothing(MemoryBackend):
    def audit(self) -> Log:
        self._audit.clear()
        return super().audit()


class BackendOfOneSize(MemoryBackend):
    def sizes(self) -> dict[str, int]:
        return dict.fromkeys(super().sizes(), 1)


class BackendThatSizesTheTrash(MemoryBackend):
    def sizes(self) -> dict[str, int]:
        return {session_id: record.seq for session_id, record in self._all() if record.events}


class LogThatSalvagesMessages(MemoryLog):
    """Takes what is no message for damage."""

    def salvage(self) -> Iterator[Event | Finding]:
        return (
            found
            for found in super().salvage()
            if isinstance(found, Event) and found.message is not None
        )


class LogThatIsAlwaysBusy(MemoryLog):
    def busy(self) -> bool:
        return True


RETENTION_MUTANTS: dict[type[MemoryBackend], str] = {
    BackendThatHidesTheTrash: "trash",
    BackendThatChecksFirst: "trash",
    BackendThatIgnoresTheSeq: "trash",
    BackendThatBuriesDeep: "trash",
    BackendThatListsThePurged: "purge",
    BackendThatKeepsKeys: "purge",
    BackendThatPurgesTheLiving: "purge",
    BackendThatPurgesEverything: "purge",
    BackendWithAnAuditSession: "audit",
    BackendThatAuditsNothing: "audit",
    BackendOfOneSize: "sizes",
    BackendThatSizesTheTrash: "sizes",
}
