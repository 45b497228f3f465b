"""`hansard prune`: move inactive sessions to the trash."""

from collections import Counter
from datetime import timedelta

import click

from hansard.cli import arguments
from hansard.cli.command import Call, count_option, define, dry_run_option, prefix_option
from hansard.cli.screen import many


@define(
    "prune",
    "prune --older-than 30d --dry-run  # look first",
    "prune --older-than 30d",
    "prune --older-than 2w --workspace . --keep-last 5",
)
@click.option(
    "--older-than",
    type=arguments.AGE,
    required=True,
    metavar="AGE",
    help="Inactive for AGE, such as 30d or 12h",
)
@count_option("--keep-last", default=0, help="Keep the N newest of each workspace")
@click.option("--workspace", metavar="PATH", help="Only sessions of this directory")
@click.option("--all-workspaces", is_flag=True, help="Sessions of every workspace")
@prefix_option
@dry_run_option
def command(
    call: Call,
    older_than: timedelta,
    keep_last: int,
    workspace: str | None,
    prefix: str,
    *,
    all_workspaces: bool,
    dry_run: bool,
) -> None:
    """Move inactive sessions to the trash.

    Keeps sessions that are pinned, being written to, needed by forks, or damaged. Without a workspace, only
    sessions that belong to none. With --json: one document.
    """
    if not older_than:
        raise click.UsageError("--older-than must be greater than 0")
    if workspace is not None and all_workspaces:
        raise click.UsageError("--workspace and --all-workspaces exclude each other")
    with call.reading() if dry_run else call.writing() as store:
        report = store.prune(
            older_than=older_than,
            keep_last=keep_last,
            workspace=workspace,
            prefix=prefix,
            dry_run=dry_run,
            all_workspaces=all_workspaces,
        )
    call.screen.document(report)
    for session_id in report.pruned:
        call.screen.line(session_id)
    what = "would be moved to the trash" if dry_run else "moved to the trash"
    call.screen.line(
        (f"{many(len(report.pruned), 'session')} {what}, {len(report.kept):,} kept", "bold")
    )
    reasons = Counter(reason.partition(":")[0] for reason in report.kept.values())
    for reason, count in reasons.items():
        call.screen.line((f"{count:,} kept: {reason}", "dim"), indent=2)
