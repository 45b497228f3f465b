"""`hansard fork`: begin another session where one is, or was."""

import click

from hansard.cli import places, stores
from hansard.cli.command import Call, define


@define(
    "fork",
    examples=[
        "fork support/42  # under a fresh id",
        "fork support/42 support/42-b --at 10",
        "fork support/42 support/42-c --at 'before tools'",
    ],
)
@click.argument("session_id", metavar="ID", type=stores.SESSION)
@click.argument("child", metavar="[NEW_ID]", required=False)
@click.option("--at", type=places.PLACE, help="Where: a seq, a time, or the label of a snapshot.")
def command(call: Call, session_id: str, child: str | None, at: places.Place | None) -> None:
    """Begin another session where one is, or was.

    Nothing is copied: it costs one event, whatever the length. With --json: one document.
    """
    with stores.writing(call) as store:
        session = stores.session_of(store, session_id)
        made = session.fork(child, at=at)
        state = made.state()
    if call.screen.json:
        call.screen.document(
            {"session": made.id, "parent": session_id, "forked_at": state.forked_at}
        )
    else:
        call.screen.line(f"{made.id} begins at seq {state.forked_at} of {session_id}")
