"""Calls and results are recognized in every framework's messages."""

from typing import Any

import pytest

from hansard.message.tool_calls import Problem, calls, problems, results

PAIRS: "dict[str, Pair]" = {
    "chat": (
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "4"}),
    "responses": (
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "4"}),
    "google": (  # some clients return the id of a call, and others do not: the name counts
        {"role": "model", "parts": [{"functionCall": {"id": "x", "name": "c1", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "c1", "response": {}}}]}),
    "google client": (
        {"role": "model", "parts": [{"function_call": {"name": "c1"}, "text": None}]},
        {"role": "user", "parts": [{"function_response": {"name": "c1"}, "text": None}]}),
    "mcp": (
        {"role": "assistant", "content": [{"type": "mcp_tool_use", "id": "c1", "name": "add"}]},
        {"role": "assistant", "content": [{"type": "mcp_tool_result", "tool_use_id": "c1"}]}),
    "search": (
        {"type": "tool_search_call", "call_id": "c1", "arguments": {}},
        {"type": "tool_search_output", "call_id": "c1", "tools": []}),
    "shell": (
        {"type": "local_shell_call", "id": "lsh", "call_id": "c1"},
        {"type": "local_shell_call_output", "id": "c1", "output": ""}),
}  # fmt: skip
CHAT = PAIRS["chat"]
Pair = tuple[dict[str, Any], dict[str, Any]]


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_call_and_its_result_share_an_id(pair: Pair) -> None:
    """N-55: call and result are recognized in each framework's shape."""
    assert (calls(pair[0]), results(pair[0])) == (["c1"], [])
    assert (calls(pair[1]), results(pair[1])) == ([], ["c1"])
    assert problems(pair) == []


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_missing_half_is_a_problem(pair: Pair) -> None:
    """N-55: a call without a result and a result without a call are listed, with their place."""
    hello = {"role": "user", "content": "hello"}
    assert problems([hello, pair[0]]) == [Problem("orphan call", 1, "c1")]
    assert problems([hello, pair[1]]) == [Problem("orphan result", 1, "c1")]
    assert problems([pair[1], pair[0]]) == [
        Problem("orphan result", 0, "c1"),
        Problem("orphan call", 1, "c1"),
    ]


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": "user", "content": "tool_use"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, 3, None]},
        {"tool_calls": "none", "parts": 7, "type": 9},
        {"tool_calls": [{"id": None}, {}], "role": "tool"},
        {"type": "reasoning", "call_id": "c1"},
        {"type": "tool_search_call", "call_id": None},
        {"type": "web_search_call", "id": "c1"},
        {"parts": [{"part_kind": "retry-prompt", "tool_call_id": "c1"}]},
    ],
)
def test_anything_else_calls_and_answers_nothing(message: dict[str, Any]) -> None:
    """A message of any other shape is neither a call nor a result."""
    assert (calls(message), results(message)) == ([], [])
    assert problems([message]) == []


def test_a_call_whose_id_is_used_again_is_a_problem() -> None:
    """N-55: a later call with the same id does not hide that the earlier one has no result."""
    assert problems([CHAT[0], CHAT[0], CHAT[1]]) == [Problem("orphan call", 0, "c1")]
    assert problems([*CHAT, *CHAT]) == []
