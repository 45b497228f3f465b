"""Import OpenClaw sessions: `sessions.json` or `sessions.d`, and the transcripts next to them.

Each agent has a directory `agents/<agent>/sessions` with an index from session keys to entries, and a JSONL
transcript per session id. A reset gives a key a new session id and keeps the old transcript. So transcripts
become sessions, `<agent>/<session id>`, and their keys are metadata. All agents below the path are found.

A transcript is a tree whose last line is the current end. Where a line's parent is not the line before it,
the session is reverted to that parent. A compaction becomes a summary up to the first entry that was kept.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from hansard.importers.foreign_json import (
    Unreadable,
    count_of,
    json_type,
    list_of,
    member,
    object_of,
    text_in,
    time_in,
)
from hansard.importers.source import Files, ForeignSession, Item, SourceEntry
from hansard.message import origin

FORMAT: Final = "openclaw"

_INDEX: Final = "sessions.json"
_DIRECTORY: Final = "sessions.d"
_TRANSCRIPT: Final = ".jsonl"
#: OpenClaw's own debugging output.
_TRAJECTORY: Final = ".trajectory.jsonl"

#: Members of an entry that OpenClaw rebuilds when it starts, and that are larger than all others.
_DERIVED: Final = frozenset({"skillsSnapshot", "systemPromptReport"})

_NAME: Final = re.compile(r"[a-z0-9_.-]{1,40}")

Entry = dict[str, Any]


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the transcripts of all agents."""
    if not files.is_directory:
        if files.root.name == _INDEX:
            entries = _listed(files, files.root)
            yield from _transcripts(files, files.root.parent, entries, orphans=False)
        else:
            yield files.entry(_read, files.root, [], {})
        return
    for directory, is_directory in files.tree():
        if not is_directory or _DIRECTORY in directory.relative_to(files.root).parts:
            continue
        children = {path.name: path for path in files.children(directory)}
        # Jobs and the gateway write other JSONL files elsewhere.
        likely = directory == files.root or directory.name == "sessions"
        entries = {}
        if _INDEX in children and children[_INDEX].is_file():
            entries |= _listed(files, children[_INDEX])
        # OpenClaw made `sessions.d` from `sessions.json`, and reads it if both exist.
        if _DIRECTORY in children and children[_DIRECTORY].is_dir():
            entries |= _entries_of(files, children[_DIRECTORY])
        if likely or not children.keys().isdisjoint({_INDEX, _DIRECTORY}):
            yield from _transcripts(files, directory, entries, orphans=True)


def _listed(files: Files, path: Path) -> dict[str, Entry]:
    """Return the entries of an index by key."""
    index: dict[str, Entry] = {}
    with files.item(path):
        index |= files.json_object(path, "an index of sessions")
        if not index:
            raise Unreadable("an index without sessions")
    return {key: one for key, one in index.items() if _is_entry(files, path, key, one)}


def _entries_of(files: Files, directory: Path) -> dict[str, Entry]:
    """Return the entries of a `sessions.d`: a file each, or a directory with a `meta.json`."""
    found: dict[str, Entry] = {}
    for path in files.children(directory):
        if path.is_dir():
            place, key = path / "meta.json", path.name.replace("--", ":")
            if not files.exists(place):
                files.report(path, "it has no meta.json")
                continue
        elif path.suffix == ".json":
            place, key = path, unquote(path.stem)
        else:
            continue
        with files.item(place):
            entry = files.json(place)
            key = text_in(entry, "sessionKey", "key") or key
            if _is_entry(files, place, key, entry):
                found[key] = entry
    return found


def _is_entry(files: Files, path: Path, key: str, entry: object) -> bool:
    if text_in(entry, "sessionId"):
        return True
    files.report(path, f"{key!r:.200}: a {json_type(entry)} without a session id, not an entry")
    return False


def _transcripts(
    files: Files, directory: Path, entries: dict[str, Entry], *, orphans: bool
) -> Iterator[SourceEntry]:
    """Yield the transcripts of a directory: those in the index, and those of earlier sessions."""
    keys: dict[Path, list[str]] = {}
    for key, entry in entries.items():
        path = _transcript(files, directory, entry)
        if path is None:
            missing = f"the transcript of session {entry['sessionId']!r:.100} is missing"
            files.report(directory / _INDEX, f"{key!r:.200}: {missing}")
        else:
            keys.setdefault(path, []).append(key)
    if orphans:
        for path in files.children(directory):
            ours = path.name.endswith(_TRANSCRIPT) and not path.name.endswith(_TRAJECTORY)
            if ours and path.is_file():
                keys.setdefault(path, [])
    for path, names in sorted(keys.items()):
        yield files.entry(_read, path, names, entries[names[-1]] if names else {})


def _transcript(files: Files, directory: Path, entry: Entry) -> Path | None:
    # Usually an absolute path, perhaps of another machine.
    given = re.split(r"[\\/]", text_in(entry, "sessionFile") or "")[-1]
    for name in (given, f"{entry['sessionId']}{_TRANSCRIPT}"):
        good = name not in {"", ".", ".."} and "/" not in name and "\0" not in name
        if good and files.exists(directory / name):
            return directory / name
    return None


def _read(files: Files, path: Path, keys: list[str], entry: Entry) -> Iterator[ForeignSession]:
    transcript = _OpenClawTranscript(files, path)
    if not transcript.items:
        raise Unreadable("not a transcript: it has no lines")
    header = transcript.header
    if header is None and not keys:
        raise Unreadable("not a transcript: it has no header, and no key refers to it")
    if header is None:
        files.report(path, "the header in the first line is missing")
        header = {}
    known = {name: value for name, value in entry.items() if name not in _DERIVED}
    own = {name: value for name, value in header.items() if name not in {"type", "timestamp"}}
    metadata: dict[str, Any] = {
        "title": transcript.title or text_in(entry, "label", "displayName", "subject"),
        "workspace": text_in(header, "cwd"),
        "forked_from": _parent(path, header),
        FORMAT: {"keys": keys, "entry": known, "header": own, "agent": _agent(path)},
    }
    yield ForeignSession(
        _id_of(path),
        transcript.items,
        files.name(path),
        metadata,
        time_in(header, "timestamp") or time_in(entry, "sessionStartedAt"),
        archived=time_in(entry, "archivedAt") is not None,
    )


def _agent(path: Path) -> str | None:
    """Return the agent of a transcript, `agents/<agent>/sessions/<file>`."""
    directory = path.parent
    return directory.parent.name if directory.name == "sessions" and directory.parent.name else None


def _id_of(path: Path) -> str:
    agent = _agent(path)
    return path.stem if agent is None else f"{agent}/{path.stem}"


def _parent(path: Path, header: Entry) -> str | None:
    given = text_in(header, "parentSession", "branchedFrom")
    if given is None:
        return None
    name = re.split(r"[\\/]", given)[-1].removesuffix(_TRANSCRIPT)
    return _id_of(path.with_name(f"{name}{_TRANSCRIPT}"))


class _OpenClawTranscript:
    """The lines of a transcript.

    Attributes:
        header: the first line; None if it is missing.
        items: the items of the others.
        title: the last name of the session.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self.header: Entry | None = None
        self.items: list[Item] = []
        self.title: str | None = None
        #: The number of items before and up to each entry, by id.
        self._places: dict[str, tuple[int, int]] = {}
        self._last: str | None = None
        for number, line in files.lines(path):
            with files.item(files.name(path, number)):
                kind = text_in(line, "type")
                if kind is None:
                    raise Unreadable("an entry without a type")
                if kind == "session":
                    self.header = self.header or line
                else:
                    self._add(line, kind)

    def _add(self, line: Entry, kind: str) -> None:
        time = time_in(line, "timestamp")
        before = len(self.items)
        made = list(self._items(line, kind, time))
        parent = line.get("parentId")
        if isinstance(parent, str) and parent != self._last and parent in self._places:
            self.items.append(Item("session.reverted", {}, time, self._places[parent][1]))
        elif parent is None and "parentId" in line and self._last is not None:
            self.items.append(Item("session.reverted", {}, time, 0))  # a new beginning
        self.items += made
        identity = text_in(line, "id")
        if identity is not None:
            self._places[identity] = (before, len(self.items))
            self._last = identity

    def _items(self, line: Entry, kind: str, time: str | None) -> Iterator[Item]:
        if kind == "message":
            message = object_of(line.get("message"), "a message")
            time = time or time_in(message, "timestamp")
            yield Item.message(packed(message), time)
            yield from _usage(message, time)
        elif kind in {"custom_message", "branch_summary"}:
            content = line.get("summary") if kind == "branch_summary" else line.get("content")
            message = origin.pack(FORMAT, line, role="user", content=_content(content))
            yield Item.message(message, time)
        elif kind == "compaction" and text_in(line, "summary"):
            kept = line.get("firstKeptEntryId")
            begun = self._places.get(kept) if isinstance(kept, str) else None
            message = origin.pack(FORMAT, line, role="user", content=line["summary"])
            at = len(self.items) if begun is None else begun[0]
            yield Item("summary.added", {"message": message}, time, at)
        else:
            if kind == "session_info":
                self.title = text_in(line, "name") or self.title
            shown = kind.lower() if _NAME.fullmatch(kind.lower()) else "entry"
            yield Item(f"x.{FORMAT}.{shown}", line, time)


def packed(message: dict[str, Any]) -> dict[str, Any]:
    """Return an OpenClaw message in the shape that all frameworks share."""
    role = text_in(message, "role") or "user"
    content = message.get("content")
    shown = _content(content)
    if role == "toolResult":
        call = text_in(message, "toolCallId") or ""
        return origin.pack(FORMAT, message, role="tool", content=shown, tool_call_id=call)
    if role == "bashExecution":
        text = f"$ {message.get('command', '')}\n{message.get('output', '')}"
        return origin.pack(FORMAT, message, role="user", content=text)
    calls = [
        origin.call_of(str(one.get("id", "")), str(one.get("name", "")), one.get("arguments") or {})
        for one in list_of(content)
        if member(one, "type") == "toolCall"
    ]
    role = role if role in {"user", "assistant", "system", "tool"} else "user"
    return origin.pack(FORMAT, message, role=role, content=shown, tool_calls=calls or None)


def _content(content: object) -> Any:
    """Return the text or the blocks of a message, without thinking and tool calls."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else origin.content_text(content)
    hidden = ("thinking", "toolCall")
    return origin.content_of([block for block in content if member(block, "type") not in hidden])


def _usage(message: dict[str, Any], time: str | None) -> Iterator[Item]:
    usage = message.get("usage")
    if not isinstance(usage, dict) or not any(
        isinstance(value, int | float) and value for value in usage.values()
    ):
        return
    cost = usage.get("cost")
    read, written = count_of(usage.get("cacheRead")), count_of(usage.get("cacheWrite"))
    yield Item.usage(
        message.get("model"),
        count_of(usage.get("input")) + read + written,
        count_of(usage.get("output")),
        time,
        cost.get("total") if isinstance(cost, dict) else cost,
        cached_tokens=read,
        cache_write_tokens=written,
    )
