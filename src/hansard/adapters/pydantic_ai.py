"""Keep the conversations of Pydantic AI: a capability that restores and saves them, and a step store.

    from hansard.adapters.pydantic_ai import SessionPersistence

    agent = Agent(model, capabilities=[SessionPersistence("data")])
    await agent.run("Hello", conversation_id="support/42")

Above: user code, Pydantic AI.  Below: `opening`, `pydantic_ai_session` (what is stored of a
history), `pydantic_ai_steps`.
A conversation is the session of the same id. A request is stored before it is sent, an answer when it has
come; what a run has said when it fails or is cancelled is stored as it ends. docs/guides/pydantic-ai.md has
the rest.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hansard.adapters.opening import Settled, StoreLike, missing, settled

try:
    from pydantic_ai import UserPromptNode
    from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models.wrapper import WrapperModel
except ImportError as error:
    missing("pydantic_ai", "pydantic-ai-slim", "pydantic-ai", error)

from hansard.adapters.pydantic_ai_session import Conversation

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
    _run: Conversation | None = field(default=None, init=False, repr=False)

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
        return cls(
            store,
            prefix=prefix,
            auto_restore=auto_restore,
            auto_save=auto_save,
            metadata=metadata,
        )

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

    def _of(self, conversation_id: str, run_id: str | None = None) -> Conversation:
        return Conversation(self._place, self.prefix + conversation_id, run_id)

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
            # Who gives a history has the say; what is new in it is stored, and what is known is not again.
            if self.auto_save:
                await asyncio.to_thread(run.take, list(ctx.messages))
        elif self.auto_restore:
            prompted = ctx.prompt is not None
            ctx.messages[:] = await asyncio.to_thread(lambda: run.restore(prompted=prompted))

    async def before_node_run(self, ctx: "Context", *, node: Any) -> Any:
        """Take note of the history that the run goes on from, as the framework has mended it."""
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
        """Return a model that has the request stored before it is sent: nobody changes it after that."""
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
        run = self._run if self.auto_save else None
        try:
            result: AgentRunResult[Any] = await handler()
        except asyncio.CancelledError:
            if run is not None:
                await run.note(cut_off=True)
            raise
        except BaseException:
            if run is not None:
                await run.note()
            raise
        if run is not None:
            await run.note()
        return result


class _Noting(WrapperModel):
    """A model that has the history stored before a request is sent."""

    def __init__(self, wrapped: "Model", run: Conversation) -> None:
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
