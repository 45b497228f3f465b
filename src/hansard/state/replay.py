"""Run a session's events through the fold.

Above: `session`.  Below: `fold`, `backend.contract`.
"""

from hansard.backend.contract import LogReader
from hansard.state.fold import EMPTY, State, apply_all
from hansard.state.redaction import NOTHING, Redactions


def replay(
    log: LogReader,
    *,
    start: State = EMPTY,
    upto: int | None = None,
    redactions: Redactions = NOTHING,
) -> State:
    """Return the state after all events up to a seq, going on from an earlier state."""
    state = start
    for chunk in log.read(after=start.seq, upto=upto):
        events = chunk.events()
        if redactions:
            events = [redactions.mask(event) for event in events]
        state = apply_all(state, events)
    return state
