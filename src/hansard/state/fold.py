"""Fold events into a state, and save states.

`apply_all` is pure: it reads no file and no clock. An unknown kind is counted, and changes nothing else.

A saved state saves time. One that cannot be read, of another version, or from before a redaction is ignored:
the state is then folded again from the first event.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final
from zlib import crc32

import msgspec

from hansard import clock
from hansard.backend.contract import LogReader
from hansard.event import kinds
from hansard.event.event import Event
from hansard.state.redaction import NOTHING, Redactions

#: Grows when the same events add up to another state.
VERSION: Final = 2

#: Control events that are not activity: a listing does not move the session up, `latest` does not prefer it,
#: and `prune` may move it.
HOUSEKEEPING: Final = frozenset(
    {
        kinds.HISTORY_DROPPED,
        kinds.METADATA_SET,
        kinds.SESSION_ARCHIVED,
        kinds.SESSION_CLOSED,
        kinds.SESSION_HELD,
        kinds.SESSION_RELEASED,
    }
)


class Usage(msgspec.Struct, frozen=True):
    """The recorded usage of a model: the sums of all calls.

    Attributes:
        calls: number of calls.
        input_tokens: input tokens, including cached ones.
        output_tokens: output tokens, including reasoning.
        cached_tokens: number of the input tokens that were read from a cache.
        cache_write_tokens: number of the input tokens that were written to a cache.
        reasoning_tokens: number of the output tokens that are reasoning.
        cost: the exact cost, in the currency that was recorded.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: Decimal = Decimal(0)


def add_usage(one: Usage, other: Usage | kinds.UsageRecorded) -> Usage:
    """Return the sum of two usages; costs are added exactly."""
    return Usage(
        one.calls + other.calls,
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_tokens + other.cached_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
        kinds.EXACT.add(one.cost, other.cost or 0),
    )


class State(clock.Dated, msgspec.Struct, frozen=True, rename=clock.STAMPS):
    """What a session's events add up to, without the messages.

    Attributes:
        seq: the seq of the last event; 0 for a session without events.
        created_stamp: `created` as RFC 3339 text in UTC; empty without events.
        updated_stamp: `updated` as RFC 3339 text.
        parent: the id of the session that it was forked from; None if it is not a fork.
        forked_at: the parent's seq at which it was forked; 0 if it is not a fork.
        forked_label: the name of the snapshot at which it was forked; empty if none was named.
        message_count: number of messages.
        metadata: the merged metadata.
        named: whether a person set the title; no program may overwrite it.
        snapshots: snapshot names and their seqs.
        usage: tokens and cost, by model.
        streams: unfinished streams, with the seq of their last part.
        archived: whether the session is archived.
        closed: whether the session is closed.
        holds: the reason of each legal hold: under "" of the session's own, and under the id of each held
            fork of the one that keeps what this fork inherits.
        kinds: number of events of each kind.
    """

    seq: int = 0
    created_stamp: str = ""
    updated_stamp: str = ""
    parent: str | None = None
    forked_at: int = 0
    forked_label: str = ""
    message_count: int = 0
    metadata: dict[str, Any] = {}
    named: bool = False
    snapshots: dict[str, int] = {}
    usage: dict[str, Usage] = {}
    streams: dict[str, int] = {}
    archived: bool = False
    closed: bool = False
    holds: dict[str, str] = {}
    kinds: dict[str, int] = {}

    @property
    def title(self) -> str | None:
        """The title in the metadata."""
        return title_of(self.metadata)

    @property
    def held(self) -> bool:
        """Whether the session is under a legal hold."""
        return bool(self.holds)


EMPTY = State()


def apply_all(state: State, events: list[Event]) -> State:
    """Return the state after more events; the given state does not change."""
    if not events:
        return state
    counts = dict(state.kinds)
    changes: dict[str, Any] = {}
    for event in events:
        kind = event.kind
        counts[kind] = counts.get(kind, 0) + 1
        # A message changes nothing else, unless something is being streamed, which is rare.
        if kind in kinds.KINDS and (
            kind != kinds.MESSAGE_ADDED or changes.get("streams", state.streams)
        ):
            # The event that created the session sets its metadata.
            shape = kinds.METADATA_SET if kind == kinds.SESSION_CREATED else kind
            read = kinds.read(shape, event.raw)
            if read is not None:
                _fold(state, changes, event, read)
    changes.setdefault("created_stamp", state.created_stamp or events[0].stamp)
    return msgspec.structs.replace(
        state,
        seq=events[-1].seq,
        updated_stamp=events[-1].stamp,
        message_count=counts.get(kinds.MESSAGE_ADDED, 0),
        kinds=counts,
        **changes,
    )


def title_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the title in some metadata; None if there is none."""
    title = metadata.get("title")
    return title if isinstance(title, str) else None


def _merge_into(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Apply a JSON merge-patch (RFC 7396) in place; the target must share no dict with another."""
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


def _fold(state: State, changes: dict[str, Any], event: Event, read: Any) -> None:
    """Add to `changes` the fields that an event changes, next to those that earlier events have changed.

    A dict in it is copied once and then changed in place. To copy it for each event would take the square of
    their number, which an attacker could choose.
    """
    match event.kind:
        case kinds.MESSAGE_ADDED | kinds.MESSAGE_PART:
            streams = _own(state, changes, "streams")
            streams.pop(read.stream, None)
            if event.kind == kinds.MESSAGE_PART and not read.over:
                streams[read.stream] = event.seq
        case kinds.METADATA_SET | kinds.SESSION_CREATED:
            _set_metadata(state, changes, read)
        case kinds.SESSION_ARCHIVED | kinds.SESSION_CLOSED:
            changes |= msgspec.structs.asdict(read)
        case kinds.SESSION_FORKED:
            # A fork inherits what was said, and not whether the parent was archived, closed or held.
            changes |= {"archived": False, "closed": False, "holds": {}}
            changes |= {"created_stamp": event.stamp, "parent": read.parent}
            changes |= {"forked_at": read.seq, "forked_label": read.label}
        case kinds.SESSION_HELD:
            _own(state, changes, "holds")[read.fork] = read.reason
        case kinds.SESSION_RELEASED:
            _own(state, changes, "holds").pop(read.fork, None)
        case kinds.SESSION_SNAPSHOTTED:
            _own(state, changes, "snapshots")[read.label] = read.seq
        case kinds.USAGE_RECORDED:
            usage = _own(state, changes, "usage")
            usage[read.model] = add_usage(usage.get(read.model, Usage()), read)


def _own(state: State, changes: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the dict of a field that this run may change."""
    if name not in changes:
        changes[name] = dict(getattr(state, name))
    own: dict[str, Any] = changes[name]
    return own


def _set_metadata(state: State, changes: dict[str, Any], read: kinds.MetadataSet) -> None:
    patch = read.metadata
    if "title" in patch:
        if not read.automatic:
            changes["named"] = patch["title"] is not None
        elif changes.get("named", state.named):
            # A program's title never replaces a person's.
            patch = {key: value for key, value in patch.items() if key != "title"}
    if "metadata" not in changes:
        changes["metadata"] = _copied(state.metadata)
    _merge_into(changes["metadata"], patch)


def usage_of(event: Event) -> tuple[str, Usage] | None:
    """Return the model and the usage that an event records; None if it records none."""
    read = kinds.read(event.kind, event.raw) if event.kind == kinds.USAGE_RECORDED else None
    return None if read is None else (read.model, add_usage(Usage(), read))


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


_decode_saved = msgspec.json.Decoder(_Saved).decode
_decode_state = msgspec.json.Decoder(State).decode


def save(state: State, redactions: Redactions) -> bytes:
    """Return a state as bytes, with the redactions that it was folded with."""
    raw = msgspec.json.encode(state)
    return msgspec.json.encode(_Saved(VERSION, _sum(redactions), msgspec.Raw(raw)))


def load(saved: bytes, redactions: Redactions) -> State | None:
    """Return a saved state; None if its version or its redactions differ."""
    try:
        found = _decode_saved(saved)
        if found.version != VERSION or found.redactions != _sum(redactions):
            return None
        return _decode_state(found.state)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _sum(redactions: Redactions) -> int:
    streams = (sorted(redactions.streams), sorted(redactions.gone), redactions.before)
    return crc32(repr((sorted(redactions.seqs.items()), streams)).encode())


def saved_state(log: LogReader, upto: int | None, redactions: Redactions) -> State:
    """Return the state that a compaction saved, if it is not after a seq; otherwise the empty one."""
    known = log.checkpoint()
    if known is None or (upto is not None and known.seq > upto):
        return EMPTY
    return load(known.state, redactions) or EMPTY


def continues(log: LogReader, state: State) -> bool:
    """Return whether a log has the last event of a state: an older copy of it may have been restored."""
    head = log.head()
    if head is None or head.seq <= state.seq:
        # Nearly always, and without another read.
        return head is not None and (head.seq, head.updated) == (state.seq, state.updated_stamp)
    last = [event for chunk in log.read(state.seq - 1, state.seq) for event in chunk.events()]
    return bool(last) and last[-1].stamp == state.updated_stamp


def latest_activity(log: LogReader, upto: int) -> str:
    """Return the latest time of activity in a session; empty if there was none.

    Reads all of it: after a clock was set back, later events have earlier times (F-16).
    """
    events = (event for chunk in log.read(upto=upto) for event in chunk.events())
    return max((event.stamp for event in events if event.kind not in HOUSEKEEPING), default="")
