"""Say where an entry of a Claude Code transcript goes on from further up than the one before it.

Above: `claude_code`.  Below: nothing of hansard.
An entry names its parent. A new prompt whose parent is further up began another branch: Claude Code went
back. But one answer is written as several entries, one for each block, and the results of calls that ran side
by side each name their own call: such a turn forks as well, and is one piece nevertheless. So entries are
taken together that belong to one answer, and only what stands behind a whole group is a branch.
"""

from typing import Any, NamedTuple

Entry = dict[str, Any]


class Node(NamedTuple):
    """An entry that was said: after how many items it stands, its group, and what was said before it."""

    place: int
    group: str
    before: "Node | None"


class Tree:
    """The entries of a transcript so far, as they go on from each other."""

    def __init__(self) -> None:
        self._tip: Node | None = None
        self._nodes: dict[str, Node] = {}
        #: Of entries that were not said: from which they go on.
        self._passed: dict[str, object] = {}
        self._callers: dict[str, str] = {}

    def pass_by(self, entry: Entry) -> None:
        """Take an entry that is not said: others may go on from it."""
        name = entry.get("uuid")
        if isinstance(name, str):
            # A boundary of a compaction has no parent, and says what stood before it.
            self._passed[name] = entry.get("parentUuid") or entry.get("logicalParentUuid")

    def say(self, entry: Entry, place: int) -> None:
        """Take an entry that is said, which becomes the item behind `place` others."""
        group = self._group(entry)
        self._tip = Node(place, group, self._tip)
        name = entry.get("uuid")
        if isinstance(name, str):
            self._nodes[name] = self._tip
        for call in _ids(entry, "tool_use", "id"):
            self._callers.setdefault(call, group)

    def branches(self, entry: Entry) -> int | None:
        """Return after how many items an entry goes on, if that is not where the last one stands."""
        parent = entry.get("parentUuid")
        if self._tip is None:
            return None
        if parent is None:
            self._tip = None  # a beginning: nothing before it is part of this conversation
            return 0
        node = self._spoken(parent)
        if node is None:
            return None  # nobody knows: it goes on
        own = self._group(entry)
        # From the last entry back to the parent's group: what stands behind that whole group is a branch.
        at: Node | None = self._tip
        last: Node | None = None
        behind = False
        while at is not None and at.place >= node.place:
            if at.group == node.group:
                last = last or at
            elif last is None and at.group != own:
                behind = True
            if at is node:
                break
            at = at.before
        else:
            # The parent is on a branch that was left; it goes on from there.
            self._tip = node
            return node.place + 1
        if not behind:
            return None
        assert last is not None  # the parent itself is of its group
        self._tip = last
        return last.place + 1

    def _spoken(self, name: object) -> Node | None:
        """Return the nearest that was said, from an entry upwards."""
        seen = set()
        while isinstance(name, str) and name not in self._nodes and name not in seen:
            seen.add(name)
            name = self._passed.get(name)
        return self._nodes.get(name) if isinstance(name, str) else None

    def _group(self, entry: Entry) -> str:
        message = entry.get("message")
        answer = message.get("id") if isinstance(message, dict) else None
        if entry.get("type") == "assistant" and isinstance(answer, str):
            return f"answer {answer}"
        for call in _ids(entry, "tool_result", "tool_use_id"):
            if call in self._callers:
                return self._callers[call]
        return f"entry {entry.get('uuid')}"


def _ids(entry: Entry, kind: str, member: str) -> list[str]:
    """Return what the blocks of a kind in an entry name under a member."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [
        block[member]
        for block in (content if isinstance(content, list) else ())
        if isinstance(block, dict)
        and block.get("type") == kind
        and isinstance(block.get(member), str)
    ]
