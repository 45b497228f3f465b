"""`hansard compact`: compress sessions and erase redacted data."""

import click

import hansard
from hansard.cli import arguments
from hansard.cli.command import FAILED, Call, check_targets, define, session_of
from hansard.cli.screen import Screen, many, size


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

    No view changes, and writers and readers continue. An interrupt leaves each session as it was, or
    compacted.

    In PostgreSQL, pages of the tables contain erased data until --vacuum rewrites them. Readers and writers
    of the store wait for that. Files do not need it.

    With --json: one document with the bytes of each session before and after. Exit 1 if a session could not
    be compacted.
    """
    check_targets(session_ids, "compact", everything=everything)
    if vacuum and not everything:
        raise click.UsageError("--vacuum needs --all: it rewrites the tables of all sessions")
    with call.writing() as store:
        for session_id in session_ids:
            session_of(store, session_id)
        before = _sizes(store, session_ids)
        report = _compact(call.screen, store, session_ids, vacuum=vacuum)
    # Opened again: an open store may know older sizes.
    with call.finding() as store:
        after = _sizes(store, session_ids)
    _show(call, report, before, after)
    return FAILED if report.failed else None


def _compact(
    screen: Screen,
    store: "hansard.Store",
    session_ids: tuple[str, ...],
    *,
    vacuum: bool,
) -> "hansard.CompactReport":
    if not session_ids:
        with screen.progress("compacting", unit="sessions") as progress:
            return store.compact(vacuum=vacuum, progress=progress)
    reports: list[hansard.CompactReport] = []
    failed: dict[str, str] = {}
    for session_id in sorted(session_ids):
        try:
            with screen.progress(f"compacting {session_id}") as progress:
                session = store.session(session_id)
                reports.append(session.compact(progress=progress))
        except hansard.HansardError as error:
            failed[session_id] = str(error)
    sums = {
        name: sum(getattr(report, name) for report in reports)
        for name in ("sessions", "before", "after", "blanked")
    }
    return hansard.CompactReport(**sums, failed=failed)


def _sizes(store: "hansard.Store", session_ids: tuple[str, ...]) -> dict[str, int]:
    """Return the bytes of the named sessions, or of all."""
    return {
        info.id: info.bytes
        for prefix in session_ids or ("",)
        for info in store.sessions(prefix=prefix).items
        if not session_ids or info.id == prefix
    }


def _show(
    call: Call, report: "hansard.CompactReport", before: dict[str, int], after: dict[str, int]
) -> None:
    screen = call.screen
    changed = sorted(
        (id for id in before if after.get(id, 0) != before[id]), key=before.__getitem__
    )
    total, left = sum(before[id] for id in changed), sum(after.get(id, 0) for id in changed)
    screen.document(
        {
            "rewritten": report.sessions,
            "before": total,
            "after": left,
            "blanked": report.blanked,
            "vacuumed": report.vacuumed,
            "failed": report.failed,
            "sessions": [
                {"id": id, "before": old, "after": after.get(id, 0)} for id, old in before.items()
            ],
        }
    )
    if screen.json:
        return
    emptied = f"{many(report.blanked, 'event')} (redacted, or parts of completed messages)"
    if changed:
        rows = [[id, size(before[id]), size(after.get(id, 0))] for id in reversed(changed)]
        screen.table(["session", "before", "after"], rows, numbers="before after")
    screen.line(
        f"{many(report.sessions, 'session')} rewritten: {size(total)} before, {size(left)} after"
        + (f", {emptied} emptied" if report.blanked else "")
    )
    if report.vacuumed:
        screen.line("tables rewritten: no page contains erased data")
    screen.failures(report.failed)
