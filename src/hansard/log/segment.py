"""Open, check and create the files that hold a session's records.

A segment appears under its name complete, with header and first records, or not at all (F-25). A file with
such a name is checked in the order of trust: is it this session's, of a known version, and intact?
"""

import errno
from typing import Any, Final

import msgspec

from hansard.errors import Damaged, UnknownFormat
from hansard.log import disk, format, names

#: Longer than any header: an id of 1,024 characters takes at most 6 bytes for each as JSON.
_HEADER_ROOM = 16 * 1024

#: What a file system says that knows no second names, or no more of them.
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
)

#: How much is copied at once.
_PIECE: Final = 1 << 20


class Segment(disk.OwnedFd):
    """An open segment: where it is, and where its records begin.

    Attributes:
        descriptor: the open file.
        durable: where it ended when the last sync of this process began; 0 if it has not synced it.
        path: its path, for people.
        start: the mark behind the header, where the first record begins.
        time: when the session began.
    """

    __slots__ = ("_header", "durable", "path", "start", "time")

    def __init__(self, descriptor: int, path: str, session_id: str | None) -> None:
        # From here on the segment owns the descriptor, also if its header is refused.
        super().__init__(descriptor)
        self.path = path
        self.durable = 0
        line, self.start = _read_header(self)
        self._header = format.decode_header(line.data)
        self.time = self._header.created or line.time
        if session_id is not None and self._header.session != session_id:
            raise self.damaged(0, f"this is the log of session {self._header.session!r}")

    @property
    def previous(self) -> format.Previous | None:
        """Where the segment before this one ended; None if this is the first."""
        return self._header.previous

    @property
    def first_record(self) -> bytes:
        """The session's first record, without data, if this is not the first segment."""
        return bytes(self._header.first)

    @property
    def session_id(self) -> str:
        """The id that the header names: the true one, whatever the directory is called."""
        return self._header.session

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
                # A read may be short without being at the end: signals, and 2 GiB at the most.
                more = disk.read_at(self.descriptor, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise disk.explain(error, "read", self.path) from error
        return data

    def position_before(self, offset: int) -> format.Position:
        """Return a mark before an offset that is known without reading: behind the header."""
        del offset
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
    """A file that should be a segment, whatever its header says."""

    __slots__ = ()

    def __init__(self, descriptor: int, path: str) -> None:
        disk.OwnedFd.__init__(self, descriptor)
        self.path = path
        self.start = format.Position(0, 0, 0)


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


def open_raw(directory: int, path: str) -> Raw:
    """Open an active segment, whatever it is."""
    try:
        return Raw(disk.open_file(directory, names.LOG), path)
    except OSError as error:
        raise disk.explain(error, "read", path) from error


def header(
    session_id: str, *, before: int, time: bytes, facts: dict[str, Any] | None = None
) -> tuple[bytes, format.Position]:
    """Frame a segment's header and return it with the mark after it.

    `before`: the seq before the segment's first event. `facts`: further members of its data (F-23).
    """
    data = {"version": format.VERSION, "session": session_id, **(facts or {})}
    line, crc = format.note("header", before, time, data, 0)
    return line, format.Position(len(line), before, crc)


def next_header(segment: Segment, previous: format.Previous, first: bytes) -> bytes:
    """Frame the header of the segment that follows another."""
    facts: dict[str, Any] = {"previous": previous, "created": segment.time}
    if first:
        facts["first"] = msgspec.Raw(first)
    return header(segment.session_id, before=previous.seq, time=format.now(), facts=facts)[0]


def sealed_files(directory: int, first: int) -> tuple[list[tuple[int, str]], list[str]]:
    """Return the sealed segments before an active one, in order, and the leftovers.

    `first`: the first seq of the active segment. A sealed file that begins there or later is a leftover:
    of a repair, whose segment replaces it, or of an interrupted seal. The active segment has its events.
    Only a process that holds the session's lock may remove leftovers: otherwise `first` may be outdated.
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


def replace_segment(directory: int, segment: Segment, name: str, content: bytes) -> Segment:
    """Give a sealed segment its own name, and put the next one, with its header, in its place.

    The caller holds the lock, and the sealed segment is durable.
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
            # First the second name, then the new file under the first: in between both names lead to the
            # sealed segment, and at no moment is there no log.
            _name_twice(directory, segment, name)
            operation = "sync"
            # A power cut may spare the later of two changes and not the earlier one: then only the new file
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
        hint = "this append was not acknowledged"
        raise disk.explain(error, operation, segment.path, hint) from error
    return Segment(descriptor, segment.path, segment.session_id)


def _name_twice(directory: int, segment: Segment, name: str) -> None:
    """Give the sealed segment its own name beside the first: where there are no links, by a copy.

    The segment grows no more, so a copy says the same (F-87). Renaming it would be quicker, and leave a
    moment without any log, in which a crash could come.
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
            # Synced in every durability, before it has its name: a segment without a whole
            # header is damage (F-25), so not even a power cut may leave one.
            operation = "sync"
            disk.sync(descriptor)
            operation = "link"
            disk.publish(directory, temporary, names.LOG)
        except BaseException:
            disk.close(descriptor)
            disk.discard(directory, temporary)
            raise
    except OSError as error:
        raise disk.explain(error, operation, path, "this append was not acknowledged") from error
    return Segment(descriptor, path, session_id)


def _read_header(segment: Segment) -> tuple[format.Line, format.Position]:
    """Return a segment's first line and the mark behind it, or say why it is no header of ours."""
    data = segment.read_some(0, _HEADER_ROOM)
    line = data[: data.find(b"\n") + 1]
    if not line:
        raise segment.damaged(0, "empty file" if not data else "no whole header")
    try:
        header = format.decode_line(line)
        word = header.log
        version = format.decode_header(header.data).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise segment.damaged(0, "not a header of a hansard log") from None
    if word != "header":
        raise segment.damaged(0, "not a header of a hansard log")
    if version != format.VERSION:
        raise UnknownFormat(
            f"{segment.path}: log format version {version}, and this hansard knows "
            f"{format.VERSION}; use a newer hansard: the file was left as it is"
        )
    crc = format.checked_crc(line, 0)
    if crc is None:
        raise segment.damaged(0, "checksum mismatch in the header")
    try:
        if first := format.decode_header(header.data).first:
            format.decode_first(first)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise segment.damaged(0, "the header names a first record that is none") from None
    return header, format.Position(len(line), header.seq, crc)
