"""`hansard copy`: copy sessions from one store to another, event for event."""

import click

from hansard.cli import stores
from hansard.cli.command import Call, define
from hansard.cli.faults import FAILED
from hansard.cli.screen import many


@define(
    "copy",
    examples=[
        "copy data backup  # all sessions; once more: what is new",
        "copy data backup support/42",
        "copy data backup --prefix support/",
    ],
)
@click.argument("source")
@click.argument("target")
@click.argument("session_ids", metavar="[ID]...", nargs=-1)
@click.option("--prefix", default="", help="Only sessions whose ids begin so.")
def command(
    call: Call, source: str, target: str, session_ids: tuple[str, ...], prefix: str
) -> int | None:
    """Copy sessions from one store to another, event for event.

    What is there already is compared, and the copy goes on behind it: after an interrupt, or when the source
    has grown. A session that is another in the target is left alone, and said so. Forks stay forks. What was
    redacted stays behind. The target is made if it is not there; the source is only read.

    With --json: one document. Exit 1 if a session could not be copied.
    """
    if call.named:
        raise click.UsageError("copy names both stores itself: hansard copy SOURCE TARGET")
    import hansard

    with hansard.open(source, create=False, read_only=True) as here:
        for session_id in session_ids:
            # Before the target is made: a mistyped id leaves nothing behind.
            stores.session_of(here, session_id)
        with (
            hansard.open(target) as there,
            call.screen.progress("copying", unit="events") as progress,
        ):
            report = here.copy_to(
                there, session_ids or None, prefix=prefix, progress=progress.update
            )
    call.screen.document(
        {
            "sessions": report.sessions,
            "copied": report.events,
            "found": report.found,
            "ancestors": report.ancestors,
            "failed": report.failed,
        }
    )
    found = f"; {many(report.found, 'event')} were there" if report.found else ""
    call.screen.line(
        f"{many(report.sessions, 'session')}, {many(report.events, 'event')} copied and compared{found}"
    )
    for session_id in report.ancestors:
        call.screen.line(f"{session_id}: copied, since others were forked from it")
    call.screen.failures(report.failed)
    return FAILED if report.failed else None
