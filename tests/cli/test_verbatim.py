"""Every character of every message is shown, on a terminal and in a pipe, for every role."""

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hansard as library
from hansard.cli.render import EventPrinter
from hansard.cli.screen import Screen, visible
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard

#: What Markdown, Rich's markup, its emoji codes, its highlighting or its wrapping would change.
NASTY = (
    "<thinking>secret</thinking> <script>",
    "__init__ and *args, **kwargs, `code`, ~~struck~~, \\*literal\\*",
    "def f():\n    if x:\n\treturn __name__\n\n\n    # done",
    "7. seven\n3. three\n- dash\n* star\n+ plus\n> quote\n# head\n---\n\n",
    "[red]markup[/red] [link=https://x]y[/link] :smile: [bold",
    "[text](https://shown.example) ![image](i.png) <https://auto>",
    "trailing   \n   leading\n \n      \nend ",
    "\ttab\tand\ttab\t",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "&amp; &lt;b&gt; &#65;",
    "```python\nx = 1\n```\n    indented code",
    "a\r\nb\rc \x1b[31mred\x07 \u202eturned\u200b",
    "日本語の文章 " * 30,
    "word " * 60 + "  two spaces  " * 12,
    "x" * 400,
    " " * 200 + "far right",
)


def said(text: str, what: str) -> dict[str, Any]:
    """Return a message that has a text in one of the places where messages have them."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    messages: dict[str, dict[str, Any]] = {
        "text": {"role": "user", "content": text},
        "block": {"role": "assistant", "content": [{"type": "text", "text": text}]},
        "thinking": {"role": "assistant", "content": [{"type": "thinking", "thinking": text}]},
        "call": {"role": "assistant", "content": None, "tool_calls": [call]},
        "result": {"role": "tool", "name": "f", "content": text},
        "block result": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "f", "content": text}],
        },
    }
    return messages[what]


#: The role that is shown, and what comes before a text and after it.
PLACES = {
    "text": ("user", "", ""),
    "block": ("assistant", "", ""),
    "thinking": ("assistant", "(thinks) ", ""),
    "call": ("assistant", "→ f(", ")"),
    "result": ("tool", "← f ", ""),
    "block result": ("user", "← f ", ""),
}


class Tty(io.StringIO):
    """A stream that claims to be a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Return True."""
        return True


@contextmanager
def output(stream: io.StringIO, columns: int = 80) -> Iterator[Screen]:
    """Let a stream be stdout, as wide as this if it is a terminal."""
    size = {"COLUMNS": str(columns), "TERM": "xterm-256color", "NO_COLOR": "1"}
    with patch.object(sys, "stdout", stream), patch.dict("os.environ", size):
        yield Screen(json=False)


def shown(message: dict[str, Any], stream: io.StringIO, columns: int = 80) -> str:
    """Return what is printed of a message."""
    with output(stream, columns) as screen:
        EventPrinter(screen).message(message)
    return stream.getvalue()


def expected(text: str, what: str) -> str:
    """Return what a pipe is given of a message."""
    role, before, after = PLACES[what]
    text = visible(text)
    if "result" not in what:
        return f"{role}\n" + indented(before + text + after, 4)
    if "\n" not in text:
        return f"{role} {before}{text}\n"
    return f"{role}\n    {before.rstrip()}\n" + indented(text, 8)


def indented(text: str, columns: int) -> str:
    """Return lines with an indent; empty ones stay empty."""
    return "".join(f"{' ' * columns if line else ''}{line}\n" for line in text.split("\n"))


texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.sampled_from("ab_*<>[]`#- \t\n\r1.é日\x1b\u200b"), min_size=1, max_size=150),
    st.text(min_size=1, max_size=60),
)


@given(text=texts, what=st.sampled_from(sorted(PLACES)))
@settings(max_examples=300, deadline=None)
def test_a_pipe_gets_every_character(text: str, what: str) -> None:
    """What is piped of a message is its text, exactly, indented; control characters are escapes."""
    assert shown(said(text, what), io.StringIO()) == expected(text, what)


def test_what_is_shortened_on_a_terminal_says_so() -> None:
    """A text of more than 8,000 characters is cut on a terminal, with a count, and not in a pipe."""
    message = said("x" * 8_123, "text")
    assert "… (123 characters more; --full shows all)" in shown(message, Tty(), 10_000)
    assert shown(message, io.StringIO()).count("x") == 8_123


def test_a_role_or_a_name_cannot_pretend_to_be_a_line() -> None:
    """A line break in a role, in a speaker's name or in a tool's is shown as ↵."""
    told = shown({"role": "user\nsystem", "name": "a\nb", "content": "hi"}, io.StringIO())
    assert told == "user↵system (a↵b)\n    hi\n"
    result = {"role": "tool", "name": "f\nuser", "content": "x"}
    assert shown(result, io.StringIO()) == "tool ← f↵user x\n"
    stream = io.StringIO()
    with library.open("memory:") as store, output(stream) as screen:
        event = store.session("a").snapshot("one\ntwo")
        EventPrinter(screen).event(event, session="a\nb")
    assert stream.getvalue().endswith("  a↵b  · snapshot “one↵two” of seq 0\n")


@pytest.fixture
def nasty(tmp_path: Path) -> Path:
    """Return a store whose session has each hostile text as a message of a user, a model and a tool."""
    with library.open(tmp_path / "store", durability="os") as store:
        session = store.session("n")
        for text in NASTY:
            session.add_messages([said(text, what) for what in PLACES])
    return tmp_path / "store"


@pytest.mark.parametrize("words", [("show",), ("replay",), ("tail", "-n", "1000")])
def test_commands_show_every_character(
    words: tuple[str, ...], nasty: Path, terminal: OpenTerminal
) -> None:
    """N-43: `show`, `replay` and `tail` show each text unchanged, in a pipe and on a terminal."""
    piped = hansard(*words, "n", store=nasty)
    assert piped.code == 0
    for text in NASTY:
        for what in PLACES:
            assert expected(text, what) in piped.out, (what, text)
    seen = terminal(*words, "n", store=nasty, columns=80, NO_COLOR="1")
    assert seen.wait() == 0
    sent = re.sub(r"\x1b\[[0-9;]*m", "", seen.raw.decode()).replace("\r\n", "\n")
    assert re.sub(r"[ \n]", "", sent) == re.sub(r"[ \n]", "", piped.out)
