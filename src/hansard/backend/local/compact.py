"""Rewrite the sealed segments of a log: compressed, joined, and without what is to be erased.

Writers and readers continue concurrently: the session's lock is held only while the active segment is sealed.
A new segment is written next to the old ones, synced, and renamed to the first one that it replaces; then the
others are removed. A crash leaves the state before or after, and duplicate files that the next compaction
removes.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zstandard

from hansard.backend.contract import CompactionFilter, CompactionResult, Progress
from hansard.backend.local.log import event_of, records_of
from hansard.errors import Damaged, DiskFailed
from hansard.log import checkpoint, disk, format, names
from hansard.log.format import LogEnd
from hansard.log.sealed_chain import SealedChain, SealedPart
from hansard.log.sealed_segment import LAST_FRAME, SealedSegment, SegmentIndex
from hansard.log.sealed_writer import SealedWriter
from hansard.log.segment import header, sealed_files
from hansard.log.segment_reader import SegmentReader
from hansard.log.store_directory import not_found, sweep

if TYPE_CHECKING:
    from hansard.backend.local.log import LocalLog

#: Bytes of sealed segments from which on a checkpoint is written.
CHECKPOINT: Final = 256 * 1024

#: Maximum size of joined segments, before compression. A segment of this size is rewritten only to erase.
LARGEST: Final = 8 * 1024 * 1024

#: Segments below this size, before compression, are compressed this many levels harder, at little cost.
SMALL: Final = 1024 * 1024
_HARDER: Final = 3

#: A shorter active segment fits into a block of most file systems: sealed, it would take two.
_BLOCK: Final = 4096

#: The beginning of the note that follows each discarded fragment.
_RECOVERED: Final = b'\n{"log":"recovered"'

#: Events between two reports of progress.
_TELL: Final = 5_000


def is_worthwhile(reader: SegmentReader, end: LogEnd, filter: CompactionFilter) -> bool:
    """Return whether sealing and compressing the active segment saves space, or erases something."""
    erases = bool(filter.replaced or filter.streams or filter.before)
    if end.shut or erases or end.size > _BLOCK:
        return True
    if end.position.seq == reader.segment.start.seq:
        return False  # it holds no event
    # Fragments of torn appends are erased.
    return end.size > end.position.offset or _RECOVERED in reader.segment.read(0, end.size)


def files_size(log: "LocalLog") -> int:
    """Return the bytes of all files in a session's directory."""
    files = log.files
    directory = files.root.open_session(log.session_id, files.name)
    size = 0
    if directory is not None:
        with disk.reporting("read", files.path):
            for name in disk.names(directory):
                # Another process may have removed it.
                with suppress(FileNotFoundError):
                    size += disk.status(directory, name).st_size
    return size


def compact(
    log: "LocalLog",
    filter: CompactionFilter,
    level: int,
    progress: Progress | None,
    state: Callable[[int], bytes] | None,
    timeout: float,
    before: int,
) -> CompactionResult:
    """Compact the sealed segments of a session. `timeout`: seconds to wait for another compactor.

    `before`: the bytes of the session's files before its active segment was sealed.
    """
    chain = log.files.chain(log.existing()[0])
    if chain is None:
        return CompactionResult(0, 0, 0, 0)
    directory = chain.open_directory()
    path = log.files.root.path_of(log.files.name)
    lock_path = f"{path}/{names.COMPACTION}"
    counters, hint = log.files.root.counters, "nothing was compacted"
    lock = disk.open_lock(directory, names.COMPACTION, lock_path, counters, rare=True, hint=hint)
    if lock is None:
        raise not_found(log.session_id)
    lock.acquire(timeout)
    try:
        # The compactor that was waited for may have sealed more.
        reader = log.existing()[0]
        chain = log.files.chain(reader) or chain
        with disk.reporting("compact", path, "no event was changed"):
            work = _Compaction(directory, path, reader, chain.again(), filter, level, progress)
            segments = work.run()
        if not segments:
            return CompactionResult(0, 0, 0, 0)
        # Less is read quickly without a checkpoint.
        if chain.size() >= CHECKPOINT:
            _save_checkpoint(directory, reader, chain.again(), state)
        return CompactionResult(before, files_size(log), segments, work.blanked)
    finally:
        lock.release()


def _save_checkpoint(
    directory: int,
    reader: SegmentReader,
    chain: SealedChain,
    state: Callable[[int], bytes] | None,
) -> None:
    """Save the control records and the state up to the end of the sealed segments."""
    segment = reader.segment
    assert segment.previous is not None  # there is a chain
    lines = b"".join(map(format.control_line, chain.controls()))
    saved = b"" if state is None else state(chain.upto)
    log = segment.session_id, segment.time, chain.upto, segment.previous.crc
    # It is derived: without it reads are slower, and nothing else.
    with suppress(OSError):
        checkpoint.write(directory, checkpoint.Checkpoint(*log, lines, saved))


def _index_of(part: SealedPart) -> SegmentIndex | None:
    """Return the index of a compressed segment; None if it is not compressed yet."""
    segment = part.reader.segment
    return segment.index if isinstance(segment, SealedSegment) else None


def _lines_size(parts: list[SealedPart]) -> int:
    """Return the bytes of the lines of some segments."""
    return sum(part.end.offset for part in parts)


@dataclass
class _Compaction:
    """One compaction of one session. The caller holds its lock."""

    directory: int
    path: str
    reader: SegmentReader
    chain: SealedChain
    filter: CompactionFilter
    level: int
    progress: Progress | None
    #: Number of events whose data were erased.
    blanked: int = 0
    #: Bytes of lines that are rewritten, and of all that will be.
    _done: int = 0
    _total: int = 0

    def run(self) -> int:
        """Rewrite what has to be rewritten; return the number of segments."""
        sweep(self.directory)
        files = sealed_files(self.directory, self.chain.upto + 1)[0]
        parts = [part for part, _ in self.chain.parts()]
        # These only repeat events.
        leftovers = {name for _, name in files} - {part.name for part in parts}
        groups = self._groups(parts)
        self._total = sum(map(_lines_size, groups))
        if groups:
            # It may hold what is to be erased; another is written at the end.
            self._remove({names.CHECKPOINT})
        for group in groups:
            self._rewrite(group)
        self._remove(leftovers)
        if groups or leftovers:
            # What was erased must not come back with an old file after a power cut.
            disk.sync_directory(self.directory)
        return sum(map(len, groups))

    def _groups(self, parts: list[SealedPart]) -> list[list[SealedPart]]:
        """Choose what is rewritten together.

        Segments that are not compressed yet are joined with those before them that are at most twice as
        large: so each byte is rewritten a few times at most, however often this runs.
        """
        place = len(parts)
        while place and _index_of(parts[place - 1]) is None:
            place -= 1
        size = _lines_size(parts[place:])
        while place and size:
            more = parts[place - 1].end.offset
            if more > 2 * size or size + more > LARGEST:
                break
            place -= 1
            size += more
        # A sealed segment that holds something to be erased is rewritten alone.
        groups = []
        for part in parts[:place]:
            index = _index_of(part)
            if index is None or index.fingerprint != self._fingerprint([part]):
                groups.append([part])
        return [*groups, parts[place:]] if size else groups

    def _fingerprint(self, group: list[SealedPart]) -> str:
        return self.filter.fingerprint(group[0].start.seq + 1, group[-1].end.seq)

    def _rewrite(self, group: list[SealedPart]) -> None:
        """Write a new segment, rename it, and remove those that it replaces."""
        part = group[0]
        segment = self.reader.segment
        fingerprint = self._fingerprint(group)
        # A segment that is compressed for the first time can often stay as it is, line for line.
        plain = (
            len(group) == 1
            and _index_of(part) is None
            and not fingerprint
            and not any(_RECOVERED in piece.data for piece in part.pieces())
        )
        if plain:
            start = part.start
            head = part.reader.segment.read(0, start.offset)
        else:
            facts = {"created": segment.time}
            time = segment.time.encode()
            head, start = header(segment.session_id, before=part.start.seq, time=time, facts=facts)
        level = self.level + _HARDER if _lines_size(group) < SMALL else self.level
        name = names.sealed(part.start.seq + 1)
        temporary = names.temporary(name)
        with disk.temporary_file(self.directory, temporary) as descriptor:
            writer = SealedWriter(
                descriptor,
                head,
                start,
                session_id=segment.session_id,
                created=segment.time,
                compress=zstandard.ZstdCompressor(level=level).compress,
                begins=part.begins,
                fingerprint=fingerprint,
            )
            if plain:
                self._copy(writer, part)
            else:
                self._fill(writer, group)
            writer.finish()
            try:
                self.chain.check_new(temporary, start, writer.position)
            except Damaged as error:
                note = f"the new segment cannot be read back: {error.reason}; the log is as it was"
                raise DiskFailed("compact", self.path, OSError(errno.EIO, ""), note) from error
            # It is complete and durable before it has a name; a crash before leaves the old ones.
            disk.move(self.directory, temporary, self.directory, name)
            disk.sync_directory(self.directory)
        self._remove({old.name for old in group} - {name})

    def _copy(self, writer: SealedWriter, part: SealedPart) -> None:
        reader, end = part.reader, part.end
        # A place near the end, from which the last lines have their own frame.
        last = end
        for piece in reader.backwards(end):
            if end.offset - piece.start.offset > LAST_FRAME:
                break
            last = piece.start
        self._report(part.start.offset)
        for begin, stop in ((part.start, last), (last, end)):
            for piece in reader.forwards(begin, stop):
                writer.copy(piece)
                self._report(len(piece.data))
        writer.ctl = reader.log_end().ctl

    def _fill(self, writer: SealedWriter, group: list[SealedPart]) -> None:
        for part in group:
            for line, unknown in records_of(part.reader, part.end):
                if line.seq <= writer.position.seq:
                    continue  # a repair began inside of the segment before it
                event = event_of(line)
                left = self.filter.mask(event).raw
                writer.add(line, left, unknown=unknown)
                # What was erased before is erased again, and not counted.
                self.blanked += left != event.raw
                if line.seq % _TELL == 0:
                    self._report(0)
            self._report(part.end.offset)

    def _report(self, more: int) -> None:
        self._done += more
        if self.progress is not None:
            self.progress(self._done, self._total)

    def _remove(self, files: set[str]) -> None:
        for name in sorted(files):
            with suppress(FileNotFoundError):
                disk.remove(self.directory, name)
