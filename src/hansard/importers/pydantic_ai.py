"""Import Pydantic AI conversations: messages as JSON, and the database of its harness.

A message becomes the one that `adapters.pydantic_ai` would have stored, where `SessionPersistence` finds it:

    a JSON file with a list of messages     a session with the name of the file
    a `SqliteConversationStore`             a session for each conversation

The harness stores long texts and pictures separately; they are put back into the messages.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from hansard.importers import database
from hansard.importers.foreign_json import Unreadable, member, parse_time, text_in, time_in, without
from hansard.importers.source import Files, ForeignSession, Item, SourceEntry
from hansard.message.pydantic_items import FORMAT, message_of, usage_of

_KINDS: Final = frozenset({"request", "response"})
_CONVERSATIONS: Final = frozenset({"id", "revision", "metadata", "messages", "updated_at"})

#: Members of a summary that are stored elsewhere, follow from the messages, or describe a process.
_READ: Final = (
    *("archived_at", "id", "message_count", "owner_pid", "revision", "schema_version", "title"),
    *("total_tokens", "updated_at", "workspace"),
)

Record = dict[str, Any]
#: Returns the separately stored bytes of a SHA-256, if there are any.
Blobs = Callable[[str], bytes | None]


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the databases, and the files of messages."""
    for path in database.paths(files, ".json"):
        yield files.entry(_list if path.suffix == ".json" else _database, path)


def _list(files: Files, path: Path) -> Iterator[ForeignSession]:
    where = files.name(path)
    items = _conversation(files, where, files.json(path), lambda _: None)
    if items:
        yield ForeignSession(files.stem(path), items, where)


def _conversation(files: Files, where: str, messages: Any, blobs: Blobs) -> list[Item]:
    """Return the items of a list of messages."""
    if not isinstance(messages, list):
        raise Unreadable("not a list of Pydantic AI messages")
    items = []
    for place, native in enumerate(messages):
        at = f"{where}[{place}]"
        with files.item(at):
            if text_in(native, "kind") not in _KINDS or not isinstance(native.get("parts"), list):
                raise Unreadable("not a Pydantic AI message: it has no kind or no parts")
            complete: Record = native
            with files.item(at):  # a missing picture leaves its marker
                complete = _restored(native, blobs)
            times = (time_in(one, "timestamp") for one in (complete, *complete["parts"]))
            time = next(filter(None, times), None)
            items.append(Item.message(message_of(complete), time))
            if (usage := usage_of(complete)) is not None:
                items.append(Item("usage.recorded", usage, time))
    return items


def _blob(connection: database.Database, digest: str) -> bytes | None:
    if not connection.has("media", frozenset({"sha256", "bytes"})):
        return None
    row = connection.execute("SELECT bytes FROM media WHERE sha256 = ?", (digest,)).fetchone()
    return row[0] if row is not None and isinstance(row[0], bytes) else None


def _database(files: Files, path: Path) -> Iterator[ForeignSession]:
    """Read a `SqliteConversationStore`."""
    with database.opened(files, path) as connection:
        if not connection.has("conversations", _CONVERSATIONS):
            raise Unreadable("no table of conversations of Pydantic AI's harness")
        query = "SELECT id, metadata, messages, updated_at FROM conversations ORDER BY id"
        for name, about, messages, updated in connection.rows("conversations", query):
            where = f"{connection.name}:conversations:{name}"
            items: list[Item] = []
            with files.item(where):
                summary = Files.decode(about) if isinstance(about, str) else None
                blobs = partial(_blob, connection)
                items = _conversation(files, where, Files.decode(messages), blobs)
            if not items:
                continue
            items = [one if one.time else one._replace(time=parse_time(updated)) for one in items]
            # The harness gives a fallback title until a user sets one.
            titled = member(summary, "title_source") != "fallback"
            metadata = {
                "title": text_in(summary, "title") if titled else None,
                "workspace": text_in(summary, "workspace"),
                FORMAT: without(summary, *_READ) if isinstance(summary, dict) else {},
            }
            archived = member(summary, "archived_at") is not None
            session_id = connection.prefix + str(name)
            yield ForeignSession(session_id, items, where, metadata, archived=archived)


#: A marker replaces a long text or a picture, which is stored by its SHA-256.
_MARK: Final = "__harness_external_media__"
_TEXT: Final = "__harness_external_text__"
_URI: Final = "__harness_external_uri__"
_URLSAFE: Final = "__harness_external_urlsafe__"
_URLSAFE_STAMP: Final = "base64-urlsafe-v1"

_ADDRESS: Final = re.compile(r"media\+sha256://([0-9a-f]{64})")


def _restored(node: Any, blobs: Blobs) -> Any:
    """Return a part of a message with its media."""
    if isinstance(node, list):
        return [_restored(inner, blobs) for inner in node]
    if not isinstance(node, dict):
        return node
    if node.get(_MARK) is True:
        return _put_back(node, blobs)
    return {name: _restored(inner, blobs) for name, inner in node.items()}


def _put_back(node: Record, blobs: Blobs) -> Record:
    """Return what a marker replaces; raise `Unreadable` if it is missing or damaged."""
    uri = node.get(_URI, node.get("uri"))
    found = _ADDRESS.fullmatch(uri) if isinstance(uri, str) else None
    if found is None:
        raise Unreadable(f"unknown address of media: {uri!r:.80}")
    content = blobs(found[1])
    if content is None or hashlib.sha256(content).hexdigest() != found[1]:
        why = "missing" if content is None else "damaged"
        raise Unreadable(f"media {found[1]} are {why}: the marker was imported instead")
    taken = {_MARK, _TEXT, _URI, _URLSAFE} | ({"uri"} if node.get("uri") == uri else set())
    rest = {name: _restored(inner, blobs) for name, inner in node.items() if name not in taken}
    if node.get(_TEXT) is True:
        rest["content"] = content.decode(errors="surrogatepass")
    else:
        altchars = b"-_" if node.get(_URLSAFE) == _URLSAFE_STAMP else None
        rest["data"] = base64.b64encode(content, altchars=altchars).decode()
    return rest
