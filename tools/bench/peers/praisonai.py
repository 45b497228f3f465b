"""PraisonAI: `HierarchicalSessionStore`, a file for each session, and `SqliteTranscriptStore`, a row.

Both are set to keep everything: by default they replace old messages with a summary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.peers.peer import Message, Peer, foreign, text


class FileStore(Peer):
    """The store of files, which has forks."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._store = self._open()

    def _open(self) -> Any:
        return foreign("praisonaiagents.session.hierarchy").HierarchicalSessionStore(
            session_dir=str(self.directory / "sessions"), retention="keep_all", lock_timeout=60.0
        )

    def append(self, session: str, message: Message) -> None:
        """Add one message."""
        self._store.add_message(session, message["role"], text(message))

    def extend(self, session: str, messages: Sequence[Message]) -> None:
        """Set the complete list, with some messages more."""
        old = self._store.get_chat_history(session) if self._store.session_exists(session) else []
        new = [{"role": message["role"], "content": text(message)} for message in messages]
        self._store.set_chat_history(session, [*old, *new])

    def load(self, session: str) -> Sequence[Any]:
        """Return the history."""
        found: Sequence[Any] = self._store.get_chat_history(session)
        return found

    def last(self, session: str, count: int) -> Sequence[Any]:
        """Return the end of the history."""
        found: Sequence[Any] = self._store.get_chat_history(session, max_messages=count)
        return found

    def sessions(self) -> Sequence[Any]:
        """Return all sessions."""
        found: Sequence[Any] = self._store.list_sessions(limit=1_000_000)
        return found

    def search(self, word: str) -> Sequence[Any]:
        """Return the messages with a word."""
        found: Sequence[Any] = self._store.search(word)
        return found

    def fork(self, session: str, new: str) -> None:
        """Fork, under an id of the store's own."""
        del new
        self._store.fork_session(session)


class SqliteStore(FileStore):
    """The store in SQLite, which has no forks."""

    fork = Peer.fork

    def _open(self) -> Any:
        return foreign("praisonaiagents.session.sqlite_transcript_store").SqliteTranscriptStore(
            session_dir=str(self.directory / "sessions"), retention="keep_all", lock_timeout=60.0
        )
