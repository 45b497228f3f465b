"""A session service for Google's Agent Development Kit.

    from google.adk.runners import Runner
    from hansard.adapters.adk import HansardSessionService

    runner = Runner(app_name="shop", agent=agent, session_service=HansardSessionService("data"))

A conversation, an app's state and a user's state are a session each. The last event that a session object has
read shows whether another writer has continued the conversation; no clocks are compared.
"""

import asyncio
import uuid
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import hansard
from hansard import SeqConflict, SessionDeleted, SessionNotFound
from hansard.adapters import opening
from hansard.adapters.opening import opened
from hansard.adapters.session_projection import CHANGING, shown
from hansard.message import values

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.platform import time as kit_time
    from google.adk.platform import uuid as kit_uuid
    from google.adk.sessions._session_util import extract_state_delta, make_json_safe_state
    from google.adk.sessions.base_session_service import (
        BaseSessionService,
        GetSessionConfig,
        ListSessionsResponse,
    )
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State

    from hansard.adapters import adk_events
except ImportError as error:
    opening.missing("adk", "google-adk", "google-adk", error)

#: Prefix of what a session object remembers.
_MARK: Final = "hansard:"
#: Projections that are kept: a listing reads every conversation.
_KEPT: Final = 1024
#: Events that are read first, from the end; each further read is four times as long.
_LOOK: Final = 16


class _Names(NamedTuple):
    """A conversation, by the kit's names."""

    app: str
    user: str
    session: str


class _StateChange(NamedTuple):
    """What to append to a conversation, and its changes of the app's and the user's state."""

    events: list[tuple[str, dict[str, Any]]]
    key: str
    app: dict[str, Any]
    user: dict[str, Any]


class HansardSessionService(BaseSessionService):
    """Keeps the kit's sessions in a store: all of `BaseSessionService`.

    Args:
        store: an open store, or the path of one.
        prefix: prefix of all session ids. An app's state is the session `<prefix><app>`, a user's is
            `<prefix><app>/<user>`, and a conversation is `<prefix><app>/<user>/<session>`; in each name `%`
            and `/` are written `%25` and `%2F`.
    """

    def __init__(self, store: opening.StoreLike, *, prefix: str = "adk/") -> None:
        self._store = opening.settled(store)
        self._prefix = prefix
        self._conversations = lru_cache(_KEPT)(
            lambda name: adk_events.ConversationProjection(opened(self._store), name)
        )
        self._shared = lru_cache(_KEPT)(
            lambda name: adk_events.SharedState(opened(self._store), name)
        )
        #: Appends to one conversation are serialized: branches of an invocation share a session object.
        self._turns: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    def id_of(
        self, app_name: str, user_id: str | None = None, session_id: str | None = None
    ) -> str:
        """Return the id of hansard's session: of a conversation, or of a user's or an app's state."""
        names = (name for name in (app_name, user_id, session_id) if name is not None)
        return self._prefix + "/".join(map(values.escaped, names))

    @opening.threaded
    def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a conversation; `AlreadyExistsError` if the id is used.

        The id of a deleted conversation can be used again; the deleted one is then purged.
        """
        given = session_id.strip() if session_id else ""
        names = _Names(app_name, user_id, given or kit_uuid.new_uuid())
        given_state = state or {}
        if not values.is_storable(given_state):
            # Values that cannot be stored, such as models, are converted as the kit's databases do.
            given_state = make_json_safe_state(given_state)
        changes = extract_state_delta(given_state)
        data = {**values.wrap("state", changes["session"]), "time": kit_time.get_time()}
        key = f"adk:created:{uuid.uuid4()}"
        created = [(adk_events.CREATED, data)]
        change = _StateChange(created, key, changes["app"], changes["user"])
        store, session_id = opened(self._store), self.id_of(*names)
        taken = AlreadyExistsError(f"Session with id {names.session} already exists.")
        try:
            if store.session(session_id).seq:
                raise taken
        except SessionDeleted:
            store.purge(session_id)
        try:
            self._append(store, names, change, after=0)
        except SeqConflict:
            raise taken from None
        found = self._get(names, None)
        if found is None:
            raise SessionNotFoundError(f"Session {names.session} was deleted concurrently.")
        return found

    @opening.threaded
    def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a conversation with its events and the state of all scopes; None if there is none."""
        return self._get(_Names(app_name, user_id, session_id.strip()), config)

    def _get(self, names: _Names, config: GetSessionConfig | None) -> Session | None:
        session = opened(self._store).session(self.id_of(*names))
        recent = None if config is None else config.num_recent_events
        try:
            last, value = self._conversations(session.id).read()
            if last is None:
                return None
            events = [] if recent == 0 else _last_events(session, last.seq, recent)
        except SessionDeleted:
            return None
        if config is not None and config.after_timestamp is not None:
            older = [n for n, e in enumerate(events, 1) if e.timestamp < config.after_timestamp]
            events = events[older[-1] if older else 0 :]
        # After the conversation: the changes of its events in the shared states are settled by now.
        found = self._session(names, value)
        found.events = events
        found._storage_update_marker = _mark(last)  # noqa: SLF001 - the kit's member for it
        return found

    def _session(self, names: _Names, value: adk_events.Conversation) -> Session:
        state = dict(value.state)
        for prefix, where in ((State.APP_PREFIX, names[:1]), (State.USER_PREFIX, names[:2])):
            shared = self._shared(self.id_of(*where)).read()
            state.update((prefix + name, inner) for name, inner in shared.items())
        return Session(
            app_name=names.app,
            user_id=names.user,
            id=names.session,
            state=state,
            last_update_time=value.updated,
        )

    @opening.threaded
    def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the conversations of an app, or of one user, without events; the newest last."""
        found = []
        listed = opened(self._store).sessions(prefix=self.id_of(app_name, user_id) + "/")
        for info in listed.items:
            parts = info.id.removeprefix(self._prefix).split("/")
            if len(parts) != len(_Names._fields):
                continue
            value = adk_events.Conversation()
            with suppress(SessionDeleted):  # deleted concurrently
                with suppress(hansard.Damaged):  # `get_session` reports the damage
                    _, value = self._conversations(info.id).read()
                found.append(self._session(_Names(*map(values.unescaped, parts)), value))
        found.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=found)

    @opening.threaded
    def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Move a conversation to the trash; `store.restore(id)` restores it. Shared states stay."""
        store, names = opened(self._store), _Names(app_name, user_id, session_id.strip())
        # First settle its changes of the shared states: afterwards its events cannot be read.
        for where in (names[:1], names[:2]):
            self._shared(self.id_of(*where)).read()
        with suppress(SessionNotFound, SessionDeleted):
            store.delete(self.id_of(*names))

    @opening.threaded
    def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return a user's state, with names without `user:`."""
        return self._shared(self.id_of(app_name, user_id)).read()

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event, and its changes in all scopes: all of it, or nothing.

        `StaleSessionError` if the conversation has changed since `session` was read: get it again. The same
        event a second time adds nothing.
        """
        if event.partial:
            return event
        names = _Names(session.app_name, session.user_id, session.id)
        # A lock belongs to one loop.
        name = (id(asyncio.get_running_loop()), self.id_of(*names))
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn:
            item = adk_events.native(event)
            changes = extract_state_delta(item.get("actions", {}).get("state_delta", {}))
            key, added = adk_events.key_of(item), adk_events.drafts(item)
            change = _StateChange(added, key, changes["app"], changes["user"])
            last = session.events[-1].id if session.events else None
            mark = session._storage_update_marker  # noqa: SLF001 - the kit's member for it
            stored = await opening.finished(
                asyncio.to_thread(self._continue, names, change, mark, last)
            )
            if stored is None:
                return event
            session._storage_update_marker = _mark(stored)  # noqa: SLF001 - the same
            session.last_update_time = event.timestamp
            return await super().append_event(session, event)

    def _continue(
        self, names: _Names, change: _StateChange, mark: str | None, last: str | None
    ) -> hansard.Event | None:
        """Append to a conversation that the caller has read completely; None if it has the event.

        `mark`: what the caller's object remembers; `last`: the kit's id of its last event.
        """
        store = opened(self._store)
        session = store.session(self.id_of(*names))
        stale = StaleSessionError(
            f"Session {names.session} has changed since it was read: get it again, and append to that."
        )
        try:
            if not session.seq:
                raise SessionNotFoundError(f"Session {names.session} not found.")
            after = self._read_seq(session, mark, last)
            while after is not None:
                try:
                    return self._append(store, names, change, after=after)
                except SeqConflict:
                    # A title or a snapshot name does not continue the conversation.
                    since = list(session.events(after=after))
                    changed = any(one.kind in CHANGING | adk_events.COUNTED for one in since)
                    after = None if changed or not since else since[-1].seq
            raise stale
        except SessionDeleted:
            if store.exists(session.id):
                raise  # the app's or the user's state was deleted
            raise SessionNotFoundError(f"Session {names.session} not found.") from None

    def _read_seq(self, session: hansard.Session, mark: str | None, last: str | None) -> int | None:
        """Return the seq at which the caller read the conversation; None if it was another one."""
        if mark is None or not mark.startswith(_MARK):
            # An object that no service has created: its last event must be the last that is stored.
            stored, value = self._conversations(session.id).read()
            return stored.seq if stored is not None and value.last == last else None
        seq = int(mark.removeprefix(_MARK).partition(":")[0])
        stored = next(session.events(after=seq - 1), None)
        return seq if stored is not None and _mark(stored) == mark else None

    def _append(
        self, store: hansard.Store, names: _Names, change: _StateChange, *, after: int
    ) -> hansard.Event | None:
        """Append a change after a seq and return the last event; None if the conversation has it.

        Raises `SeqConflict` if another event is there.
        """
        session = store.session(self.id_of(*names))
        intended = []
        for where, changes in ((names[:1], change.app), (names[:2], change.user)):
            if changes:
                shared = self._shared(self.id_of(*where))
                intention = shared.intend(changes, session=session.id, after=after, key=change.key)
                intended.append((shared, intention))
        added, refused = None, None
        try:
            events = session.append_all(change.events, key=change.key, expected_seq=after)
            added = events[-1] if events[0].seq == after + 1 else None
        except (SeqConflict, hansard.InvalidEvent) as error:
            refused = error
        for shared, intention in intended:
            shared.settle(intention, happened=added is not None)
        if refused is not None:
            raise refused
        return added


def _mark(last: hansard.Event) -> str:
    """Return what a session object remembers of the last event of its conversation.

    The time tells it from the event at the same seq in a conversation that was created again.
    """
    return f"{_MARK}{last.seq}:{last.stamp}"


def _last_events(session: hansard.Session, seq: int, count: int | None) -> list[Event]:
    """Return the last events up to a seq, without reading all if they suffice; None: all."""
    look = seq if count is None else _LOOK
    while True:
        after = max(0, seq - look)
        events = [event for event in session.events(after=after) if event.seq <= seq]
        if not after or not any(event.kind in CHANGING for event in events):
            counted = events if after else shown(events)
            found = [one for event in counted for one in adk_events.events_of(event)]
            if count is None:
                return found
            if not after or len(found) >= count:
                return found[-count:]
        look *= 4
