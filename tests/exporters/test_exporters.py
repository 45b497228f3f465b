"""The other program's package, and our importer, read an export unchanged."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession
from claude_agent_sdk import get_session_messages

import hansard
from hansard import exporters, importers
from hansard.adapters.openai_agents import HansardSession
from hansard.message import origin
from tests.adapters.test_openai_agents import ITEMS

#: Whose form no scanner takes for a real one.
KEY = "sk-ant-" + "api03-" + "x7Kd9mQ2vB5nR8tY1wZ4" * 3

#: The kind of importer that reads an exporter's files.
READERS = {"claude-code": "claude-code", "codex": "codex", "openai-items": "openai-agents"}

CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Ulm"}'},
}


def conversation(store: hansard.Store, name: str = "support/42") -> hansard.Session:
    """Return a session with one of everything that a chat has, and of what hansard has besides."""
    session = store.create(name, metadata={"title": "Rain"})
    session.add_message({"role": "user", "content": "Will it rain?"})
    session.add_message({"role": "assistant", "content": "I look.", "tool_calls": [CALL]})
    session.add_message({"role": "tool", "tool_call_id": "c1", "content": "dry"})
    kept = session.add_message({"role": "assistant", "content": "No."}).seq
    session.add_message({"role": "user", "content": "a mistake"})
    session.revert(kept)
    session.append("x.todo", {"what": "buy an umbrella"})
    with session.stream(gather=0, role="assistant") as stream:
        stream.write("It will not ")
        stream.write("rain at all.")
    session.add_message({"role": "user", "content": "Thanks \u2028 \x85 ümlaut"})
    return session


def exported(session: hansard.Session, kind: Any, **options: Any) -> bytes:
    """Return the bytes of an export."""
    return b"".join(exporters.export(session, kind, **options))


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as every framework reads them."""
    return origin.conversation(messages)


def reimported(
    folder: Path, session: hansard.Session, kind: str, content: bytes
) -> hansard.Session:
    """Import an export into another store, and return the session."""
    name = str(uuid.uuid5(uuid.NAMESPACE_URL, session.id))
    path = folder / "project" / f"{name}.{exporters.KINDS[kind]}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    other = hansard.open("memory:")
    report = importers.import_sessions(other, READERS[kind], path)
    assert report.skipped == []
    (only,) = report.sessions
    return other.session(only.session)


@pytest.mark.parametrize("kind", exporters.KINDS)
def test_an_export_is_imported_as_the_same_conversation(tmp_path: Path, kind: str) -> None:
    """N-36, N-64: the model view is the same after an export and an import, in each format."""
    session = conversation(hansard.open("memory:"))
    found = reimported(tmp_path, session, kind, exported(session, kind))
    assert plain(found.messages()) == plain(session.messages())
    again = reimported(tmp_path, found, kind, exported(found, kind))
    assert again.messages() == found.messages()


@pytest.mark.parametrize("kind", exporters.KINDS)
def test_the_history_has_what_was_taken_back(kind: str) -> None:
    """N-45: `view="history"` includes reverted messages, and the model view does not."""
    session = conversation(hansard.open("memory:"))
    assert b"a mistake" not in exported(session, kind)
    assert b"a mistake" in exported(session, kind, view="history")


@pytest.mark.parametrize("kind", exporters.KINDS)
def test_a_summary_stands_for_what_it_shortens(tmp_path: Path, kind: str) -> None:
    """N-47: the model view of an export begins with the summary."""
    session = conversation(hansard.open("memory:"))
    session.summarize(upto=5, message={"role": "user", "content": "They talked of rain."})
    found = reimported(tmp_path, session, kind, exported(session, kind))
    assert plain(found.messages()) == plain(session.messages())
    assert b"Will it rain?" not in exported(session, kind)
    assert b"Will it rain?" in exported(session, kind, view="history")


@pytest.mark.parametrize("kind", exporters.KINDS)
def test_what_broke_off_and_what_was_redacted(kind: str) -> None:
    """N-66, N-67: partial messages are exported; redacted messages and credentials are not."""
    session = conversation(hansard.open("memory:"))
    seq = session.add_message({"role": "user", "content": "forget this"}).seq
    session.redact(seq, reason="asked to")
    session.add_message({"role": "user", "content": f"my key is {KEY}"})
    stream = session.stream(gather=0, role="assistant")
    stream.write("half of an ans")
    out = exported(session, kind)
    assert b"half of an ans" in out
    assert b"forget this" not in exported(session, kind, redacted=False, view="history")
    assert KEY.encode() not in out
    assert KEY.encode() in exported(session, kind, redacted=False)


def test_the_claude_sdk_reads_what_was_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's `get_session_messages` reads every message of an exported session."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    session = conversation(hansard.open("memory:"))
    content = exported(session, "claude-code")
    name = json.loads(content.splitlines()[0])["sessionId"]
    path = tmp_path / "projects" / "-work" / f"{name}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    found = [
        {"role": one.type, "content": one.message["content"]} for one in get_session_messages(name)
    ]
    assert plain(found) == plain(session.messages())


def test_the_agents_sdk_takes_the_items(tmp_path: Path) -> None:
    """Items that the SDK stored are exported unchanged, and its `SQLiteSession` accepts them."""
    store = hansard.open("memory:")
    ours = HansardSession("a", store)

    async def through() -> tuple[list[Any], list[Any]]:
        await ours.add_items(ITEMS)
        told = json.loads(exported(store.session("a"), "openai-items", redacted=False))
        theirs = SQLiteSession("a", tmp_path / "x.db")
        await theirs.add_items(told)
        found = await theirs.get_items()
        theirs.close()
        return told, found

    told, found = asyncio.run(through())
    assert told == found == ITEMS


def test_wrong_words_are_refused() -> None:
    """An unknown kind or view, and a missing session, raise at the call."""
    store = hansard.open("memory:")
    session = conversation(store)
    wrong: Any = "codexx"
    with pytest.raises(ValueError, match="kind must be one of"):
        exporters.export(session, wrong)
    with pytest.raises(ValueError, match="view must be one of"):
        exporters.export(session, "codex", view=wrong)
    with pytest.raises(hansard.SessionNotFound):
        exporters.export(store.session("missing"), "codex")
