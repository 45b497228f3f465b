"""Import exported sessions, and copy sessions from one store to another, event for event.

A session that the target does not have is staged: it is invisible until all of it was written and checked. A
killed process leaves nothing. `copy` compares the events of an existing session and appends the missing
ones. What it wrote is read back and compared. A fork is copied after its parent and stays a fork. Stores may
be of different kinds; neither is locked, and the source is only read.

Redacted data are not copied, even if their bytes are still in the source.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final

import msgspec

from hansard.backend.contract import (
    AppendRequest,
    Backend,
    Log,
    LogReader,
    Progress,
    check_parent,
)
from hansard.errors import (
    Damaged,
    HansardError,
    InvalidEvent,
    SessionDeleted,
    SessionExists,
    SessionNotFound,
)
from hansard.event import codec, kinds
from hansard.event.event import NewEvent
from hansard.event.kinds import CONTROL, HISTORY_DROPPED, MESSAGE_REDACTED, SessionForked
from hansard.maintenance import trash
from hansard.maintenance.compact import masked
from hansard.state import lineage, redaction
from hansard.state.redaction import Redactions
from hansard.transfer.export_file import ExportReader, Moved, Source, line_of, sha256

#: Batch size, in events and bytes.
_MANY: Final = 256
_LARGE: Final = 256 * 1024

#: Events that remove the content of others.
_REMOVING: Final = (HISTORY_DROPPED, MESSAGE_REDACTED)

_Write = Callable[[list[NewEvent], str | None], object]


def _write(events: Iterator[Moved], write: _Write) -> str:
    """Write events in batches, and return their digest. `write` gets the events of a batch, and their key."""
    digest = sha256()
    for batch in _batches(events):
        for event, more in batch:
            digest.update(line_of(event, more))
        new = [NewEvent(one.kind, one.raw, one.kind in CONTROL, one.stamp) for one, _ in batch]
        write(new, batch[0].event.key)
    return digest.hexdigest()


def _batches(events: Iterator[Moved]) -> Iterator[list[Moved]]:
    """Yield events without a key together, and those of one keyed append separately."""
    batch: list[Moved] = []
    size = 0
    for moved in events:
        keyed = moved.event.key is not None
        if batch and (keyed or len(batch) >= _MANY or size >= _LARGE):
            yield batch
            batch, size = [], 0
        if keyed:
            yield [moved, *islice(events, moved.more)]
        else:
            batch.append(moved)
            size += len(moved.event.raw)
    if batch:
        yield batch


def _stored(log: LogReader, after: int, upto: int) -> Iterator[Moved]:
    """Yield a session's own events as they are stored."""
    for chunk in log.read(after, upto):
        keyed = chunk.keyed()
        for event in chunk.events():
            yield Moved(event, keyed.get(event.seq, 1) - 1)


def _digest_of(events: Iterable[Moved]) -> str:
    """Return the digest of events; equal events have equal digests."""
    digest = sha256()
    for event, more in events:
        digest.update(line_of(event, more))
    return digest.hexdigest()


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
    target = backend.log(name)
    if target.reader().head() is not None:
        return _compared(reader, target, _digest_of(reader.events()), None)
    events = reader.events()
    first = next(events)
    # A crafted file could otherwise read any session as its parent.
    if first.event.kind == kinds.SESSION_FORKED:
        raise reader.refused("it begins with a fork, and without what that inherits")
    with backend.stage(name) as stage:
        try:
            digest = _write(chain([first], events), lambda new, key: stage.append(new, key=key))
        except InvalidEvent as error:
            raise reader.refused(str(error)) from None
        try:
            stage.publish()
        except SessionExists as error:
            # Another process was faster, perhaps with the same file.
            return _compared(reader, target, digest, error)
    return _report(reader, name, already=False)


def _report(reader: ExportReader, name: str, *, already: bool) -> ImportReport:
    end = reader.end
    assert end is not None  # or reading it has raised
    return ImportReport(name, end.events, already, reader.header.redacted, end.redactions)


def _compared(
    reader: ExportReader, target: Log, digest: str, cause: SessionExists | None
) -> ImportReport:
    """Report that the session exists with the same events, or raise: it is never changed."""
    report = _report(reader, target.session_id, already=True)
    try:
        now = target.reader()
        first = now.first()
        begins = first is not None and first.seq == 1
        same = begins and _digest_of(_stored(now, 0, report.events)) == digest
    except Damaged:
        same = False
    if not same:
        raise SessionExists(
            f"session {target.session_id!r} exists and differs from the file; nothing was changed. "
            "Import the file under another id"
        ) from cause
    return report


class CopyReport(msgspec.Struct, frozen=True):
    """What was copied.

    Attributes:
        sessions: number of sessions that are now in the target as they were in the source.
        events: number of events that were copied.
        found: number of events that the target had already.
        ancestors: sessions that were copied because others were forked from them.
        failed: sessions that could not be copied completely, each with the reason.
    """

    sessions: int = 0
    events: int = 0
    found: int = 0
    ancestors: list[str] = []
    failed: dict[str, str] = {}


def copy_sessions(
    source: Backend, target: Backend, wanted: Iterable[str], *, progress: Progress | None = None
) -> CopyReport:
    """Copy sessions and their ancestors; a failure is reported and does not stop the others."""
    if source.unscoped is target.unscoped or (
        source.where == target.where and type(source) is type(target) and source.where != "memory:"
    ):
        raise ValueError(f"{target.where}: a store cannot be copied to itself")
    return _Copier(source, target, wanted).run(progress)


class _Copier:
    """Copies sessions, and counts."""

    def __init__(self, source: Backend, target: Backend, wanted: Iterable[str]) -> None:
        self._source = source
        self._target = target
        self._wanted = dict.fromkeys(wanted)
        self._failed: dict[str, str] = {}
        self._complete = self._found = self._copied = 0
        #: What each session was forked from; None if it was not.
        self._origins: dict[str, SessionForked | None] = {}

    def run(self, progress: Progress | None) -> CopyReport:
        order = self._in_order()
        for done, session_id in enumerate(order, 1):
            before = self._copied
            try:
                forked = self._origins[session_id]
                if forked is not None:
                    self._check_parent(session_id, forked)
                self._copy(session_id)
                if self._copied > before and session_id not in self._wanted:
                    self._delete_as_in_source(session_id)
            except HansardError as error:
                self._failed[session_id] = str(error)
            if progress is not None:
                progress(done, len(order))
        ancestors = [one for one in order if one not in self._wanted and one not in self._failed]
        return CopyReport(self._complete, self._copied, self._found, ancestors, self._failed)

    def _in_order(self) -> list[str]:
        """Return all sessions to copy, parents before their children."""
        order: dict[str, None] = {}
        for session_id in self._wanted:
            way: list[str] = []
            at: str | None = session_id
            while at is not None and at not in order and at not in way:
                way.append(at)
                at = self._parent_of(at)
            order.update(dict.fromkeys(reversed(way)))
        return [session_id for session_id in order if session_id not in self._failed]

    def _parent_of(self, session_id: str) -> str | None:
        try:
            forked = lineage.fork_source(self._reader(session_id).first())
            if forked is not None and not forked.parent.startswith(self._source.prefix):
                raise SessionNotFound(
                    f"session {session_id!r} was forked from a session outside of this store; export it, "
                    "which includes what it inherits, and import that"
                )
        except HansardError as error:
            self._failed[session_id] = str(error)
            return None
        self._origins[session_id] = forked
        return None if forked is None else forked.parent

    def _check_parent(self, session_id: str, forked: SessionForked) -> None:
        """Raise unless the target has a fork's parent, with the events that the fork needs."""
        # Not outside of a scoped store.
        inside = forked.parent.startswith(self._target.prefix)
        parent = self._target.log(forked.parent, from_trash=True)
        head = parent.reader().head() if inside else None
        check_parent(session_id, forked, head, self._target.where)

    def _reader(self, session_id: str) -> LogReader:
        """Return a session of the source; a parent may be in the trash."""
        return self._source.log(session_id, from_trash=session_id not in self._wanted).reader()

    def _delete_as_in_source(self, session_id: str) -> None:
        """Move a copy to the target's trash if the original is in the source's."""
        try:
            self._source.unscoped.log(session_id).reader()
        except SessionDeleted:
            trash.delete(self._target, session_id)

    def _copy(self, session_id: str) -> None:
        source = self._reader(session_id)
        while True:
            upto = self._copy_upto(session_id, source)
            # An event that was removed concurrently may have been copied, or copied without its data: copy
            # the redaction, or the dropped bound, too.
            source = self._reader(session_id)
            if all(event.kind not in _REMOVING for event in source.controls(after=upto)):
                break
        self._complete += 1

    def _copy_upto(self, session_id: str, source: LogReader) -> int:
        """Copy all events that the source has now; return the last seq."""
        first, head = source.first(), source.head()
        if first is None or head is None:
            raise SessionNotFound(f"no session {session_id!r} in {self._source.where}")
        target, end = self._in_target(session_id)
        redacted = redaction.joined(
            [redaction.of(source.controls()), redaction.of(target.reader().controls())]
        )
        begin = first.seq - 1
        moving = _masked(_stored(source, begin, head.seq), redacted)
        if end is None:
            forked = self._origins[session_id]
            with self._target.stage(session_id, before=begin, forked=forked) as stage:
                digest = _write(moving, lambda new, key: stage.append(new, key=key))
                stage.publish()
            end = begin
        else:
            existing = _masked(_stored(target.reader(), 0, min(end, head.seq)), redacted)
            self._compare(session_id, moving, existing)
            at = end = max(end, begin)

            def append(new: list[NewEvent], key: str | None) -> None:
                nonlocal at
                # Synced once, at the end.
                done = target.append(AppendRequest(new, key, at, durable=False))
                if done[0].seq != at + 1:
                    raise _differs(self._target.where, session_id, at + 1)
                at += len(new)

            digest = _write(moving, append)
            if end < head.seq:
                target.sync()
        if _digest_of(_stored(target.reader(), end, head.seq)) != digest:
            raise _differs(self._target.where, session_id, end + 1)
        self._copied += max(head.seq - end, 0)
        return head.seq

    def _in_target(self, session_id: str) -> tuple[Log, int | None]:
        """Return the session in the target, and its last seq; None if it does not exist there."""
        target = self._target.log(session_id)
        try:
            head = target.reader().head()
        except SessionDeleted:
            if session_id in self._wanted:
                raise
            # Needed only by its forks, as in the source.
            target = self._target.log(session_id, from_trash=True)
            head = target.reader().head()
        return target, None if head is None else head.seq

    def _compare(self, session_id: str, moving: Iterator[Moved], existing: Iterator[Moved]) -> None:
        """Compare the existing events with as many of the source's."""
        for theirs in existing:
            ours = next(moving, None)
            if ours != theirs:
                raise _differs(self._target.where, session_id, theirs.event.seq)
            self._found += 1


def _differs(where: str, session_id: str, seq: int) -> SessionExists:
    return SessionExists(
        f"session {session_id!r} exists in {where} and is not a copy: event {seq} differs; nothing of it "
        "was changed. Delete it there, or copy to another store"
    )


def _masked(events: Iterable[Moved], redacted: Redactions) -> Iterator[Moved]:
    """Yield events without redacted data; raise if a member has two values."""
    for found, more in events:
        event = masked(redacted, found)
        codec.check_keys(event.raw, f"event {event.seq}")
        yield Moved(event, more)
