"""`hansard compact`: make sessions small, and remove the bytes of what was redacted."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from hansard.cli import stores
from hansard.cli.command import Call, define
from hansard.cli.faults import FAILED
from hansard.cli.screen import many, size

if TYPE_CHECKING:
    from hansard import CompactReport, Store

#: So many lines of a table tell a person enough.
_ROWS: Final = 30


#: Why events are emptied: nothing that a view shows goes with them.
_EMPTIED = "(redacted, or parts of messages that are there whole)"


@define(
    "compact",
    examples=[
        "compact support/42",
        "compact --all",
        "compact --all --dry-run  # only say what would be rewritten",
    ],
)
@click.argument("session_ids", metavar="[ID]...", nargs=-1, type=stores.SESSION)
@click.option("--all", "everything", is_flag=True, help="Compact all sessions of the store.")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would be rewritten.")
def command(
    call: Call, session_ids: tuple[str, ...], *, everything: bool, dry_run: bool
) -> int | None:
    """Make sessions small, and remove the bytes of what was redacted.

    What was appended is sealed and compressed. Nothing that a view shows changes, and writers and readers
    go on meanwhile. An interrupt leaves each session as it was, or compacted.

    With --json: one document, with the bytes of each session before and after. Exit 1 if one could not be
    compacted.
    """
    if everything == bool(session_ids):
        raise click.UsageError("name the sessions to compact, or say --all")
    opened = stores.reading(call) if dry_run else stores.writing(call)
    with opened as store:
        for session_id in session_ids:
            stores.session_of(store, session_id)
        before = _sizes(store, session_ids)
        report = _compact(call, store, before, everything=everything, dry_run=dry_run)
    # Opened anew: what a store knows of sizes is as old as its last look at the session.
    with stores.reading(call) if dry_run else stores.finding(call) as store:
        after = _sizes(store, session_ids)
    _show(call, report, before, after, dry_run=dry_run)
    return FAILED if report.failed else None


def _compact(
    call: Call, store: "Store", before: dict[str, int], *, everything: bool, dry_run: bool
) -> "CompactReport":
    """Compact, and show how far it is in bytes."""
    ends = [0]
    for session_id in sorted(before):
        ends.append(ends[-1] + before[session_id])
    with call.screen.progress("looking" if dry_run else "compacting") as progress:
        if everything:
            return store.compact(
                dry_run=dry_run,
                progress=lambda done, _: progress.update(ends[min(done, len(before))], ends[-1]),
            )
        return _one_by_one(store, before, ends, progress.update, dry_run=dry_run)


def _one_by_one(
    store: "Store",
    before: dict[str, int],
    ends: list[int],
    update: Callable[[int, int], None],
    *,
    dry_run: bool,
) -> "CompactReport":
    from hansard import CompactReport, HansardError

    reports: list[CompactReport] = []
    failed: dict[str, str] = {}
    for place, session_id in enumerate(sorted(before)):
        update(ends[place], ends[-1])

        def within(done: int, whole: int, place: int = place) -> None:
            # What is done of a session, in its own bytes, as a share of what it takes on disk.
            share = (ends[place + 1] - ends[place]) * done // max(whole, 1)
            update(ends[place] + share, ends[-1])

        try:
            reports.append(store.session(session_id).compact(dry_run=dry_run, progress=within))
        except HansardError as error:
            failed[session_id] = str(error)
    return CompactReport(
        sessions=sum(report.sessions for report in reports),
        before=sum(report.before for report in reports),
        after=sum(report.after for report in reports),
        blanked=sum(report.blanked for report in reports),
        failed=failed,
        dry_run=dry_run,
    )


def _sizes(store: "Store", session_ids: tuple[str, ...]) -> dict[str, int]:
    """Return the bytes that sessions take; of all if none are named."""
    if not session_ids:
        return {info.id: info.bytes for info in store.sessions().items}
    found = {}
    for session_id in session_ids:
        page = store.sessions(prefix=session_id)
        found[session_id] = next((i.bytes for i in page.items if i.id == session_id), 0)
    return found


def _show(
    call: Call,
    report: "CompactReport",
    before: dict[str, int],
    after: dict[str, int],
    *,
    dry_run: bool,
) -> None:
    screen = call.screen
    screen.document(
        {
            "dry_run": report.dry_run,
            "rewritten": report.sessions,
            "before": sum(before.values()),
            "after": sum(after.get(id, 0) for id in before),
            "to_rewrite": report.before if report.dry_run else 0,
            "blanked": report.blanked,
            "failed": report.failed,
            "sessions": [
                {"id": id, "before": old, "after": after.get(id, 0)} for id, old in before.items()
            ],
        }
    )
    if dry_run:
        screen.line(
            f"would rewrite {size(report.before)} of {many(report.sessions, 'session')}"
            f", and empty {many(report.blanked, 'event')} {_EMPTIED}; nothing was written"
        )
    else:
        changed = [id for id in before if after.get(id, 0) != before[id]]
        changed.sort(key=before.__getitem__, reverse=True)
        shown = changed[:_ROWS] if screen.terminal else changed
        if shown:
            rows = [
                [id, size(before[id]), size(after.get(id, 0)), _share(before[id], after.get(id, 0))]
                for id in shown
            ]
            screen.table(["session", "before", "after", "left"], rows, numbers="before after left")
        if len(changed) > len(shown):
            screen.line(f"… and {many(len(changed) - len(shown), 'session')} more")
        whole, left = sum(before.values()), sum(after.get(id, 0) for id in before)
        taken = f", {many(report.blanked, 'event')} emptied {_EMPTIED}" if report.blanked else ""
        screen.line(
            f"{many(report.sessions, 'session')} rewritten: {size(whole)} before, {size(left)} after{taken}"
        )
    if not screen.json:
        screen.failures(report.failed)


def _share(before: int, after: int) -> str:
    return f"{100 * after / before:.0f} %" if before else "–"
