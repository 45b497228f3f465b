"""Hostile text in output: on a terminal, in HTML, in Markdown, in an error, in a log."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hansard
from hansard.event import secrets
from hansard.log import disk
from hansard.transfer import transcript
from tests.hostile.forge_files import PATIENCE, confined, nested


def markdown_of(text: str) -> str:
    """Return the text of a message in a transcript."""
    return transcript._quoted(text)


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>", "\\<img src=x onerror=alert(1)>",
        "\\\\<img src=x onerror=alert(1)>", "\\\\\\<script>alert(1)</script>", "a <!-- b\n--> c",
        "<https://example.com>", "`a` <b>",
    ],
)  # fmt: skip
def test_no_tag_is_left_in_markdown(text: str) -> None:
    """N-66: after any text, a tag in a message is shown as text by every Markdown program."""
    assert "<" not in markdown_of(text)


@pytest.mark.parametrize(
    "link",
    [
        "[a](javascript:alert(1))", "[a]( javascript:alert(1))", "[a](JaVaScRiPt:alert(1))",
        "[a](&#106;avascript:alert(1))", "[a](javascript&colon;alert(1))",
        "[a](data:text/html;base64,PHNjcmlwdD4=)", "[a](\njavascript:alert(1))",
        "[a](file:///etc/passwd)", "[a]: javascript:alert(1)\n\n[a]", "[a]:\n javascript:alert(1)",
        "[a](//example.com)",
    ],
)  # fmt: skip
def test_no_link_in_markdown_runs_anything(link: str) -> None:
    """N-66: a link that leads elsewhere than to the web is text: its two parts are kept apart."""
    shown = markdown_of(link)
    assert "](" not in shown
    assert "]:" not in shown


def test_links_to_the_web_stay_and_code_is_untouched() -> None:
    """N-66: ordinary links, and code in fences, are unchanged."""
    assert "[a](https://example.com/x)" in markdown_of("see [a](https://example.com/x)")
    assert "[a]: https://example.com" in markdown_of("[a]: https://example.com")
    assert "> if a < b: x[1](2)" in markdown_of("```python\nif a < b: x[1](2)\n```")
    assert "!\\[a]" in markdown_of("![a](https://example.com/x.png)")


def test_a_line_of_spaces_takes_no_square_of_time() -> None:
    """N-73: the pattern for fences gives nothing back: a long line is scanned once, without backtracking."""
    pattern = transcript._FENCE.pattern
    assert pattern.count("*+") == pattern.count("*") == 3
    assert "~~~" in markdown_of("~~~" + " " * 200_000 + "`")


def test_many_brackets_next_to_a_long_text_take_little_memory() -> None:
    """N-74, F-17: how deep JSON is is found out without memory for its texts, be they of 32 MiB."""
    program = """
import resource
from hansard.event import codec
raw = b'{"a":"' + b"x" * (16 << 20) + b"\\\\\\\\n" * (8 << 20) + b'","b":[' + b"[]," * 300 + b"[]]}"
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert not codec.is_too_deep(raw)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    assert int(confined(program)) < 64


def test_texts_in_texts_are_followed_to_a_limit(tmp_path: Path) -> None:
    """N-65, N-74: JSON in a text, however deep, is checked, or refused with an error of ours."""
    # At some depth it can be decoded, but not walked. That depth depends on the stack of the caller.
    program = """
from hansard.event import secrets
said = set()
for depth in range(940, 1000):
    try:
        secrets.refuse({"a": "[" * depth + '"some text"' + "]" * depth}, "metadata")
        said.add("fine")
    except Exception as error:
        said.add(type(error).__name__)
print(*sorted(said))
"""
    assert confined(program).split() == ["InvalidEvent", "fine"]
    with hansard.open(tmp_path / "store", durability="os") as store:
        session = store.session("s")
        session.add_message({"role": "user", "content": json.dumps([nested(900), nested(5000)])})
        assert [line["seq"] for line in session.share() if line.get("kind") == "message.added"]
    shown, count = secrets.redact({"a": f"[[[password=hunter2hunter2, {nested(5000)}"})
    assert count >= 1
    assert "hunter2" not in json.dumps(shown)


def test_deep_json_in_a_token_and_in_a_call_is_an_error_of_ours() -> None:
    """N-74: a page token of deep JSON is refused, and a tool call with deep arguments is left out."""
    token = base64.urlsafe_b64encode(f'{{"x":{nested(5000)}}}'.encode()).decode()
    with hansard.open("memory:") as store:
        with pytest.raises(ValueError, match="invalid cursor"):
            store.sessions(cursor=token)
        session = store.session("s")
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": nested(5000)}}
        message = {"role": "assistant", "content": "words", "partial": True, "tool_calls": [call]}
        session.add_message(message)
        assert session.messages(repair=True) == [{"role": "assistant", "content": "words"}]


def test_a_process_that_holds_a_lock_is_named_without_its_secrets() -> None:
    """N-65: the holder of a lock is named by its program, without options and control characters."""
    program = "print('ready', flush=True); input()"
    words = ["--password=hunter2", "\x1b]0;owned\x07"]
    # The second: a program that changes its own name.
    for first in (sys.executable, "evil\x1b[2J\x07\u202e"):
        with subprocess.Popen(
            [first, "-c", program, *words],
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                told = disk.command_of(process.pid)
            finally:
                process.kill()
                process.wait(PATIENCE)
        assert told.isprintable()
        assert "hunter2" not in told
        assert told.startswith(os.path.basename(first)[:4]) or told == sys.executable
