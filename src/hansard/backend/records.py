"""Take events and messages out of the records of a log.

Above: `local`.  Below: `contract`, `event`, `log`.
A piece of a log is decoded as far as a caller asks: into events, into messages, or into the messages'
own bytes. Each way has a struct that names just the members it needs; the decoder passes over the rest.
"""

from struct import Struct
from typing import Any, Final, Literal, NoReturn, TypeVar

import msgspec

from hansard.backend.contract import Chunk, Streamed
from hansard.event import kinds
from hansard.event.envelope import Event
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART
from hansard.log import format, segment_scan
from hansard.log.format import Line
from hansard.log.reader import Piece


def event_of(line: Line) -> Event:
    """Return the event that a record holds."""
    return Event(line.seq, line.time, line.kind, bytes(line.data), line.key)


def stream_of(line: Line) -> str | None:
    """Return the stream of which a record holds some text; None if it holds none."""
    part = kinds.read(MESSAGE_PART, bytes(line.data)) if line.kind == MESSAGE_PART else None
    return part.stream if part is not None and part.text else None


class _MessageData(msgspec.Struct, gc=False):
    message: Any = None
    stream: Any = None


class _MessageLine(msgspec.Struct, gc=False):
    """As much of a line as reading messages needs; all else is passed over by the decoder."""

    seq: int
    data: _MessageData
    kind: str = ""
    more: int = 0
    log: str | None = None


class _RawMessageData(msgspec.Struct, gc=False):
    message: msgspec.Raw = msgspec.Raw(b"null")
    stream: Any = None


class _RawMessageLine(msgspec.Struct, gc=False):
    seq: int
    data: _RawMessageData
    kind: str = ""
    more: int = 0
    log: str | None = None


class _PlainMessageData(msgspec.Struct, gc=False):
    message: msgspec.Raw
    stream: None = None


class _PlainMessageLine(msgspec.Struct, gc=False):
    """A record that adds a message, and nothing else; the decoder refuses all others."""

    seq: int
    kind: Literal["message.added"]
    data: _PlainMessageData
    log: None = None


class _KeyLine(msgspec.Struct, gc=False):
    """As much of a line as it takes to see how many events have its key."""

    seq: int
    key: str | None = None
    more: int = 0
    log: str | None = None


_Line = TypeVar("_Line", _MessageLine, _RawMessageLine)

_messages = msgspec.json.Decoder(_MessageLine).decode_lines
_raw_messages = msgspec.json.Decoder(_RawMessageLine).decode_lines
_plain_messages = msgspec.json.Decoder(_PlainMessageLine).decode_lines
_keys = msgspec.json.Decoder(_KeyLine).decode_lines

#: Takes the first byte of anything that has bytes, for a fifth of what a slice of a view costs.
_first_byte = Struct("c").unpack_from
_OBJECT: Final = {(b"{",)}


class LocalChunk(Chunk):
    """The records of a piece that lie between two seqs."""

    __slots__ = ("_after", "_piece", "_streams", "_upto")

    def __init__(self, piece: Piece, after: int, upto: int) -> None:
        self._piece = piece
        self._after = after
        self._upto = upto
        #: Whether there are parts of streamed messages; None until it is known.
        self._streams: bool | None = None

    def events(self) -> list[Event]:
        return [
            event_of(line)
            for line in self._piece.lines(format.decode_lines)
            if self._after < line.seq <= self._upto and (format.has_object(line) or self._refuse())
        ]

    def _refuse(self) -> NoReturn:
        # A checksum that fits does not make a record of it: its data would not be what a reader expects.
        segment, start, end, data = self._piece
        segment_scan.committed(segment, start, data, end)
        raise segment.damaged(start.offset, "a record whose data are no JSON object")

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        return [(line.seq, line.data.message) for line in self._added(self._piece.lines(_messages))]

    def messages_json(self) -> list[tuple[int, bytes]]:
        return [
            (line.seq, bytes(line.data.message))
            for line in self._added(self._piece.lines(_raw_messages))
        ]

    def messages_joined(self) -> bytes | None:
        """Join the messages where they stand: the fast path of loading a session as JSON.

        No bytes object, pair, or question in Python for each message: 100,000 of them take two thirds of the
        time, and of the memory.
        """
        _, start, end, data = self._piece
        if self._after > start.seq or self._upto < end.seq:
            return None
        try:
            lines = _plain_messages(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None  # among them are others, or it is damaged: the ordinary way will tell
        first = start.seq + 1
        if not lines or [line.seq for line in lines] != list(range(first, first + len(lines))):
            return None
        messages = [line.data.message for line in lines]
        return b",".join(messages) if set(map(_first_byte, messages)) == _OBJECT else None

    def span(self) -> tuple[int, int]:
        return max(self._after, self._piece.start.seq), min(self._upto, self._piece.end.seq)

    def streamed(self) -> list[Streamed]:
        # Most chunks have none, which whoever took the messages out has seen in passing.
        return [] if self._streams is False else super().streamed()

    def keyed(self) -> dict[int, int]:
        return {
            line.seq: line.more + 1
            for line in self._piece.lines(_keys)
            if line.more and line.key is not None and self._after < line.seq <= self._upto
        }

    def _added(self, lines: list[_Line]) -> list[_Line]:
        """Return the records that add a message."""
        after, upto = self._after, self._upto
        streams = False
        found = []
        for line in lines:
            if line.kind == MESSAGE_ADDED:
                if after < line.seq <= upto:
                    found.append(line)
                    if line.data.stream is not None:
                        streams = True
            elif line.kind == MESSAGE_PART:
                streams = True
        self._streams = streams
        return found
