"""Transcripts of a session for people, in Markdown and HTML.

`Transcript` yields entries: messages, and one line for each other event. A renderer turns text, code and
folded details into Markdown or HTML; everything else is shared.

What people and models write is often Markdown. In Markdown it is quoted: every line begins with `> `, so it
cannot end the quotation or pass for a heading. Tags, pictures and links that do not lead to the web are shown
as text, so nothing is run or fetched. Code, and what tools get and return, is in a fence that is longer than
any inside it. The HTML page renders Markdown, and a switch shows its source. It contains no script, picture
or font, and links only to the web. Every text is escaped, and a policy in the page forbids the browser
everything else, in case an escape is forgotten.
"""

import html
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from importlib import resources
from typing import Any, Final, NamedTuple

from hansard.backend.contract import Chunk, LogReader, streamed
from hansard.clock import moment
from hansard.event import kinds, secrets
from hansard.event.event import Event
from hansard.message import origin
from hansard.message.parse import REST, ContentPart, role_of, to_json, without_binary
from hansard.message.sentences import BOOKKEEPING, many, not_shown, sentence, tokens
from hansard.state import fold, view
from hansard.state.lineage import redactions_of
from hansard.state.view import VIEWS, StreamAssembler, View, ViewRanges
from hansard.transfer.export_file import Origin, origins

#: Control characters, and marks that change the direction of text.
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)

#: Shown with what they belong to.
_QUIET: Final = frozenset({kinds.MESSAGE_PART, kinds.MESSAGE_REDACTED})
#: Events whose data have more than their sentence says.
_DETAILED: Final = frozenset({kinds.SESSION_REPAIRED, kinds.USAGE_RECORDED})


class TranscriptEntry(NamedTuple):
    """A message, or one line about another event.

    Attributes:
        seq: the seq of the event.
        stamp: its time, as RFC 3339 text in UTC.
        kind: its kind.
        message: the message; None for another event.
        note: what happened, or what is special about the message.
        details: details of the note, as JSON.
    """

    seq: int
    stamp: str
    kind: str
    message: dict[str, Any] | None
    note: str = ""
    details: str = ""

    @property
    def time(self) -> datetime | None:
        """When it happened."""
        return moment(self.stamp)


class TranscriptPage(NamedTuple):
    """Consecutive entries of a transcript.

    Attributes:
        entries: the entries, in the order of the view. A summary comes first in the model view.
        earlier: pass it as `before` to get the entries before these; None if there are none.
        later: pass it as `after` to get the entries after these; None if there are none.
    """

    entries: list[TranscriptEntry]
    earlier: int | None
    later: int | None


class Transcript:
    """A session for people to read. At any time, only a piece of it is in memory.

    Attributes:
        session_id: its id.
        view: the view whose messages are shown.
        redacted: whether credentials are replaced.
        metadata: its metadata.
        created, updated: the times of its first and last event.
        upto: the seq of its last event.
        lineage: its ancestors, the parent first.
    """

    def __init__(
        self, log: LogReader, session_id: str, upto: int, *, redact: bool, view: View, events: bool
    ) -> None:
        if view not in VIEWS:
            raise ValueError(f"view must be one of {', '.join(VIEWS)}, got {view!r}")
        self._log = log
        self._events = events
        self._redactions = redactions_of(log)
        self.redacted = redact
        self.view = view
        self.upto = upto
        self.session_id: str = self._clean(session_id)
        controls = [self._redactions.mask(event) for event in log.controls(upto)]
        self.metadata: dict[str, Any] = self._clean(fold.apply_all(fold.EMPTY, controls).metadata)
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
        """Return the facts at the top, by name. `code` and `time` render ids and times."""
        facts = [
            ("session", code(self.session_id)),
            ("from", f"{time(self.created)} to {time(self.updated)}"),
            ("events", str(self.upto)),
        ]
        facts += [("forked from", f"{code(one.session)} at {one.seq}") for one in self.lineage]
        if self.view == "model":
            facts.append(("view", "the model view"))
        if self.redacted:
            facts.append(("redacted", "credentials were replaced"))
        return facts

    def entries(self) -> Iterator[TranscriptEntry]:
        """Yield the entries in order."""
        ranges = self._ranges()
        unfinished = self._unfinished(ranges)
        for event in self._forwards(ranges, 0):
            yield from self._entry(event, unfinished)

    def page(
        self, count: int, *, before: int | None = None, after: int | None = None
    ) -> TranscriptPage:
        """Return the last entries before a seq, or the first ones after one; read little else.

        Without a seq, these are the last entries. Unfinished streams are not counted.
        """
        ranges = self._ranges()
        end = self.upto + 1 if before is None else before
        found: list[tuple[Event, list[TranscriptEntry]]] = []
        more = False
        for event in (
            self._backwards(ranges, end) if after is None else self._forwards(ranges, after)
        ):
            entries = [*self._entry(event, {})]
            if entries and not count:
                more = True
                break
            # The summary of a model view is not counted: a page cannot continue after its seq, which is that
            # of a later place.
            count -= bool(entries) and (self.view == "history" or event.kind != kinds.SUMMARY_ADDED)
            found.append((event, entries))
        earlier = later = None
        if after is None:
            found.reverse()
            earlier = found[0][0].seq if more else None
            later = end - 1 if self._any(self._forwards(ranges, end - 1)) else None
        else:
            later = found[-1][0].seq if more else None
            earlier = after + 1 if after and self._any(self._backwards(ranges, after + 1)) else None
        unfinished = self._unfinished(ranges, [event for event, _ in found])
        shown = [one for event, known in found for one in known or self._entry(event, unfinished)]
        return TranscriptPage(shown, earlier, later)

    def _any(self, events: Iterator[Event]) -> bool:
        return any(True for event in events for _ in self._entry(event, {}))

    def _ranges(self) -> ViewRanges:
        return view.ranges_of(self._log, view=self.view, upto=self.upto)

    def _forwards(self, ranges: ViewRanges, after: int) -> Iterator[Event]:
        """Yield the events of the view after a seq, masked."""
        for chunk in view.chunks(self._log, ranges, after):
            if not (after and isinstance(chunk, view.SummaryChunk)):
                yield from self._events_of(chunk)

    def _backwards(self, ranges: ViewRanges, before: int) -> Iterator[Event]:
        """Yield the events of the view before a seq, the last one first, masked."""
        for chunk in view.backwards(self._log, ranges, 0, upto=before - 1):
            yield from reversed([*self._events_of(chunk)])
        if ranges.summary is not None:
            yield self._redactions.mask(ranges.summary)

    def _events_of(self, chunk: Chunk) -> Iterator[Event]:
        shown = self.view == "history" or isinstance(chunk, view.SummaryChunk)
        for event in chunk.events():
            # The model view has one summary, at the beginning.
            if shown or event.kind != kinds.SUMMARY_ADDED:
                yield self._redactions.mask(event)

    def _unfinished(
        self, ranges: ViewRanges, events: list[Event] | None = None
    ) -> dict[int, dict[str, Any]]:
        """Return the streamed messages that were never finished, by the seqs of their last parts.

        Of the complete view, or of some consecutive events: then only those that have their last part there.
        """
        streams = StreamAssembler(self._redactions.streams)
        if events is None:
            for chunk in view.chunks(self._log, ranges):
                streams.forwards(chunk.streamed())
            return dict(streams.unfinished())
        parts = [part for part in map(streamed, events) if part is not None]
        streams.forwards(parts)
        begun = {part.stream for part in parts} - {part.stream for part in parts if part.over}
        if not begun:
            return {}
        last = parts[-1].seq
        for chunk in view.chunks(self._log, ranges, last):
            later = [part for part in chunk.streamed() if part.stream in begun]
            streams.forwards(later)
            begun.difference_update(part.stream for part in later)
            if not begun:
                return {}
        view.complete(streams, view.backwards(self._log, ranges, 0, upto=parts[0].seq - 1))
        return {seq: message for seq, message in streams.unfinished() if seq <= last}

    def _entry(
        self, event: Event, unfinished: dict[int, dict[str, Any]]
    ) -> Iterator[TranscriptEntry]:
        if event.seq in unfinished:
            note = "unfinished: the stream was interrupted"
            yield self._message(event, unfinished[event.seq], note)
        elif event.kind == kinds.MESSAGE_ADDED:
            message = event.message
            if isinstance(message, dict) and not event.data.get("redacted"):
                yield self._message(event, message, "")
            elif self._events:
                yield TranscriptEntry(
                    event.seq, event.stamp, event.kind, None, "a message was redacted"
                )
        elif event.kind == kinds.SUMMARY_ADDED:
            added = kinds.read(kinds.SUMMARY_ADDED, event.raw)
            if added is not None:
                yield self._message(
                    event, added.message, f"a summary of everything up to {added.upto}"
                )
        elif self._events and event.kind not in _QUIET:
            note, details = _describe(event)
            shown = self._clean(details)
            text = to_json(shown) if shown else ""
            kind = self._clean(event.kind)
            yield TranscriptEntry(event.seq, event.stamp, kind, None, self._clean(note), text)

    def _message(self, event: Event, message: dict[str, Any], note: str) -> TranscriptEntry:
        return TranscriptEntry(event.seq, event.stamp, event.kind, self._clean(message), note)

    def _clean(self, value: Any) -> Any:
        return secrets.redact(value)[0] if self.redacted else value


def _describe(event: Event) -> tuple[str, dict[str, Any]]:
    """Return what an event did, and its details if the sentence does not say all."""
    said = sentence(event.kind, event.data)
    detailed = not said or "…" in said or event.kind in _DETAILED
    return said or event.kind, event.data if detailed else {}


def usage_of(entry: TranscriptEntry) -> kinds.UsageRecorded | None:
    """Return the usage that an entry is about."""
    usage: kinds.UsageRecorded | None = None
    if entry.kind == kinds.USAGE_RECORDED:
        usage = kinds.read(entry.kind, entry.details.encode())
    return usage


class _SpokenMessage(NamedTuple):
    """A message as a renderer needs it."""

    role: str
    speaker: str
    parts: list[ContentPart]


def _said(message: dict[str, Any]) -> _SpokenMessage:
    parsed, role = origin.readable(message), role_of(message)
    # Some frameworks write the results of tools as a message of the user.
    speaker = role if role == "tool" and parsed.role == "user" else parsed.speaker
    return _SpokenMessage(role, speaker, [*map(without_binary, parsed.shown(full=True))])


def _label(part: ContentPart) -> str:
    """Return what a part is that is not text."""
    if part.name == REST:
        return "other members"
    return f"failed {part.kind}" if part.failed else part.kind


def _ids(part: ContentPart) -> list[str]:
    """Return the tool and the id of a call or result."""
    return [] if part.name == REST else [*filter(None, dict.fromkeys((part.name, part.call_id)))]


def _details(entry: TranscriptEntry) -> str:
    return "" if entry.kind == kinds.USAGE_RECORDED else entry.details


def _short(stamp: str) -> str:
    """Return a time in seconds, with its zone."""
    return stamp[:19].replace("T", " ") + (" UTC" if stamp.endswith("Z") else stamp[19:])


# -- Markdown -----------------------------------------------------------------------------------

_TICKS: Final = re.compile(r"`+")
#: Line ends in Markdown and text.
_BREAKS: Final = re.compile("\r\n|[\n\r\u2028\u2029]")
#: A code fence: three or more ticks or tildes. Possessive: a long line of spaces must not take long.
_FENCE: Final = re.compile(r" {0,3}(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<info>[\w+#.-]*+)[^`]*+$")
_PICTURE: Final = re.compile(r"!\[")
#: The end of a link's text, if the link leads neither to the web nor to a mail address.
_LINK: Final = re.compile(r"\](?=[(:])(?!.\s?(?:https?://|mailto:))")
#: Characters with a meaning anywhere in a line.
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def to_markdown(transcript: Transcript) -> Iterator[bytes]:
    """Yield a transcript as Markdown, piece by piece."""
    yield _markdown_head(transcript).encode(errors="replace")
    omitted = 0
    for entry in transcript.entries():
        if entry.kind.startswith(BOOKKEEPING):
            omitted += 1
        else:
            yield _markdown_entry(entry).encode(errors="replace")
    if omitted:
        yield f"*{not_shown(omitted)}*\n".encode()


def _markdown_head(transcript: Transcript) -> str:
    lines = [f"# {_inline(transcript.title)}", ""]
    lines += [f"- {name}: {value}" for name, value in transcript.facts(_code, _short)]
    if transcript.metadata:
        lines += ["", _fenced(to_json(transcript.metadata), "json")]
    return "\n".join([*lines, "", ""])


def _markdown_entry(entry: TranscriptEntry) -> str:
    if entry.message is None:
        shown = f"*{entry.seq} · {_short(entry.stamp)} · {_inline(entry.note)}*\n\n"
        details = _details(entry)
        return shown + (_fenced(details, "json") + "\n\n" if details else "")
    said = _said(entry.message)
    lines = [f"## {entry.seq} · {_inline(said.speaker)}", "", f"*{_short(entry.stamp)}*", ""]
    if entry.note:
        lines += [f"*({_inline(entry.note)})*", ""]
    for part in said.parts:
        lines += [_markdown_part(part), ""]
    return "\n".join([*lines, ""])


def _markdown_part(part: ContentPart) -> str:
    text = part.pretty
    if part.kind in {"text", "thinking"}:
        return ("**thinking**\n\n" if part.kind == "thinking" else "") + _quoted(text)
    label = " ".join([f"**{_label(part)}**", *map(_code, _ids(part))])
    return f"{label}\n\n{_fenced(text, '' if part.kind == 'result' else 'json')}" if text else label


def _quoted(text: str) -> str:
    """Return a text as a quotation that it cannot end."""
    lines = "\n".join(_tamed(_BREAKS.split(visible(text)))).split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _tamed(lines: list[str]) -> Iterator[str]:
    """Yield lines of Markdown with new fences around code, and without tags and pictures elsewhere."""
    code: list[str] = []
    fence = language = ""
    for line in lines:
        found = _FENCE.match(line)
        if not fence:
            if found is None:
                # A backslash before `<` does not escape it everywhere; one before that would cancel it.
                untagged = line.replace("<", "&lt;")
                yield _LINK.sub(r"]\\", _PICTURE.sub(r"!\\[", untagged))
            else:
                fence, language = found["fence"], found["info"]
        elif found and not found["info"] and found["fence"].startswith(fence):
            yield _fenced("\n".join(code), language)
            code, fence = [], ""
        else:
            code.append(line)
    if fence:  # not closed
        yield _fenced("\n".join(code), language)


def _fence_of(text: str) -> str:
    return "`" * (max(map(len, _TICKS.findall(text)), default=0) + 1)


def _fenced(text: str, language: str = "") -> str:
    """Return a text as code, in a fence that it cannot close."""
    text = "\n".join(_BREAKS.split(visible(text)))
    fence = _fence_of(text).ljust(3, "`")
    return f"{fence}{language}\n{text}\n{fence}"


def _code(text: str) -> str:
    """Return a short text as code within a line."""
    text = " ".join(_BREAKS.split(visible(text))).strip()
    fence = _fence_of(text)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def _inline(text: str) -> str:
    """Return a short text without markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(_BREAKS.split(visible(text))))


def visible(text: str) -> str:
    """Return a text with control characters escaped."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# -- HTML ---------------------------------------------------------------------------------------

#: Only styles from the page itself.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

#: The roles whose messages have a color.
_COLORED: Final = frozenset({"user", "assistant", "tool", "system"})

#: Characters of a folded text that its summary shows.
_PREVIEW: Final = 80

#: Characters of the longest text that is rendered: some take a time that grows with their square.
_LONGEST: Final = 20_000


def to_html(transcript: Transcript) -> Iterator[bytes]:
    """Yield a transcript as a page, piece by piece."""
    yield _html_head(transcript).encode(errors="replace")
    # The usage of each call since the last message of the user.
    turn: list[kinds.UsageRecorded] = []
    omitted = 0
    for entry in transcript.entries():
        if entry.kind.startswith(BOOKKEEPING):
            omitted += 1
            continue
        if entry.message is not None and role_of(entry.message) == "user":
            yield _html_turn(turn).encode()
            turn = []
        used = usage_of(entry)
        turn += [used] if used else []
        yield _html_entry(entry).encode(errors="replace")
    yield _html_turn(turn).encode()
    if omitted:
        yield f'<div class="note">{_escaped(not_shown(omitted))}</div>\n'.encode()
    yield b"</main>\n</body>\n</html>\n"


def _html_turn(turn: list[kinds.UsageRecorded]) -> str:
    """Return the usage of a turn of several calls."""
    if len(turn) < 2:  # noqa: PLR2004
        return ""
    total = {
        "input_tokens": sum(used.input_tokens for used in turn),
        "output_tokens": sum(used.output_tokens for used in turn),
        "cost": sum(used.cost or Decimal(0) for used in turn),
    }
    return f'<div class="note usage">turn: {many(len(turn), "call")}, {tokens(total)}</div>\n'


def _html_head(transcript: Transcript) -> str:
    title = _escaped(transcript.title)
    facts = transcript.facts(lambda name: f"<code>{_escaped(name)}</code>", _time)
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>\n" for name, value in facts)
    known = _folded("metadata", to_json(transcript.metadata)) if transcript.metadata else ""
    style = resources.files("hansard.transfer").joinpath("transcript.css").read_text()
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        '<input type="checkbox" id="source"><label for="source"> Markdown source</label>\n'
        f"<header>\n<h1>{title}</h1>\n<dl>\n{listed}</dl>\n{known}</header>\n<main>\n"
    )


def _html_entry(entry: TranscriptEntry) -> str:
    place = f'<a href="#e{entry.seq}">{entry.seq}</a>'
    if entry.message is None:
        note = f"{place} · {_time(entry.stamp)} · {_escaped(entry.note)}"
        shown = _details(entry)
        details = f"\n<pre>{_escaped(shown)}</pre>" if shown else ""
        if details:
            note = f"<details><summary>{note}</summary>{details}</details>"
        usage = " usage" if entry.kind == kinds.USAGE_RECORDED else ""
        return f'<div class="note{usage}" id="e{entry.seq}">{note}</div>\n'
    said = _said(entry.message)
    note = f"<i>{_escaped(entry.note)}</i>" if entry.note else ""
    return (
        f'<article class="{said.role if said.role in _COLORED else "other"}" id="e{entry.seq}">\n'
        f"<header><b>{_escaped(said.speaker)}</b> {place} {_time(entry.stamp)} {note}</header>\n"
        f"{''.join(map(_html_part, said.parts))}</article>\n"
    )


def _html_part(part: ContentPart) -> str:
    text = part.pretty
    if part.kind == "text":
        return _prose(text)
    if part.kind == "thinking":
        inner = f'<div class="thinking">{_prose(text)}</div>'
        return f"<details><summary>thinking</summary>{inner}</details>\n"
    ids = "".join(f" <code>{_escaped(word)}</code>" for word in _ids(part))
    start = " ".join(text[: 2 * _PREVIEW].split())
    shown = start if len(start) <= _PREVIEW else f"{start[:_PREVIEW]}…"
    preview = f' <span class="soft">{_escaped(shown)}</span>' if shown else ""
    return _folded(f"{_label(part)}{ids}{preview}", text)


def _prose(text: str) -> str:
    """Return Markdown rendered and, if that changes anything, as it was written; a long text only so."""
    from hansard.transfer.markdown import renderer

    plain = _escaped(text)
    rendered = renderer()(text) if len(text) <= _LONGEST else ""
    if rendered in {"", f"<p>{plain}</p>\n".replace("&#x27;", "'")}:
        return f'<div class="text" dir="auto">{plain}</div>\n'
    return (
        f'<div class="prose" dir="auto">{rendered}</div>\n'
        f'<div class="text source" dir="auto">{plain}</div>\n'
    )


def _folded(summary: str, text: str) -> str:
    """Return a folded text. The summary is escaped already."""
    return f"<details><summary>{summary}</summary><pre>{_escaped(text)}</pre></details>\n"


def _time(stamp: str) -> str:
    return f'<time datetime="{_escaped(stamp)}">{_escaped(_short(stamp))}</time>'


def _escaped(text: str) -> str:
    """Return a text escaped for an element or an attribute."""
    return html.escape(visible(text), quote=True)
