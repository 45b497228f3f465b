"""The conformance table: each adapter in a few calls, over a store of ours or over the framework's own."""

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

import hansard

#: Calls of each process.
TURNS = 20


class Adapter:
    """What each adapter fills in, in the module that tests it: a few calls of its framework, awaited.

    Attributes:
        prefix: the prefix of the ids of sessions.
        kept: the framework's object that stores; or what creates one, for a conversation.
    """

    prefix = ""

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    async def say(self, name: str, *texts: str) -> None:
        """Add texts to a conversation with one call."""
        raise NotImplementedError

    async def read(self, name: str) -> list[Any]:
        """Return the texts of a conversation."""
        raise NotImplementedError

    async def keep(self, given: list[Any]) -> list[Any]:
        """Store values in a conversation "s", wherever the framework takes any, and return them as read."""
        raise NotImplementedError

    async def answer(self, number: int) -> None:
        """Add an answer to the conversation "s" that took 10 tokens in, 4 of them cached, and 3 out.

        It is of the model "m", and the same number is the same answer.
        """
        raise NotImplementedError

    async def change(self) -> None:
        """Do the other calls that change the conversation "s"."""
        raise NotImplementedError

    async def names(self) -> list[str]:
        """Return the names of all conversations."""
        raise NotImplementedError


class Row(NamedTuple):
    """An adapter of the table.

    Attributes:
        calls: its `Adapter`, below `tests.adapters`.
        ours: its class, below `hansard.adapters`.
        theirs: the framework's own store and its arguments, or nothing. `PATH` becomes a directory.
        needs: the module without which it cannot be imported, and the package and the extra to install.
    """

    calls: str
    ours: str
    theirs: tuple[str, ...]
    needs: tuple[str, str, str]


PATH = "a directory"

ROWS = {
    "adk": Row(
        "test_adk.Calls", "adk.HansardSessionService",
        ("google.adk.sessions.InMemorySessionService",),
        ("google.adk", "google-adk", "google-adk"),
    ),
    "claude_agent": Row(
        "test_claude_agent.Calls", "claude_agent.HansardSessionStore",
        ("claude_agent_sdk.InMemorySessionStore",),
        ("claude_agent_sdk", "claude-agent-sdk", "claude-agent"),
    ),
    "langchain": Row(
        "test_langchain.Calls", "langchain.HansardChatMessageHistory",
        ("langchain_core.chat_history.InMemoryChatMessageHistory",),
        ("langchain_core", "langchain-core 1", "langchain"),
    ),
    "langgraph": Row(
        "test_langgraph.Calls", "langgraph.HansardSaver",
        ("langgraph.checkpoint.memory.InMemorySaver",),
        ("langgraph", "langgraph", "langgraph"),
    ),
    "openai_agents": Row(
        "test_openai_agents.Calls", "openai_agents.HansardSession",
        ("agents.SQLiteSession", "s"),
        ("agents", "openai-agents", "openai-agents"),
    ),
    "pydantic_ai": Row(
        "test_pydantic_ai.Calls", "pydantic_ai.SessionPersistence",
        (),
        ("pydantic_ai", "pydantic-ai-slim", "pydantic-ai"),
    ),
    "pydantic_ai_steps": Row(
        "test_pydantic_ai.StepCalls", "pydantic_ai.HansardStepStore",
        ("pydantic_ai_harness.step_persistence.InMemoryStepStore",),
        ("pydantic_ai_harness", "pydantic-ai-harness for its step store", "pydantic-ai"),
    ),
    "strands": Row(
        "test_strands.Calls", "strands.HansardRepository",
        ("strands.session.file_session_manager.FileSessionManager", "other", PATH),
        ("strands", "strands-agents", "strands"),
    ),
}  # fmt: skip

#: Adapters whose object is one conversation.
_OF_ONE = {"langchain", "openai_agents"}


def ours(name: str, store: Any) -> Adapter:
    """Return an adapter's calls over a store, or the path of one."""
    create = _load(f"hansard.adapters.{ROWS[name].ours}")
    kept = (lambda conversation: create(conversation, store)) if name in _OF_ONE else create(store)
    return _calls(name, kept)


def theirs(name: str, path: Path) -> Adapter:
    """Return the same calls over the framework's own store."""
    created, *given = ROWS[name].theirs
    kept = _load(created)(*(str(path) if one is PATH else one for one in given))
    return _calls(name, (lambda _: kept) if name in _OF_ONE else kept)


def _calls(name: str, kept: Any) -> Adapter:
    made: Adapter = _load(f"tests.adapters.{ROWS[name].calls}")(kept)
    return made


def _load(name: str) -> Any:
    module, _, member = name.rpartition(".")
    return getattr(importlib.import_module(module), member)


def alike(one: Any, other: Any) -> bool:
    """Return whether two values are the same, with the same types; NaN is NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [(type(name), name) for name in one] == [
            (type(name), name) for name in other
        ] and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(alike, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


def run() -> None:
    """Add texts in a process, when it has read a line."""
    name, path, word = sys.argv[1:]

    async def talk() -> None:
        async with hansard.aio.open(path, durability="os") as store:
            one = ours(name, store)
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.readline()
            for number in range(TURNS):
                await one.say("s", f"{word} {number}", f"{word} {number}, too")

    asyncio.run(talk())
