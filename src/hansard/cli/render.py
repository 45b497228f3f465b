"""Print events, messages, states and differences; encode events as JSON.

A message is printed verbatim: the role, then every character of its texts, calls and results, with control
characters escaped. Only very long texts are truncated, only on a terminal, and the output says so. Every
other event is one line.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

import hansard
from hansard.cli.screen import Piece, Screen, cell, many
from hansard.message.origin import readable
from hansard.message.parse import ROLES, ContentPart, parse, without_binary
from hansard.message.sentences import point, sentence, tokens
from hansard.message.values import compact

#: Maximum characters of an event's data, and of a part of a message on a terminal, without --full.
_SHORT: Final = 160
_LONG: Final = 8_000

_INDENT: Final = 4

_STYLES: Final = {
    "user": "bold green",
    "assistant": "bold cyan",
    "system": "bold magenta",
    "tool": "bold yellow",
}

#: Events that are messages: only these can be reverted, superseded or redacted.
MESSAGES: Final = frozenset({"message.added", "message.part", "summary.added"})


class EventPrinter:
    """Prints events one after another.

    Args:
        screen: the output.
        full: do not truncate, and print a message's other members.

    Attributes:
        unfinished: streams to mark as unfinished, with the seq of their last part.
        mark: returns what is special about the message at a seq, such as "reverted".
    """

    def __init__(self, screen: Screen, *, full: bool = False) -> None:
        self.unfinished: Mapping[str, int] = {}
        self.mark: Callable[[int], str] = lambda _: ""
        self._screen = screen
        self._full = full
        #: The stream whose parts were printed last, its first seq, and their text.
        self._stream: tuple[str, int, str] | None = None
        #: The names of tools without a result so far, by call ids.
        self._called: dict[str, str] = {}

    def event(self, event: "hansard.Event", *, session: str = "", alone: bool = False) -> None:
        """Print an event, after its session if one is given. `alone`: not in a series."""
        data = event.data
        if event.kind == "message.part" and not alone:
            if self._part(event, data, session):
                return
            if not data.get("text") and not data.get("over"):
                return  # emptied by an export that redacted a credential: the first part has all
        first = self._finish(data)
        self.end()
        head = self._head(event, session)
        match event.kind, data:
            case "message.added", {"redacted": True}:
                self._screen.labeled(head, ("(redacted message)", "dim italic"))
            case "message.added", {"message": dict() as message}:
                if first:
                    self._screen.line(*head, (f"end of the message that began at {first}", "dim"))
                else:
                    self.message(message, head, self.mark(event.seq))
            case "summary.added", {"message": dict() as message}:
                covers = f"summary of everything up to {data.get('upto')}: "
                self.message(message, [*head, (covers, "italic")], self.mark(event.seq))
            case _:
                self._screen.labeled(head, *_sentence(event.kind, data, full=self._full))

    def output(
        self, event: "hansard.Event", session: str | None = None, *, named: bool = False
    ) -> None:
        """Print an event, or with --json output it. `named`: print its session, too."""
        if self._screen.json:
            self._screen.record(event_json(event, session=session))
        else:
            self.event(event, session=(session or "") if named else "")

    def learn(self, event: "hansard.Event") -> None:
        """Learn the names of the tools that an event calls, without printing it."""
        message = event.data.get("message")
        for part in parse(message).parts if isinstance(message, dict) else ():
            if part.kind == "call":
                self._called[part.call_id] = part.name

    def _head(self, event: "hansard.Event", session: str) -> list[Piece]:
        stamp = _moment(event.time)
        head: list[Piece] = [(f"{event.seq:>4}", "bold"), (f"  {stamp}  ", "dim")]
        return [*head, (f"{cell(session)}  ", "blue")] if session else head

    def _part(self, event: "hansard.Event", data: dict[str, Any], session: str) -> bool:
        """Print a stream part; return False if it is not a plain one."""
        text, stream = data.get("text"), data.get("stream")
        if not isinstance(text, str) or not isinstance(stream, str) or data.get("over"):
            return False
        first, before = event.seq, ""
        head = self._head(event, session)
        if self._stream is not None and self._stream[0] == stream:
            _, first, before = self._stream
        else:
            self.end()
            message = data.get("message")
            role = message.get("role") if isinstance(message, dict) else None
            speaker = f"{cell(str(role or 'message'))}, streamed"
            said = (speaker, style_of(str(role)))
            self._screen.line(*head, said, _marked(self.mark(event.seq)))
            self._screen.write(" " * _INDENT)
        self._stream = (stream, first, before + text)
        self._screen.write(text.replace("\n", "\n" + " " * _INDENT))
        if self.unfinished.get(stream) == event.seq:
            self.end()
            self._screen.line(*head, (f"the message that began at {first} is unfinished", "red"))
        return True

    def _finish(self, data: dict[str, Any]) -> int:
        """Print the rest of a message whose parts were printed; return its first seq, or 0 if it differs."""
        stream, first, text = self._stream or ("", 0, "")
        message = data.get("message")
        if not first or data.get("stream") != stream or not isinstance(message, dict):
            return 0
        content = message.get("content")
        if not isinstance(content, str) or not content.startswith(text):
            return 0
        if any(part.kind != "text" for part in parse(message).shown(full=self._full)):
            return 0  # such as tool calls
        self._screen.write(content[len(text) :].replace("\n", "\n" + " " * _INDENT))
        return first

    def end(self) -> None:
        """End the line of a streamed message."""
        if self._stream is not None:
            self._screen.write("\n")
            self._stream = None

    def message(
        self, message: Mapping[str, Any], head: Sequence[Piece] = (), mark: str = ""
    ) -> None:
        """Print a message; of a view, it has no head with seq and time."""
        parsed = parse(message) if self._full else readable(message)
        line: list[Piece] = [(cell(parsed.speaker), style_of(parsed.role))]
        if parsed.partial:
            line.append((" (unfinished)", "red"))
        line.append(_marked(mark))
        parts = parsed.shown(full=self._full)
        if len(parts) == 1 and parts[0].kind == "result" and "\n" not in parts[0].text:
            # The most frequent message fits in one line.
            line.append((f" {self._answering(parts[0])}", "yellow"))
            self._screen.labeled(head, *line, *self._cut(self._text(parts[0])))
            return
        self._screen.labeled(head, *line)
        for part in parts:
            self._show_part(part)

    def _show_part(self, part: ContentPart) -> None:
        texts = self._cut(self._text(part))
        pieces: list[Piece] = [*texts]
        indent = _INDENT
        match part.kind:
            case "text":
                pass
            case "call":
                self._called[part.call_id] = part.name
                pieces = [(f"→ {cell(part.name)}", "yellow"), "(", *texts, ")"]
            case "result" if "\n" in part.text:
                self._screen.line((self._answering(part).rstrip(), "yellow"), indent=_INDENT)
                indent = 2 * _INDENT
            case "result":
                pieces = [(self._answering(part), "yellow"), *texts]
            case "thinking":
                pieces = [(text, "dim italic") for text in ("(thinks) ", *texts)]
            case _:
                pieces = [(text, "dim") for text in texts]
        self._screen.line(*pieces, indent=indent)

    def _text(self, part: ContentPart) -> str:
        return part.text if self._full else without_binary(part).text

    def _answering(self, part: ContentPart) -> str:
        name = self._called.pop(part.call_id, "") or part.name or part.call_id
        failed = "(failed) " if part.failed else ""
        return f"← {cell(name)} {failed}" if name else f"← {failed}"

    def _cut(self, text: str) -> list[str]:
        """Return a text; if it is truncated, followed by a note."""
        if self._full or not self._screen.terminal or len(text) <= _LONG:
            return [text]
        more = many(len(text) - _LONG, "character")
        return [text[:_LONG], f" … ({more} more; --full shows all)"]


def _marked(mark: str) -> Piece:
    return (f" ({mark})" if mark else "", "dim italic")


def style_of(role: str) -> str:
    """Return the style of a role, in any spelling."""
    return _STYLES.get(ROLES.get(role, role), "bold")


def short(value: object, length: int | None = 60) -> str:
    """Return a value in one line, of bounded length."""
    text = cell(value if isinstance(value, str) else compact(value))
    return text if length is None or len(text) <= length else text[: length - 1] + "…"


def brief(message: Mapping[str, Any], length: int | None = 100) -> str:
    """Return a message in one line, with `↵` for a line break, of bounded length."""
    parsed = parse(message)
    texts = [
        f"→ {part.name}({part.text})" if part.kind == "call" else part.text
        for part in map(without_binary, parsed.shown(full=length is None))
    ]
    return f"{cell(parsed.speaker)}: {short(' '.join(texts), length)}"


def line_of(event: "hansard.Event", length: int | None) -> str:
    """Return an event in one line, of bounded length."""
    message = event.data.get("message")
    if event.kind in {"message.added", "summary.added"} and isinstance(message, dict) and message:
        return brief(message, length)
    if event.data.get("redacted"):
        return "(redacted message)"
    said = _sentence(event.kind, event.data, full=length is None)
    return cell("".join(piece if isinstance(piece, str) else piece[0] for piece in said))


def show_state(
    screen: Screen, session_id: str, state: "hansard.State", *, more: Sequence[tuple[str, str]] = ()
) -> None:
    """Print a state, one line per fact. `more`: further facts, by name."""
    title = f" “{cell(state.title)}”" if state.title else ""
    screen.line((cell(session_id), "bold"), title)
    lines = [
        ("events", f"{state.seq:,}"),
        ("messages", f"{state.message_count:,} added"),
        ("created", _moment(state.created)),
        ("updated", _moment(state.updated)),
    ]
    if state.parent is not None:
        lines.append(("forked from", point(state.parent, state.forked_at, state.forked_label)))
    lines += [
        (f"metadata {key}", short(value)) for key, value in state.metadata.items() if key != "title"
    ]
    lines += [(f"snapshot {label}", str(seq)) for label, seq in state.snapshots.items()]
    for model, usage in state.usage.items():
        fields = msgspec.structs.asdict(usage)
        lines.append((f"usage {model}", f"{many(usage.calls, 'call')}, {tokens(fields)}"))
    if state.streams:
        lines.append(("unfinished", many(len(state.streams), "message")))
    marks = [name for name in ("held", "archived", "closed") if getattr(state, name)]
    if marks:
        lines.append(("is", ", ".join(marks)))
    lines += more
    width = max(len(cell(name)) for name, _ in lines)
    for name, fact in lines:
        screen.labeled([(f"  {cell(name):<{width}}  ", "dim")], cell(fact))


def _moment(when: datetime | None) -> str:
    """Return a time in the local zone."""
    return "never" if when is None else when.astimezone().isoformat(" ", "seconds")


def event_json(event: "hansard.Event", *, session: str | None = None) -> dict[str, object]:
    """Return an event for JSON output, with its stored data."""
    return {
        **({} if session is None else {"session": session}),
        "seq": event.seq,
        "time": event.stamp,
        "kind": event.kind,
        "data": msgspec.Raw(event.raw),
        **({} if event.key is None else {"key": event.key}),
    }


def _sentence(kind: str, data: dict[str, Any], *, full: bool) -> list[Piece]:
    """Return what an event other than a message did."""
    said = sentence(kind, data)
    if said:
        return [("· ", "dim"), cell(said)]
    # Also a shape that the sentence does not fit.
    text = compact(data)
    return [("· ", "dim"), (kind, "magenta"), f" {text if full else short(text, _SHORT)}"]
