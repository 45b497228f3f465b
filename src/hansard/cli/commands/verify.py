"""`hansard verify`: check sessions for damage."""

import click

import hansard
from hansard.cli import arguments
from hansard.cli.command import FAILED, Call, define, session_of
from hansard.cli.screen import many


@define(
    "verify",
    "verify  # all sessions",
    "verify support/42 support/43",
    "verify --json | jq '.findings[]'",
)
@arguments.sessions_argument
@click.option("--reopen", is_flag=True, help="Allow appends again if verification passes")
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
    screen = call.screen
    damaged = [report for report in reports if not report.ok]
    findings = [
        {"session": report.session, **finding._asdict()}
        for report in reports
        for finding in report.findings
    ]
    screen.document({"ok": not damaged, "sessions": len(reports), "findings": findings})
    for report in reports:
        for finding in report.findings:
            style = "red" if finding.severity == "damage" else "yellow"
            screen.line((f"{finding.severity:<6}  ", style), sentence(report.session, finding))
    if damaged:
        screen.line(
            (f"{many(len(damaged), 'session')} damaged", "bold red"),
            f", {len(reports) - len(damaged):,} valid; run `hansard repair`",
        )
        return FAILED
    screen.line((f"{many(len(reports), 'session')}, no damage", "bold green"))
    return None


def sentence(session_id: str, finding: "hansard.Finding") -> str:
    """Return a finding in one line."""
    place = f"{finding.where}: byte {finding.offset}, {many(finding.length, 'byte')}"
    return f"{session_id}: {place}: {finding.reason}"
