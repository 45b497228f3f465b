"""A repaired window keeps the rules of every provider, for any session.

The rules are those that the servers check, from their documentation and error messages:

- OpenAI chat: `tool` messages directly after the message that calls, one for each call; content, unless the
  message calls; no empty `tool_calls`; no unknown members.
- OpenAI Responses: an output for each call and the reverse; after a reasoning item the model's next item.
- Anthropic: the first message is the user's, roles alternate, no message or text block is empty, no thinking
  ends a message, and the results of a `tool_use` begin the next message.
- Google: the first turn is the user's, turns alternate, no turn is empty, and a turn of calls is followed by
  one with as many responses and nothing else.
"""

import itertools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hansard
from hansard.message.parse import role_of
from hansard.message.provider_rules import accepted, filled
from tests.unit.message.frameworks import Anthropic, Chat, Google, Message, Responses, Talk
from tests.unit.message.test_repair import complete_talks, damaged_talks

#: What an agent stores next to a well-formed conversation.
EXTRA: list[Message] = [
    {"role": "user", "content": ""},
    {"role": "user", "content": " \n"},
    {"role": "user", "content": "again"},
    {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "more"}]},
    {"role": "assistant", "content": "", "partial": True},
    {"role": "assistant", "content": "hal", "partial": True},
    {"role": "assistant", "content": [{"type": "text", "text": ""}]},
    {"role": "assistant", "content": "one thing", "tool_calls": []},
    {"role": "assistant", "content": None},
]


@st.composite
def histories(draw: st.DrawFn, framework: Any) -> Talk:
    """Return a conversation with damage, empty and repeated messages, and a system message."""
    whole = complete_talks(framework)
    talk = draw(whole | damaged_talks(framework) if framework is not Responses else whole)
    for message in draw(st.lists(st.sampled_from(EXTRA), max_size=4)):
        [own] = contents([message]) if framework is Google else [message]
        talk.insert(draw(st.integers(0, len(talk))), own)
    system = [{"role": "system", "content": "be kind"}]
    return draw(st.sampled_from([[], system])) + talk


#: Options of `window`.
LIMITS: Any = st.fixed_dictionaries(
    {},
    optional={
        "messages": st.integers(1, 12),
        "turns": st.integers(1, 4),
        "tokens": st.integers(10, 400),
        "keep_first": st.booleans(),
        "keep_system": st.booleans(),
        "end_on": st.sampled_from([("user", "tool"), "assistant"]),
    },
)


def windows(data: st.DataObject, framework: Any) -> Talk:
    """Return a repaired window of a session with a drawn history that the user began."""
    talk = data.draw(histories(framework))
    with hansard.open("memory:") as store:
        session = store.session()
        session.add_messages(talk)
        if len(talk) > 2 and not data.draw(st.integers(0, 3)):
            role = data.draw(st.sampled_from(["system", "user"]))
            upto = data.draw(st.integers(1, len(talk)))
            summary = [{"role": role, "content": "so far"}]
            [own] = contents(summary) if (framework, role) == (Google, "user") else summary
            session.summarize(upto=upto, message=own)
        shown = session.window(**data.draw(LIMITS), repair=True)
        roles = [role_of(message) for _, message in filled(session.numbered())]
    # A conversation that the assistant begins may have no message of the user that could come first.
    assume(next((role for role in roles if role != "system"), "") == "user")
    return shown


def without_system(talk: Talk) -> Talk:
    """Return the messages for an interface that takes the system messages separately."""
    return [message for message in talk if message["role"] != "system"]


def is_empty(content: Any) -> bool:
    """Return whether content has no text, or a block has none."""
    if isinstance(content, list):
        return not content or any(
            block["type"] == "text" and not block["text"].strip() for block in content
        )
    return not (content or "").strip()


@given(data=st.data())
def test_openai_chat_accepts_a_repaired_window(data: st.DataObject) -> None:
    """N-55: every repaired window of chat messages keeps the rules of OpenAI's chat completions."""
    talk = windows(data, Chat)
    assert Chat.broken(talk) == []
    for message in talk:
        assert message["role"] in {"system", "user", "assistant", "tool"}
        assert message.keys() <= {"role", "content", "tool_calls", "tool_call_id", "name"}
        calls = [call["id"] for call in message.get("tool_calls", [{"id": ""}])]
        assert len({*calls}) == len(calls) > 0
        assert "tool_calls" in message or not is_empty(message["content"])


@given(data=st.data())
def test_openai_responses_accept_a_repaired_window(data: st.DataObject) -> None:
    """N-55: every repaired window of items keeps the rules of OpenAI's Responses."""
    talk = windows(data, Responses)
    calls = [
        item["call_id"]
        for item in talk
        if item.get("type", "").endswith("_call") and "call_id" in item
    ]
    outputs = [item["call_id"] for item in talk if item.get("type", "").endswith("_output")]
    assert sorted(calls) == sorted(outputs)
    for item, following in itertools.pairwise([*talk, {"role": "user"}]):
        if item.get("type") == "reasoning":
            assert role_of(following) == "assistant"
        assert "role" not in item or item["role"] == "assistant" or not is_empty(item["content"])


@given(data=st.data())
def test_anthropic_accepts_a_repaired_window(data: st.DataObject) -> None:
    """N-55: every repaired window of Anthropic's messages keeps its rules."""
    talk = without_system(windows(data, Anthropic))
    assert Anthropic.broken(talk, server=False) == []
    assert [m["role"] for m in talk] == [
        r for r, _ in zip(itertools.cycle(["user", "assistant"]), talk, strict=False)
    ]
    assert not any(is_empty(message["content"]) for message in talk)
    for message in talk:
        blocks = message["content"] if isinstance(message["content"], list) else []
        uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert len({*uses}) == len(uses)
        assert not blocks or blocks[-1]["type"] != "thinking"


@given(data=st.data())
def test_google_accepts_a_repaired_window(data: st.DataObject) -> None:
    """N-55: every repaired window of chat messages, converted, or of Google's contents keeps its rules."""
    framework = data.draw(st.sampled_from([Chat, Google]))
    turns = contents(without_system(windows(data, framework)))
    assert not turns or turns[0]["role"] == "user"
    called = 0
    before = "model"
    for turn in turns:
        kinds = {kind for part in turn["parts"] for kind in part}
        responses = [part for part in turn["parts"] if "functionResponse" in part]
        assert kinds
        assert not any(part.get("text", "x").strip() == "" for part in turn["parts"])
        assert len(responses) == called
        assert not responses or kinds == {"functionResponse"}
        assert turn["role"] != before or before == "answers"
        called = sum("functionCall" in part for part in turn["parts"])
        before = "answers" if responses else turn["role"]
    assert called == 0


def contents(talk: Talk) -> Talk:
    """Return chat messages as Google's contents, in the way its clients convert them."""
    found: Talk = []
    for message in talk:
        if message["role"] == "tool":
            part = {"functionResponse": {"name": "f", "response": {"result": message["content"]}}}
            if found[-1]["parts"][0].keys() == part.keys():
                found[-1]["parts"].append(part)
            else:
                found.append({"role": "user", "parts": [part]})
            continue
        if "parts" in message:
            found.append(message)
            continue
        content = message["content"] or []
        texts = [content] if isinstance(content, str) else [block["text"] for block in content]
        parts: Talk = [{"text": text} for text in texts]
        parts += [{"functionCall": {"name": "f"}} for _ in message.get("tool_calls", [])]
        found.append({"role": "user" if message["role"] == "user" else "model", "parts": parts})
    return found


@pytest.mark.parametrize("framework", [Chat, Responses, Anthropic])
@given(data=st.data())
def test_a_repair_is_final_and_changes_nothing_else(framework: Any, data: st.DataObject) -> None:
    """N-55: a repaired list needs no repair, and a valid conversation has the same message objects."""
    talk = data.draw(complete_talks(framework))
    assert all(new is old for new, old in zip(accepted(talk), talk, strict=True))
    repaired = accepted(data.draw(histories(framework)))
    assert accepted(repaired) == repaired


def test_thinking_that_led_to_nothing_is_left_out() -> None:
    """Anthropic refuses a message that ends with thinking, as a killed stream or a lost call leaves it."""
    thought: Message = {"type": "thinking", "thinking": "hm", "signature": "s"}
    hidden: Message = {"type": "redacted_thinking", "data": "x"}
    hosted: Message = {"type": "server_tool_use", "id": "h", "name": "web_search", "input": {}}
    text: Message = {"type": "text", "text": "so"}

    def repaired(*blocks: Message, **more: Any) -> Talk:
        ask, go_on = {"role": "user", "content": "a"}, {"role": "user", "content": "b"}
        return accepted([ask, {"role": "assistant", "content": [*blocks], **more}, go_on])

    joined = [{"role": "user", "content": "a\n\nb"}]
    assert repaired(thought) == repaired(thought, hidden) == repaired(thought, hosted) == joined
    assert repaired(thought, text, hidden)[1]["content"] == [thought, text]
    # A call outside of the content, as LangChain writes it.
    assert repaired(thought, tool_calls=[{"id": "c"}])[1]["content"] == [thought]
    # Neighbors of the model's become one message, in which the thinking is not last.
    parts: Talk = [{"role": "assistant", "content": [block]} for block in (thought, text)]
    assert accepted(parts) == [{"role": "assistant", "content": [thought, text]}]
    item: Message = {"type": "reasoning", "id": "r", "summary": [], "content": []}
    assert accepted([item, {"type": "function_call", "call_id": "c", "name": "f"}])[0] is item


def test_neighbors_of_the_same_role_are_joined() -> None:
    """Texts are joined by a blank line, blocks and parts as lists; messages with more members stay apart."""

    def user(content: Any, **more: Any) -> Message:
        return {"role": "user", "content": content, **more}

    image: Message = {"type": "image_url", "image_url": {"url": "x"}}
    text = {"type": "text", "text": "one"}
    assert accepted([user("one"), user("two")]) == [user("one\n\ntwo")]
    assert accepted([user("one"), user([image])]) == [user([text, image])]
    named = [user("one", name="a"), user("two", name="b")]
    assert accepted(named) == named
    parts: Talk = [{"role": "model", "parts": [{"text": one}]} for one in "ab"]
    assert accepted(parts) == [{"role": "model", "parts": [{"text": "a"}, {"text": "b"}]}]
    calls = [{"id": "c"}]
    said: Talk = [
        {"role": "assistant", "content": "so"},
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]
    assert accepted(said)[0] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "so"}],
        "tool_calls": calls,
    }
    data: Talk = [
        {"type": "item_reference", "id": "i"},
        {"role": "assistant", "content": "", "audio": {"id": "a"}},
    ]
    assert accepted(data) == data
