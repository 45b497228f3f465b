"""Sessions of the OpenAI Agents SDK are imported from the files that its `SQLiteSession` writes."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

import hansard
from hansard.adapters.openai_agents import HansardSession
from tests.adapters.test_openai_agents import ITEMS
from tests.importers.sources import import_new, problems, texts


@contextmanager
def written(path: Path, **sessions: list[Any]) -> Iterator[None]:
    """Let the SDK write sessions, and keep its file open, with its write-ahead log."""
    opened = [SQLiteSession(name, path) for name in sessions]
    try:
        for session in opened:
            asyncio.run(session.add_items(sessions[session.session_id]))
        yield
    finally:
        for session in opened:
            session.close()


def items(store: hansard.Store, session_id: str) -> list[Any]:
    """Return what the adapter reads."""
    return asyncio.run(HansardSession(session_id, store).get_items())


def test_the_adapter_continues_an_imported_session(tmp_path: Path) -> None:
    """N-14, N-62: all items are equal through the adapter, imported while the SDK has its file open."""
    path = tmp_path / "agents.db"
    with written(path, a=ITEMS, b=[{"role": "user", "content": "hi"}]):
        assert (tmp_path / "agents.db-wal").stat().st_size > 0
        store, report = import_new("openai-agents", path)
    assert [one.session for one in report.imported] == ["a", "b"]
    assert report.skipped == []
    assert items(store, "a") == ITEMS
    asyncio.run(HansardSession("b", store).add_items([{"role": "assistant", "content": "ho"}]))
    assert texts(store, "b", "model") == ["hi", "ho"]


def test_damaged_rows_are_reported(tmp_path: Path) -> None:
    """N-34, N-81: a row that is not JSON, an object or a text is reported; nothing else is lost."""
    path = tmp_path / "agents.db"
    with written(path, a=[{"role": "user", "content": str(number)} for number in range(5)]):
        pass
    with closing(sqlite3.connect(path)) as connection:
        for number, data in ((2, '{"role": "us'), (3, "[]"), (4, b"\xff\xfe")):
            connection.execute(
                "UPDATE agent_messages SET message_data = ? WHERE id = ?", (data, number)
            )
        connection.commit()
    store, report = import_new("openai-agents", path)
    assert problems(report) == [f"agents.db:agent_messages:{number}" for number in (2, 3, 4)]
    assert texts(store, "a", "model") == ["0", "4"]


def test_a_damaged_page_is_reported(tmp_path: Path) -> None:
    """N-35: what precedes a damaged page of the file is imported, and the damage is reported."""
    path = tmp_path / "agents.db"
    said = [{"role": "user", "content": f"{number} " + "x" * 900} for number in range(60)]
    with written(path, a=said):
        pass
    content = bytearray(path.read_bytes())
    page = content.index(b"40 xxx") // 4096 * 4096
    content[page : page + 64] = b"\xff" * 64
    path.write_bytes(content)
    store, report = import_new("openai-agents", path)
    assert any("damaged" in problem.what for problem in report.skipped)
    assert 0 < len(store.session("a").messages()) < 60


def test_a_log_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """N-14: a write-ahead log that is a symbolic link is reported and not read."""
    path = tmp_path / "source" / "own.db"
    path.parent.mkdir()
    with written(path, a=ITEMS[:2]):
        pass
    (tmp_path / "source" / "own.db-wal").symlink_to(path)
    store, report = import_new("openai-agents", path.parent)
    assert problems(report) == ["own.db-wal"]
    assert items(store, "own/a") == ITEMS[:2]


def test_branches_are_sessions(tmp_path: Path) -> None:
    """A branch of an `AdvancedSQLiteSession` is a session with what precedes it."""
    path = tmp_path / "agents.db"

    async def make() -> AdvancedSQLiteSession:
        session = AdvancedSQLiteSession(session_id="a", db_path=path, create_tables=True)
        for turn in ("one", "two", "three"):
            await session.add_items(
                [{"role": "user", "content": turn}, {"role": "assistant", "content": f"re {turn}"}]
            )
        await session.create_branch_from_turn(3, "other")
        await session.add_items([{"role": "user", "content": "three, but better"}])
        return session

    session = asyncio.run(make())
    store, report = import_new("openai-agents", path)
    session.close()
    assert report.skipped == []
    shared = ["one", "re one", "two", "re two"]
    assert texts(store, "a", "model") == [*shared, "three", "re three"]
    assert texts(store, "a@other", "model") == [*shared, "three, but better"]
    assert store.session("a@other").metadata["forked_from"] == "a"


def test_a_list_of_items_is_a_session(tmp_path: Path) -> None:
    """A JSON array of items is imported under its file's name; other values in it are reported."""
    path = tmp_path / "refund.json"
    named = [item for item in ITEMS if "role" in item or "type" in item]
    path.write_text(json.dumps([*named, 7, {"neither": 1}]))
    store, report = import_new("openai-agents", path)
    assert items(store, "refund") == named
    assert len(problems(report)) == 2
