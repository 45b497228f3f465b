"""Add up a store: how much there is, how it grew, and what the models took.

Each event counts once, in the session in which it happened: what forks inherit is not theirs. Counting reads
all of a session, also what was compacted, which a listing never does. So it happens when `stats` is called;
the result is stored, and continued when the session has grown.
"""

from typing import Any, Final

import msgspec

from hansard.backend.contract import Backend, LogReader
from hansard.errors import UNREADABLE, SessionDeleted
from hansard.event.event import Event
from hansard.event.kinds import MESSAGE_ADDED, USAGE_RECORDED
from hansard.index import DayStats, StoreStats
from hansard.index.catalog import Progress
from hansard.index.listing import SessionFilter, clause
from hansard.index.sqlite_storage import Storage
from hansard.state import fold, redaction
from hansard.state.fold import State, Usage


class Tally(msgspec.Struct, array_like=True):
    """What happened in a session up to a seq: events and messages by day (UTC), and usage by model."""

    seq: int = 0
    days: dict[str, tuple[int, int]] = {}
    usage: dict[str, Usage] = {}


def count(log: LogReader, before: Tally, upto: int) -> Tally:
    """Return what happened in a session itself up to a seq; `before`: what was counted of it already."""
    redactions = redaction.of(log.controls())
    days = dict(before.days)
    state = State(usage=before.usage)
    for chunk in log.read(before.seq, upto):
        events = chunk.events()
        _add(days, events)
        used = [redactions.mask(event) for event in events if event.kind == USAGE_RECORDED]
        state = fold.apply_all(state, used)
    return Tally(upto, days, state.usage)


def _add(days: dict[str, tuple[int, int]], events: list[Event]) -> None:
    for event in events:
        day = event.stamp[:10]
        there, messages = days.get(day, (0, 0))
        is_message = event.kind == MESSAGE_ADDED
        days[day] = (there + 1, messages + is_message)


_decode: Final = msgspec.json.Decoder(Tally).decode

_FRESH: Final = "t.seq = s.seq AND t.bytes = s.bytes"


def refresh(
    backend: Backend, storage: Storage, filters: SessionFilter, progress: Progress | None = None
) -> set[int]:
    """Count what is new in the wanted sessions; return those that are gone by now."""
    gone: set[int] = set()
    conditions = clause(storage, filters._replace(damaged=False)).plus(f"({_FRESH}) IS NOT TRUE")
    rows = storage.all(
        "SELECT s.n, s.id, s.seq, s.bytes, t.data "  # noqa: S608 - values are apart
        f"FROM index_session s LEFT JOIN index_tally t ON t.n = s.n{conditions.text}",
        *conditions.values,
    )
    for place, (n, session_id, seq, size, data) in enumerate(rows, 1):
        try:
            log = backend.log(session_id).reader()
            counted = count(log, Tally() if data is None else _decode(data), seq)
            saved = log.size(unpacked=True) - log.size()
        except SessionDeleted:
            gone.add(n)
        except UNREADABLE:
            # Damaged where a listing has not looked: none of it is counted.
            storage.do("DELETE FROM index_tally WHERE n = ?", n)
        else:
            storage.do(
                "INSERT INTO index_tally (n, seq, bytes, saved, data) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (n) DO UPDATE SET seq = excluded.seq, bytes = excluded.bytes, "
                "saved = excluded.saved, data = excluded.data",
                n,
                seq,
                size,
                saved,
                msgspec.json.encode(counted).decode(),
            )
        if progress is not None:
            progress(place, len(rows))
    return gone


def stats(
    backend: Backend, storage: Storage, filters: SessionFilter, progress: Progress | None = None
) -> StoreStats:
    """Add up the wanted sessions; inside of a transaction, so that all of it is of one moment."""
    gone = refresh(backend, storage, filters, progress)
    conditions = clause(storage, filters)
    rows = storage.all(
        "SELECT s.n, s.damaged, s.archived, s.parent IS NOT NULL, "  # noqa: S608 - as above
        "s.workspace, s.created, s.bytes, "
        "t.saved, t.data "
        f"FROM index_session s LEFT JOIN index_tally t ON t.n = s.n AND {_FRESH}{conditions.text}",
        *conditions.values,
    )
    total = _Total()
    for n, damaged, archived, forked, workspace, created, size, saved, data in rows:
        if n in gone:
            continue
        total.sessions += 1
        total.forks += forked
        if damaged or data is None:
            total.damaged += 1
            continue
        total.archived += archived
        total.bytes += size
        total.raw_bytes += size + saved
        total.begin(created[:10])
        if workspace is not None:
            total.workspaces[workspace] = total.workspaces.get(workspace, 0) + 1
        total.add(_decode(data))
    return total.made()


class _Total:
    """What several sessions add up to."""

    def __init__(self) -> None:
        self.sessions = self.archived = self.damaged = self.forks = 0
        self.bytes = self.raw_bytes = 0
        self.workspaces: dict[str, int] = {}
        #: Sessions, events and messages of each day.
        self._days: dict[str, list[int]] = {}
        self._models: dict[str, list[Any]] = {}

    def begin(self, day: str) -> None:
        """Count a session that began on a day."""
        self._days.setdefault(day, [0, 0, 0])[0] += 1

    def add(self, counted: Tally) -> None:
        """Add what happened in one session."""
        for day, (events, messages) in counted.days.items():
            known = self._days.setdefault(day, [0, 0, 0])
            known[1] += events
            known[2] += messages
        for model, used in counted.usage.items():
            sums = self._models.setdefault(model, [0, 0, 0, 0.0])
            for place, value in enumerate(msgspec.structs.astuple(used)):
                sums[place] += value

    def made(self) -> StoreStats:
        """Return it."""
        return StoreStats(
            sessions=self.sessions,
            archived=self.archived,
            damaged=self.damaged,
            forks=self.forks,
            events=sum(day[1] for day in self._days.values()),
            messages=sum(day[2] for day in self._days.values()),
            bytes=self.bytes,
            raw_bytes=self.raw_bytes,
            days={day: DayStats(*self._days[day]) for day in sorted(self._days)},
            models={model: Usage(*self._models[model]) for model in sorted(self._models)},
            workspaces=dict(sorted(self.workspaces.items())),
        )
