"""hansard, measured like the others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import hansard
from hansard import aio
from tools.bench.peers.peer import Message, Peer


class OsHansard(Peer):
    """A store of durability `"os"`."""

    durability: Literal["os", "sync"] = "os"

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        super().__init__(directory)
        # `during_compaction` measures what compaction costs concurrent appends.
        options: dict[str, Any] = {"durability": self.durability, "auto_compact": False}
        options = {"read_only": True} if read_only else options
        self._store = hansard.open(directory / "store", **options)
        self._sessions: dict[str, hansard.Session] = {}
        self._awaited: dict[str, aio.Session] = {}
        self._aio: aio.Store | None = None

    def _session(self, name: str) -> hansard.Session:
        found = self._sessions.get(name)
        if found is None:
            found = self._sessions[name] = self._store.session(name)
        return found

    def append(self, session: str, message: Message) -> None:
        """Append one message."""
        self._session(session).add_message(message)

    def extend(self, session: str, messages: Sequence[Message]) -> None:
        """Append all or none."""
        self._session(session).add_messages(list(messages))

    async def append_async(self, session: str, message: Message) -> None:
        """Append one message, awaited."""
        if self._aio is None:
            self._aio = await aio.open(self.directory / "store", durability=self.durability)
        if session not in self._awaited:
            self._awaited[session] = self._aio.session(session)
        await self._awaited[session].add_message(message)

    async def close_async(self) -> None:
        """Close the awaitable store."""
        if self._aio is not None:
            await self._aio.close()

    def load(self, session: str) -> Sequence[Any]:
        """Return the model view."""
        return self._session(session).messages()

    def last(self, session: str, count: int) -> Sequence[Any]:
        """Return the end of the model view."""
        return self._session(session).messages(last=count)

    def after(self, session: str, count: int) -> Sequence[Any]:
        """Return the new messages: every event here is a message, so the count is the seq."""
        return self._session(session).messages(after=count)

    def fork(self, session: str, new: str) -> None:
        """Fork a session."""
        self._session(session).fork(new)

    def sessions(self) -> Sequence[Any]:
        """Return the data of a list of sessions."""
        return self._store.sessions().items

    def search(self, word: str) -> Sequence[Any]:
        """Return the messages with a word."""
        return list(self._store.search(word))

    def shrink(self) -> None:
        """Compact every session."""
        self._store.compact()

    def twin(self) -> Peer:
        """Threads share a store."""
        return self

    @classmethod
    def reader(cls, directory: Path) -> Peer:
        """Open the store to read."""
        return cls(directory, read_only=True)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


class SyncHansard(OsHansard):
    """A store of durability `"sync"`."""

    durability = "sync"
