"""State + event → state: pure and stable."""

import copy
from typing import Any

import msgspec
import pytest

from hansard import Event, State
from hansard.event import codec
from hansard.state import fold


def event(seq: int, kind: str, **data: Any) -> Event:
    """Return an event."""
    return Event(seq, f"2026-01-01T00:00:{seq:02d}.000000Z", kind, codec.encode(data))


EVENTS = [
    event(1, "session.created", metadata={"title": "T", "user": {"id": 1, "name": "n"}}),
    event(2, "message.added", message={"n": 1}),
    event(3, "metadata.set", metadata={"user": {"name": None, "id": 2}, "tags": ["a"]}),
    event(4, "x.todo", metadata={"title": "no"}),
    event(5, "future.kind", metadata={"title": "no"}),
    event(6, "message.added", message={"n": 2}, later=True),
    event(7, "metadata.set", metadata={"title": None, "tags": {"now": "a dict"}}, later=1),
]


def test_events_add_up() -> None:
    """Messages and kinds are counted, metadata merged; unknown kinds change nothing else (N-43)."""
    state = fold.apply_all(fold.EMPTY, EVENTS)
    assert state == State(
        seq=7,
        created=EVENTS[0].stamp,
        updated=EVENTS[-1].stamp,
        message_count=2,
        metadata={"user": {"id": 2}, "tags": {"now": "a dict"}},
        kinds={
            "session.created": 1,
            "message.added": 2,
            "metadata.set": 2,
            "x.todo": 1,
            "future.kind": 1,
        },
    )


#: The examples of RFC 7396, appendix A, that begin and end with an object.
MERGES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), MERGES)
def test_merge_is_json_merge_patch(
    target: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    """Metadata are merged as RFC 7396 specifies; the given state does not change (N-42)."""
    state = msgspec.structs.replace(fold.EMPTY, metadata=target)
    before = copy.deepcopy(target)
    merged = fold.apply_all(state, [event(1, "metadata.set", metadata=patch)])
    assert merged.metadata == result
    assert target == before


@pytest.mark.parametrize("odd", [None, [], "text", 7, True])
def test_odd_metadata_are_no_metadata(odd: Any) -> None:
    """A metadata event with invalid data changes nothing."""
    state = fold.apply_all(
        fold.EMPTY, [event(1, "metadata.set", metadata=odd), event(2, "metadata.set")]
    )
    assert (state.seq, state.metadata) == (2, {})
