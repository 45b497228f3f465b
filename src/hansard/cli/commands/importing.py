"""`hansard import` and `hansard copy`: take sessions from files, programs or another store."""

import os
from functools import partial
from typing import Final

import click
import msgspec

import hansard
from hansard.cli import arguments
from hansard.cli.command import FAILED, PATH, Call, define, open_trusted, session_of
from hansard.cli.screen import many

#: Bytes read at once.
_PIECE: Final = 1024 * 1024


@define(
    "import",
    "import refund.jsonl",
    "import refund.jsonl --id support/42-copy  # under another id",
    "export support/42 --unredacted | hansard -s other import -",
    "import openclaw ~/.openclaw --dry-run  # from another program",
    "import claude-code ~/.claude/projects --prefix laptop/",
)
@click.argument("names", metavar="FILE... | KIND PATH", nargs=-1, required=True, type=PATH)
@click.option("--id", "session_id", metavar="ID", help="Import under this id")
@click.option("--prefix", help="With a KIND: put TEXT before all ids")
@click.option("--dry-run", is_flag=True, help="With a KIND: write nothing; show what would be done")
def command(
    call: Call, names: tuple[str, ...], session_id: str | None, prefix: str | None, *, dry_run: bool
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
    done: list[tuple[str, hansard.ImportReport]] = []
    failed: dict[str, str] = {}
    with _target(call, names) as store:
        for name in names:
            try:
                with click.open_file(name, "rb") as file:
                    pieces = iter(partial(file.read, _PIECE), b"")
                    total = os.fstat(file.fileno()).st_size // _PIECE + 1
                    counted = call.screen.counted(name, pieces, total, "MiB")
                    done.append((name, store.import_session(counted, id=session_id)))
            except hansard.HansardError as error:
                failed[name] = str(error)
            except IsADirectoryError:
                failed[name] = "is a directory; name its program: hansard import KIND PATH"
            except OSError as error:
                failed[name] = error.strerror or str(error)
    shown = [{"file": name, **msgspec.structs.asdict(report)} for name, report in done]
    call.screen.document({"imported": shown, "failed": failed})
    for name, report in done:
        what = f"{report.session}: {many(report.events, 'event')}"
        if report.already:
            what += ", already imported"
        if report.redactions:
            what += f"; {many(report.redactions, 'credential')} replaced in the file"
        call.screen.line(f"{name}: {what}")
    call.screen.failures(failed)
    return FAILED if failed else None


def _foreign(call: Call, kind: str, path: str, *, prefix: str, dry_run: bool) -> int | None:
    """Import what another program keeps."""
    from hansard import importers

    reason = ""
    with (
        _target(call, () if dry_run else (path,)) as store,
        call.screen.progress(f"importing {kind}", "files") as progress,
    ):
        try:
            report = importers.import_sessions(
                store, kind, path, prefix=prefix, progress=progress, dry_run=dry_run
            )
        except importers.NothingToImport as error:
            report, reason = error.report, str(error)
    screen = call.screen
    shown = msgspec.structs.asdict(report)
    screen.document({**shown, "failed": reason} if reason else shown)
    would = "would be " if report.dry_run else ""
    for one in report.sessions:
        if one.outcome != "present":
            screen.line(f"{one.session}: {many(one.new, 'item')} {would}{one.outcome}")
    counts = {
        f"{would}imported": report.imported,
        f"{would}continued": report.continued,
        "there already": report.present,
    }
    if report.sessions:
        screen.line(
            "; ".join(
                f"{many(len(found), 'session')} {what}" for what, found in counts.items() if found
            )
        )
    # The reason names the first problem.
    skipped = report.skipped[1:] if reason else report.skipped
    screen.failures({problem.where: problem.what for problem in skipped})
    if reason:
        screen.note(reason)
    return FAILED if report.skipped or reason else None


def _target(call: Call, sources: tuple[str, ...]) -> "hansard.Store":
    """Open the store to import into. It is created only for a source that exists."""
    if any(source == "-" or os.path.exists(os.path.expanduser(source)) for source in sources):
        return call.writing(create=True)
    try:
        return call.reading()
    except hansard.StoreNotFound:
        return hansard.open("memory:")  # like an empty store


@define(
    "copy",
    "copy data backup  # all sessions; again: only what is new",
    "copy data backup support/42",
    "copy data backup --prefix support/",
)
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@click.argument("session_ids", metavar="[ID]...", nargs=-1)
@arguments.prefix_option
def copy(
    call: Call, source: str, target: str, session_ids: tuple[str, ...], prefix: str
) -> int | None:
    """Copy sessions between stores.

    Compares existing events and appends missing ones: run it again after an interrupt, or when the source has
    grown. Leaves sessions that differ unchanged, and reports them. Forks stay forks. Redacted data is not
    copied. Creates the target if it does not exist; the source is only read.

    With --json: one document. Exit 1 if a session could not be copied.
    """
    if call.named:
        raise click.UsageError("copy takes both stores as arguments: hansard copy SOURCE TARGET")
    with hansard.open(source, create=False, read_only=True) as here:
        # Before the target is created: a mistyped id leaves nothing.
        session_ids = tuple(session_of(here, session_id).id for session_id in session_ids)
        with (
            open_trusted(target, create=True, auto_compact=True) as there,
            call.screen.progress("copying", "sessions") as progress,
        ):
            report = here.copy_to(there, session_ids or None, prefix=prefix, progress=progress)
    shown = msgspec.structs.asdict(report)
    call.screen.document({"copied": shown.pop("events"), **shown})
    found = f"; {many(report.found, 'event')} existed" if report.found else ""
    call.screen.line(
        f"{many(report.sessions, 'session')}, {many(report.events, 'event')} copied and compared{found}"
    )
    for session_id in report.ancestors:
        call.screen.line(f"{session_id}: copied, because others were forked from it")
    call.screen.failures(report.failed)
    return FAILED if report.failed else None
