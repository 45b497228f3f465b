"""One parser reads the messages of every framework."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from hansard.message.parse import HIDDEN, LABELS, parse
from hansard.message.values import compact

Json = dict[str, Any]

#: Of each shape: a message, the speaker, and its parts: kind and text; of a tool, also its name and call id.
SHAPES: dict[str, tuple[Json, str, list[tuple[str, ...]]]] = {
    "plain text": ({"role": "user", "content": "hi"}, "user", [("text", "hi")]),
    "a name": ({"role": "user", "name": "Ann", "content": "hi"}, "user (Ann)", [("text", "hi")]),
    "nothing": ({"role": "assistant", "content": None}, "assistant", []),
    "empty": ({}, "message", []),
    "strings": ({"role": 3, "content": ["a", 4]}, "message", [("text", "a"), ("data", "4")]),
    # OpenAI chat
    "chat call": ({"role": "assistant", "content": "Look:",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a":1}'}}]},
        "assistant", [("text", "Look:"), ("call", '{"a":1}', "f", "c")]),
    "chat call, broken": ({"role": "assistant",
        "tool_calls": [{"id": "c", "function": {"arguments": "{bro"}}]},
        "assistant", [("call", "{bro", "?", "c")]),
    "chat call, old": ({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        "assistant", [("call", "{}", "f", "")]),
    "chat custom call": ({"role": "assistant",
        "tool_calls": [{"id": "c", "custom": {"name": "sh", "input": "ls"}}]},
        "assistant", [("call", "ls", "sh", "c")]),
    "chat result": ({"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "42"}]},
        "tool", [("result", "42", "", "c")]),
    "chat result, old": ({"role": "function", "name": "f", "content": "42"},
        "function", [("result", "42", "f", "")]),
    "chat thoughts": ({"role": "assistant", "content": "so", "reasoning_content": "hm"},
        "assistant", [("thinking", "hm"), ("text", "so")]),
    "chat refusal": ({"role": "assistant", "content": None, "refusal": "No."},
        "assistant", [("text", "No.")]),
    "chat image": ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
        "user", [("data", '{"type": "image_url", "image_url": {"url": "u"}}')]),
    # OpenAI Responses
    "item text": ({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        "user", [("text", "hi")]),
    "item sources": ({"role": "assistant",
        "content": [{"type": "output_text", "text": "hi", "annotations": [{"url": "u"}]}]},
        "assistant", [("text", "hi"), ("data", '{"annotations": [{"url": "u"}]}')]),
    "item refusal": ({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        "assistant", [("text", "No.")]),
    "item call": ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "not JSON"},
        "assistant", [("call", "not JSON", "f", "c")]),
    "item hosted call": ({"type": "web_search_call", "id": "w", "action": {"query": "q"},
        "status": "completed"},
        "assistant", [("call", '{"query": "q"}', "web_search", "")]),
    "item call without arguments": ({"type": "file_search_call", "id": "w", "queries": ["q"],
        "results": [{"text": "r"}]},
        "assistant", [("call", '{"queries": ["q"], "results": [{"text": "r"}]}', "file_search", "")]),
    "item call with its result": ({"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}",
        "output": "ok"},
        "assistant", [("call", "{}", "f", ""), ("result", "ok", "f", "")]),
    "item result": ({"type": "function_call_output", "call_id": "c", "output": "ok"},
        "tool", [("result", "ok", "", "c")]),
    "item result that is JSON": ({"type": "computer_call_output", "call_id": "c",
        "output": {"image_url": "u"}},
        "tool", [("result", '{"image_url": "u"}', "", "c")]),
    "item thoughts": ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}],
        "content": [{"type": "reasoning_text", "text": "well"}]},
        "assistant", [("thinking", "hm\nwell")]),
    "item thoughts, encrypted": ({"type": "reasoning", "summary": [], "encrypted_content": "xyz"},
        "assistant", [("thinking", HIDDEN)]),
    # Anthropic
    "blocks": ({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "xyz"},
            {"type": "text", "text": "so", "cache_control": {"type": "ephemeral"}},
            {"type": "tool_use", "id": "t", "name": "g", "input": {"x": [1]}}]},
        "assistant", [("thinking", "hm"), ("thinking", HIDDEN), ("text", "so"),
            ("call", '{"x": [1]}', "g", "t")]),
    "block with citations": ({"role": "assistant",
        "content": [{"type": "text", "text": "so", "citations": ["p. 4"]}]},
        "assistant", [("text", "so"), ("data", '{"citations": ["p. 4"]}')]),
    "block result": ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                "content": "3", "is_error": True}, {"type": "text", "text": "go on"}]},
        "user", [("result", "3", "", "t"), ("text", "go on")]),
    "block result of blocks": ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                "content": [{"type": "text", "text": "a"}, {"type": "image", "source": 1}]}]},
        "user", [("result", 'a\n{"type": "image", "source": 1}', "", "t")]),
    "block of the provider's": ({"role": "assistant", "content": [{"type": "server_tool_use", "id": "s",
                "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]}]},
        "assistant", [("call", "{}", "web_search", "s"), ("result", '[{"url": "u"}]', "", "s")]),
    "item block of the provider's": ({"role": "assistant",
        "content": [{"type": "web_search_call", "id": "ws", "action": {"query": "q"}}]},
        "assistant", [("call", '{"query": "q"}', "web_search", "")]),
    # Claude Code
    "entry": ({"type": "user", "uuid": "u", "message": {"role": "user", "content": "hi"}},
        "user", [("text", "hi")]),
    "entry that is not a message": ({"type": "progress", "data": {"n": 1}},
        "progress", [("data", '{"data": {"n": 1}}')]),
    # Google, ADK
    "google text": ({"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "so"}]},
        "model", [("thinking", "hm"), ("text", "so")]),
    "google call": ({"role": "model",
        "parts": [{"function_call": {"id": "c", "name": "f", "args": {"a": 1}}}]},
        "model", [("call", '{"a": 1}', "f", "c")]),
    "google result": ({"role": "user",
        "parts": [{"functionResponse": {"name": "f", "response": {"r": 1}}}]},
        "user", [("result", '{"r": 1}', "f", "f")]),
    "google data": ({"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": "x"}}]},
        "user", [("data", '{"inline_data": {"mime_type": "image/png", "data": "x"}}')]),
    "adk event": ({"author": "bot", "content": {"role": "model", "parts": [{"text": "so"}]}},
        "model", [("text", "so")]),
    # Pydantic AI
    "pydantic request": ({"kind": "request",
        "parts": [{"part_kind": "user-prompt", "content": ["hi", {"url": 1}]}]},
        "user", [("text", "hi"), ("data", '{"url": 1}')]),
    "pydantic system": ({"kind": "request", "parts": [{"part_kind": "system-prompt", "content": "be"}]},
        "system", [("text", "be")]),
    "pydantic response": ({"kind": "response", "parts": [{"part_kind": "thinking", "content": "hm"},
            {"part_kind": "text", "content": "so"},
            {"part_kind": "tool-call", "tool_name": "f", "args": {"a": True}, "tool_call_id": "c"}]},
        "assistant", [("thinking", "hm"), ("text", "so"), ("call", '{"a": true}', "f", "c")]),
    "pydantic result": ({"kind": "request", "parts": [{"part_kind": "tool-return", "tool_name": "f",
                "content": ["a"], "tool_call_id": "c", "outcome": "failed"}]},
        "tool", [("result", '["a"]', "f", "c")]),
    "pydantic retry": ({"kind": "request", "parts": [{"part_kind": "retry-prompt", "content": "again"}]},
        "user", [("text", "again")]),
    # LangChain
    "langchain human": ({"type": "human", "name": "Ann", "content": "hi"},
        "user (Ann)", [("text", "hi")]),
    "langchain ai": ({"type": "ai",
        "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
        "tool_calls": [{"name": "f", "args": {}, "id": "c", "type": "tool_call"}],
        "invalid_tool_calls": [{"name": "g", "args": "{", "id": "d", "error": "bad"}]},
        "assistant", [("call", "{}", "f", "c"), ("call", "{", "g", "d"), ("data", '{"error": "bad"}')]),
    "langchain tool": ({"type": "tool", "tool_call_id": "c", "name": "f", "content": "ok",
        "status": "success"},
        "tool", [("result", "ok", "f", "c")]),
    "langchain notation": ({"type": "tool", "data": {"type": "tool", "tool_call_id": "c", "name": "f",
        "content": "no", "status": "error"}},
        "tool", [("result", "no", "f", "c")]),
    # Strands, Bedrock
    "bedrock": ({"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "hm",
                        "signature": "s"}}}, {"text": "so"},
            {"toolUse": {"toolUseId": "c", "name": "f", "input": {"a": 1}}}]},
        "assistant", [("thinking", "hm"), ("text", "so"), ("call", '{"a": 1}', "f", "c")]),
    "bedrock result": ({"role": "user",
        "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "ok"}], "status": "error"}}]},
        "user", [("result", "ok", "", "c")]),
    "bedrock result of values": ({"role": "user", "content": [{"toolResult": {"toolUseId": "c",
                "content": [{"json": {"r": 0}}, {"image": {"format": "png"}}]}}]},
        "user", [("result", '[{"json": {"r": 0}}, {"image": {"format": "png"}}]', "", "c")]),
    # unknown
    "unknown": ({"n": 1}, "message", [("data", '{"n": 1}')]),
    "unknown content": ({"role": "user", "content": {"odd": 1}}, "user", [("data", '{"odd": 1}')]),
    "unknown block": ({"role": "user", "content": [{"type": "new", "shape": 1}]},
        "user", [("data", '{"type": "new", "shape": 1}')]),
    "not a list": ({"role": "user", "tool_calls": "x", "parts": 7},
        "user", [("data", '{"parts": 7}'), ("data", '{"tool_calls": "x"}')]),
}  # fmt: skip


#: Those whose result is that of a failed call.
FAILED = {"block result", "langchain notation", "bedrock result", "pydantic result"}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_read(name: str) -> None:
    """N-43: texts, reasoning, calls and results of each framework are parts; unknown members are JSON."""
    message, speaker, expected = SHAPES[name]
    parsed = parse(message)
    assert parsed.speaker == speaker
    assert not parsed.partial
    assert parse({**message, "partial": True}).partial
    found = [
        (part.kind, part.text, part.name, part.call_id)
        if part.kind in {"call", "result"}
        else (part.kind, part.text)
        for part in parsed.shown(full=False)
    ]
    assert found == expected
    failed = [part.failed for part in parsed.parts if part.kind == "result"]
    assert failed == [name in FAILED] * len(failed)


def test_other_members_are_shown_on_request() -> None:
    """With --full and in transcripts, the remaining members follow the parts."""
    message = {"role": "user", "content": "hi", "odd": {"n": 1}, "empty": [], "id": "m"}
    assert [part.text for part in parse(message).shown(full=False)] == ["hi"]
    assert [part.text for part in parse(message).shown(full=True)] == ["hi", '{"odd": {"n": 1}}']


def test_json_is_indented_without_changing_a_character() -> None:
    """Arguments in a string of JSON keep their numbers, escapes and repeated names."""
    given = '{"a":1.0e0,"a":"\\u00e9"}'
    (call,) = parse({"type": "function_call", "name": "f", "arguments": given}).parts
    assert call.text == given
    assert call.pretty == '{\n  "a": 1.0e0,\n  "a": "\\u00e9"\n}'
    (call,) = parse({"type": "function_call", "name": "f", "arguments": "{bro"}).parts
    assert call.pretty == "{bro"
    (data,) = parse({"role": "user", "content": {"a": [1]}}).parts
    assert data.pretty == '{\n  "a": [\n    1\n  ]\n}'


_MEMBERS = [
    *("content", "parts", "tool_calls", "invalid_tool_calls", "tool_call_id", "call_id", "id", "name"),
    *("tool_use_id", "tool_name", "function", "function_call", "function_response", "custom", "odd"),
    *("input", "args", "arguments", "action", "output", "tools", "text", "toolUse", "toolResult"),
    *("toolUseId", "reasoning", "reasoning_content", "reasoningContent", "reasoningText", "summary"),
    *("message", "refusal", "thinking", "citations", "response"),
]  # fmt: skip
_WORDS = {
    "role": ["user", "assistant", "tool", "function"],
    "kind": ["request", "response"],
    "type": [
        *("tool_use", "tool_result", "web_search_tool_result", "function_call", "tool_call", "text"),
        *("function_call_output", "tool_search_output", "reasoning", "human", "tool", "image"),
    ],
    "part_kind": ["tool-call", "tool-return", "retry-prompt", "user-prompt", "thinking", "file"],
}  # fmt: skip


class _Maker:
    """Creates random messages of known members, with every text once."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0

    def message(self, depth: int = 0) -> Json:
        names = [*_MEMBERS, *_WORDS]
        chosen = self._random.sample(names, self._random.randint(1, 6))
        return {
            name: self._random.choice(_WORDS[name]) if name in _WORDS else self._value(depth)
            for name in chosen
        }

    def _value(self, depth: int) -> Any:
        self._count += 1
        kind = "text" if depth == 3 else self._random.choice(["text", "text", "list", "object"])
        if kind == "text":
            return f"<{self._count}>"
        made = [self.message(depth + 1), f"<{self._count}>"]
        return self._random.sample(made, 2) if kind == "list" else made[0]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith("<"):
        yield value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from () if name in LABELS else _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)


@pytest.mark.parametrize("seed", range(20))
def test_no_text_is_left_out(seed: int) -> None:
    """Every text of a message of any shape is shown, except ids and other labels."""
    maker = _Maker(seed)
    for _ in range(200):
        message = maker.message()
        parsed = parse(message)
        parts = parsed.shown(full=True)
        for shown in ([part.text for part in parts], [part.pretty for part in parts]):
            names = [name for part in parts for name in (part.name, part.call_id)]
            told = " ".join([parsed.speaker, *shown, *names])
            assert [text for text in _texts(message) if text not in told] == [], compact(message)
