"""LangGraph: a checkpointer that keeps each thread in a session.

    from hansard.adapters.langgraph import HansardSaver

    graph = builder.compile(checkpointer=HansardSaver("data"))

A checkpoint is one append. It has in it what is new in it, and of a list that grew, such as `messages`, what
was added: what a step writes does not grow with the thread. docs/guides/langgraph.md has the rest.
"""

import asyncio
import copy
import random
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from functools import update_wrapper
from itertools import count, islice
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import hansard
from hansard import aio
from hansard.adapters.langgraph_thread import EMPTY, Checkpoint, Thread, Threads
from hansard.adapters.opening import StoreLike, missing
from hansard.message import langgraph_values as values
from hansard.message.langgraph_values import CHECKPOINT, REMOVED, WRITES

try:
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
except ImportError as error:
    missing("langgraph", "langgraph", "langgraph", error)


from hansard.adapters import langgraph_records as records

__all__ = ["HansardSaver"]

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

#: Checkpoints, each with the id of its thread. In the class below, `list` is a method.
Found = list[tuple[str, Checkpoint]]
Written = list[tuple[str, dict[str, Any]]]

#: So many checkpoints are taken together when they are listed.
_PAGE: Final = 16
#: After this many conflicts with other writers, a checkpoint is put without messages; the next catches up.
_ATTEMPTS: Final = 8


def _awaited(
    method: "Callable[Concatenate[HansardSaver, Given], Answer]",
) -> "Callable[Concatenate[HansardSaver, Given], Coroutine[Any, Any, Answer]]":
    """Return a method that does the same in a thread; a cancellation is raised when it has finished."""

    async def awaited(self: "HansardSaver", /, *args: Given.args, **named: Given.kwargs) -> Answer:
        own: Callable[Given, Answer] = getattr(self, method.__name__)
        return await self._workers.run(lambda: own(*args, **named))

    update_wrapper(awaited, method)
    return awaited


class HansardSaver(BaseCheckpointSaver[str]):
    """A checkpointer: each thread is a session of a store, with the thread's id.

    For any number of processes, threads and event loops at a time.

    Args:
        store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
        serde: turns values into bytes; LangGraph's own, if it is not given.
        mirror: the channel whose messages are added to the session as messages, too, so that search, replay
            and other frameworks see the conversation. None: none. With a serializer that is not LangGraph's
            `JsonPlusSerializer`, such as one that encrypts, nothing is mirrored.
        prefix: what the ids of the sessions begin with, before the thread's id.
        allow: types of your own that values may have, or tuples of module and name; besides them, those of
            LangGraph's strict list. A value of any other type is refused, when stored and when read.
    """

    def __init__(
        self,
        store: StoreLike,
        *,
        serde: SerializerProtocol | None = None,
        mirror: str | None = "messages",
        prefix: str = "",
        allow: Iterable[records.TypeLike] = (),
    ) -> None:
        super().__init__(serde=serde or JsonPlusSerializer(allowed_msgpack_modules=None))
        self.serde = records.guarded(self.serde, tuple(allow))
        self._mirror = mirror
        self._threads = Threads(store, prefix)
        self._workers = aio.Pool("LangGraph")

    def close(self) -> None:
        """Finish the calls that have begun, and refuse further ones with `hansard.Closed`.

        The store stays open for others.
        """
        self._threads.close(repr(self))
        self._workers.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def get_next_version(self, current: str | float | None, channel: None) -> str:  # noqa: ARG002 - LangGraph's own shape
        """Return the next version: a number to compare by, and a random part that tells branches apart."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        # Two runs that continue one checkpoint must not give two values one version.
        return f"{number + 1:032}.{random.randrange(10**16):016}"  # noqa: S311 - not a secret

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Return a saver of the same threads that allows more types; LangGraph adds a graph's own with it."""
        clone = copy.copy(self)
        clone.serde = records.guarded(self.serde, extra_allowlist)
        return clone

    # -- checkpoints ------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with what is pending for it; the newest of its namespace, if none is named."""
        thread_id, ns, checkpoint_id = _place(config)
        thread = self._threads.of(thread_id)
        with thread.fresh():
            found = thread.find(ns, checkpoint_id)
            gathered = None if found is None else records.Gathered(thread, found)
        return None if gathered is None else gathered.told(self.serde, thread_id)

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
            thread_ids = self._threads.ids()
        else:
            thread_id, _, checkpoint_id = _place(config)
            thread_ids = [thread_id]
            ns = config["configurable"].get("checkpoint_ns")
        bound = None if before is None else before["configurable"].get("checkpoint_id")
        found: Found = []
        for thread_id in thread_ids:
            thread = self._threads.of(thread_id)
            with thread.fresh():
                found += [(thread_id, one) for one in thread.shown(ns)]
        found = [
            (thread_id, one)
            for thread_id, one in found
            if (not checkpoint_id or one.id == checkpoint_id) and (not bound or one.id < bound)
        ]
        found.sort(key=lambda one: one[1].id, reverse=True)
        matching = (
            one
            for one in self._told(found)
            if all(one.metadata.get(name) == value for name, value in (filter or {}).items())
        )
        yield from matching if limit is None else islice(matching, max(limit, 0))

    def _told(self, found: Sequence[tuple[str, Checkpoint]]) -> Iterator[CheckpointTuple]:
        for start in range(0, len(found), _PAGE):
            gathered = []
            for thread_id, one in found[start : start + _PAGE]:
                thread = self._threads.of(thread_id)
                with thread.lock:
                    gathered.append((thread_id, records.Gathered(thread, one)))
                    thread.let_go()
            for thread_id, each in gathered:
                yield each.told(self.serde, thread_id)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and the values of the channels that are new in it: one append."""
        thread_id, ns, parent = _place(config)
        told = get_checkpoint_metadata(config, metadata)
        rest: dict[str, Any] = dict(checkpoint)
        held = rest.pop("channel_values")
        data: dict[str, Any] = {"ns": ns, "id": checkpoint["id"]}
        if parent:
            data["parent"] = parent
        if isinstance(told.get("run_id"), str):
            data["run"] = told["run_id"]
        data["versions"] = rest.pop("channel_versions")
        data["checkpoint"] = values.pack(self.serde.dumps_typed(rest))
        data["metadata"] = values.pack(self.serde.dumps_typed(told))
        new = {
            channel: records.New(self.serde, held[channel]) if channel in held else None
            for channel in new_versions
        }
        self._append_put(thread_id, data, new)
        return records.config_of(thread_id, ns, checkpoint["id"])

    def _append_put(
        self, thread_id: str, data: dict[str, Any], new: dict[str, records.New | None]
    ) -> None:
        ns, channel = data["ns"], self._mirror
        mirrors = channel in new and not ns and isinstance(self.serde, records.Guarded)
        for attempt in count():
            said = None
            # Each time: the thread may have been deleted since, by another saver, and its mark with it.
            thread = self._threads.marked(thread_id)
            with thread.fresh():
                if not thread.marked:
                    continue
                data["values"] = {
                    name: None if one is None else one.packed(thread, ns, name)
                    for name, one in new.items()
                }
                if mirrors and attempt < _ATTEMPTS:
                    assert channel is not None
                    said = records.MirroredMessages(
                        thread, channel, new[channel], self._written(thread, data, channel)
                    )
                expected = thread.seq
            if said is None or said.noted is None:
                if thread.handle.append(CHECKPOINT, data).seq > expected:
                    return
                # It is another session by now: the thread was deleted, and what this is built on with it.
                continue
            if said.back is not None:
                # The graph went on from an earlier place, or changed what was said: so does this.
                reverted = thread.handle.revert(said.back).seq
                expected += reverted == expected + 1
            events = [(CHECKPOINT, data | {"mirrored": said.noted})]
            events += [("message.added", {"message": message}) for message in said.messages]
            with suppress(hansard.SeqConflict):
                thread.handle.append_all(events, expected_seq=expected)
                return

    def _written(self, thread: Thread, data: dict[str, Any], channel: str) -> Sequence[Any]:
        """Return what was written to a channel for a checkpoint's parent, if only that is stored of it."""
        parent = thread.checkpoints.get(("", data.get("parent", "")))
        if data["values"][channel] is not None or parent is None:
            return ()
        written = (write for _, write in thread.writes(parent) if write.channel == channel)
        return [records.load(self.serde, thread.written(write)) for write in written]

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote, for the checkpoint that it began from: one append."""
        thread_id, ns, checkpoint_id = _place(config)
        if checkpoint_id is None:
            raise ValueError("put_writes needs the checkpoint_id of the checkpoint it belongs to")
        written = [
            [
                WRITES_IDX_MAP.get(channel, index),
                channel,
                values.pack(self.serde.dumps_typed(value)),
            ]
            for index, (channel, value) in enumerate(writes)
        ]
        if written:
            data = {"ns": ns, "checkpoint": checkpoint_id, "task": task_id, "path": task_path}
            self._threads.marked(thread_id).handle.append(WRITES, {**data, "writes": written})

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what was written to channels on the way to a checkpoint, since each last had a value."""
        thread_id, ns, checkpoint_id = _place(config)
        thread = self._threads.of(thread_id)
        collected: dict[str, Written] = {name: [] for name in channels}
        seeds: dict[str, records.Held] = {}
        with thread.fresh():
            found = thread.find(ns, checkpoint_id)
            for one in () if found is None else thread.ancestors(found):
                remaining = collected.keys() - seeds.keys()
                if not remaining:
                    break
                for task, write in reversed(thread.writes(one)):
                    if write.channel in remaining:
                        collected[write.channel].append((task, thread.written(write)))
                for name in remaining:
                    value = one.values.get(name)
                    if value is not None and value.length != EMPTY:
                        seeds[name] = records.Held(thread, value)
        history: dict[str, DeltaChannelHistory] = {}
        for name, held in collected.items():
            history[name] = {
                "writes": [
                    (task, name, records.load(self.serde, packed))
                    for task, packed in reversed(held)
                ]
            }
            if name in seeds:
                history[name]["seed"] = seeds[name].told(self.serde)
        return history

    # -- threads ----------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread for good: it is not in the trash afterwards, and its id is free.

        If it was copied, the copies are built on it: then it is only emptied.
        """
        store, session_id = self._threads.store, self._threads.session_id(thread_id)
        self._threads.forget(thread_id)
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
        for thread_id in self._threads.ids() if wanted else ():
            thread = self._threads.of(thread_id)
            with thread.fresh():
                found = [one for one in thread.shown() if one.run in wanted]
            _remove(thread, found)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Hide all but the newest checkpoint of each namespace, or delete whole threads.

        What a `DeltaChannel` needs of older checkpoints stays.
        """
        if strategy not in {"keep_latest", "delete"}:
            raise ValueError(f"strategy must be 'keep_latest' or 'delete', not {strategy!r}")
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            thread = self._threads.of(thread_id)
            with thread.fresh():
                shown = thread.shown()
            newest = {one.ns: one for one in reversed(shown)}
            _remove(thread, [one for one in shown if newest[one.ns] is not one])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread: a fork, which costs the same however long the thread is.

        If the target exists, what the source holds is added to it.
        """
        source = self._threads.of(source_thread_id)
        if not self._threads.store.exists(source.handle.id) or source_thread_id == target_thread_id:
            return
        try:
            child = source.handle.fork(self._threads.session_id(target_thread_id))
        except hansard.SessionExists:
            target = self._threads.of(target_thread_id)
            self._threads.mark(target.handle, target_thread_id)
            self._copy_into(source, target)
        else:
            self._threads.mark(child, target_thread_id)

    def _copy_into(self, source: Thread, target: Thread) -> None:
        while True:
            after = target.handle.seq
            with source.fresh():
                events = records.copied(source, after)
            with suppress(hansard.SeqConflict):
                target.handle.append_all(events, expected_seq=after)
                return

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
        while page := await self._workers.run(lambda: [*islice(found, _PAGE)]):
            for one in page:
                yield one


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Return thread, namespace and checkpoint that a config names."""
    named = config["configurable"]
    return (
        str(named["thread_id"]),
        named.get("checkpoint_ns", ""),
        named.get("checkpoint_id") or None,
    )


def _remove(thread: Thread, found: Sequence[Checkpoint]) -> None:
    if found:
        named: dict[str, list[str]] = {}
        for one in found:
            named.setdefault(one.ns, []).append(one.id)
        thread.handle.append(REMOVED, {"checkpoints": named})
