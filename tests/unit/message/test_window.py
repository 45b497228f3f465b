"""A window keeps the last messages, and no call without its result."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hansard.message.tool_calls import problems
from hansard.message.window import Limits, estimate_tokens, is_user
from hansard.message.window import window as cut_window

Message = dict[str, Any]


def window(talk: list[Message], *, keep_first: bool = False, **limits: Any) -> list[Message]:
    """Cut a complete view."""
    first = next((message for message in talk if is_user(message)), None)
    found = cut_window(talk, Limits(**limits), first=first if keep_first else None)
    assert found is not None, "a complete view always has a window"
    return found


def user(text: str) -> Message:
    """Return a user message."""
    return {"role": "user", "content": text}


def answer(text: str) -> Message:
    """Return a model message."""
    return {"role": "assistant", "content": text}


def call(*ids: str) -> Message:
    """Return a message that calls tools."""
    return {"role": "assistant", "content": None, "tool_calls": [{"id": i} for i in ids]}


def result(call_id: str) -> Message:
    """Return a tool's answer."""
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


TALK = [
    user("one"),
    call("a", "b"),
    result("a"),
    result("b"),
    answer("first"),
    user("two"),
    answer("second"),
]


@pytest.mark.parametrize(
    ("limit", "first"),
    [(7, 0), (9, 0), (6, 1), (5, 4), (4, 4), (3, 4), (2, 5), (1, 6), (0, 7)],
)
def test_a_cut_moves_on_to_a_place_that_splits_nothing(limit: int, first: int) -> None:
    """N-55: a window of n messages has at most n, and begins where no call waits for its result."""
    assert window(TALK, messages=limit) == TALK[first:]


def test_a_pair_larger_than_the_window_is_kept_whole() -> None:
    """N-55: if only halves of pairs would fit, the window begins before the call."""
    assert window(TALK[:4], messages=2) == TALK[1:4]


def test_an_id_that_is_used_again_does_not_join_two_pairs() -> None:
    """N-55: a result belongs to the last call with its id, and one without a call to none."""
    again = [user("one"), call("a"), result("a"), user("two"), call("a"), result("a"), result("x")]
    assert window(again, messages=4) == again[3:]
    assert window(again, messages=2) == again[6:]


@pytest.mark.parametrize(("turns", "first"), [(0, 7), (1, 5), (2, 0), (5, 0)])
def test_a_turn_begins_with_the_user(turns: int, first: int) -> None:
    """A window of n turns begins with the n-th last message of the user."""
    assert window(TALK, turns=turns) == TALK[first:]


def test_tool_results_of_the_user_role_begin_no_turn() -> None:
    """A tool's result in a user message, as in Anthropic's form, is not a turn."""
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "x"}]}
    done = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}
    talk = [user("one"), use, done, answer("done"), user("two"), answer("bye")]
    assert window(talk, turns=2) == talk
    assert window(talk, turns=1) == talk[4:]


def test_tokens_are_counted_by_the_caller_or_guessed() -> None:
    """A window of n tokens is counted from the end, by the caller's counter or by the estimate."""
    assert window(TALK, tokens=3, counter=lambda _: 1) == TALK[4:]
    assert window(TALK, tokens=2, counter=lambda _: 1) == TALK[5:]
    last = estimate_tokens(TALK[-1])
    assert window(TALK, tokens=last) == TALK[-1:]
    assert window(TALK, tokens=last - 1) == []
    assert estimate_tokens({"a": "bcd"}) == 3


def test_the_first_message_of_the_user_can_be_kept() -> None:
    """With keep_first the window begins with the user's first message, which counts."""
    assert window(TALK, messages=3, keep_first=True) == [TALK[0], *TALK[5:]]
    assert window(TALK, messages=9, keep_first=True) == TALK
    assert window(TALK, tokens=3, keep_first=True, counter=lambda _: 1) == [TALK[0], *TALK[5:]]
    assert window([answer("hi")], messages=1, keep_first=True) == [answer("hi")]


@st.composite
def talks(draw: st.DrawFn) -> list[Message]:
    """Draw conversations whose calls are all answered, later and in any order."""
    talk: list[Message] = []
    waiting: list[str] = []
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["user", "answer", "call", "result"]))
        if kind == "call":
            waiting.append(f"c{number}")
            talk.append(call(waiting[-1]))
        elif kind == "result" and waiting:
            talk.append(result(waiting.pop(draw(st.integers(0, len(waiting) - 1)))))
        else:
            talk.append(user(f"{number}") if kind == "user" else answer(f"{number}"))
    return talk + [result(call_id) for call_id in waiting]


@given(talks(), st.integers(0, 14), st.booleans())
def test_no_window_of_a_whole_conversation_has_half_a_pair(
    talk: list[Message], limit: int, keep: bool
) -> None:
    """N-55: whatever the limit, a window of a conversation without problems has none."""
    assert problems(window(talk, messages=limit, keep_first=keep)) == []
    assert problems(window(talk, turns=limit, keep_first=keep)) == []
    assert problems(window(talk, tokens=limit, keep_first=keep, counter=lambda _: 1)) == []


#: Conversations in which results lack their calls, calls their results, and ids are used again.
LOOSE = st.lists(
    st.sampled_from([user("u"), answer("a"), call("a"), call("a", "b"), result("a"), result("b")]),
    max_size=12,
)


@given(talks() | LOOSE, st.integers(0, 14), st.integers(1, 14))
@example([user("1"), answer("2"), result("x"), answer("3"), answer("4")], 3, 4)
def test_the_end_of_a_view_is_enough(talk: list[Message], limit: int, size: int) -> None:
    """A window of the end of a view is that of the entire view, or None."""
    for limits in (Limits(messages=limit), Limits(turns=limit), Limits(tokens=limit * 9)):
        found = cut_window(talk[-size:], limits, partial=len(talk) > size)
        assert found is None or found == cut_window(talk, limits)
    if limit < size <= len(talk) and not any(problems(talk[-size:])):
        assert cut_window(talk[-size:], Limits(messages=limit), partial=True) is not None
