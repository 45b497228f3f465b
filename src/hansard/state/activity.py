"""Say when something last happened in a session.

Above: `store`, `upkeep`.  Below: `backend.contract`, `event`.
To give a session a title, to put it away, to declare it over or to drop its beginning is housekeeping:
nothing happened in it. So a listing does not move it up, `latest` does not prefer it, and `prune` is not kept
from it.
"""

from typing import Final

from hansard.backend.contract import Head, LogReader
from hansard.event.kinds import HISTORY_DROPPED, METADATA_SET, SESSION_ARCHIVED, SESSION_CLOSED

#: What counts as no activity. All of these are control events.
HOUSEKEEPING: Final = frozenset({HISTORY_DROPPED, METADATA_SET, SESSION_ARCHIVED, SESSION_CLOSED})


def latest_activity(log: LogReader, upto: int) -> str:
    """Return the latest time at which something happened in a session; empty if nothing did.

    Reads all of it: a clock that was set back writes later events with earlier times (F-16).
    """
    return max(
        (
            event.stamp
            for chunk in log.read(upto=upto)
            for event in chunk.events()
            if event.kind not in HOUSEKEEPING
        ),
        default="",
    )


def last_activity(log: LogReader, head: Head) -> str:
    """Return when something last happened in a session, as RFC 3339 text: when it began, if nothing did.

    Args:
        log: the session itself, without what it inherits.
        head: where it stands.
    """
    controls = log.controls(head.seq)
    if not controls or controls[-1].seq < head.seq or controls[-1].kind not in HOUSEKEEPING:
        return head.updated  # nearly always, and without another look
    for chunk in log.read_back(head.seq):
        for event in reversed(chunk.events()):
            if event.kind not in HOUSEKEEPING:
                return event.stamp
    return head.created
