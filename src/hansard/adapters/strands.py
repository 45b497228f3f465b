"""Strands: a repository that keeps what agents say in sessions, and a storage for their snapshots.

    from hansard.adapters.strands import HansardRepository
    from strands.session.repository_session_manager import RepositorySessionManager

    manager = RepositorySessionManager("support/42", HansardRepository("data"))
    agent = Agent(session_manager=manager)

Above: user code.  Below: `hansard`, `opening`, `common`, `strands_session` (what a session adds up to) and
`strands_storage`.
A session of Strands is the session of the same id. What its agents say are messages that everybody can read;
their states are events of the application's own. docs/guides/strands.md has the rest.
"""

from collections import OrderedDict
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import hansard
from hansard.adapters.opening import StoreLike, missing, opened, settled
from hansard.adapters.strands_session import (
    AGENT,
    MULTI_AGENT,
    SESSION,
    Known,
    foreign,
    packed,
    unpacked,
    wrapped,
)

try:
    from strands.session.session_repository import SessionRepository
    from strands.types.exceptions import SessionException
    from strands.types.session import Session, SessionAgent, SessionMessage
except ImportError as error:
    missing("strands", "strands-agents", "strands", error)

from hansard.adapters.strands_storage import HansardStorage

if TYPE_CHECKING:
    from strands.multiagent import MultiAgentBase

__all__ = ["HansardRepository", "HansardStorage"]

#: So many sessions are kept in mind.
_SESSIONS: Final = 64


class HansardRepository(SessionRepository):
    """Keeps the sessions of Strands in a store; for `RepositorySessionManager`.

    One for all sessions, and for any number of threads and processes: two that run the same conversation at
    the same time both have what they said in it.

    Args:
        store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
        prefix: what the ids of hansard's sessions begin with, before those of Strands.
    """

    def __init__(self, store: StoreLike, *, prefix: str = "") -> None:
        self._store = settled(store)
        self._prefix = prefix
        self._mutex = Lock()
        self._known: OrderedDict[str, Known] = OrderedDict()

    def _of(self, session_id: str) -> Known:
        """Return what is known of a session, up to date."""
        with self._mutex:
            known = self._known.get(session_id)
            if known is None:
                known = Known(opened(self._store).session(self._prefix + session_id))
                self._known[session_id] = known
            self._known.move_to_end(session_id)
            if len(self._known) > _SESSIONS:
                self._known.popitem(last=False)
        known.refresh()
        return known

    # -- sessions ---------------------------------------------------------------------------------

    def create_session(self, session: Session, **_: Any) -> Session:
        """Begin a session that must not exist."""
        known = self._of(session.session_id)
        if known.session is not None:
            raise SessionException(f"Session {session.session_id} already exists")
        # With a key: of two who begin it at the same time, one does.
        known.handle.append(SESSION, wrapped(session.to_dict()), key=SESSION)
        return session

    def read_session(self, session_id: str, **_: Any) -> Session | None:
        """Return a session; None if Strands has not begun it."""
        found = self._of(session_id).session
        return None if found is None else Session.from_dict(found)

    def delete_session(self, session_id: str, **_: Any) -> None:
        """Delete a session for good. If sessions were forked from it, it stays in the trash for them."""
        store, own = opened(self._store), self._prefix + session_id
        if not store.exists(own):
            raise SessionException(f"Session {session_id} does not exist")
        store.delete(own)
        with self._mutex:
            self._known.pop(session_id, None)
        with suppress(hansard.InUse):
            store.purge(own)

    # -- agents -----------------------------------------------------------------------------------

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Store an agent's state."""
        self._of(session_id).handle.append(AGENT, wrapped(session_agent.to_dict()))

    def read_agent(self, session_id: str, agent_id: str, **_: Any) -> SessionAgent | None:
        """Return an agent's state; None if there is no such agent."""
        found = self._of(session_id).agents.get(agent_id)
        return None if found is None else SessionAgent.from_dict(found)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Store an agent's new state; when it was created stays as it was."""
        known = self._of(session_id)
        before = known.agents.get(session_agent.agent_id)
        if before is None:
            raise SessionException(
                f"Agent {session_agent.agent_id} in session {session_id} does not exist"
            )
        session_agent.created_at = before["created_at"]
        known.handle.append(AGENT, wrapped(session_agent.to_dict()))

    # -- messages ---------------------------------------------------------------------------------

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any
    ) -> None:
        """Add a message. If another process has given its number away meanwhile, it gets the next one."""
        _check_number(session_message.message_id)
        while True:
            known = self._of(session_id)
            with known.lock:
                seq = known.seq
                number = known.free(agent_id, session_message.message_id)
            # The manager counts on from here, and names the message so if it is to be redacted.
            session_message.message_id = number
            with suppress(hansard.SeqConflict):
                message = packed(agent_id, session_message.to_dict())
                known.handle.add_message(message, expected_seq=seq)
                return

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **_: Any
    ) -> SessionMessage | None:
        """Return a message by its number; None if there is none."""
        _check_number(message_id)
        found = self._of(session_id).messages.get(agent_id, {}).get(message_id)
        return None if found is None else _message(found.message)

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any
    ) -> None:
        """Put another message in the place of one, which is redacted: in every view, and for good."""
        known = self._of(session_id)
        number = session_message.message_id
        before = known.messages.get(agent_id, {}).get(number)
        if before is None:
            raise SessionException(f"Message {number} does not exist")
        session_message.created_at = _message(before.message).created_at
        # First the new one: a kill in between leaves both, and Strands sees the new one.
        known.handle.add_message(packed(agent_id, session_message.to_dict()))
        known.handle.redact(before.seq, reason="updated by Strands")

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **_: Any
    ) -> list[SessionMessage]:
        """Return an agent's messages in order.

        In a session that Strands has not begun, whatever was said there, as Strands would have it.
        """
        known = self._of(session_id)
        if agent_id in known.agents or agent_id in known.messages:
            with known.lock:
                found = sorted(known.messages.get(agent_id, {}).items())
            chosen = found[offset : None if limit is None else offset + limit]
            return [_message(one.message) for _, one in chosen]
        if known.session is not None or not known.seq:
            raise SessionException(
                f"Messages missing from agent: {agent_id} in session {session_id}"
            )
        said = list(enumerate(foreign(known.handle.messages())))
        return [
            SessionMessage.from_message(message, number)  # type: ignore[arg-type] # made as it must be
            for number, message in said[offset : None if limit is None else offset + limit]
        ]

    # -- several agents ---------------------------------------------------------------------------

    def create_multi_agent(self, session_id: str, multi_agent: "MultiAgentBase", **_: Any) -> None:
        """Store the state of several agents that work together."""
        told = {"id": multi_agent.id, "state": multi_agent.serialize_state()}
        self._of(session_id).handle.append(MULTI_AGENT, wrapped(told))

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, **_: Any
    ) -> dict[str, Any] | None:
        """Return their state; None if there is none."""
        return self._of(session_id).multi_agents.get(multi_agent_id)

    def update_multi_agent(self, session_id: str, multi_agent: "MultiAgentBase", **_: Any) -> None:
        """Store their new state."""
        if multi_agent.id not in self._of(session_id).multi_agents:
            raise SessionException(
                f"MultiAgent state {multi_agent.id} in session {session_id} does not exist"
            )
        self.create_multi_agent(session_id, multi_agent)


def _check_number(message_id: object) -> None:
    if not isinstance(message_id, int):
        raise ValueError(f"message_id=<{message_id}> | message id must be an integer")  # noqa: TRY004


def _message(stored: bytes) -> SessionMessage:
    return SessionMessage.from_dict(unpacked(stored))
