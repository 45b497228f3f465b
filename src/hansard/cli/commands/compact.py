"""`hansard compact`: compress sessions and erase redacted data."""

import click

from hansard.cli import arguments
from hansard.cli.command import FAILED, Call, check_targets, define, session_of
from hansard.cli.screen import many
from hansard.message.parse import size


@define(
    "compact",
    "compact support/42",
    "compact --all",
    "compact --all --vacuum  # PostgreSQL: also erase old bytes of the tables",
)
@arguments.sessions_argument
@click.option("--all", "everything", is_flag=True, help="Compact all sessions")
@click.option("--vacuum", is_flag=True, help="PostgreSQL: rewrite the tables without erased data")
def command(
    call: Call, session_ids: tuple[str, ...], *, everything: bool, vacuum: bool
) -> int | None:
    """Compress sessions and erase redacted data.

    Short sessions that would not become smaller, and have nothing to erase, stay as they are. No view
    changes, and writers and readers continue. An interrupt leaves each session as it was, or compacted.

    In PostgreSQL, pages of the tables contain erased data until --vacuum rewrites them. Readers and writers
    of the store wait for that. Files do not need it.

    With --json: one document. `before` and `after` are the bytes of all files of the sessions that were
    rewritten. Exit 1 if a session could not be compacted.
    """
    check_targets(session_ids, "compact", everything=everything)
    if vacuum and not everything:
        raise click.UsageError("--vacuum needs --all: it rewrites the tables of all sessions")
    with call.writing() as store:
        wanted = [session_of(store, session_id).id for session_id in session_ids] or None
        with call.screen.progress("compacting", "sessions") as progress:
            report = store.compact(wanted, vacuum=vacuum, progress=progress)
    screen = call.screen
    screen.document(report)
    if report.sessions:
        screen.line(
            f"{many(report.sessions, 'session')} rewritten: {size(report.before)} before, "
            f"{size(report.after)} after"
            + (f", {many(report.blanked, 'event')} emptied" if report.blanked else "")
        )
    elif not report.failed:
        screen.line("nothing was rewritten: there is nothing to erase, and no bytes to save")
    if report.vacuumed:
        screen.line("tables rewritten: no page contains erased data")
    screen.failures(report.failed)
    return FAILED if report.failed else None
