"""Follow what is appended to the sessions of a store, by whomever.

Above: `store`.  Below: `state.lineage`, `backend.contract`.
One look at a store costs a look at each session's size, and sessions that have grown are read on from where
they were left. Between looks it sleeps, for longer the longer nothing happens, and so that looking takes a
small part of the time. With a cursor, how far it got is remembered by name: a consumer that restarts goes
on behind the last event that it was done with. Events come at least once: what a consumer had in its hands
when it died comes again.
"""

from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, NamedTuple, Self

from hansard.backend.contract import Backend, Cursor
from hansard.clock import Backoff
from hansard.errors import Damaged, DiskFailed, HansardError, SessionDeleted, UnknownFormat
from hansard.event.envelope import Event
from hansard.state import lineage

#: A pause lasts this many times as long as the look before it took.
_SHARE: Final = 20


class Followed(NamedTuple):
    """An event, and whose it is."""

    session: str
    event: Event


class Follower:
    """Yields the events of many sessions as they come. Made by `store.follow`; for one thread at a time.

    Of each session the events come in order. A fork's events are its own: what it inherits has come with
    the parent. An event counts as done when the next one is asked for, and at the end of a `with` block
    that no error ends.
    """

    __slots__ = (
        "_backend",
        "_commit_every",
        "_cursor",
        "_done",
        "_known",
        "_last",
        "_on_damage",
        "_positions",
        "_reading",
        "_unsaved",
        "_waiting",
        "_wanted",
    )

    def __init__(
        self,
        backend: Backend,
        *,
        wanted: Callable[[str], bool],
        cursor: Cursor | None = None,
        commit_every: int = 1,
        from_now: bool = False,
        on_damage: Callable[[str, HansardError], None] | None = None,
    ) -> None:
        self._backend = backend
        self._cursor = cursor
        self._commit_every = commit_every
        self._wanted = wanted
        self._on_damage = on_damage
        #: What `sizes` said when a session was last read to its end.
        self._known: dict[str, int] = {}
        self._positions: dict[str, int] = {} if cursor is None else cursor.positions()
        self._waiting: deque[tuple[str, int]] = deque()
        self._reading: Iterator[Followed] = iter(())
        #: What was handed out last, and what is done with but not yet in the cursor.
        self._last: Followed | None = None
        self._done: dict[str, int] = {}
        self._unsaved = 0
        if from_now:
            self._skip_what_is_there()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Followed:
        while True:
            found = self.take(60.0)
            if found is not None:
                return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del error, trace
        if kind is None:
            self.commit()
        self.close()

    def take(self, timeout: float) -> Followed | None:
        """Return the next event; None if none came within so many seconds."""
        self._count()
        backoff = Backoff(timeout, share=_SHARE)
        while True:
            found = self._next_at_hand()
            if found is not None:
                self._last = found
                return found
            # Nothing is at hand: now is the time to remember what is done, and to look for more.
            self._save()
            backoff.begin()
            self._look()
            if not self._waiting and not backoff.sleep():
                return None

    def commit(self) -> None:
        """Say that everything handed out so far is done with."""
        self._count()
        self._save()

    def close(self) -> None:
        """Stop following; what is done with is remembered, what is in the consumer's hands comes again."""
        cursor = self._cursor
        if cursor is not None:
            try:
                self._save()
            finally:
                # Whatever was refused: others must be able to go on under this name.
                cursor.close()
                self._cursor = None

    def _count(self) -> None:
        if self._last is not None:
            self._done[self._last.session] = self._last.event.seq
            self._last = None
            self._unsaved += 1
            if self._unsaved >= self._commit_every:
                self._save()

    def _save(self) -> None:
        if self._done and self._cursor is not None:
            self._cursor.move(self._done)
        self._done = {}
        self._unsaved = 0

    def _skip_what_is_there(self) -> None:
        for session_id in self._backend.sizes():
            if self._wanted(session_id) and session_id not in self._positions:
                try:
                    head = self._backend.log(session_id).reader().head()
                except (Damaged, DiskFailed, SessionDeleted, UnknownFormat):
                    continue  # it is met again, and reported, when it is read
                if head is not None:
                    self._positions[session_id] = self._done[session_id] = head.seq
        self._save()

    def _look(self) -> None:
        """Find the sessions that have grown."""
        for session_id, size in self._backend.sizes().items():
            if self._known.get(session_id) != size and self._wanted(session_id):
                self._waiting.append((session_id, size))

    def _next_at_hand(self) -> Followed | None:
        while True:
            found = next(self._reading, None)
            if found is not None:
                self._positions[found.session] = found.event.seq
                return found
            if not self._waiting:
                return None
            session_id, size = self._waiting.popleft()
            # The size is older than the reading: what is appended meanwhile shows at the next look.
            self._known[session_id] = size
            self._reading = self._read(session_id)

    def _read(self, session_id: str) -> Iterator[Followed]:
        try:
            log = self._backend.log(session_id).reader()
            head = log.head()
            if head is None:
                return
            after = self._positions.get(session_id, 0)
            if after > head.seq:
                # Purged, and made anew under the same name.
                after = self._positions[session_id] = 0
                if self._cursor is not None:
                    self._cursor.forget(session_id)
            redactions = lineage.redactions_of(lineage.with_ancestors(self._backend, log))
            for chunk in log.read(after=after):
                for event in chunk.events():
                    yield Followed(session_id, redactions.mask(event))
        except SessionDeleted:
            self._known.pop(session_id, None)
        except (Damaged, DiskFailed, UnknownFormat) as error:
            if self._on_damage is None:
                raise
            self._on_damage(session_id, error)
