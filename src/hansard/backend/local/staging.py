"""Build a session in a temporary file, then give it its name.

The file is in the store's own directory (F-135). At the end it is synced, and `writer` renames it to the
session's log, if there is none by then. A crash before that leaves a temporary file and nothing else.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hansard.backend.contract import AppendRequest, Stage, key_used, nothing_staged
from hansard.event.event import NewEvent
from hansard.log import disk, format
from hansard.log.segment import header
from hansard.log.store_directory import StoreDirectory
from hansard.log.write_batch import SegmentWriter

if TYPE_CHECKING:
    from hansard.backend.local.backend import LocalBackend

_HINT: Final = "nothing was added to the store"


class LocalStage(Stage):
    """A session whose log has no name yet. For one thread at a time."""

    def __init__(
        self, backend: "LocalBackend", root: StoreDirectory, session_id: str, before: int
    ) -> None:
        root.check_writable()
        self.session_id = session_id
        self._backend = backend
        self._root = root
        self._before = before
        self._keys: set[str] = set()
        #: The temporary name of the file; empty before the first append.
        self._name = ""
        self._file: disk.OwnedFd | None = None
        self._writer: SegmentWriter | None = None

    def append(self, events: Sequence[NewEvent], *, key: str | None = None) -> None:
        self._backend.check_open()
        if key is not None:
            if key in self._keys:
                raise key_used(self.session_id, key)
            self._keys.add(key)
        now = format.now()
        try:
            writer = self._writer or self._begin(events[0].time, now)
            writer.add(AppendRequest(events, key), now)
        except OSError as error:
            raise disk.explain(error, "write", self._path, _HINT) from error

    def _begin(self, time: str | None, now: bytes) -> SegmentWriter:
        self._name, file = self._root.create_staged()
        self._file = disk.OwnedFd(file)
        head, start = header(
            self.session_id, before=self._before, time=time.encode() if time else now
        )
        self._writer = SegmentWriter(file, head, start)
        return self._writer

    def publish(self) -> None:
        self._backend.begin_with(self.session_id, self.finish())
        self.discard()

    def finish(self) -> str:
        """Make the file durable, and return its temporary name."""
        self._backend.check_open()
        if self._writer is None:
            raise nothing_staged(self.session_id)
        try:
            self._writer.finish()
        except OSError as error:
            raise disk.explain(error, "sync", self._path, _HINT) from error
        return self._name

    def discard(self) -> None:
        self._file = None
        self._writer = None
        if self._name:
            self._root.discard_staged(self._name)
            self._name = ""

    @property
    def _path(self) -> str:
        return f"{self._root.path}/{self._name}"
