"""Sessions of the OpenAI Agents SDK: the SQLite files of its `SQLiteSession`, and lists of items as JSON.

Above: `bringing`.  Below: `source`, `database`, `adapters.openai_items`.
An item becomes the message that `adapters.openai_agents` would have stored for it, so that adapter goes on
with an imported session as if it had always been its own. A branch of an `AdvancedSQLiteSession` becomes a
fork, named `<session>@<branch>`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from hansard.adapters.openai_items import message_of
from hansard.importers import database
from hansard.importers.database import quoted
from hansard.importers.source import (
    Files,
    Foreign,
    Fork,
    Found,
    Item,
    Unreadable,
    decoded,
    moment,
    said,
    text_of,
)

_DATABASES: Final = (".db", ".sqlite", ".sqlite3")
_LISTS: Final = (".json", ".jsonl")

#: What the tables of messages and of sessions have, whatever they are called.
_MESSAGES: Final = frozenset({"id", "session_id", "message_data", "created_at"})
_SESSIONS: Final = frozenset({"session_id", "created_at", "updated_at"})
_BRANCHES: Final = frozenset({"session_id", "message_id", "branch_id", "sequence_number"})
_MAIN: Final = "main"


def find(files: Files) -> Iterator[Found]:
    """Yield the databases and lists below the root; a root that is a file may have any name."""
    paths = list(files.walk(*_DATABASES, *_LISTS)) if files.is_folder else [files.root]
    for path in paths:
        if path.name.endswith(_LISTS):
            yield Found(files.name(path), lambda path=path: _list(files, path))  # type: ignore[misc]
        else:
            yield Found(files.name(path), lambda path=path: _database(files, path))  # type: ignore[misc]


def _id_of(files: Files, path: Path, name: str) -> str:
    """Return a session's id: its own; in a folder of databases, with the database's name before it."""
    return f"{path.relative_to(files.root).with_suffix('')}/{name}" if files.is_folder else name


# -- databases ----------------------------------------------------------------------------------


def _database(files: Files, path: Path) -> Iterator[Foreign]:
    with database.opened(files, path) as connection:
        tables = database.columns(connection)
        held = [name for name, columns in tables.items() if columns >= _MESSAGES]
        if not held:
            raise Unreadable("no table of messages as the OpenAI Agents SDK has it")
        for table in held:
            yield from _Table(files, path, connection, tables, table).sessions()


class _Table:
    """A table of messages, and what belongs to it."""

    def __init__(
        self,
        files: Files,
        path: Path,
        connection: database.Database,
        tables: dict[str, set[str]],
        table: str,
    ) -> None:
        self._files = files
        self._path = path
        self._connection = connection
        self._table = table
        self._where = f"{files.name(path)}:{table}"
        #: When each session began, by any table that says so.
        self._created: dict[Any, str | None] = {}
        for name, columns in tables.items():
            if columns >= _SESSIONS and "message_data" not in columns:
                query = f"SELECT session_id, created_at FROM {quoted(name)}"  # noqa: S608 - quoted
                where = f"{files.name(path)}:{name}"
                found = database.rows(files, where, connection, query)
                self._created.update((row[0], moment(row[1])) for row in found)
        self._structure = next((n for n, columns in tables.items() if columns >= _BRANCHES), None)

    def sessions(self) -> Iterator[Foreign]:
        columns = "id, session_id, message_data, created_at"
        query = f"SELECT {columns} FROM {quoted(self._table)} ORDER BY id"  # noqa: S608 - quoted
        items: dict[str, dict[int, Item]] = {}
        for number, session_id, data, created in self._rows(query):
            with self._files.item(f"{self._where}:{number!s:.40}"):
                if not isinstance(session_id, str) or not session_id or not isinstance(number, int):
                    raise Unreadable("a message without its number, or the id of a session")
                value = decoded(data) if isinstance(data, str) else None
                if not isinstance(value, dict):
                    raise Unreadable("the message cannot be read: no JSON object")
                item = said(message_of(value), moment(created))
                items.setdefault(session_id, {})[number] = item
        for session_id, held in items.items():
            yield from self._branches(session_id, held)

    def _branches(self, session_id: str, held: dict[int, Item]) -> Iterator[Foreign]:
        ways = self._ways(session_id)
        placed = {number for way in ways.values() for number in way}
        # What belongs to no branch was there before the branches were.
        main = sorted({*ways.pop(_MAIN, []), *(held.keys() - placed)} & held.keys())
        yield self._foreign(session_id, [held[number] for number in main], None)
        for branch, way in ways.items():
            own = [number for number in way if number in held]
            common = 0
            while common < min(len(own), len(main)) and held[own[common]] == held[main[common]]:
                common += 1
            fork = Fork(_id_of(self._files, self._path, session_id), common) if common else None
            yield self._foreign(f"{session_id}@{branch}", [held[number] for number in own], fork)

    def _foreign(self, name: str, items: list[Item], fork: Fork | None) -> Foreign:
        return Foreign(
            _id_of(self._files, self._path, name),
            items,
            self._where,
            created=self._created.get(name),
            fork=fork,
        )

    def _ways(self, session_id: str) -> dict[str, list[int]]:
        """Return the numbers of the messages of each branch, in order."""
        ways: dict[str, list[int]] = {}
        if self._structure is not None:
            query = (
                f"SELECT branch_id, message_id FROM {quoted(self._structure)} WHERE session_id = ? "  # noqa: S608 - quoted
                "ORDER BY sequence_number, rowid"
            )
            for branch, number in self._rows(query, session_id):
                ways.setdefault(str(branch), []).append(number)
        return ways

    def _rows(self, query: str, *given: Any) -> Iterator[tuple[Any, ...]]:
        return database.rows(self._files, self._where, self._connection, query, *given)


# -- lists --------------------------------------------------------------------------------------


def _list(files: Files, path: Path) -> Iterator[Foreign]:
    """Read items out of a JSON array, or one out of each line."""
    where = files.name(path)
    numbered: Iterable[tuple[str, Any]]
    if path.name.endswith(".jsonl"):
        numbered = [(files.name(path, line), value) for line, value in files.lines(path)]
    else:
        value = files.json(path)
        if not isinstance(value, list):
            raise Unreadable("no list of items")
        numbered = [(f"{where}[{place}]", one) for place, one in enumerate(value)]
    items = []
    for place, one in numbered:
        with files.item(place):
            known = isinstance(one, dict) and (text_of(one.get("role")) or text_of(one.get("type")))
            if not known:
                raise Unreadable("no item: it has neither a role nor a type")
            items.append(said(message_of(one)))
    name = path.relative_to(files.root) if files.is_folder else Path(path.name)
    if items:
        yield Foreign(str(name.with_suffix("")), items, where)
