"""Frame and parse the lines of a cursor's file.

Above: `cursors`, `cursor`.  Below: `format`; docs/format.md, F-49 to F-52.
Pure functions on bytes, like those of `format`. A cursor's lines are not those of a log: they have no
seq and no kind, and later ones supersede earlier ones.
"""

from typing import Annotated, Final

import msgspec

from hansard.errors import Damaged, UnknownFormat
from hansard.log import format

VERSION: Final = 1

#: So many positions stand in one line of a file that is written anew.
_IN_A_LINE: Final = 1_000

#: A seq, or None for a session that is forgotten.
Changes = dict[str, int | None]


class _Start(msgspec.Struct):
    """The first line (F-50)."""

    version: int
    cursor: str


class _Move(msgspec.Struct):
    """Every other line (F-51)."""

    move: dict[str, Annotated[int, msgspec.Meta(ge=0)] | None]


_decode_start = msgspec.json.Decoder(_Start).decode
_decode_move = msgspec.json.Decoder(_Move).decode
_decode_moves = msgspec.json.Decoder(_Move).decode_lines
_encode = msgspec.json.Encoder().encode

#: What decoding raises for bytes that are not ours.
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def apply(positions: dict[str, int], changes: Changes) -> None:
    """Move some positions, in place."""
    for session_id, seq in changes.items():
        if seq is None:
            positions.pop(session_id, None)
        else:
            positions[session_id] = seq


def move(changes: Changes, crc: int) -> tuple[bytes, int]:
    """Frame a move: return its line and the running checksum after it."""
    return _framed(b'{"move":%b' % _encode(changes), format.now(), crc)


def anew(name: str, positions: dict[str, int]) -> tuple[bytes, int]:
    """Return all bytes of a file that is written anew, and the running checksum after them (F-53)."""
    now = format.now()
    line, crc = _framed(b'{"cursor":%b,"version":%d' % (_encode(name), VERSION), now, 0)
    lines = [line]
    places = list(positions.items())
    for start in range(0, len(places), _IN_A_LINE):
        some = dict(places[start : start + _IN_A_LINE])
        line, crc = _framed(b'{"move":%b' % _encode(some), now, crc)
        lines.append(line)
    return b"".join(lines), crc


def _framed(body: bytes, now: bytes, crc: int) -> tuple[bytes, int]:
    """Add time and trailer; the trailer's own bytes count for the next line's checksum (F-49)."""
    body = b'%b,"time":"%b"' % (body, now)
    check = format.crc32(body, crc)
    trailer = b',"crc":"%08x"}\n' % check
    return body + trailer, format.crc32(trailer, check)


def without_torn_tail(data: bytes) -> bytes:
    """Return the whole lines of a file (F-52)."""
    return data[: data.rfind(b"\n") + 1]


def parse(path: str, name: str, whole: bytes) -> tuple[dict[str, int], int]:
    """Return what whole lines add up to, and the running checksum after them.

    Ours? A version we know? Intact? This cursor's? In this order.
    """
    begin = whole.find(b"\n") + 1
    true_name = name_in(path, whole[:begin])
    crc = format.checked_crc(whole, 0)
    if crc is None:
        raise _damaged(path, _first_bad(whole), "checksum mismatch")
    if true_name != name:
        raise _damaged(path, 0, f"this is the file of cursor {true_name!r}")
    positions: dict[str, int] = {}
    try:
        for line in _decode_moves(whole[begin:]):
            apply(positions, line.move)
    except _UNREADABLE:
        raise _damaged(path, _first_unreadable(whole, begin), "not a move of a cursor") from None
    return positions, crc


def name_in(path: str, line: bytes) -> str:
    """Return the name that a first line says, or raise if it is none of ours."""
    if not line:
        raise _damaged(path, 0, "no whole first line")
    try:
        start = _decode_start(line)
    except _UNREADABLE:
        raise _damaged(path, 0, "not the first line of a cursor") from None
    if start.version != VERSION:
        raise UnknownFormat(
            f"{path}: cursor format version {start.version}, and this hansard knows {VERSION}; "
            "use a newer hansard: the file was left as it is"
        )
    return start.cursor


def _first_bad(whole: bytes) -> int:
    """Return where the first line begins that fails its checksum."""
    offset, crc = 0, 0
    while offset < len(whole):
        end = whole.index(b"\n", offset) + 1
        after = format.checked_crc(whole[offset:end], crc)
        if after is None:
            break
        offset, crc = end, after
    return offset


def _first_unreadable(whole: bytes, offset: int) -> int:
    """Return where the first line begins that is no move."""
    while offset < len(whole):
        end = whole.index(b"\n", offset) + 1
        try:
            _decode_move(whole[offset:end])
        except _UNREADABLE:
            break
        offset = end
    return offset


def _damaged(path: str, offset: int, reason: str) -> Damaged:
    return Damaged(
        path,
        offset,
        reason,
        "no position was taken from this cursor, and nothing was changed: bring the file back from a backup, "
        "or drop the cursor and begin anew",
    )
