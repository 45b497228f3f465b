"""The state that sessions of the Agent Development Kit share: an app's, and a user's.

Above: `adk`.  Below: `tally`, `hansard`.
Such a state is a session of its own. An event of a conversation can change up to three sessions: its own, its
app's and its user's. They change together, or not at all:

1. In each shared one an *intention* is appended: the changes, and the place that the event is about to take
   in its conversation (session, seq, key).
2. The event is appended to its conversation, at that place or not at all. **This is when it happens.**
3. In each shared one it is appended that the intention was *settled*: from here on its changes count.

Whoever finds an intention that nobody settled, because its writer was killed, looks at the place in the
conversation: the event is there, or another one is, or none is yet. So the next call that reads the state
completes what was begun, and no two readers can come to different ends.
"""

from contextlib import suppress
from typing import Any, Final, NamedTuple

import hansard
from hansard import Event, SessionDeleted
from hansard.adapters import tally, values

INTENDED: Final = "x.adk.intended"
SETTLED: Final = "x.adk.settled"
SHARED: Final = "x.adk.shared"


class Place(NamedTuple):
    """Where in a conversation an event is about to stand."""

    session: str
    #: The seq before it.
    after: int
    key: str


def _begin() -> dict[str, Any]:
    return {"state": {}, "open": {}}


def _add(value: dict[str, Any], event: Event) -> None:
    data = event.data
    if event.kind == INTENDED and "changes" in data:
        value["open"][str(event.seq)] = data
    elif event.kind == SETTLED and "intention" in data:
        intention = value["open"].pop(str(data["intention"]), None)
        if intention is not None and data["happened"]:
            value["state"].update(values.unwrap(intention, "changes"))


_TALLY: Final = tally.Tally(SHARED, _begin, _add)


class Intention:
    """Changes of a shared state that are about to happen."""

    def __init__(
        self, store: hansard.Store, shared: str, changes: dict[str, Any], place: Place
    ) -> None:
        # First what others left open: what happened before this must not be settled after it.
        state(store, shared)
        self._shared = store.session(shared)
        data = {**values.wrap("changes", changes), **place._asdict()}
        self._seq = self._shared.append(INTENDED, data).seq

    def settle(self, *, happened: bool) -> None:
        """Say that the changes happened, or that they never will."""
        settled = _settle(self._shared, self._seq, happened=happened)
        if tally.due(self._shared, self._seq - 1, settled.seq):
            tally.note(self._shared, _TALLY)


def _settle(shared: hansard.Session, intention: int, *, happened: bool) -> Event:
    # The writer and a reader may both do so: they say the same, and the first one counts. No key: it would
    # be known still after a revert that has taken the settling back.
    return shared.append(SETTLED, {"intention": intention, "happened": happened})


def state(store: hansard.Store, session_id: str) -> dict[str, Any]:
    """Return a shared state, and settle what was left open."""
    shared = store.session(session_id)
    try:
        value = tally.added_up(shared, _TALLY).value
    except SessionDeleted:
        return {}
    found: dict[str, Any] = value["state"]
    for seq, intention in value["open"].items():
        happened = _happened(store, intention)
        if happened is None:
            continue
        # A store that can only be read shows what is so, and leaves the settling to others.
        with suppress(hansard.ReadOnly):
            _settle(shared, int(seq), happened=happened)
        if happened:
            found.update(values.unwrap(intention, "changes"))
    return found


def _happened(store: hansard.Store, intention: dict[str, Any]) -> bool | None:
    """Say whether the event stands where it was to stand; None if nothing does yet."""
    try:
        events = store.session(intention["session"]).events(after=intention["after"])
        event = next(events, None)
    except SessionDeleted:
        # Before it deletes a conversation, the service settles what had happened in it.
        return False
    except hansard.Damaged:
        return None
    return None if event is None else event.key == intention["key"]
