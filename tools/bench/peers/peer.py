"""The operations of a measured system.

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
    """Import a package of the peers' environment, without types."""
    return importlib.import_module(name)


class Peer:
    """A handle on a fresh or an existing directory of one system."""

    #: Whether several writers may append to one session, according to the system's documentation.
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
        """Create a session with the messages of another."""
        raise NotImplementedError

    def sessions(self) -> Sequence[Any]:
        """Return all sessions, with the data of a list."""
        raise NotImplementedError

    def search(self, word: str) -> Sequence[Any]:
        """Return the messages with a word."""
        raise NotImplementedError

    def shrink(self) -> None:
        """Shrink the files as much as the system can."""
        raise NotImplementedError

    @classmethod
    def reader(cls, directory: Path) -> "Peer":
        """Return a fresh handle that only reads."""
        return cls(directory)

    def twin(self) -> "Peer":
        """Return the handle for another thread."""
        return type(self)(self.directory)

    def close(self) -> None:
        """Close all handles."""

    async def close_async(self) -> None:
        """Close the handles of awaited appends."""

    @staticmethod
    def text_of(item: Any) -> str:
        """Return the text of a loaded message."""
        return str(item["content"])

    @classmethod
    def has(cls, operation: str) -> bool:
        """Return whether the system has an operation."""
        return getattr(cls, operation) is not getattr(Peer, operation)


class Loop:
    """An event loop for a system that can only be awaited, kept open as in a server."""

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
    """Return the text of a message, for systems that do not keep the caller's JSON."""
    content = message.get("content")
    return content if isinstance(content, str) else str(message.get("tool_calls"))
