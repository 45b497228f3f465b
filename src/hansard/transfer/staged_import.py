"""Import an exported session: all of it, or nothing.

Events go into a stage as they are read. The stage becomes a session when the last line of the file has
confirmed their number and checksum. Until then no one sees anything, and a process that dies leaves nothing.
`copy` writes through the same `BatchWriter`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from hansard.backend.contract import Backend, Log, LogReader
from hansard.errors import Damaged, InvalidEvent, InvalidExport, SessionExists
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import CONTROL, SessionForked
from hansard.state import lineage
from hansard.transfer.export_file import ExportReader, Moved, Source, line_of, sha256

#: Batch size, in events and bytes.
_MANY: Final = 256
_LARGE: Final = 256 * 1024


class ImportReport(msgspec.Struct, frozen=True):
    """What an import did.

    Attributes:
        session: the id of the session.
        events: number of events in the file.
        already: whether the session existed with the same events, so that nothing was written.
        redacted: whether the file was exported with credentials replaced.
        redactions: number of credentials that were replaced.
    """

    session: str
    events: int
    already: bool = False
    redacted: bool = False
    redactions: int = 0


def import_session(backend: Backend, source: Source, session_id: str | None) -> ImportReport:
    """Import what `export` wrote, under another id if one is given."""
    reader = ExportReader(source)
    name = reader.header.session if session_id is None else session_id
    there = backend.log(name)
    if there.reader().head() is not None:
        digest = digest_of(moved for append in reader.events() for moved in append)
        return _compared(reader, there, digest, None)
    first: Event | None = None
    with backend.stage(name, before=reader.header.after) as stage:
        writer = BatchWriter(lambda drafts, key: stage.append(drafts, key=key))
        for append in reader.events():
            if first is None:
                first = append[0].event
                _check_parent(reader, backend, name, first)
            try:
                writer.add(append)
            except InvalidEvent as error:
                raise reader.refused(str(error)) from None
        writer.flush()
        try:
            stage.publish()
        except SessionExists as error:
            # Another process was faster, perhaps with the same file.
            return _compared(reader, there, writer.digest.hexdigest(), error)
    assert first is not None  # or `publish` has raised
    try:
        _check_parent(reader, backend, name, first)
    except InvalidExport:
        # Its parent was purged before it was published.
        backend.delete(name)
        backend.purge(name)
        raise
    return _report(reader, name, already=False)


def _report(reader: ExportReader, name: str, *, already: bool) -> ImportReport:
    end = reader.end
    assert end is not None  # or reading it has raised
    return ImportReport(name, end.events, already, reader.header.redacted, end.redactions)


def _compared(
    reader: ExportReader, there: Log, digest: str, cause: SessionExists | None
) -> ImportReport:
    """Report that the session exists with the same events, or raise: it is never changed."""
    assert reader.end is not None
    upto = reader.header.after + reader.end.events
    try:
        now = there.reader()
        first = now.first()
        begins = first is not None and first.seq == reader.header.after + 1
        same = begins and digest_of(stored(now, reader.header.after, upto)) == digest
    except Damaged:
        same = False
    if not same:
        raise SessionExists(
            f"session {there.session_id!r} exists and differs from the file; nothing was changed. "
            "Import the file under another id"
        ) from cause
    return _report(reader, there.session_id, already=True)


def _check_parent(reader: ExportReader, backend: Backend, session_id: str, first: Event) -> None:
    """Raise if the session is a fork, and its parent is not in the store."""
    forked = lineage.fork_source(first)
    if forked is None:
        if first.seq != 1:
            raise reader.refused("it begins in the middle of a session, and not with a fork")
        return
    problem = f"it was forked from {forked.parent!r:.100} at seq {forked.seq}"
    if forked.seq != first.seq - 1:
        raise reader.refused(f"{problem}, but begins at seq {first.seq}")
    if forked.parent == session_id or not has_parent(backend, forked):
        raise reader.refused(
            f"{problem}, which is not in this store; import that session first, or export this one with "
            "what it inherits"
        )


# -- shared with `copy` -------------------------------------------------------------------------


def has_parent(backend: Backend, forked: SessionForked) -> bool:
    """Return whether the session that another was forked from is in the store, with the events it needs."""
    # Nothing outside of a scoped store: a crafted file could otherwise read any session as its parent.
    if not forked.parent.startswith(backend.prefix):
        return False
    head = backend.log(forked.parent, from_trash=True).reader().head()
    return head is not None and head.seq >= forked.seq and forked.created in {"", head.created}


class BatchWriter:
    """Writes events in batches: those without a key together, those of one keyed append separately.

    Args:
        write: called with the events of a batch, and their key.
    """

    def __init__(self, write: Callable[[list[NewEvent], str | None], None]) -> None:
        self._write = write
        self._batch: list[NewEvent] = []
        self._size = 0
        self.digest = sha256()

    def add(self, append: list[Moved]) -> None:
        """Write the events of one append, or one event without a key."""
        for event, more in append:
            self.digest.update(line_of(event, more))
        new = [NewEvent(one.kind, one.raw, one.kind in CONTROL, one.stamp) for one, _ in append]
        key = append[0].event.key
        if key is not None:
            self.flush()
            self._write(new, key)
            return
        self._batch += new
        self._size += sum(len(one.data) for one in new)
        if len(self._batch) >= _MANY or self._size >= _LARGE:
            self.flush()

    def flush(self) -> None:
        """Write what is left."""
        if self._batch:
            self._write(self._batch, None)
            self._batch, self._size = [], 0


def stored(log: LogReader, after: int, upto: int) -> Iterator[Moved]:
    """Yield a session's own events as they are stored."""
    for chunk in log.read(after, upto):
        keyed = chunk.keyed()
        for event in chunk.events():
            yield Moved(event, keyed.get(event.seq, 1) - 1)


def digest_of(events: Iterable[Moved]) -> str:
    """Return the digest of events; equal events have equal digests."""
    digest = sha256()
    for event, more in events:
        digest.update(line_of(event, more))
    return digest.hexdigest()
