"""Write a transcript as Markdown.

What people and models say is Markdown itself, as often as not, and is quoted: every line of it begins with
`> `, so nothing in it ends where it should not, or passes for a heading of the transcript; tags, pictures and
links that lead elsewhere than to the web are shown as text, so nothing is run or fetched. What tools are
given and return is code, in a fence that is longer than any inside, and so is code in a message.
"""

import re
from collections.abc import Iterator
from typing import Final

from hansard.message.parse import MessagePart, parse, to_json
from hansard.transfer.transcript import Entry, Transcript

_TICKS: Final = re.compile(r"`+")
#: Ends of lines, for all who read Markdown or text; and what a terminal would obey.
_BREAKS: Final = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f\x80-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
#: The beginning or the end of code: three ticks or more, or tildes; and what a picture begins with.
#: Possessive, or a long line of spaces would be tried in all ways.
_FENCE: Final = re.compile(r" {0,3}(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<info>[\w+#.-]*+)[^`]*+$")
_PICTURE: Final = re.compile(r"!\[")
#: The end of a link's text, if what follows leads elsewhere than to the web or to somebody's mail.
_LINK: Final = re.compile(r"\](?=[(:])(?!.\s?(?:https?://|mailto:))")
#: What means something at any place of a line.
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def render(transcript: Transcript) -> Iterator[bytes]:
    """Yield a transcript as Markdown, piece by piece."""
    yield _head(transcript).encode(errors="replace")
    for entry in transcript.entries():
        yield _entry(entry).encode(errors="replace")


def _head(transcript: Transcript) -> str:
    lines = [f"# {_inline(transcript.title)}", ""]
    lines += [f"- {name}: {value}" for name, value in transcript.facts(_code, str)]
    if transcript.metadata:
        lines += ["", _fenced(to_json(transcript.metadata), "json")]
    return "\n".join([*lines, "", ""])


def _entry(entry: Entry) -> str:
    if entry.message is None:
        shown = f"*{entry.seq} · {entry.time} · {_inline(entry.note)}*\n\n"
        return shown + (_fenced(entry.details, "json") + "\n\n" if entry.details else "")
    parsed = parse(entry.message)
    lines = [f"## {entry.seq} · {_inline(parsed.speaker)}", "", f"*{entry.time}*", ""]
    if entry.note:
        lines += [f"*({_inline(entry.note)})*", ""]
    for block in parsed.shown(full=True):
        lines += [_block(block), ""]
    return "\n".join([*lines, ""])


def _block(block: MessagePart) -> str:
    text = block.pretty
    call = f" {_code(block.call_id)}" if block.call_id else ""
    name = f" {_code(block.name)}" if block.name else ""
    if block.kind == "text":
        return _quoted(text)
    if block.kind == "thinking":
        return f"**thinking**\n\n{_quoted(text)}"
    if block.kind == "call":
        return f"**call**{name}{call}\n\n{_fenced(text, 'json')}"
    if block.kind == "result":
        return f"**result**{name}{call}\n\n{_fenced(text)}"
    return f"**data**{name}\n\n{_fenced(text, 'json')}"


def _quoted(text: str) -> str:
    """Return a text that cannot end the quotation it stands in."""
    lines = "\n".join(_tamed(_BREAKS.split(_visible(text)))).split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _tamed(lines: list[str]) -> Iterator[str]:
    """Yield Markdown in which code is fenced by us, and everything else has neither tags nor pictures."""
    code: list[str] = []
    fence = language = ""
    for line in lines:
        found = _FENCE.match(line)
        if not fence:
            if found is None:
                yield _harmless(line)
            else:
                fence, language = found["fence"], found["info"]
        elif found and not found["info"] and found["fence"].startswith(fence):
            yield _fenced("\n".join(code), language)
            code, fence = [], ""
        else:
            code.append(line)
    if fence:  # it was never closed
        yield _fenced("\n".join(code), language)


def _harmless(line: str) -> str:
    """Return a line of Markdown in which there is no tag, no picture, and no link that runs something."""
    # Not a backslash before it: not all who read Markdown know that one, and one that stands there already
    # would take its meaning away.
    line = line.replace("<", "&lt;")
    return _LINK.sub(r"]\\", _PICTURE.sub(r"!\\[", line))


def _fenced(text: str, language: str = "") -> str:
    """Return a text as code, in a fence that nothing in it can close."""
    text = "\n".join(_BREAKS.split(_visible(text)))
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _code(text: str) -> str:
    """Return a short text as code inside of a line."""
    text = " ".join(_BREAKS.split(_visible(text))).strip()
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def _inline(text: str) -> str:
    """Return a short text that means only itself."""
    return _SPECIAL.sub(r"\\\1", " ".join(_BREAKS.split(_visible(text))))


def _visible(text: str) -> str:
    """Return a text in which nothing is obeyed by a terminal, or turns round what follows it."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
