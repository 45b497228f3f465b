"""Strands: `FileSessionManager`, a file for each message."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.peers.peer import Message, Peer, foreign, text

session_types = foreign("strands.types.session")
manager = foreign("strands.session.file_session_manager")


class Strands(Peer):
    """One manager for each session; message ids are counted by the agent that holds it."""

    #: Two agents of one session would give out the same message ids.
    shared = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._managers: dict[str, Any] = {}
        self._places: dict[str, int] = {}

    def _manager(self, name: str) -> Any:
        found = self._managers.get(name)
        if found is None:
            found = manager.FileSessionManager(name, storage_dir=str(self.directory))
            self._managers[name] = found
            if found.read_agent(name, "a") is None:
                agent = session_types.SessionAgent(
                    agent_id="a", state={}, conversation_manager_state={}
                )
                found.create_agent(name, agent)
        return found

    def append(self, session: str, message: Message) -> None:
        """Create the file of one message."""
        found = self._manager(session)
        place = self._places[session] = self._places.get(session, -1) + 1
        said = {"role": message["role"], "content": [{"text": text(message)}]}
        found.create_message(session, "a", session_types.SessionMessage.from_message(said, place))

    def load(self, session: str) -> Sequence[Any]:
        """Read every file."""
        found: Sequence[Any] = self._manager(session).list_messages(session, "a")
        return found

    @staticmethod
    def text_of(item: Any) -> str:
        """Return the text of a message."""
        return str(item.message["content"][0]["text"])
