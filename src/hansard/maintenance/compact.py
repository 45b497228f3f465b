"""Compact sessions: seal and compress segments, and erase what was redacted.

No view changes. Compaction erases the bytes of redacted or scrubbed events, and the parts of streamed
messages that were completed. It keeps the parts where a fork, a snapshot or a revert points into the middle
of a stream (`PinnedSeqs`), because there the parts are all that a view can show.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from hansard.backend.contract import Backend, CompactionFilter, Log
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
from hansard.event.envelope import Event
from hansard.event.kinds import (
    MESSAGE_ADDED,
    MESSAGE_REDACTED,
    SESSION_REVERTED,
    SESSION_SNAPSHOTTED,
    SessionForked,
)
from hansard.state import checkpoint, fold, lineage, redaction, replay
from hansard.state.fork_graph import forks
from hansard.state.redaction import Redactions

#: zstd levels: when called explicitly, and in the background.
LEVEL: Final = 16
QUICK: Final = 3

Progress = Callable[[int, int], None]


class CompactReport(msgspec.Struct, frozen=True):
    """What a compaction did.

    Attributes:
        sessions: number of sessions that were rewritten, at least in part.
        before, after: bytes of their sealed segments on disk.
        blanked: number of events whose data were erased.
        failed: sessions that could not be compacted, each with the reason.
        dry_run: nothing was written; the numbers are what would be rewritten, and `after` is unknown.
    """

    sessions: int = 0
    before: int = 0
    after: int = 0
    blanked: int = 0
    failed: dict[str, str] = {}
    dry_run: bool = False


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
    with backend.whole.compacting(wait=wait):
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
    with backend.whole.compacting():
        return _compact_wanted(backend, wanted, level, progress)


def _compact_wanted(
    backend: Backend, wanted: list[str], level: int, progress: Progress | None
) -> CompactReport:
    # One for all, because it reads every session.
    pinned = PinnedSeqs(backend)
    compact = partial(_compact, backend, pinned=pinned, level=level, progress=None)
    total = _compact_all(wanted, compact, progress)
    backend.sweep()
    return total


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
        except Exception as error:  # noqa: BLE001 - such as zstd out of memory: it does not stop the others
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
    known = log.checkpoint()
    done = log.compact(
        compaction_filter(log, partial(pinned.of, session_id)),
        level=level,
        progress=progress,
        # A fork's state depends on its ancestors, which this log does not contain.
        state=None if lineage.origin(log.first()) is not None else partial(_state, log, known),
        wait=wait,
    )
    return CompactReport(int(done.segments > 0), done.before, done.after, done.blanked)


def _pending(backend: Backend, session_id: str) -> CompactReport:
    """Return what a compaction of a session would rewrite."""
    log = backend.log(session_id)
    found = log.compact(compaction_filter(log, set), level=0, dry_run=True)
    return CompactReport(
        int(found.segments > 0), found.before, found.after, found.blanked, dry_run=True
    )


def _state(log: Log, known: tuple[int, bytes] | None, seq: int) -> bytes:
    """Return the state at a seq for the checkpoint, folded from the previous checkpoint."""
    redactions = redaction.of(log.controls())
    start = None if known is None else checkpoint.load(known[1], redactions)
    folded = replay.replay(log, start=start or fold.EMPTY, upto=seq, redactions=redactions)
    return checkpoint.save(folded, redactions)


def compaction_filter(log: Log, bounds: Callable[[], set[int]]) -> CompactionFilter:
    """Return what to erase, by a session's control events.

    `bounds` returns the seqs that forks of the session point to.
    """
    controls = log.controls()
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
            known.append(sorted({*bounds(), *pinned_by(log.controls())}))
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
    taken = [
        read.seq
        for event in controls
        if event.kind == MESSAGE_REDACTED
        and (read := kinds.read(MESSAGE_REDACTED, event.raw)) is not None
    ]
    # Seqs below the drop bound are not listed any more.
    again = frozenset(
        seq
        for seq, count in Counter(taken).items()
        if count > 1 or (seq < redactions.before and seq not in redactions.seqs)
    )
    mask = partial(masked, redactions)
    return CompactionFilter(
        mask, seqs, redactions.streams, drop_part, redactions.before, again, has_moved
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


class PinnedSeqs:
    """The seqs of each session that its forks point to, up to date however long a compaction takes.

    The first call reads every session. Later calls check only the forks that have grown, and every session
    again if one was created, deleted or restored.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend.whole
        self._bounds: dict[str, set[int]] = {}
        self._population: object = None
        self._seqs: dict[str, int] = {}

    def of(self, session_id: str) -> set[int]:
        """Return the pinned seqs of one session."""
        # Read before the sessions: the next call finds what is appended concurrently.
        population = self._backend.population()
        seqs = {fork: self._seq(fork) for fork in self._seqs}
        if self._population != population or self._seqs != seqs:
            found: list[str] = []
            self._bounds = fork_bounds(self._backend, found)
            # The seqs from before that, because it may have missed what came later.
            self._seqs = {fork: seqs.get(fork, -1) for fork in found}
            self._population = population
        return self._bounds.get(session_id, set())

    def _seq(self, session_id: str) -> int:
        try:
            head = self._backend.ancestor(session_id).head()
        except HansardError:
            return -1
        return -1 if head is None else head.seq


def fork_bounds(backend: Backend, found: list[str] | None = None) -> dict[str, set[int]]:
    """Return, by session, the seqs of it that its forks point to, those in the trash included.

    A fork points to where it was forked, and to earlier seqs that it or its own forks revert to or name.
    `found` receives the ids of all forks.
    """
    whole = backend.whole
    origins: dict[str, SessionForked] = {}
    wanted: dict[str, set[int]] = {}
    for session_id, forked in forks(whole):
        if forked is None:
            continue  # its parent is unknown, so it cannot be read either
        origins[session_id] = forked
        wanted[session_id] = {forked.seq}
        with suppress(*UNREADABLE):
            wanted[session_id].update(pinned_by(whole.ancestor(session_id).controls()))
    if found is not None:
        found.extend(origins)
    bounds: dict[str, set[int]] = {}
    for session_id, seqs in wanted.items():
        new = seqs
        above = origins.get(session_id)
        while above is not None and new:
            known = bounds.setdefault(above.parent, set())
            # What is known there was carried further up already.
            new = {seq for seq in new if seq <= above.seq} - known
            known |= new
            above = origins.get(above.parent)
    return bounds


def pinned_by(controls: list[Event]) -> Iterable[int]:
    """Yield the seqs that a session's own reverts and snapshots point to."""
    for event in controls:
        if event.kind in {SESSION_REVERTED, SESSION_SNAPSHOTTED}:
            read = kinds.read(event.kind, event.raw)
            if read is not None:
                yield read.seq
