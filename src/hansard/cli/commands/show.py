"""`hansard show`: what a session is, and what was said in it."""

import click

from hansard.cli import arguments, stores
from hansard.cli.command import Call, define, markdown_option
from hansard.cli.screen import many, size
from hansard.cli.telling import Teller, show_state


@define(
    "show",
    examples=[
        "show support/42",
        "show support/42 --last 5  # what a model would be given, the end of it",
        "show support/42 --view history  # also what was reverted or summarized",
        "show support/42 --json | jq '.messages[-1]'",
    ],
)
@click.argument("session_id", metavar="ID", type=stores.SESSION)
@click.option(
    "-n", "--last", type=click.IntRange(min=0), metavar="N", help="Only the last N messages."
)
@click.option(
    "--view",
    type=click.Choice(["model", "history"]),
    default="model",
    show_default=True,
    help="What a model is given, or all that was said.",
)
@click.option("--at", type=arguments.PLACE, help="As it was at this seq, time or snapshot.")
@click.option("--full", is_flag=True, help="Shorten nothing.")
@markdown_option
def command(
    call: Call,
    session_id: str,
    last: int | None,
    view: str,
    at: arguments.Place | None,
    *,
    full: bool,
    markdown: bool,
) -> None:
    """Show what a session is, and what was said in it.

    With --json: one document, with the state and the messages.
    """
    with stores.finding(call) as store:
        session = stores.session_of(store, session_id)
        seq = None if at is None else arguments.seq_at(session, at)
        state = session.state(at=seq)
        messages = session.messages(
            last=last, at=seq, view="history" if view == "history" else "model"
        )
        children = session.children()
        info = next(
            (i for i in store.sessions(prefix=session_id).items if i.id == session_id), None
        )
    if call.screen.json:
        call.screen.document(
            {
                "session": session_id,
                "bytes": info.bytes if info else 0,
                "children": children,
                "state": state,
                "messages": messages,
            }
        )
        return
    more = [("size", size(info.bytes))] if info is not None else []
    if children:
        more.append(("forks", ", ".join(children)))
    show_state(call.screen, session_id, state, more=more)
    call.screen.line()
    call.screen.line((f"{view} view: {many(len(messages), 'message')}", "italic"))
    teller = Teller(call.screen, full=full, markdown=markdown)
    for message in messages:
        teller.message(message)
