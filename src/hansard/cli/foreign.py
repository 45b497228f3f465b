"""Import sessions that another program wrote, and show what was done."""

from typing import TYPE_CHECKING

from hansard.cli import stores
from hansard.cli.command import Call
from hansard.cli.faults import FAILED
from hansard.cli.screen import many

if TYPE_CHECKING:
    from hansard import Store
    from hansard.importers import ImportedSession, Report


def is_kind(word: str) -> bool:
    """Return whether an argument is the name of a foreign format."""
    from hansard.importers import KINDS

    return word in KINDS


def import_sessions(call: Call, kind: str, path: str, *, prefix: str, dry_run: bool) -> int | None:
    """Import a foreign source, show what was done, and return the exit code."""
    from hansard import importers

    with (
        _opened(call, dry_run=dry_run) as store,
        call.screen.progress(f"importing {kind}", unit="files") as progress,
    ):
        try:
            report = importers.import_sessions(
                store, kind, path, prefix=prefix, progress=progress.update, dry_run=dry_run
            )
        except importers.NothingToImport as error:
            _show(call, error.report, reason=str(error))
            return FAILED
    _show(call, report)
    return FAILED if report.skipped else None


def _opened(call: Call, *, dry_run: bool) -> "Store":
    if not dry_run:
        return stores.writing(call, create=True)
    import hansard

    try:
        return stores.reading(call)
    except hansard.StoreNotFound:
        return hansard.open("memory:")  # a missing store is empty


def _show(call: Call, report: "Report", *, reason: str = "") -> None:
    if call.screen.json:
        shown = {
            "kind": report.kind,
            "dry_run": report.dry_run,
            "sessions": [_described(one) for one in report.sessions],
            "skipped": [{"where": one.where, "what": one.what} for one in report.skipped],
        }
        call.screen.document({**shown, "failed": reason} if reason else shown)
    for one in report.sessions:
        if one.outcome != "present":
            fork = f", a fork of {one.parent}" if one.parent else ""
            what = f"{many(one.new, 'item')} {_done(one.outcome, dry_run=report.dry_run)}{fork}"
            call.screen.line(f"{one.session}: {what}")
    counts = [
        f"{many(len(found), 'session')} {word}"
        for found, word in (
            (report.imported, _done("imported", dry_run=report.dry_run)),
            (report.continued, _done("continued", dry_run=report.dry_run)),
            (report.present, "there already"),
        )
        if found
    ]
    if counts:
        call.screen.line("; ".join(counts))
    for problem in report.skipped:
        call.screen.note(f"{problem.where}: {problem.what}")
    if reason:
        call.screen.note(reason)


def _done(outcome: str, *, dry_run: bool) -> str:
    return f"would be {outcome}" if dry_run else outcome


def _described(one: "ImportedSession") -> dict[str, object]:
    return {
        "session": one.session,
        "where": one.where,
        "outcome": one.outcome,
        "items": one.items,
        "new": one.new,
        "parent": one.parent,
    }
