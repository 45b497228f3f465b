"""Import a3s-code sessions: a JSON document each, `SessionData`, alone or in an envelope.

    sessions/<id>.json                            SessionData, as older versions wrote it
    sessions/v1/sessions/id_<base64 of id>.json   {"schema_version": 1, "session": SessionData, ...}

Messages have no times. Cost records are in a separate list: the first follows the first answer, and so on.
Settings, tasks and totals become metadata.
"""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hansard.importers.foreign_json import (
    Unreadable,
    count_of,
    list_of,
    member,
    object_of,
    text_in,
    time_in,
    without,
)
from hansard.importers.source import Files, ForeignSession, Item, SourceEntry

FORMAT: Final = "a3s-code"

#: The supported version of the envelope.
_VERSION: Final = 1

#: Directories and files of a store that are not sessions.
_OTHERS: Final = frozenset(
    {"artifacts", "loop_checkpoints", "runs", "subagent_tasks", "traces", "verification", "wal"}
    | {"writer_lease.json"}
)

#: Lists that an envelope holds next to the session.
_LISTS: Final = (
    *("artifacts", "run_records", "subagent_tasks", "trace_events", "verification_reports"),
)

#: Members that change as a session continues.
_STATE: Final[tuple[str, ...]] = ("state", "total_usage", "total_cost")

#: Members of a session that are not metadata.
_READ: Final = ("id", "messages", "cost_records", "created_at", "updated_at")


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the documents of sessions."""
    for path in files.walk(".json"):
        parts = path.relative_to(files.root).parts if files.is_directory else (path.name,)
        if _OTHERS.isdisjoint(parts):
            yield files.entry(_read, path)


def _read(files: Files, path: Path) -> Iterator[ForeignSession]:
    document = files.json_object(path, "an a3s-code session")
    data: Any = document
    if "schema_version" in document:
        version = document["schema_version"]
        if version != _VERSION:
            raise Unreadable(
                f"unsupported snapshot version {version!r:.20} (supported: {_VERSION})"
            )
        data = document.get("session")
    session_id = text_in(data, "id")
    if session_id is None:
        raise Unreadable("not an a3s-code session: it has no id")
    config, messages = data.get("config"), data.get("messages")
    if not isinstance(config, dict) or not isinstance(messages, list):
        raise Unreadable("not an a3s-code session: it has no config or no messages")
    where = files.name(path)
    about = without(data, *_READ)
    metadata = {
        "title": text_in(config, "name"),
        "workspace": text_in(config, "workspace"),
        FORMAT: about,
    }
    saved = time_in(data, "updated_at")
    closing = [
        Item(f"x.{FORMAT}.{name}", {"records": records}, saved)
        for name in _LISTS
        if data is not document and (records := list_of(document.get(name)))
    ]
    state = {name: about[name] for name in _STATE if name in about}
    closing.append(Item(f"x.{FORMAT}.saved", state, saved))
    costs = deque(files.each(f"{where}:cost_records", data.get("cost_records"), _usage))
    items: list[Item] = []
    for item in files.each(f"{where}:messages", messages, _message):
        items.append(item)
        if costs and member(item.data, "message", "role") == "assistant":
            items.append(costs.popleft())
    created = time_in(data, "created_at")
    yield ForeignSession(session_id, [*items, *costs], where, metadata, created, closing=closing)


def _message(message: Any) -> Item:
    return Item.message(object_of(message, "a message"))


def _usage(record: Any) -> Item:
    record = object_of(record, "a record")
    return Item.usage(
        record.get("model"),
        count_of(record.get("prompt_tokens")),
        count_of(record.get("completion_tokens")),
        time_in(record, "timestamp"),
        record.get("cost_usd"),
        provider=text_in(record, "provider"),
    )
