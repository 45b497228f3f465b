"""Rollouts of the Codex CLI: `sessions/YYYY/MM/DD/rollout-….jsonl`, also compressed as `.zst`.

Above: `bringing`.  Below: `source`, `adapters.openai_items` (its items are those of OpenAI's Responses).
What a model was told or said becomes a message; each other line is an event of the kind `x.codex.line`, so
that `exporters.codex` writes the same rollout again. A line `compacted` is also a summary, and a count of
tokens is usage. A rollout that was forked off another one is a fork of it.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from hansard.adapters import common
from hansard.adapters.openai_items import message_of
from hansard.importers.source import (
    LARGEST,
    Files,
    Foreign,
    Fork,
    Found,
    Item,
    Unreadable,
    moment,
    text_of,
)

#: The kind of the events that hold a line which is no item.
LINE: Final = "x.codex.line"

_ENDINGS: Final = (".jsonl", ".jsonl.zst")
#: What Codex keeps beside its rollouts, and is none.
_OTHERS: Final = frozenset({"history.jsonl", "session_index.jsonl"})
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
#: So many rollouts may be forked one off the other: each is read again for each that is forked off it.
_DEEPEST: Final = 100

#: So much is decompressed at once.
_PIECE: Final = 1024 * 1024

#: What of a rollout's first line is said about the session as a whole.
_ABOUT: Final = (
    "forked_from_id",
    "parent_thread_id",
    "originator",
    "cli_version",
    "model_provider",
)

Line = dict[str, Any]


def find(files: Files) -> Iterator[Found]:
    """Yield the rollouts below the root; of one that is there twice, compressed and not, the latter."""
    rollouts = _Rollouts(files)
    for path in rollouts.paths:
        yield Found(files.name(path), lambda path=path: rollouts.read(path))  # type: ignore[misc]


class _Rollouts:
    """The rollouts of a source, by the ids in their names."""

    def __init__(self, files: Files) -> None:
        self._files = files
        found = [path for path in files.walk(*_ENDINGS) if path.name not in _OTHERS]
        plain = {path for path in found if path.suffix == ".jsonl"}
        self.paths = [path for path in found if path in plain or path.with_suffix("") not in plain]
        self._by_id = {
            name[-1].lower(): path for path in self.paths if (name := _UUID.findall(path.name))
        }

    def read(self, path: Path) -> Iterator[Foreign]:
        """Read one rollout, and, if it is a fork, what it was forked from."""
        lines = self._lines(path)
        head = _head(lines)
        if head is None:
            raise Unreadable("no rollout: its first line is no `session_meta`")
        items, fork = self._items(path, lines, {path})
        model = next((m for line in reversed(lines) if (m := _model(line))), None)
        metadata = {"workspace": text_of(head.get("cwd")), "model": model}
        metadata |= {name: text_of(head.get(name)) for name in _ABOUT}
        yield Foreign(
            _id_of(head) or path.name.split(".")[0],
            items,
            self._files.name(path),
            metadata={name: value for name, value in metadata.items() if value},
            created=moment(head.get("timestamp")),
            fork=fork,
        )

    def _items(
        self, path: Path, lines: list[Line], below: set[Path]
    ) -> tuple[list[Item], Fork | None]:
        """Return all items of a rollout, with those that it inherits, and where it was forked.

        `below`: the rollouts that are read for its sake.
        """
        head = _head(lines) or {}
        base = head.get("history_base")
        base = base if isinstance(base, dict) else {}
        inherits = text_of(base.get("thread_id"))
        named = inherits or text_of(head.get("forked_from_id"))
        other = None if named is None else self._by_id.get(named.lower())
        if other is None or other in below or len(below) > _DEEPEST:
            if inherits is not None:
                why = (
                    "is not here" if other is None else "is forked from it, or from too many others"
                )
                what = f"it goes on from {named}, which {why}: only what it adds was imported"
                self._files.report(path, what)
            return self._told(path, lines), None

        def read(other: Path = other) -> tuple[list[Line], list[Item]]:
            before = self._lines(other)
            return before, self._items(other, before, {*below, other})[0]

        before, parent = self._files.once(other, read)
        own = self._told(path, lines)
        if inherits is not None:
            kept, copied = _upto(parent, base.get("end_ordinal_exclusive")), 1
        else:
            # A copy, in which the parent's first line may be among the others.
            rest = (line for line in lines[1:] if line["type"] != "session_meta")
            own = self._told(path, [lines[0], *rest])
            kept, copied = _common(parent, own)
        if not kept:
            return own, None
        # What was copied has the time of the copy; it was said when the parent says.
        moved = kept + 1 - copied
        moved_on = [
            one._replace(at=one.at + moved) if isinstance(one.at, int) else one
            for one in own[copied:]
        ]
        fork = Fork(_id_of(_head(before) or {}) or str(named), kept)
        return [*parent[:kept], own[0], *moved_on], fork

    def _told(self, path: Path, lines: list[Line]) -> list[Item]:
        """Return the items that lines are."""
        telling = _Telling()
        for line in lines:
            with self._files.item(path):
                telling.add(line)
        return telling.items

    def _lines(self, path: Path) -> list[Line]:
        content = self._files.read(path)
        if content is None:
            return []
        if path.suffix == ".zst":
            content = _decompressed(content)
        found = []
        for number, line in self._files.objects(path, content):
            kind, payload = line.get("type"), line.get("payload")
            if isinstance(kind, str) and isinstance(payload, dict):
                found.append(line)
            else:
                self._files.report(
                    self._files.name(path, number), "no line of a rollout: it has no payload"
                )
        return found


def _decompressed(content: bytes) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError

    try:
        with ZstdDecompressor().stream_reader(content, read_across_frames=True) as reader:
            # By pieces: as much memory as is asked for is taken at once.
            pieces = islice(iter(lambda: reader.read(_PIECE), b""), LARGEST // _PIECE + 1)
            found = b"".join(pieces)
    except ZstdError as error:
        raise Unreadable(f"cannot be decompressed: {error}") from None
    if len(found) > LARGEST:
        raise Unreadable(f"decompressed, it is larger than {LARGEST:,} bytes: not read")
    return found


# -- what a rollout says about itself -----------------------------------------------------------


def _head(lines: list[Line]) -> Line | None:
    if not lines or lines[0]["type"] != "session_meta":
        return None
    payload: Line = lines[0]["payload"]
    return payload


def _id_of(head: Line) -> str | None:
    return text_of(head.get("id")) or text_of(head.get("session_id"))


def _model(line: Line) -> str | None:
    return text_of(line["payload"].get("model")) if line["type"] == "turn_context" else None


# -- forks --------------------------------------------------------------------------------------


def _upto(items: list[Item], end: object) -> int:
    """Return how many items stand before the line with an ordinal."""
    if not isinstance(end, int):
        return len(items)
    for place, item in enumerate(items):
        ordinal = _ordinal(item)
        if ordinal is not None and ordinal >= end:
            return place
    return len(items)


def _ordinal(item: Item) -> int | None:
    line = item.data.get("line")
    if line is None and item.kind == "message.added":
        line = (common.origin_of(item.data["message"]) or {}).get("line")
    found = line.get("ordinal") if isinstance(line, dict) else None
    return found if isinstance(found, int) else None


def _common(parent: list[Item], own: list[Item]) -> tuple[int, int]:
    """Return how many items of a parent, and of a copy behind its own first line, are the same."""
    mine = 1
    kept = 0
    for place, item in enumerate(parent, start=1):
        if _is_head(item):
            continue
        if mine == len(own) or (item.kind, item.data) != (own[mine].kind, own[mine].data):
            break
        mine, kept = mine + 1, place
    return kept, mine


def _is_head(item: Item) -> bool:
    return item.kind == LINE and item.data["line"]["type"] == "session_meta"


# -- lines --------------------------------------------------------------------------------------


class _Telling:
    """The items that lines are, one after the other."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._model = ""
        self._total: object = None

    def add(self, line: Line) -> None:
        """Take a line."""
        kind, payload = line["type"], line["payload"]
        time = moment(line.get("timestamp"))
        rest = {name: value for name, value in line.items() if name != "timestamp"}
        if kind == "response_item":
            self.items.append(Item("message.added", {"message": _message(rest)}, time))
            return
        place = len(self.items)
        self.items.append(Item(LINE, {"line": rest}, time))
        self._model = _model(line) or self._model
        if kind == "compacted":
            message = {"role": "user", "content": _summary(payload)}
            self.items.append(Item("summary.added", {"message": message}, time, at=place))
        elif kind == "event_msg" and payload.get("type") == "token_count":
            counted = payload.get("info")
            if isinstance(counted, dict) and counted.get("total_token_usage") != self._total:
                # The same count is written again whenever limits are.
                self._total = counted.get("total_token_usage")
                self.items += _usage(counted.get("last_token_usage"), self._model, time)


def _message(line: Line) -> dict[str, Any]:
    """Return the message of an item; what its line says besides is noted in its origin."""
    message = message_of(line["payload"])
    rest = {name: value for name, value in line.items() if name not in {"type", "payload"}}
    if rest and isinstance(message.get("origin"), dict):
        message["origin"]["line"] = rest
    return message


def _summary(payload: Line) -> str:
    told = text_of(payload.get("message"))
    if told is not None:
        return told
    replaced = payload.get("replacement_history")
    texts = [
        block["text"]
        for item in (replaced if isinstance(replaced, list) else ())
        if isinstance(item, dict) and isinstance(item.get("content"), list)
        for block in item["content"]
        if isinstance(block, dict) and text_of(block.get("text"))
    ]
    return "\n\n".join(texts) or "[what was said before was compacted, and only Codex can read it]"


def _usage(counted: object, model: str, time: str | None) -> list[Item]:
    if not isinstance(counted, dict):
        return []
    given, made = counted.get("input_tokens"), counted.get("output_tokens")
    if not isinstance(given, int) or not isinstance(made, int) or given < 0 or made < 0:
        return []
    data = {"model": model or "unknown", "input_tokens": given, "output_tokens": made}
    return [Item("usage.recorded", data, time)]
