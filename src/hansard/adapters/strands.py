"""A repository for Strands that keeps agents' messages in sessions, and a storage for snapshots.

    from hansard.adapters.strands import HansardRepository
    from strands.session.repository_session_manager import RepositorySessionManager

    manager = RepositorySessionManager("support/42", HansardRepository("data"))
    agent = Agent(session_manager=manager)

A session of Strands is the session of the same id. Messages of its agents are messages that every framework
can read, with calls and results as Anthropic's blocks; `origin` holds the rest. A later message of the same
agent and number replaces an earlier one. States are application events, as Strands writes them to a file; the
last one counts. Each key of the storage is a session, `strands/<key>`, and each write an event in it: text as
text, other bytes in base64. docs/guides/strands.md has the rest.
"""

import base64
import builtins
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

import hansard
from hansard import aio
from hansard.adapters.opening import StoreLike, aopened, missing, opened, settled
from hansard.adapters.session_projection import AdapterProjection
from hansard.message import origin, values

try:
    from strands.session.session_repository import SessionRepository
    from strands.storage.search import KeywordSearchStrategy, StorageSearchResult
    from strands.storage.storage import _normalize_key, _normalize_prefix
    from strands.types.exceptions import SessionException, StorageError
    from strands.types.session import Session, SessionAgent, SessionMessage
except ImportError as error:
    missing("strands", "strands-agents", "strands", error)

if TYPE_CHECKING:
    from strands.multiagent import MultiAgentBase

__all__ = ["HansardRepository", "HansardStorage"]

_FORMAT: Final = "strands"

_SESSION: Final = "x.strands.session"
_AGENT: Final = "x.strands.agent"
_MULTI_AGENT: Final = "x.strands.multi_agent"

Json = dict[str, Any]

_decode = msgspec.json.Decoder().decode


class HansardRepository(SessionRepository):
    """Keeps the sessions of Strands in a store; for `RepositorySessionManager`.

    One repository serves all sessions. Any number of threads and processes can use one session concurrently:
    the messages of each are stored.

    Args:
        store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
        prefix: prefix of the session ids, before those of Strands.
    """

    def __init__(self, store: StoreLike, *, prefix: str = "") -> None:
        self._store = settled(store)
        self._prefix = prefix
        self._known = lru_cache(64)(lambda name: _SessionProjection(opened(self._store), name))

    def _of(self, session_id: str) -> "_SessionProjection":
        known = self._known(self._prefix + session_id)
        known.refresh()
        return known

    def create_session(self, session: Session, **_: Any) -> Session:
        """Create a session; `SessionException` if it exists."""
        known = self._of(session.session_id)
        if known.session is not None:
            raise SessionException(f"Session {session.session_id} already exists")
        # The idempotency key lets one of several concurrent calls create it, also again after a revert.
        known.handle.append(
            _SESSION, values.wrap("state", session.to_dict()), key=f"{_SESSION}:{known.seq}"
        )
        return session

    def read_session(self, session_id: str, **_: Any) -> Session | None:
        """Return a session; None if Strands has not created it."""
        found = self._of(session_id).session
        return None if found is None else Session.from_dict(found)

    def delete_session(self, session_id: str, **_: Any) -> None:
        """Delete a session permanently. If sessions were forked from it, it stays in the trash for them."""
        store, own = opened(self._store), self._prefix + session_id
        if not store.exists(own):
            raise SessionException(f"Session {session_id} does not exist")
        store.delete(own)
        with suppress(hansard.InUse):
            store.purge(own)

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Store an agent's state."""
        self._of(session_id).handle.append(_AGENT, values.wrap("state", session_agent.to_dict()))

    def read_agent(self, session_id: str, agent_id: str, **_: Any) -> SessionAgent | None:
        """Return an agent's state; None if the agent is unknown."""
        found = self._of(session_id).agents.get(agent_id)
        return None if found is None else SessionAgent.from_dict(found)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Store an agent's new state; its time of creation stays."""
        agent_id = session_agent.agent_id
        before = self._of(session_id).agents.get(agent_id)
        if before is None:
            raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
        session_agent.created_at = before["created_at"]
        self.create_agent(session_id, session_agent)

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any
    ) -> None:
        """Add a message. If its number is used, because of another process, it gets the next one."""
        _check_number(session_message.message_id)
        while True:
            known = self._of(session_id)
            with known.lock:
                seq, held = known.seq, known.messages.get(agent_id, {})
                # The manager counts on from here, and redacts the message by this number.
                if session_message.message_id in held:
                    session_message.message_id = max(held) + 1
            with suppress(hansard.SeqConflict):
                message = _packed(agent_id, session_message.to_dict())
                known.handle.add_message(message, expected_seq=seq)
                return

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **_: Any
    ) -> SessionMessage | None:
        """Return a message by its number; None if there is none."""
        _check_number(message_id)
        found = self._of(session_id).messages.get(agent_id, {}).get(message_id)
        return None if found is None else _message(found[1])

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any
    ) -> None:
        """Replace a message; the replaced one is redacted, permanently and in every view."""
        known = self._of(session_id)
        number = session_message.message_id
        before = known.messages.get(agent_id, {}).get(number)
        if before is None:
            raise SessionException(f"Message {number} does not exist")
        seq, raw = before
        session_message.created_at = _message(raw).created_at
        # First the new one: after a kill in between, both are stored, and Strands sees the new one.
        known.handle.add_message(_packed(agent_id, session_message.to_dict()))
        known.handle.redact(seq, reason="updated by Strands")

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **_: Any
    ) -> list[SessionMessage]:
        """Return an agent's messages in order.

        In a session that Strands has not created, return all messages, converted to Strands' form.
        """
        known = self._of(session_id)
        chosen = slice(offset, None if limit is None else offset + limit)
        if agent_id in known.agents or agent_id in known.messages:
            with known.lock:
                found = sorted(known.messages.get(agent_id, {}).items())
            return [_message(raw) for _, (_, raw) in found[chosen]]
        if known.session is not None or not known.seq:
            raise SessionException(
                f"Messages missing from agent: {agent_id} in session {session_id}"
            )
        foreign = list(enumerate(_foreign(known.handle.messages())))
        return [
            SessionMessage.from_message(message, number)  # type: ignore[arg-type] # of its shape
            for number, message in foreign[chosen]
        ]

    def create_multi_agent(self, session_id: str, multi_agent: "MultiAgentBase", **_: Any) -> None:
        """Store the state of several agents that work together."""
        state = {"id": multi_agent.id, "state": multi_agent.serialize_state()}
        self._of(session_id).handle.append(_MULTI_AGENT, values.wrap("state", state))

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **_: Any) -> Json | None:
        """Return the state of several agents; None if there is none."""
        return self._of(session_id).multi_agents.get(multi_agent_id)

    def update_multi_agent(self, session_id: str, multi_agent: "MultiAgentBase", **_: Any) -> None:
        """Store the new state of several agents."""
        if multi_agent.id not in self._of(session_id).multi_agents:
            raise SessionException(
                f"MultiAgent state {multi_agent.id} in session {session_id} does not exist"
            )
        self.create_multi_agent(session_id, multi_agent)


class _SessionProjection(AdapterProjection):
    """The states and messages of one session."""

    def _begin(self) -> None:
        self.session: Json | None = None
        self.agents: dict[str, Json] = {}
        self.multi_agents: dict[str, Json] = {}
        #: By agent and number: the seq, and the event's data as JSON.
        self.messages: dict[str, dict[int, tuple[int, bytes]]] = {}

    def _add(self, event: hansard.Event) -> None:
        if event.message is not None:
            item = origin.unpack(event.message, _FORMAT)
            if item is not None:
                held = self.messages.setdefault(item["agent"], {})
                held[item["message_id"]] = (event.seq, event.raw)
        elif event.kind in {_SESSION, _AGENT, _MULTI_AGENT}:
            state = values.unwrap(event.data, "state")
            if state is None:
                return  # redacted
            if event.kind == _SESSION:
                self.session = state
            elif event.kind == _AGENT:
                self.agents[state["agent_id"]] = state
            else:
                self.multi_agents[state["id"]] = state["state"]


def _packed(agent: str, given: Json) -> Json:
    """Return the stored form of a message, which is given as Strands writes it to a file."""
    redacted = given.get("redact_message")
    said = given["message"] if redacted is None else redacted
    # The text that a replacement redacts is not kept: both places hold the replacement.
    item = {"agent": agent, **given, "message": said}
    item["redact_message"] = None if redacted is None else True
    content = origin.content_of([_block(block) for block in said["content"]])
    return origin.pack(_FORMAT, item, role=said["role"], content=content)


def _block(block: Json) -> Json:
    """Return a text, a call or a result as Anthropic's block, which all views know."""
    if block.keys() == {"text"}:
        return {"type": "text", **block}
    use, result = block.get("toolUse"), block.get("toolResult")
    if isinstance(use, dict):
        named = {"id": use.get("toolUseId"), "name": use.get("name"), "input": use.get("input")}
        return {"type": "tool_use", **named}
    if isinstance(result, dict):
        text = origin.content_text(result.get("content"))
        answer = {"type": "tool_result", "tool_use_id": result.get("toolUseId"), "content": text}
        return answer | ({"is_error": True} if result.get("status") == "error" else {})
    return block


def _message(raw: bytes) -> SessionMessage:
    item = origin.unpack(_decode(raw)["message"], _FORMAT)
    assert item is not None  # the projection keeps only such messages
    if item["redact_message"]:
        item["redact_message"] = item["message"]
    return SessionMessage.from_dict(item)


def _foreign(messages: Iterable[Json]) -> Iterator[Json]:
    """Yield messages of other frameworks in Strands' form."""
    results: list[Json] = []
    for chat in origin.conversation(messages):
        if chat["role"] == "tool":
            named = {"toolUseId": chat["tool_call_id"], "status": "success"}
            results.append({"toolResult": {**named, "content": [{"text": chat["content"]}]}})
            continue
        if results:  # of parallel calls: Strands expects them in one message
            yield {"role": "user", "content": results}
            results = []
        content: list[Json] = [{"text": chat["content"]}] if chat["content"] else []
        for call_id, tool, given in origin.calls_of(chat):
            content.append({"toolUse": {"toolUseId": call_id, "name": tool, "input": given}})
        yield {"role": "assistant" if chat["role"] == "assistant" else "user", "content": content}
    if results:
        yield {"role": "user", "content": results}


def _check_number(message_id: object) -> None:
    if not isinstance(message_id, int):
        raise ValueError(f"message_id=<{message_id}> | message id must be an integer")  # noqa: TRY004


VALUE: Final = "x.strands.value"
DELETED: Final = "x.strands.deleted"

#: Metadata of a session that is a key.
MARK: Final = "strands_storage"


class HansardStorage:
    """Stores bytes under keys; for `SnapshotSessionManager` and `Agent(storage=…)`.

    Args:
        store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
        prefix: prefix of the session ids, before the key.
    """

    def __init__(self, store: StoreLike, *, prefix: str = "strands/") -> None:
        self._store = settled(store)
        self._prefix = prefix

    async def write(self, key: str, data: bytes) -> None:
        """Store bytes under a key, and replace earlier ones."""
        name = _normalize_key(key)
        with _failing(f"write {key!r}"):
            session = await self._session(name)
            if (await session.metadata).get(MARK) != 1:
                await session.set_metadata(**{MARK: 1})
            await session.append(VALUE, _value_data(bytes(data)))

    async def read(self, key: str) -> bytes | None:
        """Return the bytes under a key; None if there are none."""
        name = _normalize_key(key)
        with _failing(f"read {key!r}"), suppress(hansard.SessionDeleted):
            session = await self._session(name)
            return await _value(session, await session.seq)
        return None

    async def delete(self, key: str) -> None:
        """Delete a key; hansard's own API can still read its values."""
        name = _normalize_key(key)
        with _failing(f"delete {key!r}"), suppress(hansard.SessionDeleted):
            session = await self._session(name)
            if await _value(session, await session.seq) is not None:
                await session.append(DELETED, {})

    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the keys that begin with a string, sorted."""
        prefix = _normalize_prefix(query)
        with _failing(f"list {query!r}"):
            store = await aopened(self._store)
            page = await store.sessions(prefix=self._prefix + prefix, where={MARK: 1})
            found = [
                info.id.removeprefix(self._prefix)
                for info in page.items
                if await _value(store.session(info.id), info.seq) is not None
            ]
            return sorted(found)

    async def search(self, query: str) -> builtins.list[StorageSearchResult]:
        """Find keys by the words of their values, as Strands' own storages do."""
        return await KeywordSearchStrategy().search(self, query)

    async def _session(self, name: str) -> aio.Session:
        store = await aopened(self._store)
        return store.session(self._prefix + name)


@contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except hansard.HansardError as error:
        raise StorageError(f"Failed to {what}: {error}") from error


async def _value(session: aio.Session, seq: int) -> bytes | None:
    """Return the value of a key, nearly always in the last event."""
    last: hansard.Event | None = None
    for after in (seq - 1, 0) if seq else ():
        async for event in session.events(after=after):
            if event.kind in {VALUE, DELETED}:
                last = event
        if last is not None:
            break
    data = last.data if last is not None and last.kind == VALUE else {}
    if "text" in data:
        return str(data["text"]).encode()
    return base64.b64decode(data["base64"]) if "base64" in data else None


def _value_data(data: bytes) -> Json:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
