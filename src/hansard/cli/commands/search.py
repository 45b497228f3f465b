"""`hansard search`: search messages and titles."""

import shlex
from typing import Any

import click

import hansard
from hansard import clock
from hansard.cli import arguments
from hansard.cli.command import FAILED, Call, count_option, define, prefix_option, session_of
from hansard.cli.render import ROLES
from hansard.cli.screen import Piece, cell, many


@define(
    "search",
    "search refund order  # both words, ignoring case and accents",
    "search '\"my order\"'  # a phrase",
    "search 'refun* OR return'",
    "search refund --prefix support/ --role user --since 2d",
    "search 'refund -order'  # or: search refund NOT order",
    "search refund --json | jq -r .session",
)
@click.argument("words", metavar="TEXT...", nargs=-1, required=True)
@prefix_option
@click.option(
    "--session",
    "session_id",
    type=arguments.SESSION,
    metavar="ID",
    help="Only this session, inherited messages included",
)
@click.option("--since", type=arguments.MOMENT, help="Only messages since TIME, such as 2d")
@click.option("--until", type=arguments.MOMENT, help="Only messages before TIME")
@click.option("--role", metavar="ROLE", help="Only messages of this role, such as user")
@count_option("-n", "--limit", default=20, least=1, help="Maximum hits")
@click.option("--no-index", is_flag=True, help="Write nothing: read all logs for this search")
def command(
    call: Call,
    words: tuple[str, ...],
    session_id: str | None,
    limit: int,
    *,
    no_index: bool,
    **filters: Any,
) -> int | None:
    """Search messages and titles.

    The best hits come first. The first search reads every session and keeps an index in the store; later ones
    read only what is new.

    With --json: one hit per line. Exit 1 if nothing is found.
    """
    text = " ".join(words)
    with call.reading() if no_index else call.finding() as store:
        if session_id is not None:
            session_of(store, session_id)
        with call.screen.progress("reading events", unit="events", least=2_000) as progress:
            hits = store.search(text, session=session_id, limit=limit, progress=progress, **filters)
        damaged = store.count(prefix=filters["prefix"], damaged=True) if session_id is None else 0
    if call.screen.json:
        for hit in hits:
            call.screen.record(hit)
    elif call.screen.terminal:
        _show(call, hits, limit)
    else:
        for hit in hits:
            role_of = f"{cell(hit.role)}: " if hit.role else ""
            call.screen.line(f"{cell(hit.session)}:{_place(hit)}: {role_of}{cell(hit.snippet)}")
    call.screen.damaged(damaged, " and were not searched")
    if hits:
        return None
    hint = "" if "*" in text else "; only complete words match: `refun*` finds refund and refunds"
    call.screen.note(f"nothing found for {text!r}{hint}")
    return FAILED


def _place(hit: "hansard.Hit") -> str:
    return str(hit.seq) if hit.seq else "title"


def _show(call: Call, hits: "list[hansard.Hit]", limit: int) -> None:
    """Print each hit with its matches, and a command to read on."""
    at = clock.now()
    for hit in hits:
        head: list[Piece] = [(cell(hit.session), "bold"), (f"  {_place(hit)}", "cyan")]
        if hit.role:
            head += ["  ", (cell(hit.role), ROLES.get(hit.role, "bold"))]
        head.append((f"  {arguments.ago(hit.time, at)}", "dim"))
        if hit.title and hit.seq:
            head.append((f"  “{cell(hit.title)}”", "dim italic"))
        call.screen.line(*head)
        call.screen.line(*_marked(hit), indent=4)
    if not hits:
        return
    first = next((hit for hit in hits if hit.seq), None)
    found = many(len(hits), "hit")
    if len(hits) == limit:
        found += "; there may be more: --limit"
    on = (
        f"hansard show {shlex.quote(hits[0].session)}"
        if first is None
        else f"hansard replay {shlex.quote(first.session)} --from {first.seq}"
    )
    call.screen.hint(f"{found}. To read on: {on}")


def _marked(hit: "hansard.Hit") -> list[Piece]:
    """Return a snippet with its matches highlighted."""
    pieces: list[Piece] = []
    done = 0
    for start, end in hit.matches:
        pieces += [cell(hit.snippet[done:start]), (cell(hit.snippet[start:end]), "bold reverse")]
        done = end
    return [*pieces, cell(hit.snippet[done:])]
