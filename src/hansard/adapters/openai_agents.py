"""Keep the conversations of the OpenAI Agents SDK: its `Session` protocol over a store.

    from hansard.adapters.openai_agents import HansardSession

    await Runner.run(agent, "Hello", session=HansardSession("support/42", "data"))

It answers as the SDK's own `SQLiteSession` does, and erases nothing. `pop_item` and `clear_session` append an
event that changes the model view. The history view and the search keep everything.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import hansard
from hansard.adapters.opening import StoreLike, aopened, missing, settled
from hansard.message.openai_items import items_of, message_of

try:
    from agents.lifecycle import RunHooks
    from agents.memory.session import _CompactionSnapshot
    from agents.memory.session_settings import (
        SessionSettings,
        coerce_session_settings,
        resolve_session_limit,
    )
    from agents.models.default_models import get_default_model
    from agents.models.fake_id import FAKE_RESPONSES_ID
except ImportError as error:
    missing("openai_agents", "openai-agents", "openai-agents", error)

if TYPE_CHECKING:
    from agents import Agent
    from agents.items import ModelResponse, TResponseInputItem
    from agents.run_context import RunContextWrapper

    Context = RunContextWrapper[Any] | None

__all__ = ["HansardSession", "HansardUsageHooks"]


class HansardSession:
    """A session of the OpenAI Agents SDK that is kept in a store.

    Any number of objects, in any number of processes, may use one session concurrently.

    Attributes:
        session_id: the session's id in the store.
        session_settings: the SDK's settings; `limit` is the default maximum of `get_items`.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        session_id: str,
        store: StoreLike,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        identify: "Callable[[RunContextWrapper[Any]], str] | None" = None,
    ) -> None:
        """Create a handle; nothing is opened or written yet.

        Args:
            session_id: a string of 1 to 1,024 characters.
            store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
            session_settings: as for the SDK's own sessions.
            identify: returns the session id from a run's context, so that one object serves all users. Then a
                call without a context is refused.
        """
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self._store = settled(store)
        self._closed = False
        self._identify = identify
        self._handle: hansard.aio.Session | None = None

    def __repr__(self) -> str:
        return f"<HansardSession {self.session_id!r} in {self._store!r}>"

    async def _session(self, wrapper: "Context") -> hansard.aio.Session:
        if self._closed:
            raise hansard.Closed(f"{self!r} is closed; create another one")
        store = await aopened(self._store)
        if self._identify is not None:
            if wrapper is None:
                raise ValueError(
                    f"session {self.session_id!r} is identified by the run's context, and this call has "
                    "none; pass wrapper=, or use a HansardSession without identify="
                )
            return store.session(self._identify(wrapper))
        if self._handle is None or self._handle.id != self.session_id:
            self._handle = store.session(self.session_id)
        return self._handle

    def close(self) -> None:
        """Refuse further calls, with `hansard.Closed`, as the SDK's own sessions do.

        The store stays open, and other objects for the same session can be used.
        """
        self._closed = True

    async def get_items(
        self, limit: int | None = None, *, wrapper: "Context" = None
    ) -> "list[TResponseInputItem]":
        """Return the conversation, oldest first: all of it, or the latest `limit` items.

        Args:
            limit: maximum number of items; None: as in the settings; negative: all.
            wrapper: the run's context.
        """
        session = await self._session(wrapper)
        most = resolve_session_limit(limit, self.session_settings)
        if most is None or most < 0:
            return [item for message in await session.messages() for item in items_of(message)]
        return (await _Tail.read(session, await session.seq, most)).items if most else []

    async def add_items(
        self, items: "Sequence[TResponseInputItem]", *, wrapper: "Context" = None
    ) -> None:
        """Append items, all or none."""
        session = await self._session(wrapper)
        await session.add_messages([message_of(item) for item in items])

    async def pop_item(self, *, wrapper: "Context" = None) -> "TResponseInputItem | None":
        """Remove and return the newest item; None if there is none. No two calls get the same one."""
        session = await self._session(wrapper)
        while True:
            tail = await _Tail.read(session, await session.seq, 1)
            if not tail.items:
                return None
            with suppress(hansard.SeqConflict):
                await tail.replace(0, [])
                popped: TResponseInputItem = tail.items[0]
                return popped

    async def clear_session(self, *, wrapper: "Context" = None) -> None:
        """Clear the model view. The history keeps everything; `store.delete` removes it."""
        session = await self._session(wrapper)
        if await session.seq:
            await session.clear()

    # -- optional methods that the SDK looks up ----------------------------------------------------

    async def _atomic_replace_items(self, items: "Sequence[TResponseInputItem]") -> bool:
        """Replace the conversation in one append, for `OpenAIResponsesCompactionSession`.

        Without it the SDK clears and then adds: a kill between the two would leave an empty conversation.
        Not for subclasses, which may change what is stored: for these the SDK calls `add_items`.
        """
        if type(self) is not HansardSession:
            return False
        session = await self._session(None)
        await session.revert(0, messages=[message_of(item) for item in items])
        return True

    async def _get_compaction_snapshot(
        self,
        limit: int,
        *,
        prune_prefix: object = None,  # noqa: ARG002 - expired items, which `EncryptedSession` skips
    ) -> "_CompactionSnapshot | None":
        """Return the latest items, and a function that replaces them unless something was appended.

        Without it the SDK compacts only complete inputs, and overwrites concurrent items. None for a
        subclass, which may change what is stored.
        """
        if type(self) is not HansardSession:
            return None
        session = await self._session(None)
        tail = await _Tail.read(session, await session.seq, limit)

        async def replace_suffix(start: int, output: "list[TResponseInputItem]") -> bool:
            if not 0 <= start < len(tail.places):
                return False
            try:
                await tail.replace(start, output)
            except hansard.SeqConflict:
                return False
            return True

        return _CompactionSnapshot(tail.items, tail.complete, replace_suffix)


class HansardUsageHooks(RunHooks[Any]):
    """Hooks of a run that record the usage of each model call in the session; a session sees items only.

        await Runner.run(agent, "Hello", session=session, hooks=HansardUsageHooks(session))

    A response is recorded once, by its id. Subclass it to add your own hooks.
    """

    def __init__(self, session: HansardSession, *, model: str | None = None) -> None:
        """Record in a session.

        Args:
            session: the session of the run, also one with `identify=`.
            model: the model's name; by default that of the agent. The hooks do not see `RunConfig(model=…)`.
        """
        self._session = session
        self._model = model

    async def on_llm_end(
        self, context: "RunContextWrapper[Any]", agent: "Agent[Any]", response: "ModelResponse"
    ) -> None:
        """Record the usage of a call; nothing if the provider reported none."""
        used = response.usage
        if not (used.input_tokens or used.output_tokens):
            return
        name = self._model or agent.model or get_default_model()
        if not isinstance(name, str):
            name = str(getattr(name, "model", type(name).__name__))
        given, made = used.input_tokens_details, used.output_tokens_details
        # A stream of chat completions has the same id in every response.
        known = response.response_id not in {None, FAKE_RESPONSES_ID}
        more: dict[str, Any] = {"response_id": response.response_id} if known else {}
        session = await self._session._session(context)  # noqa: SLF001 - of this module
        await session.record_usage(
            model=name,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cached_tokens=given.cached_tokens or 0,
            cache_write_tokens=getattr(given, "cache_write_tokens", 0) or 0,
            reasoning_tokens=made.reasoning_tokens or 0,
            key=f"usage:{response.response_id}" if known else None,
            **more,
        )


class _Tail(NamedTuple):
    """The end of a conversation at a seq."""

    session: hansard.aio.Session
    seq: int
    numbered: "Sequence[tuple[int, Any]]"
    items: "list[TResponseInputItem]"
    #: For each item, the index of its message in `numbered`, and its index in the message.
    places: list[tuple[int, int]]
    #: Whether these are all items.
    complete: bool

    @classmethod
    async def read(cls, session: hansard.aio.Session, seq: int, limit: int) -> "_Tail":
        """Read the last items, and one more message: replacements follow that one."""
        # A message of another framework may be several items, or none: read more until they suffice.
        window = limit + 1
        while True:
            numbered = await session.numbered(last=window, at=seq)
            found = [
                ((place, number), item)
                for place, (_, message) in enumerate(numbered)
                for number, item in enumerate(items_of(message))
            ]
            complete = len(numbered) < window
            if complete or (len(found) >= limit and found[-limit][0][0] > 0):
                last = found[-limit:]
                places, items = [place for place, _ in last], [item for _, item in last]
                return cls(session, seq, numbered, items, places, complete and found == last)
            window *= 2

    async def replace(self, start: int, output: "Sequence[TResponseInputItem]") -> None:
        """Replace the items from an index on; `SeqConflict` if another process appended concurrently.

        One append: a revert and the replacement. If a summary was added after the target of the revert, it is
        appended again: otherwise the revert would hide it.
        """
        place, number = self.places[start]
        seq, message = self.numbered[place]
        target, keep_summary = seq - 1, False
        again: list[Any] = []
        kinds = (await self.session.state(at=self.seq)).kinds
        # Without these, the view before this message is the current view without its end.
        if "summary.added" in kinds or "message.part" in kinds:
            every = await self.session.numbered(at=self.seq)
            kept = every[: len(every) - len(self.numbered) + place]
            first = kept[0][0] if kept else 0
            upto = await self._summarized(first) if kept else None
            if upto is not None:
                kept = kept[1:]
            target, again = await self._target(seq, kept, upto or 0)
            keep_summary = upto is not None and first > target
        # Items of the same message that stay are appended again.
        instead = [message_of(item) for item in [*items_of(message)[:number], *output]]
        await self.session.revert(
            target, messages=[*again, *instead], expected_seq=self.seq, keep_summary=keep_summary
        )

    async def _summarized(self, seq: int) -> int | None:
        """Return the seq up to which the event at `seq` is a summary; None if it is not one."""
        async for event in self.session.events(after=seq - 1):
            return event.data["upto"] if event.kind == "summary.added" else None
        return None

    async def _target(
        self, seq: int, kept: "Sequence[tuple[int, Any]]", upto: int
    ) -> "tuple[int, list[Any]]":
        """Return a seq to revert to, and the messages to append again there.

        In the middle of a stream, its beginning would be shown: then the target is earlier.
        """
        targets = [(seq - 1, 0)]
        back = 1
        while back <= len(kept):
            targets.append((kept[-back][0], back - 1))
            back *= 2
        for target, again in targets:
            shown = await self.session.numbered(at=target)
            end = len(kept) - again
            if [pair for pair in shown if pair[0] > upto] == kept[:end]:
                return target, [message for _, message in kept[end:]]
        return 0, [message for _, message in kept]
