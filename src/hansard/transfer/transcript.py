"""Go through a session as somebody who reads it would: message by message, and what else happened.

Nothing of it is held but what is just being read, and messages that were streamed and never finished.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from hansard.backend.contract import Log
from hansard.event import kinds, secrets
from hansard.event.envelope import Event
from hansard.event.kinds import (
    EVENT_LOST,
    MESSAGE_ADDED,
    MESSAGE_PART,
    MESSAGE_REDACTED,
    METADATA_SET,
    SESSION_ARCHIVED,
    SESSION_CLEARED,
    SESSION_CLOSED,
    SESSION_CREATED,
    SESSION_FORKED,
    SESSION_REPAIRED,
    SESSION_REVERTED,
    SESSION_SNAPSHOTTED,
    SUMMARY_ADDED,
    USAGE_RECORDED,
)
from hansard.message.parse import to_json
from hansard.state import fold, views
from hansard.state.lineage import redactions_of
from hansard.state.path import Path
from hansard.state.streams import Streams
from hansard.state.views import VIEWS, View
from hansard.transfer.export_file import Origin, origins

#: Said once, at the top, and not each time.
_QUIET: Final = frozenset({MESSAGE_PART, MESSAGE_REDACTED})


class Entry(NamedTuple):
    """Something that happened: a message, or what is said about it in a line."""

    seq: int
    time: str
    #: The message; None if it is none.
    message: dict[str, Any] | None
    #: What happened otherwise, or what is special about the message, in words.
    note: str = ""
    #: What belongs to the note, as JSON.
    details: str = ""


class Transcript:
    """A session to be read by people.

    Attributes:
        session_id: its id.
        view: whose messages are shown.
        redacted: whether what looks like a credential is taken out.
        metadata: what is known about it.
        created, updated: when it began, and when its last event was written.
        upto: the seq of its last event.
        lineage: what it was forked from, the nearest first.
    """

    def __init__(
        self, log: Log, session_id: str, upto: int, *, redact: bool, view: View, events: bool
    ) -> None:
        if view not in VIEWS:
            raise ValueError(f"view must be one of {', '.join(VIEWS)}, not {view!r}")
        self._log = log
        self._events = events
        self._redactions = redactions_of(log)
        self.redacted = redact
        self.view = view
        self.upto = upto
        self.session_id: str = self._clean(session_id)
        controls = [self._redactions.mask(event) for event in log.controls(upto)]
        self.metadata: dict[str, Any] = self._clean(fold.metadata_of(controls))
        head = log.head()
        self.created = "" if head is None else head.created
        self.updated = "" if head is None else head.updated
        self.lineage: list[Origin] = [
            Origin(self._clean(origin.session), origin.seq, origin.created)
            for origin in origins(log)
        ]

    @property
    def title(self) -> str:
        """The title of the session, or its id."""
        return fold.title_of(self.metadata) or self.session_id

    def facts(
        self, code: Callable[[str], str], time: Callable[[str], str]
    ) -> list[tuple[str, str]]:
        """Return what stands at the top, by name. `code` and `time` render ids and times."""
        facts = [
            ("session", code(self.session_id)),
            ("from", f"{time(self.created)} to {time(self.updated)}"),
            ("events", str(self.upto)),
        ]
        facts += [("forked from", f"{code(one.session)} at {one.seq}") for one in self.lineage]
        if self.view == "model":
            facts.append(("view", "what a model is shown"))
        if self.redacted:
            facts.append(("redacted", "what looks like a credential was taken out"))
        return facts

    def entries(self) -> Iterator[Entry]:
        """Yield all that is to be read, in order."""
        way = views.path_of(self._log, view=self.view, upto=self.upto)
        unfinished = self._unfinished(way)
        for chunk in views.chunks(self._log, way):
            for found in chunk.events():
                if (
                    self.view == "model"
                    and found.kind == SUMMARY_ADDED
                    and chunk is not way.summary
                ):
                    continue  # a model is shown one summary, before all else
                event = self._redactions.mask(found)
                yield from self._entry(event, unfinished)

    def _unfinished(self, way: Path) -> dict[int, dict[str, Any]]:
        """Return the messages that were streamed and never finished, by the seqs of their last parts."""
        streams = Streams(self._redactions.streams)
        for chunk in views.chunks(self._log, way):
            streams.forwards(chunk.streamed())
        return dict(streams.unfinished())

    def _entry(self, event: Event, unfinished: dict[int, dict[str, Any]]) -> Iterator[Entry]:
        if event.seq in unfinished:
            note = "unfinished: it was streamed, and broke off"
            yield self._message(event, unfinished[event.seq], note)
        elif event.kind == MESSAGE_ADDED:
            message = event.message
            if isinstance(message, dict) and not event.data.get("redacted"):
                yield self._message(event, message, "")
            elif self._events:
                yield Entry(event.seq, event.stamp, None, "a message was redacted")
        elif event.kind == SUMMARY_ADDED:
            added = kinds.read(SUMMARY_ADDED, event.raw)
            if added is not None:
                yield self._message(event, added.message, f"a summary of all up to {added.upto}")
        elif self._events and event.kind not in _QUIET:
            note, details = _said(event)
            shown = self._clean(details)
            text = to_json(shown) if shown else ""
            yield Entry(event.seq, event.stamp, None, self._clean(note), text)

    def _message(self, event: Event, message: dict[str, Any], note: str) -> Entry:
        return Entry(event.seq, event.stamp, self._clean(message), note)

    def _clean(self, value: Any) -> Any:
        return secrets.redact(value)[0] if self.redacted else value


def _said(event: Event) -> tuple[str, dict[str, Any]]:
    """Return what an event says, in words, and what else there is to it."""
    data = event.data
    said = {
        SESSION_CREATED: "the session was created",
        METADATA_SET: "metadata were set",
        SESSION_CLEARED: "the session was cleared: a model is shown what follows",
        SESSION_REPAIRED: "damage was repaired",
        EVENT_LOST: "an event that was damaged is lost",
        SESSION_ARCHIVED: "archived" if data.get("archived", True) else "no longer archived",
        SESSION_CLOSED: "closed" if data.get("closed", True) else "reopened",
        SESSION_FORKED: f"forked from {data.get('parent')} at {data.get('seq')}",
        SESSION_REVERTED: f"reverted to {data.get('seq')}",
        SESSION_SNAPSHOTTED: f"snapshot {data.get('label')!r} of {data.get('seq')}",
        USAGE_RECORDED: (
            f"{data.get('model')}: {data.get('input_tokens', 0)} tokens in, "
            f"{data.get('output_tokens', 0)} out"
        ),
    }
    if event.kind in {METADATA_SET, SESSION_CREATED}:
        changes = data.get("metadata")
        return said[event.kind], changes if isinstance(changes, dict) else {}
    if event.kind == SESSION_REPAIRED:
        return said[event.kind], data
    return (said[event.kind], {}) if event.kind in said else (event.kind, data)
