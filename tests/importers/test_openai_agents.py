"""A session of the OpenAI Agents SDK comes over from the file that its own `SQLiteSession` wrote."""

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
from hansard import importers
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


def test_the_adapter_goes_on_with_what_was_imported(tmp_path: Path) -> None:
    """N-14, N-62: all items are equal through the adapter, while the SDK's own file is open and untouched."""
    path = tmp_path / "agents.db"
    with written(path, a=ITEMS, b=[{"role": "user", "content": "hi"}]):
        assert (tmp_path / "agents.db-wal").stat().st_size > 0
        store, report = import_new("openai-agents", path)
    assert [one.session for one in report.imported] == ["a", "b"]
    assert report.skipped == []
    assert items(store, "a") == ITEMS
    asyncio.run(HansardSession("b", store).add_items([{"role": "assistant", "content": "ho"}]))
    assert texts(store, "b", "model") == ["hi", "ho"]


def test_damaged_rows_are_reported_and_the_others_come(tmp_path: Path) -> None:
    """N-34, N-81: a row that is no JSON, no object or no text is named; nothing else is lost."""
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


def test_a_damaged_page_costs_no_more_than_it_must(tmp_path: Path) -> None:
    """N-35: of a file with a damaged page, what comes before it is imported, and the page is reported."""
    path = tmp_path / "agents.db"
    with written(
        path, a=[{"role": "user", "content": f"{number} " + "x" * 900} for number in range(60)]
    ):
        pass
    content = bytearray(path.read_bytes())
    page = next(
        place
        for place in range(0, len(content), 4096)
        if b"40 xxx" in content[place : place + 4096]
    )
    content[page : page + 64] = b"\xff" * 64
    path.write_bytes(content)
    store, report = import_new("openai-agents", path)
    assert any("damaged" in problem.what for problem in report.skipped)
    assert 0 < len(store.session("a").messages()) < 60


def test_links_are_not_followed(tmp_path: Path) -> None:
    """N-14: a database that is a link, and a log that is one, are reported and not read."""
    outside = tmp_path / "outside.db"
    with written(outside, a=ITEMS[:2]):
        pass
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "linked.db").symlink_to(outside)
    (folder / "own.db").write_bytes(outside.read_bytes())
    (folder / "own.db-wal").symlink_to(outside)
    store, report = import_new("openai-agents", folder)
    assert sorted(problems(report)) == ["linked.db", "own.db-wal"]
    assert [one.session for one in report.imported] == ["own/a"]
    assert items(store, "own/a") == ITEMS[:2]


def test_branches_are_forks(tmp_path: Path) -> None:
    """A branch of an `AdvancedSQLiteSession` is a fork that shares what came before it."""
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
    assert texts(store, "a", "model") == [
        "one",
        "re one",
        "two",
        "re two",
        "three",
        "re three",
    ]
    branch = store.session("a@other")
    assert texts(store, branch.id, "model") == [
        "one",
        "re one",
        "two",
        "re two",
        "three, but better",
    ]
    assert branch.parent == "a"


def test_a_session_that_grew_is_continued(tmp_path: Path) -> None:
    """N-84, N-88: a second import changes nothing; after more was said, it appends just that."""
    path = tmp_path / "agents.db"
    with written(path, a=ITEMS[:3]):
        store, _ = import_new("openai-agents", path)
        before = list(store.session("a").events())
        assert importers.import_sessions(store, "openai-agents", path).present
        assert list(store.session("a").events()) == before
    with written(path, a=ITEMS[3:]):
        assert len(importers.import_sessions(store, "openai-agents", path).continued) == 1
    assert items(store, "a") == ITEMS


def test_a_list_of_items_is_a_session(tmp_path: Path) -> None:
    """A JSON array of items is imported under its file's name; what is no item in it is reported."""
    path = tmp_path / "refund.json"
    named = [item for item in ITEMS if "role" in item or "type" in item]
    path.write_text(json.dumps([*named, 7, {"neither": 1}]))
    store, report = import_new("openai-agents", path)
    assert items(store, "refund") == named
    assert len(problems(report)) == 2
