"""Create the files that hold a session's records, and find the sealed ones.

A segment gets its name complete, with header and first records, or not at all (F-25).
"""

from contextlib import suppress
from typing import Any, Final

import msgspec

from hansard.errors import Damaged
from hansard.log import disk, format, names
from hansard.log.format import Position
from hansard.log.segment_reader import Segment, SegmentReader

_NOT_ACKNOWLEDGED: Final = "this append was not acknowledged"


def header(
    session_id: str, *, before: int, time: bytes, facts: dict[str, Any] | None = None
) -> tuple[bytes, Position]:
    """Frame a segment's header; return it and the position after it.

    `before`: the seq before the segment's first event. `facts`: further members of its data (F-23).
    """
    data = {"version": format.VERSION, "session": session_id, **(facts or {})}
    line, crc = format.note("header", before, time, data, 0)
    return line, Position(len(line), before, crc)


def next_header(reader: SegmentReader, end: Position, previous: format.Previous) -> bytes:
    """Return the header of the segment that continues the active one after a position."""
    segment = reader.segment
    facts: dict[str, Any] = {"previous": previous, "created": segment.time}
    if segment.previous is None:
        line = reader.first(end)
        # Without its data: what is erased one day must not remain in headers.
        facts["first"] = {"seq": line.seq, "time": line.time, "kind": line.kind}
    elif segment.first_record:
        facts["first"] = msgspec.Raw(segment.first_record)
    return header(segment.session_id, before=previous.seq, time=format.now(), facts=facts)[0]


def sealed_files(directory: int, first: int) -> tuple[list[tuple[int, str]], list[str]]:
    """Return the sealed segments before an active one, in order, and the leftovers.

    `first`: the first seq of the active segment. A sealed file that begins there or later is a leftover of a
    repair or of an interrupted seal: the active segment has its events. Only a process that holds the
    session's lock may remove leftovers: otherwise `first` may be outdated.
    """
    files: list[tuple[int, str]] = []
    leftovers: list[str] = []
    for name in disk.names(directory):
        begin = names.sealed_first_seq(name)
        if begin is not None and begin < first:
            files.append((begin, name))
        elif begin is not None:
            leftovers.append(name)
    return sorted(files), sorted(leftovers)


def check_begun(directory: int, path: str) -> None:
    """Raise if a directory without a log has sealed segments: its active one is missing (F-175)."""
    sealed: list[tuple[int, str]] = []
    # Missing: the directory was removed while it was open.
    with disk.reporting("list", path), suppress(FileNotFoundError):
        sealed, _ = sealed_files(directory, format.MAX_SEQ)
    if sealed:
        reason = f"the file is missing, but the segment before it, {sealed[-1][1]}, is there"
        hint = "restore the file, or create an empty one and run `hansard repair`"
        raise Damaged(path, 0, reason, hint)


def create_segment(
    directory: int, path: str, session_id: str, content: bytes, *, after: Segment | None = None
) -> Segment:
    """Create the active segment, with its header and first records as content. The caller holds the lock.

    `after`: the active segment, which is sealed and durable. It gets its own name, and this one replaces it.
    Otherwise the caller has seen that there is no segment.
    """
    temporary = names.temporary(names.LOG)
    operation = "create"
    try:
        with disk.temporary_file(directory, temporary) as descriptor:
            operation = "write"
            disk.write_all(descriptor, content)
            operation = "sync"
            # Synced in every durability, before it has its name: a segment without a complete header is
            # damage (F-25), so not even a power cut may leave one.
            disk.sync(descriptor)
            operation = "rename"
            if after is None:
                disk.publish(directory, temporary, names.LOG)
            else:
                _replace(directory, after, temporary)
    except OSError as error:
        raise disk.explain(error, operation, path, _NOT_ACKNOWLEDGED) from error
    segment = Segment(descriptor, path, session_id)
    segment.durable = len(content)
    return segment


def _replace(directory: int, segment: Segment, temporary: str) -> None:
    """Give a sealed segment its own name, and a new file that of the log."""
    # A leftover of the same name would be taken for this segment, and its events would be lost.
    leftovers = sealed_files(directory, segment.start.seq + 1)[1]
    for leftover in leftovers:
        disk.remove(directory, leftover)
    if leftovers:
        _sync_names(directory, segment)
    # First the second name, then the new file under the first: there is a log at every moment.
    _name_twice(directory, segment)
    # A power cut may keep the later of two changes and not the earlier one: then only the new file
    # would have a name.
    _sync_names(directory, segment)
    disk.move(directory, temporary, directory, names.LOG)
    _sync_names(directory, segment)


def _sync_names(directory: int, segment: Segment) -> None:
    with disk.reporting("sync", segment.path, _NOT_ACKNOWLEDGED):
        disk.sync_directory(directory)


def _name_twice(directory: int, segment: Segment) -> None:
    """Give the sealed segment a second name; without hard links, copy it.

    It does not grow any more, so a copy holds the same (F-87). A rename would leave a moment without a log.
    """
    name = names.unpacked(segment.start.seq + 1)
    try:
        disk.link(directory, names.LOG, name)
    except OSError as error:
        if error.errno not in disk.NO_LINKS:
            raise
        temporary = names.temporary(name)
        with disk.temporary_file(directory, temporary) as copy:
            disk.copy_content(segment.descriptor, copy)
            disk.sync(copy)
            disk.move(directory, temporary, directory, name)
