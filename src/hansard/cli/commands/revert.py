"""`hansard revert`: let the model view go back to a seq or a snapshot."""

import click

from hansard.cli import places, stores
from hansard.cli.command import Call, define
from hansard.cli.screen import many


@define(
    "revert",
    examples=[
        "revert support/42 'before tools'",
        "revert support/42 12",
        "revert support/42 20  # undo: 20 was the seq before the revert",
    ],
)
@click.argument("session_id", metavar="ID", type=stores.SESSION)
@click.argument("place", metavar="SEQ|TIME|LABEL", type=places.PLACE)
def command(call: Call, session_id: str, place: places.Place) -> None:
    """Let the model view go back to a seq or a snapshot.

    Nothing is erased: the history view still shows all, and a revert to a later seq brings it back.
    With --json: one document.
    """
    with stores.writing(call) as store:
        session = stores.session_of(store, session_id)
        before = session.seq
        to = places.seq_at(session, place)
        event = session.revert(to)
        left = len(session.messages())
    if call.screen.json:
        call.screen.document(
            {"session": session_id, "reverted_to": to, "seq": event.seq, "messages": left}
        )
    else:
        call.screen.line(
            f"{session_id} is back at seq {to}, with {many(left, 'message')}; "
            f"`hansard revert {session_id} {before}` undoes it"
        )
