"""Draw sessions as the trees that forks make of them.

Above: `commands`.  Below: `drawing`, the public API.
A session stands under the one that it was forked from, if that one is listed too. Nothing here calls itself:
a chain of forks may be as long as it likes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hansard.cli.drawing import Pens
from hansard.cli.screen import Screen

if TYPE_CHECKING:
    from hansard import SessionInfo, Store

#: A tree that is deeper is drawn without its first levels, or each line would be longer than the last.
_DEEPEST: Final = 40


class Node(NamedTuple):
    """A session in a tree."""

    info: "SessionInfo"
    #: How many sessions it is away from the root.
    depth: int
    #: What is drawn before its id.
    drawn: str
    #: Whether it was forked from a session that is not above it.
    orphan: bool


def deepest(screen: Screen) -> int:
    """Return how many levels of a tree there is room for: on a terminal, in a third of its width."""
    return max(min(screen.width // 9, _DEEPEST), 1) if screen.terminal else _DEEPEST


def origin(node: Node) -> str:
    """Say where a session comes from that does not stand under it."""
    return f"fork of {node.info.parent}"


def record(info: "SessionInfo", depth: int) -> dict[str, Any]:
    """Return what `--json` says about a session of a listing: every member, whatever its value."""
    import msgspec

    return {**msgspec.structs.asdict(info), "depth": depth}


def related(store: "Store", infos: "Iterable[SessionInfo]") -> dict[str, str]:
    """Return from which other of the given sessions each was forked, by ids."""
    known = {info.id: info for info in infos}
    parents = {}
    for info in known.values():
        above = known.get(info.parent) if info.parent is not None else None
        if above is None:
            continue
        # A session that began after its fork is another one under the old one's name; or the clock was set
        # back. The logs know.
        earlier = above.created <= info.created or not above.created or not info.created
        if earlier or (not above.damaged and info.id in store.session(above.id).children()):
            parents[info.id] = above.id
    return parents


def forest(
    infos: "Iterable[SessionInfo]", parents: Mapping[str, str], pens: Pens, *, deepest: int
) -> list[Node]:
    """Return sessions in the order in which they are drawn: forks under their parents, the oldest first."""
    listed = list(infos)
    below: dict[str, list[SessionInfo]] = {}
    for info in sorted(listed, key=lambda info: (info.created, info.id)):
        if info.id in parents:
            below.setdefault(parents[info.id], []).append(info)
    done: set[str] = set()
    nodes: list[Node] = []
    # Sessions that are each other's parents would be under no root: the first of them is taken for one.
    for root in [*(info for info in listed if info.id not in parents), *listed]:
        if root.id not in done:
            nodes += _tree(root, below, done, pens, deepest)
    return nodes


def _tree(
    root: "SessionInfo",
    below: "Mapping[str, list[SessionInfo]]",
    done: set[str],
    pens: Pens,
    deepest: int,
) -> list[Node]:
    nodes = []
    #: The session, its depth, what is drawn before it, and what goes on before those under it.
    waiting: list[tuple[SessionInfo, int, str, str]] = [(root, 0, "", "")]
    step = len(pens.branch)
    while waiting:
        info, depth, drawn, margin = waiting.pop()
        if info.id in done:
            continue
        done.add(info.id)
        left_out = f"{pens.dots} " if depth > deepest else ""
        orphan = depth == 0 and info.parent is not None
        nodes.append(Node(info, depth, left_out + drawn, orphan))
        under = below.get(info.id, [])
        margin = margin[-step * (deepest - 1) :] if deepest > 1 else ""
        for place, fork in reversed(list(enumerate(under))):
            last = place == len(under) - 1
            waiting.append(
                (
                    fork,
                    depth + 1,
                    margin + (pens.last if last else pens.branch),
                    margin + (pens.nothing if last else pens.past),
                )
            )
    return nodes


def lineage(
    named: Iterable[str], infos: "Iterable[SessionInfo]", parents: Mapping[str, str]
) -> "list[SessionInfo]":
    """Return the sessions that share a root with one of those that are named, sorted by id."""
    roots = _rooted(parents)
    wanted = {roots(session_id) for session_id in named}
    return sorted((info for info in infos if roots(info.id) in wanted), key=lambda info: info.id)


def _rooted(parents: Mapping[str, str]) -> Callable[[str], str]:
    """Return what finds a session's root, and walks no way twice."""
    known: dict[str, str] = {}

    def root(session_id: str) -> str:
        way = []
        on_it = set()
        while session_id in parents and session_id not in known and session_id not in on_it:
            way.append(session_id)
            on_it.add(session_id)
            session_id = parents[session_id]
        found = known.get(session_id, session_id)
        known.update(dict.fromkeys(way, found))
        return found

    return root
