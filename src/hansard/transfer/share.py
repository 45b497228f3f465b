"""Make of a session what can be shown to others.

What is stored stays as it is; what is handed out is a copy, one JSON object for each event. Whoever shares a
session counts on what is *not* in it, so this reads like a list of ways for a secret to get out: what was
redacted in the log stays away whatever is asked for; a key is looked for in every text, also in the
session's id, in the names of fields and in JSON inside of a text; and a text that came in parts is looked at
as a whole, since a stream breaks off anywhere, also in the middle of a key.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from hansard.backend.contract import LogReader
from hansard.errors import SessionNotFound
from hansard.event import secrets
from hansard.event.envelope import Event
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART
from hansard.log import format
from hansard.maintenance.compact import compaction_filter, masked
from hansard.state import redaction
from hansard.state.lineage import redactions_of
from hansard.state.redaction import Redactions

#: The version of what `share` and `export` yield: a first object that says so, then one for each event.
VERSION: Final = 1

#: What stands in the place of a message that was taken out, where nothing else tells so; and what an
#: application's event is called whose kind held a credential.
_REDACTED: Final = "x.redacted"

Hook = Callable[[dict[str, Any]], dict[str, Any] | None]


class Shared(NamedTuple):
    """An event as it may be given away."""

    event: Event
    #: How many of the events behind it belong to the same append, if that has a key.
    more: int
    #: How many credentials were taken out of it.
    redacted: int


def share(
    log: LogReader, session_id: str, *, redact: bool = True, hook: Hook | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a session as JSON objects: a header, then its events in order.

    Args:
        log: the session, with what it inherits.
        session_id: its id, for the header.
        redact: put `[redacted: …]` in the place of what looks like a credential. What was taken out by
            `session.redact` is blank in any case.
        hook: is called last, with each object, and returns what is to be shared of it; None drops it.
    """
    upto = last_seq(log, session_id)
    objects = _objects(log, upto, header(session_id, redact=redact), redact=redact)
    return objects if hook is None else _hooked(objects, hook)


def last_seq(log: LogReader, session_id: str) -> int:
    """Return the seq up to which a session is given away, or raise if there is none."""
    head = log.head()
    if head is None:
        raise SessionNotFound(f"no session {session_id!r} to share")
    return head.seq


def header(session_id: str, *, redact: bool, **more: Any) -> dict[str, Any]:
    """Return the object that comes first, and says what the others are."""
    first = {
        "hansard": "export",
        "version": VERSION,
        "session": session_id,
        "exported": format.now().decode(),
        "redacted": redact,
        **more,
    }
    # Item by item: as a dict its own keys would be names, and "key" is none of a credential's.
    return {name: secrets.redact(value)[0] for name, value in first.items()} if redact else first


def _hooked(objects: Iterator[dict[str, Any]], hook: Hook) -> Iterator[dict[str, Any]]:
    for shown in objects:
        changed: object = hook(shown)
        if changed is None:
            continue
        if not isinstance(changed, dict):
            kind = type(changed).__name__
            raise TypeError(
                f"the hook must return the dict to share, or None to drop it, not {kind}"
            )
        yield changed


def _objects(
    log: LogReader, upto: int, first: dict[str, Any], *, redact: bool
) -> Iterator[dict[str, Any]]:
    given = given_away(log, upto, redact=redact)
    yield first
    for event, _, _ in given:
        shown = {"seq": event.seq, "time": event.stamp, "kind": event.kind, "data": event.data}
        yield shown if event.key is None else {**shown, "key": event.key}


def given_away(
    log: LogReader,
    upto: int,
    *,
    redact: bool,
    after: int = 0,
    parts: bool = True,
    alone: bool = False,
) -> Iterator[Shared]:
    """Yield the events with after < seq <= upto as they may be given away.

    Args:
        log: the session, with what it inherits.
        upto: the last seq.
        redact: without what looks like a credential.
        after: the seq before the first.
        parts: also what was streamed of messages that are there whole; otherwise nothing is left of it but
            its place, as after a compaction.
        alone: so that the events can be a session by themselves.
    """
    # After the seq was read: what has been taken out by now is away, whenever it was said.
    redactions = redactions_of(log)
    told = redaction.of(log.controls(upto))
    streams = _Streams(log, upto, redactions) if redact or not parts else None
    drops = None if parts else compaction_filter(log.controls, set).drop_part
    for chunk in log.read(after, upto):
        keyed = chunk.keyed()
        for found in chunk.events():
            event = masked(redactions, found)
            if event is found:
                event = redactions.mask(found)
            elif alone:
                event = _told(event, found, told)
            count = 0
            if streams is not None:
                if event.kind == MESSAGE_PART:
                    event, count = streams.shown(event, redact=redact, drops=drops)
                if redact:
                    event, more = _redacted(event)
                    count += more
            more = keyed.get(event.seq, 1) - 1 if event.key is not None else 0
            yield Shared(event, more, count)


def _told(event: Event, found: Event, told: Redactions) -> Event:
    """Return a masked event so that whoever reads only what is given away takes it for no message.

    What an ancestor took out after the fork is told by no event of the child's.
    """
    if event.kind != MESSAGE_ADDED or event.data.get("message") or told.mask(found) is not found:
        return event
    raw = msgspec.json.encode({"kind": event.kind})
    return Event(event.seq, event.stamp, _REDACTED, raw, event.key)


def _redacted(event: Event) -> tuple[Event, int]:
    data, count = secrets.redact(event.data)
    kind, in_kind = secrets.redact_text(event.kind)
    key, in_key = secrets.redact_text(event.key or "")
    # Always encoded again: what stands in the stored bytes, and was not decoded, must not get out.
    # Half a key is none: two that held a credential would seem to be the same append.
    changed = Event(
        event.seq,
        event.stamp,
        _REDACTED if in_kind else kind,
        msgspec.json.encode(data),
        None if in_key else key or None,
    )
    return changed, count + in_kind + in_key


class _Streams:
    """What was streamed: which messages are whole, and the texts that hold credentials, redacted as one.

    A first reading finds them; only those texts are kept, and of the others what is still open.
    """

    __slots__ = ("_ended", "_texts")

    def __init__(self, log: LogReader, upto: int, redactions: Redactions) -> None:
        #: What is left of a text, and how much was taken out, by its stream; empty once a part has it.
        self._texts: dict[str, tuple[str, int]] = {}
        #: Where the messages that are over ended.
        self._ended: dict[str, int] = {}
        open_streams: dict[str, list[str]] = {}
        for chunk in log.read(upto=upto):
            for said in chunk.streamed():
                if said.over:
                    self._ended[said.stream] = said.seq
                if said.stream in redactions.streams or said.seq < redactions.before:
                    continue
                open_streams.setdefault(said.stream, []).append(said.text)
                if said.over:
                    self._close(said.stream, open_streams.pop(said.stream))
        for stream, pieces in open_streams.items():
            self._close(stream, pieces)

    def _close(self, stream: str, pieces: list[str]) -> None:
        text, count = secrets.redact_text("".join(pieces))
        if count:
            before, more = self._texts.get(stream, ("", 0))
            self._texts[stream] = (before + text, more + count)

    def shown(
        self, event: Event, *, redact: bool, drops: Callable[[int, int], bool] | None
    ) -> tuple[Event, int]:
        """Return a part as it may be shown, and how many credentials were taken out with it."""
        data = event.data
        stream = data.get("stream")
        if not isinstance(stream, str):
            return event, 0
        ended = self._ended.get(stream)
        over = data.get("over") or ended is None
        if drops is not None and not over and drops(event.seq, ended or 0):
            emptied = msgspec.json.encode({"stream": stream})
            return msgspec.structs.replace(event, raw=emptied), 0
        if redact and stream in self._texts and "text" in data:
            # All of a text that held credentials into the first of its parts, and nothing into the others.
            data["text"], count = self._texts[stream]
            self._texts[stream] = ("", 0)
            return msgspec.structs.replace(event, raw=msgspec.json.encode(data)), count
        return event, 0
