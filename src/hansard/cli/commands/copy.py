"""`hansard copy`: copy sessions between stores."""

import click

import hansard
from hansard.cli.command import FAILED, Call, define, prefix_option, session_of
from hansard.cli.screen import many


@define(
    "copy",
    "copy data backup  # all sessions; again: only what is new",
    "copy data backup support/42",
    "copy data backup --prefix support/",
)
@click.argument("source")
@click.argument("target")
@click.argument("session_ids", metavar="[ID]...", nargs=-1)
@prefix_option
def command(
    call: Call, source: str, target: str, session_ids: tuple[str, ...], prefix: str
) -> int | None:
    """Copy sessions between stores.

    Compares existing events and appends missing ones: run it again after an interrupt, or when the source has
    grown. Leaves sessions that differ unchanged, and reports them. Forks stay forks. Redacted data are not
    copied. Creates the target if it does not exist; the source is only read.

    With --json: one document. Exit 1 if a session could not be copied.
    """
    if call.named:
        raise click.UsageError("copy takes both stores as arguments: hansard copy SOURCE TARGET")
    with hansard.open(source, create=False, read_only=True) as here:
        for session_id in session_ids:
            # Before the target is created: a mistyped id leaves nothing.
            session_of(here, session_id)
        with (
            hansard.open(target) as there,
            call.screen.progress("copying", unit="sessions") as progress,
        ):
            report = here.copy_to(there, session_ids or None, prefix=prefix, progress=progress)
    names = ("sessions", "found", "ancestors", "failed")
    call.screen.document(
        {"copied": report.events, **{name: getattr(report, name) for name in names}}
    )
    found = f"; {many(report.found, 'event')} existed" if report.found else ""
    call.screen.line(
        f"{many(report.sessions, 'session')}, {many(report.events, 'event')} copied and compared{found}"
    )
    for session_id in report.ancestors:
        call.screen.line(f"{session_id}: copied, because others were forked from it")
    call.screen.failures(report.failed)
    return FAILED if report.failed else None
