"""`hansard tail`: show the latest events."""

import click

from hansard.cli import arguments
from hansard.cli.command import (
    Call,
    count_option,
    define,
    full_option,
    markdown_option,
    prefix_option,
    session_of,
)
from hansard.cli.render import EventPrinter


@define(
    "tail",
    "tail support/42",
    "tail -f support/42  # and new events, until Ctrl-C",
    "tail -f  # new events of all sessions",
    "tail -n 100 support/42 --json | jq -c .kind",
)
@click.argument("session_id", metavar="[ID]", required=False, type=arguments.SESSION)
@count_option("-n", "--lines", default=10, help="Number of past events")
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
    with call.reading() as store:
        if session_id is None:
            with store.follow(prefix=prefix, from_now=True) as follower:
                for followed in follower:
                    printer.output(followed.event, followed.session, named=True)
                    call.screen.flush()
            return
        session = session_of(store, session_id)
        events = session.events(after=max(session.seq - lines, 0), follow=follow)
        if not follow:
            shown = list(events)
            if any(event.kind == "message.part" for event in shown):
                printer.unfinished = session.state().streams
            events = iter(shown)
        for event in events:
            printer.output(event, session_id)
            if follow or call.screen.terminal:
                call.screen.flush()
        printer.end()
