"""Read the sessions of a3s-code: a JSON document for each, `SessionData`, alone or in an envelope.

Above: `bringing`.  Below: `source`.
    sessions/<id>.json                        SessionData, as older versions wrote it
    sessions/v1/sessions/id_<base64 of id>.json   {"schema_version": 1, "session": SessionData, ...}

Messages have no times of their own. What a call of the model took stands in a list beside them, and is put
behind the answers, the first behind the first. Settings, tasks and totals are metadata; a key is left out,
wherever it stands.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from hansard.importers.source import (
    Files,
    Foreign,
    Found,
    Item,
    Unreadable,
    moment,
    named,
    said,
    text_of,
)

FORMAT: Final = "a3s-code"

#: The version of the envelope that is known here.
_VERSION: Final = 1

#: Folders of a store that hold no sessions.
_OTHERS: Final = frozenset(
    {"artifacts", "loop_checkpoints", "runs", "subagent_tasks", "traces", "verification", "wal"}
)
#: Files of a store that are no sessions.
_NO_SESSIONS: Final = frozenset({"writer_lease.json"})

#: What an envelope has beside the session.
_BESIDE: Final = (
    "artifacts",
    "run_records",
    "subagent_tasks",
    "trace_events",
    "verification_reports",
)

#: What of a session is not metadata.
_READ: Final = frozenset({"id", "messages", "cost_records", "created_at", "updated_at"})

#: Never kept, not even as `[redacted]`.
_KEYS: Final = frozenset({"api_key", "apiKey"})


def find(files: Files) -> Iterator[Found]:
    """Find the documents of sessions below a path."""
    for path in files.walk(".json"):
        inside = path.relative_to(files.root).parts[:-1] if files.is_folder else ()
        if path.name in _NO_SESSIONS or not _OTHERS.isdisjoint(inside):
            continue
        yield Found(files.name(path), partial(_read, files, path))


def _read(files: Files, path: Path) -> Iterator[Foreign]:
    document = files.json(path)
    if not isinstance(document, dict):
        raise Unreadable(f"no session of a3s-code's: a JSON {named(document)}")
    beside: dict[str, Any] = {}
    data: Any = document
    if "schema_version" in document:
        version = document["schema_version"]
        if version != _VERSION:
            raise Unreadable(f"a snapshot of version {version!r:.20}, and {_VERSION} is known here")
        data, beside = document.get("session"), document
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("messages"), list)
        or not isinstance(data.get("config"), dict)
    ):
        raise Unreadable("no session of a3s-code's: it has no config and messages")
    session_id = text_of(data.get("id"))
    if session_id is None:
        raise Unreadable("no session of a3s-code's: it has no id")
    where = files.name(path)
    config = data["config"]
    about = {}
    for name, value in data.items():
        if name not in _READ and value:
            with files.item(f"{where}:{name}"):
                about[name] = _keyless(value)
    metadata = {
        "title": text_of(config.get("name")),
        "workspace": text_of(config.get("workspace")),
        FORMAT: about,
    }
    saved = moment(data.get("updated_at"))
    closing = [
        Item(f"x.{FORMAT}.{name}", {"records": _keyless(beside[name])}, saved)
        for name in _BESIDE
        if isinstance(beside.get(name), list) and beside[name]
    ]
    state = {name: about[name] for name in ("state", "total_usage", "total_cost") if name in about}
    closing.append(Item(f"x.{FORMAT}.saved", state, saved))
    items = _items(files, where, data)
    created = moment(data.get("created_at"))
    yield Foreign(session_id, items, where, metadata, created, closing=closing)


def _items(files: Files, where: str, data: dict[str, Any]) -> list[Item]:
    records = data.get("cost_records")
    costs = []
    for number, record in enumerate(records if isinstance(records, list) else ()):
        with files.item(f"{where}:cost_records[{number}]"):
            if not isinstance(record, dict):
                raise Unreadable(f"a {named(record)}, no record")
            costs.append(_usage(record))
    items: list[Item] = []
    # From the end, where a list gives up its items without moving the others.
    costs.reverse()
    for number, message in enumerate(data["messages"]):
        if not isinstance(message, dict):
            files.report(f"{where}:messages[{number}]", f"a {named(message)}, no message")
            continue
        items.append(said(message))
        if message.get("role") == "assistant" and costs:
            items.append(costs.pop())
    return [*items, *reversed(costs)]


def _usage(record: dict[str, Any]) -> Item:
    found: dict[str, Any] = {
        "model": text_of(record.get("model")) or "unknown",
        "input_tokens": _whole(record.get("prompt_tokens")),
        "output_tokens": _whole(record.get("completion_tokens")),
    }
    cost = record.get("cost_usd")
    if isinstance(cost, int | float) and not isinstance(cost, bool):
        found["cost"] = float(cost)
    if text_of(record.get("provider")):
        found["provider"] = record["provider"]
    return Item("usage.recorded", found, moment(record.get("timestamp")))


def _keyless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _keyless(one) for name, one in value.items() if name not in _KEYS}
    return [_keyless(one) for one in value] if isinstance(value, list) else value


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
