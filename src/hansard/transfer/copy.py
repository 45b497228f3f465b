"""Copy sessions from one store to another, event for event.

The target may be of another kind: everything goes through the contract. A copy that was broken off goes on
where the target stands, after comparing what is there; so does one of a session that has grown since. What
was written is read back and compared before the next piece is. A fork is copied after what it was forked
from, and stays its fork. Neither side is locked, and the source is only read.

A session that inherits from outside of a scoped store is copied as an export has it: with the events that it
inherits, as a session that is not a fork. Nothing else of its ancestors is copied.

What was redacted stays behind, also where its bytes have not gone yet: the copy is as the source is after
its next compaction.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from hansard.backend.contract import AppendRequest, Backend, Head, Log
from hansard.errors import HansardError, SessionDeleted, SessionExists, SessionNotFound
from hansard.event import codec, kinds
from hansard.event.kinds import MESSAGE_PART, MESSAGE_REDACTED, SessionForked
from hansard.maintenance import trash
from hansard.maintenance.compact import masked
from hansard.state import lineage, redaction
from hansard.state.redaction import Redactions
from hansard.transfer import share
from hansard.transfer.export_file import Moved
from hansard.transfer.exporting import alone
from hansard.transfer.importing import draft_of

#: So many events, or bytes, are written, read back and compared at once.
_MANY: Final = 1_000
_LARGE: Final = 1024 * 1024

#: Called with the events that are done, and of how many.
Progress = Callable[[int, int], None]


class CopyReport(msgspec.Struct, frozen=True):
    """What was copied.

    Attributes:
        sessions: how many sessions are in the target now, as they were in the source.
        events: how many events were copied.
        found: how many events were there already, and are the same.
        ancestors: sessions that were copied because others were forked from them.
        failed: sessions that could not be copied, or not to their end, and why.
    """

    sessions: int = 0
    events: int = 0
    found: int = 0
    ancestors: list[str] = []
    failed: dict[str, str] = {}


def copy_sessions(
    source: Backend, target: Backend, wanted: Iterable[str], *, progress: Progress | None = None
) -> CopyReport:
    """Copy sessions, and what they were forked from; one that cannot be copied stops no other."""
    if source.whole is target.whole or (
        source.where == target.where and type(source) is type(target) and source.where != "memory:"
    ):
        raise ValueError(f"{target.where}: a store cannot be copied to itself")
    return _Copying(source, target, list(dict.fromkeys(wanted)), progress).run()


class _Copying:
    """One copying of several sessions."""

    def __init__(
        self, source: Backend, target: Backend, wanted: list[str], progress: Progress | None
    ) -> None:
        self._source = source
        self._target = target
        self._wanted = wanted
        self._progress = progress
        self._failed: dict[str, str] = {}
        self._complete = self._found = self._copied = self._done = self._total = 0
        #: What each session was forked from; None for one that was not, or is copied as if it were not.
        self._origins: dict[str, SessionForked | None] = {}
        #: Sessions that inherit from outside of the source's scope.
        self._flat: set[str] = set()

    def run(self) -> CopyReport:
        order = self._in_order()
        ancestors = [session_id for session_id in order if session_id not in set(self._wanted)]
        heads = {session_id: self._head(session_id) for session_id in order}
        self._total = sum(self._own_events(session_id, head) for session_id, head in heads.items())
        for session_id in order:
            head = heads[session_id]
            if head is None or session_id in self._failed:
                continue
            before = self._copied
            try:
                self._check_parent(session_id)
                self._copy(session_id)
                if self._copied > before and session_id in ancestors:
                    self._bury(session_id)
            except HansardError as error:
                self._failed[session_id] = str(error)
        return CopyReport(self._complete, self._copied, self._found, ancestors, self._failed)

    # -- which, and in which order --------------------------------------------------------------

    def _in_order(self) -> list[str]:
        """Return all that is to be copied: parents before their children."""
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
            forked = lineage.origin(self._log(session_id).first())
        except HansardError as error:
            self._failed[session_id] = str(error)
            return None
        self._origins[session_id] = forked
        return None if forked is None else forked.parent

    def _log(self, session_id: str) -> Log:
        # What others were forked from may be in the trash, or outside of what a scoped store shows.
        if session_id in self._wanted:
            found = self._source.log(session_id)
            return lineage.whole(self._source, found) if session_id in self._flat else found
        return self._source.ancestor(session_id)

    def _head(self, session_id: str) -> Head | None:
        if session_id in self._failed:
            return None
        try:
            head = self._log(session_id).head()
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
        """Raise if a fork would have no parent, or another one, in the target."""
        forked = self._origins[session_id]
        if forked is None:
            return
        problem = f"session {session_id!r} was forked from {forked.parent!r} at seq {forked.seq}"
        if not forked.parent.startswith(self._target.prefix):
            raise SessionNotFound(f"{problem}, which is outside of {self._target.where}")
        head = self._target.ancestor(forked.parent).head()
        if head is None or head.seq < forked.seq:
            raise SessionNotFound(
                f"{problem}, and that could not be copied; see why, and copy again"
            )
        if forked.created and head.created != forked.created:
            raise SessionExists(
                f"{problem}, and in {self._target.where} another session has that name; nothing of it was "
                "copied"
            )

    # -- one session ----------------------------------------------------------------------------

    def _copy(self, session_id: str) -> None:
        source = self._log(session_id)
        first = source.first()
        while first is not None:
            begin = 0 if session_id in self._flat else first.seq - 1
            upto = self._copy_upto(session_id, source, begin)
            # What was redacted meanwhile may have been copied without its content: so must be what tells it.
            if not any(
                event.kind == MESSAGE_REDACTED and event.seq > upto for event in source.controls()
            ):
                break
        self._complete += 1

    def _copy_upto(self, session_id: str, source: Log, begin: int) -> int:
        """Copy all that is there now; return up to which seq that was."""
        head = source.head()
        if head is None:
            raise SessionNotFound(f"no session {session_id!r} in {self._source.where}")
        target, stands = self._stands(session_id)
        taken_out = redaction.joined(
            [redaction.of(source.controls(head.seq)), redaction.of(target.controls())]
        )
        moving = (
            _inherited(source, head.seq)
            if session_id in self._flat
            else _masked(source, taken_out, begin, head.seq)
        )
        self._compare(session_id, moving, _masked(target, taken_out, 0, min(stands, head.seq)))
        here = max(stands, begin)
        copied = self._copied
        while batch := list(_batch(moving)):
            count = sum(len(append) for append in batch)
            self._append(target, batch, here, begin)
            written = (moved for append in batch for moved in append)
            self._compare_all(session_id, written, _masked(target, taken_out, here, here + count))
            here += count
            self._copied += count
            self._tell(count)
        if self._copied > copied:
            target.sync()
        self._check_created(session_id, head)
        return head.seq

    def _stands(self, session_id: str) -> tuple[Log, int]:
        """Return the session in the target, and where it stands: 0 if it is not there."""
        target = self._target.log(session_id)
        try:
            head = target.head()
        except SessionDeleted:
            if session_id in self._wanted:
                raise
            # Only to be read by those that were forked from it, as in the source.
            target = self._target.ancestor(session_id)
            head = target.head()
        return target, 0 if head is None else head.seq

    def _append(self, target: Log, batch: list[list[Moved]], here: int, begin: int) -> None:
        """Append a batch, if the target is where it was left."""
        requests: list[AppendRequest] = []
        fresh = here == begin and target.head() is None
        for append in batch:
            for event, _ in append:
                codec.check_keys(event.raw, f"event {event.seq}")
            drafts = [draft_of(event) for event, _ in append]
            stands = 0 if fresh and not requests else here
            key = append[0].event.key
            # Not every batch is synced: the last one is, and then all are.
            requests.append(AppendRequest(drafts, key, stands, before=begin, durable=False))
            here += len(append)
        for done, append in zip(target.append_many(requests), batch, strict=True):
            if isinstance(done, Exception):
                raise done
            if done[0].seq != append[0].event.seq:
                raise _other(self._target.where, target.session_id, append[0].event.seq)

    # -- comparing ------------------------------------------------------------------------------

    def _compare(self, session_id: str, moving: Iterator[Moved], there: Iterator[Moved]) -> None:
        """Compare what is there already, and take as much of what is to be moved."""
        count = 0
        for theirs in there:
            ours = next(moving, None)
            if ours is None or not _same(ours, theirs):
                raise _other(self._target.where, session_id, theirs.event.seq)
            count += 1
            if count % _MANY == 0:
                self._tell(_MANY)
        self._found += count
        self._tell(count % _MANY)

    def _compare_all(self, session_id: str, ours: Iterator[Moved], theirs: Iterator[Moved]) -> None:
        """Compare what was written with what was to be written."""
        for mine in ours:
            there = next(theirs, None)
            if there is None or not _same(mine, there):
                raise _other(self._target.where, session_id, mine.event.seq)

    def _check_created(self, session_id: str, head: Head) -> None:
        """Raise if others could not tell that the copy is the session that they were forked from."""
        copied = self._target.ancestor(session_id).head()
        if session_id in self._flat:
            return  # which begins where what it inherits begins
        if copied is None or copied.created != head.created:
            raise SessionExists(
                f"session {session_id!r} in {self._target.where} has all events, but began at another time "
                "than in the source: sessions that were forked from it would not know it"
            )

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress is not None and count:
            # The source may have grown since its events were counted.
            self._progress(self._done, max(self._done, self._total))

    def _bury(self, session_id: str) -> None:
        """Put what is in the source's trash into the target's."""
        try:
            self._source.whole.log(session_id).head()
        except SessionDeleted:
            trash.delete(self._target, session_id)


def _other(where: str, session_id: str, seq: int) -> SessionExists:
    return SessionExists(
        f"session {session_id!r} exists in {where}, and is not a copy: its event {seq} is another; it was "
        "left as it is: delete it there, or copy to another store"
    )


# -- reading both sides -------------------------------------------------------------------------


def _masked(log: Log, taken_out: Redactions, after: int, upto: int) -> Iterator[Moved]:
    """Yield the session's own events, without what was taken out."""
    for chunk in log.read(after, upto):
        keyed = chunk.keyed()
        for event in chunk.events():
            yield Moved(masked(taken_out, event), keyed.get(event.seq, 1) - 1)


def _inherited(log: Log, upto: int) -> Iterator[Moved]:
    """Yield all events that a fork shows, as those of an independent session."""
    for event, more, _ in share.given_away(log, upto, redact=False, alone=True):
        yield Moved(alone(event), more)


def _batch(moving: Iterator[Moved]) -> Iterator[list[Moved]]:
    """Yield appends: as many as go together."""
    loose: list[Moved] = []
    count = size = 0
    while count < _MANY and size < _LARGE:
        moved = next(moving, None)
        if moved is None:
            break
        count += 1
        size += len(moved.event.raw)
        if moved.event.key is None:
            loose.append(moved)
            continue
        if loose:
            yield loose
            loose = []
        # All events of one key are one append.
        append = [moved, *islice(moving, moved.more)]
        count += moved.more
        size += sum(len(one.event.raw) for one in append[1:])
        yield append
    if loose:
        yield loose


def _same(one: Moved, other: Moved) -> bool:
    """Say whether two events are the same, but for what a compaction leaves out."""
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
        # What was streamed of a message that is there whole may have been emptied on one side.
        return (
            mine is not None
            and there is not None
            and mine.stream == there.stream
            and (not mine.text or not there.text)
            # The first part keeps what the message is, but for its text.
            and (None in (mine.message, there.message) or mine.message == there.message)
        )
    return False
