"""Each adapter in a few lines: how to add texts to a conversation with one call, and how to read them."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import hansard

#: Calls of each process.
TURNS = 20


class Adapter(NamedTuple):
    """An adapter over a store."""

    say: Callable[..., Coroutine[Any, Any, Any]]
    read: Callable[[str], Coroutine[Any, Any, list[Any]]]
    #: The other calls that change a conversation, "s".
    change: Callable[[], Coroutine[Any, Any, Any]] | None = None
    prefix: str = ""
    #: The names of all conversations.
    names: Callable[[], Coroutine[Any, Any, list[str]]] | None = None


def adk(store: Any) -> Adapter:
    """Append an event of Google's kit that counts in the state; read again after a conflict."""
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions
    from google.adk.sessions.base_session_service import GetSessionConfig
    from google.genai import types

    from hansard.adapters.adk import HansardSessionService

    service = HansardSessionService(store)
    who: Any = {"app_name": "a", "user_id": "u"}

    async def say(name: str, *texts: str) -> None:
        while True:
            with suppress(StaleSessionError, AlreadyExistsError):
                session = await service.get_session(**who, session_id=name)
                session = session or await service.create_session(**who, session_id=name)
                content = types.Content(role="user", parts=[types.Part(text=one) for one in texts])
                actions = EventActions(state_delta={"n": session.state.get("n", 0) + 1})
                event = Event(author="user", content=content, actions=actions)
                await service.append_event(session, event)
                return

    async def read(name: str) -> list[Any]:
        found: Any = await service.get_session(**who, session_id=name)
        for count in (3, 20):
            config = GetSessionConfig(num_recent_events=count)
            recent: Any = await service.get_session(**who, session_id=name, config=config)
            assert (recent.state, recent.events) == (found.state, found.events[-count:])
        listed = (await service.list_sessions(**who)).sessions
        assert found.state == {one.id: one.state for one in listed}[name]
        assert found.state == found.events[-1].actions.state_delta
        return [part.text for event in found.events for part in event.content.parts]

    async def change() -> None:
        await service.get_user_state(**who)
        await service.delete_session(**who, session_id="s")

    async def names() -> list[str]:
        return [one.id for one in (await service.list_sessions(**who)).sessions]

    return Adapter(say, read, change, "adk/a/u/", names)


def claude_agent(store: Any) -> Adapter:
    """Append entries to a transcript of the Claude Agent SDK."""
    from hansard.adapters.claude_agent import HansardSessionStore

    transcripts: Any = HansardSessionStore(store)

    async def say(name: str, *texts: str) -> None:
        known = await transcripts.load({"project_key": "p", "session_id": name}) or [{}]
        names = [known[-1].get("uuid"), *texts]
        entries = [
            {"type": "user", "uuid": text, "parentUuid": last, "message": message_of(text)}
            for last, text in pairwise(names)
        ]
        await transcripts.append({"project_key": "p", "session_id": name}, entries)

    def message_of(text: str) -> dict[str, Any]:
        return {"role": "user", "content": text}

    async def read(name: str) -> list[Any]:
        found = await transcripts.load({"project_key": "p", "session_id": name})
        # The SDK follows the chain of parents, also past a redacted entry.
        names = [None, *(one["uuid"] for one in found)]
        assert all(one["parentUuid"] in names for one in found)
        listed = await transcripts.list_session_summaries("p")
        texts = [one["message"]["content"] for one in found if "message" in one]
        assert {one["session_id"]: one["data"]["first_prompt"] for one in listed}[name] == texts[0]
        return texts

    async def change() -> None:
        await transcripts.list_subkeys({"project_key": "p", "session_id": "s"})
        await transcripts.delete({"project_key": "p", "session_id": "s"})

    async def names() -> list[str]:
        return [one["session_id"] for one in await transcripts.list_sessions("p")]

    return Adapter(say, read, change, "claude/p/", names)


def langchain(store: Any) -> Adapter:
    """Add messages of LangChain."""
    from langchain_core.messages import HumanMessage

    from hansard.adapters.langchain import HansardChatMessageHistory as History

    async def say(name: str, *texts: str) -> None:
        await History(name, store).aadd_messages([HumanMessage(text) for text in texts])

    async def read(name: str) -> list[Any]:
        return [message.content for message in await History(name, store).aget_messages()]

    return Adapter(say, read, lambda: History("s", store).aclear())


def langgraph(store: Any) -> Adapter:
    """Put a checkpoint of LangGraph with more messages."""
    from langgraph.checkpoint.base import empty_checkpoint

    from hansard.adapters.langgraph import HansardSaver

    saver: Any = HansardSaver(store)

    def at(name: str) -> Any:
        return {"configurable": {"thread_id": name, "checkpoint_ns": ""}}

    async def say(name: str, *texts: str) -> None:
        said = [*(await read(name)), *texts]
        versions = {"messages": saver.get_next_version(len(said), None)}
        messages = [{"role": "user", "content": text} for text in said]
        held = {"channel_values": {"messages": messages}, "channel_versions": versions}
        await saver.aput(at(name), {**empty_checkpoint(), **held}, {}, versions)

    async def read(name: str) -> list[Any]:
        found = await saver.aget_tuple(at(name))
        held = found.checkpoint["channel_values"]["messages"] if found else []
        return [message["content"] for message in held]

    async def change() -> None:
        (found,) = [one async for one in saver.alist(at("s"))]
        await saver.aput_writes(found.config, [("c", 1)], "task")
        await saver.adelete_thread("s")

    return Adapter(say, read, change)


def openai_agents(store: Any) -> Adapter:
    """Add items of the OpenAI Agents SDK."""
    from hansard.adapters.openai_agents import HansardSession

    async def say(name: str, *texts: str) -> None:
        items: Any = [{"role": "user", "content": text} for text in texts]
        await HansardSession(name, store).add_items(items)

    async def read(name: str) -> list[Any]:
        return [dict(item)["content"] for item in await HansardSession(name, store).get_items()]

    async def change() -> None:
        await HansardSession("s", store).pop_item()
        await HansardSession("s", store).clear_session()

    return Adapter(say, read, change)


def pydantic_ai(store: Any) -> Adapter:
    """Give an agent of Pydantic AI a prompt of several parts."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, UserPromptPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai_harness.step_persistence import StepPersistence

    from hansard.adapters.pydantic_ai import HansardStepStore, SessionPersistence

    persistence = SessionPersistence(store)
    model = FunctionModel(lambda *_: ModelResponse([TextPart("yes")]))
    agent: Any = Agent(model, capabilities=[persistence])

    async def say(name: str, *texts: str) -> None:
        await agent.run(texts, conversation_id=name)

    async def read(name: str) -> list[Any]:
        parts = [part for message in await persistence.load(name) for part in message.parts]
        return [text for part in parts if isinstance(part, UserPromptPart) for text in part.content]

    async def change() -> None:
        steps = HansardStepStore(store)
        await Agent(model, capabilities=[StepPersistence(store=steps)]).run("hello")
        assert await steps.list_runs()

    return Adapter(say, read, change)


def pydantic_steps(store: Any) -> Adapter:
    """Save requests in a snapshot of a run of Pydantic AI's harness."""
    from pydantic_ai.messages import ModelRequest, UserPromptPart
    from pydantic_ai_harness.step_persistence import ContinuableSnapshot, StepEvent

    from hansard.adapters.pydantic_ai import HansardStepStore

    steps: Any = HansardStepStore(store)

    async def say(name: str, *texts: str) -> None:
        messages: list[Any] = [ModelRequest([UserPromptPart(text)]) for text in texts]
        snapshot = ContinuableSnapshot(run_id=name, step_index=0, messages=messages)
        await steps.save_snapshot(snapshot)
        await steps.save_snapshot(replace(snapshot, messages=[], idempotency_key="0:once"))

    async def read(name: str) -> list[Any]:
        found = [one for one in await steps.list_snapshots(run_id=name) if one.messages]
        return [message.parts[0].content for one in found for message in one.messages]

    async def change() -> None:
        event = StepEvent(run_id="s", kind="run_started", step_index=0, idempotency_key="k")
        for _ in range(2):
            await steps.append_event(event)
        assert await steps.list_events(run_id="s") == [event]

    return Adapter(say, read, change, "steps/run/")


def strands(store: Any) -> Adapter:
    """Add a message of several blocks in Strands, with the number of a new agent's first message."""
    from strands.types.session import SessionMessage

    from hansard.adapters.strands import HansardRepository

    repository = HansardRepository(store)

    async def say(name: str, *texts: str) -> None:
        message: Any = {"role": "user", "content": [{"text": text} for text in texts]}
        repository.create_message(name, "a", SessionMessage(message, 0))

    async def read(name: str) -> list[Any]:
        found = repository.list_messages(name, "a")
        numbers = [one.message_id for one in found]
        assert numbers == sorted(set(numbers))
        return [block["text"] for one in found for block in one.to_message()["content"]]

    return Adapter(say, read)


ADAPTERS = {
    make.__name__: make
    for make in (
        *(adk, claude_agent, langchain, langgraph),
        *(openai_agents, pydantic_ai, pydantic_steps, strands),
    )
}


def run() -> None:
    """Add texts in a process, when it has read a line."""
    adapter, path, word = sys.argv[1:]

    async def talk() -> None:
        async with hansard.aio.open(path, durability="os") as store:
            one = ADAPTERS[adapter](store)
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.readline()
            for number in range(TURNS):
                await one.say("s", f"{word} {number}", f"{word} {number}, too")

    asyncio.run(talk())
