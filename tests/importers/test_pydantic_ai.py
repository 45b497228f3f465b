"""Conversations are imported from what Pydantic AI and its harness write."""

import asyncio
import json
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness.step_persistence.conversations import (
    ConversationSummary,
    SqliteConversationStore,
)

from hansard.adapters.pydantic_ai import SessionPersistence
from hansard.message.pydantic_items import natives_of
from tests.importers.sources import import_new, texts

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


def test_an_agent_continues_imported_messages(tmp_path: Path) -> None:
    """N-58, N-60: messages as JSON are equal, and a run with the capability restores them once."""
    plain = agent()
    history = asyncio.run(plain.run("Will it rain?")).all_messages()
    path = tmp_path / "c1.json"
    path.write_bytes(ModelMessagesTypeAdapter.dump_json(history))
    store, report = import_new("pydantic-ai", path)
    assert report.skipped == []
    session = store.session("c1")
    assert natives_of(session.messages()) == json.loads(path.read_text())
    used = [one.usage for one in history if isinstance(one, ModelResponse)]
    (counted,) = session.usage.values()
    assert (counted.calls, counted.output_tokens) == (2, sum(one.output_tokens for one in used))
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
    assert natives_of(first.messages()) == saved
    assert natives_of(second.messages()) == saved[:1]
    assert (first.title, second.title) == ("Rain", None)
    assert first.metadata["workspace"] == second.metadata["workspace"] == "/srv/shop"
    assert first.metadata["pydantic-ai"]["model"] == "m"
    assert [one.id for one in store.sessions(archived=True).items] == ["c/2"]
    result = asyncio.run(agent(SessionPersistence(store)).run("And now?", conversation_id="c1"))
    assert json.loads(result.all_messages_json())[: len(history)] == saved
