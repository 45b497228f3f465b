"""A framework's item comes back equal, is stored once, and is readable for other frameworks."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard.message import origin

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


@given(native=ITEMS, content=VALUES)
def test_nothing_is_shared(native: Json, content: object) -> None:
    """N-63: changes of a message or an item do not affect each other."""
    message = origin.pack("f", native, role="user", content=content)
    kept = deepcopy(message)
    found = origin.unpack(message, "f", chat=True)
    for made in (native, found):
        for value in (made or {}).values():
            if isinstance(value, list):
                value.append("changed")
            elif isinstance(value, dict):
                value["changed"] = 1
    assert written(message) == written(kept)


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
    ],
)
def test_any_other_origin_is_ignored(member: object) -> None:
    """A message with any other member `origin` is read as a message."""
    message = {"role": "user", "content": "hello", "origin": member}
    assert origin.unpack(message, "f") is None
    assert origin.plain(message) == {"role": "user", "content": "hello"}


def test_origin_cannot_be_given() -> None:
    """A caller cannot pass `origin`."""
    with pytest.raises(TypeError, match="origin"):
        origin.pack("f", {}, role="user", content="", origin={})


def call(call_id: str, name: str, arguments: str) -> Json:
    """Return a call as a chat has it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": "hi", "partial": True}, [{"role": "user", "content": "hi"}]),
        ({"content": "hi"}, [{"role": "user", "content": "hi"}]),
        (
            {"role": "assistant", "content": None, "tool_calls": [call("c", "w", "{}")]},
            [{"role": "assistant", "content": "", "tool_calls": [call("c", "w", "{}")]}],
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "dry"}]},
            [{"role": "tool", "tool_call_id": "c", "content": "dry"}],
        ),
        # OpenAI Responses, as an application may store them.
        (
            {"type": "function_call", "call_id": "c", "name": "w", "arguments": "{}", "id": "fc"},
            [{"role": "assistant", "content": "", "tool_calls": [call("c", "w", "{}")]}],
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "dry"},
            [{"role": "tool", "tool_call_id": "c", "content": "dry"}],
        ),
        ({"type": "reasoning", "summary": [], "content": "hm"}, [{"role": "assistant", "content": ""}]),
        (
            {"role": "assistant", "type": "message", "content": [
                {"type": "output_text", "text": "dry", "annotations": []},
                {"type": "refusal", "refusal": "no"}, {"type": "input_image", "image_url": "x"}]},
            [{"role": "assistant", "content": "dry\nno\n[input_image]"}],
        ),
        # Anthropic.
        (
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "let me look"},
                {"type": "tool_use", "id": "t", "name": "w", "input": {"city": "Ulm"}}]},
            [{"role": "assistant", "content": "let me look",
              "tool_calls": [call("t", "w", '{"city": "Ulm"}')]}],
        ),
        (
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "dry"},
                {"type": "tool_result", "tool_use_id": "u", "content": [{"type": "text", "text": "wet"}]},
                {"type": "text", "text": "go on"}]},
            [{"role": "tool", "tool_call_id": "t", "content": "dry"},
             {"role": "tool", "tool_call_id": "u", "content": "wet"},
             {"role": "user", "content": "go on"}],
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "t", "name": "w", "args": {}}],
             "content": [{"type": "tool_use", "id": "t", "name": "w", "input": {}}]},
            [{"role": "assistant", "content": "", "tool_calls": [call("t", "w", "{}")]}],
        ),
        # Bedrock.
        (
            {"role": "assistant", "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": "let me look"},
                {"toolUse": {"toolUseId": "t", "name": "w", "input": {}}}]},
            [{"role": "assistant", "content": "let me look", "tool_calls": [call("t", "w", "{}")]}],
        ),
        (
            {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "status": "success", "content": [
                {"json": {"rain": 0}}, {"image": {"format": "png"}}]}}]},
            [{"role": "tool", "tool_call_id": "t", "content": '{"rain": 0}\n[image]'}],
        ),
        # Google, Pydantic AI, LangChain, tools that the provider runs.
        (
            {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "let me look"},
                                        {"function_call": {"id": "t", "name": "w", "args": {}}}]},
            [{"role": "model", "content": "let me look", "tool_calls": [call("t", "w", "{}")]}],
        ),
        (
            {"kind": "request", "parts": [
                {"part_kind": "tool-return", "tool_name": "w", "tool_call_id": "t", "content": "dry"},
                {"part_kind": "user-prompt", "content": "go on"}]},
            [{"role": "tool", "tool_call_id": "t", "content": "dry"}, {"role": "user", "content": "go on"}],
        ),
        (
            {"type": "ai", "content": "well", "invalid_tool_calls": [{"name": "w", "args": "{", "id": "t"}]},
            [{"role": "assistant", "content": "well"}],
        ),
        (
            {"role": "assistant", "content": [
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "rain"}},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]},
                {"type": "text", "text": "dry", "citations": [{"url": "u"}]}]},
            [{"role": "assistant", "content": "[web_search]\ndry"}],
        ),
    ],
)  # fmt: skip
def test_every_shape_reads_as_a_chat(message: Json, expected: list[Json]) -> None:
    """Messages of every framework can be read as a chat: text, calls, and results one by one."""
    assert origin.chat(message) == expected
    assert origin.plain(message) in expected


def test_a_conversation_is_one_that_providers_accept() -> None:
    """N-55: consecutive calls become one message, directly before their results."""
    items: list[Json] = [
        {"role": "user", "content": "Ulm or Bonn?"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "w", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "w", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "dry"},
        {"type": "function_call_output", "call_id": "c2", "output": "wet"},
        {"role": "assistant", "content": "Ulm."},
        {"role": "assistant", "content": "Not Bonn."},
    ]
    assert origin.conversation(items) == [
        {"role": "user", "content": "Ulm or Bonn?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [call("c1", "w", "{}"), call("c2", "w", "{}")],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "dry"},
        {"role": "tool", "tool_call_id": "c2", "content": "wet"},
        {"role": "assistant", "content": "Ulm."},
        {"role": "assistant", "content": "Not Bonn."},
    ]


def test_a_packed_message_is_found_and_paired_as_any_other() -> None:
    """N-55: search finds texts, but not in `origin`; calls keep their results."""
    with hansard.open("memory:") as store:
        session = store.session("s")
        item = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
        session.add_messages(
            [
                origin.pack("f", {"x": "hidden"}, role="user", content="rain in Ulm"),
                origin.pack(
                    "f",
                    item,
                    role="assistant",
                    content="",
                    tool_calls=[call("c1", "weather", "{}")],
                ),
                origin.pack("f", {"out": "dry"}, role="tool", content="dry", tool_call_id="c1"),
            ]
        )
        assert [hit.seq for hit in store.search("rain")] == [1]
        assert [hit.seq for hit in store.search("weather")] == [2]
        assert not store.search("hidden")
        assert not session.pairing()
        assert [message["role"] for message in session.window(messages=2)] == ["assistant", "tool"]
