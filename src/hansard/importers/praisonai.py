"""Import PraisonAI sessions: a JSON file each, of the default or the hierarchical store.

A file holds the live turns, and those that were archived when they became too many: together they are the
conversation. PraisonAI rewrites the summary of the archived ones each time, so it is a closing event.

A fork copies what it inherits. A snapshot holds the complete conversation at its time. If all its turns are
still in the session, it becomes a snapshot name. Otherwise the session was reverted, and the snapshot becomes
a session `<session>@<label>`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hansard.importers.foreign_json import (
    Unreadable,
    json_type,
    list_of,
    member,
    object_of,
    text_in,
    time_in,
    without,
)
from hansard.importers.source import Files, ForeignSession, Item, SourceEntry
from hansard.message import origin

FORMAT: Final = "praisonai"

#: Members of a session that are not metadata.
_READ: Final = (
    *("archived_messages", "children_ids", "created_at", "last_compaction", "messages"),
    *("session_id", "snapshot_storage", "snapshots", "title"),
)

Record = dict[str, Any]


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the files of sessions."""
    for path in files.walk(""):
        if path.suffix == ".json":
            yield files.entry(_read, path)
        elif ".json.corrupt-" in path.name:
            files.report(path, "PraisonAI has marked it as damaged: not read")


def _read(files: Files, path: Path) -> Iterator[ForeignSession]:
    data = files.json(path)
    if not isinstance(member(data, "messages"), list):
        raise Unreadable(f"not a PraisonAI session: a JSON {json_type(data)} without messages")
    session_id = text_in(data, "session_id")
    if session_id is None:
        raise Unreadable("not a PraisonAI session: it has no session_id")
    where = files.name(path)
    turns = _Turns(files, where, data)
    closing = [] if turns.summary is None else [turns.summary]
    others: list[ForeignSession] = []
    for number, snapshot in enumerate(list_of(data.get("snapshots")), start=1):
        with files.item(f"{where}:snapshot {number}"):
            label, at, found = _snapshot(files, where, data, snapshot, turns)
            time = time_in(snapshot, "created_at")
            if found is None:
                closing.append(Item("session.snapshotted", {"label": label}, time, at))
                continue
            kept = {key: one for key, one in snapshot.items() if not key.startswith("transcript")}
            metadata = {"title": label, FORMAT: {"snapshot": without(kept)}}
            metadata["forked_from"] = session_id
            others.append(ForeignSession(f"{session_id}@{label}", found, where, metadata, time))
    described = {
        "title": text_in(data, "title"),
        "forked_from": text_in(data, "parent_id"),
        FORMAT: without(data, *_READ),
    }
    created = time_in(data, "created_at")
    yield ForeignSession(session_id, turns.items, where, described, created, closing=closing)
    yield from others


class _Turns:
    """The turns of a session or of a snapshot.

    Attributes:
        items: all turns, the archived ones first.
        archived: the number of the archived ones.
        summary: the summary of the first of them, if there is one.
    """

    def __init__(self, files: Files, where: str, data: Record) -> None:
        self.summary: Item | None = None
        archived = data.get("archived_messages")
        self.items = files.each(f"{where}:archived_messages", archived, _turn)
        self.archived = len(self.items)
        for number, message in enumerate(list_of(data.get("messages"))):
            with files.item(f"{where}:messages[{number}]"):
                if _is_summary(message):
                    self._summarize(message, self.archived)
                else:
                    self.items.append(_turn(message))
        last = data.get("last_compaction")
        if isinstance(last, dict) and text_in(last, "summary"):
            # Made by a model: it replaces the first of the live messages, and all before them.
            index = last.get("message_index")
            live = list_of(data.get("messages"))[: index if isinstance(index, int) else 0]
            self._summarize({**last, "content": last["summary"]}, self.archived + _count(live))

    def _summarize(self, message: Record, upto: int) -> None:
        role = text_in(message, "role") or "system"
        shown = origin.pack(FORMAT, message, role=role, content=message.get("content"))
        at = min(upto, len(self.items))
        self.summary = Item("summary.added", {"message": shown}, time_in(message, "timestamp"), at)


def _turn(message: Any) -> Item:
    message = object_of(message, "a message")
    call = message.get("tool_call_id")
    packed = origin.pack(
        FORMAT,
        message,
        role=text_in(message, "role") or "user",
        content=message.get("content", ""),
        tool_calls=list_of(message.get("tool_calls")) or None,
        tool_call_id=call if isinstance(call, str) else None,
    )
    return Item.message(packed, time_in(message, "timestamp"))


def _is_summary(message: object) -> bool:
    return member(message, "metadata", "compaction") is True


def _count(messages: object) -> int:
    """Return the number of turns among messages."""
    return sum(isinstance(one, dict) and not _is_summary(one) for one in list_of(messages))


def _snapshot(
    files: Files, where: str, data: Record, snapshot: Any, turns: _Turns
) -> tuple[str, int, list[Item] | None]:
    """Return label and place of a snapshot, and its turns, unless they are the session's."""
    label = text_in(object_of(snapshot, "a snapshot"), "label", "id")
    if label is None:
        raise Unreadable("it has no label and no id")
    transcript = _transcript(data, snapshot)
    if transcript is None:
        index = snapshot.get("message_index")
        live = list_of(data.get("messages"))
        if snapshot.get("invalidated") or not isinstance(index, int):
            raise Unreadable(f"{label!r:.100}: PraisonAI has invalidated its place")
        if not -1 <= index < len(live):
            raise Unreadable(f"{label!r:.100}: it is at message {index}, which is missing")
        return label, turns.archived + _count(live[: index + 1]), None
    found = _Turns(files, where, transcript).items
    at = len(found)
    return label, at, None if found == turns.items[:at] else found


def _transcript(data: Record, snapshot: Record) -> Record | None:
    """Return the transcript of a snapshot: in it, or in the pool that a session's snapshots share."""
    refs = snapshot.get("transcript_refs")
    if refs is None:
        kept = snapshot.get("transcript")
        return kept if isinstance(kept, dict) else None
    records = member(data, "snapshot_storage", "records")
    if not isinstance(refs, dict) or not isinstance(records, dict):
        raise Unreadable("it refers to a pool of messages that is missing")
    version = member(data, "snapshot_storage", "version")
    if version != 1:
        raise Unreadable(f"unsupported version {version!r:.20} of its pool of messages")
    try:
        return {
            name: [records[key] for key in ref["items"]]
            if "items" in ref
            else records[ref["value"]]
            for name, ref in refs.items()
        }
    except (KeyError, TypeError):
        raise Unreadable("it refers to a message that is missing") from None
