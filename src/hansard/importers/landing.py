"""Let one foreign session be a session of a store: staged, whole, once.

Above: `bringing`.  Below: `encoding`, `placing`; `backend.contract` (stages), `state.lineage`.
A session is put together where nobody sees it, and gets its name when it is whole: whoever is killed leaves
whole sessions or nothing. Its metadata say under `imported` what it was made of: kind, id, how many items,
and their checksum. By that the next run knows it again, also after it was compacted, redacted or renamed
here:

    the same items                  present: nothing is done
    the same, and more behind them  continued: the new ones are appended, in one append; unless the session
                                    went on here as well: then it is an error, and left as it is
    others                          an error, and left as it is

An existing session is never overwritten.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from hansard.backend.contract import AppendRequest, Backend, Log
from hansard.errors import (
    Damaged,
    InvalidEvent,
    InvalidSessionId,
    SeqConflict,
    SessionDeleted,
    SessionExists,
    UnknownFormat,
)
from hansard.event import codec
from hansard.event.envelope import NewEvent
from hansard.event.kinds import (
    CONTROL,
    METADATA_SET,
    SESSION_ARCHIVED,
    SESSION_CREATED,
    SESSION_FORKED,
)
from hansard.importers import encoding
from hansard.importers.encoding import IMPORTED, Entry
from hansard.importers.placing import Places, went_on
from hansard.importers.report import Brought
from hansard.importers.source import Foreign
from hansard.state import fold, lineage

#: So many events, or bytes, go into a stage at once.
_MANY: Final = 256
_LARGE: Final = 256 * 1024

#: So often a session is compared again that somebody appends to.
_PATIENCE: Final = 8


class _Moved(Exception):
    """Somebody has appended to a session while it was compared."""


class Made(msgspec.Struct):
    """A foreign session as it can be stored."""

    foreign: Foreign
    items: list[Entry]
    closing: list[Entry]
    metadata: dict[str, Any]
    begun: str | None

    def brought(
        self, session_id: str, outcome: str, new: int, parent: str | None = None
    ) -> Brought:
        """Return what became of it."""
        where = self.foreign.where
        return Brought(session_id, where, outcome, len(self.items), new, parent)


class _Parent(msgspec.Struct):
    """Where a session forks off: after so many items, which stand up to `seq`."""

    id: str
    seq: int
    created: str
    items: int
    places: Places
    metadata: dict[str, Any]
    depth: int


class Landing:
    """Brings sessions of one source into a store."""

    def __init__(self, backend: Backend, kind: str, prefix: str, *, dry_run: bool) -> None:
        self._backend = backend
        self._kind = kind
        self._prefix = prefix
        self._dry_run = dry_run
        #: What would have been imported, of which nothing is there to be read.
        self._planned: dict[str, list[Entry]] = {}

    def bring(self, session_id: str, made: Made) -> Brought:
        """Bring a session, if it is not there, and say what became of it."""
        log = self._backend.log(session_id)
        if log.head() is None:
            if self._dry_run:
                return self._plan(session_id, made)
            try:
                return self._stage(session_id, made)
            except SessionExists:
                if log.head() is None:
                    raise
                # Somebody was faster: perhaps with the same source.
        for _ in range(_PATIENCE):
            with suppress(SeqConflict, _Moved):
                return self._compare(session_id, log, made)
            # The session went on in between, perhaps by another import: it has to be looked at again.
        raise SessionExists(
            f"session {session_id!r} is appended to all the time: left as it is; import it again when it "
            "rests"
        )

    def _tally(self, made: Made, before: int) -> dict[str, Any]:
        """Return what is written down about an import."""
        return {
            "kind": self._kind,
            "from": made.foreign.id,
            "items": len(made.items),
            "before": before,
            "closing": len(made.closing),
            "sha256": encoding.digest(made.items),
        }

    # -- a session that is new ------------------------------------------------------------------

    def _stage(self, session_id: str, made: Made) -> Brought:
        items = made.items
        parent = self._parent(made)
        shared = 0 if parent is None else parent.items
        tally = self._tally(made, shared)
        before = 0 if parent is None else parent.seq
        drafts = _created(made, tally) if parent is None else _forked(made, tally, parent)
        known = None if parent is None else parent.places
        places = Places.of_new(known, before + len(drafts), tally)
        drafts += (one.draft(places.seq) for one in (*items[shared:], *made.closing))
        if made.foreign.archived:
            drafts.append(_control(SESSION_ARCHIVED, {}, drafts[-1].time))
        with self._backend.stage(session_id, before=before) as stage:
            for piece in _pieces(drafts):
                stage.append(piece)
            stage.publish()
        self._verify(session_id, before, drafts)
        if parent is not None:
            self._check_fork(session_id)
        parent_id = None if parent is None else parent.id
        return made.brought(session_id, "imported", len(items) - shared, parent_id)

    def _parent(self, made: Made) -> _Parent | None:
        """Return where the session forks off; None if it is no fork, or its parent is not here as it was."""
        fork = made.foreign.fork
        if fork is None or not 0 < fork.items <= len(made.items):
            return None
        parent_id = self._prefix + fork.parent
        try:
            own = self._backend.log(parent_id)
            head = own.head()
            if head is None:
                return None
            depth = lineage.next_depth(own)
            log = lineage.whole(self._backend, own)
            places = Places.of(log)
            if places is None or not places.holds(log, made.items[: fork.items]):
                return None
        except (Damaged, InvalidEvent, InvalidSessionId, SessionDeleted, UnknownFormat):
            return None
        seq = places.seq(fork.items)
        metadata = fold.metadata_of(log.controls(seq))
        return _Parent(parent_id, seq, head.created, fork.items, places, metadata, depth)

    def _check_fork(self, session_id: str) -> None:
        """Raise if the parent was purged at the last moment; like a fork that came too late."""
        try:
            lineage.whole(self._backend, self._backend.log(session_id))
        except Damaged:
            self._backend.delete(session_id)
            self._backend.purge(session_id)
            raise

    def _plan(self, session_id: str, made: Made) -> Brought:
        """Say what `_stage` would do."""
        fork, items = made.foreign.fork, made.items
        self._planned[session_id] = items
        parent = self._parent(made)
        parent_id, shared = (None, 0) if parent is None else (parent.id, parent.items)
        if parent is None and fork is not None and 0 < fork.items <= len(items):
            planned = self._planned.get(self._prefix + fork.parent, [])[: fork.items]
            ours = items[: fork.items]
            if list(map(encoding.line_of, planned)) == list(map(encoding.line_of, ours)):
                parent_id, shared = self._prefix + fork.parent, fork.items
        return made.brought(session_id, "imported", len(items) - shared, parent_id)

    # -- a session that is there ----------------------------------------------------------------

    def _compare(self, session_id: str, log: Log, made: Made) -> Brought:
        # First: what is appended after this look is noticed, by whoever goes on from it.
        head = log.head()
        if head is None:
            raise SessionExists(
                f"session {session_id!r} was there, and is deleted: nothing was done"
            )
        places = Places.of(lineage.whole(self._backend, log))
        known = None if places is None else places.tally
        same = (self._kind, made.foreign.id)
        if places is None or known is None or (known["kind"], known["from"]) != same:
            raise SessionExists(
                f"session {session_id!r} exists already, and is not from this source: left as it is; import "
                "with a prefix to have both"
            )
        count: int = known["items"]
        if count > len(made.items) or encoding.digest(made.items[:count]) != known["sha256"]:
            raise SessionExists(
                f"session {session_id!r} was imported before, and its source has changed since in what was "
                "imported: left as it is; import with a prefix to have both"
            )
        if count == len(made.items):
            return made.brought(session_id, "present", 0)
        if went_on(log, places.end()):
            if log.head() != head:
                raise _Moved  # perhaps by another import, which is no conflict
            raise SessionExists(
                f"session {session_id!r} was imported before, and has gone on both here and in its source: "
                "left as it is; import with a prefix to have both"
            )
        return self._continue(log, head.seq, made, places, count, session_id)

    def _continue(
        self, log: Log, seq: int, made: Made, earlier: Places, count: int, session_id: str
    ) -> Brought:
        """Append what is new, if nobody has appended anything since the session stood at this seq."""
        tally = self._tally(made, count)
        places = Places.of_new(earlier, seq + 1, tally)
        # A program's: the title that a person gave it here stays.
        data = {"metadata": {**made.metadata, IMPORTED: tally}, "automatic": True}
        drafts = [_control(METADATA_SET, data, made.items[count].time)]
        drafts += (one.draft(places.seq) for one in (*made.items[count:], *made.closing))
        if not self._dry_run:
            # Together, so that a kill leaves all of them or none.
            log.append(AppendRequest(drafts, expected_seq=seq))
            self._verify(session_id, seq, drafts)
        return made.brought(session_id, "continued", len(made.items) - count)

    def _verify(self, session_id: str, before: int, drafts: list[NewEvent]) -> None:
        """Read back what was published, and count it, before anybody is told that it is there."""
        log = self._backend.log(session_id)
        written = _counted(draft.kind for draft in drafts)
        found = _counted(
            event.kind
            for chunk in log.read(before, before + len(drafts))
            for event in chunk.events()
        )
        if found != written:
            raise SessionExists(
                f"session {session_id!r}: {len(drafts)} events were written, and others are there; look "
                f"with `hansard verify {session_id}`"
            )


def _created(made: Made, tally: dict[str, Any]) -> list[NewEvent]:
    metadata = made.metadata
    if made.foreign.fork is not None:
        metadata = {"forked_from": made.foreign.fork.parent, **metadata}
    data = {"metadata": {**metadata, IMPORTED: tally}}
    return [_control(SESSION_CREATED, data, made.begun)]


def _forked(made: Made, tally: dict[str, Any], parent: _Parent) -> list[NewEvent]:
    own = next((item.time for item in made.items[parent.items :] if item.time), None)
    begun = made.foreign.created or own or made.begun
    # What the parent's metadata say is inherited, and may be true of the parent only.
    others = dict.fromkeys(parent.metadata.keys() - made.metadata.keys() - {IMPORTED})
    changed = {**others, **made.metadata, IMPORTED: tally}
    forked = {"parent": parent.id, "seq": parent.seq, "created": parent.created}
    if parent.depth > 1:
        forked["depth"] = parent.depth
    return [
        _control(SESSION_FORKED, forked, begun),
        _control(METADATA_SET, {"metadata": changed}, begun),
    ]


def _control(kind: str, data: dict[str, Any], time: str | None) -> NewEvent:
    return NewEvent(kind, codec.encode(data), kind in CONTROL, time)


def _pieces(drafts: list[NewEvent]) -> Iterator[list[NewEvent]]:
    piece: list[NewEvent] = []
    size = 0
    for draft in drafts:
        piece.append(draft)
        size += len(draft.data)
        if len(piece) >= _MANY or size >= _LARGE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _counted(kinds: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return counts
