"""Stored JSON is returned with the same bytes and values."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from tests.properties.comparing import same

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.lists(st.dictionaries(TEXTS, ANY_JSON, max_size=4), max_size=5)


@pytest.fixture(scope="module", params=["memory", "os"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> hansard.Store:
    """Return one store for all examples, each of which uses a separate session."""
    path: Path | str = "memory:"
    if request.param == "os":
        path = tmp_path_factory.mktemp("json") / "store"
    return hansard.open(path, durability="os")


@given(messages=MESSAGES, batch=st.booleans(), last=st.integers(0, 6))
def test_messages_json_is_the_json_of_messages(
    store: hansard.Store, messages: list[dict[str, Any]], batch: bool, last: int
) -> None:
    """N-64: any JSON is returned unchanged, as values and as stored bytes."""
    session = store.session()
    if batch:
        session.add_messages(messages)
    else:
        for message in messages:
            session.add_message(message)
    assert same(session.messages()) == same(messages)
    raw = session.messages_json()
    assert raw == b"[" + b",".join(map(msgspec.json.encode, messages)) + b"]"
    assert same(json.loads(raw)) == same(session.messages())
    assert json.loads(session.messages_json(last=last)) == session.messages(last=last)
    assert [event.message for event in session.events()] == messages
