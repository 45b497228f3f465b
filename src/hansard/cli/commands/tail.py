"""`hansard tail`: show the latest events."""

from typing import TYPE_CHECKING

import click

from hansard.cli import arguments
from hansard.cli.command import (
    Call,
    define,
    full_option,
    markdown_option,
    prefix_option,
    session_of,
)
from hansard.cli.render import EventPrinter, event_json

if TYPE_CHECKING:
    from hansard import Event


@define(
    "tail",
    examples=[
        "tail support/42",
        "tail -f support/42  # and new events, until Ctrl-C",
        "tail -f  # new events of all sessions",
        "tail -n 100 support/42 --json | jq -c .kind",
    ],
)
@click.argument("session_id", metavar="[ID]", required=False, type=arguments.SESSION)
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of past events",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more events until Ctrl-C")
@prefix_option
@full_option
@markdown_option
def command(
    call: Call,
    session_id: str | None,
    lines: int,
    prefix: str,
    *,
    follow: bool,
    full: bool,
    markdown: bool,
) -> None:
    """Show the latest events; -f to follow.

    With --json: one event per line, with its session.
    """
    if session_id is None and not follow:
        raise click.UsageError("name a session, or pass -f to follow all")
    printer = EventPrinter(call.screen, full=full, markdown=markdown)

    def tell(event: "Event", session: str, *, named: bool) -> None:
        if call.screen.json:
            call.screen.record(event_json(event, session=session))
        else:
            printer.event(event, session=session if named else "")
        if follow or call.screen.terminal:
            call.screen.flush()

    with call.reading() as store:
        if session_id is None:
            with store.follow(prefix=prefix, from_now=True) as follower:
                for followed in follower:
                    tell(followed.event, followed.session, named=True)
            return
        session = session_of(store, session_id)
        after = max(session.seq - lines, 0)
        for event in session.events(after=after, follow=follow):
            tell(event, session_id, named=False)
        printer.end()
