"""Say where an entry of a Claude Code transcript goes on from further up than the one before it.

Above: `claude_code`.  Below: nothing of hansard.
An entry names its parent. A new prompt whose parent is further up began another branch: Claude Code went
back. But one answer is written as several entries, one for each block, and the results of calls that ran side
by side each name their own call: such a turn forks as well, and is one piece nevertheless. So entries are
taken together that belong to one answer, and only what stands behind a whole group is a branch.
"""

from itertools import islice
from typing import Any, Final

Entry = dict[str, Any]

#: So many entries of a group are looked at for the last one of the branch: a group on more branches than
#: that was not written by Claude Code.
_RECENT: Final = 64


class Node:
    """An entry that was said.

    Attributes:
        place: after how many items it stands.
        group: the group that it belongs to.
        before: what was said before it.
        depth: how many were said before it.
        run: the depth of the first of the entries of its group that end with it without a gap.
        jump: an entry further up, so that any entry further up is found in few steps.
    """

    __slots__ = ("before", "depth", "group", "jump", "place", "run")

    def __init__(self, place: int, group: str, before: "Node | None") -> None:
        self.place = place
        self.group = group
        self.before = before
        self.depth = self.run = 0
        self.jump: Node = self
        if before is not None:
            self.depth = before.depth + 1
            self.run = before.run if before.group == group else self.depth
            # Two jumps of one length are joined, so lengths grow as the powers of two.
            far = before.jump
            equal = before.depth - far.depth == far.depth - far.jump.depth
            self.jump = far.jump if equal else before

    def follows(self, other: "Node") -> bool:
        """Return whether it is another entry, or goes on from it."""
        at = self
        while at.depth > other.depth:
            assert at.before is not None  # or its depth were 0
            at = at.jump if at.jump.depth >= other.depth else at.before
        return at is other


class Tree:
    """The entries of a transcript so far, as they go on from each other."""

    def __init__(self) -> None:
        self._tip: Node | None = None
        self._nodes: dict[str, Node] = {}
        #: Of entries that were not said: from which they go on.
        self._passed: dict[str, object] = {}
        self._callers: dict[str, str] = {}
        self._groups: dict[str, list[Node]] = {}

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
        self._groups.setdefault(group, []).append(self._tip)
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
        if not self._tip.follows(node):
            # The parent is on a branch that was left; it goes on from there.
            self._tip = node
            return node.place + 1
        # What stands behind the whole group of the parent is a branch, unless it is of the entry's own group.
        recent = islice(reversed(self._groups[node.group]), _RECENT)
        last = next((one for one in recent if self._tip.follows(one)), node)
        if self._tip is last or (self._tip.group == own and self._tip.run <= last.depth + 1):
            return None
        self._tip = last
        return last.place + 1

    def _spoken(self, name: object) -> Node | None:
        """Return the nearest that was said, from an entry upwards."""
        seen: dict[str, None] = {}
        while isinstance(name, str) and name not in self._nodes and name not in seen:
            seen[name] = None
            if name not in self._passed:
                break  # which may still come
            name = self._passed[name]
        # The next time, it is one step.
        self._passed.update(dict.fromkeys(seen.keys() & self._passed.keys(), name))
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
