"""A window keeps the last messages, and no call without its result."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hansard
from hansard.message.parse import role_of
from hansard.message.tool_calls import pairs, problems
from hansard.message.window import Limits, estimate_tokens, first_messages, is_user
from hansard.message.window import window as cut_window
from tests.unit.message.frameworks import Anthropic, Bedrock, Chat, Google, Pydantic

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
    ("limit", "first"), [(7, 0), (9, 0), (6, 1), (5, 4), (4, 4), (3, 4), (2, 5), (1, 6), (0, 7)]
)
def test_a_cut_moves_on_to_a_place_that_splits_nothing(limit: int, first: int) -> None:
    """N-55: a window of n messages has at most n, and begins where no call waits for its result."""
    assert window(TALK, messages=limit) == TALK[first:]


@pytest.mark.parametrize(("turns", "first"), [(0, 7), (1, 5), (2, 0), (5, 0)])
def test_a_turn_begins_with_the_user(turns: int, first: int) -> None:
    """A window of n turns begins with the n-th last message of the user."""
    assert window(TALK, turns=turns) == TALK[first:]


def test_tokens_are_counted_by_the_caller_or_guessed() -> None:
    """A window of n tokens is counted from the end, by the caller's counter or by the estimate."""
    assert window(TALK, tokens=3, counter=lambda _: 1) == TALK[4:]
    assert window(TALK, tokens=2, counter=lambda _: 1) == TALK[5:]
    last = estimate_tokens(TALK[-1])
    assert window(TALK, tokens=last) == TALK[-1:]
    assert window(TALK, tokens=last - 1) == TALK[-1:]
    assert window(TALK, tokens=0) == []
    assert estimate_tokens({"a": "bcd"}) == 3


@pytest.mark.parametrize("keep_first", [False, True])
@pytest.mark.parametrize("heads", [0, 1, 9])
def test_what_exceeds_the_tokens_is_the_shortest_valid_list(heads: int, keep_first: bool) -> None:
    """If even the last group of messages exceeds the limit, it is the window, led by the user."""
    head = [{"role": "system", "content": "s"}] * heads
    long = "x" * 2000
    for end in ([answer(long)], [call("c"), result("c") | {"content": long}]):
        talk = [user("one"), answer("first"), user("a question"), answer("a step"), *end]
        first = talk[0] if keep_first else None

        def shown(tokens: int, talk: list[Message] = talk, first: Any = first) -> Any:
            return cut_window(
                talk, Limits(tokens=tokens), head=head, first=first, start_on=["user"]
            )

        # The first message of the user leads the last group too.
        for tokens in (1, 10, 50, 200):
            assert shown(tokens) == [*head, talk[0] if keep_first else talk[2], *end]
        assert shown(0) == [*head, *talk[: int(keep_first)]]
        assert shown(1, talk=[], first=None) == head


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
    """N-55: with any limit, a window of a conversation without problems has none."""
    assert problems(window(talk, messages=limit, keep_first=keep)) == []
    assert problems(window(talk, turns=limit, keep_first=keep)) == []
    assert problems(window(talk, tokens=limit, keep_first=keep, counter=lambda _: 1)) == []


#: Conversations in which results lack their calls, calls their results, and ids are used again.
LOOSE = st.lists(
    st.sampled_from([user("u"), answer("a"), call("a"), call("a", "b"), result("a"), result("b")]),
    max_size=12,
)


STARTS = st.sampled_from([None, ("user",), ("user", "assistant"), ("tool",)])


@given(talks() | LOOSE, st.integers(0, 14), st.integers(1, 14), STARTS, STARTS)
@example([user("1"), answer("2"), result("x"), answer("3"), answer("4")], 3, 4, None, None)
def test_the_end_of_a_view_is_enough(
    talk: list[Message], limit: int, size: int, start_on: Any, end_on: Any
) -> None:
    """A window of the end of a view is that of the entire view, or None."""
    for limits in (Limits(messages=limit), Limits(turns=limit), Limits(tokens=limit * 9)):
        roles = {"start_on": start_on, "end_on": end_on}
        found = cut_window(talk[-size:], limits, **roles, partial=len(talk) > size)
        assert found is None or found == cut_window(talk, limits, **roles)
    if limit < size <= len(talk) and not any(problems(talk[-size:])):
        # What came before the first message that was read may belong to it.
        begins_later = len(cut_window(talk[-size:], Limits(messages=limit)) or ()) < size
        found = cut_window(talk[-size:], Limits(messages=limit), partial=True)
        assert (found is not None) == begins_later


@given(talks() | LOOSE, st.integers(1, 60), STARTS, st.booleans())
def test_only_a_limit_of_0_leaves_nothing(
    talk: list[Message], most: int, start_on: Any, turns: bool
) -> None:
    """A window of a view with messages has some, and ends as the view does."""
    limits = Limits(turns=most) if turns else Limits(tokens=most)
    found = cut_window(talk, limits, start_on=start_on)
    assert found is not None
    assert found[-1:] == talk[-1:]


@given(talks(), st.integers(0, 14), st.booleans())
def test_a_window_begins_with_the_user(talk: list[Message], limit: int, keep: bool) -> None:
    """N-55: after the system message comes the user, no pair is split, and the limit holds if it can."""
    head = [{"role": "system", "content": "s"}]
    first = next((message for message in talk if is_user(message)), None)
    found = cut_window(
        talk, Limits(messages=limit), head=head, first=first if keep else None, start_on=["user"]
    )
    assert found is not None
    assert found[0] is head[0]
    kept = found[1:]
    assert problems(kept) == []
    assert kept[-1:] in ([], talk[-1:], [first])
    # A user between a call and its result cannot begin a window.
    places = [place for place in range(len(talk)) if not problems(talk[place:])]
    if kept and any(is_user(talk[place]) for place in places):
        assert is_user(kept[0])
    # Beyond the limit it has what leads it, and the last message with what belongs to it.
    rest = kept[2:] if len(found) > limit else []
    assert all(problems(rest[place:]) for place in range(1, len(rest)))


@given(
    talks() | LOOSE, st.integers(0, 14), STARTS, st.sampled_from(["messages", "turns", "tokens"])
)
def test_the_first_messages_that_fit(
    talk: list[Message], limit: int, end_on: Any, what: str
) -> None:
    """N-55: they are the longest beginning that fits, leaves no call open, and ends on a wanted role."""
    options: Any = {what: limit}
    limits = Limits(**options)

    def count(messages: list[Message]) -> int:
        if what == "messages":
            return len(messages)
        return sum(is_user(one) if what == "turns" else limits.counter(one) for one in messages)

    def whole(size: int) -> bool:
        both = [(call.place, answer.place) for call, answer in pairs(talk) if call and answer]
        return not any(place < size <= answered for place, answered in both)

    found = first_messages(talk, limits, end_on)
    assert found == talk[: len(found)]
    assert count(found) <= limit
    assert not found or end_on is None or role_of(found[-1]) in end_on
    assert whole(len(found))
    longer = [size for size in range(len(found) + 1, len(talk) + 1) if count(talk[:size]) <= limit]
    open_calls = {call["id"] for one in talk for call in one.get("tool_calls", [])}
    if end_on is None and not open_calls:
        assert longer == []


def test_a_second_result_stays_with_its_call() -> None:
    """N-55: a window has all results of a call, or none of them."""
    talk = [user("u"), call("a"), result("a"), user("v"), result("a")]
    assert window(talk, messages=1) == window(talk, messages=4) == talk[1:]


@pytest.mark.parametrize("framework", [Anthropic, Bedrock, Chat, Google, Pydantic])
@given(count=st.integers(1, 4), limit=st.integers(1, 8))
def test_calls_stay_with_their_results_in_any_shape(framework: Any, count: int, limit: int) -> None:
    """N-55: a window, also the first messages, splits no call from its result in a framework's messages."""
    talk: list[Message] = [
        message
        for turn in range(count)
        for message in framework.turn("hi", [f"{turn}a", f"{turn}b", f"{turn}c"], [])
    ]
    last = cut_window(talk, Limits(messages=limit), start_on={"user"})
    for kept in (last, first_messages(talk, Limits(messages=limit))):
        assert kept is not None
        assert framework.broken(kept) == []


def test_reasoning_stays_with_what_it_led_to() -> None:
    """OpenAI refuses an item without its reasoning, so no cut separates the two."""
    talk = [user("u"), {"type": "reasoning", "summary": []}, {"type": "message", **answer("a")}]
    assert window(talk, messages=2) == talk[1:]
    assert window(talk, messages=1) == talk[1:]


def test_a_long_view_has_the_beginning_that_it_has_now() -> None:
    """A window keeps the first finished message of the user, independent of an earlier window of the view."""
    more = [answer("a")] * 70
    with hansard.open("memory:") as store:
        session = store.session("s")
        session.add_messages(more)

        def first() -> Message:
            return session.window(messages=1, keep_first=True, start_on=None)[0]

        assert first() == answer("a")
        with session.stream(role="user", gather=0) as streamed:
            streamed.write("Hel")
            assert first() == {**user("Hel"), "partial": True}
            session.add_messages(more)
            assert first() == answer("a")
            streamed.write("lo")
        session.add_messages(more)
        assert first() == user("Hello")
        session.add_messages([user("second"), *more])
        assert first() == user("Hello")
