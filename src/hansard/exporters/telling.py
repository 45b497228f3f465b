"""Choose what of a session is given to another program: which events, in which order.

Above: the exporters.  Below: `hansard`, `state` (what a view shows).
A summary stands for what it covers, as a message; unless it came with an import from the same program, whose
own record of it is exported instead, together with all that was said before.
"""

import uuid
from typing import Any, Final, NamedTuple

import msgspec

import hansard
from hansard import Event
from hansard.backend.contract import between, streamed
from hansard.state import fold, path, redaction
from hansard.state.streams import PARTIAL, Streams

_MESSAGE: Final = "message.added"
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


def told(session: hansard.Session, *, redacted: bool, view: str, kind: str = "") -> Told:
    """Return what is to be exported of a session. `kind`: for which program."""
    objects = session.share(redact=redacted)
    head = next(objects)
    events = [_event(one) for one in objects]
    shown = _shown(events, kind if view == "model" else None)
    return Told(str(head["session"]), fold.metadata_of(events), events[0].stamp, _finished(shown))


def _event(shared: dict[str, Any]) -> Event:
    raw = msgspec.json.encode(shared["data"])
    return Event(shared["seq"], shared["time"], shared["kind"], raw, shared.get("key"))


def _shown(events: list[Event], model_for: str | None) -> list[Event]:
    """Return the events of the history view, or of the model view for some program."""
    redactions, last = redaction.of(events), events[-1].seq
    if model_for is None:
        return events
    way = path.model(_course(events), redactions, last)
    front: list[Event] = []
    if way.summary is not None:
        (summary,) = way.summary.events()
        before = between(events, summary.seq - 2, summary.seq - 1)
        if any(_is_compaction(event, model_for) for event in before):
            rest = [event for event in events if event.kind != _SUMMARY]
            way = path.model(_course(rest), redactions, last)
        else:
            # What is known about the session as a whole stays in front, whatever was shortened.
            front = [event for event in events if event.seq <= summary.data["upto"]]
            front = [event for event in front if _line_type(event) == "session_meta"]
            raw = msgspec.json.encode({"message": summary.data["message"]})
            front.append(Event(summary.seq, summary.stamp, _MESSAGE, raw))
    return [*front, *(one for begin, end in way.ranges() for one in between(events, begin, end))]


def _course(events: list[Event]) -> path.Course:
    course = path.Course()
    course.add(events)
    return course


def _finished(events: list[Event]) -> list[Event]:
    """Return events with a message for each that was streamed and broke off, where its last part stood."""
    streams = Streams(redaction.of(events).streams)
    streams.forwards([part for event in events if (part := streamed(event)) is not None])
    ends = {seq: message for seq, message in streams.unfinished() if message["content"]}
    for message in ends.values():
        # Other programs do not know it.
        del message[PARTIAL]
    return [
        Event(event.seq, event.stamp, _MESSAGE, msgspec.json.encode({"message": ends[event.seq]}))
        if event.seq in ends
        else event
        for event in events
    ]


def _line_type(event: Event) -> object:
    """Return the type of a line of Codex's; None if an event is none."""
    line = event.data.get("line") if event.kind == "x.codex.line" else None
    return line.get("type") if isinstance(line, dict) else None


def _is_compaction(event: Event, kind: str) -> bool:
    """Return whether an event is a program's own record of a summary, which an import noted twice."""
    if kind == "codex":
        return _line_type(event) == "compacted"
    entry = event.data.get("entry") if event.kind == "x.claude.entry" else None
    return kind == "claude-code" and isinstance(entry, dict) and bool(entry.get("isCompactSummary"))
