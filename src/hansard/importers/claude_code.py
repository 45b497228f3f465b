"""Transcripts of Claude Code: `projects/<project>/<session>.jsonl`, and those of subagents beside them.

Above: `bringing`.  Below: `source`, `claude_tree` (where an entry goes on from), `adapters.claude_entries`.
Every entry is kept, as `adapters.claude_agent` would have stored it, and under the id by which that adapter
finds it: `claude/<project>/<session>`, and `…/subagents/agent-<id>` for a subagent.

    a prompt or an answer             a message
    one that goes on from further up  before it, the conversation is reverted to there; nothing is lost
    a summary after a compaction      a summary, up to there; what was said before stays in the history
    a sidechain, a teammate's         an event `x.claude.entry`: it is not part of the conversation
    all else                          an event `x.claude.entry`
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hansard.adapters import claude_entries
from hansard.importers.claude_tree import Tree
from hansard.importers.source import Files, Foreign, Found, Item, Unreadable, moment, text_of

_SUBAGENTS: Final = "subagents"
#: What Claude Code keeps beside its transcripts, and is none.
_OTHERS: Final = frozenset({"history.jsonl"})

#: What one answer took, of which Claude Code says in parts how it was read.
_READ: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

Entry = dict[str, Any]


def find(files: Files) -> Iterator[Found]:
    """Yield the transcripts below the root: a transcript, a project, or the folder of all projects."""
    for path in files.walk(".jsonl"):
        if path.name not in _OTHERS:
            yield Found(files.name(path), lambda path=path: _read(files, path))  # type: ignore[misc]


def _read(files: Files, path: Path) -> Iterator[Foreign]:
    alone = _SUBAGENTS in path.parts[:-1]
    reading = _Reading(alone=alone)
    about = _sidecar(files, path) if alone else None
    for number, entry in files.lines(path):
        with files.item(files.name(path, number)):
            if not text_of(entry.get("type")):
                raise Unreadable("no entry of a transcript: it has no type")
            reading.add(entry)
    if not reading.items:
        raise Unreadable("no transcript: it has no entries")
    if about is not None:
        reading.begin(about)
    yield Foreign(
        _id_of(path),
        reading.items,
        files.name(path),
        metadata=reading.metadata(),
        created=next((item.time for item in reading.items if item.time), None),
    )


def _sidecar(files: Files, path: Path) -> Entry | None:
    """Return what stands beside a subagent's transcript about it, as the entry that the SDK makes of it."""
    beside = path.with_suffix(".meta.json")
    if not files.exists(beside):
        return None
    try:
        found = files.json(beside)
    except Unreadable as error:
        files.report(beside, str(error))
        return None
    if not isinstance(found, dict):
        files.report(beside, "no JSON object about a subagent")
        return None
    return {**found, "type": "agent_metadata"}


def _id_of(path: Path) -> str:
    """Return the id under which the adapter has this transcript."""
    parts = path.with_suffix("").parts
    own = [parts[-1]]
    if _SUBAGENTS in parts[:-1]:
        place = len(parts) - 1 - parts[::-1].index(_SUBAGENTS)
        own = [parts[place - 1], *parts[place:]]
        parts = parts[:place]
    project = parts[-2] if len(parts) > 1 else "-"
    first = own[0].replace("%", "%25").replace("/", "%2F")
    return "/".join(["claude", project.replace("%", "%25"), first, *own[1:]])


class _Reading:
    """A transcript as it is read, entry by entry.

    Attributes:
        items: what it comes to.
    """

    def __init__(self, *, alone: bool) -> None:
        """`alone`: the transcript is a subagent's own: what is a sidechain elsewhere is the conversation."""
        self.items: list[Item] = []
        self._alone = alone
        self._tree = Tree()
        self._known: dict[str, Entry] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        self._about: dict[str, Any] = {}
        self._titles = claude_entries.Titles()

    def metadata(self) -> dict[str, Any]:
        """Return what is known about the session."""
        title = self._titles.given or self._titles.made_up
        return {**self._about, **({"title": title} if title else {})}

    def add(self, entry: Entry) -> None:
        """Take an entry."""
        name = entry.get("uuid")
        if isinstance(name, str):
            if name in self._known:
                # Written again when the session went on; which is no second entry.
                if self._known[name] == entry:
                    return
                raise Unreadable(f"another entry has the same uuid, {name}; the first is kept")
            self._known[name] = entry
        self._note(entry)
        time = moment(entry.get("timestamp"))
        kind, data = claude_entries.draft(entry).event
        spoken = kind == "message.added" and self._is_spoken(entry)
        if kind == "message.added" and not spoken:
            kind, data = claude_entries.ENTRY, {"entry": entry}
        if spoken and entry.get("isCompactSummary"):
            self._summarize(entry, data["message"], time)
        else:
            if spoken:
                back = self._tree.branches(entry)
                if back is not None:
                    # Where it goes on is where the item before it stands.
                    self.items.append(Item("session.reverted", {}, time, at=back))
                self._tree.say(entry, len(self.items))
            else:
                self._tree.pass_by(entry)
            self.items.append(Item(kind, data, time))
        self.items += self._usage(entry, time)

    def begin(self, entry: Entry) -> None:
        """Put an entry before all others."""
        first = Item(claude_entries.ENTRY, {"entry": entry}, self.items[0].time)
        moved = [
            item._replace(at=item.at + 1) if isinstance(item.at, int) else item
            for item in self.items
        ]
        self.items = [first, *moved]

    def _is_spoken(self, entry: Entry) -> bool:
        if entry.get("teamName"):
            return False
        return self._alone or not entry.get("isSidechain")

    def _summarize(self, entry: Entry, message: dict[str, Any], time: str | None) -> None:
        place = len(self.items)
        self._tree.say(entry, place + 1)  # it stands where its summary does
        self.items.append(Item(claude_entries.ENTRY, {"entry": entry}, time))
        told = {"role": message["role"], "content": message["content"]}
        self.items.append(Item("summary.added", {"message": told}, time, at=place))

    def _note(self, entry: Entry) -> None:
        new = claude_entries.titles([entry])
        self._titles = claude_entries.Titles(
            new.given or self._titles.given, new.made_up or self._titles.made_up
        )
        about = {"workspace": entry.get("cwd"), "git_branch": entry.get("gitBranch")}
        self._about.update((key, text) for key, value in about.items() if (text := text_of(value)))
        forked = entry.get("forkedFrom")
        if isinstance(forked, dict) and text_of(forked.get("sessionId")):
            self._about.setdefault("forked_from", forked["sessionId"])
        message = entry.get("message")
        model = message.get("model") if isinstance(message, dict) else None
        if isinstance(model, str) and model and not model.startswith("<"):
            self._about["model"] = model

    def _usage(self, entry: Entry, time: str | None) -> list[Item]:
        """Return what an answer took, but for what its earlier entries have said of it already."""
        message = entry.get("message")
        usage = message.get("usage") if isinstance(message, dict) else None
        model = message.get("model") if isinstance(message, dict) else None
        if entry.get("type") != "assistant" or not isinstance(usage, dict) or not text_of(model):
            return []
        given = sum(_number(usage.get(name)) for name in _READ)
        made = _number(usage.get("output_tokens"))
        name = str(message.get("id") or entry.get("uuid")) if isinstance(message, dict) else ""
        before = self._counted.get(name, (0, 0))
        self._counted[name] = (max(given, before[0]), max(made, before[1]))
        more = {
            "input_tokens": self._counted[name][0] - before[0],
            "output_tokens": self._counted[name][1] - before[1],
        }
        return (
            [Item("usage.recorded", {"model": model, **more}, time)] if any(more.values()) else []
        )


def _number(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
