"""The threads of LangGraph, each as the events of its session add up to it.

What is kept in memory is small: which checkpoints there are, where their values are, and the newest value
of each channel that holds a list. A look at a thread reads only the events that are new to it. What an older
checkpoint holds is read again on request, by its seq. Three kinds of application
events:

- `x.langgraph.checkpoint`: a checkpoint with the values of the channels that are new in it. A list, such as
  `messages`, is stored as what follows the part that it has in common with an earlier one, `base`.
- `x.langgraph.writes`: what one task wrote, for the checkpoint that it began from.
- `x.langgraph.removed`: checkpoints that LangGraph sees no more. Their values stay: others are built on them.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

import hansard
from hansard.adapters.opening import ClosedPlace, Settled, StoreLike, opened, settled
from hansard.adapters.projection import Projection, Recent
from hansard.message import langgraph_values as values
from hansard.message.langgraph_values import CHECKPOINT, FORMAT, MARK, REMOVED, WRITES

#: Lengths of values that are not lists: a value that is stored as a whole, and none at all.
WHOLE: Final = -1
EMPTY: Final = -2

#: So many bytes of events that were read are kept for each thread.
_KEPT: Final = 8 * 1024 * 1024

#: What lies so close together is read in one go.
_CLOSE: Final = 32

#: A namespace, and the id of a checkpoint in it.
Place = tuple[str, str]

Version = str | int | float


class Mirrored(msgspec.Struct):
    """Which messages follow a checkpoint, one seq after the other: their hashes."""

    channel: str
    #: So many of those that were mirrored before are still part of the conversation.
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


class Written(msgspec.Struct, omit_defaults=True):
    """The data of the event of a task's writes: channels and values."""

    ns: str
    checkpoint: str
    task: str
    path: str
    #: Index, channel, value. A negative index is that of a channel of which only the last write counts.
    writes: list[tuple[int, str, msgspec.Raw]]


class Removed(msgspec.Struct, omit_defaults=True):
    """The data of a removal: ids by namespace, or everything."""

    checkpoints: dict[str, list[str]] = {}
    all: bool = False


class StoredValue(msgspec.Struct, rename={"items": "list"}):
    """A stored value as far as it is a list: what follows the first `keep` items of `base`."""

    items: list[msgspec.Raw] | None = None
    base: int = 0
    keep: int = 0


class StoredMetadata(msgspec.Struct):
    """Of an event that sets metadata: the metadata."""

    metadata: dict[str, msgspec.Raw] = {}


read_put = msgspec.json.Decoder(Put).decode
read_written = msgspec.json.Decoder(Written).decode
read_removed = msgspec.json.Decoder(Removed).decode
read_metadata = msgspec.json.Decoder(StoredMetadata).decode
read_value = msgspec.json.Decoder(StoredValue | None).decode
read_packed = msgspec.json.Decoder(dict).decode


# -- a thread -----------------------------------------------------------------------------------


class Value:
    """A channel's value: its place. Of a list, also what it grew from and into."""

    __slots__ = ("base", "channel", "grown", "items", "keep", "length", "marks", "seq", "version")

    def __init__(self, seq: int, channel: str, version: Version | None) -> None:
        self.seq = seq
        self.channel = channel
        self.version = version
        #: How many items a list has, or one of the two below.
        self.length = WHOLE
        self.keep = 0
        self.base: Value | None = None
        #: A later list that begins with all of this one.
        self.grown: Value | None = None
        #: The items as stored, of the newest list of a channel.
        self.items: list[bytes] | None = None
        #: Their hashes, as far as requested.
        self.marks: list[bytes] = []


class Checkpoint:
    """A checkpoint: its place, its parent, and where its values are."""

    __slots__ = ("hidden", "id", "ns", "parent", "run", "seq", "values", "writes")

    def __init__(self, seq: int, put: Put) -> None:
        self.seq = seq
        self.ns = put.ns
        self.id = put.id
        self.parent = put.parent
        self.run = put.run
        self.values: dict[str, Value] = {}
        self.writes: dict[tuple[str, int], Write] = {}
        self.hidden = False


def _end(value: Value) -> Value:
    """Return the last of the lists that each begin with all of the one before."""
    end = value
    while end.grown is not None:
        end = end.grown
    while value.grown is not None:
        # The way is shorter for the next who asks.
        value.grown, value = end, value.grown
    return end


class Write(NamedTuple):
    """The place of one write of a task."""

    path: str
    channel: str
    seq: int
    position: int


class Lost(hansard.HansardError):
    """A checkpoint is built on events that were taken out of the session for good."""


class Thread(Projection):
    """What is known of one thread. Hold `lock` to read it; never append while holding it."""

    def __init__(self, store: hansard.Store, session_id: str) -> None:
        self._events: OrderedDict[int, bytes] = OrderedDict()
        self._room = _KEPT
        super().__init__(store, session_id)

    def _begin(self) -> None:
        self._events.clear()
        self._bytes = 0
        #: Whether the session's metadata say that it is a thread.
        self.marked = False
        self._clear()

    def _clear(self) -> None:
        self.checkpoints: dict[Place, Checkpoint] = {}
        #: The one with the highest id, by namespace; None if it must be looked for.
        self._latest: dict[str, Checkpoint | None] = {}
        #: Of checkpoints that are not there (yet), and of those that are.
        self._writes: dict[Place, dict[tuple[str, int], Write]] = {}
        self._values: dict[tuple[int, str], Value] = {}
        self._versions: dict[tuple[str, str, Version], Value] = {}
        #: The newest value of each channel that is a list, and holds its items.
        self._newest: dict[tuple[str, str], Value] = {}
        #: What was mirrored and is part of the conversation: marks and seqs.
        self.mirrored: list[tuple[str, int]] = []
        #: The list that was mirrored last.
        self.mirror: Value | None = None

    # -- going along with the session ---------------------------------------------------------------

    def _add(self, event: hansard.Event) -> None:
        try:
            if event.kind == CHECKPOINT:
                self._add_checkpoint(event, read_put(event.raw))
            elif event.kind == WRITES:
                self._add_writes(event, read_written(event.raw))
            elif event.kind == REMOVED:
                self._remove(read_removed(event.raw))
            elif event.kind in {"metadata.set", "session.created"}:
                said = read_metadata(event.raw).metadata.get(MARK)
                if said is not None:
                    self.marked = bytes(said) == str(FORMAT).encode()
        except msgspec.MsgspecError:
            # Redacted, or an application's own event of the same kind.
            return

    def _add_checkpoint(self, event: hansard.Event, put: Put) -> None:
        self._keep(event)
        found = Checkpoint(event.seq, put)
        parent = self.checkpoints.get((put.ns, put.parent or ""))
        for channel, raw in put.values.items():
            version = put.versions.get(channel)
            value = self._add_value(event.seq, put.ns, channel, version, bytes(raw))
            if version is not None:
                self._versions[put.ns, channel, version] = value
        for channel, version in put.versions.items():
            # From the parent first: two that began from the same one may both have made the same version.
            inherited = None if parent is None else parent.values.get(channel)
            if channel in put.values:
                value = self._values[event.seq, channel]
            elif inherited is not None and inherited.version == version:
                value = inherited
            elif (known := self._versions.get((put.ns, channel, version))) is not None:
                value = known
            else:
                continue
            found.values[channel] = value
        self.checkpoints[put.ns, put.id] = found
        latest = self._latest.setdefault(put.ns, found)
        if latest is not None and latest.id <= found.id:
            self._latest[put.ns] = found
        if put.mirrored is not None:
            self.mirror = self._values.get((event.seq, put.mirrored.channel))
            del self.mirrored[put.mirrored.kept :]
            self.mirrored += [
                (mark, event.seq + place) for place, mark in enumerate(put.mirrored.marks, 1)
            ]

    def _add_value(
        self, seq: int, ns: str, channel: str, version: Version | None, raw: bytes
    ) -> Value:
        value = Value(seq, channel, version)
        read = read_value(raw)
        before = self._newest.pop((ns, channel), None)
        if read is None:
            value.length = EMPTY
        elif read.items is not None:
            items = [bytes(item) for item in read.items]
            value.keep = read.keep
            value.length = read.keep + len(items)
            if read.base:
                value.base = self._values.get((read.base, channel))
            self._grow(value, before, items)
            self._newest[ns, channel] = value
        if before is not None and before is not value.base:
            before.items, before.marks = None, []
        self._values[seq, channel] = value
        return value

    def _grow(self, value: Value, before: Value | None, items: list[bytes]) -> None:
        """Give a new list its items: those of its base, which it takes over if no other list needs them."""
        base = value.base
        if base is None:
            # If it should have one, that was removed; reading its items then raises `Lost`.
            value.items = items if not value.keep else None
            return
        if base.length == value.keep and base.grown is None:
            base.grown = value
        if base is before and base.items is not None:
            value.items, value.marks = base.items, base.marks
            base.items, base.marks = None, []
            del value.items[value.keep :], value.marks[value.keep :]
        else:
            try:
                value.items = self.items(base)[: value.keep]
            except Lost:
                return
        value.items += items

    def _add_writes(self, event: hansard.Event, written: Written) -> None:
        self._keep(event)
        place = (written.ns, written.checkpoint)
        held = self._writes.setdefault(place, {})
        # The first write of a task counts; of a special channel, the last.
        for position, (index, channel, _) in enumerate(written.writes):
            if index < 0 or (written.task, index) not in held:
                held[written.task, index] = Write(written.path, channel, event.seq, position)

    def _remove(self, removed: Removed) -> None:
        if removed.all:
            self._clear()
        for ns, ids in removed.checkpoints.items():
            for checkpoint_id in ids:
                found = self.checkpoints.get((ns, checkpoint_id))
                writes = self._writes.pop((ns, checkpoint_id), {})
                if found is not None and not found.hidden:
                    found.hidden, found.writes = True, writes
                    self._latest[ns] = None

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Hold the lock, with all that is new read; afterwards keep no more than there is room for."""
        with self.lock:
            self.refresh()
            yield
            self.let_go()

    # -- asking ---------------------------------------------------------------------------------------

    def shown(self, ns: str | None = None) -> list[Checkpoint]:
        """Return the checkpoints that LangGraph sees, the newest first."""
        found = [
            one
            for one in self.checkpoints.values()
            if not one.hidden and (ns is None or one.ns == ns)
        ]
        found.sort(key=lambda one: one.id, reverse=True)
        return found

    def find(self, ns: str, checkpoint_id: str | None) -> Checkpoint | None:
        """Return a checkpoint that LangGraph sees, by its id, or the newest of a namespace."""
        if checkpoint_id is not None:
            found = self.checkpoints.get((ns, checkpoint_id))
            return None if found is None or found.hidden else found
        latest = self._latest.get(ns)
        if latest is None and ns in self._latest:
            latest = next(iter(self.shown(ns)), None)
            if latest is not None:
                self._latest[ns] = latest
        return latest

    def ancestors(self, checkpoint: Checkpoint) -> Iterator[Checkpoint]:
        """Yield what a checkpoint comes from, the nearest first, also what LangGraph sees no more."""
        seen = {checkpoint.id}
        while checkpoint.parent is not None and checkpoint.parent not in seen:
            found = self.checkpoints.get((checkpoint.ns, checkpoint.parent))
            if found is None:
                return
            seen.add(found.id)
            yield found
            checkpoint = found

    def writes(self, checkpoint: Checkpoint) -> list[tuple[str, Write]]:
        """Return the writes for a checkpoint with their tasks, in the order in which they are applied."""
        held = (
            checkpoint.writes
            if checkpoint.hidden
            else self._writes.get((checkpoint.ns, checkpoint.id), {})
        )
        ordered = sorted(held.items(), key=lambda one: (one[1].path, *one[0]))
        return [(task, write) for (task, _), write in ordered]

    def items(self, value: Value) -> list[bytes]:
        """Return the items of a list, as stored; not to be changed."""
        waiting: list[Value] = []
        cursor: Value | None = value
        held: list[bytes] | None = None
        while cursor is not None:
            end = _end(cursor)
            if end.items is not None:
                held = end.items[: cursor.length]
                break
            waiting.append(cursor)
            cursor = cursor.base
        if held is None:
            if waiting[-1].keep:
                raise Lost(
                    f"thread {self.handle.id!r}: the value of {value.channel!r} at seq {value.seq} is built "
                    "on events that were dropped from the session or redacted"
                )
            held = []
        self.fetch(one.seq for one in waiting)
        for one in reversed(waiting):
            read = read_value(self._raw_value(one))
            if read is None or read.items is None:
                raise Lost(f"thread {self.handle.id!r}: the event at seq {one.seq} was redacted")
            held = held[: one.keep] + [bytes(item) for item in read.items]
        return held

    def marks(self, value: Value) -> list[bytes]:
        """Return what the items of the newest list of a channel are known by."""
        assert value.items is not None
        for item in value.items[len(value.marks) :]:
            value.marks.append(values.mark(values.typed(item)))
        return value.marks

    def newest(self, ns: str, channel: str) -> Value | None:
        """Return the newest value of a channel, if it is a list."""
        found = self._newest.get((ns, channel))
        return None if found is None or found.items is None else found

    def put_of(self, checkpoint: Checkpoint) -> Put:
        """Return what is stored of a checkpoint."""
        return read_put(self.raw(checkpoint.seq))

    def packed(self, value: Value) -> dict[str, object]:
        """Return a value that is not a list, as stored."""
        return read_packed(self._raw_value(value))

    def _raw_value(self, value: Value) -> bytes:
        return bytes(read_put(self.raw(value.seq)).values[value.channel])

    def written(self, write: Write) -> dict[str, object]:
        """Return the value of a write, as stored."""
        return read_packed(read_written(self.raw(write.seq)).writes[write.position][2])

    # -- events by their seqs ---------------------------------------------------------------------------

    def raw(self, seq: int) -> bytes:
        """Return the data of an event."""
        self.fetch((seq,))
        return self._events[seq]

    def fetch(self, seqs: Iterable[int]) -> None:
        """See to it that events are at hand; what lies close together is read together."""
        missing = sorted(set(seqs) - self._events.keys())
        while missing:
            last = missing[0]
            for seq in missing:
                if seq - last > _CLOSE:
                    break
                last = seq
            wanted = {seq for seq in missing if seq <= last}
            missing = missing[len(wanted) :]
            for event in self.handle.events(after=min(wanted) - 1):
                if event.seq in wanted:
                    self._events[event.seq] = event.raw
                    self._bytes += len(event.raw)
                if event.seq >= last:
                    break

    def _keep(self, event: hansard.Event) -> None:
        self._events[event.seq] = event.raw
        self._bytes += len(event.raw)
        self.let_go()

    def let_go(self) -> None:
        """Keep no more events than there is room for: the oldest go."""
        while self._bytes > self._room and len(self._events) > 1:
            _, raw = self._events.popitem(last=False)
            self._bytes -= len(raw)


class Threads:
    """The threads of one saver, and what is known of those that were used last."""

    def __init__(self, store: StoreLike, prefix: str) -> None:
        self._store: Settled | ClosedPlace = settled(store)
        self._prefix = prefix
        self._known: Recent[Thread] = Recent()

    @property
    def store(self) -> hansard.Store:
        """The store; opened when it is needed, if a path was given."""
        return opened(self._store)

    def close(self, name: str) -> None:
        """Refuse further calls, on behalf of the saver of this name."""
        self._store = ClosedPlace(name)
        self._known.forget()

    def session_id(self, thread_id: str) -> str:
        """Return the id of a thread's session."""
        return values.session_id(self._prefix, thread_id)

    def of(self, thread_id: str) -> Thread:
        """Return a thread, even if it is empty."""
        return self._known.of(self.session_id(thread_id), lambda name: Thread(self.store, name))

    def marked(self, thread_id: str) -> Thread:
        """Return a thread whose session is marked as one, so that `ids` finds it."""
        thread = self.of(thread_id)
        if not thread.marked:
            self.mark(thread.handle, thread_id)
        return thread

    def mark(self, session: hansard.Session, thread_id: str) -> None:
        """Mark a session as a thread."""
        session.patch_metadata(values.thread_metadata(self._prefix, session.id, thread_id))

    def ids(self) -> list[str]:
        """Return the ids of all threads."""
        listed = self.store.sessions(prefix=self._prefix, where={MARK: FORMAT})
        return [
            values.thread_id(self._prefix, info.id, info.metadata)
            for info in listed.items
            if not info.damaged
        ]

    def forget(self, thread_id: str) -> None:
        """Drop what is known of a thread."""
        self._known.forget(self.session_id(thread_id))
