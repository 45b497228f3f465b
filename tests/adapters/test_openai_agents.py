"""`HansardSession` is a session for the OpenAI Agents SDK, and loses nothing.

The SDK's `SQLiteSession` is the reference; the SDK's scripted model drives its real loop.
"""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent, RunConfig, RunContextWrapper, Runner, SQLiteSession, function_tool
from agents import Usage as AgentsUsage
from agents.extensions.memory import EncryptedSession
from agents.memory.openai_responses_compaction_session import OpenAIResponsesCompactionSession
from agents.models.default_models import get_default_model
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

import hansard
from hansard.adapters.openai_agents import HansardSession, HansardUsageHooks
from hansard.message import origin
from tests.adapters.table import Adapter, alike
from tests.unit.disk_probe import index_of

Item = Any

#: Nothing goes over the network: no trace is exported.
QUIET = RunConfig(tracing_disabled=True)

LONG = "It will rain in Ulm on Thursday, and not a little."

#: One of each shape that the SDK stores.
ITEMS: list[Item] = [
    {"role": "user", "content": "Will it rain?"},
    {"role": "user", "content": [{"type": "input_text", "text": LONG}], "type": "message"},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": LONG, "annotations": [], "logprobs": []}],
    },
    {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA"},
    {"id": "rs_2", "type": "reasoning", "summary": [{"type": "summary_text", "text": LONG}]},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Ulm"}', "id": "f"},
    {"type": "function_call_output", "call_id": "c1", "output": LONG},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "dry"}]},
    {"type": "local_shell_call", "call_id": "c3", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "custom_tool_call", "call_id": "c4", "name": "sql", "input": "select 1"},
    {"type": "web_search_call", "id": "ws_1", "action": {"query": "umbrella shops"}},
    {"type": "mcp_call", "id": "m1", "name": "look", "arguments": "{}", "output": LONG},
    {"type": "item_reference", "id": "msg_1"},
    {"type": "compaction", "encrypted_content": "gAAAA"},
    {"__enc__": 1, "v": 1, "kid": "k", "payload": "x" * 60},
    {"role": "developer", "content": ""},
    {"n": 1.0, "deep": [[True, None, {"a/b~": -0.0}]]},
]  # fmt: skip


class Calls(Adapter):
    """Add items."""

    ours = staticmethod(lambda store: lambda name: HansardSession(name, store))
    needs = ("openai_agents.HansardSession", "agents", "openai-agents", "openai-agents")

    @staticmethod
    def theirs(_: Path) -> Any:
        """Return what always returns the same session."""
        kept = SQLiteSession("s")
        return lambda _: kept

    async def say(self, name: str, *texts: str) -> None:
        """Add an item for each text."""
        await self.kept(name).add_items([{"role": "user", "content": text} for text in texts])

    async def read(self, name: str) -> list[Any]:
        """Return the contents."""
        return [item["content"] for item in await self.kept(name).get_items()]

    async def keep(self, given: list[Any]) -> list[Any]:
        """Store values in members of items."""
        items = [{"role": "user", "content": "said", "more": value} for value in given]
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        await self.kept("s").add_items([*items, {**call, "v": given}])
        *found, last = await self.kept("s").get_items()
        assert alike(last["v"], [one["more"] for one in found])
        return [one["more"] for one in found]

    async def answer(self, number: int) -> None:
        """End a call of the model."""
        details = InputTokensDetails(cached_tokens=4, cache_write_tokens=0)
        used = AgentsUsage(1, 10, details, 3)
        response: Any = SimpleNamespace(usage=used, response_id=f"r{number}")
        agent: Any = SimpleNamespace(model="m")
        hooks = HansardUsageHooks(self.kept("s"))
        await hooks.on_llm_end(RunContextWrapper(None), agent, response)

    async def change(self) -> None:
        """Pop an item, and clear the session."""
        await self.kept("s").pop_item()
        await self.kept("s").clear_session()


def run(coroutine: Any) -> Any:
    """Run a coroutine on a new event loop."""
    return asyncio.run(coroutine)


def written(value: object) -> str:
    """Return a value as JSON: 1, 1.0 and True are three."""
    return json.dumps(value, sort_keys=True)


# -- the protocol -------------------------------------------------------------------------------


def test_every_text_is_stored_once(store: hansard.Store) -> None:
    """N-64: items of every shape come back equal, as messages with a role; no text is stored twice."""
    session = HansardSession("s", store)
    before = written(ITEMS)
    run(session.add_items(ITEMS))
    assert written(run(session.get_items())) == written(ITEMS) == before
    messages = store.session("s").messages()
    assert all(isinstance(message["role"], str) for message in messages)
    assert json.dumps(messages).count(LONG) == before.count(LONG)


def random_item(rng: random.Random) -> Item:
    """Return a random item with a number."""
    item = json.loads(json.dumps(rng.choice(ITEMS)))
    item["number"] = rng.randrange(10**6)
    return item


@pytest.mark.parametrize("run_number", range(4))
def test_it_answers_as_sqlite_does(
    run_number: int, store: hansard.Store, rng: random.Random
) -> None:
    """N-58: the same random script gives the same answers as the SDK's own `SQLiteSession`."""
    settings = {"limit": rng.choice([None, None, 1, 3, 50])}

    async def script() -> int:
        theirs = SQLiteSession("s", session_settings=settings)
        ours = HansardSession("s", store, session_settings=settings)
        own = store.session("s")
        answers = 0
        for _ in range(120):
            match rng.randrange(12):
                case 0 | 1 | 2 | 3:
                    items = [random_item(rng) for _ in range(rng.choice([0, 1, 1, 2, 5]))]
                    await theirs.add_items(items)
                    await ours.add_items(items)
                case 4 | 5 | 6:
                    assert written(await ours.pop_item()) == written(await theirs.pop_item())
                case 7 if rng.random() < 0.3:
                    await theirs.clear_session()
                    await ours.clear_session()
                case 8:  # another process takes over
                    ours = HansardSession("s", store, session_settings=settings)
                case 9 if own.seq:  # not part of the conversation
                    own.set_title(str(rng.random()))
                    if rng.random() < 0.5:
                        own.compact()
                case _:
                    limit = rng.choice([None, 0, -1, 1, 2, 7, 1000])
                    shown = await ours.get_items(limit)
                    assert written(shown) == written(await theirs.get_items(limit))
                    answers += len(shown)
            assert written(await ours.get_items(-1)) == written(await theirs.get_items(-1))
        theirs.close()
        return answers

    assert run(script()) >= 0
    assert store.session("s").seq > 20
    assert store.verify().ok


def test_pop_and_clear_erase_nothing(store: hansard.Store) -> None:
    """N-45, N-49: removed items stay in the history, and a revert restores them."""
    ours = HansardSession("s", store)
    run(ours.add_items(ITEMS[:3]))
    run(ours.pop_item())
    run(ours.clear_session())
    session = store.session("s")
    assert run(ours.get_items()) == []
    assert len(session.messages(view="history")) == 3
    session.revert(3)
    assert run(ours.get_items()) == ITEMS[:3]


# -- the real loop ------------------------------------------------------------------------------


@function_tool
def weather(city: str) -> str:
    """Return the weather."""
    return f"{city}: 18 °C, dry"


def agent(*steps: Any) -> tuple[Agent[Any], ScriptedModel]:
    """Return an agent whose model gives these answers."""
    model = ScriptedModel(steps)
    return Agent(name="A", model=model, tools=[weather]), model


CALLS = [function_call("weather", {"city": city}, call_id=city) for city in ("Ulm", "Bonn")]


def test_the_real_loop_stores_what_it_stores_in_sqlite(store: hansard.Store) -> None:
    """N-55, N-58: two runs give the model the same input as with `SQLiteSession`."""

    async def talk(session: Any) -> tuple[str, str]:
        bot, model = agent(
            CALLS, [assistant_message("Take no umbrella.")], [assistant_message("Neither.")]
        )
        await Runner.run(bot, "Ulm and Bonn?", session=session, run_config=QUIET)
        await Runner.run(bot, "And now?", session=session, run_config=QUIET)
        model.assert_complete()
        return written([call.input for call in model.calls]), written(await session.get_items())

    theirs = SQLiteSession("s")
    assert run(talk(HansardSession("s", store))) == run(talk(theirs))
    theirs.close()
    session = store.session("s")
    assert not session.pairing()
    assert [message["role"] for message in session.messages()] == [
        "user", "assistant", "assistant", "tool", "tool", "assistant", "user", "assistant"
    ]  # fmt: skip
    assert [hit.seq for hit in store.search("umbrella")] == [6]


# -- concurrency --------------------------------------------------------------------------------


async def test_tasks_and_loops_pop_nothing_twice(store: hansard.Store, tmp_path: Path) -> None:
    """N-22: tasks, and loops in threads with their own stores, pop each item once."""
    items: Any = [{"role": "user", "content": str(n)} for n in range(40)]
    await HansardSession("s", store).add_items(items)

    async def pop(place: hansard.Store) -> list[str]:
        ours: Any = HansardSession("s", place)
        found = []
        while (item := await ours.pop_item()) is not None:
            found.append(item["content"])
        return found

    with hansard.open(tmp_path / "data", durability="os") as other:
        there = (asyncio.to_thread(run, pop(other)) for _ in range(2))
        popped = await asyncio.gather(pop(store), pop(store), *there)
    assert sorted(int(text) for one in popped for text in one) == list(range(40))


def test_one_object_serves_all_users(store: hansard.Store) -> None:
    """N-68: each run's context gives the id; no user reads another's session."""
    ours = HansardSession("unused", store, identify=lambda wrapper: f"users/{wrapper.context}")

    async def turns(user: str) -> None:
        for number in range(3):
            bot, model = agent([assistant_message(f"Hello {user}.")])
            said = f"I am {user}, {number}."
            await Runner.run(bot, said, session=ours, context=user, run_config=QUIET)
            assert model.last_call is not None
            others = {"xena", "yuri"} - {user}
            assert not any(other in written(model.last_call.input) for other in others)

    async def both() -> None:
        await asyncio.gather(turns("xena"), turns("yuri"))

    run(both())
    assert [info.id for info in store.sessions().items] == ["users/xena", "users/yuri"]
    assert {info.message_count for info in store.sessions().items} == {6}
    with pytest.raises(ValueError, match="context"):
        run(ours.get_items())
    assert len(run(ours.get_items(wrapper=RunContextWrapper("xena")))) == 6


# -- the SDK's wrappers --------------------------------------------------------------------------


def test_encryption_leaves_no_plain_text(tmp_path: Path) -> None:
    """N-70: in `EncryptedSession`, no file of the store has plain text, and search finds none."""
    secret = "xylophone-47"  # noqa: S105 - what must not be found
    bot, _ = agent(
        [function_call("weather", {"city": secret}, call_id="c1")],
        [assistant_message(f"Never {secret}!")],
    )
    with hansard.open(tmp_path / "data") as store:
        inner = HansardSession("s", store)
        outer = EncryptedSession("s", inner, encryption_key="k" * 32)  # type: ignore[arg-type]
        run(Runner.run(bot, f"Say {secret}.", session=outer, run_config=QUIET))
        items = run(outer.get_items())
        assert written(items).count(secret) >= 4
        assert run(outer.get_items(1)) == items[-1:]
        assert store.search(secret) == []
        assert store.search("Never") == []
        assert run(outer.pop_item()) == items[-1]
        store.compact()
        assert store.search(secret) == []
        assert run(outer.get_items()) == items[:-1]
        messages = store.session("s").messages()
        assert {(message["role"], message["content"]) for message in messages} == {
            ("assistant", "")
        }
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert {index_of(tmp_path / "data").name} < {path.name for path in files}
    for path in files:
        raw = path.read_bytes()
        for word in (secret, "xylophone", "Never", "weather"):
            assert word.encode() not in raw, path.name


class FakeClient:
    """Answers `responses.compact` with one item, and runs a function first."""

    def __init__(self, first: Any = None) -> None:
        self.asked: list[Any] = []
        self.responses = self
        self._first = first

    async def compact(self, **options: Any) -> Any:
        """Answer as the API does."""
        self.asked.append(options)
        if self._first is not None:
            await self._first()
        return SimpleNamespace(
            output=[{"type": "compaction", "encrypted_content": "short"}], usage=None
        )


def compacting(inner: Any, client: FakeClient) -> OpenAIResponsesCompactionSession:
    """Return the SDK's wrapper, which always compacts."""
    return OpenAIResponsesCompactionSession(
        "s",
        inner,
        client=client,  # type: ignore[arg-type]
        compaction_mode="input",
        should_trigger_compaction=lambda _: True,
    )


def test_compaction_has_the_effect_that_it_has_with_sqlite(store: hansard.Store) -> None:
    """N-45, N-47: compaction has the effect that it has with SQLite; the history keeps everything."""

    async def talk(inner: Any) -> list[str]:
        client = FakeClient()
        outer = compacting(inner, client)
        bot, model = agent(
            CALLS,
            [assistant_message("Dry.")],
            [assistant_message("Still.")],
            [assistant_message("Yes.")],
        )
        seen = []
        await inner.add_items([{"role": "user", "content": "said before"}])
        for text in ("Ulm and Bonn?", "And now?"):
            await Runner.run(bot, text, session=outer, run_config=QUIET)
            seen.append(written(await outer.get_items()))
        await outer.run_compaction({"force": True})
        seen.append(written(await outer.get_items()))
        await Runner.run(bot, "Sure?", session=outer, run_config=QUIET)
        return [*seen, written([call.input for call in model.calls]), written(client.asked)]

    theirs = SQLiteSession("s")
    ours = run(talk(HansardSession("s", store)))
    assert ours == run(talk(theirs))
    theirs.close()
    assert "compaction" in ours[0]
    history = [
        origin.chat(message)[-1]["content"]
        for message in store.session("s").messages(view="history")
    ]
    assert {"said before", "Ulm and Bonn?", "And now?", "Sure?", "Dry.", "Still."} <= set(history)


def test_compaction_keeps_concurrent_items(store: hansard.Store) -> None:
    """N-18: an item added while the API compacts is neither lost nor hidden."""
    other = HansardSession("s", store)

    async def add() -> None:
        await other.add_items([{"role": "user", "content": "concurrent"}])

    bot, _ = agent([assistant_message("Dry.")])
    outer = compacting(HansardSession("s", store), FakeClient(add))
    run(Runner.run(bot, "Ulm?", session=outer, run_config=QUIET))
    contents = [origin.chat(one)[-1]["content"] for one in store.session("s").messages()]
    assert contents == ["Ulm?", "Dry.", "concurrent"]


def test_a_replacement_is_one_append(store: hansard.Store) -> None:
    """N-39: a manual compaction is one append, so that no kill leaves an empty conversation."""
    inner = HansardSession("s", store)
    run(inner.add_items(ITEMS[:4]))
    session = store.session("s")
    run(compacting(inner, FakeClient()).run_compaction({"force": True}))
    assert [event.kind for event in session.events(after=4)] == [
        "session.reverted",
        "message.added",
    ]
    assert len(run(inner.get_items())) == 1
    session.revert(4)
    assert run(inner.get_items()) == ITEMS[:4]


def test_compaction_respects_a_subclass(store: hansard.Store) -> None:
    """N-45: compaction adds items through a subclass that changes them."""

    class Marking(HansardSession):
        """A session that marks its items."""

        async def add_items(self, items: Any, *, wrapper: Any = None) -> None:
            """Mark items."""
            marked: list[Any] = [{**item, "seen": True} for item in items]
            await super().add_items(marked, wrapper=wrapper)

    inner = Marking("s", store)
    run(inner.add_items(ITEMS[:4]))
    run(compacting(inner, FakeClient()).run_compaction({"force": True}))
    bot, _ = agent([assistant_message("Dry.")])
    run(Runner.run(bot, "Ulm?", session=compacting(inner, FakeClient()), run_config=QUIET))
    items = run(inner.get_items())
    assert items
    assert all(item.get("seen") for item in items)


def test_a_closed_session_refuses_everything(store: hansard.Store) -> None:
    """N-89: a closed object refuses every call, as the SDK's own does; others continue."""
    ours, other = HansardSession("s", store), HansardSession("s", store)
    run(ours.add_items(ITEMS[:1]))
    ours.close()
    ours.close()
    for call in (ours.get_items, ours.pop_item, ours.clear_session, lambda: ours.add_items([])):
        with pytest.raises(hansard.Closed, match="HansardSession 's'"):
            run(call())
    assert run(other.get_items()) == ITEMS[:1]
    # After the store was closed, no call succeeds, not even with no items.
    run(hansard.aio.over(store).close())
    for closed in (other.add_items([]), other.add_items(ITEMS), other.get_items()):
        with pytest.raises(hansard.Closed):
            run(closed)


# -- other frameworks ----------------------------------------------------------------------------

FOREIGN: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "Ulm?"}]},
    {"role": "assistant", "content": [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Ulm"}},
        {"type": "tool_use", "id": "t2", "name": "weather", "input": {"city": "Bonn"}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "dry"},
        {"type": "tool_result", "tool_use_id": "t2", "content": "wet"}]},
    {"role": "assistant", "content": []},
    origin.pack("another", {"kind": "x"}, role="assistant", content="Ulm is dry."),
]  # fmt: skip

AS_ITEMS = [
    {"role": "user", "content": "Ulm?"},
    {"role": "assistant", "content": "Let me look."},
    {"type": "function_call", "call_id": "t1", "name": "weather", "arguments": '{"city": "Ulm"}'},
    {"type": "function_call", "call_id": "t2", "name": "weather", "arguments": '{"city": "Bonn"}'},
    {"type": "function_call_output", "call_id": "t1", "output": "dry"},
    {"type": "function_call_output", "call_id": "t2", "output": "wet"},
    {"role": "assistant", "content": "Ulm is dry."},
]


def test_messages_of_another_framework_are_read_and_popped(store: hansard.Store) -> None:
    """Messages of another framework are items: limits and pops count these."""
    store.session("s").add_messages(FOREIGN)
    ours = HansardSession("s", store)
    assert run(ours.get_items()) == AS_ITEMS
    for limit in range(1, 9):
        assert run(ours.get_items(limit)) == AS_ITEMS[-limit:]
    for left in range(6, -1, -1):
        assert run(ours.pop_item()) == AS_ITEMS[left]
        assert run(ours.get_items()) == AS_ITEMS[:left]
    assert run(ours.pop_item()) is None
    assert store.session("s").messages(view="history")[: len(FOREIGN)] == FOREIGN


def with_streams(session: hansard.Session, *, finished: bool) -> None:
    """Stream two messages, with another one between their parts."""
    one, other = session.stream(gather=0), session.stream()
    one.write("par")
    session.add_message({"role": "user", "content": "between"})
    other.write("par")
    one.write("tial")
    if finished:
        one.finish()
        other.finish()


#: What happens to a session before items are popped from it.
BEFORE: dict[str, Callable[[hansard.Session], Any]] = {
    "a summary": lambda session: session.summarize(upto=3, message=FOREIGN[0]),
    "an early summary": lambda session: (
        session.summarize(upto=3, message=FOREIGN[0]),
        session.add_message({"role": "user", "content": "later"}),
    ),
    "streams": lambda session: with_streams(session, finished=True),
    "open streams": lambda session: with_streams(session, finished=False),
    "a fork": lambda session: session.fork("s/child"),
    "a redaction": lambda session: session.redact(3),
}


@pytest.mark.parametrize("what", BEFORE)
@pytest.mark.parametrize("count", [6, 200])
def test_a_pop_removes_one_item_with_one_small_append(
    what: str, count: int, store: hansard.Store
) -> None:
    """N-47, N-49, N-79: a pop removes one item, and appends next to nothing again."""
    said = [{"role": "user", "content": f"{n}: {'word ' * 50}"} for n in range(count)]
    run(HansardSession("s", store).add_items(said))  # type: ignore[arg-type]
    BEFORE[what](store.session("s"))
    session = store.session("s/child" if what == "a fork" else "s")
    ours = HansardSession(session.id, store)
    items, before = run(ours.get_items()), session.seq
    for _ in range(10):
        assert run(ours.pop_item()) == (items.pop() if items else None)
        assert run(ours.get_items()) == items
    new = list(session.events(after=before))
    assert len(new) <= 25
    assert sum(len(event.raw) for event in new) < 4000


# -- usage --------------------------------------------------------------------------------------


def scripted(response_id: str | None, *items: Any) -> ModelStep:
    """Return a response that took 10 tokens in, 4 of them cached, and 3 out, 2 of them reasoning."""
    details = InputTokensDetails(cached_tokens=4, cache_write_tokens=1)
    used = AgentsUsage(
        requests=1,
        input_tokens=10,
        output_tokens=3,
        total_tokens=13,
        input_tokens_details=details,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=2),
    )
    return ModelStep(output=items, usage=used, response_id=response_id)


@pytest.mark.parametrize("streamed", [False, True])
def test_each_response_of_a_run_is_recorded_once(store: hansard.Store, *, streamed: bool) -> None:
    """A run of two calls records two, by model; a response that arrives again is not counted again."""
    steps: list[Any] = [
        scripted("r1", function_call("weather", {"city": "Ulm"}, call_id="c")),
        scripted("r2", assistant_message("Rain.")),
        scripted("r2", assistant_message("Rain.")),
        scripted(None, assistant_message("No id.")),
        scripted(None, assistant_message("No id.")),
        [assistant_message("No usage.")],
    ]
    agent = Agent("a", model=ScriptedModel(steps), tools=[weather])
    session = HansardSession("", store, identify=lambda run: f"users/{run.context}")
    hooks = HansardUsageHooks(session, model="large")

    async def turns() -> None:
        for _ in range(5):
            told: Any = {"session": session, "hooks": hooks, "context": "ann", "run_config": QUIET}
            if streamed:
                async for _ in Runner.run_streamed(agent, "?", **told).stream_events():
                    pass
            else:
                await Runner.run(agent, "?", **told)

    run(turns())
    stored = store.session("users/ann")
    assert stored.usage == {"large": hansard.Usage(4, 40, 12, 16, 4, 8)}
    ids = [e.data.get("response_id") for e in stored.events() if e.kind == "usage.recorded"]
    assert ids == ["r1", "r2", None, None]


@pytest.mark.parametrize(
    ("model", "name"),
    [("gpt-5", "gpt-5"), (None, get_default_model()), (SimpleNamespace(model="mine"), "mine")],
)
def test_usage_has_the_name_of_the_agents_model(
    store: hansard.Store, model: Any, name: str
) -> None:
    """The name is the agent's, the SDK's default, or that of a model object."""
    hooks = HansardUsageHooks(HansardSession("s", store))
    agent: Any = SimpleNamespace(model=model)
    response: Any = SimpleNamespace(usage=scripted("r").usage, response_id=None)
    run(hooks.on_llm_end(RunContextWrapper(None), agent, response))
    assert list(store.session("s").usage) == [name]
