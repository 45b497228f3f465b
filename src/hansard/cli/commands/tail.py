"""`hansard tail`: the last events of a session, or of all; -f waits for more."""

from typing import TYPE_CHECKING

import click

from hansard.cli import stores
from hansard.cli.command import Call, define, markdown_option
from hansard.cli.telling import Teller, event_json

if TYPE_CHECKING:
    from hansard import Event


@define(
    "tail",
    examples=[
        "tail support/42",
        "tail -f support/42  # and whatever comes, until Ctrl-C",
        "tail -f  # whatever comes in any session",
        "tail -n 100 support/42 --json | jq -c .kind",
    ],
)
@click.argument("session_id", metavar="[ID]", required=False, type=stores.SESSION)
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="How many events that are there already.",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more events, until Ctrl-C.")
@click.option("--prefix", default="", metavar="TEXT", help="Only sessions whose ids begin so.")
@click.option("--full", is_flag=True, help="Shorten nothing.")
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
    """Show the last events of a session, or of all; -f waits for more.

    With --json: one event per line, with the session that it belongs to.
    """
    if session_id is None and not follow:
        raise click.UsageError("name a session, or say -f to follow all of them")
    teller = Teller(call.screen, full=full, markdown=markdown)

    def tell(event: "Event", session: str, *, named: bool) -> None:
        if call.screen.json:
            call.screen.record(event_json(event, session=session))
        else:
            teller.event(event, session=session if named else "")
        if follow or call.screen.terminal:
            call.screen.flush()

    with stores.reading(call) as store:
        if session_id is None:
            with store.follow(prefix=prefix, from_now=True) as follower:
                for followed in follower:
                    tell(followed.event, followed.session, named=True)
            return
        session = stores.session_of(store, session_id)
        after = max(session.seq - lines, 0)
        for event in session.events(after=after, follow=follow):
            tell(event, session_id, named=False)
        teller.end()
