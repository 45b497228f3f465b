"""The searchable text of messages."""

import base64
import json
import random

import pytest

from hansard.message import search_text as text
from tests.unit.message.test_parse import SHAPES

#: The text of shapes of `test_parse`.
TEXTS = {
    "plain text": "hi",
    "a name": "Ann\nhi",
    "nothing": "",
    "chat call": "Look:\nf\na\n1",
    "chat call, broken": "{bro",
    "item result": "ok",
    "item thoughts, encrypted": "",
    "blocks": "hm\nxyz\nso\ng\nx\n1",
    "block result of blocks": "a",
    "google call": "f\na\n1",
    "pydantic response": "hm\nso\nf\na",
}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        *((SHAPES[name][0], expected) for name, expected in TEXTS.items()),
        (None, ""),
        # Arguments are JSON inside a string.
        ({"arguments": '{"city":"K\\u00f6ln\\nMitte","days":3}'}, "city\nKöln\nMitte\ndays\n3"),
        ({"content": '{"rain": [true, 0.5]}'}, "rain\n0.5"),
        ({"content": "[not json"}, "[not json"),
        # An adapter's `origin`, and an application's member of that name.
        ({"content": "hello", "origin": {"format": "f", "item": {"name": "Ann"}}}, "hello"),
        ({"content": "hello", "origin": {"site": "Ulm"}}, "hello\nUlm"),
    ],
)
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
