"""Compare the index of a sealed segment with its lines: everything in it is said by them, too.

Above: `chain`, `backend.damage`.  Below: `sealed`, `reader`, `segment_scan`.
The index has a checksum, which tells that it is as it was written. Whoever wrote it may have been wrong, or
its disk: a key that it does not name is an append that is made twice, and a control record that it leaves out
a title that is lost. So `verify` adds up the lines once more (F-97).
"""

from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

from hansard.log import format, segment_scan
from hansard.log.format import Line, Mark
from hansard.log.reader import Piece, Reader
from hansard.log.sealed import PAGE, Sealed
from hansard.log.sealing import hash_of

#: Returns the stream of which a record holds something that was streamed; None for most.
StreamOf = Callable[[Line], str | None]


class _Sum(NamedTuple):
    """What the lines add up to."""

    keys: list[tuple[int, int]]
    streams: set[str]
    last: Line | None
    ctl: int


def compare(sealed: Sealed, stream_of: StreamOf) -> None:
    """Check every line of a sealed segment, and that the index says the same; raise if it does not."""
    sealed.check()
    _compare_header(sealed)
    found = _add_up(sealed, stream_of)
    index = sealed.index
    last = found.last
    _same(sealed, "last", index.last, index.before if last is None else last.seq)
    _same(sealed, "time", index.time, "" if last is None else last.time)
    _same(sealed, "ctl", index.ctl, found.ctl)
    found.keys.sort()
    _same(
        sealed, "keys", [key for n in range(len(index.pages)) for key in sealed.page(n)], found.keys
    )
    _same(sealed, "pages", [page.first for page in index.pages], [k for k, _ in found.keys[::PAGE]])
    _same(sealed, "parts", sorted(found.streams - set(index.parts)), [])


def _same(sealed: Sealed, member: str, said: object, found: object) -> None:
    if said != found:
        raise sealed.damaged(0, f"the index is wrong: `{member}` is not what the lines say")


def _compare_header(sealed: Sealed) -> None:
    index = sealed.index
    line = format.decode_line(sealed.read(0, index.header))
    header = format.decode_header(line.data)
    _same(sealed, "header", line.log, "header")
    _same(sealed, "before", index.before, line.seq)
    _same(sealed, "session", index.session, header.session)
    _same(sealed, "created", index.created, header.created or line.time)
    if header.previous is not None and index.begins:
        raise sealed.damaged(0, "the index is wrong: the header says that the log begins before")


def _add_up(sealed: Sealed, stream_of: StreamOf) -> _Sum:
    keys: list[tuple[int, int]] = []
    streams: set[str] = set()
    last: Line | None = None
    ctl = 0
    frames = [Mark(frame.offset, frame.seq, frame.crc) for frame in reversed(sealed.index.frames)]
    first = frames.pop()
    _same(sealed, "frames", (first.offset, first.seq, first.crc), (0, sealed.index.before, 0))
    for piece in Reader(sealed).forwards(sealed.start, sealed.end):
        lengths = (len(raw) + 1 for raw in piece.data.split(b"\n"))
        offsets = [*accumulate(lengths, initial=piece.start.offset)]
        for place, raw in segment_scan.committed(sealed, piece.start, piece.data, piece.end):
            line = format.decode_line(raw)
            offset = offsets[place]
            while frames and frames[-1].offset <= offset:
                _compare_frame(sealed, frames.pop(), piece, last)
            if line.key is not None:
                keys.append((hash_of(line.key), line.seq))
            if line.control:
                ctl = offset
            stream = stream_of(line)
            if stream is not None:
                streams.add(stream)
            last = line
        # Those that begin with notes, behind the last record.
        while frames and frames[-1].offset < piece.end.offset:
            _compare_frame(sealed, frames.pop(), piece, last)
    _same(sealed, "frames", frames, [])
    return _Sum(keys, streams, last, ctl)


def _compare_frame(sealed: Sealed, frame: Mark, piece: Piece, last: Line | None) -> None:
    """Compare where a frame begins with the piece in which it does. `last`: the record before it."""
    before = piece.data[: frame.offset - piece.start.offset]
    crc = format.checked_crc(before, piece.start.crc) if before else piece.start.crc
    seq = sealed.index.before if last is None else last.seq
    _same(sealed, "frames", (frame.seq, frame.crc), (seq, crc))
