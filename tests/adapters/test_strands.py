"""`HansardRepository` and `HansardStorage` keep Strands' sessions and snapshots, and lose nothing.

Strands' file sessions and its storage in memory are the references; a scripted model drives its real loop.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.models.model import Model
from strands.session.file_session_manager import FileSessionManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.snapshot_session_manager import SnapshotSessionManager
from strands.storage import InMemoryStorage
from strands.storage.storage import _resolve_namespace
from strands.types.exceptions import SessionException, StorageError
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import hansard
from hansard.adapters.strands import HansardRepository, HansardStorage
from hansard.message import origin, values
from hansard.message.parse import parse
from tests.adapters.table import Adapter, alike


class Calls(Adapter):
    """Add messages of several blocks, each with the number of a new agent's first message."""

    ours = HansardRepository
    theirs = staticmethod(lambda path: FileSessionManager("other", str(path)))
    needs = ("strands.HansardRepository", "strands", "strands-agents", "strands")

    async def say(self, name: str, *texts: str) -> None:
        """Add a message with a block for each text."""
        message: Any = {"role": "user", "content": [{"text": text} for text in texts]}
        self.kept.create_message(name, "a", SessionMessage(message, 0))

    async def read(self, name: str) -> list[Any]:
        """Return the texts; no number is used twice."""
        found = self.kept.list_messages(name, "a")
        numbers = [one.message_id for one in found]
        assert numbers == sorted(set(numbers))
        return [block["text"] for one in found for block in one.to_message()["content"]]

    async def keep(self, given: list[Any]) -> list[Any]:
        """Store values in an agent's state, and in calls."""
        self.kept.create_session(Session("s", SessionType.AGENT))
        self.kept.create_agent("s", SessionAgent("a", {"v": given}, {}))
        for number, value in enumerate(given):
            use: Any = {"toolUse": {"toolUseId": "c", "name": "f", "input": {"v": value}}}
            message = SessionMessage({"role": "user", "content": [use]}, number)
            self.kept.create_message("s", "a", message)
        blocks = [one.to_message()["content"][0] for one in self.kept.list_messages("s", "a")]
        found = [block["toolUse"]["input"]["v"] for block in blocks]
        state = self.kept.read_agent("s", "a").state["v"]
        assert alike(values.readable(state), values.readable(found))
        return found


class Scripted(Model):
    """A model that calls a tool for "look", and else answers with the number of messages."""

    def update_config(self, **model_config: Any) -> None:
        """Ignore options."""

    def get_config(self) -> dict[str, Any]:
        """Return no options."""
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """Not supported."""
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Yield one message in parts."""
        last = messages[-1]["content"][0]
        yield {"messageStart": {"role": "assistant"}}
        if last.get("text") == "look":
            start = {"toolUse": {"name": "look", "toolUseId": f"c{len(messages)}"}}
            yield {"contentBlockStart": {"start": start}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"at": "x"}'}}}}
            reason = "tool_use"
        else:
            yield {"contentBlockDelta": {"delta": {"text": f"seen {len(messages)}"}}}
            reason = "end_turn"
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"a view of {at}"


def agent_of(manager: Any, **options: Any) -> Agent:
    """Return an agent with a scripted model."""
    return Agent(
        model=Scripted(),
        tools=options.pop("tools", [look]),
        session_manager=manager,
        agent_id="a",
        callback_handler=None,
        **options,
    )


def texts(messages: Any) -> list[str]:
    """Return the texts of messages, as other frameworks read them."""
    return [origin.chat(message)[-1]["content"] for message in messages]


def content(rng: random.Random) -> Any:
    """Return a random message, also with values that JSON lacks."""
    block = rng.choice(
        [
            {"text": f"text {rng.random()}"},
            {"text": "same"},
            {"toolUse": {"toolUseId": "c", "name": "n", "input": {"x": [1, None]}}},
            {
                "toolResult": {
                    "toolUseId": "c",
                    "status": "success",
                    "content": [{"json": {"a": 1}}],
                }
            },
            {"image": {"format": "png", "source": {"bytes": b"\0\1" + rng.randbytes(3)}}},
            {"toolResult": {"toolUseId": "c", "content": [{"json": {"x": float("inf")}}]}},
        ]
    )
    return {"role": rng.choice(["user", "assistant"]), "content": [block, {"text": "!"}]}


class Together:
    """Several agents that work together, as far as a repository sees them."""

    def __init__(self, name: str, state: dict[str, Any]) -> None:
        self.id = name
        self.state = state

    def serialize_state(self) -> dict[str, Any]:
        """Return the state."""
        return self.state


class Script:
    """The same operations on Strands' files and on two repositories that share a directory."""

    def __init__(self, rng: random.Random, path: Path) -> None:
        self.rng = rng
        self.theirs = FileSessionManager("unused", str(path / "files"))
        self.stores = [hansard.open(path / "data", durability="os") for _ in range(2)]
        self.ours = [HansardRepository(store) for store in self.stores]
        self.count = 0

    def both(self, call: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of both, and return their answer, which must be the same."""
        answers: list[Any] = []
        for one in (self.theirs, self.rng.choice(self.ours)):
            try:
                # A copy: a repository may change its arguments.
                given = [self.own(argument) for argument in arguments]
                answers.append(told(getattr(one, call)(*given, **named)))
            except (SessionException, ValueError) as error:
                answers.append(type(error))
        assert answers[0] == answers[1], (call, arguments)
        return answers[0]

    def own(self, argument: Any) -> Any:
        """Return a copy of an argument."""
        if isinstance(argument, SessionMessage | SessionAgent):
            return type(argument).from_dict(argument.to_dict())
        return argument

    def step(self) -> None:
        """Do a random operation, and compare."""
        session, agent = self.rng.choice(["s", "t"]), self.rng.choice(["a", "b"])
        number = self.rng.randrange(self.count + 2)
        match self.rng.randrange(10):
            case 0:
                self.both("create_session", Session(session, SessionType.AGENT, "then", "then"))
            case 1:
                self.both("create_agent", session, self.agent(agent))
            case 2:
                self.both("update_agent", session, self.agent(agent))
            case 3:
                message = SessionMessage(content(self.rng), number, None, f"u{self.count}", "now")
                self.both("update_message", session, agent, message)
            case 4:
                redacted = content(self.rng)
                message = SessionMessage(redacted, number, redacted, f"u{self.count}", "now")
                self.both("update_message", session, agent, message)
            case 5:
                call = self.rng.choice(["create_multi_agent", "update_multi_agent"])
                self.both(call, session, Together(agent, {"n": self.rng.random()}))
            case _:
                message = SessionMessage(content(self.rng), self.count, None, f"c{self.count}", "x")
                self.both("create_message", session, agent, message)
                self.count += 1
        self.look(session, agent, number)

    def agent(self, name: str) -> SessionAgent:
        """Return an agent's state."""
        state = {"n": self.rng.random(), "odd": self.rng.choice([None, float("inf"), b"\0"])}
        return SessionAgent(name, state, {"removed": 1}, {"i": 1}, f"{self.rng.random()}", "now")

    def look(self, session: str, agent: str, number: int) -> None:
        """Compare the answers of both."""
        self.both("read_session", session)
        self.both("read_agent", session, agent)
        self.both("read_message", session, agent, number)
        self.both("read_multi_agent", session, agent)
        limit = self.rng.choice([None, 0, 2, 100])
        self.both("list_messages", session, agent, limit=limit, offset=self.rng.randrange(4))


def told(answer: Any) -> Any:
    """Return an answer in a form that can be compared."""
    if isinstance(answer, list):
        return [told(one) for one in answer]
    return answer.to_dict() if hasattr(answer, "to_dict") else answer


@pytest.mark.slow
def test_it_answers_as_strands_own_files(rng: random.Random, tmp_path: Path) -> None:
    """N-18, N-64: 120 random operations through two repositories of one directory answer as on files."""
    script = Script(rng, tmp_path)
    for session in ("s", "t"):
        script.both("create_session", Session(session, SessionType.AGENT, "then", "then"))
    for _ in range(120):
        script.step()
    assert len(script.both("list_messages", "s", "a")) > 3
    with pytest.raises(ValueError, match="integer"):
        script.ours[0].read_message("s", "a", "1")  # type: ignore[arg-type]
    for store in script.stores:
        store.close()
    with hansard.open(tmp_path / "data", read_only=True) as cold:
        script.ours = [HansardRepository(cold)]
        for session in ("s", "t"):
            for agent in ("a", "b"):
                script.both("list_messages", session, agent)
                script.both("read_agent", session, agent)


def test_a_redacted_message_is_removed(store: hansard.Store, tmp_path: Path) -> None:
    """N-66: a message that a guardrail redacts is in no view and, after a compaction, in no file."""
    repository = HansardRepository(store)
    manager = RepositorySessionManager("s", repository)
    agent = agent_of(manager)
    agent("hello")
    secret: Any = {"role": "user", "content": [{"text": "my code is swordfish"}]}
    manager.append_message(secret, agent)
    instead: Any = {"role": "user", "content": [{"text": "[taken out]"}]}
    manager.redact_latest_message(instead, agent)
    found = repository.list_messages("s", "a")
    assert [message.to_message()["content"] for message in found][-1] == instead["content"]
    assert found[-1].redact_message == instead
    session = store.session("s")
    assert texts(session.messages(view="history")) == ["hello", "seen 1", "[taken out]"]
    session.compact()
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not [path for path in files if b"swordfish" in path.read_bytes()]
    agent = agent_of(RepositorySessionManager("s", HansardRepository(store)))
    assert "swordfish" not in str(agent.messages)
    agent("go on")
    assert [message.message_id for message in repository.list_messages("s", "a")] == [0, 1, 2, 3, 4]


def test_a_failed_call_is_shown_as_one(store: hansard.Store) -> None:
    """Other readers see that a result is an error; Strands gets its own message back."""
    result = {"toolUseId": "c1", "status": "error", "content": [{"text": "no such place"}]}
    given: Any = {"role": "user", "content": [{"toolResult": result}]}
    repository = HansardRepository(store)
    repository.create_message("s", "a", SessionMessage.from_message(given, 0))
    (message,) = store.session("s").messages()
    assert parse(message).parts[0].failed
    assert repository.list_messages("s", "a")[0].to_message() == given


def test_messages_of_another_framework_are_listed(store: hansard.Store) -> None:
    """Messages of another framework are listed in Strands' form: texts, calls and results."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"x"}'}}
    store.session("s").add_messages(
        [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "", "tool_calls": [call, {**call, "id": "c2"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
            {"role": "tool", "tool_call_id": "c2", "content": "seen"},
            {"role": "assistant", "content": "well"},
            {"role": "tool", "tool_call_id": "c3", "content": "late"},
        ]
    )
    repository = HansardRepository(store)
    assert repository.read_session("s") is None
    found = [message.to_message() for message in repository.list_messages("s", "any")]
    uses = [{"toolUseId": one, "name": "look", "input": {"at": "x"}} for one in ("c1", "c2")]
    results = [
        {"toolResult": {"toolUseId": one, "status": "success", "content": [{"text": text}]}}
        for one, text in (("c1", "seen"), ("c2", "seen"), ("c3", "late"))
    ]
    assert found == [
        {"role": "user", "content": [{"text": "hello"}]},
        {"role": "assistant", "content": [{"toolUse": use} for use in uses]},
        {"role": "user", "content": results[:2]},
        {"role": "assistant", "content": [{"text": "well"}]},
        {"role": "user", "content": results[2:]},
    ]
    assert len(repository.list_messages("s", "any", limit=1, offset=1)) == 1
    with pytest.raises(SessionException):
        repository.list_messages("nothing", "any")


def test_a_deleted_session_can_be_created_again(store: hansard.Store) -> None:
    """N-68: a session is deleted by its id below the prefix; a new one of that id is empty."""
    repository = HansardRepository(store, prefix="tenant-a/")
    agent_of(RepositorySessionManager("u1", repository))("hello")
    assert HansardRepository(store).read_session("u1") is None
    repository.delete_session("u1")
    assert repository.read_session("u1") is None
    with pytest.raises(SessionException):
        repository.delete_session("u1")
    agent_of(RepositorySessionManager("u1", repository))("again")
    assert texts(store.session("tenant-a/u1").messages()) == ["again", "seen 1"]


KEYS = ["a", "a/b", "/a//c/", "session/s/latest.json", "a.txt", "b" * 300]
BAD_KEYS = ["", "/", "a\\b", "../x", "a/../b"]


@pytest.mark.slow
def test_the_storage_answers_as_strands_own(rng: random.Random, tmp_path: Path) -> None:
    """N-1, N-19: 150 random operations through two storages of one directory answer as in memory."""

    async def scene() -> None:
        theirs = InMemoryStorage()
        async with (
            hansard.aio.open(tmp_path / "data", durability="os") as one,
            hansard.aio.open(tmp_path / "data", durability="os") as other,
        ):
            ours = [HansardStorage(one), HansardStorage(other)]

            async def both(call: str, *arguments: Any) -> Any:
                answers: list[Any] = []
                for storage in (theirs, rng.choice(ours)):
                    try:
                        answers.append(await getattr(storage, call)(*arguments))
                    except StorageError:
                        answers.append(StorageError)
                assert answers[0] == answers[1], (call, arguments)
                return answers[0]

            for _ in range(150):
                key = rng.choice(KEYS if rng.random() < 0.9 else BAD_KEYS)
                data = rng.choice(
                    [b"", b'{"words": "red apples"}', b"green pears", rng.randbytes(9)]
                )
                calls: list[Any] = [("write", key, data), ("read", key), ("delete", key)]
                await both(*rng.choice(calls))
                await both("list", rng.choice(["", "a", "a/", "/a", "zz", "session//s", ".."]))
            await both("write", "a", b"red pears")
            assert await both("search", "red")
            assert await both("list", "")

    asyncio.run(scene())


def test_snapshots_are_kept_in_the_storage(store: hansard.Store) -> None:
    """An agent with a `SnapshotSessionManager` over our storage is restored by another one."""
    storage = HansardStorage(store)
    first = agent_of(SnapshotSessionManager("s", storage=storage))
    first("hello")
    second = agent_of(SnapshotSessionManager("s", storage=HansardStorage(store)))
    second("look")
    assert texts(second.messages)[:2] == ["hello", "seen 1"]
    assert len(second.messages) == 6
    keys = asyncio.run(storage.list())
    assert keys
    assert {info.id for info in store.sessions(prefix="strands/").items} == {
        f"strands/{key}" for key in keys
    }
    # Each write is an event: earlier values can be read.
    latest = store.session(f"strands/{keys[0]}")
    assert sum(event.kind == "x.strands.value" for event in latest.events()) >= 2
    asyncio.run(SnapshotSessionManager("s", storage=storage).delete_session())
    assert asyncio.run(storage.list()) == []


def test_a_failed_write_raises(tmp_path: Path) -> None:
    """N-29: a failed write raises a `StorageError` with the reason."""
    hansard.open(tmp_path / "data").close()
    with hansard.open(tmp_path / "data", read_only=True) as store:
        storage = HansardStorage(store)
        with pytest.raises(StorageError, match="read_only"):
            asyncio.run(storage.write("k", b"v"))
        assert asyncio.run(storage.read("k")) is None
        with pytest.raises(StorageError):
            asyncio.run(storage.read("x" * 2000))


async def test_strands_divides_the_keys(store: hansard.Store) -> None:
    """The namespace that Strands puts around a storage reads, lists and searches only its own keys."""
    outer = HansardStorage(store)
    inner: Any = _resolve_namespace(outer, "users/ann/")
    await outer.write("users/bob/note", b"a note about users")
    await inner.write("note", b"a note about rain")
    assert await outer.read("users/ann/note") == b"a note about rain"
    assert await inner.list("") == ["note"]
    assert [found.key for found in await inner.search("rain")] == ["note"]
