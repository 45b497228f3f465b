"""Backends that get large content wrong, one way each: what the checks of it must find out."""
# ruff: noqa: D101, D102 - a mutant's name says what it gets wrong

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hansard.backend.contract import Content, Log
from hansard.backend.memory import MemoryBackend, MemoryChunk, MemoryLog
from hansard.event.envelope import Draft, Event
from hansard.event.large import Gaps, stored

Refers = Callable[[Iterator[Log]], set[str]]


class BackendThatKeepsAllInPlace(MemoryBackend):
    """Takes nothing out, whatever the limit."""

    def log(self, session_id: str) -> Log:
        found = super().log(session_id)
        self.large_content = None
        return found


class BackendThatTakesOutUnasked(MemoryBackend):
    def log(self, session_id: str) -> Log:
        self.large_content = self.large_content or 1000
        return super().log(session_id)


class BackendThatCollectsAll(MemoryBackend):
    def collect(self, refers: Refers, *, dry_run: bool = False) -> list[Content]:
        def nothing(logs: Iterator[Log]) -> set[str]:
            refers(logs)
            return set()

        return super().collect(nothing, dry_run=dry_run)


class BackendThatCollectsNothing(MemoryBackend):
    def collect(self, refers: Refers, *, dry_run: bool = False) -> list[Content]:
        super().collect(refers, dry_run=True)
        return []


class BackendThatForgetsTheTrash(MemoryBackend):
    def _every(self) -> Iterator[Log]:
        live = set(self.ids())
        return (log for log in super()._every() if log.session_id in live)


class BackendThatCollectsInADryRun(MemoryBackend):
    def collect(self, refers: Refers, *, dry_run: bool = False) -> list[Content]:
        return super().collect(refers, dry_run=False)


class BackendThatCollectsWhenItCannotTell(MemoryBackend):
    def collect(self, refers: Refers, *, dry_run: bool = False) -> list[Content]:
        try:
            return super().collect(refers, dry_run=dry_run)
        except Exception:
            super().collect(lambda _: set(), dry_run=dry_run)
            raise


class BackendThatListsBeforeItCollects(MemoryBackend):
    """Looks who refers to what, and does not notice who does so since."""

    def collect(self, refers: Refers, *, dry_run: bool = False) -> list[Content]:
        referred = refers(self._every())
        return super().collect(lambda _: referred, dry_run=dry_run)


class LogThatAnswersWithGaps(MemoryLog):
    """Returns what is stored, and not what was said, when a key is known."""

    def append(self, drafts: Sequence[Draft], **options: Any) -> list[Event]:
        found = super().append(drafts, **options)
        kept = self._record.between(found[0].seq - 1, found[-1].seq)
        return [Event(one.seq, one.stamp, one.kind, stored(one), one.key) for one in kept]


class ChunkWithoutGaps(MemoryChunk):
    def gaps(self) -> dict[int, Gaps]:
        return {}


class LogOfSuchChunks(MemoryLog):
    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Any]:
        for chunk in super().read(after, upto):
            yield ChunkWithoutGaps(chunk.events())


def with_logs(logs: type[MemoryLog]) -> type[MemoryBackend]:
    """Return a backend that is made of such logs."""

    class Mutant(MemoryBackend):
        def log(self, session_id: str) -> Log:
            return logs(self, session_id, self._record(session_id))

    Mutant.__name__ = f"Mutant{logs.__name__}"
    return Mutant


#: Each mutant, and the capability whose checks must find it.
LARGE_MUTANTS: dict[type[MemoryBackend], str] = {
    BackendThatKeepsAllInPlace: "large",
    BackendThatTakesOutUnasked: "large",
    BackendThatCollectsAll: "large",
    BackendThatCollectsNothing: "large",
    BackendThatForgetsTheTrash: "large",
    BackendThatCollectsInADryRun: "large",
    BackendThatCollectsWhenItCannotTell: "large",
    BackendThatListsBeforeItCollects: "large",
    with_logs(LogThatAnswersWithGaps): "large",
    with_logs(LogOfSuchChunks): "large",
}
