"""Import OpenAI Agents SDK sessions: the SQLite files of its `SQLiteSession`, and lists of items as JSON.

An item becomes the message that `adapters.openai_agents` would have stored, so that adapter continues an
imported session. A branch of an `AdvancedSQLiteSession` becomes a fork, `<session>@<branch>`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from hansard.importers import database
from hansard.importers.database import quoted
from hansard.importers.source import Files, ForeignSession, Fork, Item, SourceEntry, Unreadable
from hansard.importers.values import common_prefix, parse_time, text_of
from hansard.message.openai_items import message_of

_LISTS: Final = (".json", ".jsonl")

#: The columns of the tables, whatever their names are.
_MESSAGES: Final = frozenset({"id", "session_id", "message_data", "created_at"})
_SESSIONS: Final = frozenset({"session_id", "created_at", "updated_at"})
_BRANCHES: Final = frozenset({"session_id", "message_id", "branch_id", "sequence_number"})
_MAIN: Final = "main"


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the databases and lists."""
    for path in database.paths(files, *_LISTS):
        yield files.entry(_list if path.name.endswith(_LISTS) else _database, path)


# -- databases ----------------------------------------------------------------------------------


def _database(files: Files, path: Path) -> Iterator[ForeignSession]:
    prefix = f"{files.stem(path)}/" if files.is_folder else ""
    with database.opened(files, path) as connection:
        tables = [name for name, columns in connection.tables.items() if columns >= _MESSAGES]
        if not tables:
            raise Unreadable("no table of OpenAI Agents SDK messages")
        for table in tables:
            yield from _Table(connection, table, prefix).sessions()


class _Table:
    """A table of messages, and the tables that belong to it."""

    def __init__(self, connection: database.Database, table: str, prefix: str) -> None:
        self._connection = connection
        self._table = table
        self._prefix = prefix
        self._where = f"{connection.name}:{table}"
        #: When each session began.
        self._created: dict[Any, str | None] = {}
        for name, columns in connection.tables.items():
            if columns >= _SESSIONS and "message_data" not in columns:
                query = f"SELECT session_id, created_at FROM {quoted(name)}"  # noqa: S608 - quoted
                found = connection.rows(name, query)
                self._created.update((row[0], parse_time(row[1])) for row in found)
        self._structure = next(
            (n for n, own in connection.tables.items() if own >= _BRANCHES), None
        )

    def sessions(self) -> Iterator[ForeignSession]:
        columns = "id, session_id, message_data, created_at"
        query = f"SELECT {columns} FROM {quoted(self._table)} ORDER BY id"  # noqa: S608 - quoted
        items: dict[str, dict[int, Item]] = {}
        for number, session_id, data, created in self._connection.rows(self._table, query):
            with self._connection.files.item(f"{self._where}:{number!s:.40}"):
                if not isinstance(session_id, str) or not session_id or not isinstance(number, int):
                    raise Unreadable("a message without a number or without a session id")
                value = Files.decode(data) if isinstance(data, str) else None
                if not isinstance(value, dict):
                    raise Unreadable("the message is not a JSON object")
                item = Item.message(message_of(value), parse_time(created))
                items.setdefault(session_id, {})[number] = item
        for session_id, held in items.items():
            yield from self._branches(session_id, held)

    def _branches(self, session_id: str, held: dict[int, Item]) -> Iterator[ForeignSession]:
        branches = self._numbers(session_id)
        placed = {number for numbers in branches.values() for number in numbers}
        # Messages without a branch are older than the branches.
        main = sorted({*branches.pop(_MAIN, []), *(held.keys() - placed)} & held.keys())
        trunk = [held[number] for number in main]
        yield self._session(session_id, trunk, None)
        for branch, numbers in branches.items():
            items = [held[number] for number in numbers if number in held]
            common = common_prefix(items, trunk)
            fork = Fork(self._prefix + session_id, common) if common else None
            yield self._session(f"{session_id}@{branch}", items, fork)

    def _session(self, name: str, items: list[Item], fork: Fork | None) -> ForeignSession:
        created = self._created.get(name)
        return ForeignSession(self._prefix + name, items, self._where, created=created, fork=fork)

    def _numbers(self, session_id: str) -> dict[str, list[int]]:
        """Return the numbers of the messages of each branch, in order."""
        found: dict[str, list[int]] = {}
        if self._structure is not None:
            query = (
                f"SELECT branch_id, message_id FROM {quoted(self._structure)} WHERE session_id = ? "  # noqa: S608 - quoted
                "ORDER BY sequence_number, rowid"
            )
            for branch, number in self._connection.rows(self._table, query, session_id):
                found.setdefault(str(branch), []).append(number)
        return found


# -- lists --------------------------------------------------------------------------------------


def _list(files: Files, path: Path) -> Iterator[ForeignSession]:
    """Read items from a JSON array, or one from each line."""
    where = files.name(path)
    numbered: Iterable[tuple[str, Any]]
    if path.name.endswith(".jsonl"):
        numbered = [(files.name(path, line), value) for line, value in files.lines(path)]
    else:
        value = files.json(path)
        if not isinstance(value, list):
            raise Unreadable("not a list of items")
        numbered = [(f"{where}[{place}]", one) for place, one in enumerate(value)]
    items = []
    for place, one in numbered:
        with files.item(place):
            known = isinstance(one, dict) and (text_of(one.get("role")) or text_of(one.get("type")))
            if not known:
                raise Unreadable("not an item: it has neither a role nor a type")
            items.append(Item.message(message_of(one)))
    if items:
        yield ForeignSession(files.stem(path), items, where)
