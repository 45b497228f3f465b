"""The conformance table: each adapter in a few calls, over a store of ours or over the framework's own."""

import asyncio
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hansard

#: Calls of each process.
TURNS = 20


class Adapter:
    """What each adapter fills in, in the module that tests it: a few calls of its framework, awaited.

    Attributes:
        ours: creates the adapter over a store: an object, or what creates one for a conversation.
        theirs: the same of the framework's own store, in a directory.
        needs: what to import, and the module, the package and the extra that this needs.
        prefix: the prefix of the ids of sessions.
    """

    ours: Callable[[Any], Any]
    theirs: Callable[[Path], Any]
    needs: tuple[str, str, str, str]
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


#: The module and class of each adapter's calls.
ADAPTERS = {
    "adk": "test_adk.Calls",
    "claude_agent": "test_claude_agent.Calls",
    "langchain": "test_langchain.Calls",
    "langgraph": "test_langgraph.Calls",
    "openai_agents": "test_openai_agents.Calls",
    "pydantic_ai": "test_pydantic_ai.Calls",
    "pydantic_ai_steps": "test_pydantic_ai.StepCalls",
    "strands": "test_strands.Calls",
}


def calls(name: str) -> type[Adapter]:
    """Return the calls of an adapter; its framework is imported only now."""
    module, _, member = ADAPTERS[name].partition(".")
    found: type[Adapter] = getattr(importlib.import_module(f"tests.adapters.{module}"), member)
    return found


def ours(name: str, store: Any) -> Adapter:
    """Return an adapter's calls over a store, or the path of one."""
    return calls(name)(calls(name).ours(store))


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
