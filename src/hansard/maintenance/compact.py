"""Make what is stored smaller, and rid it of what was taken out.

Nothing that a view can show changes. Gone afterwards are the bytes of what was redacted or scrubbed, and
the parts of streamed messages that were added whole: except where a fork, a snapshot or a revert leads into
the middle of the stream, since there the parts are all that can be shown.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from hansard.backend.contract import Backend, CompactionFilter, Log
from hansard.errors import (
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
)
from hansard.maintenance.places import Places, places_of
from hansard.state import checkpoint, fold, lineage, redaction, replay
from hansard.state.redaction import Redactions

#: How hard zstd tries: by hand, where a person waits for little; by itself, beside other work.
LEVEL: Final = 16
QUICK: Final = 3

Progress = Callable[[int, int], None]


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
    wait: bool = True,
) -> CompactReport:
    """Compact one session; with `dry_run`, only say what would be rewritten.

    `wait`: wait for another compactor of the session, as long as for another writer.
    """
    if dry_run:
        return _pending(backend, session_id)
    with backend.whole.compacting(wait=wait):
        return _compact(backend, session_id, Places(backend), level, progress, wait=wait)


def compact_store(
    backend: Backend,
    session_ids: Iterable[str],
    *,
    level: int = LEVEL,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> CompactReport:
    """Compact sessions one by one; one that cannot be is reported and stops no other."""
    wanted = sorted(session_ids)
    if dry_run:
        total = _compact_all(wanted, partial(_pending, backend), progress)
        return msgspec.structs.replace(total, dry_run=True)
    with backend.whole.compacting():
        return _compact_wanted(backend, wanted, level, progress)


def _compact_wanted(
    backend: Backend, wanted: list[str], level: int, progress: Progress | None
) -> CompactReport:
    # One for all: it takes a look at every session.
    places = Places(backend)
    compact = partial(_compact, backend, places=places, level=level, progress=None)
    total = _compact_all(wanted, compact, progress)
    backend.sweep()
    return total


def _compact_all(
    wanted: list[str],
    compact: Callable[[str], CompactReport],
    progress: Progress | None,
) -> CompactReport:
    """Compact some sessions and add up what was done."""
    total = CompactReport()
    failed: dict[str, str] = {}
    for place, session_id in enumerate(wanted, 1):
        try:
            done = compact(session_id)
        except (SessionDeleted, SessionNotFound):
            continue
        except (BackendUnavailable, Closed, ReadOnly):
            raise  # so it is for every session
        except HansardError as error:
            failed[session_id] = str(error)
            continue
        except Exception as error:  # noqa: BLE001 - zstd out of memory, say: it stops no other session
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
    places: Places,
    level: int,
    progress: Progress | None,
    *,
    wait: bool = True,
) -> CompactReport:
    log = backend.log(session_id)
    # Before it begins, since it takes the checkpoint away: without, the whole log would be read each time.
    known = log.checkpoint()
    done = log.compact(
        compaction_filter(log, partial(places.of, session_id)),
        level=level,
        progress=progress,
        # A fork's state is that of its whole lineage, which this log does not know.
        state=None if lineage.origin(log.first()) is not None else partial(_state, log, known),
        wait=wait,
    )
    return CompactReport(int(done.segments > 0), done.before, done.after, done.blanked)


def _pending(backend: Backend, session_id: str) -> CompactReport:
    """Say what a compaction of a session would rewrite."""
    log = backend.log(session_id)
    found = log.compact(compaction_filter(log, set), level=0, dry_run=True)
    return CompactReport(
        int(found.segments > 0), found.before, found.after, found.blanked, dry_run=True
    )


def _state(log: Log, known: tuple[int, bytes] | None, seq: int) -> bytes:
    """Return the state at a seq, to be saved: folded from where the last one was saved."""
    redactions = redaction.of(log.controls())
    start = None if known is None else checkpoint.load(known[1], redactions)
    folded = replay.replay(log, start=start or fold.EMPTY, upto=seq, redactions=redactions)
    return checkpoint.save(folded, redactions)


def compaction_filter(log: Log, bounds: Callable[[], set[int]]) -> CompactionFilter:
    """Return what a session's control events say is to be forgotten."""
    controls = log.controls()
    redactions = redaction.of(controls)
    # Redactions that still hold what was left of a message then, and is gone by now.
    emptied = {
        event.seq
        for event in controls
        if event.kind == MESSAGE_REDACTED and redactions.mask(event) is not event
    }

    known: list[list[int]] = []

    def kept() -> list[int]:
        # Not before it is asked for, and so not before the segment was sealed that is being compacted: a
        # snapshot that was made while a message was streamed must not be overlooked if the message's end is
        # not. And most sessions never ask.
        if not known:
            known.append(sorted({*bounds(), *places_of(log.controls())}))
        return known[0]

    def drop_part(seq: int, ended: int) -> bool:
        # A place in between is one at which the message was not whole yet, and this is a part of it.
        places = kept()
        place = bisect_left(places, seq)
        return place == len(places) or places[place] >= ended

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
    # What a bound covers is in no list any more.
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
    """Return an event as it is kept once what was taken out is to be forgotten: the same if nothing was."""
    left = redactions.mask(event)
    if left is event or event.kind != MESSAGE_ADDED:
        return left
    if event.seq < redactions.before or event.seq in redactions.seqs:
        return left
    # Taken out while it was being streamed, so it is by its stream that everybody knows it is.
    added = kinds.read(MESSAGE_ADDED, event.raw)
    stream = added.stream if added else None
    instead = msgspec.json.encode({"message": {}, "redacted": True, "stream": stream})
    return msgspec.structs.replace(left, raw=instead)
