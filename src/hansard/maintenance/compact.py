"""Compact sessions: seal and compress segments, and erase what was redacted.

No view changes. Compaction erases the bytes of redacted or scrubbed events, and the parts of streamed
messages that were completed. It keeps the parts where a fork, a snapshot or a revert points into the middle
of a stream (`PinnedSeqs`), because there the parts are all that a view can show.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import msgspec

from hansard.backend.contract import Backend, CompactionFilter, Log, SavedState
from hansard.errors import (
    UNREADABLE,
    BackendUnavailable,
    Closed,
    HansardError,
    ReadOnly,
    SessionDeleted,
    SessionNotFound,
)
from hansard.event import kinds
from hansard.event.event import Event
from hansard.event.kinds import (
    MESSAGE_ADDED,
    MESSAGE_REDACTED,
    SESSION_REVERTED,
    SESSION_SNAPSHOTTED,
)
from hansard.state import fold, lineage, redaction
from hansard.state.fork_graph import origin_of
from hansard.state.redaction import Redactions

#: zstd levels, of explicit calls and of the background compactor.
LEVEL: Final = 16
QUICK: Final = 3

Progress = Callable[[int, int], None]


class CompactReport(msgspec.Struct, frozen=True):
    """What a compaction did.

    Attributes:
        sessions: number of sessions that were rewritten, at least in part.
        before: bytes of their sealed segments on disk before the compaction.
        after: the same, afterwards.
        blanked: number of events whose data were erased.
        failed: the sessions that could not be compacted, each with the reason.
        dry_run: nothing was written; the numbers are what would be rewritten, and `after` is unknown.
        vacuumed: the tables were rewritten, so that no page contains erased data.
    """

    sessions: int = 0
    before: int = 0
    after: int = 0
    blanked: int = 0
    failed: dict[str, str] = {}
    dry_run: bool = False
    vacuumed: bool = False


def compact_session(
    backend: Backend,
    session_id: str,
    *,
    level: int = LEVEL,
    progress: Progress | None = None,
    dry_run: bool = False,
    wait: bool = True,
) -> CompactReport:
    """Compact one session; with `dry_run`, only report what would be rewritten.

    With `wait`, wait for another compactor of the session as long as for another writer.
    """
    if dry_run:
        return _pending(backend, session_id)
    with backend.unscoped.compacting(wait=wait):
        return _compact(backend, session_id, PinnedSeqs(backend), level, progress, wait=wait)


def compact_store(
    backend: Backend,
    session_ids: Iterable[str],
    *,
    level: int = LEVEL,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> CompactReport:
    """Compact sessions one by one; a failure is reported and does not stop the others."""
    wanted = sorted(session_ids)
    if dry_run:
        total = _compact_all(wanted, partial(_pending, backend), progress)
        return msgspec.structs.replace(total, dry_run=True)
    with backend.unscoped.compacting():
        return _compact_wanted(backend, wanted, level, progress)


def _compact_wanted(
    backend: Backend, wanted: list[str], level: int, progress: Progress | None
) -> CompactReport:
    # One for all, because it reads every session.
    pinned = PinnedSeqs(backend)
    compact = partial(_compact, backend, pinned=pinned, level=level, progress=None)
    return _compact_all(wanted, compact, progress)


def _compact_all(
    wanted: list[str],
    compact: Callable[[str], CompactReport],
    progress: Progress | None,
) -> CompactReport:
    """Compact sessions and add up the reports."""
    total = CompactReport()
    failed: dict[str, str] = {}
    for place, session_id in enumerate(wanted, 1):
        try:
            done = compact(session_id)
        except (SessionDeleted, SessionNotFound):
            continue
        except (BackendUnavailable, Closed, ReadOnly):
            raise  # the same for every session
        except HansardError as error:
            failed[session_id] = str(error)
            continue
        except Exception as error:  # noqa: BLE001 - such as zstd out of memory; does not stop the others
            failed[session_id] = f"{type(error).__name__}: {error}"
            continue
        total = CompactReport(
            total.sessions + done.sessions,
            total.before + done.before,
            total.after + done.after,
            total.blanked + done.blanked,
        )
        if progress is not None:
            progress(place, len(wanted))
    return msgspec.structs.replace(total, failed=failed)


def _compact(
    backend: Backend,
    session_id: str,
    pinned: "PinnedSeqs",
    level: int,
    progress: Progress | None,
    *,
    wait: bool = True,
) -> CompactReport:
    log = backend.log(session_id)
    # Read first, because compaction removes it: without it, the complete log would be read each time.
    reader = log.reader()
    known = reader.checkpoint()
    done = log.compact(
        compaction_filter(partial(controls_of, log), partial(pinned.of, session_id)),
        level=level,
        progress=progress,
        # A fork's state depends on its ancestors, which this log does not contain.
        state=None
        if lineage.fork_source(reader.first()) is not None
        else partial(_state, log, known),
        wait=wait,
    )
    return CompactReport(int(done.segments > 0), done.before, done.after, done.blanked)


def _pending(backend: Backend, session_id: str) -> CompactReport:
    """Return what a compaction of a session would rewrite."""
    log = backend.log(session_id)
    found = log.compact(compaction_filter(partial(controls_of, log), set), level=0, dry_run=True)
    return CompactReport(
        int(found.segments > 0), found.before, found.after, found.blanked, dry_run=True
    )


def _state(log: Log, known: SavedState | None, seq: int) -> bytes:
    """Return the state at a seq for the checkpoint, folded from the previous checkpoint."""
    reader = log.reader()
    redactions = redaction.of(reader.controls())
    start = None if known is None else fold.load(known.state, redactions)
    folded = fold.replay(reader, start=start or fold.EMPTY, upto=seq, redactions=redactions)
    return fold.save(folded, redactions)


def controls_of(log: Log) -> list[Event]:
    """Return the control events that a session has now."""
    return log.reader().controls()


def compaction_filter(
    controls_now: Callable[[], list[Event]], bounds: Callable[[], set[int]]
) -> CompactionFilter:
    """Return what to erase, by a session's control events.

    `bounds` returns the seqs that forks of the session point to. Both are called again once the segment to
    compact is sealed.
    """
    controls = controls_now()
    redactions = redaction.of(controls)
    # Redactions with replacement data that a later redaction has removed.
    emptied = {
        event.seq
        for event in controls
        if event.kind == MESSAGE_REDACTED and redactions.mask(event) is not event
    }

    known: list[list[int]] = []

    def kept() -> list[int]:
        # Evaluated late, after the segment was sealed: a snapshot taken while a message was streamed must
        # not be overlooked if the message's end is not. And most sessions never need it.
        if not known:
            known.append(sorted({*bounds(), *pinned_by(controls_now())}))
        return known[0]

    def drop_part(seq: int, ended: int) -> bool:
        # At a pinned seq in between the message was not complete, and this is a part of it.
        pinned = kept()
        at = bisect_left(pinned, seq)
        return at == len(pinned) or pinned[at] >= ended

    def has_moved() -> bool:
        if not known:
            return False
        before = known.pop()
        return kept() != before

    seqs = frozenset(redactions.seqs) | emptied
    replaced = {seq: instead or b"" for seq, instead in redactions.seqs.items()}
    # Whether they still have replacement data or not: a fingerprint is the same before and after.
    replaced |= {event.seq: b"" for event in controls if redactions.is_void(event)}
    mask = partial(masked, redactions)
    return CompactionFilter(
        mask, seqs, redactions.streams, replaced, drop_part, redactions.before, has_moved
    )


def masked(redactions: Redactions, event: Event) -> Event:
    """Return an event as compaction keeps it: the same object if nothing was redacted."""
    left = redactions.mask(event)
    if left is event or event.kind != MESSAGE_ADDED:
        return left
    if event.seq < redactions.before or event.seq in redactions.seqs:
        return left
    # Redacted while it was streamed, so only the stream's id tells readers that it is.
    added = kinds.read(MESSAGE_ADDED, event.raw)
    stream = added.stream if added else None
    instead = msgspec.json.encode({"message": {}, "redacted": True, "stream": stream})
    return msgspec.structs.replace(left, raw=instead)


class _Fork(NamedTuple):
    """A fork, and the seqs to which it points."""

    parent: str
    at: int
    seqs: frozenset[int]


class PinnedSeqs:
    """The current seqs of each session to which forks, reverts and snapshots of other sessions point.

    The first call of `of` reads every session of the store. Later calls read what is new: sessions that were
    created, deleted or restored, and forks of the requested session that have grown.
    """

    __slots__ = ("_backend", "_children", "_forks", "_population", "_stamps")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend.unscoped
        self._population: object = None
        self._forks: dict[str, _Fork] = {}
        self._children: dict[str, list[str]] = {}
        #: The stamps of the sessions that were read, forks or not.
        self._stamps: dict[str, str] = {}

    def of(self, session_id: str) -> set[int]:
        """Return the seqs of one session to which its forks, and their forks, point."""
        # Before the sessions are read: the next call finds later changes.
        population = self._backend.population()
        if self._population != population:
            self._read_store()
            self._population = population
        forks = dict(self._below(session_id))
        stamps = self._backend.stamps(forks) if forks else {}
        for fork in forks:
            # One in the trash has no stamp, and does not change there.
            if stamps.get(fork, "") not in {"", self._stamps[fork]}:
                self._read(fork, stamps[fork])
        return {
            seq
            for fork, upto in forks.items()
            if fork in self._forks
            for seq in self._forks[fork].seqs
            if seq <= upto
        }

    def _below(self, session_id: str) -> Iterator[tuple[str, int]]:
        """Yield the forks that show events of a session, each with the last seq that it shows."""
        own = self._forks.get(session_id)
        first = 0 if own is None else own.at
        waiting = [(child, self._forks[child].at) for child in self._children.get(session_id, ())]
        seen = {session_id}
        while waiting:
            name, upto = waiting.pop()
            if upto <= first or name in seen:
                continue
            seen.add(name)
            yield name, upto
            waiting += [
                (child, min(upto, self._forks[child].at)) for child in self._children.get(name, ())
            ]

    def _read_store(self) -> None:
        whole = self._backend
        # The trash twice: a session that is deleted concurrently is in one of the three. And only the first
        # time: a fork that is known stays known when it is deleted, since it can be restored.
        first = self._population is None
        found = set(whole.ids(trash=True)) if first else set()
        stamps = whole.stamps()
        if first:
            found.update(whole.ids(trash=True))
        for session_id in sorted({*found, *stamps}):
            stamp = stamps.get(session_id, "")
            if not stamp or self._stamps.get(session_id) != stamp:
                self._read(session_id, stamp)
        self._children = {}
        for session_id, fork in self._forks.items():
            self._children.setdefault(fork.parent, []).append(session_id)

    def _read(self, session_id: str, stamp: str) -> None:
        self._stamps[session_id] = stamp
        log = self._backend.log(session_id, from_trash=True)
        try:
            forked = origin_of(log)
        except UNREADABLE:
            forked = None  # its parent is unknown, so it cannot be read either
        if forked is None:
            self._forks.pop(session_id, None)
            return
        seqs = {forked.seq}
        with suppress(*UNREADABLE):
            seqs.update(pinned_by(controls_of(log)))
        self._forks[session_id] = _Fork(forked.parent, forked.seq, frozenset(seqs))


def pinned_by(controls: list[Event]) -> Iterable[int]:
    """Yield the seqs that a session's own reverts and snapshots point to."""
    for event in controls:
        if event.kind in {SESSION_REVERTED, SESSION_SNAPSHOTTED}:
            read = kinds.read(event.kind, event.raw)
            if read is not None:
                yield read.seq
