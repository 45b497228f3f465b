"""Write a transcript as one page that needs nothing else.

No script, no picture, no font, no link to anywhere: the page is to be opened by somebody who trusts neither
the people nor the models who wrote in it. Every text is escaped, and a policy in the page forbids the browser
all that the page does not need, should an escape ever be forgotten.
"""

import html
import re
from collections.abc import Iterator
from typing import Final

from hansard.message.parse import MessagePart, parse, to_json
from hansard.transfer.transcript import Entry, Transcript

#: Styles from the page itself, and nothing from anywhere.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_CSS: Final = """
:root{color-scheme:light dark;--back:#fff;--text:#1c1c1e;--soft:#6b6b70;--line:#d8d8dc;--card:#f6f6f8;
--user:#2563a8;--assistant:#17754a;--tool:#8a5a00;--system:#7a3c8f}
@media(prefers-color-scheme:dark){:root{--back:#17171a;--text:#e8e8ea;--soft:#9b9ba1;--line:#38383d;
--card:#212125;
--user:#7ab3ee;--assistant:#6fce9f;--tool:#e3b25c;--system:#c898da}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:52rem;padding:1.5rem 1rem 4rem;background:var(--back);color:var(--text);
font:16px/1.55 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .5rem;unicode-bidi:isolate}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0 0 1rem;color:var(--soft);
font-size:.875rem}
dt,dd{margin:0}
article{border-left:4px solid var(--line);background:var(--card);border-radius:0 .4rem .4rem 0;
margin:0 0 .75rem;padding:.6rem .9rem}
article.user{border-color:var(--user)}article.assistant{border-color:var(--assistant)}
article.tool{border-color:var(--tool)}article.system{border-color:var(--system)}
article header{display:flex;flex-wrap:wrap;gap:.2rem .8rem;align-items:baseline;font-size:.8125rem;
color:var(--soft)}
article header b{font-size:.9375rem;color:var(--text)}
a{color:inherit;text-decoration:none}a:hover,a:focus{text-decoration:underline}
:target{outline:2px solid var(--user)}
.text{white-space:pre-wrap;margin:.3rem 0;unicode-bidi:isolate}
.thinking{color:var(--soft);font-style:italic}
pre{white-space:pre-wrap;margin:.4rem 0 0;padding:.6rem;background:var(--back);border:1px solid var(--line);
border-radius:.3rem;font:.8125rem/1.45 ui-monospace,monospace;unicode-bidi:isolate}
details{margin:.4rem 0}summary{cursor:pointer;font-size:.875rem}
.note summary{font-size:inherit}.soft{color:var(--soft)}
summary code,dd code{font:.8125rem ui-monospace,monospace}
.note{margin:0 0 .75rem;padding:0 .9rem;font-size:.8125rem;color:var(--soft)}
@media print{details>*{display:block}article{break-inside:avoid}}
"""

_CLASSES: Final = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}

#: So many characters of what a tool was given, or returned, are shown before it is unfolded.
_PREVIEW: Final = 80

#: What a browser would obey, or what turns round the text behind it.
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)


def render(transcript: Transcript) -> Iterator[bytes]:
    """Yield a transcript as a page, piece by piece."""
    yield _head(transcript).encode(errors="replace")
    for entry in transcript.entries():
        yield _entry(entry).encode(errors="replace")
    yield b"</main>\n</body>\n</html>\n"


def _head(transcript: Transcript) -> str:
    title = _escaped(transcript.title)
    facts = transcript.facts(lambda name: f"<code>{_escaped(name)}</code>", _time)
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>\n" for name, value in facts)
    known = _folded("metadata", to_json(transcript.metadata)) if transcript.metadata else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{title}</h1>\n<dl>\n{listed}</dl>\n{known}</header>\n<main>\n"
    )


def _entry(entry: Entry) -> str:
    place = f'<a href="#e{entry.seq}">{entry.seq}</a>'
    if entry.message is None:
        note = f"{place} · {_time(entry.time)} · {_escaped(entry.note)}"
        details = f"\n<pre>{_escaped(entry.details)}</pre>" if entry.details else ""
        if details:
            note = f"<details><summary>{note}</summary>{details}</details>"
        return f'<div class="note" id="e{entry.seq}">{note}</div>\n'
    parsed = parse(entry.message)
    note = f"<i>{_escaped(entry.note)}</i>" if entry.note else ""
    blocks = "".join(map(_block, parsed.shown(full=True)))
    return (
        f'<article class="{_CLASSES.get(parsed.role, "other")}" id="e{entry.seq}">\n'
        f"<header><b>{_escaped(parsed.speaker)}</b> {place} {_time(entry.time)} {note}</header>\n"
        f"{blocks}</article>\n"
    )


def _block(block: MessagePart) -> str:
    text = block.pretty
    if block.kind == "text":
        return f'<div class="text" dir="auto">{_escaped(text)}</div>\n'
    if block.kind == "thinking":
        inner = f'<div class="text thinking" dir="auto">{_escaped(text)}</div>'
        return f"<details><summary>thinking</summary>{inner}</details>\n"
    named = f" <code>{_escaped(block.name)}</code>" if block.name else ""
    called = f" <code>{_escaped(block.call_id)}</code>" if block.call_id else ""
    shown = " ".join(text[: 2 * _PREVIEW].split())[:_PREVIEW]
    preview = f' <span class="soft">{_escaped(shown)}</span>' if shown else ""
    return _folded(f"{block.kind}{named}{called}{preview}", text)


def _folded(summary: str, text: str) -> str:
    """Return a text that is shown when it is asked for. The summary is escaped already."""
    return f"<details><summary>{summary}</summary><pre>{_escaped(text)}</pre></details>\n"


def _time(stamp: str) -> str:
    escaped = _escaped(stamp)
    short = _escaped(stamp[:19].replace("T", " "))
    return f'<time datetime="{escaped}">{short}</time>'


def _escaped(text: str) -> str:
    """Return a text that means only itself, inside of an element or of an attribute."""
    return html.escape(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text), quote=True)
