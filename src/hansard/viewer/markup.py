"""Render what people, models and tools wrote as HTML that is safe to show.

The text may be hostile. Markdown is rendered without HTML and pictures, and only with links to the web or to
mail addresses. Everything else is escaped, and control characters are shown as escapes.
"""

import base64
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from markupsafe import Markup

import hansard
from hansard.event.kinds import SUMMARY_ADDED
from hansard.message.origin import readable
from hansard.message.parse import ROLES, ContentPart, ParsedMessage
from hansard.transfer.markdown import renderer
from hansard.transfer.transcript import usage_of, visible

#: Maximum characters of one text on a page. The event's JSON has all of it.
_LONGEST: Final = 20_000
#: Longer code is shown without colors.
_COLORED: Final = 10_000
#: The languages that are colored: a text may not choose among all of Pygments' parsers.
_LANGUAGES: Final = frozenset(
    {
        "bash", "c", "c++", "cpp", "css", "diff", "go", "html", "ini", "java", "javascript", "js", "json",
        "kotlin", "php", "py", "python", "ruby", "rust", "sh", "shell", "sql", "swift", "toml", "ts",
        "typescript", "xml", "yaml", "yml",
    }
)  # fmt: skip

#: Characters of a call's arguments, or of a result, in its folded line.
_PREVIEW: Final = 110

#: Arguments that tell most about a call, in order of preference.
_TELLING: Final = (
    "command", "cmd", "file_path", "pattern", "query", "url", "sql", "path", "filename", "file", "code",
    "prompt", "description", "text", "name", "id",
)  # fmt: skip
_FILES: Final = ("file_path", "path", "filename", "file", "notebook_path")

#: The pictures that are shown, by their first bytes. SVG is not one of them: it can hold scripts.
_PICTURES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}


class Part(NamedTuple):
    """A part of a message on the page.

    Attributes:
        kind: text, thinking, call, result or data.
        shown: the part as HTML.
        name: the tool.
        preview: the most telling argument of a call, or the beginning of another part.
        cut: number of characters that are not shown.
        result: the result of a call, if it is on the same page.
        result_seq: the seq of its message.
        failed: its framework says that the call failed.
    """

    kind: str
    shown: Markup
    name: str = ""
    preview: str = ""
    cut: int = 0
    result: "Part | None" = None
    result_seq: int = 0
    failed: bool = False


class UsageOfTurn(NamedTuple):
    """The recorded usage after a message."""

    seq: int
    model: str
    input_tokens: int
    output_tokens: int
    cost: str


class Note(NamedTuple):
    """A note about a message: an event `x.note`, with a `text`, and maybe the `seq` of its message."""

    seq: int
    time: str
    shown: Markup


class PageItem(NamedTuple):
    """An entry on the page.

    Attributes:
        role: the class of the speaker; empty for an event that is not a message.
        prompt: a person wrote it.
        pictures: number of pictures.
        usage: the usage that was recorded after it.
        notes: the notes about it.
    """

    seq: int
    time: str
    kind: str
    note: str
    role: str = ""
    speaker: str = ""
    details: str = ""
    parts: Sequence[Part] = ()
    prompt: bool = False
    unfinished: bool = False
    pictures: int = 0
    usage: Sequence[UsageOfTurn] = ()
    notes: Sequence[Note] = ()

    @property
    def calls(self) -> int:
        """Number of tool calls."""
        return sum(part.kind == "call" for part in self.parts)

    @property
    def thoughts(self) -> int:
        """Number of reasoning parts."""
        return sum(part.kind == "thinking" for part in self.parts)

    @property
    def says(self) -> bool:
        """Whether the message has a text."""
        return any(part.kind == "text" for part in self.parts)


def items(entries: "Sequence[hansard.TranscriptEntry]", *, raw: bool = False) -> list[PageItem]:
    """Return entries for the page: results at their calls, and usage at its message."""
    parsed = {entry.seq: readable(entry.message) for entry in entries if entry.message is not None}
    results = _results(entries, parsed)
    placed = {id(part) for _, part in results.values()}
    found: list[PageItem] = []
    for entry in entries:
        usage = _usage(entry)
        if entry.message is not None:
            message = parsed[entry.seq]
            every = message.shown(full=not message.parts)
            parts = [part for part in every if id(part) not in placed]
            if parts or not message.parts:  # otherwise each part is shown at its call
                shown = [
                    _part(part, results, raw=raw)
                    for part in parts
                    if part.kind != "data" or not any(pictures(part.value))
                ]
                found.append(_message(entry, message, shown))
        elif usage and found and found[-1].role:
            found[-1] = found[-1]._replace(usage=[*found[-1].usage, usage])
        elif entry.kind == "x.note":
            _add_note(found, entry)
        else:
            found.append(_event(entry))
    return found


def _add_note(found: list[PageItem], entry: "hansard.TranscriptEntry") -> None:
    """Add a note to the message that it names, or an item that is separate."""
    data = arguments(ContentPart("data", entry.details))
    text, seq = data.get("text"), data.get("seq")
    if not isinstance(text, str):
        found.append(_event(entry))
        return
    note = Note(entry.seq, entry.stamp, markdown(text[:_LONGEST]))
    seqs = ((item.seq, *(part.result_seq for part in item.parts)) for item in found)
    place = next((place for place, of in enumerate(seqs) if seq in of), len(found))
    if place == len(found):
        found.append(_event(entry))
    found[place] = found[place]._replace(notes=[*found[place].notes, note])


_Results = dict[str, tuple["hansard.TranscriptEntry", ContentPart]]


def _results(
    entries: "Sequence[hansard.TranscriptEntry]", parsed: Mapping[int, ParsedMessage]
) -> _Results:
    """Return the results whose calls came before them, by the ids of the calls."""
    results: _Results = {}
    calls: set[str] = set()
    for entry in entries:
        for part in parsed[entry.seq].parts if entry.seq in parsed else ():
            if part.kind == "call" and part.call_id:
                calls.add(part.call_id)
            elif part.kind == "result" and part.call_id in calls:
                results.setdefault(part.call_id, (entry, part))
    return results


def role_of(message: ParsedMessage, parts: "Sequence[Part | ContentPart]") -> str:
    """Return the role of a message with these parts. Results without a text are a tool's."""
    kinds = {part.kind for part in parts}
    results = "result" in kinds and "text" not in kinds and message.role == "user"
    return "tool" if results else ROLES.get(message.role, "other")


def _message(
    entry: "hansard.TranscriptEntry", message: ParsedMessage, parts: Sequence[Part]
) -> PageItem:
    role = role_of(message, parts)
    said = any(part.kind == "text" for part in parts) and entry.kind != SUMMARY_ADDED
    return _event(entry)._replace(
        role=role,
        speaker=role if role == "tool" and message.role == "user" else message.speaker,
        note="unfinished" if message.partial else entry.note,
        parts=parts,
        prompt=role == "user" and said,
        unfinished=message.partial,
        pictures=sum(1 for _ in pictures(entry.message)),
    )


def _event(entry: "hansard.TranscriptEntry") -> PageItem:
    return PageItem(entry.seq, entry.stamp, entry.kind, entry.note, details=entry.details)


def _usage(entry: "hansard.TranscriptEntry") -> UsageOfTurn | None:
    used = usage_of(entry)
    if used is None:
        return None
    cost = format(used.cost, "f") if used.cost else "0"
    return UsageOfTurn(entry.seq, used.model, used.input_tokens, used.output_tokens, cost)


def _part(part: ContentPart, results: _Results, *, raw: bool) -> Part:
    """Return a part, a call with its result."""
    text = part.pretty
    cut = max(len(text) - _LONGEST, 0)
    text = text[:_LONGEST]
    prose = part.kind in {"text", "thinking"}
    if prose and not raw:
        shown = markdown(text)
    elif prose:
        shown = Markup('<div class="raw" dir="auto">{}</div>').format(visible(text))
    else:
        language = "json" if text[:1] in {"{", "["} else ""
        shown = Markup("<pre><code>{}</code></pre>").format(_colored(text, language))
    made = Part(part.kind, shown, part.name, _preview(part, text), cut, failed=part.failed)
    if part.kind != "call" or part.call_id not in results:
        return made
    entry, result = results[part.call_id]
    answer = _part(result, {}, raw=raw)
    return made._replace(result=answer, result_seq=entry.seq, failed=result.failed)


def _preview(part: ContentPart, text: str) -> str:
    """Return a preview of a part, in one line."""
    if part.kind == "call":
        found = arguments(part)
        telling = next((found[key] for key in _TELLING if isinstance(found.get(key), str)), None)
        text = telling or text
    text = " ".join(text[: 4 * _PREVIEW].split())
    return text if len(text) <= _PREVIEW else f"{text[: _PREVIEW - 1]}…"


def arguments(part: ContentPart) -> dict[str, Any]:
    """Return the arguments of a call, decoded; empty if they are not an object."""
    value = part.value
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def files(part: ContentPart) -> Iterator[str]:
    """Yield the paths among the arguments of a call."""
    found = arguments(part)
    yield from (found[key] for key in _FILES if isinstance(found.get(key), str) and found[key])


# -- Markdown -----------------------------------------------------------------------------------


@cache
def _markdown() -> Callable[[str], str]:
    return renderer(lambda code, language, _: str(_colored(code, language)))


def markdown(text: str) -> Markup:
    """Return Markdown as HTML."""
    return Markup('<div class="prose" dir="auto">{}</div>').format(
        Markup(_markdown()(text))  # noqa: S704 - the renderer escapes
    )


def _colored(code: str, language: str) -> Markup:
    """Return code as HTML, in colors if its language is known."""
    code = visible(code)
    name = language.strip().lower()
    if name not in _LANGUAGES or len(code) > _COLORED:
        return Markup(html.escape(code))  # noqa: S704 - escaped
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    made = highlight(code, get_lexer_by_name(name), HtmlFormatter(nowrap=True))
    return Markup(made)  # noqa: S704 - it escapes


# -- pictures -----------------------------------------------------------------------------------


def pictures(value: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the type and the bytes of each picture that a message contains."""
    if isinstance(value, str):
        if value.startswith("data:image/") and ";base64," in value[:60]:
            yield from _picture(value.partition(",")[2])
    elif isinstance(value, Mapping):
        media = value.get("media_type") or value.get("mimeType") or value.get("mime_type")
        if isinstance(media, str) and media.startswith("image/"):
            data = value.get("data")
            if isinstance(data, str) and not data.startswith("data:"):
                yield from _picture(data)
                return
        for inner in value.values():
            yield from pictures(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pictures(inner)


def _picture(text: str) -> list[tuple[str, bytes]]:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return []
    return [(media, data) for magic, media in _PICTURES.items() if data.startswith(magic)]
