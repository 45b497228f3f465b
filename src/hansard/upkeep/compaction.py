"""Make what is stored smaller, and rid it of what was taken out.

Above: `store`, `session`.  Below: `state`, `backend.contract`.
Nothing that a view can show changes. Gone afterwards are the bytes of what was redacted or scrubbed, and
the parts of streamed messages that were added whole: except where a fork, a snapshot or a revert leads into
the middle of the stream, since there the parts are all that can be shown.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from hansard.backend.contract import Backend, Forget
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
from hansard.event.kinds import SESSION_REVERTED, SESSION_SNAPSHOTTED
from hansard.state import lineage, redaction

#: How hard zstd tries: by hand, where a person waits for little; by itself, beside other work.
LEVEL: Final = 12
QUICK: Final = 3

Progress = Callable[[int, int], None]


class CompactReport(msgspec.Struct, frozen=True):
    """What a compaction did.

    Attributes:
        sessions: how many were rewritten, in part or whole.
        before, after: bytes of the sealed segments of these, on disk.
        blanked: events whose data were taken out for good.
        failed: sessions that could not be compacted, and why.
    """

    sessions: int = 0
    before: int = 0
    after: int = 0
    blanked: int = 0
    failed: dict[str, str] = {}


def compact_session(
    backend: Backend, session_id: str, *, level: int = LEVEL, progress: Progress | None = None
) -> CompactReport:
    """Compact one session."""
    bounds = fork_bounds(backend).get(session_id, [])
    return _compact(backend, session_id, bounds, level, progress)


def compact_store(
    backend: Backend,
    session_ids: Iterable[str],
    *,
    level: int = LEVEL,
    progress: Progress | None = None,
) -> CompactReport:
    """Compact sessions one by one; one that cannot be is reported and stops no other."""
    total = CompactReport()
    failed: dict[str, str] = {}
    bounds = fork_bounds(backend)
    wanted = sorted(session_ids)
    for place, session_id in enumerate(wanted, 1):
        try:
            done = _compact(backend, session_id, bounds.get(session_id, []), level, None)
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
    return msgspec.structs.replace(total, failed=failed)


def fork_bounds(backend: Backend) -> dict[str, list[int]]:
    """Return, by session, the seqs at which others were forked from it; those in the trash count too."""
    bounds: dict[str, list[int]] = {}
    whole = backend.whole
    for session_id in [*whole.ids(), *whole.trash()]:
        try:
            forked = lineage.origin(whole.ancestor(session_id).first())
        except HansardError:
            continue  # what it was forked from cannot be told, so it cannot be read either
        if forked is not None:
            bounds.setdefault(forked.parent, []).append(forked.seq)
    return bounds


def _compact(
    backend: Backend, session_id: str, bounds: list[int], level: int, progress: Progress | None
) -> CompactReport:
    log = backend.log(session_id)
    done = log.compact(forget_of(log.controls(), bounds), level=level, progress=progress)
    return CompactReport(int(done.segments > 0), done.before, done.after, done.blanked)


def forget_of(controls: list[Event], bounds: list[int]) -> Forget:
    """Return what a session's control events say is to be forgotten."""
    redactions = redaction.of(controls)
    kept = sorted({*bounds, *_places(controls)})

    def drop_parts(begun: int, ended: int) -> bool:
        # A place in between is one at which the message was not whole yet.
        place = bisect_left(kept, begun)
        return place == len(kept) or kept[place] >= ended

    return Forget(redactions.mask, frozenset(redactions.seqs), redactions.streams, drop_parts)


def _places(controls: list[Event]) -> Iterable[int]:
    """Yield the seqs to which a view can be led by name."""
    for event in controls:
        if event.kind in {SESSION_REVERTED, SESSION_SNAPSHOTTED}:
            read = kinds.read(event.kind, event.raw)
            if read is not None:
                yield read.seq
