"""Messages of every framework are read as a person would: who speaks, what is said, called, answered."""

from typing import Any

import pytest

from hansard.cli.messages import Said, read


@pytest.mark.parametrize(
    ("message", "role", "pieces"),
    [
        ({"role": "user", "content": "hi"}, "user", [Said("text", "hi")]),
        ({"role": "user", "name": "Ann", "content": "hi"}, "user (Ann)", [Said("text", "hi")]),
        ({"role": "assistant", "content": None}, "assistant", []),
        (
            {
                "role": "assistant",
                "content": "Look:",
                "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}],
            },
            "assistant",
            [Said("text", "Look:"), Said("call", '{"a": 1}', "f", "c")],
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"arguments": "{bro"}}]},
            "assistant",
            [Said("call", "{bro", "?", "c")],
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "42"}]},
            "tool",
            [Said("result", "42", "", "c")],
        ),
        (
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            "user",
            [Said("text", "hi")],
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            "assistant",
            [Said("call", "{}", "f", "c")],
        ),
        (
            {"type": "web_search_call", "id": "w", "action": {"query": "q"}},
            "assistant",
            [Said("call", '{"query": "q"}', "web_search")],
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "ok"},
            "tool",
            [Said("result", "ok", "", "c")],
        ),
        (
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            "assistant",
            [Said("thinking", "hm")],
        ),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "t", "name": "g", "input": {"x": [1]}},
                ],
            },
            "assistant",
            [Said("thinking", "hm"), Said("text", "so"), Said("call", '{"x": [1]}', "g", "t")],
        ),
        (
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "content": "3"}],
            },
            "user",
            [Said("result", "3", "", "t")],
        ),
        (
            {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "hi"}]},
            "user",
            [Said("text", "hi")],
        ),
        (
            {
                "kind": "response",
                "parts": [
                    {"part_kind": "text", "content": "so"},
                    {"part_kind": "tool-call", "tool_name": "f", "args": {"a": True}},
                ],
            },
            "assistant",
            [Said("text", "so"), Said("call", '{"a": true}', "f")],
        ),
        (
            {
                "kind": "request",
                "parts": [{"part_kind": "tool-return", "tool_name": "f", "content": 1}],
            },
            "tool",
            [Said("result", "1", "f")],
        ),
        (
            {"role": "assistant", "content": "so", "reasoning_content": "hm"},
            "assistant",
            [Said("thinking", "hm"), Said("text", "so")],
        ),
        ({"n": 1}, "message", [Said("data", '{"n": 1}')]),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
            "user",
            [Said("data", '{"type": "image_url", "image_url": {"url": "u"}}')],
        ),
        ({"role": "user", "content": {"odd": 1}}, "user", [Said("data", '{"odd": 1}')]),
        ({"role": 3, "content": ["a", 4]}, "message", [Said("text", "a"), Said("data", "4")]),
        ({}, "message", []),
    ],
)
def test_known_shapes_are_read_and_others_are_shown(
    message: dict[str, Any], role: str, pieces: list[Said]
) -> None:
    """N-43: chat, Responses items, Anthropic blocks and Pydantic AI parts are read; the rest is shown."""
    spoken = read(message)
    assert (spoken.role, spoken.pieces, spoken.partial) == (role, pieces, False)
    assert read({**message, "partial": True}).partial


def test_all_members_are_shown_on_request() -> None:
    """With --full, a member that is not known here is shown next to what is."""
    message = {"role": "user", "content": "hi", "odd": {"n": 1}}
    assert read(message).pieces == [Said("text", "hi")]
    assert read(message, all_members=True).pieces[1:] == [Said("data", '{"odd": {"n": 1}}')]
