"""Add an event to a state.

Above: `replay`, `session`.  Below: `event`.
Pure: reads no file, keeps no clock, and gives the same answer for the same events for ever. A kind that is
not known here is counted, and changes nothing else.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hansard.event.envelope import Event
from hansard.event.kinds import MESSAGE_ADDED, METADATA_SET, SESSION_CREATED
from hansard.event.upcast import upcast


class State(msgspec.Struct, frozen=True):
    """Everything that a session's events add up to, without the messages themselves.

    Attributes:
        seq: the last event's seq; 0 for a session without events.
        created: when the first event was written, as RFC 3339 text; empty without events.
        updated: when the last event was written.
        message_count: how many messages were added.
        metadata: what `set_metadata` calls add up to.
        kinds: how many events there are of each kind.
    """

    seq: int = 0
    created: str = ""
    updated: str = ""
    message_count: int = 0
    metadata: dict[str, Any] = {}
    kinds: dict[str, int] = {}


EMPTY = State()


def apply(state: State, event: Event) -> State:
    """Return the state after one more event. The given state stays as it is."""
    return apply_all(state, [event])


def apply_all(state: State, events: list[Event]) -> State:
    """Return the state after more events: one new state, however many they are."""
    if not events:
        return state
    kinds = dict(state.kinds)
    metadata = state.metadata
    message_count = state.message_count
    for stored in events:
        event = upcast(stored)
        kind = event.kind
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind == MESSAGE_ADDED:
            message_count += 1
        elif kind in _METADATA:
            metadata = merge(metadata, _METADATA[kind](event))
    return State(
        seq=events[-1].seq,
        created=state.created or events[0].stamp,
        updated=events[-1].stamp,
        message_count=message_count,
        metadata=metadata,
        kinds=kinds,
    )


def metadata_of(events: list[Event]) -> dict[str, Any]:
    """Return what the control events of a session say about its metadata."""
    metadata: dict[str, Any] = {}
    for event in events:
        if event.kind in _METADATA:
            metadata = merge(metadata, _METADATA[event.kind](event))
    return metadata


def merge(target: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the target with a JSON merge-patch (RFC 7396) applied; neither is changed."""
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            old = merged.get(key)
            merged[key] = merge(old if isinstance(old, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def _metadata(event: Event) -> dict[str, Any]:
    found = event.data.get("metadata", {})
    return found if isinstance(found, dict) else {}


_METADATA: Mapping[str, Callable[[Event], dict[str, Any]]] = {
    METADATA_SET: _metadata,
    SESSION_CREATED: _metadata,
}
