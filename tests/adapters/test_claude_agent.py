"""The Claude Agent SDK: its conformance suite, its client, and its own store for comparison."""

import asyncio
import itertools
import json
import random
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

import claude_agent_sdk as sdk
import pytest
from claude_agent_sdk.testing import run_session_store_conformance

import hansard
from hansard.adapters.claude_agent import HansardSessionStore
from hansard.message import origin
from tests.adapters.processes import children
from tests.adapters.table import Adapter, alike
from tests.crashlab import faults

PROJECT = "p"
SESSION = "00000000-0000-4000-8000-000000000001"
KEY: Any = {"project_key": PROJECT, "session_id": SESSION}
STORED = f"claude/{PROJECT}/{SESSION}"


def key_of(session_id: str, project_key: str = PROJECT) -> Any:
    """Return the key of a transcript."""
    return {"project_key": project_key, "session_id": session_id}


def entry(role: str, content: Any, parent: str | None = None, **more: Any) -> Any:
    """Return an entry of a transcript with a message."""
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        message |= {"id": "msg_1", "model": "m", "usage": {"input_tokens": 3}}
    return {
        "type": role,
        "uuid": str(uuid.uuid4()),
        "parentUuid": parent,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "sessionId": SESSION,
        "cwd": "/work",
        "message": message,
        **more,
    }


def chain(*texts: str) -> list[Any]:
    """Return a conversation, each entry the child of the one before."""
    found: list[Any] = []
    for place, text in enumerate(texts):
        parent = found[-1]["uuid"] if found else None
        found.append(entry("assistant" if place % 2 else "user", text, parent))
    return found


class Calls(Adapter):
    """Append entries to transcripts."""

    ours = HansardSessionStore
    theirs = staticmethod(lambda _: sdk.InMemorySessionStore())
    needs = (
        *("claude_agent.HansardSessionStore", "claude_agent_sdk", "claude-agent-sdk"),
        "claude-agent",
    )
    prefix = f"claude/{PROJECT}/"

    async def say(self, name: str, *texts: str) -> None:
        """Append an entry for each text."""
        known = await self.kept.load(key_of(name)) or [{}]
        entries = [known[-1]]
        for text in texts:
            entries.append(entry("user", text, entries[-1].get("uuid")))
        await self.kept.append(key_of(name), entries[1:])

    async def read(self, name: str) -> list[Any]:
        """Return the texts. The SDK follows the chain of parents, also past a redacted entry."""
        found = await self.kept.load(key_of(name))
        uuids = [None, *(one["uuid"] for one in found)]
        assert all(one["parentUuid"] in uuids for one in found)
        listed = await self.kept.list_session_summaries(PROJECT)
        texts = [one["message"]["content"] for one in found if "message" in one]
        assert {one["session_id"]: one["data"]["first_prompt"] for one in listed}[name] == texts[0]
        return texts

    async def keep(self, given: list[Any]) -> list[Any]:
        """Store values in blocks of messages, and in another entry."""
        blocks = [[{"type": "text", "text": "said", "v": value}] for value in given]
        more = {"type": "progress", "uuid": "more", "v": given}
        await self.kept.append(key_of("s"), [*(entry("user", one) for one in blocks), more])
        *found, last = await self.kept.load(key_of("s"))
        kept = [one["message"]["content"][0]["v"] for one in found]
        assert alike(last["v"], kept)
        return kept

    async def answer(self, number: int) -> None:
        """Append an entry of the model."""
        one = entry("assistant", "answer", uuid=f"{number}")
        used = {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 3}
        one["message"] |= {"id": f"msg_{number}", "usage": used}
        await self.kept.append(key_of("s"), [one])

    async def change(self) -> None:
        """List a transcript's subagents, and delete it."""
        await self.kept.list_subkeys(key_of("s"))
        await self.kept.delete(key_of("s"))

    async def names(self) -> list[str]:
        """Return the ids of the project's transcripts."""
        return [one["session_id"] for one in await self.kept.list_sessions(PROJECT)]


def test_the_sdks_conformance_suite_passes_whole(tmp_path: Path) -> None:
    """All 14 contracts of the SDK's own suite hold, none of them skipped."""
    stores: list[hansard.Store] = []

    def make() -> Any:
        stores.append(hansard.open(tmp_path / f"{len(stores)}", durability="os"))
        return HansardSessionStore(stores[-1])

    asyncio.run(run_session_store_conformance(make))
    for method in ("list_sessions", "list_session_summaries", "delete", "list_subkeys"):
        # The suite skips a contract without the method.
        assert method in vars(HansardSessionStore)
    # One to detect the methods, and one for each contract.
    assert len(stores) == 1 + 14
    for one in stores:
        one.close()


def _random_entry(rng: random.Random) -> Any:
    blocks = [
        {"type": "text", "text": "some words that were said"},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": [1, None, {"b": 0.5}]}},
        {"type": "tool_result", "tool_use_id": "t1", "content": "x" * 40},
    ]
    kinds: list[Any] = [
        entry("user", rng.choice(["yes", "<command-name>/x</command-name>", "hello\nthere " * 30])),
        entry(rng.choice(["user", "assistant"]), rng.sample(blocks, 2), isSidechain=True),
        entry("user", "a summary", isCompactSummary=True, isMeta=rng.choice([True, False])),
        {"type": "custom-title", "customTitle": rng.choice(["one", "two", ""])},
        {"type": "ai-title", "aiTitle": "made up"},
        {"type": "tag", "tag": rng.choice(["t", ""])},
        {"type": "summary", "summary": "short", "leafUuid": "x"},
        {"type": "last-prompt", "lastPrompt": "yes"},
        {"type": "user", "message": "no object", "origin": {"format": "x", "item": {}}},
        {"type": "system", "uuid": str(uuid.uuid4()), "content": "half \ud83d", "n": 10**30},
        {"type": "user", "uuid": str(uuid.uuid4()), "message": {"role": 1, "content": None}},
        {"type": "x", "gitBranch": "main", "timestamp": "2026-01-01T00:00:00Z", "n": float("inf")},
    ]
    return rng.choice(kinds)


async def test_it_answers_as_the_sdks_own_store(store: hansard.Store, rng: random.Random) -> None:
    """N-57, N-64: on a random script with any entries, every answer is that of the SDK's own store."""
    theirs, ours = sdk.InMemorySessionStore(), HansardSessionStore(store)
    deleted: set[str] = set()
    for step in range(150):
        project = rng.choice(["p", "-work-it"])
        session = rng.choice(["s1", "s1", "s2", "s3", f"s-{step}"])
        key: Any = {"project_key": project, "session_id": session}
        if rng.random() < 0.3:
            key["subpath"] = rng.choice(["subagents/agent-1", "subagents/x/agent-2"])
        kind = rng.choices(["append", "delete", "look"], [12, 1, 6])[0]
        where = ours.id_of(key)
        if kind == "append" and where not in deleted:
            entries = [_random_entry(rng) for _ in range(rng.randrange(1, 6))]
            await theirs.append(key, json.loads(json.dumps(entries)))
            await ours.append(key, entries)
        elif kind == "delete" and session != "s1":
            deleted |= {
                one.id for one in store.sessions(prefix=where).items if _below(one.id, where)
            }
            await theirs.delete(key)
            await ours.delete(key)
        assert await ours.load(key) == await theirs.load(key)
        listed = {one["session_id"] for one in await ours.list_sessions(project)}
        assert listed == {one["session_id"] for one in await theirs.list_sessions(project)}
        folded = {
            one["session_id"]: one["data"] for one in await ours.list_session_summaries(project)
        }
        expected = await theirs.list_session_summaries(project)
        assert folded == {one["session_id"]: one["data"] for one in expected}
        main: Any = {"project_key": project, "session_id": session}
        assert set(await ours.list_subkeys(main)) == set(await theirs.list_subkeys(main))
    kinds = {
        event.kind for info in store.sessions().items for event in store.session(info.id).events()
    }
    assert {"message.added", "x.claude.entry"} <= kinds


def _below(session_id: str, where: str) -> bool:
    return session_id == where or session_id.startswith(where + "/")


async def test_every_key_has_its_own_session(store: hansard.Store) -> None:
    """N-2, N-3: keys that would be one path, joined by `/`, are different transcripts."""
    ours = HansardSessionStore(store)
    pairs = [("a", "b/c"), ("a/b", "c"), ("a", "b"), ("a%2Fb", "c"), ("a", "b%2Fc"), ("", "c")]
    keys = [key_of(session, project) for project, session in pairs]
    keys += [{**key_of("b", "a"), "subpath": path} for path in ("c", "c%2F/../d")]
    for place, key in enumerate(keys):
        await ours.append(key, [{"type": "x", "n": place}])  # type: ignore[typeddict-unknown-key]
    for place, key in enumerate(keys):
        assert await ours.load(key) == [{"type": "x", "n": place}]
    assert {one["session_id"] for one in await ours.list_sessions("a")} == {"b", "b/c", "b%2Fc"}
    assert await ours.list_subkeys(key_of("b", "a")) == ["c", "c%2F/../d"]
    with pytest.raises(ValueError, match="subpath"):
        await ours.load({"project_key": "a", "session_id": "b", "subpath": ""})


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_batch_is_completed_by_sending_it_again(tmp_path: Path, when: faults.When) -> None:
    """N-39, N-56: after a kill at any disk call, sending a batch again completes it."""
    entries = [*chain("one", "two", "three"), entry("user", "half \ud83d")]
    lengths = set()
    for at in itertools.count(1):
        path = tmp_path / f"{at}"
        with hansard.open(path, durability="os") as store:
            ours = HansardSessionStore(store)
            with faults.kill(at=at, when=when) as fault:
                try:
                    asyncio.run(ours.append(KEY, entries))
                    acknowledged = True
                except faults.Killed:
                    acknowledged = False
        with hansard.open(path, durability="os") as store:
            ours = HansardSessionStore(store)
            left = asyncio.run(ours.load(KEY)) or []
            assert left == entries[: len(left)]
            assert len(left) == len(entries) or not acknowledged
            asyncio.run(ours.append(KEY, entries))
            assert asyncio.run(ours.load(KEY)) == entries
        lengths.add(len(left))
        if not fault.fired:
            break
    assert {0, len(entries)} <= lengths


async def test_a_title_is_that_of_the_session(store: hansard.Store) -> None:
    """N-53: hansard's listing has the user's title, or else the model's."""
    ours = HansardSessionStore(store)
    await ours.append(KEY, [*chain("hello"), {"type": "ai-title", "aiTitle": "Rain?"}])  # type: ignore[typeddict-unknown-key]
    assert store.session(STORED).title == "Rain?"
    await ours.append(KEY, [{"type": "custom-title", "customTitle": "Weather"}])  # type: ignore[typeddict-unknown-key]
    assert store.session(STORED).title == "Weather"


async def test_times_are_those_of_the_store(store: hansard.Store) -> None:
    """N-61: times are in milliseconds, by the store's clock; only new entries change them."""
    ours = HansardSessionStore(store)
    for name in ("one", "two"):
        await ours.append(key_of(name), chain("hello"))
    before = {one["session_id"]: one["mtime"] for one in await ours.list_sessions(PROJECT)}
    store.session(f"claude/{PROJECT}/one").set_title("no news")
    await ours.append(key_of("two"), chain("again"))
    after = {one["session_id"]: one["mtime"] for one in await ours.list_sessions(PROJECT)}
    assert after["one"] == before["one"] > 1e12
    assert after["two"] >= before["two"]
    summaries = await ours.list_session_summaries(PROJECT)
    assert {one["session_id"]: one["mtime"] for one in summaries} == after


async def test_a_deleted_transcript_is_in_the_trash(store: hansard.Store) -> None:
    """N-28: a transcript is deleted with its subagents, accepts no entries, and can be restored."""
    ours = HansardSessionStore(store)
    entries = chain("one", "two")
    inner: Any = {**KEY, "subpath": "subagents/agent-1"}
    await ours.append(KEY, entries)
    await ours.append(inner, entries)
    await ours.delete(KEY)
    assert await ours.load(KEY) is None
    assert store.trash() == [STORED, f"{STORED}/subagents/agent-1"]
    with pytest.raises(hansard.SessionDeleted):
        await ours.append(KEY, chain("three"))
    await ours.delete(KEY)
    store.restore(STORED)
    assert await ours.load(KEY) == entries
    assert await ours.list_subkeys(KEY) == []


def options_of(directory: Path, store: Any, **more: Any) -> sdk.ClaudeAgentOptions:
    """Return options with which the SDK starts the substitute for its command, in an empty home."""
    command = directory / "claude"
    if not command.exists():
        stand_in = Path(__file__).with_name("claude_cli.py")
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{stand_in}" "$@"\n')
        command.chmod(0o700)
    config = directory / "config"
    config.mkdir(exist_ok=True)
    environment = {
        "CLAUDE_CONFIG_DIR": str(config),
        "STAND_IN_PROJECT": sdk.project_key_for_directory(str(directory)),
        "STAND_IN_SESSION": SESSION,
    }
    return sdk.ClaudeAgentOptions(
        cli_path=str(command), cwd=str(directory), env=environment, session_store=store, **more
    )


async def ask(options: sdk.ClaudeAgentOptions, *prompts: str) -> list[str | None]:
    """Send prompts, and return the answers."""
    found = []
    async with sdk.ClaudeSDKClient(options) as client:
        for prompt in prompts:
            await client.query(prompt)
            async for message in client.receive_response():
                assert getattr(message, "subtype", None) != "mirror_error", message
                if isinstance(message, sdk.ResultMessage):
                    found.append(message.result)
    return found


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from hansard.adapters.claude_agent import HansardSessionStore
from tests.adapters.test_claude_agent import ask, options_of

class Killed(HansardSessionStore):
    async def append(self, key, entries):
        await super().append(key, entries)
        if any("tool_use" in str(entry) for entry in entries):
            os.kill(os.getpid(), signal.SIGKILL)

directory = Path(sys.argv[1])
store = Killed(directory / "data")
asyncio.run(ask(options_of(directory, store, session_store_flush="eager"), "hello", "the weather?"))
"""


@pytest.mark.slow
async def test_a_killed_client_is_resumed(tmp_path: Path) -> None:
    """N-58, N-59, N-60: a client killed in a turn leaves the mirrored entries, and resumes from them."""
    with children(KILLED, [str(tmp_path)]) as (process,):
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    with hansard.open(tmp_path / "data", durability="os") as store:
        ours = HansardSessionStore(store)
        key: Any = {
            "project_key": sdk.project_key_for_directory(str(tmp_path)),
            "session_id": SESSION,
        }
        left = await ours.load(key) or []
        said = [one for one in map(dict, left) if one["type"] in {"user", "assistant"}]
        # At least "hello" and its answer, "the weather?" and the call.
        assert len(said) >= 4
        # The command resumes from the store, without its own files.
        options = options_of(tmp_path, ours, resume=SESSION)
        assert await ask(options, "are you there?") == [f"{len(said)} known"]
        after = await ours.load(key) or []
        assert after[: len(left)] == left
        assert len(after) == len(left) + 3
        going_on = options_of(tmp_path, ours, continue_conversation=True)
        assert await ask(going_on, "weather again") == [f"{len(said) + 2} known"]
        assert "subagents/agent-7" in await ours.list_subkeys(key)
        stored = store.session(ours.id_of(key))
        assert [hit.session for hit in store.search("there", role="user")] == [stored.id]
        roles = [one["role"] for one in origin.conversation(stored.messages()[-4:])]
        assert roles == ["user", "assistant", "tool", "assistant"]


async def test_others_read_it_and_it_reads_others(store: hansard.Store) -> None:
    """Every reader sees a transcript as messages, and messages of others are entries of it."""
    ours = HansardSessionStore(store)
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {"where": "here"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "18 °C"}
    mode: Any = {"type": "mode", "mode": "plan"}
    entries = [entry("user", "the weather?")]
    entries.append(entry("assistant", [call], entries[0]["uuid"]))
    entries.append(entry("user", [result], entries[1]["uuid"]))
    stored = store.session(STORED)
    await ours.append(KEY, [*entries, mode])
    chat = origin.conversation(stored.messages())
    assert [one["role"] for one in chat] == ["user", "assistant", "tool"]
    assert not stored.pairing()
    assert [hit.seq for hit in store.search("weather")] == [1]
    # The log has the text once.
    assert b"".join(event.raw for event in stored.events()).count(b"the weather?") == 1
    stored.add_message({"role": "assistant", "content": "", "tool_calls": chat[1]["tool_calls"]})
    stored.add_message({"role": "tool", "tool_call_id": "t1", "content": "still 18 °C"})
    stored.add_message({"role": "assistant", "content": "from elsewhere"})
    found = [dict(one) for one in await ours.load(KEY) or ()]
    assert found[:3] == entries
    said: list[Any] = [one["message"] for one in found if "message" in one]
    assert said[3] == {"role": "assistant", "content": [call]}
    assert said[4]["content"][0]["content"] == "still 18 °C"
    assert [one.get("parentUuid") for one in found[4:]] == [
        one["uuid"] for one in found[2:6] if "uuid" in one
    ]
    assert await ours.load(KEY) == found


async def test_the_sdk_lists_the_newest_first() -> None:
    """Transcripts of the same millisecond are listed in the order in which they were written."""
    ours = HansardSessionStore("memory:")  # which takes less than a millisecond
    for number in range(20):
        name = f"{(number * 7) % 20:08}-0000-4000-8000-000000000000"
        await ours.append(key_of(name, sdk.project_key_for_directory("/work")), chain("a"))
    listed = await sdk.list_sessions_from_store(ours, directory="/work")
    written = [f"{(number * 7) % 20:08}" for number in range(20)]
    assert [one.session_id[:8] for one in listed] == written[::-1]


# -- usage --------------------------------------------------------------------------------------


async def test_each_answer_is_recorded_once(store: hansard.Store) -> None:
    """Entries of one answer count once, at their highest; a batch that is sent again adds nothing."""
    used = {
        "input_tokens": 3,
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 1,
        "output_tokens": 1,
    }
    entries = [entry("user", "?"), *[entry("assistant", f"part {n}") for n in range(3)]]
    for place, made in enumerate((1, 1, 9), 1):
        answer = entries[place]["message"]
        answer["usage"] = {**used, "output_tokens": made}
    second = entry("assistant", "another")
    second["message"] |= {"id": "msg_2", "usage": used}
    error = entry("assistant", "failed")
    error["message"] |= {"id": "msg_3", "model": "<synthetic>", "usage": used}
    for batch in (entries[:2], entries[2:], entries[2:], [*entries, second], [error, second]):
        # Another process each time.
        await HansardSessionStore(store).append(KEY, batch)
    session = store.session(STORED)
    assert session.usage == {"m": hansard.Usage(2, 16, 10, 8, 2)}
    assert len(session.messages()) == 6
    assert await HansardSessionStore(store).load(KEY) == [*entries, second, error]


@pytest.mark.parametrize("usage", [None, 7, {"input_tokens": "3"}, {"input_tokens": 10**30}])
async def test_usage_that_cannot_be_recorded_refuses_no_entry(
    store: hansard.Store, usage: Any
) -> None:
    """An entry with usage of another shape is stored like any other."""
    one = entry("assistant", "hi")
    one["message"]["usage"] = usage
    await HansardSessionStore(store).append(KEY, [one])
    assert await HansardSessionStore(store).load(KEY) == [one]
    assert store.session(STORED).usage == {}
