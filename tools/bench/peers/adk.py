"""Google's ADK: `SqliteSessionService`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.peers.peer import Loop, Message, Peer, foreign, text

sessions = foreign("google.adk.sessions.sqlite_session_service")
config = foreign("google.adk.sessions.base_session_service")
event = foreign("google.adk.events.event")
types = foreign("google.genai.types")
_ROLES = {"user": "user", "assistant": "model"}


class Adk(Peer):
    """One service; each handle holds the sessions that it appends to, as a runner does."""

    #: An append to a session that another has appended to is refused as stale.
    shared = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._loop = Loop()
        self._service = sessions.SqliteSessionService(str(directory / "sessions.db"))
        self._held: dict[str, Any] = {}

    async def _session(self, name: str) -> Any:
        held = self._held.get(name)
        if held is None:
            place = {"app_name": "bench", "user_id": "u", "session_id": name}
            held = await self._service.get_session(**place)
            held = self._held[name] = held or await self._service.create_session(**place)
        return held

    def append(self, session: str, message: Message) -> None:
        """Append one event."""
        self._loop.run(self.append_async(session, message))

    async def append_async(self, session: str, message: Message) -> None:
        """Append one event, awaited."""
        role = _ROLES.get(message["role"], "user")
        content = types.Content(role=role, parts=[types.Part(text=text(message))])
        made = event.Event(author=role, content=content)
        await self._service.append_event(await self._session(session), made)

    def _get(self, session: str, **options: Any) -> Sequence[Any]:
        place = {"app_name": "bench", "user_id": "u", "session_id": session}
        found: Sequence[Any] = self._loop.run(self._service.get_session(**place, **options)).events
        return found

    def load(self, session: str) -> Sequence[Any]:
        """Return all events."""
        return self._get(session)

    def last(self, session: str, count: int) -> Sequence[Any]:
        """Return the recent events."""
        return self._get(session, config=config.GetSessionConfig(num_recent_events=count))

    def sessions(self) -> Sequence[Any]:
        """Return all sessions of the user."""
        found: Sequence[Any] = self._loop.run(
            self._service.list_sessions(app_name="bench", user_id="u")
        ).sessions
        return found

    @staticmethod
    def text_of(item: Any) -> str:
        """Return the text of an event."""
        return str(item.content.parts[0].text)

    def close(self) -> None:
        """End the loop."""
        self._loop.run(self._service.close())
        self._loop.close()
