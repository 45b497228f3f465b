"""Every adapter keeps the values that its framework's store keeps, or refuses them before storing anything.

One table of values goes through each adapter, among other values, and through the framework's own store. The
result must equal the given value, or the result of the framework's store.
"""

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents.memory import SQLiteSession
from claude_agent_sdk import InMemorySessionStore
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai_harness.step_persistence import ContinuableSnapshot, InMemoryStepStore
from strands.session.file_session_manager import FileSessionManager
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import hansard
from hansard import exporters
from hansard.adapters.adk import HansardSessionService
from hansard.adapters.claude_agent import HansardSessionStore
from hansard.adapters.langchain import HansardChatMessageHistory
from hansard.adapters.langgraph import HansardSaver
from hansard.adapters.openai_agents import HansardSession
from hansard.adapters.pydantic_ai import HansardStepStore, SessionPersistence
from hansard.adapters.strands import HansardRepository
from hansard.message import values


def nested(levels: int) -> Any:
    """Return nested lists and dicts with this many levels."""
    value: Any = "the deepest"
    for level in range(levels):
        value = [value] if level % 2 else {"level": value}
    return value


#: Values that JSON lacks, or that events refuse.
HARD: dict[str, Any] = {
    "int keys": {1: "one", 2: {3: "four"}},
    "int keys that look like texts": {1: "number", "1": "text"},
    "other keys": {True: 1, None: 2, 2.5: 3},
    "infinity": [math.inf, -math.inf],
    "NaN": {"n": math.nan},
    "bytes": {"b": b"\xff\x00", "text": b"YWJj"},
    "half a character": {"text": "half \ud83d", "\udc00": ["\ud800"]},
    "combined": {1: [math.nan, {2: (b"\xff", "\ud800", nested(50))}]},
}
#: JSON values that look like one of the notations.
PLAIN: dict[str, Any] = {
    "marks": {"$map": [[1, 2]], "$bytes": "AA=="},
    "a mark that is alone": {"$float": "nan"},
    "a mark inside": [{"$json": "1"}, {"$map": []}, {"encoded": True}],
    "numbers": [1, True, 1.0, -0.0, 2**70, -(2**70), 1e308],
    "empty": [{}, [], "", None],
    "an empty key": {"": 1, "a/b": 2, "~": 3},
    "text": "a\0b\u2028\x7f",
    "90 levels": nested(90),
}
TABLE = {**HARD, **PLAIN}


def alike(one: Any, other: Any) -> bool:
    """Return whether two values are the same, with the same types; NaN is NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [(type(name), name) for name in one] == [
            (type(name), name) for name in other
        ] and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(alike, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


def openai_agents(session: Any, given: list[Any]) -> list[Any]:
    """Items of the OpenAI Agents SDK."""
    items = [{"role": "user", "content": "said", "more": value} for value in given]
    items += [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "v": given}]

    async def run() -> list[Any]:
        await session.add_items(items)
        return list(await session.get_items())

    *found, call = asyncio.run(run())
    assert alike(call["v"], [one["more"] for one in found])
    return [one["more"] for one in found]


def langchain(history: Any, given: list[Any]) -> list[Any]:
    """Messages of LangChain."""
    history.add_messages([HumanMessage("said", additional_kwargs={"v": value}) for value in given])
    calls = [{"id": "c", "name": "f", "args": {"v": value}} for value in given]
    results = [ToolMessage("done", tool_call_id="c", artifact=value) for value in given]
    history.add_messages([AIMessage("", tool_calls=calls), *results])
    said, called = history.messages[: len(given)], history.messages[len(given)]
    found = [message.additional_kwargs["v"] for message in said]
    assert alike([call["args"]["v"] for call in called.tool_calls], found)
    assert alike([message.artifact for message in history.messages[len(given) + 1 :]], found)
    return found


def langgraph(saver: Any, given: list[Any]) -> list[Any]:
    """Values, writes and metadata of a checkpoint of LangGraph."""
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    checkpoint = empty_checkpoint()
    versions: Any = {"messages": "1", "v": "1"}
    checkpoint["channel_versions"] = versions
    said = [HumanMessage([{"type": "text", "text": "said", "v": value}]) for value in given]
    checkpoint["channel_values"] = {"v": {"given": given}, "messages": said}
    config = saver.put(at, checkpoint, {"source": "loop", "step": 1, "given": given}, versions)
    saver.put_writes(config, [("v", given)], "task")
    found = saver.get_tuple(at)
    held = found.checkpoint["channel_values"]["v"]["given"]
    assert alike(found.pending_writes[0][2], held)
    assert alike(found.metadata["given"], held)
    kept = [message.content[0]["v"] for message in found.checkpoint["channel_values"]["messages"]]
    assert alike(kept, held)
    return list(held)


def adk(service: Any, given: list[Any]) -> list[Any]:
    """Events and states of the Agent Development Kit."""
    names = {"app_name": "app", "user_id": "user", "session_id": "s"}

    async def run() -> Any:
        first = {"first": given, "app:first": given, "user:first": given}
        session = await service.create_session(**names, state=first)
        call = types.Part(function_call=types.FunctionCall(id="c", name="f", args={"v": given}))
        blob = types.Part(inline_data=types.Blob(data=b"\xfb\xff", mime_type="image/png"))
        content = types.Content(role="model", parts=[types.Part(text="said"), call, blob])
        changes = {"v": given, "app:v": given, "user:v": given}
        actions = EventActions(state_delta=changes)
        event = Event(author="a", content=content, actions=actions, long_running_tool_ids={"c"})
        await service.append_event(session, event)
        other = Event(author="a", actions=actions, custom_metadata={"v": given})
        await service.append_event(session, other)
        return await service.get_session(**names)

    session = asyncio.run(run())
    event, other = session.events[:2]
    found = event.content.parts[1].function_call.args["v"]
    assert event.content.parts[2].inline_data.data == b"\xfb\xff"
    assert event.long_running_tool_ids == {"c"}
    assert alike(other.custom_metadata["v"], found)
    for state in (event.actions.state_delta, session.state):
        assert all(alike(state[name], found) for name in ("v", "app:v", "user:v"))
    for name in ("first", "app:first", "user:first"):
        assert alike(session.state[name], found)
    return list(found)


def strands(repository: Any, given: list[Any]) -> list[Any]:
    """Messages and agents of Strands."""
    repository.create_session(Session("s", SessionType.AGENT))
    agent = SessionAgent("a", {"v": given}, {})
    repository.create_agent("s", agent)
    for number, value in enumerate(given):
        use: Any = {"toolUse": {"toolUseId": "c", "name": "f", "input": {"v": value}}}
        repository.create_message(
            "s", "a", SessionMessage({"role": "user", "content": [use]}, number)
        )
    found = [
        one.to_message()["content"][0]["toolUse"]["input"]["v"]
        for one in repository.list_messages("s", "a")
    ]
    read = repository.read_agent("s", "a")
    assert alike(
        [values.readable(one) for one in read.state["v"]], list(map(values.readable, found))
    )
    return found


def claude(store: Any, given: list[Any]) -> list[Any]:
    """Entries of a transcript of Claude Code's."""
    key: Any = {"project_key": "p", "session_id": "s"}
    entries = [
        {
            "type": "user",
            "uuid": f"{number}",
            "message": {"role": "user", "content": [{"type": "text", "text": "said", "v": value}]},
        }
        for number, value in enumerate(given)
    ]
    more = {"type": "progress", "uuid": "more", "v": given}

    async def run() -> Any:
        await store.append(key, [*entries, more])
        return await store.load(key)

    *found, last = asyncio.run(run())
    kept = [entry["message"]["content"][0]["v"] for entry in found]
    assert alike(last["v"], kept)
    return kept


def pydantic_ai(kept: Any, given: list[Any]) -> list[Any]:
    """Messages of Pydantic AI; stored messages are not stored again."""
    messages = [
        ModelResponse([ToolCallPart("f", {"v": value}, tool_call_id=f"{number}")])
        for number, value in enumerate(given)
    ] + [ModelRequest([ToolReturnPart("f", given, tool_call_id="c")])]

    async def run() -> Any:
        assert await kept.save("s", messages) == len(messages)
        assert await kept.save("s", await kept.load("s")) == 0
        assert await kept.save("s", messages) == 0
        return await kept.load("s")

    *calls, result = asyncio.run(run())
    assert calls[0] == messages[0]
    found = [call.parts[0].args["v"] for call in calls]
    assert alike(result.parts[0].content, found)
    return found


def pydantic_steps(store: Any, given: list[Any]) -> list[Any]:
    """Snapshots of Pydantic AI's harness."""
    messages: Any = [ModelRequest([ToolReturnPart("f", value)]) for value in given]

    async def run() -> Any:
        await store.save_snapshot(ContinuableSnapshot(run_id="r", step_index=1, messages=messages))
        return await store.latest_snapshot(run_id="r")

    return [message.parts[0].content for message in asyncio.run(run()).messages]


#: By adapter: the operation, and how to create the adapter and the framework's own store, if there is one.
ADAPTERS: dict[str, tuple[Callable[[Any, list[Any]], list[Any]], Any, Any]] = {
    "openai": (openai_agents, lambda s: HansardSession("s", s), lambda _: SQLiteSession("s")),
    "langchain": (langchain, lambda store: HansardChatMessageHistory("s", store),
        lambda _: InMemoryChatMessageHistory()),
    "langgraph": (langgraph, HansardSaver, lambda _: InMemorySaver()),
    "adk": (adk, HansardSessionService, lambda _: InMemorySessionService()),
    "strands": (strands, HansardRepository,
        lambda path: FileSessionManager("other", storage_dir=str(path))),
    "claude": (claude, HansardSessionStore, lambda _: InMemorySessionStore()),
    "pydantic": (pydantic_ai, SessionPersistence, None),
    "steps": (pydantic_steps, HansardStepStore, lambda _: InMemoryStepStore()),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_values_come_back_equal(
    adapter: str, name: str, store: hansard.Store, tmp_path: Path
) -> None:
    """N-64: every adapter returns each value like the framework's own store."""
    run, ours, theirs = ADAPTERS[adapter]
    given = ["before", TABLE[name], "after"]
    try:
        found = run(ours(store), given)
    except (TypeError, ValueError):
        with pytest.raises((TypeError, ValueError)):
            run(theirs(tmp_path / "theirs"), given)
        assert not store.sessions().items
        return
    if not alike(found, given):
        assert theirs is not None
        assert alike(found, run(theirs(tmp_path / "theirs"), given))


#: Kinds of events that a call stores before it refuses a value.
STORED_BEFORE = {"adk": {"x.adk.created"}, "strands": {"x.strands.session"}}


#: LangGraph's deep values are bytes.
REFUSED = [(adapter, levels) for adapter in ADAPTERS for levels in (0, 200, 100_000)]
REFUSED.remove(("langgraph", 200))


@pytest.mark.parametrize(("adapter", "levels"), REFUSED)
def test_invalid_values_are_refused_before_anything_is_stored(
    adapter: str, levels: int, store: hansard.Store
) -> None:
    """N-64: an object, and a value that is too deep, is refused with all values of the call."""
    run, ours, _ = ADAPTERS[adapter]
    wrong = nested(levels) if levels else object()
    with pytest.raises((TypeError, ValueError, RecursionError)):
        run(ours(store), ["before", wrong, "after"])
    stored = [
        event.kind
        for info in store.sessions().items
        for event in store.session(info.id).events()
        if not event.kind.startswith("session.")
    ]
    shared = {"x.adk.intended", "x.adk.settled"}
    assert set(stored) <= STORED_BEFORE.get(adapter, set()) | shared


def test_a_deep_value_of_langgraph_comes_back(store: hansard.Store) -> None:
    """N-64: a value of 200 levels is stored as its bytes, and comes back equal."""
    assert alike(langgraph(HansardSaver(store), [nested(200)]), [nested(200)])


def test_values_that_json_lacks_can_be_exported(store: hansard.Store) -> None:
    """An export in another program's format shows values that the format lacks."""
    item: Any = {"role": "user", "content": "half \ud83d", "more": {1: [math.nan, b"\xff"]}}
    asyncio.run(HansardSession("s", store).add_items([item]))
    for kind in ("openai-items", "codex", "claude-code"):
        assert b"half ?" in b"".join(exporters.export(store.session("s"), kind))


@pytest.mark.parametrize("name", TABLE)
def test_the_notation_is_json_that_comes_back(name: str) -> None:
    """Each value comes back with its types from JSON that an event can hold."""
    value = TABLE[name]
    told = values.to_json(value)
    assert values.is_json(told)
    assert alike(values.from_json(json.loads(json.dumps(told))), value)
    assert values.is_json(values.readable(value))


def test_a_text_stays_a_text_that_can_be_found(store: hansard.Store) -> None:
    """Strings in the notation can be searched and scrubbed."""
    history = HansardChatMessageHistory("s", store)
    history.add_messages(
        [HumanMessage("my half \ud83d password", additional_kwargs={1: "my password"})]
    )
    session = store.session("s")
    assert [hit.session for hit in store.search("password")] == ["s"]
    session.scrub("password")
    assert "password" not in json.dumps([event.data for event in session.events()])
    with pytest.raises(hansard.InvalidEvent, match="type object"):
        values.to_json({"a": [object()]})
