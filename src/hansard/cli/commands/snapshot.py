"""`hansard snapshot`: give the place where a session is a label."""

import click

from hansard.cli import stores
from hansard.cli.command import Call, define


@define(
    "snapshot",
    examples=[
        'snapshot support/42 "before tools"',
        "snapshot support/42  # list the labels",
        'revert support/42 "before tools"  # come back to it',
    ],
)
@click.argument("session_id", metavar="ID", type=stores.SESSION)
@click.argument("label", required=False)
def command(call: Call, session_id: str, label: str | None) -> None:
    """Give the place where a session is a label, to come back to.

    Without a label, list those that there are. With --json: one document, with the labels and their seqs.
    """
    if label is None:
        with stores.reading(call) as store:
            known = stores.session_of(store, session_id).snapshots
    else:
        with stores.writing(call) as store:
            session = stores.session_of(store, session_id)
            session.snapshot(label)
            known = session.snapshots
    if call.screen.json:
        call.screen.document({"session": session_id, "snapshots": known})
    elif label is None:
        call.screen.table(["label", "seq"], known.items(), numbers="seq")
    else:
        call.screen.line(f"seq {known[label]} of {session_id} is {label!r}")
