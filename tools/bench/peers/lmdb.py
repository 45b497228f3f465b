"""LMDB: one entry for each message, under (session, place)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tools.bench.peers.peer import Message, Peer, foreign

lmdb = foreign("lmdb")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_WIDTH = 8


class SyncLmdb(Peer):
    """With its default settings: a commit is on the disk."""

    sync = True

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        super().__init__(directory)
        self._env = lmdb.open(
            str(directory / "data"),
            map_size=1 << 36,
            sync=self.sync,
            max_dbs=2,
            max_readers=256,
            readonly=read_only,
        )
        self._messages = self._env.open_db(b"messages", create=not read_only)
        self._listed = self._env.open_db(b"sessions", create=not read_only)

    def append(self, session: str, message: Message) -> None:
        """Find the place, and put."""
        self._put(session, (message,))

    def extend(self, session: str, messages: Sequence[Message]) -> None:
        """Put all in one transaction, and count the session for the list."""
        place = self._put(session, messages)
        with self._env.begin(write=True, db=self._listed) as transaction:
            transaction.put(session.encode(), _encode({"id": session, "messages": place}))

    def _put(self, session: str, messages: Sequence[Message]) -> int:
        prefix = session.encode() + b"\0"
        encoded = [_encode(message) for message in messages]
        with self._env.begin(write=True, db=self._messages) as transaction:
            place = self._end(transaction, prefix)
            for data in encoded:
                place += 1
                transaction.put(prefix + place.to_bytes(_WIDTH, "big"), data)
        return place

    @staticmethod
    def _end(transaction: Any, prefix: bytes) -> int:
        """Return the last place of a session; 0 if it has none."""
        cursor = transaction.cursor()
        found = cursor.set_range(prefix + b"\xff" * _WIDTH)
        found = cursor.prev() if found else cursor.last()
        if not found or not cursor.key().startswith(prefix):
            return 0
        return int.from_bytes(cursor.key()[len(prefix) :], "big")

    def load(self, session: str) -> Sequence[Any]:
        """Return all."""
        return self.after(session, 0)

    def after(self, session: str, count: int) -> Sequence[Any]:
        """Read on from a place."""
        prefix = session.encode() + b"\0"
        with self._env.begin(db=self._messages, buffers=True) as transaction:
            cursor = transaction.cursor()
            if not cursor.set_range(prefix + (count + 1).to_bytes(_WIDTH, "big")):
                return []
            size = len(prefix)
            found = []
            for key, value in cursor:
                if key[:size] != prefix:
                    break
                found.append(_decode(value))
            return found

    def last(self, session: str, count: int) -> Sequence[Any]:
        """Read from the end."""
        prefix = session.encode() + b"\0"
        with self._env.begin(db=self._messages) as transaction:
            end = self._end(transaction, prefix)
            cursor = transaction.cursor()
            cursor.set_range(prefix + (max(0, end - count) + 1).to_bytes(_WIDTH, "big"))
            return [_decode(value) for key, value in cursor if key.startswith(prefix)]

    def fork(self, session: str, new: str) -> None:
        """Copy the entries."""
        old, prefix = session.encode() + b"\0", new.encode() + b"\0"
        with self._env.begin(write=True, db=self._messages) as transaction:
            cursor = transaction.cursor()
            cursor.set_range(old)
            copied = []
            for key, value in cursor:
                if not key.startswith(old):
                    break
                copied.append((prefix + key[len(old) :], value))
            for key, value in copied:
                transaction.put(key, value)

    def sessions(self) -> Sequence[Any]:
        """Return the entries of the list, decoded."""
        with self._env.begin(db=self._listed) as transaction:
            return [_decode(value) for _, value in transaction.cursor()]

    def twin(self) -> Peer:
        """Share the environment: a process may open it once."""
        return self

    @classmethod
    def reader(cls, directory: Path) -> Peer:
        """Open the environment to read."""
        return cls(directory, read_only=True)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


class OsLmdb(SyncLmdb):
    """Without syncs: a commit survives a killed process, not a power cut."""

    sync = False
