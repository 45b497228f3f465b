"""Conversations and runs are imported from what Pydantic AI and its harness write."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness.step_persistence import FileStepStore, SqliteStepStore, StepPersistence
from pydantic_ai_harness.step_persistence.conversations import (
    ConversationSummary,
    SqliteConversationStore,
)

from hansard import importers
from hansard.adapters.pydantic_ai import HansardStepStore, SessionPersistence
from hansard.message.pydantic_items import natives_of
from tests.importers.sources import import_new, problems, texts

#: The harness stores these separately because of their size.
LONG = "a long result " * 8000
PICTURE = BinaryContent(data=bytes(range(256)) * 400, media_type="image/png")


def agent(*capabilities: Any) -> Agent[None, str]:
    """Return an agent with a tool, and a model that always calls it."""
    made = Agent(TestModel(custom_output_text="It is dry."), capabilities=list(capabilities))

    @made.tool_plain
    def weather(city: str) -> str:
        return f"dry in {city}: {LONG}"

    return made


def run(store: Any, *, turns: int = 2) -> list[ModelMessage]:
    """Let an agent run, with the harness' own capability, and return its messages."""
    made = agent(StepPersistence(store=store))
    history: list[ModelMessage] = []
    for turn in range(turns):
        prompt: Any = f"Will it rain? {turn}" if turn else ["Will it rain?", PICTURE]
        result = asyncio.run(made.run(prompt, message_history=history, conversation_id="c1"))
        history = result.all_messages()
    return history


async def _answers(store: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"runs": await store.list_runs()}
    for record in found["runs"]:
        own = record.run_id
        events = await store.list_events(run_id=own)
        calls = {event.tool_call_id for event in events if event.tool_call_id}
        found[own] = (
            events,
            await store.latest_snapshot(run_id=own),
            await store.latest_snapshot(run_id=own, include_interrupted=True),
            await store.list_snapshots(run_id=own, include_interrupted=True),
            [await store.get_tool_effect(run_id=own, tool_call_id=call) for call in sorted(calls)],
            await store.list_unresolved_tool_effects(run_id=own),
        )
    return found


def answers(store: Any) -> dict[str, Any]:
    """Return what a step store answers to all questions about its runs."""
    return asyncio.run(_answers(store))


def step_store(root: Path, kind: str) -> tuple[Any, Path]:
    """Return a step store of the harness, and its path."""
    if kind == "files":
        return FileStepStore(root / "steps"), root / "steps"
    return SqliteStepStore(database=root / "steps.db"), root / "steps.db"


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_a_step_store_answers_the_same_after_the_import(tmp_path: Path, kind: str) -> None:
    """N-14, N-62: runs, steps, snapshots and effects are equal through the adapter.

    N-84: after another run, the next import adds that run.
    """
    original, path = step_store(tmp_path, kind)
    history = run(original)
    store, report = import_new("pydantic-ai", path)
    assert report.skipped == []
    wanted = answers(original)
    assert len(wanted) == 3
    assert answers(HansardStepStore(store)) == wanted
    last = wanted["runs"][-1].run_id
    assert len(store.session(f"steps/run/{last}").messages()) == len(history)
    run(original, turns=1)
    more = importers.import_sessions(store, "pydantic-ai", path)
    assert (len(more.imported), len(more.continued), len(more.present)) == (1, 1, 2)
    assert answers(HansardStepStore(store)) == answers(original)


def test_damage_in_a_step_store_is_reported(tmp_path: Path) -> None:
    """N-34, N-81: a torn step, an invalid snapshot and missing media are reported."""
    original, path = step_store(tmp_path, "files")
    run(original, turns=1)
    (child,) = (one for one in path.iterdir() if (one / "run.json").exists())
    with (child / "events.jsonl").open("a") as file:
        file.write('{"run_id": "x')
    first = min((child / "snapshots").iterdir())
    first.write_text("{")
    for blob in (path / "media").iterdir():
        blob.unlink()
    _, report = import_new("pydantic-ai", path)
    assert any("events.jsonl:" in place for place in problems(report))
    assert any(place.endswith(first.name) for place in problems(report))
    assert any("are missing" in problem.what for problem in report.skipped)


def test_damaged_rows_are_reported(tmp_path: Path) -> None:
    """N-34, N-81: a row whose JSON is damaged is reported by number; the others are imported."""
    original, path = step_store(tmp_path, "sqlite")
    run(original, turns=1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE snapshots SET messages = '{' WHERE seq = 1")
        connection.execute("UPDATE events SET timestamp = 'never' WHERE seq = 2")
        connection.commit()
    store, report = import_new("pydantic-ai", path)
    assert sorted(problems(report)) == ["steps.db:events:2", "steps.db:snapshots:1"]
    assert len(store.sessions(prefix="steps/").items) == 2


def test_an_agent_continues_imported_messages(tmp_path: Path) -> None:
    """N-58, N-60: messages as JSON are equal, and a run with the capability restores them once."""
    plain = agent()
    history = asyncio.run(plain.run("Will it rain?")).all_messages()
    path = tmp_path / "c1.json"
    path.write_bytes(ModelMessagesTypeAdapter.dump_json(history))
    store, report = import_new("pydantic-ai", path)
    assert report.skipped == []
    session = store.session("c1")
    assert [native for _, native in natives_of(session.messages())] == json.loads(path.read_text())
    assert texts(store, session.id, "model")[-1] == "It is dry."
    result = asyncio.run(agent(SessionPersistence(store)).run("And now?", conversation_id="c1"))
    assert result.all_messages()[: len(history)] == history
    assert len(session.messages()) == len(result.all_messages())


def test_an_agent_continues_an_imported_conversation(tmp_path: Path) -> None:
    """N-58, N-60: a conversation of the harness is imported with messages, title and workspace."""
    path = tmp_path / "conversations.db"
    original = SqliteConversationStore(database=path)

    async def fill() -> list[ModelMessage]:
        run = await agent().run(["Will it rain?", PICTURE])
        history = run.all_messages()
        named = await original.save(
            summary=ConversationSummary(id="c1", workspace="/srv/shop", model="m"), messages=history
        )
        await original.name(source=named, title="Rain")
        await original.save(
            summary=ConversationSummary(id="c/2", workspace="/srv/shop"), messages=history[:1]
        )
        await original.set_archived(conversation_id="c/2", archived=True)
        return history

    history = asyncio.run(fill())
    store, report = import_new("pydantic-ai", path)
    assert report.skipped == []
    first, second = store.session("c1"), store.session("c/2")
    saved = json.loads(ModelMessagesTypeAdapter.dump_json(history))
    assert [native for _, native in natives_of(first.messages())] == saved
    assert [native for _, native in natives_of(second.messages())] == saved[:1]
    assert (first.title, second.title) == ("Rain", None)
    assert first.metadata["workspace"] == second.metadata["workspace"] == "/srv/shop"
    assert first.metadata["pydantic-ai"]["model"] == "m"
    assert [one.id for one in store.sessions(archived=True).items] == ["c/2"]
    result = asyncio.run(agent(SessionPersistence(store)).run("And now?", conversation_id="c1"))
    assert json.loads(result.all_messages_json())[: len(history)] == saved


def test_a_damaged_conversation_is_reported(tmp_path: Path) -> None:
    """N-34, N-81: one that cannot be read is reported; the others are imported."""
    path = tmp_path / "conversations.db"
    original = SqliteConversationStore(database=path)

    async def fill() -> None:
        history = (await agent().run("Will it rain?")).all_messages()
        for name in ("a", "b"):
            summary = ConversationSummary(id=name, workspace="/srv/shop")
            await original.save(summary=summary, messages=history)

    asyncio.run(fill())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE conversations SET messages = '{' WHERE id = 'a'")
        connection.commit()
    store, report = import_new("pydantic-ai", path)
    assert problems(report) == ["conversations.db:conversations:a"]
    assert [one.id for one in store.sessions().items] == ["b"]
