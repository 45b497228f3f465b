"""Write a message in parts while a model streams it.

Each part is an event that is written and not synced: it survives a killed process and takes microseconds.
The finished message is one more event, as durable as any other, and replaces the parts in all views.
"""

from typing import Any, Self

from hansard.backend.contract import AppendRequest, Log
from hansard.errors import InvalidEvent
from hansard.event import codec
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART


class Stream:
    """A message that is being streamed, from `session.stream`. For one thread at a time.

    As a context manager, it finishes the message at the end of the block. If the block raises, the parts
    stay, and views show them as a partial message.

    Attributes:
        id: the stream's id, which the parts and the message share.
        text: the text that was written so far.
        event: the event of the finished message; None before `finish`.
    """

    __slots__ = ("_log", "_message", "_over", "_texts", "event", "id")

    def __init__(self, log: Log, stream_id: str, message: dict[str, Any]) -> None:
        codec.encode({**message, "content": ""}, "message", wrapped=True)
        self.id = stream_id
        self.event: Event | None = None
        self._log = log
        self._message = codec.decode(codec.encode(message))
        self._texts: list[str] = []
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self._over and self._texts:
            self.finish()

    @property
    def text(self) -> str:
        """The text that was written so far."""
        return "".join(self._texts)

    def write(self, text: str) -> None:
        """Append text to the message. When this returns, the text survives a killed process."""
        self._check_open()
        if not isinstance(text, str):
            raise InvalidEvent(
                f"text must be a string, got {type(text).__name__}; pass other content to `finish(message)`"
            )
        if not text:
            return
        data: dict[str, Any] = {"stream": self.id, "text": text}
        if not self._texts:
            data["message"] = self._message
        self._append(MESSAGE_PART, codec.encode(data, "part"), durable=False)
        self._texts.append(text)

    def finish(self, message: dict[str, Any] | None = None) -> Event:
        """Append the complete message: the given one, or one with the text that was written."""
        self._check_open()
        if message is None:
            message = {**self._message, "content": self.text}
        data = b'{"message":%b' % codec.encode(message, "message", wrapped=True)
        # Without parts there is nothing to replace.
        data += b',"stream":"%b"}' % self.id.encode() if self._texts else b"}"
        codec.check_size(data, "message")
        self.event = self._append(MESSAGE_ADDED, data, durable=True)
        self._over = True
        return self.event

    def discard(self) -> None:
        """Discard the message; views ignore its parts."""
        self._check_open()
        if self._texts:
            data = codec.encode({"stream": self.id, "over": True})
            self._append(MESSAGE_PART, data, durable=True)
        self._over = True

    def _append(self, kind: str, data: bytes, *, durable: bool) -> Event:
        new = NewEvent(kind, data, control=False)
        return self._log.append(AppendRequest((new,), durable=durable))[0]

    def _check_open(self) -> None:
        if self._over:
            raise InvalidEvent("this stream was finished or discarded; begin another one")
