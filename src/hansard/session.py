"""One conversation: what a caller holds.

Above: user code, `store`.  Below: `event`, `state`, `upkeep`, `backend.contract`.
The first room on an event's way: a message comes in as a dict here, becomes a draft (`event.codec`), and
goes to the backend. A handle is cheap, safe to share between threads, and sees at once what others append.
"""

import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hansard.backend.contract import Backend, Log
from hansard.errors import InvalidEvent
from hansard.event import codec
from hansard.event.envelope import Draft, Event
from hansard.event.kinds import (
    APPLICATION,
    CONTROL,
    KINDS,
    MESSAGE_ADDED,
    METADATA_SET,
    SESSION_CREATED,
    check_kind,
)
from hansard.state import fold, replay, views
from hansard.state.fold import State
from hansard.state.views import View
from hansard.upkeep.verify import SessionReport, verify_session

#: How long `events(follow=True)` waits before it looks whether it was closed.
_PATIENCE = 1.0

_LONGEST_KEY = 1024

#: Reading more messages than this pauses the garbage collector: 100,000 decode in 60 % of the time.
_MANY = 2_000


class Session:
    """A handle on one session of a store.

    The session exists from its first event on; until then it reads as empty. Made by `store.session(id)`.

    Attributes:
        id: the session's id.
    """

    __slots__ = ("_backend", "_log", "_state", "id")

    def __init__(self, backend: Backend, session_id: str) -> None:
        self.id = session_id
        self._backend = backend
        self._log: Log = backend.log(session_id)
        self._state = fold.EMPTY

    def __repr__(self) -> str:
        return f"<hansard.Session {self.id!r} in {self._backend.where!r}>"

    # -- saying something -----------------------------------------------------------------------

    def add_message(
        self, message: dict[str, Any], *, key: str | None = None, expected_seq: int | None = None
    ) -> Event:
        """Append one message and return its event.

        Args:
            message: any JSON object. Stored as it is; what cannot come back equal is refused.
            key: the idempotency key. A second append with the same key adds nothing and returns the event
                of the first.
            expected_seq: append only if the session's last seq is this (0: only if it is empty), or raise
                `SeqConflict`.
        """
        draft = _message(message)
        if key is None and expected_seq is None:
            return self._log.append((draft,))[0]
        return self._append((draft,), key=key, expected_seq=expected_seq)[0]

    def add_messages(
        self,
        messages: Iterable[dict[str, Any]],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> list[Event]:
        """Append several messages, all or none, and return their events. Options as above."""
        drafts = [_message(message) for message in messages]
        return self._append(drafts, key=key, expected_seq=expected_seq)

    def append(
        self,
        kind: str,
        data: dict[str, Any],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> Event:
        """Append an event of the application's own, of a kind that begins with `x.`."""
        if not check_kind(kind).startswith(APPLICATION) or kind == APPLICATION:
            known = "has a method of its own" if kind in KINDS else "is not known"
            raise InvalidEvent(
                f"kind {kind!r} {known}; the application's own kinds begin with {APPLICATION!r}, "
                f"such as {APPLICATION + 'todo'!r}"
            )
        draft = Draft(kind, codec.encode(data), control=False)
        return self._append([draft], key=key, expected_seq=expected_seq)[0]

    def set_metadata(self, **changes: Any) -> Event | None:
        """Merge keys into the metadata; None removes one, and dicts are merged in turn.

        Returns None, and appends nothing, if the metadata say so already.
        """
        return self.patch_metadata(changes)

    def patch_metadata(self, changes: dict[str, Any]) -> Event | None:
        """Do as `set_metadata` does, for keys that are no Python names."""
        raw = b'{"metadata":%b}' % codec.encode(changes, "metadata", wrapped=True)
        before = self.metadata
        if codec.equal(fold.merge(before, changes), before):
            return None
        return self._append([Draft(METADATA_SET, raw, METADATA_SET in CONTROL)])[0]

    def create(self, metadata: dict[str, Any]) -> Event:
        """Append the first event of a session that must not exist. Called by `store.create`."""
        raw = codec.encode(metadata, "metadata", wrapped=True)
        data = b'{"metadata":%b}' % raw if metadata else raw
        draft = Draft(SESSION_CREATED, data, SESSION_CREATED in CONTROL)
        return self._log.append([draft], new_only=True)[0]

    def _append(
        self,
        drafts: Sequence[Draft],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> list[Event]:
        if key is not None:
            _check_key(key)
        if expected_seq is not None and (type(expected_seq) is not int or expected_seq < 0):
            raise InvalidEvent(f"expected_seq must be a seq, 0 or more, not {expected_seq!r}")
        if not drafts:
            return []
        return self._log.append(drafts, key=key, expected_seq=expected_seq)

    # -- reading --------------------------------------------------------------------------------

    def messages(
        self,
        *,
        last: int | None = None,
        after: int = 0,
        at: int | None = None,
        view: View = "model",
    ) -> list[dict[str, Any]]:
        """Return messages as dicts, which are the caller's to change.

        Args:
            last: only so many, the latest. Reads the end of the log only.
            after: only those with a higher seq.
            at: as it was at this seq.
            view: "model", what a model should be given, or "history", all that was said.
        """
        _check_range(last, after, at, view)
        if last is not None:
            return views.show_last(self._log, views.decoded, last, after=after, upto=at)
        with _QuietCollector(self._log, after):
            return views.show(self._log, views.decoded, after=after, upto=at)

    def messages_json(
        self,
        *,
        last: int | None = None,
        after: int = 0,
        at: int | None = None,
        view: View = "model",
    ) -> bytes:
        """Return the same as a JSON array, in the stored bytes, without decoding the messages."""
        _check_range(last, after, at, view)
        if last is not None:
            found = views.show_last(self._log, views.encoded, last, after=after, upto=at)
        else:
            found = views.show(self._log, views.encoded, after=after, upto=at)
        return b"[" + b",".join(found) + b"]"

    def events(self, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """Yield every event with a higher seq than `after`; with `follow`, wait for more for ever."""
        _check_seq("after", after)
        return self._events(after, follow=follow)

    def _events(self, after: int, *, follow: bool) -> Iterator[Event]:
        while True:
            for chunk in self._log.read(after=after):
                for event in chunk.events():
                    yield event
                    after = event.seq
            if not follow:
                return
            while not self._log.wait(after, _PATIENCE):
                pass

    @property
    def seq(self) -> int:
        """The seq of the last event; 0 while the session does not exist."""
        head = self._log.head()
        return 0 if head is None else head.seq

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata, as the events add up to; yours to change without effect on the session."""
        return fold.metadata_of(self._log.controls())

    def state(self, at: int | None = None) -> State:
        """Return everything the events add up to, now or as it was at a seq."""
        if at is not None:
            _check_seq("at", at)
        start = self._state
        if at is not None and start.seq > at:
            start = fold.EMPTY
        state = replay.replay(self._log, start=start, upto=at)
        if state.seq > self._state.seq:
            # What was folded stays folded: the next call reads only what is new.
            self._state = state
        # The dicts inside are shared with the kept state, so the caller gets its own.
        return codec.own_copy(state)

    def verify(self) -> SessionReport:
        """Check every byte that is stored of the session, and report.

        If an earlier sync has failed and nothing is wrong, the session can be appended to again.
        """
        return verify_session(self._backend, self.id)


def _message(message: dict[str, Any]) -> Draft:
    raw = codec.encode(message, "message", wrapped=True)
    return Draft(MESSAGE_ADDED, b'{"message":%b}' % raw, control=False)


class _QuietCollector:
    """Pauses the garbage collector while many messages are decoded: none of them is garbage."""

    __slots__ = ("_log", "_paused", "_start")

    def __init__(self, log: Log, after: int) -> None:
        self._log = log
        self._start = after
        self._paused = False

    def __enter__(self) -> None:
        head = self._log.head()
        if head is not None and head.seq - self._start > _MANY and gc.isenabled():
            gc.disable()
            self._paused = True

    def __exit__(self, *_: object) -> None:
        if self._paused:
            gc.enable()


def _check_key(key: object) -> None:
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY or "\0" in key:
        raise InvalidEvent(f"key {key!r:.60}: must be a text of 1 to 1,024 characters without NUL")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(f"key {key!r:.60}: holds a lone surrogate, which is not text") from None


def _check_seq(name: str, value: object) -> None:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be a seq, 0 or more, not {value!r}")


def _check_range(last: int | None, after: int, at: int | None, view: str) -> None:
    _check_seq("after", after)
    if last is not None:
        _check_seq("last", last)
    if at is not None:
        _check_seq("at", at)
    if view not in views.VIEWS:
        raise ValueError(f"view must be one of {', '.join(views.VIEWS)}, not {view!r}")
