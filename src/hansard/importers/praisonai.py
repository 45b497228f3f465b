"""Import PraisonAI sessions: a JSON file each, of the default or the hierarchical store.

A file holds the live turns, and those that were archived when they became too many: together they are the
conversation. PraisonAI rewrites the summary of the archived ones each time, so it is a closing event.

A fork copies what it inherits. A snapshot holds the complete conversation at its time: if all its turns are
still in the session, it becomes a snapshot name; otherwise (the session was reverted) a fork,
`<session>@<label>`.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from hansard.importers.source import Files, ForeignSession, Fork, Item, SourceEntry, Unreadable
from hansard.importers.values import common_prefix, json_type, list_of, parse_time, text_of
from hansard.message import origin

FORMAT: Final = "praisonai"

#: Members of a session that are not metadata.
_READ: Final = frozenset(
    {
        "archived_messages",
        "children_ids",
        "created_at",
        "last_compaction",
        "messages",
        "session_id",
        "snapshot_storage",
        "snapshots",
        "title",
    }
)


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the files of sessions."""
    for path in files.walk(""):
        if path.suffix == ".json":
            yield files.entry(_read, path)
        elif ".json.corrupt-" in path.name:
            files.report(path, "PraisonAI has marked it as damaged: not read")


def _read(files: Files, path: Path) -> Iterator[ForeignSession]:
    data = files.json(path)
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
        raise Unreadable(f"not a PraisonAI session: a JSON {json_type(data)} without messages")
    session_id = text_of(data.get("session_id"))
    if session_id is None:
        raise Unreadable("not a PraisonAI session: it has no session_id")
    where = files.name(path)
    turns = _Turns(files, where, data)
    closing = [] if turns.summary is None else [turns.summary]
    others: list[ForeignSession] = []
    for number, snapshot in enumerate(list_of(data.get("snapshots")), start=1):
        with files.item(f"{where}:snapshot {number}"):
            label, at, found = _snapshot(files, where, data, snapshot, turns)
            time = parse_time(snapshot.get("created_at"))
            if found is None:
                closing.append(Item("session.snapshotted", {"label": label}, time, at))
            else:
                metadata = {"title": label, FORMAT: {"snapshot": _kept(snapshot)}}
                name = f"{session_id}@{label}"
                others.append(
                    ForeignSession(name, found, where, metadata, time, Fork(session_id, at))
                )
    about = {name: value for name, value in data.items() if name not in _READ and value}
    described: dict[str, Any] = {"title": text_of(data.get("title")), FORMAT: about}
    parent = text_of(data.get("parent_id"))
    fork = None if parent is None else _fork(files, path, parent, turns.items)
    created = parse_time(data.get("created_at"))
    yield ForeignSession(session_id, turns.items, where, described, created, fork, closing=closing)
    yield from others


def _fork(files: Files, path: Path, parent: str, items: list[Item]) -> Fork:
    """Return how many of a session's turns are its parent's."""
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in parent)
    place = path.parent / f"{name}.json"
    count = 0
    if place != path and files.exists(place):
        count = common_prefix(items, files.cached(place, partial(_items, files, place)))
    return Fork(parent, count)


def _items(files: Files, path: Path) -> list[Item]:
    """Return the turns of another session; its problems are reported when it is imported."""
    data = None
    with files.item(path):
        data = files.json(path)
    return _Turns(files, "", data).items if isinstance(data, dict) else []


class _Turns:
    """The turns of a session or of a snapshot.

    Attributes:
        items: all turns, the archived ones first.
        summary: the summary of the first of them, if there is one.
    """

    def __init__(self, files: Files, where: str, data: dict[str, Any]) -> None:
        self.items: list[Item] = []
        self.summary: Item | None = None
        for name in ("archived_messages", "messages"):
            for number, message in enumerate(list_of(data.get(name))):
                with files.item(f"{where}:{name}[{number}]"):
                    if not isinstance(message, dict):
                        raise Unreadable(f"a {json_type(message)}, not a message")
                    if name == "messages" and _is_summary(message):
                        self._summarize(message, _count(data.get("archived_messages")))
                    else:
                        time = parse_time(message.get("timestamp"))
                        self.items.append(Item.message(packed(message), time))
        last = data.get("last_compaction")
        if isinstance(last, dict) and text_of(last.get("summary")):
            # Made by a model: it replaces the first of the live messages, and all before them.
            index = last.get("message_index")
            live = list_of(data.get("messages"))[: index if isinstance(index, int) else 0]
            shown = {**last, "content": last["summary"]}
            self._summarize(shown, _count(data.get("archived_messages")) + _count(live))

    def _summarize(self, message: dict[str, Any], upto: int) -> None:
        role = text_of(message.get("role")) or "system"
        shown = origin.pack(FORMAT, message, role=role, content=message.get("content"))
        time = parse_time(message.get("timestamp"))
        self.summary = Item("summary.added", {"message": shown}, time, min(upto, len(self.items)))


def _is_summary(message: dict[str, Any]) -> bool:
    about = message.get("metadata")
    return isinstance(about, dict) and about.get("compaction") is True


def packed(message: dict[str, Any]) -> dict[str, Any]:
    """Return a PraisonAI message in the shape that all frameworks share."""
    calls = message.get("tool_calls")
    call = message.get("tool_call_id")
    return origin.pack(
        FORMAT,
        message,
        role=text_of(message.get("role")) or "user",
        content=message.get("content", ""),
        tool_calls=calls if isinstance(calls, list) and calls else None,
        tool_call_id=call if isinstance(call, str) else None,
    )


# -- snapshots ----------------------------------------------------------------------------------


def _snapshot(
    files: Files, where: str, data: dict[str, Any], snapshot: Any, turns: _Turns
) -> tuple[str, int, list[Item] | None]:
    """Return label and place of a snapshot, and its turns, unless they are the session's."""
    if not isinstance(snapshot, dict):
        raise Unreadable(f"a {json_type(snapshot)}, not a snapshot")
    label = text_of(snapshot.get("label")) or text_of(snapshot.get("id"))
    if label is None:
        raise Unreadable("it has no label and no id")
    transcript = _transcript(data, snapshot)
    if transcript is None:
        index = snapshot.get("message_index")
        live = list_of(data.get("messages"))
        if snapshot.get("invalidated") or not isinstance(index, int):
            raise Unreadable(f"{label!r:.100}: PraisonAI has invalidated its place")
        at = _count(data.get("archived_messages")) + _count(live[: index + 1])
        if not -1 <= index < len(live):
            raise Unreadable(f"{label!r:.100}: it is at message {index}, which is missing")
        return label, at, None
    found = _Turns(files, where, transcript).items
    at = common_prefix(found, turns.items)
    return label, at, None if at == len(found) else found


def _transcript(data: dict[str, Any], snapshot: dict[str, Any]) -> dict[str, Any] | None:
    """Return the transcript of a snapshot: in it, or in the pool that a session's snapshots share."""
    refs = snapshot.get("transcript_refs")
    if refs is None:
        kept = snapshot.get("transcript")
        return kept if isinstance(kept, dict) else None
    storage = data.get("snapshot_storage")
    records = storage.get("records") if isinstance(storage, dict) else None
    if not isinstance(refs, dict) or not isinstance(records, dict):
        raise Unreadable("it refers to a pool of messages that is missing")
    if isinstance(storage, dict) and storage.get("version") != 1:
        raise Unreadable(
            f"unsupported version {storage.get('version')!r:.20} of its pool of messages"
        )
    found: dict[str, Any] = {}
    try:
        for name, ref in refs.items():
            found[name] = (
                [records[key] for key in ref["items"]] if "items" in ref else records[ref["value"]]
            )
    except (KeyError, TypeError):
        raise Unreadable("it refers to a message that is missing") from None
    return found


def _kept(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in snapshot.items()
        if not name.startswith("transcript") and value
    }


def _count(messages: object) -> int:
    """Return the number of turns among messages."""
    return sum(isinstance(one, dict) and not _is_summary(one) for one in list_of(messages))
