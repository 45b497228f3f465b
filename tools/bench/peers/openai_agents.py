"""OpenAI Agents: `SQLiteSession`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.peers.peer import Loop, Message, Peer, foreign

agents = foreign("agents")


class OpenAi(Peer):
    """One `SQLiteSession` for each session, all in one file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._loop = Loop()
        self._sessions: dict[str, Any] = {}

    def _session(self, name: str) -> Any:
        found = self._sessions.get(name)
        if found is None:
            path = self.directory / "sessions.db"
            found = self._sessions[name] = agents.SQLiteSession(name, path)
        return found

    def append(self, session: str, message: Message) -> None:
        """Add one item."""
        self._loop.run(self._session(session).add_items([message]))

    def extend(self, session: str, messages: Sequence[Message]) -> None:
        """Add items in one call."""
        self._loop.run(self._session(session).add_items(list(messages)))

    async def append_async(self, session: str, message: Message) -> None:
        """Add one item, awaited."""
        await self._session(session).add_items([message])

    def load(self, session: str) -> Sequence[Any]:
        """Return all items."""
        found: Sequence[Any] = self._loop.run(self._session(session).get_items())
        return found

    def last(self, session: str, count: int) -> Sequence[Any]:
        """Return the last items."""
        found: Sequence[Any] = self._loop.run(self._session(session).get_items(limit=count))
        return found

    def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            session.close()
        self._loop.close()
