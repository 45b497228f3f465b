"""Keep the conversations of Pydantic AI: a capability that restores and saves them, and a step store.

    from hansard.adapters.pydantic_ai import SessionPersistence

    agent = Agent(model, capabilities=[SessionPersistence("data")])
    await agent.run("Hello", conversation_id="support/42")

A conversation is the session of the same id. A request is stored before it is sent, an answer when it
arrives, and the rest of a failed or cancelled run when it ends. docs/guides/pydantic-ai.md has the rest.

A run has its history in a list, to which the framework appends, and which others may change. New messages at
its end are appended. Messages that were left out stay stored. Any other change is a revert, followed by the
current history: the history view keeps everything.
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
from hansard.message.pydantic_items import call_of, message_of, natives_of, usage_of

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
        StreamedResponse,
    )
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.tools import RunContext

    from hansard.adapters.pydantic_ai_steps import HansardStepStore

    Context = RunContext[Any]
    Metadata = Mapping[str, Any] | Callable[[Context], Mapping[str, Any]]

__all__ = ["HansardStepStore", "SessionPersistence"]


def __getattr__(name: str) -> Any:
    # Only the step store needs the harness.
    if name == "HansardStepStore":
        from hansard.adapters.pydantic_ai_steps import HansardStepStore

        return HansardStepStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass
class SessionPersistence(AbstractCapability[Any]):
    """Restores the conversation that a run belongs to, and saves its messages.

    One object serves all conversations, and any number of processes.

    Args:
        store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
        prefix: prefix of the session ids, before the ids of conversations.
        identify: returns the id of a run's conversation from its context; `conversation_id` by default.
        auto_restore: let a run without `message_history` begin with the stored conversation.
        auto_save: store the messages of a run. Otherwise call `save`.
        metadata: metadata of the session, or a function that returns them from a run's context; set when a
            run has something to store.
    """

    store: StoreLike
    _: KW_ONLY
    prefix: str = ""
    identify: "Callable[[Context], str] | None" = None
    auto_restore: bool = True
    auto_save: bool = True
    metadata: "Metadata | None" = None
    # An agent uses one capability of an id: one that is given to a run replaces the agent's.
    id: str | None = field(default="session_persistence", kw_only=True)
    _place: Settled = field(init=False, repr=False)
    _run: "_Conversation | None" = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        # A relative path is settled now: the program may change its directory.
        self.store = self._place = settled(self.store)

    def get_ordering(self) -> CapabilityOrdering:
        """Begin first, so that others see the restored history, and end last."""
        return CapabilityOrdering(position="outermost")

    async def load(self, conversation_id: str) -> list[ModelMessage]:
        """Return a stored conversation; empty if there is none."""
        return await asyncio.to_thread(self._of(conversation_id).read)

    async def save(self, conversation_id: str, messages: Iterable[ModelMessage]) -> int:
        """Store the messages that are not stored yet, all or none; return their number."""
        given = list(messages)
        return await asyncio.to_thread(self._of(conversation_id).take, given)

    def _of(self, conversation_id: str, run_id: str | None = None) -> "_Conversation":
        return _Conversation(self._place, self.prefix + conversation_id, run_id)

    async def for_run(self, ctx: "Context") -> "SessionPersistence":
        """Return a capability for this run only; nothing is opened yet."""
        if self.identify is not None:
            conversation_id = self.identify(ctx)
        elif ctx.conversation_id is not None:
            conversation_id = ctx.conversation_id
        else:
            raise ValueError("a run without a conversation_id cannot be stored; pass identify=")
        run = self._of(conversation_id, ctx.run_id)
        run.metadata = dict(self.metadata(ctx) if callable(self.metadata) else self.metadata or {})
        own = replace(self)
        own._run = run  # noqa: SLF001 - of the same class
        return own

    async def before_run(self, ctx: "Context") -> None:
        """Put the stored conversation into the history that the run begins with."""
        run = self._run
        if run is None:
            return
        if ctx.messages:
            # A given history counts: its new messages are stored.
            if self.auto_save:
                await asyncio.to_thread(run.take, list(ctx.messages))
        elif self.auto_restore:
            prompted = ctx.prompt is not None
            ctx.messages[:] = await asyncio.to_thread(lambda: run.restore(prompted=prompted))

    async def before_node_run(self, ctx: "Context", *, node: Any) -> Any:
        """Note the history from which the run continues, as repaired by the framework."""
        if self._run is not None and not isinstance(node, UserPromptNode):
            self._run.begin(ctx.messages)
        return node

    async def before_model_request(
        self, ctx: "Context", request_context: "ModelRequestContext"
    ) -> "ModelRequestContext":
        """Note the history here, too: a node that the caller streams is requested before it runs."""
        if self._run is not None:
            self._run.begin(ctx.messages)
        return request_context

    def get_wrapper_model(self, model: "Model") -> "Model | None":
        """Return a model that stores the request before it is sent: nothing changes it after that."""
        if self._run is None or not self.auto_save:
            return None
        return _SavingModel(model, self._run)

    async def after_node_run(
        self,
        ctx: "Context",  # noqa: ARG002 - `live` is its history
        *,
        node: Any,
        result: Any,
    ) -> Any:
        """Store an answer when it arrives."""
        if self._run is not None:
            if isinstance(node, UserPromptNode):
                self._run.first = result
            elif self.auto_save:
                await self._run.note()
        return result

    async def after_tool_execute(
        self,
        ctx: "Context",  # noqa: ARG002 - the framework's signature
        *,
        call: "ToolCallPart",
        tool_def: Any,  # noqa: ARG002
        args: Any,  # noqa: ARG002
        result: Any,
    ) -> Any:
        """Note a result: for a cancelled run, the framework reports it too late."""
        if self._run is not None:
            self._run.finished[call.tool_call_id] = (call.tool_name, result)
        return result

    async def wrap_run(
        self,
        ctx: "Context",  # noqa: ARG002 - it has the history of the beginning
        *,
        handler: "Callable[[], Any]",
    ) -> "AgentRunResult[Any]":
        """Store the rest when a run ends, however it ends."""
        cancelled = False
        try:
            result: AgentRunResult[Any] = await handler()
        except asyncio.CancelledError:
            cancelled = True
            raise
        finally:
            if self._run is not None and self.auto_save:
                await self._run.note(cancelled=cancelled)
        return result


class _SavingModel(WrapperModel):
    """A model that stores the history before a request is sent."""

    def __init__(self, wrapped: "Model", run: "_Conversation") -> None:
        super().__init__(wrapped)
        self._saved = run

    async def request(self, *given: Any, **named: Any) -> ModelResponse:
        await self._saved.note()
        return await super().request(*given, **named)

    @asynccontextmanager
    async def request_stream(self, *given: Any, **named: Any) -> "AsyncGenerator[StreamedResponse]":
        await self._saved.note()
        async with super().request_stream(*given, **named) as stream:
            yield stream


class _Conversation:
    """A session, as one run sees it: which messages are stored, and how to store the others."""

    def __init__(self, place: Settled, session_id: str, run_id: str | None) -> None:
        self._place = place
        self._id = session_id
        self._run_id = run_id
        self._lock = Lock()
        #: The stored messages of the history, in order. They are known by identity.
        self._known: list[ModelMessage] = []
        #: The seqs that this run has read or appended.
        self._seen: set[int] = set()
        #: The calls of models whose usage is recorded: a changed response is not counted again.
        self._counted: set[str] = set()
        self.metadata: dict[str, Any] = {}
        #: Results of tools, by the ids of the calls, with the tools' names.
        self.finished: dict[str, tuple[str, Any]] = {}
        #: The history of the run, which the framework and others change in place.
        self.live: list[ModelMessage] | None = None
        #: The node after the prompt, which may add a request to the history.
        self.first: Any = None

    @property
    def _session(self) -> hansard.Session:
        return opened(self._place).session(self._id)

    def restore(self, *, prompted: bool) -> list[ModelMessage]:
        """Return the stored messages as the history of a run. `prompted`: a new prompt follows."""
        messages = self.read()
        last = messages[-1] if messages else None
        if not prompted or not isinstance(last, ModelResponse):
            return messages
        if last.tool_calls and last.state == "complete":
            # A killed run leaves unanswered calls, and the framework would refuse the prompt. For an
            # interrupted response it adds results that say so. Deferred calls can still be answered.
            messages[-1] = replace(last, state="interrupted")
        return messages

    def read(self, at: int | None = None) -> list[ModelMessage]:
        """Return the stored messages, one run after the other: concurrent runs are not mixed."""
        numbered = self._session.numbered(at=at)
        self._seen |= {seq for seq, _ in numbered}
        runs: dict[str, list[dict[str, Any]]] = {}
        last = ""
        for native in natives_of(message for _, message in numbered):
            last = native.get("run_id") or last
            self._counted.add(call_of(native))
            runs.setdefault(last, []).append(native)
        return validated([native for run in runs.values() for native in run])

    def take(self, given: Sequence[ModelMessage]) -> int:
        """Store the messages that are not stored yet; return their number."""
        keys = list(map(_key, natives(given)))
        with self._lock:
            while True:
                at = self._session.seq
                stored = set(map(_key, natives(self.read(at))))
                new = [one for one, key in zip(given, keys, strict=True) if key not in stored]
                with suppress(hansard.SeqConflict):
                    # Two runs that are given the same history concurrently store it once.
                    self._append(new, expected_seq=at)
                    return len(new)

    def begin(self, history: list[ModelMessage]) -> None:
        """Note the history with which a run begins: the framework may have repaired it."""
        if self.live is None:
            node = self.first if isinstance(self.first, ModelRequestNode) else None
            self._known = [one for one in history if node is None or one is not node.request]
            if node is not None and node.is_resuming_without_prompt:
                self._known.append(node.request)  # the last stored request, to be sent again
        self.live = history

    async def note(self, *, cancelled: bool = False) -> None:
        """Store new messages of the history; continues in its thread if the caller is cancelled.

        Args:
            cancelled: the run was cancelled: also store the results of tools that have finished.
        """
        if self.live is not None:
            ended = self._finished_results(self.live) if cancelled else []
            await asyncio.to_thread(self._note, [*self.live, *ended])

    def _finished_results(self, history: list[ModelMessage]) -> list[ModelMessage]:
        """Return the finished results of the last calls, as the framework would add them."""
        last = history[-1] if history else None
        if not isinstance(last, ModelResponse):
            return []
        parts = []
        for call in last.tool_calls:
            if call.tool_call_id in self.finished:
                name, value = self.finished[call.tool_call_id]
                result = value if isinstance(value, ToolReturn) else ToolReturn(value)
                part = ToolReturnPart(name, result.return_value, tool_call_id=call.tool_call_id)
                parts.append(replace(part, metadata=result.metadata))
        named: Any = {"run_id": last.run_id, "conversation_id": last.conversation_id}
        now = datetime.now(UTC)
        return [ModelRequest(parts, **named, timestamp=now, state="interrupted")] if parts else []

    def _note(self, history: list[ModelMessage]) -> None:
        with self._lock:
            self._adopt(history)
            known = {id(message) for message in self._known}
            places = [place for place, one in enumerate(history) if id(one) in known]
            end = places[-1] + 1 if places else 0
            new = [one for one in history if id(one) not in known]
            if not new:
                return
            removed = self._removed(history)
            parts = {id(part) for message in removed for part in message.parts}
            changed = [one for one in history[:end] if id(one) not in known]
            changed += [one for one in history[end:] if any(id(p) in parts for p in one.parts)]
            if removed and not places and history[0].run_id != self._run_id:
                changed = changed or [history[0]]  # it replaces the entire history
            if changed:
                self._replace(history)
            else:
                self._append(new)
            # Messages that were left out stay stored: the next run has them again.
            self._known = history

    def _removed(self, history: list[ModelMessage]) -> list[ModelMessage]:
        here = {id(message) for message in history}
        return [message for message in self._known if id(message) not in here]

    def _adopt(self, history: list[ModelMessage]) -> None:
        """Recognize messages that were copied without a change."""
        known = {id(message) for message in self._known}
        new = [message for message in history if id(message) not in known]
        removed = self._removed(history) if new else []
        if not removed:
            return
        copies = dict(zip(map(_key, natives(removed)), removed, strict=True))
        instead: dict[int, ModelMessage] = {}
        for key, message in zip(map(_key, natives(new)), new, strict=True):
            original = copies.pop(key, None)
            if original is not None:
                instead[id(original)] = message
        self._known = [instead.get(id(message), message) for message in self._known]

    def _append(self, messages: Sequence[ModelMessage], expected_seq: int | None = None) -> None:
        if messages:
            session = self._session
            given = natives(messages)
            added = [("message.added", {"message": message_of(native)}) for native in given]
            usage = self._usage(given)
            events = session.append_all([*added, *usage], expected_seq=expected_seq)
            self._counted.update(map(call_of, given))
            self._describe(session)
            self._seen |= {event.seq for event in events}

    def _usage(self, given: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
        """Return the events of the usage that some messages report, and that is not recorded yet."""
        new = {call_of(one): usage_of(one) for one in given if call_of(one) not in self._counted}
        return [("usage.recorded", usage) for usage in new.values() if usage is not None]

    def _describe(self, session: hansard.Session) -> None:
        if self.metadata:
            session.patch_metadata(self.metadata)
            self.metadata = {}

    def _replace(self, history: list[ModelMessage]) -> None:
        """Replace the stored history; concurrent messages of another process stay."""
        session = self._session
        self._describe(session)
        given = natives(history)
        messages = [message_of(native) for native in given]
        session.append_all(self._usage(given))
        self._counted.update(map(call_of, given))
        while True:
            seq = session.seq
            others = [one for at, one in session.numbered(at=seq) if at not in self._seen]
            with suppress(hansard.SeqConflict):
                event = session.revert(0, messages=[*messages, *others], expected_seq=seq)
                self._seen |= set(range(event.seq + 1, event.seq + 1 + len(messages)))
                return


def natives(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Return messages as JSON; one that JSON would not restore as Python values."""
    given = list(messages)
    found: list[dict[str, Any]] = values.dumped(given, _dump, _load)  # together: the usual case
    if not values.is_json(found):
        each = (values.dumped([message], _dump, _load)[0] for message in given)
        # Validated, as they will be read: validation turns an int into a float where the model has one.
        found = [
            one if values.is_json(one) else _dump(validated([one]), "python")[0] for one in each
        ]
    return found


def validated(found: list[dict[str, Any]]) -> list[ModelMessage]:
    """Return the messages that `natives` returned as JSON or values."""
    if values.is_json(found):
        return _load(found)
    validate = ModelMessagesTypeAdapter.validate_python
    return [(_load if values.is_json(one) else validate)([one])[0] for one in found]


def _dump(messages: list[ModelMessage], mode: values.Mode) -> Any:
    return ModelMessagesTypeAdapter.dump_python(messages, mode=mode)


def _load(found: Any) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_json(json.dumps(found))


def _key(native: dict[str, Any]) -> str:
    """Return what identifies a message, in any state."""
    return json.dumps(values.wrap("message", {**native, "state": None}), sort_keys=True)
