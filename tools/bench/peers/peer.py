"""What is asked of a system that is measured.

A peer overrides the operations that its system has, with the calls that the system's own documentation
gives for them. What is not overridden is left out of the report: nothing is emulated, but for `fork`, which
is a copy where people copy.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

Message = dict[str, Any]


def foreign(name: str) -> Any:
    """Import a package that only the environment of the peers has, so nothing is known of its types."""
    return importlib.import_module(name)


class Peer:
    """A handle on a fresh or an existing directory of one system."""

    #: Whether several writers may append to one session, as the system's documentation has it.
    shared = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def append(self, session: str, message: Message) -> None:
        """Append one message."""
        raise NotImplementedError

    def extend(self, session: str, messages: Sequence[Message]) -> None:
        """Append several messages in one call."""
        raise NotImplementedError

    async def append_async(self, session: str, message: Message) -> None:
        """Append one message, awaited."""
        raise NotImplementedError

    def load(self, session: str) -> Sequence[Any]:
        """Return all messages, decoded."""
        raise NotImplementedError

    def last(self, session: str, count: int) -> Sequence[Any]:
        """Return the last messages."""
        raise NotImplementedError

    def after(self, session: str, count: int) -> Sequence[Any]:
        """Return the messages after the first `count`; without such a call, people load all."""
        return self.load(session)[count:]

    def fork(self, session: str, new: str) -> None:
        """Make a session that begins as another does."""
        raise NotImplementedError

    def sessions(self) -> Sequence[Any]:
        """Return all sessions, with what a list of them shows."""
        raise NotImplementedError

    def search(self, word: str) -> Sequence[Any]:
        """Return where a word was said."""
        raise NotImplementedError

    def shrink(self) -> None:
        """Make what is on disk as small as the system can."""
        raise NotImplementedError

    @classmethod
    def reader(cls, directory: Path) -> "Peer":
        """Return a fresh handle that only reads."""
        return cls(directory)

    def twin(self) -> "Peer":
        """Return what another thread appends with."""
        return type(self)(self.directory)

    def close(self) -> None:
        """Close what is open."""

    async def close_async(self) -> None:
        """Close what an awaited append has opened."""

    @staticmethod
    def text_of(item: Any) -> str:
        """Return the text of a loaded message."""
        return str(item["content"])

    @classmethod
    def has(cls, operation: str) -> bool:
        """Tell whether the system has an operation."""
        return getattr(cls, operation) is not getattr(Peer, operation)


class Loop:
    """An event loop for a system that can only be awaited: kept, as a server keeps one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Wait for something."""
        return self._loop.run_until_complete(awaitable)

    def close(self) -> None:
        """End the loop."""
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def text(message: Message) -> str:
    """Return what a message says, for systems that keep a text and not the caller's JSON."""
    content = message.get("content")
    return content if isinstance(content, str) else str(message.get("tool_calls"))
