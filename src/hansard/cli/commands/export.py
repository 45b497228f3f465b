"""`hansard export`: export sessions to files."""

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

import hansard
from hansard import exporters
from hansard.cli import arguments
from hansard.cli.command import PATH, Call, define, extra, session_of
from hansard.cli.screen import Screen, many
from hansard.message.parse import size

#: The formats, and the endings of their files. A site is a directory.
_ENDINGS: Final = {
    "jsonl": "jsonl",
    "markdown": "md",
    "html": "html",
    "site": "",
    **exporters.KINDS,
}

#: The format that the ending of -o names, if --as is not given.
_FORMATS: Final = {
    ".html": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".json": "jsonl",
}

#: Longest file name in bytes, without the suffixes that are added while it is written.
_LONGEST: Final = 180


@define(
    "export",
    "export support/42 > refund.jsonl  # for `hansard import`",
    "export support/42 -o refund.html  # one page for people; .md: Markdown",
    "export support/42 support/43 -o directory/  # one file each",
    "export support/42 support/43 --as site -o pages/  # as `hansard serve` shows them",
    "export support/42 --unredacted -o backup.jsonl  # unchanged",
    "export support/42 --as codex -o rollout.jsonl  # for another program",
    "export support/42 -o refund.parquet  # a row per message, for DuckDB or pandas",
)
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True, type=arguments.SESSION)
@click.option(
    "-o", "--output", metavar="FILE", type=PATH, help="File, or directory for several sessions"
)
@click.option(
    "--as",
    "format",
    type=click.Choice([*_ENDINGS, "md"]),
    help="hansard's own format, a transcript, or the format of another program "
    "[default: html, markdown or parquet by the ending of FILE, else jsonl]",
)
@click.option("--unredacted", is_flag=True, help="Do not replace credentials")
@click.option(
    "--view",
    type=click.Choice(["history", "model"]),
    help="All messages, or what a model sees [default: history for transcripts, else model]",
)
@click.option("--force", is_flag=True, help="Overwrite existing files")
def command(
    call: Call,
    session_ids: tuple[str, ...],
    output: str | None,
    *,
    force: bool,
    unredacted: bool,
    format: str | None,
    view: str | None,
) -> None:
    """Export sessions to files.

    Credentials are replaced, unless you pass --unredacted. A file appears when it is complete. A fork
    contains what it inherits.

    With --json: one document that lists the files; without -o, the JSONL itself.
    """
    screen = call.screen
    output = None if output == "-" else output
    into = output is not None and (output.endswith("/") or Path(output).is_dir())
    several = into or len(session_ids) > 1
    ending = "" if output is None or into else Path(output).suffix.lower()
    format = format or ("jsonl" if several else _FORMATS.get(ending, "jsonl"))
    format = "markdown" if format == "md" else format
    if len(session_ids) > 1 and (output is None or (ending in _FORMATS and format != "site")):
        given = "" if output is None else f", got -o {output}"
        raise click.UsageError(f"several sessions need a directory{given}; pass -o DIRECTORY/")
    if output is None and screen.json and format != "jsonl":
        raise click.UsageError(f"--json with {format} needs -o FILE")
    if output is None and (format == "site" or (format == "parquet" and sys.stdout.isatty())):
        place = "DIRECTORY" if format == "site" else "FILE"
        raise click.UsageError(f"--as {format} needs -o {place}")
    view = view or ("model" if format in exporters.KINDS else "history")
    options = {"redacted": not unredacted, "view": view}
    written: list[tuple[str, Path, int]] = []
    with call.reading() as store:
        sessions = [session_of(store, session_id) for session_id in session_ids]
        if output is None:
            _print(screen, _exported(sessions[0], format, options))
            return
        if format == "site":
            names = {session.id: _name_of(session.id) for session in sessions}
            written, sessions = _write_site(store, names, Path(output), options), []
        ending = f".{_ENDINGS[format]}"
        paths = [
            Path(output, _name_of(session.id) + ending) if several else Path(output)
            for session in sessions
        ]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            # All are checked before one is written.
            _refuse_existing(path, force=force)
        for session, path in zip(sessions, paths, strict=True):
            pieces = screen.counted(
                session.id, _exported(session, format, options), session.seq, "events"
            )
            written.append((session.id, path, _write(path, pieces, force=force)))
    files = [{"session": id, "file": str(path), "bytes": count} for id, path, count in written]
    screen.document({"written": files, "redacted": not unredacted})
    for _, path, count in written:
        screen.line(f"{path}: {size(count)}")
    if unredacted and not screen.json:
        screen.note(f"{many(len(written), 'file')} may contain credentials (--unredacted)")


def _exported(session: "hansard.Session", format: Any, options: dict[str, Any]) -> Iterator[bytes]:
    if format not in exporters.KINDS:
        return session.export(format=format, **options)
    try:
        return exporters.export(session, format, **options)
    except ImportError as error:
        raise click.ClickException(str(error)) from error


def _print(screen: Screen, pieces: Iterator[bytes]) -> None:
    """Write to stdout; on a terminal, with control characters escaped."""
    for piece in pieces:
        if not sys.stdout.isatty():
            sys.stdout.buffer.write(piece)
        elif piece.startswith(b"{"):
            screen.record(piece.rstrip(b"\n"))
        else:
            screen.write(piece.decode())
    sys.stdout.buffer.flush()


def _write(path: Path, pieces: Iterable[bytes], *, force: bool) -> int:
    """Write pieces to a file that only its owner can read, and return their bytes.

    It is written under another name first: under its own name it is complete.
    """
    descriptor, name = tempfile.mkstemp(".tmp", f".{path.name}.", path.parent)
    temporary, written = Path(name), 0
    try:
        with os.fdopen(descriptor, "wb", 1024 * 1024) as file:
            for piece in pieces:
                written += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if force:
            temporary.replace(path)
        else:
            # A link, not a rename: it does not overwrite a file that was created concurrently.
            path.hardlink_to(temporary)
    except FileExistsError:
        raise _exists(path) from None
    finally:
        with suppress(OSError):
            temporary.unlink()
    return written


def _write_site(
    store: "hansard.Store", names: dict[str, str], path: Path, options: dict[str, Any]
) -> list[tuple[str, Path, int]]:
    """Write pages to a new or empty directory; return each newest page, and the bytes of all."""
    with extra("web", "--as site"):
        from hansard.viewer import bundle
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        written = bundle.write(store, names, temporary, **options)
        temporary.replace(path)
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
            raise
        raise click.ClickException(f"{path} exists and is not an empty directory") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return [(id, path / file, count) for id, (file, count) in written.items()]


def _refuse_existing(path: Path, *, force: bool) -> None:
    """Raise if the file exists, or is a directory."""
    if path.is_dir():
        raise IsADirectoryError(21, "is a directory; name a file in it", str(path))
    if path.exists() and not force:
        raise _exists(path)


def _exists(path: Path) -> click.ClickException:
    return click.ClickException(f"{path} exists; pass --force to overwrite it")


def _name_of(session_id: str) -> str:
    """Return a file name for a session, without its ending: a different one for each id."""
    plain = quote(session_id, safe="")
    if plain.startswith("."):
        plain = f"%2E{plain[1:]}"
    if len(plain) > _LONGEST:
        import hashlib

        digest = hashlib.sha256(session_id.encode()).hexdigest()
        plain = f"{plain[: _LONGEST - len(digest)]}~{digest}"
    return plain
