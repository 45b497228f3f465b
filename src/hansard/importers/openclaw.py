"""Read OpenClaw's sessions: `sessions.json` or `sessions.d`, and the transcripts beside them.

Above: `bringing`.  Below: `source`, `adapters.common`.
Each agent has a folder, `agents/<agent>/sessions`, with an index from session keys to entries, and a JSONL
transcript for each session id. A key gets a new session id with every reset, and the old transcript stays: so
it is transcripts that become sessions here, `<agent>/<session id>`, and the keys that lead to one are in its
metadata. All agents' folders below the path are found, whatever they are called.

A transcript is a tree, of which the last line is the end: where a line's parent is not the line before it,
the session went back to that parent, and so does ours. A compaction is a summary up to the first entry that
was kept.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

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

FORMAT: Final = "openclaw"

_INDEX: Final = "sessions.json"
_FOLDER: Final = "sessions.d"
_TRANSCRIPT: Final = ".jsonl"
#: Beside a transcript: how its runs went, for those who mend OpenClaw.
_TRAJECTORY: Final = ".trajectory.jsonl"

#: Made anew by OpenClaw whenever it starts, and larger than all else of an entry.
_DERIVED: Final = frozenset({"skillsSnapshot", "systemPromptReport"})

_NAME: Final = re.compile(r"[a-z0-9_.-]{1,40}")

Entry = dict[str, Any]


def find(files: Files) -> Iterator[Found]:
    """Find the transcripts of all agents below a path."""
    if not files.is_folder:
        folder = files.root.parent
        if files.root.name == _INDEX:
            yield from _folder(files, folder, _listed(files, files.root), orphans=False)
        else:
            yield Found(files.name(files.root), partial(_read, files, files.root, [], {}))
        return
    for folder in _folders(files):
        entries: dict[str, Entry] = {}
        for path in files.children(folder):
            if path.name == _INDEX and path.is_file():
                entries |= _listed(files, path)
        # Where both are, `sessions.d` was made from the other, and is what OpenClaw reads.
        for path in files.children(folder):
            if path.name == _FOLDER and path.is_dir():
                entries |= _entries_of(files, path)
        yield from _folder(files, folder, entries, orphans=True)


def _folders(files: Files) -> Iterator[Path]:
    """Yield the folders that hold an index or transcripts."""
    for folder, is_folder in files.everything():
        if not is_folder or _FOLDER in folder.relative_to(files.root).parts:
            continue
        # Lines of JSON are elsewhere, too: what jobs have done, what the gateway has logged.
        likely = folder == files.root or folder.name == "sessions"
        if any(
            path.name in {_INDEX, _FOLDER} or (likely and _is_transcript(path))
            for path in files.children(folder)
        ):
            yield folder


def _listed(files: Files, path: Path) -> dict[str, Entry]:
    """Return the entries of an index, by their keys."""
    entries: dict[str, Entry] = {}
    with files.item(path):
        index = files.json(path)
        if not isinstance(index, dict):
            raise Unreadable(f"a JSON {named(index)} where the index of sessions should be")
        if not index:
            raise Unreadable("an index without sessions")
        entries |= {key: one for key, one in index.items() if _is_entry(files, path, key, one)}
    return entries


def _entries_of(files: Files, folder: Path) -> dict[str, Entry]:
    """Return the entries of a `sessions.d`: a file for each, or a folder with a `meta.json`."""
    found: dict[str, Entry] = {}
    for path in files.children(folder):
        if path.is_dir():
            place, key = path / "meta.json", path.name.replace("--", ":")
            if not files.exists(place):
                files.report(path, "no meta.json in it")
                continue
        elif path.suffix == ".json":
            place, key = path, unquote(path.stem)
        else:
            continue
        with files.item(place):
            entry = files.json(place)
            if isinstance(entry, dict):
                key = text_of(entry.get("sessionKey")) or text_of(entry.get("key")) or key
            if _is_entry(files, place, key, entry):
                found[key] = entry
    return found


def _is_entry(files: Files, path: Path, key: str, entry: object) -> bool:
    if not isinstance(entry, dict):
        files.report(path, f"{key!r:.200}: a {named(entry)} where the entry of a session should be")
    elif not text_of(entry.get("sessionId")):
        files.report(path, f"{key!r:.200}: an entry without a session id")
    else:
        return True
    return False


def _folder(
    files: Files, folder: Path, entries: dict[str, Entry], *, orphans: bool
) -> Iterator[Found]:
    """Yield the transcripts of one folder: those that are in the index, and those of earlier sessions."""
    keys: dict[Path, list[str]] = {}
    for key, entry in entries.items():
        path = _transcript(files, folder, entry)
        if path is None:
            files.report(
                files.name(folder / _INDEX),
                f"{key!r:.200}: the transcript of session {entry['sessionId']!r:.100} is not there",
            )
        else:
            keys.setdefault(path, []).append(key)
    if orphans:
        for path in files.children(folder):
            if _is_transcript(path):
                keys.setdefault(path, [])
    for path, names in sorted(keys.items()):
        entry = entries[names[-1]] if names else {}
        yield Found(files.name(path), partial(_read, files, path, names, entry))


def _is_transcript(path: Path) -> bool:
    name = path.name
    return name.endswith(_TRANSCRIPT) and not name.endswith(_TRAJECTORY) and path.is_file()


def _transcript(files: Files, folder: Path, entry: Entry) -> Path | None:
    given = text_of(entry.get("sessionFile"))
    names = [f"{entry['sessionId']}{_TRANSCRIPT}"]
    if given is not None:
        # Usually an absolute path, of wherever the folder was when it was written.
        names.insert(0, re.split(r"[\\/]", given)[-1])
    for name in names:
        if name in {"", ".", ".."} or "/" in name or "\0" in name:
            continue
        if files.exists(folder / name):
            return folder / name
    return None


# -- a transcript -------------------------------------------------------------------------------


def _read(files: Files, path: Path, keys: list[str], entry: Entry) -> Iterator[Foreign]:
    transcript = _Transcript(files, path)
    if not transcript.lines:
        raise Unreadable("nothing of a transcript in it")
    header = transcript.header
    if header is None and not keys:
        raise Unreadable("no transcript: there is no line that says so, and no key leads to it")
    if header is None:
        files.report(path, "the first line, which says what it is, is missing")
        header = {}
    known = {name: value for name, value in entry.items() if name not in _DERIVED}
    own = {name: value for name, value in header.items() if name not in {"type", "timestamp"}}
    metadata: dict[str, Any] = {
        "title": transcript.title or _title(entry),
        "workspace": text_of(header.get("cwd")),
        FORMAT: {"keys": keys, "entry": known, "header": own, "agent": _agent(path)},
    }
    yield Foreign(
        _id_of(path),
        transcript.items,
        files.name(path),
        metadata,
        moment(header.get("timestamp")) or moment(entry.get("sessionStartedAt")),
        _fork(files, path, header, transcript),
        archived=moment(entry.get("archivedAt")) is not None,
    )


def _agent(path: Path) -> str | None:
    """Return whose transcript it is: `agents/<agent>/sessions/<file>`."""
    folder = path.parent
    return folder.parent.name if folder.name == "sessions" and folder.parent.name else None


def _id_of(path: Path) -> str:
    agent = _agent(path)
    return path.stem if agent is None else f"{agent}/{path.stem}"


def _title(entry: Entry) -> str | None:
    for name in ("label", "displayName", "subject"):
        if text_of(entry.get(name)):
            return str(entry[name])
    return None


def _fork(files: Files, path: Path, header: Entry, transcript: "_Transcript") -> Fork | None:
    given = text_of(header.get("parentSession")) or text_of(header.get("branchedFrom"))
    if given is None:
        return None
    name = re.split(r"[\\/]", given)[-1]
    parent = path.parent / (name if name.endswith(_TRANSCRIPT) else f"{name}{_TRANSCRIPT}")
    if parent == path or "\0" in name or not files.exists(parent):
        return Fork(parent.stem, 0)
    lines = files.once(parent, lambda: _Transcript(files, parent).lines)
    count = 0
    for ours, theirs in zip(transcript.lines, lines, strict=False):
        if ours != theirs:
            break
        count += 1
    return Fork(_id_of(parent), transcript.ends[count - 1] if count else 0)


class _Transcript:
    """What the lines of a transcript say.

    Attributes:
        header: the first line; None if it is missing.
        lines: the others.
        items: what they are as items.
        ends: how many items there are after each line.
        title: the name that the session was given last.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self.header: Entry | None = None
        self.lines: list[Entry] = []
        self.items: list[Item] = []
        self.ends: list[int] = []
        self.title: str | None = None
        #: Where in the items each entry begins and ends, by its id.
        self._places: dict[str, tuple[int, int]] = {}
        self._last: str | None = None
        for number, line in files.lines(path):
            with files.item(files.name(path, number)):
                kind = text_of(line.get("type"))
                if kind is None:
                    raise Unreadable("an entry that does not say what it is")
                if kind == "session":
                    self.header = self.header or line
                else:
                    self._add(line, kind)

    def _add(self, line: Entry, kind: str) -> None:
        time = moment(line.get("timestamp"))
        before = len(self.items)
        made = list(self._items(line, kind, time))
        parent = line.get("parentId")
        if isinstance(parent, str) and parent != self._last and parent in self._places:
            # The session went back, and on from there.
            self.items.append(Item("session.reverted", {}, time, self._places[parent][1]))
        self.items += made
        identity = text_of(line.get("id"))
        if identity is not None:
            self._places[identity] = (before, len(self.items))
            self._last = identity
        self.lines.append(line)
        self.ends.append(len(self.items))

    def _items(self, line: Entry, kind: str, time: str | None) -> Iterator[Item]:
        if kind == "message":
            message = line.get("message")
            if not isinstance(message, dict):
                raise Unreadable(f"a {named(message)} where a message should be")
            time = time or moment(message.get("timestamp"))
            yield said(packed(message), time)
            usage = _usage(message)
            if usage is not None:
                yield Item("usage.recorded", usage, time)
        elif kind in {"custom_message", "branch_summary"}:
            content = line.get("summary") if kind == "branch_summary" else line.get("content")
            yield said(common.pack(FORMAT, line, role="user", content=_content(content)), time)
        elif kind == "compaction" and text_of(line.get("summary")) is not None:
            kept = line.get("firstKeptEntryId")
            begun = self._places.get(kept) if isinstance(kept, str) else None
            message = common.pack(FORMAT, line, role="user", content=line["summary"])
            at = len(self.items) if begun is None else begun[0]
            yield Item("summary.added", {"message": message}, time, at)
        else:
            if kind == "session_info":
                self.title = text_of(line.get("name")) or self.title
            shown = kind.lower() if _NAME.fullmatch(kind.lower()) else "entry"
            yield Item(f"x.{FORMAT}.{shown}", line, time)


# -- a message ----------------------------------------------------------------------------------


def packed(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of OpenClaw's as every framework can read it."""
    role = text_of(message.get("role")) or "user"
    content = message.get("content")
    if role == "toolResult":
        call = message.get("toolCallId")
        return common.pack(
            FORMAT,
            message,
            role="tool",
            content=_content(content),
            tool_call_id=call if isinstance(call, str) else "",
        )
    if role == "bashExecution":
        text = f"$ {message.get('command', '')}\n{message.get('output', '')}"
        return common.pack(FORMAT, message, role="user", content=text)
    calls = [
        {
            "id": str(block.get("id", "")),
            "type": "function",
            "function": {
                "name": str(block.get("name", "")),
                "arguments": _arguments(block.get("arguments")),
            },
        }
        for block in (content if isinstance(content, list) else ())
        if isinstance(block, dict) and block.get("type") == "toolCall"
    ]
    shown = role if role in {"user", "assistant", "system", "tool"} else "user"
    return common.pack(
        FORMAT, message, role=shown, content=_content(content), tool_calls=calls or None
    )


def _arguments(given: object) -> str:
    import json

    return given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)


def _content(content: object) -> Any:
    """Return what is said: a text, or blocks, without what was thought and called."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else common.content_text(content)
    blocks = [
        block
        for block in content
        if not (isinstance(block, dict) and block.get("type") in {"thinking", "toolCall"})
    ]
    if not blocks:
        return ""
    first = blocks[0]
    if len(blocks) == 1 and isinstance(first, dict) and isinstance(first.get("text"), str):
        return first["text"]
    return blocks


def _usage(message: dict[str, Any]) -> dict[str, Any] | None:
    usage = message.get("usage")
    if not isinstance(usage, dict) or not any(
        isinstance(value, int | float) and value for value in usage.values()
    ):
        return None
    found: dict[str, Any] = {
        "model": text_of(message.get("model")) or "unknown",
        "input_tokens": _whole(usage.get("input")),
        "output_tokens": _whole(usage.get("output")),
    }
    cost = usage.get("cost")
    total = cost.get("total") if isinstance(cost, dict) else cost
    if isinstance(total, int | float) and not isinstance(total, bool):
        found["cost"] = float(total)
    for name, theirs in (("cache_read_tokens", "cacheRead"), ("cache_write_tokens", "cacheWrite")):
        if _whole(usage.get(theirs)):
            found[name] = _whole(usage.get(theirs))
    return found


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
