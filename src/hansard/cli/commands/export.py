"""`hansard export`: export sessions to files."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from hansard.cli import arguments
from hansard.cli.command import Call, define, session_of
from hansard.cli.screen import Progress, many, size

if TYPE_CHECKING:
    from hansard import Session

_ENDINGS: Final = {
    "jsonl": "jsonl",
    "markdown": "md",
    "html": "html",
    # Formats of other programs.
    "claude-code": "jsonl",
    "codex": "jsonl",
    "openai-items": "json",
}

#: Longest file name in bytes, without the suffixes that are added while it is written.
_LONGEST: Final = 180


@define(
    "export",
    examples=[
        "export support/42 > refund.jsonl  # for `hansard import`",
        "export support/42 --as html -o refund.html  # one page for people",
        "export support/42 support/43 -o directory/  # one file each",
        "export support/42 --unredacted -o backup.jsonl  # unchanged",
        "export support/42 --as codex -o rollout.jsonl  # for another program",
    ],
)
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True, type=arguments.SESSION)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="File, or directory for several sessions",
)
@click.option(
    "--as",
    "format",
    type=click.Choice(list(_ENDINGS)),
    default="jsonl",
    show_default=True,
    help="hansard's own format, a transcript, or the format of another program",
)
@click.option("--unredacted", is_flag=True, help="Do not replace credentials")
@click.option(
    "--view",
    type=click.Choice(["history", "model"]),
    help="All messages, or what a model sees [default: history for transcripts, else model]",
)
@click.option("--parts", is_flag=True, help="Include stream parts (JSONL)")
@click.option("--own-only", is_flag=True, help="Omit inherited events (JSONL)")
@click.option("--force", is_flag=True, help="Overwrite existing files")
def command(
    call: Call,
    session_ids: tuple[str, ...],
    output: str | None,
    *,
    force: bool,
    unredacted: bool,
    **options: Any,
) -> int | None:
    """Export sessions to files.

    Credentials are replaced, unless you pass --unredacted. A file appears when it is complete. A fork
    contains what it inherits.

    With --json: one document that lists the files; without -o, the JSONL itself.
    """
    output = None if output == "-" else output
    _check(call, session_ids, output, options["format"])
    ending = _ENDINGS[options["format"]]
    options["redacted"] = not unredacted
    written: list[dict[str, object]] = []
    with call.reading() as store:
        sessions = [session_of(store, session_id) for session_id in session_ids]
        if output is None:
            _print(call, _exported(sessions[0], options))
            return None
        place = Path(output)
        paths = [
            place / _name_of(session.id, ending) if _is_folder(output, session_ids) else place
            for session in sessions
        ]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            # All are checked before one is written.
            _refuse_existing(path, force=force)
        with call.screen.progress("exporting", unit="events") as progress:
            for session, path in zip(sessions, paths, strict=True):
                progress.label(session.id)
                pieces = _counted(session, progress, _exported(session, options))
                count = _write(path, pieces, force=force)
                written.append({"session": session.id, "file": str(path), "bytes": count})
    _show(call, written, unredacted=unredacted)
    return None


def _check(call: Call, session_ids: tuple[str, ...], output: str | None, format: str) -> None:
    if output is not None:
        return
    if len(session_ids) > 1:
        raise click.UsageError("several sessions need a directory: -o DIRECTORY/")
    if call.screen.json and format != "jsonl":
        raise click.UsageError(f"--json with {format} needs -o FILE")


def _exported(session: "Session", options: dict[str, Any]) -> Iterator[bytes]:
    from hansard import exporters

    format, view = options["format"], options["view"]
    if format in exporters.KINDS:
        given = {"redacted": options["redacted"], "view": view or "model"}
        return exporters.export(session, format, **given)
    return session.export(**{**options, "view": view or "history"})


def _is_folder(output: str, session_ids: tuple[str, ...]) -> bool:
    return len(session_ids) > 1 or output.endswith("/") or Path(output).is_dir()


def _print(call: Call, pieces: Iterator[bytes]) -> None:
    """Write to stdout; on a terminal, with control characters escaped."""
    if sys.stdout.isatty():
        for piece in pieces:
            if piece.startswith(b"{"):
                call.screen.record(piece.rstrip(b"\n"))
            else:
                call.screen.bit(piece.decode())
        return
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _counted(session: "Session", progress: Progress, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces, and report progress: about one piece per event."""
    total = session.seq
    for count, piece in enumerate(pieces):
        progress.update(min(count, total), total)
        yield piece


def _show(call: Call, written: list[dict[str, object]], *, unredacted: bool) -> None:
    call.screen.document({"written": written, "redacted": not unredacted})
    for one in written:
        number = one["bytes"]
        assert isinstance(number, int)
        call.screen.line(f"{one['file']}: {size(number)}")
    if unredacted and not call.screen.json:
        call.screen.note(f"{many(len(written), 'file')} may contain credentials (--unredacted)")


# -- complete files, or none --------------------------------------------------------------------


def _write(path: Path, pieces: Iterable[bytes], *, force: bool) -> int:
    """Write pieces to a file that only its owner can read, and return their bytes.

    It is written under another name first: under its own name it is complete.
    """
    _refuse_existing(path, force=force)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    written = 0
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
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


def _refuse_existing(path: Path, *, force: bool) -> None:
    """Raise if the file exists, or is a directory."""
    if path.is_dir():
        raise IsADirectoryError(21, "is a directory; name a file in it", str(path))
    if path.exists() and not force:
        raise _exists(path)


def _exists(path: Path) -> click.ClickException:
    return click.ClickException(f"{path} exists; pass --force to overwrite it")


def _name_of(session_id: str, ending: str) -> str:
    """Return a file name for a session: a different one for each id."""
    plain = quote(session_id, safe="")
    if plain.startswith("."):
        plain = f"%2E{plain[1:]}"
    if len(plain) > _LONGEST:
        import hashlib

        digest = hashlib.sha256(session_id.encode()).hexdigest()
        plain = f"{plain[: _LONGEST - len(digest)]}~{digest}"
    return f"{plain}.{ending}"
