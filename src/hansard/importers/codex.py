"""Import Codex CLI rollouts: `sessions/YYYY/MM/DD/rollout-….jsonl`, also compressed as `.zst`.

A response item becomes a message; each other line becomes an event `x.codex.line`, so that the exporter
writes the same rollout again. A line `compacted` is also a summary, a token count is usage, and a rollback is
a revert. A rollout that continues another, by its `history_base`, includes what it inherits.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from hansard.importers.foreign_json import Unreadable, count_of, list_of, member, text_in, time_in
from hansard.importers.source import LARGEST, Files, ForeignSession, Item, SourceEntry
from hansard.message.openai_items import message_of
from hansard.message.parse import origin_of

#: The kind of the events that hold a line which is not an item.
LINE: Final = "x.codex.line"

_ENDINGS: Final = (".jsonl", ".jsonl.zst")
#: Other files next to the rollouts.
_OTHERS: Final = frozenset({"history.jsonl", "session_index.jsonl"})
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
#: Maximum length of a chain of rollouts: each is read again for each that continues it.
_DEEPEST: Final = 100

#: Bytes that are decompressed in one piece.
_PIECE: Final = 1024 * 1024

#: Members of a rollout's first line that become metadata.
_ABOUT: Final = ("parent_thread_id", "originator", "cli_version", "model_provider")

Line = dict[str, Any]


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the rollouts; of one that is there both compressed and plain, the plain one."""
    found = [path for path in files.walk(*_ENDINGS) if path.name not in _OTHERS]
    plain = {path for path in found if path.suffix == ".jsonl"}
    paths = [path for path in found if path in plain or path.with_suffix("") not in plain]
    by_id = {name[-1].lower(): path for path in paths if (name := _UUID.findall(path.name))}
    for path in paths:
        yield files.entry(_read, path, by_id)


def _read(files: Files, path: Path, by_id: dict[str, Path]) -> Iterator[ForeignSession]:
    """Read a rollout, and what it continues."""
    lines = _lines(files, path)
    head = _head(lines)
    if head is None:
        raise Unreadable("not a rollout: its first line is not a `session_meta`")
    items = _items(files, path, by_id, lines, {path})
    model = next((m for line in reversed(lines) if (m := _model(line))), None)
    forked = text_in(head, "forked_from_id") or text_in(head.get("history_base"), "thread_id")
    metadata = {"workspace": text_in(head, "cwd"), "model": model, "forked_from": forked}
    metadata |= {name: text_in(head, name) for name in _ABOUT}
    session_id = text_in(head, "id", "session_id") or path.name.split(".")[0]
    created = time_in(head, "timestamp")
    yield ForeignSession(session_id, items, files.name(path), metadata, created)


def _items(
    files: Files, path: Path, by_id: dict[str, Path], lines: list[Line], below: set[Path]
) -> list[Item]:
    """Return all items of a rollout, with the inherited ones. `below`: those for which it is read."""
    own = _own_items(files, path, lines)
    base = member(_head(lines), "history_base")
    named = text_in(base, "thread_id")
    if named is None:
        return own
    other = by_id.get(named.lower())
    if other is None or other in below or len(below) > _DEEPEST:
        why = "is missing" if other is None else "is forked from it, or from too many others"
        files.report(path, f"it continues {named}, which {why}: only what it adds was imported")
        return own
    parent = _items(files, other, by_id, _lines(files, other), {*below, other})
    kept = _upto(parent, member(base, "end_ordinal_exclusive"))
    return [*parent[:kept], *(one.moved(kept) for one in own)]


def _own_items(files: Files, path: Path, lines: list[Line]) -> list[Item]:
    items: list[Item] = []
    model, total = "", None
    #: The number of items before the last message of the user, and before each turn's.
    asked, turns = 0, list[int]()
    # A copy of another rollout may include the first line of that.
    copied = text_in(_head(lines), "forked_from_id") is not None
    for number, line in enumerate(lines):
        kind, payload = line["type"], line["payload"]
        if number and copied and kind == "session_meta":
            continue
        with files.item(path):
            time = time_in(line, "timestamp")
            rest = {name: value for name, value in line.items() if name != "timestamp"}
            if kind == "response_item":
                asked = len(items) if payload.get("role") == "user" else asked
                items.append(Item.message(_message(rest), time))
                continue
            items.append(Item(LINE, {"line": rest}, time))
            model = _model(line) or model
            if kind == "compacted":
                message = {"role": "user", "content": _summary(payload)}
                items.append(Item("summary.added", {"message": message}, time, len(items) - 1))
            elif kind == "event_msg" and payload.get("type") == "user_message":
                turns.append(asked)
            elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
                count = count_of(payload.get("num_turns"))
                if count > 0 and turns:
                    items.append(Item("session.reverted", {}, time, turns[-count:][0]))
                    del turns[-count:]
            elif kind == "event_msg" and payload.get("type") == "token_count":
                info = payload.get("info")
                # Codex repeats the count whenever it writes limits.
                if isinstance(info, dict) and info.get("total_token_usage") != total:
                    total = info.get("total_token_usage")
                    items += _usage(info.get("last_token_usage"), model, time)
    return items


def _lines(files: Files, path: Path) -> list[Line]:
    content = files.read(path) or b""
    if path.suffix == ".zst" and content:
        content = _decompressed(content)
    found = []
    for number, line in files.lines(path, content):
        if isinstance(line.get("type"), str) and isinstance(line.get("payload"), dict):
            found.append(line)
        else:
            files.report(files.name(path, number), "not a line of a rollout: it has no payload")
    return found


def _decompressed(content: bytes) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError

    try:
        with ZstdDecompressor().stream_reader(content, read_across_frames=True) as reader:
            # In pieces: `read` allocates as much as is requested.
            pieces = islice(iter(lambda: reader.read(_PIECE), b""), LARGEST // _PIECE + 1)
            found = b"".join(pieces)
    except ZstdError as error:
        raise Unreadable(f"cannot be decompressed: {error}") from None
    if len(found) > LARGEST:
        raise Unreadable(f"decompressed, it is larger than {LARGEST:,} bytes: not read")
    return found


def _head(lines: list[Line]) -> Line | None:
    return lines[0]["payload"] if lines and lines[0]["type"] == "session_meta" else None


def _model(line: Line) -> str | None:
    return text_in(line["payload"], "model") if line["type"] == "turn_context" else None


def _upto(items: list[Item], end: object) -> int:
    """Return how many items precede the line with an ordinal."""
    if not isinstance(end, int):
        return len(items)
    for place, item in enumerate(items):
        holder = origin_of(item.data["message"]) if item.kind == "message.added" else item.data
        ordinal = member(holder, "line", "ordinal")
        if isinstance(ordinal, int) and ordinal >= end:
            return place
    return len(items)


def _message(line: Line) -> dict[str, Any]:
    """Return the message of an item; its origin notes the other members of the line."""
    message = message_of(line["payload"])
    rest = {name: value for name, value in line.items() if name not in {"type", "payload"}}
    if rest and isinstance(message.get("origin"), dict):
        message["origin"]["line"] = rest
    return message


def _summary(payload: Line) -> str:
    texts = [
        text
        for item in list_of(payload.get("replacement_history"))
        for block in list_of(member(item, "content"))
        if (text := text_in(block, "text"))
    ]
    unknown = "[earlier messages were compacted; only Codex can read them]"
    return text_in(payload, "message") or "\n\n".join(texts) or unknown


def _usage(counted: object, model: str, time: str | None) -> list[Item]:
    given, made = member(counted, "input_tokens"), member(counted, "output_tokens")
    if not isinstance(given, int) or not isinstance(made, int) or given < 0 or made < 0:
        return []
    cached = count_of(member(counted, "cached_input_tokens"))
    reasoned = count_of(member(counted, "reasoning_output_tokens"))
    return [Item.usage(model, given, made, time, cached_tokens=cached, reasoning_tokens=reasoned)]
