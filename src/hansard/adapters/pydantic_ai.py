"""Keep the conversations of Pydantic AI: a capability that restores and saves them, and a step store.

    from hansard.adapters.pydantic_ai import SessionPersistence

    agent = Agent(model, capabilities=[SessionPersistence("data")])
    await agent.run("Hello", conversation_id="support/42")

A conversation is the session of the same id. A request is stored before it is sent, an answer when it has
come; what a run has said when it fails or is cancelled is stored as it ends. docs/guides/pydantic-ai.md has
the rest.

A run has its history in a list, to which the framework appends, and in which others may change anything. New
messages at its end are appended. One message in place of the first ones is a summary. What was left out
stays stored, and any other change is a revert, with the history as it is now said instead: in the history
view, all is as it was.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

import hansard
from hansard.adapters.opening import Settled, StoreLike, missing, opened, settled
from hansard.message import values
from hansard.message.pydantic_items import message_of, natives_of

try:
    from pydantic_ai import ModelRequestNode, UserPromptNode
    from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
    from pydantic_ai.messages import (
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        ToolReturn,
        ToolReturnPart,
    )
    from pydantic_ai.models.wrapper import WrapperModel
except ImportError as error:
    missing("pydantic_ai", "pydantic-ai-slim", "pydantic-ai", error)

if TYPE_CHECKING:
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.models import (
        Model,
        ModelRequestContext,
        ModelRequestParameters,
        StreamedResponse,
    )
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import RunContext

    from hansard.adapters.pydantic_ai_steps import HansardStepStore

    Context = RunContext[Any]
    Metadata = Mapping[str, Any] | Callable[[Context], Mapping[str, Any]]

__all__ = ["HansardStepStore", "SessionPersistence"]


def __getattr__(name: str) -> Any:
    # The step store needs the harness, and the capability does without.
    if name == "HansardStepStore":
        from hansard.adapters.pydantic_ai_steps import HansardStepStore

        return HansardStepStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass
class SessionPersistence(AbstractCapability[Any]):
    """Restores the conversation that a run belongs to, and saves what is said in it.

    One for all conversations, and for any number of processes: whose run it is, its context says.

    Args:
        store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
        prefix: what the ids of the sessions begin with, before those of the conversations.
        identify: the id of the session that a run belongs to, from its context; its `conversation_id`, if
            not given.
        auto_restore: let a run that is given no `message_history` begin with what is stored.
        auto_save: store what is said in a run. Otherwise call `save`.
        metadata: of the session, set when a run has something to store; or what makes them from its context.
    """

    store: StoreLike
    _: KW_ONLY
    prefix: str = ""
    identify: "Callable[[Context], str] | None" = None
    auto_restore: bool = True
    auto_save: bool = True
    metadata: "Metadata | None" = None
    # One of these is enough for an agent: one that is given to a run takes the place of the agent's.
    id: str | None = field(default="session_persistence", kw_only=True)
    _place: Settled = field(init=False, repr=False)
    _run: "_Conversation | None" = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._place = settled(self.store)
        self.store = self._place  # where the program goes later does not move it

    @classmethod
    def from_spec(
        cls,
        store: str,
        *,
        prefix: str = "",
        auto_restore: bool = True,
        auto_save: bool = True,
        metadata: dict[str, Any] | None = None,
    ) -> "SessionPersistence":
        """Make one from what a spec in YAML or JSON says: the path of a store, and options."""
        found = cls(store, prefix=prefix, metadata=metadata)
        return replace(found, auto_restore=auto_restore, auto_save=auto_save)

    def get_ordering(self) -> CapabilityOrdering:
        """Be the first to begin, so that others see what was restored, and the last to end."""
        return CapabilityOrdering(position="outermost")

    # -- for programs that save themselves -------------------------------------------------------

    async def load(self, conversation_id: str) -> list[ModelMessage]:
        """Return a conversation as it is stored; empty if there is none."""
        return await asyncio.to_thread(self._of(conversation_id).read)

    async def save(self, conversation_id: str, messages: Iterable[ModelMessage]) -> int:
        """Store those of some messages that are not stored yet, all or none; return how many these were."""
        given = list(messages)
        return await asyncio.to_thread(self._of(conversation_id).take, given)

    def _of(self, conversation_id: str, run_id: str | None = None) -> "_Conversation":
        return _Conversation(self._place, self.prefix + conversation_id, run_id)

    # -- the run ---------------------------------------------------------------------------------

    async def for_run(self, ctx: "Context") -> "SessionPersistence":
        """Return one for this run alone; nothing is opened yet."""
        if self.identify is not None:
            conversation_id = self.identify(ctx)
        elif ctx.conversation_id is not None:
            conversation_id = ctx.conversation_id
        else:
            raise ValueError("a run without a conversation_id cannot be kept; pass identify=")
        run = self._of(conversation_id, ctx.run_id)
        run.metadata = dict(self.metadata(ctx) if callable(self.metadata) else self.metadata or {})
        own = replace(self)
        own._run = run  # noqa: SLF001 - of the same class
        return own

    async def before_run(self, ctx: "Context") -> None:
        """Put what is stored into the history that the run begins with."""
        run = self._run
        if run is None:
            return
        if ctx.messages:
            # A given history counts. What is new in it is stored; what is stored already is not stored again.
            if self.auto_save:
                await asyncio.to_thread(run.take, list(ctx.messages))
        elif self.auto_restore:
            prompted = ctx.prompt is not None
            ctx.messages[:] = await asyncio.to_thread(lambda: run.restore(prompted=prompted))

    async def before_node_run(self, ctx: "Context", *, node: Any) -> Any:
        """Note the history that the run continues from, as the framework has repaired it."""
        if self._run is not None and not isinstance(node, UserPromptNode):
            self._run.begin(ctx.messages, node)
        return node

    async def before_model_request(
        self, ctx: "Context", request_context: "ModelRequestContext"
    ) -> "ModelRequestContext":
        """Take note of the history, which others may still change."""
        if self._run is not None:
            self._run.live = ctx.messages
        return request_context

    def get_wrapper_model(self, model: "Model") -> "Model | None":
        """Return a model that stores the request before it is sent: nothing changes it after that."""
        if self._run is None or not self.auto_save:
            return None
        return _Noting(model, self._run)

    async def after_node_run(self, ctx: "Context", *, node: Any, result: Any) -> Any:
        """Store an answer when it has come."""
        if self._run is not None and self.auto_save and not isinstance(node, UserPromptNode):
            self._run.live = ctx.messages
            await self._run.note()
        return result

    async def after_tool_execute(
        self,
        ctx: "Context",  # noqa: ARG002 - the framework gives it
        *,
        call: "ToolCallPart",
        tool_def: Any,  # noqa: ARG002
        args: Any,  # noqa: ARG002
        result: Any,
    ) -> Any:
        """Take note of a result: of a run that is cancelled, the framework tells it too late."""
        if self._run is not None:
            self._run.finished[call.tool_call_id] = (call.tool_name, result)
        return result

    async def wrap_run(
        self,
        ctx: "Context",  # noqa: ARG002 - the framework gives it, and it has the history of the beginning
        *,
        handler: "Callable[[], Any]",
    ) -> "AgentRunResult[Any]":
        """Store what is left when a run ends, however it ends."""
        cut_off = False
        try:
            result: AgentRunResult[Any] = await handler()
        except asyncio.CancelledError:
            cut_off = True
            raise
        finally:
            if self._run is not None and self.auto_save:
                await self._run.note(cut_off=cut_off)
        return result


class _Noting(WrapperModel):
    """A model that has the history stored before a request is sent."""

    def __init__(self, wrapped: "Model", run: "_Conversation") -> None:
        super().__init__(wrapped)
        self._noted = run

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: "ModelSettings | None",
        model_request_parameters: "ModelRequestParameters",
    ) -> ModelResponse:
        await self._noted.note()
        return await super().request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: "ModelSettings | None",
        model_request_parameters: "ModelRequestParameters",
        run_context: "RunContext[Any] | None" = None,
    ) -> "AsyncGenerator[StreamedResponse]":
        await self._noted.note()
        async with super().request_stream(
            messages, model_settings, model_request_parameters, run_context
        ) as stream:
            yield stream


# -- what is stored of a history ----------------------------------------------------------------


class _Conversation:
    """A session, as one run sees it: which messages are stored, and how to store the others."""

    def __init__(self, place: Settled, session_id: str, run_id: str | None) -> None:
        self._place = place
        self._id = session_id
        self._run_id = run_id
        self._lock = Lock()
        #: The messages of the history that are stored, in order; by identity, so they must not go away.
        self._known: list[ModelMessage] = []
        #: Their seqs, by identity, if known; and all seqs that this run has read or appended.
        self._seqs: dict[int, int] = {}
        self._seen: set[int] = set()
        self._kept: list[ModelMessage] = []
        self.metadata: dict[str, Any] = {}
        #: What tools have answered, by the ids of the calls: their names and the results.
        self.finished: dict[str, tuple[str, Any]] = {}
        #: The history of the run, which the framework and others change in place.
        self.live: list[ModelMessage] | None = None

    @property
    def _session(self) -> hansard.Session:
        return opened(self._place).session(self._id)

    # -- reading ---------------------------------------------------------------------------------

    def restore(self, *, prompted: bool) -> list[ModelMessage]:
        """Return what is stored, as the history of a run.

        Args:
            prompted: a new prompt follows: calls before it may be unanswered.
        """
        messages = self.read()
        last = messages[-1] if messages else None
        if (
            prompted
            and isinstance(last, ModelResponse)
            and last.tool_calls
            and last.state == "complete"
        ):
            # A killed run leaves such, and the framework would refuse the prompt. Now it gives them a result
            # that says so. Calls that were deferred are answered all the same.
            messages[-1] = replace(last, state="interrupted")
            self._place_all(messages[-1:], [self._seqs[id(last)]])
        return messages

    def read(self, at: int | None = None) -> list[ModelMessage]:
        """Return what is stored, one run after the other: what ran at the same time is told apart."""
        numbered = self._session.numbered(at=at)
        natives = natives_of(message for _, message in numbered)
        runs: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        last = ""
        for place, native in natives:
            last = native.get("run_id") or last
            runs.setdefault(last, []).append((numbered[place][0], native))
        ordered = [one for run in runs.values() for one in run]
        messages = validated([native for _, native in ordered])
        self._seen |= {seq for seq, _ in numbered}
        self._place_all(messages, (seq for seq, _ in ordered))
        return messages

    def _place_all(self, messages: Iterable[ModelMessage], seqs: Iterable[int]) -> None:
        for message, seq in zip(messages, seqs, strict=True):
            self._seqs[id(message)] = seq
            self._seen.add(seq)
            self._kept.append(message)

    # -- writing ---------------------------------------------------------------------------------

    def take(self, given: Sequence[ModelMessage]) -> int:
        """Store those of some messages that are not stored yet; return how many these were."""
        keys = [_key(native) for native in natives(given)]
        with self._lock:
            while True:
                at = self._session.seq
                stored = self.read(at)
                known = {
                    _key(native): self._seqs[id(message)]
                    for native, message in zip(natives(stored), stored, strict=True)
                }
                pairs = list(zip(given, keys, strict=True))
                new = [message for message, key in pairs if key not in known]
                with suppress(hansard.SeqConflict):
                    # Two that are given the same history at the same time store it once.
                    self._append(new, expected_seq=at)
                    for message, key in pairs:
                        if key in known:
                            self._place_all([message], [known[key]])
                    return len(new)

    def begin(self, history: list[ModelMessage], node: Any) -> None:
        """Note the history with which a run begins: the framework may have repaired it."""
        if self.live is None:
            self._known = list(history)
            if isinstance(node, ModelRequestNode) and node.is_resuming_without_prompt:
                self._known.append(node.request)  # the last one that was stored, to be sent again
        self.live = history

    async def note(self, *, cut_off: bool = False) -> None:
        """Store what is new in the history; continues in its thread if the caller is cancelled.

        Args:
            cut_off: the run was cancelled: store the results of tools that have finished, too.
        """
        if self.live is not None:
            ended = self._cut_off(self.live) if cut_off else []
            await asyncio.to_thread(self._note, [*self.live, *ended])

    def _cut_off(self, history: list[ModelMessage]) -> list[ModelMessage]:
        """Return the results that are there although the run was cancelled, as the framework has them."""
        last = history[-1] if history else None
        if not isinstance(last, ModelResponse):
            return []
        parts = []
        for call in last.tool_calls:
            if call.tool_call_id in self.finished:
                name, told = self.finished[call.tool_call_id]
                result = told if isinstance(told, ToolReturn) else ToolReturn(told)
                part = ToolReturnPart(name, result.return_value, tool_call_id=call.tool_call_id)
                parts.append(replace(part, metadata=result.metadata))
        if not parts:
            return []
        return [
            ModelRequest(
                parts,
                run_id=last.run_id,
                conversation_id=last.conversation_id,
                timestamp=datetime.now(UTC),
                state="interrupted",
            )
        ]

    def _note(self, history: list[ModelMessage]) -> None:
        with self._lock:
            self._adopt(history)
            known = {id(message) for message in self._known}
            places = [place for place, one in enumerate(history) if id(one) in known]
            end = places[-1] + 1 if places else 0
            new = [one for one in history if id(one) not in known]
            if not new:
                return
            gone = self._gone(history)
            parts = {id(part) for message in gone for part in message.parts}
            changed = [one for one in history[:end] if id(one) not in known]
            changed += [one for one in history[end:] if any(id(p) in parts for p in one.parts)]
            if gone and not places and history[0].run_id != self._run_id:
                changed = changed or [history[0]]  # it replaces all that was there
            if not changed:
                self._append(new)
            elif not self._summarized(history, changed, gone):
                self._replace(history)
            # What was left out is stored and stays so: the next run has it again.
            self._known = history

    def _gone(self, history: list[ModelMessage]) -> list[ModelMessage]:
        here = {id(message) for message in history}
        return [message for message in self._known if id(message) not in here]

    def _adopt(self, history: list[ModelMessage]) -> None:
        """Recognize messages that were copied without a change."""
        known = {id(message) for message in self._known}
        new = [message for message in history if id(message) not in known]
        gone = self._gone(history) if new else []
        if not gone:
            return
        copies = {
            _key(native): message for native, message in zip(natives(gone), gone, strict=True)
        }
        instead: dict[int, ModelMessage] = {}
        for native, message in zip(natives(new), new, strict=True):
            original = copies.pop(_key(native), None)
            if original is None:
                continue
            instead[id(original)] = message
            if id(original) in self._seqs:
                self._seqs[id(message)] = self._seqs[id(original)]
            self._kept += [original, message]
        self._known = [instead.get(id(message), message) for message in self._known]

    def _append(self, messages: Sequence[ModelMessage], expected_seq: int | None = None) -> None:
        if not messages:
            return
        session = self._session
        told = [message_of(native) for native in natives(messages)]
        events = session.add_messages(told, expected_seq=expected_seq)
        self._describe(session)
        self._place_all(messages, (event.seq for event in events))

    def _describe(self, session: hansard.Session) -> None:
        if self.metadata:
            session.patch_metadata(self.metadata)
            self.metadata = {}

    def _summarized(
        self, history: list[ModelMessage], changed: list[ModelMessage], gone: list[ModelMessage]
    ) -> bool:
        """Store a message that replaces the first ones of the history as a summary, if it is one."""
        rest = self._known[len(gone) :]
        if len(changed) != 1 or changed[0] is not history[0] or not gone:
            return False
        if [id(one) for one in history[1 : len(rest) + 1]] != [id(one) for one in rest]:
            return False
        seqs = [self._seqs.get(id(one)) for one in self._known]
        placed = [seq for seq in seqs if seq is not None]
        if len(placed) != len(seqs) or placed != sorted(placed):
            return False
        session, upto = self._session, placed[len(gone) - 1]
        if not {seq for seq, _ in session.numbered(at=upto)} <= self._seen:
            return False  # the summary does not cover what another process said concurrently
        self._describe(session)
        event = session.summarize(upto=upto, message=message_of(natives(history[:1])[0]))
        self._place_all(history[:1], [event.seq])
        self._append(history[len(rest) + 1 :])
        return True

    def _replace(self, history: list[ModelMessage]) -> None:
        """Replace the stored history; what another process said concurrently stays."""
        session = self._session
        self._describe(session)
        messages = [message_of(native) for native in natives(history)]
        while True:
            seq = session.seq
            others = [one for at, one in session.numbered(at=seq) if at not in self._seen]
            with suppress(hansard.SeqConflict):
                event = session.revert(0, messages=[*messages, *others], expected_seq=seq)
                self._place_all(history, range(event.seq + 1, event.seq + 1 + len(messages)))
                return


def natives(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Return messages as JSON, or one that would not come back equal from that as Python values."""
    given = list(messages)
    # At once if nothing is lost, as is nearly always so.
    found: list[dict[str, Any]] = values.dumped(given, _dump, _load)
    if not values.is_json_of_any_depth(found):
        each = (values.dumped([message], _dump, _load)[0] for message in given)
        # As they come back: validation turns an int into a float where the model has one.
        found = [
            one if values.is_json_of_any_depth(one) else _dump(validated([one]), "python")[0]
            for one in each
        ]
    return found


def validated(found: list[dict[str, Any]]) -> list[ModelMessage]:
    """Return messages from what `natives` made of them."""
    if values.is_json_of_any_depth(found):
        return _load(found)
    return [
        (_load if values.is_json_of_any_depth(one) else ModelMessagesTypeAdapter.validate_python)(
            [one]
        )[0]
        for one in found
    ]


def _dump(messages: list[ModelMessage], mode: values.Mode) -> Any:
    return ModelMessagesTypeAdapter.dump_python(messages, mode=mode)


def _load(found: Any) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_json(json.dumps(found))


def _key(native: dict[str, Any]) -> str:
    """Return what tells a message from others, whatever became of it afterwards."""
    return json.dumps(values.wrap("message", {**native, "state": None}), sort_keys=True)
