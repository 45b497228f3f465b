"""`hansard export`: write sessions out."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from hansard.cli import stores
from hansard.cli.command import Call, define
from hansard.cli.screen import Progress, many, size

if TYPE_CHECKING:
    from hansard import Session

_ENDINGS: Final = {
    "jsonl": "jsonl",
    "markdown": "md",
    "html": "html",
    # For other programs: `hansard.exporters`.
    "claude-code": "jsonl",
    "codex": "jsonl",
    "openai-items": "json",
}

#: A name of more bytes would not fit on every file system, with what is added to it while it is written.
_LONGEST: Final = 180


@define(
    "export",
    examples=[
        "export support/42 > refund.jsonl  # `hansard import` takes it in again",
        "export support/42 --as html -o refund.html  # one page, to be read by anybody",
        "export support/42 support/43 -o folder/  # a file for each",
        "export support/42 --unredacted -o backup.jsonl  # word for word",
        "export support/42 --as codex -o rollout.jsonl  # for another program",
    ],
)
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True, type=stores.SESSION)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to a file, or, for several sessions, to files in a folder.",
)
@click.option(
    "--as",
    "format",
    type=click.Choice(list(_ENDINGS)),
    default="jsonl",
    show_default=True,
    help="For hansard, a transcript for people, or as another program has it.",
)
@click.option("--unredacted", is_flag=True, help="Leave what looks like a credential in it.")
@click.option(
    "--view",
    type=click.Choice(["history", "model"]),
    help="All that was said, or what a model is given: for a transcript the first, for others the second.",
)
@click.option("--parts", is_flag=True, help="In JSONL, also have what was streamed of messages.")
@click.option("--own-only", is_flag=True, help="In JSONL, leave out what a fork inherits.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
def command(
    call: Call,
    session_ids: tuple[str, ...],
    output: str | None,
    *,
    force: bool,
    unredacted: bool,
    **options: Any,
) -> int | None:
    """Write sessions out: JSONL, Markdown, an HTML page, or other programs' formats; redacted.

    What looks like a credential is taken out, unless you say --unredacted. A file appears when it is whole. A
    fork has in it what it inherits.

    With --json: one document that says what was written; without -o, the JSONL itself, one line for each
    event.
    """
    output = None if output == "-" else output
    _check(call, session_ids, output, options["format"])
    ending = _ENDINGS[options["format"]]
    options["redacted"] = not unredacted
    written: list[dict[str, object]] = []
    with stores.reading(call) as store:
        sessions = [stores.session_of(store, session_id) for session_id in session_ids]
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
            # All are looked at before one is written.
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
        raise click.UsageError("several sessions need a folder: -o FOLDER/")
    if call.screen.json and format != "jsonl":
        raise click.UsageError(f"--json says where it was written, and {format} needs -o FILE")


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
    """Write to stdout: as it is, unless a terminal would obey what somebody said."""
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
    """Let pieces pass, and tell how far they are: about one for each event."""
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
        call.screen.note(f"{many(len(written), 'file')} may hold credentials: --unredacted")


# -- files that are there whole, or not at all --------------------------------------------------


def _write(path: Path, pieces: Iterable[bytes], *, force: bool) -> int:
    """Write pieces to a file, and return how many bytes they were.

    Under another name first: who looks at the file sees all of it. Like the store, it is its owner's alone.
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
            # A link, and not a rename: what came to have the name meanwhile stays.
            path.hardlink_to(temporary)
    except FileExistsError:
        raise _exists(path) from None
    finally:
        with suppress(OSError):
            temporary.unlink()
    return written


def _refuse_existing(path: Path, *, force: bool) -> None:
    """Raise if a file would be overwritten, or if there is a directory."""
    if path.is_dir():
        raise IsADirectoryError(21, "is a directory; name a file in it", str(path))
    if path.exists() and not force:
        raise _exists(path)


def _exists(path: Path) -> click.ClickException:
    return click.ClickException(f"{path}: exists already; --force overwrites it")


def _name_of(session_id: str, ending: str) -> str:
    """Return a file name for a session: another one for every id."""
    plain = quote(session_id, safe="")
    if plain.startswith("."):
        plain = f"%2E{plain[1:]}"
    if len(plain) > _LONGEST:
        import hashlib

        digest = hashlib.sha256(session_id.encode()).hexdigest()
        plain = f"{plain[: _LONGEST - len(digest)]}~{digest}"
    return f"{plain}.{ending}"
