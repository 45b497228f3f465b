"""sqlite3 by hand: one table, a prepared statement, a write-ahead log, JSON by msgspec.

What a person would write who knows SQLite well and needs nothing else: rows in the order in which they
came, one index of (session, place), places found by the statement itself, and a table of the sessions, for
the list. Without the rowid the table would take half as much space again, since rows are large.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tools.bench.peers.peer import Message, Peer

_TABLES = """
CREATE TABLE IF NOT EXISTS message (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, place INTEGER NOT NULL, json BLOB NOT NULL,
    UNIQUE (session, place)
);
CREATE TABLE IF NOT EXISTS session (
    id TEXT PRIMARY KEY, title TEXT, created TEXT, updated TEXT, messages INTEGER
) WITHOUT ROWID;
"""
_ADD = (
    "INSERT INTO message (session, place, json) VALUES "
    "(?1, 1 + (SELECT coalesce(max(place), 0) FROM message WHERE session = ?1), ?2)"
)
_COUNT = (
    "INSERT INTO session VALUES (?1, '', '', '', 1) ON CONFLICT DO UPDATE "
    "SET messages = messages + ?2"
)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class NormalSqlite(Peer):
    """`synchronous = NORMAL`: a commit survives a killed process, not a power cut."""

    synchronous = "NORMAL"

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        super().__init__(directory)
        self._db = sqlite3.connect(
            directory / "messages.db", isolation_level=None, timeout=60, check_same_thread=False
        )
        self._db.execute("PRAGMA mmap_size = 268435456")
        if not read_only:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(f"PRAGMA synchronous = {self.synchronous}")
            self._db.execute("PRAGMA cache_size = -65536")
            self._db.executescript(_TABLES)

    def append(self, session: str, message: Message) -> None:
        """Append in one statement, so in one transaction."""
        self._db.execute(_ADD, (session, _encode(message)))

    def extend(self, session: str, messages: Sequence[Message]) -> None:
        """Append in one transaction, and count the session for the list."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(_ADD, [(session, _encode(message)) for message in messages])
        self._db.execute(_COUNT, (session, len(messages)))
        self._db.execute("COMMIT")

    def load(self, session: str) -> Sequence[Any]:
        """Return all, decoded one by one."""
        rows = self._db.execute(
            "SELECT json FROM message WHERE session = ? ORDER BY place", (session,)
        )
        return [_decode(row[0]) for row in rows]

    def last(self, session: str, count: int) -> Sequence[Any]:
        """Read the key backwards."""
        rows = self._db.execute(
            "SELECT json FROM message WHERE session = ? ORDER BY place DESC LIMIT ?",
            (session, count),
        )
        return [_decode(row[0]) for row in rows][::-1]

    def after(self, session: str, count: int) -> Sequence[Any]:
        """Read on from a place."""
        rows = self._db.execute(
            "SELECT json FROM message WHERE session = ? AND place > ? ORDER BY place",
            (session, count),
        )
        return [_decode(row[0]) for row in rows]

    def fork(self, session: str, new: str) -> None:
        """Copy the rows."""
        self._db.execute(
            "INSERT INTO message (session, place, json) "
            "SELECT ?, place, json FROM message WHERE session = ?",
            (new, session),
        )

    def sessions(self) -> Sequence[Any]:
        """Return the table of sessions as dicts."""
        rows = self._db.execute("SELECT id, title, created, updated, messages FROM session")
        names = ("id", "title", "created", "updated", "messages")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def shrink(self) -> None:
        """Rewrite the file without its gaps."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.execute("VACUUM")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @classmethod
    def reader(cls, directory: Path) -> Peer:
        """Connect to read."""
        return cls(directory, read_only=True)

    def close(self) -> None:
        """Close the connection, which folds the log in."""
        self._db.close()


class FullSqlite(NormalSqlite):
    """`synchronous = FULL`: a commit survives a power cut."""

    synchronous = "FULL"
