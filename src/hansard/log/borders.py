"""Find where appends begin and end, in bytes cut out of a segment anywhere.

Pure functions on bytes. A batch may be much longer than what is read at once, and one that a crash left
unfinished looks like any other until its end is seen. A search for a place between two appends could take
many lines; these functions look at few.
"""

import msgspec

from hansard.log import format
from hansard.log.format import Line, Position


def last_line(data: bytes) -> tuple[int, Line | None]:
    """Return the end of the last complete append in some lines, and its last line.

    None if there is none: then the lines, if any, belong to an unfinished append, or are damaged.
    """
    cut = data.rfind(b"\n") + 1
    looked = False
    while cut:
        begin = data.rfind(b"\n", 0, cut - 1) + 1
        raw = data[begin:cut]
        line = _try_decode(raw)
        if line is None:
            if not raw.endswith(format.TORN):
                # Not a line of ours. The checksum over all up to here will say so.
                return cut, Line(seq=0, time="", data=msgspec.Raw(b"{}"), crc="")
        elif line.more == 0:
            return cut, line
        elif not looked:
            # Once: it costs some looks at the whole window.
            looked = True
            begin = _first_of_batch(data, begin, line)
        cut = begin
    return 0, None


def _first_of_batch(data: bytes, begin: int, line: Line) -> int:
    """Return where the first line stands that is known to be of the same batch as one that begins at `begin`.

    Found by halving: what is of the same batch says so by its seq and by how many are to follow, and as many
    lines are between the two as seqs. A thousand lines take ten looks; one by one, a session that was
    appended in one batch of 20,000 messages took eight times as long to load.
    """
    low, high = 0, begin
    seq = line.seq
    while low < high:
        at = data.rfind(b"\n", 0, (low + high) // 2) + 1
        end = data.index(b"\n", at) + 1
        found = _try_decode(data[at:end])
        if (
            found is not None
            and found.log is None
            and found.seq + found.more == line.seq + line.more
            and found.seq + data.count(b"\n", at, high) == seq
        ):
            high, seq = at, found.seq
        else:
            low = end
    return high


def first_position(data: bytes, offset: int, *, ends_at_position: bool = False) -> Position | None:
    """Return the first mark inside a window that begins anywhere, at `offset` of the segment.

    A place inside a batch will do if the batch was finished, as the window shows, or as is known because
    the window ends at a mark: a batch may be much longer than a window.
    """
    begin = data.find(b"\n") + 1
    inside: Position | None = None
    more = 0
    looked = False
    while begin:
        end = data.find(b"\n", begin) + 1
        if not end:
            break
        raw = data[begin:end]
        line = _try_decode(raw)
        crc = format.stored_crc(raw)
        if line is None or crc is None:
            inside = None
        else:
            if (
                not looked
                and line.more
                and _finished(line, data, end, ends_at_position=ends_at_position)
            ):
                return Position(offset + end, line.seq, crc)
            # Once: it costs a look at the whole window.
            looked = True
            if inside is not None and (line.log is not None or line.more != more - 1):
                # What was begun was not finished, and is no part of the log.
                inside = None
            inside = inside or Position(offset + end, line.seq, crc)
            if line.more == 0:
                return inside
            more = line.more
        begin = end
    return inside if ends_at_position else None


def _finished(line: Line, data: bytes, end: int, *, ends_at_position: bool) -> bool:
    """Say whether a record, whose end is given, and all lines behind it are of appends that were finished.

    It is so if the last of them ends an append and its seq is higher by as many as there are lines: what was
    not finished, and the note behind it, are lines that count no seq (F-15, F-30). Two lines are decoded for
    that, where the last fifty messages out of a batch would take a hundred and seventy.
    """
    cut = data.rfind(b"\n") + 1
    last = _try_decode(data[data.rfind(b"\n", 0, cut - 1) + 1 : cut])
    return (
        last is not None
        and last.log is None
        and (ends_at_position or last.more == 0)
        and last.seq - line.seq == data.count(b"\n", end) > 0
    )


def _try_decode(raw: bytes) -> Line | None:
    try:
        return format.decode_line(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
