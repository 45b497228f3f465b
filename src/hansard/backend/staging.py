"""Put a session together in a file that has no session's name yet.

Above: `local`.  Below: `contract`, `log.staging`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hansard.backend.contract import AppendRequest, Stage, key_used, nothing_staged
from hansard.event.envelope import NewEvent
from hansard.log.staging import Staging
from hansard.log.store_directory import StoreDirectory

if TYPE_CHECKING:
    from hansard.backend.local import LocalBackend


class LocalStage(Stage):
    """A session whose log has no name yet."""

    __slots__ = ("_backend", "_keys", "_staging", "session_id")

    def __init__(
        self, backend: "LocalBackend", root: StoreDirectory, session_id: str, before: int
    ) -> None:
        self.session_id = session_id
        self._backend = backend
        self._staging = Staging(root, session_id, before)
        self._keys: set[str] = set()

    def append(self, events: Sequence[NewEvent], *, key: str | None = None) -> None:
        self._backend.check_open()
        if key is not None:
            if key in self._keys:
                raise key_used(self.session_id, key)
            self._keys.add(key)
        self._staging.add(AppendRequest(events, key))

    def publish(self) -> None:
        self._backend.check_open()
        if not self._staging.name:
            raise nothing_staged(self.session_id)
        self._staging.finish()
        self._backend.begin_with(self.session_id, self._staging.name)
        self.discard()

    def discard(self) -> None:
        self._staging.discard()
