"""Print events, messages, states and differences; encode events as JSON.

A message is printed verbatim: the role, then every character of its texts, calls and results, with control
characters escaped. Only very long texts are truncated, only on a terminal, and the output says so. Markdown
is rendered only on request, because it hides characters. Every other event is one line.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hansard.cli.screen import Piece, Screen, cell, many
from hansard.message.parse import MessagePart, compact, parse

if TYPE_CHECKING:
    from hansard import Change, Event, State

#: Maximum characters of an event's data, and of a part of a message on a terminal, without --full.
_SHORT: Final = 160
_LONG: Final = 8_000

_INDENT: Final = 4

ROLES: Final = {
    "user": "bold green",
    "human": "bold green",
    "assistant": "bold cyan",
    "model": "bold cyan",
    "system": "bold magenta",
    "developer": "bold magenta",
    "tool": "bold yellow",
}


class EventPrinter:
    """Prints events one after another.

    Args:
        screen: the output.
        full: do not truncate, and print a message's other members.
        markdown: render texts as Markdown on a terminal.
    """

    def __init__(self, screen: Screen, *, full: bool = False, markdown: bool = False) -> None:
        self._screen = screen
        self._full = full
        self._markdown = markdown
        #: The stream whose parts were printed last, and their text.
        self._stream: tuple[str, str] | None = None
        #: The names of tools without a result so far, by call ids.
        self._called: dict[str, str] = {}

    def event(self, event: "Event", *, session: str = "", alone: bool = False) -> None:
        """Print an event, after its session if one is given. `alone`: not in a series."""
        data = event.data
        if event.kind == "message.part" and not alone and self._part(event, data, session):
            return
        told = self._stream
        self.end()
        head = self._head(event, session)
        match event.kind, data:
            case "message.added", {"redacted": True}:
                self._screen.beside(head, [("(redacted message)", "dim italic")])
            case "message.added", {"message": dict() as message}:
                if told is not None and told == (data.get("stream"), message.get("content")):
                    self._screen.line(*head, ("end of the stream above", "dim"))
                    return
                self._message(message, head)
            case "summary.added", {"message": dict() as message}:
                stands = f"summary of everything up to {data.get('upto')}: "
                self._message(message, [*head, (stands, "italic")])
            case _:
                self._screen.beside(head, _sentence(event.kind, data, full=self._full))

    def message(self, message: Mapping[str, Any]) -> None:
        """Print a message of a view, without seq and time."""
        self._message(message, [])

    def _head(self, event: "Event", session: str) -> list[Piece]:
        stamp = event.time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        head: list[Piece] = [(f"{event.seq:>4}", "bold"), (f"  {stamp}  ", "dim")]
        return [*head, (f"{session}  ", "blue")] if session else head

    def _part(self, event: "Event", data: dict[str, Any], session: str) -> bool:
        """Print a stream part; return False if it is not a plain one."""
        text, stream = data.get("text"), data.get("stream")
        if not isinstance(text, str) or not isinstance(stream, str) or data.get("over"):
            return False
        before = ""
        if self._stream is not None and self._stream[0] == stream:
            before = self._stream[1]
        else:
            self.end()
            message = data.get("message")
            role = message.get("role") if isinstance(message, dict) else None
            head = self._head(event, session)
            said = f"{cell(str(role or 'message'))}, streamed"
            self._screen.line(*head, (said, ROLES.get(str(role), "bold")))
            self._screen.bit(" " * _INDENT)
        self._stream = (stream, before + text)
        self._screen.bit(text.replace("\n", "\n" + " " * _INDENT))
        return True

    def end(self) -> None:
        """End the line of a streamed message."""
        if self._stream is not None:
            self._screen.bit("\n")
            self._stream = None

    def _message(self, message: Mapping[str, Any], head: list[Piece]) -> None:
        parsed = parse(message)
        line: list[Piece] = [(cell(parsed.speaker), ROLES.get(parsed.role, "bold"))]
        if parsed.partial:
            line.append((" (unfinished)", "red"))
        parts = parsed.shown(full=self._full)
        if len(parts) == 1 and parts[0].kind == "result" and "\n" not in parts[0].text:
            # The most frequent message fits in one line.
            said = self._cut(parts[0].text)
            self._screen.beside(head, [*line, (f" {self._answering(parts[0])}", "yellow"), *said])
            return
        self._screen.beside(head, line)
        for part in parts:
            self._show_part(part)

    def _show_part(self, part: MessagePart) -> None:
        text = part.text
        said = self._cut(text)
        match part.kind:
            case "text" if self._markdown:
                self._screen.markdown("".join(said), indent=_INDENT)
            case "text":
                self._screen.line(*said, indent=_INDENT)
            case "call":
                self._called[part.call_id] = part.name
                name = f"→ {cell(part.name)}"
                self._screen.line((name, "yellow"), "(", *said, ")", indent=_INDENT)
            case "result" if "\n" in text:
                self._screen.line((self._answering(part).rstrip(), "yellow"), indent=_INDENT)
                self._screen.line(*said, indent=2 * _INDENT)
            case "result":
                self._screen.line((self._answering(part), "yellow"), *said, indent=_INDENT)
            case "thinking":
                thought: list[Piece] = [(text, "dim italic") for text in ("(thinks) ", *said)]
                self._screen.line(*thought, indent=_INDENT)
            case _:
                self._screen.line(*((text, "dim") for text in said), indent=_INDENT)

    def _answering(self, part: MessagePart) -> str:
        name = self._called.pop(part.call_id, "") or part.name or part.call_id
        return f"← {cell(name)} " if name else "← "

    def _cut(self, text: str) -> list[str]:
        """Return a text; if it is truncated, followed by a note."""
        if self._full or not self._screen.terminal or len(text) <= _LONG:
            return [text]
        more = many(len(text) - _LONG, "character")
        return [text[:_LONG], f" … ({more} more; --full shows all)"]


def short(value: object, length: int | None = 60) -> str:
    """Return a value in one line, of bounded length."""
    text = cell(value if isinstance(value, str) else compact(value))
    return text if length is None or len(text) <= length else text[: length - 1] + "…"


def brief(message: Mapping[str, Any], length: int | None = 100) -> str:
    """Return a message in one line, with `↵` for a line break, of bounded length."""
    parsed = parse(message)
    said = [
        f"→ {part.name}({part.text})" if part.kind == "call" else part.text
        for part in parsed.shown(full=length is None)
    ]
    return f"{cell(parsed.speaker)}: {short(' '.join(said), length)}"


def show_changes(
    screen: Screen, name: str, changes: "Mapping[str, Change]", length: int | None
) -> None:
    """Print the changes of a mapping, each value in one line of bounded length."""
    if changes:
        screen.line(f"{name}:")
    for key, change in changes.items():
        for sign, style, value in (("-", "red", change.a), ("+", "green", change.b)):
            if value is not msgspec.UNSET:
                screen.line((f"{sign} {key} = {short(value, length)}", style), indent=2)


def show_state(
    screen: Screen, session_id: str, state: "State", *, more: Sequence[tuple[str, str]] = ()
) -> None:
    """Print a state, one line per fact. `more`: further facts, by name."""
    title = f" “{state.title}”" if state.title else ""
    screen.line((session_id, "bold"), title)
    lines = [
        ("events", f"{state.seq:,}"),
        ("messages", f"{state.message_count:,} added"),
        ("created", _moment(state.created)),
        ("updated", _moment(state.updated)),
    ]
    if state.parent is not None:
        lines.append(("forked from", f"{state.parent} at {state.forked_at}"))
    lines += [
        (f"metadata {key}", short(value)) for key, value in state.metadata.items() if key != "title"
    ]
    lines += [(f"snapshot {label}", str(seq)) for label, seq in state.snapshots.items()]
    for model, usage in state.usage.items():
        cost = f", cost {usage.cost:g}" if usage.cost else ""
        said = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cost}"
        lines.append((f"usage {model}", f"{many(usage.calls, 'call')}, {said}"))
    if state.streams:
        lines.append(("unfinished", many(len(state.streams), "message")))
    marks = [name for name in ("archived", "closed") if getattr(state, name)]
    if marks:
        lines.append(("is", ", ".join(marks)))
    lines += more
    width = max(len(name) for name, _ in lines)
    for name, said in lines:
        screen.beside([(f"  {name:<{width}}  ", "dim")], [said])


def _moment(stamp: str) -> str:
    """Return a time in the local zone."""
    if not stamp:
        return "never"
    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def event_json(event: "Event", *, session: str | None = None) -> bytes:
    """Return an event as a JSON object with its stored data."""
    head = b"" if session is None else b'"session":%b,' % json.dumps(session).encode()
    key = b"" if event.key is None else b',"key":%b' % json.dumps(event.key).encode()
    return b'{%b"seq":%d,"time":"%b","kind":"%b","data":%b%b}' % (
        head,
        event.seq,
        event.stamp.encode(),
        event.kind.encode(),
        event.raw,
        key,
    )


def _sentence(kind: str, data: dict[str, Any], *, full: bool) -> list[Piece]:
    """Return what an event other than a message did."""
    said = _SENTENCES.get(kind)
    if said is not None:
        try:
            return [("· ", "dim"), said(data)]
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # an unknown shape: printed as JSON
    text = compact(data)
    return [("· ", "dim"), (kind, "magenta"), f" {text if full else short(text, _SHORT)}"]


def _metadata(data: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} removed" if value is None else f"{key} = {short(value)}"
        for key, value in data.get("metadata", {}).items()
    )


def _usage(data: dict[str, Any]) -> str:
    given, made = data.get("input_tokens", 0), data.get("output_tokens", 0)
    cost = data.get("cost")
    price = f", cost {cost:g}" if isinstance(cost, int | float) else ""
    return f"usage: {data['model']}, {given:,} tokens in, {made:,} out{price}"


def _redacted(data: dict[str, Any]) -> str:
    reason = data.get("reason")
    return f"redacted message {data['seq']}" + (f": {reason}" if reason else "")


def _repaired(data: dict[str, Any]) -> str:
    lost = sum(last - first + 1 for first, last in data.get("lost", []))
    return f"repaired: {many(lost, 'event')} lost"


def _created(data: dict[str, Any]) -> str:
    said = _metadata(data)
    return f"created: {said}" if said else "created"


_SENTENCES: Final = {
    "event.lost": lambda _: "a damaged event was lost",
    "message.part": lambda data: (
        f"stream part: {short(data['text'], _SHORT)}"
        if data.get("text")
        else "the streamed message was discarded"
    ),
    "message.redacted": _redacted,
    "metadata.set": lambda data: f"metadata: {_metadata(data)}",
    "session.archived": lambda data: (
        "archived" if data.get("archived", True) else "no longer archived"
    ),
    "session.cleared": lambda _: "cleared: the model view starts here",
    "session.closed": lambda data: "closed" if data.get("closed", True) else "reopened",
    "session.created": _created,
    "session.forked": lambda data: f"forked from {data['parent']} at {data['seq']}",
    "session.repaired": _repaired,
    "session.reverted": lambda data: f"reverted to {data['seq']}",
    "session.snapshotted": lambda data: f"snapshot “{data['label']}” of seq {data['seq']}",
    "usage.recorded": _usage,
}
