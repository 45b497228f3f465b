"""A transcript shows the messages of any framework, and nothing in it acts on its reader."""
# ruff: noqa: D102 - HTMLParser says what its methods are

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from markdown_it import MarkdownIt

import hansard
from hansard import Session, Store
from hansard.backend.contract import AppendRequest
from hansard.event.event import NewEvent
from hansard.event.kinds import USAGE_RECORDED
from hansard.message import pydantic_items
from hansard.transfer.transcript import POLICY

#: What would be run, fetched, or taken for the page itself.
HOSTILE = [
    "<script>alert(1)</script>", "</pre></details></main><h1>mine</h1>",
    '"><img src=http://example.com/x onerror=alert(1)>', "![beacon](http://example.com/x.png)",
    "```\nfence\n`````\n# out\n~~~\n<b>in</b>", "~~~~ html\n<i>\n~~~\n<script>\n",
    "> quoted\n\n# heading\n\n---\n\n<!-- comment",
    "a\u2028# line\u2029# paragraph\x85# next\x0c# feed\r# return\x0b# tab",
    "\x1b[31mred\x1b]0;title\x07\x9b2J\u202egnirts\u2066", "&lt;script&gt; &#60;b&#62;",
    "[link]: http://example.com\n[x][link] <http://example.com>",
    "[run](javascript:alert(1)) [file](file:///etc/passwd) [here](#source)",
]  # fmt: skip


class Page(HTMLParser):
    """Notes what a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in {"meta", "br", "hr", "input"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


OURS = set(
    """
    html head meta title style body header h1 dl dt dd details summary pre main article b i a time div span
    code input label a p h3 hr blockquote
    """.split()  # noqa: SIM905 - a table
)


@pytest.fixture
def store() -> Any:
    """Return an empty store."""
    with hansard.open("memory:") as opened:
        yield opened


def hostile(store: Store, text: str) -> Session:
    """Put a text wherever a transcript shows one."""
    session = store.session(f"id {text}"[:100].replace("\0", ""))
    session.set_metadata(title=text, other={text: [text]})
    session.add_message({"role": text, "content": text, text: text})
    session.add_message({"role": "assistant", "content": [{"type": "text", "text": text}]})
    session.add_message(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": text},
                {"type": "tool_use", "id": text, "name": text, "input": {text: text}},
                {"type": text, "source": {"data": text}},
            ],
        }
    )
    session.add_message({"role": "tool", "tool_call_id": text, "name": text, "content": text})
    session.append("x.event", {text: text})
    session.snapshot(text)
    session.record_usage(model=text)
    stream = session.stream(gather=0, role="assistant")
    stream.__enter__()
    stream.write(text)
    return session.fork(f"fork {text}"[:100])


@pytest.mark.parametrize("text", HOSTILE)
def test_a_page_has_only_its_own_elements(store: Store, text: str) -> None:
    """N-66: with any message, the page has only its own elements and loads nothing."""
    session = hostile(store, text)
    page = Page(b"".join(session.export("html", redacted=False)).decode())
    assert set(page.tags) <= OURS
    assert page.open == []
    assert "script" not in page.tags
    for tag, name, value in page.attributes:
        assert name not in {"src", "style", "onclick", "onerror"}
        assert name != "href" or (tag == "a" and value.startswith(("#e", "http://example.com")))
    assert ("meta", "content", POLICY) in page.attributes
    assert "default-src 'none'" in POLICY
    assert not any(ord(c) < 32 and c not in "\t\n\r" for c in page.text)
    assert not any(c in page.text for c in "\x9b\u202e\u2066")
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_breaks_out_of_markdown(store: Store, text: str) -> None:
    """N-66: in Markdown, a message creates no heading, tag or picture, and closes no fence."""
    session = hostile(store, text)
    written = b"".join(session.export("markdown", redacted=False)).decode()
    assert not any(c in written for c in "\x1b\x9b\u202e\u2028\x85\x0c\x0b\r")
    quoted = 0
    headings = 0
    for token in MarkdownIt("commonmark").parse(written):
        quoted += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        inline = [token, *(token.children or [])]
        assert not any(one.type in {"html_block", "html_inline", "image"} for one in inline)
        if token.type == "heading_open" and not quoted:
            headings += 1
            assert token.markup in {"#", "##"}
        if token.type == "hr":
            assert quoted
    messages = len(session.messages(view="history"))
    assert headings == 1 + messages


def test_a_transcript_tells_what_happened(store: Store) -> None:
    """N-53: a transcript has title, messages, snapshots, reverts, forks, redactions and usage."""
    session = store.create("s", metadata={"title": "Refund"})
    session.add_message({"role": "user", "content": "Where is it?"})
    gone = session.add_message({"role": "user", "content": "never mind"})
    session.redact(gone.seq)
    session.snapshot("here")
    session.revert(2)
    session.clear()
    session.summarize(upto=2, message={"role": "system", "content": "In short"})
    session.record_usage(model="m-1", input_tokens=12, cached_tokens=5)
    picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 32}
    session.add_message({"role": "user", "content": [{"type": "image", "source": picture}]})
    session.close()
    child = session.fork("c")
    stream = child.stream(gather=0)
    stream.__enter__()
    stream.write("I was")
    for format in ("markdown", "html"):
        text = b"".join(child.export(format)).decode()
        for said in (
            "Refund",
            "Where is it?",
            "a message was redacted",
            "snapshot",
            "reverted to seq 2",
            "cleared",
            "a summary of everything up to 2",
            "In short",
            "12 tokens in (5 cached), 0 out",
            "[image/png, 264 B]",
            "closed",
            "forked from s at",
            "I was",
            "unfinished",
        ):
            assert said in text, (format, said)
        assert "never mind" not in text
        assert "iVBORw0KGgo" not in text
        quiet = b"".join(child.export(format, events=False)).decode()
        assert "12 tokens in" not in quiet
        assert "Where is it?" in quiet


def test_html_renders_markdown_and_keeps_its_source(store: Store) -> None:
    """A page shows Markdown rendered, with its source under a switch; times have a zone, usage a cost."""
    session = store.session("s")
    session.add_message({"role": "user", "content": "it's plain"})
    session.add_message({"role": "assistant", "content": "**yes**\n\n| a |\n|-|\n| b |"})
    session.record_usage(model="m-1", input_tokens=12, output_tokens=3, cost="0.00120")
    session.add_message({"role": "user", "content": "*" * 30_000})
    text = b"".join(session.export("html")).decode()
    assert "<strong>yes</strong>" in text
    assert "<td>b</td>" in text
    assert text.count('class="text source"') == 1, "only where it differs"
    assert "**yes**" in text
    assert text.count("*" * 30_000) == 1
    assert "usage: m-1, 12 tokens in, 3 out, cost 0.0012" in text
    assert text.count(" UTC</time>") == 3 + 1 + 2


def test_html_adds_up_the_usage_of_a_turn(store: Store) -> None:
    """A turn of several calls has its sum before the next message of the user, and at the end."""
    session = store.session("s")
    for costs in (["0.1", "0.2", None], ["7"], [None, None]):
        session.add_message({"role": "user", "content": "?"})
        for cost in costs:
            session.add_message({"role": "assistant", "content": "so"})
            usage: Any = {"input_tokens": 1, "cached_tokens": int(cost == "0.1"), "cost": cost}
            session.record_usage(model="m", **usage)
    # Not a number that a program of this version would record.
    raw = b'{"model":"m","input_tokens":1,"output_tokens":2,"cost":"1e999999999"}'
    session._log.append(AppendRequest([NewEvent(USAGE_RECORDED, raw, control=False)]))
    text = b"".join(session.export("html")).decode()
    notes = re.findall('<div class="note usage">(.*)</div>', text)
    assert notes == [
        "turn: 3 calls, 3 tokens in, 0 out, cost 0.3",
        "turn: 2 calls, 2 tokens in, 0 out",
    ]
    assert text.count("m, 1 token in, 0 out") == 5
    assert text.count("m, 1 token in (1 cached), 0 out") == 1
    assert text.index(notes[0]) < text.index('id="e8"') < text.index(notes[1])


def test_a_message_of_a_framework_is_shown_as_its_item(store: Store) -> None:
    """N-53: its pictures and failed results are named; what only programs need is left out."""
    session = store.session("s")
    picture = {"kind": "binary", "media_type": "image/png", "data": "iVBORw0KGgo" * 32}
    asked = {"part_kind": "user-prompt", "content": ["Look:", picture], "run_id": "r-1"}
    tried = {"part_kind": "tool-return", "tool_name": "see", "tool_call_id": "c-1", "content": 4}
    for part in (asked, {**tried, "outcome": "retried"}):
        session.add_message(pydantic_items.message_of({"kind": "request", "parts": [part]}))
    session.add_message({"role": "user", "content": "mine", "origin": {"format": "f", "item": {}}})
    session.append("x.langgraph.writes", {"task": "t-1"})
    for format in ("markdown", "html"):
        text = b"".join(session.export(format)).decode()
        for said in (
            "Look:",
            "[image/png, 264 B]",
            "failed result",
            "see",
            "c-1",
            "mine",
            "origin",
        ):
            assert said in text, (format, said)
        assert "1 event of a framework" in text
        assert not any(hidden in text for hidden in ("iVBORw0KGgo", "pydantic", "outcome", "t-1"))
