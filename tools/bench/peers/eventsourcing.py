"""`eventsourcing`: its SQLite recorder, with JSON by msgspec."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from tools.bench.peers.peer import Message, Peer, foreign

persistence = foreign("eventsourcing.persistence")
sqlite = foreign("eventsourcing.sqlite")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Recorder(Peer):
    """An aggregate for each session; after a version conflict the append is retried, as users do."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._store = sqlite.SQLiteDatastore(str(directory / "events.db"), lock_timeout=60)
        self._recorder = sqlite.SQLiteAggregateRecorder(self._store)
        self._recorder.create_table()
        self._places: dict[str, int] = {}

    @staticmethod
    def _id(session: str) -> UUID:
        return uuid5(NAMESPACE_URL, session)

    def append(self, session: str, message: Message) -> None:
        """Insert one event."""
        self.extend(session, (message,))

    def extend(self, session: str, messages: Sequence[Message]) -> None:
        """Insert events in one transaction."""
        identity, data = self._id(session), [_encode(message) for message in messages]
        if session not in self._places:
            self._look(session)
        while True:
            place = self._places[session]
            events = [
                persistence.StoredEvent(identity, place + number, "message", state)
                for number, state in enumerate(data, 1)
            ]
            with contextlib.suppress(persistence.IntegrityError):
                self._recorder.insert_events(events)
                self._places[session] = place + len(data)
                return
            self._look(session)

    def _look(self, session: str) -> None:
        found = self._recorder.select_events(self._id(session), desc=True, limit=1)
        self._places[session] = found[0].originator_version if found else 0

    def load(self, session: str) -> Sequence[Any]:
        """Return all events, decoded."""
        return self.after(session, 0)

    def after(self, session: str, count: int) -> Sequence[Any]:
        """Read on from a version."""
        found = self._recorder.select_events(self._id(session), gt=count)
        return [_decode(event.state) for event in found]

    def last(self, session: str, count: int) -> Sequence[Any]:
        """Read from the end."""
        found = self._recorder.select_events(self._id(session), desc=True, limit=count)
        return [_decode(event.state) for event in found][::-1]

    def close(self) -> None:
        """Close the connections."""
        self._store.close()
