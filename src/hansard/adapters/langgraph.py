"""A checkpointer for LangGraph that keeps each thread in a session.

    from hansard.adapters.langgraph import HansardSaver

    graph = builder.compile(checkpointer=HansardSaver("data"))

A checkpoint is one append. It holds the values that are new in it, and of a list that grew, such as
`messages`, only the additions. So the cost of a step does not grow with the thread.
docs/guides/langgraph.md has the rest.
"""

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial, update_wrapper
from itertools import chain, islice
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import hansard
from hansard.adapters.langgraph_thread import (
    EMPTY,
    Gathered,
    Stored,
    Thread,
    ThreadCheckpoint,
    Value,
)
from hansard.adapters.opening import StoreLike, finished, missing, opened, settled
from hansard.message import langgraph_values as values
from hansard.message.langgraph_values import CHECKPOINT, FORMAT, MARK, REMOVED, WRITES
from hansard.message.values import common_prefix

try:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.checkpoint.serde.types import _DeltaSnapshot

    from hansard.adapters.langgraph_types import Guarded, TypeLike, guarded
except ImportError as error:
    missing("langgraph", "langgraph", "langgraph", error)

__all__ = ["HansardSaver"]

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

#: Checkpoints, each with its thread's id and its thread. In the class below, `list` is a method.
Found = list[tuple[str, Thread, ThreadCheckpoint]]

#: Checkpoints that an async listing reads in one call of a thread.
_PAGE: Final = 16


def _awaited(
    method: "Callable[Concatenate[HansardSaver, Given], Answer]",
) -> "Callable[Concatenate[HansardSaver, Given], Coroutine[Any, Any, Answer]]":
    """Return a method that runs another in a thread; a cancellation is raised when it has finished."""

    async def awaited(self: "HansardSaver", /, *args: Given.args, **named: Given.kwargs) -> Answer:
        own: Callable[Given, Answer] = getattr(self, method.__name__)
        return await finished(asyncio.to_thread(own, *args, **named))

    update_wrapper(awaited, method)
    return awaited


class HansardSaver(BaseCheckpointSaver[str]):
    """A checkpointer: each thread is the session with the thread's id.

    Any number of processes, threads and event loops can use it concurrently.

    Args:
        store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
        serde: serializes values; LangGraph's own by default.
        mirror: the channel whose messages are also added to the session as messages, so that search, replay
            and other frameworks see the conversation; None: no channel. With a serializer that is not
            LangGraph's `JsonPlusSerializer`, such as one that encrypts, nothing is mirrored.
        prefix: prefix of the session ids, before the thread's id.
        allow: your own types that values may have, or tuples of module and name, in addition to LangGraph's
            strict list. A value of any other type is refused, when stored and when read.
    """

    def __init__(
        self,
        store: StoreLike,
        *,
        serde: SerializerProtocol | None = None,
        mirror: str | None = "messages",
        prefix: str = "",
        allow: Iterable[TypeLike] = (),
    ) -> None:
        super().__init__(serde=serde or JsonPlusSerializer(allowed_msgpack_modules=None))
        self.serde = guarded(self.serde, tuple(allow))
        self._mirror = mirror
        self._store = settled(store)
        self._prefix = prefix
        self._threads = lru_cache(64)(lambda name: Thread(opened(self._store), name))

    def get_next_version(self, current: str | float | None, channel: None) -> str:  # noqa: ARG002 - LangGraph's signature
        """Return the next version: a number to compare, and a random part that tells branches apart."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        # Two runs that continue one checkpoint must not give two values one version.
        return f"{number + 1:032}.{random.randrange(10**16):016}"  # noqa: S311 - not a secret

    def with_allowlist(self, extra_allowlist: Iterable[tuple[str, ...]]) -> Self:
        """Return a saver of the same threads that allows more types; LangGraph adds a graph's types."""
        clone = copy.copy(self)
        clone.serde = guarded(self.serde, extra_allowlist)
        return clone

    # -- sessions ---------------------------------------------------------------------------------

    def _session_id(self, thread_id: object) -> str:
        return f"{self._prefix}{thread_id}"  # some programs use numbers

    def _thread(self, thread_id: str) -> Thread:
        return self._threads(self._session_id(thread_id))

    def _marked(self, thread_id: str) -> Thread:
        """Return a thread whose session is marked as one, so that `_thread_ids` finds it."""
        thread = self._thread(thread_id)
        if not thread.marked:
            thread.handle.patch_metadata({MARK: FORMAT})
        return thread

    def _thread_ids(self) -> "list[str]":
        listed = opened(self._store).sessions(prefix=self._prefix, where={MARK: FORMAT}).items
        return [info.id.removeprefix(self._prefix) for info in listed if not info.damaged]

    # -- checkpoints ------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its pending writes; without an id, the newest of its namespace."""
        thread_id, ns, checkpoint_id = _place(config)
        with self._thread(thread_id).fresh() as thread:
            found = thread.find(ns, checkpoint_id)
            gathered = None if found is None else thread.gather(found)
        return None if gathered is None else self._tuple(thread_id, gathered)

    def _load(self, stored: Stored) -> Any:
        if isinstance(stored, list):
            return [self.serde.loads_typed(values.typed(item)) for item in stored]
        return self.serde.loads_typed(values.typed(stored))

    def _tuple(self, thread_id: str, gathered: Gathered) -> CheckpointTuple:
        put, held, writes = gathered
        checkpoint = self._load(bytes(put.checkpoint))
        checkpoint["channel_versions"] = put.versions
        checkpoint["channel_values"] = {name: self._load(stored) for name, stored in held.items()}
        return CheckpointTuple(
            config=_config(thread_id, put.ns, put.id),
            checkpoint=checkpoint,
            metadata=self._load(bytes(put.metadata)),
            parent_config=None if put.parent is None else _config(thread_id, put.ns, put.parent),
            pending_writes=[(task, name, self._load(stored)) for task, name, stored in writes],
        )

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the newest first: of one thread, or of all."""
        ns = checkpoint_id = None
        if config is None:
            thread_ids = self._thread_ids()
        else:
            thread_id, _, checkpoint_id = _place(config)
            thread_ids = [thread_id]
            ns = config["configurable"].get("checkpoint_ns")
        bound = None if before is None else before["configurable"].get("checkpoint_id")
        found: Found = []
        for thread_id in thread_ids:
            with self._thread(thread_id).fresh() as thread:
                found += [
                    (thread_id, thread, one)
                    for one in thread.shown(ns)
                    if checkpoint_id in {None, one.id} and (not bound or one.id < bound)
                ]
        found.sort(key=lambda one: one[2].id, reverse=True)
        matching = (
            one
            for one in self._tuples(found)
            if all(one.metadata.get(name) == value for name, value in (filter or {}).items())
        )
        yield from matching if limit is None else islice(matching, max(limit, 0))

    def _tuples(self, found: Found) -> Iterator[CheckpointTuple]:
        for thread_id, thread, listed in found:
            with thread.fresh():
                one = thread.find(listed.ns, listed.id)  # it may have been deleted since
                gathered = None if one is None else thread.gather(one)
            if gathered is not None:
                yield self._tuple(thread_id, gathered)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and the values of the channels that are new in it: one append."""
        thread_id, ns, parent = _place(config)
        described = get_checkpoint_metadata(config, metadata)
        rest: dict[str, Any] = dict(checkpoint)
        held = rest.pop("channel_values")
        data: dict[str, Any] = {"ns": ns, "id": checkpoint["id"]}
        if parent:
            data["parent"] = parent
        if isinstance(described.get("run_id"), str):
            data["run"] = described["run_id"]
        data["versions"] = rest.pop("channel_versions")
        data["checkpoint"] = values.pack(self.serde.dumps_typed(rest))
        data["metadata"] = values.pack(self.serde.dumps_typed(described))
        new = {
            channel: _New(self.serde, held[channel]) if channel in held else None
            for channel in new_versions
        }
        self._append_put(thread_id, data, new)
        return _config(thread_id, ns, checkpoint["id"])

    def _append_put(
        self, thread_id: str, data: dict[str, Any], new: "dict[str, _New | None]"
    ) -> None:
        ns, channel = data["ns"], self._mirror
        # Another serializer may encrypt.
        readable = isinstance(self.serde, Guarded)
        mirrors = channel in new and not ns and readable
        while True:
            mirrored = None
            written: Sequence[Any] = ()
            # Each time: another saver may have deleted the thread, and its mark with it.
            with self._marked(thread_id).fresh() as thread:
                if not thread.marked:
                    continue
                data["values"] = {
                    name: None if one is None else one.packed(thread, ns, name)
                    for name, one in new.items()
                }
                if mirrors:
                    assert channel is not None
                    written = self._written(thread, data, channel)
                    mirrored = _mirrored(thread, new[channel], written)
                usage = _usage(thread, new, written) if readable else []
                expected = thread.seq
            events = [(CHECKPOINT, data), *usage]
            if mirrored is not None:
                noted = {"channel": channel, "kept": mirrored.kept, "marks": mirrored.marks}
                events[0] = (CHECKPOINT, data | {"mirrored": noted})
                events[1:1] = [("message.added", {"message": one}) for one in mirrored.messages]
            with suppress(hansard.SeqConflict):
                if mirrored is not None and mirrored.back is not None:
                    # The graph continued from an earlier checkpoint, or changed messages.
                    expected = thread.handle.revert(mirrored.back, expected_seq=expected).seq
                # A concurrent call may add the same messages, or the same usage.
                alone = expected if mirrored is not None or usage else None
                if thread.handle.append_all(events, expected_seq=alone)[0].seq > expected:
                    return
                # It is another session now: the thread was deleted, with the bases of these values.

    def _written(self, thread: Thread, data: dict[str, Any], channel: str) -> Sequence[Any]:
        """Return the writes to a channel for a checkpoint's parent, if it has no other value."""
        parent = thread.checkpoints.get(("", data.get("parent", "")))
        if data["values"][channel] is not None or parent is None:
            return ()
        writes = (write for write in thread.writes(parent) if write.channel == channel)
        return [self._load(thread.written(write)) for write in writes]

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote, for the checkpoint that it started from: one append."""
        thread_id, ns, checkpoint_id = _place(config)
        if checkpoint_id is None:
            raise ValueError("put_writes needs the checkpoint_id of the checkpoint it belongs to")
        written = [
            [WRITES_IDX_MAP.get(name, index), name, values.pack(self.serde.dumps_typed(value))]
            for index, (name, value) in enumerate(writes)
        ]
        if written:
            data = {"ns": ns, "checkpoint": checkpoint_id, "task": task_id, "path": task_path}
            self._marked(thread_id).handle.append(WRITES, {**data, "writes": written})

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> dict[str, DeltaChannelHistory]:
        """Return the writes to channels on the way to a checkpoint, since each last had a value."""
        thread_id, ns, checkpoint_id = _place(config)
        collected: dict[str, Any] = {name: [] for name in channels}
        seeds: dict[str, Stored] = {}
        with self._thread(thread_id).fresh() as thread:
            found = thread.find(ns, checkpoint_id)
            for one in () if found is None else thread.ancestors(found):
                remaining = collected.keys() - seeds.keys()
                if not remaining:
                    break
                for write in reversed(thread.writes(one)):
                    if write.channel in remaining:
                        collected[write.channel].append((write.task, thread.written(write)))
                for name in remaining:
                    value = one.values.get(name)
                    if value is not None and value.length != EMPTY:
                        seeds[name] = thread.stored(value)
        history: dict[str, DeltaChannelHistory] = {}
        for name, held in collected.items():
            writes = [(task, name, self._load(stored)) for task, stored in reversed(held)]
            history[name] = {"writes": writes}
            if name in seeds:
                history[name]["seed"] = self._load(seeds[name])
        return history

    # -- threads ----------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread permanently: it is not in the trash, and its id can be used again.

        If it was copied, the copies are built on it: then it is only emptied.
        """
        store, session_id = opened(self._store), self._session_id(thread_id)
        if store.exists(session_id):
            store.delete(session_id)
        if session_id in store.trash():
            try:
                store.purge(session_id)
            except hansard.InUse:
                session = store.restore(session_id)
                session.append(REMOVED, {"all": True})
                session.clear()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Hide the checkpoints of some runs from LangGraph, in all threads. Reads every thread."""
        wanted = set(run_ids)
        for thread_id in self._thread_ids() if wanted else ():
            with self._thread(thread_id).fresh() as thread:
                found = [one for one in thread.shown() if one.run in wanted]
            _remove(thread, found)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Hide all but the newest checkpoint of each namespace, or delete the threads.

        Older checkpoints that a `DeltaChannel` needs stay.
        """
        if strategy not in {"keep_latest", "delete"}:
            raise ValueError(f"strategy must be 'keep_latest' or 'delete', got {strategy!r}")
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            with self._thread(thread_id).fresh() as thread:
                shown = thread.shown()
            newest = {one.ns: one for one in reversed(shown)}
            _remove(thread, [one for one in shown if newest[one.ns] is not one])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread: a fork, whose cost does not depend on the length of the thread.

        `hansard.SessionExists` if the target exists.
        """
        source = self._thread(source_thread_id)
        if opened(self._store).exists(source.handle.id) and source_thread_id != target_thread_id:
            # The child inherits the mark of a thread.
            source.handle.fork(self._session_id(target_thread_id))

    # -- the same, awaited ------------------------------------------------------------------------

    aget_tuple = _awaited(get_tuple)
    aput = _awaited(put)
    aput_writes = _awaited(put_writes)
    aget_delta_channel_history = _awaited(get_delta_channel_history)
    adelete_thread = _awaited(delete_thread)
    adelete_for_runs = _awaited(delete_for_runs)
    aprune = _awaited(prune)
    acopy_thread = _awaited(copy_thread)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Do as `list` does."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while page := await finished(asyncio.to_thread(lambda: [*islice(found, _PAGE)])):
            for one in page:
                yield one


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Return the thread, the namespace and the checkpoint that a config names."""
    named = config["configurable"]
    checkpoint_id = named.get("checkpoint_id") or None
    return str(named["thread_id"]), named.get("checkpoint_ns", ""), checkpoint_id


def _config(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    named = {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
    return {"configurable": named}


def _remove(thread: Thread, found: Sequence[ThreadCheckpoint]) -> None:
    if found:
        named: dict[str, list[str]] = {}
        for one in found:
            named.setdefault(one.ns, []).append(one.id)
        thread.handle.append(REMOVED, {"checkpoints": named})


class _New:
    """A value to store. Items of a list are serialized one by one.

    Attributes:
        value: what the graph holds.
        base, keep: the list that it continues, and how much of it; None, 0 if there is none.
    """

    def __init__(self, serde: SerializerProtocol, value: Any) -> None:
        self.value = value
        self.base: Value | None = None
        self.keep = 0
        self._items = [serde.dumps_typed(item) for item in value] if type(value) is list else []
        self._marks = [values.mark(item) for item in self._items]
        self._packed = {} if self._items else values.pack(serde.dumps_typed(value))

    def packed(self, thread: Thread, ns: str, channel: str) -> dict[str, Any]:
        """Return what to store: of a list, the items after those that the newest one begins with."""
        if not self._items:
            return self._packed
        self.base, known = thread.newest(ns, channel)
        self.keep = common_prefix(self._marks, known)
        packed: dict[str, Any] = {"list": [values.pack(item) for item in self._items[self.keep :]]}
        if self.base is not None and self.keep:
            packed |= {"base": self.base.seq, "keep": self.keep}
        return packed


def _mirrored(
    thread: Thread, new: _New | None, written: Sequence[Any]
) -> values.MirrorChange | None:
    """Return how a checkpoint changes the conversation; None if it does not.

    `written`: the writes to a channel that has no other value.
    """
    more, natives = True, [item for value in written for item in _listed(value)]
    if new is not None and new.value is not None:
        # Usually all of the base was mirrored, and the rest is new.
        base = new.base
        more = base is not None and base is thread.mirror and new.keep == base.length
        natives = new.value[new.keep :] if more else _listed(new.value)
    messages = [message for message in map(_message, natives) if message is not None]
    return values.mirror_change(thread.mirrored, messages, more=more)


def _usage(
    thread: Thread, new: "dict[str, _New | None]", written: Sequence[Any]
) -> list[tuple[str, dict[str, Any]]]:
    """Return the events of the usage that new messages report, each by its id, once per thread."""
    found: dict[str, dict[str, Any]] = {}
    lists = [_listed(one.value)[one.keep :] for one in new.values() if one is not None]
    lists += map(_listed, written)
    for native in chain.from_iterable(lists):
        if isinstance(native, BaseMessage) and native.id and native.id not in thread.counted:
            usage = values.usage_of(partial(_member, native))
            if usage is not None:
                found[native.id] = {**usage, "response_id": native.id}
    return [("usage.recorded", usage) for usage in found.values()]


def _member(native: BaseMessage, name: str) -> Any:
    return getattr(native, name, None)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, _DeltaSnapshot):
        value = value.value
    return value if isinstance(value, list) else [value]


def _message(native: Any) -> dict[str, Any] | None:
    if isinstance(native, BaseMessage):
        return values.message_of(partial(_member, native))
    return values.plain_message(native)
