"""`SessionPersistence` and `HansardStepStore` keep the messages and steps of Pydantic AI's agents.

The references are a run's own messages and the harness' store in memory. Scripted models drive the real loop.
"""

import asyncio
import copy
import json
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, UsageLimitExceeded, UsageLimits
from pydantic_ai.capabilities import AbstractCapability, ProcessHistory
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import DeferredToolResults, RunContext
from pydantic_ai.usage import RequestUsage
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    InMemoryStepStore,
    RunRecord,
    StepEvent,
    StepPersistence,
    StepStore,
    ToolEffectRecord,
    continue_run,
)

import hansard
from hansard.adapters.pydantic_ai import HansardStepStore, SessionPersistence
from hansard.message import openai_items, origin, pydantic_items
from tests.adapters.processes import PATIENCE, children
from tests.adapters.table import Adapter, alike


class Calls(Adapter):
    """Give an agent prompts of several parts."""

    ours = SessionPersistence
    needs = ("pydantic_ai.SessionPersistence", "pydantic_ai", "pydantic-ai-slim", "pydantic-ai")

    async def say(self, name: str, *texts: str) -> None:
        """Run an agent with the texts as a prompt."""
        agent: Any = agent_of(self.kept)
        await agent.run(texts, conversation_id=name)

    async def read(self, name: str) -> list[Any]:
        """Return the texts of the prompts."""
        parts = [part for message in await self.kept.load(name) for part in message.parts]
        return [text for part in parts if isinstance(part, UserPromptPart) for text in part.content]

    async def keep(self, given: list[Any]) -> list[Any]:
        """Store values in calls and results; stored messages are not stored again."""
        calls: list[ModelMessage] = [
            ModelResponse([ToolCallPart("f", {"v": value}, tool_call_id=f"{number}")])
            for number, value in enumerate(given)
        ]
        messages = [*calls, ModelRequest([ToolReturnPart("f", given, tool_call_id="c")])]
        assert await self.kept.save("s", messages) == len(messages)
        assert await self.kept.save("s", await self.kept.load("s")) == 0
        assert await self.kept.save("s", messages) == 0
        *found, result = await self.kept.load("s")
        assert found[0] == messages[0]
        kept = [call.parts[0].args["v"] for call in found]
        assert alike(result.parts[0].content, kept)
        return kept

    async def answer(self, number: int) -> None:
        """Save a response."""
        used = RequestUsage(input_tokens=10, cache_read_tokens=4, output_tokens=3)
        told: Any = {"model_name": "m", "timestamp": datetime.fromtimestamp(number, UTC)}
        await self.kept.save("s", [ModelResponse([TextPart("answer")], usage=used, **told)])

    async def change(self) -> None:
        """Save a request."""
        await self.kept.save("s", [ModelRequest([UserPromptPart("more")])])


class StepCalls(Adapter):
    """Save requests in snapshots of a run of the harness."""

    ours = HansardStepStore
    theirs = staticmethod(lambda _: InMemoryStepStore())
    needs = (
        *("pydantic_ai.HansardStepStore", "pydantic_ai_harness"),
        *("pydantic-ai-harness for its step store", "pydantic-ai"),
    )
    prefix = "steps/run/"

    async def say(self, name: str, *texts: str) -> None:
        """Save a snapshot with a request for each text."""
        messages: list[ModelMessage] = [ModelRequest([UserPromptPart(text)]) for text in texts]
        snapshot = ContinuableSnapshot(run_id=name, step_index=0, messages=messages)
        await self.kept.save_snapshot(snapshot)
        again = replace(snapshot, messages=[], idempotency_key="0:once")
        await self.kept.save_snapshot(again)

    async def read(self, name: str) -> list[Any]:
        """Return the texts of all snapshots."""
        found = await self.kept.list_snapshots(run_id=name)
        return [message.parts[0].content for one in found for message in one.messages]

    async def keep(self, given: list[Any]) -> list[Any]:
        """Store values in results."""
        messages: list[ModelMessage] = [ModelRequest([ToolReturnPart("f", one)]) for one in given]
        snapshot = ContinuableSnapshot(run_id="s", step_index=1, messages=messages)
        await self.kept.save_snapshot(snapshot)
        found = await self.kept.latest_snapshot(run_id="s")
        return [message.parts[0].content for message in found.messages]

    async def change(self) -> None:
        """Append a step twice, and run an agent."""
        event = StepEvent(run_id="s", kind="run_started", step_index=0, idempotency_key="k")
        for _ in range(2):
            await self.kept.append_event(event)
        assert await self.kept.list_events(run_id="s") == [event]
        await agent_of(StepPersistence(store=self.kept)).run("hello")
        assert await self.kept.list_runs()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end."""
    return asyncio.run(work)


def kinds_of(session: hansard.Session) -> set[str]:
    """Return the kinds of a session's events."""
    return {event.kind for event in session.events()}


def prompt_of(messages: list[ModelMessage]) -> str:
    """Return the last prompt."""
    said = [
        part.content
        for message in messages
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    return str(said[-1]) if said else ""


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Call a tool twice for a prompt with "look"; else answer with the number of messages."""
    last = messages[-1]
    if any(isinstance(part, ToolReturnPart) for part in last.parts) or "look" not in prompt_of(
        messages
    ):
        return ModelResponse(parts=[TextPart(f"given {len(messages)}")])
    calls = [
        ToolCallPart("look", {"at": at}, tool_call_id=f"c{len(messages)}-{at}")
        for at in ("sea", "sky")
    ]
    return ModelResponse(parts=[ThinkingPart("I should look"), TextPart("Let me see."), *calls])


async def streamed(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Stream the same answer, text only."""
    for word in str(answer(messages, info).parts[-1].content).split():  # type: ignore[union-attr]
        yield f"{word} "


MODEL = FunctionModel(answer, stream_function=streamed)


def look(at: str) -> dict[str, Any]:
    """Look at something."""
    return {"at": at, "seen": f"a view of the {at}, as far as the eye can reach"}


def agent_of(*capabilities: Any, **options: Any) -> Agent[Any, Any]:
    """Return an agent with a scripted model and a tool."""
    options.setdefault("tools", [look])
    options.setdefault("instructions", "Be brief.")
    return Agent(options.pop("model", MODEL), capabilities=list(capabilities), **options)


def texts(session: hansard.Session, **options: Any) -> list[str]:
    """Return the texts of a session, as other frameworks read them."""
    return [origin.chat(message)[-1]["content"] for message in session.messages(**options)]


def dumped(messages: list[ModelMessage]) -> Any:
    """Return messages as Pydantic AI writes them."""
    return json.loads(ModelMessagesTypeAdapter.dump_json(messages))


# -- messages -----------------------------------------------------------------------------------

LONG = "a text that is long enough to be worth a pointer"

PICTURE = BinaryContent(b"\0\xff" * 40, media_type="image/png")

MESSAGES: list[ModelMessage] = [
    ModelRequest([UserPromptPart("hi")]),
    ModelRequest([SystemPromptPart("Be kind."), UserPromptPart(LONG)], instructions=LONG),
    ModelRequest([SystemPromptPart("Be kind.")]),
    ModelRequest([]),
    ModelRequest(
        [UserPromptPart(["look:", ImageUrl("https://x.test/a.png"), PICTURE])]
    ),
    ModelRequest([ToolReturnPart("t", LONG, tool_call_id="a")], run_id="r", conversation_id="c"),
    ModelRequest([ToolReturnPart("t", {"deep": [1, 2.5, None, {"text": LONG}]}, tool_call_id="a")]),
    ModelRequest(
        [
            ToolReturnPart("t", None, tool_call_id="a"),
            ToolReturnPart("t", [LONG, 1], tool_call_id="b", metadata={"k": 1}),
            UserPromptPart("and?"),
        ]
    ),
    ModelRequest([CompactionPart("what was said before")], metadata={"origin": "mine"}),
    ModelResponse([TextPart("yes"), TextPart("no")], model_name="m", finish_reason="stop"),
    ModelResponse([ThinkingPart(LONG, signature="sig"), ToolCallPart("t", {"a": LONG}, tool_call_id="a")]),
    ModelResponse([ToolCallPart("t", '{"a": "' + LONG + '"}', tool_call_id="a"), ToolCallPart("u", None)]),
    ModelResponse([], state="interrupted"),
]  # fmt: skip


def test_a_run_continues_another_framework(store: hansard.Store) -> None:
    """A run continues a session of another framework, with its calls and results."""
    session = store.session("s")
    items: list[Any] = [
        {"role": "user", "content": "hello"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "moon"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "round"},
        {"role": "assistant", "content": "It is round."},
    ]
    session.add_message({"role": "system", "content": "Be kind."})
    session.add_messages([openai_items.message_of(item) for item in items])
    persistence = SessionPersistence(store)
    result = run(agent_of(persistence).run("and?", conversation_id="s"))
    history = result.all_messages()
    assert [type(part) for message in history for part in message.parts] == [
        SystemPromptPart, UserPromptPart, ToolCallPart, ToolReturnPart, TextPart, UserPromptPart, TextPart,
    ]  # fmt: skip
    assert history[2].parts[0].tool_name == "look"
    assert texts(session)[-3:] == ["It is round.", "and?", "given 5"]
    assert len(session.messages()) == 7
    assert len(run(persistence.load("s"))) >= 6


# -- runs ---------------------------------------------------------------------------------------


def test_a_streamed_run_is_stored(store: hansard.Store) -> None:
    """A streamed run, one whose nodes the caller streams, and one that the caller leaves, are stored once."""
    persistence = SessionPersistence(store)
    agent = agent_of(persistence)

    async def stream() -> list[ModelMessage]:
        async with agent.run_stream("hello", conversation_id="s") as result:
            async for _ in result.stream_text():
                pass
            return result.all_messages()

    async def iterate() -> None:
        async with agent.iter("again", conversation_id="s") as going:
            async for node in going:
                if Agent.is_model_request_node(node):
                    async with node.stream(going.ctx) as events:
                        async for _ in events:
                            assert texts(store.session("s"))[2:] == ["again"]

    async def leave() -> None:
        async with agent.iter("look", conversation_id="s") as going:
            async for node in going:
                if Agent.is_call_tools_node(node):
                    break

    messages = run(stream())
    assert run(persistence.load("s")) == messages
    run(iterate())
    run(leave())
    said = ["hello", "given 1 ", "again", "given 3 ", "look", "Let me see."]
    assert texts(store.session("s")) == said


async def test_one_capability_serves_all_users(store: hansard.Store) -> None:
    """N-68: concurrent runs of several users see only their own conversations."""
    persistence = SessionPersistence(store, identify=lambda ctx: f"users/{ctx.deps}")
    agent = agent_of(persistence, deps_type=str)

    async def talk(user: str) -> None:
        for number in range(3):
            await agent.run(f"{user} {number}", deps=user)

    await asyncio.gather(*(talk(user) for user in ("ann", "bob", "cy")))
    for user in ("ann", "bob", "cy"):
        said = [f"{user} 0", "given 1", f"{user} 1", "given 3", f"{user} 2", "given 5"]
        assert texts(store.session(f"users/{user}")) == said
    await agent_of(SessionPersistence(store, prefix="chat/")).run("who am I?")
    assert store.count(prefix="chat/") == 1


def test_a_given_history_is_stored_once(store: hansard.Store) -> None:
    """N-58: of a given history, only new messages are stored."""
    persistence = SessionPersistence(store)
    agent = agent_of(persistence)
    first = run(agent.run("one", conversation_id="s"))
    second = run(agent.run("two", message_history=first.all_messages()))
    assert texts(store.session("s")) == ["one", "given 1", "two", "given 3"]
    new: list[ModelMessage] = [
        ModelRequest([UserPromptPart("by hand")]),
        ModelResponse([TextPart("so")]),
    ]
    third = run(agent.run("three", message_history=[*second.all_messages(), *new]))
    assert texts(store.session("s"))[4:] == ["by hand", "so", "three", "given 7"]
    assert third.output == "given 7"
    assert run(persistence.save("s", third.all_messages())) == 0


def test_a_failed_run_is_stored(store: hansard.Store) -> None:
    """N-59: if a model, a tool or a limit ends a run, its prompt, calls and finished results are stored."""
    persistence = SessionPersistence(store)

    def fails(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if prompt_of(messages) == "fail" or isinstance(messages[-1].parts[0], ToolReturnPart):
            raise RuntimeError("no model")
        return answer(messages, _)

    async def breaks(at: str) -> str:
        if at == "sky":
            await asyncio.sleep(0.01)
            raise RuntimeError("no sky")
        return "blue"

    broken = agent_of(persistence, model=FunctionModel(fails))
    with pytest.raises(RuntimeError, match="no model"):
        run(broken.run("fail", conversation_id="model"))
    assert texts(store.session("model")) == ["fail"]
    with pytest.raises(RuntimeError, match="no model"):
        run(broken.run("look", conversation_id="later"))
    said = store.session("later").messages()
    assert [origin.chat(one)[-1]["role"] for one in said] == ["user", "assistant", "tool"]
    tooled = agent_of(persistence, tools=[])
    tooled.tool_plain(name="look")(breaks)
    with pytest.raises(RuntimeError, match="no sky"):
        run(tooled.run("look", conversation_id="tool"))
    restored = run(persistence.load("tool"))
    assert [part.content for part in restored[-1].parts if isinstance(part, ToolReturnPart)] == [
        "blue"
    ]
    assert restored[-1].state == "interrupted"
    with pytest.raises(UsageLimitExceeded):
        run(
            agent_of(persistence).run(
                "x", conversation_id="limit", usage_limits=UsageLimits(total_tokens_limit=1)
            )
        )
    restored = run(persistence.load("limit"))
    assert [one.state for one in restored] == ["complete", "interrupted"]
    # Each of them can be continued.
    for id in ("model", "later", "tool", "limit"):
        before = run(persistence.load(id))
        result = run(agent_of(persistence).run("go on", conversation_id=id))
        assert result.output.startswith("given")
        assert dumped(run(persistence.load(id)))[: len(before)] == dumped(before)


def test_a_cancelled_run_is_stored(store: hansard.Store) -> None:
    """N-59: the messages of a cancelled run are stored once, and the next run continues."""
    persistence = SessionPersistence(store)
    reached = asyncio.Event()

    async def waits(at: str) -> str:
        if at == "sky":
            reached.set()
            await asyncio.Event().wait()
        return "blue"

    async def cancel() -> None:
        agent = agent_of(persistence, tools=[])
        agent.tool_plain(name="look")(waits)
        task = asyncio.create_task(agent.run("look", conversation_id="s"))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    assert texts(store.session("s"))[:2] == ["look", "Let me see."]
    last = run(persistence.load("s"))[-1]
    assert last.state == "interrupted"
    assert [part.content for part in last.parts] == ["blue"]
    result = run(agent_of(persistence).run("never mind", conversation_id="s"))
    assert result.output == "given 3"
    assert store.session("s").messages()[-2]["content"] == "never mind"


def test_deferred_calls_are_answered_later(store: hansard.Store) -> None:
    """A run that waits for an approval is resumed from the store."""
    persistence = SessionPersistence(store)
    agent = agent_of(persistence, tools=[], output_type=[str, DeferredToolRequests])
    agent.tool_plain(name="look", requires_approval=True)(look)
    first = run(agent.run("look", conversation_id="s"))
    assert isinstance(first.output, DeferredToolRequests)
    ids = [call.tool_call_id for call in first.output.approvals]
    for prompt in (None, "and hurry"):
        fork = store.session("s").fork(f"s-{prompt}").id
        results = DeferredToolResults(approvals=dict.fromkeys(ids, True))
        done = run(agent.run(prompt, conversation_id=fork, deferred_tool_results=results))
        assert done.output == "given 3"
        seen = [
            part.content
            for part in done.all_messages()[2].parts
            if isinstance(part, ToolReturnPart)
        ]
        assert seen == [look("sea"), look("sky")]
        found = run(persistence.load(fork))
        assert [one.parts for one in found] == [one.parts for one in done.all_messages()]


def test_saving_by_hand_and_metadata(store: hansard.Store) -> None:
    """`auto_save` and `auto_restore` can be off; `save` stores new messages; metadata are set."""
    by_hand = SessionPersistence(store, auto_save=False)
    result = run(agent_of(by_hand).run("hello", conversation_id="s"))
    assert not store.exists("s")
    assert run(by_hand.save("s", result.all_messages())) == 2
    assert run(by_hand.save("s", result.all_messages())) == 0
    assert run(agent_of(by_hand).run("again", conversation_id="s")).output == "given 3"

    async def at_once(id: str) -> list[int]:
        return await asyncio.gather(*(by_hand.save(id, result.all_messages()) for _ in range(8)))

    for number in range(5):
        assert sorted(run(at_once(f"once-{number}"))) == [0] * 7 + [2]
        assert texts(store.session(f"once-{number}")) == ["hello", "given 1"]
    forgetful = SessionPersistence(
        store,
        auto_restore=False,
        metadata=lambda ctx: {"agent": str(getattr(ctx.agent, "name", ""))},
    )
    assert (
        run(agent_of(forgetful, name="guide").run("again", conversation_id="s")).output == "given 1"
    )
    assert texts(store.session("s")) == ["hello", "given 1", "again", "given 1"]
    assert store.session("s").metadata == {"agent": "guide"}
    assert [one.id for one in store.sessions(where={"agent": "guide"}).items] == ["s"]


def test_from_a_spec(tmp_path: Path) -> None:
    """The spec of an agent names the store and its options."""
    options = {"store": str(tmp_path / "data"), "prefix": "chat/", "metadata": {"team": "a"}}
    agent = Agent.from_spec(
        {"model": "test", "capabilities": [{"SessionPersistence": options}]},
        custom_capability_types=[SessionPersistence],
    )
    run(agent.run("hello", conversation_id="s"))
    with hansard.open(tmp_path / "data") as store:
        assert texts(store.session("chat/s")) == ["hello", "success (no tool calls)"]
        assert store.session("chat/s").metadata == {"team": "a"}
    short = SessionPersistence.from_spec("memory:")
    assert isinstance(short, SessionPersistence)


# -- changes of the history ---------------------------------------------------------------------


def processed(store: hansard.Store, processor: Callable[..., Any]) -> Agent[Any, Any]:
    """Return an agent whose history is changed before each request."""
    return agent_of(SessionPersistence(store), ProcessHistory(processor))


def test_messages_that_a_processor_omits_stay_stored(store: hansard.Store) -> None:
    """A processor limits what the model sees; the next run has all messages again, once."""
    seen = []

    def last_two(messages: list[ModelMessage]) -> list[ModelMessage]:
        seen.append(len(messages))
        return messages[-2:] if len(messages) > 2 else messages

    agent = processed(store, last_two)
    for number in range(4):
        result = run(agent.run(str(number), conversation_id="s"))
    assert result.output == "given 2"
    assert seen == [1, 3, 5, 7]
    assert texts(store.session("s")) == [
        "0",
        "given 1",
        "1",
        "given 2",
        "2",
        "given 2",
        "3",
        "given 2",
    ]
    only = processed(store, lambda messages: messages[-1:])
    assert run(only.run("4", conversation_id="s")).output == "given 1"
    assert texts(store.session("s"))[-3:] == ["given 2", "4", "given 1"]
    assert kinds_of(store.session("s")) <= {"message.added", "usage.recorded"}


@pytest.mark.parametrize("kept", [1, 3])
def test_a_summary_of_the_first_messages_is_stored(store: hansard.Store, kept: int) -> None:
    """The next run begins with the summary that replaced the first messages; the history view has all."""

    def compact(messages: list[ModelMessage]) -> list[ModelMessage]:
        if len(messages) < 5:
            return messages
        summary = ModelRequest([CompactionPart(f"{len(messages) - kept} messages")])
        return [summary, *messages[-kept:]]

    agent = processed(store, compact)
    for number in range(3):
        result = run(agent.run(str(number), conversation_id="s"))
    session = store.session("s")
    said = ["0", "given 1", "1", "given 3", "2", f"given {kept}"]
    assert texts(session) == [f"{5 - kept} messages", *said[5 - kept :]]
    assert texts(session, view="history")[:4] == said[:4]
    assert dumped(run(SessionPersistence(store).load("s"))) == dumped(result.all_messages())


def test_a_changed_history_is_stored(store: hansard.Store) -> None:
    """A processor that rewrites messages changes the model view once; the history view keeps them."""

    def masked(messages: list[Any]) -> list[Any]:
        return [
            replace(one, parts=[replace(one.parts[0], content="my pin is ****")])
            if "4711" in str(one.parts)
            else one
            for one in messages
        ]

    agent = processed(store, masked)
    for prompt in ("hello", "my pin is 4711"):
        run(agent_of(SessionPersistence(store)).run(prompt, conversation_id="s"))
    run(agent.run("and now?", conversation_id="s"))
    session = store.session("s")
    assert texts(session)[2:] == ["my pin is ****", "given 3", "and now?", "given 5"]
    assert texts(session, view="history")[:3] == ["hello", "given 1", "my pin is 4711"]
    kinds = [e.kind for e in session.events() if e.kind != "usage.recorded"]
    assert kinds.count("session.reverted") == 1
    run(agent.run("more", conversation_id="s"))
    later = [e.kind for e in session.events() if e.kind != "usage.recorded"]
    assert later[len(kinds) :] == ["message.added"] * 2
    # A new message is masked before it is stored.
    run(agent.run("still 4711", conversation_id="s"))
    assert texts(session).count("my pin is ****") == 2
    assert "still 4711" not in texts(session, view="history")


class Concurrent(AbstractCapability[Any]):
    """Adds a message as another process before the first request, and changes the history before one."""

    def __init__(
        self, session: hansard.Session, request: int, change: Callable[[list[Any]], None]
    ) -> None:
        self._session, self._request, self._change = session, request, change
        self._count = 0

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """Add a message as another process, and change the history."""
        self._count += 1
        if self._count == 1:
            native = dumped([ModelRequest([UserPromptPart("from elsewhere")], run_id="other")])[0]
            self._session.add_message(pydantic_items.message_of(native))
        if self._count == self._request:
            self._change(ctx.messages)
        return request_context


def shorten(upto: int) -> Callable[[list[Any]], None]:
    """Return a function that replaces the first messages."""

    def change(messages: list[Any]) -> None:
        messages[:upto] = [ModelRequest([UserPromptPart("in short")])]

    return change


def reword(messages: list[Any]) -> None:
    """Change a message in the middle."""
    messages[2] = ModelRequest([UserPromptPart("1, in other words")])


@pytest.mark.parametrize(
    ("request_number", "change"),
    [(1, shorten(2)), (1, reword), (2, shorten(5))],
    ids=["summary", "reworded", "summary-of-both"],
)
def test_a_change_does_not_hide_a_concurrent_message(
    store: hansard.Store, request_number: int, change: Callable[[list[Any]], None]
) -> None:
    """N-18: a concurrent message of another process stays in the model view."""
    session = store.session("s")
    for number in range(2):
        run(agent_of(SessionPersistence(store)).run(f"{number}", conversation_id="s"))
    other = Concurrent(session, request_number, change)
    result = run(agent_of(SessionPersistence(store), other).run("look", conversation_id="s"))
    said = texts(session)
    assert said.count("from elsewhere") == 1
    assert {"0", "1", "look"} <= set(texts(session, view="history"))
    restored = run(SessionPersistence(store).load("s"))
    own = [one for one in restored if one.run_id != "other"]
    assert [one.parts for one in own] == [one.parts for one in result.all_messages()]


# -- kills ---------------------------------------------------------------

CHILD = """
import os, signal, sys
import hansard
from tests.adapters.test_pydantic_ai import *

path, where = sys.argv[1:]
store = hansard.open(path, durability="os")

def answer(messages, info):
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        os.kill(os.getpid(), signal.SIGKILL)
    return ModelResponse(parts=[ToolCallPart("look", {}, tool_call_id="c")])

def look() -> str:
    "Look, and maybe never come back."
    if where == "tool":
        os.kill(os.getpid(), signal.SIGKILL)
    return "seen"

steps = StepPersistence(store=HansardStepStore(store), run_id="r")
agent = agent_of(SessionPersistence(store), steps, model=FunctionModel(answer), tools=[look])
run(agent.run("hello", conversation_id="s"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["tool", "request"])
def test_a_killed_agent_is_resumed(store: hansard.Store, tmp_path: Path, where: str) -> None:
    """N-39, N-59: all messages before a kill, in a tool or a request, are stored, and the next run continues.

    With a prompt, the call gets a placeholder result; without one, it runs, or its results are sent again.
    """
    with children(CHILD, [str(tmp_path / "data"), where]) as (child,):
        assert child.communicate(timeout=PATIENCE)[0] == ""
        assert child.returncode == -signal.SIGKILL
    session = store.session("s")
    said = [origin.chat(message)[-1]["role"] for message in session.messages()]
    assert said == ["user", "assistant", "tool"][: 2 if where == "tool" else 3]
    steps = HansardStepStore(store)
    effects = run(steps.list_unresolved_tool_effects(run_id="r"))
    assert [effect.tool_name for effect in effects] == (["look"] if where == "tool" else [])
    if where == "request":
        history = run(continue_run(steps, run_id="r"))
        assert isinstance(history[-1].parts[0], ToolReturnPart)
    persistence = SessionPersistence(store)
    made = []

    def look_again() -> str:
        made.append("look")
        return "seen at last"

    agent = agent_of(persistence, tools=[])
    agent.tool_plain(name="look")(look_again)
    other = session.fork("other").id
    result = run(agent.run("are you there?", conversation_id="s"))
    assert result.output.startswith("given")
    assert texts(session)[-2] == "are you there?"
    assert not made
    result = run(agent.run(conversation_id=other))
    assert result.output == "given 3"
    assert made == (["look"] if where == "tool" else [])
    found = run(persistence.load(other))
    assert len(found) == 4
    assert [one.parts for one in found] == [one.parts for one in result.all_messages()]
    # Nothing was stored twice, and the first run's messages are unchanged.
    assert dumped(found)[:2] == dumped(run(persistence.load("s")))[:2]


# -- the step store -----------------------------------------------------------------------------


def some_messages(rng: random.Random, pool: list[ModelMessage]) -> list[ModelMessage]:
    """Return a history: some of those that were used before, and some new ones."""
    # As read back: the framework reads an image as a separate kind.
    read = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(MESSAGES))
    pool.append(replace(rng.choice(read), run_id=f"m{len(pool)}"))
    return rng.choices(pool, k=rng.randrange(6))


async def one_step(rng: random.Random, stores: list[Any], pool: list[ModelMessage]) -> list[Any]:
    """Do the same random operation on all stores; return their answers."""
    run_id, other = rng.choices(["r1", "r2", "r/3 ü"], k=2)
    time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(
        seconds=rng.randrange(5), microseconds=rng.randrange(3)
    )
    numbered = [f"{len(pool) // 3}:a", f"{len(pool) // 3}:b"]
    key = rng.choice([None, *numbered, "k", "-1:x", "1", "k" * 2000])
    call = rng.choice(["c1", "c2", "c3"])
    interrupted = rng.random() < 0.5
    deed = rng.choice(["run", "step", "snapshot", "snapshot", "effect", "ask", "ask"])
    value: Any
    if deed == "run":
        value = RunRecord(
            run_id=run_id, parent_run_id=rng.choice([None, other]), conversation_id=rng.choice([None, "c"]),
            metadata={"api_key": "sk-" + "a1B2c3D4" * 4} if interrupted else {},
            started_at=time, agent_name=key,
        )  # fmt: skip
        return [await store.register_run(value) for store in stores]
    if deed == "step":
        value = StepEvent(
            run_id=run_id, kind="tool_call_started", step_index=rng.randrange(9), timestamp=time,
            error=rng.choice([None, "oh\u2028no"]), metadata={"a": "b"}, idempotency_key=key,
        )  # fmt: skip
        return [await store.append_event(value) for store in stores]
    if deed == "snapshot":
        value = ContinuableSnapshot(
            run_id=run_id, step_index=rng.randrange(9), messages=some_messages(rng, pool), timestamp=time,
            state="interrupted" if interrupted else "complete", idempotency_key=key,
        )  # fmt: skip
        return [await store.save_snapshot(value) for store in stores]
    if deed == "effect":
        value = ToolEffectRecord(
            tool_call_id=call, tool_name="t", run_id=run_id, started_at=time, effect_summary=key,
            status=rng.choice(["started", "completed", "failed"]), ended_at=rng.choice([None, time]),
        )  # fmt: skip
        return [await store.record_tool_effect(value) for store in stores]
    parent, conversation = rng.choice([None, other]), rng.choice([None, "c", "none"])
    return [
        [
            await store.get_run(run_id=run_id),
            await store.list_runs(parent_run_id=parent, conversation_id=conversation),
            await store.list_events(run_id=run_id),
            await store.latest_snapshot(run_id=run_id, include_interrupted=interrupted),
            await store.list_snapshots(run_id=run_id, include_interrupted=interrupted),
            await store.get_tool_effect(run_id=run_id, tool_call_id=call),
            await store.list_unresolved_tool_effects(run_id=run_id),
        ]
        for store in stores
    ]


async def test_a_step_store_answers_as_the_harness_does(
    store: hansard.Store, rng: random.Random
) -> None:
    """A random script gives the same answers as the harness' store, with two handles and a new one."""
    own = [HansardStepStore(store), HansardStepStore(store)]
    theirs = InMemoryStepStore()
    pool: list[ModelMessage] = []
    for _ in range(300):
        mine, right = await one_step(rng, [rng.choice(own), theirs], pool)
        assert mine == right
    fresh: Any = HansardStepStore(store)
    for run_id in ("r1", "r2", "r/3 ü"):
        for all_of_them in (True, False):
            asked: Any = {"run_id": run_id, "include_interrupted": all_of_them}
            assert await fresh.list_snapshots(**asked) == await theirs.list_snapshots(**asked)
            assert await fresh.latest_snapshot(**asked) == await theirs.latest_snapshot(**asked)
        assert await fresh.list_events(run_id=run_id) == await theirs.list_events(run_id=run_id)


def test_a_step_store_stores_a_message_once(store: hansard.Store) -> None:
    """N-73: a snapshot adds only new messages, which every framework can read."""
    steps = HansardStepStore(store)
    assert isinstance(steps, StepStore)
    agent = agent_of(StepPersistence(store=steps, capture_frontier=True))
    history: list[ModelMessage] = []
    for number in range(4):
        history = run(
            agent.run(f"look {number}", message_history=history, conversation_id="c")
        ).all_messages()
    (record,) = [one for one in run(steps.list_runs()) if one.run_id == history[-1].run_id]
    session = store.session(f"steps/run/{record.run_id}")
    snapshots = run(steps.list_snapshots(run_id=record.run_id, include_interrupted=True))
    assert len(snapshots) >= 3
    assert snapshots[-1].messages == history
    assert len(session.messages()) <= len(history) + 1
    assert "look 0" in texts(session)
    assert run(continue_run(steps, run_id=record.run_id)) == history


def test_a_copied_history_is_the_same(store: hansard.Store) -> None:
    """A processor that copies all messages changes nothing."""
    agent = processed(store, copy.deepcopy)
    for number in range(3):
        run(agent.run(f"look {number}", conversation_id="s"))
    assert kinds_of(store.session("s")) <= {"message.added", "usage.recorded"}
    assert len(store.session("s").messages()) == 12


# -- usage --------------------------------------------------------------------------------------


def counting(answers: list[str]) -> FunctionModel:
    """Return a model whose answers report 10 tokens in, 4 of them cached, and 3 out, 2 of them reasoning."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del info
        usage = RequestUsage(
            input_tokens=10,
            cache_read_tokens=4,
            cache_write_tokens=1,
            output_tokens=3,
            details={"reasoning_tokens": 2},
            cost=Decimal("0.1"),
        )
        return ModelResponse([TextPart(answers[len(messages) // 2])], usage=usage)

    return FunctionModel(answer, model_name="large")


def test_each_response_is_recorded_once(store: hansard.Store) -> None:
    """Usage is stored with its response, once: also if the run fails, or its history is given again."""
    agent = Agent(counting(["one", "two"]), capabilities=[SessionPersistence(store)])
    run(agent.run("?", conversation_id="s"))
    once = hansard.Usage(1, 10, 3, 4, 1, 2, Decimal("0.1"))
    assert store.session("s").usage == {"large": once}
    result = run(agent.run("?", conversation_id="s"))
    twice = hansard.Usage(2, 20, 6, 8, 2, 4, Decimal("0.2"))
    assert store.session("s").usage == {"large": twice}
    persistence = SessionPersistence(store)
    for _ in range(2):
        assert run(persistence.save("s", result.all_messages())) == 0
        assert run(persistence.save("t", result.all_messages())) in {0, 4}
    with pytest.raises(IndexError):  # the model fails: it has no third answer
        run(agent.run("?", conversation_id="s", message_history=result.all_messages()))
    assert store.session("s").usage == store.session("t").usage == {"large": twice}


def test_a_changed_response_is_not_counted_again(store: hansard.Store) -> None:
    """A processor that rewrites old answers replaces the history, and adds only the usage of new calls."""

    def shout(messages: list[ModelMessage]) -> list[ModelMessage]:
        return [
            replace(one, parts=[TextPart("LOUD")]) if isinstance(one, ModelResponse) else one
            for one in messages
        ]

    agent = Agent(
        counting(["answer"] * 9), capabilities=[SessionPersistence(store), ProcessHistory(shout)]
    )
    for _ in range(3):
        run(agent.run("?", conversation_id="s"))
    session = store.session("s")
    assert "session.reverted" in kinds_of(session)
    assert len(session.messages(view="history")) > 6  # changed answers were stored again
    assert session.usage["large"].calls == 3
