"""`hansard repair`: mend damaged sessions."""

from typing import TYPE_CHECKING

import click

from hansard.cli import stores
from hansard.cli.command import Call, define
from hansard.cli.faults import FAILED
from hansard.cli.screen import many

if TYPE_CHECKING:
    from hansard import RepairReport, Store


@define(
    "repair",
    examples=[
        "repair support/42  # says what is damaged, and asks",
        "repair support/42 --yes",
        "repair --all --yes --json",
    ],
)
@click.argument("session_ids", metavar="[ID]...", nargs=-1, type=stores.SESSION)
@click.option("--all", "everything", is_flag=True, help="Repair every session that is damaged.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--missing", is_flag=True, help="Give up for lost the events of a segment that is not there."
)
def command(
    call: Call, session_ids: tuple[str, ...], *, everything: bool, yes: bool, missing: bool
) -> int | None:
    """Mend damaged sessions; the damaged bytes are kept.

    Every event that is whole stays, with its seq. The damaged files are kept beside the log. If you have
    a backup, use that instead.

    With --json: one document, with what was lost, saved and kept. Exit 1 if damage is left.
    """
    if everything == bool(session_ids):
        raise click.UsageError("name the sessions to repair, or say --all")
    with stores.writing(call) as store:
        damaged = _damaged(call, store, session_ids)
        reports: list[RepairReport] = []
        question = f"Repair {many(len(damaged), 'session')}?"
        if damaged and (yes or call.screen.confirm(question, instead="--yes")):
            reports = [store.session(id).repair(missing=missing) for id in damaged]
        # Looked at once more: a fork is as whole as what it was forked from, which may have come after it.
        left = not all(store.session(id).verify().ok for id in damaged)
    call.screen.document({"damaged": damaged, "repaired": reports})
    if not reports:
        found = "" if damaged else "nothing is damaged; "
        call.screen.line(f"{found}nothing was written")
    for report in reports:
        if report.repaired or report.left:
            _show(call, report)
    return FAILED if left else None


def _damaged(call: Call, store: "Store", session_ids: tuple[str, ...]) -> list[str]:
    """Return which sessions are damaged, and say where."""
    if session_ids:
        found = [stores.session_of(store, session_id).verify() for session_id in session_ids]
    else:
        known = {info.id for info in store.sessions().items}
        found = [report for report in store.verify().sessions if report.session in known]
    damaged = [report for report in found if not report.ok]
    for report in damaged:
        for finding in report.findings:
            if finding.severity == "damage":
                call.screen.line(
                    f"{report.session}: {finding.where}: byte {finding.offset}, "
                    f"{many(finding.length, 'byte')}: {finding.reason}"
                )
    return [report.session for report in damaged]


def _show(call: Call, report: "RepairReport") -> None:
    lost = sum(last - first + 1 for first, last in report.lost)
    where = ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in report.lost[:20])
    lines = [f"{report.session}: {many(report.salvaged, 'event')} saved, {lost:,} lost"]
    if lost:
        lines[0] += f": seq {where}" + (" …" if len(report.lost) > 20 else "")  # noqa: PLR2004
    if report.unchecked:
        lines.append(f"look whole, and cannot be checked: {report.unchecked}")
    if report.controls:
        lines.append(
            f"{many(report.controls, 'control event')} among the lost: views may differ without them"
        )
    if report.kept:
        lines.append("the damaged bytes are kept in " + ", ".join(report.kept))
    lines += [f"left, and only a backup can mend it: {f.where}: {f.reason}" for f in report.left]
    for place, line in enumerate(lines):
        call.screen.line(line, indent=2 if place else 0)
