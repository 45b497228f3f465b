"""Import Claude Code transcripts: `projects/<project>/<session>.jsonl`, and those of subagents.

Every entry is stored as `adapters.claude_agent` would have stored it, under the id by which that adapter
finds it: `claude/<project>/<session>`, and `…/subagents/agent-<id>` for a subagent.

    a prompt or an answer                 a message
    one whose parent is further up        after a revert to that parent; the other branch stays in the history
    a summary after a compaction          a summary; earlier messages stay in the history
    a sidechain or teammate, other        an event `x.claude.entry`
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from hansard.importers.foreign_json import Unreadable, list_of, member, text_in, time_in
from hansard.importers.source import Files, ForeignSession, Item, SourceEntry
from hansard.message import claude_entries

_SUBAGENTS: Final = "subagents"

#: How many entries of a group are searched for the last one on the current branch. Claude Code writes no
#: group on more branches than that.
_RECENT: Final = 64

Entry = dict[str, Any]


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the transcripts; the root is a transcript, a project, or the directory of all projects."""
    for path in files.walk(".jsonl"):
        if path.name != "history.jsonl":  # not a transcript
            yield files.entry(_read, path)


def _read(files: Files, path: Path) -> Iterator[ForeignSession]:
    alone = _SUBAGENTS in path.parts[:-1]
    transcript = _Transcript(alone=alone)
    for number, entry in files.lines(path):
        with files.item(files.name(path, number)):
            if not text_in(entry, "type"):
                raise Unreadable("not an entry of a transcript: it has no type")
            transcript.add(entry)
    items = transcript.items
    if not items:
        raise Unreadable("not a transcript: it has no entries")
    # The description of a subagent is the entry that the SDK makes of it.
    sidecar = path.with_suffix(".meta.json")
    if alone and files.exists(sidecar):
        with files.item(sidecar):
            about = files.json_object(sidecar, "an object about a subagent")
            first = _kept({**about, "type": "agent_metadata"}, items[0].time)
            items = [first, *(item.moved(1) for item in items)]
    yield ForeignSession(_id_of(path), items, files.name(path), transcript.metadata())


def _id_of(path: Path) -> str:
    """Return the id of a transcript in the adapter."""
    parts = path.with_suffix("").parts
    place, subpath = len(parts) - 1, None
    if _SUBAGENTS in parts[:-1]:
        place -= parts[::-1].index(_SUBAGENTS) + 1
        subpath = "/".join(parts[place + 1 :])
    project = parts[place - 1] if place > 0 else "-"
    return claude_entries.session_id("claude/", project, parts[place], subpath)


class _Transcript:
    """The items of a transcript's entries."""

    def __init__(self, *, alone: bool) -> None:
        """`alone`: the transcript is a subagent's: its sidechain is the conversation."""
        self.items: list[Item] = []
        self._alone = alone
        self._tree = Tree()
        self._known: dict[str, Entry] = {}
        #: The tokens of each answer that were counted so far.
        self._counted = claude_entries.UsageCounts()
        self._about: dict[str, str] = {}
        self._title = self._automatic_title = ""

    def metadata(self) -> dict[str, Any]:
        """Return what the entries say about the session."""
        return {**self._about, "title": self._title or self._automatic_title or None}

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        name = entry.get("uuid")
        if isinstance(name, str):
            if name in self._known:
                # Claude Code repeats entries when it resumes a session.
                if self._known[name] == entry:
                    return
                raise Unreadable(f"another entry has the same uuid, {name}; the first is kept")
            self._known[name] = entry
        self._note(entry)
        time = time_in(entry, "timestamp")
        kind, data = claude_entries.draft(entry).event
        aside = entry.get("teamName") or (entry.get("isSidechain") and not self._alone)
        if aside or kind != "message.added":
            self._tree.skip(entry)
            self.items.append(
                _kept(entry, time) if kind == "message.added" else Item(kind, data, time)
            )
        elif entry.get("isCompactSummary"):
            place = len(self.items)
            self._tree.add(entry, place + 1)
            message = {name: data["message"][name] for name in ("role", "content")}
            self.items += [
                _kept(entry, time),
                Item("summary.added", {"message": message}, time, place),
            ]
        else:
            back = self._tree.branch(entry)
            if back is not None:
                self.items.append(Item("session.reverted", {}, time, back))
            self._tree.add(entry, len(self.items))
            self.items.append(Item(kind, data, time))
        if (usage := self._counted.new(entry)) is not None:
            self._counted.add(usage)
            self.items.append(Item("usage.recorded", usage, time))

    def _note(self, entry: Entry) -> None:
        new = claude_entries.titles([entry])
        self._title = new.given or self._title
        self._automatic_title = new.made_up or self._automatic_title
        about = {"workspace": text_in(entry, "cwd"), "git_branch": text_in(entry, "gitBranch")}
        if forked := text_in(entry.get("forkedFrom"), "sessionId"):
            about["forked_from"] = self._about.get("forked_from", forked)
        if not (model := text_in(entry.get("message"), "model") or "").startswith("<"):
            about["model"] = model
        self._about |= {name: value for name, value in about.items() if value}


def _kept(entry: Entry, time: str | None) -> Item:
    return Item(claude_entries.ENTRY, {"entry": entry}, time)


class _EntryNode:
    """An entry that is a message.

    Attributes:
        place: the number of items before it.
        group: the group that it belongs to.
        before: the message before it.
        depth: the number of messages before it.
        run: the depth of the first of the consecutive entries of its group that end with it.
        jump: an earlier message, so that any earlier message is found in few steps.
    """

    __slots__ = ("before", "depth", "group", "jump", "place", "run")

    def __init__(self, place: int, group: str, before: "_EntryNode | None") -> None:
        self.place = place
        self.group = group
        self.before = before
        self.depth = self.run = 0
        self.jump: _EntryNode = self
        if before is not None:
            self.depth = before.depth + 1
            self.run = before.run if before.group == group else self.depth
            # Join two jumps of equal length, so that lengths grow like powers of two.
            far = before.jump
            equal = before.depth - far.depth == far.depth - far.jump.depth
            self.jump = far.jump if equal else before

    def follows(self, other: "_EntryNode") -> bool:
        """Return whether it is another node, or a descendant of it."""
        at = self
        while at.depth > other.depth:
            assert at.before is not None  # or its depth would be 0
            at = at.jump if at.jump.depth >= other.depth else at.before
        return at is other


class Tree:
    """Finds the entries at which Claude Code went back: those whose parent is further up.

    One answer is several entries, one for each block, and the results of parallel calls each name their own
    call as parent. Such a turn forks too, and is not a branch. So the entries of one answer form a
    group, and an entry is a branch only if it leaves other messages after a complete group.
    """

    def __init__(self) -> None:
        self._tip: _EntryNode | None = None
        self._nodes: dict[str, _EntryNode] = {}
        #: The parents of entries that are not messages.
        self._skipped: dict[str, object] = {}
        #: The group of each tool call.
        self._callers: dict[str, str] = {}
        self._groups: dict[str, list[_EntryNode]] = {}

    def skip(self, entry: Entry) -> None:
        """Add an entry that is not a message; it may be a parent."""
        name = entry.get("uuid")
        if isinstance(name, str):
            # The boundary of a compaction has only a logical parent.
            self._skipped[name] = entry.get("parentUuid") or entry.get("logicalParentUuid")

    def add(self, entry: Entry, place: int) -> None:
        """Add a message, which follows `place` items."""
        group = self._group(entry)
        self._tip = _EntryNode(place, group, self._tip)
        name = entry.get("uuid")
        self._groups.setdefault(group, []).append(self._tip)
        if isinstance(name, str):
            self._nodes[name] = self._tip
        for call in _ids(entry, "tool_use", "id"):
            self._callers.setdefault(call, group)

    def branch(self, entry: Entry) -> int | None:
        """Return the number of items before the point that an entry continues; None for the last one."""
        parent = entry.get("parentUuid")
        if self._tip is None:
            return None
        if parent is None:
            self._tip = None  # a beginning: earlier messages are not part of this conversation
            return 0
        node = self._nearest(parent)
        if node is None:
            return None  # unknown: assume that it continues
        own = self._group(entry)
        if not self._tip.follows(node):
            # The parent is on a branch that was left.
            self._tip = node
            return node.place + 1
        # Messages after the parent's complete group are left, unless they are of the entry's own group.
        recent = islice(reversed(self._groups[node.group]), _RECENT)
        last = next((one for one in recent if self._tip.follows(one)), node)
        if self._tip is last or (self._tip.group == own and self._tip.run <= last.depth + 1):
            return None
        self._tip = last
        return last.place + 1

    def _nearest(self, name: object) -> _EntryNode | None:
        """Return the nearest message, from an entry upwards."""
        seen: dict[str, None] = {}
        while isinstance(name, str) and name not in self._nodes and name not in seen:
            seen[name] = None
            if name not in self._skipped:
                break  # it may follow later
            name = self._skipped[name]
        # The next search takes one step.
        self._skipped.update(dict.fromkeys(seen.keys() & self._skipped.keys(), name))
        return self._nodes.get(name) if isinstance(name, str) else None

    def _group(self, entry: Entry) -> str:
        answer = member(entry, "message", "id")
        if entry.get("type") == "assistant" and isinstance(answer, str):
            return f"answer {answer}"
        for call in _ids(entry, "tool_result", "tool_use_id"):
            if call in self._callers:
                return self._callers[call]
        return f"entry {entry.get('uuid')}"


def _ids(entry: Entry, kind: str, name: str) -> list[str]:
    """Return a member of the blocks of a kind in an entry."""
    return [
        block[name]
        for block in list_of(member(entry, "message", "content"))
        if member(block, "type") == kind and isinstance(block.get(name), str)
    ]
