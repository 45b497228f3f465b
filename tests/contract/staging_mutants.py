"""Backends that get stages wrong, one way each: what the checks of them must find out."""
# ruff: noqa: D101, D102 - a mutant's name says what it gets wrong

from collections.abc import Sequence

import msgspec

from hansard.backend.contract import Log, Stage
from hansard.backend.memory import MemoryBackend, MemoryStage
from hansard.errors import SessionExists
from hansard.event.envelope import Draft


class StageThatIsSeen(Stage):
    """Appends to the session itself, at once."""

    def __init__(self, log: Log, before: int) -> None:
        self.session_id = log.session_id
        self._log = log
        self._before = before

    def append(self, drafts: Sequence[Draft], *, key: str | None = None) -> None:
        self._log.append(drafts, key=key, before=self._before)

    def publish(self) -> None:
        self._log.sync()

    def discard(self) -> None:
        pass


class BackendWithoutStages(MemoryBackend):
    def stage(self, session_id: str, *, before: int = 0) -> Stage:
        return StageThatIsSeen(self.log(session_id), before)


class StageThatReplaces(MemoryStage):
    def publish(self) -> None:
        try:
            super().publish()
        except SessionExists:
            self._backend.delete(self.session_id)
            self._backend.purge(self.session_id)
            super().publish()


class BackendThatReplaces(MemoryBackend):
    def stage(self, session_id: str, *, before: int = 0) -> Stage:
        return StageThatReplaces(self, session_id, before)


class StageOfNow(MemoryStage):
    def append(self, drafts: Sequence[Draft], *, key: str | None = None) -> None:
        super().append([msgspec.structs.replace(draft, time=None) for draft in drafts], key=key)


class BackendThatForgetsTimes(MemoryBackend):
    def stage(self, session_id: str, *, before: int = 0) -> Stage:
        return StageOfNow(self, session_id, before)


class StageWithoutKeys(MemoryStage):
    def append(self, drafts: Sequence[Draft], *, key: str | None = None) -> None:
        del key
        super().append(drafts)


class BackendThatForgetsKeys(MemoryBackend):
    def stage(self, session_id: str, *, before: int = 0) -> Stage:
        return StageWithoutKeys(self, session_id, before)


class BackendThatBeginsAtOne(MemoryBackend):
    def stage(self, session_id: str, *, before: int = 0) -> Stage:
        del before
        return super().stage(session_id)


#: Each mutant, and the capability whose checks must find it.
STAGING_MUTANTS: dict[type[MemoryBackend], str] = {
    BackendWithoutStages: "stage",
    BackendThatReplaces: "stage",
    BackendThatForgetsTimes: "stage",
    BackendThatForgetsKeys: "stage",
    BackendThatBeginsAtOne: "stage",
}
