"""Write a log that nobody sees, until it is whole and gets its name.

Above: `backend.staging`.  Below: `write_batch`, `segment`, `root`, `disk`.
A file in the store's own directory, under a temporary name, to which lines are added as to any segment; at
the end it is synced, and `writer` gives it the name of the session's log, if there is none by then. Whoever
dies before that leaves a temporary file and nothing else: docs/format.md, F-119 to F-121.
"""

from typing import Final

from hansard.log import disk, format
from hansard.log.append_request import AppendRequest
from hansard.log.segment import header
from hansard.log.store_directory import StoreDirectory
from hansard.log.write_batch import WriteBatch

#: So many bytes of lines are written at once.
_PIECE: Final = 1024 * 1024

_HINT: Final = "nothing was added to the store"


class Staging:
    """The log of a session that is not there yet. For one thread at a time.

    Attributes:
        name: the temporary name of its file; empty before the first append.
    """

    __slots__ = ("_batch", "_before", "_file", "_pending", "_root", "_session_id", "name")

    def __init__(self, root: StoreDirectory, session_id: str, before: int) -> None:
        root.check_writable()
        self.name = ""
        self._root = root
        self._session_id = session_id
        self._before = before
        self._file: disk.OwnedFd | None = None
        #: What is framed and not written yet, and how many bytes that is.
        self._batch: WriteBatch | None = None
        self._pending = 0

    def add(self, request: AppendRequest) -> None:
        """Frame the records of an append, and write them if they have become many."""
        now = format.now()
        batch = self._batch
        if batch is None:
            batch = self._begin(request, now)
        offset = batch.offset
        batch.add(request, now)
        self._pending += batch.offset - offset
        if self._pending >= _PIECE:
            self._write()

    def _begin(self, request: AppendRequest, now: bytes) -> WriteBatch:
        self.name, file = self._root.create_staged()
        self._file = disk.OwnedFd(file)
        first = request.events[0].time
        head, start = header(
            self._session_id, before=self._before, time=first.encode() if first else now
        )
        batch = self._batch = WriteBatch(start, 0, fresh=True)
        batch.lines.append(head)
        self._pending = len(head)
        return batch

    def _write(self) -> None:
        assert self._file is not None  # made by the first append
        assert self._batch is not None
        lines, self._batch.lines, self._pending = self._batch.lines, [], 0
        try:
            disk.write_all(self._file.descriptor, b"".join(lines))
        except OSError as error:
            raise disk.explain(error, "write", self._path, _HINT) from error

    def finish(self) -> None:
        """Make all of it durable, under its temporary name."""
        self._write()
        assert self._file is not None
        try:
            disk.sync(self._file.descriptor)
        except OSError as error:
            raise disk.explain(error, "sync", self._path, _HINT) from error

    def discard(self) -> None:
        """Remove the file, if it still has its temporary name."""
        self._file = None
        self._batch = None
        if self.name:
            self._root.discard_staged(self.name)
            self.name = ""

    @property
    def _path(self) -> str:
        return f"{self._root.path}/{self.name}"
