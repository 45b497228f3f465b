"""Return a copy of a session that can be given to others, without redacted data and credentials.

The copy has one JSON object per event; the stored session does not change. Redacted data is never included.
Credentials are searched in every string, including the session's id, member names and JSON inside a string.
The parts of a stream are searched as one text, because a stream may be cut in the middle of a credential.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from hansard.backend.contract import LogReader
from hansard.errors import SessionNotFound
from hansard.event import kinds, secrets
from hansard.event.event import Event
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART, SESSION_FORKED
from hansard.log import format
from hansard.maintenance.compact import masked
from hansard.state import redaction
from hansard.state.lineage import ForkedReader, redactions_of
from hansard.state.redaction import Redactions

#: The version of what `share` and `export` yield: a header, then one object per event.
VERSION: Final = 1

#: The kind of a redacted message whose redaction is not in the copy, and of an application event whose kind
#: contained a credential.
_REDACTED: Final = "x.redacted"

#: The kind of the first event of a fork that is copied with what it inherits, and is not a fork any more.
_WAS_FORKED: Final = "x.forked"

Hook = Callable[[dict[str, Any]], dict[str, Any] | None]


class Shared(NamedTuple):
    """An event of the copy."""

    event: Event
    #: Number of later events of the same append, if the append has an idempotency key.
    more: int
    #: Number of credentials that were replaced in it.
    redacted: int


def share(
    log: LogReader, session_id: str, *, redact: bool = True, hook: Hook | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a session as JSON objects: a header, then its events in order.

    Args:
        log: the session, with its inherited events.
        session_id: its id, for the header.
        redact: replace what looks like a credential by `[redacted: …]`. Redacted messages are always empty.
        hook: called with each object; returns the object to yield, or None to leave it out.
    """
    upto = last_seq(log, session_id)
    given = given_away(log, upto, redact=redact)
    events = (
        {"seq": event.seq, "time": event.stamp, "kind": event.kind, "data": event.data}
        | ({} if event.key is None else {"key": event.key})
        for event, _, _ in given
    )
    objects = chain([header(session_id, redact=redact)], events)
    return objects if hook is None else _hooked(objects, hook)


def _hooked(objects: Iterator[dict[str, Any]], hook: Hook) -> Iterator[dict[str, Any]]:
    for shown in objects:
        changed: object = hook(shown)
        if isinstance(changed, dict):
            yield changed
        elif changed is not None:
            kind = type(changed).__name__
            raise TypeError(
                f"the hook must return a dict, or None to leave the object out, not {kind}"
            )


def last_seq(log: LogReader, session_id: str) -> int:
    """Return the last seq of a session; raise if it does not exist."""
    head = log.head()
    if head is None:
        raise SessionNotFound(f"no session {session_id!r} to share")
    return head.seq


def header(session_id: str, *, redact: bool, **more: Any) -> dict[str, Any]:
    """Return the header, which describes the other objects."""
    first = {
        "hansard": "export",
        "version": VERSION,
        "session": session_id,
        "exported": format.now().decode(),
        "redacted": redact,
        **more,
    }
    # Value by value: the names of the header's members must not be taken for names of credentials.
    return {name: secrets.redact(value)[0] for name, value in first.items()} if redact else first


def given_away(log: LogReader, upto: int, *, redact: bool) -> Iterator[Shared]:
    """Yield the events up to a seq, without redacted data, as those of a separate session.

    Inherited events lose their idempotency keys: a fork does not know those of its parent, and may use them
    again.
    """
    # Read after the last seq: every redaction up to now applies.
    redactions = redactions_of(log)
    told = redaction.of(log.controls(upto))
    streams = _Streams(log, upto, redactions) if redact else None
    own = log.first_event.seq if isinstance(log, ForkedReader) else 0
    for chunk in log.read(upto=upto):
        keyed = chunk.keyed()
        for found in chunk.events():
            if found.seq == 1 and found.kind == SESSION_FORKED:
                # Only the first event would make a fork of the copy: that of a fork at seq 0. Renamed before
                # it is masked: redactions and drops cover it in the copy, so its data must not be there.
                found = msgspec.structs.replace(found, kind=_WAS_FORKED)  # noqa: PLW2901
            event = masked(redactions, found)
            event = redactions.mask(found) if event is found else _told(event, found, told)
            if event.seq < own:
                event = msgspec.structs.replace(event, key=None)
            count = 0
            if streams is not None:
                if event.kind == MESSAGE_PART:
                    event, count = streams.shown(event)
                event, more = _redacted(event)
                count += more
            more = keyed.get(event.seq, 1) - 1 if event.key is not None else 0
            yield Shared(event, more, count)


def _told(event: Event, found: Event, told: Redactions) -> Event:
    """Return a masked event so that a reader of the copy does not take it for a message.

    A redaction in an ancestor after the fork is not an event of the child.
    """
    if event.kind != MESSAGE_ADDED or event.data.get("message") or told.mask(found) is not found:
        return event
    raw = msgspec.json.encode({"kind": event.kind})
    return Event(event.seq, event.stamp, _REDACTED, raw, event.key)


def _redacted(event: Event) -> tuple[Event, int]:
    data, count = secrets.redact(event.data)
    kind, in_kind = secrets.redact(event.kind)
    key, in_key = secrets.redact(event.key or "")
    # Always encoded again: stored bytes that were not decoded must not be shared. A redacted idempotency key
    # is left out: two different ones could become equal.
    changed = Event(
        event.seq,
        event.stamp,
        _REDACTED if in_kind else kind,
        msgspec.json.encode(data),
        None if in_key else key or None,
    )
    return changed, count + in_kind + in_key


class _Streams:
    """The redacted texts of streams with credentials.

    A first pass over the log finds them. It keeps only those texts, and the parts of unfinished streams.
    """

    def __init__(self, log: LogReader, upto: int, redactions: Redactions) -> None:
        #: By stream, the redacted text and the number of credentials; empty after a part has returned it.
        self._texts: dict[tuple[str, int], tuple[str, int]] = {}
        open_streams: dict[str, dict[int, list[str]]] = {}
        for chunk in log.read(upto=upto):
            for said in chunk.streamed():
                if said.stream in redactions.streams or said.seq < redactions.before:
                    continue
                texts = open_streams.setdefault(said.stream, {})
                texts.setdefault(-1, []).append(said.text)
                for call in said.calls:
                    texts.setdefault(call.index, []).append(call.arguments)
                if said.over:
                    self._close(said.stream, open_streams.pop(said.stream))
        for stream, pieces in open_streams.items():
            self._close(stream, pieces)

    def _close(self, stream: str, texts: dict[int, list[str]]) -> None:
        for channel, pieces in texts.items():
            text, count = secrets.redact("".join(pieces))
            if count:
                before, more = self._texts.get((stream, channel), ("", 0))
                self._texts[stream, channel] = (before + text, more + count)

    def shown(self, event: Event) -> tuple[Event, int]:
        """Return a part, and the number of credentials that were replaced in it."""
        part = kinds.read(MESSAGE_PART, event.raw)
        if part is None:
            return event, 0
        data = event.data
        total = 0
        # The first piece gets the complete redacted text, the others become empty.
        places = [(-1, data, "text")]
        places += [
            (call.index, data["calls"][at], "arguments") for at, call in enumerate(part.calls)
        ]
        for channel, held, name in places:
            if name in held and (part.stream, channel) in self._texts:
                held[name], count = self._texts[part.stream, channel]
                self._texts[part.stream, channel] = ("", 0)
                total += count
        return msgspec.structs.replace(event, raw=msgspec.json.encode(data)), total
