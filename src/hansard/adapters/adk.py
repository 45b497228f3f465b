"""A session service for Google's Agent Development Kit.

    from google.adk.runners import Runner
    from hansard.adapters.adk import HansardSessionService

    runner = Runner(app_name="shop", agent=agent, session_service=HansardSessionService("data"))

A conversation is a session, an app's state another, a user's state a third. Its seq shows
whether another writer has continued a conversation; no clock is compared.
"""

import asyncio
import uuid
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self
from weakref import WeakValueDictionary

import hansard
from hansard import SeqConflict, SessionDeleted, SessionInfo, SessionNotFound
from hansard.adapters import opening, projection
from hansard.adapters.opening import opened
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
except ImportError as error:
    opening.missing("adk", "google-adk", "google-adk", error)

from hansard.adapters import adk_events
from hansard.adapters.adk_events import COUNTED, Place, SharedStates

#: What a session object remembers of where its conversation stood.
_MARK: Final = "hansard:"


class _Names(NamedTuple):
    """A conversation, by the names that the kit has for it."""

    app: str
    user: str
    session: str


class _Change(NamedTuple):
    """What is to be appended to a conversation, and its changes of the app's and the user's state."""

    kind: str
    data: dict[str, Any]
    key: str
    app: dict[str, Any]
    user: dict[str, Any]


class HansardSessionService(BaseSessionService):
    """Keeps the kit's sessions in a store: all of `BaseSessionService`.

    Args:
        store: an open store, or the path of one.
        prefix: what all ids begin with. An app's state is the session `<prefix><app>`, a user's is
            `<prefix><app>/<user>`, and a conversation is `<prefix><app>/<user>/<session>`; in each name `%`
            and `/` are written `%25` and `%2F`.
    """

    def __init__(self, store: opening.StoreLike, *, prefix: str = "adk/") -> None:
        self._store: opening.Settled | opening.ClosedPlace = opening.settled(store)
        self._prefix = prefix
        self._sums: projection.Recent[projection.Sum] = projection.Recent(projection.SUMS)
        self._shared = SharedStates()
        #: One append after the other, for all who share a session object: branches of an invocation do.
        self._turns: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"<hansard.adapters.adk.HansardSessionService {self._prefix!r} in {self._store!r}>"

    async def close(self) -> None:
        """Refuse further calls with `hansard.Closed`; the store stays open for others."""
        self._store = opening.ClosedPlace(repr(self))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def id_of(
        self, app_name: str, user_id: str | None = None, session_id: str | None = None
    ) -> str:
        """Return the id of hansard's session: of a conversation, or of a user's or an app's state."""
        names = (name for name in (app_name, user_id, session_id) if name is not None)
        return self._prefix + "/".join(map(opening.escaped, names))

    # -- sessions -------------------------------------------------------------------------------

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Begin a conversation; `AlreadyExistsError` if there is one of this id.

        The id of a conversation that was deleted can be taken again; what was deleted is purged then.
        """
        given = session_id.strip() if session_id else ""
        names = _Names(app_name, user_id, given or kit_uuid.new_uuid())
        given_state = state or {}
        if not values.is_storable(given_state):
            # Values that cannot be stored, such as models, are converted as the kit's own databases do.
            given_state = make_json_safe_state(given_state)
        changes = extract_state_delta(given_state)
        data = {**values.wrap("state", changes["session"]), "time": kit_time.get_time()}
        key = f"adk:created:{uuid.uuid4()}"
        change = _Change(adk_events.CREATED, data, key, changes["app"], changes["user"])
        return await opening.finished(asyncio.to_thread(self._create, names, change))

    def _create(self, names: _Names, change: _Change) -> Session:
        store = opened(self._store)
        session_id = self.id_of(*names)
        taken = AlreadyExistsError(f"Session with id {names.session} already exists.")
        try:
            exists = bool(store.session(session_id).seq)
        except SessionDeleted:
            store.purge(session_id)
            exists = False
        if exists:
            raise taken
        try:
            self._append(store, names, change, after=0)
        except SeqConflict:
            raise taken from None
        found = self._get(names, None)
        if found is None:
            raise SessionNotFoundError(f"Session {names.session} was deleted as it was made.")
        return found

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a conversation with its events and the state of all scopes; None if there is none."""
        names = _Names(app_name, user_id, session_id.strip())
        return await asyncio.to_thread(self._get, names, config)

    def _get(self, names: _Names, config: GetSessionConfig | None) -> Session | None:
        store = opened(self._store)
        session = store.session(self.id_of(*names))
        recent = None if config is None else config.num_recent_events
        try:
            seq, value, events = self._read(store, session, recent)
        except SessionDeleted:
            return None
        if not seq:
            return None
        if config is not None and config.after_timestamp is not None:
            events = _since(events, config.after_timestamp)
        # After the conversation: what its events have changed elsewhere is there by now.
        found = self._made(store, names, value)
        found.events = events
        found._storage_update_marker = f"{_MARK}{seq}"  # noqa: SLF001 - the kit's own place for it
        return found

    def _made(self, store: hansard.Store, names: _Names, value: dict[str, Any]) -> Session:
        state = dict(value["state"])
        app = self._shared.of(store, self.id_of(names.app))
        user = self._shared.of(store, self.id_of(names.app, names.user))
        state.update((State.APP_PREFIX + name, inner) for name, inner in app.items())
        state.update((State.USER_PREFIX + name, inner) for name, inner in user.items())
        return Session(
            app_name=names.app,
            user_id=names.user,
            id=names.session,
            state=state,
            last_update_time=value["updated"],
        )

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the conversations of an app, or of one user of it, without events; the newest last."""
        return ListSessionsResponse(sessions=await asyncio.to_thread(self._list, app_name, user_id))

    def _list(self, app_name: str, user_id: str | None) -> list[Session]:
        store = opened(self._store)
        found = []
        for info in store.sessions(prefix=self.id_of(app_name, user_id) + "/").items:
            parts = info.id.removeprefix(self._prefix).split("/")
            if len(parts) == len(_Names._fields):
                names = _Names(*map(opening.unescaped, parts))
                # Skip one that was deleted concurrently.
                with suppress(SessionDeleted):
                    found.append(self._made(store, names, self._listed(store, info)))
        return sorted(found, key=lambda one: (one.last_update_time, one.user_id, one.id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Move a conversation to the trash; `store.restore(id)` brings it back. What it changed stays."""
        names = _Names(app_name, user_id, session_id.strip())
        await opening.finished(asyncio.to_thread(self._delete, names))

    def _delete(self, names: _Names) -> None:
        store = opened(self._store)
        # What it has changed elsewhere is settled first: afterwards it could not be known.
        self._shared.of(store, self.id_of(names.app))
        self._shared.of(store, self.id_of(names.app, names.user))
        with suppress(SessionNotFound, SessionDeleted):
            store.delete(self.id_of(*names))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return a user's state; its names are without `user:`."""
        session_id = self.id_of(app_name, user_id)
        return await asyncio.to_thread(lambda: self._shared.of(opened(self._store), session_id))

    # -- events ---------------------------------------------------------------------------------

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event, and what it changes in all scopes: all of it, or nothing.

        `StaleSessionError` if the conversation has gone on since `session` was read: get it again. The same
        event a second time adds nothing.
        """
        if event.partial:
            return event
        names = _Names(session.app_name, session.user_id, session.id)
        turn = self._turn(self.id_of(*names))
        async with turn:
            item = adk_events.native(event)
            changes = extract_state_delta(item.get("actions", {}).get("state_delta", {}))
            kind, data = adk_events.draft(item)
            change = _Change(kind, data, adk_events.key_of(item), changes["app"], changes["user"])
            last = session.events[-1].id if session.events else None
            mark = session._storage_update_marker  # noqa: SLF001 - the kit's own place for it
            seq = await opening.finished(
                asyncio.to_thread(self._continue, names, change, mark, last)
            )
            if seq is None:
                return event
            session._storage_update_marker = f"{_MARK}{seq}"  # noqa: SLF001 - as above
            session.last_update_time = event.timestamp
            return await super().append_event(session, event)

    def _turn(self, session_id: str) -> asyncio.Lock:
        # A lock is of one loop: each has its own.
        name = (id(asyncio.get_running_loop()), session_id)
        return self._turns.setdefault(name, asyncio.Lock())

    def _continue(
        self, names: _Names, change: _Change, mark: str | None, last: str | None
    ) -> int | None:
        """Append to a conversation that must be where the caller saw it; None if it was there before."""
        store = opened(self._store)
        session = store.session(self.id_of(*names))
        try:
            after = self._place(store, session, mark, last)
            if not session.seq:
                raise SessionNotFoundError(f"Session {names.session} not found.")
            while True:
                try:
                    return self._append(store, names, change, after=after)
                except SeqConflict as conflict:
                    # A title or a snapshot name does not continue the conversation.
                    since = list(session.events(after=after))
                    if projection.changed(since) or any(e.kind in COUNTED for e in since):
                        raise StaleSessionError(
                            f"Session {names.session} has gone on since it was read: get it again, and "
                            "append to that."
                        ) from conflict
                    after = since[-1].seq
        except SessionDeleted:
            if store.exists(session.id):
                raise  # the app's or the user's state was deleted
            raise SessionNotFoundError(f"Session {names.session} not found.") from None

    def _place(
        self, store: hansard.Store, session: hansard.Session, mark: str | None, last: str | None
    ) -> int:
        """Return the seq at which the caller saw the conversation."""
        if mark is not None and mark.startswith(_MARK):
            return int(mark.removeprefix(_MARK))
        # An object that no service has made: the last event that it has must be the last there is.
        seq, value = self._sum(store, session.id)
        if seq and value["last"] != last:
            raise StaleSessionError(
                f"Session {session.id!r} has events that the given one has not: get it again."
            )
        return seq

    def _append(
        self, store: hansard.Store, names: _Names, change: _Change, *, after: int
    ) -> int | None:
        """Append a change after a seq, or raise `SeqConflict`; None if it was there before."""
        session = store.session(self.id_of(*names))
        place = Place(session.id, after, change.key)
        shared = (((names.app,), change.app), (names[:2], change.user))
        intended = [
            self._shared.intend(store, self.id_of(*where), changes, place)
            for where, changes in shared
            if changes
        ]
        try:
            done = session.append_all(
                [(change.kind, change.data)], key=change.key, expected_seq=after
            )
        except (SeqConflict, hansard.InvalidEvent):
            for one in intended:
                one.settle(happened=False)
            raise
        (event,) = done
        fresh = event.seq == after + 1
        for one in intended:
            one.settle(happened=fresh)
        return event.seq if fresh else None

    # -- reading --------------------------------------------------------------------------------

    def _sum(self, store: hansard.Store, session_id: str) -> tuple[int, dict[str, Any]]:
        """Return the last seq of a conversation and what its events add up to."""
        return self._sums.of(
            session_id, lambda name: projection.Sum(store, name, adk_events.begin, adk_events.add)
        ).value()

    def _read(
        self, store: hansard.Store, session: hansard.Session, recent: int | None
    ) -> tuple[int, dict[str, Any], list[Event]]:
        """Return the last seq, what the events add up to, and the events or the last of them."""
        if recent is None:
            events = list(session.events())
            value = adk_events.begin()
            found: list[Event] = []
            for event in projection.shown(events):
                adk_events.add(value, event)
                if event.kind in COUNTED:
                    found += adk_events.events_of(event)
            return (events[-1].seq if events else 0), value, found
        seq, value = self._sum(store, session.id)
        return seq, value, _recent(session, seq, recent) if recent else []

    def _listed(self, store: hansard.Store, info: SessionInfo) -> dict[str, Any]:
        try:
            return self._sum(store, info.id)[1]
        except hansard.Damaged:
            return adk_events.begin()  # `get_session` reports the damage


def _recent(session: hansard.Session, seq: int, count: int) -> list[Event]:
    for events, complete in projection.looking_back(session):
        if not complete and projection.changed(events):
            continue
        known = [event for event in events if event.seq <= seq]
        found = [
            one
            for event in (projection.shown(known) if complete else known)
            if event.kind in COUNTED
            for one in adk_events.events_of(event)
        ]
        if complete or len(found) >= count:
            return found[-count:]
    raise AssertionError("the last look is complete")


def _since(events: list[Event], timestamp: float) -> list[Event]:
    """Return the events after the last one that is older."""
    place = len(events)
    while place and events[place - 1].timestamp >= timestamp:
        place -= 1
    return events[place:]
