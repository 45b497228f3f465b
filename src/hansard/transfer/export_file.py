"""Say what an exported session looks like as a file, and read one as if an enemy had written it.

A first line that says what it is, one line for each event, and a last line with their number and a checksum
of all that was before it: a file that was cut, in the middle of a line or between two, is noticed. Lines end
with LF and nothing else does, as in a log.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from hansard.backend.contract import Log
from hansard.errors import HansardError, InvalidEvent, InvalidExport, UnknownFormat
from hansard.event import codec
from hansard.event.envelope import Event
from hansard.event.kinds import MESSAGE_ADDED, check_key, check_kind
from hansard.log import format
from hansard.state import lineage
from hansard.state.lineage import Lineage
from hansard.transfer.share import VERSION

if TYPE_CHECKING:
    from hashlib import _Hash

#: What can be imported: a file that is open to read bytes, or pieces of it, cut anywhere.
Source = IO[bytes] | IO[str] | Iterable[bytes] | Iterable[str] | bytes | str

#: So much of a file is read at once.
_PIECE: Final = 1024 * 1024
#: No line can be longer: the longest record, and as much again as a key may take when it is escaped.
LONGEST: Final = format.MAX_LINE + 16 * 1024
#: Of a first or last line that is longer than this, nobody needs to know what it says.
_LONGEST_HEADER: Final = 1024 * 1024
#: The events of one append with a key are held together until all are there. A redacted export may be a
#: little longer than what was appended.
_LARGEST_APPEND: Final = 2 * codec.MAX_BATCH

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
#: How long the checksum is at the end of the last line, with its name.
_CHECKSUM: Final = len(',"sha256":""}') + 64


class Origin(msgspec.Struct, frozen=True):
    """What a session was forked from: whom, at which seq, and when that began."""

    session: str
    seq: int
    created: str = ""


def origins(log: Log) -> list[Origin]:
    """Return what a session was forked from, the nearest first."""
    if not isinstance(log, Lineage):
        return []
    firsts = [log.first_event, *(stretch.first for stretch in reversed(log.stretches))]
    found = (lineage.origin(first) for first in firsts)
    return [Origin(one.parent, one.seq, one.created) for one in found if one is not None]


class Header(msgspec.Struct, frozen=True):
    """The first line: what this is.

    Attributes:
        hansard, version: that it is an export, and of which version of this format.
        session: the id of the session.
        exported: when.
        redacted: whether what looks like a credential was taken out. Then it is not word for word.
        by: which hansard wrote it.
        after: the seq before the first event: 0, unless only a fork's own events are here.
        upto: the seq of the last event.
        parts: whether what was streamed of messages is here, besides the messages.
        lineage: what the session was forked from, the nearest first.
    """

    hansard: str
    version: int
    session: str
    exported: str = ""
    redacted: bool = False
    by: str = ""
    after: int = 0
    upto: int = 0
    parts: bool = False
    lineage: list[Origin] = []


class End(msgspec.Struct, frozen=True):
    """The last line: how many events there are, what was taken out, and the SHA-256 of all before it.

    That is of all lines, and of this one up to `,"sha256"`.
    """

    hansard: str
    events: int
    redactions: int
    sha256: str


class _Line(msgspec.Struct):
    seq: int
    time: str
    kind: str
    data: msgspec.Raw
    key: str | None = None
    more: int = 0


class Moved(NamedTuple):
    """An event on its way, and how many behind it belong to its append, if that has a key."""

    event: Event
    more: int


_Shape = Header | End | _Line

_header = msgspec.json.Decoder(Header).decode
_end = msgspec.json.Decoder(End).decode
_line = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


# -- writing ----------------------------------------------------------------------------------------


def line_of(event: Event, more: int = 0) -> bytes:
    """Return the line of an event. Its data are the stored bytes."""
    shown: dict[str, Any] = {"seq": event.seq, "time": event.stamp, "kind": event.kind}
    if event.key is not None:
        shown["key"] = event.key
    if more:
        shown["more"] = more
    return b'%b,"data":%b}\n' % (_encode(shown)[:-1], event.raw)


class Writer:
    """Makes the lines of a file, and knows what the last one must say."""

    __slots__ = ("_events", "_hash")

    def __init__(self) -> None:
        self._hash = sha256()
        self._events = 0

    def header(self, first: dict[str, Any]) -> bytes:
        """Return the first line."""
        return self._counted(_encode(first) + b"\n")

    def event(self, event: Event, more: int) -> bytes:
        """Return the line of an event."""
        self._events += 1
        return self._counted(line_of(event, more))

    def end(self, redactions: int) -> bytes:
        """Return the last line."""
        said = {"hansard": "end", "events": self._events, "redactions": redactions}
        # What it says itself is under the checksum, too.
        body = self._counted(_encode(said)[:-1])
        return b'%b,"sha256":"%b"}\n' % (body, self._hash.hexdigest().encode())

    def _counted(self, line: bytes) -> bytes:
        self._hash.update(line)
        return line


def sha256() -> "_Hash":
    """Return a hash of nothing yet."""
    # Here, because only who moves sessions needs it, and the import costs milliseconds.
    import hashlib

    return hashlib.sha256()


# -- reading ----------------------------------------------------------------------------------------


class Reader:
    """Reads a file line by line, and believes nothing.

    Attributes:
        header: the first line.
        end: the last line; None until all events were read.
    """

    __slots__ = ("_hash", "_lines", "_number", "end", "header")

    def __init__(self, source: Source) -> None:
        self._lines = _lines_of(source)
        self._number = 0
        self._hash = sha256()
        self.end: End | None = None
        self.header = self._read_header()

    def _read_header(self) -> Header:
        raw = self._next()
        if raw is None:
            raise self.refused("there is nothing in it")
        if len(raw) > _LONGEST_HEADER:
            raise self.refused("this is no export of hansard's: its first line is too long")
        try:
            marked = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            marked = None
        if not isinstance(marked, dict) or marked.get("hansard") != "export":
            raise self.refused("this is no export of hansard's: its first line does not say so")
        if marked.get("version") != VERSION:
            raise UnknownFormat(
                f"an export of version {marked.get('version')!r:.20}, and this hansard knows {VERSION}; "
                "use a newer hansard: nothing was imported"
            )
        try:
            header = _header(raw)
        except msgspec.MsgspecError as error:
            raise self.refused(f"a first line that cannot be read: {error}") from None
        if not 0 <= header.after < 2**62:
            raise self.refused(f"there is no seq {header.after}")
        return header

    def events(self) -> Iterator[list[Moved]]:
        """Yield the events: alone, or all of one append that has a key. At the end, `end` is there."""
        seq = self.header.after
        append: list[Moved] = []
        missing = size = 0
        while True:
            before = self._hash.copy()
            raw = self._next()
            if raw is None:
                raise self.refused("the file ends here, and its last line is missing: it was cut")
            if raw.startswith(b'{"hansard":'):
                break
            seq += 1
            moved = self._event(raw, seq)
            if missing:
                if moved.event.key is not None or moved.more:
                    raise self.refused("a key inside of another append")
                missing -= 1
            else:
                missing, size = moved.more, 0
            size += len(raw)
            if size > _LARGEST_APPEND:
                raise self.refused(f"an append of more than {_LARGEST_APPEND:,} bytes")
            append.append(moved)
            if not missing:
                yield append
                append = []
        if missing:
            raise self.refused(f"an append of which {missing} events are missing")
        before.update(raw[:-_CHECKSUM])
        self._check_end(raw, seq, before.hexdigest())

    def _check_end(self, raw: bytes, seq: int, digest: str) -> None:
        try:
            if len(raw) > _LONGEST_HEADER:
                raise msgspec.ValidationError("it is too long")
            end = _end(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self.refused(f"a last line that cannot be read: {error}") from None
        checksum = b',"sha256":"%b"}' % end.sha256.encode()
        if end.hansard != "end" or len(checksum) != _CHECKSUM or not raw.endswith(checksum):
            raise self.refused("this is not the last line of an export")
        if end.events != seq - self.header.after:
            count = seq - self.header.after
            raise self.refused(f"{end.events} events are announced, and {count} are here")
        if end.sha256 != digest:
            raise self.refused("the checksum is another: something in the file was changed")
        if not end.events:
            raise self.refused("there are no events in it")
        if self._next() is not None:
            raise self.refused("something follows the last line")
        self.end = end

    def _event(self, raw: bytes, seq: int) -> Moved:
        try:
            line = _line(raw)
        except RecursionError:
            raise self.refused("nested too deep") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self.refused(f"not the line of an event: {error}") from None
        if line.seq != seq:
            raise self.refused(f"seq {line.seq}, where {seq} should be")
        if line.more < 0 or (line.more and line.key is None):
            raise self.refused(f"more={line.more} without an append that has a key")
        _check_time(self, line.time)
        data = bytes(line.data)
        try:
            check_kind(line.kind)
            if line.key is not None:
                check_key(line.key)
            _check_message(line.kind, codec.check(data))
        except InvalidEvent as error:
            raise self.refused(str(error)) from None
        return Moved(Event(seq, line.time, line.kind, data, line.key), line.more)

    def _next(self) -> bytes | None:
        try:
            raw = next(self._lines, None)
        except _TooLong:
            self._number += 1
            raise self.refused(f"a line of more than {LONGEST:,} bytes") from None
        if raw is None:
            self._number += 1
            return None
        self._number += 1
        if not raw.endswith(b"\n"):
            raise self.refused("the file ends in the middle of a line: it was cut")
        try:
            codec.check_keys(raw[:-1], "the line")
        except InvalidEvent as error:
            raise self.refused(str(error)) from None
        self._hash.update(raw)
        return raw[:-1]

    def refused(self, reason: str) -> HansardError:
        """Return the error for a file that is not as it should be."""
        hint = "nothing was imported: export the session again, or copy the file again"
        return InvalidExport(f"line {self._number}: {reason}; {hint}", line=self._number)


def _check_time(reader: Reader, time: str) -> None:
    fits = _TIME.fullmatch(time) is not None
    if fits:
        try:
            datetime.fromisoformat(time)
        except ValueError:
            fits = False
    if not fits:
        raise reader.refused(f"time {time!r:.40} is not like 2026-01-31T12:00:00.000000Z")


def _check_message(kind: str, data: dict[str, Any]) -> None:
    """Raise if whoever reads messages would get something else."""
    if kind != MESSAGE_ADDED or isinstance(data.get("message"), dict):
        return
    if "message" not in data or data["message"] is not None or data.get("redacted") is not True:
        raise InvalidEvent(f"{kind}: its message must be a JSON object")


class _TooLong(Exception):
    """A line is longer than any can be."""


def _lines_of(source: Source) -> Iterator[bytes]:
    """Yield lines with their ends, holding no more than one of them."""
    pending: list[bytes] = []
    size = 0
    for piece in _pieces_of(source):
        start = 0
        while True:
            end = piece.find(b"\n", start) + 1
            part = piece[start:end] if end else piece[start:]
            size += len(part)
            if size > LONGEST:
                raise _TooLong
            if part:
                pending.append(part)
            if not end:
                break
            yield b"".join(pending) if len(pending) > 1 else pending[0]
            pending, size, start = [], 0, end
    if pending:
        yield b"".join(pending)


def _pieces_of(source: Source) -> Iterator[bytes]:
    pieces: Iterable[bytes | str]
    if isinstance(source, bytes | str):
        pieces = (source,)
    elif hasattr(source, "read"):
        # Not by lines: one without an end would be read whole.
        read = source.read
        pieces = iter(lambda: read(_PIECE), read(0))
    else:
        pieces = source
    for piece in pieces:
        if isinstance(piece, str):
            # A lone surrogate is no text; whatever stands for it will not be read as JSON.
            yield piece.encode(errors="surrogatepass")
        elif isinstance(piece, bytes):
            yield piece
        else:
            raise TypeError(f"an export is bytes or text, not {type(piece).__name__}")
