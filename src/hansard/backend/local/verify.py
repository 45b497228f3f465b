"""List every line of a session's files, valid or not, with its offset.

For people who look for what went wrong, and so for damaged sessions too: nothing here raises because of
what a file holds. Each line is judged by itself; `verify` tells what its damage means.
"""

from collections.abc import Iterator

from hansard.backend.contract import CompactionFilter, Record
from hansard.backend.local.records import event_of, stream_of
from hansard.errors import Damaged, UnknownFormat
from hansard.event.kinds import MESSAGE_PART, is_content
from hansard.log import disk, format, names, segment_scan
from hansard.log.format import Position
from hansard.log.sealed_segment import SealedSegment
from hansard.log.segment import Raw, Segment, open_segment, sealed_files
from hansard.log.segment_reader import SegmentReader


def records(directory: int, path: str) -> Iterator[Record]:
    """Yield the records of all segments in a session's directory, the active one last."""
    try:
        sealed, _ = sealed_files(directory, _first_active(directory, path))
    except FileNotFoundError:
        return  # purged, while it was open
    except OSError as error:
        raise disk.explain(error, "list", path) from error
    for name in (*(name for _, name in sealed), names.LOG):
        try:
            file = disk.open_file(directory, name)
        except FileNotFoundError:
            continue  # compacted concurrently: what it held is in another one
        except OSError as error:
            raise disk.explain(error, "open", f"{path}/{name}") from error
        yield from _segment(disk.OwnedFd(file), name, f"{path}/{name}")


def _first_active(directory: int, path: str) -> int:
    """Return the first seq of the active segment; higher than any seq if it does not say it."""
    try:
        active = open_segment(directory, f"{path}/{names.LOG}", None, writable=False)
    except (Damaged, UnknownFormat):
        active = None
    return format.MAX_SEQ if active is None else active.start.seq + 1


def _segment(file: disk.OwnedFd, name: str, path: str) -> Iterator[Record]:
    descriptor = disk.duplicate(file.descriptor)
    try:
        segment = (
            SealedSegment(descriptor, path, None)
            if name.endswith(".zst")
            else Segment(descriptor, path, None)
        )
    except (Damaged, UnknownFormat) as error:
        # Of a compressed file without its index nothing can be told here; of others, every line.
        if name.endswith(".zst"):
            yield Record(name, 0, disk.size(file.descriptor), b"", str(error))
            return
        raw = Raw(disk.duplicate(file.descriptor), path)
        yield from _walked(name, segment_scan.scan(raw), raw, raw.size())
        return
    try:
        head = segment.read(0, segment.start.offset)
        yield Record(name, 0, len(head), head, "")
        walked = segment_scan.scan(segment)
        yield from _walked(name, walked, segment, segment.size(), segment.start.offset)
    except Damaged as error:
        yield Record(name, error.offset, 0, b"", error.reason)


def _walked(
    name: str,
    lines: Iterator[segment_scan.ScannedLine],
    source: Segment,
    size: int,
    end: int = 0,
) -> Iterator[Record]:
    for seen in lines:
        reason = seen.reason
        if seen.line is None and not reason:
            reason = "unfinished, and ended by the next append"
        yield Record(name, seen.offset, seen.length, seen.raw, reason)
        end = seen.offset + seen.length
    if size > end:
        rest = source.read_some(end, size - end)
        yield Record(name, end, size - end, rest, "unfinished, as a crash leaves it")


def unerased(reader: SegmentReader, end: Position, filter: CompactionFilter) -> Iterator[int]:
    """Yield the seqs of events with data that the index of a segment marks as erased."""
    segment = reader.segment
    if not isinstance(segment, SealedSegment) or not segment.index.fingerprint:
        return
    if segment.index.fingerprint != filter.fingerprint(segment.start.seq + 1, end.seq):
        return  # it waits for the next compaction
    for piece in reader.forwards(segment.start, end):
        for line in piece.lines(format.decode_lines):
            if line.seq in filter.seqs or (line.seq < filter.before and is_content(line.kind)):
                # A stream part without text has nothing to erase.
                if line.kind == MESSAGE_PART and not stream_of(line):
                    continue
                event = event_of(line)
                if filter.mask(event).raw != event.raw:
                    yield line.seq
