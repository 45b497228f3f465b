"""The facade of four methods in docs/guides/tutorial.md keeps its promises."""

import re
from pathlib import Path
from typing import Any

import pytest

import hansard

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "tutorial.md"

#: The class only, without its uses on the page.
FACADE = re.findall(
    r"^class Conversation:\n(?:(?:    .*)?\n)+", GUIDE.read_text("utf-8"), re.MULTILINE
)[0]

HELLO = {"role": "user", "content": "hello"}


@pytest.fixture
def conversation() -> Any:
    """Return the guide's class."""
    names: dict[str, Any] = {}
    exec(FACADE, names)  # noqa: S102 - our own page
    return names["Conversation"]


def said(conversation: Any) -> list[str]:
    """Return the texts of a conversation."""
    return [message["content"] for message in conversation.messages()]


def test_it_saves_and_restores(conversation: Any, store: hansard.Store) -> None:
    """N-58, N-60: an id restores a conversation, each message once, with its time of creation."""
    first = conversation(store)
    first.add(HELLO)
    created = store.session(first.id).state().created
    again = conversation(store, first.id)
    assert said(again) == ["hello"]
    again.add({"role": "assistant", "content": "hi"}, key="turn-1")
    again.add({"role": "assistant", "content": "hi"}, key="turn-1")
    assert said(first) == ["hello", "hi"]
    assert store.session(first.id).state().created == created


def test_undo_takes_turns_back_and_erases_nothing(conversation: Any, store: hansard.Store) -> None:
    """N-49: each undo removes one turn from the view; the history keeps all."""
    talk = conversation(store, "s")
    for number in range(3):
        talk.add({"role": "user", "content": str(number)}, {"role": "assistant", "content": "a"})
    for left in (4, 2, 0):
        assert talk.undo()
        assert len(talk.messages()) == left
    assert not talk.undo()
    assert len(store.session("s").messages(view="history")) == 6
    talk.add(HELLO)
    talk.clear()
    assert said(talk) == []
