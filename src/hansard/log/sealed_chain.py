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
from itertools import pairwise
from typing import Final

from hansard.errors import Damaged
from hansard.log import disk, format, names, segment_scan
from hansard.log.format import Line, Position
from hansard.log.sealed_segment import SealedSegment, StreamOf, compare
from hansard.log.segment import Segment, sealed_files
from hansard.log.segment_reader import SegmentRange, SegmentReader

#: So many sealed segments of a log stay open.
_OPEN: Final = 2

#: How often a name may be gone before it is taken for lost.
_TRIES: Final = 5


class SealedPart:
    """An open segment of a chain: how to read it, and where it ends."""

    __slots__ = ("end", "reader")

    def __init__(self, reader: SegmentReader, end: Position) -> None:
        self.reader = reader
        self.end = end

    @property
    def start(self) -> Position:
        """The mark behind the header."""
        return self.reader.segment.start

    @property
    def begins(self) -> bool:
        """True if the log begins here."""
        segment = self.reader.segment
        if isinstance(segment, SealedSegment):
            return segment.index.begins
        return segment.previous is None

    def controls(self) -> list[Line]:
        """Return the control records."""
        segment = self.reader.segment
        tail = segment.log_end() if isinstance(segment, SealedSegment) else self.reader.log_end()
        return self.reader.controls(tail.ctl)

    def line_at(self, seq: int) -> Line | None:
        """Return a record; None if it is not here."""
        reader = self.reader
        for piece in reader.forwards(reader.locate(seq - 1, self.end), self.end):
            for line in piece.lines(format.decode_lines):
                if line.seq == seq:
                    return line
        return None


class SealedChain:
    """The sealed segments of a log, up to the one that is active.

    `open_directory` opens the session's directory, or raises `SessionNotFound` or `SessionDeleted`; whoever
    calls it closes it.
    """

    __slots__ = (
        "_firsts",
        "_mutex",
        "_open_directory",
        "_parts",
        "_path",
        "_session_id",
        "_size",
        "upto",
    )

    def __init__(
        self,
        session_id: str,
        path: str,
        upto: int,
        open_directory: Callable[[], int],
    ) -> None:
        self._session_id = session_id
        self._path = path
        self._open_directory = open_directory
        #: The last seq before the active segment.
        self.upto = upto
        self._firsts: list[tuple[int, str]] = []
        #: Bytes of the files, as long as nobody has looked at the directory again.
        self._size: int | None = None
        self._parts: OrderedDict[str, SealedPart] = OrderedDict()
        #: Guards what is open: the threads of a process share a chain.
        self._mutex = threading.RLock()

    # -- finding --------------------------------------------------------------------------------

    def part_with(self, seq: int) -> SealedPart:
        """Return the segment that holds an event."""
        problem: Exception | None = None
        for attempt in range(_TRIES):
            if attempt or not self._firsts:
                self._list()
            firsts = self._firsts
            place = bisect_right(firsts, seq, key=lambda found: found[0]) - 1
            try:
                # Most often the first one does. A leftover of a crash may end too soon, and then one that
                # begins before it covers them both.
                for candidate in range(place, -1, -1):
                    part = self._part(firsts[candidate][1])
                    if candidate == 0 and not part.begins:
                        raise self._lost(f"the segment with event {firsts[0][0] - 1} is missing")
                    if part.end.seq >= seq:
                        return part
            except FileNotFoundError as error:
                problem = error
            # It may have been joined with the next one since it was opened: look again.
        raise self._lost(f"the segment with event {seq} is missing") from problem

    def _lost(self, reason: str) -> Damaged:
        """Return the error for missing segments; raise if the session was deleted, and they are no damage."""
        disk.close(self.open_directory())
        return Damaged(self._path, 0, reason, "restore them, or run `hansard repair --missing`")

    def part_named(self, name: str) -> SealedPart:
        """Return a segment by its name, which must be there."""
        return self._part(name)

    def parts(self, after: int = 0) -> Iterator[tuple[SealedPart, int]]:
        """Yield the segments, in order, each with the seq behind which its events count."""
        seq = max(after, self._begin())
        while seq < self.upto:
            part = self.part_with(seq + 1)
            yield part, seq
            seq = part.end.seq

    def names(self) -> list[str]:
        """Return the names of the files, in order of their first seqs, as they are now."""
        self._list()
        return [name for _, name in self._firsts]

    def size(self) -> int:
        """Return the bytes that the files take."""
        if self._size is not None:
            return self._size
        directory = self.open_directory()
        size = 0
        try:
            for name in self.names():
                # One that is gone is part of another by now.
                with contextlib.suppress(FileNotFoundError):
                    size += disk.stamp(directory, name) & ((1 << 48) - 1)
        except OSError as error:
            raise disk.explain(error, "read", self._path) from error
        finally:
            disk.close(directory)
        self._size = size
        return size

    def _begin(self) -> int:
        """Return the seq before the first event of all."""
        if not self._firsts:
            self._list()
        if not self._firsts:
            raise self._lost("sealed segments are missing")
        return self._firsts[0][0] - 1

    def again(self) -> "SealedChain":
        """Return the same, with nothing known and nothing open."""
        return SealedChain(self._session_id, self._path, self.upto, self._open_directory)

    def open_directory(self) -> int:
        """Open the session's directory."""
        return self._open_directory()

    def _list(self) -> None:
        directory = self.open_directory()
        try:
            found, _ = sealed_files(directory, self.upto + 1)
        except FileNotFoundError:
            found = []  # the directory was purged while it was open
        except OSError as error:
            raise disk.explain(error, "list", self._path) from error
        finally:
            disk.close(directory)
        # Under a name there may be another file by now.
        with self._mutex:
            self._parts.clear()
        self._size = None
        # Of one that is there compressed and not, the compressed one, which sorts behind.
        self._firsts = list(dict(found).items())

    def _part(self, name: str) -> SealedPart:
        with self._mutex:
            part = self._parts.get(name)
            # One that has lost its name says the same as what has it now, unless it was damaged.
            if part is not None and disk.identity(part.reader.segment.descriptor)[2]:
                self._parts.move_to_end(name)
                return part
        directory = self.open_directory()
        path = self._path.rpartition("/")[0] + "/" + name
        try:
            descriptor = disk.open_file(directory, name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk.explain(error, "open", path) from error
        finally:
            disk.close(directory)
        if name.endswith(".zst"):
            part = self._sealed_part(descriptor, path)
        else:
            reader = SegmentReader(Segment(descriptor, path, self._session_id))
            part = SealedPart(reader, reader.log_end().position)
        if part.start.seq + 1 != names.sealed_first_seq(name):
            # Copied, or renamed: what it holds is not what is looked for under this name.
            raise part.reader.segment.damaged(0, f"begins with event {part.start.seq + 1}")
        with self._mutex:
            self._parts[name] = part
            while len(self._parts) > _OPEN:
                self._parts.popitem(last=False)
        return part

    def _sealed_part(self, descriptor: int, path: str) -> SealedPart:
        sealed = SealedSegment(descriptor, path, self._session_id)
        return SealedPart(SegmentReader(sealed, sealed.marks()), sealed.end)

    def check_new(self, name: str, start: Position, end: Position) -> None:
        """Read a new sealed segment through; `Damaged` unless its lines lie between these two marks.

        One frame is in memory at a time. Each is read from the mark that the index gives it, so that every
        place is tried from which a reader may begin.
        """
        directory = self.open_directory()
        path = self._path.rpartition("/")[0] + "/" + name
        try:
            descriptor = disk.open_file(directory, name)
        except OSError as error:
            raise disk.explain(error, "open", path) from error
        finally:
            disk.close(directory)
        part = self._sealed_part(descriptor, path)
        segment = part.reader.segment
        assert isinstance(segment, SealedSegment)
        segment.check()
        if (part.start, part.end) != (start, end):
            raise segment.damaged(0, "it holds other lines than were written")
        for begin, stop in pairwise([*segment.marks(), end]):
            for piece in part.reader.forwards(begin, stop):
                piece.lines(format.decode_lines)

    # -- reading --------------------------------------------------------------------------------

    # A segment may be replaced, between two pieces, by one that begins earlier or ends later. So what is
    # handed out always comes with the seqs that count in it: those that have not been handed out yet.

    def forwards(self, after: int, upto: int) -> Iterator[tuple[SegmentRange, int]]:
        """Yield the pieces that hold the events with after < seq <= upto, in order.

        Each with the seq behind which its events count.
        """
        upto = min(upto, self.upto)
        seq = max(after, self._begin())
        while seq < upto:
            part = self.part_with(seq + 1)
            reader = part.reader
            start = reader.locate(seq, part.end) if seq > part.start.seq else part.start
            for piece in reader.forwards(start, part.end):
                if piece.end.seq > seq:
                    yield piece, seq
                    seq = piece.end.seq
                if seq >= upto:
                    return

    def backwards(self, upto: int, after: int) -> Iterator[tuple[SegmentRange, int]]:
        """Yield the same from the last piece to the first, each with the last seq that counts in it."""
        seq = min(upto, self.upto)
        after = max(after, self._begin())
        while seq > after:
            part = self.part_with(seq)
            reader = part.reader
            end = reader.position_after(seq, part.end) if seq < part.end.seq else part.end
            for piece in reader.backwards(end):
                yield piece, seq
                # Never further than it was: the mark is one behind the event, maybe by several pieces.
                seq = min(seq, piece.start.seq)
                if seq <= after:
                    return

    def controls(self, after: int = 0) -> list[Line]:
        """Return the control records behind a seq, in order."""
        return [
            line
            for part, behind in self.parts(after)
            for line in part.controls()
            if behind < line.seq <= self.upto
        ]

    def first(self) -> Line:
        """Return the first record of all."""
        part = self.part_with(self._begin() + 1)
        return part.reader.first(part.end)

    def find_key(self, key: str) -> tuple[int, int] | None:
        """Return first seq and number of events of the append that has this key."""
        from hansard.log.sealed_segment import hash_of

        wanted = hash_of(key)
        for part, _ in self.parts():
            segment = part.reader.segment
            if isinstance(segment, SealedSegment):
                places = segment.find_key(wanted)
            else:
                places = [seq for found, seq, _ in _keys_of(part) if found == key]
            for seq in places:
                line = part.line_at(seq)
                if line is not None and line.key == key:
                    return seq, line.more + 1
        return None


def _keys_of(part: SealedPart) -> Iterator[tuple[str, int, int]]:
    for piece in part.reader.forwards(part.start, part.end):
        for line in piece.lines(format.decode_lines):
            if line.key is not None:
                yield line.key, line.seq, line.more + 1


def check_chain(chain: SealedChain, active: SegmentReader, stream_of: StreamOf) -> None:
    """Check every byte of the sealed segments, and that each goes on where the one before it ended."""
    seq = 0
    first: int | None = None
    for part, after in chain.parts():
        if first is None:
            first = part.start.seq
        # A later one may begin there too: if it has been joined with those before it since.
        if part.begins and part.start.seq > first:
            raise part.reader.segment.damaged(0, "says that the log begins here, and it does not")
        if part.start.seq > after:
            raise part.reader.segment.damaged(
                0, f"begins behind event {part.start.seq}, and the one before ends at {after}"
            )
        if isinstance(part.reader.segment, SealedSegment):
            compare(part.reader.segment, stream_of)
        else:
            for piece in part.reader.forwards(part.start, part.end):
                segment_scan.committed(part.reader.segment, piece.start, piece.data, piece.end)
        seq = part.end.seq
    if seq < active.segment.start.seq:
        raise active.segment.damaged(0, f"the segment before ends at event {seq}")
