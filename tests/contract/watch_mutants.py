"""Backends that do not tell what has changed, one way each: what the checks of watching must find out."""

from collections.abc import Iterable

from hansard.backend.contract import Changed, Unwatched, Watch
from hansard.backend.memory import MemoryBackend


class BackendThatStampsAlike(MemoryBackend):
    """Gives all sessions the same stamp."""

    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        """Return the same for all."""
        return dict.fromkeys(super().stamps(session_ids), "1")


class BackendThatStampsEverything(MemoryBackend):
    """Gives the stamps of all sessions, whatever was asked for."""

    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        """Return all."""
        return super().stamps()


class _Silent(Unwatched):
    __slots__ = ()

    def begin(self, known: str) -> Changed:
        return Changed(every=not known)

    def done(self) -> str:
        return "seen"


class BackendThatTellsNothing(MemoryBackend):
    """Says after the first pass that nothing has changed."""

    def watch(self) -> Watch:
        """Return one that is no good."""
        return _Silent(self)


class _Forgetful(Unwatched):
    __slots__ = ("_seen",)

    def begin(self, known: str) -> Changed:
        before: dict[str, str] = getattr(self, "_seen", {})
        self._seen = self._backend.stamps()
        every = self._seen.keys() | before.keys()
        return Changed(
            frozenset(name for name in every if self._seen.get(name) != before.get(name))
        )


class BackendThatTellsOnce(MemoryBackend):
    """Tells each change once, whether what was read of it was kept or not."""

    def watch(self) -> Watch:
        """Return one that is no good."""
        return _Forgetful(self)


class _Anxious(Unwatched):
    __slots__ = ()

    def begin(self, known: str) -> Changed:
        return Changed(frozenset(self._backend.ids()), every=True)


class BackendThatTellsEverything(MemoryBackend):
    """Says each time that everything has changed."""

    def watch(self) -> Watch:
        """Return one that is no good."""
        return _Anxious(self)


#: Each mutant, and the capability whose checks must find it.
WATCH_MUTANTS: dict[type[MemoryBackend], str] = {
    BackendThatStampsAlike: "watch",
    BackendThatStampsEverything: "watch",
    BackendThatTellsNothing: "watch",
    BackendThatTellsOnce: "watch",
    BackendThatTellsEverything: "watch",
}
