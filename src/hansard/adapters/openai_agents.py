"""Keep the conversations of the OpenAI Agents SDK: its `Session` protocol over a store.

    from hansard.adapters.openai_agents import HansardSession

    await Runner.run(agent, "Hello", session=HansardSession("support/42", "data"))

Above: user code, the SDK's `Runner`.  Below: `opening`, `openai_items` (items as messages), `hansard.aio`.
Answers what the SDK's own `SQLiteSession` answers, and erases nothing: `pop_item` and `clear_session` append
an event that changes the model view; the history view, the search and `revert` still know what was there.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import hansard
from hansard.adapters.openai_items import items_of, message_of
from hansard.adapters.opening import StoreLike, aopened, missing, settled

try:
    from agents.memory.session_settings import (
        SessionSettings,
        coerce_session_settings,
        resolve_session_limit,
    )
except ImportError as error:
    missing("openai_agents", "openai-agents", "openai-agents", error)

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.memory.session import _CompactionSnapshot
    from agents.run_context import RunContextWrapper

    Context = RunContextWrapper[Any] | None

__all__ = ["HansardSession"]

#: Others write at the same time, and each time somebody gets on: so often, nobody is that unlucky.
_ATTEMPTS: Final = 1000


class HansardSession:
    """A session of the OpenAI Agents SDK that is kept in a store.

    Any number of these, in any number of processes, may stand for one session at a time.

    Attributes:
        session_id: the session's id in the store.
        session_settings: the SDK's settings; `limit` is how many items `get_items` returns unless told.
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
        """Make a handle; nothing is opened or written yet.

        Args:
            session_id: any text of 1 to 1,024 characters.
            store: a store, its async twin, or the path of one.
            session_settings: as for the SDK's own sessions.
            identify: the id of the session that a run is about, from its context, so that one object serves
                all users. A call without a context is refused then: it must not guess whose it is.
        """
        self.session_id = session_id
        self.session_settings = (
            SessionSettings()
            if session_settings is None
            else coerce_session_settings(session_settings)
        )
        self._store = settled(store)
        self._identify = identify
        self._handle: hansard.aio.Session | None = None

    def __repr__(self) -> str:
        return f"<HansardSession {self.session_id!r} in {self._store!r}>"

    async def _session(self, wrapper: "Context") -> hansard.aio.Session:
        store = await aopened(self._store)
        if self._identify is not None:
            if wrapper is None:
                raise ValueError(
                    f"session {self.session_id!r} is identified by the run's context, and this call has "
                    "none; pass wrapper=, or use a HansardSession with a fixed id"
                )
            return store.session(self._identify(wrapper))
        if self._handle is None or self._handle.id != self.session_id:
            self._handle = store.session(self.session_id)
        return self._handle

    # -- the protocol ---------------------------------------------------------------------------

    async def get_items(
        self, limit: int | None = None, *, wrapper: "Context" = None
    ) -> "list[TResponseInputItem]":
        """Return the conversation, oldest first: all of it, or the latest so many items.

        Args:
            limit: at most so many; None: as the settings say. Less than 0: all.
            wrapper: the run's context.
        """
        session = await self._session(wrapper)
        most = resolve_session_limit(limit, self.session_settings)
        if most is None or most < 0:
            return [item for message in await session.messages() for item in items_of(message)]
        # A message of another framework may be several items, or none: look further back until they suffice.
        window = most
        while True:
            messages = await session.messages(last=window)
            items = [item for message in messages for item in items_of(message)]
            if len(items) >= most or len(messages) < window:
                return items[max(len(items) - most, 0) :]
            window *= 2

    async def add_items(
        self, items: "Sequence[TResponseInputItem]", *, wrapper: "Context" = None
    ) -> None:
        """Append items, all or none."""
        session = await self._session(wrapper)
        await session.add_messages([message_of(item) for item in items])

    async def pop_item(self, *, wrapper: "Context" = None) -> "TResponseInputItem | None":
        """Take the newest item back and return it; None if there is none. No two calls get the same one."""
        session = await self._session(wrapper)
        for attempt in range(_ATTEMPTS):
            tail = await _Tail.read(session, await session.seq, 1)
            if not tail.items:
                break
            try:
                await tail.replace(0, [])
            except hansard.SeqConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                popped: TResponseInputItem = tail.items[0]
                return popped
        return None

    async def clear_session(self, *, wrapper: "Context" = None) -> None:
        """Let the conversation start anew. What was said stays in the history; `store.delete` removes it."""
        session = await self._session(wrapper)
        if await session.seq:
            await session.clear()

    # -- what the SDK looks for, and does without ------------------------------------------------

    async def _atomic_replace_items(self, items: "Sequence[TResponseInputItem]") -> bool:
        """Replace the whole conversation in one append, for `OpenAIResponsesCompactionSession`.

        Without it the SDK clears and then adds: a kill between the two would leave nothing to go on with.
        """
        session = await self._session(None)
        await session.revert(0, messages=[message_of(item) for item in items])
        return True

    async def _get_compaction_snapshot(
        self,
        limit: int,
        *,
        prune_prefix: "Callable[[TResponseInputItem], bool] | None" = None,  # noqa: ARG002 - erases nothing
    ) -> "_CompactionSnapshot | None":
        """Return the latest items, and how to replace the last of them if nobody has appended since.

        Without it the SDK compacts only what the model was given whole, and overwrites what others said
        meanwhile.
        """
        try:
            from agents.memory.session import _CompactionSnapshot
        except ImportError:
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


class _Tail:
    """The end of a conversation as it was at a seq, and where its items stand."""

    def __init__(
        self,
        session: hansard.aio.Session,
        seq: int,
        numbered: "list[tuple[int, Any]]",
        *,
        limit: int,
        whole: bool,
    ) -> None:
        self._session = session
        self._seq = seq
        self._numbered = numbered
        found = [
            (place, number, item)
            for place, (_, message) in enumerate(numbered)
            for number, item in enumerate(items_of(message))
        ]
        #: Whether these are all there are.
        self.complete = whole and len(found) <= limit
        found = found[-limit:]
        #: For each item, the place of its message among the numbered ones, and its own place in that.
        self.places = [(place, number) for place, number, _ in found]
        self.items = [item for _, _, item in found]

    @classmethod
    async def read(cls, session: hansard.aio.Session, seq: int, limit: int) -> "_Tail":
        """Read so many items, and one message more: what is replaced stands behind that."""
        window = limit + 1
        while True:
            numbered = await session.numbered(last=window, at=seq)
            whole = len(numbered) < window
            tail = cls(session, seq, numbered, limit=limit, whole=whole)
            if whole or (len(tail.places) == limit and tail.places[0][0] > 0):
                return tail
            window *= 2

    async def replace(self, start: int, output: "Sequence[TResponseInputItem]") -> None:
        """Let other items stand for those from `start` on; `SeqConflict` if somebody was faster."""
        place, number = self.places[start]
        seq, message = self._numbered[place]
        # Items of the same message that stay are said again.
        instead = [*items_of(message)[:number], *output]
        target = await self._target(seq, self._numbered[:place][-1:])
        if target is None:
            kept = await self._session.messages(at=self._seq)
            instead = [*(item for one in kept for item in items_of(one))][: self._kept(kept, start)]
            instead, target = [*instead, *output], 0
        await self._session.revert(
            target, messages=[message_of(item) for item in instead], expected_seq=self._seq
        )

    def _kept(self, messages: "list[dict[str, Any]]", start: int) -> int:
        """Return how many items of the whole conversation stand before the one at `start`."""
        return sum(len(items_of(message)) for message in messages) - len(self.places) + start

    async def _target(self, seq: int, before: "list[tuple[int, Any]]") -> int | None:
        """Return a seq to go back to, at which what stands before a message was all that was shown.

        None: there is none such, since a summary that was added later would go too, or since something was
        being streamed at the time.
        """
        kinds = (await self._session.state(at=self._seq)).kinds
        if "summary.added" in kinds:
            return None
        # Without streams, the message before tells that all is as it was.
        last: int | None = 1
        if "message.part" in kinds:
            whole = await self._session.numbered(at=self._seq)
            before, last = [pair for pair in whole if before and pair[0] <= before[0][0]], None
        target = seq - 1
        while True:
            shown = await self._session.numbered(last=last, at=target)
            if shown == before:
                return target
            if not shown or (before and shown[-1][0] <= before[-1][0]):
                return None
            # A message that was streamed: before its end, its beginning is shown.
            target = shown[-1][0] - 1
