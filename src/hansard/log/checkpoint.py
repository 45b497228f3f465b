"""Keep what the sealed segments add up to in one small file, so that nobody has to open them all.

A checkpoint holds the control records up to a seq, and a state that whoever wrote it can make sense of. It
is derived: missing, damaged, of another log or of a version that is not known, it is passed over, and the
next compaction writes another. It is never believed over the log: it names the running checksum of the log
at its seq, and `session_files` compares that with the header of the segment that begins there (F-109).
"""

from typing import Final

import msgspec

from hansard.log import disk, format, names

VERSION: Final = 1

#: Longer ones are none of ours.
_LIMIT: Final = 512 * 1024 * 1024


class Checkpoint(msgspec.Struct, frozen=True):
    """What the sealed segments up to a seq add up to.

    Attributes:
        session: the session's id.
        created: when it began.
        seq: the last event that counts in it.
        previous: the running checksum of the log at that seq, as the next segment's header names it.
        controls: the control records, as JSON lines.
        state: bytes of the caller's.
    """

    session: str
    created: str
    seq: int
    previous: int
    controls: bytes
    state: bytes


class _Head(msgspec.Struct):
    """The first line of the file, without the checksum that ends it."""

    checkpoint: int
    session: str
    created: str
    seq: int
    previous: int
    controls: int
    state: int
    sections: int


def write(directory: int, found: Checkpoint) -> None:
    """Put a checkpoint in the place of the last one. Not synced: it may be lost."""
    body = found.controls + found.state
    head = _Head(
        VERSION,
        found.session,
        found.created,
        found.seq,
        found.previous,
        len(found.controls),
        len(found.state),
        format.crc32(body),
    )
    # Whole under its name, after a kill; and after a power cut the checksum tells.
    temporary = names.temporary(names.CHECKPOINT)
    descriptor = disk.create_file(directory, temporary)
    try:
        line, _ = format.close_line(msgspec.json.encode(head)[:-1], 0)
        disk.write_all(descriptor, line + body)
        disk.move(directory, temporary, directory, names.CHECKPOINT)
    except BaseException:
        disk.discard(directory, temporary)
        raise
    finally:
        disk.close(descriptor)


def look(directory: int, session_id: str, created: str) -> Checkpoint | str:
    """Return a session's checkpoint, or why it cannot be used; an empty string if there is none."""
    try:
        data = disk.read_all(directory, names.CHECKPOINT, _LIMIT)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    line, newline, body = data.partition(b"\n")
    head = _head(line + newline)
    if head is None:
        return "is damaged"
    if head.checkpoint != VERSION or (head.session, head.created) != (session_id, created):
        return "is of another session, or of another version"
    if not _fits(head, body):
        return "is damaged"
    return Checkpoint(
        head.session,
        head.created,
        head.seq,
        head.previous,
        body[: head.controls],
        body[head.controls :],
    )


def _head(line: bytes) -> _Head | None:
    """Return what the first line says; None if its checksum does not fit, or it is not such a line."""
    if format.checked_crc(line, 0) is None:
        return None
    try:
        return msgspec.json.decode(line, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _fits(head: _Head, body: bytes) -> bool:
    """Say whether what follows is what the first line says, and control records are what they should be."""
    if min(head.controls, head.state) < 0 or len(body) != head.controls + head.state:
        return False
    if format.crc32(body) != head.sections:
        return False
    lines = body[: head.controls]
    try:
        lines.decode()  # records are decoded late, and what is not UTF-8 would show only then
        # A checksum that fits does not make them so.
        return all(map(format.has_object, format.decode_lines(lines)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
