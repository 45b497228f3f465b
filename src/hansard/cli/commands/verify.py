"""`hansard verify`: check sessions for damage."""

from typing import TYPE_CHECKING

import click

from hansard.cli import arguments
from hansard.cli.command import FAILED, Call, define, session_of
from hansard.cli.screen import many

if TYPE_CHECKING:
    from hansard import SessionReport


@define(
    "verify",
    examples=[
        "verify  # all sessions",
        "verify support/42 support/43",
        "verify --json | jq '.findings[]'",
    ],
)
@click.argument("session_ids", metavar="[ID]...", nargs=-1, type=arguments.SESSION)
@click.option(
    "--reopen",
    is_flag=True,
    help="Allow appends again if verification passes",
)
def command(call: Call, session_ids: tuple[str, ...], *, reopen: bool) -> int | None:
    """Check sessions for damage.

    Checks every byte, and changes nothing. What a crash leaves is a note, not damage.

    With --json: one document with all findings. Exit 1 if a session is damaged.
    """
    with call.writing() if reopen else call.reading() as store:
        if session_ids:
            reports = [session_of(store, session_id).verify() for session_id in session_ids]
        else:
            reports = store.verify().sessions
    ok = all(report.ok for report in reports)
    findings = [
        {"session": report.session, **finding._asdict()}
        for report in reports
        for finding in report.findings
    ]
    call.screen.document({"ok": ok, "sessions": len(reports), "findings": findings})
    _show(call, reports)
    return None if ok else FAILED


def _show(call: Call, reports: "list[SessionReport]") -> None:
    screen = call.screen
    for report in reports:
        for finding in report.findings:
            style = "red" if finding.severity == "damage" else "yellow"
            place = f"{finding.where}: byte {finding.offset}, {many(finding.length, 'byte')}"
            screen.line(
                (f"{finding.severity:<6}  ", style), f"{report.session}  {place}: {finding.reason}"
            )
    damaged = [report.session for report in reports if not report.ok]
    if damaged:
        whole = len(reports) - len(damaged)
        screen.line(
            (f"{many(len(damaged), 'session')} damaged", "bold red"),
            f", {whole:,} valid; run `hansard repair`",
        )
    else:
        screen.line((f"{many(len(reports), 'session')}, no damage", "bold green"))
