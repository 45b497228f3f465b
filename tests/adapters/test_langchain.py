"""`HansardChatMessageHistory` is a chat history for LangChain."""

import asyncio
import math
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.chat_history import BaseChatMessageHistory, InMemoryChatMessageHistory
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.utils import (
    convert_to_messages,
    convert_to_openai_messages,
    trim_messages,
)
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import hansard
from hansard.adapters.langchain import HansardChatMessageHistory
from hansard.message import openai_items, origin
from tests.adapters.table import Adapter, alike

# LangChain deprecates classes that are used here; the adapter itself gives no warning.
pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")

LONG = "It will rain in Ulm on Thursday, and not a little."

MESSAGES: list[BaseMessage] = [
    HumanMessage("Will it rain?"),
    HumanMessage([{"type": "text", "text": LONG}, {"type": "image_url", "image_url": "data:x"}], name="Ann"),
    AIMessage(
        LONG,
        id="run-1",
        usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
        response_metadata={"model_name": "m", "p": 0.5},
    ),
    AIMessage("", tool_calls=[{"id": "c1", "name": "weather", "args": {"city": LONG, "days": [1, 2.0]}}]),
    AIMessage(
        [{"type": "text", "text": "hm"}, {"type": "tool_use", "id": "c2", "name": "w", "input": {"n": 1}}],
        tool_calls=[{"id": "c2", "name": "w", "args": {"n": 1}}],
        invalid_tool_calls=[
            {"id": "c3", "name": "w", "args": "{", "error": "no JSON", "type": "invalid_tool_call"}
        ],
    ),
    ToolMessage(LONG, tool_call_id="c1", artifact={"rows": [1, 2]}, status="error"),
    SystemMessage("Be brief."),
    ChatMessage(content="aside", role="narrator"),
    FunctionMessage(content="18", name="f"),
    AIMessageChunk(content="part", chunk_position="last"),
]  # fmt: skip


class Calls(Adapter):
    """Add messages."""

    ours = staticmethod(lambda store: lambda name: HansardChatMessageHistory(name, store))
    needs = (
        *("langchain.HansardChatMessageHistory", "langchain_core", "langchain-core 1"),
        "langchain",
    )

    @staticmethod
    def theirs(_: Path) -> Any:
        """Return what always returns the same history."""
        kept = InMemoryChatMessageHistory()
        return lambda _: kept

    async def say(self, name: str, *texts: str) -> None:
        """Add a message for each text."""
        await self.kept(name).aadd_messages([HumanMessage(text) for text in texts])

    async def read(self, name: str) -> list[Any]:
        """Return the contents."""
        return [message.content for message in await self.kept(name).aget_messages()]

    async def keep(self, given: list[Any]) -> list[Any]:
        """Store values in keywords, calls and results."""
        said = [HumanMessage("said", additional_kwargs={"v": value}) for value in given]
        calls = [{"id": "c", "name": "f", "args": {"v": value}} for value in given]
        results = [ToolMessage("done", tool_call_id="c", artifact=value) for value in given]
        await self.kept("s").aadd_messages([*said, AIMessage("", tool_calls=calls), *results])
        messages = await self.kept("s").aget_messages()
        found = [message.additional_kwargs["v"] for message in messages[: len(given)]]
        assert alike([call["args"]["v"] for call in messages[len(given)].tool_calls], found)
        assert alike([message.artifact for message in messages[len(given) + 1 :]], found)
        return found

    async def answer(self, number: int) -> None:
        """Add a message of the model, unless it is there."""
        details: Any = {"cache_read": 4}
        used: Any = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
        told: Any = {"usage_metadata": {**used, "input_token_details": details}}
        told["response_metadata"] = {"model_name": "m"}
        if f"{number}" not in [one.id for one in await self.kept("s").aget_messages()]:
            await self.kept("s").aadd_messages([AIMessage("answer", id=f"{number}", **told)])

    async def change(self) -> None:
        """Clear the history."""
        await self.kept("s").aclear()


@pytest.mark.parametrize("run_number", range(3))
async def test_it_answers_as_memory_does(
    run_number: int, store: hansard.Store, rng: random.Random
) -> None:
    """N-58: the same random script, sync and async, gives the same answers as LangChain's own history."""
    theirs, ours = InMemoryChatMessageHistory(), HansardChatMessageHistory("s", store)
    for _ in range(60):
        some = [rng.choice(MESSAGES) for _ in range(rng.choice([0, 1, 2, 4]))]
        match rng.randrange(8):
            case 0 | 1:
                theirs.add_messages(some)
                ours.add_messages(some)
            case 2 | 3:
                await theirs.aadd_messages(some)
                await ours.aadd_messages(some)
            case 4:
                theirs.add_user_message("hi")
                ours.add_user_message("hi")
            case 5 if rng.random() < 0.2:
                theirs.clear()
                await (ours.aclear() if rng.random() < 0.5 else asyncio.to_thread(ours.clear))
            case 6:
                ours = HansardChatMessageHistory("s", store)
            case _:
                assert str(ours) == str(theirs)
        assert ours.messages == theirs.messages
        assert await ours.aget_messages() == theirs.messages
    assert store.session("s").seq > 10
    assert store.verify().ok


def test_it_gives_no_warning_of_its_own(tmp_path: Path) -> None:
    """The adapter gives no deprecation warning, and accepts a path."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = HansardChatMessageHistory("s", tmp_path / "data")
        assert isinstance(history, BaseChatMessageHistory)
        history.clear()
        history.add_ai_message("hello")
    assert [message.content for message in history.messages] == ["hello"]


def chain(store: Any, answer: Any, **options: Any) -> Any:
    """Return LangChain's own loop around a function."""
    return RunnableWithMessageHistory(
        RunnableLambda(answer), lambda name: HansardChatMessageHistory(name, store), **options
    )


AT: Any = {"configurable": {"session_id": "s"}}


def test_other_frameworks_read_it_and_it_reads_them(store: hansard.Store) -> None:
    """N-55: LangChain continues another framework's chat, and the other way round."""
    items = [
        {"role": "user", "content": "Ulm or Bonn?"},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "w", "arguments": '{"city": "Ulm"}'},
        {"type": "function_call", "call_id": "c2", "name": "w", "arguments": "no JSON"},
        {"type": "function_call_output", "call_id": "c1", "output": "dry"},
        {"type": "function_call_output", "call_id": "c2", "output": "wet"},
        {"role": "developer", "content": "Be brief."},
        {"role": "narrator", "content": "Silence."},
    ]
    store.session("s").add_messages(map(openai_items.message_of, items))
    history = HansardChatMessageHistory("s", store)
    history.add_ai_message("Ulm.")
    assert [message.type for message in history.messages] == [
        "human", "ai", "tool", "tool", "system", "chat", "ai"
    ]  # fmt: skip
    called = history.messages[1]
    assert isinstance(called, AIMessage)
    assert [call["args"] for call in called.tool_calls] == [{"city": "Ulm"}, {"text": "no JSON"}]

    other = HansardChatMessageHistory("t", store)
    other.add_messages(MESSAGES[:6])
    found = [
        item for message in store.session("t").messages() for item in openai_items.items_of(message)
    ]
    assert [item.get("type", item.get("role")) for item in found] == [
        "user", "user", "assistant", "function_call", "assistant", "function_call", "function_call_output"
    ]  # fmt: skip
    assert not [problem for problem in store.session("t").pairing() if problem.call_id == "c1"]
    assert origin.chat(store.session("t").messages()[2])[-1]["content"] == LONG


def test_a_turn_is_stored_completely_or_not_at_all(store: hansard.Store) -> None:
    """A turn with a value that cannot be stored leaves nothing; `add_messages` raises the error."""
    wrong = AIMessage("so", response_metadata={"raw": object()})
    right = AIMessage("so", response_metadata={1: [math.nan, math.inf]})
    history = HansardChatMessageHistory("s", store)
    with pytest.raises(hansard.InvalidEvent, match="object"):
        history.add_messages([HumanMessage("why?"), wrong])
    for answer in (right, wrong, right):
        chain(store, lambda _, answer=answer: answer).invoke([HumanMessage("why?")], AT)
    assert [message.type for message in history.messages] == ["human", "ai"] * 2
    assert repr(history.messages[-1].response_metadata) == repr(right.response_metadata)


@given(
    turns=st.integers(1, 6),
    limit=st.integers(3, 60),
    strategy=st.sampled_from(["last", "first"]),
    end_on=st.sampled_from([None, "ai"]),
    options=st.fixed_dictionaries(
        {"include_system": st.booleans(), "start_on": st.sampled_from([None, "human"])}
    ),
)
def test_a_window_is_what_trim_messages_returns(
    turns: int, limit: int, strategy: Any, end_on: str | None, options: Any
) -> None:
    """N-55: without tool calls, which only a window keeps whole, LangChain's options give the same."""
    talk = [{"role": "system", "content": "be kind"}]
    for turn in range(turns):
        talk.append({"role": "user", "content": f"u{turn}" * (turn % 3 + 1)})
        talk.append({"role": "assistant", "content": f"a{turn}"})
    whole = limit >= len(talk[0]["content"]) + max(len(m["content"]) for m in talk) + 2
    same = options if strategy == "last" else {}  # LangChain refuses them for the first messages
    trimmed = trim_messages(
        convert_to_messages(talk),
        max_tokens=limit,
        token_counter=lambda messages: sum(len(message.content) for message in messages),
        strategy=strategy,
        end_on=end_on,
        **same,
    )
    with hansard.open("memory:") as store:
        session = store.session()
        session.add_messages(talk)
        window = session.window(
            tokens=limit,
            counter=lambda message: len(message["content"]),
            strategy=strategy,
            end_on=end_on,
            keep_system=options["include_system"],
            start_on=options["start_on"],
        )
    # A window has one valid group of messages at least.
    if whole or strategy == "first":
        assert window == convert_to_openai_messages(trimmed)
