"""LangGraph: `SqliteSaver`.

A checkpoint holds all messages. Appending is what one invocation of a graph does that adds one
message: read the latest checkpoint, put the next.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.peers.peer import Message, Peer, foreign

base = foreign("langgraph.checkpoint.base")
sqlite = foreign("langgraph.checkpoint.sqlite")


class LangGraph(Peer):
    """One saver, a thread for each session."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._db = sqlite3.connect(
            directory / "checkpoints.db", check_same_thread=False, timeout=60
        )
        self._saver = sqlite.SqliteSaver(self._db)
        self._saver.setup()

    @staticmethod
    def _config(session: str) -> dict[str, Any]:
        return {"configurable": {"thread_id": session, "checkpoint_ns": ""}}

    def append(self, session: str, message: Message) -> None:
        """Put a checkpoint with one message more."""
        self.extend(session, (message,))

    def extend(self, session: str, messages: Sequence[Message]) -> None:
        """Put a checkpoint with some messages more."""
        config = self._config(session)
        found = self._saver.get_tuple(config)
        old = list(found.checkpoint["channel_values"]["messages"]) if found else []
        version = len(old) + len(messages)
        checkpoint = base.empty_checkpoint()
        checkpoint["channel_values"] = {"messages": [*old, *messages]}
        checkpoint["channel_versions"] = {"messages": version}
        metadata = {"source": "loop", "step": version, "writes": {}, "parents": {}}
        self._saver.put(
            found.config if found else config, checkpoint, metadata, {"messages": version}
        )

    def load(self, session: str) -> Sequence[Any]:
        """Return the messages of the latest checkpoint."""
        found = self._saver.get_tuple(self._config(session))
        messages: Sequence[Any] = found.checkpoint["channel_values"]["messages"]
        return messages

    def close(self) -> None:
        """Close the connection."""
        self._db.close()
