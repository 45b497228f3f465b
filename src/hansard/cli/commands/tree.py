"""`hansard tree`: the lineage of a session, drawn."""

import click

from hansard.cli import columns, drawing, lineages, stores
from hansard.cli.columns import Row
from hansard.cli.command import Call, define
from hansard.cli.commands.ls import tell_damaged
from hansard.cli.screen import many


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
def command(call: Call, session_ids: tuple[str, ...], *, everything: bool) -> int | None:
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
        parents = lineages.related(store, known)
        infos = known if everything else lineages.lineage(session_ids, known, parents)
        nodes = lineages.forest(
            infos, parents, drawing.pens(), deepest=lineages.deepest(call.screen)
        )
        trash = set(store.trash()) if any(node.orphan for node in nodes) else set[str]()
    rows = []
    for node in nodes:
        if call.screen.json:
            call.screen.record(lineages.record(node.info, node.depth))
            continue
        mark = lineages.origin(node) if node.orphan else ""
        if node.orphan:
            mark += ", which is in the trash" if node.info.parent in trash else ", which is gone"
        rows.append(Row(node.info, node.drawn, mark, node.info.id in session_ids))
    if not call.screen.json:
        columns.show(call.screen, rows, columns.IN_TREES, asked=False)
    drawn = {info.id for info in infos}
    lost = sum(bool(i.damaged) and i.parent is None and i.id not in drawn for i in known)
    if lost:
        call.screen.note(
            f"{many(lost, 'damaged session is', 'damaged sessions are')} not drawn: what they were forked "
            "from, if at all, cannot be read; `hansard ls --damaged` lists them"
        )
    return tell_damaged(call, infos)
