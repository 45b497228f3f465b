"""Import a3s-code sessions: a JSON document each, `SessionData`, alone or in an envelope.

    sessions/<id>.json                            SessionData, as older versions wrote it
    sessions/v1/sessions/id_<base64 of id>.json   {"schema_version": 1, "session": SessionData, ...}

Messages have no times. Cost records are in a separate list: the first follows the first answer, and so on.
Settings, tasks and totals become metadata; API keys are removed everywhere.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hansard.importers.source import Files, ForeignSession, Item, SourceEntry, Unreadable
from hansard.importers.values import count_of, json_type, list_of, parse_time, text_of

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
    "artifacts",
    "run_records",
    "subagent_tasks",
    "trace_events",
    "verification_reports",
)

#: Members of a session that are not metadata.
_READ: Final = frozenset({"id", "messages", "cost_records", "created_at", "updated_at"})

#: Removed, not even stored as `[redacted]`.
_KEYS: Final = frozenset({"api_key", "apiKey"})


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the documents of sessions."""
    for path in files.walk(".json"):
        parts = path.relative_to(files.root).parts if files.is_folder else (path.name,)
        if _OTHERS.isdisjoint(parts):
            yield files.entry(_read, path)


def _read(files: Files, path: Path) -> Iterator[ForeignSession]:
    document: Any = files.json(path)
    if not isinstance(document, dict):
        raise Unreadable(f"not an a3s-code session: a JSON {json_type(document)}")
    envelope: dict[str, Any] = {}
    data: Any = document
    if "schema_version" in document:
        version = document["schema_version"]
        if version != _VERSION:
            raise Unreadable(
                f"unsupported snapshot version {version!r:.20} (supported: {_VERSION})"
            )
        data, envelope = document.get("session"), document
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("messages"), list)
        or not isinstance(data.get("config"), dict)
    ):
        raise Unreadable("not an a3s-code session: it has no config or no messages")
    session_id = text_of(data.get("id"))
    if session_id is None:
        raise Unreadable("not an a3s-code session: it has no id")
    where = files.name(path)
    about = {}
    for name, value in data.items():
        if name not in _READ and value:
            with files.item(f"{where}:{name}"):
                about[name] = _without_keys(value)
    metadata = {
        "title": text_of(data["config"].get("name")),
        "workspace": text_of(data["config"].get("workspace")),
        FORMAT: about,
    }
    saved = parse_time(data.get("updated_at"))
    closing = [
        Item(f"x.{FORMAT}.{name}", {"records": _without_keys(records)}, saved)
        for name in _LISTS
        if (records := list_of(envelope.get(name)))
    ]
    state = {name: about[name] for name in ("state", "total_usage", "total_cost") if name in about}
    closing.append(Item(f"x.{FORMAT}.saved", state, saved))
    created = parse_time(data.get("created_at"))
    items = _items(files, where, data)
    yield ForeignSession(session_id, items, where, metadata, created, closing=closing)


def _items(files: Files, where: str, data: dict[str, Any]) -> list[Item]:
    costs = []
    for number, record in enumerate(list_of(data.get("cost_records"))):
        with files.item(f"{where}:cost_records[{number}]"):
            if not isinstance(record, dict):
                raise Unreadable(f"a {json_type(record)}, not a record")
            costs.append(_usage(record))
    items: list[Item] = []
    costs.reverse()  # `pop` takes from the end
    for number, message in enumerate(data["messages"]):
        if not isinstance(message, dict):
            files.report(f"{where}:messages[{number}]", f"a {json_type(message)}, not a message")
            continue
        items.append(Item.message(message))
        if message.get("role") == "assistant" and costs:
            items.append(costs.pop())
    return [*items, *reversed(costs)]


def _usage(record: dict[str, Any]) -> Item:
    return Item.usage(
        record.get("model"),
        count_of(record.get("prompt_tokens")),
        count_of(record.get("completion_tokens")),
        parse_time(record.get("timestamp")),
        cost=record.get("cost_usd"),
        provider=text_of(record.get("provider")),
    )


def _without_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_keys(one) for name, one in value.items() if name not in _KEYS}
    return [_without_keys(one) for one in value] if isinstance(value, list) else value
