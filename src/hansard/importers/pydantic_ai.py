"""Conversations of Pydantic AI: messages as JSON, and the stores of its harness, in files or SQLite.

Above: `bringing`.  Below: `source`, `database`, `pydantic_steps`, `pydantic_media`; of `adapters`,
`pydantic_items`. A message becomes the one that `adapters.pydantic_ai` would have stored, and stands where
that looks for it:

    a JSON file with a list of messages   a session with the name of the file, for `SessionPersistence`
    a database of conversations           a session for each, likewise
    a folder of runs, `<run>/run.json`    `steps/run/<run>` for each and `steps/runs`, for `HansardStepStore`
    a database of runs                    likewise
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hansard.adapters.pydantic_items import message_of
from hansard.importers import database, pydantic_steps
from hansard.importers.pydantic_media import Media, restored
from hansard.importers.source import (
    Files,
    Foreign,
    Found,
    Item,
    Unreadable,
    decoded,
    moment,
    said,
    text_of,
)

_DATABASES: Final = (".db", ".sqlite", ".sqlite3")
_KINDS: Final = frozenset({"request", "response"})
_CONVERSATIONS: Final = frozenset({"id", "revision", "metadata", "messages", "updated_at"})

FORMAT: Final = "pydantic-ai"

#: What of a conversation's summary has its own place here, follows from the messages, or was a process's.
_READ: Final = frozenset(
    {
        "archived_at",
        "id",
        "message_count",
        "owner_pid",
        "revision",
        "schema_version",
        "title",
        "total_tokens",
        "updated_at",
        "workspace",
    }
)


def find(files: Files) -> Iterator[Found]:
    """Yield folders of runs, databases, and files of messages."""
    if not files.is_folder:
        yield _file(files, files.root)
        return
    # A folder with runs in it is one store, and everything in it belongs to that.
    record = pydantic_steps.RECORD
    runs = [path.parent for path in files.walk(record) if path.name == record]
    for folder in sorted({run.parent for run in runs}):
        yield Found(files.name(folder), lambda folder=folder: _folder(files, folder))  # type: ignore[misc]
    inside = {*runs, *(run.parent / "media" for run in runs)}
    for path in files.walk(".json", *_DATABASES):
        if inside.isdisjoint(path.parents):
            yield _file(files, path)


def _file(files: Files, path: Path) -> Found:
    read = _list if path.suffix == ".json" else _database
    return Found(files.name(path), lambda: read(files, path))


def _stem(files: Files, path: Path) -> str:
    name = path.relative_to(files.root) if files.is_folder else Path(path.name)
    return str(name.with_suffix(""))


def _folder(files: Files, folder: Path) -> Iterator[Foreign]:
    before = "" if folder == files.root else f"{folder.relative_to(files.root)}/"
    return pydantic_steps.of_folder(files, folder, before)


# -- messages -----------------------------------------------------------------------------------


def _list(files: Files, path: Path) -> Iterator[Foreign]:
    where = files.name(path)
    items = _items(files, where, files.json(path), Media())
    if items:
        yield Foreign(_stem(files, path), items, where)


def _items(files: Files, where: str, messages: Any, media: Media) -> list[Item]:
    """Return the items of a list of messages; what is no message is reported."""
    if not isinstance(messages, list):
        raise Unreadable("no list of messages of Pydantic AI")
    items = []
    for place, native in enumerate(messages):
        with files.item(f"{where}[{place}]"):
            if (
                not isinstance(native, dict)
                or text_of(native.get("kind")) not in _KINDS
                or not isinstance(native.get("parts"), list)
            ):
                raise Unreadable("no message of Pydantic AI: it has no kind or no parts")
            whole = native
            with files.item(f"{where}[{place}]"):
                whole = restored(native, media)
            items.append(said(message_of(whole), _time(whole)))
    return items


def _time(native: dict[str, Any]) -> str | None:
    times = [native.get("timestamp")]
    times += [part.get("timestamp") for part in native["parts"] if isinstance(part, dict)]
    return next((time for one in times if (time := moment(one))), None)


# -- databases ----------------------------------------------------------------------------------


def _database(files: Files, path: Path) -> Iterator[Foreign]:
    before = f"{_stem(files, path)}/" if files.is_folder else ""
    with database.opened(files, path) as connection:
        tables = database.columns(connection)
        stored = tables.get("conversations", set()) >= _CONVERSATIONS
        steps = pydantic_steps.are_in(tables)
        if not stored and not steps:
            raise Unreadable("no tables as Pydantic AI's harness has them")
        media = Media()
        if tables.get("media", set()) >= {"sha256", "bytes"}:
            media = Media(blobs=lambda digest: _blob(connection, digest))
        if stored:
            yield from _stored(files, path, connection, media, before)
        if steps:
            yield from pydantic_steps.of_database(files, path, connection, tables, media, before)


def _blob(connection: database.Database, digest: str) -> bytes | None:
    row = connection.execute("SELECT bytes FROM media WHERE sha256 = ?", (digest,)).fetchone()
    return row[0] if row is not None and isinstance(row[0], bytes) else None


def _stored(
    files: Files, path: Path, connection: database.Database, media: Media, before: str
) -> Iterator[Foreign]:
    """Read a `SqliteConversationStore`."""
    query = "SELECT id, metadata, messages, updated_at FROM conversations ORDER BY id"
    for name, about, messages, updated in database.rows(files, files.name(path), connection, query):
        where = f"{files.name(path)}:conversations:{name}"
        items: list[Item] = []
        with files.item(where):
            told = decoded(about) if isinstance(about, str) else None
            items = _items(files, where, decoded(messages), media)
        if items:
            items = [one if one.time else one._replace(time=moment(updated)) for one in items]
            summary = told if isinstance(told, dict) else {}
            archived = summary.get("archived_at") is not None
            yield Foreign(before + str(name), items, where, _described(summary), archived=archived)


def _described(summary: dict[str, Any]) -> dict[str, Any]:
    """Return what a conversation's summary says of it, and its messages do not."""
    # Until somebody gives it a name, the harness calls it a new one.
    named = summary.get("title_source") != "fallback"
    return {
        "title": text_of(summary.get("title")) if named else None,
        "workspace": text_of(summary.get("workspace")),
        FORMAT: {name: value for name, value in summary.items() if name not in _READ and value},
    }
