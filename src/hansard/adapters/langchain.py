"""Keep the chat histories of LangChain.

    from hansard.adapters.langchain import HansardChatMessageHistory

    with_history = RunnableWithMessageHistory(chain, lambda id: HansardChatMessageHistory(id, "data"))

LangChain has deprecated the class that this one implements, and removes it in version 2. Use LangGraph and
`hansard.adapters.langgraph` for new programs.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import hansard
from hansard.adapters.opening import StoreLike, finished, missing, opened, settled
from hansard.message import origin
from hansard.message.langgraph_values import usage_of

try:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import (
        BaseMessage,
        ChatMessage,
        convert_to_messages,
        message_to_dict,
        messages_from_dict,
    )
except ImportError as error:
    missing("langchain", "langchain-core 1", "langchain", error)

__all__ = ["HansardChatMessageHistory"]

FORMAT: Final = "langchain"

_ROLES: Final = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


class HansardChatMessageHistory(BaseChatMessageHistory):
    """The history of one chat, kept in a store.

    Any number of objects, in any number of processes, may use one session concurrently.

    Attributes:
        session_id: the session's id in the store.
    """

    def __init__(self, session_id: str, store: StoreLike) -> None:
        """Create a handle; nothing is opened or written yet.

        Args:
            session_id: a string of 1 to 1,024 characters.
            store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
        """
        self.session_id = session_id
        self._store = settled(store)

    def _session(self) -> hansard.Session:
        return opened(self._store).session(self.session_id)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages, oldest first: a new list each time."""
        return _read(self._session().messages())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, and the usage that they report, all or none."""
        events: list[tuple[str, dict[str, Any]]] = []
        for message in messages:
            events.append(("message.added", {"message": message_of(message)}))
            usage = usage_of(vars(message).get)
            events += [] if usage is None else [("usage.recorded", usage)]
        self._session().append_all(events)

    def clear(self) -> None:
        """Clear the model view. The history keeps everything; `store.delete` removes it."""
        session = self._session()
        if session.seq:
            session.clear()

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, all or none; a cancellation is raised when that is done."""
        await finished(super().aadd_messages(messages))

    async def aclear(self) -> None:
        """Clear the model view; a cancellation is raised when that is done."""
        await finished(super().aclear())


def message_of(message: BaseMessage) -> dict[str, Any]:
    """Return the message that one of LangChain's is stored as."""
    native = message_to_dict(message)
    kind = message.type.removesuffix("MessageChunk").lower()
    role = message.role if isinstance(message, ChatMessage) else _ROLES.get(kind, kind)
    made = getattr(message, "tool_calls", ())
    calls = [origin.call_of(call["id"], call["name"], call["args"]) for call in made]
    more = {"tool_calls": calls or None, "tool_call_id": getattr(message, "tool_call_id", None)}
    return origin.pack(FORMAT, native, role=role, content=message.content, **more)


def _read(messages: Iterable[dict[str, Any]]) -> list[BaseMessage]:
    """Return stored messages as LangChain's; those of other frameworks as a chat that models accept."""
    return messages_from_dict([*origin.natives(messages, FORMAT, _foreign)])


def _foreign(chat: dict[str, Any]) -> dict[str, Any]:
    if chat["role"] not in {*_ROLES.values(), "developer"}:
        return message_to_dict(ChatMessage(content=chat["content"], role=chat["role"]))
    calls = [{"id": one, "name": tool, "args": given} for one, tool, given in origin.calls_of(chat)]
    (message,) = convert_to_messages([{**chat, "tool_calls": calls} if calls else chat])
    return message_to_dict(message)
