"""`hansard restore`: bring sessions back from the trash."""

import click

from hansard.cli import stores
from hansard.cli.command import Call, define
from hansard.cli.screen import many


@define(
    "restore",
    examples=["restore support/42", "restore  # list what is in the trash"],
)
@click.argument("session_ids", metavar="[ID]...", nargs=-1)
def command(call: Call, session_ids: tuple[str, ...]) -> None:
    """Bring sessions back from the trash.

    Without an id, list what is there. With --json: one document.
    """
    if not session_ids:
        with stores.reading(call) as store:
            trash = store.trash()
        if call.screen.json:
            call.screen.document({"trash": trash})
        else:
            for session_id in trash:
                call.screen.line(session_id)
        return
    with stores.writing(call) as store:
        for session_id in session_ids:
            stores.deleted(store, session_id)
        for session_id in session_ids:
            store.restore(session_id)
    if call.screen.json:
        call.screen.document({"restored": list(session_ids)})
    else:
        call.screen.line(f"{many(len(session_ids), 'session')} restored")
