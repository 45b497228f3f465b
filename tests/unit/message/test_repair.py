"""A repaired view has one result for every call, where its provider expects it."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.message import tool_calls
from hansard.message.parse import Shape
from hansard.message.tool_calls import NO_RESULT, NO_RESULT_IMAGE, repair
from tests.unit.message.frameworks import (
    Anthropic,
    Bedrock,
    Chat,
    Google,
    Message,
    Pydantic,
    Responses,
    Talk,
)

FRAMEWORKS: list[Any] = [Chat, Responses, Anthropic, Pydantic, Bedrock, Google]
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)


@st.composite
def complete_talks(draw: st.DrawFn, framework: Any) -> Talk:
    """Return a conversation in which nothing is missing, with ids that are used once."""
    numbers = itertools.count()
    talk: Talk = []
    for text in draw(st.lists(st.sampled_from(["hi", "well"]), max_size=4)):
        ids = [f"c{next(numbers)}" for _ in range(draw(st.integers(0, 3)))]
        hosted = [f"h{next(numbers)}" for _ in range(draw(st.integers(0, 2)))]
        talk += framework.turn(text, ids, hosted)
    return talk


def without_some(draw: st.DrawFn, message: Message) -> Message:
    """Return a message with some blocks, parts or calls lost or doubled."""
    changed = dict(message)
    for holder in ("content", "parts", "tool_calls"):
        if isinstance(message.get(holder), list):
            items = [item for item in message[holder] if draw(st.integers(0, 4))]
            if items and not draw(st.integers(0, 4)):
                items.append(draw(st.sampled_from(items)))
            changed[holder] = items or message[holder]
    return changed


@st.composite
def damaged_talks(draw: st.DrawFn, framework: Any) -> Talk:
    """Return a conversation with messages lost, doubled, moved, changed and unfinished."""
    talk = [without_some(draw, message) for message in draw(complete_talks(framework))]
    for _ in range(draw(st.integers(0, 4))):
        if not talk:
            break
        place = draw(st.integers(0, len(talk) - 1))
        match draw(st.sampled_from(["lose", "double", "move", "unfinished"])):
            case "lose":
                del talk[place]
            case "double":
                talk.insert(draw(st.integers(0, len(talk))), talk[place])
            case "move":
                talk.insert(draw(st.integers(0, len(talk) - 1)), talk.pop(place))
            case _:
                talk[place] = {**talk[place], "partial": True}
    return talk


def check(talk: Talk) -> Talk:
    """Return a repaired view, after checks that hold for all."""
    before = copy.deepcopy(talk)
    repaired = repair(talk)
    assert talk == before, "what was given is changed"
    assert tool_calls.problems(repaired) == []
    assert repair(repaired) == repaired
    assert not any("partial" in message for message in repaired)
    return repaired


@every_framework
@given(data=st.data())
def test_a_complete_conversation_is_not_changed(framework: Any, data: st.DataObject) -> None:
    """N-55: a view without problems has the same message objects."""
    talk = data.draw(complete_talks(framework))
    assert framework.broken(talk) == []
    repaired = check(talk)
    assert all(new is old for new, old in zip(repaired, talk, strict=True))


@every_framework
@given(data=st.data())
def test_any_cut_is_repaired(framework: Any, data: st.DataObject) -> None:
    """N-55: any part of a conversation is repaired to its provider's rules."""
    talk = data.draw(complete_talks(framework))
    cuts = [(0, place) for place in range(len(talk) + 1)]
    cuts += [(place, len(talk)) for place in range(len(talk) + 1)]
    begin = data.draw(st.integers(0, len(talk)))
    for start, end in [*cuts, (begin, data.draw(st.integers(begin, len(talk))))]:
        assert framework.broken(check(talk[start:end])) == []


@every_framework
@given(data=st.data())
def test_any_damage_is_repaired(framework: Any, data: st.DataObject) -> None:
    """N-55: after any damage, no call or result is alone in the view."""
    talk = data.draw(damaged_talks(framework))
    repaired = check(talk)
    # Items may be answered anywhere after their call, and a provider's own tools in a later message.
    if framework is Chat:
        assert Chat.broken(repaired) == []
    elif framework is not Responses:
        assert framework.broken(repaired, server=False) == []


@every_framework
@given(data=st.data())
def test_pairs_are_never_lost(framework: Any, data: st.DataObject) -> None:
    """N-55: all results of calls are in the view, and stand-ins only for missing ones."""
    talk = data.draw(damaged_talks(framework))
    answered = [result for call, result in tool_calls.pairs(talk) if call and result]
    hosted = {Shape.SERVER_BLOCK, Shape.SERVER_PART}
    alone = [
        call
        for call, result in tool_calls.pairs(talk)
        if call and not result and call.shape not in hosted
    ]
    repaired = repair(talk)
    after = [result for _, result in tool_calls.pairs(repaired)]
    assert sorted(half.call_id for half in after if half) == sorted(
        half.call_id for half in answered + alone
    )


ASK: Message = {"role": "user", "content": "hi"}


def found(call_id: str, text: str = "4") -> Message:
    """Return a chat message with a result."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def block(call_id: str, text: str | None = "4") -> Message:
    """Return a block with a result; without a text, the stand-in."""
    made = {"type": "tool_result", "tool_use_id": call_id, "content": text or NO_RESULT}
    return made if text else {**made, "is_error": True}


USE: Message = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in ("a", "b")],
}
TEXT: Message = {"type": "text", "text": "hi"}


@pytest.mark.parametrize(
    ("after", "repaired"),
    [
        ([], [[block("a", None), block("b", None)]]),
        ([ASK], [[block("a", None), block("b", None), TEXT]]),
        ([{"role": "user", "content": ""}], [[block("a", None), block("b", None)]]),
        ([{"role": "assistant", "content": "x"}], [[block("a", None), block("b", None)], "x"]),
        ([{"role": "user", "content": [TEXT, block("b")]}], [[block("b"), block("a", None), TEXT]]),
        ([ASK, {"role": "user", "content": [block("b"), block("a")]}], [[block("b"), block("a"), TEXT]]),
        ([{"role": "user", "content": [block("z")]}, ASK], [[block("a", None), block("b", None), TEXT]]),
        ([{"role": "user", "content": [block("a"), block("a", "again"), block("b")]}],
            [[block("a"), block("b")]]),
        ([{"role": "user", "content": [block("a")]}, {"role": "user", "content": [block("b")]}],
            [[block("a"), block("b")]]),
    ],
)  # fmt: skip
def test_anthropic_results_begin_the_next_message(after: Talk, repaired: list[Any]) -> None:
    """N-55: all results are in the very next message, the user's, before anything else in it."""
    assert [message["content"] for message in repair([USE, *after])[1:]] == repaired


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("function_call", {"output": NO_RESULT}),
        ("custom_tool_call", {"output": NO_RESULT}),
        ("local_shell_call", {"output": NO_RESULT}),
        ("computer_call", {"output": {"type": "computer_screenshot", "image_url": NO_RESULT_IMAGE}}),
        ("shell_call", {"status": "incomplete", "output": [
            {"stdout": "", "stderr": NO_RESULT, "outcome": {"type": "timeout"}}]}),
        ("apply_patch_call", {"output": NO_RESULT, "status": "failed"}),
        ("tool_search_call", {"tools": [], "execution": "client", "status": "incomplete"}),
    ],
)  # fmt: skip
def test_an_item_has_the_output_of_its_type(kind: str, answer: Message) -> None:
    """N-55: each type of call gets the output that its type demands, after the calls made with it."""
    caller = {"caller": {"type": "direct"}}
    first, second = ({"type": kind, "call_id": call_id, **caller} for call_id in "ab")
    reply = {"type": "function_call_output", "call_id": "b", "output": "4"}
    output = "tool_search_output" if kind == "tool_search_call" else f"{kind}_output"
    stand_in = {"type": output, "call_id": "a", **caller, **answer}
    assert repair([first, second, reply, ASK]) == [first, second, reply, stand_in, ASK]


def test_a_stand_in_comes_before_the_next_calls() -> None:
    """N-55: calls after an output are a new step, and so is an id that is used again."""

    def item(kind: str, call_id: str, text: str = "4") -> Message:
        made = {"type": kind, "call_id": call_id}
        return made if kind.endswith("call") else {**made, "output": text}

    a, b, c = (item("function_call", call_id) for call_id in "abc")
    done_b, done_c = item("function_call_output", "b"), item("function_call_output", "c")
    none = item("function_call_output", "a", NO_RESULT)
    assert repair([a, b, done_b, c, done_c]) == [a, b, done_b, none, c, done_c]
    assert repair([a, b, a]) == [a, b, none, {**none, "call_id": "b"}, a, none]


@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use"])
def test_a_call_of_a_servers_tool_without_a_result_is_removed(kind: str) -> None:
    """N-55: the model may call it again; one that was answered stays, and an empty message is removed."""
    use = {"type": kind, "id": "s", "name": "web_search", "input": {}}
    done = {"type": "mcp_tool_result", "tool_use_id": "s", "content": "4"}

    def said(*blocks: Message) -> Message:
        return {"role": "assistant", "content": list(blocks)}

    assert repair([ASK, said(use, TEXT, use)]) == [ASK, said(TEXT)]
    assert repair([ASK, said(use, done, TEXT, use)]) == [ASK, said(use, done, TEXT)]
    assert repair([ASK, said(use)]) == [ASK]


def test_the_mark_of_an_unfinished_message_is_removed() -> None:
    """`"partial": true` is removed; any other value of that member stays."""
    other: Message = {"role": "user", "content": [{"partial": True}], "partial": "yes"}
    marked: Message = {"role": "assistant", "content": "he", "partial": True}
    repaired = repair([marked, other])
    assert repaired == [{"role": "assistant", "content": "he"}, other]
    assert repaired[1] is other
    assert marked["partial"] is True


def test_a_call_written_in_two_ways_is_one() -> None:
    """N-55: a call written as a block and as in a chat needs one result."""
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    call: Message = {"role": "assistant", "content": [use], "tool_calls": [{"id": "a"}]}
    assert repair([call, found("a")]) == [call, found("a")]
    assert repair([call]) == [call, found("a", NO_RESULT)]
    twice: Message = {"role": "assistant", "content": [use, use]}
    assert repair([twice]) == [twice, {"role": "user", "content": [block("a", None)]}]


@pytest.mark.parametrize("make", [list, tuple])
def test_nothing_to_repair(make: Callable[[Talk], Any]) -> None:
    """Messages of unknown shape are returned unchanged, in a new list."""
    talk: Talk = [{}, {"x": 1}, {"role": "user"}, {"content": 3, "parts": "x", "tool_calls": None}]
    given_messages = make(talk)
    assert repair(given_messages) == talk
    assert repair(given_messages) is not given_messages
    assert repair(make([])) == []
