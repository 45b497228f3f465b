"""Backends whose cursors break one promise each: what the checks of cursors must find out."""
# ruff: noqa: D101, D102 - a mutant's name says what it gets wrong

import time
from collections.abc import Mapping
from typing import ClassVar

from hansard.backend.contract import Cursor
from hansard.backend.cursors import MemoryCursor
from hansard.backend.memory import MemoryBackend


class BackendThatForgetsCursors(MemoryBackend):
    """Keeps a cursor's positions as long as it is open."""

    def cursor(self, name: str, *, timeout: float = 0.0) -> Cursor:
        opened = super().cursor(name, timeout=timeout)
        self._cursors.kept.pop(name, None)
        return opened


class BackendWithSharedCursors(MemoryBackend):
    """Gives a cursor to whoever asks for it."""

    def cursor(self, name: str, *, timeout: float = 0.0) -> Cursor:
        self._cursors._opened.pop(name, None)
        return super().cursor(name, timeout=timeout)


class BackendThatDropsNoCursor(MemoryBackend):
    def drop_cursor(self, name: str) -> bool:
        positions = self._cursors.kept.get(name)
        dropped = super().drop_cursor(name)
        if positions is not None:
            self._cursors.kept[name] = positions
        return dropped


class BackendThatListsNoCursors(MemoryBackend):
    def cursors(self) -> list[str]:
        return super().cursors()[:0]


class BackendWithOtherCursors(MemoryBackend):
    """A memory backend whose cursors are of another class."""

    made_of: ClassVar[type[MemoryCursor]] = MemoryCursor

    def cursor(self, name: str, *, timeout: float = 0.0) -> Cursor:
        opened = super().cursor(name, timeout=timeout)
        changed = self.made_of(name, self._cursors)
        self._cursors._opened[name] = changed
        del opened
        return changed


class CursorThatGoesBack(MemoryCursor):
    def move(self, positions: Mapping[str, int], *, back: bool = False) -> None:
        super().move(positions, back=True)


class CursorThatNeverGoesBack(MemoryCursor):
    """Takes the highest position that it was ever given."""

    def move(self, positions: Mapping[str, int], *, back: bool = False) -> None:
        if back:
            positions = {key: max(seq, self.get(key)) for key, seq in positions.items()}
        super().move(positions, back=back)


class CursorOfSingles(MemoryCursor):
    """Moves one session at a time, so that half of a refused move stays."""

    def move(self, positions: Mapping[str, int], *, back: bool = False) -> None:
        self._known()
        for session_id, seq in positions.items():
            super().move({session_id: seq}, back=back)


class CursorThatShares(MemoryCursor):
    def positions(self) -> dict[str, int]:
        return self._known()


class CursorThatRemembers(MemoryCursor):
    def forget(self, *session_ids: str) -> None:
        super().forget(*session_ids[:1])


class CursorThatStaysOpen(MemoryCursor):
    def close(self) -> None:
        super().close()
        self._open = True


class CursorWithoutLock(MemoryCursor):
    """Reads all positions, and writes all of them back."""

    def move(self, positions: Mapping[str, int], *, back: bool = False) -> None:
        super().move(dict.fromkeys(positions, 0), back=True)
        before = self.positions()
        time.sleep(0.0001)
        super().move({**before, **positions}, back=True)


def with_cursors(cursors: type[MemoryCursor]) -> type[BackendWithOtherCursors]:
    """Return a backend that gives out such cursors."""
    return type(f"Mutant{cursors.__name__}", (BackendWithOtherCursors,), {"made_of": cursors})


#: Each mutant, and the capability whose checks must find it.
CURSOR_MUTANTS: dict[type[MemoryBackend], str] = {
    BackendThatForgetsCursors: "cursors",
    BackendWithSharedCursors: "cursors",
    BackendThatDropsNoCursor: "cursors",
    BackendThatListsNoCursors: "cursors",
    with_cursors(CursorThatGoesBack): "cursors",
    with_cursors(CursorThatNeverGoesBack): "cursors",
    with_cursors(CursorOfSingles): "cursors",
    with_cursors(CursorThatShares): "cursors",
    with_cursors(CursorThatRemembers): "cursors",
    with_cursors(CursorThatStaysOpen): "cursors",
    with_cursors(CursorWithoutLock): "cursors",
}
