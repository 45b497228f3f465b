"""Copy sessions from one store to another, event for event.

A session that the target does not have is staged and published as a whole, as an import is. Of one that it
has, `copy` compares the existing events and appends the missing ones. What was written is read back and
compared. A fork is copied after its parent and stays a fork. Stores may be of different kinds; neither is
locked, and the source is only read.

A scoped store copies a fork of a session outside of its scope as an export contains it: with the events that
it inherits, as a session that is not a fork. Nothing else of its ancestors is copied.

Redacted data are not copied, even if their bytes are still in the source.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from hansard.backend.contract import AppendRequest, Backend, Head, Log, LogReader
from hansard.errors import HansardError, SessionDeleted, SessionExists, SessionNotFound
from hansard.event import codec, kinds
from hansard.event.event import NewEvent
from hansard.event.kinds import MESSAGE_PART, MESSAGE_REDACTED, SessionForked
from hansard.maintenance import trash
from hansard.maintenance.compact import masked
from hansard.state import lineage, redaction
from hansard.state.redaction import Redactions
from hansard.transfer import share
from hansard.transfer.export_file import Moved, alone
from hansard.transfer.staged_import import BatchWriter, digest_of, has_parent, stored

#: Existing events are compared one by one; progress is reported after so many.
_STEP: Final = 256

#: Called with the number of events that are done, and the total.
Progress = Callable[[int, int], None]


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
    return _Copier(source, target, list(dict.fromkeys(wanted)), progress).run()


class _Copier:
    """Copies sessions, and counts."""

    def __init__(
        self, source: Backend, target: Backend, wanted: list[str], progress: Progress | None
    ) -> None:
        self._source = source
        self._target = target
        self._wanted = wanted
        self._progress = progress
        self._failed: dict[str, str] = {}
        self._complete = self._found = self._copied = self._done = self._total = 0
        #: What each session was forked from; None if it was not, or is copied as if it were not.
        self._origins: dict[str, SessionForked | None] = {}
        #: Sessions that inherit from outside of the source's scope.
        self._flat: set[str] = set()

    def run(self) -> CopyReport:
        order = self._in_order()
        ancestors = [session_id for session_id in order if session_id not in set(self._wanted)]
        heads = {session_id: self._head(session_id) for session_id in order}
        self._total = sum(self._own_events(session_id, head) for session_id, head in heads.items())
        for session_id in order:
            if heads[session_id] is None or session_id in self._failed:
                continue
            before = self._copied
            try:
                self._check_parent(session_id)
                self._copy(session_id)
                if self._copied > before and session_id in ancestors:
                    self._delete_as_in_source(session_id)
            except HansardError as error:
                self._failed[session_id] = str(error)
            self._report(0)
        return CopyReport(self._complete, self._copied, self._found, ancestors, self._failed)

    # -- which, and in which order --------------------------------------------------------------

    def _in_order(self) -> list[str]:
        """Return all sessions to copy, parents before their children."""
        order: dict[str, None] = {}
        inside = self._source.prefix
        for session_id in self._wanted:
            way: list[str] = []
            at: str | None = session_id
            while at is not None and at not in order and at not in way:
                way.append(at)
                at = self._parent_of(at)
                if at is not None and (at in self._flat or not at.startswith(inside)):
                    self._flat.add(session_id)
                    self._origins[session_id] = None
                    way, at = [session_id], None
            order.update(dict.fromkeys(reversed(way)))
        return list(order)

    def _parent_of(self, session_id: str) -> str | None:
        try:
            forked = lineage.fork_source(self._reader(session_id).first())
        except HansardError as error:
            self._failed[session_id] = str(error)
            return None
        self._origins[session_id] = forked
        return None if forked is None else forked.parent

    def _reader(self, session_id: str) -> LogReader:
        # A parent may be in the trash, or outside of what a scoped store shows.
        if session_id not in self._wanted:
            return self._source.log(session_id, from_trash=True).reader()
        found = self._source.log(session_id).reader()
        return lineage.with_ancestors(self._source, found) if session_id in self._flat else found

    def _head(self, session_id: str) -> Head | None:
        if session_id in self._failed:
            return None
        try:
            head = self._reader(session_id).head()
            if head is None:
                raise SessionNotFound(f"no session {session_id!r} in {self._source.where}")
        except HansardError as error:
            self._failed[session_id] = str(error)
            return None
        return head

    def _own_events(self, session_id: str, head: Head | None) -> int:
        forked = self._origins.get(session_id)
        return 0 if head is None else head.seq - (0 if forked is None else forked.seq)

    def _check_parent(self, session_id: str) -> None:
        """Raise if a fork would have no parent, or a different one, in the target."""
        forked = self._origins[session_id]
        if forked is not None and not has_parent(self._target, forked):
            raise SessionNotFound(
                f"session {session_id!r} was forked from {forked.parent!r} at seq {forked.seq}, which is not "
                f"in {self._target.where}; nothing of it was copied"
            )

    def _delete_as_in_source(self, session_id: str) -> None:
        """Move a copy to the target's trash if the original is in the source's."""
        try:
            self._source.unscoped.log(session_id).reader()
        except SessionDeleted:
            trash.delete(self._target, session_id)

    # -- one session ----------------------------------------------------------------------------

    def _copy(self, session_id: str) -> None:
        source = self._reader(session_id)
        first = source.first()
        while first is not None:
            begin = 0 if session_id in self._flat else first.seq - 1
            upto = self._copy_upto(session_id, source, begin)
            # An event that was redacted concurrently may have been copied without its data: copy the
            # redaction, too.
            source = self._reader(session_id)
            if all(event.kind != MESSAGE_REDACTED for event in source.controls(after=upto)):
                break
        self._complete += 1

    def _copy_upto(self, session_id: str, source: LogReader, begin: int) -> int:
        """Copy all events that the source has now; return the last seq."""
        head = source.head()
        if head is None:
            raise SessionNotFound(f"no session {session_id!r} in {self._source.where}")
        target, end = self._in_target(session_id)
        redacted = redaction.joined(
            [redaction.of(source.controls()), redaction.of(target.reader().controls())]
        )
        moving = (
            _inherited(source, head.seq)
            if session_id in self._flat
            else _masked(stored(source, begin, head.seq), redacted)
        )
        if end is None:
            with self._target.stage(session_id, before=begin) as stage:
                digest = self._write(moving, lambda new, key: stage.append(new, key=key))
                stage.publish()
            end = begin
        else:
            existing = _masked(stored(target.reader(), 0, min(end, head.seq)), redacted)
            self._compare(session_id, moving, existing)
            digest = self._write(moving, _Appender(target, max(end, begin)))
            if max(end, begin) < head.seq:
                target.sync()
        if digest_of(stored(target.reader(), max(end, begin), head.seq)) != digest:
            raise _differs(self._target.where, session_id, max(end, begin) + 1)
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

    def _compare(self, session_id: str, moving: Iterator[Moved], there: Iterator[Moved]) -> None:
        """Compare the existing events with as many of the source's."""
        for theirs in there:
            ours = next(moving, None)
            if ours is None or not _same(ours, theirs):
                raise _differs(self._target.where, session_id, theirs.event.seq)
            self._found += 1
            self._report(1)

    def _write(
        self, moving: Iterator[Moved], write: Callable[[list[NewEvent], str | None], None]
    ) -> str:
        """Write events, and return their digest."""

        def write_and_count(new: list[NewEvent], key: str | None) -> None:
            write(new, key)
            self._copied += len(new)
            self._report(len(new))

        writer = BatchWriter(write_and_count)
        for moved in moving:
            # All events of one key are one append.
            append = [moved, *islice(moving, moved.more)]
            for event, _ in append:
                codec.check_keys(event.raw, f"event {event.seq}")
            writer.add(append)
        writer.flush()
        return writer.digest.hexdigest()

    def _report(self, count: int) -> None:
        self._done += count
        if self._progress is not None and (count != 1 or self._done % _STEP == 0):
            # The source may have grown since its events were counted.
            self._progress(self._done, max(self._done, self._total))


class _Appender:
    """Appends events to a session, if no one else does."""

    def __init__(self, target: Log, end: int) -> None:
        self._target = target
        self._end = end

    def __call__(self, new: list[NewEvent], key: str | None) -> None:
        # Synced once, at the end.
        done = self._target.append(AppendRequest(new, key, self._end, durable=False))
        if done[0].seq != self._end + 1:
            raise _differs("the target", self._target.session_id, self._end + 1)
        self._end += len(new)


def _differs(where: str, session_id: str, seq: int) -> SessionExists:
    return SessionExists(
        f"session {session_id!r} exists in {where} and is not a copy: event {seq} differs; nothing of it "
        "was changed. Delete it there, or copy to another store"
    )


def _masked(events: Iterable[Moved], redacted: Redactions) -> Iterator[Moved]:
    """Yield events without redacted data."""
    for event, more in events:
        yield Moved(masked(redacted, event), more)


def _inherited(log: LogReader, upto: int) -> Iterator[Moved]:
    """Yield all events of a fork, as those of an independent session."""
    for event, more, _ in share.given_away(log, upto, redact=False, alone=True):
        yield Moved(alone(event), more)


def _same(one: Moved, other: Moved) -> bool:
    """Return whether two events are equal, apart from what a compaction removes."""
    ours, theirs = one.event, other.event
    if (ours.seq, ours.stamp, ours.kind, ours.key, one.more) != (
        theirs.seq,
        theirs.stamp,
        theirs.kind,
        theirs.key,
        other.more,
    ):
        return False
    if ours.raw == theirs.raw:
        return True
    if ours.kind == MESSAGE_PART:
        mine = kinds.read(MESSAGE_PART, ours.raw)
        there = kinds.read(MESSAGE_PART, theirs.raw)
        # One side may have dropped the parts of a message that was completed.
        return (
            mine is not None
            and there is not None
            and mine.stream == there.stream
            and (not mine.text or not there.text)
            # The first part keeps the message without its text.
            and (None in (mine.message, there.message) or mine.message == there.message)
        )
    return False
