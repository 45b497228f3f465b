"""`hansard verify`, `hansard repair` and `hansard dump`: check sessions, repair them, print raw records."""

import click

import hansard
from hansard.cli import arguments
from hansard.cli.command import FAILED, Call, check_targets, define, session_of
from hansard.cli.screen import many
from hansard.message.sentences import count_seqs


@define(
    "verify",
    "verify  # all sessions",
    "verify support/42 support/43",
    "verify --json | jq '.findings[]'",
)
@arguments.sessions_argument
@click.option("--reopen", is_flag=True, help="Allow appends again if verification passes")
def verify(call: Call, session_ids: tuple[str, ...], *, reopen: bool) -> int | None:
    """Check sessions for damage.

    Checks every byte, and changes nothing. An incomplete last record, as a crash leaves it, is reported as a
    note, not as damage.

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
            screen.line((f"{finding.severity:<6}  ", style), _sentence(report.session, finding))
    if damaged:
        screen.line(
            (f"{many(len(damaged), 'session')} damaged", "bold red"),
            f", {len(reports) - len(damaged):,} valid; run `hansard repair`",
        )
        return FAILED
    screen.line((f"{many(len(reports), 'session')}, no damage", "bold green"))
    return None


def _sentence(session_id: str, finding: "hansard.Finding") -> str:
    """Return a finding in one line."""
    place = f"{finding.where}: byte {finding.offset}, {many(finding.length, 'byte')}"
    return f"{session_id}: {place}: {finding.reason}"


@define(
    "repair",
    "repair support/42  # lists the damage, and asks",
    "repair support/42 --yes",
    "repair --all --yes --json",
)
@arguments.sessions_argument
@click.option("--all", "everything", is_flag=True, help="Repair all damaged sessions")
@arguments.yes_option
@click.option("--missing", is_flag=True, help="Accept loss of missing segments")
def repair(
    call: Call, session_ids: tuple[str, ...], *, everything: bool, yes: bool, missing: bool
) -> int | None:
    """Repair damaged sessions, keeping a copy.

    Every valid event stays, with its seq. The damaged files are kept next to the log. If you have a backup,
    use it instead.

    With --json: one document with what was saved, lost and kept. Exit 1 if damage is left.
    """
    check_targets(session_ids, "repair", everything=everything)
    with call.writing() as store:
        damaged = _damaged(call, store, session_ids)
        reports: list[hansard.RepairReport] = []
        question = f"Repair {many(len(damaged), 'session')}?"
        if damaged and (yes or call.screen.confirm(question)):
            reports = [store.session(id).repair(missing=missing) for id in damaged]
        # Verified again at the end: a fork is damaged if its parent is, which may have been repaired later.
        left = not all(store.session(id).verify().ok for id in damaged)
    call.screen.document({"damaged": damaged, "repaired": reports})
    if not reports:
        found = "" if damaged else "no damage; "
        call.screen.line(f"{found}nothing was written")
    for report in reports:
        if report.repaired or report.left:
            _show(call, report)
    return FAILED if left else None


def _damaged(call: Call, store: "hansard.Store", session_ids: tuple[str, ...]) -> list[str]:
    """Return the damaged sessions, and print their damage."""
    if session_ids:
        found = [session_of(store, session_id).verify() for session_id in session_ids]
    else:
        known = {info.id for info in store.sessions().items}
        found = [report for report in store.verify().sessions if report.session in known]
    damaged = [report for report in found if not report.ok]
    for report in damaged:
        for finding in report.findings:
            if finding.severity == "damage":
                call.screen.line(_sentence(report.session, finding))
    return [report.session for report in damaged]


def _show(call: Call, report: "hansard.RepairReport") -> None:
    lost = count_seqs(report.lost)
    where = ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in report.lost[:20])
    lines = [f"{report.session}: {many(report.salvaged, 'event')} saved, {lost:,} lost"]
    if lost:
        lines[0] += f": seq {where}" + (" …" if len(report.lost) > 20 else "")  # noqa: PLR2004
    if report.unchecked:
        lines.append(f"look valid, but cannot be checked: {report.unchecked}")
    if report.controls:
        lines.append(f"{many(report.controls, 'control event')} lost: views may differ")
    if report.kept:
        lines.append("the damaged files are kept as " + ", ".join(report.kept))
    lines += [f"still damaged, restore a backup: {f.where}: {f.reason}" for f in report.left]
    for place, line in enumerate(lines):
        call.screen.line(line, indent=2 if place else 0)


@define(
    "dump",
    "dump support/42",
    "dump support/42 --json | jq -r 'select(.file == \"log.jsonl\") | .text'",
    paged=True,
)
@arguments.session_argument
def dump(call: Call, session_id: str) -> int | None:
    """Print raw log records.

    Prints every line of the session's own files with its offset, damaged lines included. In a sealed segment,
    offsets are those of the decompressed lines. Redacted data is shown until compaction erases it.

    With --json: one record per line. Exit 1 if a record is damaged.
    """
    bad = False
    with call.reading() as store:
        session = session_of(store, session_id)
        for record in session.dump():
            bad = bad or bool(record.problem)
            text = record.raw.decode(errors="backslashreplace").removesuffix("\n")
            if call.screen.json:
                shown = record._asdict()
                del shown["raw"]
                call.screen.record({**shown, "text": text})
                continue
            place = f"{record.file} {record.offset:>8} +{record.length:<6} "
            problem = f"  ← {record.problem}" if record.problem else ""
            call.screen.line((place, "dim"), text, (problem, "red"))
    return FAILED if bad else None
