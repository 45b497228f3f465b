"""The searchable text of messages."""

import base64
import json
import random

import pytest

from hansard.message import search_text as text


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": "hello"}, "hello"),
        ({"role": "user", "name": "Ann", "content": "hello"}, "Ann\nhello"),
        ({"role": "assistant", "content": None}, ""),
        (None, ""),
        (
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            "one\ntwo",
        ),
        # OpenAI chat: arguments are JSON inside a string.
        (
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function",
                 "function": {"name": "weather", "arguments": '{"city":"K\\u00f6ln\\nMitte","days":3}'}}]},
            "weather\ncity\nKöln\nMitte\ndays\n3",
        ),
        ({"role": "tool", "tool_call_id": "c1", "content": '{"rain": [true, 0.5]}'}, "rain\n0.5"),
        # OpenAI Responses.
        ({"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}, "weather"),
        ({"type": "function_call_output", "call_id": "c1", "output": "rain"}, "rain"),
        # Anthropic.
        (
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Ulm"}}]},
            "hm\nweather\ncity\nUlm",
        ),
        (
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "dry"}]}]},
            "dry",
        ),
        # Pydantic AI.
        (
            {"kind": "response", "model_name": "m", "parts": [
                {"part_kind": "text", "content": "sure"},
                {"part_kind": "tool-call", "tool_name": "weather", "args": {"city": "Ulm"}}]},
            "sure\nweather\ncity\nUlm",
        ),
        # An adapter's `origin`, and an application's member of that name.
        (
            {"role": "user", "content": "rain?", "origin": {
                "format": "f", "from": {"/text": "/content"}, "item": {"name": "Ann"}}},
            "rain?",
        ),
        ({"content": "hello", "origin": {"site": "Ulm"}}, "hello\nUlm"),
        ({"content": "[not json"}, "[not json"),
        ({"content": "{'nor': this}"}, "{'nor': this}"),
    ],
)  # fmt: skip
def test_text_of_every_shape(message: object, expected: str) -> None:
    """Strings, blocks, calls with their arguments and results are found; roles, types and ids are not."""
    assert text.of(message) == expected


def test_what_is_not_meant_to_be_read_is_left_out(rng: random.Random) -> None:
    """An image in base64 is not searchable; the text around it is."""
    image = base64.b64encode(rng.randbytes(5000)).decode()
    for content in (
        [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}],
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image}}],
        f"before ![picture](data:image/png;base64,{image}) after",
        {"shot": f'{{"png": "{image}"}}'},
    ):
        found = text.of({"content": content})
        assert image[100:140] not in found
        assert len(found) < 200
    assert "after" in text.of({"content": f"before {image} after"})
    wordy = " ".join(["word" * 60] * 100)
    assert text.of({"content": wordy}) == wordy


def test_json_in_json_ends_somewhere() -> None:
    """JSON in a string in JSON … is text at some depth, and never fails."""
    nested = "end"
    for _ in range(6):
        nested = json.dumps([nested])
    assert "end" in text.of({"content": nested})
    assert text.of({"content": "[" * 5000 + "]" * 5000}) == "[" * 5000 + "]" * 5000


def test_characters_of_scripts_without_spaces_are_words() -> None:
    """Chinese, Japanese, Korean, Thai: each character is a word; other texts stay as they are."""
    part = text.PART
    assert text.split("refund 退款 ok") == f"refund {part}退{part}款{part} ok"
    assert text.split("abc中") == f"abc{part}中{part}"
    assert text.split("héllo") == "héllo"
    assert text.split("a\x00b\x1fc\x02d\x03") == "a b c d "
    for run in ("ひらカタ", "환불", "คืน", "ပြန်", "ស្វែង"):
        assert text.split(run).replace(part, "") == run
        assert text.split(run).count(part) == len(run) + 1
