"""The messages of the providers' SDKs are accepted by type checkers: this file is checked by mypy."""

import pytest

import hansard

chat = pytest.importorskip("openai.types.chat")


def test_messages_of_openai_are_mappings() -> None:
    """TypedDicts of an SDK are stored as they are; so is any mapping."""
    from types import MappingProxyType

    from openai.types.chat import (
        ChatCompletionAssistantMessageParam,
        ChatCompletionMessageParam,
        ChatCompletionUserMessageParam,
    )

    asked: ChatCompletionUserMessageParam = {"role": "user", "content": "hi"}
    answered: ChatCompletionMessageParam = {"role": "assistant", "content": "hello"}
    with hansard.open("memory:") as store:
        session = store.session()
        session.add_message(asked)
        session.add_messages([answered])
        session.add_message(MappingProxyType({"role": "user", "content": "bye"}))
        session.summarize(upto=1, message=asked)
        streamed: ChatCompletionAssistantMessageParam = {"role": "assistant", "content": "good day"}
        with session.stream() as stream:
            stream.finish(streamed)
        contents = [message["content"] for message in session.messages()]
        assert contents == ["hi", "hello", "bye", "good day"]
