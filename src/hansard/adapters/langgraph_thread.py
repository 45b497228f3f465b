"""A thread of LangGraph, folded from the events of its session.

Memory holds which checkpoints exist, where their values are, and the newest list of each channel. Values of
older checkpoints are read again on request, by their seqs. There are three kinds of events:

- `x.langgraph.checkpoint`: a checkpoint with the values of the channels that are new in it. A list, such as
  `messages`, is stored as the items that follow the part that it shares with an earlier one, `base`.
- `x.langgraph.writes`: what one task wrote, for the checkpoint that it started from.
- `x.langgraph.removed`: checkpoints that LangGraph no longer sees. Their values stay: others need them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

import hansard
from hansard.adapters.session_projection import AdapterProjection
from hansard.message import langgraph_values as values
from hansard.message.langgraph_values import CHECKPOINT, FORMAT, MARK, REMOVED, WRITES

#: Lengths of values that are not lists: a single value, and no value.
SINGLE: Final = -1
EMPTY: Final = -2

#: Events at most this far apart are read together.
_CLOSE: Final = 32

#: A namespace, and the id of a checkpoint in it.
Place = tuple[str, str]
Version = str | int | float
#: A stored value, as JSON; of a list, each item.
Stored = bytes | list[bytes]


class Mirrored(msgspec.Struct):
    """The messages that follow a checkpoint, one seq after the other: their hashes."""

    channel: str
    #: How many of those that were mirrored before are still part of the conversation.
    kept: int
    marks: list[str]


class Put(msgspec.Struct, omit_defaults=True):
    """The data of a checkpoint's event."""

    ns: str
    id: str
    versions: dict[str, Version]
    checkpoint: msgspec.Raw
    metadata: msgspec.Raw
    parent: str | None = None
    run: str | None = None
    #: By channel; null: the channel is empty.
    values: dict[str, msgspec.Raw] = {}
    mirrored: Mirrored | None = None


class Written(msgspec.Struct):
    """The data of the event of a task's writes."""

    ns: str
    checkpoint: str
    task: str
    path: str
    #: Index, channel, value. Of a channel with a negative index, only the last write counts.
    writes: list[tuple[int, str, msgspec.Raw]]


class Removed(msgspec.Struct):
    """The data of a removal: ids by namespace, or everything."""

    checkpoints: dict[str, list[str]] = {}
    all: bool = False


class StoredValue(msgspec.Struct, rename={"items": "list"}):
    """A stored value; of a list, what follows the first `keep` items of `base`."""

    items: list[msgspec.Raw] | None = None
    base: int = 0
    keep: int = 0


_read_put = msgspec.json.Decoder(Put).decode
_read_written = msgspec.json.Decoder(Written).decode
_read_removed = msgspec.json.Decoder(Removed).decode
_read_value = msgspec.json.Decoder(StoredValue | None).decode


@dataclass(slots=True, eq=False)
class Value:
    """A channel's value: its place. Of a list, also the list that it continues."""

    seq: int
    channel: str
    version: Version | None
    #: The number of items of a list, or `SINGLE` or `EMPTY`.
    length: int = SINGLE
    keep: int = 0
    base: "Value | None" = None
    #: Of the channel's newest list: its stored items, and the hashes of the first of them.
    items: list[bytes] | None = None
    marks: list[bytes] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ThreadCheckpoint:
    """A checkpoint: its place, its parent, and where its values are."""

    seq: int
    ns: str
    id: str
    parent: str | None
    run: str | None
    values: dict[str, Value] = field(default_factory=dict)
    #: LangGraph no longer sees it.
    hidden: bool = False


class Write(NamedTuple):
    """The place of one write of a task."""

    task: str
    path: str
    channel: str
    seq: int
    position: int


class Gathered(NamedTuple):
    """All that is stored of a checkpoint."""

    put: Put
    values: dict[str, Stored]
    #: Task, channel and value of each write.
    writes: list[tuple[str, str, Stored]]


class Lost(hansard.HansardError):
    """A checkpoint is built on events that were permanently removed from the session."""


class Thread(AdapterProjection):
    """One thread. Hold `lock` to read it; never append while holding it."""

    # A revert concerns the mirrored messages: checkpoints are never reverted.
    _follows_reverts = False

    def _begin(self) -> None:
        #: Whether the session's metadata mark it as a thread.
        self.marked = False
        #: Ids of the messages whose usage is recorded.
        self.counted: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        self.checkpoints: dict[Place, ThreadCheckpoint] = {}
        #: Writes, also for checkpoints that are not stored (yet), by task and index.
        self._writes: dict[Place, dict[tuple[str, int], Write]] = {}
        self._values: dict[tuple[int, str], Value] = {}
        self._versions: dict[tuple[str, str, Version], Value] = {}
        #: The newest value of each channel that is a list, with its items.
        self._newest: dict[tuple[str, str], Value] = {}
        #: The hash and the seq of each mirrored message of the conversation.
        self.mirrored: list[tuple[str, int]] = []
        #: The list that was mirrored last.
        self.mirror: Value | None = None

    def _add(self, event: hansard.Event) -> None:
        try:
            if event.kind == CHECKPOINT:
                self._add_checkpoint(event, _read_put(event.raw))
            elif event.kind == WRITES:
                self._add_writes(event, _read_written(event.raw))
            elif event.kind == REMOVED:
                self._remove(_read_removed(event.raw))
            elif event.kind == "usage.recorded":
                self.counted.add(event.data.get("response_id", ""))
            elif event.kind == "session.reverted":
                self._revert(event.data["seq"])
            elif event.kind in {"metadata.set", "session.created"}:
                mark = event.data.get("metadata", {}).get(MARK)
                self.marked = self.marked if mark is None else mark == FORMAT
        except (msgspec.MsgspecError, RecursionError):
            return  # redacted, or an application's event of the same kind

    def _revert(self, seq: int) -> None:
        """Forget mirrored messages after a seq; the saver that reverted may not have added its own."""
        while self.mirrored and self.mirrored[-1][1] > seq:
            self.mirrored.pop()
            self.mirror = None

    def _add_checkpoint(self, event: hansard.Event, put: Put) -> None:
        found = ThreadCheckpoint(event.seq, put.ns, put.id, put.parent, put.run)
        parent = self.checkpoints.get((put.ns, put.parent or ""))
        for channel, raw in put.values.items():
            self._add_value(event.seq, put, channel, bytes(raw))
        for channel, version in put.versions.items():
            # First from the parent: two of its children may have given two values the same version.
            inherited = None if parent is None else parent.values.get(channel)
            value = self._values.get((event.seq, channel))
            if value is None and inherited is not None and inherited.version == version:
                value = inherited
            value = value or self._versions.get((put.ns, channel, version))
            if value is not None:
                found.values[channel] = value
        self.checkpoints[put.ns, put.id] = found
        if put.mirrored is not None:
            self.mirror = self._values.get((event.seq, put.mirrored.channel))
            del self.mirrored[put.mirrored.kept :]
            self.mirrored += [
                (mark, event.seq + place) for place, mark in enumerate(put.mirrored.marks, 1)
            ]

    def _add_value(self, seq: int, put: Put, channel: str, raw: bytes) -> None:
        value = Value(seq, channel, put.versions.get(channel))
        read = _read_value(raw)
        before = self._newest.pop((put.ns, channel), None)
        if read is None:
            value.length = EMPTY
        elif read.items is not None:
            value.keep, value.length = read.keep, read.keep + len(read.items)
            # If its base was removed, reading the list raises `Lost`.
            value.base = self._values.get((read.base, channel)) if read.base else None
            held = (before.items if before is not None and before is value.base else None) or []
            if value.keep <= len(held):
                value.items = [*held[: value.keep], *map(bytes, read.items)]
                value.marks = before.marks[: value.keep] if before is not None else []
                self._newest[put.ns, channel] = value
        if before is not None:
            before.items, before.marks = None, []
        self._values[seq, channel] = value
        if value.version is not None:
            self._versions[put.ns, channel, value.version] = value

    def _add_writes(self, event: hansard.Event, written: Written) -> None:
        held = self._writes.setdefault((written.ns, written.checkpoint), {})
        task, path = written.task, written.path
        # The first write of a task counts; of a special channel, the last.
        for position, (index, channel, _) in enumerate(written.writes):
            if index < 0 or (task, index) not in held:
                held[task, index] = Write(task, path, channel, event.seq, position)

    def _remove(self, removed: Removed) -> None:
        if removed.all:
            self._clear()
        for ns, ids in removed.checkpoints.items():
            for checkpoint_id in ids:
                if (ns, checkpoint_id) in self.checkpoints:
                    self.checkpoints[ns, checkpoint_id].hidden = True

    def shown(self, ns: str | None = None) -> list[ThreadCheckpoint]:
        """Return the checkpoints that LangGraph sees, the newest first."""
        every = self.checkpoints.values()
        found = [one for one in every if not one.hidden and ns in {None, one.ns}]
        return sorted(found, key=lambda one: one.id, reverse=True)

    def find(self, ns: str, checkpoint_id: str | None) -> ThreadCheckpoint | None:
        """Return a checkpoint that LangGraph sees, by its id, or the newest of a namespace."""
        if checkpoint_id is None:
            return next(iter(self.shown(ns)), None)
        found = self.checkpoints.get((ns, checkpoint_id))
        return None if found is None or found.hidden else found

    def ancestors(self, checkpoint: ThreadCheckpoint) -> Iterator[ThreadCheckpoint]:
        """Yield the ancestors of a checkpoint, the nearest first, also hidden ones."""
        seen = {checkpoint.id}
        while checkpoint.parent is not None and checkpoint.parent not in seen:
            found = self.checkpoints.get((checkpoint.ns, checkpoint.parent))
            if found is None:
                return
            seen.add(found.id)
            yield found
            checkpoint = found

    def writes(self, checkpoint: ThreadCheckpoint) -> list[Write]:
        """Return the writes for a checkpoint, in the order in which they are applied."""
        held = self._writes.get((checkpoint.ns, checkpoint.id), {})
        ordered = sorted(held.items(), key=lambda one: (one[1].path, *one[0]))
        return [write for _, write in ordered]

    def newest(self, ns: str, channel: str) -> tuple[Value | None, list[bytes]]:
        """Return the newest value of a channel and its hashes, if it is a list whose base is known."""
        found = self._newest.get((ns, channel))
        if found is None or found.items is None:
            return None, []
        new = found.items[len(found.marks) :]
        found.marks += [values.mark(values.typed(item)) for item in new]
        return found, found.marks

    def gather(self, checkpoint: ThreadCheckpoint) -> Gathered:
        """Return all that is stored of a checkpoint."""
        writes = self.writes(checkpoint)
        kept = {name: one for name, one in checkpoint.values.items() if one.length != EMPTY}
        seqs = [one.seq for one in kept.values() if one.length == SINGLE]
        raws = self._fetch([checkpoint.seq, *seqs, *(write.seq for write in writes)])
        return Gathered(
            _read_put(raws[checkpoint.seq]),
            {
                name: self.items(one) if one.length != SINGLE else _packed(raws[one.seq], name)
                for name, one in kept.items()
            },
            [(write.task, write.channel, _written(raws[write.seq], write)) for write in writes],
        )

    def stored(self, value: Value) -> Stored:
        """Return a value."""
        if value.length != SINGLE:
            return self.items(value)
        return _packed(self._fetch([value.seq])[value.seq], value.channel)

    def written(self, write: Write) -> bytes:
        """Return the value of a write."""
        return _written(self._fetch([write.seq])[write.seq], write)

    def items(self, value: Value) -> list[bytes]:
        """Return the items of a list: in memory, or those of the lists that it is built on."""
        if (shared := self._shared(value)) is not None:
            return shared
        chain: list[tuple[Value, int]] = []
        cursor: Value | None = value
        end = value.length
        while end > 0:
            if cursor is None:
                raise Lost(
                    f"thread {self.handle.id!r}: the value of {value.channel!r} at seq {value.seq} is built "
                    "on events that were dropped from the session or redacted"
                )
            if end > cursor.keep:
                chain.append((cursor, end - cursor.keep))
                end = cursor.keep
            cursor = cursor.base
        raws = self._fetch(one.seq for one, _ in chain)
        found: list[bytes] = []
        for one, count in reversed(chain):
            read = _read_value(_packed(raws[one.seq], one.channel))
            found += [bytes(item) for item in (read and read.items) or ()][:count]
        return found

    def _shared(self, value: Value) -> list[bytes] | None:
        """Return the items of a list that a newest one begins with; None if none does."""
        for newest in self._newest.values():
            one: Value | None = newest
            kept = newest.length
            while one is not None and kept >= value.length and newest.items is not None:
                if one is value:
                    return newest.items[: value.length]
                kept, one = min(kept, one.keep), one.base
        return None

    def _fetch(self, seqs: Iterable[int]) -> dict[int, bytes]:
        """Return the data of events; close ones are read together."""
        found: dict[int, bytes] = {}
        events: Iterator[hansard.Event] = iter(())
        last = -_CLOSE
        for seq in sorted(set(seqs)):
            if seq - last > _CLOSE:
                events = self.handle.events(after=seq - 1)
            found[seq] = next(event.raw for event in events if event.seq == seq)
            last = seq
        return found


def _packed(raw: bytes, channel: str) -> bytes:
    return bytes(_read_put(raw).values[channel])


def _written(raw: bytes, write: Write) -> bytes:
    return bytes(_read_written(raw).writes[write.position][2])
