"""Strands: a repository that keeps what agents say in sessions, and a storage for their snapshots.

    from hansard.adapters.strands import HansardRepository
    from strands.session.repository_session_manager import RepositorySessionManager

    manager = RepositorySessionManager("support/42", HansardRepository("data"))
    agent = Agent(session_manager=manager)

A session of Strands is the session of the same id. What its agents say are messages that every framework
can read, with calls and results as Anthropic's blocks; `origin` has what else Strands knows of them.
A later message of the same agent and number replaces an earlier one. States are application events, each as
Strands writes it to a file; the last one counts. Each key of the storage is a session,
`strands/<key>`, and each write an event in it: text as text, other bytes in base64.
docs/guides/strands.md has the rest.
"""

import base64
import builtins
import copy
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

import hansard
from hansard import aio
from hansard.adapters.opening import StoreLike, aopened, missing, opened, settled
from hansard.adapters.projection import Projection, Recent
from hansard.message import origin, values

try:
    from strands.session.session_repository import SessionRepository
    from strands.storage.search import KeywordSearchStrategy, StorageSearchResult
    from strands.storage.storage import _NAMESPACED
    from strands.types.exceptions import SessionException, StorageError
    from strands.types.session import Session, SessionAgent, SessionMessage
except ImportError as error:
    missing("strands", "strands-agents", "strands", error)

if TYPE_CHECKING:
    from strands.multiagent import MultiAgentBase
    from strands.storage.search import SearchStrategy

__all__ = ["HansardRepository", "HansardStorage"]

_FORMAT: Final = "strands"

_SESSION: Final = "x.strands.session"
_AGENT: Final = "x.strands.agent"
_MULTI_AGENT: Final = "x.strands.multi_agent"

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


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
        self._known: Recent[_SessionProjection] = Recent()

    def _of(self, session_id: str) -> "_SessionProjection":
        """Return what is known of a session, up to date."""
        own = self._prefix + session_id
        known = self._known.of(own, lambda name: _SessionProjection(opened(self._store), name))
        known.refresh()
        return known

    # -- sessions ---------------------------------------------------------------------------------

    def create_session(self, session: Session, **_: Any) -> Session:
        """Begin a session that must not exist."""
        known = self._of(session.session_id)
        if known.session is not None:
            raise SessionException(f"Session {session.session_id} already exists")
        # With a key: of two who begin it at the same time, one does.
        known.handle.append(_SESSION, _wrapped(session.to_dict()), key=_SESSION)
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
        self._known.forget(own)
        with suppress(hansard.InUse):
            store.purge(own)

    # -- agents -----------------------------------------------------------------------------------

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Store an agent's state."""
        self._of(session_id).handle.append(_AGENT, _wrapped(session_agent.to_dict()))

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
        known.handle.append(_AGENT, _wrapped(session_agent.to_dict()))

    # -- messages ---------------------------------------------------------------------------------

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any
    ) -> None:
        """Add a message. If another process took its number concurrently, it gets the next one."""
        _check_number(session_message.message_id)
        while True:
            known = self._of(session_id)
            with known.lock:
                seq = known.seq
                number = known.free(agent_id, session_message.message_id)
            # The manager counts on from here, and names the message so if it is to be redacted.
            session_message.message_id = number
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
        known.handle.add_message(_packed(agent_id, session_message.to_dict()))
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
        said = list(enumerate(_foreign(known.handle.messages())))
        return [
            SessionMessage.from_message(message, number)  # type: ignore[arg-type] # made as it must be
            for number, message in said[offset : None if limit is None else offset + limit]
        ]

    # -- several agents ---------------------------------------------------------------------------

    def create_multi_agent(self, session_id: str, multi_agent: "MultiAgentBase", **_: Any) -> None:
        """Store the state of several agents that work together."""
        told = {"id": multi_agent.id, "state": multi_agent.serialize_state()}
        self._of(session_id).handle.append(_MULTI_AGENT, _wrapped(told))

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


# -- what is stored -----------------------------------------------------------------------------


class _Stored(NamedTuple):
    """A message: its seq, and what is stored, as JSON."""

    seq: int
    message: bytes


class _SessionProjection(Projection):
    """What is known of one session, brought up to date by what is new in it."""

    def _begin(self) -> None:
        self.session: Json | None = None
        self.agents: dict[str, Json] = {}
        self.multi_agents: dict[str, Json] = {}
        #: By agent, by number.
        self.messages: dict[str, dict[int, _Stored]] = {}

    def _add(self, event: hansard.Event) -> None:
        if event.kind == "message.added":
            self._add_message(event)
        elif event.kind in {_SESSION, _AGENT, _MULTI_AGENT}:
            told = values.unwrap(event.data, "state")
            if told is None:
                return  # redacted
            if event.kind == _SESSION:
                self.session = told
            elif event.kind == _AGENT:
                self.agents[told["agent_id"]] = told
            else:
                self.multi_agents[told["id"]] = told["state"]

    def _add_message(self, event: hansard.Event) -> None:
        message = event.data["message"]
        # What was redacted has no message.
        item = None if message is None else origin.unpack(message, _FORMAT)
        if item is not None:
            held = self.messages.setdefault(item["agent"], {})
            held[item["message_id"]] = _Stored(event.seq, _encode(message))

    def free(self, agent: str, number: int) -> int:
        """Return a number for a new message: the requested one, or the next if that is taken."""
        held = self.messages.get(agent, {})
        return max(held) + 1 if number in held else number


def _packed(agent: str, told: Json) -> Json:
    """Return the stored form of a message that is given as Strands would write it to a file."""
    said = told["message"] if told.get("redact_message") is None else told["redact_message"]
    item: Json = {"agent": agent, **told, "message": said, "redact_message": None}
    if told.get("redact_message") is not None:
        # What was redacted is not kept anywhere: the replacement is in both places.
        item["redact_message"] = True
    return origin.pack(_FORMAT, item, role=said["role"], content=_shown(said["content"]))


def _shown(content: list[Json]) -> str | list[Json]:
    """Return content with blocks as Anthropic has them, which all views know: texts, calls and results."""
    if len(content) == 1 and content[0].keys() == {"text"}:
        return str(content[0]["text"])
    return [_block(block) for block in content]


def _block(block: Json) -> Json:
    if block.keys() == {"text"}:
        return {"type": "text", **block}
    use, result = block.get("toolUse"), block.get("toolResult")
    if isinstance(use, dict):
        named = {"id": use.get("toolUseId"), "name": use.get("name"), "input": use.get("input")}
        return {"type": "tool_use", **named}
    if isinstance(result, dict):
        told = origin.content_text(result.get("content"))
        return {"type": "tool_result", "tool_use_id": result.get("toolUseId"), "content": told}
    return block


def _unpacked(stored: bytes) -> Json:
    """Return a message as Strands would have written it to a file."""
    item = origin.unpack(_decode(stored), _FORMAT)
    assert item is not None  # only such messages are kept
    if item["redact_message"]:
        item["redact_message"] = item["message"]
    told: Json = item
    return told


def _foreign(messages: Iterable[Json]) -> Iterator[Json]:
    """Yield messages that another framework wrote, in the shape that Strands has."""
    for one in origin.conversation(messages):
        if one["role"] == "tool":
            named = {"toolUseId": one["tool_call_id"], "status": "success"}
            result = {**named, "content": [{"text": one["content"]}]}
            yield {"role": "user", "content": [{"toolResult": result}]}
            continue
        content: list[Json] = [{"text": one["content"]}] if one["content"] else []
        for call in one.get("tool_calls", ()):
            name, given = call["function"]["name"], _arguments(call["function"]["arguments"])
            content.append({"toolUse": {"toolUseId": call["id"], "name": name, "input": given}})
        yield {"role": "assistant" if one["role"] == "assistant" else "user", "content": content}


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _wrapped(told: Json) -> Json:
    """Return the data of an event that holds a state."""
    return values.wrap("state", told)


def _check_number(message_id: object) -> None:
    if not isinstance(message_id, int):
        raise ValueError(f"message_id=<{message_id}> | message id must be an integer")  # noqa: TRY004


def _message(stored: bytes) -> SessionMessage:
    return SessionMessage.from_dict(_unpacked(stored))


# -- the storage --------------------------------------------------------------------------------

VALUE: Final = "x.strands.value"
DELETED: Final = "x.strands.deleted"

#: What says in a session's metadata that it is a key.
MARK: Final = "strands_storage"


class HansardStorage:
    """Keeps the bytes that Strands stores under keys; for `SnapshotSessionManager` and `Agent(storage=…)`.

    Args:
        store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
        prefix: what the ids of hansard's sessions begin with, before the key.
        search_strategy: indexes what is written, and answers `search`; Strands' search by keywords, if it is
            not given.
    """

    _namespaced: object = None

    def __init__(
        self,
        store: StoreLike,
        *,
        prefix: str = "strands/",
        search_strategy: "SearchStrategy[HansardStorage] | None" = None,
    ) -> None:
        self._store = settled(store)
        self._prefix = prefix
        self._strategy = search_strategy

    def namespace(self, prefix: str) -> Self:
        """Return a storage of the keys that begin with a prefix and `/`, which are named without it."""
        name = _checked(prefix).strip("/")
        scoped = copy.copy(self)
        scoped._prefix = f"{self._prefix}{name}/" if name else self._prefix  # noqa: SLF001 - of the same class
        # Strands then adds no prefix.
        scoped._namespaced = _NAMESPACED  # noqa: SLF001 - the same
        return scoped

    async def write(self, key: str, data: bytes) -> None:
        """Store bytes under a key, in place of what is there."""
        name = _key(key)
        with _failing(f"write {key!r}"):
            session = await self._session(name)
            if (await session.metadata).get(MARK) != 1:
                await session.set_metadata(**{MARK: 1})
            await session.append(VALUE, _value_data(bytes(data)))
        if self._strategy is not None:
            try:
                await self._strategy.index(self, name, data)
            except Exception as error:
                raise StorageError(f"Wrote {key!r}, but indexing it failed: {error}") from error

    async def read(self, key: str) -> bytes | None:
        """Return the bytes under a key; None if there are none."""
        name = _key(key)
        with _failing(f"read {key!r}"), suppress(hansard.SessionDeleted):
            session = await self._session(name)
            return await _value(session, await session.seq)
        return None

    async def delete(self, key: str) -> None:
        """Delete a key; hansard's own API can still read what it held."""
        name = _key(key)
        with _failing(f"delete {key!r}"), suppress(hansard.SessionDeleted):
            session = await self._session(name)
            if await _value(session, await session.seq) is not None:
                await session.append(DELETED, {})

    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the keys that begin so, sorted."""
        prefix = _checked(query).lstrip("/")
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
        """Find keys with the search strategy; by the words of what is under them, if there is none."""
        strategy = self._strategy or KeywordSearchStrategy()
        return await strategy.search(self, query)

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
    """Return the value of a key: nearly always in the last event."""
    step = 1
    while seq > 0:
        found: bytes | None = None
        said = False
        async for event in session.events(after=max(seq - step, 0)):
            if event.kind in {VALUE, DELETED}:
                said = True
                found = _value_bytes(event.data) if event.kind == VALUE else None
        if said or seq <= step:
            return found
        step *= 8
    return None


def _value_data(data: bytes) -> dict[str, Any]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _value_bytes(data: dict[str, Any]) -> bytes | None:
    if "text" in data:
        return str(data["text"]).encode()
    return base64.b64decode(data["base64"]) if "base64" in data else None


def _key(key: str) -> str:
    """Return a key as the storages of Strands have it."""
    name = _checked(key).strip("/")
    if not name:
        raise StorageError("Storage key must not be empty")
    return name


def _checked(key: str) -> str:
    if "\\" in key:
        raise StorageError(f"Invalid storage key {key!r}: backslashes are not allowed")
    if ".." in key.split("/"):
        raise StorageError(f"Invalid storage key {key!r}: '..' is not allowed")
    return re.sub(r"/+", "/", key)
