"""Rewrite the sealed segments of a log: compressed, joined, and without what is to be erased.

Writers and readers continue concurrently: the session's lock is held only while the active segment is sealed.
A new segment is written next to the old ones, synced, and renamed to the first one that it replaces; then the
others are removed. A crash leaves the state before or after, and duplicate files that the next compaction
removes.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zstandard

from hansard.backend.contract import CompactionFilter, CompactionResult, Progress, streamed
from hansard.backend.local.log import event_of, records_of, stream_of
from hansard.errors import Damaged, DiskFailed
from hansard.event.kinds import MESSAGE_PART
from hansard.log import checkpoint, disk, format, names
from hansard.log.disk import Lock
from hansard.log.format import Position
from hansard.log.sealed_chain import SealedChain, SealedPart
from hansard.log.sealed_segment import LAST_FRAME, SealedSegment
from hansard.log.sealed_writer import SealedWriter
from hansard.log.segment import header, sealed_files
from hansard.log.segment_reader import SegmentRange, SegmentReader
from hansard.log.store_directory import sweep

if TYPE_CHECKING:
    from hansard.backend.local.log import LocalLog

#: Bytes of sealed segments from which on a checkpoint is written; less is read quickly.
CHECKPOINT: Final = 256 * 1024

#: Maximum size of joined segments, before compression. A segment of this size is rewritten only to erase.
LARGEST: Final = 8 * 1024 * 1024

#: Segments below this size, before compression, are compressed this many levels harder, at little cost.
SMALL: Final = 1024 * 1024
_HARDER: Final = 3

#: Events between two reports of progress.
_TELL: Final = 5_000

#: Attempts to write a segment while concurrent forks and snapshots need what it leaves out.
_TRIES: Final = 5


def compact(
    log: "LocalLog",
    filter: CompactionFilter,
    level: int,
    progress: Progress | None,
    state: Callable[[int], bytes] | None,
    timeout: float,
) -> CompactionResult:
    """Compact the sealed segments of a session. `timeout`: seconds to wait for another compactor."""
    reader = log.existing()[0]
    chain = log.files.chain(reader)
    if chain is None:
        return CompactionResult(0, 0, 0, 0)
    directory = chain.open_directory()
    path = log.files.root.path_of(log.files.name)
    lock = _locked(directory, f"{path}/{names.COMPACTION}", timeout)
    try:
        # The compactor that was waited for may have sealed more.
        reader = log.existing()[0]
        chain = log.files.chain(reader) or chain
        with disk.reporting("compact", path, "no event was changed"):
            work = _Compaction(directory, path, reader, chain.again(), filter, level, progress)
            done = work.run()
        if done.segments:
            _save_checkpoint(directory, reader, chain.again(), state)
        return done
    finally:
        lock.release()


def _locked(directory: int, path: str, timeout: float) -> Lock:
    """Take the lock of the session's compactors; `LockTimeout` after `timeout` seconds."""
    try:
        file = disk.open_file(directory, names.COMPACTION, writable=True, create=True)
    except OSError as error:
        raise DiskFailed("open", path, error, "nothing was compacted") from error
    lock = Lock(file, path, rare=True)
    lock.acquire(timeout)
    return lock


def _save_checkpoint(
    directory: int,
    reader: SegmentReader,
    chain: SealedChain,
    state: Callable[[int], bytes] | None,
) -> None:
    """Save the control records and the state up to the end of the sealed segments, if these are large."""
    if chain.size() < CHECKPOINT:
        return
    segment = reader.segment
    assert segment.previous is not None  # there is a chain
    lines = b"".join(map(format.control_line, chain.controls()))
    saved = b"" if state is None else state(chain.upto)
    log = segment.session_id, segment.time, chain.upto, segment.previous.crc
    # It is derived: without it reads are slower, and nothing else.
    with suppress(OSError):
        checkpoint.write(directory, checkpoint.Checkpoint(*log, lines, saved))


@dataclass
class _Source:
    """A sealed segment: its file, and the size of that."""

    name: str
    part: SealedPart
    size: int

    def __post_init__(self) -> None:
        segment = self.part.reader.segment
        #: None if it is not compressed yet.
        self.sealed = segment if isinstance(segment, SealedSegment) else None
        self.first = self.part.start.seq + 1
        self.last = self.part.end.seq
        #: The size of its lines.
        self.raw = self.part.end.offset

    def pieces(self) -> Iterator[SegmentRange]:
        return self.part.reader.forwards(self.part.start, self.part.end)


@dataclass
class _Compaction:
    """One compaction of one session. The caller holds its lock, or only plans."""

    directory: int
    path: str
    reader: SegmentReader
    chain: SealedChain
    filter: CompactionFilter
    level: int = 0
    progress: Progress | None = None

    def __post_init__(self) -> None:
        #: Streams that are over, with the seq of their end.
        self._ended: dict[str, int] = {}
        #: Segments whose lines cannot be copied as they are: with stream parts or discarded fragments.
        self._altered: set[str] = set()
        self._blanked = 0
        self._done = 0
        self._total = 0

    def run(self) -> CompactionResult:
        """Rewrite what has to be rewritten."""
        sweep(self.directory)
        sources, leftovers = self._sources()
        before = sum(source.size for source in sources) + sum(leftovers.values())
        groups = self._groups(sources)
        self._total = sum(source.raw for group in groups for source in group)
        if groups:
            # It may hold what is to be erased; another is written at the end.
            disk.discard(self.directory, names.CHECKPOINT)
        for group in groups:
            self._rewrite(group)
        for name in leftovers:
            self._remove(name)
        after = before
        if groups or leftovers:
            # What was erased must not come back with an old file after a power cut.
            disk.sync_directory(self.directory)
            after = sum(source.size for source in self._sources()[0])
        return CompactionResult(before, after, sum(map(len, groups)), self._blanked)

    # -- what to do -----------------------------------------------------------------------------

    def _sources(self) -> tuple[list[_Source], dict[str, int]]:
        """Return the segments in order, and the sizes of files that only repeat their events."""
        sources: list[_Source] = []
        leftovers: dict[str, int] = {}
        seq = -1
        files = sealed_files(self.directory, self.chain.upto + 1)[0]
        chosen = dict(files)
        for first, name in files:
            size = disk.status(self.directory, name).st_size
            # Of a segment that is there compressed and not, the compressed one counts, which sorts later.
            if chosen[first] != name or first <= seq:
                leftovers[name] = size
                continue
            sources.append(_Source(name, self.chain.part_named(name), size))
            seq = sources[-1].last
        return sources, leftovers

    def _groups(self, sources: list[_Source]) -> list[list[_Source]]:
        """Choose what is rewritten together.

        Segments that are not compressed yet are joined with those before them that are at most twice as
        large: so each byte is rewritten a few times at most, however often this runs.
        """
        for source in sources:
            if source.sealed is None:
                self._find_streams(source)
        place = len(sources)
        while place and sources[place - 1].sealed is None:
            place -= 1
        group = sources[place:]
        size = sum(source.raw for source in group)
        while group and place:
            more = sources[place - 1].raw
            if more > 2 * size or size + more > LARGEST:
                break
            place -= 1
            group.insert(0, sources[place])
            size += more
        groups = [[source] for source in sources[:place] if self._is_stale(source)]
        return [*groups, group] if group else groups

    def _find_streams(self, source: _Source) -> None:
        """Note which streams end in a segment, and whether its lines cannot be copied as they are."""
        for piece in source.pieces():
            # Each fragment is followed by a note.
            if b'\n{"log":"recovered"' in piece.data:
                self._altered.add(source.name)
            if b'"message.part"' not in piece.data and b'"stream":' not in piece.data:
                continue  # no line needs to be decoded to know this
            for line in piece.lines(format.decode_lines):
                part = None
                if line.kind == MESSAGE_PART or b'"stream":' in bytes(line.data):
                    part = streamed(event_of(line))
                if part is not None:
                    self._altered.add(source.name)
                    if part.over:
                        self._ended[part.stream] = line.seq

    def _is_stale(self, source: _Source) -> bool:
        """Return whether something in a compressed segment is to be erased, and is still there."""
        if source.sealed is None:
            return True
        index = source.sealed.index
        if index.fingerprint != self.filter.fingerprint(source.first, source.last):
            return True
        return any(stream in self.filter.streams or stream in self._ended for stream in index.parts)

    # -- writing --------------------------------------------------------------------------------

    def _rewrite(self, group: list[_Source]) -> None:
        small = sum(source.raw for source in group) < SMALL
        level = self.level + _HARDER if small else self.level
        compress = zstandard.ZstdCompressor(level=level).compress
        done, blanked = self._done, self._blanked
        name = names.sealed(group[0].first)
        for left in reversed(range(_TRIES)):
            self._done, self._blanked = done, blanked
            if self._write(group, name, compress, last_try=not left):
                break
        for source in group:
            if source.name != name:
                self._remove(source.name)

    def _write(
        self,
        group: list[_Source],
        name: str,
        compress: Callable[[bytes], bytes],
        *,
        last_try: bool,
    ) -> bool:
        """Write a new segment and rename it; False if a concurrent fork or snapshot needs more of it."""
        first, part = group[0].first, group[0].part
        segment = self.reader.segment
        fingerprint = self.filter.fingerprint(first, group[-1].last)
        # A segment that is compressed for the first time can often stay as it is, line for line.
        plain = (
            len(group) == 1
            and group[0].sealed is None
            and not fingerprint
            and group[0].name not in self._altered
        )
        if plain:
            start = part.start
            head = part.reader.segment.read(0, start.offset)
        else:
            facts = {"created": segment.time}
            time = segment.time.encode()
            head, start = header(segment.session_id, before=first - 1, time=time, facts=facts)
        temporary = names.temporary(name)
        with disk.temporary_file(self.directory, temporary) as descriptor:
            writer = SealedWriter(
                descriptor,
                head,
                start,
                session_id=segment.session_id,
                created=segment.time,
                compress=compress,
                begins=part.begins,
                fingerprint=fingerprint,
            )
            if plain:
                self._copy(writer, group[0])
            else:
                self._fill(writer, group)
            writer.finish()
            self._read_back(temporary, start, writer.position)
            if self.filter.has_moved() and not last_try:
                disk.discard(self.directory, temporary)
                return False
            # It is complete and durable before it has a name; a crash before leaves the old ones.
            disk.move(self.directory, temporary, self.directory, name)
            disk.sync_directory(self.directory)
        return True

    def _read_back(self, name: str, start: Position, end: Position) -> None:
        """Read a new segment as readers do, before it replaces anything; raise unless it is as meant.

        The running checksum at its end covers every byte that was to be written.
        """
        try:
            self.chain.check_new(name, start, end)
        except Damaged as error:
            note = f"the new segment cannot be read back: {error.reason}; the log is as it was"
            raise DiskFailed("compact", self.path, OSError(errno.EIO, ""), note) from error

    def _copy(self, writer: SealedWriter, source: _Source) -> None:
        reader, start, end = source.part.reader, source.part.start, source.part.end
        # A place near the end, from which the last lines have their own frame.
        last = end
        for piece in reader.backwards(end):
            if end.offset - piece.start.offset > LAST_FRAME:
                break
            last = piece.start
        for begin, stop in ((start, last), (last, end)):
            for piece in reader.forwards(begin, stop):
                writer.copy(piece)
                self._report(self._done + piece.end.offset)
        writer.ctl = reader.log_end().ctl
        self._done += source.raw

    def _fill(self, writer: SealedWriter, group: list[_Source]) -> None:
        kept: dict[str, None] = {}
        for source in group:
            for line, unknown in records_of(source.part.reader, source.part.end):
                event = event_of(line)
                left = self.filter.left_of(event, self._ended)
                writer.add(line, left, unknown=unknown)
                # What was erased before is erased again, and not counted.
                self._blanked += left != event.raw
                if left == event.raw and (stream := stream_of(line)) is not None:
                    kept[stream] = None
                if line.seq % _TELL == 0:
                    self._report(self._done)
            self._done += source.raw
            self._report(self._done)
        writer.parts = list(kept)

    def _report(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, self._total)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            disk.remove(self.directory, name)
