"""`hansard verify`: check every byte of sessions, and report what is wrong."""

from typing import TYPE_CHECKING

import click

from hansard.cli import stores
from hansard.cli.command import Call, define
from hansard.cli.faults import FAILED
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
@click.argument("session_ids", metavar="[ID]...", nargs=-1, type=stores.SESSION)
@click.option(
    "--reopen",
    is_flag=True,
    help="If a sync had failed and nothing is wrong, let the sessions be appended to again.",
)
def command(call: Call, session_ids: tuple[str, ...], *, reopen: bool) -> int | None:
    """Check every byte of sessions, and report what is wrong.

    Nothing is changed. What a crash leaves is a note, and no damage.

    With --json: one document, with every finding. Exit 1 if something is damaged.
    """
    with stores.writing(call) if reopen else stores.reading(call) as store:
        if session_ids:
            reports = [stores.session_of(store, session_id).verify() for session_id in session_ids]
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
            f", {whole:,} whole; `hansard repair` saves what is whole of them",
        )
    else:
        screen.line((f"{many(len(reports), 'session')}, all whole", "bold green"))
