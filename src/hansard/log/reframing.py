"""Write a segment's records anew, as lines: their checksums and their control chain run on from its header.

Above: `backend.repair`.  Below: `format`, `disk`.  The same for a compressed segment is `sealing`.
"""

from typing import Any, Final

from hansard.log import disk, format
from hansard.log.format import Line, Mark

#: How much is written at once.
_PIECE: Final = 1 << 20


class Reframer:
    """A segment in the making, that is not compressed.

    Attributes:
        mark: where the lines that were added so far end.
        time: when the last event was written; empty before the first.
    """

    __slots__ = ("_ctl", "_descriptor", "_size", "_waiting", "mark", "time")

    def __init__(self, descriptor: int, header: bytes, before: int) -> None:
        self._descriptor = descriptor
        self._waiting = [header]
        self._size = len(header)
        self._ctl = 0
        self.mark = Mark(len(header), before, format.crc32(header))
        self.time = ""

    def add(self, line: Line, unknown: bytes = b"") -> None:
        """Add an event: its record as it was, but for what depends on its place in the file."""
        assert line.seq == self.mark.seq + 1, "seqs follow one another"
        raw, crc = format.record(
            line.seq,
            line.time.encode(),
            line.kind.encode(),
            bytes(line.data),
            self.mark.crc,
            key=line.key,
            more=line.more,
            control=line.control,
            ctl=self._ctl,
            unknown=unknown,
        )
        if line.control:
            self._ctl = self.mark.offset
        self.time = line.time
        self._put(raw, line.seq, crc)

    def note(self, word: str, time: bytes, data: dict[str, Any]) -> None:
        """Add a note."""
        raw, crc = format.note(word, self.mark.seq, time, data, self.mark.crc, ctl=self._ctl)
        self._put(raw, self.mark.seq, crc)

    def _put(self, raw: bytes, seq: int, crc: int) -> None:
        self._waiting.append(raw)
        self._size += len(raw)
        self.mark = Mark(self.mark.offset + len(raw), seq, crc)
        if self._size > _PIECE:
            self._write()

    def _write(self) -> None:
        disk.write_all(self._descriptor, b"".join(self._waiting))
        self._waiting, self._size = [], 0

    def finish(self) -> None:
        """Write what is left, and sync."""
        self._write()
        disk.sync(self._descriptor)
