"""`hansard show`: show a session's state and messages."""

from typing import Literal

import click

from hansard.cli import arguments
from hansard.cli.command import Call, count_option, define, full_option, markdown_option, session_of
from hansard.cli.render import EventPrinter, show_state
from hansard.cli.screen import many, size


@define(
    "show",
    "show support/42",
    "show support/42 --last 5  # the last messages that a model sees",
    "show support/42 --view history  # with reverted and summarized messages",
    "show support/42 --json | jq '.messages[-1]'",
)
@arguments.session_argument
@count_option("-n", "--last", help="Only the last N messages")
@click.option(
    "--view",
    type=click.Choice(["model", "history"]),
    default="model",
    show_default=True,
    help="What a model sees, or all messages",
)
@click.option("--at", type=arguments.PLACE, help="At a seq, time or snapshot")
@full_option
@markdown_option
def command(
    call: Call,
    session_id: str,
    last: int | None,
    view: Literal["model", "history"],
    at: arguments.Place | None,
    *,
    full: bool,
    markdown: bool,
) -> None:
    """Show a session's state and messages.

    With --json: one document with the state and the messages.
    """
    with call.finding() as store:
        session = session_of(store, session_id)
        seq = None if at is None else arguments.seq_at(session, at)
        state = session.state(at=seq)
        messages = session.messages(last=last, at=seq, view=view)
        children = session.children()
        info = next(
            (i for i in store.sessions(prefix=session_id).items if i.id == session_id), None
        )
    document = {"session": session_id, "children": children, "state": state, "messages": messages}
    call.screen.document({**document, "bytes": info.bytes if info else 0})
    more = [("size", size(info.bytes))] if info is not None else []
    if children:
        more.append(("forks", ", ".join(children)))
    show_state(call.screen, session_id, state, more=more)
    call.screen.line()
    call.screen.line((f"{view} view: {many(len(messages), 'message')}", "italic"))
    printer = EventPrinter(call.screen, full=full, markdown=markdown)
    for message in messages:
        printer.message(message)
