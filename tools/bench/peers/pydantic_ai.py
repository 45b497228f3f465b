"""Pydantic AI harness: `FileStepStore` and `SqliteStepStore`.

A run holds its messages, and saves a snapshot of them at each step: that is an append here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.peers.peer import Loop, Message, Peer, foreign, text

steps = foreign("pydantic_ai_harness.step_persistence")
messages_of = foreign("pydantic_ai.messages")


class FileSteps(Peer):
    """The store of files."""

    #: A run belongs to one process.
    shared = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._loop = Loop()
        self._runs: dict[str, list[Any]] = {}
        self._store = self._open()

    def _open(self) -> Any:
        return steps.FileStepStore(self.directory / "steps")

    @staticmethod
    def _message(message: Message) -> Any:
        if message["role"] == "user":
            part = messages_of.UserPromptPart(content=text(message))
            return messages_of.ModelRequest(parts=[part])
        return messages_of.ModelResponse(parts=[messages_of.TextPart(content=text(message))])

    def append(self, session: str, message: Message) -> None:
        """Save the snapshot of a run that has one message more."""
        self.extend(session, (message,))

    def extend(self, session: str, messages: Sequence[Message]) -> None:
        """Save the snapshot of a run that has some messages more."""
        self._loop.run(self._save(session, messages))

    async def append_async(self, session: str, message: Message) -> None:
        """The same as `append`, awaited."""
        await self._save(session, (message,))

    async def _save(self, session: str, messages: Sequence[Message]) -> None:
        held = self._runs.get(session)
        if held is None:
            held = self._runs[session] = []
            await self._store.register_run(steps.RunRecord(run_id=session))
        held.extend(self._message(message) for message in messages)
        await self._store.save_snapshot(
            steps.ContinuableSnapshot(run_id=session, step_index=len(held), messages=list(held))
        )

    def load(self, session: str) -> Sequence[Any]:
        """Return the messages of the latest snapshot."""
        found = self._loop.run(self._store.latest_snapshot(run_id=session))
        messages: Sequence[Any] = found.messages
        return messages

    def sessions(self) -> Sequence[Any]:
        """Return all runs."""
        found: Sequence[Any] = self._loop.run(self._store.list_runs())
        return found

    @staticmethod
    def text_of(item: Any) -> str:
        """Return the text of a message."""
        return str(item.parts[0].content)

    def close(self) -> None:
        """End the loop."""
        self._loop.close()


class SqliteSteps(FileSteps):
    """The store in SQLite."""

    def _open(self) -> Any:
        return steps.SqliteStepStore(database=str(self.directory / "steps.db"))
