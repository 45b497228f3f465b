"""Fold events into a state, and save states.

`apply_all` is pure: it reads no file and no clock. An unknown kind is counted, and changes nothing else.

A saved state is a shortcut: one that cannot be read, of another version, or from before a redaction is
ignored, and the state is folded again from the first event.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from zlib import crc32

import msgspec

from hansard.backend.contract import Head, LogReader
from hansard.event import codec, kinds
from hansard.event.event import Event
from hansard.event.kinds import (
    HISTORY_DROPPED,
    MESSAGE_ADDED,
    MESSAGE_PART,
    METADATA_SET,
    SESSION_ARCHIVED,
    SESSION_CLOSED,
    SESSION_CREATED,
    SESSION_FORKED,
    SESSION_SNAPSHOTTED,
    USAGE_RECORDED,
)
from hansard.state.redaction import NOTHING, Redactions

#: Grows when the same events add up to another state.
VERSION: Final = 1

#: Events that are not activity: to title, archive or close a session, or to drop its beginning. So a listing
#: does not move it up, `latest` does not prefer it, and `prune` is not kept from it. All are control events.
HOUSEKEEPING: Final = frozenset({HISTORY_DROPPED, METADATA_SET, SESSION_ARCHIVED, SESSION_CLOSED})


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
        parent: the session it was forked from; None if it was not.
        forked_at: the parent's seq at which it was forked; 0 if it was not.
        message_count: how many messages were added.
        metadata: what `set_metadata` calls add up to.
        named: whether a person gave the title, which no program may overwrite.
        snapshots: labels and their seqs.
        usage: tokens and cost, by model.
        streams: messages being streamed, or never finished, with the seq of their last part.
        archived: whether the session was put out of the way.
        closed: whether the conversation was declared over.
        kinds: how many events there are of each kind.
    """

    seq: int = 0
    created: str = ""
    updated: str = ""
    parent: str | None = None
    forked_at: int = 0
    message_count: int = 0
    metadata: dict[str, Any] = {}
    named: bool = False
    snapshots: dict[str, int] = {}
    usage: dict[str, Usage] = {}
    streams: dict[str, int] = {}
    archived: bool = False
    closed: bool = False
    kinds: dict[str, int] = {}

    @property
    def title(self) -> str | None:
        """The title that the metadata give it."""
        return title_of(self.metadata)


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
    for event in events:
        kind = event.kind
        counts[kind] = counts.get(kind, 0) + 1
        step = _STEPS.get(kind)
        if step is not None:
            changes.update(step(state, changes, event))
    changes.setdefault("created", state.created or events[0].stamp)
    return msgspec.structs.replace(
        state,
        seq=events[-1].seq,
        updated=events[-1].stamp,
        message_count=counts.get(MESSAGE_ADDED, 0),
        kinds=counts,
        **changes,
    )


def metadata_of(events: list[Event]) -> dict[str, Any]:
    """Return what the control events of a session say about its metadata."""
    metadata: dict[str, Any] = {}
    named = False
    for event in events:
        if event.kind in _METADATA:
            named = _add_metadata(metadata, event, named=named)
    return metadata


def title_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the title among some metadata: the only place that has one."""
    title = metadata.get("title")
    return title if isinstance(title, str) else None


def merge(target: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the target with a JSON merge-patch (RFC 7396) applied; neither is changed."""
    merged = _copied(target)
    _merge_into(merged, patch)
    return merged


def _merge_into(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Apply a merge-patch to a target, in place. It must share no dict with anybody."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            old = target.get(key)
            if not isinstance(old, dict):
                old = target[key] = {}
            _merge_into(old, value)
        else:
            target[key] = value


def _copied(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata that share no dict with others; lists are never changed in place."""
    return {
        key: _copied(value) if isinstance(value, dict) else value for key, value in metadata.items()
    }


_METADATA: Final = frozenset({METADATA_SET, SESSION_CREATED})


def _add_metadata(metadata: dict[str, Any], event: Event, *, named: bool) -> bool:
    """Add to metadata what an event says; return whether their title is a person's after it."""
    if codec.is_too_deep(event.raw):
        return named
    data = event.data
    patch = data.get("metadata", {})
    if not isinstance(patch, dict):
        return named
    if "title" in patch:
        if data.get("automatic") is not True:
            named = patch["title"] is not None
        elif named:
            patch = {key: value for key, value in patch.items() if key != "title"}
    _merge_into(metadata, patch)
    return named


# Each step returns the fields that an event changes; `changes` holds those that earlier events of the same
# run have changed already. A dict in it is the run's own, copied once and changed in place: to copy it for
# each event would take the square of their number, and an attacker could choose that.


def _set_metadata(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    metadata = changes.get("metadata")
    if metadata is None:
        metadata = _copied(state.metadata)
    named = _add_metadata(metadata, event, named=changes.get("named", state.named))
    return {"metadata": metadata, "named": named}


def _fork(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    del state, changes
    read = kinds.read(event.kind, event.raw)
    if read is None:
        return {}
    # What it inherits is what was said. Whether the parent was put away is the parent's affair.
    return {
        "created": event.stamp,
        "parent": read.parent,
        "forked_at": read.seq,
        "archived": False,
        "closed": False,
    }


def _stream(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    read = kinds.read(event.kind, event.raw)
    if read is None:
        return {}
    return _streams(state, changes, read.stream, None if read.over else event.seq)


def _add_message(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    if not changes.get("streams", state.streams):
        return {}  # nearly always: nothing is being streamed
    # Its texts do not matter here, so they need not be fetched.
    read = kinds.read(event.kind, event.raw)
    if read is None or read.stream is None:
        return {}
    return _streams(state, changes, read.stream, None)


def _streams(state: State, changes: dict[str, Any], stream: str, seq: int | None) -> dict[str, Any]:
    streams = changes.get("streams")
    if streams is None:
        streams = dict(state.streams)
    streams.pop(stream, None)
    if seq is not None:
        streams[stream] = seq
    return {"streams": streams}


def _snapshot(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    read = kinds.read(event.kind, event.raw)
    if read is None:
        return {}
    snapshots = changes.get("snapshots")
    if snapshots is None:
        snapshots = dict(state.snapshots)
    snapshots[read.label] = read.seq
    return {"snapshots": snapshots}


def _record_usage(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    read = kinds.read(event.kind, event.raw)
    if read is None:
        return {}
    usage = changes.get("usage")
    if usage is None:
        usage = dict(state.usage)
    before = usage.get(read.model, Usage())
    after = Usage(
        calls=before.calls + 1,
        input_tokens=before.input_tokens + read.input_tokens,
        output_tokens=before.output_tokens + read.output_tokens,
        cost=before.cost + (read.cost or 0.0),
    )
    usage[read.model] = after
    return {"usage": usage}


def _archive(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    del state, changes
    read = kinds.read(event.kind, event.raw)
    return {} if read is None else {"archived": read.archived}


def _close(state: State, changes: dict[str, Any], event: Event) -> dict[str, Any]:
    del state, changes
    read = kinds.read(event.kind, event.raw)
    return {} if read is None else {"closed": read.closed}


_STEPS: Mapping[str, Callable[[State, dict[str, Any], Event], dict[str, Any]]] = {
    MESSAGE_ADDED: _add_message,
    MESSAGE_PART: _stream,
    METADATA_SET: _set_metadata,
    SESSION_CREATED: _set_metadata,
    SESSION_FORKED: _fork,
    SESSION_SNAPSHOTTED: _snapshot,
    USAGE_RECORDED: _record_usage,
    SESSION_ARCHIVED: _archive,
    SESSION_CLOSED: _close,
}


# -- whole logs ---------------------------------------------------------------------------------


def replay(
    log: LogReader,
    *,
    start: State = EMPTY,
    upto: int | None = None,
    redactions: Redactions = NOTHING,
) -> State:
    """Return the state after all events up to a seq, continuing from an earlier state."""
    state = start
    for chunk in log.read(after=start.seq, upto=upto):
        events = chunk.events()
        if redactions:
            events = [redactions.mask(event) for event in events]
        state = apply_all(state, events)
    return state


class _Saved(msgspec.Struct):
    version: int
    redactions: int
    state: msgspec.Raw


def save(state: State, redactions: Redactions) -> bytes:
    """Return a state as bytes, with the redactions that it was folded with."""
    raw = msgspec.json.encode(state)
    return msgspec.json.encode(_Saved(VERSION, _sum(redactions), msgspec.Raw(raw)))


def load(saved: bytes, redactions: Redactions) -> State | None:
    """Return a saved state; None if it is of another version, or if there are other redactions now."""
    try:
        found = msgspec.json.decode(saved, type=_Saved)
        if found.version != VERSION or found.redactions != _sum(redactions):
            return None
        return msgspec.json.decode(found.state, type=State)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _sum(redactions: Redactions) -> int:
    streams = (sorted(redactions.streams), sorted(redactions.gone), redactions.before)
    return crc32(repr((sorted(redactions.seqs.items()), streams)).encode())


def saved_state(log: LogReader, upto: int | None, redactions: Redactions) -> State:
    """Return the state that a compaction saved, if it is of use up to a seq; the empty one if not."""
    known = log.checkpoint()
    if known is None or (upto is not None and known.seq > upto):
        return EMPTY
    return load(known.state, redactions) or EMPTY


def latest_activity(log: LogReader, upto: int) -> str:
    """Return the latest time of activity in a session; empty if there was none.

    Reads all of it: a clock that was set back writes later events with earlier times (F-16).
    """
    return max(
        (
            event.stamp
            for chunk in log.read(upto=upto)
            for event in chunk.events()
            if event.kind not in HOUSEKEEPING
        ),
        default="",
    )


def last_activity(log: LogReader, head: Head) -> str:
    """Return the time of the last activity in a session, as RFC 3339 text: when it began, if none.

    `log` is the session itself, without what it inherits.
    """
    controls = log.controls(head.seq)
    if not controls or controls[-1].seq < head.seq or controls[-1].kind not in HOUSEKEEPING:
        return head.updated  # nearly always, and without another read
    for chunk in log.read_back(head.seq):
        for event in reversed(chunk.events()):
            if event.kind not in HOUSEKEEPING:
                return event.stamp
    return head.created
