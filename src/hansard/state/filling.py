"""Hand out events and messages whole: with the large content that is kept elsewhere.

Above: `views`, `reading`, `follow`.  Below: `lineage`, `event.large`.
Only what is handed out is fetched. What was redacted is not, for its content may be gone; and what was
redacted after a reader began may be gone too, so when content is missing, the redactions of the moment count.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from hansard.backend.contract import Log
from hansard.errors import Damaged
from hansard.event.envelope import Event
from hansard.event.large import Gaps, whole
from hansard.state.lineage import redactions_of
from hansard.state.redaction import Redactions

Shown = TypeVar("Shown")


def event(log: Log, redactions: Redactions, found: Event) -> Event:
    """Return an event as it may be shown, and whole."""
    masked = redactions.mask(found)
    try:
        return whole(masked)
    except Damaged:
        fresh = redactions_of(log).mask(found)
        if fresh is found:
            raise
        return fresh


def messages(
    log: Log,
    gaps: dict[int, Gaps],
    shown: Iterable[tuple[int, Shown]],
    fill: Callable[[Gaps, Shown], Shown],
    instead: Callable[[bytes], Shown],
) -> Iterator[tuple[int, Shown]]:
    """Yield messages with their seqs, and whole: those that have gaps are filled, one by one.

    `instead`: makes a message of the data that stand in the place of one that was just redacted.
    """
    for seq, message in shown:
        if seq not in gaps:
            yield seq, message
            continue
        try:
            filled = fill(gaps[seq], message)
        except Damaged:
            fresh = redactions_of(log)
            if seq >= fresh.before and seq not in fresh.seqs:
                raise
            data = None if seq < fresh.before else fresh.seqs[seq]
            if data is not None:
                yield seq, instead(data)
            continue
        yield seq, filled
