"""Check every byte of a session's files, and list their lines, valid or not.

`verify` judges a complete log. `records` is for people who diagnose damage: it judges each line separately,
and never raises because of the content of a file.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from hansard.backend.contract import (
    DUPLICATE,
    WRONG_CHECKPOINT,
    Finding,
    Record,
)
from hansard.errors import Damaged, InvalidEvent, UnknownFormat
from hansard.event import codec
from hansard.log import disk, format, names, segment_scan
from hansard.log.format import LogEnd, Position
from hansard.log.sealed_chain import SealedChain, SealedPart, check_chain, check_part
from hansard.log.sealed_segment import SealedSegment
from hansard.log.segment import sealed_files
from hansard.log.segment_reader import Raw, Segment, SegmentReader, open_segment

if TYPE_CHECKING:
    from hansard.backend.local.log import LocalLog

#: Maximum findings listed per session and severity.
MAX_FINDINGS: Final = 1_000


def verify(log: "LocalLog") -> tuple[list[Finding], LogEnd | None]:
    """Return what is wrong with a session, and the end of its log; None instead if that is damaged."""
    files = log.files
    try:
        reader = log.existing()[0]
        # What the disk holds, not what the cache remembers: after a failed sync they differ, and what is
        # known of the end may be wrong.
        with disk.reporting("read", files.path):
            disk.forget_cached(reader.segment.descriptor)
        end = files.read_end_again(reader)
        check_part(SealedPart(reader, end.position))
        # Open the files again: frames in memory prove nothing about the disk.
        files.forget_chain()
        chain = files.chain(reader)
        if chain is not None:
            _forget_plain(chain)
            check_chain(chain, reader)
        for event in log.reader().controls():
            event.data  # noqa: B018 - decoded, to see that it can be
        found = _limited(_check_lines(reader, end, chain))
    except Damaged as error:
        return _list_damage(log, error), None
    if end.size > end.position.offset:
        length = end.size - end.position.offset
        reason = "an unfinished append, as a crash leaves one; the next append ends it"
        found.append(Finding("note", files.path, end.position.offset, length, reason))
    if chain is not None:
        found += _check_checkpoint(log, reader, chain)
    return found, end


def _forget_plain(chain: SealedChain) -> None:
    """Let sealed segments be read from the disk, too: the sync of one may have failed while it was sealed.

    A compressed one was durable before it had its name.
    """
    for part, _ in chain.parts():
        segment = part.reader.segment
        if not isinstance(segment, SealedSegment):
            with disk.reporting("read", segment.path):
                disk.forget_cached(segment.descriptor)


def _limited(findings: Iterable[Finding]) -> list[Finding]:
    """Return the first findings of each severity."""
    counts = Counter[str]()
    kept = []
    for finding in findings:
        counts[finding.severity] += 1
        if counts[finding.severity] <= MAX_FINDINGS:
            kept.append(finding)
    return kept


def _list_damage(log: "LocalLog", error: Damaged) -> list[Finding]:
    """Return all damage of the segment, of which reading has found the first."""
    log.report(error)
    items = log.files.salvage(log.files.reader)
    damage = (item for item in items if isinstance(item, segment_scan.ScanFinding))
    found = [Finding("damage", error.path, *one) for one in islice(damage, MAX_FINDINGS)]
    return found or [Finding("damage", error.path, error.offset, 0, error.reason)]


def _check_lines(
    reader: SegmentReader, end: LogEnd, chain: SealedChain | None
) -> Iterator[Finding]:
    """Yield what reading skips: discarded fragments (F-29), and keys that occur twice (F-13)."""
    sealed = [] if chain is None else [part for part, _ in chain.parts()]
    for part in (*sealed, SealedPart(reader, end.position)):
        path = part.reader.segment.path
        for piece in part.reader.forwards(part.start, part.end):
            for offset, length, what in segment_scan.discarded(piece.data):
                reason = f"{what}, as a crash leaves one; none of it was acknowledged"
                yield Finding("note", path, offset, length, reason)
            offset = piece.start.offset
            for line in piece.data.split(b"\n"):
                length = len(line) + 1
                try:
                    codec.check_keys(line, "the record")
                except InvalidEvent as error:
                    yield Finding("damage", path, offset, length, f"{error}; {DUPLICATE}")
                offset += length


def _check_checkpoint(
    log: "LocalLog", reader: SegmentReader, chain: SealedChain
) -> Iterator[Finding]:
    """Compare the checkpoint's control records with the log's; the caller compares its state."""
    files = log.files
    found = files.look_at_checkpoint(reader)
    where = files.root.path_of(files.name, names.CHECKPOINT)
    if isinstance(found, str):
        hint = "readers ignore it, and the next compaction replaces it"
        if found:
            yield Finding("note", where, 0, 0, f"this checkpoint {found}: {hint}")
        return
    right = [line for line in chain.controls() if line.seq <= found.seq]
    saved = format.decode_lines(found.controls)
    if list(map(format.control_line, saved)) != list(map(format.control_line, right)):
        reason = "this checkpoint has other control records than the log"
        yield Finding("damage", where, 0, 0, f"{reason}; {WRONG_CHECKPOINT}")


def records(directory: int, path: str) -> Iterator[Record]:
    """Yield the records of all segments in a session's directory, the active one last."""
    sealed: list[tuple[int, str]] = []
    # Missing: purged, while it was open; or compacted concurrently, and what it held is in another file.
    with disk.reporting("list", path), suppress(FileNotFoundError):
        sealed, _ = sealed_files(directory, _first_active(directory, path))
    for name in (*(name for _, name in sealed), names.LOG):
        try:
            file = disk.open_file(directory, name)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise disk.explain(error, "open", f"{path}/{name}") from error
        yield from _segment(file, name, f"{path}/{name}")


def _first_active(directory: int, path: str) -> int:
    """Return the first seq of the active segment; higher than any seq if it is unknown."""
    try:
        active = open_segment(directory, f"{path}/{names.LOG}", None, writable=False)
    except (Damaged, UnknownFormat):
        active = None
    return format.MAX_SEQ if active is None else active.start.seq + 1


def _segment(file: int, name: str, path: str) -> Iterator[Record]:
    segment: Segment = Raw(file, path)
    if name.endswith(".zst"):
        try:
            segment = SealedSegment(file, path, None)
        except (Damaged, UnknownFormat) as error:
            # Without its index, nothing of the segment can be read.
            yield Record(name, 0, segment.size(), b"", str(error))
            return
    end = 0
    try:
        # Before the scan: lines that are appended later are not a rest of it.
        size = segment.size()
        for seen in segment_scan.scan(segment, Position(0, 0, 0)):
            reason = seen.reason
            if seen.line is None and not reason:
                reason = "unfinished, and ended by the next append"
            yield Record(name, seen.offset, seen.length, seen.raw, reason)
            end = seen.offset + seen.length
        if end < size:
            rest = segment.read_some(end, size - end)
            yield Record(name, end, len(rest), rest, "unfinished, as a crash leaves it")
    except Damaged as error:
        yield Record(name, error.offset, 0, b"", error.reason)
