"""Read PraisonAI's sessions: a JSON file for each, of the default store or of the hierarchical one.

Above: `bringing`.  Below: `source`, `adapters.common`.
A file has the turns that are live, and those that were archived when they became too many; together they are
what was said. The summary that stands for the archived ones is made anew each time, and so is ours.

A fork copies what it inherits. A snapshot keeps all that was said until then: one whose turns are all still
there becomes a label, and one that has others (the session was reverted since) becomes a fork of its own,
`<session>@<label>`: nothing of it is lost.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from hansard.adapters import common
from hansard.importers.source import (
    Files,
    Foreign,
    Fork,
    Found,
    Item,
    Unreadable,
    moment,
    named,
    said,
    text_of,
)

FORMAT: Final = "praisonai"

#: What is not metadata: the turns, and what is read otherwise.
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


def find(files: Files) -> Iterator[Found]:
    """Find the files of sessions below a path."""
    for path in files.walk(""):
        if path.suffix == ".json":
            yield Found(files.name(path), partial(_read, files, path))
        elif ".json.corrupt-" in path.name:
            files.report(path, "PraisonAI put this aside as damaged: not read")


def _read(files: Files, path: Path) -> Iterator[Foreign]:
    data = files.json(path)
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
        raise Unreadable(f"no session of PraisonAI's: a JSON {named(data)} without messages")
    session_id = text_of(data.get("session_id"))
    if session_id is None:
        raise Unreadable("no session of PraisonAI's: it has no session_id")
    where = files.name(path)
    turns = _Turns(files, where, data)
    closing = [] if turns.summary is None else [turns.summary]
    others: list[Foreign] = []
    for number, snapshot in enumerate(_list(data.get("snapshots")), start=1):
        with files.item(f"{where}:snapshot {number}"):
            label, at, found = _snapshot(files, where, data, snapshot, turns)
            time = moment(snapshot.get("created_at"))
            if found is None:
                closing.append(Item("session.snapshotted", {"label": label}, time, at))
            else:
                metadata = {"title": label, FORMAT: {"snapshot": _kept(snapshot)}}
                name = f"{session_id}@{label}"
                others.append(Foreign(name, found, where, metadata, time, Fork(session_id, at)))
    about = {name: value for name, value in data.items() if name not in _READ and value}
    described: dict[str, Any] = {"title": text_of(data.get("title")), FORMAT: about}
    parent = text_of(data.get("parent_id"))
    fork = None if parent is None else _fork(files, path, parent, turns.items)
    yield Foreign(
        session_id,
        turns.items,
        where,
        described,
        moment(data.get("created_at")),
        fork,
        closing=closing,
    )
    yield from others


def _fork(files: Files, path: Path, parent: str, items: list[Item]) -> Fork:
    """Return which of a session's turns are its parent's."""
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in parent)
    place = path.parent / f"{name}.json"
    count = 0
    if place != path and files.exists(place):
        count = _alike(items, files.once(place, partial(_items, files, place)))
    return Fork(parent, count)


def _items(files: Files, path: Path) -> list[Item]:
    """Return the turns of another session."""
    try:
        data = files.json(path)
    except Unreadable:
        return []  # which is reported when it is its turn
    return _Turns(files, "", data).items if isinstance(data, dict) else []


def _alike(ours: list[Item], theirs: list[Item]) -> int:
    count = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        count += 1
    return count


class _Turns:
    """What was said in a session, or in a snapshot of one.

    Attributes:
        items: all turns, the archived ones first.
        summary: what stands for the first of them, if anything does.
    """

    def __init__(self, files: Files, where: str, data: dict[str, Any]) -> None:
        self.items: list[Item] = []
        self.summary: Item | None = None
        for name in ("archived_messages", "messages"):
            for number, message in enumerate(_list(data.get(name))):
                with files.item(f"{where}:{name}[{number}]"):
                    if not isinstance(message, dict):
                        raise Unreadable(f"a {named(message)}, no message")
                    if name == "messages" and _is_summary(message):
                        self._summed(message, _count(data.get("archived_messages")))
                    else:
                        self.items.append(said(packed(message), moment(message.get("timestamp"))))
        last = data.get("last_compaction")
        if isinstance(last, dict) and text_of(last.get("summary")):
            # Made by a model: it stands for the first of the live messages, and all before them.
            index = last.get("message_index")
            live = _list(data.get("messages"))[: index if isinstance(index, int) else 0]
            shown = {**last, "content": last["summary"]}
            self._summed(shown, _count(data.get("archived_messages")) + _count(live))

    def _summed(self, message: dict[str, Any], upto: int) -> None:
        role = text_of(message.get("role")) or "system"
        shown = common.pack(FORMAT, message, role=role, content=message.get("content"))
        time = moment(message.get("timestamp"))
        self.summary = Item("summary.added", {"message": shown}, time, min(upto, len(self.items)))


def _is_summary(message: dict[str, Any]) -> bool:
    about = message.get("metadata")
    return isinstance(about, dict) and about.get("compaction") is True


def packed(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of PraisonAI's as every framework can read it."""
    calls = message.get("tool_calls")
    call = message.get("tool_call_id")
    return common.pack(
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
    """Return label and place of a snapshot; and its turns, if they are others than the session's."""
    if not isinstance(snapshot, dict):
        raise Unreadable(f"a {named(snapshot)}, no snapshot")
    label = text_of(snapshot.get("label")) or text_of(snapshot.get("id"))
    if label is None:
        raise Unreadable("it has no label and no id")
    transcript = _transcript(data, snapshot)
    if transcript is None:
        index = snapshot.get("message_index")
        live = _list(data.get("messages"))
        if snapshot.get("invalidated") or not isinstance(index, int):
            raise Unreadable(f"{label!r:.100}: PraisonAI says that its place is no longer known")
        at = _count(data.get("archived_messages")) + _count(live[: index + 1])
        if not -1 <= index < len(live):
            raise Unreadable(f"{label!r:.100}: it is at message {index}, which is not there")
        return label, at, None
    found = _Turns(files, where, transcript).items
    at = _alike(found, turns.items)
    return label, at, None if at == len(found) else found


def _transcript(data: dict[str, Any], snapshot: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a snapshot keeps: in it, or in the pool that all snapshots of a session share."""
    refs = snapshot.get("transcript_refs")
    if refs is None:
        kept = snapshot.get("transcript")
        return kept if isinstance(kept, dict) else None
    storage = data.get("snapshot_storage")
    records = storage.get("records") if isinstance(storage, dict) else None
    if not isinstance(refs, dict) or not isinstance(records, dict):
        raise Unreadable("it refers to a pool of messages that is not there")
    if isinstance(storage, dict) and storage.get("version") != 1:
        raise Unreadable(f"a pool of messages of version {storage.get('version')!r:.20}")
    found: dict[str, Any] = {}
    try:
        for name, ref in refs.items():
            found[name] = (
                [records[key] for key in ref["items"]] if "items" in ref else records[ref["value"]]
            )
    except (KeyError, TypeError):
        raise Unreadable("it refers to a message that is not there") from None
    return found


def _kept(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in snapshot.items()
        if not name.startswith("transcript") and value
    }


def _count(messages: object) -> int:
    """Return how many turns there are among messages."""
    return sum(isinstance(one, dict) and not _is_summary(one) for one in _list(messages))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
