"""Know the places to which views are led: by forks, labels and reverts.

At such a place a message may have been half said, and must be shown so for ever.
"""

from collections.abc import Iterable
from contextlib import suppress

from hansard.backend.contract import Backend
from hansard.errors import UNREADABLE, HansardError
from hansard.event import kinds
from hansard.event.envelope import Event
from hansard.event.kinds import SESSION_REVERTED, SESSION_SNAPSHOTTED, SessionForked
from hansard.state.fork_graph import forks

#: By session, the seqs that must still be shown as they were.
Bounds = dict[str, set[int]]


class Places:
    """The places in each session to which its forks lead, as they are now, however long it takes to compact.

    Everybody is looked at when somebody asks for the first time. Later, who has said something since, of
    those that are forks; and everybody again if a session was made, deleted or restored.
    """

    __slots__ = ("_backend", "_bounds", "_population", "_seqs")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend.whole
        self._bounds: Bounds = {}
        self._population: object = None
        self._seqs: dict[str, int] = {}

    def of(self, session_id: str) -> set[int]:
        """Return the places in one session."""
        # Asked before it is looked at: what comes meanwhile is found by the next one who asks.
        population = self._backend.population()
        seqs = {fork: self._seq(fork) for fork in self._seqs}
        if self._population != population or self._seqs != seqs:
            found: list[str] = []
            self._bounds = fork_bounds(self._backend, found)
            # Of what has come since then, this knows nothing: so what it compares with is from before.
            self._seqs = {fork: seqs.get(fork, -1) for fork in found}
            self._population = population
        return self._bounds.get(session_id, set())

    def _seq(self, session_id: str) -> int:
        try:
            head = self._backend.ancestor(session_id).head()
        except HansardError:
            return -1
        return -1 if head is None else head.seq


def fork_bounds(backend: Backend, found: list[str] | None = None) -> Bounds:
    """Return, by session, the seqs of it to which others are led that were forked from it.

    That is where they were forked, and where they, or their own forks, go back to before that. Those in the
    trash count too. `found`: takes those that were forked from others.
    """
    whole = backend.whole
    origins: dict[str, SessionForked] = {}
    wanted: dict[str, set[int]] = {}
    for session_id, forked in forks(whole):
        if forked is None:
            continue  # what it was forked from cannot be told, so it cannot be read either
        origins[session_id] = forked
        wanted[session_id] = {forked.seq}
        with suppress(*UNREADABLE):
            wanted[session_id].update(places_of(whole.ancestor(session_id).controls()))
    if found is not None:
        found.extend(origins)
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


def places_of(controls: list[Event]) -> Iterable[int]:
    """Yield the seqs to which a view can be led by name."""
    for event in controls:
        if event.kind in {SESSION_REVERTED, SESSION_SNAPSHOTTED}:
            read = kinds.read(event.kind, event.raw)
            if read is not None:
                yield read.seq
