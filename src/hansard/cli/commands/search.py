"""`hansard search`: search messages and titles."""

from typing import Any

import click

import hansard
from hansard.cli import arguments
from hansard.cli.command import FAILED, Call, define, session_of
from hansard.cli.render import style_of
from hansard.cli.screen import Piece, cell, many


@define(
    "search",
    "search refund order  # both words, ignoring case and accents",
    "search '\"my order\"'  # a phrase",
    "search 'refun* OR return'",
    "search refund --prefix support/ --role user --since 2d",
    "search 'refund -order'  # or: search refund NOT order",
    "search refund --json | jq -r .session",
    paged=True,
)
@click.argument("words", metavar="TEXT...", nargs=-1, required=True)
@arguments.prefix_option
@click.option(
    "--session", type=arguments.SESSION, help="Only this session, inherited messages included"
)
@click.option("--since", type=arguments.MOMENT, help="Only messages since TIME, such as 2d")
@click.option("--until", type=arguments.MOMENT, help="Only messages before TIME")
@click.option("--role", metavar="ROLE", help="Only messages of this role, such as user")
@arguments.count_option("-n", "--limit", default=20, least=1, help="Maximum hits")
def command(call: Call, words: tuple[str, ...], session: str | None, **filters: Any) -> int | None:
    """Search messages and titles.

    The best hits come first. The first search reads every session and keeps an index in the store; later ones
    read only what is new.

    With --json: one hit per line. Exit 1 if nothing is found.
    """
    text = " ".join(words)
    with call.finding() as store:
        if session is not None:
            session = session_of(store, session).id
        with call.screen.progress("reading events", "events", least=2_000) as progress:
            hits = store.search(text, session=session, progress=progress, **filters)
        damaged = store.count(prefix=filters["prefix"], damaged=True) if session is None else 0
    for hit in hits:
        if call.screen.json:
            call.screen.record(hit)
        else:
            place = f":{hit.seq or 'title'}: "
            said = [(f"{cell(hit.role)}: ", style_of(hit.role))] if hit.role else []
            call.screen.line((cell(hit.session), "bold"), place, *said, *_marked(hit))
    if call.screen.terminal and hits:
        first = next((hit for hit in hits if hit.seq), hits[0])
        point = ("--from", first.seq) if first.seq else ()
        read_on = call.again("replay" if point else "show", first.session, *point)
        call.screen.hint(f"{many(len(hits), 'hit')}. To read on: {read_on}")
    call.screen.damaged(damaged, ", and not searched")
    if hits:
        return None
    hint = "" if "*" in text else "; only complete words match: `refun*` finds refund and refunds"
    call.screen.note(f"nothing found for {text!r}{hint}")
    return FAILED


def _marked(hit: "hansard.Hit") -> list[Piece]:
    """Return a snippet with its matches highlighted."""
    pieces: list[Piece] = []
    done = 0
    for start, end in hit.matches:
        pieces += [cell(hit.snippet[done:start]), (cell(hit.snippet[start:end]), "bold reverse")]
        done = end
    return [*pieces, cell(hit.snippet[done:])]
