"""Open, check and create the files that hold a session's records.

A segment gets its name complete, with header and first records, or not at all (F-25). Opening one checks, in
this order: is it a log of a known version, is its header intact, and is it this session's?
"""

import errno
from typing import Any, Final

import msgspec

from hansard.errors import Damaged, UnknownFormat
from hansard.log import disk, format, names
from hansard.log.format import DECODE_ERRORS, Position

#: Longer than any header: an id of 1,024 characters takes at most 6 bytes for each as JSON.
_HEADER_LIMIT: Final = 16 * 1024

#: Errors of a file system without hard links, or at their limit.
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
)

#: Bytes that are copied at once.
_PIECE: Final = 1 << 20

_NOT_ACKNOWLEDGED: Final = "this append was not acknowledged"


class Segment(disk.OwnedFd):
    """An open segment.

    Attributes:
        descriptor: the open file.
        durable: where it ended when the last sync of this process began; 0 if there was none.
        path: its path, for messages.
        start: the position after the header, where the first record begins.
        time: when the session began.
        session_id: the id that the header names.
        previous: where the segment before this one ended; None if this is the first.
        first_record: the session's first record, without data, if this is not the first segment.
    """

    __slots__ = ("durable", "first_record", "path", "previous", "session_id", "start", "time")

    def __init__(self, descriptor: int, path: str, session_id: str | None) -> None:
        # From here on the segment owns the descriptor, even if its header is refused.
        super().__init__(descriptor)
        self.path = path
        self.durable = 0
        line, header, self.start = _read_header(self)
        self.session_id = header.session
        self.previous = header.previous
        self.first_record = bytes(header.first)
        self.time = header.created or line.time
        if session_id is not None and self.session_id != session_id:
            raise self.damaged(0, f"this is the log of session {self.session_id!r}")

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly these bytes; a file that has become shorter is damaged."""
        data = self.read_some(offset, length)
        if len(data) != length:
            raise self.damaged(
                offset + len(data), "the file ends here, but it was longer: it has been cut"
            )
        return data

    def read_some(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes, fewer only at the end of the file."""
        try:
            data = disk.read_at(self.descriptor, length, offset)
            while data and len(data) < length:
                # A read may be short before the end: because of a signal, or after 2 GiB.
                more = disk.read_at(self.descriptor, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise disk.explain(error, "read", self.path) from error
        return data

    def position_before(self, offset: int) -> Position:  # noqa: ARG002 - a sealed segment needs it
        """Return a position before an offset that is known without reading."""
        return self.start

    def size(self) -> int:
        """Return the size of the file."""
        try:
            return disk.size(self.descriptor)
        except OSError as error:
            raise disk.explain(error, "seek", self.path) from error

    def damaged(self, offset: int, reason: str) -> Damaged:
        """Return the error for bytes that are not as they were written."""
        return Damaged(
            self.path,
            offset,
            reason,
            "nothing was skipped or changed; `verify` lists all damage of the session",
        )


class Raw(Segment):
    """A file that should be a segment, with any header or none."""

    __slots__ = ()

    def __init__(self, descriptor: int, path: str) -> None:
        disk.OwnedFd.__init__(self, descriptor)
        self.path = path
        self.start = Position(0, 0, 0)


def _read_header(segment: Segment) -> tuple[format.Line, format.Header, Position]:
    """Return a segment's first line, its data, and the position after it; raise if it is not a header."""
    data = segment.read_some(0, _HEADER_LIMIT)
    raw = data[: data.find(b"\n") + 1]
    if not raw:
        raise segment.damaged(0, "empty file" if not data else "no complete header")
    try:
        line = format.decode_line(raw)
        header = format.decode_header(line.data)
    except DECODE_ERRORS:
        line = None
    if line is None or line.log != "header":
        raise segment.damaged(0, "not a header of a hansard log")
    if header.version != format.VERSION:
        raise UnknownFormat(
            f"{segment.path}: unsupported log version {header.version} (supported: {format.VERSION}); "
            "the file was not changed. Upgrade hansard"
        )
    crc = format.checked_crc(raw, 0)
    if crc is None:
        raise segment.damaged(0, "checksum mismatch in the header")
    try:
        if header.first:
            format.decode_first(header.first)
    except DECODE_ERRORS:
        raise segment.damaged(0, "the header names an invalid first record") from None
    return line, header, Position(len(raw), line.seq, crc)


def open_segment(
    directory: int, path: str, session_id: str | None, *, writable: bool
) -> Segment | None:
    """Open the active segment of a session directory; None if there is none yet."""
    try:
        descriptor = disk.open_file(directory, names.LOG, writable=writable)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk.explain(error, "open", path) from error
    return Segment(descriptor, path, session_id)


def header(
    session_id: str, *, before: int, time: bytes, facts: dict[str, Any] | None = None
) -> tuple[bytes, Position]:
    """Frame a segment's header; return it and the position after it.

    `before`: the seq before the segment's first event. `facts`: further members of its data (F-23).
    """
    data = {"version": format.VERSION, "session": session_id, **(facts or {})}
    line, crc = format.note("header", before, time, data, 0)
    return line, Position(len(line), before, crc)


def next_header(segment: Segment, previous: format.Previous, first: bytes) -> bytes:
    """Frame the header of the segment that follows another."""
    facts: dict[str, Any] = {"previous": previous, "created": segment.time}
    if first:
        facts["first"] = msgspec.Raw(first)
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


def create_segment(directory: int, path: str, session_id: str, content: bytes) -> Segment:
    """Create the active segment, with its header and first records as content.

    The caller holds the lock and has seen that there is no segment.
    """
    temporary = names.temporary(names.LOG)
    operation = "create"
    try:
        descriptor = disk.create_file(directory, temporary)
        try:
            operation = "write"
            disk.write_all(descriptor, content)
            # Synced in every durability, before it has its name: a segment without a complete header is
            # damage (F-25), so not even a power cut may leave one.
            operation = "sync"
            disk.sync(descriptor)
            operation = "link"
            disk.publish(directory, temporary, names.LOG)
        except BaseException:
            disk.close(descriptor)
            disk.discard(directory, temporary)
            raise
    except OSError as error:
        raise disk.explain(error, operation, path, _NOT_ACKNOWLEDGED) from error
    return Segment(descriptor, path, session_id)


def replace_segment(directory: int, segment: Segment, name: str, content: bytes) -> Segment:
    """Give a sealed segment its own name, and replace it as the active one by a new segment.

    `content`: the header of the new segment. The caller holds the lock, and the sealed segment is durable.
    """
    temporary = names.temporary(names.LOG)
    operation = "create"
    try:
        descriptor = disk.create_file(directory, temporary)
        try:
            operation = "write"
            disk.write_all(descriptor, content)
            operation = "sync"
            disk.sync(descriptor)
            operation = "remove"
            # A leftover of the same name would be taken for this segment, and its events would be lost.
            leftovers = sealed_files(directory, segment.start.seq + 1)[1]
            for leftover in leftovers:
                disk.remove(directory, leftover)
            if leftovers:
                disk.sync_directory(directory)
            operation = "link"
            # First the second name, then the new file under the first: there is a log at every moment.
            _name_twice(directory, segment, name)
            operation = "sync"
            # A power cut may keep the later of two changes and not the earlier one: then only the new file
            # would have a name.
            disk.sync_directory(directory)
            operation = "rename"
            disk.move(directory, temporary, directory, names.LOG)
            operation = "sync"
            disk.sync_directory(directory)
        except BaseException:
            disk.close(descriptor)
            disk.discard(directory, temporary)
            raise
    except OSError as error:
        raise disk.explain(error, operation, segment.path, _NOT_ACKNOWLEDGED) from error
    return Segment(descriptor, segment.path, segment.session_id)


def _name_twice(directory: int, segment: Segment, name: str) -> None:
    """Give the sealed segment a second name; without hard links, copy it.

    It does not grow any more, so a copy holds the same (F-87). A rename would leave a moment without a log.
    """
    try:
        disk.link(directory, names.LOG, name)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        temporary = names.temporary(name)
        copy = disk.create_file(directory, temporary)
        try:
            offset = 0
            while data := disk.read_at(segment.descriptor, _PIECE, offset):
                disk.write_all(copy, data)
                offset += len(data)
            disk.sync(copy)
            disk.move(directory, temporary, directory, name)
        except BaseException:
            disk.discard(directory, temporary)
            raise
        finally:
            disk.close(copy)
