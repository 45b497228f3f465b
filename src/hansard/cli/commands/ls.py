"""`hansard ls` and `hansard tree`: list sessions, and show forks as trees.

In a tree, a fork is under its parent, if that is listed too. Nothing here is recursive: a chain of forks can
be long.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

import hansard
from hansard.cli import arguments, table
from hansard.cli.command import FAILED, PATH, Call, check_targets, define, session_of
from hansard.cli.screen import Screen, many
from hansard.cli.table import Row

#: Default --limit on a terminal.
_SCREENFUL: Final = 50

#: Sort keys, and the orders of the library: times and numbers descending.
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

#: Sessions from which on a progress bar is shown.
_SLOW: Final = 200

#: Maximum damaged sessions that are named.
_NAMED: Final = 5

#: Levels of a tree that are drawn; deeper lines omit the first levels.
_DEEPEST: Final = 40

#: Lines of a tree: to a fork, to the last fork, past other forks.
_BRANCH: Final = "├─ "
_LAST: Final = "└─ "
_PAST: Final = "│  "


@define(
    "ls",
    "ls  # latest first",
    "ls --prefix support/ --where user=u7 --since 2d",
    "ls --sort size --limit 10",
    "ls --tree  # forks under their parents",
    "ls --damaged",
    "ls --json | jq -r 'select(.message_count > 100).id'",
    paged=True,
)
@arguments.prefix_option
@click.option(
    "--where", multiple=True, type=arguments.METADATA, help="Filter by metadata; null: key absent"
)
@click.option("--since", type=arguments.MOMENT, help="Only sessions active since TIME")
@click.option("--until", type=arguments.MOMENT, help="Only sessions inactive since TIME")
@click.option("--title", default="", help="Only titles containing TEXT")
@click.option("--workspace", metavar="PATH", type=PATH, help="Only sessions of this directory")
@click.option("--parent", type=arguments.SESSION, help="Only forks of this session")
@click.option("--archived", is_flag=True, help="Only archived sessions")
@click.option("-a", "--all", "everything", is_flag=True, help="Include archived sessions")
@click.option("--held", is_flag=True, default=None, help="Only sessions under a legal hold")
@click.option("--damaged", is_flag=True, default=None, help="Only damaged sessions")
@click.option(
    "--sort",
    type=click.Choice(list(_ORDERS)),
    help="Sort key; times and numbers descending [default: updated]",
)
@click.option("-r", "--reverse", is_flag=True, help="Reverse the order")
@arguments.count_option(
    "-n",
    "--limit",
    help=f"Maximum sessions; 0: all [default: {_SCREENFUL} on a terminal, else all]",
)
@click.option("--cursor", help="Page token to continue from")
@click.option("--tree", is_flag=True, help="Show forks under their parents")
def ls(
    call: Call,
    where: tuple[tuple[str, Any], ...],
    sort: str | None,
    limit: int | None,
    cursor: str | None,
    *,
    archived: bool,
    everything: bool,
    reverse: bool,
    tree: bool,
    **filters: Any,
) -> int | None:
    """List sessions.

    Archived sessions are omitted by default. On a terminal, columns are shortened or omitted to fit; a pipe
    gets every value in full. If there are more than --limit, the last line shows how to continue; in a pipe,
    on stderr.

    With --json: one session per line. Exit 1 if a listed session is damaged.
    """
    screen = call.screen
    if tree and (limit or cursor):
        raise click.UsageError("--tree excludes --limit and --cursor")
    filters["where"] = dict(where)
    everything = everything or filters["damaged"] or filters["held"]
    filters["archived"] = True if archived else None if everything else False
    order = _ORDERS[sort or "updated"]
    if reverse:
        order = order[1:] if order[0] == "-" else f"-{order}"
    with call.finding() as store:
        if filters["parent"] is not None:
            filters["parent"] = session_of(store, filters["parent"]).id
        if limit is None and screen.terminal and not tree:
            limit = _SCREENFUL
        with screen.progress("reading sessions", "sessions", least=_SLOW) as progress:
            page = store.sessions(
                **filters, order=order, limit=limit or None, cursor=cursor, progress=progress
            )
        rows = [Row(info) for info in page.items]
        if tree:
            rows = forest(page.items, related(store, page.items), _levels(screen))
        # On a terminal, count the archived sessions that are omitted.
        counted = screen.terminal and filters["archived"] is False
        hidden = store.count(**{**filters, "archived": True}) if counted else 0
    names = table.IN_TREES if tree else table.USUAL
    _show(screen, rows, names if sort in {None, *names} else (*names, str(sort)))
    if page.next is not None:
        screen.hint(f"more sessions: repeat with --cursor {page.next}")
    if hidden:
        screen.hint(f"{many(hidden, 'archived session')} not shown; pass --all")
    return _report_damaged(screen, page.items)


def _show(screen: Screen, rows: list[Row], names: tuple[str, ...]) -> None:
    if not screen.json:
        table.show(screen, rows, names)
        return
    import msgspec

    for row in rows:
        screen.record({**msgspec.structs.asdict(row.info), "depth": row.depth})


def _report_damaged(screen: Screen, infos: "list[hansard.SessionInfo]") -> int | None:
    """Name the damaged sessions on stderr; return the exit code."""
    damaged = [info for info in infos if info.damaged]
    for info in damaged[:_NAMED]:
        screen.note(f"{info.id} is damaged: {info.damaged}")
    if len(damaged) > _NAMED:
        rest = many(len(damaged) - _NAMED, "more session is", "more sessions are")
        screen.note(f"{rest} damaged; `hansard ls --damaged` lists them")
    return FAILED if damaged else None


@define(
    "tree",
    "tree support/42  # its ancestors and forks",
    "tree --all",
    "tree support/42 --json | jq -r '[.depth, .id, .forked_at] | @tsv'",
    paged=True,
)
@arguments.sessions_argument
@click.option("--all", "everything", is_flag=True, help="Show all sessions")
def tree(call: Call, session_ids: tuple[str, ...], *, everything: bool) -> int | None:
    """Show forks as a tree.

    Starts at the common ancestor; `at` is the seq of the parent where a fork begins. Forks of a session in
    the trash are shown separately, and marked.

    With --json: one session per line, in the order of the tree, with its depth. Exit 1 if a session is
    damaged.
    """
    check_targets(session_ids, "show", everything=everything)
    screen = call.screen
    with call.finding() as store:
        session_ids = tuple(session_of(store, session_id).id for session_id in session_ids)
        with screen.progress("reading sessions", "sessions", least=_SLOW) as progress:
            known = store.sessions(progress=progress).items
        parents = related(store, known)
        rows = forest(known, parents, _levels(screen))
        if not everything:
            rows = _trees_of(session_ids, rows)
        trash = set(store.trash()) if any(row.mark for row in rows) else set[str]()
    for place, row in enumerate(rows):
        missing = ", which is in the trash" if row.info.parent in trash else ", which is missing"
        mark = row.mark + missing if row.mark else ""
        rows[place] = row._replace(mark=mark, named=row.info.id in session_ids)
    _show(screen, rows, table.IN_TREES)
    infos = [row.info for row in rows]
    drawn = {info.id for info in infos}
    lost = sum(bool(i.damaged) and i.parent is None and i.id not in drawn for i in known)
    if lost:
        screen.note(
            f"{many(lost, 'damaged session is', 'damaged sessions are')} not shown, because their "
            "parents are unknown; `hansard ls --damaged` lists them"
        )
    return _report_damaged(screen, infos)


def _levels(screen: Screen) -> int:
    """Return the levels that fit in a third of a terminal's width."""
    return max(min(screen.width // 9, _DEEPEST), 1) if screen.terminal else _DEEPEST


def related(store: "hansard.Store", infos: "Iterable[hansard.SessionInfo]") -> dict[str, str]:
    """Return the parent of each session, if it is among those given, by id."""
    known = {info.id: info for info in infos}
    parents = {}
    for info in known.values():
        above = known.get(info.parent) if info.parent is not None else None
        if above is None:
            continue
        # A parent younger than its fork is another session with a reused id, or the clock was set back: ask
        # the log.
        earlier = not info.created_stamp or above.created_stamp <= info.created_stamp
        if earlier or (not above.damaged and info.id in store.session(above.id).children()):
            parents[info.id] = above.id
    return parents


def forest(
    infos: "Iterable[hansard.SessionInfo]", parents: Mapping[str, str], deepest: int
) -> list[Row]:
    """Return sessions in the order of the tree: forks under their parents, oldest first."""
    listed = list(infos)
    below: dict[str, list[hansard.SessionInfo]] = {}
    for info in sorted(listed, key=lambda info: (info.created_stamp, info.id)):
        if info.id in parents:
            below.setdefault(parents[info.id], []).append(info)
    done: set[str] = set()
    rows: list[Row] = []
    # A cycle of parents has no root: its first session becomes one.
    for root in [*(info for info in listed if info.id not in parents), *listed]:
        #: The session, its depth, the lines before it, and the margin of its forks.
        waiting: list[tuple[hansard.SessionInfo, int, str, str]] = [(root, 0, "", "")]
        while waiting:
            info, depth, drawn, margin = waiting.pop()
            if info.id in done:
                continue
            done.add(info.id)
            drawn = f"… {drawn}" if depth > deepest else drawn
            mark = f"fork of {info.parent}" if depth == 0 and info.parent is not None else ""
            rows.append(Row(info, drawn, mark, depth=depth))
            margin = margin[-len(_BRANCH) * (deepest - 1) :] if deepest > 1 else ""
            line, past = _LAST, " " * len(_LAST)
            for fork in reversed(below.get(info.id, [])):
                waiting.append((fork, depth + 1, margin + line, margin + past))
                line, past = _BRANCH, _PAST
    return rows


def _trees_of(named: Iterable[str], rows: list[Row]) -> list[Row]:
    """Return the trees that contain a named session."""
    trees: list[list[Row]] = []
    for row in rows:
        if row.depth == 0:
            trees.append([])
        trees[-1].append(row)
    wanted = set(named)
    return [row for tree in trees if any(r.info.id in wanted for r in tree) for row in tree]
