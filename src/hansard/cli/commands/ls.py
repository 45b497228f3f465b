"""`hansard ls` and `hansard tree`: sessions with filters, in any order, page by page; forks as trees.

In a tree, a session stands under the one that it was forked from, if that one is listed too. Nothing here
calls itself: a chain of forks may be as long as it likes.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from hansard.cli import arguments, columns, stores
from hansard.cli.columns import Row
from hansard.cli.command import Call, define
from hansard.cli.faults import FAILED
from hansard.cli.screen import Pens, Screen, many

if TYPE_CHECKING:
    from hansard import SessionInfo, Store

#: So many lines a person looks at, on a terminal, unless told otherwise.
_SCREENFUL: Final = 50

#: What a listing can be sorted by, and the order of the library for it: of times and amounts, the latest and
#: the largest first.
_ORDERS: Final = {
    "id": "id",
    "title": "title",
    "created": "-created",
    "updated": "-updated",
    "messages": "-message_count",
    "size": "-bytes",
    "tokens": "-tokens",
    "cost": "-cost",
}

#: So many damaged sessions are named one by one.
_NAMED: Final = 5

#: A tree that is deeper is drawn without its first levels, or each line would be longer than the last.
_DEEPEST: Final = 40


@define(
    "ls",
    examples=[
        "ls  # the newest first",
        "ls --prefix support/ --where user=u7 --since 2d",
        "ls --sort size --limit 10",
        "ls --tree  # forks under what they were forked from",
        "ls --columns id,messages,cost,meta.user --sort cost",
        "ls --damaged",
        "ls --json | jq -r 'select(.message_count > 100).id'",
    ],
)
@click.option("--prefix", default="", metavar="TEXT", help="Only sessions whose ids begin so.")
@click.option(
    "--where",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only those with these metadata; the value is JSON, or else text; null: that have no such "
    "member. May be given again.",
)
@click.option(
    "--since", type=arguments.MOMENT, help="Only where something happened since: a time, or 2d."
)
@click.option(
    "--until", type=arguments.MOMENT, help="Only where nothing happened since: a time, or 2d."
)
@click.option("--title", default="", metavar="TEXT", help="Only those with this in their titles.")
@click.option("--workspace", metavar="PATH", help="Only those that belong to this folder.")
@click.option(
    "--parent", type=stores.SESSION, metavar="ID", help="Only those that were forked from this one."
)
@click.option("--archived", is_flag=True, help="Only those that were archived.")
@click.option("-a", "--all", "everything", is_flag=True, help="Those that were archived, too.")
@click.option("--damaged", is_flag=True, help="Only those that cannot be read.")
@click.option(
    "--sort",
    type=click.Choice(list(_ORDERS)),
    help="By what; of times and amounts, the latest and the largest first. [default: updated]",
)
@click.option("-r", "--reverse", is_flag=True, help="The other way round.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"At most so many; 0: all. [default: {_SCREENFUL} on a terminal, else all]",
)
@click.option("--cursor", metavar="TEXT", help="Go on after a page: what it has ended with.")
@click.option(
    "--columns",
    "names",
    type=columns.Names(),
    metavar="NAMES",
    help=f"What to show, with commas: {', '.join(columns.COLUMNS)}, and meta.KEY for metadata.",
)
@click.option("--tree", is_flag=True, help="Draw forks under what they were forked from.")
@click.option("--count", is_flag=True, help="Only say how many there are.")
def ls(
    call: Call,
    where: tuple[str, ...],
    sort: str | None,
    limit: int | None,
    cursor: str | None,
    names: tuple[str, ...] | None,
    *,
    archived: bool,
    everything: bool,
    damaged: bool,
    reverse: bool,
    tree: bool,
    count: bool,
    **filters: Any,
) -> int | None:
    """List sessions: which ones, whose, when.

    Those that were archived are left out unless you ask for them. On a terminal, columns are shortened or
    left out until a line fits; in a pipe every value is there in full. If there are more than --limit, the
    last line says how to go on; in a pipe it is on stderr.

    With --json: one session per line; with --count, one document. Exit 1 if a session that is listed is
    damaged.
    """
    _check(tree=tree, count=count, paged=bool(limit or cursor), sort=sort, reverse=reverse)
    filters["where"] = dict(_condition(words) for words in where)
    filters["archived"] = True if archived else None if everything or damaged else False
    filters["damaged"] = True if damaged else None
    with stores.finding(call) as store:
        if filters["parent"] is not None:
            stores.session_of(store, filters["parent"])
        if count:
            found = store.count(**filters)
            call.screen.document({"count": found})
            call.screen.line(str(found))
            return None
        if limit is None and call.screen.terminal and not tree:
            limit = _SCREENFUL
        with call.screen.progress_if_slow("reading sessions", unit="sessions") as progress:
            page = store.sessions(
                **filters,
                order=_order(sort or "updated", reverse=reverse),
                limit=limit or None,
                cursor=cursor,
                progress=progress,
            )
        rows = [Row(info) for info in page.items]
        if tree:
            parents = related(store, page.items)
            rows = [_row(node) for node in forest(page.items, parents, *_room(call.screen))]
        hidden = 0
        if call.screen.terminal and filters["archived"] is False:
            hidden = store.count(**{**filters, "archived": True})
    if not rows and call.screen.terminal:
        call.screen.line(("no sessions", "dim"))
    shown = names or (columns.IN_TREES if tree else columns.USUAL)
    _show(call.screen, rows, shown, asked=bool(names))
    if page.next is not None:
        _remark(call, f"there are more; for these, the same with --cursor {page.next}")
    if hidden:
        _remark(call, f"{many(hidden, 'archived session')} not shown; --all shows them, too")
    return _tell_damaged(call, page.items)


def _check(*, tree: bool, count: bool, paged: bool, sort: str | None, reverse: bool) -> None:
    """Refuse words that contradict each other."""
    if tree and count:
        raise click.UsageError("--tree and --count do not go together")
    if tree and paged:
        raise click.UsageError("--tree does not go together with --limit or --cursor")
    if count and (paged or sort or reverse):
        raise click.UsageError("--count does not go together with --sort, --limit or --cursor")


def _condition(words: str) -> tuple[str, Any]:
    key, sign, value = words.partition("=")
    if not sign or not key:
        raise click.UsageError(f"--where {words}: say KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _order(sort: str, *, reverse: bool) -> str:
    order = _ORDERS[sort]
    if not reverse:
        return order
    return order[1:] if order[0] == "-" else f"-{order}"


def _row(node: "Node", gone: str = "", *, named: bool = False) -> Row:
    """Return the line of a session in a tree. `gone`: what became of a parent that is not above it."""
    mark = f"fork of {node.info.parent}{gone}" if node.orphan else ""
    return Row(node.info, node.drawn, mark, named, node.depth)


def _show(screen: Screen, rows: list[Row], names: tuple[str, ...], *, asked: bool) -> None:
    if not screen.json:
        columns.show(screen, rows, names, asked=asked)
        return
    import msgspec

    for row in rows:
        screen.record({**msgspec.structs.asdict(row.info), "depth": row.depth})


def _remark(call: Call, text: str) -> None:
    """Say something about a listing: below it on a terminal, else where no program takes it for a session."""
    if call.screen.terminal:
        call.screen.whole((text, "dim"))
    else:
        call.screen.note(text)


def _tell_damaged(call: Call, infos: "list[SessionInfo]") -> int | None:
    """Say on stderr which of the sessions that were listed are damaged; return the exit code."""
    damaged = [info for info in infos if info.damaged]
    for info in damaged[:_NAMED]:
        call.screen.note(f"{info.id} is damaged: {info.damaged}")
    if len(damaged) > _NAMED:
        rest = many(len(damaged) - _NAMED, "more session is", "more sessions are")
        call.screen.note(f"{rest} damaged; `hansard ls --damaged` lists them")
    return FAILED if damaged else None


@define(
    "tree",
    examples=[
        "tree support/42  # where it comes from, and what was forked from it",
        "tree --all",
        "tree support/42 --json | jq -r '[.depth, .id, .forked_at] | @tsv'",
    ],
)
@click.argument("session_ids", metavar="[ID]...", nargs=-1, type=stores.SESSION)
@click.option("--all", "everything", is_flag=True, help="Draw all sessions of the store.")
def tree(call: Call, session_ids: tuple[str, ...], *, everything: bool) -> int | None:
    """Draw where sessions come from, and what was forked from them.

    The tree begins with the session from which all others were forked; `at` is the seq of the one above at
    which a fork begins. Forks of a session that is in the trash stand alone, and say so.

    With --json: one session per line, in the order of the drawing, with its depth. Exit 1 if one of them is
    damaged.
    """
    if everything == bool(session_ids):
        raise click.UsageError("name the sessions to draw, or say --all")
    with stores.finding(call) as store:
        for session_id in session_ids:
            stores.session_of(store, session_id)
        with call.screen.progress_if_slow("reading sessions", unit="sessions") as progress:
            known = store.sessions(progress=progress).items
        parents = related(store, known)
        infos = known if everything else lineage(session_ids, known, parents)
        nodes = forest(infos, parents, *_room(call.screen))
        trash = set(store.trash()) if any(node.orphan for node in nodes) else set[str]()
    rows = []
    for node in nodes:
        gone = ", which is in the trash" if node.info.parent in trash else ", which is gone"
        rows.append(_row(node, gone, named=node.info.id in session_ids))
    _show(call.screen, rows, columns.IN_TREES, asked=False)
    drawn = {info.id for info in infos}
    lost = sum(bool(i.damaged) and i.parent is None and i.id not in drawn for i in known)
    if lost:
        call.screen.note(
            f"{many(lost, 'damaged session is', 'damaged sessions are')} not drawn: what they were forked "
            "from, if at all, cannot be read; `hansard ls --damaged` lists them"
        )
    return _tell_damaged(call, infos)


class Node(NamedTuple):
    """A session in a tree."""

    info: "SessionInfo"
    #: How many sessions it is away from the root.
    depth: int
    #: What is drawn before its id.
    drawn: str
    #: Whether it was forked from a session that is not above it.
    orphan: bool


def _room(screen: Screen) -> tuple[Pens, int]:
    """Return what to draw with, and how many levels have room: on a terminal, in a third of its width."""
    deepest = max(min(screen.width // 9, _DEEPEST), 1) if screen.terminal else _DEEPEST
    return screen.pens, deepest


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
    infos: "Iterable[SessionInfo]", parents: Mapping[str, str], pens: Pens, deepest: int
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
