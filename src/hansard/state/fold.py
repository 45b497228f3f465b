"""Add an event to a state.

Above: `replay`, `session`.  Below: `event`.
Pure: reads no file, keeps no clock, and gives the same answer for the same events for ever. A kind that is
not known here is counted, and changes nothing else.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hansard.event import kinds
from hansard.event.envelope import Event
from hansard.event.kinds import (
    MESSAGE_ADDED,
    METADATA_SET,
    SESSION_ARCHIVED,
    SESSION_CLOSED,
    SESSION_CREATED,
    SESSION_SNAPSHOTTED,
    USAGE_RECORDED,
)
from hansard.event.upcast import upcast


class Usage(msgspec.Struct, frozen=True):
    """What calls of a model add up to.

    Attributes:
        calls: how many were recorded.
        input_tokens: tokens that went in.
        output_tokens: tokens that came out.
        cost: what they cost together, in whatever money was recorded.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


class State(msgspec.Struct, frozen=True):
    """Everything that a session's events add up to, without the messages themselves.

    Attributes:
        seq: the last event's seq; 0 for a session without events.
        created: when the first event was written, as RFC 3339 text; empty without events.
        updated: when the last event was written.
        message_count: how many messages were added.
        metadata: what `set_metadata` calls add up to.
        snapshots: labels and their seqs.
        usage: tokens and cost, by model.
        archived: whether the session was put out of the way.
        closed: whether the conversation was declared over.
        kinds: how many events there are of each kind.
    """

    seq: int = 0
    created: str = ""
    updated: str = ""
    message_count: int = 0
    metadata: dict[str, Any] = {}
    snapshots: dict[str, int] = {}
    usage: dict[str, Usage] = {}
    archived: bool = False
    closed: bool = False
    kinds: dict[str, int] = {}


EMPTY = State()


def apply(state: State, event: Event) -> State:
    """Return the state after one more event. The given state stays as it is."""
    return apply_all(state, [event])


def apply_all(state: State, events: list[Event]) -> State:
    """Return the state after more events: one new state, however many they are."""
    if not events:
        return state
    counts = dict(state.kinds)
    changes: dict[str, Any] = {}
    for stored in events:
        event = upcast(stored)
        kind = event.kind
        counts[kind] = counts.get(kind, 0) + 1
        step = _STEPS.get(kind)
        if step is not None:
            changes.update(step(state, changes, event))
    return msgspec.structs.replace(
        state,
        seq=events[-1].seq,
        created=state.created or events[0].stamp,
        updated=events[-1].stamp,
        message_count=counts.get(MESSAGE_ADDED, 0),
        kinds=counts,
        **changes,
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


# Each step returns the fields that an event changes; `changes` holds those that earlier events of the same
# run have changed already.


def _set_metadata(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    return {"metadata": merge(changes.get("metadata", state.metadata), _metadata(event))}


def _snapshot(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    read = kinds.read(event.kind, event.raw)
    if read is None:
        return {}
    return {"snapshots": {**changes.get("snapshots", state.snapshots), read.label: read.seq}}


def _record_usage(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    read = kinds.read(event.kind, event.raw)
    if read is None:
        return {}
    usage = changes.get("usage", state.usage)
    before = usage.get(read.model, Usage())
    after = Usage(
        calls=before.calls + 1,
        input_tokens=before.input_tokens + read.input_tokens,
        output_tokens=before.output_tokens + read.output_tokens,
        cost=before.cost + (read.cost or 0.0),
    )
    return {"usage": {**usage, read.model: after}}


def _archive(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    del state, changes, event
    return {"archived": True}


def _close(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    del state, changes, event
    return {"closed": True}


_STEPS: Mapping[str, Callable[[State, dict[str, Any], Event], dict[str, Any]]] = {
    METADATA_SET: _set_metadata,
    SESSION_CREATED: _set_metadata,
    SESSION_SNAPSHOTTED: _snapshot,
    USAGE_RECORDED: _record_usage,
    SESSION_ARCHIVED: _archive,
    SESSION_CLOSED: _close,
}
