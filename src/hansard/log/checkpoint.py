"""Keep what the sealed segments add up to in one small file, so that readers need not open them all.

A checkpoint holds the control records up to a seq, and a state that only its writer understands. It is
derived: if it is missing, damaged, of another log or of an unknown version, it is ignored, and the next
compaction writes another. It names the running checksum of the log at its seq, and `session_files` compares
that with the header of the segment that begins there (F-109).
"""

from typing import Final

import msgspec

from hansard.log import disk, format, names
from hansard.log.format import DECODE_ERRORS

VERSION: Final = 1

#: Maximum size of a checkpoint, in bytes.
_LIMIT: Final = 512 * 1024 * 1024


class Checkpoint(msgspec.Struct, frozen=True):
    """What the sealed segments up to a seq add up to.

    Attributes:
        session: the session's id.
        created: when it began.
        seq: the last event that counts in it.
        previous: the running checksum of the log at that seq, as the next segment's header names it.
        controls: the control records, as JSON lines.
        state: bytes of the caller.
    """

    session: str
    created: str
    seq: int
    previous: int
    controls: bytes
    state: bytes


class _Head(msgspec.Struct):
    """The first line of the file, without the checksum at its end."""

    checkpoint: int
    session: str
    created: str
    seq: format.Number
    previous: int
    controls: format.Number
    state: int
    sections: int


_decode_head = msgspec.json.Decoder(_Head).decode


def write(directory: int, found: Checkpoint) -> None:
    """Replace the checkpoint. It is not synced: it may be lost."""
    body = found.controls + found.state
    log = found.session, found.created, found.seq, found.previous
    head = _Head(VERSION, *log, len(found.controls), len(found.state), format.crc32(body))
    temporary = names.temporary(names.CHECKPOINT)
    with disk.temporary_file(directory, temporary) as descriptor:
        disk.write_all(descriptor, format.with_checksum(msgspec.json.encode(head)) + body)
        # After a kill, the file with this name is complete; after a power cut, the checksum tells.
        disk.move(directory, temporary, directory, names.CHECKPOINT)


def look(directory: int, session_id: str, created: str) -> Checkpoint | str:
    """Return a session's checkpoint, or why it cannot be used; an empty string if there is none."""
    try:
        data = disk.read_all(directory, names.CHECKPOINT, _LIMIT)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    end = data.find(b"\n") + 1
    line, body = data[:end], data[end:]
    try:
        head = _decode_head(line)
        if not format.has_checksum(line):
            return "is damaged"
        if head.checkpoint != VERSION or (head.session, head.created) != (session_id, created):
            return "is of another session, or of another version"
        controls, state = body[: head.controls], body[head.controls :]
        fits = len(state) == head.state and format.crc32(body) == head.sections
        controls.decode()  # records are decoded late, and invalid UTF-8 would be found only then
        # A forged file can have a valid checksum.
        if fits and all(map(format.has_object, format.decode_lines(controls))):
            return Checkpoint(session_id, created, head.seq, head.previous, controls, state)
    except DECODE_ERRORS:
        pass
    return "is damaged"
