"""What of a session is told to another program: which events, in which order.

Above: the exporters.  Below: `hansard`, `adapters.tally` (what was taken back).
A summary stands for what it shortens, as a message; unless it came with an import, whose own record of it is
told instead, together with all that was said before.
"""

import uuid
from typing import Any, Final, NamedTuple

import msgspec

import hansard
from hansard import Event
from hansard.adapters import tally

_MESSAGE: Final = "message.added"
_PART: Final = "message.part"
_SUMMARY: Final = "summary.added"


class Told(NamedTuple):
    """A session on its way out.

    Attributes:
        session_id: its id.
        metadata: what is known about it.
        created: when it began.
        events: what is told, in order.
    """

    session_id: str
    metadata: dict[str, Any]
    created: str
    events: list[Event]

    @property
    def uuid(self) -> str:
        """A name as other programs have them: the last part of the id, if it is one, or always the same."""
        last = self.session_id.rpartition("/")[2]
        try:
            return str(uuid.UUID(last))
        except ValueError:
            return str(uuid.uuid5(uuid.NAMESPACE_URL, f"hansard:{self.session_id}"))


def told(session: hansard.Session, *, redacted: bool, view: str) -> Told:
    """Return what is to be told of a session."""
    objects = session.share(redact=redacted)
    head = next(objects)
    events = [_event(one) for one in objects]
    metadata = _metadata(events)
    created = events[0].stamp
    events = _with_unfinished(events)
    if view == "model":
        events = _model(tally.shown(events))
    return Told(str(head["session"]), metadata, created, events)


def _event(shared: dict[str, Any]) -> Event:
    raw = msgspec.json.encode(shared["data"])
    return Event(shared["seq"], shared["time"], shared["kind"], raw, shared.get("key"))


def _metadata(events: list[Event]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for event in events:
        if event.kind in {"session.created", "metadata.set"}:
            changes = event.data.get("metadata")
            found.update(changes if isinstance(changes, dict) else {})
    return {name: value for name, value in found.items() if value is not None}


def _with_unfinished(events: list[Event]) -> list[Event]:
    """Return events with a message for each that was streamed and broke off, where its last part stood."""
    said: dict[str, dict[str, Any]] = {}
    last: dict[str, int] = {}
    for event in events:
        data = event.data
        stream = data.get("stream")
        if event.kind == _MESSAGE or data.get("over"):
            said.pop(str(stream), None)
        elif event.kind == _PART and isinstance(stream, str):
            message = said.setdefault(stream, {"role": "assistant", "content": ""})
            begun = data.get("message")
            message.update(begun if isinstance(begun, dict) else {})
            message["content"] = message.get("content", "") + data.get("text", "")
            last[stream] = event.seq
    ends = {last[stream]: message for stream, message in said.items() if message["content"]}
    return [
        Event(event.seq, event.stamp, _MESSAGE, msgspec.json.encode({"message": ends[event.seq]}))
        if event.seq in ends
        else event
        for event in events
    ]


def _model(events: list[Event]) -> list[Event]:
    place = next((n for n in range(len(events) - 1, -1, -1) if events[n].kind == _SUMMARY), None)
    if place is None or (place and is_compaction(events[place - 1])):
        return events
    summary = events[place]
    data = summary.data
    raw = msgspec.json.encode({"message": data["message"]})
    first = Event(summary.seq, summary.stamp, _MESSAGE, raw)
    # What is known about the session as a whole stays in front, whatever was shortened.
    heads = [event for event in events if event.seq <= data["upto"] and _is_head(event)]
    return [*heads, first, *(event for event in events if event.seq > data["upto"])]


def _is_head(event: Event) -> bool:
    line = event.data.get("line") if event.kind == "x.codex.line" else None
    return isinstance(line, dict) and line.get("type") == "session_meta"


def is_compaction(event: Event) -> bool:
    """Say whether an event is another program's own record of a summary, which an import noted twice."""
    data = event.data
    line, entry = data.get("line"), data.get("entry")
    if event.kind == "x.codex.line" and isinstance(line, dict):
        return line.get("type") == "compacted"
    if event.kind == "x.claude.entry" and isinstance(entry, dict):
        return bool(entry.get("isCompactSummary"))
    return False
