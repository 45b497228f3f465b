"""`hansard ls`: the sessions of a store, with filters, in any order, page by page."""

import json
from typing import TYPE_CHECKING, Any, Final

import click

from hansard.cli import columns, drawing, lineages, moments, stores
from hansard.cli.columns import Row
from hansard.cli.command import Call, define
from hansard.cli.faults import FAILED
from hansard.cli.screen import many

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
    "--since", type=moments.MOMENT, help="Only where something happened since: a time, or 2d."
)
@click.option(
    "--until", type=moments.MOMENT, help="Only where nothing happened since: a time, or 2d."
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
def command(
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
            _count(call, store, filters)
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
        rows = _drawn(call, store, page.items) if tree else [(0, Row(i)) for i in page.items]
        hidden = 0
        if call.screen.terminal and filters["archived"] is False:
            hidden = store.count(**{**filters, "archived": True})
    _show(call, rows, names or (columns.IN_TREES if tree else columns.USUAL), asked=bool(names))
    if page.next is not None:
        _remark(call, f"there are more; for these, the same with --cursor {page.next}")
    if hidden:
        _remark(call, f"{many(hidden, 'archived session')} not shown; --all shows them, too")
    return tell_damaged(call, page.items)


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


def _count(call: Call, store: "Store", filters: dict[str, Any]) -> None:
    found = store.count(**filters)
    if call.screen.json:
        call.screen.document({"count": found})
    else:
        call.screen.line(str(found))


def _drawn(call: Call, store: "Store", infos: "list[SessionInfo]") -> list[tuple[int, Row]]:
    nodes = lineages.forest(
        infos, lineages.related(store, infos), drawing.pens(), deepest=lineages.deepest(call.screen)
    )
    return [
        (node.depth, Row(node.info, node.drawn, lineages.origin(node) if node.orphan else ""))
        for node in nodes
    ]


def _show(call: Call, rows: list[tuple[int, Row]], names: tuple[str, ...], *, asked: bool) -> None:
    if call.screen.json:
        for depth, row in rows:
            call.screen.record(lineages.record(row.info, depth))
        return
    if not rows and call.screen.terminal:
        call.screen.line(("no sessions", "dim"))
        return
    columns.show(call.screen, [row for _, row in rows], names, asked=asked)


def _remark(call: Call, text: str) -> None:
    """Say something about a listing: below it on a terminal, else where no program takes it for a session."""
    if call.screen.terminal:
        drawing.whole(call.screen, (text, "dim"))
    else:
        call.screen.note(text)


def tell_damaged(call: Call, infos: "list[SessionInfo]") -> int | None:
    """Say on stderr which of the sessions that were listed are damaged; return the exit code."""
    damaged = [info for info in infos if info.damaged]
    for info in damaged[:_NAMED]:
        call.screen.note(f"{info.id} is damaged: {info.damaged}")
    if len(damaged) > _NAMED:
        rest = many(len(damaged) - _NAMED, "more session is", "more sessions are")
        call.screen.note(f"{rest} damaged; `hansard ls --damaged` lists them")
    return FAILED if damaged else None
