"""Write a file that is there whole, or not at all, and never in another's place unless told.

Above: `commands.export`.  Below: nothing of hansard.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import click

#: A name of more bytes would not fit on every file system, with what is added to it while it is written.
_LONGEST = 180


def write(path: Path, pieces: Iterable[bytes], *, force: bool) -> int:
    """Write pieces to a file, and return how many bytes they were.

    Under another name first: who looks at the file sees all of it. Like the store, it is its owner's alone.
    """
    refuse_existing(path, force=force)
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


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise if a file would be overwritten, or if there is a directory."""
    if path.is_dir():
        raise IsADirectoryError(21, "is a directory; name a file in it", str(path))
    if path.exists() and not force:
        raise _exists(path)


def _exists(path: Path) -> click.ClickException:
    return click.ClickException(f"{path}: exists already; --force overwrites it")


def name_of(session_id: str, ending: str) -> str:
    """Return a file name for a session: another one for every id."""
    plain = quote(session_id, safe="")
    if plain.startswith("."):
        plain = f"%2E{plain[1:]}"
    if len(plain) > _LONGEST:
        import hashlib

        digest = hashlib.sha256(session_id.encode()).hexdigest()
        plain = f"{plain[: _LONGEST - len(digest)]}~{digest}"
    return f"{plain}.{ending}"
