"""Import OpenAI Agents SDK sessions: the SQLite files of its `SQLiteSession`, and lists of items as JSON.

An item becomes the message that `adapters.openai_agents` would have stored, so that adapter continues an
imported session. A branch of an `AdvancedSQLiteSession` becomes a session `<session>@<branch>`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hansard.importers import database
from hansard.importers.database import quoted
from hansard.importers.foreign_json import Unreadable, object_of, parse_time, text_in
from hansard.importers.source import Files, ForeignSession, Item, SourceEntry
from hansard.message.openai_items import message_of

_LISTS: Final = (".json", ".jsonl")

#: The columns of the tables, which may have any names.
_MESSAGES: Final = frozenset({"id", "session_id", "message_data", "created_at"})
_SESSIONS: Final = frozenset({"session_id", "created_at", "updated_at"})
_BRANCHES: Final = frozenset({"session_id", "message_id", "branch_id", "sequence_number"})


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the databases and lists."""
    for path in database.paths(files, *_LISTS):
        yield files.entry(_list if path.name.endswith(_LISTS) else _database, path)


def _database(files: Files, path: Path) -> Iterator[ForeignSession]:
    with database.opened(files, path) as connection:
        tables = [name for name, columns in connection.tables.items() if columns >= _MESSAGES]
        if not tables:
            raise Unreadable("no table of OpenAI Agents SDK messages")
        created: dict[Any, str | None] = {}
        for name, columns in connection.tables.items():
            if columns >= _SESSIONS and "message_data" not in columns:
                query = f"SELECT session_id, created_at FROM {quoted(name)}"  # noqa: S608 - quoted
                created |= {key: parse_time(time) for key, time in connection.rows(name, query)}
        for table in tables:
            for name, items, metadata in _sessions(connection, table):
                where = f"{connection.name}:{table}"
                yield ForeignSession(
                    connection.prefix + name, items, where, metadata, created.get(name)
                )


def _sessions(
    connection: database.Database, table: str
) -> Iterator[tuple[str, list[Item], dict[str, Any]]]:
    """Yield id, items and metadata of each session and each branch in a table of messages."""
    items: dict[str, dict[int, Item]] = {}
    columns = "id, session_id, message_data, created_at"
    query = f"SELECT {columns} FROM {quoted(table)} ORDER BY id"  # noqa: S608 - quoted
    for number, session_id, data, created in connection.rows(table, query):
        with connection.files.item(f"{connection.name}:{table}:{number!s:.40}"):
            if not isinstance(session_id, str) or not session_id or not isinstance(number, int):
                raise Unreadable("a message without a number or without a session id")
            native = object_of(Files.decode(data) if isinstance(data, str) else data, "a message")
            item = Item.message(message_of(native), parse_time(created))
            items.setdefault(session_id, {})[number] = item
    for session_id, held in items.items():
        branches = _branches(connection, session_id)
        placed = {number for numbers in branches.values() for number in numbers}
        # Messages without a branch are older than the branches.
        main = sorted({*branches.pop("main", []), *(held.keys() - placed)} & held.keys())
        yield session_id, [held[number] for number in main], {}
        for branch, numbers in branches.items():
            own = [held[number] for number in numbers if number in held]
            forked = {"forked_from": connection.prefix + session_id}
            yield f"{session_id}@{branch}", own, forked


def _branches(connection: database.Database, session_id: str) -> dict[str, list[int]]:
    """Return the numbers of the messages of each branch, in order."""
    found: dict[str, list[int]] = {}
    for table, columns in connection.tables.items():
        if columns >= _BRANCHES:
            query = (
                f"SELECT branch_id, message_id FROM {quoted(table)} WHERE session_id = ? "  # noqa: S608 - quoted
                "ORDER BY sequence_number, rowid"
            )
            for branch, number in connection.rows(table, query, session_id):
                found.setdefault(str(branch), []).append(number)
            break
    return found


def _list(files: Files, path: Path) -> Iterator[ForeignSession]:
    """Read items from a JSON array, or one from each line."""
    where = files.name(path)
    items = []
    if path.name.endswith(".jsonl"):
        for line, value in files.lines(path):
            with files.item(files.name(path, line)):
                items.append(_item(value))
    else:
        natives = files.json(path)
        if not isinstance(natives, list):
            raise Unreadable("not a list of items")
        items = files.each(where, natives, _item)
    if items:
        yield ForeignSession(files.stem(path), items, where)


def _item(native: Any) -> Item:
    if text_in(native, "role", "type") is None:
        raise Unreadable("not an item: it has neither a role nor a type")
    return Item.message(message_of(native))
