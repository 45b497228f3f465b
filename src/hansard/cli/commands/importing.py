"""`hansard import`: import sessions from files or programs."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from hansard.cli.command import FAILED, Call, define
from hansard.cli.screen import many

if TYPE_CHECKING:
    from hansard import ImportReport, Store
    from hansard.importers import Report

#: Bytes read at once.
_PIECE: Final = 1024 * 1024


@define(
    "import",
    examples=[
        "import refund.jsonl",
        "import refund.jsonl --id support/42-copy  # under another id",
        "export support/42 --unredacted | hansard -s other import -",
        "import openclaw ~/.openclaw --dry-run  # from another program",
        "import claude-code ~/.claude/projects --prefix laptop/",
    ],
)
@click.argument("names", metavar="FILE... | KIND PATH", nargs=-1, required=True)
@click.option("--id", "session_id", metavar="ID", help="Import under this id")
@click.option("--prefix", metavar="TEXT", help="With a KIND: put TEXT before all ids")
@click.option("--dry-run", is_flag=True, help="With a KIND: write nothing; show what would be done")
def command(
    call: Call,
    names: tuple[str, ...],
    session_id: str | None,
    prefix: str | None,
    *,
    dry_run: bool,
) -> int | None:
    """Import sessions from files or programs.

    A FILE is one session that `hansard export` wrote; - reads stdin. It is imported completely, or not at
    all. An existing session is never changed; the same file again does nothing. Creates the store if it does
    not exist.

    With a KIND, imports all sessions that another program keeps at PATH: a3s-code, claude-code, codex,
    langgraph, openai-agents, openclaw, praisonai, pydantic-ai, workspace. The source is only read. Run it
    again to import what is new. To import a file with the name of a kind, write ./codex.

    With --json: one document. Exit 1 if something could not be imported.
    """
    from hansard.importers import KINDS

    kind, *paths = names
    if kind in KINDS:
        if len(paths) != 1:
            raise click.UsageError(f"{kind} needs one path: hansard import {kind} PATH")
        if session_id is not None:
            raise click.UsageError("--id is for a file; with a KIND, use --prefix")
        return _foreign(call, kind, paths[0], prefix=prefix or "", dry_run=dry_run)
    if prefix is not None or dry_run:
        raise click.UsageError("--prefix and --dry-run are for a KIND and its PATH")
    return _own(call, names, session_id)


def _own(call: Call, names: tuple[str, ...], session_id: str | None) -> int | None:
    """Import what `hansard export` wrote."""
    if session_id is not None and len(names) > 1:
        raise click.UsageError("--id is for one file; import the others separately")
    done: list[tuple[str, ImportReport]] = []
    failed: dict[str, str] = {}
    with (
        call.writing(create=True) as store,
        call.screen.progress("importing") as progress,
    ):
        for name in names:
            progress.label(name)
            report = _import(store, name, session_id, progress.update)
            if isinstance(report, str):
                failed[name] = report
            else:
                done.append((name, report))
    _show(call, done, failed)
    return FAILED if failed else None


def _import(
    store: "Store", name: str, session_id: str | None, update: Callable[[int, int], None]
) -> "ImportReport | str":
    """Import one file, or return the reason of the failure."""
    from hansard import HansardError

    try:
        with _opened(name) as (file, total):
            return store.import_session(_pieces(file, total, update), id=session_id)
    except HansardError as error:
        return str(error)
    except OSError as error:
        return error.strerror or str(error)


@contextmanager
def _opened(name: str) -> Iterator[tuple[IO[bytes], int]]:
    if name == "-":
        yield sys.stdin.buffer, 0
        return
    path = Path(name)
    with path.open("rb") as file:
        yield file, path.stat().st_size


def _pieces(file: IO[bytes], total: int, update: Callable[[int, int], None]) -> Iterator[bytes]:
    done = 0
    while piece := file.read(_PIECE):
        yield piece
        done += len(piece)
        update(done, max(done, total))


def _show(call: Call, done: "list[tuple[str, ImportReport]]", failed: dict[str, str]) -> None:
    members = ("session", "events", "already", "redacted", "redactions")
    shown = [
        {"file": name, **{member: getattr(report, member) for member in members}}
        for name, report in done
    ]
    call.screen.document({"imported": shown, "failed": failed})
    for name, report in done:
        what = f"{report.session}: {many(report.events, 'event')}"
        if report.already:
            what += ", already imported"
        if report.redactions:
            what += f"; {many(report.redactions, 'credential')} replaced in the file"
        call.screen.line(f"{name}: {what}")
    call.screen.failures(failed)


def _foreign(call: Call, kind: str, path: str, *, prefix: str, dry_run: bool) -> int | None:
    """Import a foreign source, show what was done, and return the exit code."""
    from hansard import importers

    with (
        _opened_store(call, dry_run=dry_run) as store,
        call.screen.progress(f"importing {kind}", unit="files") as progress,
    ):
        try:
            report = importers.import_sessions(
                store, kind, path, prefix=prefix, progress=progress.update, dry_run=dry_run
            )
        except importers.NothingToImport as error:
            _show_foreign(call, error.report, reason=str(error))
            return FAILED
    _show_foreign(call, report)
    return FAILED if report.skipped else None


def _opened_store(call: Call, *, dry_run: bool) -> "Store":
    if not dry_run:
        return call.writing(create=True)
    import hansard

    try:
        return call.reading()
    except hansard.StoreNotFound:
        return hansard.open("memory:")  # like an empty store


def _show_foreign(call: Call, report: "Report", *, reason: str = "") -> None:
    members = ("session", "where", "outcome", "items", "new", "parent")
    shown = {
        "kind": report.kind,
        "dry_run": report.dry_run,
        "sessions": [{name: getattr(one, name) for name in members} for one in report.sessions],
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
