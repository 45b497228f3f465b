"""Move cursors of a store, and look at their files."""

from pathlib import Path

from hansard.backend.contract import Cursor
from hansard.backend.cursors import ReadOnlyCursor
from hansard.backend.local import LocalBackend
from hansard.log import names


def file_of(backend: LocalBackend, name: str = "c") -> Path:
    """Return a cursor's file."""
    return Path(backend.where, "cursors", f"{names.encode(name)}.jsonl")


def keep(backend: LocalBackend, positions: dict[str, int], name: str = "c") -> None:
    """Move a cursor, once for each session."""
    with backend.cursor(name) as cursor:
        for session_id, seq in positions.items():
            cursor.move({session_id: seq}, back=True)


def kept(backend: LocalBackend, name: str = "c") -> dict[str, int]:
    """Return what a consumer finds that opens a cursor."""
    with backend.cursor(name) as cursor:
        return cursor.positions()


def beside(backend: LocalBackend) -> Cursor:
    """Return a cursor that only reads, as from a read-only store."""
    return ReadOnlyCursor("c", backend._root, backend.check_open)
