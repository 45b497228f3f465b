"""One conversation: what a caller holds.

Above: user code, `store`.  Below: `event`, `state`, `upkeep`, `backend.contract`.
The first room on an event's way: a message comes in as a dict here, becomes a draft (`event.codec`), and
goes to the backend. A handle is cheap, safe to share between threads, and sees at once what others append.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
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
    MESSAGE_REDACTED,
    METADATA_SET,
    SESSION_ARCHIVED,
    SESSION_CLEARED,
    SESSION_CREATED,
    SESSION_REVERTED,
    SESSION_SNAPSHOTTED,
    SUMMARY_ADDED,
    USAGE_RECORDED,
    check_kind,
    read,
)
from hansard.state import fold, pairing, path, replay, views
from hansard.state import window as windows
from hansard.state.fold import State, Usage
from hansard.state.pairing import Problem
from hansard.state.views import View
from hansard.upkeep.verify import SessionReport, verify_session

#: A place in a session: a seq, or a time with its zone.
At = int | datetime

#: How long `events(follow=True)` waits before it looks whether it was closed.
_PATIENCE = 1.0

_LONGEST_KEY = 1024

#: How many messages `window` looks at before it looks at more.
_WINDOW = 64


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

    def record_usage(
        self,
        *,
        model: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost: float | None = None,
        **more: Any,
    ) -> Event:
        """Record what one call of a model took; `more` is kept with it, such as cached tokens."""
        data = {"model": model, "input_tokens": input_tokens, "output_tokens": output_tokens}
        if cost is not None:
            more["cost"] = cost
        return self._record(USAGE_RECORDED, {**data, **more})

    # -- changing what is shown -----------------------------------------------------------------

    def snapshot(self, label: str) -> Event:
        """Give the session's present seq a label, to come back to."""
        return self._record(SESSION_SNAPSHOTTED, {"label": label, "seq": self.seq})

    def revert(self, to: int | str) -> Event:
        """Let the model view go back to a seq or a snapshot.

        Nothing is erased: the history view still shows all, and a revert to a later seq, such as the one
        before this event, brings the later turns back. Metadata and usage are not reverted.
        """
        if isinstance(to, str):
            known = self.snapshots
            if to not in known:
                raise InvalidEvent(
                    f"session {self.id!r} has no snapshot {to!r}; it has "
                    + (", ".join(map(repr, known)) or "none")
                )
            to = known[to]
        self._check_place("revert to", to)
        return self._record(SESSION_REVERTED, {"seq": to})

    def summarize(self, *, upto: int, message: dict[str, Any]) -> Event:
        """Let a message stand for all up to a seq in the model view; the history view still shows all."""
        self._check_place("summarize up to", upto)
        return self._record(SUMMARY_ADDED, {"upto": upto, "message": message})

    def redact(self, seq: int, *, reason: str = "") -> Event:
        """Remove the message at a seq from every view, for good, also from views of earlier times.

        Its bytes stay in the log until compaction, which this version does not have yet.
        """
        self._check_place("redact", seq)
        event = next(self.events(after=seq - 1), None) if seq else None
        if event is None or event.kind not in {MESSAGE_ADDED, SUMMARY_ADDED}:
            raise InvalidEvent(f"session {self.id!r} has no message at seq {seq}")
        return self._record(MESSAGE_REDACTED, {"seq": seq, "reason": reason})

    def clear(self) -> Event:
        """Let the model view start anew; the history view still shows all."""
        return self._record(SESSION_CLEARED, {})

    def archive(self) -> Event:
        """Put the session out of the way; it can be read as before."""
        return self._record(SESSION_ARCHIVED, {})

    def _record(self, kind: str, data: dict[str, Any]) -> Event:
        """Append an event of hansard's own, whose data must have the shape of its kind."""
        raw = codec.encode(data)
        if read(kind, raw) is None:
            raise InvalidEvent(f"{kind}: {data!r:.200} does not have the shape of such an event")
        return self._append([Draft(kind, raw, kind in CONTROL)])[0]

    def _check_place(self, action: str, seq: object) -> None:
        last = self.seq
        if type(seq) is not int or not 0 <= seq <= last:
            raise InvalidEvent(
                f"cannot {action} {seq!r}: session {self.id!r} has the seqs 0 to {last}"
            )

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
        at: At | None = None,
        view: View = "model",
    ) -> list[dict[str, Any]]:
        """Return messages as dicts, which are the caller's to change.

        Args:
            last: only so many, the latest. Reads the end of the log only.
            after: only those with a higher seq.
            at: as it was at this seq, or at this time (a datetime with a time zone).
            view: "model", what a model should be given, or "history", all that was said.
        """
        _check_range(last, after, view)
        upto = self._seq_at(at)
        if last is not None:
            return views.show_last(
                self._log, views.decoded, last, after=after, upto=upto, view=view
            )
        return views.show(self._log, views.decoded, after=after, upto=upto, view=view)

    def messages_json(
        self,
        *,
        last: int | None = None,
        after: int = 0,
        at: At | None = None,
        view: View = "model",
    ) -> bytes:
        """Return the same as a JSON array, in the stored bytes, without decoding the messages."""
        _check_range(last, after, view)
        upto = self._seq_at(at)
        if last is not None:
            found = views.show_last(
                self._log, views.encoded, last, after=after, upto=upto, view=view
            )
        else:
            found = views.show(self._log, views.encoded, after=after, upto=upto, view=view)
        return b"[" + b",".join(found) + b"]"

    def window(
        self,
        *,
        turns: int | None = None,
        messages: int | None = None,
        tokens: int | None = None,
        keep_first: bool = False,
        counter: Callable[[dict[str, Any]], int] = windows.estimate_tokens,
    ) -> list[dict[str, Any]]:
        """Return the last messages of the model view that fit; no call is cut from its result.

        Args:
            turns: at most so many turns; a turn begins with a message of the user.
            messages: at most so many messages.
            tokens: at most so many tokens, as `counter` counts them; it guesses a quarter of the
                message's bytes as JSON.
            keep_first: begin with the first message of the user, even if it is older; it counts.
            counter: how many tokens a message takes.
        """
        for name, value in (("turns", turns), ("messages", messages), ("tokens", tokens)):
            if value is not None:
                _check_seq(name, value)
        limits = windows.Limits(turns, messages, tokens, counter)
        # The end of the view is enough, unless a limit reaches further back: then more of it.
        size = _WINDOW
        while True:
            tail = views.show_last(self._log, views.decoded, size)
            whole = len(tail) < size
            first = self._first_user(tail, whole=whole) if keep_first else None
            found = windows.window(tail, limits, first=first, partial=not whole)
            if found is not None:
                return found
            size *= 4

    def _first_user(self, tail: list[dict[str, Any]], *, whole: bool) -> dict[str, Any] | None:
        """Return what a person said first, as the object in the tail if it is there."""
        if not whole:
            for message in views.each(self._log):
                if windows.is_user(message):
                    return message
        return next((message for message in tail if windows.is_user(message)), None)

    def pairing(self) -> list[Problem]:
        """Return the tool calls without a result, and results without a call, of the model view."""
        return pairing.problems(self.messages())

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

    @property
    def snapshots(self) -> dict[str, int]:
        """The labels that `snapshot` gave, with their seqs."""
        return path.snapshots(self._log.controls())

    @property
    def usage(self) -> dict[str, Usage]:
        """Tokens and cost, by model."""
        return self.state().usage

    def _seq_at(self, at: At | None) -> int | None:
        """Return the seq that a caller means: by number, or as the last event written by a time."""
        if not isinstance(at, datetime):
            if at is not None:
                _check_seq("at", at)
            return at
        if at.tzinfo is None:
            raise ValueError(f"at={at!r} has no time zone; give one, such as datetime.UTC")
        stamp = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for chunk in self._log.read_back():
            for event in reversed(chunk.events()):
                if event.stamp <= stamp:
                    return event.seq
        return 0

    def state(self, at: At | None = None) -> State:
        """Return everything the events add up to, now or as it was at a seq or a time."""
        at = self._seq_at(at)
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


def create(backend: Backend, session_id: str, metadata: dict[str, Any]) -> Session:
    """Append the first event of a session that must not exist, and return a handle on it."""
    raw = codec.encode(metadata, "metadata", wrapped=True)
    data = b'{"metadata":%b}' % raw if metadata else raw
    draft = Draft(SESSION_CREATED, data, SESSION_CREATED in CONTROL)
    session = Session(backend, session_id)
    backend.log(session_id).append([draft], new_only=True)
    return session


def _message(message: dict[str, Any]) -> Draft:
    raw = codec.encode(message, "message", wrapped=True)
    return Draft(MESSAGE_ADDED, b'{"message":%b}' % raw, control=False)


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


def _check_range(last: int | None, after: int, view: str) -> None:
    _check_seq("after", after)
    if last is not None:
        _check_seq("last", last)
    if view not in views.VIEWS:
        raise ValueError(f"view must be one of {', '.join(views.VIEWS)}, not {view!r}")
