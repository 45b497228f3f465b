"""The file format of exported sessions: write it, and read it without trusting it.

The first line is a header, then comes one line per event. The last line has the number of events and a
checksum of everything before it, so that a truncated file is noticed. Lines end with LF, and no line contains
one.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import msgspec

from hansard.backend.contract import LogReader
from hansard.errors import HansardError, InvalidEvent, InvalidExport, UnknownFormat
from hansard.event import codec
from hansard.event.event import Event
from hansard.event.kinds import MESSAGE_ADDED, check_kind
from hansard.log import format
from hansard.state import lineage
from hansard.state.lineage import ForkedReader
from hansard.state.view import View
from hansard.transfer import share

if TYPE_CHECKING:
    from hashlib import _Hash

#: What can be imported: an open file, its content, or pieces of it, cut anywhere.
Source = IO[bytes] | IO[str] | Iterable[bytes] | Iterable[str] | bytes | str

#: Bytes per read.
_PIECE: Final = 1024 * 1024
#: Longest line, in bytes: the longest record, and what a key may take when it is escaped.
LONGEST: Final = format.MAX_LINE + 16 * 1024
#: Longest first or last line, in bytes.
_LONGEST_HEADER: Final = 1024 * 1024
#: Largest append with a key, in bytes: its events are kept in memory until all are read. A redacted export
#: may be a little longer than what was appended.
_LARGEST_APPEND: Final = 2 * codec.MAX_BATCH

#: A line, or the beginning of one.
_PART: Final = re.compile(rb"[^\n]*+\n|[^\n]++")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
#: Length of the checksum at the end of the last line, with its name.
_CHECKSUM: Final = len(',"sha256":""}') + 64


class Origin(msgspec.Struct, frozen=True):
    """What a session was forked from: the session, the seq, and when that session began."""

    session: str
    seq: int
    created: str = ""


def origins(log: LogReader) -> list[Origin]:
    """Return a session's ancestors, the parent first."""
    if not isinstance(log, ForkedReader):
        return []
    firsts = [log.first_event, *(part.first for part in reversed(log.inherited))]
    found = (lineage.fork_source(first) for first in firsts)
    return [Origin(one.parent, one.seq, one.created) for one in found if one is not None]


class ExportHeader(msgspec.Struct, frozen=True):
    """The first line.

    Attributes:
        hansard, version: "export", and the version of this format.
        session: the id of the session.
        exported: when it was exported.
        redacted: whether credentials were replaced.
        by: the version of hansard that wrote it.
        upto: the seq of the last event.
        lineage: the session's ancestors, the parent first.
    """

    hansard: str
    version: int
    session: str
    exported: str = ""
    redacted: bool = False
    by: str = ""
    upto: int = 0
    lineage: list[Origin] = []


class End(msgspec.Struct, frozen=True):
    """The last line: the number of events and of replaced credentials, and a SHA-256.

    The checksum covers all lines before it, and this line up to `,"sha256"`.
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
    more: format.Number = 0


class Moved(NamedTuple):
    """An event, and how many events after it belong to the same append, if that has a key."""

    event: Event
    more: int


_header = msgspec.json.Decoder(ExportHeader).decode
_end = msgspec.json.Decoder(End).decode
_line = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode

Format = Literal["jsonl", "markdown", "html"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)


def export(
    log: LogReader,
    session_id: str,
    *,
    format: Format,
    redacted: bool,
    view: View,
    events: bool,
) -> Iterator[bytes]:
    """Yield a session in a format, piece by piece; see `Session.export`."""
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    upto = share.last_seq(log, session_id)
    if format == "jsonl":
        return _jsonl(log, session_id, upto, redacted=redacted)
    from hansard.transfer.transcript import Transcript, to_html, to_markdown

    transcript = Transcript(log, session_id, upto, redact=redacted, view=view, events=events)
    return to_html(transcript) if format == "html" else to_markdown(transcript)


def _jsonl(log: LogReader, session_id: str, upto: int, *, redacted: bool) -> Iterator[bytes]:
    header = share.header(
        session_id,
        redact=redacted,
        by=f"hansard {version()}",
        upto=upto,
        lineage=[msgspec.to_builtins(origin) for origin in origins(log)],
    )
    digest = sha256()
    line = _encode(header) + b"\n"
    digest.update(line)
    yield line
    events = redactions = 0
    for event, more, count in share.given_away(log, upto, redact=redacted):
        events += 1
        redactions += count
        line = line_of(event, more)
        digest.update(line)
        yield line
    end = _encode({"hansard": "end", "events": events, "redactions": redactions})[:-1]
    digest.update(end)
    yield b'%b,"sha256":"%b"}\n' % (end, digest.hexdigest().encode())


def version() -> str:
    """Return the version of hansard."""
    from importlib import metadata

    try:
        return metadata.version("hansard")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def line_of(event: Event, more: int = 0) -> bytes:
    """Return the line of an event, with its stored data."""
    shown: dict[str, Any] = {"seq": event.seq, "time": event.stamp, "kind": event.kind}
    if event.key is not None:
        shown["key"] = event.key
    if more:
        shown["more"] = more
    return b'%b,"data":%b}\n' % (_encode(shown)[:-1], event.raw)


def sha256() -> "_Hash":
    """Return a new SHA-256. Imported late: it takes milliseconds."""
    import hashlib

    return hashlib.sha256()


class ExportReader:
    """Reads a file line by line, and checks everything.

    Attributes:
        header: the first line.
        end: the last line; None until all events were read.
    """

    def __init__(self, source: Source) -> None:
        self._lines = _lines_of(source)
        self._number = 0
        self._hash = sha256()
        self.end: End | None = None
        self.header = self._read_header()

    def _read_header(self) -> ExportHeader:
        raw = self._next()
        if raw is None:
            raise self.refused("the file is empty")
        if len(raw) > _LONGEST_HEADER:
            raise self.refused("not a hansard export: the first line is too long")
        try:
            marked = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            marked = None
        if not isinstance(marked, dict) or marked.get("hansard") != "export":
            raise self.refused("not a hansard export")
        if marked.get("version") != share.VERSION:
            raise UnknownFormat(
                f"unsupported export version {marked.get('version')!r:.20} (supported: {share.VERSION}); "
                "nothing was imported. Upgrade hansard"
            )
        try:
            return _header(raw)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self.refused(f"invalid header: {error}") from None

    def events(self) -> Iterator[Moved]:
        """Yield the events, at least one. Sets `end` at the end."""
        seq = missing = size = 0
        while True:
            before = self._hash.copy()
            raw = self._next()
            if raw is None:
                raise self._truncated()
            if raw.startswith(b'{"hansard":'):
                break
            seq += 1
            moved = self._event(raw, seq)
            if missing:
                if moved.event.key is not None or moved.more:
                    raise self.refused("a key inside another append")
                missing -= 1
            else:
                missing, size = moved.more, 0
            size += len(raw)
            if size > _LARGEST_APPEND:
                raise self.refused(f"an append of more than {_LARGEST_APPEND:,} bytes")
            yield moved
        if missing:
            raise self.refused(f"events missing at the end of an append: {missing}")
        before.update(raw[:-_CHECKSUM])
        self._check_end(raw, seq, before.hexdigest())

    def _check_end(self, raw: bytes, seq: int, digest: str) -> None:
        try:
            if len(raw) > _LONGEST_HEADER:
                raise msgspec.ValidationError("too long")
            end = _end(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self.refused(f"invalid last line: {error}") from None
        checksum = b',"sha256":"%b"}' % end.sha256.encode()
        if end.hansard != "end" or len(checksum) != _CHECKSUM or not raw.endswith(checksum):
            raise self.refused("invalid last line")
        if end.events != seq:
            reason = f"events counted by the last line: {end.events}; in the file: {seq}"
            raise self.refused(reason)
        if end.sha256 != digest:
            raise self.refused("checksum mismatch: the export was modified")
        if not end.events:
            raise self.refused("the file has no events")
        if self._next() is not None:
            raise self.refused("data after the last line")
        self.end = end

    def _event(self, raw: bytes, seq: int) -> Moved:
        try:
            line = _line(raw)
        except RecursionError:
            raise self.refused("nested too deeply") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self.refused(f"not an event: {error}") from None
        if line.seq != seq:
            raise self.refused(f"seq {line.seq}, expected {seq}")
        if line.more and line.key is None:
            raise self.refused(f"more={line.more} without an append that has a key")
        if not _is_time(line.time):
            raise self.refused(f"time {line.time!r:.40} is not like 2026-01-31T12:00:00.000000Z")
        data = bytes(line.data)
        try:
            check_kind(line.kind)
            if line.key is not None:
                codec.check_key(line.key)
            _check_message(line.kind, codec.check(data))
        except InvalidEvent as error:
            raise self.refused(str(error)) from None
        return Moved(Event(seq, line.time, line.kind, data, line.key), line.more)

    def _next(self) -> bytes | None:
        self._number += 1
        raw = next(self._lines, None)
        if raw is None:
            return None
        if len(raw) > LONGEST:
            raise self.refused(f"a line of more than {LONGEST:,} bytes")
        if not raw.endswith(b"\n"):
            raise self._truncated()
        try:
            codec.check_keys(raw[:-1], "the line")
        except InvalidEvent as error:
            raise self.refused(str(error)) from None
        self._hash.update(raw)
        return raw[:-1]

    def _truncated(self) -> HansardError:
        # Line 1 is cut in anything but an export, too.
        cut = f"export is truncated at line {self._number}"
        return self.refused("not a hansard export" if self._number == 1 else cut)

    def refused(self, reason: str) -> HansardError:
        """Return the error for an invalid file."""
        hint = "nothing was imported. Export the session again, or copy the file again"
        return InvalidExport(f"line {self._number}: {reason}; {hint}", line=self._number)


def _is_time(text: str) -> bool:
    try:
        return _TIME.fullmatch(text) is not None and bool(datetime.fromisoformat(text))
    except ValueError:
        return False


def _check_message(kind: str, data: dict[str, Any]) -> None:
    """Raise if a message is not a JSON object."""
    if kind != MESSAGE_ADDED or isinstance(data.get("message"), dict):
        return
    if "message" not in data or data["message"] is not None or data.get("redacted") is not True:
        raise InvalidEvent(f"{kind}: its message must be a JSON object")


def _lines_of(source: Source) -> Iterator[bytes]:
    """Yield lines with their ends, and the beginning of one that is too long.

    At most one line and a piece are in memory.
    """
    pending = bytearray()
    for piece in _pieces_of(source):
        for part in _PART.findall(piece):
            pending += part
            if part.endswith(b"\n") or len(pending) > LONGEST:
                yield bytes(pending)
                pending.clear()
    if pending:
        yield bytes(pending)


def _pieces_of(source: Source) -> Iterator[bytes]:
    pieces: Iterable[bytes | str]
    if isinstance(source, bytes | str):
        pieces = (source,)
    elif hasattr(source, "read"):
        # Not by lines: a line without an end would be read completely.
        read = source.read
        pieces = iter(lambda: read(_PIECE), read(0))
    else:
        pieces = source
    for piece in pieces:
        if isinstance(piece, str):
            # A lone surrogate becomes bytes that are not JSON.
            yield piece.encode(errors="surrogatepass")
        elif isinstance(piece, bytes):
            yield piece
        else:
            raise TypeError(f"an export must be bytes or str, got {type(piece).__name__}")
