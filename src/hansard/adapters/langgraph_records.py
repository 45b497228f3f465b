"""What LangGraph holds, turned into what is stored of it, and back.

Above: `langgraph`.  Below: `langgraph_events`, `langgraph_thread`, `langgraph_values`, `values`.
`New` and `Held` are a channel's value on its way in and out; `Gathered` is a checkpoint on its way out.
`Said` is what a checkpoint adds to the conversation that everybody can read. `copied` is a thread on its way
into another one.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from hansard.adapters import langgraph_values as values
from hansard.adapters.langgraph_thread import (
    CHECKPOINT,
    EMPTY,
    REMOVED,
    WRITES,
    Checkpoint,
    Mirrored,
    Thread,
    Value,
)
from hansard.adapters.opening import missing
from hansard.adapters.values import as_json, as_text

try:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.types import _DeltaSnapshot
except ImportError as error:
    missing("langgraph", "langgraph", "langgraph", error)

_ROLES: Final = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="sorted").encode


def load(serde: SerializerProtocol, packed: dict[str, Any]) -> Any:
    """Return a value from what is stored of it."""
    return serde.loads_typed(values.unpack(packed))


def config_of(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    """Return how LangGraph names a checkpoint."""
    named = {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
    return {"configurable": named}


# -- values -------------------------------------------------------------------------------------


class New:
    """A value that is about to be stored. Items of a list are serialized one by one.

    Attributes:
        value: what the graph holds.
        base, keep: the list that it begins like, and how much of it; None, 0 if there is none.
    """

    def __init__(self, serde: SerializerProtocol, value: Any) -> None:
        self.value = value
        self.base: Value | None = None
        self.keep = 0
        if type(value) is list and value:
            self._items = [serde.dumps_typed(item) for item in value]
            self._marks = [values.mark(item) for item in self._items]
        else:
            self._items = []
            self._packed = values.pack(serde.dumps_typed(value))

    def packed(self, thread: Thread, ns: str, channel: str) -> dict[str, Any]:
        """Return what is to be stored: of a list, what is not at the beginning of the newest one."""
        if not self._items:
            return self._packed
        self.base, self.keep = thread.newest(ns, channel), 0
        if self.base is not None:
            for mine, known in zip(self._marks, thread.marks(self.base), strict=False):
                if mine != known:
                    break
                self.keep += 1
        packed: dict[str, Any] = {"list": [values.pack(item) for item in self._items[self.keep :]]}
        if self.base is not None and self.keep:
            packed |= {"base": self.base.seq, "keep": self.keep}
        return packed


class Held:
    """A stored value that was taken out of a thread, to be turned into what it was."""

    __slots__ = ("_items", "_packed")

    def __init__(self, thread: Thread, value: Value) -> None:
        self._items: list[bytes] | None = None
        self._packed: dict[str, Any] = {}
        if value.length < 0:
            self._packed = thread.packed(value)
        else:
            self._items = list(thread.items(value))

    def told(self, serde: SerializerProtocol) -> Any:
        """Return the value."""
        if self._items is None:
            return load(serde, self._packed)
        return [serde.loads_typed(values.typed(item)) for item in self._items]


class Gathered:
    """All that is stored of a checkpoint, taken out of a thread while its lock was held."""

    def __init__(self, thread: Thread, checkpoint: Checkpoint) -> None:
        self._put = thread.put_of(checkpoint)
        self._values = {
            channel: Held(thread, value)
            for channel, value in checkpoint.values.items()
            if value.length != EMPTY
        }
        ordered = thread.writes(checkpoint)
        thread.fetch(write.seq for _, write in ordered)
        self._writes = [(task, write.channel, thread.written(write)) for task, write in ordered]

    def told(self, serde: SerializerProtocol, thread_id: str) -> CheckpointTuple:
        """Return the checkpoint as LangGraph has it."""
        put = self._put
        checkpoint = load(serde, _decode(put.checkpoint))
        checkpoint["channel_versions"] = put.versions
        checkpoint["channel_values"] = {
            channel: held.told(serde) for channel, held in self._values.items()
        }
        return CheckpointTuple(
            config=config_of(thread_id, put.ns, put.id),
            checkpoint=checkpoint,
            metadata=load(serde, _decode(put.metadata)),
            parent_config=None if put.parent is None else config_of(thread_id, put.ns, put.parent),
            pending_writes=[
                (task, channel, load(serde, packed)) for task, channel, packed in self._writes
            ],
        )


# -- the conversation ---------------------------------------------------------------------------


class Said:
    """What a checkpoint adds to the conversation, compared with what was mirrored before.

    Attributes:
        messages: what is new.
        back: the seq to which the conversation goes back before that; None if it only goes on.
        noted: what the checkpoint's event says about it; None if nothing changes.
    """

    def __init__(
        self, thread: Thread, channel: str, new: New | None, written: Sequence[Any]
    ) -> None:
        """`written`: what was written to a channel of which only that is stored."""
        known = [mark for mark, _ in thread.mirrored]
        if new is None or new.value is None:
            kept, natives = len(known), [item for value in written for item in _listed(value)]
        elif new.base is not None and new.base is thread.mirror and new.keep == new.base.length:
            # All of it was mirrored, and the rest is new: as it is nearly always.
            kept, natives = len(known), new.value[new.keep :]
        else:
            kept, natives = 0, _listed(new.value)
        messages = [message for message in map(_message, natives) if message is not None]
        marks = [blake2b(_encode(message), digest_size=16).hexdigest() for message in messages]
        common = 0
        if not kept:
            for mark, before in zip(marks, known, strict=False):
                if mark != before:
                    break
                common += 1
            kept = common
        self.messages = messages[common:]
        self.back: int | None = None
        if kept < len(known):
            self.back = thread.mirrored[kept - 1][1] if kept else thread.mirrored[0][1] - 1
        self.noted: dict[str, Any] | None = None
        if self.messages or self.back is not None:
            self.noted = msgspec.to_builtins(Mirrored(channel, kept, marks[common:]))


def _listed(value: Any) -> list[Any]:
    if isinstance(value, _DeltaSnapshot):
        value = value.value
    return value if isinstance(value, list) else [value]


def _message(native: Any) -> dict[str, Any] | None:
    """Return a message as everybody reads it; None if it is none."""
    if isinstance(native, BaseMessage):
        role = _ROLES.get(native.type, native.type)
        message: dict[str, Any] = {"role": role, "content": native.content}
        calls = [_call(call) for call in getattr(native, "tool_calls", ())]
        if calls:
            message["tool_calls"] = calls
        for name in ("tool_call_id", "name"):
            if isinstance(found := getattr(native, name, None), str):
                message[name] = found
        if native.type == "remove":
            return None
    elif isinstance(native, dict) and isinstance(native.get("role"), str) and "content" in native:
        message = dict(native)
    else:
        return None
    return dict(as_json(message))


def _call(call: Any) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": as_text(call["args"])}
    return {"id": call["id"] or "", "type": "function", "function": function}


# -- to another thread --------------------------------------------------------------------------


def copied(source: Thread, after: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the events that add all that a thread holds to another one, whose last seq is `after`."""
    events: list[tuple[str, dict[str, Any]]] = []
    hidden: dict[str, list[str]] = {}
    places: dict[int, int] = {}
    ordered = sorted(source.checkpoints.values(), key=lambda one: one.seq)
    for one in ordered:
        places[one.seq] = after + len(events) + 1
        events.append((CHECKPOINT, _copied_put(source, one, places)))
        events += ((WRITES, data) for data in _copied_writes(source, one))
        if one.hidden:
            hidden.setdefault(one.ns, []).append(one.id)
    if hidden:
        events.append((REMOVED, {"checkpoints": hidden}))
    return events


def _copied_put(source: Thread, one: Checkpoint, places: dict[int, int]) -> dict[str, Any]:
    data: dict[str, Any] = _decode(source.raw(one.seq))
    data.pop("mirrored", None)
    data["values"] = told = {}
    for channel, value in one.values.items():
        if value.seq != one.seq and value.seq in places:
            continue  # it is found by its version
        if value.length < 0:
            told[channel] = source.packed(value) if value.length != EMPTY else None
            continue
        items = [_decode(item) for item in source.items(value)]
        told[channel] = {"list": items}
        if value.seq == one.seq and value.base is not None and value.base.seq in places:
            place = {"base": places[value.base.seq], "keep": value.keep}
            told[channel] = {"list": items[value.keep :], **place}
    return data


def _copied_writes(source: Thread, one: Checkpoint) -> Iterator[dict[str, Any]]:
    for seq in sorted({write.seq for _, write in source.writes(one)}):
        data: dict[str, Any] = _decode(source.raw(seq))
        yield data
