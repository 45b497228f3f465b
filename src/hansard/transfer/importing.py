"""Take in a session that was exported: all of it, or nothing.

Events go into a stage as they are read, and the stage becomes a session when the last line has said how many
there should be, and what their checksum is. Until then nobody sees anything, and whoever dies leaves nothing.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from hansard.backend.contract import Backend, Log, Stage
from hansard.errors import Damaged, InvalidEvent, SessionExists
from hansard.event.envelope import Event, NewEvent
from hansard.event.kinds import CONTROL
from hansard.state import lineage
from hansard.transfer.export_file import Moved, Reader, Source, line_of, sha256

#: So many events, or bytes, go into the stage at once.
_MANY: Final = 256
_LARGE: Final = 256 * 1024


class ImportReport(msgspec.Struct, frozen=True):
    """What an import did.

    Attributes:
        session: the id of the session.
        events: how many events the file has.
        already: whether the session was there, with the same events, so that there was nothing to do.
        redacted: whether the file says that credentials were taken out: it is then not word for word.
        redactions: how many were.
    """

    session: str
    events: int
    already: bool = False
    redacted: bool = False
    redactions: int = 0


def import_session(backend: Backend, source: Source, session_id: str | None) -> ImportReport:
    """Read what `export` wrote, and let it be a session."""
    reader = Reader(source)
    name = reader.header.session if session_id is None else session_id
    there = backend.log(name)
    if there.head() is not None:
        digest = _digest(moved for append in reader.events() for moved in append)
        return _compared(reader, there, digest, None)
    with backend.stage(name, before=reader.header.after) as stage:
        filling = _Filling(stage, backend, reader)
        for append in reader.events():
            filling.add(append)
        filling.flush()
        try:
            stage.publish()
        except SessionExists as error:
            # Somebody was faster: perhaps with the same file.
            return _compared(reader, there, filling.digest.hexdigest(), error)
    filling.check_parent(after=True)
    return _report(reader, name, already=False)


def _report(reader: Reader, name: str, *, already: bool) -> ImportReport:
    end = reader.end
    assert end is not None  # or reading it has raised
    return ImportReport(name, end.events, already, reader.header.redacted, end.redactions)


def _compared(reader: Reader, there: Log, digest: str, cause: SessionExists | None) -> ImportReport:
    """Report that all is there already, or raise: an existing session is never changed."""
    assert reader.end is not None
    upto = reader.header.after + reader.end.events
    try:
        same = _digest(_stored(there, reader.header.after, upto)) == digest
    except Damaged:
        same = False
    if not same:
        raise SessionExists(
            f"session {there.session_id!r} exists already, and is not what the file has; nothing was "
            "changed: give another id to import it beside"
        ) from cause
    return _report(reader, there.session_id, already=True)


def _stored(log: Log, after: int, upto: int) -> Iterable[Moved]:
    first = log.first()
    if first is None or first.seq != after + 1:
        return
    for chunk in log.read(after, upto):
        keyed = chunk.keyed()
        for event in chunk.events():
            yield Moved(event, keyed.get(event.seq, 1) - 1)


def _digest(events: Iterable[Moved]) -> str:
    digest = sha256()
    for event, more in events:
        digest.update(line_of(event, more))
    return digest.hexdigest()


class _Filling:
    """Fills a stage: events without a key together, those of one append with a key by themselves."""

    __slots__ = ("_backend", "_drafts", "_first", "_reader", "_size", "_stage", "digest")

    def __init__(self, stage: Stage, backend: Backend, reader: Reader) -> None:
        self._stage = stage
        self._backend = backend
        self._reader = reader
        self._drafts: list[NewEvent] = []
        self._size = 0
        self._first: Event | None = None
        self.digest = sha256()

    def add(self, append: list[Moved]) -> None:
        for event, more in append:
            self.digest.update(line_of(event, more))
        first = append[0].event
        if self._first is None:
            self._first = first
            self.check_parent(after=False)
        drafts = [draft_of(event) for event, _ in append]
        if first.key is not None:
            self.flush()
            try:
                self._stage.append(drafts, key=first.key)
            except InvalidEvent as error:
                raise self._reader.refused(str(error)) from None
            return
        self._drafts += drafts
        self._size += sum(len(draft.data) for draft in drafts)
        if len(self._drafts) >= _MANY or self._size >= _LARGE:
            self.flush()

    def flush(self) -> None:
        if self._drafts:
            self._stage.append(self._drafts)
            self._drafts, self._size = [], 0

    def check_parent(self, *, after: bool) -> None:
        """Raise if the session is a fork, and what it was forked from is not here."""
        assert self._first is not None  # there is one in every whole file
        forked = lineage.origin(self._first)
        if forked is None:
            if self._first.seq != 1:
                raise self._reader.refused("it begins in the middle, and with no fork")
            return
        problem = f"it was forked from {forked.parent!r:.100} at seq {forked.seq}"
        if forked.seq != self._first.seq - 1:
            raise self._reader.refused(f"{problem}, and begins at seq {self._first.seq}")
        # A file must not let anybody read what its reader may not see: who holds a part of a store could
        # otherwise make a fork of a session outside of it.
        seen = forked.parent.startswith(self._backend.prefix)
        head = self._backend.ancestor(forked.parent).head() if seen else None
        if (
            head is not None
            and head.seq >= forked.seq
            and forked.created in {"", head.created}
            and forked.parent != self._stage.session_id
        ):
            return
        if after:
            # Purged at the last moment: like a fork that came too late.
            self._backend.delete(self._stage.session_id)
            self._backend.purge(self._stage.session_id)
        raise self._reader.refused(
            f"{problem}, and that is not here; import that one first, or export it with all that it inherits"
        )


def draft_of(event: Event) -> NewEvent:
    """Return a draft that becomes the same event again, in its place."""
    return NewEvent(event.kind, event.raw, event.kind in CONTROL, event.stamp)
