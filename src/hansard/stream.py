"""Write a message in parts while a model streams it.

Texts are gathered for a moment, and written as one part. A part is an event that is not synced: it survives
a killed process and takes microseconds. The finished message is one more event, as durable as any other, and
replaces the parts in all views.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final, Self

import msgspec

from hansard.backend.contract import AppendRequest, Log, StreamPart
from hansard.errors import HansardError, InvalidEvent, LockTimeout
from hansard.event import codec, kinds
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART, CallPart
from hansard.log import disk

#: Seconds for which texts are gathered by default, and at most: an interpreter that exits waits for them.
GATHER: Final = 0.05
_LONGEST: Final = 1.0
#: Seconds to wait for another thread that writes the same stream.
_PATIENCE: Final = 10.0

#: Texts of this many bytes, as JSON, are written without waiting.
_MOST: Final = 1024
_FRAME: Final = len(b'{"text":""}')


class Stream:
    """A message that is being streamed, from `session.stream`. For one thread at a time.

    As a context manager, it finishes the message at the end of the block. If the block raises, the parts
    stay, and views show them as a partial message.

    Attributes:
        id: the stream's id, which the parts and the message share.
        text: the text that was written so far.
        event: the event of the finished message; None before `finish`.
    """

    __slots__ = (
        "_due",
        "_gather",
        "_log",
        "_message",
        "_mutex",
        "_over",
        "_pieces",
        "_size",
        "_stored",
        "event",
        "id",
    )

    def __init__(
        self,
        log: Log,
        stream_id: str,
        message: dict[str, Any],
        gather: float,
        parts: Iterable[StreamPart] = (),
    ) -> None:
        if not 0 <= gather <= _LONGEST:
            raise ValueError(f"gather must be 0 to {_LONGEST:g} seconds, got {gather!r}")
        codec.encode({**message, "content": ""}, "message", wrapped=True)
        self.id = stream_id
        self.event: Event | None = None
        self._log = log
        self._message = codec.decode(codec.encode(message))
        self._gather = gather
        #: Texts, and pieces of tool calls.
        self._pieces: list[str | CallPart] = []
        for part in parts:
            self._pieces += [part.text, *part.calls]
        #: How many of these are in the log, the bytes of the others, and when these are due.
        self._stored = len(self._pieces)
        self._size = 0
        self._due = 0.0
        self._over = False
        #: Held while the above change: `_flusher` writes parts from its thread.
        self._mutex = disk.ForkLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._over or not self._pieces:
            return
        if kind is None:
            self.finish()
        else:
            with suppress(HansardError):  # the error of the block counts
                self.flush()

    @property
    def text(self) -> str:
        """The text that was written so far."""
        return "".join(_texts(self._pieces))

    @property
    def message(self) -> dict[str, Any]:
        """The message as it is so far, with its tool calls; yours to change."""
        return kinds.assembled(
            codec.decode(codec.encode(self._message)), _texts(self._pieces), _calls(self._pieces)
        )

    def write(self, text: str) -> None:
        """Append text to the message. After `gather` seconds at most, it survives a killed process.

        If this raises, the text is not part of the message.
        """
        self._check_open()
        if not isinstance(text, str):
            raise InvalidEvent(
                f"text must be a string, got {type(text).__name__}; pass other content to `finish(message)`"
            )
        if not text:
            return
        self._add(text, len(codec.encode({"text": text}, "part")) - _FRAME)

    def write_call(
        self, arguments: str = "", *, index: int = 0, id: str = "", name: str = ""
    ) -> None:
        """Append a piece of a tool call's arguments to the message, as `write` appends text.

        Args:
            arguments: the next characters of the arguments, which are JSON.
            index: which of the message's calls it belongs to.
            id: the id of the call, on one of its pieces.
            name: the name of the tool, on one of its pieces.
        """
        self._check_open()
        if not all(isinstance(one, str) for one in (arguments, id, name)):
            raise InvalidEvent("arguments, id and name must be strings")
        if type(index) is not int or index < 0:
            raise InvalidEvent(f"index must be a number >= 0, got {index!r:.60}")
        call = CallPart(index, id, name, arguments)
        self._add(call, len(codec.encode({"calls": [msgspec.to_builtins(call)]}, "part")))

    def _add(self, piece: str | CallPart, size: int) -> None:
        with self._held():
            self._pieces.append(piece)
            self._size += size
            if self._size < _MOST and monotonic() < self._due and _flusher.add(self, self._due):
                return
            try:
                self.flush()
            except BaseException:
                if self._stored < len(self._pieces):
                    self._pieces.pop()
                raise

    def flush(self) -> None:
        """Write what was gathered now."""
        with self._held():
            try:
                if self._stored == len(self._pieces) or self._over:
                    return
                new = self._pieces[self._stored :]
                data: dict[str, Any] = {"stream": self.id, "text": "".join(_texts(new))}
                calls = [msgspec.to_builtins(call) for call in _calls(new)]
                if calls:
                    data["calls"] = calls
                if not self._stored:
                    data["message"] = self._message
                self._append(MESSAGE_PART, codec.encode(data, "part"), durable=False)
                self._stored = len(self._pieces)
                self._size = 0
                self._due = monotonic() + self._gather
            finally:
                _flusher.remove(self)

    def finish(self, message: Mapping[str, Any] | None = None) -> Event:
        """Append the complete message: the given one, or one with the text that was written."""
        self._check_open()
        if message is None:
            message = self.message
        data = b'{"message":%b' % codec.encode(message, "message", wrapped=True)
        with self._held():
            # Without parts there is nothing to replace.
            data += b',"stream":"%b"}' % self.id.encode() if self._stored else b"}"
            codec.check_size(data, "message")
            self.event = self._append(MESSAGE_ADDED, data, durable=True)
            self._over = True
        _flusher.remove(self)
        return self.event

    def discard(self) -> None:
        """Discard the message; views ignore its parts."""
        self._check_open()
        with self._held():
            if self._stored:
                data = codec.encode({"stream": self.id, "over": True})
                self._append(MESSAGE_PART, data, durable=True)
            self._over = True
        _flusher.remove(self)

    @contextmanager
    def _held(self, patience: float | None = None) -> Iterator[None]:
        """Keep other threads out of the stream; `LockTimeout` if one stays in it.

        In a signal handler, the thread that writes parts may wait for the append that was interrupted.
        """
        patience = _PATIENCE if patience is None else patience
        lock = self._mutex.lock  # a forked child replaces it
        try:
            taken = lock.acquire(timeout=patience)
        except BaseException:
            # Interrupted: while it waited, or just after it took the lock.
            with suppress(RuntimeError):
                lock.release()
            raise
        if not taken:
            raise LockTimeout(
                f"stream {self.id}: another thread has been writing it for {patience:g} s; nothing was "
                "written. In a signal handler, set a flag and write later"
            )
        try:
            yield
        finally:
            lock.release()

    def _append(self, kind: str, data: bytes, *, durable: bool) -> Event:
        new = NewEvent(kind, data, control=False)
        return self._log.append(AppendRequest((new,), durable=durable))[0]

    def _check_open(self) -> None:
        if self._over:
            raise InvalidEvent("this stream was finished or discarded; begin another one")


def _texts(pieces: Iterable[str | CallPart]) -> Iterator[str]:
    return (piece for piece in pieces if isinstance(piece, str))


def _calls(pieces: Iterable[str | CallPart]) -> Iterator[CallPart]:
    return (piece for piece in pieces if not isinstance(piece, str))


class _Flusher:
    """Writes what streams have gathered when it is due: one thread of the process, while a stream waits."""

    def __init__(self) -> None:
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Start without a thread, and leave what was gathered to the parent, which has it."""
        for stream in getattr(self, "due", ()):
            stream._stored = len(stream._pieces)  # noqa: SLF001 - its one friend
        #: The streams that wait, and until when.
        self.due: dict[Stream, float] = {}
        #: Held by `with`, and not through the condition: an interrupt in a function of Python could keep it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._runs = False

    def add(self, stream: Stream, due: float) -> bool:
        """Flush a stream at a time, or before; return False if there is no thread to do it."""
        with self._lock:
            if stream not in self.due:
                self.due[stream] = due
                self._changed.notify()
            if not self._runs:
                try:
                    # Not a daemon: an interpreter that exits waits until all is written.
                    threading.Thread(target=self._run, name="hansard-stream", daemon=False).start()
                except RuntimeError:
                    del self.due[stream]
                    return False
                self._runs = True
        return True

    def remove(self, stream: Stream) -> None:
        """Forget a stream that was flushed, or has ended."""
        with self._lock:
            if self.due.pop(stream, None) is not None:
                self._changed.notify()

    def _run(self) -> None:
        try:
            while (stream := self._next()) is not None:
                with suppress(Exception):  # the stream's next call tries again, and raises it
                    stream.flush()
        except MemoryError:
            self._runs = False  # the next text starts another thread

    def _next(self) -> Stream | None:
        """Wait for the next stream that is due; return None when no stream waits."""
        with self._lock:
            while self.due:
                stream = min(self.due, key=self.due.__getitem__)
                pause = self.due[stream] - monotonic()
                if pause <= 0:
                    return stream
                self._changed.wait(pause)
            self._runs = False
        return None


_flusher: Final = _Flusher()


def flush_all() -> None:
    """Write what the streams of this process have gathered; errors are those of their next calls."""
    for stream in list(_flusher.due):
        with suppress(HansardError), stream._held(_LONGEST):  # noqa: SLF001 - the same module
            stream.flush()
