"""`HansardSaver` passes LangGraph's conformance suite, and answers as its own saver does.

The suite has no test of concurrency, crashes, delta channels or the order of writes; those are here.
"""

import asyncio
import json
import operator
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

import hansard
from hansard.adapters.langchain import HansardChatMessageHistory
from hansard.adapters.langgraph import HansardSaver
from hansard.message import langgraph_values as values
from tests.adapters.processes import PATIENCE, children, race
from tests.adapters.table import Adapter, alike


def at(thread: str, ns: str = "", checkpoint: str | None = None) -> RunnableConfig:
    """Return the config of a place."""
    named = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": named if checkpoint is None else {**named, "checkpoint_id": checkpoint}}


def checkpoint_of(number: int, held: dict[str, Any], versions: dict[str, Any]) -> Checkpoint:
    """Return a checkpoint whose id is a number that sorts."""
    return {
        "v": 4,
        "id": f"{number:08}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": held,
        "channel_versions": versions,
        "versions_seen": {"node": dict(versions)},
        "updated_channels": None,
    }


class Calls(Adapter):
    """Put checkpoints with more messages."""

    ours = HansardSaver
    theirs = staticmethod(lambda _: InMemorySaver())
    needs = ("langgraph.HansardSaver", "langgraph", "langgraph", "langgraph")

    async def _messages(self, name: str) -> list[Any]:
        found = await self.kept.aget_tuple(at(name))
        return list(found.checkpoint["channel_values"]["messages"]) if found else []

    async def _put(self, name: str, messages: list[Any]) -> None:
        versions = {"messages": self.kept.get_next_version(len(messages), None)}
        held = {"channel_values": {"messages": messages}, "channel_versions": versions}
        await self.kept.aput(at(name), {**empty_checkpoint(), **held}, {}, versions)

    async def say(self, name: str, *texts: str) -> None:
        """Put a checkpoint with a message for each text."""
        new = [{"role": "user", "content": text} for text in texts]
        await self._put(name, [*(await self._messages(name)), *new])

    async def read(self, name: str) -> list[Any]:
        """Return the contents of the newest checkpoint's messages."""
        return [message["content"] for message in await self._messages(name)]

    async def keep(self, given: list[Any]) -> list[Any]:
        """Store values in channels, writes and metadata of a checkpoint."""
        said = [HumanMessage([{"type": "text", "text": "said", "v": value}]) for value in given]
        versions: Any = {"messages": "1", "v": "1"}
        checkpoint = checkpoint_of(1, {"v": {"given": given}, "messages": said}, versions)
        about = {"source": "loop", "step": 1, "given": given}
        config = await self.kept.aput(at("s"), checkpoint, about, versions)
        await self.kept.aput_writes(config, [("v", given)], "task")
        found = await self.kept.aget_tuple(at("s"))
        values_of = found.checkpoint["channel_values"]
        held = values_of["v"]["given"]
        assert alike(found.pending_writes[0][2], held)
        assert alike(found.metadata["given"], held)
        assert alike([message.content[0]["v"] for message in values_of["messages"]], held)
        return list(held)

    async def answer(self, number: int) -> None:
        """Put a checkpoint with a message of the model."""
        before = [one for one in await self._messages("s") if one.id != f"{number}"]
        usage: Any = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
        told: Any = {"usage_metadata": {**usage, "input_token_details": {"cache_read": 4}}}
        told["response_metadata"] = {"model_name": "m"}
        await self._put("s", [*before, AIMessage("answer", id=f"{number}", **told)])

    async def change(self) -> None:
        """Write for a checkpoint, and delete the thread."""
        (found,) = [one async for one in self.kept.alist(at("s"))]
        await self.kept.aput_writes(found.config, [("c", 1)], "task")
        await self.kept.adelete_thread("s")

    async def names(self) -> list[str]:
        """Return the ids of all threads."""
        return [one.config["configurable"]["thread_id"] async for one in self.kept.alist(None)]


class Talk(TypedDict):
    """The state of a graph that talks."""

    messages: Annotated[list[AnyMessage], add_messages]


def graph_of(state: Any, node: Any, saver: Any) -> Any:
    """Return a graph of one node."""
    builder = StateGraph(state)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(checkpointer=saver)


def talking(saver: Any) -> Any:
    """Return a graph whose only node repeats the last message."""

    def answer(state: Talk) -> dict[str, Any]:
        return {"messages": [AIMessage(f"you said {state['messages'][-1].content}")]}

    return graph_of(Talk, answer, saver)


def said(session: hansard.Session, **options: Any) -> list[Any]:
    """Return the texts of a session's messages."""
    return [message["content"] for message in session.messages(**options)]


# -- the contract -------------------------------------------------------------------------------


def test_the_conformance_suite_passes_whole(tmp_path: Path) -> None:
    """All 58 required and 23 optional checks of LangGraph's conformance suite pass."""
    numbers = iter(range(100))

    @checkpointer_test(name="hansard")
    async def ours() -> AsyncIterator[HansardSaver]:
        with hansard.open(tmp_path / str(next(numbers)), durability="os") as store:
            yield HansardSaver(store)

    report = asyncio.run(validate(ours))
    failed = [failure for result in report.results.values() for failure in result.failures]
    assert not failed
    passed = {name: result.tests_passed for name, result in report.results.items()}
    optional = ("delete_for_runs", "copy_thread", "prune")
    assert sum(passed[name] for name in optional) == 23
    assert sum(passed.values()) == 58 + 23
    assert report.passed_all()


def shape(found: CheckpointTuple | None) -> Any:
    """Return a checkpoint in a form that can be compared."""
    if found is None:
        return None
    parent = found.parent_config
    return (
        {**found.config["configurable"]},
        {**found.checkpoint},
        {**found.metadata},
        None if parent is None else {**parent["configurable"]},
        found.pending_writes,
    )


class Script:
    """The same random operations on LangGraph's saver and on two of ours that share a directory."""

    def __init__(self, rng: random.Random, path: Path) -> None:
        self.rng = rng
        self.stores = [hansard.open(path, durability="os") for _ in range(2)]
        self.ours = [HansardSaver(store) for store in self.stores]
        self.theirs = InMemorySaver()
        self.number = 0
        self.held: dict[tuple[str, str, str | None], tuple[dict[str, Any], dict[str, Any]]] = {}

    def close(self) -> None:
        """Close the stores."""
        for store in self.stores:
            store.close()

    def one(self) -> HansardSaver:
        """Return one of ours: it must see what the other wrote."""
        return self.rng.choice(self.ours)

    def both(self, call: str, *arguments: Any, **named: Any) -> None:
        """Call a method of both."""
        for saver in (self.one(), self.theirs):
            getattr(saver, call)(*arguments, **named)

    def value(self, channel: str, before: Any) -> Any:
        """Return a channel's next value: lists grow, shrink, are edited, or are replaced."""
        items = list(before or [])
        message = HumanMessage(f"m{self.rng.random()}", id=str(self.rng.random()))
        match self.rng.randrange(6):
            case 0 if items:
                items.pop(self.rng.randrange(len(items)))
            case 1 if items:
                items[self.rng.randrange(len(items))] = message
            case 2:
                items = [message]
            case _:
                items += [message] * self.rng.randint(1, 2)
        plain = [None, b"\0\1", {"a": [1, 2.5]}, {1: "x"}, "text", float("inf"), ("t",), {"$e": 1}]
        return items if channel == "messages" else self.rng.choice(plain)

    def put(self, thread: str, ns: str) -> None:
        """Put a checkpoint after a known one."""
        self.number += 1
        known = [place for place in self.held if place[:2] == (thread, ns)]
        parent = self.rng.choice(known)[2] if known and self.rng.random() < 0.9 else None
        held, versions = self.held.get((thread, ns, parent), ({}, {}))
        held, versions, new = dict(held), dict(versions), {}
        for channel in self.rng.sample(["messages", "other", "empty"], self.rng.randint(0, 3)):
            version = self.theirs.get_next_version(versions.get(channel), None)
            versions[channel] = new[channel] = version
            held.pop(channel, None)
            if channel != "empty" or self.rng.random() < 0.5:
                held[channel] = self.value(channel, held.get(channel))
        config = at(thread, ns, parent)
        config["metadata"] = {"who": self.rng.choice("ab"), "nul": "x\0y"}
        metadata: Any = {"source": "loop", "step": self.number % 3, "run_id": f"r{self.number % 4}"}
        checkpoint = checkpoint_of(self.number, held, versions)
        self.both("put", config, checkpoint, metadata, new)
        self.held[thread, ns, checkpoint["id"]] = (held, versions)

    def write(self, thread: str, ns: str) -> None:
        """Write for a checkpoint, sometimes again under the same task, sometimes to special channels."""
        known = [place for place in self.held if place[:2] == (thread, ns)]
        if known:
            channels = ["a", "b", ERROR, INTERRUPT, RESUME]
            writes = [
                (self.rng.choice(channels), self.rng.random())
                for _ in range(self.rng.randint(0, 3))
            ]
            config = at(thread, ns, self.rng.choice(known)[2])
            task, path = self.rng.choice(["t1", "t2", "t3"]), self.rng.choice(["", "~a", "~b"])
            self.both("put_writes", config, writes, task, path)

    def step(self) -> None:
        """Do a random operation, and compare."""
        thread, ns = self.rng.choice(["one", "two"]), self.rng.choice(["", "", "sub:1"])
        chance = self.rng.random()
        if chance < 0.5:
            self.put(thread, ns)
        elif chance < 0.97:
            self.write(thread, ns)
        else:
            self.both("delete_thread", thread)
            self.held = {place: held for place, held in self.held.items() if place[0] != thread}
        self.look(thread, ns)

    def look(self, thread: str, ns: str) -> None:
        """Compare the answers of both."""
        saver = self.one()
        known = [place[2] for place in self.held if place[:2] == (thread, ns)]
        for checkpoint in (None, self.rng.choice([*known, "none"])):
            config = at(thread, ns, checkpoint)
            assert shape(saver.get_tuple(config)) == shape(self.theirs.get_tuple(config))
        options: dict[str, Any] = {
            "filter": self.rng.choice([None, {"step": 1}, {"who": "a", "nul": "xy"}]),
            "before": self.rng.choice([None, at(thread, ns, f"{self.number // 2:08}")]),
            "limit": self.rng.choice([None, 0, 1, 5]),
        }
        ours = list(saver.list(at(thread, ns), **options))
        assert [*map(shape, ours)] == [*map(shape, self.theirs.list(at(thread, ns), **options))]

    def everything(self, saver: Any) -> list[Any]:
        """Return all checkpoints of all threads, in one order."""
        found = map(shape, saver.list(None))
        return sorted(found, key=lambda one: (one[0]["checkpoint_id"], one[0]["thread_id"]))


@pytest.mark.slow
def test_it_answers_as_langgraphs_own_saver(rng: random.Random, tmp_path: Path) -> None:
    """N-18, N-64: 250 random operations through two stores of one directory answer as `InMemorySaver`'s."""
    script = Script(rng, tmp_path / "data")
    try:
        for _ in range(250):
            script.step()
        assert script.everything(script.one()) == script.everything(script.theirs)
        with hansard.open(tmp_path / "data", read_only=True) as cold:
            assert script.everything(HansardSaver(cold)) == script.everything(script.theirs)
    finally:
        script.close()


def test_values_are_stored_as_json_that_comes_back_equal() -> None:
    """N-64: serialized values are stored as JSON, or in base64 if JSON would not restore the bytes."""
    serde = JsonPlusSerializer()
    call = {"name": "f", "args": {"x": 1}, "id": "c"}
    for value in (AIMessage("hi", tool_calls=[call]), {1, 2}, {1: {b"k": b"\0"}}, "x" * 70_000):
        packed = values.pack(typed := serde.dumps_typed(value))
        assert packed.keys() == {"msgpack"}
        assert values.unpack(json.loads(json.dumps(packed))) == typed
    for typed in (serde.dumps_typed(b"\0"), ("json", b'{"a": NaN}'), ("msgpack", b"\xc1")):
        packed = values.pack(typed)
        assert packed.keys() == {"type", "base64"}
        assert values.unpack(packed) == typed
    assert values.unpack(values.pack(("null", b""))) == ("null", b"")
    assert values.pack(("json", b'{"a":[1]}')) == {"json": {"a": [1]}}


# -- what a step costs --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_costs_the_same_however_long_the_thread_is(
    store: hansard.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-71, N-73: step 300 of a growing list writes as many bytes, and reads as many events, as step 20."""
    read = 0
    events = hansard.Session.events

    def counted(session: hansard.Session, **options: Any) -> Iterator[hansard.Event]:
        nonlocal read
        for event in events(session, **options):
            read += 1
            yield event

    monkeypatch.setattr(hansard.Session, "events", counted)
    saver = HansardSaver(store)
    log = tmp_path / "data" / "sessions" / "t" / "log.jsonl"
    config, costs = at("t"), {}
    said: list[Any] = []
    for step in range(10, 301):
        said = [*said, {"role": "user", "content": f"{step:06}"}]
        before, bytes_before = read, log.stat().st_size if log.exists() else 0
        version = f"{step:08}"
        checkpoint = checkpoint_of(step, {"messages": said}, {"messages": version})
        config = saver.put(config, checkpoint, {"step": 1}, {"messages": version})
        saver.put_writes(config, [("c", 1)], "task")
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == said
        costs[step] = (read - before, log.stat().st_size - bytes_before)
    assert costs[300][0] == costs[20][0] < 12
    # A seq has one digit more, and so have the numbers that name one.
    assert costs[300][1] - costs[20][1] < 40
    middle = saver.get_tuple(at("t", "", f"{100:08}"))
    assert middle is not None
    assert middle.checkpoint["channel_values"]["messages"] == said[:91]


def test_more_threads_than_are_kept_are_listed_with_their_writes(store: hansard.Store) -> None:
    """A listing of 70 threads, of which a saver keeps 64, has the pending writes of all."""
    saver = HansardSaver(store)
    for number in range(70):
        config = saver.put(at(f"{number}"), checkpoint_of(number, {}, {}), {}, {})
        saver.put_writes(config, [("c", number)], "task")
    writes = [found.pending_writes for found in saver.list(None)]
    assert writes == [[("task", "c", number)] for number in reversed(range(70))]


# -- several at a time --------------------------------------------------------------------------

WRITER = """
import sys, hansard
from tests.adapters.test_langgraph import HansardSaver, at, checkpoint_of

path, who = sys.argv[1:]
saver = HansardSaver(hansard.open(path, durability="os"))
print("ready", flush=True)
sys.stdin.readline()
config, said = at("t"), []
for number in range(40):
    said = [*said, {"role": "user", "content": f"{who}-{number}"}]
    new = {"messages": saver.get_next_version(f"{number:032}.0", None)}
    checkpoint = {**checkpoint_of(0, {"messages": said}, new), "id": f"{number:04}-{who}"}
    config = saver.put(config, checkpoint, {"who": who}, new)
    saver.put_writes(config, [("c", number)], f"task-{who}")
    assert saver.get_tuple(config).checkpoint["channel_values"]["messages"] == said
"""


@pytest.mark.slow
def test_processes_that_share_a_thread_lose_nothing(store: hansard.Store, tmp_path: Path) -> None:
    """N-16, N-17: 2 processes put 40 checkpoints each on one thread; all are there, and so is the talk."""
    race(WRITER, *([str(tmp_path / "data"), who] for who in "01"))
    saver = HansardSaver(store)
    found = {one.config["configurable"]["checkpoint_id"]: one for one in saver.list(at("t"))}
    assert found.keys() == {f"{number:04}-{who}" for number in range(40) for who in range(2)}
    for name, one in found.items():
        number, who = map(int, name.split("-"))
        wanted = [f"{who}-{each}" for each in range(number + 1)]
        assert [each["content"] for each in one.checkpoint["channel_values"]["messages"]] == wanted
        assert one.pending_writes == [(f"task-{who}", "c", number)]
    # The conversation is that of the process that came last.
    session = store.session("t")
    last = [event for event in session.events() if event.kind == "x.langgraph.checkpoint"][-1]
    number, who = map(int, last.data["id"].split("-"))
    conversation = said(session)
    assert conversation == [f"{who}-{each}" for each in range(number + 1)][: len(conversation)]
    assert len(conversation) >= number


# -- a real graph, killed -----------------------------------------------------------------------


def asking(saver: Any, act: Callable[[], Any]) -> Any:
    """Return a graph that plans, asks, and acts."""

    def plan(_: Talk) -> dict[str, Any]:
        return {"messages": [AIMessage("shall I?")]}

    def ask(_: Talk) -> dict[str, Any]:
        return {"messages": [HumanMessage(interrupt("may I?"))]}

    def do(_: Talk) -> dict[str, Any]:
        act()
        return {"messages": [AIMessage("done")]}

    builder = StateGraph(Talk)
    nodes: list[Any] = [plan, ask, do]
    builder.add_sequence(nodes)
    builder.add_edge(START, "plan")
    return builder.compile(checkpointer=saver)


CHILD = """
import os, signal, sys
from langgraph.types import Command
from tests.adapters.test_langgraph import HansardSaver, HumanMessage, asking, at

graph = asking(HansardSaver(sys.argv[1]), lambda: os.kill(os.getpid(), signal.SIGKILL))
for given in ({"messages": [HumanMessage("tidy up")]}, Command(resume="yes")):
    graph.invoke(given, at("t"), durability="sync")
    print("asked", flush=True)
"""


@pytest.mark.slow
def test_a_killed_graph_is_resumed(tmp_path: Path) -> None:
    """N-39, N-59: a run is killed in a node after an interrupt; the next process runs that node again."""
    with children(CHILD, [str(tmp_path / "data")]) as (child,):
        assert child.communicate(timeout=PATIENCE)[0] == "asked\n"
        assert child.returncode == -signal.SIGKILL
    with hansard.open(tmp_path / "data") as store:
        session = store.session("t")
        # Everything acknowledged before the kill is stored: the question and the answer.
        assert said(session) == ["tidy up", "shall I?", "yes"]
        assert session.verify().ok
        acts: list[str] = []
        found = asking(HansardSaver(store), lambda: acts.append("act")).invoke(None, at("t"))
        assert acts == ["act"]
        assert [message.content for message in found["messages"]] == said(session)
        assert said(session) == ["tidy up", "shall I?", "yes", "done"]


# -- the conversation ---------------------------------------------------------------------------


def test_what_a_graph_says_is_a_conversation_for_all(store: hansard.Store) -> None:
    """N-55: messages are mirrored once each, with calls and results."""
    saver = HansardSaver(store)
    graph = talking(saver)
    call = AIMessage("", tool_calls=[{"name": "look", "args": {"at": "x"}, "id": "c1"}])
    result = ToolMessage("seen", tool_call_id="c1")
    graph.invoke({"messages": [HumanMessage("hello"), call, result]}, at("t"))
    graph.invoke({"messages": [HumanMessage("hello")]}, at("t"))
    session = store.session("t")
    function = {"name": "look", "arguments": '{"at": "x"}'}
    calls = [{"id": "c1", "type": "function", "function": function}]
    assert session.messages() == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "seen", "tool_call_id": "c1"},
        {"role": "assistant", "content": "you said seen"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "you said hello"},
    ]
    assert session.pairing() == []
    assert {hit.session for hit in store.search("seen")} == {"t"}
    # LangChain's history has the same conversation.
    history = HansardChatMessageHistory("t", store)
    types = [message.type for message in history.messages]
    assert types == ["human", "ai", "tool", "ai", "human", "ai"]
    assert said(session, view="history") == said(session)


def test_the_conversation_goes_back_when_the_graph_does(store: hansard.Store) -> None:
    """N-49: a run from an earlier checkpoint reverts the model view; the history view has both runs."""
    graph = talking(HansardSaver(store))
    graph.invoke({"messages": [HumanMessage("one", id="a")]}, at("t"))
    earlier = graph.get_state(at("t")).config
    graph.invoke({"messages": [HumanMessage("two", id="b")]}, at("t"))
    graph.invoke({"messages": [HumanMessage("three", id="c")]}, earlier)
    session = store.session("t")
    assert said(session) == ["one", "you said one", "three", "you said three"]
    assert said(session, view="history") == [
        *["one", "you said one", "two", "you said two"],
        *["three", "you said three"],
    ]
    # Edited and removed messages, also the first one.
    graph.update_state(at("t"), {"messages": [HumanMessage("three!", id="c")]})
    assert said(session) == ["one", "you said one", "three!", "you said three"]
    graph.update_state(at("t"), {"messages": [RemoveMessage(id="a")]})
    assert said(session) == ["you said one", "three!", "you said three"]
    # Another process knows from the log alone what was mirrored.
    graph = talking(HansardSaver(store))
    graph.invoke({"messages": [HumanMessage("four", id="d")]}, at("t"))
    held = graph.get_state(at("t")).values["messages"]
    assert said(session) == [message.content for message in held]


def test_the_conversation_is_whole_after_a_revert_without_a_checkpoint(
    store: hansard.Store,
) -> None:
    """N-16: a saver that reverts and then loses the race for its checkpoint hides no message for long."""
    graph = talking(HansardSaver(store))
    graph.invoke({"messages": [HumanMessage("one")]}, at("t"))
    session = store.session("t")
    session.revert(0)
    graph.invoke({"messages": [HumanMessage("two")]}, at("t"))
    assert said(session) == ["one", "you said one", "two", "you said two"]


def test_mirroring_can_be_turned_off(store: hansard.Store, tmp_path: Path) -> None:
    """N-70: without a mirror no messages are stored; with a cipher no plain text is, usage included."""
    talking(HansardSaver(store, mirror=None)).invoke(
        {"messages": [HumanMessage("unmirrored")]}, at("plain")
    )
    assert store.session("plain").messages() == []
    serde = EncryptedSerializer(Reversing(), JsonPlusSerializer())
    graph = talking(HansardSaver(tmp_path / "closed", serde=serde))
    for _ in range(2):
        graph.invoke({"messages": [counting(0), HumanMessage("confidential")]}, at("t"))
    assert len(graph.get_state(at("t")).values["messages"]) == 6
    with hansard.open(tmp_path / "closed") as closed:
        assert closed.session("t").messages() == []
        assert closed.session("t").usage == {}
        assert closed.search("confidential") == []
    files = [path for path in (tmp_path / "closed").rglob("*") if path.is_file()]
    assert len(files) > 3
    assert not [path for path in files if b"confidential" in path.read_bytes()]


class Reversing:
    """A cipher for tests: it reverses the bytes."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Reverse the bytes, and append random ones."""
        return "reversing", plaintext[::-1] + os.urandom(4)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Reverse the bytes again."""
        return ciphertext[:-4][::-1]


# -- delta channels -----------------------------------------------------------------------------


def gather(state: list[Any], writes: Any) -> list[Any]:
    """Return a list with the written items."""
    return [*state, *(item for write in writes for item in write)]


class Log(TypedDict):
    """A state with a delta channel."""

    log: Annotated[list[str], DeltaChannel(gather, snapshot_frequency=4)]
    count: Annotated[int, operator.add]


def logging_graph(saver: Any) -> Any:
    """Return a graph with two concurrent nodes that write to one delta channel."""
    builder = StateGraph(Log)
    for name in ("zeta", "alpha"):
        builder.add_node(
            name, lambda state, name=name: {"log": [f"{name}{len(state['log'])}"], "count": 1}
        )
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    return builder.compile(checkpointer=saver)


def held(graph: Any, thread: str) -> Any:
    """Return the values of a thread's newest checkpoint."""
    return graph.get_state(at(thread)).values


# The channel warns that it is in beta.
@pytest.mark.filterwarnings("ignore:.*beta.*")
def test_delta_channels_survive_prune_and_copy(store: hansard.Store) -> None:
    """N-45: prune, deletion of runs and copy do not change the value of a delta channel."""
    saver, other = HansardSaver(store), InMemorySaver()
    ours, theirs = logging_graph(saver), logging_graph(other)
    for turn in range(7):
        for graph in (ours, theirs):
            config: Any = {**at("t"), "metadata": {"run_id": f"run-{turn}"}}
            graph.invoke({"log": [f"in{turn}"], "count": 0}, config)
        assert held(ours, "t") == held(theirs, "t")
        assert held(logging_graph(HansardSaver(store)), "t") == held(theirs, "t")
    wanted = held(theirs, "t")
    assert len(wanted["log"]) == 21
    mine, its = (
        one.get_delta_channel_history(config=at("t"), channels=["log", "none"])
        for one in (saver, other)
    )
    assert mine["log"]["seed"] == its["log"]["seed"]
    assert [w[1:] for w in mine["log"]["writes"]] == [w[1:] for w in its["log"]["writes"]] != []
    assert mine["none"] == its["none"] == {"writes": []}
    saver.copy_thread("t", "copy")
    with pytest.raises(hansard.SessionExists):
        saver.copy_thread("t", "copy")
    saver.delete_for_runs([f"run-{turn}" for turn in range(6)])
    assert {one.metadata.get("run_id") for one in saver.list(at("t"))} == {"run-6"}
    assert held(ours, "t") == wanted
    saver.prune(["t", "copy"])
    for thread in ("t", "copy"):
        assert len(list(saver.list(at(thread)))) == 1
        assert held(ours, thread) == held(logging_graph(HansardSaver(store)), thread) == wanted
        ours.invoke({"log": ["more"], "count": 0}, at(thread))
        assert held(ours, thread)["log"][:22] == [*wanted["log"], "more"]
    assert store.session("copy").parent == "t"


class DeltaTalk(TypedDict):
    """A state whose messages are a delta channel."""

    messages: Annotated[list[Any], DeltaChannel(gather, snapshot_frequency=3)]


@pytest.mark.filterwarnings("ignore:.*beta.*")
def test_messages_of_a_delta_channel_are_mirrored(store: hansard.Store) -> None:
    """Messages written to a delta channel are mirrored once each, also at a snapshot."""

    def answer(state: DeltaTalk) -> dict[str, Any]:
        return {"messages": [AIMessage(f"a{len(state['messages'])}")]}

    graph = graph_of(DeltaTalk, answer, HansardSaver(store))
    for turn in range(6):
        graph.invoke({"messages": [HumanMessage(f"q{turn}")]}, at("t"))
    wanted = [message.content for message in held(graph, "t")["messages"]]
    assert len(wanted) == 12
    session = store.session("t")
    assert said(session) == said(session, view="history") == wanted


# -- usage --------------------------------------------------------------------------------------


def counting(number: int) -> AIMessage:
    """Return an answer that took 10 tokens in, 4 of them cached, and 3 out, 2 of them reasoning."""
    usage = UsageMetadata(
        input_tokens=10,
        output_tokens=3,
        total_tokens=13,
        input_token_details={"cache_read": 4, "cache_creation": 1},
        output_token_details={"reasoning": 2},
    )
    return AIMessage(f"a{number}", usage_metadata=usage, response_metadata={"model_name": "large"})


@pytest.mark.parametrize("state", [Talk, DeltaTalk])
@pytest.mark.parametrize("mirror", ["messages", None])
def test_each_answer_is_recorded_once(
    state: type, mirror: str | None, store: hansard.Store
) -> None:
    """The usage of each message is stored once: also if the graph goes back, and in another process."""
    if state is DeltaTalk and mirror is None:
        pytest.skip("writes to a delta channel are read for the mirror")

    def answer(held: Any) -> dict[str, Any]:
        return {"messages": [counting(len(held["messages"]))]}

    for calls in (1, 2, 3):
        graph = graph_of(state, answer, HansardSaver(store, mirror=mirror))
        graph.invoke({"messages": [HumanMessage("?")]}, at("t"))
        used = hansard.Usage(calls, 10 * calls, 3 * calls, 4 * calls, calls, 2 * calls)
        assert store.session("t").usage == {"large": used}
    earlier = list(graph.get_state_history(at("t")))[3].config
    graph.invoke({"messages": [HumanMessage("again")]}, earlier)
    graph.update_state(at("t"), {"messages": [HumanMessage("no call")]})
    HansardSaver(store).copy_thread("t", "copy")
    graph.invoke({"messages": [HumanMessage("?")]}, at("copy"))
    assert store.session("t").usage["large"].calls == 4
    assert store.session("copy").usage["large"].calls == 5
    assert store.stats().models["large"].calls == 5


def test_concurrent_puts_record_an_answer_once(
    store: hansard.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two puts that read before the other appends, one records the usage of their message."""
    answer = counting(1).model_copy(update={"id": "r1"})
    other = checkpoint_of(2, {"messages": [answer]}, {"messages": "2"})
    rivals = [HansardSaver(store, mirror=None), HansardSaver(store, mirror=None)]
    append = hansard.Session.append_all

    def late(session: hansard.Session, *given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        rivals[1].put(at("t"), other, {}, {"messages": "2"})
        return append(session, *given, **named)

    monkeypatch.setattr(hansard.Session, "append_all", late)
    made = checkpoint_of(1, {"messages": [answer]}, {"messages": "1"})
    rivals[0].put(at("t"), made, {}, {"messages": "1"})
    assert store.session("t").usage["large"].calls == 1
    assert len(list(rivals[0].list(at("t")))) == 2


def test_answers_of_a_subgraph_are_recorded_once(store: hansard.Store) -> None:
    """A message that a subgraph keeps, and one that it returns, count once each."""
    inner = graph_of(Talk, lambda _: {"messages": [counting(1)]}, saver=True)
    graph = graph_of(Talk, inner, HansardSaver(store))
    graph.invoke({"messages": [HumanMessage("?")]}, at("t"))
    assert store.session("t").usage["large"].calls == 1


# -- threads that go and come -------------------------------------------------------------------


def test_a_listing_leaves_out_what_is_deleted_concurrently(store: hansard.Store) -> None:
    """A thread that is deleted while a caller reads a listing has no more checkpoints in it."""
    saver = HansardSaver(store)
    for number in (1, 2):
        saver.put(at("t"), checkpoint_of(number, {"x": number}, {"x": number}), {}, {"x": number})
    listed = saver.list(at("t"))
    assert next(listed).checkpoint["id"] == f"{2:08}"
    saver.delete_thread("t")
    assert list(listed) == []


def test_a_thread_that_was_copied_can_be_deleted(store: hansard.Store) -> None:
    """N-50: a copy keeps everything when its source is deleted; the source's id can be used again."""
    saver = HansardSaver(store, prefix="graph/")
    graph = talking(saver)
    graph.invoke({"messages": [HumanMessage("kept")]}, at("t"))
    source, copy = store.session("graph/t"), store.session("graph/copy")
    saver.copy_thread("t", "copy")
    assert {one.config["configurable"]["thread_id"] for one in saver.list(None)} == {"t", "copy"}
    assert copy.seq <= source.seq + 2  # no event was copied
    saver.delete_thread("t")
    assert saver.get_tuple(at("t")) is None
    assert said(source) == []
    assert [one.content for one in held(graph, "copy")["messages"]] == ["kept", "you said kept"]
    graph.invoke({"messages": [HumanMessage("new")]}, at("t"))
    assert said(source) == ["new", "you said new"]
    saver.delete_thread("never was")


def test_dropped_history_raises(store: hansard.Store) -> None:
    """N-31: a checkpoint that is built on dropped history raises an error."""
    saver = HansardSaver(store)
    graph = talking(saver)
    for _ in range(3):
        graph.invoke({"messages": [HumanMessage("hello")]}, at("t"))
    session = store.session("t")
    puts = [event.seq for event in session.events() if event.kind == "x.langgraph.checkpoint"]
    session.drop_history(puts[-1])
    with pytest.raises(hansard.HansardError, match="dropped"):
        saver.get_tuple(at("t"))
    # A new checkpoint is not built on the dropped ones.
    held, versions = {"messages": [HumanMessage("new")]}, {"messages": "9"}
    saver.put(at("t"), checkpoint_of(10**8 - 1, held, versions), {}, dict(versions))
    found = saver.get_tuple(at("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == held


def test_a_session_of_another_framework_can_become_a_thread(store: hansard.Store) -> None:
    """A thread with the id of a session continues after its messages, and does not change them."""
    session = store.session("t")
    session.add_message({"role": "user", "content": "earlier"})
    graph = talking(HansardSaver(store))
    graph.invoke({"messages": [HumanMessage("hello")]}, at("t"))
    graph.update_state(at("t"), {"messages": [RemoveMessage(id="__remove_all__")]})
    assert said(session) == ["earlier"]
    assert said(session, view="history") == ["earlier", "hello", "you said hello"]
