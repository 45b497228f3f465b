"""`hansard redact`: take messages out of every view, for good."""

import click

from hansard.cli import stores
from hansard.cli.command import Call, define
from hansard.cli.screen import many


@define(
    "redact",
    examples=[
        "redact support/42 12 --reason 'said by mistake'",
        "redact support/42 12 13 --yes",
        "compact support/42  # after that the bytes are gone from the disk, too",
    ],
)
@click.argument("session_id", metavar="ID", type=stores.SESSION)
@click.argument("seqs", metavar="SEQ...", nargs=-1, required=True, type=click.IntRange(min=1))
@click.option("--reason", default="", help="Kept with the redaction.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(
    call: Call, session_id: str, seqs: tuple[int, ...], reason: str, *, yes: bool
) -> int | None:
    """Take messages out of every view, for good.

    Also from views of earlier times, and from forks. The bytes go with the next `hansard compact`. This
    cannot be undone. With --json: one document.
    """
    with stores.writing(call) as store:
        session = stores.session_of(store, session_id)
        question = f"Take {many(len(seqs), 'message')} out of {session_id}, for good?"
        if not yes and not call.screen.confirm(question, instead="--yes"):
            call.screen.line("nothing was written")
            return 1
        done = [session.redact(seq, reason=reason).seq for seq in seqs]
    if call.screen.json:
        call.screen.document({"session": session_id, "redacted": list(seqs), "events": done})
    else:
        call.screen.line(
            f"{session_id}: {many(len(seqs), 'message')} redacted; `hansard compact {session_id}` "
            "removes the bytes"
        )
    return None
