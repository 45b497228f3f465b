"""Find and read the sealed segments of a log: everything before the active one.

A sealed segment is found by its name, which tells its first seq, and opened when something in it is needed.
Compaction may replace it, or join it with its neighbors, at any moment. The file that then covers a seq has
the same events: a reader that finds a name missing lists the directory again and continues.
"""

import contextlib
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from hansard.errors import Damaged
from hansard.log import disk, format, names, segment_scan
from hansard.log.format import Line, Position
from hansard.log.sealed_segment import SealedSegment, compare, hash_of
from hansard.log.segment import sealed_files
from hansard.log.segment_reader import Segment, SegmentRange, SegmentReader

#: Maximum sealed segments of a log that stay open.
_OPEN: Final = 2

#: Maximum attempts to find a name before it is reported missing.
_TRIES: Final = 5


class SealedPart(NamedTuple):
    """An open segment of a chain, and where it ends."""

    reader: SegmentReader
    end: Position

    @property
    def start(self) -> Position:
        """The position after the header."""
        return self.reader.segment.start

    @property
    def begins(self) -> bool:
        """True if the log begins here."""
        return self.reader.segment.begins

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.reader.segment.path.rpartition("/")[2]

    def pieces(self, after: int = 0) -> Iterator[SegmentRange]:
        """Yield the records from about a seq on."""
        start = self.reader.locate(after, self.end) if after > self.start.seq else self.start
        return self.reader.forwards(start, self.end)

    def lines(self, after: int = 0) -> Iterator[Line]:
        """Yield the same, decoded."""
        for piece in self.pieces(after):
            yield from piece.lines(format.decode_lines)

    def find_key(self, key: str) -> tuple[int, int] | None:
        """Return first seq and number of events of the append that has this key."""
        segment = self.reader.segment
        if not isinstance(segment, SealedSegment):
            found = (line for line in self.lines() if line.key == key)
            return next(((line.seq, line.more + 1) for line in found), None)
        for seq in segment.find_key(hash_of(key)):
            line = next((line for line in self.lines(seq - 1) if line.seq == seq), None)
            if line is not None and line.key == key:
                return seq, line.more + 1
        return None


class SealedChain:
    """The sealed segments of a log, up to the active one.

    Attributes:
        upto: the last seq before the active segment.
        open_directory: opens the session's directory; raises `SessionNotFound` or `SessionDeleted`.
    """

    def __init__(
        self, session_id: str, path: str, upto: int, open_directory: Callable[[], disk.OwnedFd]
    ) -> None:
        self._session_id = session_id
        self._path = path
        self.upto = upto
        self.open_directory = open_directory
        #: The files by their first seqs, in order.
        self._files: list[tuple[int, str]] = []
        self._parts: OrderedDict[str, SealedPart] = OrderedDict()
        #: Guards the open parts: the threads of a process share a chain.
        self._mutex = threading.RLock()

    def again(self) -> "SealedChain":
        """Return the same chain, with nothing known and nothing open."""
        return SealedChain(self._session_id, self._path, self.upto, self.open_directory)

    def part_with(self, seq: int) -> SealedPart:
        """Return the segment that holds an event."""
        problem: Exception | None = None
        for attempt in range(_TRIES):
            if attempt or not self._files:
                self._list()
            files = self._files
            place = bisect_right(files, seq, key=lambda found: found[0]) - 1
            try:
                # Most often the first one fits. A leftover of a crash may end too soon; then one that begins
                # before it covers both.
                for candidate in range(place, -1, -1):
                    part = self.part_named(files[candidate][1])
                    if candidate == 0 and not part.begins:
                        raise self._lost(f"the segment with event {files[0][0] - 1} is missing")
                    if part.end.seq >= seq:
                        return part
            except FileNotFoundError as error:
                problem = error
            # It may have been joined with the next one since it was opened: try again.
        raise self._lost(f"the segment with event {seq} is missing") from problem

    def _lost(self, reason: str) -> Damaged:
        """Return the error for missing segments; raise if the session was deleted, which is not damage."""
        self.open_directory()
        return Damaged(self._path, 0, reason, "restore them, or run `hansard repair --missing`")

    def parts(self, after: int = 0) -> Iterator[tuple[SealedPart, int]]:
        """Yield the segments in order, each with the seq after which its events count."""
        seq = max(after, self._begin())
        while seq < self.upto:
            part = self.part_with(seq + 1)
            yield part, seq
            seq = part.end.seq

    def size(self) -> int:
        """Return the bytes of the files."""
        self._list()
        directory = self.open_directory()
        size = 0
        with disk.reporting("read", self._path):
            for _, name in self._files:
                # A missing one is part of another by now.
                with contextlib.suppress(FileNotFoundError):
                    size += disk.status(directory, name).st_size
        return size

    def _begin(self) -> int:
        """Return the seq before the log's first event."""
        if not self._files:
            self._list()
        if not self._files:
            raise self._lost("sealed segments are missing")
        return self._files[0][0] - 1

    def next_begin(self, seq: int) -> int:
        """Return the seq before the next segment that begins after the one with event seq + 1."""
        return next((first - 1 for first, _ in self._files if first > seq + 1), self.upto)

    def _list(self) -> None:
        found: list[tuple[int, str]] = []
        directory = self.open_directory()
        # Missing: the directory was purged while it was open.
        with disk.reporting("list", self._path), contextlib.suppress(FileNotFoundError):
            found, _ = sealed_files(directory, self.upto + 1)
        # A name may belong to another file by now.
        with self._mutex:
            self._parts.clear()
        # If a segment exists compressed and not, the compressed one, which sorts later.
        self._files = list(dict(found).items())

    def part_named(self, name: str) -> SealedPart:
        """Return a segment by its name; raise FileNotFoundError if it is missing."""
        with self._mutex:
            part = self._parts.get(name)
            # A file that was replaced holds the same as its successor, unless it was damaged.
            if part is not None and part.reader.segment.is_linked():
                self._parts.move_to_end(name)
                return part
        part = self._open(name)
        if part.start.seq + 1 != names.sealed_first_seq(name):
            # Copied, or renamed.
            raise part.reader.segment.damaged(0, f"begins with event {part.start.seq + 1}")
        with self._mutex:
            self._parts[name] = part
            while len(self._parts) > _OPEN:
                self._parts.popitem(last=False)
        return part

    def _open(self, name: str) -> SealedPart:
        directory = self.open_directory()
        path = self._path.rpartition("/")[0] + "/" + name
        try:
            descriptor = disk.open_file(directory, name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk.explain(error, "open", path) from error
        # A temporary name is that of a new compressed segment.
        kind = Segment if name.endswith(".jsonl") else SealedSegment
        reader = SegmentReader(kind(descriptor, path, self._session_id))
        return SealedPart(reader, reader.log_end().position)

    def check_new(self, name: str, start: Position, end: Position) -> None:
        """Read a new sealed segment; raise `Damaged` unless its lines lie between these two positions."""
        part = self._open(name)
        segment = part.reader.segment
        assert isinstance(segment, SealedSegment)
        segment.check()
        if (part.start, part.end) != (start, end):
            raise segment.damaged(0, "its lines differ from the written ones")
        for piece in segment.ranges():
            piece.lines(format.decode_lines)

    # Between two ranges, a segment may be replaced by one that begins earlier or ends later. So each range
    # comes with the seqs that count in it: those that were not returned yet.

    def forwards(self, after: int, upto: int) -> Iterator[tuple[SegmentRange, int]]:
        """Yield the ranges that hold the events with after < seq <= upto, in order.

        Each with the seq after which its events count.
        """
        upto = min(upto, self.upto)
        seq = max(after, self._begin())
        while seq < upto:
            for piece in self.part_with(seq + 1).pieces(seq):
                if piece.end.seq > seq:
                    yield piece, seq
                    seq = piece.end.seq
                if seq >= upto:
                    return

    def backwards(self, upto: int, after: int) -> Iterator[tuple[SegmentRange, int]]:
        """Yield the same from the last range to the first, each with the last seq that counts in it."""
        seq = min(upto, self.upto)
        after = max(after, self._begin())
        while seq > after:
            part = self.part_with(seq)
            reader = part.reader
            end = reader.position_after(seq, part.end) if seq < part.end.seq else part.end
            for piece in reader.backwards(end):
                yield piece, seq
                # The position is one after the event, maybe by several ranges: never count them again.
                seq = min(seq, piece.start.seq)
                if seq <= after:
                    return

    def controls(self, after: int = 0) -> list[Line]:
        """Return the control records after a seq, in order."""
        found = []
        for part, behind in self.parts(after):
            lines = part.reader.controls(part.reader.log_end().ctl)
            found += [line for line in lines if behind < line.seq <= self.upto]
        return found

    def first(self) -> Line:
        """Return the log's first record."""
        part = self.part_with(self._begin() + 1)
        return part.reader.first(part.end)

    def find_key(self, key: str) -> tuple[int, int] | None:
        """Return first seq and number of events of the append that has this key."""
        found = (part.find_key(key) for part, _ in self.parts())
        return next((append for append in found if append is not None), None)


def check_part(part: SealedPart) -> None:
    """Check every line of a segment, and its index if it has one; raise `Damaged` if anything is wrong."""
    segment = part.reader.segment
    if isinstance(segment, SealedSegment):
        compare(segment)
    else:
        for piece in part.pieces():
            segment_scan.committed(segment, piece.start, piece.data, piece.end)


def check_chain(chain: SealedChain, active: SegmentReader) -> None:
    """Check every byte of the sealed segments, and that each continues the one before it."""
    seq = begin = -1
    for part, _ in chain.parts():
        segment = part.reader.segment
        begin = part.start.seq if begin < 0 else begin
        # A later one may begin there too, if it was joined with those before it concurrently.
        if part.begins and part.start.seq > begin:
            raise segment.damaged(0, "it says that the log begins here, which is wrong")
        check_part(part)
        seq = part.end.seq
    if seq < active.segment.start.seq:
        raise active.segment.damaged(0, f"the segment before ends at event {seq}")
