"""State + event → state: pure and stable."""

import copy
from typing import Any

import msgspec
import pytest

from hansard import Event
from hansard.event import codec
from hansard.state import fold


def event(seq: int, kind: str, **data: Any) -> Event:
    """Return an event."""
    return Event(seq, f"2026-01-01T00:00:{seq:02d}.000000Z", kind, codec.encode(data))


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
