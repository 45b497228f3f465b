"""Make what is stored smaller, and rid it of what was taken out.

Above: `store`, `session`.  Below: `state`, `backend.contract`.
Nothing that a view can show changes. Gone afterwards are the bytes of what was redacted or scrubbed, and
the parts of streamed messages that were added whole: except where a fork, a snapshot or a revert leads into
the middle of the stream, since there the parts are all that can be shown.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Final

import msgspec

from hansard.backend.contract import Backend, Forget, Log
from hansard.errors import (
    Damaged,
    DiskFailed,
    HansardError,
    LockTimeout,
    SessionDeleted,
    SyncFailed,
    UnknownFormat,
)
from hansard.event import kinds
from hansard.event.envelope import Event
from hansard.event.kinds import (
    MESSAGE_ADDED,
    MESSAGE_PART,
    SESSION_REVERTED,
    SESSION_SNAPSHOTTED,
    SessionForked,
)
from hansard.state import checkpoint, fold, lineage, redaction, replay
from hansard.state.redaction import Redactions

#: How hard zstd tries: by hand, where a person waits for little; by itself, beside other work.
LEVEL: Final = 12
QUICK: Final = 3

#: So much of a session is enough to learn from.
_SAMPLE: Final = 64 * 1024

Progress = Callable[[int, int], None]

#: By session, the seqs that must still be shown as they were.
Bounds = dict[str, set[int]]


class CompactReport(msgspec.Struct, frozen=True):
    """What a compaction did.

    Attributes:
        sessions: how many were rewritten, in part or whole.
        before, after: bytes of the sealed segments of these, on disk.
        blanked: events whose data were taken out for good.
        failed: sessions that could not be compacted, and why.
        dry_run: nothing was written; the numbers say what would be rewritten, and `after` is not known.
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
) -> CompactReport:
    """Compact one session; with `dry_run`, only say what would be rewritten."""
    if dry_run:
        return _pending(backend, session_id)
    return _compact(backend, session_id, lambda: fork_bounds(backend), level, progress)


def compact_store(
    backend: Backend,
    session_ids: Iterable[str],
    *,
    level: int = LEVEL,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> CompactReport:
    """Compact sessions one by one; one that cannot be is reported and stops no other."""
    total = CompactReport()
    failed: dict[str, str] = {}
    # Once for all, and only if somebody asks: it takes a look at every session.
    bounds = cache(partial(fork_bounds, backend))
    wanted = sorted(session_ids)
    if not dry_run:
        backend.learn(wanted, partial(_sample, backend))
    for place, session_id in enumerate(wanted, 1):
        try:
            if dry_run:
                done = _pending(backend, session_id)
            else:
                done = _compact(backend, session_id, bounds, level, None)
        except SessionDeleted:
            continue
        except (Damaged, DiskFailed, LockTimeout, SyncFailed, UnknownFormat) as error:
            failed[session_id] = str(error)
            continue
        total = CompactReport(
            total.sessions + done.sessions,
            total.before + done.before,
            total.after + done.after,
            total.blanked + done.blanked,
        )
        if progress is not None:
            progress(place, len(wanted))
    return msgspec.structs.replace(total, failed=failed, dry_run=dry_run)


def _sample(backend: Backend, session_id: str) -> bytes:
    """Return the beginning of what a session says, without what was taken out of it."""
    texts: list[bytes] = []
    size = 0
    try:
        log = backend.log(session_id)
        redactions = redaction.of(log.controls())
        for chunk in log.read():
            for event in chunk.events():
                # Parts of messages go, once these are whole.
                if event.kind != MESSAGE_PART:
                    data = redactions.mask(event).raw
                    texts.append(b'"kind":"%b","data":%b' % (event.kind.encode(), data))
                    size += len(texts[-1])
                if size >= _SAMPLE:
                    return b"\n".join(texts)
    except HansardError:
        return b""  # why it cannot be read shows when it is compacted
    return b"\n".join(texts)


def fork_bounds(backend: Backend) -> Bounds:
    """Return, by session, the seqs of it to which others are led that were forked from it.

    That is where they were forked, and where they, or their own forks, go back to before that. Those in the
    trash count too.
    """
    whole = backend.whole
    origins: dict[str, SessionForked] = {}
    wanted: dict[str, set[int]] = {}
    for session_id in [*whole.ids(), *whole.trash()]:
        try:
            log = whole.ancestor(session_id)
            forked = lineage.origin(log.first())
            if forked is not None:
                wanted[session_id] = {forked.seq, *_places(log.controls())}
                origins[session_id] = forked
        except HansardError:
            continue  # what it was forked from cannot be told, so it cannot be read either
    bounds: Bounds = {}
    for session_id, places in wanted.items():
        new = places
        above = origins.get(session_id)
        while above is not None and new:
            known = bounds.setdefault(above.parent, set())
            # What is known there was carried further up by whoever found it.
            new = {place for place in new if place <= above.seq} - known
            known |= new
            above = origins.get(above.parent)
    return bounds


def _compact(
    backend: Backend,
    session_id: str,
    bounds: Callable[[], Bounds],
    level: int,
    progress: Progress | None,
) -> CompactReport:
    log = backend.log(session_id)
    done = log.compact(
        forget_of(log, lambda: bounds().get(session_id, set())),
        level=level,
        progress=progress,
        # A fork's state is that of its whole lineage, which this log does not know.
        state=None if lineage.origin(log.first()) is not None else partial(_state, log),
    )
    return CompactReport(int(done.segments > 0), done.before, done.after, done.blanked)


def _pending(backend: Backend, session_id: str) -> CompactReport:
    """Say what a compaction of a session would rewrite."""
    log = backend.log(session_id)
    found = log.pending(forget_of(log, set))
    return CompactReport(
        int(found.segments > 0), found.before, found.after, found.blanked, dry_run=True
    )


def _state(log: Log, seq: int) -> bytes:
    """Return the state at a seq, to be saved: folded from where the last one was saved."""
    redactions = redaction.of(log.controls())
    known = log.checkpoint()
    start = None if known is None else checkpoint.load(known[1], redactions)
    folded = replay.replay(log, start=start or fold.EMPTY, upto=seq, redactions=redactions)
    return checkpoint.save(folded, redactions)


def forget_of(log: Log, bounds: Callable[[], set[int]]) -> Forget:
    """Return what a session's control events say is to be forgotten."""
    redactions = redaction.of(log.controls())

    @cache
    def kept() -> list[int]:
        # Not before it is asked for, and so not before the segment was sealed that is being compacted: a
        # snapshot that was made while a message was streamed must not be overlooked if the message's end is
        # not. And most sessions never ask.
        return sorted({*bounds(), *_places(log.controls())})

    def drop_part(seq: int, ended: int) -> bool:
        # A place in between is one at which the message was not whole yet, and this is a part of it.
        places = kept()
        place = bisect_left(places, seq)
        return place == len(places) or places[place] >= ended

    mask = partial(masked, redactions)
    return Forget(mask, frozenset(redactions.seqs), redactions.streams, drop_part)


def masked(redactions: Redactions, event: Event) -> Event:
    """Return an event as it is kept once what was taken out is to be forgotten: the same if nothing was."""
    left = redactions.mask(event)
    if left is event or event.kind != MESSAGE_ADDED or event.seq in redactions.seqs:
        return left
    # Taken out while it was being streamed, so it is by its stream that everybody knows it is.
    added = kinds.read(MESSAGE_ADDED, event.raw)
    stream = added.stream if added else None
    instead = msgspec.json.encode({"message": {}, "redacted": True, "stream": stream})
    return msgspec.structs.replace(left, raw=instead)


def _places(controls: list[Event]) -> Iterable[int]:
    """Yield the seqs to which a view can be led by name."""
    for event in controls:
        if event.kind in {SESSION_REVERTED, SESSION_SNAPSHOTTED}:
            read = kinds.read(event.kind, event.raw)
            if read is not None:
                yield read.seq
