"""Take events and messages out of the records of a log.

Above: `local`.  Below: `contract`, `event`, `log`.
A piece of a log is decoded as far as a caller asks: into events, into messages, or into the messages'
own bytes. Each way has a struct that names just the members it needs; the decoder passes over the rest.
"""

from typing import Any, TypeVar

import msgspec

from hansard.backend.contract import Chunk, Streamed
from hansard.event.envelope import Event
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART
from hansard.log import format
from hansard.log.format import Line
from hansard.log.reader import Piece


def event_of(line: Line) -> Event:
    """Return the event that a record holds."""
    return Event(line.seq, line.time, line.kind, bytes(line.data), line.key)


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


_Line = TypeVar("_Line", _MessageLine, _RawMessageLine)

_messages = msgspec.json.Decoder(_MessageLine).decode_lines
_raw_messages = msgspec.json.Decoder(_RawMessageLine).decode_lines


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
        lines = self._piece.lines(format.decode_lines)
        return [event_of(line) for line in lines if self._after < line.seq <= self._upto]

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        return [(line.seq, line.data.message) for line in self._added(self._piece.lines(_messages))]

    def messages_json(self) -> list[tuple[int, bytes]]:
        return [
            (line.seq, bytes(line.data.message))
            for line in self._added(self._piece.lines(_raw_messages))
        ]

    def streamed(self) -> list[Streamed]:
        # Most chunks have none, which whoever took the messages out has seen in passing.
        return [] if self._streams is False else super().streamed()

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
