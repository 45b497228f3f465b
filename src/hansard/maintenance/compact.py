"""Compact sessions: seal and compress segments, and erase what was redacted.

No view changes. Compaction erases the bytes of redacted or scrubbed events, and the parts of streamed
messages that were completed. It keeps the parts where a fork, a snapshot or a revert points into the middle
of a stream (`PinnedSeqs`), because there the parts are all that a view can show.

The backend schedules a session for the `BackgroundCompactor` after the append that made its active segment
too long was acknowledged, so no append waits for a compaction.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, NamedTuple
from weakref import ref

import msgspec

from hansard.backend.contract import Backend, CompactionFilter, Log, Progress, SavedState
from hansard.errors import (
    UNREADABLE,
    BackendUnavailable,
    Closed,
    HansardError,
    LockTimeout,
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
from hansard.index import erase_removed
from hansard.log import disk
from hansard.log.segment_reader import background
from hansard.state import fold, lineage, redaction
from hansard.state.redaction import Redactions

#: zstd levels, of explicit calls and of the background compactor.
LEVEL: Final = 16
QUICK: Final = 3

#: Forks that a compaction of the store checks for changes, for each session: the nearest ones.
_NEAREST: Final = 64


class CompactReport(msgspec.Struct, frozen=True):
    """What a compaction did.

    Attributes:
        sessions: number of sessions that were rewritten, at least in part.
        before: bytes of their sealed segments on disk before the compaction.
        after: the same, afterwards.
        blanked: number of events whose data were erased.
        failed: the sessions that could not be compacted, each with the reason.
        vacuumed: the tables were rewritten, so that no page contains erased data.
    """

    sessions: int = 0
    before: int = 0
    after: int = 0
    blanked: int = 0
    failed: dict[str, str] = {}
    vacuumed: bool = False


def compact_session(
    backend: Backend,
    session_id: str,
    *,
    level: int = LEVEL,
    progress: Progress | None = None,
    wait: bool = True,
) -> CompactReport:
    """Compact one session.

    With `wait`, wait for another compactor of the session as long as for another writer.
    """
    with backend.unscoped.compacting(wait=wait):
        pinned = PinnedSeqs(backend)
        return _compact(backend, session_id, pinned, level, progress, wait=wait)


def compact_store(
    backend: Backend,
    session_ids: Iterable[str],
    *,
    progress: Progress | None = None,
    vacuum: bool = False,
) -> CompactReport:
    """Compact sessions one by one; a failure is reported and does not stop the others."""
    wanted = sorted(session_ids)
    failed: dict[str, str] = {}
    totals: Counter[str] = Counter()
    unscoped = backend.unscoped
    with unscoped.compacting(vacuum=vacuum):
        # One for all, because it reads every session.
        pinned = PinnedSeqs(backend, checked=_NEAREST)
        for place, session_id in enumerate(wanted, 1):
            try:
                done = _compact(backend, session_id, pinned, LEVEL, None)
            except (SessionDeleted, SessionNotFound):
                continue
            except (BackendUnavailable, Closed, ReadOnly):
                raise  # the same for every session
            except Exception as error:  # noqa: BLE001 - such as zstd out of memory; does not stop the others
                ours = isinstance(error, HansardError)
                failed[session_id] = str(error) if ours else f"{type(error).__name__}: {error}"
                continue
            for name in ("sessions", "before", "after", "blanked"):
                totals[name] += getattr(done, name)
            if progress is not None:
                progress(place, len(wanted))
        erase_removed(backend)
    vacuumed = vacuum and unscoped.needs_vacuum
    return CompactReport(**totals, failed=failed, vacuumed=vacuumed)


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
    # A fork's state depends on its ancestors, which this log does not contain.
    forked = lineage.fork_source(reader.first()) is not None
    done = log.compact(
        compaction_filter(lambda: log.reader().controls(), partial(pinned.of, session_id)),
        level=level,
        progress=progress,
        state=None if forked else partial(_state, log, known),
        wait=wait,
    )
    return CompactReport(int(done.segments > 0), done.before, done.after, done.blanked)


def _state(log: Log, known: SavedState | None, seq: int) -> bytes:
    """Return the state at a seq for the checkpoint, folded from the previous checkpoint."""
    reader = log.reader()
    redactions = redaction.of(reader.controls())
    start = None if known is None else fold.load(known.state, redactions)
    folded = fold.replay(reader, start=start or fold.EMPTY, upto=seq, redactions=redactions)
    return fold.save(folded, redactions)


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
        return bool(known) and known.pop() != kept()

    replaced = {seq: instead or b"" for seq, instead in redactions.seqs.items()}
    # Whether they still have replacement data or not: a fingerprint is the same before and after.
    replaced |= {event.seq: b"" for event in controls if redactions.is_void(event)}
    return CompactionFilter(
        partial(masked, redactions),
        frozenset(redactions.seqs) | emptied,
        redactions.streams,
        replaced,
        drop_part,
        redactions.before,
        has_moved,
    )


def masked(redactions: Redactions, event: Event) -> Event:
    """Return an event as compaction keeps it: the same object if nothing was redacted."""
    left = redactions.mask(event)
    if left is event or event.kind != MESSAGE_ADDED:
        return left
    if event.seq < redactions.before or event.seq in redactions.seqs:
        return left
    # Redacted while it was streamed, so only the stream's id tells readers that it is.
    stream = event.data.get("stream")
    raw = msgspec.json.encode({"message": {}, "redacted": True, "stream": stream})
    return msgspec.structs.replace(left, raw=raw)


# -- what forks need ----------------------------------------------------------------------------


class _Fork(NamedTuple):
    """A fork, and the seqs to which it points."""

    parent: str
    at: int
    seqs: set[int]


class PinnedSeqs:
    """The seqs of each session to which its forks, and their reverts and snapshots, point.

    The first call of `of` reads every session of the store. Later calls read what is new: sessions that were
    created, deleted or restored, and changed forks of the requested session. A seq is kept with the session
    that has its event, so a chain of forks costs what it pins, and not the square of its length.
    """

    def __init__(self, backend: Backend, *, checked: int | None = None) -> None:
        """`checked`: maximum number of forks to check for changes per call; default: all."""
        self._backend = backend.unscoped
        self._checked = checked
        self._version: str | None = None
        self._forks: dict[str, _Fork] = {}
        self._children: dict[str, list[str]] = {}
        #: By session, the seqs of events that it has itself, to which forks point.
        self._pins: dict[str, set[int]] = {}
        #: The stamps of the sessions that were read, forks or not.
        self._stamps: dict[str, str] = {}

    def of(self, session_id: str) -> set[int]:
        """Return the seqs of one session to which its forks, and their forks, point."""
        # Before the sessions are read: the next call finds later changes.
        version = self._backend.version()
        if not version or self._version != version:
            self._read_store()
            self._version = version
        near = list(islice(self._below(session_id), self._checked))
        stamps = self._backend.stamps(near) if near else {}
        for fork in near:
            if stamps.get(fork, "") not in {"", self._stamps[fork]}:
                self._read(fork, stamps[fork])
                self._pin(fork)
        return set(self._pins.get(session_id, ()))

    def _below(self, session_id: str) -> Iterator[str]:
        """Yield the forks that show events of a session, the nearest first."""
        first = self._forks[session_id].at if session_id in self._forks else 0
        waiting, seen = [session_id], {session_id}
        for name in waiting:
            for fork in self._children.get(name, ()):
                if fork not in seen and fork in self._forks and self._forks[fork].at > first:
                    seen.add(fork)
                    waiting.append(fork)
                    yield fork

    def _read_store(self) -> None:
        # The trash twice: a session that is deleted concurrently is in one of the three.
        trash = {*self._backend.ids(trash=True)}
        stamps = self._backend.stamps()
        for session_id in sorted({*trash, *stamps, *self._backend.ids(trash=True)}):
            # One in the trash has no stamp, and does not change there.
            stamp = stamps.get(session_id, "")
            if self._stamps.get(session_id) != stamp:
                self._read(session_id, stamp)
        self._children, self._pins = {}, {}
        for session_id, fork in self._forks.items():
            self._children.setdefault(fork.parent, []).append(session_id)
            self._pin(session_id)

    def _read(self, session_id: str, stamp: str) -> None:
        self._stamps[session_id] = stamp
        self._forks.pop(session_id, None)
        log = self._backend.log(session_id, from_trash=True)
        # If its parent is unknown, it cannot be read, so it needs nothing.
        with suppress(*UNREADABLE):
            forked = lineage.origin_of(log)
            if forked is not None:
                seqs = {forked.seq}
                self._forks[session_id] = _Fork(forked.parent, forked.seq, seqs)
                seqs.update(pinned_by(log.reader().controls()))

    def _pin(self, session_id: str) -> None:
        """Note each seq to which a fork points with the session that has the event."""
        for seq in self._forks[session_id].seqs if session_id in self._forks else ():
            name, seen = session_id, set[str]()
            # `seen`: a damaged session may be forked from its own descendant.
            while name not in seen and name in self._forks and seq <= self._forks[name].at:
                seen.add(name)
                name = self._forks[name].parent
            if name != session_id:
                self._pins.setdefault(name, set()).add(seq)


def pinned_by(controls: list[Event]) -> Iterable[int]:
    """Yield the seqs that a session's own reverts and snapshots point to."""
    for event in controls:
        if event.kind in {SESSION_REVERTED, SESSION_SNAPSHOTTED}:
            read = kinds.read(event.kind, event.raw)
            if read is not None:
                yield read.seq


# -- in the background --------------------------------------------------------------------------


class _Stopped(Exception):
    """Interrupts a compaction; nothing is lost."""


class BackgroundCompactor:
    """Compacts the scheduled sessions of a backend in a thread, at a fast zstd level.

    The thread begins with the first session and ends when none is left. A failure does not change the log and
    is logged once per session; the session is scheduled again when it has grown further.
    """

    def __init__(self, backend: Backend) -> None:
        # A weak reference: a store without references is closed.
        self._backend = ref(backend)
        self._stopped = False
        #: Sessions whose failure was logged.
        self._failed: set[str] = set()
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Start without a thread: a forked child does not inherit it."""
        # Re-entrant: a signal handler may append while its thread schedules.
        self._mutex = threading.RLock()
        self._thread: threading.Thread | None = None
        #: In order; the first one is compacted now.
        self._scheduled: dict[str, None] = {}

    def schedule(self, session_id: str) -> None:
        """Compact a session soon."""
        with self._mutex:
            if self._stopped or session_id in self._scheduled:
                return
            self._scheduled[session_id] = None
            if self._thread is None:
                name = "hansard-compaction"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Interrupt the current compaction and start no other; return when the thread has ended."""
        with self._mutex:
            self._stopped = True
            self._scheduled.clear()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        background.active = True
        while True:
            with self._mutex:
                session_id = next(iter(self._scheduled), None)
                if session_id is None:
                    self._thread = None
                    return
            self.compact(session_id)

    def compact(self, session_id: str) -> None:
        """Compact a session, if its store is still open."""
        backend = self._backend()
        try:
            if backend is not None:
                report = compact_session(
                    backend, session_id, level=QUICK, progress=self._check, wait=False
                )
                if report.blanked:
                    from hansard.index import erase_removed

                    erase_removed(backend)
        except (_Stopped, Closed, LockTimeout, SessionDeleted, SessionNotFound):
            pass  # another process compacts it, or it needs no compaction any more
        except Exception as error:  # noqa: BLE001 - one session's failure must not end the thread
            if session_id not in self._failed:
                self._failed.add(session_id)
                import logging

                logging.getLogger("hansard").warning(
                    "background compaction of session %r failed: %s: %s",
                    session_id,
                    type(error).__name__,
                    error,
                )
        else:
            self._failed.discard(session_id)
        finally:
            with self._mutex:
                self._scheduled.pop(session_id, None)

    def _check(self, done: int, total: int) -> None:
        del done, total
        if self._stopped:
            raise _Stopped
