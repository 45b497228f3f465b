"""Rewrite the sealed segments of a log: compressed, joined, and without what is to be erased.

Writers and readers continue concurrently: the session's lock is held only while the active segment is sealed.
A new segment is written next to the old ones, synced, and renamed to the first one that it replaces; then the
others are removed. A crash leaves the state before or the state after, and files that say the same twice; the
next compaction removes those.
"""

import errno
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import zstandard

from hansard.backend.contract import CompactionFilter, CompactionResult
from hansard.backend.local.records import event_of
from hansard.errors import Damaged, DiskFailed
from hansard.event import kinds
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART
from hansard.log import disk, format, names, segment_scan
from hansard.log.disk import Lock
from hansard.log.format import Line, Position
from hansard.log.sealed_chain import SealedChain, SealedPart
from hansard.log.sealed_segment import LAST_FRAME, SealedSegment
from hansard.log.sealed_writer import SealedWriter
from hansard.log.segment import header, sealed_files
from hansard.log.segment_reader import SegmentRange
from hansard.log.store_directory import sweep

#: A segment is not joined with others beyond this, before compression: what was sealed because it had grown
#: is large enough, and is never written again unless something in it is to be forgotten.
LARGEST: Final = 8 * 1024 * 1024

#: Segments below this size, before compression, are compressed this many levels harder: they are many, and
#: each is quickly done.
SMALL: Final = 1024 * 1024
_HARDER: Final = 3

#: After so many events, whoever waits is told how far it is.
_TELL: Final = 5_000

#: How often a segment is written once more because somebody came to need what was left out.
_TRIES: Final = 5

Progress = Callable[[int, int], None]


class Source:
    """A sealed segment that is to be rewritten, or left as it is."""

    __slots__ = ("bytes", "name", "part", "sealed")

    def __init__(self, name: str, part: SealedPart, size: int) -> None:
        self.name = name
        self.part = part
        self.bytes = size
        segment = part.reader.segment
        #: None if it is not compressed yet.
        self.sealed: SealedSegment | None = segment if isinstance(segment, SealedSegment) else None

    @property
    def first(self) -> int:
        """The seq of its first event."""
        return self.part.start.seq + 1

    @property
    def last(self) -> int:
        """The seq of its last event."""
        return self.part.end.seq

    @property
    def raw(self) -> int:
        """Bytes of its lines."""
        return self.part.end.offset

    def pieces(self) -> Iterator[SegmentRange]:
        """Yield its lines, piece by piece."""
        return self.part.reader.forwards(self.part.start, self.part.end)

    def lines(self) -> Iterator[Line]:
        """Yield its records."""
        for piece in self.pieces():
            yield from piece.lines(format.decode_lines)

    def records(self) -> Iterator[tuple[Line, bytes]]:
        """Yield the same, each with the members that this version does not know."""
        segment = self.part.reader.segment
        for piece in self.pieces():
            for _, raw in segment_scan.committed(segment, piece.start, piece.data, piece.end):
                yield format.decode_line(raw), format.unknown_members(raw)


class Compaction:
    """One compaction of one session. The caller holds the compaction's lock."""

    def __init__(
        self,
        directory: int,
        chain: SealedChain,
        *,
        session_id: str,
        created: str,
        path: str,
        filter: CompactionFilter,
        level: int,
        progress: Progress | None,
    ) -> None:
        self._directory = directory
        self._chain = chain
        self._session_id = session_id
        self._created = created
        self._path = path
        self._filter = filter
        self._level = level
        self._progress = progress
        #: Streams that are over, with the seq of their end.
        self._ended: dict[str, int] = {}
        #: The segments whose lines cannot be copied as they are: with stream parts or discarded fragments.
        self._altered: set[str] = set()
        self._blanked = 0
        self._done = 0
        self._total = 0

    def run(self) -> CompactionResult:
        """Rewrite what has to be rewritten; return what came of it."""
        try:
            return self._run()
        except OSError as error:
            raise disk.explain(error, "compact", self._path, "the log says what it said") from error

    def _run(self) -> CompactionResult:
        sweep(self._directory)
        sources, leftovers = self._sources()
        before = sum(source.bytes for source in sources) + sum(size for _, size in leftovers)
        self._look_for_streams(sources)
        groups = self._groups(sources)
        self._total = sum(source.raw for group in groups for source in group)
        if groups:
            # It may hold what is to be forgotten, and must not outlive it; another is written at the end.
            disk.discard(self._directory, names.CHECKPOINT)
        for group in groups:
            self._rewrite(group)
        for name, _ in leftovers:
            self._remove(name)
        after = before
        if groups or leftovers:
            # What was taken out must not come back with an old file after a power cut.
            disk.sync_directory(self._directory)
            after = sum(source.bytes for source in self._sources()[0])
        rewritten = sum(len(group) for group in groups)
        return CompactionResult(before, after, rewritten, self._blanked)

    def plan(self) -> CompactionResult:
        """Say what `run` would rewrite of what is sealed already; write nothing."""
        sources, leftovers = self._sources()
        self._look_for_streams(sources)
        chosen = [source for group in self._groups(sources) for source in group]
        size = sum(source.bytes for source in chosen) + sum(size for _, size in leftovers)
        return CompactionResult(size, size, len(chosen), sum(map(self._pending, chosen)))

    def _pending(self, source: Source) -> int:
        """Return how many events of a segment are to be taken out, and are still there."""
        if not self._filter.fingerprint(source.first, source.last):
            return 0
        return sum(
            self._filter.mask(event_of(line)).raw != bytes(line.data) for line in source.lines()
        )

    # -- what there is --------------------------------------------------------------------------

    def _sources(self) -> tuple[list[Source], list[tuple[str, int]]]:
        """Return the segments in order, and files that say only what these say."""
        sources: list[Source] = []
        leftovers: list[tuple[str, int]] = []
        seq = -1
        found = []
        for _, name in sealed_files(self._directory, self._chain.upto + 1)[0]:
            size = disk.stamp(self._directory, name) & ((1 << 48) - 1)
            found.append((name, size))
        firsts = {names.sealed_first_seq(name): name for name, _ in found}
        for name, size in found:
            first = names.sealed_first_seq(name)
            # One that is there compressed and not: the compressed one counts.
            if firsts[first] != name or (first is not None and first <= seq):
                leftovers.append((name, size))
                continue
            part = self._chain.part_named(name)
            sources.append(Source(name, part, size))
            seq = part.end.seq
        return sources, leftovers

    def _look_for_streams(self, sources: list[Source]) -> None:
        """Learn, from what is not compressed yet, which streams are over, and what cannot be copied."""
        for source in sources:
            if source.sealed is not None:
                continue
            for piece in source.pieces():
                lines = piece.lines(format.decode_lines)
                # Each is closed by a note, so in most pieces every line is a record.
                if len(lines) < piece.data.count(b"\n") and b'\n{"log":"recovered"' in piece.data:
                    self._altered.add(source.name)
                for line in lines:
                    if self._learn(line):
                        self._altered.add(source.name)

    def _learn(self, line: Line) -> bool:
        """Take in what a record says about a stream; say whether it says something."""
        if line.kind == MESSAGE_PART:
            part = kinds.read(MESSAGE_PART, bytes(line.data))
            if part is not None and part.over:
                self._ended[part.stream] = line.seq
            return True
        if line.kind == MESSAGE_ADDED and b'"stream":' in bytes(line.data):
            added = kinds.read(MESSAGE_ADDED, bytes(line.data))
            if added is not None and added.stream is not None:
                self._ended[added.stream] = line.seq
                return True
        return False

    # -- what to do -----------------------------------------------------------------------------

    def _groups(self, sources: list[Source]) -> list[list[Source]]:
        """Choose what is rewritten together.

        What is not compressed yet is joined with what is before it while that is no more than twice as
        large: so each byte is rewritten a few times at the most, however often this runs.
        """
        groups: list[list[Source]] = []
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
        groups.extend([source] for source in sources[:place] if self._is_touched(source))
        if group:
            groups.append(group)
        return groups

    def _is_touched(self, source: Source) -> bool:
        """Say whether something in a compressed segment is to be forgotten, and is still there."""
        if source.sealed is None:
            return True
        index = source.sealed.index
        if index.fingerprint != self._filter.fingerprint(source.first, source.last):
            return True
        return any(
            stream in self._filter.streams or stream in self._ended for stream in index.parts
        )

    # -- doing it -------------------------------------------------------------------------------

    def _rewrite(self, group: list[Source]) -> None:
        small = sum(source.raw for source in group) < SMALL
        level = self._level + _HARDER if small else self._level
        done, blanked = self._done, self._blanked
        compress = zstandard.ZstdCompressor(level=level).compress
        for attempt in range(1, _TRIES + 1):
            if self._write(group, compress, last_try=attempt == _TRIES):
                break
            # A fork or a snapshot that was created concurrently needs what was left out.
            self._done, self._blanked = done, blanked

    def _write(
        self,
        group: list[Source],
        compress: Callable[[bytes], bytes],
        *,
        last_try: bool,
    ) -> bool:
        """Write a segment anew, and put it in place; False if it must be written once more."""
        first = group[0].first
        fingerprint = self._filter.fingerprint(first, group[-1].last)
        name = names.sealed(first)
        temporary = names.temporary(name)
        try:
            descriptor = disk.create_file(self._directory, temporary)
            try:
                head, start = header(
                    self._session_id,
                    before=first - 1,
                    time=self._created.encode(),
                    facts={"created": self._created},
                )
                plain = not fingerprint and len(group) == 1 and self._is_plain(group[0])
                if plain:
                    start = group[0].part.start
                    head = group[0].part.reader.segment.read(0, start.offset)
                sealer = SealedWriter(
                    descriptor,
                    head,
                    start,
                    session_id=self._session_id,
                    created=self._created,
                    compress=compress,
                    begins=group[0].part.begins,
                    fingerprint=fingerprint,
                )
                if plain:
                    self._copy(sealer, group[0])
                else:
                    self._fill(sealer, group)
                sealer.finish()
                self._read_back(temporary, start, sealer.position)
                if self._filter.has_moved() and not last_try:
                    disk.discard(self._directory, temporary)
                    return False
                # It is whole and durable before any name leads to it; a crash before leaves the old ones.
                disk.move(self._directory, temporary, self._directory, name)
                disk.sync_directory(self._directory)
            except BaseException:
                disk.discard(self._directory, temporary)
                raise
            finally:
                disk.close(descriptor)
        except OSError as error:
            raise disk.explain(error, "compact", self._path, "the log is as it was") from error
        for source in group:
            if source.name != name:
                self._remove(source.name)
        return True

    def _read_back(self, name: str, start: Position, end: Position) -> None:
        """Read a new segment as readers will, before it replaces anything; raise unless it is as meant.

        The running checksum at its end covers every byte that was to be written.
        """
        try:
            self._chain.check_new(name, start, end)
        except Damaged as error:
            note = f"the new segment cannot be read back: {error.reason}; the log is as it was"
            raise DiskFailed("compact", self._path, OSError(errno.EIO, ""), note) from error

    def _is_plain(self, source: Source) -> bool:
        """Say whether a segment that is not compressed yet can stay as it is, line for line."""
        return source.sealed is None and source.name not in self._altered

    def _copy(self, sealer: SealedWriter, source: Source) -> None:
        reader = source.part.reader
        start, end = source.part.start, source.part.end
        # A place near the end, from which the last lines have a frame of their own.
        last = end
        for piece in reader.backwards(end):
            if end.offset - piece.start.offset > LAST_FRAME:
                break
            last = piece.start
        for begin, stop in ((start, last), (last, end)):
            for piece in reader.forwards(begin, stop):
                sealer.copy(piece)
                self._tell(self._done + piece.end.offset)
        sealer.ctl = reader.log_end().ctl
        self._done += source.raw

    def _tell(self, done: int) -> None:
        if self._progress is not None:
            self._progress(done, self._total)

    def _fill(self, sealer: SealedWriter, group: list[Source]) -> None:
        kept: dict[str, None] = {}
        for source in group:
            for line, unknown in source.records():
                data = bytes(line.data)
                blank = self._blank(line, data, kept)
                sealer.add(line, data if blank is None else blank, unknown=unknown)
                # What was blank before is blank again, which is nothing new.
                if blank is not None and blank != data:
                    self._blanked += 1
                if line.seq % _TELL == 0:
                    self._tell(self._done)
            self._done += source.raw
            self._tell(self._done)
        sealer.parts = list(kept)

    def _blank(self, line: Line, data: bytes, kept: dict[str, None]) -> bytes | None:
        """Return what is to stand in the place of an event's data; None if they stay."""
        if line.kind == MESSAGE_PART and line.seq >= self._filter.before:
            part = kinds.read(MESSAGE_PART, data)
            if part is None:
                return None
            if part.stream not in self._filter.streams:
                ended = self._ended.get(part.stream)
                if ended is None or not self._filter.drop_part(line.seq, ended):
                    kept[part.stream] = None
                    return None
                if part.over or not part.text:
                    return None  # it says what must be known, or was emptied before
                return msgspec.json.encode(_decode_begun(data))
        event = event_of(line)
        masked = self._filter.mask(event)
        return None if masked is event else masked.raw

    def _remove(self, name: str) -> None:
        try:
            disk.remove(self._directory, name)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise disk.explain(
                error, "compact", self._path, "an old segment is still there"
            ) from error


class _Begun(msgspec.Struct, omit_defaults=True):
    """What is left of a part: whose it is, and, of the first one, how the message began."""

    stream: str
    message: dict[str, msgspec.Raw] | None = None


_decode_begun = msgspec.json.Decoder(_Begun).decode


def locked(directory: int, path: str, timeout: float) -> Lock:
    """Take the lock that keeps two compactors of one session apart; `LockTimeout` after `timeout` seconds."""
    try:
        file = disk.open_file(directory, names.COMPACTION, writable=True, create=True)
    except OSError as error:
        raise DiskFailed("open", path, error, "nothing was compacted") from error
    lock = Lock(file, path)
    lock.acquire(timeout)
    return lock
