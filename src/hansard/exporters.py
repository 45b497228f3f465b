"""Export sessions for other programs.

    from hansard import exporters

    Path("refund.jsonl").write_bytes(b"".join(exporters.export(session, "codex")))

The command is `hansard export --as KIND`. hansard's own JSONL, Markdown and HTML are `session.export`.
Nothing of a framework is imported.

In the model view a summary replaces what it covers. If it was imported from the same program, that program's
own record of it is exported instead, with everything before it.
"""

import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec

import hansard
from hansard import Event
from hansard.backend.contract import between, streamed
from hansard.event.kinds import MESSAGE_ADDED, SUMMARY_ADDED
from hansard.message import claude_entries
from hansard.message.openai_items import items_of
from hansard.message.parse import origin_of
from hansard.message.values import as_json
from hansard.state import fold, redaction
from hansard.state.view import PARTIAL, VIEWS, Course, StreamAssembler, View, model

__all__ = ["KINDS", "Kind", "View", "export"]

Kind = Literal["claude-code", "codex", "openai-items"]

#: The kinds, and the suffixes of their files.
KINDS: Final[dict[str, str]] = {"claude-code": "jsonl", "codex": "jsonl", "openai-items": "json"}

#: The kind of the events that hold a line of a Codex rollout which is not an item.
_CODEX_LINE: Final = "x.codex.line"


def export(
    session: hansard.Session, kind: Kind, *, redacted: bool = True, view: View = "model"
) -> Iterator[bytes]:
    """Yield a session in the format of another program, piece by piece.

    What was imported from that program, or written through its adapter, is written unchanged; other
    messages are converted.

    Args:
        session: the session; a fork includes what it inherits.
        kind: the format, one of `KINDS`.
        redacted: replace what looks like a credential. Redacted messages are never exported.
        view: "model": what a model would see; "history": all messages, also reverted ones.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if view not in VIEWS:
        raise ValueError(f"view must be one of {', '.join(VIEWS)}, not {view!r}")
    # Read before the first piece is requested: a missing session raises at the call.
    return _RENDERERS[kind](shared(session, redacted=redacted, view=view, kind=kind))


class SharedSession(NamedTuple):
    """What of a session is exported: its events are in order."""

    session_id: str
    metadata: dict[str, Any]
    created: str
    events: list[Event]

    @property
    def uuid(self) -> str:
        """The last part of the session's id if that is a UUID, else a UUID made of the id."""
        last = self.session_id.rpartition("/")[2]
        try:
            return str(uuid.UUID(last))
        except ValueError:
            return str(uuid.uuid5(uuid.NAMESPACE_URL, f"hansard:{self.session_id}"))


def shared(session: hansard.Session, *, redacted: bool, view: str, kind: str = "") -> SharedSession:
    """Return what of a session is exported for a program."""
    objects = session.share(redact=redacted)
    head = next(objects)
    encode = msgspec.json.encode
    events = [
        Event(one["seq"], one["time"], one["kind"], encode(one["data"]), one.get("key"))
        for one in objects
    ]
    shown = _model(events, kind) if view == "model" else events
    return SharedSession(
        str(head["session"]),
        fold.apply_all(fold.EMPTY, events).metadata,
        events[0].stamp,
        _finished(shown),
    )


def _model(events: list[Event], kind: str) -> list[Event]:
    """Return the events of the model view for a program."""
    redactions, last = redaction.of(events), events[-1].seq
    ranges = model(Course(events), redactions, last)
    front: list[Event] = []
    summary = ranges.summary
    if summary is not None:
        before = between(events, summary.seq - 2, summary.seq - 1)
        if any(_is_compaction(event, kind) for event in before):
            rest = [event for event in events if event.kind != SUMMARY_ADDED]
            ranges = model(Course(rest), redactions, last)
        else:
            # What describes the session stays in front, whatever was shortened.
            front = [event for event in events if event.seq <= summary.data["upto"]]
            front = [event for event in front if _line_type(event) == "session_meta"]
            raw = msgspec.json.encode({"message": summary.data["message"]})
            front.append(Event(summary.seq, summary.stamp, MESSAGE_ADDED, raw))
    return [
        *front,
        *(one for begin, end in ranges.forwards() for one in between(events, begin, end)),
    ]


def _finished(events: list[Event]) -> list[Event]:
    """Return events with a message in place of the last part of each unfinished stream."""
    streams = StreamAssembler(redaction.of(events).streams)
    streams.forwards([part for event in events if (part := streamed(event)) is not None])
    ends = {seq: message for seq, message in streams.unfinished() if message["content"]}
    for message in ends.values():
        # Other programs do not know it.
        del message[PARTIAL]
    return [
        Event(
            event.seq, event.stamp, MESSAGE_ADDED, msgspec.json.encode({"message": ends[event.seq]})
        )
        if event.seq in ends
        else event
        for event in events
    ]


def _line_type(event: Event) -> object:
    """Return the type of a line of Codex; None if the event is not one."""
    line = event.data.get("line") if event.kind == _CODEX_LINE else None
    return line.get("type") if isinstance(line, dict) else None


def _is_compaction(event: Event, kind: str) -> bool:
    """Return whether an event is a program's own record of a summary, which an import noted twice."""
    if kind == "codex":
        return _line_type(event) == "compacted"
    entry = event.data.get("entry") if event.kind == "x.claude.entry" else None
    return kind == "claude-code" and isinstance(entry, dict) and bool(entry.get("isCompactSummary"))


def _claude_code(session: SharedSession) -> Iterator[bytes]:
    """Yield the lines of a Claude Code transcript, which must be named `<sessionId>.jsonl`.

    Imported entries are written unchanged. Each other message becomes an entry after the last one.
    """
    entries = claude_entries.entries(session.events, session.uuid)
    for entry in entries:
        yield _line(as_json(entry))
    title = session.metadata.get("title")
    if isinstance(title, str) and title and not any(claude_entries.titles(entries)):
        yield _line({"type": "custom-title", "customTitle": title, "sessionId": session.uuid})


def _openai_items(session: SharedSession) -> Iterator[bytes]:
    """Yield a JSON array of OpenAI Responses items, as the Agents SDK's sessions and `Runner.run` take it."""
    before = b"[\n"
    for event in session.events:
        message = event.message
        for item in items_of(message) if message else ():
            yield before + msgspec.json.encode(as_json(item))
            before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


def _codex(session: SharedSession) -> Iterator[bytes]:
    """Yield the lines of a Codex rollout: a `session_meta`, then imported lines and messages."""
    lines = [line for event in session.events for line in _codex_lines(event)]
    # A fork inherits its parent's first line; the last one is its own.
    heads = [line for line in lines if line.get("type") == "session_meta"]
    yield _line(heads[-1] if heads else _codex_head(session))
    yield from (_line(line) for line in lines if line.get("type") != "session_meta")


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _codex_head(session: SharedSession) -> dict[str, Any]:
    workspace = session.metadata.get("workspace")
    payload = {
        "id": session.uuid,
        "session_id": session.uuid,
        "timestamp": session.created,
        "cwd": workspace if isinstance(workspace, str) else "",
        "originator": "hansard",
        "cli_version": "0.0.0",
        "source": "cli",
    }
    return {"timestamp": session.created, "type": "session_meta", "payload": payload}


def _codex_lines(event: Event) -> list[dict[str, Any]]:
    if event.kind == _CODEX_LINE:
        line = event.data.get("line")
        return [{"timestamp": event.stamp, **line}] if isinstance(line, dict) else []
    message = event.message
    if not message:
        return []
    # The import has noted the other members of the line.
    frame = (origin_of(message) or {}).get("line")
    before = {"timestamp": event.stamp, **(frame if isinstance(frame, dict) else {})}
    return [
        {**before, "type": "response_item", "payload": _codex_item(as_json(item))}
        for item in items_of(message)
    ]


def _codex_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as Codex writes it: a message has a type, and its content is a list."""
    role = item.get("role")
    if not isinstance(role, str):
        return item
    content = item.get("content")
    if isinstance(content, str):
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    return {"type": "message", **item, "content": content}


_RENDERERS: Final[dict[str, Callable[[SharedSession], Iterator[bytes]]]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "openai-items": _openai_items,
}
