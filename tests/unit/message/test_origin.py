"""A framework's item is read back equal, is stored once, and is readable for other frameworks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.event.kinds import MOST
from hansard.message import origin
from tests.unit.message.frameworks import Google
from tests.unit.message.test_parse import SHAPES

Json = dict[str, Any]

LONG = "what was said, at some length"

# Few texts, some of them long, so that item and message often share one.
TEXTS = st.sampled_from(["", "a", "/", "~1", "c1", LONG, "x" * 40]) | st.text()
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
ITEMS = st.dictionaries(TEXTS | st.sampled_from(["role", "content", "origin"]), VALUES, max_size=4)


def written(value: object) -> str:
    """Return a value as JSON: 1, 1.0 and True are three, and -0.0 is not 0.0."""
    return json.dumps(value, sort_keys=True)


@given(native=ITEMS, role=TEXTS, content=VALUES, data=st.data())
def test_what_was_packed_comes_back_equal(
    native: Json, role: str, content: object, data: st.DataObject
) -> None:
    """N-64: for any JSON, `unpack` returns the item that `pack` was given."""
    parts = [content, [native], *native.values()]
    said = data.draw(st.sampled_from(parts))
    calls = data.draw(st.sampled_from(parts))
    if data.draw(st.booleans()):
        calls = [{"id": "c", "function": {"name": "f", "arguments": json.dumps(calls)}}]
    before = written([native, said, calls])
    message = origin.pack("f", native, role=role, content=said, tool_calls=calls)
    stored = json.loads(json.dumps(message))
    found = origin.unpack(stored, "f", chat=True)
    assert written(found) == written(native)
    assert written([native, said, calls]) == before
    assert written(stored["content"]) == written(said)
    if "origin" in stored:
        assert origin.unpack(stored, "g") is None


def test_texts_are_stored_once() -> None:
    """A text that item and message share is stored once, at any depth."""
    text = "It will rain in Ulm, and not a little."
    arguments = '{"city": "Ulm", "days": 3, "units": "metric"}'
    native = {"a": {"b": [1, {"said": text}]}, "arguments": arguments, "content": [{"text": text}]}
    message = origin.pack(
        "f",
        native,
        role="assistant",
        content=text,
        tool_calls=[{"id": "c", "function": {"name": "w", "arguments": arguments}}],
    )
    raw = json.dumps(message)
    assert raw.count(text) == 1
    assert raw.count("metric") == 1
    assert origin.unpack(message, "f") == native
    assert message["origin"]["from"] == {
        "/a/b/1/said": "/content",
        "/arguments": "/tool_calls/0/function/arguments",
        "/content/0/text": "/content",
    }


@pytest.mark.parametrize("said", [[True, 2], [1.0, 2], [1, 2, 2], [[1], 2], {"0": 1}])
def test_equal_values_of_other_types_are_not_shared(said: object) -> None:
    """N-64: 1, 1.0 and True are equal in Python, but different in JSON."""
    native = {"a": [1, 2], "zero": [0.0]}
    message = origin.pack("f", native, role="user", content=said, more=[-0.0])
    assert "from" not in message["origin"]
    assert written(origin.unpack(message, "f")) == written(native)


def test_a_role_and_a_text_need_no_origin() -> None:
    """A role and a text are stored unchanged, and belong to no framework."""
    native = {"role": "user", "content": "hello"}
    message = origin.pack("f", native, role="user", content="hello")
    assert message == native
    assert origin.unpack(message, "f", chat=True) == native
    assert origin.unpack(message, "f") is None
    assert "origin" in origin.pack("f", native, role="assistant", content="hello")


@pytest.mark.parametrize(
    "member",
    [
        None,
        "web",
        {"format": "f"},
        {"format": 1, "item": {}},
        {"format": "f", "item": [1]},
        {"format": "f", "item": {}, "from": {"/a/b": "/content"}},
        {"format": "f", "item": {"a": [1]}, "from": {"/a/x": "/content"}},
        {"format": "f", "item": {}, "from": {"/a": "/nothing"}},
        {"format": "f", "item": {}, "from": ["content"]},
        {"format": "f", "item": {"a": 1}, "from": {"/a/b": "/content"}},
        {"format": "f", "item": {"$text": [10**30]}, "encoded": True},
        {"format": "f", "item": {"$ext": [5, 10**30]}, "encoded": True},
    ],
)
def test_any_other_origin_is_ignored(member: object) -> None:
    """A message with any other member `origin` is read as a message."""
    message = {"role": "user", "content": "hello", "origin": member}
    assert origin.unpack(message, "f") is None
    assert origin.chat(message)[-1] == {"role": "user", "content": "hello"}
    assert [part.text for part in origin.readable(message).parts] == ["hello"]


def test_an_item_that_repeats_a_text_without_end_is_not_shown() -> None:
    """N-74: a message of 100 KB whose item has its text 10,000 times is shown as it is."""
    places = {f"/content/{number}": "/content" for number in range(10_000)}
    item = {"role": "user", "content": [None] * 10_000}
    origin_of_it = {"format": "f", "item": item, "from": places}
    message = {"role": "user", "content": "x" * 100_000, "origin": origin_of_it}
    assert [part.text for part in origin.readable(message).parts] == ["x" * 100_000]


def test_an_item_that_is_not_json_can_be_shown() -> None:
    """Bytes, and numbers that JSON lacks, are shown as text."""
    native = {"role": "user", "content": ["a\ud800", b"abc", float("nan"), {(1, 2): {3}}]}
    message = origin.pack("f", native, role="user", content="a\ud800")
    parts = origin.readable(json.loads(json.dumps(message))).parts
    assert [part.pretty for part in parts[:3]] == ["a?", "[3 bytes]", "nan"]
    assert "(1, 2)" in parts[3].pretty


def test_origin_cannot_be_given() -> None:
    """A caller cannot pass `origin`."""
    with pytest.raises(TypeError, match="origin"):
        origin.pack("f", {}, role="user", content="", origin={})


def call(call_id: str, name: str, arguments: str) -> Json:
    """Return a call as a chat has it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat(role: str, content: str, tool: Any = None) -> Json:
    """Return a message of a chat; `tool`: the id of a result, or the call that the message makes."""
    if isinstance(tool, str):
        return {"role": role, "content": content, "tool_call_id": tool}
    return {"role": role, "content": content} | ({"tool_calls": [call(*tool)]} if tool else {})


#: The shapes of `test_parse` as messages of a chat.
CHATS: dict[str, list[Json]] = {
    "nothing": [chat("assistant", "")],
    "empty": [chat("user", "")],
    "strings": [chat("user", "a\n4")],
    "chat call": [chat("assistant", "Look:", ("c", "f", '{"a":1}'))],
    "chat call, broken": [chat("assistant", "", ("c", "", "{bro"))],
    "chat result": [chat("tool", "42", "c")],
    "chat thoughts": [chat("assistant", "so")],
    "chat image": [chat("user", "[image_url]")],
    "item refusal": [chat("assistant", "No.")],
    "item call": [chat("assistant", "", ("c", "f", "not JSON"))],
    "item hosted call": [chat("assistant", "")],
    "item call with its result": [chat("assistant", "")],
    "item result": [chat("tool", "ok", "c")],
    "item result that is JSON": [chat("tool", '{"image_url": "u"}', "c")],
    "item thoughts": [chat("assistant", "")],
    "blocks": [chat("assistant", "so", ("t", "g", '{"x": [1]}'))],
    "block result": [chat("tool", "3", "t"), chat("user", "go on")],
    "block result of blocks": [chat("tool", "a\n[image]", "t")],
    "block of the provider's": [chat("assistant", "[web_search]")],
    "item block of the provider's": [chat("assistant", "")],
    "entry that is not a message": [chat("assistant", "")],
    "google call": [chat("assistant", "", ("c", "f", '{"a": 1}'))],
    "google data": [chat("user", "[inline_data]")],
    "adk event": [chat("assistant", "so")],
    "pydantic system": [chat("system", "be")],
    "pydantic response": [chat("assistant", "so", ("c", "f", '{"a": true}'))],
    "pydantic result": [chat("tool", "a", "c")],
    "langchain ai": [chat("assistant", "", ("c", "f", "{}"))],
    "bedrock": [chat("assistant", "so", ("c", "f", '{"a": 1}'))],
    "bedrock result of values": [chat("tool", '{"r": 0}\n[image]', "c")],
    "unknown content": [chat("user", '{"odd": 1}')],
    "not a list": [chat("user", "[parts]\n[tool_calls]")],
}


@pytest.mark.parametrize("name", CHATS)
def test_every_shape_reads_as_a_chat(name: str) -> None:
    """Messages of every framework can be read as a chat: text, calls, and results one by one."""
    message = SHAPES[name][0]
    assert origin.chat(message) == CHATS[name]
    assert origin.chat(message)[-1] == CHATS[name][-1]


def test_calls_of_google_without_ids_read_as_a_chat() -> None:
    """Google's turns are the assistant's; parallel calls of one tool have ids that their results share."""
    talk = [*Google.turn("hi", ["a", "b"], [])]
    read = origin.conversation(talk)
    assert [message["role"] for message in read] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert [call["id"] for call in read[1]["tool_calls"]] == ["f0", "f0-2"]
    assert [message["tool_call_id"] for message in read[2:4]] == ["f0", "f0-2"]


def test_arguments_are_stored_once() -> None:
    """Arguments that are an object in the item, and a string in the chat, are stored once."""
    given = {"path": "a.txt", "text": LONG, "n": [1, 1.0, True, -0.0, 2**60]}
    native = {"calls": [{"name": "write", "args": given}]}
    calls = [{"id": "c", "function": {"name": "write", "arguments": json.dumps(given)}}]
    message = origin.pack("f", native, role="assistant", content="", tool_calls=calls)
    assert json.dumps(message).count(LONG) == 1
    assert written(origin.unpack(json.loads(json.dumps(message)), "f")) == written(native)
    calls[0]["function"]["arguments"] = "{not JSON at all, but long"  # type: ignore[index]
    assert origin.unpack({**message, "tool_calls": calls}, "f") is None


def test_arguments_that_are_nested_too_deep_are_text() -> None:
    """A call whose arguments no parser reads is still a call for every framework."""
    deep = "[" * 100_000
    called = chat("assistant", "", ("c", "f", deep))
    assert [*origin.calls_of(origin.chat(called)[0])] == [("c", "f", {"text": deep})]
    found = {"format": "f", "item": {"a": 1}, "from": {"/a": "json:/content"}}
    assert origin.unpack({"role": "user", "content": deep, "origin": found}, "f") is None


def test_impossible_counts_are_not_recorded() -> None:
    """What a session refuses as usage is left out, so that the message itself is stored."""
    counts = {"input_tokens": MOST + 1, "output_tokens": MOST, "cached_tokens": -1}
    assert origin.usage("m", counts) == {"model": "m", "output_tokens": MOST}
    assert origin.usage("m", {"input_tokens": MOST + 1, "output_tokens": True}) is None
