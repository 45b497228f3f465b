"""`hansard rm`: move sessions to the trash."""

import click

from hansard.cli import stores
from hansard.cli.command import Call, define
from hansard.cli.screen import many


@define(
    "rm",
    examples=[
        "rm support/42",
        "restore support/42  # it was only in the trash",
        "rm --purge support/42  # for good; asks",
    ],
)
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True, type=stores.SESSION)
@click.option("--purge", is_flag=True, help="Remove them for good, also from the trash.")
@click.option("-y", "--yes", is_flag=True, help="With --purge, do not ask.")
def command(call: Call, session_ids: tuple[str, ...], *, purge: bool, yes: bool) -> int | None:
    """Move sessions to the trash.

    `hansard restore` brings them back. With --json: one document.
    """
    with stores.writing(call) as store:
        trash = set(store.trash())
        for session_id in session_ids:
            # All are looked at before one is touched: a mistyped id removes nothing.
            if not (purge and session_id in trash):
                stores.session_of(store, session_id)
        question = f"Remove {many(len(session_ids), 'session')} for good?"
        if purge and not yes and not call.screen.confirm(question, instead="--yes"):
            call.screen.line("nothing was removed")
            return 1
        for session_id in session_ids:
            if store.exists(session_id):
                store.delete(session_id)
            if purge:
                store.purge(session_id)
    if call.screen.json:
        call.screen.document({"deleted": list(session_ids), "purged": purge})
    else:
        what = "removed for good" if purge else "moved to the trash"
        call.screen.line(f"{many(len(session_ids), 'session')} {what}")
    return None
