"""Compact sessions: seal and compress segments, and erase what was redacted.

No view changes. Only what was redacted, scrubbed or dropped is erased
(docs/decisions/0031-stream-parts-stay.md).

If an append makes the active segment too long, the backend schedules the session for the
`BackgroundCompactor`. It does so after the append was acknowledged, so no append waits for a compaction.
"""

import threading
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final
from weakref import ref

import msgspec

from hansard import observe
from hansard.backend.contract import Backend, CompactionFilter, Log, Progress, SavedState
from hansard.errors import (
    BackendUnavailable,
    Closed,
    HansardError,
    LockTimeout,
    ReadOnly,
    SessionDeleted,
    SessionNotFound,
)
from hansard.event.event import Event
from hansard.event.kinds import MESSAGE_ADDED
from hansard.index import erase_removed
from hansard.log import disk
from hansard.log.segment_reader import background
from hansard.maintenance import hold
from hansard.state import fold, lineage, redaction
from hansard.state.redaction import Redactions

#: zstd levels, of explicit calls and of the background compactor.
LEVEL: Final = 16
QUICK: Final = 3


class CompactReport(msgspec.Struct, frozen=True):
    """What a compaction did.

    Attributes:
        sessions: number of sessions that were rewritten, at least in part.
        before: bytes of all files of these sessions before the compaction, the log that is not compressed
            included; in PostgreSQL, bytes of their events.
        after: the same, afterwards. What was appended concurrently counts, too.
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
        return _compact(backend, session_id, level, progress, wait=wait)


def compact_store(
    backend: Backend,
    session_ids: Iterable[str],
    *,
    progress: Progress | None = None,
    vacuum: bool = False,
) -> CompactReport:
    """Compact sessions one by one; a failure is reported and does not stop the others.

    Sessions with few new events, and nothing to erase, are left alone.
    """
    wanted = sorted(session_ids)
    failed: dict[str, str] = {}
    totals: Counter[str] = Counter()
    unscoped = backend.unscoped
    with unscoped.compacting(vacuum=vacuum):
        for place, session_id in enumerate(wanted, 1):
            try:
                done = _compact(backend, session_id, LEVEL, None, always=False)
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
    level: int,
    progress: Progress | None,
    *,
    wait: bool = True,
    always: bool = True,
) -> CompactReport:
    log = backend.log(session_id)
    # Read first, because compaction removes it: without it, the complete log would be read each time.
    reader = log.reader()
    known = reader.checkpoint()
    # A fork's state depends on its ancestors, which this log does not contain.
    forked = lineage.fork_source(reader.first()) is not None
    controls = reader.controls()
    # Of a held session, even what was redacted before stays stored.
    held = hold.holds_of(controls)
    done = log.compact(
        CompactionFilter(lambda event: event) if held else compaction_filter(controls),
        level=level,
        progress=progress,
        state=None if forked else partial(_state, log, known),
        wait=wait,
        always=always,
    )
    if done.segments:
        backend.unscoped.counters.compactions += 1
        sizes = done.before, done.after, done.blanked
        text = "compacted session %r: from %d to %d bytes; events erased: %d"
        observe.report("compact", observe.INFO, text, session_id, *sizes)
    return CompactReport(int(done.segments > 0), done.before, done.after, done.blanked)


def _state(log: Log, known: SavedState | None, seq: int) -> bytes:
    """Return the state at a seq for the checkpoint, folded from the previous checkpoint."""
    reader = log.reader()
    redactions = redaction.of(reader.controls())
    start = None if known is None else fold.load(known.state, redactions)
    folded = fold.replay(reader, start=start or fold.EMPTY, upto=seq, redactions=redactions)
    return fold.save(folded, redactions)


def compaction_filter(controls: list[Event]) -> CompactionFilter:
    """Return what to erase, by a session's control events."""
    redactions = redaction.of(controls)
    replaced = {seq: instead or b"" for seq, instead in redactions.seqs.items()}
    # Whether they still have replacement data or not: a fingerprint is the same before and after.
    replaced |= {event.seq: b"" for event in controls if redactions.is_void(event)}
    streams = (*sorted(redactions.streams), *sorted(redactions.gone))
    return CompactionFilter(partial(masked, redactions), replaced, streams, redactions.before)


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
                    erase_removed(backend)
        except (_Stopped, Closed, LockTimeout, SessionDeleted, SessionNotFound):
            pass  # another process compacts it, or it needs no compaction any more
        except Exception as error:  # noqa: BLE001 - one session's failure must not end the thread
            if session_id not in self._failed:
                self._failed.add(session_id)
                text = "background compaction of session %r failed: %s: %s"
                observe.report(
                    "compact", observe.WARNING, text, session_id, type(error).__name__, error
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
